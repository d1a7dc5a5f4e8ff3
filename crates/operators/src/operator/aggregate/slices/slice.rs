//! The state of one window slice: the table that its worker leads, and the rows held for other
//! leaders.

use std::sync::Arc;

use millstream_state::{ChunkPool, Fragment, Leaders, Load, RowLayout, Scratch, Segment, Table};

use super::spare::Spare;
use crate::budget::Usage;
use crate::operator::SealSlice;
use crate::operator::saved::Since;
use crate::passed::{Passed, PassedBuffers, PassedRows};

/// State of one window slice.
pub(super) struct Slice {
    pub(super) primary: Table,
    /// Which cut has the rows of own keys.
    pub(super) since: Since,
    pub(super) aside: Aside,
    /// By leader, from its first row on.
    pub(super) fragments: Vec<Option<Box<Fragment>>>,
    /// By leader: rows that are passed through and wait to be shipped. None from the beginning.
    pub(super) passed: Vec<Passed>,
    /// Rows that its table has taken in for all leaders since the epoch began.
    pub(super) joint_rows: usize,
    /// What its table held for other leaders and has sealed, by leader: at the end of an epoch, or
    /// when it became too large to be joint.
    pub(super) sealed: Vec<(usize, Segment)>,
    /// Usage at the last count, and whether rows for other leaders were held then; `None` after a
    /// change.
    pub(super) counted: Option<(Usage, bool)>,
    /// The same without the table. A merge changes the table alone.
    counted_others: Option<(Usage, bool)>,
    /// The last epoch has ended, and only the table has changed since.
    pub(super) is_closed: bool,
}

/// The older rows of a slice, while it has a second table.
#[derive(Debug, Default)]
pub(super) enum Aside {
    /// The slice has a single table.
    #[default]
    None,
    /// A checkpoint saves them. The table of the slice has what has come since.
    Saving(Arc<Table>),
    /// They are in the table of the slice. What has come since is being merged into it, and these
    /// chunks have been.
    Merging(Segment, usize),
}

impl Aside {
    /// Bytes, bytes of keys and values, and keys.
    pub(super) fn usage(&self) -> [usize; 3] {
        match self {
            Aside::None => [0; 3],
            Aside::Saving(table) => [table.bytes(), table.live_bytes(), table.rows()],
            Aside::Merging(segment, _) => [segment.bytes(), segment.bytes(), segment.rows()],
        }
    }
}

/// What has been sealed for a leader.
pub(super) enum Sealed {
    Segment(Segment),
    Passed(PassedRows),
}

/// The part of a load that is for one row.
fn one_of(load: Load) -> Load {
    Load { rows: 1, text_bytes: load.text_bytes / load.rows.max(1) }
}

impl Usage {
    /// Growth of a further table: by the next input, by one row of the input, and by the input
    /// that should have room.
    fn grow(&mut self, growth_bytes: u64, one_bytes: u64, room_bytes: u64) {
        self.room_bytes = self.room_bytes.max(room_bytes);
        if growth_bytes > self.growth_bytes {
            self.growth_bytes = growth_bytes;
            self.batch_growth_bytes = growth_bytes.saturating_sub(one_bytes);
        }
    }

    /// Whether both hold as much. Growth depends on what is free beside arenas, too.
    fn holds_as_much_as(&self, other: &Usage) -> bool {
        let own = (self.bytes, self.live_bytes, self.keys, self.largest_fragment_bytes);
        own == (other.bytes, other.live_bytes, other.keys, other.largest_fragment_bytes)
    }

    /// Adds a table, without its bytes.
    fn add_table(&mut self, table: &Table, next: Load, room: Load) {
        self.live_bytes += (table.live_bytes() + table.other_row_bytes()) as u64;
        self.keys += (table.rows() + table.other_rows()) as u64;
        let growth_bytes = table.growth_bytes(next) as u64;
        if growth_bytes > self.growth_bytes {
            self.batch_growth_bytes =
                growth_bytes.saturating_sub(table.growth_bytes(one_of(next)) as u64);
            self.growth_bytes = growth_bytes;
        }
        let room_bytes = if room == next { growth_bytes } else { table.growth_bytes(room) as u64 };
        self.room_bytes = self.room_bytes.max(room_bytes);
    }
}

/// Bytes of a slice without tables.
pub(super) fn slice_bytes(leaders: usize) -> usize {
    size_of::<Slice>() + leaders * size_of::<Option<Box<Fragment>>>()
}

/// About what a window takes that has one key, for one leader.
pub(crate) fn small_table_bytes(layout: &Arc<RowLayout>, leaders: usize) -> usize {
    // Some values and keys have something in an arena.
    const ARENA_BYTES: usize = 512;
    let growth_bytes = Table::new(layout.clone()).growth_bytes(Load::rows(1));
    slice_bytes(leaders) + size_of::<Fragment>() + ARENA_BYTES + growth_bytes
}

impl Slice {
    /// An empty one, which goes on with an emptied table.
    pub(super) fn new(primary: Table, leaders: usize) -> Slice {
        let fragments = (0..leaders).map(|_| None).collect();
        let (passed, sealed, counted, counted_others) = Default::default();
        Slice {
            primary,
            since: Since::CHANGED,
            aside: Aside::None,
            fragments,
            passed,
            joint_rows: 0,
            sealed,
            counted,
            counted_others,
            is_closed: false,
        }
    }

    /// Takes the last count out: the slice changes. With `keeps_others` only the table changes.
    pub(super) fn take_counted(&mut self, keeps_others: bool) -> Option<(Usage, bool)> {
        if !keeps_others {
            (self.counted_others, self.is_closed) = (None, false);
        }
        self.counted.take()
    }

    /// Counts the slice, as far as it has changed; returns [`Slice::counted`].
    pub(super) fn count(
        &mut self,
        next: Load,
        room: Load,
        passing: Option<&PassedBuffers>,
    ) -> (Usage, bool) {
        let count = || (self.usage_of_others(next, room, passing), self.has_rows_beside_table());
        let (mut usage, mut holds) = self.counted_others.unwrap_or_else(count);
        self.counted_others = Some((usage, holds));
        self.add_table(&mut usage, next, room);
        holds |= self.primary.other_rows() > 0;
        debug_assert!(usage.holds_as_much_as(&self.recount(next, room, passing).0));
        *self.counted.insert((usage, holds))
    }

    /// Usage without the table: growth by the `next` input, and by the input that should have
    /// `room`.
    fn usage_of_others(&self, next: Load, room: Load, passing: Option<&PassedBuffers>) -> Usage {
        let bytes = self.sealed_bytes() as u64;
        let mut usage = Usage { bytes, ..Usage::default() };
        for fragment in self.fragments.iter().flatten() {
            usage.bytes += (size_of::<Fragment>() + fragment.bytes()) as u64;
            usage.add_table(fragment.table(), next, room);
            let (live_bytes, passed_bytes) =
                (fragment.table().live_bytes() as u64, fragment.passed_bytes() as u64);
            usage.largest_fragment_bytes = usage.largest_fragment_bytes.max(live_bytes);
            usage.largest_passed_bytes = usage.largest_passed_bytes.max(passed_bytes);
        }
        let kept = self.passed.iter().map(Passed::bytes);
        usage.largest_kept_bytes = kept.clone().max().unwrap_or(0) as u64;
        let kept_bytes = kept.sum::<usize>() as u64;
        usage.bytes += kept_bytes + (self.passed.capacity() * size_of::<Passed>()) as u64;
        usage.live_bytes += self.passed.iter().map(Passed::live_bytes).sum::<usize>() as u64;
        usage.keys += self.passed.iter().map(Passed::rows).sum::<usize>() as u64;
        if let Some(passing) = passing.filter(|_| kept_bytes > 0) {
            let leaders = self.passed.len();
            let growth = |load| passing.growth_bytes(load, leaders) as u64;
            usage.grow(growth(next), growth(one_of(next)), growth(room));
        }
        usage
    }

    /// Adds the usage of the table.
    fn add_table(&self, usage: &mut Usage, next: Load, room: Load) {
        usage.bytes += self.primary.bytes() as u64;
        usage.add_table(&self.primary, next, room);
        let [bytes, live_bytes, keys] = self.aside.usage().map(|part| part as u64);
        usage.bytes += bytes;
        usage.live_bytes += live_bytes;
        usage.keys += keys;
        let parting_bytes = self.primary.parting_bytes(self.fragments.len()) as u64;
        if parting_bytes > usage.growth_bytes {
            (usage.growth_bytes, usage.batch_growth_bytes) = (parting_bytes, 0);
        }
        let others_bytes = self.primary.other_bytes() + self.sealed_bytes();
        let others_share = (others_bytes / (self.fragments.len() - 1).max(1)) as u64;
        usage.largest_fragment_bytes = usage.largest_fragment_bytes.max(others_share);
    }

    /// Bytes of segments of the table's rows for other leaders.
    fn sealed_bytes(&self) -> usize {
        self.sealed.iter().map(|(_, segment)| segment.bytes()).sum()
    }

    /// Usage of the whole slice, counted anew, and whether rows for other leaders are held.
    pub(super) fn recount(
        &self,
        next: Load,
        room: Load,
        passing: Option<&PassedBuffers>,
    ) -> (Usage, bool) {
        let mut usage = self.usage_of_others(next, room, passing);
        self.add_table(&mut usage, next, room);
        (usage, self.has_rows_of_others())
    }

    /// Goes on in its old table. Returns the young table, emptied, and its rows.
    pub(super) fn take_back(
        &mut self,
        old: Table,
        leaders: &Leaders,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> (Table, Segment) {
        if self.primary.other_rows() > 0 {
            self.seal_others(leaders, pool, scratch);
        }
        let mut young = std::mem::replace(&mut self.primary, old);
        let since = young.seal();
        young.clear(pool);
        (young, since)
    }

    /// Whether it holds rows of own keys.
    pub(super) fn holds_rows(&self) -> bool {
        self.primary.rows() > 0 || !matches!(self.aside, Aside::None)
    }

    /// Whether it holds rows for other leaders.
    pub(super) fn has_rows_of_others(&self) -> bool {
        self.primary.other_rows() > 0 || self.has_rows_beside_table()
    }

    /// Whether rows for other leaders are held outside the table.
    fn has_rows_beside_table(&self) -> bool {
        !self.sealed.is_empty()
            || self.fragments.iter().flatten().any(|fragment| fragment.rows() > 0)
            || self.passed.iter().any(|passed| passed.rows() > 0)
    }

    /// The number of distinct rows in its joint table since the epoch began: the table's own rows
    /// may be older, but its rows for other leaders are of the epoch.
    pub(super) fn joint_distinct(&self) -> usize {
        let leaders = self.fragments.len();
        self.primary.other_rows() * leaders / (leaders - 1).max(1)
    }

    /// Seals what its table holds for other leaders; it leaves when the slice is sealed.
    pub(super) fn seal_others(
        &mut self,
        leaders: &Leaders,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        self.sealed.extend(self.primary.seal_others(leaders, pool, scratch));
    }

    /// Hands emptied fragments on to other slices: no more rows come, or none will be sealed.
    pub(super) fn retire_fragments(&mut self, spare: &mut Spare, pool: &mut ChunkPool) {
        for (leader, place) in self.fragments.iter_mut().enumerate() {
            let Some(mut fragment) = place.take() else { continue };
            debug_assert_eq!(fragment.rows(), 0, "a fragment outlived its window");
            fragment.clear(pool);
            spare.keep_fragment(leader, fragment);
        }
        self.passed = Vec::new();
    }

    /// Seals its fragments as far as `how` says; they and what has been sealed before go to `take`,
    /// by leader. Emptied fragments are kept for what the slice has yet to get, unless memory is
    /// `scarce`.
    pub(super) fn seal(
        &mut self,
        how: SealSlice,
        scarce: bool,
        spare: &mut Spare,
        mut take: impl FnMut(usize, Sealed),
    ) {
        if how != SealSlice::Nothing {
            // Where there is little it may yet find a slot, or company.
            let largest = self.passed.iter().map(Passed::bytes).max().unwrap_or(0);
            let least = if how.ends_epoch() { 0 } else { largest / 2 };
            let passed = self.passed.iter_mut().enumerate();
            for (leader, passed) in passed.filter(|(_, passed)| passed.bytes() >= least) {
                let rows = passed.take().into_iter().filter(|rows| rows.rows() > 0);
                rows.for_each(|rows| take(leader, Sealed::Passed(rows)));
            }
        }
        let mut take = |leader, segment| take(leader, Sealed::Segment(segment));
        self.sealed.drain(..).for_each(|(leader, segment)| take(leader, segment));
        for (leader, place) in self.fragments.iter_mut().enumerate() {
            let Some(fragment) = place else { continue };
            let sealed = match how {
                SealSlice::Close | SealSlice::EndEpoch => fragment.seal(),
                SealSlice::PassedThrough if fragment.passed_bytes() > 0 => fragment.seal(),
                SealSlice::PassedThrough | SealSlice::Nothing => None,
            };
            if let Some(segment) = sealed {
                take(leader, segment);
            }
            // A fragment that has not been sealed keeps its rows.
            if let Some(fragment) = place.take_if(|fragment| scarce && fragment.rows() == 0) {
                spare.retire_fragment(&fragment);
            }
        }
    }
}
