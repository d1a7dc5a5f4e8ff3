//! A random case: tables, programs, events in their order; its answers; and ways to run it.

use std::collections::BTreeSet;

use millstream_txn::*;

use super::oracle::{Answer, Rows, execute};
use super::random::Random;
use super::script::{Event, Script, TableShape, store_of};

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) shapes: Vec<TableShape>,
    pub(crate) rows: Rows,
    pub(crate) scripts: Vec<Script>,
    pub(crate) events: Vec<Event>,
    /// Events before each punctuation, but for the last.
    pub(crate) cuts: Vec<usize>,
}

/// A result as post_process makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) order: u64,
    pub(crate) serial: u64,
    pub(crate) answer: Answer,
}

/// What a run yields: results, all rows of tables, and records in memory.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) results: Vec<Row>,
    pub(crate) rows: Rows,
    pub(crate) records: usize,
    pub(crate) counts: Counts,
}

pub(crate) struct Answers(Vec<Vec<(usize, Access)>>);

impl Application for Answers {
    type Event = Event;
    type Output = Row;

    fn program(&self, event: &Event) -> usize {
        event.program
    }

    fn post_process(&self, event: &Event, outcome: &Outcome<'_>) -> Row {
        let mut returned = Vec::new();
        for (statement, access) in &self.0[event.program] {
            for value in outcome.values(*access) {
                returned.push((*statement, value.exists(), value.words().collect()));
            }
        }
        let answer = Answer { verdict: outcome.verdict(), returned };
        Row { order: outcome.order(), serial: outcome.serial(), answer }
    }
}

impl Case {
    /// Few keys or many, with a skew; one to three tables; batches of any size.
    pub(crate) fn random(random: &mut Random, events_max: u64) -> Case {
        let keys = [2, 3, 6, 20, 200][random.index(5)];
        let shapes: Vec<TableShape> = (0..1 + random.index(3))
            .map(|table| TableShape {
                key_words: if table == 0 { 2 } else { 1 },
                row_words: 1 + random.index(3),
                is_checked: random.one_in(3),
            })
            .collect();
        let mut rows = Rows::new();
        for (table, shape) in shapes.iter().enumerate() {
            for key in 0..keys {
                if random.one_in(4) {
                    continue;
                }
                let words = (0..shape.key_words as u64).map(|w| key * (w + 1) + w).collect();
                let row = (0..shape.row_words).map(|_| random.below(40)).collect();
                rows.insert((table, words), row);
            }
        }
        let scripts = (0..1 + random.index(3))
            .map(|_| Script::random(random, shapes.len()))
            .collect::<Vec<_>>();
        let count = 1 + random.below(events_max);
        let events: Vec<Event> = (0..count)
            .map(|_| {
                let mut key = || {
                    let keys = if random.one_in(2) { keys.min(2) } else { keys };
                    random.below(keys)
                };
                let fields = [key(), key(), 0];
                let list: Vec<u64> = (0..4).map(|_| key()).collect();
                let fields = [fields[0], fields[1], random.below(20)];
                let list = list[..random.index(5)].to_vec();
                Event { program: random.index(scripts.len()), fields, list }
            })
            .collect();
        let cuts: BTreeSet<usize> =
            (0..random.index(4)).map(|_| random.index(events.len())).collect();
        Case { shapes, rows, scripts, events, cuts: cuts.into_iter().collect() }
    }

    /// One by one execution in the given order: answers in that order, and all rows.
    pub(crate) fn one_by_one(&self, order: impl Iterator<Item = usize>) -> (Vec<Answer>, Rows) {
        let mut rows = self.rows.clone();
        let answers = order
            .map(|number| {
                let event = &self.events[number];
                execute(&self.scripts[event.program], &self.shapes, event, &mut rows)
            })
            .collect();
        (answers, rows)
    }

    pub(crate) fn start(
        &self,
        scheme: Scheme,
        workers: usize,
        settings: Settings,
    ) -> (Running<Answers>, Vec<TableId>) {
        let (store, ids) = store_of(&self.shapes, &self.rows);
        let (programs, returned) = self.scripts.iter().map(|script| script.program(&ids)).unzip();
        let manager = Manager::new(scheme, store).with(settings);
        (manager.start(Answers(returned), programs, workers).unwrap(), ids)
    }

    /// Batches as ranges of events.
    pub(crate) fn batches(&self) -> Vec<std::ops::Range<usize>> {
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain(std::iter::once(self.events.len()));
        starts.zip(ends).map(|(start, end)| start..end).collect()
    }

    /// Runs on one thread: a random worker takes each step. A state in which no worker can go on is
    /// a failure.
    pub(crate) fn run_stepped(
        &self,
        scheme: Scheme,
        workers: usize,
        settings: Settings,
        random: &mut Random,
    ) -> Ran {
        let (running, ids) = self.start(scheme, workers, settings);
        let Running { mut numbering, mut workers, tables } = running;
        let mut given: Vec<Vec<Vec<(Ticket, Event)>>> = workers.iter().map(|_| vec![]).collect();
        for batch in self.batches() {
            given.iter_mut().for_each(|batches| batches.push(vec![]));
            for number in batch {
                let event = self.events[number].clone();
                let batches = &mut given[random.index(workers.len())];
                batches.last_mut().unwrap().push((numbering.ticket(&event), event));
            }
        }
        if scheme == Scheme::TStream && random.one_in(2) {
            // Notes of a batch may come in any order.
            for events in given.iter_mut().flatten() {
                for at in (1..events.len()).rev() {
                    events.swap(at, random.index(at + 1));
                }
            }
        }
        let results = step_all(&mut workers, given, scheme == Scheme::TStream, random);
        self.ran(results, &workers, tables.store(), &ids)
    }

    /// Runs with a thread for each worker; workers take events in turn.
    pub(crate) fn run_threads(&self, scheme: Scheme, workers: usize, settings: Settings) -> Ran {
        let (running, ids) = self.start(scheme, workers, settings);
        let Running { mut numbering, workers: mut all, tables } = running;
        let mut given: Vec<Vec<Vec<(Ticket, Event)>>> = all.iter().map(|_| vec![]).collect();
        for batch in self.batches() {
            given.iter_mut().for_each(|batches| batches.push(vec![]));
            for number in batch {
                let event = self.events[number].clone();
                let worker = &mut given[number % workers];
                worker.last_mut().unwrap().push((numbering.ticket(&event), event));
            }
        }
        let mut results = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = all
                .iter_mut()
                .zip(given)
                .map(|(worker, batches)| {
                    scope.spawn(move || {
                        let mut results = Vec::new();
                        for batch in batches {
                            for (ticket, event) in batch {
                                worker.take(ticket, event).unwrap();
                                worker.step(&mut |row| results.push(row));
                            }
                            worker.punctuate();
                            worker.finish(&mut |row| results.push(row));
                        }
                        results
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| results.extend(thread.join().unwrap()));
        });
        self.ran(results, &all, tables.store(), &ids)
    }

    fn ran(
        &self,
        results: Vec<Row>,
        workers: &[Worker<Answers>],
        store: &Store,
        ids: &[TableId],
    ) -> Ran {
        let mut rows = Rows::new();
        for (table, id) in ids.iter().enumerate() {
            rows.extend(store.rows(*id).into_iter().map(|(key, row)| ((table, key), row)));
        }
        let mut counts = Counts::default();
        workers.iter().for_each(|worker| counts.add(&worker.counts()));
        Ran { results, rows, records: ids.iter().map(|id| store.records(*id)).sum(), counts }
    }

    /// Checks a run of a scheme: against one by one execution in the order that it tells.
    pub(crate) fn check(&self, scheme: Scheme, mut ran: Ran) -> Counts {
        ran.results.sort_by_key(|row| row.serial);
        let order = ran.results.iter().map(|row| row.order as usize);
        let events: BTreeSet<usize> = order.clone().collect();
        assert_eq!(ran.results.len(), self.events.len(), "a result for each event");
        assert_eq!(events.len(), self.events.len(), "one result for each event");
        if scheme != Scheme::Nocc {
            assert!(ran.results.iter().all(|row| row.serial == row.order), "the order of events");
        }
        let (answers, rows) = self.one_by_one(order);
        for (row, answer) in ran.results.iter().zip(answers) {
            assert_eq!(row.answer, answer, "result of event {}", row.order);
        }
        assert_eq!(ran.rows, rows, "final rows");
        assert_eq!(ran.records, rows.len(), "records in memory");
        ran.counts
    }
}

/// Looks without progress before the workers count as stuck.
const STUCK_LOOKS: usize = 20_000;

/// Steps of random workers until all batches are done with. If workers take `ahead`, a worker may
/// take events of the next batch while it executes one.
fn step_all(
    workers: &mut [Worker<Answers>],
    given: Vec<Vec<Vec<(Ticket, Event)>>>,
    ahead: bool,
    random: &mut Random,
) -> Vec<Row> {
    let mut results = Vec::new();
    // Of each worker: events that are left, by batch; and whether it waits for a punctuation.
    let mut left: Vec<std::collections::VecDeque<_>> = given
        .into_iter()
        .map(|batches| batches.into_iter().map(Vec::into_iter).collect())
        .collect();
    let mut waits = vec![false; workers.len()];
    let mut idle = 0;
    while waits.contains(&true) || left.iter().any(|batches| !batches.is_empty()) {
        let me = random.index(workers.len());
        idle += 1;
        assert!(idle < STUCK_LOOKS, "no worker can go on");
        if let Some(batch) = left[me].front_mut().filter(|_| !waits[me] || ahead) {
            if let Some((ticket, event)) = batch.next() {
                workers[me].take(ticket, event).unwrap();
                idle = 0;
            } else if !waits[me] {
                workers[me].punctuate();
                left[me].pop_front();
                (waits[me], idle) = (true, 0);
            }
        }
        match workers[me].step(&mut |row| results.push(row)) {
            Progress::Idle => {}
            Progress::Worked => idle = 0,
            Progress::Done => (waits[me], idle) = (false, 0),
        }
    }
    results
}
