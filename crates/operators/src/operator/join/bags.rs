//! Bags: rows of each window and side, as they came. Those of a leader's own keys stay until their
//! window is complete; those of other leaders' keys leave with the next delta.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millstream_state::{Leaders, Load};

use super::program::Meeting;
use super::sides::{Evaluated, JoinSide};
use crate::budget::Usage;
use crate::columns::keys::{EncodedKeys, KeyBlock};
use crate::error::Result;
use crate::operator::routed::Routed;
use crate::operator::saved::{Cut, Since, Unchanged};
use crate::operator::{Leadership, Room, SealSlice};
use crate::passed::{
    Keeping, Onward, Outgoing, Parcel, Passed, PassedBuffers, PassedRows, Pool, ReadRows,
};
use crate::windowing::SliceId;

/// Rows encoded at a time: their keys lie in a near cache until they are written.
const GROUP_ROWS: usize = 1 << 12;

/// A worker's bags.
pub(super) struct Bags {
    slices: BTreeMap<SliceId, BagsOfSlice>,
    leaders: Leaders,
    me: usize,
    meeting: Meeting,
    /// By side.
    passing: [PassedBuffers; 2],
    /// All slices together.
    bytes: usize,
    live_bytes: usize,
    rows: usize,
    others_rows: usize,
    /// The most that a bag for another leader has taken since rows were sealed last.
    largest_bytes: usize,
    /// Bags set aside, by slice and side.
    aside: VecDeque<(SliceId, usize)>,
    /// Slices opened since the last batch began.
    opened: usize,
    block: KeyBlock,
    routed: Routed,
    scratch: Vec<u32>,
    /// 0, 1, 2 and so on.
    positions: Vec<u32>,
}

/// Bags set aside.
#[derive(Default)]
pub(super) struct AsideBags {
    /// By side: bags, and their slices. A bag leaves with its last row.
    pub(super) bags: [VecDeque<(SliceId, Arc<Passed>)>; 2],
    /// Bytes of copies.
    pub(super) copied_bytes: usize,
    /// Bags that are left out.
    pub(super) unchanged: Unchanged,
}

/// The bags of a window, by side.
#[derive(Default)]
struct BagsOfSlice {
    own: [Passed; 2],
    /// Which cut has them.
    since: [Since; 2],
    /// Earlier rows, while a checkpoint saves them.
    aside: [Option<Arc<Passed>>; 2],
    /// For other leaders, by leader; none from the beginning.
    others: [Vec<Passed>; 2],
}

/// About what a window takes that has one row, for so many leaders.
pub(super) fn small_slice_bytes(leaders: usize) -> usize {
    const FIRST_BUFFER_BYTES: usize = 2048;
    size_of::<BagsOfSlice>() + 2 * FIRST_BUFFER_BYTES + leaders * 2 * size_of::<Passed>()
}

impl BagsOfSlice {
    fn bags(&self) -> impl Iterator<Item = &Passed> {
        let aside = self.aside.iter().flatten().map(|bag| &**bag);
        self.own.iter().chain(aside).chain(self.others.iter().flatten())
    }

    fn others(&self) -> impl Iterator<Item = &Passed> {
        self.others.iter().flatten()
    }

    /// The bag of a side for this leader, to which rows are added.
    fn bag_of_own(&mut self, side: usize) -> &mut Passed {
        self.since[side] = Since::CHANGED;
        &mut self.own[side]
    }

    /// The bag of a side for a leader.
    fn bag(&mut self, side: usize, leader: usize, me: usize, leaders: usize) -> &mut Passed {
        if leader == me {
            return self.bag_of_own(side);
        }
        let others = &mut self.others[side];
        if others.is_empty() {
            others.resize_with(leaders, Passed::default);
        }
        &mut others[leader]
    }

    fn is_empty(&self) -> bool {
        self.bags().all(|bag| bag.rows() == 0)
    }
}

impl Bags {
    pub(super) fn new(
        sides: &[JoinSide; 2],
        meeting: Meeting,
        leadership: &Leadership,
        room: &Room,
    ) -> Bags {
        let passing = |side: &JoinSide| PassedBuffers {
            format: side.format.clone(),
            pool: Pool::new(room.buffer_bytes, room.pool_bytes / 4),
        };
        let (block, routed, scratch) = Default::default();
        Bags {
            slices: BTreeMap::new(),
            leaders: Leaders::even(leadership.leaders),
            me: leadership.me,
            meeting,
            passing: [passing(&sides[0]), passing(&sides[1])],
            bytes: 0,
            live_bytes: 0,
            rows: 0,
            others_rows: 0,
            largest_bytes: 0,
            aside: VecDeque::new(),
            opened: 0,
            block,
            routed,
            scratch,
            positions: Vec::new(),
        }
    }

    /// Begins the next batch.
    pub(super) fn begin_batch(&mut self) {
        self.opened = 0;
    }

    /// Takes in rows of a side, at positions `rows` of the batch. Rows for leaders in other
    /// processes go `onward`, where there is room. Returns the number of rows for other leaders.
    // A function of its own, so that its instructions can be counted (`tests/appends.py`).
    #[inline(never)]
    pub(super) fn add(
        &mut self,
        slice: SliceId,
        (number, side): (usize, &JoinSide),
        evaluated: &Evaluated,
        rows: &[u32],
        onward: Option<&dyn Onward>,
    ) -> Result<u64> {
        let (leaders, to) = (self.leaders.count(), self.destination(number, slice));
        let mut place = self.take(slice);
        let is_here = |leader: &usize| onward.is_none_or(|onward| !onward.leaves(*leader));
        let Evaluated { keys, arguments, columns } = evaluated;
        let (here, of) = to.leaders_here(leaders, &is_here);
        let mut keeping = Keeping::new(columns, &side.format, rows.len() * here / of, here);
        let Bags { passing, block, routed, scratch, positions, .. } = self;
        let passing = &mut passing[number];
        let vars = passing.format.vars_of(keys, arguments);
        let (mut others_rows, mut added) = (0, Ok(()));
        for rows in rows.chunks(GROUP_ROWS) {
            let keys = side.codec.encode(keys, rows, to == Destination::TheirLeaders, block);
            positions.extend(positions.len() as u32..rows.len() as u32);
            let mut give = |leader: usize, rows: &[u32], keys: EncodedKeys<'_>| {
                if let Some(keeping) = keeping.as_mut().filter(|_| is_here(&leader)) {
                    keeping.add(leader, keys.words, rows);
                    return Ok(());
                }
                let outgoing = Outgoing {
                    slice,
                    picked: &positions[..rows.len()],
                    words: keys.words,
                    rows,
                    vars: &vars,
                    arguments,
                };
                let bag = place.bag(number, leader, self.me, leaders);
                if leader == self.me {
                    return bag.keep_all(&passing.format, &outgoing, &mut passing.pool, scratch);
                }
                others_rows += rows.len() as u64;
                pass(leader, &outgoing, onward, bag, passing, scratch)
            };
            match to {
                Destination::Leader(leader) => added = give(leader, rows, keys),
                Destination::All => {
                    for leader in 0..leaders {
                        added = added.and_then(|()| give(leader, rows, keys));
                    }
                }
                Destination::TheirLeaders => {
                    routed.sort(&self.leaders, rows, keys, false);
                    for leader in 0..leaders {
                        let (rows, keys) = routed.of(leader);
                        if !rows.is_empty() {
                            added = added.and_then(|()| give(leader, rows, keys));
                        }
                    }
                }
            }
            if added.is_err() {
                break;
            }
        }
        for (leader, rows) in keeping.into_iter().flat_map(Keeping::finish) {
            let rows = PassedRows::in_columns(slice, number, rows);
            others_rows += if leader == self.me { 0 } else { rows.rows() as u64 };
            place.bag(number, leader, self.me, leaders).add(rows);
        }
        self.put(slice, place);
        added.map(|()| others_rows)
    }

    fn destination(&self, side: usize, slice: SliceId) -> Destination {
        match self.meeting {
            _ if self.leaders.count() == 1 => Destination::Leader(self.me),
            Meeting::Keys => Destination::TheirLeaders,
            Meeting::Slices(windowing) => {
                Destination::Leader(windowing.leader_of(slice, self.leaders.count()))
            }
            Meeting::Broadcast(broadcast) if broadcast == side => Destination::All,
            Meeting::Broadcast(_) => Destination::Leader(self.me),
        }
    }

    /// Takes in rows that are for this leader, where another process has put them.
    pub(super) fn take_in(&mut self, rows: &ReadRows<'_>) {
        let mut place = self.take(rows.slice());
        place.bag_of_own(rows.side()).keep_read(rows, &mut self.passing[rows.side()].pool);
        self.put(rows.slice(), place);
    }

    /// Takes a buffer of rows of own keys over from another worker.
    pub(super) fn adopt(&mut self, rows: PassedRows) {
        let slice = rows.slice;
        let mut place = self.take(slice);
        place.bag_of_own(rows.side.min(1)).add(rows);
        self.put(slice, place);
    }

    /// Takes a slice out to change it, and what it amounts to off the sums.
    fn take(&mut self, slice: SliceId) -> BagsOfSlice {
        match self.slices.remove(&slice) {
            Some(place) => {
                self.count(&place, |sum, part| sum - part);
                place
            }
            None => {
                self.opened += 1;
                BagsOfSlice::default()
            }
        }
    }

    fn put(&mut self, slice: SliceId, place: BagsOfSlice) {
        self.count(&place, |sum, part| sum + part);
        let largest = place.others().map(Passed::bytes).max().unwrap_or(0);
        self.largest_bytes = self.largest_bytes.max(largest);
        self.slices.insert(slice, place);
    }

    fn count(&mut self, place: &BagsOfSlice, with: fn(usize, usize) -> usize) {
        let sum = |part: fn(&Passed) -> usize| place.bags().map(part).sum::<usize>();
        self.bytes = with(self.bytes, sum(Passed::bytes));
        self.live_bytes = with(self.live_bytes, sum(Passed::live_bytes));
        self.rows = with(self.rows, sum(Passed::rows));
        self.others_rows = with(self.others_rows, place.others().map(Passed::rows).sum());
    }

    /// Takes out the rows for other leaders; `how` decides for each slice.
    pub(super) fn seal(&mut self, how: &dyn Fn(SliceId) -> SealSlice) -> Vec<Parcel> {
        let mut parcels: Vec<_> = (0..self.leaders.count()).map(|_| Parcel::default()).collect();
        if self.others_rows == 0 {
            return parcels;
        }
        self.largest_bytes = 0;
        let slices = self.slices.keys().copied().take_while(|id| how(*id) != SealSlice::Nothing);
        for id in slices.collect::<Vec<_>>() {
            let mut place = self.take(id);
            // Where there is little it may yet find a slot, or company.
            let largest = place.others().map(Passed::bytes).max().unwrap_or(0);
            let least = if how(id).ends_epoch() { 0 } else { largest / 2 };
            for bags in &mut place.others {
                let bags = bags.iter_mut().enumerate().filter(|(_, bag)| bag.bytes() >= least);
                for (leader, bag) in bags {
                    let rows = bag.take().into_iter().filter(|rows| rows.rows() > 0);
                    parcels[leader].passed.extend(rows);
                }
            }
            if !place.is_empty() {
                self.put(id, place);
            }
        }
        parcels
    }

    pub(super) fn hold_for_others(&self) -> bool {
        self.others_rows > 0
    }

    /// All slices, in order.
    pub(super) fn slices(&self) -> impl Iterator<Item = SliceId> {
        self.slices.keys().copied()
    }

    /// The slices that hold rows.
    pub(super) fn open(&self) -> impl Iterator<Item = SliceId> {
        self.slices.iter().filter(|(_, slice)| !slice.is_empty()).map(|(id, _)| *id)
    }

    /// Sets rows of own keys aside, but for bags that have not changed: copies of bags as long as
    /// these have no more than so many bytes, then the bags.
    pub(super) fn set_aside(
        &mut self,
        saves: &dyn Fn(usize) -> bool,
        cut: Cut,
        copied_bytes_max: usize,
    ) -> AsideBags {
        let mut all = AsideBags::default();
        all.unchanged.durable = cut.durable;
        for (id, slice) in &mut self.slices {
            for (side, own) in slice.own.iter_mut().enumerate() {
                if own.rows() == 0 || !saves(side) {
                    continue;
                }
                if cut.leaves_out(&mut slice.since[side]) {
                    all.unchanged.slices.push((side, *id));
                    continue;
                }
                let bag = if all.copied_bytes + own.live_bytes() <= copied_bytes_max {
                    all.copied_bytes += own.live_bytes();
                    Arc::new(own.clone())
                } else {
                    let bag = Arc::new(std::mem::take(own));
                    slice.aside[side] = Some(bag.clone());
                    self.aside.push_back((*id, side));
                    bag
                };
                all.bags[side].push_back((*id, bag));
            }
        }
        all
    }

    /// Takes the first bag back that was set aside, if it has been saved.
    pub(super) fn thaw(&mut self) -> bool {
        let Some((id, side)) = self.aside.front().copied() else { return false };
        let aside = |slice: &mut BagsOfSlice| slice.aside[side].take();
        if let Some(bag) = self.slices.get_mut(&id).and_then(aside) {
            match Arc::try_unwrap(bag) {
                Ok(bag) => {
                    if let Some(slice) = self.slices.get_mut(&id) {
                        slice.own[side].put_before(bag);
                    }
                }
                Err(bag) => {
                    if let Some(slice) = self.slices.get_mut(&id) {
                        slice.aside[side] = Some(bag);
                    }
                    return false;
                }
            }
        }
        self.aside.pop_front();
        true
    }

    /// Whether bags up to a slice, or any bags, are set aside.
    pub(super) fn await_thaw(&self, last: Option<SliceId>) -> bool {
        self.aside.iter().any(|(slice, _)| last.is_none_or(|last| *slice <= last))
    }

    /// Keeps rows of a side that are for this leader.
    pub(super) fn keep(&mut self, side: usize, rows: &Outgoing<'_>) -> Result<()> {
        let mut place = self.take(rows.slice);
        let PassedBuffers { format, pool } = &mut self.passing[side];
        let kept = place.bag_of_own(side).keep_all(format, rows, pool, &mut self.scratch);
        self.put(rows.slice, place);
        kept
    }

    /// Takes out the rows of own keys of a complete window, by side; rows for other leaders have
    /// been sealed.
    pub(super) fn remove(&mut self, slice: SliceId) -> Option<[Passed; 2]> {
        self.slices.contains_key(&slice).then(|| self.take(slice).own)
    }

    /// Takes a buffer back.
    pub(super) fn reuse(&mut self, rows: PassedRows) {
        self.passing[rows.side.min(1)].pool.give(rows);
    }

    /// Gives back all memory that no window needs now.
    pub(super) fn give_back(&mut self) {
        self.passing.iter_mut().for_each(|passing| passing.pool.release());
    }

    pub(super) fn usage(&self, next: Load, room: Load) -> Usage {
        let leaders = self.leaders.count();
        let spare_bytes = self.passing.iter().map(|passing| passing.pool.bytes()).sum::<usize>();
        let opened = self.opened.max(1) * small_slice_bytes(leaders);
        let growth = |load: Load| {
            let growth =
                self.passing.iter().map(|passing| passing.kept_growth_bytes(load, leaders));
            (growth.max().unwrap_or(0) + opened) as u64
        };
        let one = Load { rows: 1, text_bytes: next.text_bytes / next.rows.max(1) };
        Usage {
            bytes: (self.bytes + spare_bytes + self.slices.len() * size_of::<BagsOfSlice>()) as u64,
            spare_bytes: spare_bytes as u64,
            live_bytes: self.live_bytes as u64,
            growth_bytes: growth(next),
            room_bytes: growth(next.max(room)),
            batch_growth_bytes: growth(next).saturating_sub(growth(one)),
            keys: self.rows as u64,
            largest_kept_bytes: if self.others_rows > 0 { self.largest_bytes as u64 } else { 0 },
            ..Usage::default()
        }
    }
}

/// Destination of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// The leaders of their keys.
    TheirLeaders,
    /// This one.
    Leader(usize),
    /// All leaders.
    All,
}

impl Destination {
    /// The number of leaders in this process that keep rows in columns, and of all leaders.
    fn leaders_here(self, leaders: usize, is_here: &dyn Fn(&usize) -> bool) -> (usize, usize) {
        match self {
            Destination::Leader(leader) => (usize::from(is_here(&leader)), 1),
            Destination::All => (0, 1),
            Destination::TheirLeaders => ((0..leaders).filter(is_here).count(), leaders),
        }
    }
}

/// Passes rows on to a leader: at once, as far as there is room; the rest is kept for the leader.
fn pass(
    leader: usize,
    rows: &Outgoing<'_>,
    onward: Option<&dyn Onward>,
    kept: &mut Passed,
    passing: &mut PassedBuffers,
    scratch: &mut Vec<u32>,
) -> Result<()> {
    let mut passed = 0;
    if let Some(onward) = onward {
        let mut before = kept.take();
        passed = onward.pass(leader, rows, passing, &mut before, scratch)?;
        kept.put_back(before);
    }
    let rest = Outgoing { picked: &rows.picked[passed..], ..*rows };
    let PassedBuffers { format, pool } = passing;
    kept.keep_all(format, &rest, pool, scratch)
}
