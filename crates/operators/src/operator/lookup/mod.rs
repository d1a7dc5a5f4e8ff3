//! Lookup joins: rows next to the rows of a side table that match them.
//!
//! Each process reads the whole side table ([`side`]) before its first batch, and indexes it by key
//! ([`index`]). So a lookup keeps no rows: it is a pass on the way, as an UNNEST is, and the result
//! of a batch is made piece by piece ([`matches`]).

mod index;
mod keys;
mod matches;
mod side;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::failing::first_failing;
use crate::plan::{self};
use crate::settings::Settings;
use crate::table::SideFiles;

use keys::Keys;
pub(crate) use matches::Matches;
use side::LookupSide;

/// A lookup join, in executable form: the same for all workers of a process.
#[derive(Debug)]
pub struct Lookup {
    body: Arc<plan::Lookup>,
    /// Of the rows that come out.
    schema: SchemaRef,
    keys: Keys,
    side: LookupSide,
}

impl Lookup {
    /// A lookup whose side table has not been read.
    pub fn new(body: &Arc<plan::Lookup>, schema: &SchemaRef) -> Result<Lookup> {
        Ok(Lookup {
            body: body.clone(),
            schema: schema.clone(),
            keys: Keys::new(body)?,
            side: LookupSide::new(body),
        })
    }

    /// The side table's.
    pub fn name(&self) -> &str {
        &self.body.name
    }

    /// Reads the side table, at the start of a run: when the job was first started, and when the
    /// run was. Returns notices for the user.
    pub fn load(
        &self,
        settings: &Settings,
        starts_us: (i64, i64),
        budget: &Arc<Budget>,
    ) -> Result<Vec<String>> {
        self.side.load(&self.keys, settings, starts_us, budget)
    }

    /// The files of the side table as they were read last: none before [`Lookup::load`], nor of a
    /// table without files.
    pub fn files(&self) -> SideFiles {
        self.side.files()
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
}

#[cfg(test)]
mod tests;
