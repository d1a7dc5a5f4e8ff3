//! NDJSON: `'format' = 'ndjson'`, one JSON object per line.
//!
//! | option | default | |
//! |---|---|---|
//! | `json.ignore-parse-errors` | `false` | leave malformed records out |
//! | `json.any-as-string` | `false` | a STRING takes any value, as it is written |
//!
//! A column is the member of its name, exactly so; other members are ignored. A member that is
//! missing, or `null`, is NULL. Blank lines are skipped. Every line has to be a JSON object, as a
//! whole: what is wrong with it counts also where no column needs it. A member that is a column of
//! the query and is given twice is an error.
//!
//! **Types**: BOOLEAN is `true` or `false`. Whole numbers are written without a fraction and
//! without an exponent: `1.0` is no BIGINT. DECIMAL is a number, or a number in quotes; digits
//! beyond its scale are rounded half away from zero. STRING is a JSON string. Dates, times and
//! timestamps are strings as in CSV. BYTES is base64 in a string.
//!
//! **An object over several lines** is refused, wherever the file is cut: `jq -c .` writes
//! each on one line. So is an array around all records.

mod decode;
mod value;

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use millstream_contract::Result;

use self::decode::Plan;
use crate::options::Options;
use crate::records::{Cut, Endless, RECORD_BYTES_MAX, Reader, RecordFormat, Started, cut_lines};

#[cfg(test)]
mod tests;

/// NDJSON with its options.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NdjsonFormat {
    /// Leave malformed records out instead of failing.
    skip_errors: bool,
    /// A STRING takes any value, as it is written.
    any_as_string: bool,
}

impl NdjsonFormat {
    /// From the `json.*` options.
    pub(crate) fn from_options(options: &Options<'_>) -> Result<NdjsonFormat> {
        Ok(NdjsonFormat {
            skip_errors: options.flag("json.ignore-parse-errors")?,
            any_as_string: options.flag("json.any-as-string")?,
        })
    }

    /// Whether a column of this type can be read.
    pub(crate) fn supported(data_type: &DataType) -> bool {
        value::supported(data_type)
    }
}

impl RecordFormat for NdjsonFormat {
    fn name(&self) -> &'static str {
        "NDJSON"
    }

    fn cut(&self, buffer: &[u8], last: bool, records_max: usize) -> Cut {
        cut_lines(buffer, last, records_max)
    }

    fn endless(&self, _buffer: &[u8], _what: Endless) -> (usize, String, &'static str) {
        let message = format!("the line is longer than {} MiB", RECORD_BYTES_MAX >> 20);
        (0, message, decode::LINES_HELP)
    }

    fn start(
        &self,
        reader: &mut Reader,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Started> {
        let plan = Plan::new(reader.path(), schema, projection, self.skip_errors)?
            .with_any_as_string(self.any_as_string);
        Ok(Started { decode: Arc::new(plan), remark: None })
    }
}
