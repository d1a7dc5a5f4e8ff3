//! The job in this process as the observer sees it: shared state, and the reports of workers.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use super::Shared;
use crate::edges::Root;
use crate::gather::Gather;
use crate::observe::{
    Awaited, Channel, CheckpointStatus, Input, Memory, Need, OpenWindow, Output, Phase, Report,
    Snapshot, Source, StageReport, StageStatus, time,
};
use crate::stats::Stats;
use millstream_operators::budget::Kind;
use millstream_operators::event_time::{BEGINNING, END};

/// Windows that one look tells of at the most.
pub(crate) const OPEN_MAX: usize = 1_000;

/// Where rows come from.
fn input(root: &Root) -> Input {
    match root {
        Root::Source(source) => Input::Source(*source),
        Root::Stage(stage) => Input::Stage(*stage),
    }
}

impl Shared {
    /// Snapshot of the job. Asks all workers, and waits a moment for their answers.
    pub(crate) fn observe(&self) -> Snapshot {
        self.cells.ask(|| self.wake_all());
        let reports = self.cells.reports();
        let mut stats = Stats::default();
        reports.iter().for_each(|report| stats.add(&report.stats));
        stats.before = self.before;
        let totals = stats.totals();
        let now_us = self.env.now_us();
        let latency = self.latencies.lock().unwrap_or_else(PoisonError::into_inner).observed();
        let process = self.net.as_ref().map_or(0, |net| net.place.process);
        Snapshot {
            process,
            now_us,
            elapsed_us: (now_us - self.began_us).max(0) as u64,
            phase: self.phase(),
            records: totals.records,
            input_bytes: totals.input_bytes,
            bad_records: totals.bad_records(),
            late_records: totals.late_records,
            sources: self.observed_sources(&reports),
            splits: self.intake.observed_splits(),
            workers: self.cells.workers(process, now_us),
            stages: (0..self.stages.len())
                .map(|n| self.observed_stage(n, &reports, &stats))
                .collect(),
            outputs: self.gathers.iter().map(|gather| self.observed_output(gather)).collect(),
            channels: self.observed_channels(),
            memory: self.observed_memory(),
            latency,
            checkpoints: self.observed_checkpoints(),
            stops: self.stops.observed(),
        }
    }

    /// The checkpoints. One that is made waits for workers before it waits for the store.
    fn observed_checkpoints(&self) -> Option<CheckpointStatus> {
        let mut status = self.checkpoints.as_ref()?.status()?;
        if let Some(processes) = self.cuts.awaited().filter(|_| status.taking_us.is_some()) {
            status.awaits = Some(Awaited::Stop(processes));
        }
        Some(status)
    }

    /// The sources, with the obstacle of each that no worker reads.
    fn observed_sources(&self, reports: &[Report]) -> Vec<Source> {
        let mut sources = self.intake.observed_sources();
        for (number, source) in sources.iter_mut().enumerate().filter(|(_, s)| !s.ended) {
            let held = reports.iter().map(|report| report.held.get(number).copied().flatten());
            source.obstacle = match held.clone().any(|obstacle| obstacle.is_none()) {
                true => None,
                false => held.flatten().max(),
            };
        }
        sources
    }

    fn phase(&self) -> Phase {
        match () {
            () if self.closing.load(Relaxed) => Phase::Ended,
            () if !self.intake.has_more() => Phase::Ending,
            () if self.draining.load(Relaxed) => Phase::Draining,
            () => Phase::Reading,
        }
    }

    fn observed_memory(&self) -> Memory {
        let budget = &self.budget;
        Memory {
            limit_bytes: self.settings.memory_bytes,
            state_bytes: budget.state(),
            input_bytes: budget.held(Kind::Input),
            segment_bytes: budget.held(Kind::Segments),
            output_bytes: budget.held(Kind::Output),
            peak_bytes: budget.most(),
            tight: budget.tight(),
        }
    }

    fn observed_output(&self, gather: &Gather) -> Output {
        Output {
            inputs: self.edges.outputs[gather.output()].iter().map(input).collect(),
            rows: gather.rows(),
            windows: gather.windows(),
            queued_bytes: gather.queued_bytes(),
            side: gather.is_side(),
            ended: gather.has_ended(),
        }
    }

    fn observed_channels(&self) -> Vec<Channel> {
        let Some(net) = &self.net else { return Vec::new() };
        let others = (0..net.place.processes).filter(|process| *process != net.place.process);
        let channel = |to| {
            let shipped = net.shipped_to(to);
            Channel {
                from: net.place.process,
                to,
                bytes: shipped.bytes,
                messages: shipped.messages,
                rows: shipped.rows,
                credit_stalls: shipped.credit_stalls,
            }
        };
        others.map(channel).collect()
    }

    fn observed_stage(&self, number: usize, reports: &[Report], stats: &Stats) -> StageStatus {
        let stage = &self.stages[number];
        let of: Vec<&StageReport> =
            reports.iter().filter_map(|report| report.stages.get(number)).collect();
        let open: BTreeSet<OpenWindow> =
            of.iter().flat_map(|report| &report.open).copied().collect();
        let mut open: Vec<OpenWindow> = open.into_iter().collect();
        open.sort_by_key(OpenWindow::order);
        let open_more = open.len() > OPEN_MAX || of.iter().any(|report| report.open_more);
        open.truncate(OPEN_MAX);
        let clocks = of.iter().map(|report| report.clock.len()).max().unwrap_or(0);
        let entry = |at: usize| of.iter().filter_map(|report| report.clock.get(at)).min();
        let sum = |what: fn(&StageReport) -> u64| of.iter().map(|report| what(report)).sum();
        let mut needs = Vec::new();
        if let Some(first) = open.first() {
            self.needs_of(number, first.fires_at_us.unwrap_or(END), &mut needs);
        }
        StageStatus {
            stage: stage.place + 1,
            name: stage.program.name(),
            inputs: stage.inputs.iter().map(input).collect(),
            frontier_us: of.iter().map(|report| report.frontier).min().and_then(time),
            clock_us: (0..clocks)
                .map(|at| entry(at).copied().filter(|us| *us != BEGINNING))
                .collect(),
            firing: stage.is_firing(),
            obstacle: of.iter().filter_map(|report| report.obstacle).max(),
            open,
            open_more,
            needs,
            rows_in: sum(|report| report.rows_in),
            rows_out: sum(|report| report.rows_out),
            state_rows: sum(|report| report.state_rows),
            state_bytes: sum(|report| report.state_bytes),
            late_records: stats.stages.get(number).map_or(0, |stage| stage.late_records),
            partly_late_records: stats.stages.get(number).map_or(0, |s| s.partly_late_records),
        }
    }

    /// Which watermarks the sources have to reach that feed a stage, so that it fires up to a
    /// watermark.
    fn needs_of(&self, stage: usize, watermark: i64, needs: &mut Vec<Need>) {
        for root in &self.stages[stage].inputs {
            match root {
                Root::Source(source) => {
                    let need = Need { source: *source, watermark_us: time(watermark) };
                    if !needs.contains(&need) {
                        needs.push(need);
                    }
                }
                Root::Stage(before) if watermark == BEGINNING => {
                    self.needs_of(*before, BEGINNING, needs);
                }
                Root::Stage(before) => {
                    let frontier = self.stages[*before].windowing().frontier_for(watermark);
                    self.needs_of(*before, frontier, needs);
                }
            }
        }
    }
}
