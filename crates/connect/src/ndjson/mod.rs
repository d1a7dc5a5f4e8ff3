//! NDJSON: `'format' = 'ndjson'`, one JSON object per line.
//!
//! | option | default | |
//! |---|---|---|
//! | `on_error` | `fail` | `skip` leaves malformed records out; `table:NAME` inserts them there |
//! | `json.ignore-parse-errors` | `false` | as `'on_error' = 'skip'` |
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
use crate::options::{OnError, Options};
use crate::records::{Cut, Endless, RECORD_BYTES_MAX, Reader, RecordFormat, Started, cut_lines};

#[cfg(test)]
mod tests;

/// NDJSON with its options.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NdjsonFormat {
    /// What becomes of malformed records.
    on_error: OnError,
}

impl NdjsonFormat {
    /// From the `json.*` options.
    pub(crate) fn from_options(options: &Options<'_>) -> Result<NdjsonFormat> {
        Ok(NdjsonFormat { on_error: options.on_error("json.ignore-parse-errors")? })
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

    fn keeps_malformed(&self) -> bool {
        self.on_error == OnError::Keep
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
        let plan = Plan::new(reader.path(), schema, projection, self.on_error != OnError::Fail)?;
        Ok(Started { decode: Arc::new(plan), remark: None })
    }
}
