//! Messages about a record that cannot be read.

use arrow::datatypes::{DataType, Field};
use millstream_contract::inferred::MORE_DIGITS;

use super::scan;
use crate::records::{Unit, shown};
use crate::scalar::Why;
use crate::types::{integer_range, sql_name, time_help};

/// Advice about an object over several lines.
pub(super) const LINES_HELP: &str = "NDJSON has one object per line: 'jq -c .' writes them so";
pub(super) const ARRAY_HELP: &str =
    "NDJSON has one object per line: 'jq -c .[]' takes them out of an array";
/// Advice about a message that is not one object.
pub(super) const MESSAGE_HELP: &str = "a message is one object; 'on_error' = 'skip' leaves others \
     out, and 'table:NAME' keeps them";
pub(super) const SKIP_HELP: &str =
    "'on_error' = 'skip' leaves such records out, and 'table:NAME' keeps them";

/// Advice about more than [`DEPTH_MAX`](super::members::DEPTH_MAX) levels.
pub(super) const DEPTH_HELP: &str = "128 levels are read: write what is deeper as a text of its \
     own, or flatten the object; 'on_error' = 'skip' leaves such records out, and 'table:NAME' \
     keeps them";

const NO_MEMBER_HELP: &str = "without 'json.fail-on-missing-field' = 'true' it is NULL";

/// Advice about a record that is no object.
pub(super) fn object_help(unit: Unit) -> &'static str {
    match unit {
        Unit::Line => LINES_HELP,
        Unit::Message => MESSAGE_HELP,
    }
}

/// Advice about a record that is an array.
pub(super) fn array_help(unit: Unit) -> &'static str {
    match unit {
        Unit::Line => ARRAY_HELP,
        Unit::Message => MESSAGE_HELP,
    }
}

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

    /// The value `text` at offset `at` of the block is none for its column.
    fn misfit(at: usize, text: &[u8], why: Why, wanted: &DataType, column: &str) -> Wrong {
        let (name, found) = (sql_name(wanted), shown(text));
        let message = match why {
            Why::Null => return Wrong::null(at, column),
            Why::OutOfRange => {
                let range = integer_range(wanted)
                    .map_or(String::new(), |(min, max)| format!(" ({min} to {max})"));
                format!(
                    "expected {name}{range} for column '{column}', found {found}, which does not \
                     fit"
                )
            }
            Why::MoreDigits => {
                format!("expected {name} for column '{column}', found {found}{MORE_DIGITS}")
            }
            _ => format!("expected {name} for column '{column}', found {found}"),
        };
        Wrong::new(at, message, misfit_help(wanted, text))
    }

    fn null(at: usize, column: &str) -> Wrong {
        Wrong::new(at, format!("column '{column}' is NOT NULL, found NULL"), SKIP_HELP)
    }
}

/// Where reading went on, or why it did not.
pub(super) type Read = Result<usize, Box<Fault>>;

/// Fault that stopped the reading of a record.
#[derive(Debug)]
pub(super) struct Fault {
    /// Offset in the block.
    pub(super) at: usize,
    what: What,
    /// The column, and where in it: `user.tags[3]`.
    path: String,
}

#[derive(Debug)]
enum What {
    /// Not JSON, or in need of the slow reader.
    Syntax,
    /// A value of another type than `DataType`, once known.
    Misfit(Why, Option<DataType>),
    /// There is no value where one has to be.
    Missing,
    /// A member is not there, where each has to be.
    NoMember,
    Said(Wrong),
}

#[cold]
fn fault(at: usize, what: What) -> Box<Fault> {
    Box::new(Fault { at, what, path: String::new() })
}

impl Fault {
    pub(super) fn syntax(at: usize) -> Box<Fault> {
        fault(at, What::Syntax)
    }

    /// The value at `at` is none of the type that is wanted.
    pub(super) fn misfit(at: usize, why: Why) -> Box<Fault> {
        fault(at, What::Misfit(why, None))
    }

    pub(super) fn malformed(at: usize) -> Box<Fault> {
        Fault::misfit(at, Why::Malformed)
    }

    /// The type that is wanted.
    #[cold]
    pub(super) fn of_type(mut self: Box<Self>, data_type: &DataType) -> Box<Fault> {
        if let What::Misfit(_, wanted @ None) = &mut self.what {
            *wanted = Some(data_type.clone());
        }
        self
    }

    /// The object at `at` lacks a member.
    pub(super) fn missing(at: usize) -> Box<Fault> {
        fault(at, What::Missing)
    }

    /// The object at `at` lacks a member, where each has to be there.
    pub(super) fn no_member(at: usize) -> Box<Fault> {
        fault(at, What::NoMember)
    }

    pub(super) fn said(wrong: Wrong) -> Box<Fault> {
        fault(wrong.at, What::Said(wrong))
    }

    /// Why the value as a whole is none of its type.
    pub(super) fn why(&self) -> Why {
        match self.what {
            What::Misfit(why @ (Why::OutOfRange | Why::MoreDigits), _) => why,
            _ => Why::Malformed,
        }
    }

    /// Puts the name of a column, or of a field of a ROW, in front of the fault's path.
    #[cold]
    pub(super) fn of(self: Box<Self>, field: &Field) -> Box<Fault> {
        self.inside(field.name())
    }

    /// Puts a field, or an element of an array or map (`[3]`), in front of the fault's path.
    #[cold]
    pub(super) fn inside(mut self: Box<Self>, what: &str) -> Box<Fault> {
        if !self.path.is_empty() && !self.path.starts_with('[') {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, what);
        self
    }

    /// The fault as a message, in a block of these bytes.
    #[cold]
    pub(super) fn wrong(self, data: &[u8]) -> Wrong {
        match self.what {
            What::Said(wrong) => wrong,
            What::Missing => Wrong::null(self.at, &self.path),
            What::NoMember => {
                let message = format!("the member '{}' is missing", self.path);
                Wrong::new(self.at, message, NO_MEMBER_HELP)
            }
            What::Misfit(why, wanted) => {
                let end = scan::skip(data, self.at, 0).unwrap_or(data.len());
                let text = data.get(self.at..end).unwrap_or_default();
                Wrong::misfit(self.at, text, why, &wanted.unwrap_or(DataType::Null), &self.path)
            }
            What::Syntax => {
                let message = format!("expected JSON for column '{}'", self.path);
                Wrong::new(self.at, message, SKIP_HELP)
            }
        }
    }
}

/// Advice about a value that does not fit a type.
fn misfit_help(data_type: &DataType, text: &[u8]) -> &'static str {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let digits = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let fraction = text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    match data_type {
        of if let Some(help) = time_help(of, text) => help,
        DataType::Utf8 if !text.starts_with(b"\"") => {
            "a STRING is written in quotes; declare the column with the type that the value has"
        }
        DataType::Float32 if digits > 0 => "declare the column DOUBLE or DECIMAL",
        _ if integer_range(data_type).is_some() && digits > 0 && fraction => {
            "declare the column DOUBLE or DECIMAL"
        }
        _ => SKIP_HELP,
    }
}
