//! Rows of bags become columns again.

use arrow::array::ArrayRef;

use super::sides::{Kept, Side};
use crate::columns::keys::VarColumn;
use crate::columns::stored::Gathered;
use crate::error::{Error, Result};
use crate::passed::{PassedRows, ReadRows, Reader};

/// Rows of a side that are being read.
pub(super) struct Gathering {
    rows: usize,
    keys: Vec<u64>,
    columns: Vec<Gathered>,
}

/// Rows of a side that have been read.
pub(super) struct Columns {
    pub(super) rows: usize,
    /// Their keys, row after row.
    pub(super) keys: Vec<u64>,
    /// The hashes of these.
    pub(super) hashes: Vec<u64>,
    /// Those of [`Side::columns`].
    pub(super) columns: Vec<ArrayRef>,
}

impl Gathering {
    /// Of so many rows.
    pub(super) fn new(side: &Side, rows: usize) -> Gathering {
        let column = |column: &super::sides::Column| {
            let mut gathered = Gathered::new(column.data_type.clone());
            gathered.reserve(rows);
            gathered
        };
        let keys = Vec::with_capacity(rows * side.codec.words());
        Gathering { rows: 0, keys, columns: side.columns.iter().map(column).collect() }
    }

    /// Reads a buffer.
    pub(super) fn read(
        &mut self,
        side: &Side,
        reader: &mut Reader,
        rows: &PassedRows,
    ) -> Result<()> {
        reader.read_rows(rows.words(), &mut |read| self.append(side, read))
    }

    fn append(&mut self, side: &Side, read: &ReadRows<'_>) -> Result<()> {
        let (rows, width) = (read.rows(), side.codec.words());
        let (feeds, keys) = (read.feeds(), read.keys());
        for (column, gathered) in side.columns.iter().zip(&mut self.columns) {
            match column.kept {
                Kept::Value(value) => {
                    let feed = feeds.get(value);
                    let feed =
                        feed.ok_or_else(|| Error::Internal("a row without a value".into()))?;
                    gathered.append(feed, rows)?;
                }
                Kept::Key(key) => {
                    let bit = side.codec.null_bit(key);
                    match side.codec.var_of(key) {
                        Some(var) => gathered.append_texts(keys, width, bit, &read.vars(0), var),
                        None => gathered.append_keys(keys, width, side.codec.word_of(key), bit),
                    }
                }
            }
        }
        self.keys.extend_from_slice(keys);
        self.rows += rows;
        Ok(())
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        8 * self.keys.capacity() + self.columns.iter().map(Gathered::size).sum::<usize>()
    }

    pub(super) fn finish(self, side: &Side) -> Result<Columns> {
        let columns = self.columns.into_iter().map(Gathered::finish);
        let columns = columns.collect::<Result<_>>()?;
        let mut hashes = Vec::new();
        side.codec.hash(&self.keys, self.rows, &mut hashes);
        Ok(Columns { rows: self.rows, keys: self.keys, hashes, columns })
    }
}

impl Columns {
    /// The texts among the keys.
    pub(super) fn texts(&self, side: &Side) -> Vec<VarColumn<'_>> {
        side.text_keys.iter().filter_map(|column| VarColumn::new(&self.columns[*column])).collect()
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| column.get_buffer_memory_size());
        8 * (self.keys.capacity() + self.hashes.capacity()) + columns.sum::<usize>()
    }
}
