//! LWM: lock ahead with several versions (paper, section 3, "low water mark"; the rule is ours).
//!
//! A record's low water mark is its oldest pending write. A read of order t goes ahead when the
//! mark is t or later, and takes the latest version before t. A write waits for its turn among the
//! record's writes, and for no read. Committing moves the mark. Versions are kept until the next
//! punctuation: then the latest becomes the row.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};

use super::footprint::{Footprint, LockAccess};
use super::order::{Reads, Turn, insert, is_granted, release};
use super::{Attempt, Protocol};
use crate::planted::{Fault, planted};
use crate::program::Program;
use crate::store::{Record, RecordWords, Segments, Store, load_words, store_words};
use crate::ticket::Ticket;

/// Words of a version before its row: the version before it, its order, whether the row exists.
const HEADER: usize = 3;

/// Parts that all workers share.
#[derive(Debug)]
pub(crate) struct Versions {
    turn: Turn,
    /// All versions since the last punctuation.
    versions: Segments,
    count: AtomicU32,
    /// Records that have versions.
    written: Mutex<Vec<Record>>,
}

impl Versions {
    pub(crate) fn new(row_words_max: usize) -> Versions {
        Versions {
            turn: Turn::default(),
            versions: Segments::new(HEADER + row_words_max),
            count: AtomicU32::new(0),
            written: Mutex::default(),
        }
    }

    /// Loads the latest version before `order`.
    fn load(&self, record: RecordWords<'_>, order: u64, row: &mut [u64]) -> bool {
        let head = record.existence().load(Acquire);
        let mut version = head >> 1;
        while let Some(number) = version.checked_sub(1) {
            let words = self.versions.item(number as usize);
            if words[1].load(Relaxed) < order || planted(Fault::LatestVersion) {
                load_words(&words[HEADER..], row);
                return words[2].load(Relaxed) != 0;
            }
            version = words[0].load(Relaxed);
        }
        load_words(record.row(), row);
        head & 1 != 0
    }

    /// Adds a version in turn. Says whether the record had no version before.
    fn add(&self, record: RecordWords<'_>, order: u64, exists: bool, row: &[u64]) -> bool {
        let number = self.count.fetch_add(1, Relaxed);
        let words = self.versions.item(number as usize);
        let head = record.existence().load(Relaxed);
        store_words(words, &[head >> 1, order, u64::from(exists)]);
        store_words(&words[HEADER..], row);
        record.existence().store((u64::from(number) + 1) << 1 | head & 1, Release);
        head >> 1 == 0
    }
}

/// A worker's part.
pub(crate) struct Lwm {
    common: Arc<Versions>,
    is_inserted: bool,
    /// Requests from the first on that are known to be granted.
    granted: usize,
    written: Vec<Record>,
}

impl Protocol for Lwm {
    type Common = Versions;

    fn new(_: usize, common: Arc<Versions>, _: &Store) -> Lwm {
        Lwm { common, is_inserted: false, granted: 0, written: Vec::new() }
    }

    fn begin(&mut self) {
        (self.is_inserted, self.granted) = (false, 0);
    }

    fn attempt<E>(
        &mut self,
        store: &Store,
        program: &Program<E>,
        event: &E,
        ticket: &Ticket,
        footprint: &mut Footprint,
    ) -> Attempt {
        let (order, common) = (ticket.order(), &*self.common);
        if !self.is_inserted {
            if !common.turn.is(order) {
                return Attempt::Blocked;
            }
            for access in &mut footprint.accesses {
                access.ticket = insert(store.words(access.record), access.writes, Reads::Pass);
            }
            common.turn.pass(order);
            self.is_inserted = true;
            return Attempt::Advanced;
        }
        while let Some(access) = footprint.accesses.get(self.granted) {
            let words = store.words(access.record);
            let granted = is_granted(words, access.ticket, access.writes, Reads::Pass);
            if !granted && !planted(Fault::SkipGrant) {
                return Attempt::Blocked;
            }
            self.granted += 1;
        }
        let load = |access: &LockAccess, row: &mut [u64]| {
            common.load(store.words(access.record), order, row)
        };
        let verdict = footprint.run(store, program, event, load);
        if verdict.is_ok() {
            footprint.each_change(store, |access, exists, row| {
                if common.add(store.words(access.record), order, exists, row) {
                    self.written.push(access.record);
                }
            });
        }
        for access in &footprint.accesses {
            release(store.words(access.record), access.writes, Reads::Pass);
        }
        Attempt::Over(verdict, order)
    }

    fn rest(&mut self) {
        let mut written = self.common.written.lock().expect("no panic under this lock");
        written.append(&mut self.written);
    }

    fn quiesce(common: &Versions, store: &Store) {
        let mut written = common.written.lock().expect("no panic under this lock");
        for record in written.drain(..) {
            let record = store.words(record);
            let Some(latest) = (record.existence().load(Relaxed) >> 1).checked_sub(1) else {
                continue;
            };
            let words = common.versions.item(latest as usize);
            for (to, from) in record.row().iter().zip(&words[HEADER..]) {
                to.store(from.load(Relaxed), Relaxed);
            }
            record.existence().store(words[2].load(Relaxed), Relaxed);
        }
        common.count.store(0, Relaxed);
    }
}
