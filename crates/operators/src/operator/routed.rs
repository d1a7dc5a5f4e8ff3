//! Rows with their keys, sorted by leader; each leader's rows keep their order.

use millstream_cpu::{Level, level};
use millstream_state::{Leaders, PARTITIONS};

use crate::columns::keys::EncodedKeys;

/// Eight rows are written where fewer may count.
const SLACK: usize = 8;

/// So few leaders may look at all rows with AVX2, since each spends ten instructions on four rows.
#[cfg(target_arch = "x86_64")]
const AVX2_LEADERS_MAX: usize = 3;

/// Buffers that are used again and again.
#[derive(Debug)]
pub(crate) struct Routed {
    rows: Vec<u32>,
    words: Vec<u64>,
    hashes: Vec<u64>,
    /// Whether hashes were wanted.
    hashed: bool,
    /// Words of a key.
    width: usize,
    /// Where each leader's rows begin and end. There are as many leaders as partitions, at most.
    starts: Box<[usize; PARTITIONS]>,
    ends: Box<[usize; PARTITIONS]>,
}

impl Default for Routed {
    fn default() -> Routed {
        let (rows, words, hashes) = Default::default();
        let (starts, ends) = (Box::new([0; PARTITIONS]), Box::new([0; PARTITIONS]));
        Routed { rows, words, hashes, hashed: false, width: 0, starts, ends }
    }
}

/// Makes a buffer at least so long.
fn make_room<T: Copy + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}

impl Routed {
    /// Sorts rows by leader; also the hashes, if `wanted`.
    pub(crate) fn sort(
        &mut self,
        leaders: &Leaders,
        rows: &[u32],
        keys: EncodedKeys<'_>,
        wanted: bool,
    ) {
        self.hashed = wanted;
        // SAFETY: the level is the processor's.
        unsafe { self.sort_at(level(), leaders, rows, keys) };
    }

    /// Sorts in the form of a level.
    ///
    /// # Safety
    /// The processor must have the level.
    unsafe fn sort_at(
        &mut self,
        level: Level,
        leaders: &Leaders,
        rows: &[u32],
        keys: EncodedKeys<'_>,
    ) {
        assert!(keys.hashes.len() == rows.len() && keys.words.len().is_multiple_of(rows.len()));
        self.width = keys.words.len() / rows.len();
        // SAFETY: the caller's promise.
        unsafe {
            match (self.width, leaders.count()) {
                (1, 1) => self.sort_few::<1>(level, leaders, rows, keys),
                (1, 2) => self.sort_few::<2>(level, leaders, rows, keys),
                (1, 3) => self.sort_few::<3>(level, leaders, rows, keys),
                (1, 4) => self.sort_few::<4>(level, leaders, rows, keys),
                (1, 5) => self.sort_few::<5>(level, leaders, rows, keys),
                (1, 6) => self.sort_few::<6>(level, leaders, rows, keys),
                (1, 7) => self.sort_few::<7>(level, leaders, rows, keys),
                (1, 8) => self.sort_few::<8>(level, leaders, rows, keys),
                // With more it does not pay that each looks at all rows.
                _ => self.sort_any(leaders, rows, keys),
            }
        }
    }

    /// Sorts rows of `N` leaders, where keys have one word. Each leader has room for all rows, so
    /// that these need not be counted first.
    ///
    /// # Safety
    /// The processor must have the level, and there must be `N` leaders.
    unsafe fn sort_few<const N: usize>(
        &mut self,
        level: Level,
        leaders: &Leaders,
        rows: &[u32],
        keys: EncodedKeys<'_>,
    ) {
        let room = rows.len() + SLACK;
        make_room(&mut self.rows, N * room);
        make_room(&mut self.words, N * room);
        if self.hashed {
            make_room(&mut self.hashes, N * room);
        }
        self.starts[..N].copy_from_slice(&std::array::from_fn::<_, N, _>(|leader| leader * room));
        self.ends[..N].copy_from_slice(&self.starts[..N]);
        // SAFETY: the caller's promise, and each leader has room for all rows and `SLACK` more.
        unsafe {
            match (level, self.hashed) {
                #[cfg(target_arch = "x86_64")]
                (Level::Avx512, false) => self.sort_avx512::<N, false>(leaders, rows, keys),
                #[cfg(target_arch = "x86_64")]
                (Level::Avx512, true) => self.sort_avx512::<N, true>(leaders, rows, keys),
                #[cfg(target_arch = "x86_64")]
                (Level::Avx2, false) if N <= AVX2_LEADERS_MAX => {
                    self.sort_avx2::<N, false>(leaders, rows, keys)
                }
                #[cfg(target_arch = "x86_64")]
                (Level::Avx2, true) if N <= AVX2_LEADERS_MAX => {
                    self.sort_avx2::<N, true>(leaders, rows, keys)
                }
                (_, false) => self.place::<false>(leaders, rows, keys),
                (_, true) => self.place::<true>(leaders, rows, keys),
            }
        }
    }

    /// Writes each row, and the one word of its key, to the next place of its leader; its hash,
    /// too, if `HASHED`.
    ///
    /// # Safety
    ///
    /// From its end on, each leader has as many places as it has rows here.
    #[inline]
    unsafe fn place<const HASHED: bool>(
        &mut self,
        leaders: &Leaders,
        rows: &[u32],
        keys: EncodedKeys<'_>,
    ) {
        let ends = &mut *self.ends;
        let (to_rows, to_words) = (self.rows.as_mut_ptr(), self.words.as_mut_ptr());
        let to_hashes = self.hashes.as_mut_ptr();
        let mut put = |row: u32, hash: u64, word: u64| {
            let leader = leaders.of(hash);
            let end = ends[leader];
            // SAFETY: the caller's promise.
            unsafe {
                to_rows.add(end).write(row);
                to_words.add(end).write(word);
                if HASHED {
                    to_hashes.add(end).write(hash);
                }
            }
            ends[leader] = end + 1;
        };
        let (row_fours, rows_rest) = rows.as_chunks::<4>();
        let (hash_fours, hashes_rest) = keys.hashes.as_chunks::<4>();
        let (word_fours, words_rest) = keys.words.as_chunks::<4>();
        for ((rows, hashes), words) in row_fours.iter().zip(hash_fours).zip(word_fours) {
            (0..4).for_each(|i| put(rows[i], hashes[i], words[i]));
        }
        for ((row, hash), word) in rows_rest.iter().zip(hashes_rest).zip(words_rest) {
            put(*row, *hash, *word);
        }
    }

    /// Sorts rows of any number of leaders, and their hashes.
    fn sort_any(&mut self, leaders: &Leaders, rows: &[u32], keys: EncodedKeys<'_>) {
        make_room(&mut self.rows, rows.len());
        make_room(&mut self.hashes, rows.len());
        make_room(&mut self.words, keys.words.len());
        let ends = &mut *self.ends;
        ends[..leaders.count()].fill(0);
        for hash in keys.hashes {
            ends[leaders.of(*hash)] += 1;
        }
        // Turns counts into beginnings; each end moves on with the rows placed.
        let mut start = 0;
        for (begins, end) in self.starts.iter_mut().zip(&mut ends[..leaders.count()]) {
            *begins = start;
            start += std::mem::replace(end, start);
        }
        if self.width == 1 {
            // SAFETY: each row is counted once above and takes one place, of as many as there are
            // rows in each of the three.
            unsafe { self.place::<true>(leaders, rows, keys) };
            return;
        }
        let width = self.width;
        for (i, (row, hash)) in rows.iter().zip(keys.hashes).enumerate() {
            let end = &mut ends[leaders.of(*hash)];
            self.rows[*end] = *row;
            self.hashes[*end] = *hash;
            let words = &keys.words[i * width..(i + 1) * width];
            self.words[*end * width..(*end + 1) * width].copy_from_slice(words);
            *end += 1;
        }
    }

    /// Eight rows at a time, of which each of `N` leaders picks its own by a permutation.
    ///
    /// # Safety
    /// As for `sort_avx512`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn sort_avx2<const N: usize, const HASHED: bool>(
        &mut self,
        leaders: &Leaders,
        rows: &[u32],
        keys: EncodedKeys<'_>,
    ) {
        use std::arch::x86_64::*;

        use millstream_cpu::fronts::{front4, front8};
        let (row_eights, rows_rest) = rows.as_chunks::<8>();
        let (hash_eights, hashes_rest) = keys.hashes.as_chunks::<8>();
        let (word_eights, words_rest) = keys.words.as_chunks::<8>();
        let low = _mm256_set1_epi32(PARTITIONS as i32 - 1);
        let beyond: [_; N] = std::array::from_fn(|leader| leaders.partitions(leader).end);
        let beyond = beyond.map(|partition| _mm256_set1_epi32(partition as i32));
        let mut ends: [usize; N] = std::array::from_fn(|leader| self.ends[leader]);
        let (to_rows, to_words) = (self.rows.as_mut_ptr(), self.words.as_mut_ptr());
        let to_hashes = self.hashes.as_mut_ptr();
        // The lanes of a mask to the front, four at a time: `SLACK` places follow the last row.
        let pick = |to: *mut u64, mask: u8, lanes: __m256i| {
            // SAFETY: the caller of the closure names places for four.
            unsafe {
                _mm256_storeu_si256(to.cast(), _mm256_permutevar8x32_epi32(lanes, front4(mask)))
            }
        };
        for ((rows, hashes), words) in row_eights.iter().zip(hash_eights).zip(word_eights) {
            // SAFETY: eight of each are read, and up to eight written from each leader's end on,
            // of which those count that belong to the leader: no more than have been read, and
            // room for eight more follows.
            unsafe {
                let rows = _mm256_loadu_si256(rows.as_ptr().cast());
                let words = words.as_ptr().cast::<__m256i>();
                let words = [_mm256_loadu_si256(words), _mm256_loadu_si256(words.add(1))];
                let hashes = hashes.as_ptr().cast::<__m256i>();
                let hashes = [_mm256_loadu_si256(hashes), _mm256_loadu_si256(hashes.add(1))];
                let four = _mm256_castsi256_ps(hashes[0]);
                let more = _mm256_castsi256_ps(hashes[1]);
                let halves = _mm256_shuffle_ps::<0b10_00_10_00>(four, more);
                let halves = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(halves));
                let partitions = _mm256_and_si256(halves, low);
                let mut before = 0;
                for leader in 0..N {
                    let below = _mm256_cmpgt_epi32(beyond[leader], partitions);
                    let below = _mm256_movemask_ps(_mm256_castsi256_ps(below)) as u8;
                    let own = if leader + 1 == N { !before } else { below ^ before };
                    before = below;
                    let end = ends[leader];
                    let middle = end + (own & 15).count_ones() as usize;
                    pick(to_words.add(end), own, words[0]);
                    pick(to_words.add(middle), own >> 4, words[1]);
                    let order = front8(own);
                    let rows = _mm256_permutevar8x32_epi32(rows, order);
                    _mm256_storeu_si256(to_rows.add(end).cast(), rows);
                    if HASHED {
                        pick(to_hashes.add(end), own, hashes[0]);
                        pick(to_hashes.add(middle), own >> 4, hashes[1]);
                    }
                    ends[leader] = end + own.count_ones() as usize;
                }
            }
        }
        self.ends[..N].copy_from_slice(&ends);
        let keys = EncodedKeys { words: words_rest, hashes: hashes_rest };
        // SAFETY: as the caller promises.
        unsafe { self.place::<HASHED>(leaders, rows_rest, keys) };
    }

    /// Eight rows at a time, of which each of `N` leaders picks its own.
    ///
    /// # Safety
    /// The processor must have the features, and there must be `N` leaders. From its end on, each
    /// leader must have places for all rows and `SLACK` more; for hashes if they are `HASHED`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,popcnt")]
    unsafe fn sort_avx512<const N: usize, const HASHED: bool>(
        &mut self,
        leaders: &Leaders,
        rows: &[u32],
        keys: EncodedKeys<'_>,
    ) {
        use std::arch::x86_64::*;
        let (row_eights, rows_rest) = rows.as_chunks::<8>();
        let (hash_eights, hashes_rest) = keys.hashes.as_chunks::<8>();
        let (word_eights, words_rest) = keys.words.as_chunks::<8>();
        let low = _mm512_set1_epi64(PARTITIONS as i64 - 1);
        let partitions: [_; N] = std::array::from_fn(|leader| leaders.partitions(leader));
        let firsts = partitions.each_ref().map(|own| _mm512_set1_epi64(own.start as i64));
        let counts = partitions.each_ref().map(|own| _mm512_set1_epi64(own.len() as i64));
        let mut ends: [usize; N] = std::array::from_fn(|leader| self.ends[leader]);
        let (to_rows, to_words) = (self.rows.as_mut_ptr(), self.words.as_mut_ptr());
        let to_hashes = self.hashes.as_mut_ptr();
        for ((rows, hashes), words) in row_eights.iter().zip(hash_eights).zip(word_eights) {
            // SAFETY: eight of each are read, and eight written for each leader, of which those
            // count that belong to it: no more than have been read, and room for eight more
            // follows.
            unsafe {
                let hashes = _mm512_loadu_epi64(hashes.as_ptr().cast());
                let words = _mm512_loadu_epi64(words.as_ptr().cast());
                let rows = _mm256_loadu_epi32(rows.as_ptr().cast());
                let own = _mm512_and_epi64(hashes, low);
                for leader in 0..N {
                    let from_first = _mm512_sub_epi64(own, firsts[leader]);
                    let own = _mm512_cmplt_epu64_mask(from_first, counts[leader]);
                    let end = ends[leader];
                    let words = _mm512_maskz_compress_epi64(own, words);
                    let rows = _mm256_maskz_compress_epi32(own, rows);
                    _mm512_storeu_epi64(to_words.add(end).cast(), words);
                    _mm256_storeu_epi32(to_rows.add(end).cast(), rows);
                    if HASHED {
                        let hashes = _mm512_maskz_compress_epi64(own, hashes);
                        _mm512_storeu_epi64(to_hashes.add(end).cast(), hashes);
                    }
                    ends[leader] = end + own.count_ones() as usize;
                }
            }
        }
        self.ends[..N].copy_from_slice(&ends);
        let keys = EncodedKeys { words: words_rest, hashes: hashes_rest };
        // SAFETY: as the caller promises.
        unsafe { self.place::<HASHED>(leaders, rows_rest, keys) };
    }

    /// The rows of one leader, and their keys, with hashes if they were wanted.
    pub(crate) fn of(&self, leader: usize) -> (&[u32], EncodedKeys<'_>) {
        let (start, end, width) = (self.starts[leader], self.ends[leader], self.width);
        let words = &self.words[start * width..end * width];
        let hashes = if self.hashed { &self.hashes[start..end] } else { &[] };
        (&self.rows[start..end], EncodedKeys { words, hashes })
    }
}

#[cfg(test)]
mod tests {
    use millstream_cpu::detected;
    use millstream_state::hash_each_word;

    use super::*;
    use crate::columns::keys::KeyBlock;

    /// Every leader gets its own rows, in their order, with their keys, for any width of keys.
    #[test]
    fn rows_go_to_their_leaders_in_order() {
        let mut routed = Routed::default();
        let words = (1..=9).chain([256]).map(|workers| (workers, 1));
        for (workers, width) in words.chain([(1, 2), (2, 2), (5, 3)]) {
            let leaders = Leaders::even(workers);
            for count in [1u32, 7, 8, 9, 300, 1000] {
                let rows: Vec<u32> = (0..count).map(|row| row * 3 + 1).collect();
                let keys: Vec<u64> = rows.iter().map(|row| u64::from(row % 97)).collect();
                let mut block = KeyBlock::default();
                block.hashes.resize(rows.len(), 0);
                hash_each_word(&keys, &mut block.hashes);
                block.words = (0..rows.len() * width).map(|i| (i as u64) << 8).collect();
                let keys = EncodedKeys { words: &block.words, hashes: &block.hashes };
                // In the forms of all levels that the processor has.
                let levels = Level::ALL.into_iter().filter(|level| *level <= detected());
                for (level, wanted) in levels.flat_map(|level| [(level, false), (level, true)]) {
                    routed.hashed = wanted;
                    // SAFETY: the processor has the level.
                    unsafe { routed.sort_at(level, &leaders, &rows, keys) };
                    for leader in 0..workers {
                        let own = |i: &usize| leaders.of(block.hashes[*i]) == leader;
                        let own: Vec<usize> = (0..rows.len()).filter(own).collect();
                        let (got, EncodedKeys { words, hashes }) = routed.of(leader);
                        assert!(got.iter().copied().eq(own.iter().map(|i| rows[*i])));
                        let hash = |i: &usize| wanted.then_some(block.hashes[*i]);
                        assert!(hashes.iter().copied().eq(own.iter().filter_map(hash)));
                        let expected = own.iter().flat_map(|i| &block.words[i * width..][..width]);
                        assert!(words.iter().eq(expected), "{workers} workers, {width} words");
                    }
                }
            }
        }
    }
}
