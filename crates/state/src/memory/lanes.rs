//! Comparing all eight entries of a bucket at once. The result has one bit for each entry, the
//! first entry in the lowest bit.

use crate::memory::log::RowId;
use crate::memory::pages::Line;

/// The hash's part of an entry.
const HASH: u64 = !0 << 32;

/// How this processor looks at a bucket. Row numbers must be below 2^31.
pub(crate) trait Lanes {
    /// Marks the entries whose hash is like this one.
    ///
    /// # Safety
    /// `bucket` must be readable and aligned to its size, and the processor one that this is for.
    unsafe fn like(bucket: *const Line, hash: &u64) -> u32;

    /// Marks the entries whose rows are below the log's base: those that are absent.
    ///
    /// # Safety
    /// As for `like`.
    unsafe fn absent(bucket: *const Line, base: RowId) -> u32;
}

/// For any processor.
pub(crate) struct Plain;

impl Lanes for Plain {
    #[inline(always)]
    unsafe fn like(bucket: *const Line, hash: &u64) -> u32 {
        // SAFETY: as the caller promises.
        let entries = unsafe { (*bucket).iter().rev() };
        entries.fold(0, |marks, entry| marks << 1 | u32::from((entry ^ hash) & HASH == 0))
    }

    #[inline(always)]
    unsafe fn absent(bucket: *const Line, base: RowId) -> u32 {
        // SAFETY: as the caller promises.
        let entries = unsafe { (*bucket).iter().rev() };
        entries.fold(0, |marks, entry| marks << 1 | u32::from((*entry as u32) < base))
    }
}

/// With AVX2. Written as instructions, since compilers make twice as many of the same thing said in
/// intrinsics.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    #[inline(always)]
    unsafe fn like(bucket: *const Line, hash: &u64) -> u32 {
        // SAFETY: as the caller promises.
        unsafe { avx2::like(bucket, hash) }
    }

    #[inline(always)]
    unsafe fn absent(bucket: *const Line, base: RowId) -> u32 {
        // SAFETY: as the caller promises.
        unsafe { avx2::absent(bucket, base) }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::asm;
    use std::arch::x86_64::{__m256i, _mm256_set1_epi32};

    use super::{Line, RowId};

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn like(bucket: *const Line, hash: &u64) -> u32 {
        let (_high, _like): (__m256i, __m256i);
        let (first, last): (u32, u32);
        // SAFETY: reads the hash and the bucket's 64 bytes, and writes nothing but registers.
        unsafe {
            asm!(
                "vpbroadcastd {high}, dword ptr [{hash} + 4]",
                "vpcmpeqd {like}, {high}, ymmword ptr [{bucket}]",
                "vmovmskpd {first:e}, {like}",
                "vpcmpeqd {like}, {high}, ymmword ptr [{bucket} + 32]",
                "vmovmskpd {last:e}, {like}",
                hash = in(reg) hash,
                bucket = in(reg) bucket,
                high = out(ymm_reg) _high,
                like = out(ymm_reg) _like,
                first = out(reg) first,
                last = out(reg) last,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        first | last << 4
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn absent(bucket: *const Line, base: RowId) -> u32 {
        let _below: __m256i;
        let (first, last): (u32, u32);
        // SAFETY: reads the bucket's 64 bytes, and writes nothing but registers.
        unsafe {
            asm!(
                "vpcmpgtd {below}, {base}, ymmword ptr [{bucket}]",
                "vpsllq {below}, {below}, 32",
                "vmovmskpd {first:e}, {below}",
                "vpcmpgtd {below}, {base}, ymmword ptr [{bucket} + 32]",
                "vpsllq {below}, {below}, 32",
                "vmovmskpd {last:e}, {below}",
                bucket = in(reg) bucket,
                base = in(ymm_reg) _mm256_set1_epi32(base as i32),
                below = out(ymm_reg) _below,
                first = out(reg) first,
                last = out(reg) last,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        first | last << 4
    }
}

/// With AVX-512.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512 {
    #[inline(always)]
    unsafe fn like(bucket: *const Line, hash: &u64) -> u32 {
        use std::arch::x86_64::*;
        // SAFETY: the caller promises AVX-512F, and that the bucket can be read.
        unsafe {
            let entries = _mm512_load_si512(bucket.cast());
            let differ = _mm512_xor_si512(entries, _mm512_set1_epi64(*hash as i64));
            u32::from(_mm512_testn_epi64_mask(differ, _mm512_set1_epi64(HASH as i64)))
        }
    }

    #[inline(always)]
    unsafe fn absent(bucket: *const Line, base: RowId) -> u32 {
        use std::arch::x86_64::*;
        // SAFETY: as above.
        unsafe {
            let rows = _mm512_slli_epi64::<32>(_mm512_load_si512(bucket.cast()));
            let base = _mm512_set1_epi64((u64::from(base) << 32) as i64);
            u32::from(_mm512_cmplt_epu64_mask(rows, base))
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use millstream_cpu::{Level, detected};

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
            let base = [4096, 1 << 20, 1 << 29, (1 << 31) - 2][next() as usize % 4];
            let entry = |r: u64| {
                let row = [0, base - 1, base, base + 1, i32::MAX as u32][r as usize % 5];
                (r >> 8 & 3) << 62 | (r >> 16 & 1) << 32 | u64::from(row)
            };
            #[repr(align(64))]
            struct Aligned(Line);
            let Aligned(line) = &Aligned(std::array::from_fn(|_| entry(next())));
            let hash = entry(next());
            // SAFETY: a line; and each only where the processor has what it needs.
            let (like, absent) = unsafe {
                let plain = (Plain::like(line, &hash), Plain::absent(line, base));
                #[cfg(target_arch = "x86_64")]
                {
                    if detected() >= Level::Avx2 {
                        assert_eq!((Avx2::like(line, &hash), Avx2::absent(line, base)), plain);
                    }
                    if detected() >= Level::Avx512 {
                        assert_eq!((Avx512::like(line, &hash), Avx512::absent(line, base)), plain);
                    }
                }
                plain
            };
            for (i, entry) in line.iter().enumerate() {
                assert_eq!(like >> i & 1 == 1, entry >> 32 == hash >> 32);
                assert_eq!(absent >> i & 1 == 1, (*entry as u32) < base);
            }
        }
    }
}
