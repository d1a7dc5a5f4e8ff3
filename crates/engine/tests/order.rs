//! Tests of chunks that are decoded out of order, on real threads: a split's watermark must still
//! follow the order of its records. Simulation cannot show this, since a simulated step decodes a
//! chunk as a whole.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::support::script::batches_of;
use crate::support::*;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::table::*;
use millstream_contract::{Result, Settings};

/// Which chunks somebody has begun to decode.
#[derive(Debug, Default)]
struct Begun {
    chunks: Mutex<HashSet<usize>>,
    more: Condvar,
    overtaken: Mutex<u64>,
}

/// One split, every fourth chunk of which takes until the next but one is being decoded. By then
/// another worker has done with the one in between.
#[derive(Debug)]
struct Overtaking {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    begun: Arc<Begun>,
}

struct OvertakingSplit {
    rest: std::iter::Enumerate<std::vec::IntoIter<RecordBatch>>,
    count: usize,
    begun: Arc<Begun>,
}

struct SlowChunk {
    number: usize,
    last: bool,
    batch: RecordBatch,
    begun: Arc<Begun>,
}

impl Chunk for SlowChunk {
    fn bytes(&self) -> usize {
        self.batch.num_rows() * 40
    }
    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        let mut chunks = self.begun.chunks.lock().unwrap();
        chunks.insert(self.number);
        self.begun.more.notify_all();
        if self.number.is_multiple_of(4) && !self.last {
            // The limit is for a machine that gives the other worker no time at all.
            let (number, limit) = (self.number + 2, Duration::from_secs(20));
            let waited =
                self.begun.more.wait_timeout_while(chunks, limit, |c| !c.contains(&number));
            *self.begun.overtaken.lock().unwrap() += u64::from(!waited.unwrap().1.timed_out());
        }
        Ok(self.batch)
    }
}

impl Split for OvertakingSplit {
    /// No test goes on from a position.
    fn position(&self) -> Position {
        Position::default()
    }
    fn name(&self) -> &str {
        "overtaking"
    }
    fn poll_next(&mut self, _: i64, _: &Waker) -> Result<SplitPoll> {
        let Some((number, batch)) = self.rest.next() else { return Ok(SplitPoll::Ended) };
        let last = number + 2 >= self.count;
        Ok(SplitPoll::Chunk(Box::new(SlowChunk { number, last, batch, begun: self.begun.clone() })))
    }
}

impl Table for Overtaking {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn bounded(&self) -> bool {
        true
    }
    fn open(&self, _: &[usize], _: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let (rest, count) = (self.batches.clone().into_iter().enumerate(), self.batches.len());
        Ok(vec![Box::new(OvertakingSplit { rest, count, begun: self.begun.clone() })])
    }
    fn describe(&self, _: &[usize]) -> String {
        "overtaking".into()
    }
}

#[test]
fn watermarks_follow_the_order_of_records_and_not_of_decoding() {
    for workers in [2, 4] {
        let mut random = Random::new(31);
        let data = records(&mut random, 1, 3000, 20);
        let begun = Arc::new(Begun::default());
        let source = Overtaking {
            schema: table(&[], &mut random, 1).schema.clone(),
            batches: batches_of(&data[0], &mut random, 60),
            begun: begun.clone(),
        };
        let chunks = source.batches.len() as u64;
        // Few epochs: a worker whose deltas wait to be merged takes nothing more, and would be
        // waited for.
        let settings = Settings { workers, epoch_max_idle_ms: 60_000, ..Settings::default() };
        let (expected, late, null_time) = oracle(&data, Some(5000), 100_000, 0);
        let (stats, rows) = run(&query(Arc::new(source), Some(5000), 100_000), &settings);
        assert_eq!(rows.unwrap(), expected, "{workers} workers");
        assert_eq!((stats.late_records, stats.null_time_records), (late, null_time));
        assert!(late > 20, "{late} late records");
        let overtaken = *begun.overtaken.lock().unwrap();
        assert!(overtaken >= chunks / 4 - 1, "{overtaken} of {chunks} chunks were overtaken");
    }
}
