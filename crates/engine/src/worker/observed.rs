//! A worker's answers to the observer.

use std::collections::BTreeSet;

use super::{StageState, Step, Worker};
use crate::observe::{Doing, OpenWindow, Report, StageReport, time};
use crate::shared::OPEN_MAX;
use millstream_operators::event_time::END;

impl Worker {
    /// Between two steps: counts the time of the step before, and what came after it.
    pub(super) fn begin_step(&mut self) {
        let shared = &self.context.shared;
        shared.cells.pass(self.context.id, self.doing, shared.env.now_us());
        self.doing = Doing::Step;
    }

    /// After a step: notes what comes next, and answers, if somebody has asked.
    pub(super) fn end_step(&mut self, step: &Step) {
        let shared = self.context.shared.clone();
        match step {
            Step::Busy => self.doing = Doing::Step,
            Step::Wait { .. } => {
                if self.doing == Doing::Step {
                    self.doing = Doing::Input;
                }
                shared.cells.turn_to(self.context.id, self.doing);
            }
            Step::Done => {}
        }
        let asked = shared.cells.asked();
        if asked != self.answered || *step == Step::Done {
            self.answer(asked);
        }
        if *step == Step::Done {
            shared.cells.turn_to(self.context.id, Doing::Done);
        }
    }

    #[cold]
    fn answer(&mut self, question: u64) {
        self.answered = question;
        let stages = self.stages.iter().zip(&self.context.stats.stages);
        let stages = stages.zip(&self.blocked);
        let stages = stages.map(|((state, counted), obstacle)| StageReport {
            obstacle: *obstacle,
            rows_in: counted.rows_in,
            rows_out: counted.rows_out,
            ..report_of(state)
        });
        let (held, stats) = (self.held.clone(), self.context.stats.clone());
        let report = Report { held, stages: stages.collect(), stats };
        self.context.shared.cells.answer(self.context.id, question, report);
    }
}

/// A worker's report of a stage.
fn report_of(state: &StageState) -> StageReport {
    let windowing = state.stage.windowing();
    let (mut open, mut open_more) = (BTreeSet::new(), false);
    let slices = state.operator.open();
    for slice in &slices {
        for window in windowing.windows_of(*slice) {
            let fires_at = windowing.fires_at(window);
            if fires_at <= state.frontier {
                continue;
            }
            if open.len() == OPEN_MAX {
                open_more = true;
                break;
            }
            let bounds = match windowing.columns_of(window) {
                _ if windowing.is_whole() => None,
                Some([start, end, _]) => Some((start, end)),
                // Several windows, or sessions, that fire under one name.
                None => {
                    let end = fires_at.saturating_sub(windowing.lateness_us());
                    Some((windowing.begin_of(*slice), end))
                }
            };
            open.insert(OpenWindow {
                fires_at_us: time(fires_at).filter(|at| *at < END),
                start_us: bounds.map(|(start, _)| start).and_then(time),
                end_us: bounds.map(|(_, end)| end).and_then(time),
            });
        }
    }
    StageReport {
        frontier: state.frontier,
        clock: state.clock.entries().to_vec(),
        open: open.into_iter().collect(),
        open_more,
        state_rows: state.usage.keys,
        state_bytes: state.usage.bytes,
        ..StageReport::default()
    }
}
