//! Lookup joins: rows next to the rows of a side table that match them.
//!
//! Each process reads the whole side table ([`side`]) before its first batch, and indexes it by key
//! ([`index`]). So a lookup keeps no rows: it is a pass on the way, as an UNNEST is, and the result
//! of a batch is made piece by piece ([`matches`]).

mod index;
mod matches;
mod side;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;

use crate::budget::Budget;
use crate::columns::keys::KeyCodec;
use crate::error::{Error, Result};
use crate::failing::first_failing;
use crate::operator::stateless::Taken;
use crate::plan::{self, Key};
use crate::settings::Settings;

use index::Index;
pub(crate) use matches::Matches;
use side::Side;

/// A lookup join, in executable form: the same for all workers of a process.
#[derive(Debug)]
pub struct Lookup {
    body: Arc<plan::Lookup>,
    /// Of the rows that come out.
    schema: SchemaRef,
    keys: Keys,
    side: Side,
}

/// The keys of both sides, which are encoded alike.
#[derive(Debug)]
struct Keys {
    codec: KeyCodec,
    /// Over the inputs' columns, and over those of the side table.
    both: [Vec<Key>; 2],
    /// Whether a row with NULL for a key matches nothing.
    drops_nulls: bool,
}

impl Keys {
    fn new(body: &plan::Lookup) -> Result<Keys> {
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

    fn evaluate(&self, side: usize, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        crate::texts::begin();
        self.both[side].iter().map(|key| key.expr.evaluate(rows)).collect()
    }

    /// Whether a key is a word that says all of it.
    fn is_word(&self) -> bool {
        self.codec.words() == 1 && self.codec.var_words().is_empty()
    }

    /// Whether the key of a row, of these words, is never found: some of it is NULL.
    fn is_null(&self, words: &[u64]) -> bool {
        self.drops_nulls
            && !self.both[0].is_empty()
            && self.codec.null_bit(0).is_some()
            && words[0] != 0
    }
}

impl Lookup {
    /// A lookup whose side table has not been read.
    pub fn new(body: &Arc<plan::Lookup>, schema: &SchemaRef) -> Result<Lookup> {
        Ok(Lookup {
            body: body.clone(),
            schema: schema.clone(),
            keys: Keys::new(body)?,
            side: Side::new(body),
        })
    }

    /// The side table's.
    pub(crate) fn name(&self) -> &str {
        &self.body.name
    }

    /// Reads the side table, at the start of a job. Returns notices for the user.
    pub fn load(
        &self,
        settings: &Settings,
        start_us: i64,
        budget: &Arc<Budget>,
    ) -> Result<Vec<String>> {
        self.side.load(&self.keys, settings, start_us, budget)
    }

    /// Looks for a change of the side table when due, and reads it anew. Notices for the user go to
    /// `tell`.
    pub fn refresh(&self, now_us: i64, tell: &dyn Fn(String)) {
        self.side.refresh(&self.keys, now_us, tell);
    }

    /// The first of some rows of which a key cannot be computed, by its number, and the error.
    pub(crate) fn first_failing(&self, rows: &RecordBatch) -> Option<(usize, Error)> {
        first_failing(rows.num_rows(), |range| {
            let rows = rows.slice(range.start, range.len());
            self.keys.evaluate(0, &rows).map(|_| ())
        })
    }

    /// Joins rows with their matches, in pieces, at least one; `taken` also has the rows' places.
    pub(crate) fn matches<'a>(&'a self, taken: &'a Taken) -> Result<Matches<'a>> {
        let Some(index) = self.side.current() else {
            return Err(Error::Internal(format!("'{}' has not been read", self.body.name)));
        };
        Matches::new(self, index, taken)
    }
}

#[cfg(test)]
mod tests;
