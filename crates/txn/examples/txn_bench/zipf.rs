//! Keys with a Zipfian skew, and partitions of keys.

use millstream_txn::pat_partition;

/// xorshift64*.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// From 0 to less than 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, of: f64) -> bool {
        self.unit() < of
    }
}

/// Ranks from 0: rank r comes up in proportion to 1 / (r + 1)^theta. The method of Gray et al.,
/// *Quickly generating billion-record synthetic databases* (SIGMOD 1994), as YCSB uses it.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    ranks: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// `theta` is at least 0 and less than 1; 0 is uniform.
    pub(crate) fn new(ranks: u64, theta: f64) -> Zipf {
        assert!(ranks > 0 && (0.0..1.0).contains(&theta), "ranks, and a theta from 0 to below 1");
        let zeta_of = |ranks: u64| (1..=ranks).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let zeta = zeta_of(ranks);
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Zipf { ranks, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        if self.theta == 0.0 || self.ranks < 3 {
            return random.below(self.ranks);
        }
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let rank = self.ranks as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.ranks - 1)
    }
}

/// Draws sets of distinct keys of one table.
#[derive(Debug, Clone)]
pub(crate) struct KeyChooser {
    /// Keys of each partition; one list if there are no partitions.
    partitions: Vec<Vec<u64>>,
    zipfs: Vec<Zipf>,
    /// Share of sets that spread over several partitions, and over how many.
    multi: f64,
    spread: usize,
}

/// How keys are drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Skew {
    pub(crate) keys: u64,
    pub(crate) theta: f64,
    /// Partitions of PAT; 0: keys are drawn from all.
    pub(crate) partitions: usize,
    pub(crate) multi: f64,
    pub(crate) spread: usize,
}

impl KeyChooser {
    pub(crate) fn new(skew: Skew) -> KeyChooser {
        let count = skew.partitions.max(1);
        let mut partitions = vec![Vec::new(); count];
        for key in 0..skew.keys {
            let partition = if count == 1 { 0 } else { pat_partition(&[key], count) };
            partitions[partition].push(key);
        }
        // Neighbouring ranks are not neighbours in the table.
        for keys in &mut partitions {
            keys.sort_by_key(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        }
        let zipfs = partitions.iter().map(|keys| Zipf::new(keys.len() as u64, skew.theta));
        let (zipfs, spread) = (zipfs.collect(), skew.spread.clamp(1, count));
        KeyChooser { partitions, zipfs, multi: skew.multi, spread }
    }

    /// Fills `keys` with distinct keys.
    pub(crate) fn draw(&self, random: &mut Random, keys: &mut [u64]) {
        let count = self.partitions.len() as u64;
        let first = random.below(count) as usize;
        let is_spread = count > 1 && random.chance(self.multi);
        for at in 0..keys.len() {
            let partition = match is_spread {
                true => (first + at % self.spread) % count as usize,
                false => first,
            };
            loop {
                let rank = self.zipfs[partition].rank(random) as usize;
                let key = self.partitions[partition][rank];
                if !keys[..at].contains(&key) {
                    keys[at] = key;
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_fall_as_the_law_says() {
        for theta in [0.0, 0.6, 0.8, 0.99] {
            let (zipf, draws) = (Zipf::new(1000, theta), 400_000);
            let mut random = Random::new(7);
            let mut counts = vec![0_u32; 1000];
            (0..draws).for_each(|_| counts[zipf.rank(&mut random) as usize] += 1);
            let zeta: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
            let expected = |ranks: std::ops::Range<u32>| {
                ranks.map(|rank| f64::from(rank + 1).powf(-theta)).sum::<f64>() / zeta
            };
            for ranks in [0..1, 1..2, 2..10, 10..100, 100..1000] {
                let drawn: u32 = ranks.clone().map(|rank| counts[rank as usize]).sum();
                let (share, law) = (f64::from(drawn) / f64::from(draws), expected(ranks.clone()));
                assert!((share / law - 1.0).abs() < 0.2, "{theta} {ranks:?}: {share}, {law}");
            }
        }
    }

    #[test]
    fn sets_keep_to_their_partitions() {
        let skew = Skew { keys: 5000, theta: 0.6, partitions: 10, multi: 0.5, spread: 6 };
        let (chooser, mut random) = (KeyChooser::new(skew), Random::new(3));
        let all: usize = chooser.partitions.iter().map(Vec::len).sum();
        assert_eq!(all, 5000, "every key is in a partition");
        let mut by_count = [0; 11];
        for _ in 0..4000 {
            let mut keys = [0; 6];
            chooser.draw(&mut random, &mut keys);
            let mut partitions = keys.map(|key| pat_partition(&[key], 10)).to_vec();
            partitions.sort_unstable();
            partitions.dedup();
            by_count[partitions.len()] += 1;
            let mut distinct = keys.to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 6);
        }
        assert_eq!(by_count[1] + by_count[6], 4000);
        assert!((1800..2200).contains(&by_count[6]), "{by_count:?}");
    }
}
