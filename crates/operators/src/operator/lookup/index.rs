//! The rows of a side table, by their keys.

use arrow::array::{Array, ArrayRef, RecordBatch};
use millstream_state::Buckets;

use super::keys::Keys;
use crate::budget::{Held, batch_bytes};
use crate::columns::keys::{VarColumn, is_variable};
use crate::error::Result;

/// Rows of a version of a side table, with an index by key.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) rows: RecordBatch,
    pub(super) buckets: Buckets,
    /// Their keys, row after row, if a key is more than a word.
    pub(super) keys: Vec<u64>,
    /// Columns of key texts.
    texts: Vec<ArrayRef>,
    /// Share of the budget.
    pub(super) held: Held,
}

impl Index {
    /// Of fewer than 2^32 - 1 rows.
    pub(super) fn new(keys: &Keys, rows: RecordBatch, mut held: Held) -> Result<Index> {
        let count = rows.num_rows();
        let columns = keys.evaluate(1, &rows)?;
        let (codec, width) = (&keys.codec, keys.codec.words());
        let all: Vec<u32> = (0..count as u32).collect();
        let (mut words, mut hashes) = (vec![0; count * width], Vec::new());
        codec.encode_words(&columns, &all, &mut words);
        codec.hash(&words, count, &mut hashes);
        let is_word = keys.is_word();
        let counts = |row: usize| !keys.is_null(&words[row * width..(row + 1) * width]);
        let buckets = match is_word {
            true => Buckets::of_words(&hashes, &words, counts),
            false => Buckets::new(&hashes, &hashes, counts),
        };
        if is_word {
            words = Vec::new();
        }
        let texts = columns.into_iter().filter(|column| is_variable(column.data_type()));
        let texts: Vec<ArrayRef> = texts.collect();
        let text_bytes: usize = texts.iter().map(|text| text.get_array_memory_size()).sum();
        held.resize(batch_bytes(&rows) + buckets.bytes() + 8 * words.capacity() + text_bytes);
        Ok(Index { rows, buckets, keys: words, texts, held })
    }

    /// The texts among the keys.
    pub(super) fn texts(&self) -> Vec<VarColumn<'_>> {
        VarColumn::of(&self.texts)
    }
}
