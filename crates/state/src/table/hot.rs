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

/// With vectors; without them, leaving keys out costs about as much as looking them up.
#[cfg(target_arch = "x86_64")]
mod others {
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    use millstream_cpu::fronts::{back4, front4};
    use millstream_cpu::{Level, level};

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
            level() >= Level::Avx2
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
        ///
        /// # Safety
        /// The processor must have the level, which must not be portable.
        pub(crate) unsafe fn take(
            &mut self,
            level: Level,
            often: usize,
            words: &[u64],
            hashes: &[u64],
        ) {
            assert!(words.len() <= BLOCK_ROWS && hashes.len() == words.len());
            self.words[0].write(words[often]);
            self.hashes[0].write(hashes[often]);
            (self.count, self.rows) = (1, words.len());
            // SAFETY: as the caller promises.
            unsafe {
                match level {
                    Level::Avx512 => self.take_avx512(words[often], words, hashes),
                    _ => self.take_avx2(words[often], words, hashes),
                }
            }
        }

        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn take_avx2(&mut self, often: u64, words: &[u64], hashes: &[u64]) {
            let frequent = _mm256_set1_epi64x(often as i64);
            let (to_words, to_hashes) = (self.words.as_mut_ptr(), self.hashes.as_mut_ptr());
            let mut count = 1;
            let (word_eights, words_rest) = words.as_chunks::<LANES>();
            let (hash_eights, hashes_rest) = hashes.as_chunks::<LANES>();
            let eights = word_eights.iter().zip(hash_eights);
            for ((words, hashes), differ) in eights.zip(&mut self.differ) {
                *differ = 0;
                for i in [0, 4] {
                    // SAFETY: four of the eight are read. Four are written behind as many as have
                    // been kept before, as above.
                    unsafe {
                        let words = _mm256_loadu_si256(words.as_ptr().add(i).cast());
                        let hashes = _mm256_loadu_si256(hashes.as_ptr().add(i).cast());
                        let same = _mm256_castsi256_pd(_mm256_cmpeq_epi64(words, frequent));
                        let others = _mm256_movemask_pd(same) as u8 ^ 15;
                        let order = front4(others);
                        let words = _mm256_permutevar8x32_epi32(words, order);
                        let hashes = _mm256_permutevar8x32_epi32(hashes, order);
                        _mm256_storeu_si256(to_words.add(count).cast(), words);
                        _mm256_storeu_si256(to_hashes.add(count).cast(), hashes);
                        count += others.count_ones() as usize;
                        *differ |= others << i;
                    }
                }
            }
            let last = &mut self.differ[word_eights.len()..];
            for (i, (word, hash)) in words_rest.iter().zip(hashes_rest).enumerate() {
                last[0] = if i == 0 { 0 } else { last[0] } | u8::from(*word != often) << i;
                self.words[count].write(*word);
                self.hashes[count].write(*hash);
                count += usize::from(*word != often);
            }
            self.count = count;
        }

        #[target_feature(enable = "avx512f,popcnt")]
        fn take_avx512(&mut self, often: u64, words: &[u64], hashes: &[u64]) {
            let often = _mm512_set1_epi64(often as i64);
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
            self.count = count;
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
        /// # Safety
        /// The keys' places must have been found. The level is that of `take`.
        pub(crate) unsafe fn spread(
            &self,
            level: Level,
            found: &mut MatchedRows,
            places: &mut [MaybeUninit<*mut u64>],
        ) {
            // SAFETY: as the caller promises.
            unsafe {
                match level {
                    Level::Avx512 => self.spread_avx512(found, places),
                    _ => self.spread_avx2(found, places),
                }
            }
        }

        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn spread_avx2(
            &self,
            MatchedRows(found): &mut MatchedRows,
            places: &mut [MaybeUninit<*mut u64>],
        ) {
            // Four are read where fewer may count.
            found[self.count..self.count + 4].fill(MaybeUninit::new(std::ptr::null_mut()));
            // SAFETY: as the caller promises; there is at least one.
            let frequent = unsafe { found[0].assume_init() };
            let often = _mm256_castsi256_pd(_mm256_set1_epi64x(frequent as i64));
            let mut at = 1;
            let (eights, rest) = places[..self.rows].as_chunks_mut::<LANES>();
            for (places, differ) in eights.iter_mut().zip(self.differ) {
                for i in [0, 4] {
                    // SAFETY: four are read behind as many as have differed before; the last of
                    // those have been written above.
                    unsafe {
                        let others = differ >> i;
                        let found = _mm256_loadu_si256(found.as_ptr().add(at).cast());
                        let order = back4(others);
                        let found = _mm256_permutevar8x32_epi32(found, order);
                        let (found, order) =
                            (_mm256_castsi256_pd(found), _mm256_castsi256_pd(order));
                        let all = _mm256_blendv_pd(found, often, order);
                        _mm256_storeu_pd(places.as_mut_ptr().add(i).cast(), all);
                        at += (others & 15).count_ones() as usize;
                    }
                }
            }
            for (i, place) in rest.iter_mut().enumerate() {
                let differs = self.differ[self.rows / LANES] >> i & 1 == 1;
                *place = if differs { found[at] } else { found[0] };
                at += usize::from(differs);
            }
        }

        #[target_feature(enable = "avx512f,popcnt")]
        unsafe fn spread_avx512(
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
        use millstream_cpu::detected;

        use super::*;
        use crate::memory::hash::{hash_each_word, hash_word};

        const ROWS: [u64; 7] = [1, 7, 8, 9, 64, 250, 256];

        /// Wherever and however often a key comes: it is left out but once, and every key gets its
        /// place.
        #[test]
        fn places_come_back_in_order() {
            let levels = [Level::Avx2, Level::Avx512].into_iter().filter(|l| *l <= detected());
            for (level, rows) in levels.flat_map(|level| ROWS.map(|rows| (level, rows))) {
                for every in [1, 2, 3, 100] {
                    let words: Vec<u64> =
                        (0..rows).map(|i| if i % every == 0 { 7 } else { 1000 + i }).collect();
                    let mut hashes = vec![0; words.len()];
                    hash_each_word(&words, &mut hashes);
                    let (mut others, mut found) = (Others::new(), MatchedRows::new());
                    // SAFETY: the processor has the necessary instructions.
                    unsafe { others.take(level, 0, &words, &hashes) };
                    let kept = words.iter().copied().filter(|word| *word != 7);
                    assert!(others.words().iter().copied().eq([7].into_iter().chain(kept)));
                    let each = others.words().iter().map(|word| hash_word(*word));
                    assert!(each.eq(others.hashes().iter().copied()));
                    for (place, word) in found.0.iter_mut().zip(others.words()) {
                        place.write((word * 8) as *mut u64);
                    }
                    let mut places = [MaybeUninit::new(std::ptr::null_mut()); BLOCK_ROWS];
                    // SAFETY: as above, and these are all.
                    unsafe { others.spread(level, &mut found, &mut places) };
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
