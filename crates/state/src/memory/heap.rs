//! A heap for state in one range of addresses, so that a network card can read state where it is.
//!
//! A process registers the range once. Chunks of rows, and arenas of at least [`RUN_BYTES_MIN`],
//! are *runs* of the range. Smaller ones, of which there may be many, come from the allocator, as
//! does memory for which the range has no room left ([`HeapUse::refused_bytes`]). `runs` says how
//! fragmented the range can become.

use std::any::Any;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use crate::memory::pages::{HUGE_PAGE_BYTES, Lines, advise_small, give_back};
use crate::memory::runs::Runs;

/// Unit of memory: a page.
const UNIT_BYTES: usize = 4096;
/// Units of a block, which is a huge page.
const BLOCK_UNITS: u32 = (HUGE_PAGE_BYTES / UNIT_BYTES) as u32;
/// Most units of a range: 16 TiB.
const UNITS_MAX: u32 = u32::MAX - BLOCK_UNITS;

/// The shortest run; what is shorter comes from the allocator.
pub(crate) const RUN_BYTES_MIN: usize = UNIT_BYTES;

/// Bytes of a run that holds `bytes` bytes.
pub(crate) fn run_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(UNIT_BYTES)
}

/// Free huge pages that were in use stay with the process, for the next run, if they are at most so
/// many and at most this part of what is in use, whichever is more. If they are more, some go back
/// at once: so many at most, since others wait meanwhile, until half of what may stay is left.
const IDLE_BLOCKS: usize = 4;
const IDLE_SHARE: usize = 16;
const GIVEN_AT_ONCE: usize = 16;

/// The first bytes of a range that is mapped are on small pages: a job of little state would wait
/// for all of a huge page to be zeroed, which the system may take milliseconds for, and use a tenth
/// of it.
const SMALL_PAGE_BYTES: usize = 2 * HUGE_PAGE_BYTES;

/// Treatment of free memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Much of it goes back to the system. Later use gets new pages.
    GivenBack,
    /// Free memory stays, since the range is pinned for a network card (`verbs`), which would go on
    /// reading the old pages, or since it is a file's.
    Kept,
}

/// A range of memory that runs are taken from, by any thread.
pub struct Heap {
    start: NonNull<u8>,
    bytes: usize,
    /// Where the first block begins: at a huge page's boundary.
    skipped: usize,
    idle: Idle,
    state: Mutex<State>,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the range is only handed out in runs that do not overlap, under the lock.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

struct State {
    runs: Runs,
    /// Blocks that are free as a whole and may have memory behind them, since they have been in
    /// use.
    idle: BTreeSet<u32>,
    used_units: usize,
    refused: u64,
    refused_bytes: u64,
    given_back_bytes: u64,
}

/// Usage of a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeapUse {
    /// Bytes of runs that are in use.
    pub used_bytes: usize,
    /// Bytes that are free and still with the process, in whole huge pages.
    pub idle_bytes: usize,
    /// Runs that found no place, since the beginning: the allocator gave their memory.
    pub refused: u64,
    /// Their bytes.
    pub refused_bytes: u64,
    /// Bytes given back to the system, since the beginning.
    pub given_back_bytes: u64,
}

impl Heap {
    /// A range of so many bytes, in whole pages, of fresh memory, or of 16 TiB if that is less: it
    /// takes none before it is used, and is on huge pages where they are to be had, but for its
    /// beginning.
    ///
    /// # Errors
    /// What the system says if it does not give so many addresses (`ulimit -v`).
    pub fn map(bytes: usize, idle: Idle) -> io::Result<Arc<Heap>> {
        let bytes = run_bytes(bytes.min(UNITS_MAX as usize * UNIT_BYTES));
        // From two huge pages on it is a mapping of its own.
        let mut lines = Lines::map(bytes.max(2 * HUGE_PAGE_BYTES) / 64)?;
        advise_small(lines.start_mut().cast(), SMALL_PAGE_BYTES.min(bytes));
        let start = NonNull::new(lines.start_mut().cast()).unwrap_or(NonNull::dangling());
        // SAFETY: the lines are so long, belong to nobody else, and live as long as the heap.
        Ok(unsafe { Heap::new(start, bytes, idle, lines) })
    }

    /// A given range, which begins at a multiple of 2 MiB or loses what comes before one.
    ///
    /// # Safety
    /// The range is readable and writable as long as `owner` lives, and used by nobody else, but
    /// for reading what [`Heap::offset_of`] has told the place of.
    pub unsafe fn new(
        start: NonNull<u8>,
        bytes: usize,
        idle: Idle,
        owner: impl Send + Sync + 'static,
    ) -> Arc<Heap> {
        let skipped = start.align_offset(HUGE_PAGE_BYTES).min(bytes);
        let units =
            u32::try_from((bytes - skipped) / UNIT_BYTES).unwrap_or(u32::MAX).min(UNITS_MAX);
        let state = State {
            runs: Runs::new(units),
            idle: BTreeSet::new(),
            used_units: 0,
            refused: 0,
            refused_bytes: 0,
            given_back_bytes: 0,
        };
        let (state, _owner) = (Mutex::new(state), Box::new(owner));
        Arc::new(Heap { start, bytes, skipped, idle, state, _owner })
    }

    /// First byte of the range, to register it. It stays as long as the heap does.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length of the range.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where these words stand in the range, in bytes from its start; `None` if they stand
    /// elsewhere.
    pub fn offset_of<T>(&self, words: &[T]) -> Option<usize> {
        let offset = (words.as_ptr() as usize).checked_sub(self.start.as_ptr() as usize)?;
        let end = offset.checked_add(size_of_val(words))?;
        (end <= self.bytes).then_some(offset)
    }

    /// Present usage.
    pub fn usage(&self) -> HeapUse {
        let state = self.lock();
        HeapUse {
            used_bytes: state.used_units * UNIT_BYTES,
            idle_bytes: state.idle.len() * HUGE_PAGE_BYTES,
            refused: state.refused,
            refused_bytes: state.refused_bytes,
            given_back_bytes: state.given_back_bytes,
        }
    }

    /// Gives all that is idle back to the system, since memory is scarce.
    pub fn give_back(&self) {
        if self.idle == Idle::GivenBack {
            while self.give_some_back(&mut self.lock(), 0) {}
        }
    }

    /// A run of at least so many bytes; `None` if there is no place for it, or if it is short.
    pub(crate) fn take(self: &Arc<Heap>, bytes: usize) -> Option<Run> {
        if bytes < RUN_BYTES_MIN {
            return None;
        }
        let units = bytes.div_ceil(UNIT_BYTES);
        let mut state = self.lock();
        let found = u32::try_from(units).ok().and_then(|units| state.runs.take(units));
        let Some(first) = found else {
            state.refused += 1;
            state.refused_bytes += bytes as u64;
            return None;
        };
        let units = units as u32;
        state.take(first, units);
        Some(Run { heap: self.clone(), first, units })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, first: u32, units: u32) {
        let mut state = self.lock();
        let State { runs, idle, used_units, .. } = &mut *state;
        let free = runs.give(first, units);
        // Blocks that were in use a moment ago.
        let start = free.start.max(first / BLOCK_UNITS * BLOCK_UNITS);
        let end = free.end.min((first + units).next_multiple_of(BLOCK_UNITS));
        idle.extend(start.div_ceil(BLOCK_UNITS)..end / BLOCK_UNITS);
        *used_units -= units as usize;
        if self.idle == Idle::GivenBack {
            let used_blocks = *used_units / BLOCK_UNITS as usize;
            self.give_some_back(&mut state, IDLE_BLOCKS.max(used_blocks / IDLE_SHARE));
        }
    }

    /// Gives some idle blocks that stand side by side back, the last ones, if there are more than
    /// `kept`; false if there are not.
    fn give_some_back(&self, state: &mut State, kept: usize) -> bool {
        if state.idle.len() <= kept {
            return false;
        }
        let most = GIVEN_AT_ONCE.min(state.idle.len() - kept / 2) as u32;
        let Some(last) = state.idle.pop_last() else { return false };
        let mut first = last;
        while last - first + 1 < most && first > 0 && state.idle.remove(&(first - 1)) {
            first -= 1;
        }
        let bytes = (last - first + 1) as usize * HUGE_PAGE_BYTES;
        // SAFETY: these blocks are free, and stay so under the lock: their content is unused.
        unsafe { give_back(self.place(first * BLOCK_UNITS), bytes) };
        state.given_back_bytes += bytes as u64;
        true
    }

    fn place(&self, unit: u32) -> *mut u8 {
        self.start.as_ptr().wrapping_add(self.skipped + unit as usize * UNIT_BYTES)
    }
}

impl State {
    /// Counts units as used that `runs` has given out.
    fn take(&mut self, first: u32, units: u32) {
        self.used_units += units as usize;
        for block in first / BLOCK_UNITS..=(first + units - 1) / BLOCK_UNITS {
            self.idle.remove(&block);
        }
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("bytes", &self.bytes).field("usage", &self.usage()).finish()
    }
}

/// A run of a heap's memory, aligned to a page. Exclusive to its owner until dropped.
#[derive(Debug)]
pub(crate) struct Run {
    heap: Arc<Heap>,
    first: u32,
    units: u32,
}

impl Run {
    /// First word.
    pub(crate) fn start(&self) -> *mut u64 {
        self.heap.place(self.first).cast()
    }

    /// Length in words.
    pub(crate) fn words(&self) -> usize {
        self.units as usize * UNIT_BYTES / 8
    }

    /// Makes it at least so many words long where it stands; false if what is behind it is in use.
    pub(crate) fn extend(&mut self, words: usize) -> bool {
        let units = (words * 8).div_ceil(UNIT_BYTES);
        let Some(more) = units.checked_sub(self.units as usize) else { return true };
        let Ok(more) = u32::try_from(more) else { return false };
        let mut state = self.heap.lock();
        let behind = self.first + self.units;
        if more > 0 {
            if !state.runs.take_at(behind, more) {
                return false;
            }
            state.take(behind, more);
        }
        self.units += more;
        true
    }

    /// Whether it could be so many words long where it stands, as things are.
    pub(crate) fn could_extend(&self, words: usize) -> bool {
        let more = (words * 8).div_ceil(UNIT_BYTES).saturating_sub(self.units as usize);
        more <= self.heap.lock().runs.free_at(self.first + self.units) as usize
    }

    /// Gives back what is beyond so many words, at least one.
    pub(crate) fn shrink(&mut self, words: usize) {
        let units = (words.max(1) * 8).div_ceil(UNIT_BYTES) as u32;
        if let Some(less) = self.units.checked_sub(units)
            && less > 0
        {
            self.heap.give(self.first + units, less);
            self.units = units;
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.heap.give(self.first, self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the range that have memory behind them.
    #[cfg(target_os = "linux")]
    fn resident(heap: &Heap) -> usize {
        let mut pages = vec![0_u8; heap.bytes.div_ceil(UNIT_BYTES)];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let code = unsafe {
            libc::mincore(heap.start.as_ptr().cast(), heap.bytes, pages.as_mut_ptr().cast())
        };
        assert_eq!(code, 0);
        pages.iter().filter(|page| **page & 1 == 1).count() * UNIT_BYTES
    }

    fn fill(run: &Run, value: u64) {
        // SAFETY: the run is this test's alone.
        unsafe { std::slice::from_raw_parts_mut(run.start(), run.words()) }.fill(value);
    }

    fn holds(run: &Run, value: u64) -> bool {
        // SAFETY: filled before.
        unsafe { std::slice::from_raw_parts(run.start(), run.words()) }.iter().all(|w| *w == value)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_idle_goes_back_to_the_system() {
        const MIB: usize = 1 << 20;
        let heap = Heap::map(64 * MIB, Idle::GivenBack).unwrap();
        let mut runs: Vec<Run> = (0..60).map(|_| heap.take(MIB).unwrap()).collect();
        runs.iter().for_each(|run| fill(run, 7));
        assert!(resident(&heap) >= 60 * MIB);
        assert_eq!(heap.usage(), HeapUse { used_bytes: 60 * MIB, ..HeapUse::default() });
        // Every other: not one huge page is free as a whole.
        let kept: Vec<Run> =
            runs.drain(..).enumerate().filter(|(i, _)| i % 2 == 0).map(|(_, r)| r).collect();
        assert_eq!(heap.usage(), HeapUse { used_bytes: 30 * MIB, ..HeapUse::default() });
        drop(kept);
        let usage = heap.usage();
        assert_eq!(usage.used_bytes, 0);
        assert!((1..=IDLE_BLOCKS).contains(&(usage.idle_bytes / (2 * MIB))), "{usage:?}");
        assert_eq!(usage.given_back_bytes as usize, 60 * MIB - usage.idle_bytes);
        assert!(resident(&heap) <= usage.idle_bytes, "{} bytes", resident(&heap));
        heap.give_back();
        assert_eq!((heap.usage().idle_bytes, resident(&heap)), (0, 0));
        // It can be used again.
        let run = heap.take(64 * MIB).unwrap();
        assert!(holds(&run, 0));
        fill(&run, 9);
        assert!(heap.take(UNIT_BYTES).is_none());
        assert_eq!((heap.usage().refused, heap.usage().refused_bytes), (1, 4096));
    }

    /// Where a network card knows the pages, they stay.
    #[cfg(target_os = "linux")]
    #[test]
    fn pinned_memory_does_not_go_back() {
        const BYTES: usize = 32 << 20;
        let inner = Heap::map(BYTES, Idle::GivenBack).unwrap();
        // It need not begin at a huge page, nor end at one.
        let start = inner.start().as_ptr().wrapping_add(4096 + 64);
        let (start, bytes) = (NonNull::new(start).unwrap(), BYTES - 4096 - 64 - 10_000);
        // SAFETY: `inner` has no other user, and lives as long.
        let heap = unsafe { Heap::new(start, bytes, Idle::Kept, inner.clone()) };
        let run = heap.take(24 << 20).unwrap();
        assert_eq!(run.start() as usize % HUGE_PAGE_BYTES, 0);
        fill(&run, 7);
        drop(run);
        heap.give_back();
        let usage = heap.usage();
        assert_eq!((usage.idle_bytes, usage.given_back_bytes), (24 << 20, 0));
        assert!(resident(&inner) >= 24 << 20);
        // All that is left is in the range.
        let mut runs = Vec::new();
        while let Some(run) = heap.take(UNIT_BYTES) {
            fill(&run, 1);
            runs.push(run);
        }
        assert_eq!(
            runs.len() * UNIT_BYTES,
            (bytes - ((2 << 20) - 4096 - 64)) / UNIT_BYTES * UNIT_BYTES
        );
    }

    #[test]
    fn places_are_told_of_what_stands_inside() {
        let heap = Heap::map(4 << 20, Idle::Kept).unwrap();
        let run = heap.take(8192).unwrap();
        fill(&run, 3);
        // SAFETY: filled just now.
        let words = unsafe { std::slice::from_raw_parts(run.start(), run.words()) };
        let first = run.start() as usize - heap.start().as_ptr() as usize;
        assert_eq!(heap.offset_of(words), Some(first));
        assert_eq!(heap.offset_of(&words[10..20]), Some(first + 80));
        assert_eq!(heap.offset_of(&[1, 2, 3]), None);
        assert!(heap.take(RUN_BYTES_MIN - 1).is_none(), "short memory is the allocator's");
        assert_eq!(heap.usage().refused, 0);
    }

    #[test]
    fn many_threads_take_and_give() {
        let heap = Heap::map(32 << 20, Idle::GivenBack).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=4_u64 {
                let heap = &heap;
                scope.spawn(move || {
                    let (mut held, mut state) = (Vec::<(Run, u64)>::new(), thread);
                    for i in 0..if cfg!(debug_assertions) { 400 } else { 2000 } {
                        state = state
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let chance = (state >> 33) as usize;
                        if let Some(run) = heap.take(UNIT_BYTES + chance % (1 << 20)) {
                            let value = thread << 32 | i;
                            fill(&run, value);
                            held.push((run, value));
                        }
                        if held.len() > 12 || chance.is_multiple_of(3) && !held.is_empty() {
                            let (mut run, value) = held.swap_remove(chance % held.len());
                            assert!(holds(&run, value), "somebody else wrote here");
                            run.shrink(run.words() / 2);
                            assert!(holds(&run, value), "somebody else wrote here");
                        }
                    }
                });
            }
        });
        assert_eq!(heap.usage().used_bytes, 0);
        assert!(heap.take(32 << 20).is_some(), "all is in one piece again");
    }
}
