//! Looking at the eight entries of a bucket at once.

use crate::log::RowId;
use crate::memory::Line;

/// Which of a bucket's entries are what, a bit for every other position: entry `i` at bit `2 * i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Present, and of the hash that is looked for.
    pub(crate) like: u32,
    /// Absent: free to be filled.
    pub(crate) absent: u32,
}

/// The place in its bucket of the first entry marked.
#[inline(always)]
pub(crate) fn first(marks: u32) -> usize {
    marks.trailing_zeros() as usize / 2
}

/// How this processor looks at a bucket.
pub(crate) trait Lanes: Copy {
    /// Compares all entries with the upper half of a hash, and their rows with the log's base.
    ///
    /// # Safety
    /// `bucket` must be readable, and the processor must be one that this is for.
    unsafe fn marks(bucket: *const Line, high: u32, base: RowId) -> Marks;
}

/// For any processor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain;

impl Lanes for Plain {
    #[inline(always)]
    unsafe fn marks(bucket: *const Line, high: u32, base: RowId) -> Marks {
        // SAFETY: as the caller promises.
        let entries = unsafe { &*bucket };
        let (mut like, mut absent) = (0, 0);
        for (i, entry) in entries.iter().enumerate() {
            let present = *entry as u32 >= base;
            like |= u32::from(present && (*entry >> 32) as u32 == high) << (2 * i);
            absent |= u32::from(!present) << (2 * i);
        }
        Marks { like, absent }
    }
}

/// With AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    #[inline(always)]
    unsafe fn marks(bucket: *const Line, high: u32, base: RowId) -> Marks {
        use std::arch::x86_64::*;
        // SAFETY: the caller promises AVX2, and that the bucket's two halves can be read.
        let bits = unsafe {
            let (high, base) = (_mm256_set1_epi32(high as i32), _mm256_set1_epi32(base as i32));
            // Per entry two bits: row number at or above the base, hash alike.
            let half = |half: *const __m256i| {
                let entries = _mm256_loadu_si256(half);
                let like = _mm256_cmpeq_epi32(entries, high);
                let present = _mm256_cmpeq_epi32(_mm256_max_epu32(entries, base), entries);
                let both = _mm256_blend_epi32::<0b1010_1010>(present, like);
                _mm256_movemask_ps(_mm256_castsi256_ps(both)) as u32
            };
            let bucket = bucket.cast::<__m256i>();
            half(bucket) | half(bucket.add(1)) << 8
        };
        Marks { like: bits & bits >> 1 & 0x5555, absent: !bits & 0x5555 }
    }
}

/// With AVX-512.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512 {
    #[inline(always)]
    unsafe fn marks(bucket: *const Line, high: u32, base: RowId) -> Marks {
        use std::arch::x86_64::*;
        // SAFETY: the caller promises AVX-512F, and that the bucket can be read.
        unsafe {
            let entries = _mm512_loadu_si512(bucket.cast());
            let like = _mm512_cmpeq_epi32_mask(entries, _mm512_set1_epi32(high as i32));
            let absent = _mm512_cmplt_epu32_mask(entries, _mm512_set1_epi32(base as i32));
            let (like, absent) = (u32::from(like) >> 1, u32::from(absent));
            Marks { like: like & !absent & 0x5555, absent: absent & 0x5555 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processors_see_the_same() {
        let mut random = 7u64;
        let mut next = || {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            random
        };
        for _ in 0..10_000 {
            let base = [4096, 1 << 20, 1 << 31, 3 << 30][next() as usize % 4];
            let entry = |r: u64| {
                let row = [0, base - 1, base, base + 1, u32::MAX][r as usize % 5];
                (r >> 8 & 3) << 62 | (r >> 16 & 1) << 32 | u64::from(row)
            };
            let line: Line = std::array::from_fn(|_| entry(next()));
            let high = (entry(next()) >> 32) as u32;
            // SAFETY: a line; and each only where the processor has what it needs.
            unsafe {
                let plain = Plain::marks(&line, high, base);
                #[cfg(target_arch = "x86_64")]
                {
                    if is_x86_feature_detected!("avx2") {
                        assert_eq!(Avx2::marks(&line, high, base), plain);
                    }
                    if is_x86_feature_detected!("avx512f") {
                        assert_eq!(Avx512::marks(&line, high, base), plain);
                    }
                }
                let entries = line.iter().enumerate();
                for (i, entry) in entries {
                    let present = *entry as u32 >= base;
                    assert_eq!(plain.absent >> (2 * i) & 1 == 0, present);
                    let like = present && (*entry >> 32) as u32 == high;
                    assert_eq!(plain.like >> (2 * i) & 1 == 1, like);
                }
            }
        }
    }
}
