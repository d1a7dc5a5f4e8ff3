//! What is said of a record that cannot be read.

use arrow::datatypes::{DataType, Field};

use crate::csv::Why;
use crate::records::shown;
use crate::types::{epoch_help, integer_range, sql_name};

/// What to do about an object over several lines.
pub(super) const LINES_HELP: &str = "NDJSON has one object per line: 'jq -c .' writes them so";
pub(super) const ARRAY_HELP: &str =
    "NDJSON has one object per line: 'jq -c .[]' takes them out of an array";
pub(super) const SKIP_HELP: &str = "'json.ignore-parse-errors' = 'true' leaves such records out";

/// Something wrong with a record.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Offset in the block.
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) help: String,
}

impl Wrong {
    pub(super) fn new(at: usize, message: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong { at, message: message.into(), help: help.into() }
    }

    /// The value at offset `at` of the block is none for its column. `None`: there is no value.
    #[cold]
    pub(super) fn misfit(field: &Field, at: usize, text: Option<&[u8]>, why: Why) -> Wrong {
        let name = field.name();
        let Some(text) = text.filter(|text| why != Why::Null && *text != b"null") else {
            let message = format!("column '{name}' is NOT NULL, found NULL");
            return Wrong::new(at, message, SKIP_HELP);
        };
        let wanted = sql_name(field.data_type());
        let found = shown(text);
        let message = match why {
            Why::OutOfRange => {
                let range = integer_range(field.data_type())
                    .map_or(String::new(), |(min, max)| format!(" ({min} to {max})"));
                format!(
                    "expected {wanted}{range} for column '{name}', found {found}, which does not fit"
                )
            }
            _ => format!("expected {wanted} for column '{name}', found {found}"),
        };
        Wrong::new(at, message, misfit_help(field.data_type(), text))
    }
}

/// What to do about a value that is none of a type.
fn misfit_help(data_type: &DataType, text: &[u8]) -> &'static str {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let digits = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let fraction = text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    match data_type {
        DataType::Timestamp(_, _) if digits > 0 => epoch_help(digits),
        DataType::Utf8 if !text.starts_with(b"\"") => {
            "a STRING is written in quotes; declare the column with the type that the value has"
        }
        DataType::Float32 => "declare the column DOUBLE or DECIMAL",
        _ if integer_range(data_type).is_some() && digits > 0 && fraction => {
            "declare the column DOUBLE or DECIMAL"
        }
        _ => SKIP_HELP,
    }
}
