//! Running a job: on a thread for each worker, or simulated on this one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::job::{Job, run_guarded};
use crate::shared::Shared;
use crate::simulation;
use crate::sink::publish_all;
use crate::standing::{STUCK_AFTER, Standing};
use crate::stats::Stats;
use crate::worker::Worker;

/// Remains of an ended job: its ends of channels, and state.
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
        (stats, result.and_then(|()| publish_all(&sinks, &[])))
    }

    /// As [`Job::run`], for a job of several processes: keep what remains until all of them have
    /// ended, since one that has not would take the end of a channel for a failure. Whoever knows
    /// that all have ended well commits the sinks.
    pub fn run_and_keep(self) -> (Stats, Result<()>, Remains) {
        self.run_watched(STUCK_AFTER)
    }

    /// As [`Job::run_and_keep`]. Of a job of one process nothing may happen for so long.
    fn run_watched(mut self, patience: Duration) -> (Stats, Result<()>, Remains) {
        if self.shared().settings.simulate.is_some() {
            let (stats, result) = simulation::alone(self);
            return (stats, result, Remains(None));
        }
        let mut workers = self.workers();
        let shared = self.shared().clone();
        let shared = &shared;
        shared.tell_start();
        thread::scope(|scope| {
            let (running, ended) = channel::<()>();
            let (reading, over) = channel::<()>();
            for (id, worker) in workers.iter_mut().enumerate() {
                let thread = thread::Builder::new().name(format!("worker-{id}"));
                let thread = thread.stack_size(STACK_BYTES);
                let running = (running.clone(), reading.clone());
                let run = move || {
                    let _running = running;
                    run_guarded(shared, || worker.run())
                };
                if let Err(error) = thread.spawn_scoped(scope, run) {
                    shared.stop(Some(Error::Io {
                        place: format!("worker {id}"),
                        message: format!("cannot start a thread: {error}"),
                        help: "use fewer workers".into(),
                    }));
                }
            }
            drop((running, reading));
            if !shared.joins.is_empty() {
                scope.spawn(move || look_for_splits(shared, &over));
            }
            if shared.net.as_ref().is_none_or(|net| net.place.processes == 1) {
                watch(shared, &ended, patience);
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

/// Stack of a thread that evaluates expressions, bytes. Evaluation recurses over an expression: up
/// to 4 KB for each of a thousand levels without optimisation. Pages are mapped when they are
/// touched.
pub const STACK_BYTES: usize = 16 << 20;

/// How often tables are asked for new splits. How often the tables ask is theirs to say.
const LOOK_FOR_SPLITS: Duration = Duration::from_millis(500);

/// How often somebody looks whether workers get on.
const LOOK: Duration = Duration::from_secs(1);

/// Looks for new splits now and then, until all workers have ended.
fn look_for_splits(shared: &Shared, ended: &Receiver<()>) {
    while ended.recv_timeout(LOOK_FOR_SPLITS) == Err(RecvTimeoutError::Timeout) {
        if run_guarded(shared, || shared.look_for_splits()).is_none() {
            return;
        }
    }
}

/// Waits for the end of all workers of a job of one process. Ends the job if for so long all of
/// them wait for each other. Of several processes nobody can tell that alone
/// ([`crate::standing`]).
fn watch(shared: &Shared, ended: &Receiver<()>, patience: Duration) {
    let look = LOOK.min(patience / 4);
    let (mut last, mut still) = (Standing::default(), Duration::ZERO);
    while ended.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
        let standing = shared.standing();
        still = match standing.waits_for.is_some() && standing == last {
            true => still + look,
            false => Duration::ZERO,
        };
        last = standing;
        if let Some(waits_for) = last.waits_for.as_ref().filter(|_| still >= patience) {
            let message = format!("the query is stuck: all workers wait for {waits_for}");
            return shared.stop(Some(Error::Internal(message)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, OnceLock};

    use super::*;
    use crate::checkpoint::Resume;
    use crate::settings::Settings;
    use crate::sink::RowOrder;
    use crate::support::{Collect, Random, query, records, table};
    use millstream_operators::env::{Env, Threads};

    /// Environment in which sleepers do not wake up unless the job stops.
    #[derive(Debug)]
    struct Deaf {
        threads: Threads,
        shared: OnceLock<Arc<Shared>>,
    }

    impl Env for Deaf {
        fn now_us(&self) -> i64 {
            self.threads.now_us()
        }
        fn wait(&self, worker: usize, _: Option<i64>) {
            self.threads.wait(worker, None);
        }
        fn wake(&self, worker: usize) {
            if self.shared.get().is_some_and(|shared| shared.stopping.load(Relaxed)) {
                self.threads.wake(worker);
            }
        }
        fn choose(&self, _: u64) -> Option<u64> {
            None
        }
        fn pass_time(&self, _: i64) {}
    }

    impl fmt::Debug for Shared {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Shared")
        }
    }

    #[test]
    fn a_job_whose_workers_wait_for_each_other_ends_with_an_error() {
        let mut random = Random::new(1);
        let data = records(&mut random, 1, 500, 40);
        let plan = query(table(&data, &mut random, 10), Some(500), 100_000);
        let settings = Settings { workers: 3, ..Settings::default() };
        // Workers that never sleep are not stuck: that three of them do not is as good as
        // impossible, and need not be so the first time.
        for _ in 0..100 {
            let threads = Threads::new(settings.workers, Vec::new());
            let env = Arc::new(Deaf { threads, shared: OnceLock::new() });
            let batches = Mutex::default();
            let sink = Arc::new(Collect { order: RowOrder::Deterministic, batches });
            let job = Job::prepare(
                &plan,
                &settings,
                vec![sink],
                env.clone(),
                env.now_us(),
                (&Resume::default(), None),
                None,
            )
            .expect("a job");
            env.shared.set(job.shared().clone()).expect("it was empty");
            let (_, result, _) = job.run_watched(Duration::from_millis(200));
            if let Err(error) = result {
                let error = error.to_string();
                assert!(error.contains("the query is stuck: all workers wait for"), "{error}");
                return;
            }
        }
        panic!("it ended well a hundred times");
    }
}
