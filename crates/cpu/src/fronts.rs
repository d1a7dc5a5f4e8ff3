//! Orders of lanes: marked lanes come to the front of a vector, or go back from the front.

/// Per mask of eight lanes: the numbers of the marked lanes, ascending.
pub static FRONTS: [[u8; 8]; 256] = {
    let mut fronts = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut count) = (0, 0);
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                fronts[mask][count] = lane;
                count += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    fronts
};

#[cfg(target_arch = "x86_64")]
pub use vectors::{back4, front4, front8};

#[cfg(target_arch = "x86_64")]
mod vectors {
    use std::arch::x86_64::*;

    use super::FRONTS;

    /// Per mask of four lanes of 64 bits: the marked lanes, ascending, as 32-bit halves.
    static FRONTS_OF_FOUR: [[u8; 8]; 16] = {
        let mut fronts = [[0; 8]; 16];
        let mut mask = 0;
        while mask < 16 {
            let mut place = 0;
            while place < 8 {
                fronts[mask][place] = 2 * FRONTS[mask][place / 2] + place as u8 % 2;
                place += 1;
            }
            mask += 1;
        }
        fronts
    };

    /// Per mask of four lanes of 64 bits: for each marked lane its place at the front, as 32-bit
    /// halves; -1 for the other lanes.
    static BACKS_OF_FOUR: [[i8; 8]; 16] = {
        let mut backs = [[-1; 8]; 16];
        let mut mask = 0;
        while mask < 16 {
            let (mut lane, mut place) = (0, 0);
            while lane < 4 {
                if mask >> lane & 1 == 1 {
                    backs[mask][2 * lane] = place;
                    backs[mask][2 * lane + 1] = place + 1;
                    place += 2;
                }
                lane += 1;
            }
            mask += 1;
        }
        backs
    };

    /// The order of `_mm256_permutevar8x32_epi32` that brings the lanes of a mask to the front.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn front8(mask: u8) -> __m256i {
        // SAFETY: an entry has eight bytes.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(FRONTS[usize::from(mask)].as_ptr().cast())) }
    }

    /// The same for four lanes of 64 bits; higher bits of the mask do not count.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn front4(mask: u8) -> __m256i {
        let front = &FRONTS_OF_FOUR[usize::from(mask & 15)];
        // SAFETY: an entry has eight bytes.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(front.as_ptr().cast())) }
    }

    /// The order that brings four lanes of 64 bits from the front to the lanes of a mask. The sign
    /// of each other lane is set.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn back4(mask: u8) -> __m256i {
        let back = &BACKS_OF_FOUR[usize::from(mask & 15)];
        // SAFETY: an entry has eight bytes.
        unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(back.as_ptr().cast())) }
    }
}
