//! The first pipeline, from a stamped batch to its soft breaker: filter, drop late records, assign
//! windows, group and aggregate into the worker's state (paper, section 5.2).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;

use millstream_state::RowLayout;

use crate::aggregates::Aggregates;
use crate::assign::{BySlice, Dropped, assign};
use crate::cluster::Net;
use crate::error::{Error, Result};
use crate::event_time::END;
use crate::expr::Expr;
use crate::inputs::{Input, true_mask};
use crate::intake::Stamped;
use crate::keys::KeyCodec;
use crate::plan::{Aggregate, Query, Tumble};
use crate::slices::Slices;

/// Slice start of an aggregation without windows.
pub(crate) const WHOLE: i64 = 0;

/// Grouping and aggregation in executable form.
#[derive(Debug)]
pub(crate) struct Grouping {
    pub(crate) codec: KeyCodec,
    pub(crate) aggregates: Aggregates,
    pub(crate) layout: Arc<RowLayout>,
    pub(crate) window: Option<Tumble>,
    pub(crate) lateness_us: i64,
    /// [`Aggregate::has_empty_group`].
    pub(crate) has_empty_group: bool,
    keys: Vec<Expr>,
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
    /// Whether there is a window that begins then, or, without windows, the one slice that there
    /// is.
    pub(crate) fn has_slice(&self, start: i64) -> bool {
        match &self.window {
            Some(window) => window.begins_at(start),
            None => start == WHOLE,
        }
    }

    pub(crate) fn new(query: &Query, aggregate: &Aggregate, lateness_us: i64) -> Result<Grouping> {
        Grouping::filtered(query.filter.clone(), aggregate, lateness_us)
    }

    /// Of the records that pass a filter.
    pub(crate) fn filtered(
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
        Ok(Grouping {
            codec,
            aggregates,
            layout,
            window: aggregate.window,
            lateness_us,
            has_empty_group,
            keys,
            filter,
            computed,
        })
    }

    /// Runs a batch through the pipeline into `slices`, or through `net` to leaders in other
    /// processes; returns what was dropped and how many rows were not the worker's own.
    pub(crate) fn run(
        &self,
        batch: &Stamped,
        slices: &mut Slices,
        net: Option<&Net>,
        buffers: &mut Buffers,
    ) -> Result<(Dropped, u64)> {
        let mut by_slice = std::mem::take(&mut buffers.by_slice);
        let dropped = self.assign(batch, buffers, &mut by_slice)?;
        let mut fragment_rows = 0;
        if let Some((keys, arguments)) = self.evaluate(&batch.prepared.batch, &mut by_slice)? {
            for (start, rows) in by_slice.iter().filter(|(_, rows)| !rows.is_empty()) {
                let selected = Selected { keys: &keys, arguments: &arguments, rows };
                fragment_rows += slices.update(*start, self, &selected, net)?;
            }
        }
        if let ([(_, rows)], 0) = (&mut by_slice[..], buffers.rows.capacity()) {
            buffers.rows = std::mem::take(rows);
        }
        buffers.by_slice = by_slice;
        Ok((dropped, fragment_rows))
    }

    /// Finds the rows of a batch that count, slice by slice; returns what was dropped.
    pub(crate) fn assign(
        &self,
        batch: &Stamped,
        buffers: &mut Buffers,
        by_slice: &mut BySlice,
    ) -> Result<Dropped> {
        let records = &batch.prepared.batch;
        let mask = match &self.filter {
            Some(filter) => Some(true_mask(filter, records)?),
            None => None,
        };
        select(mask.as_ref(), records.num_rows(), &mut buffers.rows);
        if let Some(start) = self.single_slice(batch) {
            by_slice.clear();
            by_slice.push((start, std::mem::take(&mut buffers.rows)));
            return Ok(Dropped::default());
        }
        let (Some(window), Some(times)) = (&self.window, &batch.prepared.times) else {
            return Err(Error::Internal("windows without event times".into()));
        };
        Ok(assign(window, self.lateness_us, times, batch.stamp, &buffers.rows, by_slice))
    }

    /// The slice of the whole batch, if it has just one and no record can be late for it.
    fn single_slice(&self, batch: &Stamped) -> Option<i64> {
        let Some(window) = &self.window else { return Some(WHOLE) };
        let (min, max) = batch.prepared.times.as_ref()?.bounds?;
        let start = window.start_of(min);
        let fires_at = window.fires_at(start, self.lateness_us);
        (start == window.start_of(max) && fires_at > batch.after).then_some(start)
    }

    /// When the slice that begins at `start` fires: as its window does, or at the end of the input.
    pub(crate) fn fires_at(&self, start: i64) -> i64 {
        match &self.window {
            Some(window) => window.fires_at(start, self.lateness_us),
            None => {
                debug_assert_eq!(start, WHOLE);
                END
            }
        }
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
    Ok(take_record_batch(records, &UInt32Array::from(taken))?)
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
    pub(crate) fn new(query: &Query, project: &[Expr]) -> Stateless {
        Stateless {
            filter: query.filter.clone(),
            project: project.to_vec(),
            output: query.output.clone(),
        }
    }

    /// The rows that a batch yields.
    pub(crate) fn run(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        filter_and_project(batch, self.filter.as_ref(), &self.project, &self.output)
    }
}

/// WHERE or HAVING, then the output columns.
pub(crate) fn filter_and_project(
    batch: &RecordBatch,
    filter: Option<&Expr>,
    project: &[Expr],
    output: &SchemaRef,
) -> Result<RecordBatch> {
    let passed;
    let batch = match filter {
        None => batch,
        Some(filter) => {
            let mask = true_mask(filter, batch)?;
            passed = arrow::compute::filter_record_batch(batch, &mask.into())?;
            &passed
        }
    };
    let columns = project.iter().map(|p| p.evaluate(batch)).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(output.clone(), columns, &options)?)
}
