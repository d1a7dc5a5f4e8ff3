//! Running a job: on a thread for each worker, or simulated on this one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::job::{Job, run_guarded};
use crate::shared::Shared;
use crate::simulation;
use crate::sink::commit_all;
use crate::stats::Stats;
use crate::worker::Worker;

/// What is left of a job that has ended: its ends of channels, and state.
pub struct Remains(#[expect(dead_code, reason = "it is there to be dropped")] Option<Kept>);

type Kept = (Vec<Worker>, Arc<Shared>);

impl fmt::Debug for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remains")
    }
}

impl Job {
    /// Runs to the end of the input, an error, or [`Stopper::stop`]. The counters are returned in
    /// any case: they say how far the job got.
    pub fn run(self) -> (Stats, Result<()>) {
        let shared = self.shared().clone();
        let (stats, result, _) = self.run_and_keep();
        let sinks: Vec<_> = shared.gathers.iter().map(|gather| gather.sink().clone()).collect();
        (stats, result.and_then(|()| commit_all(&sinks, &[])))
    }

    /// As [`Job::run`], for a job of several processes: keep what remains until all of them have
    /// ended, since one that has not would take the end of a channel for a failure. Whoever knows
    /// that all have ended well commits the sinks.
    pub fn run_and_keep(mut self) -> (Stats, Result<()>, Remains) {
        if self.shared().settings.simulate.is_some() {
            let (stats, result) = simulation::alone(self);
            return (stats, result, Remains(None));
        }
        let mut workers = self.workers();
        let shared = self.shared().clone();
        let shared = &shared;
        thread::scope(|scope| {
            for (id, worker) in workers.iter_mut().enumerate() {
                let thread = thread::Builder::new().name(format!("worker-{id}"));
                let run = || run_guarded(shared, || worker.run());
                if let Err(error) = thread.spawn_scoped(scope, run) {
                    shared.stop(Some(Error::Io {
                        place: format!("worker {id}"),
                        message: format!("cannot start a thread: {error}"),
                        help: "use fewer workers".into(),
                    }));
                }
            }
        });
        loop {
            shared.pace.begin(shared.pace.last());
            let ended = run_guarded(shared, || self.end_streams(&mut workers));
            shared.pace.end(shared.pace.last(), false);
            match ended {
                Some(true) => break,
                None if shared.has_failed() => break,
                _ => thread::sleep(Duration::from_micros(50)),
            }
        }
        shared.closing.store(true, Relaxed);
        let (stats, result) = self.close(&workers);
        (stats, result, Remains(Some((workers, shared.clone()))))
    }
}
