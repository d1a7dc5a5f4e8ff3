//! Result rows of windows that fire: HAVING and the output columns, a portion at a time.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{SchemaRef, TimestampMillisecondType};

use crate::budget::batch_bytes;
use crate::columns::records::PORTION_BYTES;
use crate::error::{Error, Result};
use crate::event_time::Times;
use crate::expr::Expr;
use crate::operator::paired::{Paired, Pairing};
use crate::operator::stateless::Taking;
use crate::plan::{Aggregate, Project};

/// HAVING and the output columns.
#[derive(Debug)]
pub(crate) struct Finisher {
    /// Of rows of groups.
    pub(super) fired: SchemaRef,
    /// If pairs of these are what fires.
    pairing: Option<Pairing>,
    taking: Taking,
    output: SchemaRef,
}

/// The rows of a window that fires.
pub(crate) struct ResultRows {
    /// Rows of the last block that have not been turned into result rows yet.
    left: Option<RecordBatch>,
    /// Pairs that have not been made.
    pairs: Option<Paired>,
    /// `window_start`, `window_end` and `window_time` for a full block; blocks take slices.
    pub(super) bounds: Vec<ArrayRef>,
    /// Where each row of state has bounds of its own, the event times of the rows that are left.
    pub(super) times: Option<Vec<i64>>,
}

impl Finisher {
    pub(crate) fn new(aggregate: &Aggregate, output: &SchemaRef) -> Finisher {
        let Aggregate { fired, having, project, .. } = aggregate;
        let plain = Finisher::of(fired, having, project, output);
        match aggregate.pairs.as_deref() {
            Some(pairs) => Finisher {
                fired: pairs.records.clone(),
                pairing: Some(Pairing::new(pairs, fired)),
                ..plain
            },
            None => plain,
        }
    }

    /// Of rows with columns of their own.
    pub(crate) fn of(
        fired: &SchemaRef,
        having: &Option<Expr>,
        project: &[Expr],
        output: &SchemaRef,
    ) -> Finisher {
        let project = Project { columns: project.to_vec(), schema: output.clone() };
        Finisher {
            fired: fired.clone(),
            pairing: None,
            taking: Taking::new(having.clone(), Some(project)),
            output: output.clone(),
        }
    }

    /// As many result rows, from the first on, as make a portion and as the texts computed of them
    /// allow, and the rows that are left. `take` makes result rows.
    fn project_some<T>(
        &self,
        fired: RecordBatch,
        take: impl Fn(&RecordBatch) -> Result<T>,
    ) -> Result<(T, Option<RecordBatch>)> {
        let portions = batch_bytes(&fired).div_ceil(PORTION_BYTES).max(1);
        let mut rows = fired.num_rows().div_ceil(portions);
        loop {
            match take(&fired.slice(0, rows)) {
                Err(Error::TooMuchText { .. }) if rows > 1 => rows /= 2,
                projected => {
                    let left = fired.num_rows() - rows;
                    return Ok((projected?, (left > 0).then(|| fired.slice(rows, left))));
                }
            }
        }
    }

    /// If pairs are what fires.
    pub(super) fn pairing(&self) -> Option<&Pairing> {
        self.pairing.as_ref()
    }
}

impl ResultRows {
    /// Of a window with these bounds and this time. Mostly at most so many rows come at once.
    pub(crate) fn bounded(bounds: Option<[i64; 3]>, rows: usize) -> ResultRows {
        let column = |us: i64| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from_value(us.div_euclid(1000), rows))
        };
        let bounds = bounds.map_or(vec![], |bounds| bounds.map(column).to_vec());
        ResultRows { left: None, pairs: None, bounds, times: None }
    }

    /// The columns of the window's bounds, for so many rows.
    pub(crate) fn bounds(&self, rows: usize) -> Vec<ArrayRef> {
        let column = |column: &ArrayRef| -> ArrayRef {
            if rows <= column.len() {
                return column.slice(0, rows);
            }
            let value = column.as_primitive::<TimestampMillisecondType>().value(0);
            Arc::new(TimestampMillisecondArray::from_value(value, rows))
        };
        self.bounds.iter().map(column).collect()
    }

    /// Takes rows that are there already; none are left of those before.
    pub(crate) fn give(&mut self, rows: RecordBatch) {
        self.left = Some(rows);
    }

    /// The same, with their event times, which are this column of theirs.
    pub(crate) fn give_timed(&mut self, rows: RecordBatch, time: usize) -> Result<()> {
        let untold = || Error::Internal("rows of a join without a time".into());
        let times = Times::new(rows.columns().get(time).ok_or_else(untold)?)?;
        let times = (0..rows.num_rows()).map(|row| times.us(row).ok_or_else(untold));
        self.times = Some(times.collect::<Result<_>>()?);
        self.left = Some(rows);
        Ok(())
    }

    /// Whether there are some that have not been given.
    pub(crate) fn are_left(&self) -> bool {
        self.left.is_some() || self.pairs.is_some()
    }

    /// Takes rows of groups, and the group of each row where a group has several; none are left of
    /// those before.
    pub(super) fn give_groups(
        &mut self,
        finisher: &Finisher,
        rows: RecordBatch,
        of: Option<Vec<u32>>,
    ) -> Result<()> {
        if let (Some(of), Some(times)) = (&of, &mut self.times) {
            *times = of.iter().map(|row| times[*row as usize]).collect();
        }
        match &finisher.pairing {
            None => self.left = Some(rows),
            Some(pairing) => {
                let of = of.unwrap_or_default();
                let times = self.times.as_deref().unwrap_or_default();
                self.pairs = pairing.pairs(&rows, &of, times)?;
            }
        }
        Ok(())
    }

    /// Makes the next pairs, if that is what comes next.
    fn pair(&mut self, finisher: &Finisher) -> Result<()> {
        if let (None, Some(pairs), Some(pairing)) = (&self.left, &mut self.pairs, &finisher.pairing)
        {
            let (rows, times) = pairs.next(pairing)?;
            (self.left, self.times) = (Some(rows), Some(times));
            self.pairs.take_if(|pairs| pairs.is_over());
        }
        Ok(())
    }

    /// Takes pairs that are to be made; none are left of those before.
    pub(super) fn give_pairs(&mut self, pairs: Option<Paired>) {
        self.pairs = pairs;
    }

    /// The next result rows, with their event times where each row of state has its bounds.
    pub(crate) fn project(
        &mut self,
        finisher: &Finisher,
    ) -> Result<(RecordBatch, Option<Vec<i64>>)> {
        self.pair(finisher)?;
        let Some(left) = self.left.take() else {
            let times = self.times.as_ref().map(|_| Vec::new());
            return Ok((RecordBatch::new_empty(finisher.output.clone()), times));
        };
        let Some(times) = &mut self.times else {
            let (rows, left) = finisher.project_some(left, |rows| finisher.taking.rows(rows))?;
            self.left = left;
            return Ok((rows, None));
        };
        let count = left.num_rows();
        let (taken, left) = finisher.project_some(left, |rows| finisher.taking.take(rows))?;
        let given = count - left.as_ref().map_or(0, RecordBatch::num_rows);
        self.left = left;
        let times: Vec<i64> = times.drain(..given).collect();
        let times = match taken.places {
            None => times,
            Some(places) => places.iter().map(|place| times[*place as usize]).collect(),
        };
        Ok((taken.rows, Some(times)))
    }
}
