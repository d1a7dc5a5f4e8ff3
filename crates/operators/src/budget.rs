//! The memory budget of a job: which part holds how many bytes, and what the job does about it.
//!
//! Everything whose size depends on the input is counted. A worker reports its state after each
//! batch, and now and then while it merges ([`Budget::note_usage`]). Memory that passes from step
//! to step is counted by a [`Held`], which lives as long as the memory: input that waits, sealed
//! segments in flight, and result rows that wait for their order.
//!
//! Above three quarters of the budget, or while somebody waits for room, the job is *tight*: spare
//! memory is released, and only the splits that hold the low watermark go on. The job ends with
//! [`Error::Memory`] before a step whose growth would not fit, unless other workers can still
//! release memory.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, ArrayRef, RecordBatch};

use crate::error::{Contents, Error, Result};

/// Memory besides state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Chunks and batches, from the split to the end of their processing.
    Input,
    /// Sealed rows that no leader has merged yet.
    Segments,
    /// Fired rows that wait for room in later stages and sinks.
    Fired,
    /// Result rows that wait for their order, with the memory for sorting.
    Output,
    /// Side tables of lookup joins, with the memory for reading them.
    Tables,
    /// Copies of state that a checkpoint has still to save.
    Saved,
}

/// An operator's content, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The operator's name.
    pub name: String,
    /// Contents of its state.
    pub contents: Contents,
}

impl Holder {
    /// One for tests.
    #[doc(hidden)]
    pub fn any() -> Holder {
        Holder { name: "op".into(), contents: Contents::Keys }
    }
}

/// A worker's state, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// All that is allocated, with spare tables and pools.
    pub bytes: u64,
    /// Of these, what is kept for later windows and can be given back at once.
    pub spare_bytes: u64,
    /// Keys and values in use.
    pub live_bytes: u64,
    /// Bytes that a batch like earlier batches may allocate at once: the largest growth of a table.
    pub(crate) growth_bytes: u64,
    /// Growth for a batch of the largest possible size and for a message, for which room should be
    /// left.
    pub(crate) room_bytes: u64,
    /// Of these, what is for more than one new key.
    pub(crate) batch_growth_bytes: u64,
    /// Keys held.
    pub keys: u64,
    /// Keys and values in the largest fragment.
    pub largest_fragment_bytes: u64,
    /// Keys and arguments in the largest fragment that passes rows through.
    pub largest_passed_bytes: u64,
    /// The most passed bytes kept for one leader.
    pub largest_kept_bytes: u64,
}

/// State and how much of it was keys and values, at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Bytes held.
    pub bytes: u64,
    /// Bytes of keys and values among them.
    pub live_bytes: u64,
}

/// Bytes of all parts of a job against its limit.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: u64,
    /// The stages' operators and the rows of a batch, for messages.
    operators: Vec<Holder>,
    batch_rows: usize,
    input: AtomicU64,
    segments: AtomicU64,
    fired: AtomicU64,
    output: AtomicU64,
    tables: AtomicU64,
    saved: AtomicU64,
    /// State and its next growth, over all stages and workers.
    state: AtomicU64,
    growth: AtomicU64,
    room: AtomicU64,
    /// The most that was counted at once, of all kinds.
    most: AtomicU64,
    scarce: AtomicBool,
    ledger: Mutex<Ledger>,
}

#[derive(Debug)]
struct Ledger {
    /// By stage; in each by worker.
    parts: Vec<Vec<Usage>>,
    peak: Share,
    rest: Share,
}

impl Ledger {
    fn sum(&self, part: impl Fn(&Usage) -> u64) -> u64 {
        self.parts.iter().flatten().map(part).sum()
    }
}

impl Budget {
    /// A budget of so many bytes for the workers of a process.
    pub fn new(
        limit_bytes: u64,
        workers: usize,
        operators: Vec<Holder>,
        batch_rows: usize,
    ) -> Budget {
        let parts = operators.iter().map(|_| vec![Usage::default(); workers]).collect();
        Budget {
            limit_bytes,
            operators,
            batch_rows,
            input: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            fired: AtomicU64::new(0),
            output: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            saved: AtomicU64::new(0),
            state: AtomicU64::new(0),
            growth: AtomicU64::new(0),
            room: AtomicU64::new(0),
            most: AtomicU64::new(0),
            scarce: AtomicBool::new(false),
            ledger: Mutex::new(Ledger { parts, peak: Share::default(), rest: Share::default() }),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counter(&self, kind: Kind) -> &AtomicU64 {
        match kind {
            Kind::Input => &self.input,
            Kind::Segments => &self.segments,
            Kind::Fired => &self.fired,
            Kind::Output => &self.output,
            Kind::Tables => &self.tables,
            Kind::Saved => &self.saved,
        }
    }

    /// Bytes held of one kind.
    pub fn held(&self, kind: Kind) -> u64 {
        self.counter(kind).load(Relaxed)
    }

    /// Bytes held of input, of sealed rows and of result rows.
    pub fn held_beside_state(&self) -> u64 {
        [Kind::Input, Kind::Segments, Kind::Output].into_iter().map(|kind| self.held(kind)).sum()
    }

    /// Counts `bytes` until the result is dropped.
    pub fn hold(self: &Arc<Self>, kind: Kind, bytes: usize) -> Held {
        self.counter(kind).fetch_add(bytes as u64, Relaxed);
        self.note_most();
        Held { budget: self.clone(), kind, bytes: bytes as u64 }
    }

    /// Notes how much state of a stage a worker holds.
    pub fn note_usage(&self, stage: usize, worker: usize, usage: &Usage) {
        let mut ledger = self.ledger();
        ledger.parts[stage][worker] = *usage;
        let (bytes, growth) = (ledger.sum(|w| w.bytes), ledger.sum(|w| w.growth_bytes));
        self.state.store(bytes, Relaxed);
        self.growth.store(growth, Relaxed);
        self.room.store(ledger.sum(|w| w.room_bytes.max(w.growth_bytes)), Relaxed);
        self.note_most();
        let total = bytes + self.held(Kind::Segments);
        if total > ledger.peak.bytes {
            ledger.peak = Share { bytes: total, live_bytes: ledger.sum(|w| w.live_bytes) };
        }
    }

    /// Takes note that a leader's window is complete and about to fire. If no segment is on its
    /// way, all state is *at rest*: tables do not grow, and no state is in two places. The largest
    /// such moment is kept.
    pub fn note_rest(&self) {
        let mut ledger = self.ledger();
        let bytes = ledger.sum(|w| w.bytes);
        let live_bytes = ledger.sum(|w| w.live_bytes);
        let rest = (ledger.rest.bytes, ledger.rest.live_bytes);
        if self.held(Kind::Segments) == 0 && (bytes, live_bytes) > rest {
            ledger.rest = Share { bytes, live_bytes };
        }
    }

    /// The most state there was at once, segments included, and what was live then.
    pub fn peak(&self) -> Share {
        self.ledger().peak
    }

    /// The most state there was at rest; see [`Budget::note_rest`].
    pub fn rest(&self) -> Share {
        self.ledger().rest
    }

    /// The job's setting `memory`.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Maximum bytes of all side tables together: half of the budget.
    pub(crate) fn tables_bytes_max(&self) -> u64 {
        self.limit_bytes / 2
    }

    /// The most that was counted at once.
    pub fn most(&self) -> u64 {
        self.most.load(Relaxed)
    }

    fn note_most(&self) {
        self.most.fetch_max(self.all(), Relaxed);
    }

    /// Bytes of state, over all stages and workers.
    pub fn state(&self) -> u64 {
        self.state.load(Relaxed)
    }

    /// All that is held.
    fn all(&self) -> u64 {
        let Budget { state, input, segments, fired, output, tables, saved, .. } = self;
        let held = [state, input, segments, fired, output, tables, saved];
        held.into_iter().map(|bytes| bytes.load(Relaxed)).sum()
    }

    /// All that is held, and the next growth.
    fn needed(&self) -> u64 {
        self.all() + self.growth.load(Relaxed)
    }

    /// Whether splits that are ahead must wait: three quarters of the budget are needed, with room
    /// for whole batches, or somebody waits for what others can give back.
    pub fn tight(&self) -> bool {
        let needed = self.all() + self.room.load(Relaxed);
        self.scarce.load(Relaxed) || needed > self.limit_bytes / 4 * 3
    }

    /// Takes note whether a worker waits for memory that other workers can give back.
    pub fn set_scarce(&self, scarce: bool) {
        self.scarce.store(scarce, Relaxed);
    }

    /// Whether more is held than there may be.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded_beside(0)
    }

    /// The same, beside `bytes` that will be free soon.
    pub fn is_exceeded_beside(&self, bytes: u64) -> bool {
        self.all().saturating_sub(bytes) > self.limit_bytes
    }

    /// Whether no further chunk may be read ahead: input that waits has an eighth of the budget.
    pub fn input_full(&self) -> bool {
        self.held(Kind::Input) >= self.limit_bytes / 8
    }

    /// Whether no further rows may wait for earlier ones: they have a quarter of the budget.
    pub fn output_full(&self) -> bool {
        self.held(Kind::Output) >= self.limit_bytes / 4
    }

    /// With so many bytes of rows that wait for its sink, an output is congested: to read further
    /// ahead of a slow sink gains nothing.
    pub fn queue_bytes_max(&self) -> u64 {
        (self.limit_bytes / 16).min(64 << 20)
    }

    /// Maximum bytes for comparing rows while they are merged: a 32nd of the budget. Not checked,
    /// since the memory will be free at once.
    pub fn ahead_bytes(&self) -> usize {
        (self.limit_bytes / 32) as usize
    }

    /// True if the needed memory fits; false if it may fit once other workers have given back their
    /// spare memory, or a checkpoint is saved: the caller has to wait. Otherwise the error that
    /// ends the job.
    pub fn check(&self) -> Result<bool> {
        self.check_with(0)
    }

    /// As [`Budget::check`], with so many bytes more.
    pub fn check_with(&self, more: u64) -> Result<bool> {
        let needed = self.needed() + more;
        if needed <= self.limit_bytes {
            return Ok(true);
        }
        let ledger = self.ledger();
        // What a checkpoint saves will be free, too, and windows that wait for it will fire.
        let saves = self.held(Kind::Saved) > 0;
        if saves || needed.saturating_sub(ledger.sum(|w| w.spare_bytes)) <= self.limit_bytes {
            return Ok(false);
        }
        let of_batches = ledger.sum(|w| w.batch_growth_bytes) + self.held(Kind::Input);
        let smaller_fit = needed.saturating_sub(of_batches) <= self.limit_bytes;
        let (Holder { name: operator, contents }, count) = self.largest(&ledger);
        Err(Error::Memory {
            operator,
            bytes: needed,
            contents,
            count,
            budget: self.limit_bytes,
            batch_rows: (smaller_fit && self.batch_rows > 1).then_some(self.batch_rows),
        })
    }
}

impl Budget {
    /// The operator of the stage that holds the most state, and how many keys or rows it holds;
    /// or the output, if that holds more.
    fn largest(&self, ledger: &Ledger) -> (Holder, u64) {
        let bytes = |parts: &[Usage]| parts.iter().map(|part| part.bytes).sum::<u64>();
        let stages = self.operators.iter().zip(&ledger.parts).rev();
        match stages.max_by_key(|(_, parts)| bytes(parts)) {
            Some((holder, parts)) if bytes(parts) >= self.held(Kind::Output) => {
                (holder.clone(), parts.iter().map(|part| part.keys).sum())
            }
            _ => (Holder { name: "the output".into(), contents: Contents::Output }, 0),
        }
    }
}

/// Bytes of a batch. Columns may be slices of larger, shared arrays: a slice counts at most twice
/// its own values, which is as far as builders over-allocate.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    let bytes = |column: &ArrayRef| {
        let values = column.to_data().get_slice_memory_size().unwrap_or(0);
        column.get_array_memory_size().min(2 * values + 256)
    };
    batch.columns().iter().map(bytes).sum()
}

/// Bytes that count against the budget as long as this lives.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    kind: Kind,
    bytes: u64,
}

impl Held {
    /// Bytes that it counts.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Whether so many bytes more leave half of the budget free.
    pub fn is_affordable(&self, bytes: usize) -> bool {
        self.budget.needed() + bytes as u64 <= self.budget.limit_bytes / 2
    }

    /// Counts `bytes` from now on instead.
    pub fn resize(&mut self, bytes: usize) {
        let counter = self.budget.counter(self.kind);
        counter.fetch_add(bytes as u64, Relaxed);
        counter.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes as u64;
        self.budget.note_most();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.counter(self.kind).fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(bytes: u64, spare_bytes: u64) -> Usage {
        Usage { bytes, spare_bytes, live_bytes: bytes / 2, keys: 3, ..Usage::default() }
    }

    #[test]
    fn what_is_held_counts_until_it_is_dropped() {
        let budget = Arc::new(Budget::new(1000, 1, vec![Holder::any()], 100));
        let mut held = budget.hold(Kind::Output, 200);
        let input = budget.hold(Kind::Input, 125);
        assert!(!budget.output_full() && budget.input_full() && !budget.tight());
        held.resize(700);
        assert!(budget.output_full() && budget.tight());
        drop((held, input));
        assert_eq!(budget.needed(), 0);
    }

    #[test]
    fn an_error_comes_only_when_nothing_can_be_given_back() {
        let budget = Arc::new(Budget::new(1000, 2, vec![Holder::any()], 100));
        budget.note_usage(0, 0, &usage(600, 0));
        budget.note_usage(0, 1, &usage(400, 300));
        assert!(budget.check().unwrap());
        let growing = Usage { growth_bytes: 100, ..usage(600, 0) };
        budget.note_usage(0, 0, &growing);
        assert!(!budget.check().unwrap(), "the other worker has 300 bytes to give");
        budget.note_usage(0, 1, &usage(100, 0));
        assert!(budget.check().unwrap());
        let held = budget.hold(Kind::Segments, 201);
        let error = budget.check().expect_err("1001 of 1000 bytes are needed");
        let Error::Memory { operator, bytes, count, budget: limit, batch_rows, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((operator.as_str(), *bytes, *count, *limit), ("op", 1001, 6, 1000));
        assert!(batch_rows.is_none() && !error.to_string().contains("batch.rows"), "{error}");
        drop(held);
        assert!(budget.check().unwrap());
    }

    #[test]
    fn smaller_batches_are_advised_where_they_would_fit() {
        let budget = Arc::new(Budget::new(1000, 1, vec![Holder::any()], 100));
        let advised = || {
            let error = budget.check().expect_err("it does not fit");
            error.to_string().contains("smaller batches with --set batch.rows=... (now 100)")
        };
        let growing = Usage { growth_bytes: 300, batch_growth_bytes: 250, ..usage(900, 0) };
        budget.note_usage(0, 0, &growing);
        assert!(advised());
        budget.note_usage(0, 0, &Usage { batch_growth_bytes: 150, ..growing });
        assert!(!advised(), "even one more key would not fit");
        budget.note_usage(0, 0, &usage(900, 0));
        let _input = budget.hold(Kind::Input, 101);
        assert!(advised());
        budget.note_usage(0, 0, &usage(1001, 0));
        assert!(!advised());
    }

    #[test]
    fn state_is_at_rest_only_while_no_segment_is_on_its_way() {
        let budget = Arc::new(Budget::new(1000, 1, vec![Holder::any()], 100));
        budget.note_usage(0, 0, &usage(100, 0));
        let held = budget.hold(Kind::Segments, 50);
        budget.note_rest();
        assert_eq!(budget.rest(), Share::default());
        budget.note_usage(0, 0, &usage(120, 0));
        assert_eq!(budget.peak(), Share { bytes: 170, live_bytes: 60 });
        drop(held);
        budget.note_rest();
        assert_eq!(budget.rest(), Share { bytes: 120, live_bytes: 60 });
    }
}
