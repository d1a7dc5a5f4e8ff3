//! Snapshot of all processes of a job, merged from the snapshots of each.

use std::collections::BTreeSet;

use super::{Latency, Memory, OpenWindow, Output, Phase, Snapshot, Split, StageStatus, Stops};

impl Snapshot {
    /// Adds what another process of the same job says. Counts and bytes add up, watermarks are the
    /// least, and a split is as the process says that reads it.
    pub fn add_process(&mut self, other: &Snapshot) {
        self.now_us = self.now_us.max(other.now_us);
        self.elapsed_us = self.elapsed_us.max(other.elapsed_us);
        self.phase = earlier(self.phase, other.phase);
        self.records += other.records;
        self.input_bytes += other.input_bytes;
        self.bad_records += other.bad_records;
        self.late_records += other.late_records;
        for (number, theirs) in other.sources.iter().enumerate() {
            let is_read = self.reads(number);
            let Some(source) = self.sources.get_mut(number) else { continue };
            source.ended &= theirs.ended;
            // A process that reads no split of the source knows no watermark.
            (source.watermark_us, source.obstacle) = match (is_read, other.reads(number)) {
                (true, true) => (
                    source.watermark_us.min(theirs.watermark_us),
                    source.obstacle.min(theirs.obstacle),
                ),
                (false, true) => (theirs.watermark_us, theirs.obstacle),
                (_, false) => (source.watermark_us, source.obstacle),
            };
        }
        self.splits.iter_mut().zip(&other.splits).for_each(|(split, other)| add(split, other));
        self.workers.extend_from_slice(&other.workers);
        for (stage, other) in self.stages.iter_mut().zip(&other.stages) {
            stage.add(other);
        }
        for (output, other) in self.outputs.iter_mut().zip(&other.outputs) {
            output.add(other);
        }
        self.channels.extend_from_slice(&other.channels);
        self.memory.add(&other.memory);
        self.latency.add(&other.latency);
        self.stops.add(&other.stops);
    }

    /// Leaves out splits that have not joined the job. Snapshots of processes are merged before, as
    /// splits are known by their places.
    pub fn without_spare_splits(mut self) -> Snapshot {
        self.splits.retain(|split| !split.name.is_empty());
        self
    }

    /// Whether splits of a source are read by those who have said this.
    fn reads(&self, source: usize) -> bool {
        self.splits.iter().any(|split| split.source == source && !split.elsewhere)
    }
}

impl Stops {
    fn add(&mut self, other: &Stops) {
        self.pauses.add(&other.pauses);
        self.drain_us = self.drain_us.max(other.drain_us);
        self.save_us = self.save_us.max(other.save_us);
        self.complete_us = self.complete_us.max(other.complete_us);
    }
}

/// The phase of a job whose processes are in these.
fn earlier(one: Phase, other: Phase) -> Phase {
    let order = [Phase::Draining, Phase::Reading, Phase::Ending, Phase::Ended];
    order.into_iter().find(|phase| [one, other].contains(phase)).unwrap_or_default()
}

fn add(split: &mut Split, other: &Split) {
    match (split.elsewhere, other.elsewhere) {
        (_, true) => {}
        (true, false) => *split = other.clone(),
        // Both processes read the split, each some of its chunks.
        (false, false) => {
            split.watermark_us = split.watermark_us.min(other.watermark_us);
            split.holds_us = split.holds_us.min(other.holds_us);
            split.records = split.records.max(other.records);
            split.bytes += other.bytes;
            split.silent_us = split.silent_us.min(other.silent_us);
            split.waits &= other.waits;
            split.ready += other.ready;
            split.idle &= other.idle;
            split.ended &= other.ended;
            if let (Some(own), Some(other)) = (&mut split.progress, &other.progress) {
                own.done = own.done.min(other.done);
            }
        }
    }
}

impl StageStatus {
    fn add(&mut self, other: &StageStatus) {
        self.frontier_us = self.frontier_us.min(other.frontier_us);
        for (own, other) in self.clock_us.iter_mut().zip(&other.clock_us) {
            *own = (*own).min(*other);
        }
        let open: BTreeSet<OpenWindow> = self.open.iter().chain(&other.open).copied().collect();
        let first = |stage: &StageStatus| stage.open.first().map(OpenWindow::order);
        if !other.open.is_empty()
            && first(self).is_none_or(|own| first(other).is_some_and(|other| other < own))
        {
            self.needs = other.needs.clone();
        }
        self.open = open.into_iter().collect();
        self.open.sort_by_key(OpenWindow::order);
        self.open_more |= other.open_more;
        self.firing |= other.firing;
        self.obstacle = self.obstacle.max(other.obstacle);
        self.rows_in += other.rows_in;
        self.rows_out += other.rows_out;
        self.state_rows += other.state_rows;
        self.state_bytes += other.state_bytes;
        self.late_records += other.late_records;
        self.partly_late_records += other.partly_late_records;
    }
}

impl OpenWindow {
    /// Order in which windows fire; a window that fires at the end of the input comes last.
    pub(crate) fn order(&self) -> (bool, OpenWindow) {
        (self.fires_at_us.is_none(), *self)
    }
}

impl Output {
    fn add(&mut self, other: &Output) {
        self.rows += other.rows;
        // Processes that see all windows agree; processes that write their own rows see about the
        // same.
        self.windows = self.windows.max(other.windows);
        self.queued_bytes += other.queued_bytes;
        self.ended |= other.ended;
    }
}

impl Memory {
    fn add(&mut self, other: &Memory) {
        self.limit_bytes += other.limit_bytes;
        self.state_bytes += other.state_bytes;
        self.input_bytes += other.input_bytes;
        self.segment_bytes += other.segment_bytes;
        self.output_bytes += other.output_bytes;
        self.peak_bytes += other.peak_bytes;
        self.tight |= other.tight;
    }
}

impl Latency {
    /// Shares are those of the slower process.
    fn add(&mut self, other: &Latency) {
        self.windows += other.windows;
        self.sum_us += other.sum_us;
        self.p50_us = self.p50_us.max(other.p50_us);
        self.p99_us = self.p99_us.max(other.p99_us);
        self.max_us = self.max_us.max(other.max_us);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Need, Source};
    use super::*;
    use crate::table::Extent;

    fn window(fires_at_us: Option<i64>) -> OpenWindow {
        OpenWindow { fires_at_us, ..OpenWindow::default() }
    }

    #[test]
    fn processes_add_up() {
        let need = |watermark_us| Need { source: 0, watermark_us };
        let split = |watermark_us, done| Split {
            watermark_us,
            records: 5,
            progress: Some(Extent { done, of: 9, bytes: true }),
            ..Split::default()
        };
        let away = Split { elsewhere: true, ..Split::default() };
        let mut one = Snapshot {
            phase: Phase::Ending,
            records: 10,
            sources: vec![Source { watermark_us: Some(7), ended: true, ..Source::default() }],
            splits: vec![away.clone(), split(Some(7), 4), split(Some(1), 9)],
            stages: vec![StageStatus {
                open: vec![window(Some(30)), window(None)],
                needs: vec![need(Some(30))],
                clock_us: vec![Some(5), Some(6)],
                ..StageStatus::default()
            }],
            ..Snapshot::default()
        };
        let other = Snapshot {
            phase: Phase::Reading,
            records: 32,
            sources: vec![Source { watermark_us: Some(3), ..Source::default() }],
            splits: vec![split(Some(8), 2), split(Some(3), 6), away],
            stages: vec![StageStatus {
                open: vec![window(Some(20)), window(Some(30))],
                needs: vec![need(Some(20))],
                clock_us: vec![None, Some(9)],
                ..StageStatus::default()
            }],
            ..Snapshot::default()
        };
        one.add_process(&other);
        assert_eq!((one.phase, one.records), (Phase::Reading, 42));
        assert_eq!((one.sources[0].watermark_us, one.sources[0].ended), (Some(3), false));
        let watermarks: Vec<_> = one.splits.iter().map(|split| split.watermark_us).collect();
        assert_eq!(watermarks, [Some(8), Some(3), Some(1)]);
        assert_eq!(one.splits[1].progress.map(|extent| extent.done), Some(4));
        let stage = &one.stages[0];
        assert_eq!(stage.open, [window(Some(20)), window(Some(30)), window(None)]);
        assert_eq!(stage.needs, [need(Some(20))]);
        assert_eq!(stage.clock_us, [None, Some(6)]);
        assert!(one.splits.iter().all(|split| !split.elsewhere));
    }

    #[test]
    fn a_process_without_splits_holds_no_watermark_back() {
        let process = |watermark_us, elsewhere| Snapshot {
            sources: vec![Source { watermark_us, ..Source::default() }],
            splits: vec![Split { elsewhere, ..Split::default() }],
            ..Snapshot::default()
        };
        let (reads, does_not) = (process(Some(7), false), process(None, true));
        for (first, second) in [(&reads, &does_not), (&does_not, &reads)] {
            let mut all = first.clone();
            all.add_process(second);
            assert_eq!(all.sources[0].watermark_us, Some(7));
        }
        // A process that reads a split knows a watermark, even before the first record.
        let mut all = reads.clone();
        all.add_process(&process(None, false));
        assert_eq!(all.sources[0].watermark_us, None);
    }
}
