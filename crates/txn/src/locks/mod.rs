//! Schemes that execute transactions at once, with locks or turns (paper, section 3).

mod footprint;
mod lal;
mod lwm;
mod nocc;
mod order;
mod pat;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::error::Result;
use crate::outcome::Verdict;
use crate::planted::{Fault, planted};
use crate::program::Program;
use crate::store::{Record, Store};
use crate::template::{Application, Progress, SharedParts};
use crate::ticket::Ticket;
use crate::tstream::execute::Counts;
use footprint::Footprint;
pub(crate) use lal::Lal;
pub(crate) use lwm::{Lwm, Versions};
pub(crate) use nocc::Nocc;
pub(crate) use pat::{Partitions, Pat};

/// An attempt to go on with a transaction.
pub(crate) enum Attempt {
    /// Earlier transactions still hold records or turns.
    Blocked,
    /// A part of it is done.
    Advanced,
    /// The transaction has to start again.
    Failed,
    /// The transaction is over: the verdict, and its number in an equivalent order of execution.
    Over(Verdict, u64),
}

/// How a scheme executes a transaction. A worker's part.
pub(crate) trait Protocol: Send {
    /// Parts that all workers share.
    type Common: Send + Sync;

    fn new(me: usize, common: std::sync::Arc<Self::Common>, store: &Store) -> Self;

    /// A new transaction begins.
    fn begin(&mut self);

    /// Goes on with the transaction, without waiting.
    fn attempt<E>(
        &mut self,
        store: &Store,
        program: &Program<E>,
        event: &E,
        ticket: &Ticket,
        footprint: &mut Footprint,
    ) -> Attempt;

    /// The worker comes to a punctuation.
    fn rest(&mut self) {}

    /// All workers have come to a punctuation, and only the caller is at work.
    fn quiesce(_common: &Self::Common, _store: &Store) {}
}

/// The place where workers meet at punctuations.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    resting: Mutex<Resting>,
    /// Punctuations that are over.
    over: AtomicU64,
}

#[derive(Debug, Default)]
struct Resting {
    workers: usize,
    doubtful: Vec<Record>,
}

/// All that workers of such a scheme share.
pub(crate) struct Common<P: Protocol> {
    pub(crate) protocol: std::sync::Arc<P::Common>,
    pub(crate) rest: std::sync::Arc<Rest>,
}

/// A worker of such a scheme.
pub(crate) struct LockWorker<A: Application, P: Protocol> {
    shared: SharedParts<A>,
    common: Common<P>,
    protocol: P,
    footprint: Footprint,
    queue: VecDeque<(Ticket, usize, A::Event)>,
    is_started: bool,
    /// Whether it has met the punctuation, and whether it rests there.
    is_punctuated: bool,
    is_resting: bool,
    rests: u64,
    counts: Counts,
}

impl<A: Application, P: Protocol> LockWorker<A, P> {
    pub(crate) fn new(me: usize, shared: SharedParts<A>, common: Common<P>) -> Self {
        let protocol = P::new(me, common.protocol.clone(), &shared.store);
        let footprint = Footprint::new(shared.store.row_words_max());
        LockWorker {
            shared,
            common,
            protocol,
            footprint,
            queue: VecDeque::new(),
            is_started: false,
            is_punctuated: false,
            is_resting: false,
            rests: 0,
            counts: Counts::default(),
        }
    }

    pub(crate) fn take(&mut self, ticket: Ticket, mut event: A::Event) -> Result<()> {
        let number = self.shared.application.program(&event);
        self.shared.application.pre_process(&mut event);
        self.queue.push_back((ticket, number, event));
        Ok(())
    }

    pub(crate) fn punctuate(&mut self) {
        self.is_punctuated = true;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn step(&mut self, emit: &mut dyn FnMut(A::Output)) -> Progress {
        let mut progress = Progress::Idle;
        for _ in 0..self.shared.settings.piece {
            match self.attempt(emit) {
                Progress::Worked => progress = Progress::Worked,
                Progress::Idle => return progress,
                Progress::Done if progress == Progress::Worked => return progress,
                Progress::Done => return self.come_to_rest(),
            }
        }
        progress
    }

    /// Goes on with the first transaction of the queue; `Done` if there is none.
    fn attempt(&mut self, emit: &mut dyn FnMut(A::Output)) -> Progress {
        let Some((ticket, number, event)) = self.queue.front() else { return Progress::Done };
        let (store, program) = (&self.shared.store, &self.shared.programs[*number]);
        if !self.is_started {
            self.footprint.prepare(store, program, event);
            self.protocol.begin();
            self.is_started = true;
        }
        let footprint = &mut self.footprint;
        match self.protocol.attempt(store, program, event, ticket, footprint) {
            Attempt::Blocked => return Progress::Idle,
            Attempt::Advanced => {}
            Attempt::Failed => {
                self.counts.retries += 1;
                self.protocol.begin();
                // Others get a chance to go on with the records that this one was refused.
                return Progress::Idle;
            }
            Attempt::Over(verdict, serial) => {
                self.counts.aborted += u64::from(verdict.is_err());
                let unrolled = &self.footprint.unrolled;
                let (ops, result) = (0..unrolled.ops.len(), (verdict, ticket.order(), serial));
                emit(self.shared.post_process(event, unrolled, ops, result));
                self.is_started = false;
                self.queue.pop_front();
            }
        }
        Progress::Worked
    }

    /// At a punctuation all workers rest until the last has come, which sweeps.
    fn come_to_rest(&mut self) -> Progress {
        if !self.is_punctuated {
            return Progress::Idle;
        }
        if !self.is_resting {
            self.is_resting = true;
            self.protocol.rest();
            let mut resting = self.common.rest.resting.lock().expect("no panic while resting");
            resting.workers += 1;
            resting.doubtful.append(&mut self.footprint.doubtful);
            if resting.workers == self.shared.workers {
                let store = &self.shared.store;
                P::quiesce(&self.common.protocol, store);
                for record in resting.doubtful.drain(..).filter(|_| !planted(Fault::NoSweep)) {
                    store.remove_if_absent(record);
                }
                resting.workers = 0;
                self.common.rest.over.fetch_add(1, Release);
            }
            return Progress::Worked;
        }
        if self.common.rest.over.load(Acquire) == self.rests {
            return Progress::Idle;
        }
        self.rests += 1;
        (self.is_punctuated, self.is_resting) = (false, false);
        Progress::Done
    }
}
