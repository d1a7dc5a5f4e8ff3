//! Turns of splits.
//!
//! A worker takes of its own splits as long as they are about as far as the other splits, and among
//! its own the split that is least far. Splits more than a window ahead of other splits come last,
//! or a job of many splits would open many windows at once.

use super::split::SplitState;
use super::{Admitted, Intake, IntakeState};
use millstream_operators::event_time::{BEGINNING, END};

/// The least comes first: distance of the source's turn; distance beyond a window ahead; whether
/// another worker reads the split; its watermark, and the number of its stamped chunks.
type Rank = (usize, i64, bool, i64, u64);

/// A split to read.
pub(super) struct ToRead {
    pub(super) split: usize,
    /// Whether the split is more than a window ahead of others, which then have their turn first.
    pub(super) is_ahead: bool,
}

/// Which batches are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// Of splits that are no more than a window ahead of others.
    Near,
    /// Of any split.
    Any,
}

impl Intake {
    /// Whether a split may go on.
    pub(super) fn may_go_on(
        &self,
        state: &IntakeState,
        split: usize,
        admitted: &[Admitted],
    ) -> bool {
        let source = self.splits[split].source;
        match &admitted[source] {
            Admitted::Nothing => false,
            // All others wait for a chunk that has been begun.
            _ if state.cut.awaits(split, state.splits[split].next()) => true,
            Admitted::All => true,
            Admitted::Lowest => state.splits[split].low() <= self.low_of_group(state, source),
            Admitted::Awaited(splits) => splits.contains(&split),
        }
    }

    /// Splits in the order in which a worker reads them.
    pub(super) fn to_read(&self, worker: usize) -> Vec<ToRead> {
        let state = self.lock();
        let goes_on = |s: &SplitState| !s.ended && !s.elsewhere;
        if state.splits.len() == 1 {
            let only = ToRead { split: 0, is_ahead: false };
            return if goes_on(&state.splits[0]) { vec![only] } else { Vec::new() };
        }
        let lows = self.lows_of_groups(&state);
        let splits = (0..state.splits.len()).filter(|split| goes_on(&state.splits[*split]));
        let mut splits: Vec<_> =
            splits.map(|split| (self.rank(&state, &lows, worker, split), split)).collect();
        splits.sort_unstable();
        let to_read = |(rank, split): (Rank, usize)| ToRead { split, is_ahead: rank.1 > 0 };
        splits.into_iter().map(to_read).collect()
    }

    /// The split whose batch a worker takes next, of those that have one and may go on.
    pub(super) fn next_ready(
        &self,
        state: &IntakeState,
        worker: usize,
        admitted: &[Admitted],
        taking: Taking,
    ) -> Option<usize> {
        let mut ready = (0..state.splits.len())
            .filter(|split| {
                let front = state.splits[*split].ready.front();
                front.is_some_and(|batch| batch.sequence < state.cut.limit(*split))
            })
            .filter(|split| self.may_go_on(state, *split, admitted));
        let first = ready.next()?;
        let mut rest = ready.peekable();
        if state.splits.len() == 1 || taking == Taking::Any && rest.peek().is_none() {
            return Some(first);
        }
        let lows = self.lows_of_groups(state);
        let ranked = [first].into_iter().chain(rest);
        let ranked = ranked.map(|split| (self.rank(state, &lows, worker, split), split));
        let (rank, split) = ranked.min()?;
        // Splits that alone may go on do not wait for other splits.
        let chosen = admitted[self.splits[split].source] != Admitted::All;
        (rank.1 == 0 || chosen || taking == Taking::Any).then_some(split)
    }

    /// By group: where the least of its splits is that does not wait for its source.
    fn lows_of_groups(&self, state: &IntakeState) -> Vec<i64> {
        let mut lows = vec![END; self.sources.len()];
        for (split, s) in self.splits.iter().zip(&state.splits) {
            let waits = s.pending && s.outstanding() == 0;
            if !waits && !s.exhausted() {
                let low = &mut lows[self.sources[split.source].group];
                *low = (*low).min(s.low());
            }
        }
        lows
    }

    fn rank(&self, state: &IntakeState, lows: &[i64], worker: usize, split: usize) -> Rank {
        let s = &state.splits[split];
        let source = self.splits[split].source;
        let of = &self.sources[source];
        // Groups take turns; so do sources for which it does not matter how far they are.
        let class = of.reach_us().map_or(source, |_| of.group);
        let classes = self.sources.len();
        let turn = (class + classes - state.turns[worker] % classes) % classes;
        let (ahead, low) = match of.reach_us() {
            Some(reach) => {
                let (low, least) = (s.low(), lows[of.group]);
                let ahead = match least {
                    // Without a beginning, the split's place is unknown: the split comes first.
                    BEGINNING => i64::from(low > BEGINNING),
                    least => low.saturating_sub(least).saturating_sub(reach).max(0),
                };
                (ahead, low)
            }
            None => (0, 0),
        };
        (turn, ahead, !self.prefers(worker, split), low, s.stamped)
    }
}
