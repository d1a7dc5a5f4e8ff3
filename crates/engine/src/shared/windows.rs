//! Windows of all stages: open windows that outputs wait for, and whether all that is complete has
//! been fired.

use std::collections::BTreeSet;

use super::Shared;
use crate::edges::Root;
use millstream_operators::budget::Kind;
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::windowing::{SliceId, WindowId, time_before};

impl Shared {
    /// Windows of the outputs that what a slice of some stage holds will be part of, when all that
    /// fire up to `frontier` have fired.
    pub(crate) fn windows_of(
        &self,
        stage: usize,
        slice: SliceId,
        frontier: i64,
        windows: &mut BTreeSet<(i64, i64)>,
    ) {
        let windowing = self.stages[stage].windowing();
        let open = windowing.windows_of(slice).filter(|w| windowing.fires_at(*w) > frontier);
        open.for_each(|window| self.note_open(stage, window, windows));
    }

    /// A window of some stage is open, and those of the outputs that its rows will be part of.
    pub(crate) fn note_open(
        &self,
        stage: usize,
        window: WindowId,
        windows: &mut BTreeSet<(i64, i64)>,
    ) {
        let windowing = self.stages[stage].windowing();
        if windowing.is_whole() {
            return;
        }
        // Several windows, or sessions, that fire under one name are counted as one.
        let [start, end, time] = windowing.columns_of(window).unwrap_or_else(|| {
            let end = windowing.fires_at(window).saturating_sub(windowing.lateness_us());
            [windowing.begin_of_last_slice(window), end, time_before(end)]
        });
        let feeds = &self.edges.stages[stage];
        if !feeds.outputs.is_empty() && windowing.has_windows() {
            windows.insert((start, end));
        }
        for next in &feeds.stages {
            let slice = self.stages[*next].windowing().slice_of(time).slice;
            self.windows_of(*next, slice, BEGINNING, windows);
        }
    }

    /// Whether all work is done that is complete when all sources of a group are at `watermark`, in
    /// this process and in the others: merging, firing and freeing. If state is at its budget even
    /// then, waiting does not help. A stage is held back by the slowest source of its group, over
    /// all processes; so of the callers with their own low watermarks, some caller receives true.
    pub(crate) fn settled(&self, group: usize, watermark: i64) -> bool {
        if self.budget.held(Kind::Segments) > 0 || self.queued_bytes() > 0 {
            return false;
        }
        let sources = || self.edges.sources.iter().filter(|feeds| feeds.group == group);
        let mut lows: Vec<i64> = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            let low = |root: &Root| match root {
                Root::Source(_) => watermark,
                Root::Stage(before) => {
                    self.stages[*before].windowing().watermark_after(lows[*before])
                }
            };
            lows.push(stage.inputs.iter().map(low).min().unwrap_or(END));
        }
        let of_group = |stage: usize| sources().any(|feeds| feeds.later.contains(&stage));
        let stages = self.stages.iter().zip(lows).filter(|(stage, _)| of_group(stage.number));
        stages.into_iter().all(|(stage, low)| {
            let outputs = self.edges.stages[stage.number].outputs.iter();
            let gathers = outputs.map(|output| &self.gathers[*output]);
            let gathers = gathers.filter(|gather| !gather.has_ended());
            let gathered = gathers.map(|gather| gather.fired(stage.number)).min();
            let fired = stage.fired().min(gathered.unwrap_or(END));
            let windowing = stage.windowing();
            windowing.passed(fired) >= windowing.passed(low)
        })
    }
}
