//! A store whose calls wait for the job: the thread that writes checkpoints gets as far as chance
//! says at each moment of the job, and no farther. So a seed tells all that happens.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

use millstream_store::disk::CrashDisk;
use millstream_store::{Error, LocalStore, Object, ObjectWriter, Put, Result, Store};

/// Where the writing thread of a program waits.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The job's thread, which never waits here.
    job: ThreadId,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that may pass.
    passes: u64,
    /// All may pass.
    open: bool,
    /// The writing thread is here.
    waits: bool,
}

impl Gate {
    /// Of a program whose job runs in this thread.
    pub(crate) fn new() -> Gate {
        Gate { job: thread::current().id(), state: Mutex::default(), bell: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A call to the store, or to a sink.
    pub(crate) fn pass(&self) {
        if thread::current().id() == self.job {
            return;
        }
        let mut state = self.lock();
        state.waits = true;
        self.bell.notify_all();
        while state.passes == 0 && !state.open {
            state = self.bell.wait(state).unwrap();
        }
        state.waits = false;
        state.passes = state.passes.saturating_sub(1);
    }

    /// Lets so many calls pass; returns when the writing thread waits again, or has `ended`.
    pub(crate) fn let_pass(&self, calls: u64, ended: impl Fn() -> bool) {
        let mut state = self.lock();
        state.passes += calls;
        self.bell.notify_all();
        while !(state.waits && state.passes == 0 || ended()) {
            state = self.bell.wait_timeout(state, Duration::from_micros(100)).unwrap().0;
        }
        state.passes = 0;
    }

    /// The job has ended: nothing waits any more.
    pub(crate) fn open(&self) {
        self.lock().open = true;
        self.bell.notify_all();
    }
}

/// A store behind a gate.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) disk: CrashDisk,
    pub(crate) store: LocalStore,
    pub(crate) gate: Arc<Gate>,
}

impl Gated {
    /// Calls the store. A program whose disk has crashed is dead, and tries nothing again.
    fn call<T>(&self, call: impl FnOnce(&LocalStore) -> Result<T>) -> Result<T> {
        self.gate.pass();
        let (object, message) = Default::default();
        match call(&self.store) {
            Err(_) if self.disk.has_crashed() => Err(Error::Internal { object, message }),
            result => result,
        }
    }
}

impl Store for Gated {
    fn place(&self, name: &str) -> String {
        self.store.place(name)
    }
    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        self.call(|store| store.put_if_absent(name, bytes))
    }
    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.call(|store| store.create(name))
    }
    fn settle(&self, name: &str) -> Result<()> {
        self.call(|store| store.settle(name))
    }
    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        self.call(|store| store.get(name, range))
    }
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.call(|store| store.list(prefix))
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.call(|store| store.delete(name))
    }
    fn sweep(&self) -> Result<u64> {
        self.call(|store| store.sweep())
    }
}
