//! The thread that looks after all links of a process: endpoints poll, and have no threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};

/// Result of a link's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// The link has ended, and needs no more turns.
    Gone,
    /// No stream is open.
    Quiet,
    /// Streams are open, and nothing has come.
    Waiting,
    /// Something has come or gone.
    Moved,
}

/// A link.
pub(crate) trait Member: Send + Sync {
    /// Takes what has come and sends what can go. Never waits.
    fn turn(&self) -> Turn;
}

/// Rounds without anything to do in which other threads are let run, before sleeping.
const YIELDS: u32 = 50;
/// Sleep while streams are open: at first, and when nothing has come for long.
const NAP: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);
/// Sleep while no stream is open. Endpoints over datagrams count as lost after a second of silence.
const REST: Duration = Duration::from_millis(20);

struct Shared {
    members: Mutex<Vec<Arc<dyn Member>>>,
    stop: AtomicBool,
}

impl Shared {
    /// A turn of every member: the busiest's answer.
    fn round(&self) -> Turn {
        let members = lock(&self.members).clone();
        let mut round = Turn::Quiet;
        for member in &members {
            match member.turn() {
                Turn::Gone => lock(&self.members).retain(|one| !Arc::ptr_eq(one, member)),
                turn => round = round.max(turn),
            }
        }
        round
    }

    fn run(&self) {
        let mut idle = 0_u32;
        while !self.stop.load(Ordering::Acquire) {
            match self.round() {
                Turn::Moved => idle = 0,
                Turn::Waiting if idle < YIELDS => {
                    idle += 1;
                    std::thread::yield_now();
                }
                Turn::Waiting => {
                    let naps = idle - YIELDS;
                    std::thread::park_timeout((NAP * (1 + naps / 64)).min(NAP_MAX));
                    idle = idle.saturating_add(1);
                }
                Turn::Quiet | Turn::Gone => {
                    std::thread::park_timeout(REST);
                    idle = 0;
                }
            }
        }
        lock(&self.members).clear();
    }
}

/// The thread. It ends when this is dropped.
pub(crate) struct Mover {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    pub(crate) fn start() -> Result<Mover> {
        let shared =
            Arc::new(Shared { members: Mutex::new(Vec::new()), stop: AtomicBool::new(false) });
        let run = shared.clone();
        let thread = std::thread::Builder::new()
            .name("shuffle mover".into())
            .spawn(move || run.run())
            .map_err(|error| Error::Connect {
                worker: "itself".into(),
                reason: error.to_string(),
            })?;
        Ok(Mover { shared, thread: Some(thread) })
    }

    /// Handle for waking the thread.
    pub(crate) fn bell(&self) -> Bell {
        Bell(self.thread.as_ref().map(|thread| thread.thread().clone()))
    }

    /// Looks after one more link.
    pub(crate) fn add(&self, member: Arc<dyn Member>) {
        lock(&self.shared.members).push(member);
        self.bell().ring();
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.bell().ring();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            drop(thread.join());
        }
    }
}

/// Wakes the thread before its time.
#[derive(Clone)]
pub(crate) struct Bell(Option<std::thread::Thread>);

impl Bell {
    pub(crate) fn ring(&self) {
        if let Some(thread) = &self.0 {
            thread.unpark();
        }
    }
}

/// A panic of another thread is that thread's affair: what is behind the lock is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
