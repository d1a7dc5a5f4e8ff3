//! The free parts of a range, in units. This module only keeps account; it touches no memory.
//!
//! A run is cut from the start of the shortest free stretch that is long enough, the first one if
//! there are several. A run that is given back joins the free stretches beside it at once. So a run
//! of n units is refused only if no n free units are adjacent. Fragmentation is bounded: between k
//! runs in use there are at most k + 1 free stretches, so a refusal means that fewer than (k + 1) n
//! units are free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The free stretches of a range. No two of them touch.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Runs {
    /// Length by start.
    stretches: BTreeMap<u32, u32>,
    /// Length and start of each.
    by_length: BTreeSet<(u32, u32)>,
}

impl Runs {
    /// A range of so many units, all of them free.
    pub(crate) fn new(units: u32) -> Runs {
        let mut runs = Runs::default();
        runs.give(0, units);
        runs
    }

    /// Takes a run, and returns where it begins.
    pub(crate) fn take(&mut self, units: u32) -> Option<u32> {
        let &(length, start) = self.by_length.range((units, 0)..).next()?;
        self.cut(start, length, units);
        Some(start)
    }

    /// Takes what stands behind a run, which ends at `start`, if so many units are free there.
    pub(crate) fn take_at(&mut self, start: u32, units: u32) -> bool {
        let length = self.free_at(start);
        if length < units {
            return false;
        }
        self.cut(start, length, units);
        true
    }

    /// How many units are free from `start` on, where a run ends.
    pub(crate) fn free_at(&self, start: u32) -> u32 {
        self.stretches.get(&start).copied().unwrap_or(0)
    }

    /// Takes the beginning of a stretch.
    fn cut(&mut self, start: u32, length: u32, units: u32) {
        self.remove(start, length);
        self.insert(start + units, length - units);
    }

    /// Gives units back; returns the free stretch that they are in now.
    pub(crate) fn give(&mut self, start: u32, units: u32) -> Range<u32> {
        let (mut start, mut end) = (start, start + units);
        let before = self.stretches.range(..start).next_back().map(|(at, length)| (*at, *length));
        if let Some((at, length)) = before
            && at + length == start
        {
            self.remove(at, length);
            start = at;
        }
        if let Some(&length) = self.stretches.get(&end) {
            self.remove(end, length);
            end += length;
        }
        self.insert(start, end - start);
        start..end
    }

    fn insert(&mut self, start: u32, length: u32) {
        if length > 0 {
            self.stretches.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    fn remove(&mut self, start: u32, length: u32) {
        self.stretches.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64*.
    struct Random(u64);
    impl Random {
        fn below(&mut self, end: u32) -> u32 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) * u64::from(end)) >> 32) as u32
        }
    }

    /// Used units and held runs.
    struct Model {
        used: Vec<bool>,
        held: Vec<(u32, u32)>,
    }

    impl Model {
        fn set(&mut self, start: u32, units: u32, used: bool) {
            for unit in &mut self.used[start as usize..(start + units) as usize] {
                assert_ne!(*unit, used, "a unit is in two runs, or freed twice");
                *unit = used;
            }
        }

        /// The free stretches, as start and length.
        fn stretches(&self) -> BTreeMap<u32, u32> {
            let mut found = BTreeMap::new();
            let mut open = None;
            for (unit, used) in self.used.iter().chain([&true]).enumerate() {
                match (open, used) {
                    (None, false) => open = Some(unit),
                    (Some(start), true) => {
                        found.insert(start as u32, (unit - start) as u32);
                        open = None;
                    }
                    _ => {}
                }
            }
            found
        }

        fn any(&self, random: &mut Random) -> Option<usize> {
            (!self.held.is_empty()).then(|| random.below(self.held.len() as u32) as usize)
        }
    }

    /// For any sequence of takes and frees, runs are apart, all else is free, and a run is refused
    /// only without a place.
    #[test]
    fn runs_are_apart_and_refused_only_without_a_place() {
        let (mut refused, mut extended) = (0, 0);
        for seed in 1..=100 {
            let mut random = Random(seed);
            let total = 200 + random.below(200);
            let mut runs = Runs::new(total);
            let mut model = Model { used: vec![false; total as usize], held: Vec::new() };
            for _ in 0..500 {
                let most = [4, 20, 100][random.below(3) as usize];
                let units = 1 + random.below(most);
                match (random.below(5), model.any(&mut random)) {
                    (0, Some(i)) => {
                        let (start, had) = model.held[i];
                        let free = model.stretches().get(&(start + had)).copied().unwrap_or(0);
                        assert_eq!(runs.take_at(start + had, units), free >= units, "seed {seed}");
                        if free >= units {
                            model.set(start + had, units, true);
                            model.held[i].1 += units;
                            extended += 1;
                        }
                    }
                    (1, Some(i)) => {
                        // The end of a run.
                        let (start, had) = model.held[i];
                        let less = random.below(had).max(1);
                        if less < had {
                            runs.give(start + had - less, less);
                            model.set(start + had - less, less, false);
                            model.held[i].1 -= less;
                        }
                    }
                    (2, Some(i)) => {
                        let (start, had) = model.held.swap_remove(i);
                        model.set(start, had, false);
                        let now = runs.give(start, had);
                        let expected = model.stretches().get(&now.start).copied();
                        assert_eq!(expected, Some(now.end - now.start), "seed {seed}");
                        assert!(now.start <= start && start + had <= now.end);
                    }
                    _ => {
                        let longest = model.stretches().values().copied().max().unwrap_or(0);
                        let taken = runs.take(units);
                        assert_eq!(taken.is_some(), units <= longest, "seed {seed}: {units} units");
                        let Some(start) = taken else {
                            refused += 1;
                            let free = model.used.iter().filter(|used| !**used).count();
                            assert!(free < (model.held.len() + 1) * units as usize);
                            continue;
                        };
                        model.set(start, units, true);
                        model.held.push((start, units));
                    }
                }
                assert_eq!(runs.stretches, model.stretches(), "seed {seed}");
                let both: BTreeMap<u32, u32> =
                    runs.by_length.iter().map(|(l, s)| (*s, *l)).collect();
                assert_eq!(runs.stretches, both, "seed {seed}");
            }
            for (start, units) in model.held {
                runs.give(start, units);
            }
            assert_eq!(runs, Runs::new(total), "seed {seed}");
        }
        assert!(refused > 1000 && extended > 1000, "{refused} {extended}");
    }

    /// Runs as state has them come and go until one is refused: then little is free.
    #[test]
    fn the_range_is_well_filled_when_it_is_used_up() {
        let (total, slab) = (1 << 15, 512);
        let mut fills = Vec::new();
        for seed in 1..=20 {
            let mut random = Random(seed);
            let (mut runs, mut held, mut used) = (Runs::new(total), Vec::new(), 0_u32);
            // Chunks of a layout, those of the small logs beside them, slabs, and arenas.
            let full = 8 * (1 + random.below(16));
            loop {
                let units = match random.below(10) {
                    0 => slab,
                    1 => 1 + random.below(slab),
                    2..5 => (full >> (1 + random.below(5))).max(1),
                    _ => full,
                };
                let Some(start) = runs.take(units) else { break };
                used += units;
                held.push((start, units));
                // Two of three stay for long.
                if random.below(3) == 0 {
                    let (start, units) = held.swap_remove(random.below(held.len() as u32) as usize);
                    runs.give(start, units);
                    used -= units;
                }
            }
            fills.push(f64::from(used) / f64::from(total));
        }
        let least = fills.iter().copied().fold(1.0, f64::min);
        assert!(least > 0.85, "{fills:?}");
    }
}
