//! Epochs: when one ends, and what is sealed and shipped then (paper, section 7.2.2).

use super::channels::ship;
use super::handover::held;
use super::late_merge::LateMerge;
use crate::cluster::Sealed;
use crate::error::Result;
use crate::progress::{Context, State};
use millstream_operators::event_time::END;
use millstream_operators::operator::SealSlice;
use millstream_operators::passed::Parcel;

/// What is sealed at the end of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal {
    /// All there is.
    Everything,
    /// Windows that the watermark has passed. What later windows have so far would be shipped in
    /// two parts, and merged twice, for nothing: it stays until its own window is complete, or the
    /// epoch long enough.
    Complete,
    /// Those, and what later windows have passed through: it gains nothing by waiting, and is
    /// merged while it lies in a cache.
    PassedThrough,
}

/// Whether the epoch is over, and what is to be sealed then.
pub(super) fn epoch_is_over(context: &Context, state: &State) -> Option<Seal> {
    let shared = &context.shared;
    let settings = &shared.settings;
    let limits = &state.stage.limits;
    if state.low == END {
        return lets_fire(state).then_some(Seal::Everything);
    }
    let is_long = || {
        state.epoch_input_bytes >= settings.epoch_bytes
            || state.usage.largest_fragment_bytes >= limits.fragment_bytes
            || is_idle(context, state)
            || shared.env.choose(16) == Some(0)
    };
    if state.changed_at_us.is_some() && is_long() {
        return Some(Seal::Everything);
    }
    if state.usage.largest_passed_bytes >= limits.passed_bytes()
        || state.usage.largest_kept_bytes >= limits.kept_bytes()
    {
        return Some(Seal::PassedThrough);
    }
    lets_fire(state).then_some(Seal::Complete)
}

/// Whether a window may fire when leaders hear of this worker's low watermark.
pub(super) fn lets_fire(state: &State) -> bool {
    state.passed(state.low) > state.passed(state.announced)
}

/// Whether there are changes, and the last of them came so long ago that they are sent.
pub(super) fn is_idle(context: &Context, state: &State) -> bool {
    let idle_us = context.shared.settings.epoch_max_idle_us();
    state.changed_at_us.is_some_and(|at| context.shared.env.now_us() >= at + idle_us)
}

impl LateMerge {
    /// Ends the epoch: seals fragments and ships them to their leaders, with the watermark that
    /// this brings the leaders up to. Leaders without changes get the header alone.
    pub(super) fn end(&self, context: &mut Context, state: &mut State, seal: Seal) -> Result<()> {
        let (shared, watermark) = (context.shared.clone(), state.low);
        let windowing = *state.stage.windowing();
        let how = |slice| match seal {
            Seal::Everything => SealSlice::EndEpoch,
            _ if windowing.closes_at(slice) <= watermark => SealSlice::EndEpoch,
            Seal::PassedThrough => SealSlice::PassedThrough,
            Seal::Complete => SealSlice::Nothing,
        };
        let mut shipped = 0;
        state.operator.choose(&|bound| shared.env.choose(bound));
        let parcels = state.operator.seal(&how, shared.budget.tight());
        // What has been sealed counts as segments from now on, all of it before any is sent.
        context.note_usage(state);
        let held = |parcel: Parcel| (held(context, &parcel), parcel);
        let deltas: Vec<_> = parcels.into_iter().map(held).collect();
        for (leader, (held, parcel)) in deltas.into_iter().enumerate() {
            if leader == context.leader {
                continue;
            }
            context.stats.segments_shipped += parcel.segments.len() as u64;
            let Some(local) = shared.local(leader) else {
                // Those that are passed through are counted when they are sent.
                let rows = parcel.segments.iter().map(|(_, segment)| segment.rows() as u64);
                shipped += rows.sum::<u64>();
                let sealed = Sealed { worker: context.id, parcel, held, watermark };
                ship(&shared, state, leader, sealed)?;
                continue;
            };
            shipped += parcel.rows() as u64;
            self.handover.ship(context, state, local, parcel, held);
        }
        context.stats.rows_shipped += shipped;
        context.stats.epochs += 1;
        context.stats.empty_epochs += u64::from(state.changed_at_us.is_none());
        state.clock.advance(context.id, watermark);
        state.epoch += 1;
        state.announced = state.announced.max(watermark);
        let nothing_left = seal == Seal::Everything || !state.operator.holds_for_others();
        if nothing_left {
            state.changed_at_us = None;
        }
        if nothing_left && seal != Seal::PassedThrough {
            state.epoch_input_bytes = 0;
        }
        Ok(())
    }
}
