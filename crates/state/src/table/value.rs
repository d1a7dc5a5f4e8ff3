//! Mergeable values: the CRDTs that rows of state are made of (paper, section 5.1, *Consistency*).
//!
//! Each kind of value has an empty value, an update by one input, and a merge that is associative
//! and commutative, with the empty value neutral. All are exact, so results do not depend on the
//! order of merging: integers accumulate in 128 bits, decimals in 192, floats without rounding
//! ([`crate::values::float_sum`]).

#[cfg(target_arch = "x86_64")]
use millstream_cpu::{Level, level};

use crate::memory::arena::Arena;
use crate::memory::log::BLOCK_ROWS;
use crate::memory::numbers::read_i128;
use crate::memory::prefetch::prefetch;
use crate::table::hot::{Aside, frequent};
use crate::table::layout::{RowLayout, ValueSlot};
use crate::values::best;
use crate::values::blobs;
use crate::values::float_sum::{self, Scale, Terms};
use crate::values::histogram;
use crate::values::kind::{NO_BYTES, ValueKind};
use crate::values::registers;

/// Blobs that take more do not stay in the cache: what is changed of them is asked for ahead, a
/// block of records at a time. Otherwise the processor waits for one after the other.
const CACHED_BYTES: usize = 256 << 10;

/// The rows of a block of keys, ready for updating value by value.
///
/// `picks` are the positions within the block that take part (those whose argument is not NULL and
/// whose FILTER holds); `None` means all. `value(k)` is the input at position `k`.
#[derive(Debug)]
pub struct Block<'t> {
    layout: &'t RowLayout,
    arena: &'t mut Arena,
    places: &'t [*mut u64],
    new_rows: usize,
}

impl<'t> Block<'t> {
    pub(crate) fn new(
        layout: &'t RowLayout,
        arena: &'t mut Arena,
        places: &'t [*mut u64],
        new_rows: usize,
    ) -> Block<'t> {
        Block { layout, arena, places, new_rows }
    }

    /// How many of the block's keys were new.
    pub fn new_rows(&self) -> usize {
        self.new_rows
    }

    /// Calls `change` with the place of `slot`'s first word for each position that takes part.
    #[inline(always)]
    fn each(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        mut change: impl FnMut(*mut u64, usize, &mut Arena),
    ) {
        assert!(slot.word + slot.kind.words() <= self.layout.row_words());
        match picks {
            None => {
                for (k, place) in self.places.iter().enumerate() {
                    change(place.wrapping_add(slot.word), k, self.arena);
                }
            }
            Some(picks) => {
                for &k in picks {
                    let place = self.places[k as usize];
                    change(place.wrapping_add(slot.word), k as usize, self.arena);
                }
            }
        }
        self.mark_seen(slot, picks);
    }

    /// As [`Block::each`], for a sum of `N` words: `add` adds what is at a position, `add_part` a
    /// sum. What goes to a row that comes often is added up on the side.
    #[inline(always)]
    fn each_sum<const N: usize>(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        add: impl Fn(*mut u64, usize),
        add_part: impl Fn(*mut u64, &[u64; N]),
    ) {
        assert_eq!(slot.kind.words(), N);
        let Some(often) = frequent(self.places) else {
            return self.each(slot, picks, |place, k, _| add(place, k));
        };
        let place = self.places[often].wrapping_add(slot.word);
        let mut aside = Aside::<N>::new(place);
        self.each(slot, picks, |place, k, _| add(aside.instead_of(place, k), k));
        aside.parts().for_each(|part| add_part(place, part));
    }

    /// Notes that `slot` has met input.
    #[inline(always)]
    fn mark_seen(&mut self, slot: ValueSlot, picks: Option<&[u32]>) {
        if let Some((word, bit)) = self.layout.seen(slot) {
            let mark = |place: *mut u64| {
                // SAFETY: a seen word is one of the row's words; the block owns its rows.
                unsafe { *place.add(word) |= bit };
            };
            match picks {
                None => self.places.iter().for_each(|p| mark(*p)),
                Some(picks) => picks.iter().for_each(|k| mark(self.places[*k as usize])),
            }
        }
    }

    /// Counts one input per position.
    #[inline]
    pub fn count(&mut self, slot: ValueSlot, picks: Option<&[u32]>) {
        // For all closures passed to `each` and `each_sum` here: their argument is the place of the
        // slot's first word in a row that the block has to itself, and the slot has been checked to
        // lie within the row; or the place of as many words in its stead. SAFETY: so the word may
        // be written.
        let add = |place: *mut u64, _: usize| unsafe { *place += 1 };
        // SAFETY: as above.
        self.each_sum(slot, picks, add, |place, [part]| unsafe { *place += part });
    }

    /// Adds 64-bit integers.
    #[inline]
    pub fn sum_int(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        value: impl Fn(usize) -> i128,
    ) {
        // SAFETY: see `count`; the slot has two words.
        let add = |place: *mut u64, k: usize| unsafe { add128(place, value(k)) };
        // SAFETY: as above.
        self.each_sum(slot, picks, add, |place, [low, high]| unsafe {
            add128(place, read_i128(*low, *high));
        });
    }

    /// Adds 128-bit integers.
    #[inline]
    pub fn sum_decimal(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        value: impl Fn(usize) -> i128,
    ) {
        self.each(slot, picks, |place, k, _| {
            let value = value(k);
            // SAFETY: see `count`; the slot has three words.
            unsafe { add192(place, [value as u64, (value >> 64) as u64, (value >> 127) as u64]) }
        });
    }

    /// Adds doubles, one of `values` per position; and counts as many in `count`, if it is given,
    /// for a mean takes both.
    #[inline]
    pub fn sum_float(
        &mut self,
        slot: ValueSlot,
        count: Option<ValueSlot>,
        picks: Option<&[u32]>,
        values: &[f64],
    ) {
        assert_eq!(values.len(), self.places.len());
        let places = self.places;
        match (picks, count) {
            (None, None) => self.sum_counted::<0>(slot, [], |k| places[k], values),
            (None, Some(count)) => self.sum_counted(slot, [count], |k| places[k], values),
            (Some(picks), count) => {
                let mut picked = [0.0; BLOCK_ROWS];
                let picked = &mut picked[..picks.len()];
                picked.iter_mut().zip(picks).for_each(|(value, k)| *value = values[*k as usize]);
                let place = |k: usize| places[picks[k] as usize];
                match count {
                    None => self.sum_counted::<0>(slot, [], place, picked),
                    Some(count) => self.sum_counted(slot, [count], place, picked),
                }
            }
        }
        self.mark_seen(slot, picks);
    }

    /// With `N` counts, at most one. `place(k)` is the row of the `k`-th value.
    #[inline]
    fn sum_counted<const N: usize>(
        &mut self,
        slot: ValueSlot,
        counts: [ValueSlot; N],
        place: impl Fn(usize) -> *mut u64,
        values: &[f64],
    ) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512dq,avx512vl,bmi1,bmi2,lzcnt")]
            fn with_avx512<const N: usize>(
                block: &mut Block<'_>,
                slot: ValueSlot,
                counts: [ValueSlot; N],
                place: impl Fn(usize) -> *mut u64,
                values: &[f64],
            ) {
                block.add_floats(slot, counts, place, values);
            }
            /// With shifts by a variable count that are one operation, not three.
            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
            fn with_avx2<const N: usize>(
                block: &mut Block<'_>,
                slot: ValueSlot,
                counts: [ValueSlot; N],
                place: impl Fn(usize) -> *mut u64,
                values: &[f64],
            ) {
                block.add_floats(slot, counts, place, values);
            }
            match level() {
                // SAFETY: the level includes the features.
                Level::Avx512 => return unsafe { with_avx512(self, slot, counts, place, values) },
                // SAFETY: as above.
                Level::Avx2 => return unsafe { with_avx2(self, slot, counts, place, values) },
                Level::Portable => {}
            }
        }
        self.add_floats(slot, counts, place, values);
    }

    #[inline(always)]
    fn add_floats<const N: usize>(
        &mut self,
        slot: ValueSlot,
        counts: [ValueSlot; N],
        place: impl Fn(usize) -> *mut u64,
        values: &[f64],
    ) {
        for slot in counts.iter().chain([&slot]) {
            assert!(slot.word + slot.kind.words() <= self.layout.row_words());
        }
        // SAFETY: see `count`; the slot has three words.
        let words =
            |place: *mut u64| unsafe { &mut *place.wrapping_add(slot.word).cast::<[u64; 3]>() };
        // SAFETY: see `count`; those slots have a word each.
        let count =
            |place: *mut u64| counts.iter().for_each(|c| unsafe { *place.add(c.word) += 1 });
        match Scale::of(values) {
            Scale::Zero => (0..values.len()).for_each(|k| count(place(k))),
            Scale::Common(scale) => {
                let mut halves = Terms::ROOM;
                let terms = Terms::new(values, scale, &mut halves);
                for (k, (term, value)) in terms.iter().zip(values).enumerate() {
                    float_sum::add_term(words(place(k)), self.arena, term, terms.meta, *value);
                    count(place(k));
                }
            }
            Scale::None => {
                for (k, value) in values.iter().enumerate() {
                    float_sum::add(words(place(k)), self.arena, *value);
                    count(place(k));
                }
            }
        }
    }

    /// Adds sums of doubles, which refer to `arena`.
    #[inline(always)]
    fn merge_floats(&mut self, slot: ValueSlot, value: impl Fn(usize) -> [u64; 3], arena: &Arena) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "bmi1,bmi2,lzcnt")]
            fn with_bmi2(
                block: &mut Block<'_>,
                slot: ValueSlot,
                value: impl Fn(usize) -> [u64; 3],
                arena: &Arena,
            ) {
                block.merge_each_float(slot, value, arena);
            }
            if level() >= Level::Avx2 {
                // SAFETY: the level includes the features.
                return unsafe { with_bmi2(self, slot, value, arena) };
            }
        }
        self.merge_each_float(slot, value, arena);
    }

    #[inline(always)]
    fn merge_each_float(
        &mut self,
        slot: ValueSlot,
        value: impl Fn(usize) -> [u64; 3],
        arena: &Arena,
    ) {
        assert!(slot.word + slot.kind.words() <= self.layout.row_words());
        // Spelled out, as in `add_floats`.
        for (k, place) in self.places.iter().enumerate() {
            // SAFETY: see `count`; the slot has three words.
            let words = unsafe { &mut *place.wrapping_add(slot.word).cast::<[u64; 3]>() };
            float_sum::merge(words, self.arena, &value(k), arena);
        }
        self.mark_seen(slot, None);
    }

    /// Takes the least (`Min64`) or greatest (`Max64`) of 64-bit integers.
    #[inline]
    pub fn extreme64(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        value: impl Fn(usize) -> i64,
    ) {
        if slot.kind == ValueKind::Max64 {
            // SAFETY: see `count`.
            self.each(slot, picks, |p, k, _| unsafe { *p = (*p as i64).max(value(k)) as u64 });
        } else {
            // SAFETY: see `count`.
            self.each(slot, picks, |p, k, _| unsafe { *p = (*p as i64).min(value(k)) as u64 });
        }
    }

    /// Takes the least or greatest of 128-bit integers.
    #[inline]
    pub fn extreme128(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        value: impl Fn(usize) -> i128,
    ) {
        let max = slot.kind == ValueKind::Max128;
        // SAFETY: see `count`; the slot has two words.
        self.each(slot, picks, |place, k, _| unsafe { take128(place, value(k), max) });
    }

    /// Takes the least or greatest of byte strings.
    #[inline]
    pub fn extreme_bytes<'v>(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        value: impl Fn(usize) -> &'v [u8],
    ) {
        let max = slot.kind == ValueKind::MaxBytes;
        // SAFETY: see `count`.
        self.each(slot, picks, |p, k, arena| unsafe { take_bytes(&mut *p, value(k), max, arena) });
    }

    /// Takes the bits that all, some or an odd number of integers have.
    #[inline]
    pub fn bits(&mut self, slot: ValueSlot, picks: Option<&[u32]>, value: impl Fn(usize) -> i64) {
        let value = |k: usize| value(k) as u64;
        match slot.kind {
            // SAFETY: see `count`, here and below.
            ValueKind::BitAnd => self.each(slot, picks, |p, k, _| unsafe { *p &= value(k) }),
            // SAFETY: as above.
            ValueKind::BitOr => self.each(slot, picks, |p, k, _| unsafe { *p |= value(k) }),
            // SAFETY: as above.
            _ => self.each(slot, picks, |p, k, _| unsafe { *p ^= value(k) }),
        }
    }

    /// Takes byte strings into a blob or a chain: all, or the best or the most frequent of them.
    #[inline]
    pub fn blob_bytes<'v>(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        value: impl Fn(usize) -> &'v [u8],
    ) {
        // SAFETY: see `count`.
        let take = |word: *mut u64| unsafe { &mut *word };
        if slot.kind == ValueKind::Frequent && self.arena.used_bytes() > CACHED_BYTES {
            self.each(slot, picks, |place, k, arena| {
                crate::values::frequent::prefetch(*take(place), arena, value(k));
            });
        }
        self.each(slot, picks, |place, k, arena| {
            blobs::take_bytes(slot.kind, take(place), arena, value(k));
        });
    }

    /// Finds the positions whose elements, by their sort keys, may be among the best of their rows,
    /// so that no other elements need be made. Of a row that keeps one element, consecutive
    /// positions are compared with each other first.
    pub fn entering<'v>(
        &self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        sort_key: impl Fn(usize) -> &'v [u8],
        entering: &mut Vec<u32>,
    ) {
        assert!(slot.word + slot.kind.words() <= self.layout.row_words());
        let ValueKind::Best(wanted) = slot.kind else { return };
        // SAFETY: see `count`; the block is borrowed, and nothing changes its rows meanwhile.
        let word = |k: usize| unsafe { *self.places[k].wrapping_add(slot.word) };
        let count = picks.map_or(self.places.len(), <[u32]>::len);
        let position = |at: usize| picks.map_or(at, |picks| picks[at] as usize);
        if self.arena.used_bytes() > CACHED_BYTES {
            for at in 0..count {
                prefetch(self.arena.place(word(position(at))));
            }
        }
        entering.clear();
        let (mut place, mut first, mut least) = (std::ptr::null_mut(), 0, &[][..]);
        for k in (0..count).map(position) {
            let key = sort_key(k);
            let same = wanted.keeps_one() && self.places[k] == place && first < entering.len();
            if same && key > least || !same && !best::may_enter(word(k), self.arena, key) {
                continue;
            }
            if !same {
                (place, first) = (self.places[k], entering.len());
            } else if key < least {
                entering.truncate(first);
            }
            least = key;
            entering.push(k as u32);
        }
    }

    /// Takes words into a blob: hashes, or the numbers of buckets.
    #[inline]
    pub fn blob_words(
        &mut self,
        slot: ValueSlot,
        picks: Option<&[u32]>,
        value: impl Fn(usize) -> u64,
    ) {
        // SAFETY: see `count`.
        let take = |word: *mut u64| unsafe { &mut *word };
        if slot.kind == ValueKind::Registers {
            if self.arena.used_bytes() > CACHED_BYTES {
                self.each(slot, picks, |place, k, arena| {
                    registers::prefetch(*take(place), arena, value(k));
                });
            }
            return self.each(slot, picks, |place, k, arena| {
                registers::add(take(place), arena, value(k));
            });
        }
        debug_assert_eq!(slot.kind, ValueKind::Histogram);
        self.each(slot, picks, |place, k, arena| {
            histogram::add(take(place), arena, value(k) as u32, 1);
        });
    }

    /// Merges the row at `source(i)` into the `i`-th row, value by value.
    ///
    /// # Safety
    /// Each source must be a written row of the same layout that refers to `arena`, and must not be
    /// one of the block's rows.
    pub(crate) unsafe fn merge_rows(
        &mut self,
        source: impl Fn(usize) -> *const u64,
        arena: &Arena,
    ) {
        for word in self.layout.seen_words() {
            for (k, place) in self.places.iter().enumerate() {
                // SAFETY: both are rows of this layout.
                unsafe { *place.add(word) |= *source(k).add(word) };
            }
        }
        let layout = self.layout;
        for slot in layout.values() {
            let at = |k: usize, word: usize| {
                // SAFETY: as the caller promises; `word` lies within the slot.
                unsafe { *source(k).add(slot.word + word) }
            };
            let wide = |k: usize| read_i128(at(k, 0), at(k, 1));
            let unmarked = ValueSlot { seen_bit: None, ..*slot };
            match slot.kind {
                // SAFETY: see `count`.
                ValueKind::Count => self.each(unmarked, None, |p, k, _| unsafe {
                    *p = (*p).wrapping_add(at(k, 0));
                }),
                ValueKind::SumInt => self.sum_int(unmarked, None, wide),
                ValueKind::SumDecimal => self.each(unmarked, None, |place, k, _| {
                    // SAFETY: see `count`; the slot has three words.
                    unsafe { add192(place, [at(k, 0), at(k, 1), at(k, 2)]) }
                }),
                ValueKind::SumFloat => {
                    self.merge_floats(unmarked, |k| [at(k, 0), at(k, 1), at(k, 2)], arena);
                }
                ValueKind::Min64 | ValueKind::Max64 => {
                    self.extreme64(unmarked, None, |k| at(k, 0) as i64);
                }
                ValueKind::Min128 | ValueKind::Max128 => self.extreme128(unmarked, None, wide),
                ValueKind::MinBytes | ValueKind::MaxBytes => {
                    let max = slot.kind == ValueKind::MaxBytes;
                    self.each(unmarked, None, |place, k, own| {
                        if at(k, 0) != NO_BYTES {
                            // SAFETY: see `count`.
                            unsafe { take_bytes(&mut *place, arena.bytes(at(k, 0)), max, own) }
                        }
                    });
                }
                ValueKind::BitAnd | ValueKind::BitOr | ValueKind::BitXor => {
                    self.bits(unmarked, None, |k| at(k, 0) as i64);
                }
                kind @ (ValueKind::List
                | ValueKind::Chain
                | ValueKind::Set
                | ValueKind::Best(_)
                | ValueKind::Frequent
                | ValueKind::Registers
                | ValueKind::Histogram) => self.each(unmarked, None, |place, k, own| {
                    // SAFETY: see `count`.
                    blobs::merge(kind, unsafe { &mut *place }, own, at(k, 0), arena);
                }),
            }
        }
    }
}

/// # Safety
/// `place` must be two words to be written.
#[inline(always)]
unsafe fn add128(place: *mut u64, value: i128) {
    // SAFETY: as the caller promises.
    unsafe {
        let (low, carry) = (*place).overflowing_add(value as u64);
        *place = low;
        let high = place.add(1);
        *high = (*high).wrapping_add((value >> 64) as u64).wrapping_add(u64::from(carry));
    }
}

/// # Safety
/// `place` must be three words to be written.
#[inline(always)]
unsafe fn add192(place: *mut u64, value: [u64; 3]) {
    // SAFETY: as the caller promises.
    let words = unsafe { &mut *place.cast::<[u64; 3]>() };
    let (low, carry) = words[0].overflowing_add(value[0]);
    let (mid, carry1) = words[1].overflowing_add(value[1]);
    let (mid, carry2) = mid.overflowing_add(u64::from(carry));
    let high = words[2].wrapping_add(value[2]);
    *words = [low, mid, high.wrapping_add(u64::from(carry1) + u64::from(carry2))];
}

/// # Safety
/// `place` must be two words to be written.
#[inline(always)]
unsafe fn take128(place: *mut u64, value: i128, max: bool) {
    // SAFETY: as the caller promises.
    unsafe {
        let current = read_i128(*place, *place.add(1));
        let best = if max { current.max(value) } else { current.min(value) };
        *place = best as u64;
        *place.add(1) = (best >> 64) as u64;
    }
}

fn take_bytes(place: &mut u64, value: &[u8], max: bool, arena: &mut Arena) {
    if *place == NO_BYTES {
        *place = arena.push_bytes(value);
        return;
    }
    let current = arena.bytes(*place);
    if (max && value > current) || (!max && value < current) {
        *place = arena.replace_bytes(*place, value);
    }
}

/// Content of a byte string value; `None` if it has met no input.
pub fn read_bytes(word: u64, arena: &Arena) -> Option<&[u8]> {
    (word != NO_BYTES).then(|| arena.bytes(word))
}

/// A decimal sum's 192 bits as an `i128`, or as text if it does not fit.
pub fn read_decimal_sum(words: [u64; 3]) -> Result<i128, String> {
    let value = read_i128(words[0], words[1]);
    if (value >> 127) as u64 == words[2] { Ok(value) } else { Err(wide_to_text(words)) }
}

/// Decimal digits of a 192-bit two's complement integer.
fn wide_to_text(words: [u64; 3]) -> String {
    let negative = (words[2] as i64) < 0;
    let mut magnitude = words;
    if negative {
        let mut carry = true;
        for word in &mut magnitude {
            let (flipped, overflow) = (!*word).overflowing_add(u64::from(carry));
            (*word, carry) = (flipped, overflow);
        }
    }
    let mut digits = Vec::new();
    while magnitude != [0; 3] {
        let mut rest = 0u128;
        for word in magnitude.iter_mut().rev() {
            let part = rest << 64 | u128::from(*word);
            *word = (part / 10) as u64;
            rest = part % 10;
        }
        digits.push(b'0' + rest as u8);
    }
    if negative {
        digits.push(b'-');
    }
    digits.iter().rev().map(|d| char::from(*d)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_sum_beyond_128_bits_keeps_every_digit() {
        let max = i128::MAX;
        let mut words = [0u64; 3];
        for _ in 0..10 {
            // SAFETY: three words.
            unsafe { add192(words.as_mut_ptr(), [max as u64, (max >> 64) as u64, 0]) };
        }
        // 10 * (2^127 - 1)
        let text = "1701411834604692317316873037158841057270";
        assert_eq!(read_decimal_sum(words).unwrap_err(), text);
        for _ in 0..10 {
            let min = -max;
            // SAFETY: three words.
            unsafe { add192(words.as_mut_ptr(), [min as u64, (min >> 64) as u64, u64::MAX]) };
        }
        assert_eq!(read_decimal_sum(words), Ok(0));
    }
}
