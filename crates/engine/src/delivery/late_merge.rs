//! Late merge: batches update the worker's own state, whatever keys they bring; rows of state are
//! merged by the keys' leaders at the end of an epoch.

use millstream_state::Load;

use super::channels::{self, Channels};
use super::contract::{Delivery, Seal};
use super::epoch::epoch_is_over;
use super::handover::{self, HandOver};
use crate::error::Result;
use crate::network::{GO_ON, MERGED, Sealed};
use crate::obstacle::Obstacle;
use crate::progress::{Context, StageState};
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::operator::{Batch, SealSlice, Updated};
use millstream_operators::passed::Parcel;
use millstream_operators::windowing::SliceId;

/// Hand-over within the process and channels between processes; the leader of a key decides between
/// them.
pub(super) struct LateMerge {
    pub(super) handover: HandOver,
    channels: Channels,
}

impl LateMerge {
    pub(super) fn new(handover: HandOver, channels: Channels) -> LateMerge {
        LateMerge { handover, channels }
    }

    /// Returns credit for merged deltas, unless windows wait to be fired: their state would pile up
    /// if the senders went on. Under scarce memory, processes that are windows ahead of the slowest
    /// process wait too, since the slowest alone lets windows fire; the slowest always gets credit.
    /// Word of freed memory goes to other processes at once, in case they need the memory to fire.
    fn return_credit(&self, context: &Context, state: &mut StageState) -> Result<()> {
        if state.owed.is_empty() {
            return Ok(());
        }
        let low = state.clock.min();
        let fires = state.complete().is_some();
        let (workers, tight) = (context.shared.settings.workers, context.shared.budget.tight());
        let (mut result, clock, stage) = (Ok(()), &state.clock, &state.stage);
        let passed = |watermark| stage.windowing().passed(watermark);
        state.owed.retain_mut(|owed| {
            let process = owed.helper.checked_sub(workers);
            let is_ahead = || passed(clock.of(owed.helper)) > passed(low);
            let waits = fires || process.is_some() && tight && is_ahead();
            let flags = if owed.told { 0 } else { MERGED } | if waits { 0 } else { GO_ON };
            match process {
                Some(process) if flags != 0 && result.is_ok() => {
                    let times = std::mem::take(&mut owed.times);
                    result = channels::return_credit(context, process, stage, flags, &times);
                }
                None if !waits => {
                    self.handover.return_credit(context, owed.helper, stage.number);
                }
                _ => {}
            }
            owed.told = true;
            waits
        });
        result
    }

    /// Ends the epoch: seals fragments and ships them to their leaders, with the watermark that
    /// this brings the leaders up to. Leaders without changes get the header alone.
    fn end(&self, context: &mut Context, state: &mut StageState, seal: Seal) -> Result<()> {
        let (shared, watermark) = (context.shared.clone(), state.low);
        let windowing = *state.stage.windowing();
        let how = |slice| match seal {
            _ if windowing.closes_at(slice) <= watermark => SealSlice::Close,
            Seal::Everything | Seal::BeforeCut(_) => SealSlice::EndEpoch,
            Seal::PassedThrough => SealSlice::PassedThrough,
            Seal::Complete => SealSlice::Nothing,
        };
        let mut shipped = 0;
        state.operator.note_merged(&state.stage.merging.times());
        state.operator.choose(&|bound| shared.env.choose(bound));
        let parcels = state.operator.seal(&how, shared.budget.tight());
        // What has been sealed counts as segments from now on, all of it before any is sent.
        context.note_usage(state);
        let held = |parcel: Parcel| (handover::held(context, &parcel), parcel);
        let deltas: Vec<_> = parcels.into_iter().map(held).collect();
        for (leader, (held, parcel)) in deltas.into_iter().enumerate() {
            if leader == context.leader {
                continue;
            }
            context.stats.segments_shipped += parcel.segments.len() as u64;
            let Some(local) = shared.local(leader) else {
                // Passed rows are counted when sent.
                let rows = parcel.segments.iter().map(|(_, segment)| segment.rows() as u64);
                shipped += rows.sum::<u64>();
                let cut = if let Seal::BeforeCut(number) = seal { number } else { 0 };
                let sealed = Sealed { worker: context.id, parcel, held, watermark, cut };
                channels::ship(&shared, state, leader, sealed)?;
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
        let everything = matches!(seal, Seal::Everything | Seal::BeforeCut(_));
        let nothing_left = everything || !state.operator.holds_for_others();
        if nothing_left {
            state.changed_at_us = None;
        }
        if nothing_left && seal != Seal::PassedThrough {
            state.epoch_input_bytes = 0;
        }
        Ok(())
    }
}

impl Delivery for LateMerge {
    fn collect(&mut self, context: &Context) {
        // In simulation, messages take their time.
        if context.shared.env.choose(4) != Some(0) {
            self.handover.collect(context);
        }
    }

    fn receive(&mut self, context: &mut Context, stages: &mut [StageState]) -> Result<bool> {
        if self.handover.receive(context, stages)? {
            return Ok(true);
        }
        for state in stages.iter_mut().rev() {
            let up_to = takes_up_to(state);
            if self.channels.receive(context, state, up_to)? {
                return Ok(true);
            }
        }
        for state in stages {
            self.return_credit(context, state)?;
        }
        Ok(false)
    }

    fn receive_put_off(
        &mut self,
        context: &mut Context,
        stages: &mut [StageState],
    ) -> Result<bool> {
        for state in stages.iter_mut().rev() {
            if self.channels.receive(context, state, END)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn announce(&mut self, context: &mut Context, stages: &mut [StageState]) -> Result<bool> {
        context.note_lows(stages)?;
        for state in stages.iter_mut().rev() {
            if let Some(seal) = epoch_is_over(context, state) {
                self.end_epoch(context, state, seal)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn end_epoch(
        &mut self,
        context: &mut Context,
        state: &mut StageState,
        seal: Seal,
    ) -> Result<()> {
        self.end(context, state, seal)
    }

    fn hurry(&self, context: &Context, stage: Option<usize>, anyway: bool) -> Result<()> {
        match (&context.shared.net, stage) {
            (None, _) => Ok(()),
            (Some(net), None) => net.hurry(anyway),
            (Some(net), Some(stage)) => net.outboxes(stage).hurry(anyway),
        }
    }

    fn hold(&self, context: &Context, state: &StageState) -> Result<Option<Obstacle>> {
        if !state.has_credit() {
            return Ok(Some(Obstacle::Credit));
        }
        Ok(state.outboxes(&context.shared).and_then(|outboxes| outboxes.stall()))
    }

    fn has_room(
        &self,
        context: &Context,
        state: &mut StageState,
        load: Load,
        tight: bool,
        settled: &dyn Fn() -> bool,
    ) -> Result<bool> {
        context.has_room(state, load, tight, settled)
    }

    fn update(
        &mut self,
        context: &mut Context,
        state: &mut StageState,
        batch: &Batch<'_>,
    ) -> Result<Updated> {
        let onward = state.onward(&context.shared);
        let updated = state.operator.update(batch, onward)?;
        state.latest = state.latest.max(updated.latest);
        context.note_update(state, batch.bytes);
        Ok(updated)
    }

    fn has_mail(&self, context: &Context) -> bool {
        self.handover.has_mail(context)
    }

    fn is_over(&self, context: &Context, stages: &[StageState]) -> bool {
        stages.iter().all(StageState::is_over) && !context.shared.intake.has_more()
    }

    fn is_empty(&self, context: &Context) -> bool {
        self.handover.is_empty() && !self.handover.has_mail(context)
    }

    fn on_the_way(&self, context: &Context, see: &mut dyn FnMut(usize, SliceId)) {
        self.handover.look(context, see);
    }

    fn park(&mut self) -> Result<bool> {
        self.channels.park()
    }

    fn finish(&mut self) -> Result<bool> {
        self.channels.finish()
    }
}

/// Limit for passed rows of processes ahead of this process. Rows of windows that begin later stay
/// in their channels, with all messages behind them: windows that the own input has not reached,
/// and windows after the firing window. Taken at once, the rows would fill a second large table
/// beside the full table; left there, they keep the processes ahead from getting farther. Of
/// windows that consist of many slices, some are taken: otherwise all processes would keep step
/// with the slowest, slice by slice.
fn takes_up_to(state: &StageState) -> i64 {
    let windowing = state.stage.windowing();
    match state.operator.firing() {
        _ if windowing.is_whole() => END,
        Some(firing) => windowing.begin_of_last_slice(firing.window),
        None if state.clock.min() > state.frontier => state.frontier,
        None => {
            let latest = state.latest.map(|slice| windowing.begin_of(slice));
            let reached = state.low.max(latest.unwrap_or(BEGINNING));
            reached.saturating_add(windowing.ahead_us())
        }
    }
}
