//! Generated records: `'connector' = 'datagen'`, with Flink's option names.
//!
//! | option | default | |
//! |---|---|---|
//! | `number-of-rows` | unbounded | rows over all splits |
//! | `rows-per-second` | as fast as they are read | over all splits |
//! | `splits` | 1 | row `i` belongs to split `i % splits` |
//! | `seed` | 0 | other seeds give other random values |
//! | `fields.<column>.kind` | `random`; `sequence` for timestamps | |
//! | `fields.<column>.min`, `.max` | the type's range | random numbers, dates, times |
//! | `fields.<column>.start`, `.end` | 0; none | sequences; the table ends after `end` |
//! | `fields.<column>.step` | see below | sequences of timestamps, for example `10 us` |
//! | `fields.<column>.length` | 100 | random strings (hexadecimal) and bytes |
//! | `fields.<column>.null-rate` | 0 | share of NULLs, from 0 to 1 |
//!
//! Unless the options say otherwise, random floats are between 0 and 1 and random dates between
//! 2000 and 2049.
//!
//! A sequence counts rows: row `i` has the value `start + i`. A sequence of timestamps begins at
//! `start` (by default the job's start time) and advances by `step` per row. Without a `step` it
//! advances by 1 ms per row, or, if there is a `rows-per-second`, follows the clock: each row has
//! the time at which it is due. Random timestamps need `min` and `max`.
//!
//! Every value is a function of seed, column and row number. So batches, workers and the set of
//! columns that a query reads make no difference.

mod column;
mod split;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use millstream_contract::table::{OpenOptions, Split, Table, TableOptions};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use self::column::GeneratedColumn;
use self::split::{DatagenPlan, DatagenSplit};
use crate::options::Options;

/// A table of made-up records.
#[derive(Debug)]
pub struct DatagenTable {
    schema: SchemaRef,
    columns: Vec<GeneratedColumn>,
    /// Rows over all splits, if it ever ends.
    rows: Option<u64>,
    rows_per_second: Option<u64>,
    splits: u64,
}

impl DatagenTable {
    /// A table from `WITH` options.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<DatagenTable> {
        let options = Options::new(table);
        let seed = options.integer("seed", 0, u64::MAX)?.unwrap_or(0);
        let rows = options.integer("number-of-rows", 0, i64::MAX as u64)?;
        let rows_per_second = options.integer("rows-per-second", 1, 1_000_000_000)?;
        let splits = options.integer("splits", 1, 4096)?.unwrap_or(1);
        let mut columns = Vec::with_capacity(table.schema.fields().len());
        for (index, field) in table.schema.fields().iter().enumerate() {
            columns.push(GeneratedColumn::from_options(&options, field, seed, index)?);
        }
        options.finish("datagen, for columns of these types and kinds,")?;
        let ends = columns.iter().filter_map(GeneratedColumn::rows_max);
        let rows = ends.chain(rows).min();
        Ok(DatagenTable { schema: table.schema.clone(), columns, rows, rows_per_second, splits })
    }
}

impl Table for DatagenTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        self.rows.is_some()
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let schema: Schema =
            self.schema.project(projection).map_err(|e| Error::Internal(e.to_string()))?;
        let plan = Arc::new(DatagenPlan {
            schema: Arc::new(schema),
            columns: projection.iter().map(|index| self.columns[*index].clone()).collect(),
            splits: self.splits,
            start_time_us: options.start_time_us,
            rows_per_second: self.rows_per_second,
        });
        let open = |split| -> Box<dyn Split> {
            // Rows `i < rows` with `i % splits == split`.
            let rows = self.rows.map(|rows| rows.saturating_sub(split).div_ceil(self.splits));
            let batch_rows = options.batch_rows_of(plan.row_bytes() as u64).max(1);
            Box::new(DatagenSplit::new(plan.clone(), split, rows, batch_rows, options))
        };
        Ok((0..self.splits).map(open).collect())
    }

    fn describe(&self, projection: &[usize]) -> String {
        let rows = self.rows.map_or("unbounded".to_string(), |rows| counted(rows, "row"));
        let rate = self.rows_per_second.map_or(String::new(), |rate| format!(", {rate} rows/s"));
        let (read, all) = (projection.len(), self.columns.len());
        let (splits, all) = (counted(self.splits, "split"), counted(all as u64, "column"));
        format!("datagen ({rows}{rate}, {splits}, {read} of {all})")
    }
}
