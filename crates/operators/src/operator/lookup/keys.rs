//! The keys of a lookup: of the rows that go through it, and of the rows of its side table.

use arrow::array::{ArrayRef, RecordBatch};

use crate::columns::keys::KeyCodec;
use crate::error::{Error, Result};
use crate::plan::{self, Key};

/// The keys of both sides, which are encoded alike.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) codec: KeyCodec,
    /// Over the inputs' columns, and over those of the side table.
    both: [Vec<Key>; 2],
    /// Whether a row with NULL for a key matches nothing.
    drops_nulls: bool,
}

impl Keys {
    pub(super) fn new(body: &plan::Lookup) -> Result<Keys> {
        let nullable = |keys: &[Key; 2]| keys.iter().any(|key| key.nullable);
        let of = |side: usize| -> Vec<Key> {
            let key = |keys: &[Key; 2]| Key { nullable: nullable(keys), ..keys[side].clone() };
            body.keys.iter().map(key).collect()
        };
        let both = [of(0), of(1)];
        let codec = KeyCodec::new(&both[0])?;
        let alike = |keys: &[Key; 2]| keys[0].data_type == keys[1].data_type;
        if !body.keys.iter().all(alike) {
            return Err(Error::Internal("a lookup by keys of different types".into()));
        }
        Ok(Keys { codec, both, drops_nulls: !body.nulls_are_equal })
    }

    pub(super) fn evaluate(&self, side: usize, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        crate::texts::begin();
        self.both[side].iter().map(|key| key.expr.evaluate(rows)).collect()
    }

    /// Whether a key is a word that says all of it.
    pub(super) fn is_word(&self) -> bool {
        self.codec.words() == 1 && self.codec.var_words().is_empty()
    }

    /// Whether the key of a row, of these words, is never found: some of it is NULL.
    pub(super) fn is_null(&self, words: &[u64]) -> bool {
        self.drops_nulls
            && !self.both[0].is_empty()
            && self.codec.null_bit(0).is_some()
            && words[0] != 0
    }
}
