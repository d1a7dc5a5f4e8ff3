//! NOCC: two-phase locking without waiting and without the order of events (paper, section 5).
//!
//! A transaction locks each record when it first meets it, and changes rows in place. If a lock is
//! not free it restores the rows from copies, releases its locks and starts again.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::footprint::Footprint;
use super::{Attempt, Protocol};
use crate::outcome::Verdict;
use crate::planted::{Fault, planted};
use crate::program::Program;
use crate::store::{Record, RecordWords, Store};
use crate::ticket::Ticket;

/// A lock that is held by a writer; smaller numbers count readers.
const WRITER: u64 = u64::MAX;

/// Transactions that have committed or aborted.
#[derive(Debug, Default)]
pub(crate) struct Commits(AtomicU64);

/// A worker's part.
pub(crate) struct Nocc {
    commits: Arc<Commits>,
    /// The operation that is next.
    next: usize,
    /// Accesses with a held lock.
    held: Vec<u32>,
    /// Rows as they were: the record, whether the row existed, where it begins.
    undo: Vec<(Record, bool, usize)>,
    undo_words: Vec<u64>,
}

fn try_lock(record: RecordWords<'_>, writes: bool) -> bool {
    let lock = record.header(0);
    let now = lock.load(Relaxed);
    let next = match (now, writes) {
        (0, true) => WRITER,
        (WRITER, _) | (_, true) => return false,
        (readers, false) => readers + 1,
    };
    lock.compare_exchange(now, next, AcqRel, Relaxed).is_ok()
}

fn unlock(record: RecordWords<'_>, writes: bool) {
    match writes {
        true => record.header(0).store(0, Release),
        false => {
            record.header(0).fetch_sub(1, Release);
        }
    }
}

impl Nocc {
    /// Runs the next operation on its record.
    fn run_next<E>(
        &mut self,
        store: &Store,
        program: &Program<E>,
        event: &E,
        footprint: &mut Footprint,
    ) -> Result<Verdict, ()> {
        let Footprint { unrolled, accesses, images, .. } = footprint;
        let op = &unrolled.ops[self.next];
        let group = op.group.load(Relaxed);
        let Some(access) = accesses.get(group as usize) else {
            return Ok(program.run(store, event, unrolled, op, images, 0));
        };
        let words = store.words(access.record);
        let (image, row_words) = (group as usize, words.row().len());
        if !images.is_loaded(image) {
            if !try_lock(words, access.writes) {
                return Err(());
            }
            self.held.push(group);
            images.load(image, row_words, |row| words.load(row));
            if access.writes {
                let start = self.undo_words.len();
                self.undo_words.resize(start + row_words, 0);
                let exists = words.load(&mut self.undo_words[start..]);
                self.undo.push((access.record, exists, start));
            }
        }
        let verdict = program.run(store, event, unrolled, op, images, image);
        if let (true, Some((exists, row))) = (verdict.is_ok(), images.changed(image, row_words)) {
            words.store(exists, row);
        }
        Ok(verdict)
    }

    fn restore(&self, store: &Store) {
        if planted(Fault::NoUndo) {
            return;
        }
        for (record, exists, start) in &self.undo {
            let words = store.words(*record);
            words.store(*exists, &self.undo_words[*start..*start + words.row().len()]);
        }
    }

    fn release(&mut self, store: &Store, footprint: &Footprint) {
        for held in self.held.drain(..) {
            let access = &footprint.accesses[held as usize];
            unlock(store.words(access.record), access.writes);
        }
    }
}

impl Protocol for Nocc {
    type Common = Commits;

    fn new(_: usize, commits: Arc<Commits>, _: &Store) -> Nocc {
        Nocc { commits, next: 0, held: Vec::new(), undo: Vec::new(), undo_words: Vec::new() }
    }

    fn begin(&mut self) {
        self.next = 0;
        self.undo.clear();
        self.undo_words.clear();
    }

    fn attempt<E>(
        &mut self,
        store: &Store,
        program: &Program<E>,
        event: &E,
        _: &Ticket,
        footprint: &mut Footprint,
    ) -> Attempt {
        if self.next == 0 {
            footprint.images.reset(footprint.accesses.len().max(1));
        }
        let mut verdict = Ok(());
        if self.next < footprint.unrolled.ops.len() {
            match self.run_next(store, program, event, footprint) {
                Ok(Ok(())) => {
                    self.next += 1;
                    return Attempt::Advanced;
                }
                Ok(abort) => {
                    verdict = abort;
                    self.restore(store);
                }
                Err(()) => {
                    self.restore(store);
                    self.release(store, footprint);
                    return Attempt::Failed;
                }
            }
        }
        if planted(Fault::LateNumber) && verdict.is_ok() && !self.held.is_empty() {
            self.release(store, footprint);
            self.next = usize::MAX;
            return Attempt::Advanced;
        }
        // The number is taken while all locks are held, so it agrees with every conflict.
        let serial = self.commits.0.fetch_add(1, AcqRel);
        self.release(store, footprint);
        Attempt::Over(verdict, serial)
    }
}
