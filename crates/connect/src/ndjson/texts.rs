//! Single JSON values: nested types in fields of CSV.

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use arrow::error::ArrowError;

use super::column::{Accepted, Column, Text};
use super::scan::{self, blanks};
use crate::scalar::Why;

/// A column of values, each of which is a text of its own.
pub(crate) struct Texts(Column);

impl Texts {
    /// `exact`: values have to be held as they stand. `None`: values of this type cannot be read.
    pub(crate) fn new(field: &Field, exact: bool) -> Option<Texts> {
        Column::new(field, Accepted { exact, ..Accepted::default() }).map(Texts)
    }

    /// Appends the value of a text.
    pub(crate) fn take(&mut self, text: &[u8]) -> Result<(), Why> {
        std::str::from_utf8(text).map_err(|_| Why::NotUtf8)?;
        let (rows, start) = (self.0.len(), blanks(text, 0));
        // With care, if it may have a fault: then it is known to be one JSON value.
        let mut why = Why::Malformed;
        for careful in [false, true] {
            match self.0.value(Text { data: text, careful }, start, 1) {
                Ok(end) if blanks(text, end) == text.len() => return Ok(()),
                Ok(_) => why = Why::Malformed,
                Err(fault) => why = fault.why(),
            }
            self.0.truncate(rows);
            let end = scan::skip(text, start, 1).map(|end| blanks(text, end));
            if end != Some(text.len()) {
                return Err(Why::Malformed);
            }
        }
        Err(why)
    }

    /// Appends a missing value: NULL, or a value that is never read if the column is not nullable.
    pub(crate) fn absent(&mut self) {
        self.0.absent();
    }

    pub(crate) fn finish(self) -> Result<ArrayRef, ArrowError> {
        self.0.finish()
    }
}
