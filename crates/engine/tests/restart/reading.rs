//! Tables whose splits have names and positions, and in which something happens at each look.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::plan::Plan;
use millstream_contract::table::{OpenOptions, Position, Sharing, Split, SplitPoll, Table};
use millstream_engine::Resume;

/// Something that happens while tables are read.
pub(crate) trait Look: Debug + Send + Sync {
    /// Is called at each look at a split.
    fn look(&self);
}

/// A table of a job that goes on.
#[derive(Debug)]
struct Reading {
    table: Arc<dyn Table>,
    control: Arc<dyn Look>,
    /// The splits come in another order.
    reversed: bool,
    /// Splits that are there no more.
    gone: BTreeSet<String>,
    /// When the first job was started.
    started_us: Option<i64>,
}

/// The plan over its tables as they are read by a job. `goes`: splits that had ended are gone.
pub(crate) fn read(
    mut plan: Plan,
    control: &Arc<dyn Look>,
    from: &Resume,
    (reversed, goes): (bool, bool),
) -> Plan {
    let names: Vec<String> = plan.sources.iter().map(|source| source.name.clone()).collect();
    for (number, source) in plan.sources.iter_mut().enumerate() {
        let equal = names[..number].iter().filter(|name| **name == source.name).count();
        let name = match equal {
            0 => source.name.clone(),
            before => format!("{}.{}", source.name, before + 1),
        };
        let splits = from.marks.get(&name).filter(|_| goes).into_iter().flat_map(|of| &of.splits);
        let gone = splits.filter(|(_, mark)| mark.ended).map(|(name, _)| name.clone());
        source.table = Arc::new(Reading {
            table: source.table.clone(),
            control: control.clone(),
            reversed,
            gone: gone.collect(),
            started_us: from.started_us,
        });
    }
    plan
}

struct ReadingSplit {
    name: String,
    split: Box<dyn Split>,
    /// Chunks to be passed over, and chunks handed out, those included.
    skips: u64,
    next: u64,
    control: Arc<dyn Look>,
    /// When the first job was started, and how much later the first look was: whatever the clock of
    /// the job, records come at the same pace in each run.
    started_us: i64,
    later_us: Option<i64>,
}

impl Split for ReadingSplit {
    fn position(&self) -> Position {
        Position(vec![self.next])
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn sharing(&self) -> Sharing {
        self.split.sharing()
    }
    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        self.control.look();
        let later_us = *self.later_us.get_or_insert(now_us - self.started_us);
        loop {
            match self.split.poll_next(now_us - later_us, waker)? {
                SplitPoll::Chunk(_) if self.skips > 0 => self.skips -= 1,
                SplitPoll::Chunk(chunk) => {
                    self.next += 1;
                    return Ok(SplitPoll::Chunk(chunk));
                }
                SplitPoll::Pending { retry_at_us } => {
                    let retry_at_us = retry_at_us.map(|at| at + later_us);
                    return Ok(SplitPoll::Pending { retry_at_us });
                }
                other => return Ok(other),
            }
        }
    }
}

impl Table for Reading {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }
    fn bounded(&self) -> bool {
        self.table.bounded()
    }
    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        assert_eq!(options.start_time_us, self.started_us.unwrap_or(options.start_time_us));
        let split = |(number, split): (usize, Box<dyn Split>)| -> Box<dyn Split> {
            let name = format!("split {number}");
            let next = options.from.get(&name).and_then(|at| at.0.first().copied()).unwrap_or(0);
            let (control, started_us) = (self.control.clone(), options.start_time_us);
            let (skips, later_us) = (next, None);
            Box::new(ReadingSplit { name, split, skips, next, control, started_us, later_us })
        };
        let splits = self.table.open(projection, options)?.into_iter().enumerate().map(split);
        let mut splits: Vec<_> = splits.filter(|split| !self.gone.contains(split.name())).collect();
        if self.reversed {
            splits.reverse();
        }
        Ok(splits)
    }
    fn describe(&self, _: &[usize]) -> String {
        "cuts".into()
    }
}
