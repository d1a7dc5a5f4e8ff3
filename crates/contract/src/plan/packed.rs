//! Packing: short windows over input that ends share slices of state, since one of a few records
//! would cost more than its records. Sessions over input that ends have a slice for each gap, since
//! each row of a slice is joined with those before it.

use super::{Cumulate, Hop, Node, Operator, Plan, Stage, Window};

/// One more key says of which window a row of state is.
const KEYS_MAX: usize = 63;
/// A record of a packed pane is merged into each of its windows; where they are many, panes are
/// better combined.
const PANES_MAX: i64 = 16;

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
                aggregate.windows_in_slice = (pack_us / tumble.size_us).max(1);
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
                    aggregate.windows_in_slice = (pack_us / session.gap_us).max(1);
                }
            }
            _ => {}
        }
        if aggregate.keys.len() > KEYS_MAX {
            aggregate.windows_in_slice = 1;
        }
    }
}

/// How many panes share a slice: as many as there is room for, if they are at least as many as a
/// window has, and these are few.
fn panes_in_slice(pane_us: i64, window_us: i64, pack_us: i64) -> i64 {
    let (fit, of_window) = (pack_us / pane_us, window_us / pane_us);
    if of_window <= PANES_MAX && fit >= of_window { fit.max(1) } else { 1 }
}
