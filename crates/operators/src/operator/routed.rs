//! Rows with their keys, sorted by leader; each leader's rows keep their order.

use millstream_state::{Leaders, PARTITIONS};

use crate::columns::keys::EncodedKeys;

/// Eight rows are written where fewer may count.
const SLACK: usize = 8;

/// So few leaders have room for all rows each, so that these need not be counted first.
const FEW_LEADERS: usize = 8;

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
        assert!(keys.hashes.len() == rows.len() && keys.words.len().is_multiple_of(rows.len()));
        self.width = keys.words.len() / rows.len();
        self.hashed = wanted;
        #[cfg(target_arch = "x86_64")]
        if self.width == 1
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("popcnt")
        {
            // SAFETY: the features have been detected.
            unsafe {
                match leaders.count() {
                    2 => return self.sort_words::<2>(leaders, rows, keys),
                    3 => return self.sort_words::<3>(leaders, rows, keys),
                    4 => return self.sort_words::<4>(leaders, rows, keys),
                    5 => return self.sort_words::<5>(leaders, rows, keys),
                    6 => return self.sort_words::<6>(leaders, rows, keys),
                    7 => return self.sort_words::<7>(leaders, rows, keys),
                    8 => return self.sort_words::<8>(leaders, rows, keys),
                    // With more it does not pay that each looks at all rows.
                    _ => {}
                }
            }
        }
        if self.width == 1 && leaders.count() <= FEW_LEADERS {
            return match wanted {
                true => self.sort_few::<true>(leaders, rows, keys),
                false => self.sort_few::<false>(leaders, rows, keys),
            };
        }
        make_room(&mut self.rows, rows.len());
        make_room(&mut self.hashes, rows.len());
        make_room(&mut self.words, keys.words.len());
        self.sort_any(leaders, rows, keys);
    }

    /// Sorts rows by leader where keys have one word; their hashes, too, if `HASHED`.
    fn sort_few<const HASHED: bool>(
        &mut self,
        leaders: &Leaders,
        rows: &[u32],
        keys: EncodedKeys<'_>,
    ) {
        let room = leaders.count() * rows.len();
        make_room(&mut self.rows, room);
        make_room(&mut self.words, room);
        if HASHED {
            make_room(&mut self.hashes, room);
        }
        let ends = &mut *self.ends;
        let places = self.starts.iter_mut().zip(&mut ends[..leaders.count()]);
        for (leader, (start, end)) in places.enumerate() {
            (*start, *end) = (leader * rows.len(), leader * rows.len());
        }
        // SAFETY: each leader has places for all rows, of which each takes one.
        unsafe { self.place::<HASHED>(leaders, rows, keys) };
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
        for ((row, hash), word) in rows.iter().zip(keys.hashes).zip(keys.words) {
            let end = &mut ends[leaders.of(*hash)];
            // SAFETY: the caller's promise.
            unsafe {
                to_rows.add(*end).write(*row);
                to_words.add(*end).write(*word);
                if HASHED {
                    to_hashes.add(*end).write(*hash);
                }
            }
            *end += 1;
        }
    }

    fn sort_any(&mut self, leaders: &Leaders, rows: &[u32], keys: EncodedKeys<'_>) {
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

    /// Sorts rows by leader where keys have one word.
    ///
    /// # Safety
    /// The processor must have the features, and there must be `N` leaders.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,popcnt")]
    unsafe fn sort_words<const N: usize>(
        &mut self,
        leaders: &Leaders,
        rows: &[u32],
        keys: EncodedKeys<'_>,
    ) {
        let room = N * (rows.len() + SLACK);
        make_room(&mut self.rows, room);
        make_room(&mut self.words, room);
        // SAFETY: there is room now; the rest is for whoever calls to see to.
        unsafe {
            if self.hashed {
                make_room(&mut self.hashes, room);
                self.sort_words_avx512::<N, true>(leaders, rows, keys);
            } else {
                self.sort_words_avx512::<N, false>(leaders, rows, keys);
            }
        }
    }

    /// Eight rows at a time, of which each of `N` leaders picks its own.
    ///
    /// # Safety
    /// The processor must have the features, and there must be `N` leaders. The outputs must have
    /// places for all rows and `SLACK` more for each leader, that of the hashes if they are
    /// `HASHED`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,popcnt")]
    unsafe fn sort_words_avx512<const N: usize, const HASHED: bool>(
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
        let starts: [usize; N] = std::array::from_fn(|leader| leader * (rows.len() + SLACK));
        let mut ends = starts;
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
        for ((row, hash), word) in rows_rest.iter().zip(hashes_rest).zip(words_rest) {
            let end = &mut ends[leaders.of(*hash)];
            (self.rows[*end], self.words[*end]) = (*row, *word);
            if HASHED {
                self.hashes[*end] = *hash;
            }
            *end += 1;
        }
        self.starts[..N].copy_from_slice(&starts);
        self.ends[..N].copy_from_slice(&ends);
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
    use millstream_state::hash_each_word;

    use super::*;
    use crate::columns::keys::KeyBlock;

    /// Every leader gets its own rows, in their order, with their keys, for any width of keys.
    #[test]
    fn rows_go_to_their_leaders_in_order() {
        let mut routed = Routed::default();
        for (workers, width) in [(2, 1), (3, 1), (8, 1), (9, 1), (256, 1), (2, 2), (5, 3)] {
            let leaders = Leaders::even(workers);
            for count in [1u32, 7, 8, 9, 300, 1000] {
                let rows: Vec<u32> = (0..count).map(|row| row * 3 + 1).collect();
                let keys: Vec<u64> = rows.iter().map(|row| u64::from(row % 97)).collect();
                let mut block = KeyBlock::default();
                block.hashes.resize(rows.len(), 0);
                hash_each_word(&keys, &mut block.hashes);
                block.words = (0..rows.len() * width).map(|i| (i as u64) << 8).collect();
                let keys = EncodedKeys { words: &block.words, hashes: &block.hashes };
                let wanted = count % 2 == 0;
                // Also as a processor without such vectors does it.
                for portable in [false, true] {
                    match (portable && width == 1 && workers <= FEW_LEADERS, wanted) {
                        (false, _) => routed.sort(&leaders, &rows, keys, wanted),
                        (true, true) => routed.sort_few::<true>(&leaders, &rows, keys),
                        (true, false) => routed.sort_few::<false>(&leaders, &rows, keys),
                    }
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
