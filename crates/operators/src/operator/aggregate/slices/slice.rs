//! The state of one window slice: the table that its worker leads, and the rows held for other
//! leaders.

use millstream_state::{ChunkPool, Fragment, Leaders, Load, Scratch, Segment, Table};

use super::spare::Spare;
use crate::budget::Usage;
use crate::operator::SealSlice;
use crate::passed::{Passed, PassedBuffers, PassedRows};

/// State of one window slice.
pub(super) struct Slice {
    pub(super) primary: Table,
    /// By leader, from its first row on.
    pub(super) fragments: Vec<Option<Fragment>>,
    /// By leader: rows that are passed through and wait to be shipped. None from the beginning.
    pub(super) passed: Vec<Passed>,
    /// Rows that its table has taken in for all leaders since the epoch began.
    pub(super) joint_rows: usize,
    /// What its table held for other leaders and has sealed, by leader: at the end of an epoch, or
    /// when it became too large to be joint.
    pub(super) sealed: Vec<(usize, Segment)>,
    /// What it amounted to when it was counted last, and whether it held rows for other leaders
    /// then; `None` if it has changed.
    pub(super) counted: Option<(Usage, bool)>,
}

/// What has been sealed for a leader.
pub(super) enum Sealed {
    Segment(Segment),
    Passed(PassedRows),
}

/// What a slice takes itself.
pub(super) fn slice_bytes(leaders: usize) -> usize {
    size_of::<Slice>() + leaders * size_of::<Option<Fragment>>()
}

impl Slice {
    /// An empty one, which goes on with an emptied table.
    pub(super) fn new(primary: Table, leaders: usize) -> Slice {
        let fragments = (0..leaders).map(|_| None).collect();
        let (passed, sealed) = Default::default();
        Slice { primary, fragments, passed, joint_rows: 0, sealed, counted: None }
    }

    /// What it amounts to; growth by the next input, and by what there should be room for.
    pub(super) fn usage(&self, next: Load, room: Load, passing: Option<&PassedBuffers>) -> Usage {
        let fragments = self.fragments.iter().flatten();
        let sealed = self.sealed.iter().map(|(_, segment)| segment.bytes()).sum::<usize>();
        let bytes =
            self.primary.bytes() + sealed + fragments.clone().map(Fragment::bytes).sum::<usize>();
        let mut usage = Usage { bytes: bytes as u64, ..Usage::default() };
        let one = Load { rows: 1, text_bytes: next.text_bytes / next.rows.max(1) };
        for table in fragments.clone().map(Fragment::table).chain([&self.primary]) {
            usage.live_bytes += (table.live_bytes() + table.other_row_bytes()) as u64;
            usage.keys += (table.rows() + table.other_rows()) as u64;
            let growth_bytes = table.growth_bytes(next) as u64;
            let room_bytes = table.growth_bytes(room) as u64;
            usage.room_bytes = usage.room_bytes.max(room_bytes);
            if growth_bytes > usage.growth_bytes {
                usage.growth_bytes = growth_bytes;
                usage.batch_growth_bytes =
                    growth_bytes.saturating_sub(table.growth_bytes(one) as u64);
            }
        }
        let kept = self.passed.iter().map(Passed::bytes);
        usage.largest_kept_bytes = kept.clone().max().unwrap_or(0) as u64;
        let kept_bytes = kept.sum::<usize>() as u64;
        usage.bytes += kept_bytes + (self.passed.capacity() * size_of::<Passed>()) as u64;
        usage.live_bytes += self.passed.iter().map(Passed::live_bytes).sum::<usize>() as u64;
        usage.keys += self.passed.iter().map(Passed::rows).sum::<usize>() as u64;
        if let Some(passing) = passing.filter(|_| kept_bytes > 0) {
            let leaders = self.passed.len();
            usage.room_bytes = usage.room_bytes.max(passing.growth_bytes(room, leaders) as u64);
            let growth_bytes = passing.growth_bytes(next, leaders) as u64;
            if growth_bytes > usage.growth_bytes {
                usage.growth_bytes = growth_bytes;
                usage.batch_growth_bytes =
                    growth_bytes.saturating_sub(passing.growth_bytes(one, leaders) as u64);
            }
        }
        let parting_bytes = self.primary.parting_bytes(self.fragments.len()) as u64;
        if parting_bytes > usage.growth_bytes {
            (usage.growth_bytes, usage.batch_growth_bytes) = (parting_bytes, 0);
        }
        let largest = fragments.clone().map(|f| f.table().live_bytes()).max();
        let others_bytes = self.primary.other_bytes() + sealed;
        let others_share = others_bytes / (self.fragments.len() - 1).max(1);
        usage.largest_fragment_bytes = largest.unwrap_or(0).max(others_share) as u64;
        usage.largest_passed_bytes =
            fragments.map(Fragment::passed_bytes).max().unwrap_or(0) as u64;
        usage
    }

    /// Whether it holds rows for other leaders.
    pub(super) fn has_rows_of_others(&self) -> bool {
        self.primary.other_rows() > 0
            || !self.sealed.is_empty()
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
            let least = if how == SealSlice::EndEpoch { 0 } else { largest / 2 };
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
                SealSlice::EndEpoch => fragment.seal(),
                SealSlice::PassedThrough if fragment.passed_bytes() > 0 => fragment.seal(),
                SealSlice::PassedThrough | SealSlice::Nothing => None,
            };
            if let Some(segment) = sealed {
                take(leader, segment);
            }
            // A fragment that has not been sealed keeps its rows.
            if let Some(fragment) = place.take_if(|fragment| scarce && fragment.rows() == 0) {
                spare.retire_fragment(fragment);
            }
        }
    }
}
