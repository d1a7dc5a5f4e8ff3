//! Loops over several elements at once: filters without branches, and code compiled for AVX2.
//!
//! With AVX2 four keys are tested at once. A table of permutations moves those that pass to the
//! front, all four are stored, and the next store begins after those that passed.

use super::kinds::Pair;
use crate::verify::{Bounds, Verifier};

/// Runs `work` compiled for AVX2 where the processor has it. What `work` calls must be inlined.
#[inline(always)]
pub(super) fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled_for_avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if has_avx2() {
            // SAFETY: the processor has the features.
            return unsafe { compiled_for_avx2(work) };
        }
    }
    work()
}

/// Whether this process may use AVX2 and the scalar instructions that came with it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_avx2() -> bool {
    millstream_cpu::level() >= millstream_cpu::Level::Avx2
}

/// Elements written beyond the last one selected.
pub(super) const SLACK: usize = 8;

/// Copies the keys whose event type is 0 to `out`, in order; returns how many.
///
/// # Panics
///
/// If `out` is shorter than `keys` and [`SLACK`], or the other two differ in length.
#[inline]
pub(super) fn where_zero(keys: &[i64], event_types: &[i32], out: &mut [i64]) -> usize {
    assert_eq!(keys.len(), event_types.len(), "an event type for each key");
    assert!(out.len() >= keys.len() + SLACK, "room for all keys");
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has both, and the lengths were checked.
        return unsafe { avx2::where_zero(keys, event_types, out) };
    }
    where_zero_plain(keys, event_types, out)
}

fn where_zero_plain(keys: &[i64], event_types: &[i32], out: &mut [i64]) -> usize {
    let mut passed = 0;
    for (key, event_type) in keys.iter().zip(event_types) {
        out[passed] = *key;
        passed += usize::from(*event_type == 0);
    }
    passed
}

/// Which of 64 slots are not empty, the first in the lowest bit.
#[inline(always)]
pub(super) fn taken(slots: &[Pair; 64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has the features.
        return unsafe { avx2::taken(slots) };
    }
    slots.iter().rev().fold(0, |bits, slot| bits << 1 | u64::from(slot.value != 0))
}

/// Result rows on their way to the verifier.
pub(super) struct ResultRows {
    keys: Box<[i64; ROWS_MAX + SLACK]>,
    values: Box<[i64; ROWS_MAX + SLACK]>,
    rows: usize,
}

/// Rows handed over at a time.
const ROWS_MAX: usize = 2048;

impl ResultRows {
    pub(super) fn new() -> ResultRows {
        let empty = || Box::new([0; ROWS_MAX + SLACK]);
        ResultRows { keys: empty(), values: empty(), rows: 0 }
    }

    /// How many more rows fit.
    pub(super) fn room(&self) -> usize {
        ROWS_MAX - self.rows
    }

    /// Adds the slots that are not empty, their values less `MORE`, and empties them.
    ///
    /// # Panics
    ///
    /// If there are more slots than there is room.
    #[inline]
    pub(super) fn take<const MORE: i64>(&mut self, slots: &mut [Pair]) {
        assert!(slots.len() <= self.room(), "room for all slots");
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            // SAFETY: the processor has the features, and the room was checked.
            unsafe { avx2::take::<MORE>(self, slots) };
            return;
        }
        self.take_plain::<MORE>(slots);
    }

    fn take_plain<const MORE: i64>(&mut self, slots: &mut [Pair]) {
        for slot in slots {
            self.keys[self.rows] = slot.key;
            self.values[self.rows] = (slot.value as i64).wrapping_sub(MORE);
            self.rows += usize::from(slot.value != 0);
            *slot = Pair { key: 0, value: 0 };
        }
    }

    /// Hands the rows over.
    pub(super) fn flush(&mut self, window: Bounds, verifier: &mut Verifier) {
        verifier.add_rows(window, &self.keys[..self.rows], &self.values[..self.rows]);
        self.rows = 0;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use millstream_cpu::fronts::front4;

    use super::{Pair, ResultRows, where_zero_plain};

    /// # Safety
    ///
    /// `out` must have room for 4 elements more than there are keys, and there must be as many
    /// event types as keys.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) unsafe fn where_zero(keys: &[i64], event_types: &[i32], out: &mut [i64]) -> usize {
        let zero = _mm256_setzero_si256();
        let (type_rows, type_rest) = event_types.as_chunks::<16>();
        let (key_rows, key_rest) = keys.as_chunks::<16>();
        let mut to = out.as_mut_ptr();
        for (types, keys) in type_rows.iter().zip(key_rows) {
            let (types, _) = types.as_chunks::<8>();
            let (keys, _) = keys.as_chunks::<8>();
            for (types, keys) in types.iter().zip(keys) {
                // SAFETY: loads read the two arrays of eight; `to` has advanced at most once per
                // key seen before, and the caller left room for whole stores.
                unsafe {
                    let types = _mm256_loadu_si256(types.as_ptr().cast());
                    let equal = _mm256_castsi256_ps(_mm256_cmpeq_epi32(types, zero));
                    let passed = _mm256_movemask_ps(equal) as u8;
                    let (low, high) = (passed & 15, passed >> 4);
                    let four = _mm256_loadu_si256(keys.as_ptr().cast());
                    _mm256_storeu_si256(to.cast(), _mm256_permutevar8x32_epi32(four, front4(low)));
                    let second = to.add(low.count_ones() as usize);
                    let four = _mm256_loadu_si256(keys.as_ptr().add(4).cast());
                    let four = _mm256_permutevar8x32_epi32(four, front4(high));
                    _mm256_storeu_si256(second.cast(), four);
                    to = to.add(passed.count_ones() as usize);
                }
            }
        }
        // SAFETY: both point into `out`.
        let done = unsafe { to.offset_from_unsigned(out.as_ptr()) };
        done + where_zero_plain(key_rest, type_rest, &mut out[done..])
    }

    /// The keys (slots 0, 2, 1, 3) and values of four slots.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn halves(slots: &[Pair; 4]) -> (__m256i, __m256i) {
        // SAFETY: four slots of 16 bytes each; the loads need no alignment.
        unsafe {
            let low = _mm256_loadu_si256(slots.as_ptr().cast());
            let high = _mm256_loadu_si256(slots.as_ptr().add(2).cast());
            (_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high))
        }
    }

    /// Which of 64 slots are not empty.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn taken(slots: &[Pair; 64]) -> u64 {
        let zero = _mm256_setzero_si256();
        let (fours, _) = slots.as_chunks::<4>();
        let mut empty = 0;
        for (i, four) in fours.iter().enumerate() {
            let (_, values) = halves(four);
            // Back to the order of slots.
            let values = _mm256_permute4x64_epi64::<0b11_01_10_00>(values);
            let equal = _mm256_castsi256_pd(_mm256_cmpeq_epi64(values, zero));
            empty |= (_mm256_movemask_pd(equal) as u64) << (4 * i);
        }
        !empty
    }

    /// # Safety
    ///
    /// `rows` must have room for 4 more than there are slots.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) unsafe fn take<const MORE: i64>(rows: &mut ResultRows, slots: &mut [Pair]) {
        let zero = _mm256_setzero_si256();
        let (eights, rest) = slots.as_chunks_mut::<8>();
        let mut at = rows.rows;
        let (keys_out, values_out) = (rows.keys.as_mut_ptr(), rows.values.as_mut_ptr());
        for eight in eights {
            let (fours, _) = eight.as_chunks_mut::<4>();
            for four in fours {
                // In whatever order: that of result rows does not matter.
                let (keys, mut values) = halves(four);
                *four = [Pair { key: 0, value: 0 }; 4];
                let empty = _mm256_castsi256_pd(_mm256_cmpeq_epi64(values, zero));
                let set = (_mm256_movemask_pd(empty) ^ 15) as u8;
                if MORE != 0 {
                    values = _mm256_sub_epi64(values, _mm256_set1_epi64x(MORE));
                }
                // SAFETY: `at` has advanced at most once per slot, and the caller left room for
                // whole stores.
                unsafe {
                    let order = front4(set);
                    let keys = _mm256_permutevar8x32_epi32(keys, order);
                    let values = _mm256_permutevar8x32_epi32(values, order);
                    _mm256_storeu_si256(keys_out.add(at).cast(), keys);
                    _mm256_storeu_si256(values_out.add(at).cast(), values);
                    at += set.count_ones() as usize;
                }
            }
        }
        rows.rows = at;
        rows.take_plain::<MORE>(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Spec, Workload};

    #[test]
    fn filters_select_the_same_with_and_without_vectors() {
        let keys: Vec<i64> = (0..1000).map(|i| i * 0x1_0000_0001).collect();
        for len in (0..70).chain([1000]) {
            for modulus in [1, 2, 3, 2000] {
                let types: Vec<i32> = (0..len).map(|i| (i * 7 + 1) % modulus).collect();
                let keys = &keys[..len as usize];
                let (mut vectors, mut plain) = ([0; 1008], [0; 1008]);
                let passed = where_zero(keys, &types, &mut vectors);
                assert_eq!(passed, where_zero_plain(keys, &types, &mut plain));
                assert_eq!(vectors[..passed], plain[..passed]);
                assert_eq!(passed, types.iter().filter(|t| **t == 0).count());
            }
        }
    }

    #[test]
    fn slots_are_found_and_taken_whatever_their_pattern() {
        for pattern in [0u64, u64::MAX, 1, 1 << 63, 0x0123_4567_89AB_CDEF, 0xAAAA_0000_FFFF_5555] {
            let slot = |i: usize| Pair { key: -(i as i64), value: (pattern >> i & 1) * 300 };
            let mut slots: [Pair; 64] = std::array::from_fn(slot);
            assert_eq!(taken(&slots), pattern);
            for len in [64, 61, 8, 3, 0] {
                let (mut rows, mut plain) = (ResultRows::new(), ResultRows::new());
                let mut copy = slots;
                rows.take::<1>(&mut copy[..len]);
                assert!(copy[..len].iter().all(|slot| slot.key == 0 && slot.value == 0));
                let mut copy = slots;
                plain.take_plain::<1>(&mut copy[..len]);
                let mut verifiers = [(); 2].map(|()| Verifier::new(&Spec::new(Workload::Nb7)));
                let window = Bounds { start: 60_000, end: 120_000 };
                rows.flush(window, &mut verifiers[0]);
                plain.flush(window, &mut verifiers[1]);
                assert_eq!(verifiers[0].answer(), verifiers[1].answer());
                let mask = if len == 64 { u64::MAX } else { (1 << len) - 1 };
                let rows = u64::from((pattern & mask).count_ones());
                assert_eq!(verifiers[0].answer().result_rows, rows);
            }
            slots.reverse();
            assert_eq!(taken(&slots), pattern.reverse_bits());
        }
    }
}
