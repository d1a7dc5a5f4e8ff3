//! Hot rows: rows that many records of a block update, as with skewed keys.
//!
//! An addition to a row must wait for the previous addition to the same row, whose result is still
//! on its way through memory. So the additions to one hot row go to several partial sums by turns.
//! Also, a frequent key is looked up only once for the block.

/// Blocks of fewer are not worth a look.
const ROWS_MIN: usize = 64;
/// How many are looked at.
const SAMPLES: usize = 8;

/// Where something stands that many of a block have in common, most likely: two in a row of a few
/// that stand apart.
#[inline(always)]
pub(crate) fn frequent<T: PartialEq>(block: &[T]) -> Option<usize> {
    if block.len() < ROWS_MIN {
        return None;
    }
    let apart = block.len() / SAMPLES;
    (1..SAMPLES).map(|i| i * apart).find(|i| block[*i] == block[*i - apart])
}

/// Sums of `N` words by turns, for what goes to one place.
#[derive(Debug)]
pub(crate) struct Aside<const N: usize> {
    place: *mut u64,
    parts: [[u64; N]; TURNS],
}

const TURNS: usize = 4;

impl<const N: usize> Aside<N> {
    /// For what goes to `place`: nothing yet.
    #[inline(always)]
    pub(crate) fn new(place: *mut u64) -> Aside<N> {
        Aside { place, parts: [[0; N]; TURNS] }
    }

    /// Target of the block's `k`-th addition, meant for `place`: a partial sum if `place` is the
    /// hot row, else `place` itself.
    #[inline(always)]
    pub(crate) fn instead_of(&mut self, place: *mut u64, k: usize) -> *mut u64 {
        let part = self.parts[k % TURNS].as_mut_ptr();
        // No jump: the processor could not predict it.
        std::hint::select_unpredictable(place == self.place, part, place)
    }

    /// The partial sums.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u64; N]> {
        self.parts.iter()
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use others::{MatchedRows, Others};

/// With AVX-512; without it, leaving keys out costs about as much as looking them up.
#[cfg(target_arch = "x86_64")]
mod others {
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    use crate::memory::log::BLOCK_ROWS;

    const LANES: usize = 8;
    /// Eight are written where fewer may count.
    const ROOM: usize = BLOCK_ROWS + LANES;

    /// The keys of a block, of which one that comes often stands there once: first.
    #[derive(Debug)]
    pub(crate) struct Others {
        words: [MaybeUninit<u64>; ROOM],
        hashes: [MaybeUninit<u64>; ROOM],
        /// How many of both have been written, at least.
        count: usize,
        /// Which of the block's keys differ from the frequent key; a byte for eight keys.
        differ: [u8; BLOCK_ROWS / LANES],
        /// How many keys the block has.
        rows: usize,
    }

    /// The places of such keys.
    #[derive(Debug)]
    pub(crate) struct MatchedRows([MaybeUninit<*mut u64>; ROOM]);

    impl MatchedRows {
        #[inline(always)]
        pub(crate) fn new() -> MatchedRows {
            MatchedRows([MaybeUninit::uninit(); ROOM])
        }

        pub(crate) fn start(&mut self) -> *mut *mut u64 {
            self.0.as_mut_ptr().cast()
        }
    }

    impl Others {
        /// True if the processor has the necessary instructions.
        #[inline(always)]
        pub(crate) fn are_supported() -> bool {
            is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt")
        }

        /// None yet.
        #[inline(always)]
        pub(crate) fn new() -> Others {
            let unknown = [MaybeUninit::uninit(); ROOM];
            let differ = [0; BLOCK_ROWS / LANES];
            Others { words: unknown, hashes: unknown, count: 0, differ, rows: 0 }
        }

        /// Collects the keys of a block: first the frequent key, at index `often`, with its hash
        /// there; then all different keys.
        #[target_feature(enable = "avx512f,popcnt")]
        pub(crate) fn take(&mut self, often: usize, words: &[u64], hashes: &[u64]) {
            assert!(words.len() <= BLOCK_ROWS && hashes.len() == words.len());
            self.words[0].write(words[often]);
            self.hashes[0].write(hashes[often]);
            let often = _mm512_set1_epi64(words[often] as i64);
            let (to_words, to_hashes) = (self.words.as_mut_ptr(), self.hashes.as_mut_ptr());
            let mut count = 1;
            let eights = words.chunks(LANES).zip(hashes.chunks(LANES));
            for ((words, hashes), differ) in eights.zip(&mut self.differ) {
                let present = (!0u32 >> (32 - words.len())) as u8;
                // SAFETY: as many are read as there are. Eight are written behind as many as have
                // been kept before, which is at most one more than have been read: there is room
                // for eight more than a block has.
                unsafe {
                    let words = _mm512_maskz_loadu_epi64(present, words.as_ptr().cast());
                    let hashes = _mm512_maskz_loadu_epi64(present, hashes.as_ptr().cast());
                    *differ = _mm512_mask_cmpneq_epi64_mask(present, words, often);
                    let words = _mm512_maskz_compress_epi64(*differ, words);
                    let hashes = _mm512_maskz_compress_epi64(*differ, hashes);
                    _mm512_storeu_epi64(to_words.add(count).cast(), words);
                    _mm512_storeu_epi64(to_hashes.add(count).cast(), hashes);
                }
                count += differ.count_ones() as usize;
            }
            (self.count, self.rows) = (count, words.len());
        }

        pub(crate) fn words(&self) -> &[u64] {
            // SAFETY: so many have been written.
            unsafe { self.words[..self.count].assume_init_ref() }
        }

        pub(crate) fn hashes(&self) -> &[u64] {
            // SAFETY: so many have been written.
            unsafe { self.hashes[..self.count].assume_init_ref() }
        }

        /// Writes the places of all of the block's keys.
        ///
        /// The keys' places must have been `found`. The processor must have the necessary
        /// instructions.
        #[target_feature(enable = "avx512f,popcnt")]
        pub(crate) unsafe fn spread(
            &self,
            MatchedRows(found): &MatchedRows,
            places: &mut [MaybeUninit<*mut u64>],
        ) {
            // SAFETY: as the caller promises; there is at least one.
            let often = _mm512_set1_epi64(unsafe { found[0].assume_init() } as i64);
            let mut at = 1;
            for (places, differ) in places[..self.rows].chunks_mut(LANES).zip(self.differ) {
                let present = (!0u32 >> (32 - places.len())) as u8;
                // SAFETY: as many are read as differ, each after the one before and behind the
                // first, so that there are at most as many as have been kept; and as many are
                // written as there is room for.
                unsafe {
                    let found = found.as_ptr().add(at).cast();
                    let all = _mm512_mask_expandloadu_epi64(often, differ, found);
                    _mm512_mask_storeu_epi64(places.as_mut_ptr().cast(), present, all);
                }
                at += differ.count_ones() as usize;
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::memory::hash::{hash_each_word, hash_word};

        /// Wherever and however often a key comes: it is left out but once, and every key gets its
        /// place.
        #[test]
        fn places_come_back_in_order() {
            if !Others::are_supported() {
                return;
            }
            for rows in [1, 7, 8, 9, 64, 250, 256] {
                for every in [1, 2, 3, 100] {
                    let words: Vec<u64> =
                        (0..rows).map(|i| if i % every == 0 { 7 } else { 1000 + i }).collect();
                    let mut hashes = vec![0; words.len()];
                    hash_each_word(&words, &mut hashes);
                    let (mut others, mut found) = (Others::new(), MatchedRows::new());
                    // SAFETY: the processor has the necessary instructions.
                    unsafe { others.take(0, &words, &hashes) };
                    let kept = words.iter().copied().filter(|word| *word != 7);
                    assert!(others.words().iter().copied().eq([7].into_iter().chain(kept)));
                    let each = others.words().iter().map(|word| hash_word(*word));
                    assert!(each.eq(others.hashes().iter().copied()));
                    for (place, word) in found.0.iter_mut().zip(others.words()) {
                        place.write((word * 8) as *mut u64);
                    }
                    let mut places = [MaybeUninit::new(std::ptr::null_mut()); BLOCK_ROWS];
                    // SAFETY: as above, and these are all.
                    unsafe { others.spread(&found, &mut places) };
                    for (place, word) in places.iter().zip(&words) {
                        // SAFETY: all have been written.
                        assert_eq!(unsafe { place.assume_init() } as u64, word * 8);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_noticed_and_nothing_else() {
        let distinct: Vec<u64> = (0..256).collect();
        assert_eq!(frequent(&distinct), None);
        assert_eq!(frequent(&[7; 10]), None, "few");
        for rows in [64, 100, 255, 256] {
            let mostly: Vec<u64> =
                (0..rows).map(|i| if i % 5 == 0 { i } else { 1 << 40 }).collect();
            let at = frequent(&mostly).expect("something");
            assert_eq!(mostly[at], 1 << 40, "{rows} rows");
        }
    }
}
