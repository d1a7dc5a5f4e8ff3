//! The oracle: the right answer at any size, by the shortest way from the definitions. It draws the
//! records, puts them into a hash map and sums up. It shares no code with the generator, the
//! verifier or the loops, except for the power in the weights of a Zipf distribution.

mod windows;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::spec::{Spec, Workload};
use crate::verify::Answer;
use crate::window::WindowKind;
use crate::zipf::inverse_power;

/// Result of a (window, key) group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Group {
    /// Records in the group.
    pub count: u64,
    /// The highest price (`nb7` only).
    pub price_max: u64,
    /// Sum of `cpu` (`cm` only). Exact: the terms are multiples of 2^-20.
    pub cpu_sum: f64,
    /// Of a single record (joins only): true for a seller; below, the seller's number.
    pub seller: bool,
    /// See [`Group::seller`].
    pub id: u64,
}

impl Group {
    fn add(&mut self, other: &Group) {
        self.count += other.count;
        self.price_max = self.price_max.max(other.price_max);
        self.cpu_sum += other.cpu_sum;
    }
}

/// A row of the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    /// When the window begins, ms; 0 where there are no windows. It may lie before time 0.
    start: i64,
    /// When it ends, where the start does not say so (windows that cumulate, and sessions).
    end: Option<i64>,
    key: u64,
    group: Group,
}

/// Hashes (window, key) faster than the standard library's default does.
#[derive(Clone)]
pub struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, x: u64) {
        let product = u128::from(self.0 ^ x) * 0xD6E8FEB86659FD93;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

/// Makes [`Fold`]s that start from one random number.
#[derive(Clone)]
pub struct BuildFold(u64);

impl BuildHasher for BuildFold {
    type Hasher = Fold;
    fn build_hasher(&self) -> Fold {
        Fold(self.0)
    }
}

/// Draws those records of `spec` that are `dealt` to a split, as their numbers and keys tell, and
/// that pass the filter: time (ms), numeric key, and what a record alone amounts to.
fn records(spec: &Spec, dealt: impl Fn(u64, u64) -> bool, mut take: impl FnMut((u64, u64, Group))) {
    let mut s: u64 = 0x9E3779B97F4A7C15u64.wrapping_mul(spec.seed);
    let mut draw = || {
        s ^= s >> 12;
        s ^= s << 25;
        s ^= s >> 27;
        s.wrapping_mul(0x2545F4914F6CDD1D)
    };
    let below = |r: u64, n: u64| ((r >> 32) * n) >> 32;
    let mut sellers = Vec::new();
    let zipf = spec.zipf.map(|zipf| Ranks::new(zipf.exponent(), spec.key_range()));
    for i in 0..spec.records {
        let mut ts = (u128::from(i) * u128::from(spec.span_ms) / u128::from(spec.records)) as u64;
        let r = draw();
        let mut key = match (&zipf, spec.workload, spec.keys.or(spec.workload.keys())) {
            (Some(ranks), ..) => ranks.key(r),
            (None, Workload::Nb7, None) => long_tail(r),
            (None, Workload::Nb7, Some(n)) => long_tail(r) % n,
            (None, _, n) => below(r, n.unwrap_or(1)),
        };
        let mut add = Group::default();
        match spec.workload {
            Workload::Ysb | Workload::YsbSmall => {
                if below(draw(), spec.event_modulus) != 0 {
                    continue;
                }
            }
            Workload::YsbStr => {
                let event_type = below(draw(), spec.event_modulus);
                if below(draw(), 100) == 0 {
                    ts = ts.saturating_sub(below(draw(), 5000));
                }
                if event_type != 0 {
                    continue;
                }
            }
            Workload::Nb7 => add.price_max = draw() >> 40,
            Workload::Cm => add.cpu_sum = (draw() >> 44) as f64 / f64::from(1 << 20),
            Workload::Ro | Workload::Nb8Count => {}
            Workload::Nb8 | Workload::Nb8Rows => {
                add.seller = i.is_multiple_of(5);
                add.id = i;
            }
            Workload::Nb11 => {
                add.seller = i.is_multiple_of(5);
                add.id = i;
                if add.seller {
                    sellers.push(key);
                } else {
                    let lately = (spec.records / 5000).max(1).min(sellers.len() as u64);
                    key = sellers[sellers.len() - 1 - below(r, lately) as usize];
                }
            }
        }
        // Only now: what is drawn for a record decides what is drawn for the next.
        if !dealt(i, key) {
            continue;
        }
        add.count = 1;
        take((ts, key, add));
    }
}

/// The groups among those records of `spec` that are `dealt` to a split, as their numbers and keys
/// tell, by window start (ms, 0 where there are no windows) and numeric key.
fn groups(spec: &Spec, dealt: impl Fn(u64, u64) -> bool) -> HashMap<(u64, u64), Group, BuildFold> {
    let mut groups = HashMap::with_hasher(BuildFold(RandomState::new().hash_one(1u64) | 1));
    let length = spec.window_ms;
    records(spec, dealt, |(ts, key, add)| {
        let window = if spec.workload == Workload::Ro { 0 } else { ts - ts % length };
        let group: &mut Group = groups.entry((window, key)).or_default();
        group.add(&add);
    });
    groups
}

/// The answer to `spec`.
pub fn oracle(spec: &Spec) -> Answer {
    answer(spec, |_, _| true)
}

/// The answer to `spec` over the records of each of `splits` splits alone: record `i` is in split
/// `i % splits`, of a join in split `key % splits`. Otherwise than in a join, a key that appears in
/// several of them has a row in each.
pub fn oracle_by_split(spec: &Spec, splits: usize) -> Vec<Answer> {
    let splits = splits.max(1) as u64;
    let by_key = spec.workload.is_join();
    let split_of = |i, key| if by_key { key % splits } else { i % splits };
    (0..splits).map(|split| answer(spec, |i, key| split_of(i, key) == split)).collect()
}

/// Hands over the rows of the answer, in any order.
fn rows(spec: &Spec, dealt: impl Fn(u64, u64) -> bool, mut take: impl FnMut(Row)) {
    if spec.workload == Workload::Nb11 {
        return session_pairs(spec, dealt, take);
    }
    if spec.workload.is_join() {
        return pairs(spec, dealt, take);
    }
    match spec.windows {
        WindowKind::Tumble => {
            for ((start, key), group) in groups(spec, dealt) {
                take(Row { start: start as i64, end: None, key, group });
            }
        }
        _ => windows::rows(spec, dealt, take),
    }
}

/// The rows of `nb8`: each auction as often as there are sellers of its key in its window.
fn pairs(spec: &Spec, dealt: impl Fn(u64, u64) -> bool, mut take: impl FnMut(Row)) {
    let hasher = || BuildFold(RandomState::new().hash_one(1u64) | 1);
    let mut sellers: HashMap<(u64, u64), u64, BuildFold> = HashMap::with_hasher(hasher());
    let mut auctions = Vec::new();
    records(spec, dealt, |(ts, key, add)| {
        let start = ts - ts % spec.window_ms;
        match add.seller {
            true => *sellers.entry((start, key)).or_default() += 1,
            false => auctions.push((start, key, add)),
        }
    });
    for (start, key, group) in auctions {
        for _ in 0..sellers.get(&(start, key)).copied().unwrap_or(0) {
            take(Row { start: start as i64, end: None, key, group });
        }
    }
}

/// The rows of `nb11`: each bid as often as there are sellers in its session, which consists of
/// those bids and sellers of a key that come at most a gap after one another.
fn session_pairs(spec: &Spec, dealt: impl Fn(u64, u64) -> bool, mut take: impl FnMut(Row)) {
    let hasher = BuildFold(RandomState::new().hash_one(1u64) | 1);
    let mut by_key: HashMap<u64, Vec<(u64, Group)>, BuildFold> = HashMap::with_hasher(hasher);
    // They come in the order of time.
    records(spec, dealt, |(ts, key, group)| by_key.entry(key).or_default().push((ts, group)));
    for (key, records) in by_key {
        for session in records.chunk_by(|a, b| b.0 - a.0 <= spec.window_ms) {
            let (start, last) = (session[0].0 as i64, session[session.len() - 1].0);
            let end = Some((last + spec.window_ms) as i64);
            let sellers = session.iter().filter(|(_, group)| group.seller).count();
            for (_, group) in session.iter().filter(|(_, group)| !group.seller) {
                (0..sellers).for_each(|_| take(Row { start, end, key, group: *group }));
            }
        }
    }
}

fn answer(spec: &Spec, dealt: impl Fn(u64, u64) -> bool) -> Answer {
    let mut answer = Answer::default();
    let mut averages = Vec::new();
    rows(spec, dealt, |Row { start, end, key, group }| {
        let window = start as u64;
        let value = match spec.workload {
            Workload::Nb7 => group.price_max,
            Workload::Nb8 | Workload::Nb8Rows | Workload::Nb11 => group.id,
            _ => group.count,
        };
        answer.result_rows += 1;
        let weak = key.wrapping_mul(31).wrapping_add(window.wrapping_mul(17)).wrapping_add(value);
        answer.checksum = answer.checksum.wrapping_add(weak);
        let bounds = match end {
            Some(end) => finish(window.wrapping_add(finish(end as u64))),
            None => window,
        };
        let row = finish(key.wrapping_add(finish(bounds.wrapping_add(finish(value)))));
        answer.mix = answer.mix.wrapping_add(row);
        if spec.workload == Workload::Cm {
            averages.push(group.cpu_sum / group.count as f64);
        }
    });
    if spec.workload == Workload::Cm {
        // In order of size, so that the hash map's order does not show in the last digits.
        averages.sort_by(f64::total_cmp);
        answer.avg_sum = Some(averages.iter().sum());
    }
    answer
}

/// A Zipf distribution of keys.
struct Ranks {
    /// For each rank the weights of all ranks up to it.
    sums: Vec<u64>,
    /// Every `STEP`th of them, which a near cache holds.
    steps: Vec<u64>,
}

impl Ranks {
    const STEP: usize = 64;

    fn new(z: f64, keys: u64) -> Ranks {
        let powers: Vec<f64> = (1..=keys).map(|rank| inverse_power(rank, z)).collect();
        let harmonic: f64 = powers.iter().fold(0.0, |sum, power| sum + power);
        let bits = (0..=62).rev().find(|bits| harmonic * 2f64.powi(*bits) <= 2f64.powi(62));
        let unit = 2f64.powi(bits.unwrap_or(0));
        let mut sum = 0;
        let mut add = |power: f64| {
            sum += (power * unit).floor() as u64;
            sum
        };
        let sums: Vec<u64> = powers.into_iter().map(&mut add).collect();
        let steps = sums.iter().copied().step_by(Ranks::STEP).collect();
        Ranks { sums, steps }
    }

    /// The key of the rank at which the draw `r` falls.
    fn key(&self, r: u64) -> u64 {
        let total = u128::from(*self.sums.last().unwrap_or(&0));
        let point = (u128::from(r) * total / (1 << 64)) as u64;
        // Of ranks with the weight 0, which have the same sum, the first that is beyond it.
        let before =
            self.steps.partition_point(|sum| *sum <= point).saturating_sub(1) * Ranks::STEP;
        let here = &self.sums[before..self.sums.len().min(before + Ranks::STEP)];
        let rank = before + here.partition_point(|sum| *sum <= point);
        (rank as u64 * 0x9E3779B1 + 0x9E3779B9) % self.sums.len() as u64
    }
}

/// A power-law draw.
fn long_tail(r: u64) -> u64 {
    let u = r >> 32;
    let u2 = (u * u) >> 32;
    let u4 = (u2 * u2) >> 32;
    let u5 = (u4 * u) >> 32;
    ((u5 >> 12) * 0x9E3779B1) & 0xFFFFF
}

/// The finaliser of splitmix64.
fn finish(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58476D1CE4E5B9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94D049BB133111EB);
    x ^ (x >> 31)
}
