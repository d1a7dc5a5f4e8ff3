//! Rows of own keys that stay in the columns of their batch until they are looked up.
//!
//! Most rows of a join may never meet a partner. The rows' keys and places are kept, and the
//! batch's columns, which rows of several leaders share. Rows that would keep more memory alive
//! than they take in buffers are written into buffers.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef};
use arrow::datatypes::DataType;

use super::Format;
use crate::columns::keys::text_bytes as text_bytes_of;

/// Fewer rows for a leader are written into its buffer.
const ROWS_MIN: usize = 512;

/// Columns of a batch in which rows are kept.
#[derive(Debug)]
struct BatchColumns {
    columns: Vec<ArrayRef>,
    /// Bytes that 1024 rows keep allocated, and bytes of the same rows in a buffer.
    kilorow_bytes: usize,
    kilorow_value_bytes: usize,
}

/// Rows of a batch for one leader.
#[derive(Debug, Clone)]
pub(crate) struct BatchRows {
    /// Encoded keys, row after row.
    pub(crate) keys: Vec<u64>,
    /// Positions of the rows in the columns, ascending.
    pub(crate) places: Vec<u32>,
    columns: Arc<BatchColumns>,
}

/// Rows of a batch that are being kept in its columns, by leader.
pub(crate) struct Keeping {
    columns: Arc<BatchColumns>,
    leaders: Vec<BatchRows>,
}

impl Keeping {
    /// Keeps `count` of a batch's rows, for so many leaders; `None` if the rows are few, or would
    /// take less memory in buffers, by a quarter.
    pub(crate) fn new(
        columns: &[ArrayRef],
        format: &Format,
        count: usize,
        leaders: usize,
    ) -> Option<Keeping> {
        let rows = columns.first().map_or(0, |column| column.len());
        if count < ROWS_MIN * leaders.max(1) || rows < count {
            return None;
        }
        let (mut buffers, mut text_bytes) = (Vec::new(), 0);
        for column in columns {
            let data = column.to_data();
            add_buffers(&data, &mut buffers);
            text_bytes += match column.data_type() {
                DataType::Dictionary(..) => return None,
                data_type if data_type.is_nested() => data.get_slice_memory_size().ok()?,
                _ => text_bytes_of(column),
            };
        }
        buffers.sort_unstable();
        buffers.dedup();
        let bytes: usize = buffers.iter().map(|(_, bytes)| bytes).sum();
        let value_bytes = 8 * format.row_words() * count + text_bytes * count / rows;
        let row_bytes = 8 * format.codec.words() + size_of::<u32>();
        if 3 * (bytes + row_bytes * count) > 4 * value_bytes {
            return None;
        }
        let kilorow = |bytes: usize| (bytes << 10) / count;
        let columns = Arc::new(BatchColumns {
            columns: columns.to_vec(),
            kilorow_bytes: kilorow(bytes),
            kilorow_value_bytes: kilorow(value_bytes),
        });
        Some(Keeping { columns, leaders: Vec::new() })
    }

    /// Adds rows of a leader, with their keys.
    pub(crate) fn add(&mut self, leader: usize, keys: &[u64], places: &[u32]) {
        while self.leaders.len() <= leader {
            let (columns, keys, places) = (self.columns.clone(), Vec::new(), Vec::new());
            self.leaders.push(BatchRows { keys, places, columns });
        }
        let rows = &mut self.leaders[leader];
        rows.keys.extend_from_slice(keys);
        rows.places.extend_from_slice(places);
    }

    /// The rows, by leader.
    pub(crate) fn finish(self) -> impl Iterator<Item = (usize, BatchRows)> {
        self.leaders.into_iter().enumerate().filter(|(_, rows)| !rows.places.is_empty())
    }
}

impl BatchRows {
    /// The columns of the batch.
    pub(crate) fn columns(&self) -> &[ArrayRef] {
        &self.columns.columns
    }

    /// Bytes allocated, with these rows' share of the batch.
    pub(super) fn bytes(&self) -> usize {
        let own = 8 * self.keys.capacity() + 4 * self.places.capacity();
        own + ((self.places.len() * self.columns.kilorow_bytes) >> 10)
    }

    /// Bytes of the rows in a buffer.
    pub(super) fn live_bytes(&self) -> usize {
        (self.places.len() * self.columns.kilorow_value_bytes) >> 10
    }
}

/// Adds an array's allocations, by address and bytes.
fn add_buffers(data: &ArrayData, buffers: &mut Vec<(usize, usize)>) {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    let all = data.buffers().iter().chain(nulls);
    buffers.extend(all.map(|buffer| (buffer.data_ptr().as_ptr().addr(), buffer.capacity())));
    data.child_data().iter().for_each(|child| add_buffers(child, buffers));
}
