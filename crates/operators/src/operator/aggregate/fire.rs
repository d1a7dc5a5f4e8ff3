//! The second pipeline, from rows of a complete window's state to result rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, RecordBatch, RecordBatchOptions, TimestampMillisecondArray, UInt32Array,
};
use arrow::compute::take_arrays;
use arrow::datatypes::{SchemaRef, TimestampMillisecondType};

use millstream_state::{ChunkPool, Keys, NoVarKeys, RowsRef, Scratch, Table, hash_words};

use crate::budget::batch_bytes;
use crate::columns::records::{PORTION_BYTES, Reading, Records};
use crate::error::{Error, Result};
use crate::event_time::Times;
use crate::expr::Expr;
use crate::operator::aggregate::grouping::Grouping;
use crate::operator::aggregate::paired::{Paired, Pairing};
use crate::operator::stateless::Taking;
use crate::plan::{Aggregate, Project};
use crate::windowing::WindowId;

/// HAVING and the output columns.
#[derive(Debug)]
pub(crate) struct Finisher {
    /// Of rows of groups.
    fired: SchemaRef,
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
    bounds: Vec<ArrayRef>,
    /// Where each row of state has bounds of its own, the event times of the rows that are left.
    times: Option<Vec<i64>>,
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
            taking: Taking { filter: having.clone(), project: Some(project) },
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

    /// Some rows of state as the columns of a window that has fired. Where a row of state becomes
    /// several: those that are read next, and which row of state each is of.
    pub(super) fn decode(
        &self,
        grouping: &Grouping,
        bounds: &[ArrayRef],
        rows: &RowsRef<'_>,
        reading: &mut Reading,
    ) -> Result<(RecordBatch, Option<Vec<u32>>)> {
        let records = grouping.aggregates.best(rows, reading)?;
        let some = records.as_ref().map_or(0..rows.len(), Records::range);
        let mut columns: Vec<ArrayRef> =
            bounds.iter().map(|b| b.slice(some.start, some.len())).collect();
        columns.extend(grouping.codec.decode(&rows.slice(some.clone()), grouping.own_keys())?);
        let (mut count, mut of) = (some.len(), None);
        match records {
            None => columns.extend(grouping.aggregates.finish(rows)?),
            Some(Records { groups, columns: values }) => {
                count = groups.len();
                let places = groups.iter().map(|group| *group - some.start as u32);
                columns = take_arrays(&columns, &UInt32Array::from_iter_values(places), None)?;
                columns.extend(values);
                of = Some(groups);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let fired = RecordBatch::try_new_with_options(self.fired.clone(), columns, &options)?;
        Ok((fired, of))
    }

    /// If pairs are what fires.
    pub(super) fn pairing(&self) -> Option<&Pairing> {
        self.pairing.as_ref()
    }
}

/// State of the group of no columns that has met no record.
pub(crate) fn empty_table(grouping: &Grouping) -> Table {
    let mut table = Table::new(grouping.layout.clone());
    let (mut pool, mut scratch) =
        (ChunkPool::new(grouping.layout.row_words(), 0, None), Scratch::default());
    let keys = Keys { hashes: &[hash_words(&[])], ahead: &[], words: &[], vars: NoVarKeys };
    table.update(&keys, &mut pool, &mut scratch);
    table
}

impl ResultRows {
    /// Of a window whose blocks have at most so many rows.
    pub(crate) fn of(window: WindowId, rows: usize, grouping: &Grouping) -> ResultRows {
        ResultRows::bounded(grouping.windowing.columns_of(window), rows)
    }

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

    /// Takes rows of state, each with its bounds if it has some of its own; none are left of those
    /// before. Where each becomes several, takes those of these that are read next.
    pub(super) fn read(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
        rows: &RowsRef<'_>,
        bounds: Option<&BoundsOfRows>,
        reading: &mut Reading,
    ) -> Result<()> {
        if let Some(bounds) = bounds {
            self.times = Some(bounds.times.clone());
            self.bounds = bounds.columns.clone();
        }
        let (left, of) = finisher.decode(grouping, &self.bounds, rows, reading)?;
        if let (Some(of), Some(times)) = (&of, &mut self.times) {
            *times = of.iter().map(|row| times[*row as usize]).collect();
        }
        match &finisher.pairing {
            None => self.left = Some(left),
            Some(pairing) => {
                let of = of.unwrap_or_default();
                let times = self.times.as_deref().unwrap_or_default();
                self.pairs = pairing.pairs(&left, &of, times)?;
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

/// The bounds of the windows of rows of state, where each has its own.
pub(super) struct BoundsOfRows {
    /// `window_start`, `window_end` and `window_time`.
    pub(super) columns: Vec<ArrayRef>,
    /// Event times.
    pub(super) times: Vec<i64>,
}

impl BoundsOfRows {
    /// Of starts, ends and times in microseconds.
    pub(super) fn new(bounds: [Vec<i64>; 3]) -> BoundsOfRows {
        let column = |us: &Vec<i64>| -> ArrayRef {
            // Mostly the same ones follow each other.
            let (mut last_us, mut last_ms) = (0, 0);
            let ms = us.iter().map(|us| {
                if *us != last_us {
                    (last_us, last_ms) = (*us, us.div_euclid(1000));
                }
                last_ms
            });
            Arc::new(TimestampMillisecondArray::from_iter_values(ms))
        };
        let columns = bounds.iter().map(column).collect();
        let [_, _, times] = bounds;
        BoundsOfRows { columns, times }
    }
}
