//! The first pipeline, from a stamped batch to its soft breaker, the update of state: filter, drop
//! late records, assign windows, group, and aggregate into the worker's state (paper, section 5.2).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take_arrays;
use arrow::datatypes::SchemaRef;

use millstream_state::{Load, RowLayout};

use crate::aggregates::Aggregates;
use crate::assign::{BySlice, Dropped, assign};
use crate::cluster::Delivery;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::failing::{first_failing, rows_before_failing};
use crate::inputs::{Input, true_mask};
use crate::intake::Stamped;
use crate::keys::{KeyCodec, is_variable, text_bytes};
use crate::plan::Aggregate;
use crate::slices::Slices;
use crate::texts;
use crate::windowing::{WHOLE, Windowing};

/// Grouping and aggregation in executable form.
#[derive(Debug)]
pub(crate) struct Grouping {
    pub(crate) codec: KeyCodec,
    pub(crate) aggregates: Aggregates,
    pub(crate) layout: Arc<RowLayout>,
    pub(crate) windowing: Windowing,
    /// [`Aggregate::has_empty_group`].
    pub(crate) has_empty_group: bool,
    keys: Vec<Expr>,
    /// Columns of a batch whose texts state keeps as they are, and whether others are computed.
    texts: Vec<usize>,
    pub(crate) computes_texts: bool,
    filter: Option<Expr>,
    /// Whether keys or arguments must be computed, for which rows that do not count are taken out
    /// first: an expression may fail on them.
    computed: bool,
}

/// Rows of a batch that update one slice.
#[derive(Debug)]
pub(crate) struct Selected<'a> {
    pub(crate) keys: &'a [ArrayRef],
    pub(crate) arguments: &'a [Input],
    /// Positions in `keys` and `arguments`.
    pub(crate) rows: &'a [u32],
}

/// Buffers that are used again from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    rows: Vec<u32>,
    by_slice: BySlice,
}

impl Grouping {
    /// Of the rows that pass a filter.
    pub(crate) fn new(
        filter: Option<Expr>,
        aggregate: &Aggregate,
        lateness_us: i64,
    ) -> Result<Grouping> {
        let codec = KeyCodec::new(&aggregate.keys)?;
        let has_empty_group = aggregate.has_empty_group();
        let aggregates = Aggregates::new(&aggregate.aggregates, has_empty_group)?;
        let layout =
            Arc::new(RowLayout::new(codec.words(), codec.var_words(), &aggregates.layout_values()));
        let keys: Vec<Expr> = aggregate.keys.iter().map(|k| k.expr.clone()).collect();
        let computed = aggregates.is_computed() || keys.iter().any(|k| !k.is_column());
        let key_texts = aggregate.keys.iter().filter(|key| is_variable(&key.data_type));
        let kept: Vec<&Expr> = key_texts.map(|key| &key.expr).chain(aggregates.texts()).collect();
        let column = |expr: &&Expr| match expr {
            Expr::Column(index) => Some(*index),
            Expr::Computed(_) => None,
        };
        let texts: Vec<usize> = kept.iter().filter_map(column).collect();
        let computes_texts = texts.len() < kept.len();
        Ok(Grouping {
            codec,
            aggregates,
            layout,
            windowing: Windowing::new(aggregate.window, lateness_us),
            has_empty_group,
            keys,
            texts,
            computes_texts,
            filter,
            computed,
        })
    }

    /// Runs a batch through the pipeline into `slices`, or through `delivery` to leaders in other
    /// processes; returns what was dropped and how many rows were not the worker's own.
    pub(crate) fn run(
        &self,
        batch: &Stamped,
        slices: &mut Slices,
        delivery: Option<&Delivery>,
        buffers: &mut Buffers,
    ) -> Result<(Dropped, u64)> {
        let mut by_slice = std::mem::take(&mut buffers.by_slice);
        let dropped = self.assign(batch, buffers, &mut by_slice)?;
        let records = &batch.prepared.batch;
        let fragment_rows = match self.update(records, &mut by_slice, slices, delivery) {
            Err(Error::TooMuchText { .. }) if records.num_rows() > 1 => {
                // Nothing has been changed yet. Positions may have been, which are found again.
                self.assign(batch, buffers, &mut by_slice)?;
                self.update_in_parts(records, &by_slice, 0..records.num_rows(), slices, delivery)
            }
            updated => updated,
        }?;
        if let ([(_, rows)], 0) = (&mut by_slice[..], buffers.rows.capacity()) {
            buffers.rows = std::mem::take(rows);
        }
        buffers.by_slice = by_slice;
        Ok((dropped, fragment_rows))
    }

    /// As [`Grouping::run`], for rows that all belong to one slice and of which none is late.
    pub(crate) fn run_rows(
        &self,
        (rows, slice): (&RecordBatch, i64),
        slices: &mut Slices,
        delivery: Option<&Delivery>,
        buffers: &mut Buffers,
    ) -> Result<u64> {
        let select = |buffers: &mut Buffers| {
            self.select(rows, buffers)?;
            Ok::<BySlice, Error>(vec![(slice, std::mem::take(&mut buffers.rows))])
        };
        let mut by_slice = select(buffers)?;
        let fragment_rows = match self.update(rows, &mut by_slice, slices, delivery) {
            Err(Error::TooMuchText { .. }) if rows.num_rows() > 1 => {
                // As above.
                let by_slice = select(buffers)?;
                self.update_in_parts(rows, &by_slice, 0..rows.num_rows(), slices, delivery)
            }
            updated => updated,
        }?;
        if let Some((_, rows)) = by_slice.pop() {
            buffers.rows = rows;
        }
        Ok(fragment_rows)
    }

    /// Updates slices with the rows of a batch that count; returns how many were not the worker's
    /// own.
    fn update(
        &self,
        records: &RecordBatch,
        by_slice: &mut BySlice,
        slices: &mut Slices,
        delivery: Option<&Delivery>,
    ) -> Result<u64> {
        let mut fragment_rows = 0;
        let Some((keys, arguments)) = self.evaluate(records, by_slice)? else { return Ok(0) };
        for (start, rows) in by_slice.iter().filter(|(_, rows)| !rows.is_empty()) {
            let selected = Selected { keys: &keys, arguments: &arguments, rows };
            fragment_rows += slices.update(*start, self, &selected, delivery)?;
        }
        Ok(fragment_rows)
    }

    /// As [`Grouping::update`], for the rows of a range, half of them at a time where texts that
    /// are computed of them are too much.
    #[cold]
    fn update_in_parts(
        &self,
        records: &RecordBatch,
        by_slice: &BySlice,
        range: Range<usize>,
        slices: &mut Slices,
        delivery: Option<&Delivery>,
    ) -> Result<u64> {
        match self.update(records, &mut within(by_slice, &range), slices, delivery) {
            Err(Error::TooMuchText { .. }) if range.len() > 1 => {
                let middle = range.start + range.len() / 2;
                let first =
                    self.update_in_parts(records, by_slice, range.start..middle, slices, delivery)?;
                let rest =
                    self.update_in_parts(records, by_slice, middle..range.end, slices, delivery)?;
                Ok(first + rest)
            }
            updated => updated,
        }
    }

    /// The first row of a batch with which evaluating what it needs fails, and the error; `None` if
    /// it fails with no row alone.
    #[cold]
    pub(crate) fn first_failing(&self, batch: &Stamped) -> Option<(usize, Error)> {
        let records = &batch.prepared.batch;
        if let Some(filter) = &self.filter {
            let alone = |rows: Range<usize>| {
                true_mask(filter, &records.slice(rows.start, rows.len())).map(|_| ())
            };
            if alone(0..records.num_rows()).is_err() {
                return first_failing(records.num_rows(), alone);
            }
        }
        let mut by_slice = BySlice::new();
        self.assign(batch, &mut Buffers::default(), &mut by_slice).ok()?;
        first_failing(records.num_rows(), |range| {
            self.evaluate(records, &mut within(&by_slice, &range)).map(|_| ())
        })
    }

    /// What a batch may bring to its tables, as far as that can be told before anything is
    /// computed.
    pub(crate) fn load(&self, records: &RecordBatch) -> Load {
        let texts = self.texts.iter().map(|column| text_bytes(records.column(*column)));
        Load { rows: records.num_rows(), text_bytes: texts.sum() }
    }

    /// Finds the rows of a batch that count, slice by slice; returns what was dropped.
    pub(crate) fn assign(
        &self,
        batch: &Stamped,
        buffers: &mut Buffers,
        by_slice: &mut BySlice,
    ) -> Result<Dropped> {
        self.select(&batch.prepared.batch, buffers)?;
        if let Some(start) = self.single_slice(batch) {
            by_slice.clear();
            by_slice.push((start, std::mem::take(&mut buffers.rows)));
            return Ok(Dropped::default());
        }
        let Some(times) = &batch.prepared.times else {
            return Err(Error::Internal("windows without event times".into()));
        };
        Ok(assign(&self.windowing, times, batch.stamp, &buffers.rows, by_slice))
    }

    /// Finds the rows of a batch that pass the filter.
    fn select(&self, records: &RecordBatch, buffers: &mut Buffers) -> Result<()> {
        texts::begin();
        let mask = match &self.filter {
            Some(filter) => Some(true_mask(filter, records)?),
            None => None,
        };
        select(mask.as_ref(), records.num_rows(), &mut buffers.rows);
        Ok(())
    }

    /// The slice of the whole batch, if it has just one and no record can be late for it.
    fn single_slice(&self, batch: &Stamped) -> Option<i64> {
        if self.windowing.is_whole() {
            return Some(WHOLE);
        }
        let start = self.windowing.common_slice(batch.prepared.times.as_ref()?.bounds?)?.start;
        (self.windowing.closes_at(start) > batch.after).then_some(start)
    }

    /// Keys and arguments for the rows of a batch that count, which stand at the positions in
    /// `by_slice` then; `None` if there are none.
    pub(crate) fn evaluate(
        &self,
        records: &RecordBatch,
        by_slice: &mut BySlice,
    ) -> Result<Option<(Vec<ArrayRef>, Vec<Input>)>> {
        let counted: usize = by_slice.iter().map(|(_, rows)| rows.len()).sum();
        if counted == 0 {
            return Ok(None);
        }
        texts::begin();
        let taken;
        let records = if self.computed && counted < records.num_rows() {
            taken = take_out(records, by_slice, counted)?;
            &taken
        } else {
            records
        };
        // For all slices at once: there may be many, with few rows each.
        let keys = self.keys.iter().map(|k| k.evaluate(records)).collect::<Result<Vec<_>>>()?;
        Ok(Some((keys, self.aggregates.inputs(records)?)))
    }
}

/// Those of some rows that lie in a range.
fn within(by_slice: &BySlice, range: &Range<usize>) -> BySlice {
    let within = |row: &u32| range.contains(&(*row as usize));
    let of_range = |rows: &[u32]| rows.iter().copied().filter(within).collect();
    by_slice.iter().map(|(start, rows)| (*start, of_range(rows))).collect()
}

/// The rows of a batch that count, slice by slice; their positions become those in the result.
fn take_out(
    records: &RecordBatch,
    by_slice: &mut [(i64, Vec<u32>)],
    counted: usize,
) -> Result<RecordBatch> {
    let mut taken = Vec::with_capacity(counted);
    for (_, rows) in by_slice {
        for row in rows {
            let position = taken.len() as u32;
            taken.push(std::mem::replace(row, position));
        }
    }
    let columns = take_arrays(records.columns(), &UInt32Array::from(taken), None)?;
    // There may be no column, and rows all the same.
    let options = RecordBatchOptions::new().with_row_count(Some(counted));
    Ok(RecordBatch::try_new_with_options(records.schema(), columns, &options)?)
}

/// Positions of the `len` rows, as many as a mask has bits, that it lets pass, ascending.
fn select(mask: Option<&BooleanBuffer>, len: usize, rows: &mut Vec<u32>) {
    let Some(mask) = mask else {
        rows.clear();
        rows.extend(0..len as u32);
        return;
    };
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,popcnt")]
        fn select_avx2(mask: &BooleanBuffer, len: usize, rows: &mut Vec<u32>) {
            select_set(mask, len, rows);
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            // SAFETY: the processor has the features.
            return unsafe { select_avx2(mask, len, rows) };
        }
    }
    select_set(mask, len, rows);
}

#[inline(always)]
fn select_set(mask: &BooleanBuffer, len: usize, rows: &mut Vec<u32>) {
    rows.clear();
    // Eight positions are written at a time, so room for a few too many.
    rows.reserve(len + 64);
    assert!(mask.len() <= len);
    let (mut out, mut base) = (rows.as_mut_ptr(), 0);
    for bits in mask.bit_chunks().iter_padded() {
        for byte in bits.to_le_bytes() {
            let positions = &POSITIONS[usize::from(byte)];
            // SAFETY: at most `len` positions have been counted, and there is room for eight beyond
            // those.
            unsafe {
                for (i, position) in positions.bits.iter().enumerate() {
                    out.add(i).write(base + u32::from(*position));
                }
                out = out.add(positions.count as usize);
            }
            base += 8;
        }
    }
    // SAFETY: `out` has moved once for each position counted.
    unsafe { rows.set_len(out.offset_from(rows.as_ptr()) as usize) };
}

/// Per byte of a mask: which of its bits are set, and how many.
static POSITIONS: [Positions; 256] = {
    let mut table = [Positions { bits: [0; 8], count: 0 }; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut count) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[byte].bits[count] = bit as u8;
                count += 1;
            }
            bit += 1;
        }
        table[byte].count = count as u64;
        byte += 1;
    }
    table
};

#[derive(Clone, Copy)]
struct Positions {
    bits: [u8; 8],
    count: u64,
}

/// The pipeline of a query without state.
#[derive(Debug)]
pub(crate) struct Stateless {
    filter: Option<Expr>,
    project: Vec<Expr>,
    output: SchemaRef,
}

impl Stateless {
    pub(crate) fn new(filter: Option<Expr>, project: &[Expr], output: &SchemaRef) -> Stateless {
        Stateless { filter, project: project.to_vec(), output: output.clone() }
    }

    /// The rows that a batch yields.
    pub(crate) fn run(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        filter_and_project(batch, self.filter.as_ref(), &self.project, &self.output)
    }

    /// Of a batch with which [`Stateless::run`] fails: the rows that the most records yield, from
    /// the first on, with which it does not; and the number and the error of the next one, if it
    /// fails with that one alone.
    #[cold]
    pub(crate) fn up_to_failing(
        &self,
        batch: &RecordBatch,
    ) -> Result<(RecordBatch, Option<(usize, Error)>)> {
        let run = |rows: Range<usize>| self.run(&batch.slice(rows.start, rows.len()));
        let row = rows_before_failing(batch.num_rows(), |rows| run(rows).map(|_| ()));
        Ok((
            run(0..row)?,
            run(row..(row + 1).min(batch.num_rows())).err().map(|error| (row, error)),
        ))
    }
}

/// WHERE or HAVING, then the output columns.
pub(crate) fn filter_and_project(
    batch: &RecordBatch,
    filter: Option<&Expr>,
    project: &[Expr],
    output: &SchemaRef,
) -> Result<RecordBatch> {
    texts::begin();
    let passed;
    let batch = match filter {
        None => batch,
        Some(filter) => {
            let mask = true_mask(filter, batch)?;
            passed = arrow::compute::filter_record_batch(batch, &mask.into())?;
            &passed
        }
    };
    if batch.num_rows() == 0 {
        // Constants may fail, too, and nobody asks for them.
        return Ok(RecordBatch::new_empty(output.clone()));
    }
    let columns = project.iter().map(|p| p.evaluate(batch)).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(output.clone(), columns, &options)?)
}
