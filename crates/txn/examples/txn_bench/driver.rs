//! The driver (paper, section 6.1): events in the order of their time are dealt to workers, which
//! access and compute; a sink counts. Schemes with locks execute at once, TStream at punctuations.
//!
//! Events are made and numbered before the clock starts: parser and sink have cores of their own
//! in the paper, and here there may be two in all.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use millstream_txn::{
    Application, Counts, Manager, Progress, Running, Scheme, Settings, Ticket, Worker,
};

use crate::workload::Workload;
use crate::zipf::Random;

/// Events that a worker takes at a time.
const CHUNK: usize = 32;

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) scheme: Scheme,
    pub(crate) workers: usize,
    pub(crate) events: usize,
    /// Events between two punctuations.
    pub(crate) batch: usize,
    pub(crate) seed: u64,
    pub(crate) settings: Settings,
}

/// Results of a run.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) elapsed: Duration,
    pub(crate) events: usize,
    /// Sum of all outputs.
    pub(crate) sum: u64,
    /// Nanoseconds below which nine of ten events went from their worker to the sink.
    pub(crate) p90_ns: u64,
    pub(crate) counts: Counts,
}

impl Report {
    /// Events per second.
    pub(crate) fn rate(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }
}

type Event<W> = <<W as Workload>::App as Application>::Event;

pub(crate) fn events<W: Workload>(workload: &W, run: &Run) -> Vec<Event<W>> {
    let mut random = Random::new(run.seed);
    (0..run.events).map(|_| workload.event(&mut random)).collect()
}

/// Chunks of a batch: taken in order by any worker.
struct Chunks<E> {
    next: AtomicUsize,
    chunks: Vec<std::sync::Mutex<Vec<(Ticket, E)>>>,
}

/// Runs a workload, and gives its final tables to `check`.
pub(crate) fn run<W: Workload>(
    workload: &W,
    run: &Run,
    check: impl FnOnce(&millstream_txn::Store),
) -> Report {
    let store = workload.store();
    let programs = workload.programs();
    let manager = Manager::new(run.scheme, store).with(run.settings);
    let running = manager.start(workload.application(), programs, run.workers);
    let Running { mut numbering, mut workers, tables } = running.expect("the workload is right");
    let mut batches: Vec<Chunks<Event<W>>> = Vec::new();
    let mut given = events(workload, run).into_iter().map(|event| {
        let ticket = numbering.ticket(&event);
        (ticket, event)
    });
    let mut left = run.events;
    while left > 0 {
        let count = left.min(run.batch);
        let mut chunks = Vec::new();
        for start in (0..count).step_by(CHUNK) {
            let chunk = given.by_ref().take(CHUNK.min(count - start)).collect();
            chunks.push(std::sync::Mutex::new(chunk));
        }
        batches.push(Chunks { next: AtomicUsize::new(0), chunks });
        left -= count;
    }
    let begin = Instant::now();
    let mut sinks: Vec<Sink> = Vec::new();
    std::thread::scope(|scope| {
        let batches = &batches;
        let threads: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(move || work(worker, batches))).collect();
        sinks.extend(threads.into_iter().map(|thread| thread.join().expect("no panic")));
    });
    let elapsed = begin.elapsed();
    check(tables.store());
    let mut counts = Counts::default();
    workers.iter().for_each(|worker| counts.add(&worker.counts()));
    let mut waits: Vec<u64> = sinks.iter().flat_map(|sink| sink.waits_ns.iter().copied()).collect();
    waits.sort_unstable();
    let p90_ns = waits.get(waits.len() * 9 / 10).copied().unwrap_or(0);
    let sum = sinks.iter().fold(0, |sum, sink| sum + sink.sum);
    Report { elapsed, events: run.events, sum, p90_ns, counts }
}

/// Counts results. Of each chunk, the time of its last result is taken.
#[derive(Debug, Default)]
struct Sink {
    sum: u64,
    results: usize,
    /// Chunks that are not complete: when each was taken, and the number of the result before
    /// which it is complete.
    open: std::collections::VecDeque<(Instant, usize)>,
    waits_ns: Vec<u64>,
}

impl Sink {
    fn add(&mut self, output: u64) {
        self.sum = self.sum.wrapping_add(output);
        self.results += 1;
        if let Some((taken, complete)) = self.open.front()
            && *complete == self.results
        {
            self.waits_ns.push(taken.elapsed().as_nanos() as u64);
            self.open.pop_front();
        }
    }
}

fn work<A: Application<Output = u64>>(
    worker: &mut Worker<A>,
    batches: &[Chunks<A::Event>],
) -> Sink {
    let mut sink = Sink::default();
    let mut taken = 0;
    for batch in batches {
        loop {
            let next = batch.next.fetch_add(1, Relaxed);
            let Some(chunk) = batch.chunks.get(next) else { break };
            let events = std::mem::take(&mut *chunk.lock().expect("no panic"));
            taken += events.len();
            sink.open.push_back((Instant::now(), taken));
            for (ticket, event) in events {
                worker.take(ticket, event).expect("batches are small");
            }
            // Schemes with locks execute at once; a refusal is tried again with the next chunk.
            while worker.step(&mut |output| sink.add(output)) == Progress::Worked {}
        }
        worker.punctuate();
        worker.finish(&mut |output| sink.add(output));
    }
    sink
}

/// The same in a loop by hand, on one thread.
pub(crate) fn by_hand<W: Workload>(workload: &W, run: &Run) -> (Report, Vec<crate::workload::Map>) {
    let events = events(workload, run);
    let mut maps = workload.maps();
    let begin = Instant::now();
    let mut sum = 0_u64;
    for event in &events {
        sum = sum.wrapping_add(workload.by_hand(&mut maps, event));
    }
    let elapsed = begin.elapsed();
    let counts = Counts::default();
    (Report { elapsed, events: run.events, sum, p90_ns: 0, counts }, maps)
}
