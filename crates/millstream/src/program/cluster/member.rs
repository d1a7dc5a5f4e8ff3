//! A process's tasks in a job, the coordinator's included, as the control plane sees them.

use std::sync::Arc;

use millstream_checkpoint::Place as SavedPlace;
use millstream_contract::table::SplitSpec;
use millstream_engine::Standing;
use millstream_engine::observe::Snapshot;
use millstream_fabric::setup::Hello;
use serde_json::Value;

use super::failure::{Fault, ProcessFailure};
use super::parts::Parts;

/// The checkpoints of a query, in process 0.
#[derive(Debug)]
pub enum Checkpoints {
    /// No checkpoints.
    None,
    /// The query begins at this place.
    At(SavedPlace),
    /// The query has ended in an earlier run, in the checkpoint of this number.
    Ended(u64),
}

/// One process's part in a job. The calls come in the order of the messages: for each statement
/// `execute`, and if that was a query `open` (in process 0), `go_on` (in the others, if the query
/// has checkpoints), `splits` (in process 0), `prepare`, `connect`, `run`, and, if that went well
/// in all processes, `ends` (in process 0), `commit`, and `mark` (in process 0).
pub trait Member {
    /// Executes a statement of the job's script. For a query: plans it, and says what has to be the
    /// same in all processes.
    fn execute(&mut self, statement: usize, start_us: i64) -> Result<Option<Parts>, Fault>;

    /// Opens the checkpoints of the query that was planned last. Only process 0 is asked.
    fn open(&mut self) -> Result<Checkpoints, Fault> {
        Ok(Checkpoints::None)
    }

    /// The query that was planned last has checkpoints, and begins at this place.
    fn go_on(&mut self, _place: SavedPlace) -> Result<(), Fault> {
        Err(Fault::run("a query without checkpoints is to go on from one"))
    }

    /// How much there is to read of the query that was planned last, where that can change:
    /// `splits` of each of its tables. Only process 0 is asked, for all.
    fn splits(&mut self) -> Result<Vec<Vec<SplitSpec>>, Fault> {
        Ok(Vec::new())
    }

    /// Makes the channels of the query that was planned last, which will read no more than
    /// `splits`; what each process has to be told, by process.
    fn prepare(&mut self, splits: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault>;

    /// Connects them with what each process has told, and opens the sources. Returns what else has
    /// to be the same in all processes.
    fn connect(&mut self, hellos: Vec<Vec<Hello>>) -> Result<Parts, Fault>;

    /// Runs the query to its end; returns what process 0 has to know of it, also if it stopped
    /// before. `stops` says how it is stopped from outside.
    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>);

    /// Takes the reports of all processes on their runs, by process. Only process 0 gets them.
    fn ends(&mut self, _ends: &[Value]) -> Result<(), Fault> {
        Ok(())
    }

    /// Shows the result that this process has written as complete.
    fn commit(&mut self) -> Result<(), Fault>;

    /// All processes have done so: says that the result is complete. Only process 0 is told.
    fn mark(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

impl<M: Member + ?Sized> Member for Box<M> {
    fn execute(&mut self, statement: usize, start_us: i64) -> Result<Option<Parts>, Fault> {
        (**self).execute(statement, start_us)
    }
    fn open(&mut self) -> Result<Checkpoints, Fault> {
        (**self).open()
    }
    fn go_on(&mut self, place: SavedPlace) -> Result<(), Fault> {
        (**self).go_on(place)
    }
    fn splits(&mut self) -> Result<Vec<Vec<SplitSpec>>, Fault> {
        (**self).splits()
    }
    fn prepare(&mut self, splits: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        (**self).prepare(splits)
    }
    fn connect(&mut self, hellos: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        (**self).connect(hellos)
    }
    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        (**self).run(stops)
    }
    fn ends(&mut self, ends: &[Value]) -> Result<(), Fault> {
        (**self).ends(ends)
    }
    fn commit(&mut self) -> Result<(), Fault> {
        (**self).commit()
    }
    fn mark(&mut self) -> Result<(), Fault> {
        (**self).mark()
    }
}

/// How a running query learns that it has to stop, because another process has failed.
#[derive(Clone)]
pub struct Stops(pub(super) Arc<dyn SetHook>);

/// Sources of progress of the local query.
pub(super) struct Watched {
    /// How far it is. It does not wait.
    pub(super) standing: Box<dyn Fn() -> Standing + Send>,
    /// Snapshot of the query. Waits for a moment.
    pub(super) observe: Box<dyn Fn() -> Snapshot + Send>,
}

pub(super) trait SetHook: Send + Sync {
    fn set(&self, hook: Box<dyn Fn(&ProcessFailure) + Send>);
    fn watch(&self, watched: Watched);
}

impl Stops {
    /// From now on `stop` is called at the first failure, at once if there was one. It must not
    /// wait.
    pub fn set(&self, stop: impl Fn(&ProcessFailure) + Send + 'static) {
        self.0.set(Box::new(stop));
    }

    /// From now on, until the query has ended, `standing` says how far it is, without waiting, and
    /// `observe` what it is doing.
    pub fn watch(
        &self,
        standing: impl Fn() -> Standing + Send + 'static,
        observe: impl Fn() -> Snapshot + Send + 'static,
    ) {
        self.0.watch(Watched { standing: Box::new(standing), observe: Box::new(observe) });
    }
}

impl std::fmt::Debug for Stops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stops")
    }
}
