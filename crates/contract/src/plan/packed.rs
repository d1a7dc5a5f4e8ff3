//! Packing: short windows over input that ends share slices of state, since one of a few records
//! would cost more than its records. Sessions over input that ends have a slice for each gap, since
//! each row of a slice is joined with those before it.

use std::collections::BTreeMap;

use super::{Aggregate, Cumulate, Hop, Node, Operator, Plan, Sort, Stage, Window};
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::table::SplitSpec;

/// Room for windows that share slices, unless settings say how much, microseconds.
pub const PACK_US: i64 = 1_000_000;
/// The same where all input is small: then all windows fit beside each other.
const SMALL_PACK_US: i64 = 3_600_000_000;
/// Small input is no more than this part of the budget: state may take many times as much.
const SMALL_PART: u64 = 1024;

/// One more key says of which window a row of state is.
const KEYS_MAX: usize = 63;
/// Panes have this part of the room that windows have: keys are there again in each.
const PANES_PART: i64 = 4;
/// So short windows share slices if there are this many panes in them at the most.
const FEW_PANES: i64 = 16;
/// Otherwise panes do if at least so many of them fit. Longer ones have records enough where there
/// are many, and then packs cost more than they save.
const PANES_MIN: i64 = 25;
/// Limit of panes in a slice, since all windows that end in the slice hold their rows at once.
const PANES_MAX: i64 = 128;
/// Windows of which fewer would fit are long enough by themselves.
const WINDOWS_MIN: i64 = 5;

/// The packing of a stage, numbers by name. State of other packing has slices of other names.
pub type Layout = BTreeMap<String, i64>;

impl Plan {
    /// The packing of each stage with state, in order.
    pub fn layouts(&self) -> Vec<Layout> {
        let named = |(name, number): (&str, &mut i64)| (name.to_string(), *number);
        let mut stages = self.stages.clone();
        let stages = stages.iter_mut().filter(|stage| stage.operator.has_state());
        stages.map(|stage| stage.packing().into_iter().map(named).collect()).collect()
    }

    /// Packs each stage with state as an earlier plan of the same query was packed
    /// ([`Plan::layouts`]), whatever the size of the input is now. A stage keeps the numbers that
    /// its layout does not name.
    ///
    /// # Errors
    /// A layout has a number that its stage does not have, or a number below 1.
    pub fn lay_out(&mut self, layouts: &[Layout]) -> Result<()> {
        let stages = self.stages.iter_mut().filter(|stage| stage.operator.has_state());
        for (stage, layout) in stages.zip(layouts) {
            let mut packing: BTreeMap<&str, &mut i64> = stage.packing().into_iter().collect();
            for (name, number) in layout {
                match packing.get_mut(name.as_str()) {
                    Some(own) if *number > 0 => **own = *number,
                    _ => {
                        let message = format!("a saved stage with {name} = {number}");
                        return Err(Error::Internal(message));
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets tumbling windows over bounded input share slices, as many as `pack_us` has room for,
    /// and likewise short panes of windows that overlap, and lets sessions have slices of a gap, or
    /// of as many gaps as there is room for, unless `pack_us` is 0. Windows that share a slice fire
    /// together, when the last of them is complete. Windows stay apart if their rows go to an
    /// output beside rows of other inputs, which come in the order of windows, or to an output with
    /// a LIMIT on the first windows.
    pub fn pack_windows(&mut self, pack_us: i64) {
        let mut mixed = vec![false; self.stages.len()];
        for output in &self.outputs {
            let of_windows = |sort: &Sort| sort.each_window && sort.keys.is_empty();
            let first_windows = output.sort.as_ref().is_some_and(of_windows);
            self.mark_mixed(output.stage, first_windows, &mut mixed);
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

    /// Lets as many windows share slices as an hour has room for, unless settings say how many, if
    /// all input is in files that are small beside the budget. `splits` are those of each source.
    pub fn pack_small_input(&mut self, splits: &[Vec<SplitSpec>], settings: &Settings) {
        let add = |sum: u64, split: &SplitSpec| sum.checked_add(split.length?);
        let length = splits.iter().flatten().try_fold(0, add);
        let known = !splits.is_empty() && splits.iter().all(|of_source| !of_source.is_empty());
        let small = length.is_some_and(|length| length <= settings.memory_bytes / SMALL_PART);
        if known && small && settings.pack_us.is_none() {
            self.pack_windows(SMALL_PACK_US);
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
    /// The numbers that packing changes, by name.
    fn packing(&mut self) -> Vec<(&'static str, &mut i64)> {
        let Operator::Aggregate(Aggregate { windows_in_slice, window, .. }) = &mut self.operator
        else {
            return Vec::new();
        };
        let mut packing = vec![("windows_in_slice", windows_in_slice)];
        if let Some(Window::Session(session)) = window {
            packing.push(("slices_of_gap", &mut session.slices_of_gap));
        }
        packing
    }

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

/// How many panes share a slice: as many as there is room for, if they are at least a whole window
/// of few panes, or if they are many.
fn panes_in_slice(pane_us: i64, window_us: i64, pack_us: i64) -> i64 {
    let (fit, of_window) = (pack_us / PANES_PART / pane_us, window_us / pane_us);
    match fit {
        _ if of_window <= FEW_PANES && fit >= of_window => fit.max(1),
        PANES_MIN.. => fit.min(PANES_MAX),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second has room for a thousand milliseconds and for five fifths; four quarters are long
    /// enough. A quarter of it has room for 25 windows of ten panes of a millisecond, and for 16 of
    /// 10 ms, but not for ten tenths of a second. Of windows of more panes, it has room for 250
    /// panes of a millisecond, of which 128 share a slice, for 25 of 10 ms, and 22 of 11 ms are too
    /// few.
    #[test]
    fn what_is_short_shares_a_slice() {
        const SECOND_US: i64 = 1_000_000;
        let windows =
            [1_000, 200_000, 250_000, 2_000_000].map(|us| windows_in_slice(us, SECOND_US));
        assert_eq!(windows, [1000, 5, 1, 1]);
        let few = [(1_000, 10_000), (10_000, 160_000), (100_000, SECOND_US)];
        let few = few.map(|(pane, window)| panes_in_slice(pane, window, SECOND_US));
        assert_eq!(few, [250, 25, 1]);
        let many = [(1_000, 17_000), (1_000, SECOND_US), (10_000, 60 * SECOND_US)];
        let many = many.map(|(pane, window)| panes_in_slice(pane, window, SECOND_US));
        assert_eq!(many, [128, 128, 25]);
        assert_eq!(panes_in_slice(11_000, 1_100_000, SECOND_US), 1);
        assert_eq!((windows_in_slice(1_000, 0), panes_in_slice(1_000, 2_000, 0)), (1, 1));
    }
}
