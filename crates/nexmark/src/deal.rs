//! Events dealt to splits: group by group, so that every split has persons, auctions and bids in
//! their proportions, and all splits go through event time together.

use std::ops::Range;

use crate::config::Config;

/// The events of one split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deal {
    group: u64,
    split: u64,
    splits: u64,
    events: u64,
}

impl Deal {
    /// Split `split` of `splits`, counted from 0.
    pub fn new(config: &Config, split: u64, splits: u64) -> Deal {
        let (group, splits) = (config.group(), splits.max(1));
        let all = config.events.unwrap_or(u64::MAX);
        let (groups, rest) = (all / group, all % group);
        let whole = groups.saturating_sub(split).div_ceil(splits);
        let last = if groups % splits == split { rest } else { 0 };
        Deal { group, split, splits, events: whole * group + last }
    }

    /// How many events it has.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The number in the stream of its event `at`, counted from 0.
    pub fn number(&self, at: u64) -> u64 {
        let group = (at / self.group).saturating_mul(self.splits).saturating_add(self.split);
        group.saturating_mul(self.group).saturating_add(at % self.group)
    }

    /// The numbers in the stream of its events `at`, as ranges.
    pub fn ranges(self, at: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut next = at.start;
        std::iter::from_fn(move || {
            let left = at.end.checked_sub(next).filter(|left| *left > 0)?;
            let first = self.number(next);
            let length = match self.splits {
                1 => left,
                _ => left.min(self.group - next % self.group),
            };
            next += length;
            Some(first..first.saturating_add(length))
        })
    }
}
