//! Firing: a complete window yields its rows, to the next stage or to the gather stage.

use millstream_state::Load;

use super::epoch::Seal;
use super::{State, Worker};
use crate::budget::{Kind, batch_bytes};
use crate::error::Result;
use crate::event_time::END;
use crate::fire::{Fire, empty_table};
use crate::meter;
use crate::windowing::WHOLE;

/// Rows of a window that take so much more than twice what was foreseen, since texts are computed
/// of them, are held against the budget when they are there.
const UNFORESEEN_BYTES: u64 = 64 << 10;

/// What came of an attempt to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fired {
    /// Nothing is complete.
    Nothing,
    /// Something was done.
    Some,
    /// There is no room for the rows now.
    NoMemory,
    /// The next stage has too much on its way.
    NoCredit,
}

impl Worker {
    /// Goes on with a window that is firing, or starts with one that is complete; of the last stage
    /// that has one, so that what has been fired makes room for what comes.
    pub(super) fn fire_one(&mut self, stages: &mut [State], tight: bool) -> Result<Fired> {
        for number in (0..stages.len()).rev() {
            let (before, after) = stages.split_at_mut(number + 1);
            let fired = self.fire(&mut before[number], after.first_mut(), tight)?;
            if fired != Fired::Nothing {
                return Ok(fired);
            }
        }
        Ok(Fired::Nothing)
    }

    /// Goes on with the window of a stage that is firing, or starts with one that is complete; its
    /// rows go to the `next` stage, if there is one.
    pub(super) fn fire(
        &mut self,
        state: &mut State,
        next: Option<&mut State>,
        tight: bool,
    ) -> Result<Fired> {
        if state.firing.is_none() {
            return self.fire_complete(state, next.is_some());
        }
        match next {
            None if !self.may_fire(state, tight)? => Ok(Fired::NoMemory),
            None => self.fire_to_sink(state),
            Some(next) => match self.may_feed(state, next, tight)? {
                Fired::Nothing => self.feed(state, next),
                waits => Ok(waits),
            },
        }
    }

    fn fire_to_sink(&mut self, state: &mut State) -> Result<Fired> {
        let shared = self.shared.clone();
        let stage = state.stage.clone();
        let Some(fire) = &mut state.firing else { return Ok(Fired::Nothing) };
        let mut span = meter::span(meter::Kind::Fire);
        let foreseen_bytes =
            2 * fire.next_bytes(&stage.grouping, &stage.finisher) + UNFORESEEN_BYTES;
        if let Some((rows, last)) =
            fire.step(&stage.grouping, &stage.finisher, &mut self.places.0)?
        {
            span.add(rows.num_rows());
            let more = shared.gather.holds() && batch_bytes(&rows) as u64 > foreseen_bytes;
            shared.gather.window_rows(self.id, fire.start, rows, last)?;
            if more {
                shared.check_gathered()?;
            }
        } else {
            self.end_of_firing(state)?;
        }
        Ok(Fired::Some)
    }

    /// Gives the next rows of the window that is firing to the next stage.
    fn feed(&mut self, state: &mut State, next: &mut State) -> Result<Fired> {
        let stage = state.stage.clone();
        let Some(fire) = &mut state.firing else { return Ok(Fired::Nothing) };
        let mut span = meter::span(meter::Kind::Fire);
        let rows = fire.step(&stage.grouping, &stage.finisher, &mut self.places.0)?;
        match rows {
            Some((rows, _)) => {
                span.add(rows.num_rows());
                self.take_rows(next, &rows, stage.windowing().row_time(fire.start))?;
            }
            None => self.end_of_firing(state)?,
        }
        Ok(Fired::Some)
    }

    /// Whether the next stage can take the next rows of the window that is firing, which takes
    /// credit and memory there; `Nothing` stands in the way then.
    fn may_feed(&mut self, state: &State, next: &mut State, tight: bool) -> Result<Fired> {
        let shared = self.shared.clone();
        let Some(fire) = state.firing.as_ref().filter(|fire| !fire.is_over()) else {
            return Ok(Fired::Nothing);
        };
        let delivery = shared.net.as_ref().map(|net| net.delivery(next.stage.number));
        if !next.has_credit() || delivery.is_some_and(|delivery| delivery.stall().is_some()) {
            return Ok(Fired::NoCredit);
        }
        if tight {
            if next.slices.has_fragment_rows() {
                // What leaders have merged takes less room than what waits in fragments.
                self.end_epoch(next, next.low, Seal::Everything)?;
                return Ok(Fired::Some);
            }
            if let Some(delivery) = delivery {
                delivery.hurry(false)?;
            }
        }
        let stage = &state.stage;
        let text_bytes = fire.next_bytes(&stage.grouping, &stage.finisher) as usize;
        let load = Load { rows: fire.next_rows(), text_bytes };
        let number = next.stage.number;
        let (fired, frontier) = (next.stage.fired(), next.frontier);
        let settled = || {
            shared.budget.held(Kind::Segments) == 0
                && fired >= frontier
                && !shared.stages[number..].iter().any(|stage| stage.is_firing())
        };
        match self.has_room(next, load, tight, settled)? {
            true => Ok(Fired::Nothing),
            false => Ok(Fired::NoMemory),
        }
    }

    /// All rows of the window have been taken.
    fn end_of_firing(&mut self, state: &mut State) -> Result<()> {
        let Some(fire) = state.firing.take() else { return Ok(()) };
        state.frontier = state.stage.windowing().fires_at(fire.start);
        let small = self.is_small(&fire);
        state.slices.recycle(fire.into_table());
        state.stage.note_end_of_firing();
        if !small || self.shared.budget.tight() {
            // Before others may believe that all has been freed.
            self.note_usage(state);
        }
        self.fired_up_to(state)
    }

    /// Starts firing the first window that the vector clock says is complete. One at a time, in
    /// order, so that a window's rows come out before the next one fires.
    fn fire_complete(&mut self, state: &mut State, is_inner: bool) -> Result<Fired> {
        let complete = state.clock.min();
        if complete <= state.frontier {
            return Ok(Fired::Nothing);
        }
        let Some(start) = state.complete() else {
            let grouping = &state.stage.grouping;
            if complete == END
                && is_inner
                && grouping.has_empty_group
                && state.slices.leads_empty_key()
            {
                // A group of no rows is a row, too.
                state.stage.note_firing();
                state.firing = Some(Fire::new(WHOLE, empty_table(grouping), grouping));
                return Ok(Fired::Some);
            }
            state.frontier = complete;
            self.note_usage(state);
            self.fired_up_to(state)?;
            return Ok(Fired::Some);
        };
        if complete > state.rested {
            // Once for all windows that this lets go: now there is the most of it.
            state.rested = complete;
            self.note_usage(state);
            self.shared.budget.note_rest();
        }
        if let Some(table) = state.slices.remove(start) {
            state.stage.note_firing();
            state.firing = Some(Fire::new(start, table, &state.stage.grouping));
        }
        Ok(Fired::Some)
    }

    /// Tells how far this worker has fired a stage; of the last one, the gather stage.
    pub(super) fn fired_up_to(&mut self, state: &State) -> Result<()> {
        let shared = &self.shared;
        state.stage.note_fired(self.id, state.frontier);
        if state.stage.number + 1 < shared.stages.len() {
            if shared.budget.tight() {
                // Somebody may wait for that.
                shared.wake_all();
            }
            return Ok(());
        }
        let windows = shared.fired_up_to(self.id, state.frontier)?;
        if windows > 0 && shared.intake.has_more() {
            self.stats.windows_fired_early += windows;
        }
        Ok(())
    }
}
