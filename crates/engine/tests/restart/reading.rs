//! Tables whose splits have names and positions, and take a cut or stop the job while they are
//! read.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::plan::Plan;
use millstream_contract::table::{OpenOptions, Position, Sharing, Split, SplitPoll, Table};
use millstream_engine::{Resume, Stopper};

use crate::kept::Kept;
use crate::support::Random;

/// What happens to a job while its tables are read.
#[derive(Debug)]
pub(crate) struct Control {
    /// Of the processes of the job.
    pub(crate) stoppers: Mutex<Vec<Stopper>>,
    pub(crate) kept: Arc<Kept>,
    pub(crate) random: Mutex<Random>,
    /// One look at a split in so many takes a cut, and stops the job; 0: none does.
    pub(crate) looks_of_cut: u64,
    pub(crate) looks_of_stop: u64,
}

impl Control {
    /// Of a job to which nothing happens.
    pub(crate) fn none(kept: &Arc<Kept>) -> Arc<Control> {
        let (stoppers, random) = (Mutex::default(), Mutex::new(Random::new(1)));
        Arc::new(Control {
            stoppers,
            kept: kept.clone(),
            random,
            looks_of_cut: 0,
            looks_of_stop: 0,
        })
    }

    /// Takes a cut, if none is being taken.
    pub(crate) fn cut(&self, stopper: &Stopper) {
        let kept = &self.kept;
        let begun = kept.begun.load(Relaxed);
        if kept.ended() != begun {
            return;
        }
        kept.begun.store(begun + 1, Relaxed);
        if !stopper.cut(begun + 1) {
            kept.begun.store(begun, Relaxed);
        }
    }

    fn look(&self) {
        let (mut random, stoppers) = (self.random.lock().unwrap(), self.stoppers.lock().unwrap());
        let Some(first) = stoppers.first() else { return };
        if self.looks_of_cut > 0 && random.below(self.looks_of_cut) == 0 {
            self.cut(first);
        }
        if self.looks_of_stop > 0 && random.below(self.looks_of_stop) == 0 {
            stoppers[random.below(stoppers.len() as u64) as usize].stop();
        }
    }
}

/// A table of a job that goes on.
#[derive(Debug)]
struct Reading {
    table: Arc<dyn Table>,
    control: Arc<Control>,
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
    control: &Arc<Control>,
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
    control: Arc<Control>,
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
        loop {
            match self.split.poll_next(now_us, waker)? {
                SplitPoll::Chunk(_) if self.skips > 0 => self.skips -= 1,
                SplitPoll::Chunk(chunk) => {
                    self.next += 1;
                    return Ok(SplitPoll::Chunk(chunk));
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
            Box::new(ReadingSplit { name, split, skips: next, next, control: self.control.clone() })
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
