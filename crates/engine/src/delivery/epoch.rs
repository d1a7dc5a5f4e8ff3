//! Epochs: when one ends (paper, section 7.2.2).

use super::contract::Seal;
use crate::progress::{Context, StageState};
use millstream_operators::event_time::END;

/// Whether the epoch is over, and what is to be sealed then.
pub(super) fn epoch_is_over(context: &Context, state: &StageState) -> Option<Seal> {
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
pub(super) fn lets_fire(state: &StageState) -> bool {
    state.passed(state.low) > state.passed(state.announced)
}

/// Whether there are changes, and the last of them came so long ago that they are sent: without
/// input, not for want of time to take some.
pub(super) fn is_idle(context: &Context, state: &StageState) -> bool {
    let idle_us = context.shared.settings.epoch_max_idle_us();
    context.has_waited
        && state.changed_at_us.is_some_and(|at| context.shared.env.now_us() >= at + idle_us)
}
