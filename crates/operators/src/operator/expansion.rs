//! Passes that make any number of rows of each: an UNNEST, and a lookup.

use std::sync::Arc;

use arrow::array::RecordBatch;

use crate::error::{Error, Result};
use crate::operator::lookup::{self, Lookup};
use crate::operator::stateless::{SelectedRows, Taking};
use crate::operator::unnest::{self, Unnest};

pub use crate::operator::stateless::Piece;

/// Expansion of each row into several.
#[derive(Debug)]
pub enum Expansion {
    /// A row for each element of its array.
    Elements(Unnest),
    /// A row for each row of a side table that matches it.
    Matches(Arc<Lookup>),
}

/// The pieces of an UNNEST's result, in order.
pub enum Pieces<'a> {
    /// Elements of lists, for UNNEST.
    Elements(unnest::UnnestedPieces<'a>),
    /// Matches in a side table.
    Matches(Box<lookup::Matches<'a>>),
}

impl Expansion {
    /// Expands rows into pieces, at least one; `taken` also has the rows' places.
    pub fn pieces<'a>(&'a self, taken: &'a SelectedRows) -> Result<Pieces<'a>> {
        Ok(match self {
            Expansion::Elements(unnest) => Pieces::Elements(unnest.pieces(taken)?),
            Expansion::Matches(lookup) => Pieces::Matches(Box::new(lookup.matches(taken)?)),
        })
    }

    /// The first of some rows with which it fails, by its number, and the error.
    #[cold]
    pub fn first_failing(&self, rows: &RecordBatch) -> Option<(usize, Error)> {
        match self {
            Expansion::Elements(_) => None,
            Expansion::Matches(lookup) => lookup.first_failing(rows),
        }
    }

    /// The column whose elements become rows, numbered before `taking`, unless it is computed.
    pub fn array(&self, taking: &Taking) -> Option<usize> {
        match self {
            Expansion::Elements(_) => taking.last_column(),
            Expansion::Matches(_) => None,
        }
    }

    /// Error for a batch that expands to more rows than can wait.
    #[cold]
    pub fn too_many(&self, bytes_max: usize) -> Error {
        let (place, of, fewer) = match self {
            Expansion::Elements(_) => (
                "UNNEST".to_string(),
                "the elements of",
                "select fewer columns beside the elements",
            ),
            Expansion::Matches(lookup) => (
                format!("lookup table '{}'", lookup.name()),
                "the rows that match those of",
                "select fewer columns",
            ),
        };
        let limit = bytes_max >> 20;
        Error::Io {
            place,
            message: format!(
                "{of} one batch of records, with the columns beside them, take more than {limit} MB"
            ),
            help: format!("{fewer}, or take fewer records at a time: SET 'batch.rows' = '16'"),
        }
    }
}

impl Pieces<'_> {
    /// The next piece; `None` after the last.
    pub fn next_piece(&mut self) -> Result<Option<Piece>> {
        match self {
            Pieces::Elements(pieces) => pieces.next(),
            Pieces::Matches(pieces) => pieces.next(),
        }
    }
}
