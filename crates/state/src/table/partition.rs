//! The partitions of the key space, and their leaders (paper, section 7.1.2).

use std::ops::Range;

/// Number of partitions, fixed for good: leaders own sets of them, so the number of workers can
/// change while a key's partition cannot.
pub const PARTITIONS: usize = 256;

/// The partition of a key: the low bits of its hash (the index uses the high ones).
#[inline(always)]
pub fn partition_of(hash: u64) -> usize {
    (hash & (PARTITIONS as u64 - 1)) as usize
}

/// Leader of each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaders {
    leader: Box<[u8; PARTITIONS]>,
    workers: usize,
}

impl Leaders {
    /// Spreads the partitions evenly, in contiguous runs.
    ///
    /// # Panics
    /// If `workers` is not between 1 and 256.
    pub fn even(workers: usize) -> Leaders {
        assert!((1..=PARTITIONS).contains(&workers), "1 to {PARTITIONS} workers");
        let mut leader = Box::new([0u8; PARTITIONS]);
        for (partition, l) in leader.iter_mut().enumerate() {
            *l = (partition * workers / PARTITIONS) as u8;
        }
        Leaders { leader, workers }
    }

    /// The worker that leads the partition of `hash`.
    #[inline(always)]
    pub fn of(&self, hash: u64) -> usize {
        usize::from(self.leader[partition_of(hash)])
    }

    /// The partitions that `leader` leads.
    pub fn partitions(&self, leader: usize) -> Range<usize> {
        let first = |leader: usize| (leader * PARTITIONS).div_ceil(self.workers);
        first(leader)..first(leader + 1)
    }

    /// Number of leaders.
    pub fn count(&self) -> usize {
        self.workers
    }

    /// The keys that `leader` leads.
    pub fn own(&self, leader: usize) -> Own<'_> {
        Own { leader: &self.leader, own: leader as u8 }
    }
}

/// The keys of one leader.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    leader: &'a [u8; PARTITIONS],
    own: u8,
}

impl Own<'_> {
    /// Whether a key with this hash is one of them.
    #[inline(always)]
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.leader[partition_of(hash)] == self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leader_has_its_share() {
        for workers in [1, 2, 3, 4, 7, 256] {
            let leaders = Leaders::even(workers);
            let mut share = vec![0; workers];
            (0..256u64).for_each(|h| share[leaders.of(h)] += 1);
            for hash in 0..256 {
                let own = |leader: &usize| leaders.partitions(*leader).contains(&(hash as usize));
                assert!((0..workers).filter(own).eq([leaders.of(hash)]));
            }
            let (min, max) = (share.iter().min().unwrap(), share.iter().max().unwrap());
            assert!(max - min <= 1, "{share:?}");
        }
    }
}
