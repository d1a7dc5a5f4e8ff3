//! The verifier's sums over rows, with and without AVX2.

/// Values below this have their hash in the memo.
const SMALL: usize = 256;

/// A slice shorter than this is not worth filling the memo for another window.
const MEMO_ROWS_MIN: usize = 64;

/// Sums over rows, modulo 2^64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) rows: u64,
    pub(super) checksum: u64,
    pub(super) mix: u64,
}

impl Sums {
    #[inline(always)]
    pub(super) fn add(&mut self, other: Sums) {
        self.rows = self.rows.wrapping_add(other.rows);
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self.mix = self.mix.wrapping_add(other.mix);
    }
}

/// `m(window + m(value))` for the small values of one window; `window` stands for the window's
/// start, or a hash of its bounds.
#[derive(Debug, Clone)]
pub(super) struct Memo {
    window: u64,
    filled: bool,
    /// Whether the last values were small: a guess at what comes.
    small: bool,
    hashes: Box<[u64; SMALL]>,
}

impl Memo {
    pub(super) fn new() -> Memo {
        Memo { window: 0, filled: false, small: true, hashes: Box::new([0; SMALL]) }
    }

    /// The sums over rows of the window that begins at `start` and is named `window`. The slices
    /// have the same length.
    pub(super) fn sums(&mut self, start: u64, window: u64, keys: &[i64], values: &[i64]) -> Sums {
        let sums = self.sums_without_start(window, keys, values);
        let starts = start.wrapping_mul(17).wrapping_mul(sums.rows);
        Sums { checksum: sums.checksum.wrapping_add(starts), ..sums }
    }

    /// The sums but for the starts of windows in the checksum.
    fn sums_without_start(&mut self, window: u64, keys: &[i64], values: &[i64]) -> Sums {
        let memo = self.filled && self.window == window;
        if memo || keys.len() >= MEMO_ROWS_MIN {
            if !memo {
                self.fill(window);
            }
            #[cfg(target_arch = "x86_64")]
            if millstream_cpu::detected() >= millstream_cpu::Level::Avx2 {
                // SAFETY: the processor has AVX2.
                return unsafe { self.sums_avx2(keys, values) };
            }
        }
        sums_plain(window, keys, values)
    }

    fn fill(&mut self, window: u64) {
        for (value, hash) in self.hashes.iter_mut().enumerate() {
            *hash = m(window.wrapping_add(m(value as u64)));
        }
        (self.window, self.filled, self.small) = (window, true, true);
    }
}

/// splitmix64's finaliser.
#[inline(always)]
pub(super) fn m(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The sums row by row, but for the starts of windows.
fn sums_plain(window: u64, keys: &[i64], values: &[i64]) -> Sums {
    let (mut linear, mut mix) = (0u64, 0u64);
    for (key, value) in keys.iter().zip(values) {
        let (key, value) = (*key as u64, *value as u64);
        linear = linear.wrapping_add(key.wrapping_mul(31)).wrapping_add(value);
        mix = mix.wrapping_add(m(key.wrapping_add(m(window.wrapping_add(m(value))))));
    }
    Sums { rows: keys.len() as u64, checksum: linear, mix }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Memo, SMALL, Sums, sums_plain};

    /// Rows between two looks at whether values are still small.
    const BLOCK: usize = 1024;

    /// The product of each lane with a constant, modulo 2^64: AVX2 multiplies 32 bits only.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn multiply(x: __m256i, factor: u64) -> __m256i {
        let low = _mm256_set1_epi64x((factor & 0xFFFF_FFFF) as i64);
        let high = _mm256_set1_epi64x((factor >> 32) as i64);
        let x_high = _mm256_srli_epi64::<32>(x);
        let cross = _mm256_add_epi64(_mm256_mul_epu32(x_high, low), _mm256_mul_epu32(x, high));
        _mm256_add_epi64(_mm256_mul_epu32(x, low), _mm256_slli_epi64::<32>(cross))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn m(x: __m256i) -> __m256i {
        let x = _mm256_xor_si256(x, _mm256_srli_epi64::<30>(x));
        let x = multiply(x, 0xBF58_476D_1CE4_E5B9);
        let x = _mm256_xor_si256(x, _mm256_srli_epi64::<27>(x));
        let x = multiply(x, 0x94D0_49BB_1331_11EB);
        _mm256_xor_si256(x, _mm256_srli_epi64::<31>(x))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(four: &[i64; 4]) -> __m256i {
        // SAFETY: 32 readable bytes; the load needs no alignment.
        unsafe { _mm256_loadu_si256(four.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn sum_of_lanes(x: __m256i) -> u64 {
        let mut lanes = [0u64; 4];
        // SAFETY: 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), x) };
        lanes.into_iter().fold(0, u64::wrapping_add)
    }

    impl Memo {
        /// The sums over rows of the window for which the memo is filled.
        #[target_feature(enable = "avx2")]
        pub(super) fn sums_avx2(&mut self, keys: &[i64], values: &[i64]) -> Sums {
            let mut sums = Sums::default();
            for (keys, values) in keys.chunks(BLOCK).zip(values.chunks(BLOCK)) {
                let (key_fours, key_rest) = keys.as_chunks::<4>();
                let (value_fours, value_rest) = values.as_chunks::<4>();
                let small = if self.small { self.small(key_fours, value_fours) } else { None };
                self.small = small.is_some();
                sums.add(small.unwrap_or_else(|| self.any(key_fours, value_fours)));
                sums.add(sums_plain(self.window, key_rest, value_rest));
            }
            sums
        }

        /// The sums if all values are small, otherwise nothing.
        #[target_feature(enable = "avx2")]
        fn small(&self, keys: &[[i64; 4]], values: &[[i64; 4]]) -> Option<Sums> {
            let zero = _mm256_setzero_si256();
            let (mut key_sum, mut value_sum, mut mix, mut seen) = (zero, zero, zero, zero);
            let bits = _mm256_set1_epi64x(SMALL as i64 - 1);
            for (key, value) in keys.iter().zip(values) {
                let (key, value) = (load(key), load(value));
                seen = _mm256_or_si256(seen, value);
                let index = _mm256_and_si256(value, bits);
                // SAFETY: each index is below SMALL, the length of the memo.
                let inner =
                    unsafe { _mm256_i64gather_epi64::<8>(self.hashes.as_ptr().cast(), index) };
                mix = _mm256_add_epi64(mix, m(_mm256_add_epi64(key, inner)));
                key_sum = _mm256_add_epi64(key_sum, key);
                value_sum = _mm256_add_epi64(value_sum, value);
            }
            (_mm256_testc_si256(bits, seen) == 1)
                .then(|| finish(keys.len() * 4, key_sum, value_sum, mix))
        }

        /// The sums whatever the values.
        #[target_feature(enable = "avx2")]
        fn any(&self, keys: &[[i64; 4]], values: &[[i64; 4]]) -> Sums {
            let zero = _mm256_setzero_si256();
            let (mut key_sum, mut value_sum, mut mix) = (zero, zero, zero);
            let window = _mm256_set1_epi64x(self.window as i64);
            for (key, value) in keys.iter().zip(values) {
                let (key, value) = (load(key), load(value));
                let inner = m(_mm256_add_epi64(window, m(value)));
                mix = _mm256_add_epi64(mix, m(_mm256_add_epi64(key, inner)));
                key_sum = _mm256_add_epi64(key_sum, key);
                value_sum = _mm256_add_epi64(value_sum, value);
            }
            finish(keys.len() * 4, key_sum, value_sum, mix)
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn finish(rows: usize, keys: __m256i, values: __m256i, mix: __m256i) -> Sums {
        let checksum = sum_of_lanes(keys).wrapping_mul(31).wrapping_add(sum_of_lanes(values));
        Sums { rows: rows as u64, checksum, mix: sum_of_lanes(mix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published example values of splitmix64 seeded with 1234567: the finaliser of the seed
    /// plus multiples of the golden gamma.
    #[test]
    fn the_finaliser_is_splitmix64s() {
        let gamma = 0x9E37_79B9_7F4A_7C15u64;
        let published = [6457827717110365317, 3203168211198807973, 9817491932198370423u64];
        for (i, expected) in (1u64..).zip(published) {
            assert_eq!(m(1_234_567u64.wrapping_add(gamma.wrapping_mul(i))), expected);
        }
    }

    #[test]
    fn vectors_and_rows_agree_for_small_and_large_values() {
        for rows in [0usize, 1, 3, 4, 63, 64, 65, 1023, 1024, 1025, 5000] {
            for large in [None, Some(0), Some(rows / 2), Some(rows.saturating_sub(1))] {
                let keys: Vec<i64> = (0..rows as u64).map(|i| m(i) as i64).collect();
                let mut values: Vec<i64> = (0..rows as i64).map(|i| i % SMALL as i64).collect();
                if let Some(value) = large.and_then(|at| values.get_mut(at)) {
                    *value = if rows % 2 == 0 { -1 } else { SMALL as i64 };
                }
                for window in [0, 600_000, -2_000i64 as u64] {
                    let mut expected = sums_plain(window, &keys, &values);
                    assert_eq!(Memo::new().sums(0, window, &keys, &values), expected);
                    let starts = 17u64.wrapping_mul(4_000).wrapping_mul(rows as u64);
                    expected.checksum = expected.checksum.wrapping_add(starts);
                    assert_eq!(Memo::new().sums(4_000, window, &keys, &values), expected);
                }
            }
        }
    }
}
