//! Packing: short windows over input that ends share slices of state, since one of a few records
//! would cost more than its records. Sessions over input that ends have a slice for each gap, since
//! each row of a slice is joined with those before it.

use super::{Cumulate, Hop, Node, Operator, Plan, Stage, Window};

/// One more key says of which window a row of state is.
const KEYS_MAX: usize = 63;
/// A record of a packed pane is merged into each of its windows; where they are many, panes are
/// better combined.
const PANES_MAX: i64 = 16;
/// And a slice of fewer keys: panes have this part of the room that windows have.
const PANES_PART: i64 = 4;
/// Windows of which fewer would fit are long enough by themselves.
const WINDOWS_MIN: i64 = 5;

impl Plan {
    /// Lets tumbling windows over bounded input share slices, as many as `pack_us` has room for,
    /// and so panes of windows that have few of them, and lets sessions have slices of a gap, or of
    /// as many as there is room for, unless `pack_us` is 0. Those that share one fire
    /// together, when the last of them is complete. Windows stay apart whose rows go to an output
    /// beside rows of other inputs, which come in the order of windows.
    pub fn pack_windows(&mut self, pack_us: i64) {
        let mut mixed = vec![false; self.stages.len()];
        for output in &self.outputs {
            self.mark_mixed(output.stage, false, &mut mixed);
        }
        let mut bounded: Vec<bool> = Vec::with_capacity(self.stages.len());
        for (number, stage) in self.stages.iter_mut().enumerate() {
            let ends = stage.inputs.iter().all(|input| match input.from {
                Node::Source(source) => {
                    self.sources.get(source).is_some_and(|source| source.table.bounded())
                }
                Node::Malformed(_) => false,
                Node::Stage(before) => bounded.get(before).copied().unwrap_or(false),
            });
            bounded.push(ends);
            if ends && !mixed[number] {
                stage.pack_windows(pack_us);
            }
        }
    }

    /// Marks the stages with state whose rows an output gets beside others; `beside` if this
    /// stage's are such.
    fn mark_mixed(&self, number: usize, beside: bool, mixed: &mut [bool]) {
        let Some(stage) = self.stages.get(number) else { return };
        if stage.operator.has_state() {
            mixed[number] |= beside;
            return;
        }
        let beside = beside || stage.inputs.len() > 1;
        for input in &stage.inputs {
            if let Node::Stage(before) = input.from {
                self.mark_mixed(before, beside, mixed);
            }
        }
    }
}

impl Stage {
    fn pack_windows(&mut self, pack_us: i64) {
        let Operator::Aggregate(aggregate) = &mut self.operator else { return };
        match &mut aggregate.window {
            Some(Window::Tumble(tumble)) => {
                aggregate.windows_in_slice = windows_in_slice(tumble.size_us, pack_us);
            }
            Some(Window::Hop(Hop { slide_us, size_us, .. })) => {
                aggregate.windows_in_slice = panes_in_slice(*slide_us, *size_us, pack_us);
            }
            Some(Window::Cumulate(Cumulate { step_us, size_us, .. })) => {
                aggregate.windows_in_slice = panes_in_slice(*step_us, *size_us, pack_us);
            }
            Some(Window::Session(session)) if pack_us > 0 => {
                session.slices_of_gap = 1;
                // Where groups share sessions, a slice says how long these are.
                if session.partition == aggregate.keys.len() {
                    aggregate.windows_in_slice = windows_in_slice(session.gap_us, pack_us);
                }
            }
            _ => {}
        }
        if aggregate.keys.len() > KEYS_MAX {
            aggregate.windows_in_slice = 1;
        }
    }
}

/// How many windows share a slice: as many as there is room for, if they are some.
fn windows_in_slice(window_us: i64, pack_us: i64) -> i64 {
    let fit = pack_us / window_us;
    if fit >= WINDOWS_MIN { fit } else { 1 }
}

/// How many panes share a slice: as many as there is room for, if they are at least as many as a
/// window has, and these are few.
fn panes_in_slice(pane_us: i64, window_us: i64, pack_us: i64) -> i64 {
    let (fit, of_window) = (pack_us / PANES_PART / pane_us, window_us / pane_us);
    if of_window <= PANES_MAX && fit >= of_window { fit.max(1) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second has room for a thousand milliseconds and for five fifths; four quarters are long
    /// enough. A quarter of it has room for 25 windows of ten panes of a millisecond, and not for
    /// one of ten tenths of a second, nor may a window have more than 16 panes.
    #[test]
    fn what_is_short_shares_a_slice() {
        const SECOND_US: i64 = 1_000_000;
        let windows =
            [1_000, 200_000, 250_000, 2_000_000].map(|us| windows_in_slice(us, SECOND_US));
        assert_eq!(windows, [1000, 5, 1, 1]);
        let panes = [(1_000, 10_000), (10_000, 250_000), (10_000, 160_000), (100_000, SECOND_US)];
        let panes = panes.map(|(pane, window)| panes_in_slice(pane, window, SECOND_US));
        assert_eq!(panes, [250, 1, 25, 1]);
        assert_eq!((windows_in_slice(1_000, 0), panes_in_slice(1_000, 2_000, 0)), (1, 1));
    }
}
