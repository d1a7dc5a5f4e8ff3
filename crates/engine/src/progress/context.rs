//! A worker's context: the surroundings of its steps.

use std::sync::Arc;

use super::StageState;
use crate::edges::Root;
use crate::error::Result;
use crate::shared::Shared;
use crate::stage::Stage;
use crate::stats::{SourceStats, StageStats, Stats};
use millstream_operators::event_time::END;

/// Identity of a worker, and its shared surroundings.
pub(crate) struct Context {
    /// Its number in this process.
    pub(crate) id: usize,
    /// Its number among all leaders of the job.
    pub(crate) leader: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stats: Stats,
    /// By source: its low watermark, as of the last step.
    pub(crate) lows: Vec<i64>,
    /// Whether the worker has waited since its last batch. A worker that is busy with rows of
    /// others is not idle, however long ago that batch was.
    pub(crate) has_waited: bool,
}

impl Context {
    /// Of worker `id` of this process.
    pub(crate) fn new(id: usize, shared: Arc<Shared>) -> Context {
        let leader = shared.first_leader() + id;
        let of_stage = |stage: &Arc<Stage>| StageStats {
            stage: stage.place + 1,
            rows_in_by_input: vec![0; shared.edges.inputs_of(stage.number)],
            ..StageStats::default()
        };
        let stages: Vec<StageStats> = shared.stages.iter().map(of_stage).collect();
        let of_source = |source: usize| SourceStats { source: source + 1, ..Default::default() };
        let sources: Vec<SourceStats> = (0..shared.edges.sources.len()).map(of_source).collect();
        let stats = Stats { sources, stages, ..Stats::default() };
        Context { id, leader, shared, stats, lows: Vec::new(), has_waited: false }
    }

    /// Now, if parts of the work are timed.
    pub(crate) fn timed_from(&self) -> Option<i64> {
        self.shared.settings.timed.then(|| self.shared.env.now_us())
    }

    /// Microseconds since `from`; 0 if parts of the work are not timed.
    pub(crate) fn timed_since(&self, from: Option<i64>) -> u64 {
        from.map_or(0, |from| self.shared.env.now_us().saturating_sub(from).max(0) as u64)
    }

    /// All stages have taken in the worker's last batch: computes the new low watermarks of their
    /// inputs.
    pub(crate) fn note_lows(&mut self, stages: &mut [StageState]) -> Result<()> {
        self.shared.intake.finish(self.id, &mut self.lows)?;
        for number in 0..stages.len() {
            let low = |root: &Root| match root {
                Root::Source(source) => self.lows[*source],
                Root::Stage(before) => stages[*before].watermark_of_rows(),
            };
            let low = stages[number].stage.inputs.iter().map(low).min();
            stages[number].low = low.unwrap_or(END);
        }
        Ok(())
    }
}
