//! Values of a table for each key, and their result rows.

use super::memory::Zeroed;
use super::table::{Table, clear};
use super::vectors;
use crate::verify::{Bounds, Verifier, parse_key};

/// The hash of a number: multiplications of 32 bits, of which vector units do many at once. The
/// first factor is 2^32 divided by the golden ratio, which spreads dense keys evenly.
#[inline(always)]
fn hash_number(key: i64) -> u32 {
    let (low, high) = (key as u32, (key >> 32) as u32);
    low.wrapping_mul(0x9E37_79B9).wrapping_add(high.wrapping_mul(0x85EB_CA6B))
}

/// A kind of table: key, input and slot types, all of it known at compile time.
pub(super) trait Kind: Sized {
    /// A key as it comes in a batch.
    type Key: Copy;
    /// Contribution of a record to its key's value.
    type Input: Copy;
    /// Key and value; all zero when empty.
    type Slot: Zeroed + Send;
    /// Growth factor of a table, a power of two. The faster a table grows, the less often a slot
    /// moves, and the more empty slots there may be at the end. The best factor depends on the
    /// number of keys: each workload has the fastest of 2, 4 and 8 at its default size.
    const GROWTH: usize;
    /// The empty slot.
    const EMPTY: Self::Slot;
    /// The key's hash, its high bits well mixed.
    fn hash(key: Self::Key) -> u32;
    /// Whether no key has this slot.
    fn is_empty(slot: &Self::Slot) -> bool;
    /// The key of a slot that is not empty.
    fn key(slot: &Self::Slot) -> Self::Key;
    /// Whether the slot, not empty, is `key`'s.
    fn same(slot: &Self::Slot, key: Self::Key) -> bool;
    /// The slot after the first record of its key.
    fn first(key: Self::Key, input: Self::Input) -> Self::Slot;
    /// Adds a further record.
    fn update(slot: &mut Self::Slot, input: Self::Input);
    /// Adds what another slot of the same key has.
    fn combine(slot: &mut Self::Slot, other: &Self::Slot);
    /// Gives the row of one key, of this window, to the verifier.
    fn emit_one(slot: &Self::Slot, window: Bounds, verifier: &mut Verifier);
    /// Which of 64 slots are not empty, the first in the lowest bit.
    #[inline(always)]
    fn taken(slots: &[Self::Slot; 64]) -> u64 {
        slots.iter().rev().fold(0, |bits, slot| bits << 1 | u64::from(!Self::is_empty(slot)))
    }
    /// Empties the table of this window into the verifier.
    fn emit(table: &mut Table<Self>, window: Bounds, verifier: &mut Verifier);
}

/// A number and a value that is never 0 once there is a record.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Pair {
    pub(super) key: i64,
    pub(super) value: u64,
}

// SAFETY: two integers, for which zero is valid.
unsafe impl Zeroed for Pair {}

/// Implements what kinds with [`Pair`] slots have in common.
macro_rules! pair_slots {
    () => {
        type Key = i64;
        type Slot = Pair;
        const EMPTY: Pair = Pair { key: 0, value: 0 };

        #[inline(always)]
        fn hash(key: i64) -> u32 {
            hash_number(key)
        }

        #[inline(always)]
        fn is_empty(slot: &Pair) -> bool {
            slot.value == 0
        }

        #[inline(always)]
        fn key(slot: &Pair) -> i64 {
            slot.key
        }

        #[inline(always)]
        fn taken(slots: &[Pair; 64]) -> u64 {
            vectors::taken(slots)
        }

        #[inline(always)]
        fn same(slot: &Pair, key: i64) -> bool {
            slot.key == key
        }
    };
}

/// `COUNT(*)` by number, in a table that grows by a factor of its workload's.
#[derive(Debug)]
pub(super) struct Count<const GROWTH: usize>;

impl<const GROWTH: usize> Kind for Count<GROWTH> {
    pair_slots!();
    type Input = ();
    const GROWTH: usize = GROWTH;

    #[inline(always)]
    fn first(key: i64, _: ()) -> Pair {
        Pair { key, value: 1 }
    }

    #[inline(always)]
    fn update(slot: &mut Pair, _: ()) {
        slot.value += 1;
    }

    #[inline(always)]
    fn combine(slot: &mut Pair, other: &Pair) {
        slot.value += other.value;
    }

    fn emit_one(slot: &Pair, window: Bounds, verifier: &mut Verifier) {
        verifier.add_rows(window, &[slot.key], &[slot.value as i64]);
    }

    fn emit(table: &mut Table<Self>, window: Bounds, verifier: &mut Verifier) {
        emit_pairs::<_, 0>(table, window, verifier);
    }
}

/// `MAX(x)` by number, for x from 0; slots hold the maximum plus one.
#[derive(Debug)]
pub(super) struct Max;

impl Kind for Max {
    pair_slots!();
    type Input = i64;
    const GROWTH: usize = 4;

    #[inline(always)]
    fn first(key: i64, input: i64) -> Pair {
        Pair { key, value: (input as u64).wrapping_add(1) }
    }

    #[inline(always)]
    fn update(slot: &mut Pair, input: i64) {
        slot.value = slot.value.max((input as u64).wrapping_add(1));
    }

    #[inline(always)]
    fn combine(slot: &mut Pair, other: &Pair) {
        slot.value = slot.value.max(other.value);
    }

    fn emit_one(slot: &Pair, window: Bounds, verifier: &mut Verifier) {
        verifier.add_rows(window, &[slot.key], &[slot.value as i64 - 1]);
    }

    fn emit(table: &mut Table<Self>, window: Bounds, verifier: &mut Verifier) {
        emit_pairs::<_, 1>(table, window, verifier);
    }
}

/// Emits rows whose slots hold their value plus `MORE`.
#[inline(always)]
fn emit_pairs<K: Kind<Slot = Pair>, const MORE: i64>(
    table: &mut Table<K>,
    window: Bounds,
    verifier: &mut Verifier,
) {
    let mut rows = vectors::ResultRows::new();
    table.drain(|slots| {
        if rows.room() < slots.len() {
            rows.flush(window, verifier);
        }
        rows.take::<MORE>(slots);
    });
    rows.flush(window, verifier);
}

/// Count and sum of a number.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct MeanSlot {
    key: i64,
    count: u64,
    sum: f64,
}

// SAFETY: numbers, for which zero is valid.
unsafe impl Zeroed for MeanSlot {}

/// `COUNT(*)` and `AVG(x)` by number.
#[derive(Debug)]
pub(super) struct CountAndMean;

impl Kind for CountAndMean {
    type Key = i64;
    type Input = f64;
    type Slot = MeanSlot;
    const GROWTH: usize = 2;
    const EMPTY: MeanSlot = MeanSlot { key: 0, count: 0, sum: 0.0 };

    #[inline(always)]
    fn hash(key: i64) -> u32 {
        hash_number(key)
    }

    #[inline(always)]
    fn is_empty(slot: &MeanSlot) -> bool {
        slot.count == 0
    }

    #[inline(always)]
    fn key(slot: &MeanSlot) -> i64 {
        slot.key
    }

    #[inline(always)]
    fn same(slot: &MeanSlot, key: i64) -> bool {
        slot.key == key
    }

    #[inline(always)]
    fn first(key: i64, input: f64) -> MeanSlot {
        MeanSlot { key, count: 1, sum: input }
    }

    #[inline(always)]
    fn update(slot: &mut MeanSlot, input: f64) {
        slot.count += 1;
        slot.sum += input;
    }

    #[inline(always)]
    fn combine(slot: &mut MeanSlot, other: &MeanSlot) {
        slot.count += other.count;
        slot.sum += other.sum;
    }

    fn emit_one(slot: &MeanSlot, window: Bounds, verifier: &mut Verifier) {
        verifier.add_rows(window, &[slot.key], &[slot.count as i64]);
        verifier.add_averages(&[slot.sum / slot.count as f64]);
    }

    fn emit(table: &mut Table<Self>, window: Bounds, verifier: &mut Verifier) {
        let (mut keys, mut counts, mut averages) = (Vec::new(), Vec::new(), Vec::new());
        table.drain(|slots| {
            for slot in slots.iter().filter(|slot| slot.count > 0) {
                keys.push(slot.key);
                counts.push(slot.count as i64);
                averages.push(slot.sum / slot.count as f64);
            }
            clear::<Self>(slots);
        });
        verifier.add_rows(window, &keys, &counts);
        verifier.add_averages(&averages);
    }
}

/// A string of sixteen bytes as two numbers.
pub(super) type Text = [u64; 2];

/// The number in a key. A key of another form has no number; any wrong number makes the answer
/// wrong.
fn number_of(key: Text) -> i64 {
    let [first, second] = key.map(u64::to_ne_bytes);
    parse_key(&[first, second].concat()).unwrap_or(-1)
}

/// A string and its count.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct TextSlot {
    key: Text,
    count: u64,
}

// SAFETY: integers, for which zero is valid.
unsafe impl Zeroed for TextSlot {}

/// `COUNT(*)` by string.
#[derive(Debug)]
pub(super) struct TextCount;

impl Kind for TextCount {
    type Key = Text;
    type Input = ();
    type Slot = TextSlot;
    const GROWTH: usize = 8;
    const EMPTY: TextSlot = TextSlot { key: [0; 2], count: 0 };

    #[inline(always)]
    fn hash(key: Text) -> u32 {
        // Both halves of the product are folded, since digits differ in few bits.
        let (low, high) = (key[0] ^ 0x9E37_79B9_7F4A_7C15, key[1] ^ 0xD6E8_FEB8_6659_FD93);
        let product = u128::from(low) * u128::from(high);
        ((product as u64 ^ (product >> 64) as u64) >> 32) as u32
    }

    #[inline(always)]
    fn is_empty(slot: &TextSlot) -> bool {
        slot.count == 0
    }

    #[inline(always)]
    fn key(slot: &TextSlot) -> Text {
        slot.key
    }

    #[inline(always)]
    fn same(slot: &TextSlot, key: Text) -> bool {
        (slot.key[0] ^ key[0]) | (slot.key[1] ^ key[1]) == 0
    }

    #[inline(always)]
    fn first(key: Text, _: ()) -> TextSlot {
        TextSlot { key, count: 1 }
    }

    #[inline(always)]
    fn update(slot: &mut TextSlot, _: ()) {
        slot.count += 1;
    }

    #[inline(always)]
    fn combine(slot: &mut TextSlot, other: &TextSlot) {
        slot.count += other.count;
    }

    fn emit_one(slot: &TextSlot, window: Bounds, verifier: &mut Verifier) {
        verifier.add_rows(window, &[number_of(slot.key)], &[slot.count as i64]);
    }

    fn emit(table: &mut Table<Self>, window: Bounds, verifier: &mut Verifier) {
        let (mut keys, mut counts) = (Vec::new(), Vec::new());
        table.drain(|slots| {
            for slot in slots.iter().filter(|slot| slot.count > 0) {
                keys.push(number_of(slot.key));
                counts.push(slot.count as i64);
            }
            clear::<Self>(slots);
        });
        verifier.add_rows(window, &keys, &counts);
    }
}
