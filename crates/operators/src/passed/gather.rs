//! Gathering values from given positions of a column, a vector at a time.

#[cfg(target_arch = "x86_64")]
use millstream_cpu::{Level, level};

use crate::columns::keys::range_of;

/// Writes the words that stand at `picked` (ascending positions), one behind the other.
///
/// # Panics
/// If there is another number of places than of positions, or nothing to pick from. A position
/// beyond the last word, which no caller has, may give any word or panic.
pub fn gather(words: &[u64], picked: &[u32], out: &mut [u64]) {
    assert_eq!(picked.len(), out.len());
    if let Some(range) = range_of(picked) {
        out.copy_from_slice(&words[range]);
        return;
    }
    #[cfg(target_arch = "x86_64")]
    {
        match level() {
            // SAFETY: the processor has the level.
            Level::Avx512 => return unsafe { x86::gather_avx512(words, picked, out) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { x86::gather_avx2(words, picked, out) },
            Level::Portable => {}
        }
    }
    gather_plain(words, picked, out);
}

fn gather_plain<T: Copy>(values: &[T], picked: &[u32], out: &mut [T]) {
    for (position, out) in picked.iter().zip(out) {
        *out = values[*position as usize];
    }
}

/// The positions that stand at `picked` (ascending) among others; `buffer` holds them.
pub(crate) fn gather_positions<'b>(
    positions: &[u32],
    picked: &[u32],
    buffer: &'b mut Vec<u32>,
) -> &'b [u32] {
    buffer.resize(picked.len(), 0);
    match range_of(picked) {
        Some(range) => buffer.copy_from_slice(&positions[range]),
        None => {
            #[cfg(target_arch = "x86_64")]
            if level() >= Level::Avx2 {
                // SAFETY: the processor has the level.
                unsafe { x86::gather_positions_avx2(positions, picked, buffer) };
                return buffer;
            }
            gather_plain(positions, picked, buffer);
        }
    }
    buffer
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use crate::passed::gather::gather_plain;

    /// The greatest position in `len` values that may be picked by a signed index.
    fn last(len: usize) -> i32 {
        assert!(len > 0, "nothing to pick from");
        (len - 1).min(i32::MAX as usize) as i32
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn gather_avx512(words: &[u64], picked: &[u32], out: &mut [u64]) {
        let last = _mm256_set1_epi32(last(words.len()));
        let (sixteens, rest) = picked.as_chunks::<16>();
        let (out_sixteens, out_rest) = out.as_chunks_mut::<16>();
        for (picked, out) in sixteens.iter().zip(out_sixteens) {
            for i in [0, 8] {
                // SAFETY: twice eight positions are read and as many words written; those in
                // between are at positions that are not beyond the last word.
                unsafe {
                    let picked = _mm256_loadu_epi32(picked.as_ptr().add(i).cast());
                    let at = _mm256_min_epu32(picked, last);
                    let words = _mm512_i32gather_epi64::<8>(at, words.as_ptr().cast());
                    _mm512_storeu_epi64(out.as_mut_ptr().add(i).cast(), words);
                }
            }
        }
        gather_plain(words, rest, out_rest);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn gather_avx2(words: &[u64], picked: &[u32], out: &mut [u64]) {
        let last = _mm_set1_epi32(last(words.len()));
        let (sixteens, rest) = picked.as_chunks::<16>();
        let (out_sixteens, out_rest) = out.as_chunks_mut::<16>();
        for (picked, out) in sixteens.iter().zip(out_sixteens) {
            for i in [0, 4, 8, 12] {
                // SAFETY: as above, with four times four.
                unsafe {
                    let at = _mm_min_epu32(_mm_loadu_si128(picked.as_ptr().add(i).cast()), last);
                    let words = _mm256_i32gather_epi64::<8>(words.as_ptr().cast(), at);
                    _mm256_storeu_si256(out.as_mut_ptr().add(i).cast(), words);
                }
            }
        }
        gather_plain(words, rest, out_rest);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn gather_positions_avx2(positions: &[u32], picked: &[u32], out: &mut [u32]) {
        let last = _mm256_set1_epi32(last(positions.len()));
        let (eights, rest) = picked.as_chunks::<8>();
        let (out_eights, out_rest) = out.as_chunks_mut::<8>();
        for (picked, out) in eights.iter().zip(out_eights) {
            // SAFETY: as above.
            unsafe {
                let at = _mm256_min_epu32(_mm256_loadu_si256(picked.as_ptr().cast()), last);
                let found = _mm256_i32gather_epi32::<4>(positions.as_ptr().cast(), at);
                _mm256_storeu_si256(out.as_mut_ptr().cast(), found);
            }
        }
        gather_plain(positions, rest, out_rest);
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use millstream_cpu::detected;

    use super::*;

    type Gather = dyn Fn(&[u64], &[u32], &mut [u64]);

    /// Every processor picks the same values, whatever the number.
    #[test]
    fn values_at_positions_come_in_order() {
        let words: Vec<u64> = (0..500).map(|i| (i << 40) + 7 * i).collect();
        let positions: Vec<u32> = (0..500).map(|i| 3 * i + 1).collect();
        for step in [1, 2, 3, 7] {
            for count in [0, 1, 3, 4, 5, 7, 8, 9, 16, 37, 64] {
                let picked: Vec<u32> = (0..count).map(|i| 5 + i * step).collect();
                let expected: Vec<u64> = picked.iter().map(|i| words[*i as usize]).collect();
                let check = |gather: &Gather| {
                    let mut out = vec![0; picked.len()];
                    gather(&words, &picked, &mut out);
                    assert_eq!(out, expected);
                };
                check(&gather);
                check(&gather_plain);
                #[cfg(target_arch = "x86_64")]
                {
                    if detected() >= Level::Avx2 {
                        // SAFETY: the processor has the feature.
                        check(&|w, p, o| unsafe { x86::gather_avx2(w, p, o) });
                    }
                    if detected() >= Level::Avx512 {
                        // SAFETY: the processor has the features.
                        check(&|w, p, o| unsafe { x86::gather_avx512(w, p, o) });
                    }
                }
                let expected: Vec<u32> = picked.iter().map(|i| positions[*i as usize]).collect();
                assert_eq!(gather_positions(&positions, &picked, &mut Vec::new()), expected);
            }
        }
    }
}
