//! NDJSON: `'format' = 'ndjson'`, one JSON object per line.
//!
//! | option | default | |
//! |---|---|---|
//! | `on_error` | `fail` | `skip` leaves malformed records out; `table:NAME` inserts them there |
//! | `json.ignore-parse-errors` | `false` | as `'on_error' = 'skip'` |
//! | `json.any-as-string` | `false` | a STRING takes any value, as it is written |
//! | `json.fail-on-missing-field` | `false` | an object has to have each column that is read |
//! | `json.timestamp-format.standard` | | `SQL` or `ISO-8601`: both are always read |
//!
//! A column is the member of exactly its name, else the member whose name differs only in case. Two
//! members of the latter kind are an error; members without a column are ignored. A member that is
//! missing, or `null`, is NULL. Blank lines are skipped. Every line has to be a JSON object, as a
//! whole: its faults count also where no column needs the faulty member. A member that is a column
//! of the query and is given twice is an error. So are objects and arrays nested more than
//! [`members::DEPTH_MAX`] deep.
//!
//! **Types**: BOOLEAN is `true` or `false`. Whole numbers are written without a fraction and
//! without an exponent: `1.0` is no BIGINT. DECIMAL is a number, or a number in quotes; digits
//! beyond its scale are rounded half away from zero. STRING is a JSON string. Dates, times and
//! timestamps are strings as in CSV. BYTES is base64 in a string. DOUBLE and FLOAT also take the
//! strings `"NaN"`, `"Infinity"` and `"-Infinity"`, as the sink writes what is no JSON number.
//!
//! **Nested types**: ROW is an object, whose fields are found by name as columns are; ARRAY is an
//! array; MAP is an object, whose names are its keys, each only once. A message names a misfit by
//! its path: `user.tags[3]`, counted from 1.
//!
//! **An object over several lines** is refused, wherever the file is cut: `jq -c .` writes each on
//! one line. So is an array around all records, also where malformed records are left out: a file
//! that begins with `[` and a line end, or `[{`. Apart from that, lines are independent: a line
//! that is exactly an object is a record, whatever the lines around it.
//!
//! **Reading** takes a single pass over the bytes, into the columns. [`scan`] reads JSON,
//! [`column`] and [`nested`] take values, [`object`] finds the columns of members. A line that may
//! be wrong is read again by [`members`], which is slow and finds the fault. [`parsed`] reads
//! records whose columns are not known yet.

mod array;
mod column;
mod decode;
mod fault;
mod fuzz;
mod members;
mod names;
mod nested;
mod object;
mod parsed;
mod scan;
mod texts;
mod value;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use arrow::datatypes::{DataType, SchemaRef};
use millstream_contract::inferred::ON_ERROR_HELP;
use millstream_contract::{Error, Result};

use self::column::Accepted;
use self::decode::Plan;
use self::fault::{ARRAY_HELP, LINES_HELP};
use crate::input::Name;
use crate::options::{OnError, Options};
use crate::records::{
    Cut, Decode, Endless, RECORD_BYTES_MAX, Reader, RecordFormat, Started, cut_lines,
};

pub use self::fuzz::fuzz_ndjson;
pub(crate) use self::parsed::{Json, Members, record};
pub(crate) use self::texts::Texts;

#[cfg(test)]
mod tests;

const IGNORED: &str = "json.ignore-parse-errors";
const MISSING: &str = "json.fail-on-missing-field";

/// NDJSON with its options.
#[derive(Debug, Clone, Default)]
pub(crate) struct NdjsonFormat {
    /// Treatment of malformed records.
    on_error: OnError,
    taken: Accepted,
    /// For tests: read every line with care, as if it had a fault.
    careful: bool,
    /// Members that are no columns, of which the user has been told; see [`Plan`].
    told: Arc<Mutex<HashSet<String>>>,
}

impl NdjsonFormat {
    /// From the `json.*` options.
    pub(crate) fn from_options(options: &Options<'_>) -> Result<NdjsonFormat> {
        let on_error = options.on_error(Some(IGNORED))?;
        let any_as_string = options.flag("json.any-as-string")?;
        let fails_on_missing = options.flag(MISSING)?;
        if fails_on_missing && options.flag(IGNORED)? {
            let message = format!("'true' does not go with '{IGNORED}' = 'true'");
            return Err(options.error(MISSING, message, "leave one of them out"));
        }
        options.parsed("json.timestamp-format.standard", "'SQL' or 'ISO-8601'", |text| {
            ["SQL", "ISO-8601"].contains(&text).then_some(())
        })?;
        let taken = Accepted { any_as_string, exact: options.exact(), fails_on_missing };
        Ok(NdjsonFormat { on_error, taken, ..NdjsonFormat::default() })
    }

    /// Whether a column of this type can be read.
    pub(crate) fn supported(data_type: &DataType) -> bool {
        column::supported(data_type)
    }
}

impl RecordFormat for NdjsonFormat {
    fn name(&self) -> &'static str {
        "NDJSON"
    }

    fn on_error(&self) -> OnError {
        self.on_error
    }

    fn cut(&self, buffer: &[u8], last: bool, records_max: usize) -> Cut {
        cut_lines(buffer, last, records_max)
    }

    fn unwrap_array(&self, body: &mut [u8]) -> std::result::Result<(), String> {
        array::to_lines(body)
    }

    fn endless(&self, _buffer: &[u8], _what: Endless) -> (usize, String, String) {
        let message = format!("the line is longer than {} MiB", RECORD_BYTES_MAX >> 20);
        (0, message, format!("{LINES_HELP}; {ON_ERROR_HELP} such a line out"))
    }

    fn start(
        &self,
        reader: &mut Reader,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Started> {
        if is_array(reader.head()) {
            return Err(Error::Data {
                place: format!("{}:1:1", reader.path()),
                message: "expected an object, found an array".into(),
                help: ARRAY_HELP.into(),
            });
        }
        let plan = Plan::new(reader.path(), schema, projection, self.clone())?;
        Ok(Started { decode: Arc::new(plan), remark: None })
    }

    fn messages(
        &self,
        source: &Name,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Arc<dyn Decode>> {
        Ok(Arc::new(Plan::new(source, schema, projection, self.clone())?))
    }
}

/// Whether a file that begins so is an array of objects, and not lines of which some are others'
/// (`[INFO] started`).
fn is_array(head: &[u8]) -> bool {
    let [b'[', rest @ ..] = head.trim_ascii_start() else { return false };
    let blanks = rest.len() - rest.trim_ascii_start().len();
    rest[..blanks].contains(&b'\n') || rest.get(blanks) == Some(&b'{')
}
