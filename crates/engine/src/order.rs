//! The order of result rows: by the keys of an ORDER BY, then by all columns from left to right,
//! NULLs last. NaN comes after all numbers. Both zeros are the same key, as are all NaNs; rows with
//! equal keys and columns go by their bits.
//!
//! Leaders sort the rows that they fire batch by batch, into *runs*. When a window is complete, its
//! runs are merged while they are written. So its rows are never copied as a whole.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, interleave_record_batch, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};

use millstream_contract::floats::one_form;

use crate::error::Result;
use crate::plan::SortKey;
use millstream_operators::budget::{Held, batch_bytes};

/// Rows of a merged block at most.
const BLOCK_ROWS: usize = 4096;
/// A merged block ends when its rows have as many bytes in comparable form, so that blocks are the
/// same whatever the runs.
const BLOCK_BYTES: usize = 1 << 20;
/// Over all runs, about as many rows are looked at ahead of being written, if memory lasts.
const AHEAD_ROWS: usize = 16 << 10;
/// As many of each run are in any case.
const AHEAD_ROWS_MIN: usize = 4;

/// Sorted rows, counted against the budget.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) rows: RecordBatch,
    pub(crate) held: Held,
}

impl Run {
    /// Whether merging it with nothing else yields its own rows as a single block. Says no where it
    /// is not plain from its bytes.
    pub(crate) fn is_one_block(&self) -> bool {
        // More than a value takes in comparable form, besides twice its own bytes.
        const VALUE_BYTES: usize = 18;
        let (rows, columns) = (self.rows.num_rows(), self.rows.num_columns());
        let bytes = rows * columns * VALUE_BYTES + 4 * self.held.bytes();
        (1..=BLOCK_ROWS).contains(&rows) && columns > 0 && bytes <= BLOCK_BYTES
    }
}

/// The order of rows with certain columns: makes them comparable as bytes.
#[derive(Debug)]
pub(crate) struct Order {
    converter: RowConverter,
    /// The columns that are compared, the first one first.
    columns: Vec<usize>,
    /// As many are keys, of which equal values are one.
    keys: usize,
}

impl Order {
    /// Of rows with these columns, by `keys` before all others.
    pub(crate) fn new(schema: &SchemaRef, keys: &[SortKey]) -> Result<Order> {
        let has_forms = |column: usize| schema.field(column).data_type().is_floating();
        let is_key = |column: usize| keys.iter().any(|key| key.column == column);
        let rest = (0..schema.fields().len()).filter(|at| !is_key(*at) || has_forms(*at));
        let rest = rest.map(|column| SortKey { column, descending: false, nulls_first: false });
        let all: Vec<SortKey> = keys.iter().copied().chain(rest).collect();
        let field = |key: &SortKey| {
            let SortKey { descending, nulls_first, .. } = *key;
            let data_type = schema.field(key.column).data_type().clone();
            SortField::new_with_options(data_type, SortOptions { descending, nulls_first })
        };
        let converter = RowConverter::new(all.iter().map(field).collect())?;
        let columns = all.iter().map(|key| key.column).collect();
        Ok(Order { converter, columns, keys: keys.len() })
    }

    /// The rows in comparable form.
    fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        let column = |(at, column): (usize, &usize)| match at < self.keys {
            true => one_form(batch.column(*column)),
            false => batch.column(*column).clone(),
        };
        let columns: Vec<ArrayRef> = self.columns.iter().enumerate().map(column).collect();
        Ok(self.converter.convert_columns(&columns)?)
    }

    /// Sorts the rows of a batch, and keeps the first `most` of them.
    pub(crate) fn sorted(&self, batch: RecordBatch, most: usize) -> Result<RecordBatch> {
        if batch.num_columns() == 0 || batch.num_rows() < 2 {
            return Ok(batch);
        }
        let rows = self.rows(&batch)?;
        let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
        order.sort_unstable_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)));
        order.truncate(most);
        Ok(take_record_batch(&batch, &UInt32Array::from(order))?)
    }
}

/// Rows of sorted runs in one order, block by block.
pub(crate) struct Merge<'a> {
    order: &'a Order,
    runs: Vec<Cursor>,
    /// The next row of each run that has any left.
    heap: BinaryHeap<Reverse<(Box<[u8]>, usize)>>,
    ahead_rows: usize,
}

struct Cursor {
    run: Run,
    /// The row that is in the heap.
    at: usize,
    /// Comparable forms of the rows before `ahead_to` that have not been taken.
    ahead: std::vec::IntoIter<Box<[u8]>>,
    ahead_to: usize,
}

impl Cursor {
    /// The comparable form of the row after the last one.
    fn next(&mut self, order: &Order, ahead_rows: usize) -> Result<Option<Box<[u8]>>> {
        if let Some(row) = self.ahead.next() {
            return Ok(Some(row));
        }
        let len = ahead_rows.min(self.run.rows.num_rows() - self.ahead_to);
        if len == 0 {
            return Ok(None);
        }
        let rows = order.rows(&self.run.rows.slice(self.ahead_to, len))?;
        let ahead: Vec<Box<[u8]>> = rows.iter().map(|row| row.as_ref().into()).collect();
        let ahead_bytes: usize = ahead.iter().map(|row| row.len()).sum();
        self.run.held.resize(batch_bytes(&self.run.rows) + ahead_bytes);
        self.ahead = ahead.into_iter();
        self.ahead_to += len;
        Ok(self.ahead.next())
    }
}

impl Merge<'_> {
    /// Runs, each sorted by [`Order::sorted`]; rows that are looked at ahead take about
    /// `ahead_bytes` at the most.
    pub(crate) fn new(order: &Order, runs: Vec<Run>, ahead_bytes: usize) -> Result<Merge<'_>> {
        let mut merge = Merge {
            order,
            ahead_rows: AHEAD_ROWS_MIN,
            heap: BinaryHeap::with_capacity(runs.len()),
            runs: Vec::with_capacity(runs.len()),
        };
        // Of those at the beginning of runs, which are the smallest, and on average.
        let mut row_bytes = 1;
        for run in runs {
            let mut cursor = Cursor { run, at: 0, ahead: Vec::new().into_iter(), ahead_to: 0 };
            if let Some(row) = cursor.next(merge.order, AHEAD_ROWS_MIN)? {
                let rows = &cursor.run.rows;
                row_bytes =
                    row_bytes.max(row.len()).max(batch_bytes(rows) / rows.num_rows().max(1));
                merge.heap.push(Reverse((row, merge.runs.len())));
                merge.runs.push(cursor);
            }
        }
        let ahead_rows = AHEAD_ROWS.min(ahead_bytes / row_bytes) / merge.runs.len().max(1);
        merge.ahead_rows = ahead_rows.max(AHEAD_ROWS_MIN);
        Ok(merge)
    }

    /// The next rows, and whether they are the last; `None` after them.
    pub(crate) fn next(&mut self) -> Result<Option<(RecordBatch, bool)>> {
        let (mut picks, mut bytes) = (Vec::new(), 0);
        while picks.len() < BLOCK_ROWS
            && bytes < BLOCK_BYTES
            && let Some(mut top) = self.heap.peek_mut()
        {
            let (row, run) = (&top.0.0, top.0.1);
            bytes += row.len();
            let cursor = &mut self.runs[run];
            picks.push((run, cursor.at));
            cursor.at += 1;
            match cursor.next(self.order, self.ahead_rows)? {
                Some(row) => top.0.0 = row,
                None => drop(PeekMut::pop(top)),
            }
        }
        if picks.is_empty() {
            return Ok(None);
        }
        let runs: Vec<&RecordBatch> = self.runs.iter().map(|cursor| &cursor.run.rows).collect();
        Ok(Some((interleave_record_batch(&runs, &picks)?, self.heap.is_empty())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, AsArray, Float64Array, StringArray};
    use arrow::datatypes::Float64Type;

    use super::*;
    use millstream_operators::budget::{Budget, Kind};

    /// Rows of a batch, as plain values that compare as the order says.
    fn plain(batch: &RecordBatch) -> Vec<(bool, String, bool, i64)> {
        let (a, b) = (batch.column(0).as_string::<i32>(), batch.column(1));
        let b = b.as_primitive::<Float64Type>();
        let number = |row| if b.is_null(row) { 0 } else { (b.value(row) * 4.0) as i64 };
        let text = |row| if a.is_null(row) { String::new() } else { a.value(row).to_string() };
        (0..batch.num_rows())
            .map(|row| (a.is_null(row), text(row), b.is_null(row), number(row)))
            .collect()
    }

    #[test]
    fn merged_runs_are_all_rows_in_order() {
        let mut state = 12345u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        let mut single = 0;
        for runs in [0, 1, 2, 7, 300] {
            let budget = Arc::new(Budget::new(
                1 << 30,
                1,
                vec![millstream_operators::budget::Holder::any()],
                1,
            ));
            let (mut sorted_runs, mut expected) = (Vec::new(), Vec::new());
            let mut schema = None;
            for _ in 0..runs {
                let rows = [0, 1, 5, 400][below(4) as usize];
                let text: StringArray = (0..rows)
                    .map(|_| (below(5) > 0).then(|| "x".repeat(below(40) as usize)))
                    .collect();
                let number: Float64Array = (0..rows)
                    .map(|_| (below(5) > 0).then(|| below(100) as f64 / 4.0 - 7.0))
                    .collect();
                let columns: Vec<(&str, ArrayRef)> =
                    vec![("a", Arc::new(text)), ("b", Arc::new(number))];
                let batch = RecordBatch::try_from_iter_with_nullable(
                    columns.into_iter().map(|(name, column)| (name, column, true)),
                )
                .unwrap();
                schema = Some(batch.schema());
                expected.extend(plain(&batch));
                let rows =
                    Order::new(&batch.schema(), &[]).unwrap().sorted(batch, usize::MAX).unwrap();
                let held = budget.hold(Kind::Output, rows.get_array_memory_size());
                sorted_runs.push(Run { rows, held });
            }
            expected.sort();
            let Some(schema) = schema else { continue };
            let order = Order::new(&schema, &[]).unwrap();
            for run in &sorted_runs {
                // A run reported as a single block is sorted as it stands.
                let held = budget.hold(Kind::Output, batch_bytes(&run.rows));
                let alone = Run { rows: run.rows.clone(), held };
                if alone.is_one_block() {
                    single += 1;
                    let block = Merge::new(&order, vec![alone], 1 << 20).unwrap().next().unwrap();
                    assert_eq!(block, Some((run.rows.clone(), true)));
                }
            }
            // Those without rows are dropped at once.
            let runs_left = sorted_runs.iter().filter(|run| run.rows.num_rows() > 0);
            let run_bytes: usize = runs_left.map(|run| batch_bytes(&run.rows)).sum();
            let mut merge = Merge::new(&order, sorted_runs, 1 << 20).unwrap();
            // Rows that are looked at ahead count beside those of the runs.
            assert!(expected.is_empty() || budget.held(Kind::Output) > run_bytes as u64);
            let (mut merged, mut ended) = (Vec::new(), expected.is_empty());
            while let Some((rows, last)) = merge.next().unwrap() {
                assert!(!ended && rows.num_rows() > 0, "{runs} runs");
                ended = last;
                merged.extend(plain(&rows));
            }
            assert!(ended && merged == expected, "{runs} runs");
            drop(merge);
            assert_eq!(budget.held(Kind::Output), 0);
        }
        assert!(single > 100, "{single} runs of one block");
    }

    #[test]
    fn rows_looked_at_ahead_take_no_more_than_they_may() {
        let budget =
            Arc::new(Budget::new(1 << 30, 1, vec![millstream_operators::budget::Holder::any()], 1));
        let column: ArrayRef = Arc::new((0..50_000).map(f64::from).collect::<Float64Array>());
        let rows = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let order = Order::new(&rows.schema(), &[]).unwrap();
        for ahead_bytes in [2_000, 20_000] {
            let runs = (0..3).map(|_| {
                let held = budget.hold(Kind::Output, batch_bytes(&rows));
                Run { rows: rows.clone(), held }
            });
            let mut merge = Merge::new(&order, runs.collect(), ahead_bytes).unwrap();
            let (mut most, mut merged) = (0, 0);
            while let Some((block, _)) = merge.next().unwrap() {
                most = most.max(budget.held(Kind::Output) as usize - 3 * batch_bytes(&rows));
                merged += block.num_rows();
            }
            assert_eq!(merged, 150_000);
            assert!((ahead_bytes / 2..=ahead_bytes).contains(&most), "{most} of {ahead_bytes}");
        }
    }
}
