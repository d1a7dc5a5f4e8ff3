//! Routing: the positions of a batch's rows, sorted by receiver; the rows of each receiver keep
//! their order.

#[cfg(target_arch = "x86_64")]
use millstream_cpu::{Level, level};
use millstream_state::{Leaders, PARTITIONS};

/// Positions that are written where fewer may count.
const SLACK: usize = 16;

/// Positions of a group of keys by receiver. The buffers are used again and again.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Room for all positions for each receiver.
    positions: Vec<u32>,
    /// How far a receiver's positions are from the one's before.
    stride: usize,
    counts: Vec<usize>,
}

/// Up to so many receivers it is worth it that each looks at all keys, a vector at a time.
#[cfg(target_arch = "x86_64")]
const AVX512_RECEIVERS_MAX: usize = 10;
#[cfg(target_arch = "x86_64")]
const AVX2_RECEIVERS_MAX: usize = 4;

impl Routes {
    /// Sorts the positions of keys with these hashes by the receivers that lead them.
    pub(crate) fn sort(&mut self, receivers: &Leaders, hashes: &[u64]) {
        self.begin(receivers.count(), hashes.len());
        #[cfg(target_arch = "x86_64")]
        {
            if receivers.count() <= AVX512_RECEIVERS_MAX && level() >= Level::Avx512 {
                // SAFETY: the processor has the level, and there is room.
                return unsafe { self.sort_avx512(receivers, hashes) };
            }
            if receivers.count() <= AVX2_RECEIVERS_MAX && level() >= Level::Avx2 {
                // SAFETY: as above.
                return unsafe { self.sort_avx2(receivers, hashes) };
            }
        }
        self.sort_plain(receivers, hashes, 0);
    }

    /// Gives all of so many keys to the only receiver.
    pub(crate) fn all_to_one(&mut self, keys: usize) {
        self.begin(1, keys);
        for (position, place) in self.positions[..keys].iter_mut().enumerate() {
            *place = position as u32;
        }
        self.counts[0] = keys;
    }

    fn begin(&mut self, receivers: usize, keys: usize) {
        self.stride = keys + SLACK;
        // In pairs: the last receiver may have a dummy partner.
        self.positions.resize(receivers.next_multiple_of(2) * self.stride, 0);
        self.counts.clear();
        self.counts.resize(receivers, 0);
    }

    /// Goes on with the key at `first`.
    fn sort_plain(&mut self, receivers: &Leaders, hashes: &[u64], first: usize) {
        let room = self.counts.len() * self.stride;
        assert!(self.positions.len() >= room && self.stride >= hashes.len());
        // As many as there may be receivers, so that no index has to be checked.
        let mut ends = [0; PARTITIONS];
        for (receiver, (end, count)) in ends.iter_mut().zip(&self.counts).enumerate() {
            *end = receiver * self.stride + count;
        }
        let positions = self.positions.as_mut_ptr();
        let mut put = |position: usize, hash: u64| {
            let end = &mut ends[receivers.of(hash)];
            // SAFETY: `begin` has made room for all of these positions for each receiver.
            unsafe { *positions.add(*end) = position as u32 };
            *end += 1;
        };
        let (fours, rest) = hashes[first..].as_chunks::<4>();
        let mut position = first;
        for hashes in fours {
            hashes.iter().enumerate().for_each(|(i, hash)| put(position + i, *hash));
            position += 4;
        }
        rest.iter().enumerate().for_each(|(i, hash)| put(position + i, *hash));
        for (receiver, (count, end)) in self.counts.iter_mut().zip(ends).enumerate() {
            *count = end - receiver * self.stride;
        }
    }

    /// # Safety
    /// The processor must have the features, and [`Routes::begin`] must have made room.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,popcnt")]
    unsafe fn sort_avx512(&mut self, receivers: &Leaders, hashes: &[u64]) {
        use std::arch::x86_64::*;
        let (sixteens, _) = hashes.as_chunks::<16>();
        let low = _mm512_set1_epi32(PARTITIONS as i32 - 1);
        let lower_halves =
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for receiver in 0..receivers.count() {
            let partitions = receivers.partitions(receiver);
            let first = _mm512_set1_epi32(partitions.start as i32);
            let count = _mm512_set1_epi32(partitions.len() as i32);
            let start = self.positions[receiver * self.stride..].as_mut_ptr();
            let (mut end, mut positions) = (start, lanes);
            for hashes in sixteens {
                // SAFETY: sixteen hashes are read, and sixteen positions written, of which those
                // count that are of this receiver's keys: no more than there were hashes, and
                // `SLACK` places follow.
                unsafe {
                    let eight = _mm512_loadu_epi64(hashes.as_ptr().cast());
                    let next = _mm512_loadu_epi64(hashes.as_ptr().add(8).cast());
                    let halves = _mm512_permutex2var_epi32(eight, lower_halves, next);
                    let from_first = _mm512_sub_epi32(_mm512_and_epi32(halves, low), first);
                    let own = _mm512_cmplt_epu32_mask(from_first, count);
                    let picked = _mm512_maskz_compress_epi32(own, positions);
                    _mm512_storeu_epi32(end.cast(), picked);
                    end = end.add(own.count_ones() as usize);
                }
                positions = _mm512_add_epi32(positions, _mm512_set1_epi32(16));
            }
            // SAFETY: both are in the same allocation.
            self.counts[receiver] = unsafe { end.offset_from(start) } as usize;
        }
        self.sort_plain(receivers, hashes, sixteens.len() * 16);
    }

    /// Two receivers at a time.
    ///
    /// # Safety
    /// As for `sort_avx512`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    unsafe fn sort_avx2(&mut self, receivers: &Leaders, hashes: &[u64]) {
        // SAFETY: as the caller promises.
        unsafe {
            if receivers.count() == 2 {
                self.sort_two_avx2::<true>(receivers, hashes, 0);
            } else {
                for receiver in (0..receivers.count()).step_by(2) {
                    self.sort_two_avx2::<false>(receivers, hashes, receiver);
                }
            }
        }
        self.sort_plain(receivers, hashes, hashes.len() / 8 * 8);
    }

    /// A receiver and the next, if there is one; `ALL`: there are no others.
    ///
    /// # Safety
    /// As for `sort_avx512`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    unsafe fn sort_two_avx2<const ALL: bool>(
        &mut self,
        receivers: &Leaders,
        hashes: &[u64],
        receiver: usize,
    ) {
        use std::arch::x86_64::*;

        use millstream_cpu::fronts::front8;
        let two = receiver + 1 < receivers.count();
        let own = receivers.partitions(receiver);
        let end_of_next = if two { receivers.partitions(receiver + 1).end } else { own.end };
        let low = _mm256_set1_epi32(PARTITIONS as i32 - 1);
        let (own_start, own_end) =
            (_mm256_set1_epi32(own.start as i32), _mm256_set1_epi32(own.end as i32));
        let end_of_next = _mm256_set1_epi32(end_of_next as i32);
        assert!(self.positions.len() >= (receiver + 2) * self.stride);
        // SAFETY: both are within the positions.
        let (start, start_of_next) = unsafe {
            let start = self.positions.as_mut_ptr().add(receiver * self.stride);
            (start, start.add(self.stride))
        };
        let (mut end, mut next) = (start, start_of_next);
        let mut base = _mm256_setzero_si256();
        let mask_of = |lanes| _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u8;
        for hashes in hashes.as_chunks::<8>().0 {
            // SAFETY: eight hashes are read, and for both receivers eight positions written, of
            // which those count that are of its keys: no more than there were hashes, and `SLACK`
            // places follow.
            unsafe {
                let four = _mm256_loadu_ps(hashes.as_ptr().cast());
                let more = _mm256_loadu_ps(hashes.as_ptr().add(4).cast());
                // The lower halves of the hashes: 0, 1, 4, 5, 2, 3, 6, 7, then in order.
                let halves = _mm256_castps_pd(_mm256_shuffle_ps::<0b10_00_10_00>(four, more));
                let halves = _mm256_permute4x64_pd::<0b11_01_10_00>(halves);
                let partition = _mm256_and_si256(_mm256_castpd_si256(halves), low);
                let before_end = mask_of(_mm256_cmpgt_epi32(own_end, partition));
                let (own, others) = if ALL {
                    (before_end, before_end ^ 0xff)
                } else {
                    let before_start = mask_of(_mm256_cmpgt_epi32(own_start, partition));
                    let before_next = mask_of(_mm256_cmpgt_epi32(end_of_next, partition));
                    (before_end ^ before_start, before_next ^ before_end)
                };
                _mm256_storeu_si256(next.cast(), _mm256_add_epi32(base, front8(others)));
                next = next.add(others.count_ones() as usize);
                _mm256_storeu_si256(end.cast(), _mm256_add_epi32(base, front8(own)));
                end = end.add(own.count_ones() as usize);
            }
            base = _mm256_add_epi32(base, _mm256_set1_epi32(8));
        }
        // SAFETY: each pair is in the same allocation.
        unsafe {
            self.counts[receiver] = end.offset_from(start) as usize;
            if two {
                self.counts[receiver + 1] = next.offset_from(start_of_next) as usize;
            }
        }
    }

    /// The positions of one receiver's keys, ascending.
    pub(crate) fn of(&self, receiver: usize) -> &[u32] {
        &self.positions[receiver * self.stride..][..self.counts[receiver]]
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use millstream_cpu::detected;
    use millstream_state::hash_words;

    use super::*;

    /// On every kind of processor each receiver gets the positions of its own keys, in their order.
    #[test]
    fn positions_go_to_their_receivers_in_order() {
        let mut routes = Routes::default();
        for receivers in [1, 2, 3, 5, 8, 9, 11, 100, 256] {
            let receivers = Leaders::even(receivers);
            for keys in [0, 1, 7, 8, 9, 100, 1001] {
                let hashes: Vec<u64> = (0..keys).map(|key| hash_words(&[key, 3])).collect();
                let mut check = |sort: &dyn Fn(&mut Routes)| {
                    routes.begin(receivers.count(), hashes.len());
                    sort(&mut routes);
                    for receiver in 0..receivers.count() {
                        let own = |i: &u32| receivers.of(hashes[*i as usize]) == receiver;
                        let own: Vec<u32> = (0..hashes.len() as u32).filter(own).collect();
                        assert_eq!(routes.of(receiver), own, "{} receivers", receivers.count());
                    }
                };
                check(&|routes| routes.sort(&receivers, &hashes));
                check(&|routes| routes.sort_plain(&receivers, &hashes, 0));
                #[cfg(target_arch = "x86_64")]
                {
                    if detected() >= Level::Avx2 {
                        // SAFETY: the processor has the features, and there is room.
                        check(&|routes| unsafe { routes.sort_avx2(&receivers, &hashes) });
                    }
                    if detected() >= Level::Avx512 {
                        // SAFETY: as above.
                        check(&|routes| unsafe { routes.sort_avx512(&receivers, &hashes) });
                    }
                }
                if receivers.count() == 1 {
                    check(&|routes| routes.all_to_one(hashes.len()));
                }
            }
        }
    }
}
