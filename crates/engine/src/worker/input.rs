//! Input: a batch of records, taken from the intake, counted, pushed and written.

use arrow::array::RecordBatch;

use super::passed::{Passed, by_record};
use super::{StageState, Step, Worker};
use crate::edges::Feeds;
use crate::error::Result;
use crate::gather::BatchRows;
use crate::intake::Offer;
use crate::obstacle::Obstacle;
use crate::plan::malformed_schema;
use crate::rows::Rows;
use millstream_operators::operator::Records;
use millstream_operators::prepare::Prepared;
use millstream_operators::skipped::{note_malformed, note_row};
use millstream_operators::stamped::Stamped;

impl Worker {
    /// Takes a batch of records, if all stages and outputs that take them have room for what comes
    /// of it.
    pub(super) fn take_input(&mut self, stages: &mut [StageState], tight: bool) -> Result<Step> {
        let shared = self.context.shared.clone();
        let sources = match self.admit_sources(stages, tight)? {
            Ok(sources) => sources,
            Err(step) => return Ok(step),
        };
        let from = self.context.timed_from();
        let mut read = None;
        let offer = shared.intake.take(self.context.id, &sources.admitted, &mut read)?;
        if let Offer::Batch(_) | Offer::Again = offer {
            self.note_reading(read, from);
        }
        match offer {
            Offer::Batch(batch) => {
                let source = shared.intake.source_of(batch.split);
                let feeds = &shared.edges.sources[source];
                let admitted = &sources.admitted[source];
                if let Some(obstacle) = self.admit_batch(stages, admitted, &batch, tight)? {
                    shared.intake.put_back(self.context.id, batch);
                    return Ok(self.wait_for(stages, obstacle));
                }
                self.process(stages, feeds, &batch)?;
                Ok(Step::Busy)
            }
            Offer::Again => {
                // A split may have ended, whose rows others waited for.
                shared.queue_batches();
                Ok(Step::Busy)
            }
            Offer::Wait { until_us } => {
                let until_us = [until_us, sources.look_again_us].into_iter().flatten().min();
                Ok(self.pause(stages, until_us))
            }
            Offer::Held => Ok(self.wait_for(stages, Obstacle::Memory)),
            // The worker that finishes the last batch wakes the others.
            Offer::Ended => Ok(self.pause(stages, sources.look_again_us)),
        }
    }

    /// Counts the time since `from`, in which a source was read, if one was.
    fn note_reading(&mut self, source: Option<usize>, from: Option<i64>) {
        let us = self.context.timed_since(from);
        self.context.stats.read_us += us;
        if let Some(of_source) = source.and_then(|at| self.context.stats.sources.get_mut(at)) {
            of_source.read_us += us;
        }
    }

    fn count_batch(&mut self, batch: &Stamped) {
        let Prepared { batch: rows, input_bytes, .. } = &batch.prepared;
        let (records, input_bytes) = (rows.num_rows() as u64, *input_bytes as u64);
        self.context.stats.records += records;
        self.context.stats.input_bytes += input_bytes;
        let source = self.context.shared.intake.source_of(batch.split);
        if let Some(of_source) = self.context.stats.sources.get_mut(source) {
            of_source.records += records;
            of_source.input_bytes += input_bytes;
        }
        self.context.stats.malformed_records += batch.prepared.malformed_records;
        note_malformed(&mut self.context.stats.first_malformed, batch);
        self.context.stats.batches_stolen +=
            u64::from(!self.context.shared.intake.prefers(self.context.id, batch.split));
        if let Some(times) = &batch.prepared.times {
            self.context.stats.ahead_records += times.ahead_records;
            let name = self.context.shared.intake.name(batch.split);
            note_row(&mut self.context.stats.first_ahead, batch, times.first_ahead, name);
        }
    }

    fn process(&mut self, stages: &mut [StageState], feeds: &Feeds, batch: &Stamped) -> Result<()> {
        self.count_batch(batch);
        self.refresh_lookups();
        let records = Records::all(batch);
        let mut passed = Vec::new();
        self.push(stages, &feeds.takers, &records, &mut passed)?;
        if !feeds.malformed.is_empty() {
            let rows = batch.prepared.malformed.clone();
            let rows = rows.unwrap_or_else(|| RecordBatch::new_empty(malformed_schema()));
            let malformed = Records { rows: &rows, ..records };
            self.push(stages, &feeds.malformed, &malformed, &mut passed)?;
        }
        self.write_batch(feeds, batch, passed)
    }

    /// Looks whether the side tables of lookups have changed, now and then.
    fn refresh_lookups(&self) {
        let shared = &self.context.shared;
        if shared.edges.lookups.is_empty() {
            return;
        }
        let (now_us, notices) = (shared.env.now_us(), shared.intake.notices());
        let tell = |line| notices.tell(line);
        shared.edges.lookups.iter().for_each(|lookup| lookup.refresh(now_us, &tell));
    }

    /// Gives the rows of a batch to the outputs that take them.
    fn write_batch(
        &mut self,
        feeds: &Feeds,
        batch: &Stamped,
        mut passed: Vec<Passed>,
    ) -> Result<()> {
        if feeds.outputs.is_empty() {
            return Ok(());
        }
        let from = self.context.timed_from();
        let shared = &self.context.shared;
        let ended = shared.intake.ended_splits();
        passed.sort_by_key(|passed| (passed.output, passed.input));
        let mut passed = passed.into_iter().peekable();
        for output in &feeds.outputs {
            let mut parts = Vec::new();
            while let Some(part) = passed.next_if(|passed| passed.output == *output) {
                parts.push(part);
            }
            let (rows, then) = by_record(parts)?;
            let gather = &shared.gathers[*output];
            let rows = BatchRows { rows: Rows::of_final(rows), then, last: batch.last };
            let came = gather.batch_rows(self.context.id, batch.place(), rows, &ended);
            shared.ends(*output, came)?;
            if gather.sorts() {
                // Nothing of it can be written before the end.
                shared.check_gathered()?;
            }
        }
        self.context.stats.write_us += self.context.timed_since(from);
        Ok(())
    }
}
