//! What keys had in single panes, where most keys come in most panes: a value for each row of the
//! live table and each pane, in the order of the rows. So panes are combined from one end to the
//! other, and nothing is looked up.
//!
//! The back's panes have what came in them, and the rows of the live table what has added up since
//! the last flip. When the back becomes the front, its panes become suffixes where they stand: each
//! takes the one after it in. A window is then its oldest suffix and the rows of the live table.
//!
//! Values stand in parts, each for so many rows that follow each other. A pane has no part in which
//! no key came: in front, the suffix of the next newer pane that has one stands for it.
//!
//! Keys may come to repeat less often: then panes become entries again, and the other way round
//! ([`convert`]).

mod convert;
mod panes;

pub(super) use convert::Repeats;

use std::collections::VecDeque;

use super::{Note, PRESENT, Sliding, Work, older};
use crate::memory::arena::Arena;
use crate::memory::log::{BLOCK_ROWS, CHUNK_ROWS};
use crate::table::compact::move_values;
use crate::table::layout::{RowLayout, ValueSlot};
use crate::table::segment::Sources;
use crate::table::value::Block;
use crate::windows::noted::reset;

/// Rows of a part.
const PART_ROWS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 9;
/// Parts of a block of rows.
const BLOCK_PARTS: usize = CHUNK_ROWS / PART_ROWS;
/// Rows for which the first part has room at least.
const FIRST_ROWS: usize = 4;
/// Parts that are kept for the panes to come.
const SPARE_MAX: usize = 1 << 10;

/// Panes, in their order.
#[derive(Debug)]
pub(super) struct Dense {
    key_words: usize,
    /// An empty value: words of values, with their seen bits.
    template: Vec<u64>,
    /// The values that may refer to an arena.
    referring: Vec<ValueSlot>,
    panes: VecDeque<Pane>,
    /// What the panes take, all together.
    size: Size,
    /// Words of full parts that have become free.
    spare: Vec<Vec<u64>>,
}

/// Bytes allocated, and those of values that came.
#[derive(Debug, Default, Clone, Copy)]
struct Size {
    bytes: usize,
    live_bytes: usize,
}

/// What came in a pane or, in front, from it on.
#[derive(Debug)]
struct Pane {
    number: u32,
    parts: Vec<Option<Part>>,
    arena: Arena,
    /// Rows that came in it.
    came: usize,
    /// Bytes of its values.
    values_bytes: usize,
    /// What of it is counted in the size of all.
    counted: Size,
}

/// Values of some rows, one after the other.
#[derive(Debug)]
struct Part {
    rows: usize,
    words: Vec<u64>,
    /// Which of them came in the pane.
    came: [u64; PART_ROWS / 64],
}

/// Which part has a row, and where.
fn place_of(row: usize) -> (usize, usize) {
    (row >> PART_BITS, row % PART_ROWS)
}

impl Part {
    fn has(&self, row: usize) -> bool {
        self.came[row / 64] >> (row % 64) & 1 == 1
    }

    /// Notes that a row came; whether it had come before.
    #[inline(always)]
    fn note(&mut self, row: usize) -> bool {
        let (word, bit) = (&mut self.came[row / 64], 1 << (row % 64));
        let came = *word & bit != 0;
        *word |= bit;
        came
    }

    fn values(&self, row: usize, tail: usize) -> &[u64] {
        &self.words[row * tail..(row + 1) * tail]
    }

    /// Where the row would begin whose values these are, if it had a key.
    #[inline(always)]
    fn place(&self, row: usize, tail: usize, key_words: usize) -> *const u64 {
        debug_assert!(row < self.rows);
        self.words.as_ptr().wrapping_add(row * tail).wrapping_sub(key_words)
    }

    /// The same, to be changed.
    #[inline(always)]
    fn place_mut(&mut self, row: usize, tail: usize, key_words: usize) -> *mut u64 {
        debug_assert!(row < self.rows);
        self.words.as_mut_ptr().wrapping_add(row * tail).wrapping_sub(key_words)
    }

    /// Has at least so many rows; those that are new are empty. Returns bytes allocated.
    fn grow(&mut self, rows: usize, template: &[u64]) -> usize {
        let before = self.words.capacity();
        if self.rows < rows {
            self.words.reserve_exact((rows - self.rows) * template.len());
            (self.rows..rows).for_each(|_| self.words.extend_from_slice(template));
            self.rows = rows;
        }
        8 * (self.words.capacity() - before)
    }
}

impl Pane {
    /// One in which nothing has come yet.
    fn new(number: u32) -> Pane {
        let (parts, arena, counted) = Default::default();
        Pane { number, parts, arena, came: 0, values_bytes: 0, counted }
    }

    fn size(&self, tail: usize) -> Size {
        let parts = self.parts.capacity() * size_of::<Option<Part>>();
        Size {
            bytes: size_of::<Pane>() + parts + self.values_bytes + self.arena.allocated_bytes(),
            live_bytes: self.came * tail * 8 + self.arena.used_bytes(),
        }
    }
}

impl Dense {
    pub(super) fn new(layout: &RowLayout, referring: &[ValueSlot]) -> Dense {
        Dense {
            key_words: layout.key_words(),
            template: layout.template().to_vec(),
            referring: referring.to_vec(),
            panes: VecDeque::new(),
            size: Size::default(),
            spare: Vec::new(),
        }
    }

    /// Whether values of this layout may be kept like this: what blobs have in common is not to be
    /// copied for each pane.
    pub(super) fn is_for(layout: &RowLayout) -> bool {
        !layout.has_blobs()
    }

    fn tail(&self) -> usize {
        self.template.len()
    }

    /// Forgets the panes before `first`.
    pub(super) fn forget_before(&mut self, first: u32) {
        while let Some(pane) = self.panes.pop_front_if(|pane| older(pane.number, first)) {
            self.uncount(pane.counted);
            let full = pane.parts.into_iter().flatten().filter(|part| part.rows == PART_ROWS);
            let room = SPARE_MAX.saturating_sub(self.spare.len());
            self.spare.extend(full.take(room).map(|part| part.words));
        }
    }

    /// Counts what a pane takes now.
    fn count(&mut self, at: usize) {
        let (pane, tail) = (&mut self.panes[at], self.template.len());
        let now = pane.size(tail);
        let before = std::mem::replace(&mut pane.counted, now);
        self.size.bytes += pane.counted.bytes;
        self.size.live_bytes += pane.counted.live_bytes;
        self.uncount(before);
    }

    fn uncount(&mut self, Size { bytes, live_bytes }: Size) {
        self.size.bytes -= bytes;
        self.size.live_bytes -= live_bytes;
    }

    /// Where the pane of a number stands, or would stand.
    fn position(&self, number: u32) -> Result<usize, usize> {
        match self.panes.back() {
            None => Err(0),
            Some(last) if last.number == number => Ok(self.panes.len() - 1),
            Some(last) if older(last.number, number) => Err(self.panes.len()),
            _ => {
                let at = self.panes.partition_point(|pane| older(pane.number, number));
                if self.panes[at].number == number { Ok(at) } else { Err(at) }
            }
        }
    }

    /// The place of a pane among the others; it is made if it is not there.
    fn ensure(&mut self, number: u32) -> usize {
        self.position(number).unwrap_or_else(|at| {
            self.panes.insert(at, Pane::new(number));
            at
        })
    }

    /// A part of a pane that has a row at the least, of a table of so many.
    #[inline(always)]
    fn part(&mut self, at: usize, part: usize, row: usize, table_rows: usize) -> &mut Part {
        let there = matches!(self.panes[at].parts.get(part), Some(Some(part)) if row < part.rows);
        if !there {
            self.make_part(at, part, table_rows);
        }
        self.panes[at].parts[part].as_mut().expect("a part that was made")
    }

    #[cold]
    fn make_part(&mut self, at: usize, part: usize, table_rows: usize) {
        let Dense { template, panes, spare, .. } = self;
        let Pane { parts, values_bytes, .. } = &mut panes[at];
        if parts.len() <= part {
            parts.resize_with(part + 1, || None);
        }
        let rows = table_rows - part * PART_ROWS;
        let rows = rows.next_power_of_two().clamp(FIRST_ROWS, PART_ROWS);
        let words = match rows {
            PART_ROWS => spare.pop().unwrap_or_default(),
            _ => Vec::new(),
        };
        let made = parts[part].get_or_insert_with(|| Part {
            rows: 0,
            words: Vec::new(),
            came: [0; PART_ROWS / 64],
        });
        if made.rows == 0 {
            made.words = words;
            made.words.clear();
            *values_bytes += 8 * made.words.capacity();
        }
        *values_bytes += made.grow(rows, template);
        self.count(at);
    }

    /// Takes in rows of a pane of the back; `numbers` are those of their rows in the live table.
    fn take(
        &mut self,
        pane: u32,
        numbers: &[u32],
        rows: Sources,
        from: &Arena,
        layout: &RowLayout,
        table_rows: usize,
    ) {
        let (at, key_words, tail) = (self.ensure(pane), self.key_words, self.tail());
        let (mut twice, mut came) = (Vec::new(), 0);
        let refer = from.used_bytes() > 0 && !self.referring.is_empty();
        for (k, number) in numbers.iter().enumerate() {
            let (part, row) = place_of(*number as usize);
            let part = self.part(at, part, row, table_rows);
            if part.note(row) {
                twice.push(k);
                continue;
            }
            came += 1;
            let to = part.place_mut(row, tail, key_words).wrapping_add(key_words);
            let values = rows.place(k).wrapping_add(key_words);
            // SAFETY: the values of a row of this layout, and those of one of the part's rows.
            unsafe { copy_words(values, to, tail) };
            if refer {
                // SAFETY: the same words, which nobody else has meanwhile.
                let to = unsafe { std::slice::from_raw_parts_mut(to, tail) };
                move_values(to, key_words, &self.referring, from, &mut self.panes[at].arena);
            }
        }
        self.panes[at].came += came;
        if !twice.is_empty() {
            self.add(at, twice.iter().map(|k| (numbers[*k], rows.place(*k))), from, layout);
        }
        self.count(at);
    }

    /// Merges values into those that rows of a pane have.
    fn add(
        &mut self,
        at: usize,
        added: impl Iterator<Item = (u32, *const u64)>,
        from: &Arena,
        layout: &RowLayout,
    ) {
        let (key_words, tail) = (self.key_words, self.tail());
        let Pane { parts, arena, .. } = &mut self.panes[at];
        for (number, values) in added {
            let (part, row) = place_of(number as usize);
            let Some(part) = &mut parts[part] else { continue };
            let places = [part.place_mut(row, tail, key_words)];
            // SAFETY: values of this layout that refer to `from`; the row is none of them.
            unsafe { Block::new(layout, arena, &places, 0).merge_rows(|_| values, from) };
        }
        self.count(at);
    }

    /// The suffixes of the rows of a part in the window from `first` on; `mid` is the first pane of
    /// the back.
    fn suffix(&self, part: usize, first: u32, mid: u32) -> Option<(&Part, &Arena)> {
        let front = self.panes.iter().skip_while(|pane| older(pane.number, first));
        let mut front = front.take_while(|pane| older(pane.number, mid));
        front.find_map(|pane| Some((pane.parts.get(part)?.as_ref()?, &pane.arena)))
    }

    /// Makes suffixes of the parts of this number.
    fn build(&mut self, part: usize, layout: &RowLayout, places: &mut Vec<*mut u64>) {
        let has = |pane: &Pane| matches!(pane.parts.get(part), Some(Some(_)));
        let mut newer = None;
        for at in (0..self.panes.len()).rev().filter(|at| has(&self.panes[*at])).collect::<Vec<_>>()
        {
            if let Some(newer) = newer {
                self.take_newer(at, newer, part, layout, places);
            }
            newer = Some(at);
        }
    }

    /// Merges a part of one pane into that of an older one.
    fn take_newer(
        &mut self,
        at: usize,
        newer: usize,
        part: usize,
        layout: &RowLayout,
        places: &mut Vec<*mut u64>,
    ) {
        let (key_words, tail) = (self.key_words, self.tail());
        let (older, newer) = two(&mut self.panes, at, newer);
        let (Some(to), Some(from)) = (&mut older.parts[part], &newer.parts[part]) else { return };
        older.values_bytes += to.grow(from.rows, &self.template);
        for start in (0..from.rows).step_by(BLOCK_ROWS) {
            let end = (start + BLOCK_ROWS).min(from.rows);
            places.clear();
            places.extend((start..end).map(|row| to.place_mut(row, tail, key_words)));
            let mut block = Block::new(layout, &mut older.arena, places, 0);
            let first = from.place(start, tail, key_words);
            // SAFETY: values of this layout that refer to the arena of another pane, theirs.
            unsafe { block.merge_rows(|k| first.wrapping_add(k * tail), &newer.arena) };
        }
        self.count(at);
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.size.bytes + self.spare.len() * PART_ROWS * self.tail() * 8
    }

    /// Bytes of values that came.
    pub(super) fn live_bytes(&self) -> usize {
        self.size.live_bytes
    }

    /// Bytes that so many more rows of a pane may allocate, beside a table of so many.
    pub(super) fn growth_bytes(&self, rows: usize, table_rows: usize) -> usize {
        let parts = (rows + table_rows).div_ceil(PART_ROWS);
        let few = rows + table_rows < PART_ROWS;
        let room = if few { (rows + table_rows).next_power_of_two() } else { PART_ROWS };
        let part = size_of::<Part>() + room * self.tail() * 8;
        parts.min(rows).saturating_sub(self.spare.len()) * part
            + parts * size_of::<Option<Part>>()
            + match self.panes.back() {
                Some(pane) if pane.came > 0 => {
                    pane.arena.growth_bytes(pane.arena.used_bytes() / pane.came * rows)
                }
                _ => 0,
            }
    }

    /// Gives back what is not needed now.
    pub(super) fn trim(&mut self) {
        self.spare = Vec::new();
    }
}

/// Two panes, of which the first stands before the second.
fn two(panes: &mut VecDeque<Pane>, first: usize, second: usize) -> (&mut Pane, &mut Pane) {
    let (left, right) = panes.make_contiguous().split_at_mut(second);
    (&mut left[first], &mut right[0])
}

/// Copies a few words.
///
/// # Safety
/// So many words must be readable and writable, and not overlap.
#[inline(always)]
pub(super) unsafe fn copy_words(from: *const u64, to: *mut u64, words: usize) {
    macro_rules! copies {
        ($($n:literal)*) => {
            match words {
                // SAFETY: as the caller promises.
                $($n => unsafe { to.cast::<[u64; $n]>().write(from.cast::<[u64; $n]>().read()) },)*
                // SAFETY: as above.
                _ => unsafe { std::ptr::copy_nonoverlapping(from, to, words) },
            }
        };
    }
    copies!(1 2 3 4 5 6 7 8)
}
