//! A table whose splits hand out their batches at given times: splits of different speed, splits
//! that end early, splits that fall idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Waker;

use arrow::array::*;
use arrow::datatypes::*;
use millstream_contract::Result;
use millstream_contract::table::*;

use super::{Random, Record, table};

/// Records as batches of random sizes up to `rows`.
pub(crate) fn batches_of(records: &[Record], random: &mut Random, rows: u64) -> Vec<RecordBatch> {
    table(&[records.to_vec()], random, rows).splits[0].clone()
}

/// Splits of different speed, and one that never has a record.
pub(crate) fn with_a_silent_split(data: &[Vec<Record>], random: &mut Random) -> Scripted {
    let mut scripts: Vec<Script> = Vec::new();
    for split in data {
        let pace_us = random.below(3_000) as i64;
        let batches = batches_of(split, random, 30).into_iter().enumerate();
        let batches = batches.map(|(i, batch)| (i as i64 * pace_us, batch)).collect();
        scripts.push(Script { batches });
    }
    let nothing = RecordBatch::new_empty(table(&[], random, 1).schema.clone());
    scripts.push(Script { batches: vec![(3_600_000_000, nothing)] });
    Scripted::new(scripts, 0)
}

/// A split that follows a script: batches, each not before its time (microseconds from the start).
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) batches: Vec<(i64, RecordBatch)>,
}

/// A table of scripted splits.
#[derive(Debug)]
pub(crate) struct Scripted {
    schema: SchemaRef,
    scripts: Vec<Script>,
    /// Per split: the watermark (ms) of all that it has handed out; the end of time once it has
    /// ended.
    pub(crate) handed_out: Arc<Vec<AtomicI64>>,
    delay_ms: i64,
    sharing: Sharing,
}

impl Scripted {
    pub(crate) fn new(scripts: Vec<Script>, delay_ms: i64) -> Scripted {
        let schema = table(&[], &mut Random::new(1), 1).schema.clone();
        let handed_out = scripts.iter().map(|_| AtomicI64::new(i64::MIN)).collect();
        Scripted {
            schema,
            scripts,
            handed_out: Arc::new(handed_out),
            delay_ms,
            sharing: Sharing::Whole,
        }
    }
    /// The same, whose splits processes share in another way.
    pub(crate) fn shared(self, sharing: Sharing) -> Scripted {
        Scripted { sharing, ..self }
    }
}

struct ScriptedSplit {
    script: std::vec::IntoIter<(i64, RecordBatch)>,
    next: Option<(i64, RecordBatch)>,
    start_us: i64,
    index: usize,
    handed_out: Arc<Vec<AtomicI64>>,
    delay_ms: i64,
    sharing: Sharing,
}

impl Split for ScriptedSplit {
    /// No test goes on from a position.
    fn position(&self) -> Position {
        Position::default()
    }
    fn name(&self) -> &str {
        "script"
    }
    fn sharing(&self) -> Sharing {
        self.sharing
    }
    fn poll_next(&mut self, now_us: i64, _: &Waker) -> Result<SplitPoll> {
        let Some((at, batch)) = self.next.take().or_else(|| self.script.next()) else {
            self.handed_out[self.index].store(i64::MAX, Ordering::SeqCst);
            return Ok(SplitPoll::Ended);
        };
        if self.start_us + at > now_us {
            self.next = Some((at, batch));
            return Ok(SplitPoll::Pending { retry_at_us: Some(self.start_us + at) });
        }
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>();
        if let Some(max) = times.iter().flatten().max() {
            self.handed_out[self.index].fetch_max(max - self.delay_ms, Ordering::SeqCst);
        }
        Ok(SplitPoll::Chunk(Box::new(batch)))
    }
}

impl Table for Scripted {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn bounded(&self) -> bool {
        true
    }
    fn open(&self, _: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let splits = self.scripts.iter().enumerate().map(|(index, script)| {
            Box::new(ScriptedSplit {
                script: script.batches.clone().into_iter(),
                next: None,
                start_us: options.start_time_us,
                index,
                handed_out: self.handed_out.clone(),
                delay_ms: self.delay_ms,
                sharing: self.sharing,
            }) as Box<dyn Split>
        });
        Ok(splits.collect())
    }
    fn describe(&self, _: &[usize]) -> String {
        "script".into()
    }
}
