//! A worker's state: for each window slice, the table that the worker leads and a fragment for
//! every other leader.

mod counted;
mod saved;
mod slice;
mod spare;
mod update;

pub(crate) use slice::small_table_bytes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millstream_state::{
    Arena, BLOCK_ROWS, ChunkPool, Keys, Leaders, Load, Malformed, Mode, RowLayout, Scratch,
    Segment, Table,
};

use crate::budget::Usage;
use crate::columns::keys::{KeyBlock, VarColumn};
use crate::error::{Error, Result};
use crate::operator::aggregate::grouping::{Grouping, Selected};
use crate::operator::aggregate::modes::Modes;
use crate::operator::routed::Routed;
use crate::operator::saved::Since;
use crate::operator::{Counters, Room, SealSlice};
use crate::passed::{Format, Onward, Parcel, PassedBuffers, PassedRows, Pool, ReadRows};
use crate::windowing::{SliceId, WindowId, Windowing};
use counted::Counted;
use slice::{Aside, Sealed, Slice, slice_bytes};
use spare::Spare;
use update::{Passage, To, Update, number, part_of};

/// State of one worker.
pub struct Slices {
    slices: BTreeMap<SliceId, Slice>,
    layout: Arc<RowLayout>,
    leaders: Leaders,
    me: usize,
    pool: ChunkPool,
    /// How rows are passed through as keys and arguments, if they are.
    passing: Option<PassedBuffers>,
    scratch: Scratch,
    block: KeyBlock,
    routed: Routed,
    picks: Vec<u32>,
    /// 0, 1, 2 and so on.
    positions: Vec<u32>,
    spare: Spare,
    pub(super) modes: Modes,
    /// Keys of the last complete window.
    last_keys: usize,
    /// So much of a table's arena is kept for the next window.
    arena_bytes_max: usize,
    /// Memory is scarce: new tables start small.
    frugal: bool,
    /// Slices opened since the last batch began.
    opened: usize,
    counted: Counted,
    /// The slices of which older rows are set aside, in ascending order.
    aside: VecDeque<SliceId>,
    /// Rows that went into joint tables.
    joint_rows: u64,
}

/// Smaller indexes are not handed on to the next window: each has its own.
const HANDED_ON_BYTES_MIN: usize = 1 << 20;

/// Blocks of rows encoded at a time, for each leader: enough to keep memory busy, few enough for
/// the second-level cache; or, where the table is in that, for the first.
const GROUP_BLOCKS: usize = 16;
const GROUP_BLOCKS_NEAR: usize = 6;
const GROUP_ROWS_MAX: usize = 1 << 15;

impl Slices {
    /// Slices without rows.
    pub fn new(
        layout: Arc<RowLayout>,
        leaders: Leaders,
        me: usize,
        format: Option<Arc<Format>>,
        Room { pool_bytes, heap, buffer_bytes, mode, clock, .. }: Room,
    ) -> Slices {
        let pool = ChunkPool::new(layout.row_words(), pool_bytes, heap);
        let buffers = || Pool::new(buffer_bytes, pool_bytes / 2);
        let passing = format.map(|format| PassedBuffers { format, pool: buffers() });
        let words = passing.as_ref().map_or(layout.row_words(), |p| p.format.row_bytes() / 8);
        let modes = Modes::new(&layout, words, leaders.count(), mode, clock);
        let small_bytes = leaders.count() * small_table_bytes(&layout, leaders.count());
        let spare = Spare::new(leaders.count(), pool_bytes / 4 / small_bytes);
        Slices {
            slices: BTreeMap::new(),
            layout,
            leaders,
            me,
            pool,
            passing,
            scratch: Scratch::default(),
            block: KeyBlock::default(),
            routed: Routed::default(),
            picks: Vec::new(),
            positions: Vec::new(),
            spare,
            modes,
            last_keys: 0,
            arena_bytes_max: pool_bytes / 16,
            frugal: false,
            opened: 0,
            counted: Counted::default(),
            aside: VecDeque::new(),
            joint_rows: 0,
        }
    }

    /// Begins the next batch.
    pub(crate) fn begin_batch(&mut self) {
        self.opened = 0;
    }

    /// Makes sure that a slice is there.
    fn ensure(&mut self, slice: SliceId) {
        if self.slices.contains_key(&slice) {
            return;
        }
        // It will hold, most likely, about as many keys as the last one.
        let keys = if self.frugal { 0 } else { self.expected_keys() };
        let spare = self.spare.take_table();
        let mut primary = spare.unwrap_or_else(|| Table::new(self.layout.clone()));
        primary.expect(keys);
        self.slices.insert(slice, Slice::new(primary, self.leaders.count()));
        self.counted.open(slice);
        self.opened += 1;
    }

    /// How many keys the next window may have, as the last complete one and the latest that is open
    /// tell.
    fn expected_keys(&self) -> usize {
        let open = self.slices.values().next_back().map_or(0, |slice| {
            // What others pass through for this leader is about as much as the other way round.
            let passes = self.modes.mode() == Mode::PassThrough;
            let unmerged = slice.fragments.iter().flatten().filter(|_| passes).map(|f| f.rows());
            let kept: usize = slice.passed.iter().map(|passed| passed.rows()).sum();
            self.keys_of(&slice.primary) + unmerged.sum::<usize>() + kept
        });
        open.max(self.last_keys)
    }

    /// How many keys a table like this one may come to have: if it is to be joint, those of all
    /// leaders.
    fn keys_of(&self, table: &Table) -> usize {
        match self.modes.mode() {
            Mode::Joint => table.keys_max(),
            _ => table.rows() + table.other_rows() / self.leaders.count(),
        }
    }

    /// Updates the slice `id` with the selected rows of a batch. What is passed
    /// through goes `onward` to leaders in other processes, where there is room. Returns how
    /// many rows went to other leaders, now or through fragments.
    pub fn update(
        &mut self,
        id: SliceId,
        grouping: &Grouping,
        input: &Selected<'_>,
        onward: Option<&dyn Onward>,
    ) -> Result<u64> {
        let leaders = self.leaders.count();
        self.ensure(id);
        let Some(slice) = self.slices.get_mut(&id) else { return Ok(0) };
        self.counted.change(id, slice);
        let mode = match self.modes.mode() {
            Mode::Joint if !self.modes.may_join(&slice.primary, input.rows.len()) => {
                Mode::Aggregate
            }
            mode => mode,
        };
        let is_joint = mode == Mode::Joint;
        let (near, direct) = (slice.primary.is_near(), slice.primary.is_direct());
        let mut update = Update {
            id,
            slice,
            layout: &self.layout,
            modes: &mut self.modes,
            mode,
            pool: &mut self.pool,
            scratch: &mut self.scratch,
            picks: &mut self.picks,
            spare: &mut self.spare,
            grouping,
            input,
            vars: VarColumn::of(input.keys),
            passage: Passage::of(id, onward, self.passing.as_mut(), input),
            positions: &mut self.positions,
            fragment_rows: 0,
        };
        // Groups of about the same size, so that buffers keep theirs.
        let tables = if is_joint { 1 } else { leaders };
        let blocks = tables * if near { GROUP_BLOCKS_NEAR } else { GROUP_BLOCKS };
        let groups = input.rows.len().div_ceil((blocks * BLOCK_ROWS).min(GROUP_ROWS_MAX));
        for rows in input.rows.chunks(input.rows.len().div_ceil(groups.max(1)).max(1)) {
            let hashed = tables > 1 || !direct;
            let keys = grouping.codec.encode(input.keys, rows, hashed, &mut self.block);
            if tables == 1 {
                let to = if is_joint { To::All(self.leaders.own(self.me)) } else { To::Primary };
                update.rows(to, rows, keys)?;
                continue;
            }
            self.routed.sort(&self.leaders, rows, keys, !update.is_direct());
            for leader in 0..leaders {
                let (rows, keys) = self.routed.of(leader);
                if leader == self.me && !rows.is_empty() {
                    update.rows(To::Primary, rows, keys)?;
                } else if !rows.is_empty() {
                    update.foreign(leader, rows, keys)?;
                }
            }
        }
        let fragment_rows = update.fragment_rows;
        if is_joint {
            slice.joint_rows += input.rows.len();
            self.joint_rows += input.rows.len() as u64;
            let (seen, distinct) = (slice.joint_rows, slice.joint_distinct());
            if !self.modes.note_joint(&slice.primary, seen, distinct) {
                slice.seal_others(&self.leaders, &mut self.pool, &mut self.scratch);
            }
        }
        Ok(fragment_rows)
    }

    /// Updates a slice with rows of keys that this worker leads, which have been passed through to
    /// it.
    pub fn update_own(&mut self, grouping: &Grouping, read: &ReadRows<'_>) -> Result<()> {
        let (id, words, rows) = (read.slice(), read.keys(), read.rows());
        if rows == 0 {
            return Ok(());
        }
        if !self.leads(grouping, words) {
            return Err(Error::Internal("rows of another leader's keys".into()));
        }
        self.ensure(id);
        let Some(slice) = self.slices.get_mut(&id) else { return Ok(()) };
        self.counted.change_table(id, slice);
        slice.since = Since::CHANGED;
        let feeds = read.feeds();
        let hashes = &mut self.block.hashes;
        if slice.primary.is_direct() {
            hashes.clear();
        } else {
            grouping.codec.hash(words, rows, hashes);
        }
        number(&mut self.positions, rows);
        // Blocks of about the same size.
        let block_rows = rows.div_ceil(rows.div_ceil(BLOCK_ROWS));
        slice.primary.prefetch(part_of(hashes, 0, block_rows));
        let width = words.len() / rows;
        for first in (0..rows).step_by(block_rows) {
            let end = (first + block_rows).min(rows);
            let keys = Keys {
                hashes: part_of(hashes, first, end),
                ahead: part_of(hashes, end, end + block_rows),
                words: &words[first * width..end * width],
                vars: read.vars(first),
            };
            let mut block = slice.primary.update(&keys, &mut self.pool, &mut self.scratch);
            let positions = &self.positions[first..end];
            let (aggregates, layout) = (&grouping.aggregates, &self.layout);
            aggregates.update(layout, &feeds, positions, &mut block, &mut self.picks)?;
        }
        Ok(())
    }

    /// Seals what is held for other leaders, for each of them. `how` tells for
    /// each slice. What is empty then is kept for what the slice has yet to get,
    /// unless memory is `scarce`.
    pub(crate) fn seal(&mut self, how: impl Fn(SliceId) -> SealSlice, scarce: bool) -> Vec<Parcel> {
        let mut parcels: Vec<_> = (0..self.leaders.count()).map(|_| Parcel::default()).collect();
        let Slices { slices, leaders, pool, scratch, modes, spare, .. } = self;
        let (began, mut joint_rows, mut ended, mut keys) = (modes.now(), 0, false, 0);
        for (id, slice) in slices {
            let how = how(*id);
            if how == SealSlice::Nothing {
                break;
            }
            if slice.is_closed {
                continue;
            }
            let closes = how == SealSlice::Close;
            if scarce || closes || slice.has_rows_of_others() {
                self.counted.change(*id, slice);
            }
            if how.ends_epoch() {
                let seen = std::mem::take(&mut slice.joint_rows);
                let distinct = slice.joint_distinct();
                modes.note_looked_up(seen, distinct);
                (joint_rows, ended) = (joint_rows + slice.primary.other_rows(), true);
                keys = keys.max(slice.primary.rows());
                slice.seal_others(leaders, pool, scratch);
            }
            slice.seal(how, scarce, spare, |leader, sealed| match sealed {
                Sealed::Segment(segment) => parcels[leader].segments.push((*id, segment)),
                Sealed::Passed(rows) => parcels[leader].passed.push(rows),
            });
            if closes {
                slice.retire_fragments(spare, pool);
                slice.is_closed = true;
            }
        }
        if ended {
            modes.note_sealed(joint_rows, began);
            modes.end_epoch(keys, !scarce);
        }
        parcels
    }

    /// Merges a segment that another worker sealed.
    pub(crate) fn merge(&mut self, id: SliceId, segment: &Segment) {
        self.ensure(id);
        let Some(slice) = self.slices.get_mut(&id) else { return };
        self.counted.change_table(id, slice);
        slice.since = Since::CHANGED;
        slice.primary.merge(segment, &mut self.pool, &mut self.scratch);
    }

    /// Merges rows that another process sealed, from where they arrived.
    pub(crate) fn merge_words(
        &mut self,
        id: SliceId,
        words: &[u64],
        arena: &Arena,
    ) -> std::result::Result<(), Malformed> {
        let first = self.layout.first_hash(words, &mut self.scratch);
        if first.is_some_and(|hash| self.leaders.of(hash) != self.me) {
            return Err(Malformed { what: "rows of another leader's keys" });
        }
        self.ensure(id);
        let Some(slice) = self.slices.get_mut(&id) else { return Ok(()) };
        self.counted.change_table(id, slice);
        slice.since = Since::CHANGED;
        slice.primary.merge_words(words, arena, &mut self.pool, &mut self.scratch)
    }

    /// Whether this worker leads the first of these keys.
    fn leads(&mut self, grouping: &Grouping, words: &[u64]) -> bool {
        if self.leaders.count() == 1 {
            return true;
        }
        let hashes = &mut self.block.hashes;
        grouping.codec.hash(&words[..grouping.codec.words()], 1, hashes);
        self.leaders.of(hashes[0]) == self.me
    }

    /// Takes the memory of a segment back that its leader, in another process, has merged.
    pub(crate) fn reuse(&mut self, segment: Segment) {
        segment.recycle(&mut self.pool);
    }

    /// Takes the memory of rows back that have been passed through to this worker and taken in.
    pub(crate) fn reuse_passed(&mut self, rows: PassedRows) {
        if let Some(passing) = self.passing.as_mut().filter(|_| !self.frugal) {
            passing.pool.give(rows);
        }
    }

    /// The slices that hold rows.
    pub(crate) fn open(&self) -> impl Iterator<Item = SliceId> {
        let open = |slice: &Slice| slice.holds_rows() || slice.has_rows_of_others();
        self.slices.iter().filter(move |(_, slice)| open(slice)).map(|(id, _)| *id)
    }

    /// The window that fires next, when all that fire up to `frontier` have fired. No later slice
    /// serves an earlier window.
    pub(crate) fn next_window(&self, windowing: &Windowing, frontier: i64) -> Option<WindowId> {
        self.slices.keys().find_map(|slice| windowing.next_window(*slice, frontier))
    }

    /// Takes out the slices up to the `last` that a complete window is the first to need, in order;
    /// their fragments have been sealed. Earlier ones are there after a restart alone.
    pub(crate) fn remove_all(&mut self, last: SliceId) -> Vec<((SliceId, Since), Table)> {
        let all = self.slices.range(..=last).map(|(id, slice)| (*id, slice.since));
        let all: Vec<_> = all.collect();
        all.into_iter().filter_map(|slice| Some((slice, self.remove(slice.0)?))).collect()
    }

    /// Takes out a slice of a complete window; its fragments have been sealed. The next may go on
    /// in its large index, which is not looked into any more. Rows that are copied for that (they
    /// refer to texts) stand twice for a moment, where the budget is not tight: they are few beside
    /// the index.
    pub fn remove(&mut self, id: SliceId) -> Option<Table> {
        let mut slice = self.slices.remove(&id)?;
        self.counted.change(id, &mut slice);
        slice.retire_fragments(&mut self.spare, &mut self.pool);
        debug_assert!(slice.primary.other_rows() == 0 && slice.sealed.is_empty(), "left behind");
        debug_assert!(matches!(slice.aside, Aside::None), "rows that are set aside");
        self.last_keys = self.keys_of(&slice.primary);
        if let Some((id, next)) = self.slices.iter_mut().next()
            && !self.frugal
            && slice.primary.index_bytes() >= HANDED_ON_BYTES_MIN
            && next.primary.take_index(&mut slice.primary, &mut self.pool, &mut self.scratch)
        {
            self.counted.change(*id, next);
        }
        Some(slice.primary)
    }

    /// Takes the memory of a fired slice back.
    pub(crate) fn recycle(&mut self, mut table: Table) {
        if std::mem::take(&mut self.frugal) {
            // The budget is nearly used up: nothing is kept for later.
            self.spare.retire_table(table);
            self.pool.relax();
            return;
        }
        let arena_bytes = if self.spare.keeps_large() { self.arena_bytes_max } else { 0 };
        table.clear_and_keep(&mut self.pool, arena_bytes);
        self.spare.keep_table(table);
    }

    /// In simulation: changes the mode, or takes joint tables for too large, as chance has it.
    pub(crate) fn choose(&mut self, choice: u64) {
        match choice {
            0 => self.modes.force(Mode::Joint),
            1 => self.modes.force(Mode::Aggregate),
            2 => self.modes.force(Mode::PassThrough),
            3 => {
                let Slices { slices, leaders, pool, scratch, .. } = self;
                for (id, slice) in slices {
                    self.counted.change(*id, slice);
                    slice.seal_others(leaders, pool, scratch);
                }
            }
            _ => {}
        }
    }

    /// Gives back all memory that no window needs now, and keeps none for the next.
    pub(crate) fn release_spare(&mut self) {
        self.frugal = true;
        self.spare.release();
        // Indexes of fragments go when they are sealed, that of a joint table stays.
        self.modes.give_back();
        self.pool.release();
        if let Some(passing) = &mut self.passing {
            passing.pool.release();
        }
    }

    /// Sizes, summed over all slices; growth by the `next` input, and by that for which there
    /// should be `room`. Only slices that have changed since the last time are looked into: many
    /// may be open.
    pub(crate) fn usage(&mut self, next: Load, room: Load) -> Usage {
        let buffers = self.passing.as_ref().map_or(0, |passing| passing.pool.bytes());
        let spare_bytes = (self.pool.bytes() + self.spare.bytes() + buffers) as u64;
        let bytes = spare_bytes
            + self.modes.bytes() as u64
            + (self.slices.len() * slice_bytes(self.leaders.count())) as u64;
        // The next batch may open as many slices as the last one.
        let opened_bytes =
            (self.opened * small_table_bytes(&self.layout, self.leaders.count())) as u64;
        let loads = [next, next.max(room)];
        let mut usage = self.counted.count(&mut self.slices, loads, self.passing.as_ref());
        usage.room_bytes = usage.room_bytes.max(opened_bytes);
        if opened_bytes > usage.growth_bytes {
            (usage.growth_bytes, usage.batch_growth_bytes) = (opened_bytes, 0);
        }
        usage.bytes += bytes;
        usage.spare_bytes = spare_bytes;
        usage
    }

    /// Whether rows are held for other leaders.
    pub(crate) fn has_fragment_rows(&self) -> bool {
        self.counted.holds_for_others(&self.slices)
    }

    /// What has been done so far.
    pub(crate) fn counters(&self) -> Counters {
        let mut all = self.spare.counters();
        (all.joint_rows, all.switches) = (self.joint_rows, self.modes.switches());
        for slice in self.slices.values() {
            all.add_table(&slice.primary);
            slice.fragments.iter().flatten().for_each(|f| all.add_fragment(f));
        }
        all
    }
}

#[cfg(test)]
mod tests;
