//! The manager of transactions and its workers (paper, section 5, "transactional APIs").

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::locks::{Common, Lal, LockWorker, Lwm, Nocc, Pat, Protocol, Rest};
use crate::program::Program;
use crate::scheme::{Scheme, Settings};
use crate::store::Store;
use crate::template::{Application, Progress, Shared, SharedParts};
use crate::ticket::{Numbering, Ticket};
use crate::tstream::execute::Counts;
use crate::tstream::{TStreamWorker, meeting};

/// Executes transactions on the tables of a store by a scheme (the paper's `TxnManager`).
#[derive(Debug)]
pub struct Manager {
    scheme: Scheme,
    store: Store,
    settings: Settings,
}

/// Workers of a manager, and their common parts.
pub struct Running<A: Application> {
    /// Numbers events, in their order.
    pub numbering: Numbering<A>,
    /// Workers, each for a thread.
    pub workers: Vec<Worker<A>>,
    /// The tables.
    pub tables: Tables<A>,
}

/// A view of the tables while workers exist. Rows are consistent between batches only.
pub struct Tables<A: Application> {
    shared: SharedParts<A>,
}

impl<A: Application> Tables<A> {
    /// The store.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Program `number`.
    pub fn program(&self, number: usize) -> Option<&Program<A::Event>> {
        self.shared.programs.get(number)
    }
}

impl Manager {
    /// A manager of these tables.
    pub fn new(scheme: Scheme, tables: Store) -> Manager {
        Manager { scheme, store: tables, settings: Settings::default() }
    }

    /// Sets settings.
    pub fn with(mut self, settings: Settings) -> Manager {
        self.settings = settings;
        self
    }

    /// Starts `workers` workers of an operator that runs these programs.
    ///
    /// # Errors
    /// If a program does not fit the tables, or the number of workers is out of range.
    pub fn start<A: Application>(
        self,
        application: A,
        programs: Vec<Program<A::Event>>,
        workers: usize,
    ) -> Result<Running<A>> {
        let Manager { scheme, store, settings } = self;
        scheme.check(workers)?;
        programs.iter().try_for_each(|program| program.check(&store))?;
        let max = usize::from(u16::MAX);
        if programs.len() > max {
            return Err(Error::Count { what: "programs", given: programs.len(), max });
        }
        let settings = Settings { piece: settings.piece.max(1), ..settings };
        let shared = Arc::new(Shared { store, programs, application, settings, workers });
        let numbering = Numbering::new(&shared, scheme);
        let workers = start_workers(scheme, &shared);
        Ok(Running { numbering, workers, tables: Tables { shared } })
    }
}

fn start_workers<A: Application>(scheme: Scheme, shared: &SharedParts<A>) -> Vec<Worker<A>> {
    let all = 0..shared.workers;
    let kinds: Vec<Kind<A>> = match scheme {
        Scheme::TStream => {
            let meeting = meeting(shared);
            let worker = |me| TStreamWorker::new(me, shared.clone(), meeting.clone());
            all.map(|me| Kind::TStream(Box::new(worker(me)))).collect()
        }
        Scheme::Lal => locking(shared, Default::default(), Kind::Lal),
        Scheme::Lwm => {
            let versions = crate::locks::Versions::new(shared.store.row_words_max());
            locking(shared, versions, Kind::Lwm)
        }
        Scheme::Pat { partitions } => {
            locking(shared, crate::locks::Partitions::new(partitions), Kind::Pat)
        }
        Scheme::Nocc => locking(shared, Default::default(), Kind::Nocc),
    };
    kinds.into_iter().map(|kind| Worker { kind, shared: shared.clone() }).collect()
}

fn locking<A: Application, P: Protocol>(
    shared: &SharedParts<A>,
    common: P::Common,
    kind: impl Fn(Box<LockWorker<A, P>>) -> Kind<A>,
) -> Vec<Kind<A>> {
    let (protocol, rest) = (Arc::new(common), Arc::new(Rest::default()));
    let common = || Common { protocol: protocol.clone(), rest: rest.clone() };
    let workers = 0..shared.workers;
    workers.map(|me| kind(Box::new(LockWorker::new(me, shared.clone(), common())))).collect()
}

enum Kind<A: Application> {
    TStream(Box<TStreamWorker<A>>),
    Lal(Box<LockWorker<A, Lal>>),
    Lwm(Box<LockWorker<A, Lwm>>),
    Pat(Box<LockWorker<A, Pat>>),
    Nocc(Box<LockWorker<A, Nocc>>),
}

/// Calls a method of the worker, whatever its scheme.
macro_rules! each_kind {
    ($kind:expr, $worker:ident => $call:expr) => {
        match $kind {
            Kind::TStream($worker) => $call,
            Kind::Lal($worker) => $call,
            Kind::Lwm($worker) => $call,
            Kind::Pat($worker) => $call,
            Kind::Nocc($worker) => $call,
        }
    };
}

/// A worker: takes events and executes their transactions, in steps that never wait.
///
/// TStream notes events until the punctuation. The schemes with locks execute them in every step.
/// All workers meet at each punctuation.
pub struct Worker<A: Application> {
    kind: Kind<A>,
    shared: SharedParts<A>,
}

impl<A: Application> Worker<A> {
    /// Takes an event (paper, listing 1: `execute`): pre_process, and a note of its transaction.
    /// Not between a punctuation and the step that is [`Progress::Done`] with it, unless the scheme
    /// is TStream: there such an event belongs to the next batch.
    ///
    /// # Errors
    /// If the event is for a program that is not there, or the batch is full.
    pub fn take(&mut self, ticket: Ticket, event: A::Event) -> Result<()> {
        let (number, programs) =
            (self.shared.application.program(&event), self.shared.programs.len());
        if number >= programs {
            return Err(Error::NoProgram { number, programs });
        }
        match &mut self.kind {
            Kind::TStream(worker) => worker.take(ticket.order(), event),
            Kind::Lal(worker) => worker.take(ticket, event),
            Kind::Lwm(worker) => worker.take(ticket, event),
            Kind::Pat(worker) => worker.take(ticket, event),
            Kind::Nocc(worker) => worker.take(ticket, event),
        }
    }

    /// The worker has met a punctuation: its earlier events belong together. Every worker is to be
    /// told each punctuation once, when its steps are done with the one before.
    pub fn punctuate(&mut self) {
        each_kind!(&mut self.kind, worker => worker.punctuate());
    }

    /// Does a bounded piece of work, without waiting for others; `emit` takes outputs.
    pub fn step(&mut self, emit: &mut dyn FnMut(A::Output)) -> Progress {
        each_kind!(&mut self.kind, worker => worker.step(emit))
    }

    /// Steps until the punctuation is done with. The other workers must step on their own threads.
    pub fn finish(&mut self, emit: &mut dyn FnMut(A::Output)) {
        let mut idle = 0_u32;
        loop {
            match self.step(emit) {
                Progress::Done => return,
                Progress::Worked => idle = 0,
                Progress::Idle => {
                    idle += 1;
                    wait(idle);
                }
            }
        }
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        each_kind!(&self.kind, worker => worker.counts())
    }
}

/// Looks before an idle thread lets others run.
const SPINS: u32 = 64;

fn wait(idle: u32) {
    if idle < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

impl<A: Application> fmt::Debug for Worker<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Worker {{ {:?} }}", self.counts())
    }
}
