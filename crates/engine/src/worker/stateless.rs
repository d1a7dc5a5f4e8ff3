//! The steps of a job without state: batches in, rows out.

use super::pressure::STALL_US;
use super::{Step, Worker};
use crate::error::{Error, Result};
use crate::gather::StatelessRows;
use crate::intake::{Only, Stamped, Taken};
use crate::meter;
use crate::pipeline::Stateless;
use crate::skipped::place_of;

impl Worker {
    pub(super) fn step_stateless(&mut self) -> Result<Step> {
        let shared = self.shared.clone();
        self.exchange(&mut [])?;
        if shared.gather.is_congested() {
            return Ok(Step::Wait { until_us: Some(shared.env.now_us() + STALL_US) });
        }
        let mut only = Only::Any;
        if shared.gather.is_full() {
            let ended = shared.intake.ended_splits();
            if let Some((sequence, split)) = shared.gather.awaited_batch(self.id, &ended)? {
                let sent = shared.gather.is_sent((sequence, split));
                if sent || !shared.intake.has_chunk(split, sequence) {
                    if shared.intake.look_for_end(split, sequence)? {
                        return Ok(Step::Busy);
                    }
                    return Ok(Step::Wait { until_us: Some(shared.env.now_us() + STALL_US) });
                }
                only = Only::Split(split);
            }
        }
        match shared.intake.take(self.id, only)? {
            Taken::Batch(batch) => {
                self.count(&batch);
                let Some(stateless) = &shared.stateless else {
                    return Err(Error::Internal("a job without a pipeline".into()));
                };
                let rows = {
                    let mut span = meter::span(meter::Kind::Batch);
                    span.add(batch.prepared.batch.num_rows());
                    stateless.run(&batch.prepared.batch).map(StatelessRows::from)
                };
                let rows = rows.or_else(|error| self.up_to_failing(error, stateless, &batch))?;
                shared.intake.finish(self.id);
                let (ended, gather) = (shared.intake.ended_splits(), &shared.gather);
                if gather.stateless_rows(self.id, (batch.sequence, batch.split), rows, &ended)? {
                    shared.stop_enough()?;
                }
                if gather.sorts() {
                    // Nothing of it can be written before the end.
                    shared.check_gathered()?;
                }
                Ok(Step::Busy)
            }
            Taken::Again => {
                if shared.net.is_some() {
                    // A split may have ended, whose rows others waited for.
                    shared.write_waiting()?;
                }
                Ok(Step::Busy)
            }
            Taken::Wait { until_us } => Ok(Step::Wait { until_us }),
            Taken::Held => {
                self.stats.memory_stalls += 1;
                Ok(Step::Wait { until_us: Some(shared.env.now_us() + STALL_US) })
            }
            Taken::Ended => {
                shared.intake.finish(self.id);
                Ok(Step::Done)
            }
        }
    }

    /// What a batch comes to that cannot be evaluated as a whole. A LIMIT may be reached before the
    /// record with which it fails: then the rows before that one count, and the error only if more
    /// are wanted.
    fn up_to_failing(
        &self,
        error: Error,
        stateless: &Stateless,
        batch: &Stamped,
    ) -> Result<StatelessRows> {
        if !error.is_of_records() {
            return Err(error);
        }
        let (rows, failing) = stateless.up_to_failing(&batch.prepared.batch)?;
        let name = self.shared.intake.name(batch.split);
        let named = |(row, error): (usize, Error)| error.for_record(&place_of(batch, row, name));
        let error = failing.map_or(error, named);
        match self.shared.gather.has_limit() {
            true => Ok(StatelessRows { rows, then: Some(error) }),
            false => Err(error),
        }
    }
}
