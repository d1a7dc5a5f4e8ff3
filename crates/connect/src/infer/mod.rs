//! Inference of a declaration from files: format, columns, event time and watermark, from a bounded
//! sample of the data.
//!
//! A column gets the strictest type that fits all values of the sample ([`value`]). So a later
//! value may not fit; reading such a value is an error with its place, never NULL. The same files
//! give the same declaration.
//!
//! The format follows from the file's name, without an ending for the packing, or else from the
//! first bytes. Formats that carry a schema ([`columnar`]) need no sample.

mod columnar;
mod csv;
mod forms;
mod fuzz;
mod mixed;
mod ndjson;
mod order;
mod partitions;
mod sample;
#[cfg(test)]
pub(crate) mod tests;
mod through;
mod times;
mod value;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, TimeUnit};
use memchr::memchr;
use millstream_contract::declaration::{Declaration, DeclaredColumn, identifier};
use millstream_contract::inferred::leaving_out;
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use self::forms::Log;
use self::sample::{Sample, samples};
use self::times::{Candidate, EventTime, event_time};
use self::value::ValueStats;
use crate::csv::{LONE_CR, LONE_CR_HELP};
use crate::datetime::Instant;
use crate::input::Packing;
use crate::options::Options;
use crate::source::{Files, OneFile};
use crate::types::sql_name;
use crate::{ipc, parquet};

pub use self::fuzz::fuzz_infer;
pub(crate) use self::through::time_of_all;

/// Records of each part of a sample.
const RECORDS_MAX: usize = 20_000;

/// Columns of a table.
const COLUMNS_MAX: usize = 100_000;

/// Results of looking at the data.
#[derive(Debug, Default)]
struct Inferred {
    columns: Vec<InferredColumn>,
    /// The format's own.
    options: Vec<(String, String)>,
    remarks: Vec<String>,
    /// Error of the first malformed record, if most records are malformed.
    wrong: Option<Error>,
    /// Whether there are more records than have been looked at.
    more: bool,
}

/// A column with the properties of its values.
#[derive(Debug)]
struct InferredColumn {
    name: String,
    data_type: DataType,
    values: ValueStats,
}

impl InferredColumn {
    fn new(name: String, data_type: DataType, values: ValueStats) -> InferredColumn {
        InferredColumn { name, data_type, values }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormatKind {
    Csv,
    /// CSV whose name promises tabulators.
    Tabs,
    Ndjson,
    /// Lines of a log.
    Raw,
    Parquet,
    Arrow,
}

impl FormatKind {
    /// As the option `format` names it.
    fn name(self) -> &'static str {
        match self {
            FormatKind::Csv | FormatKind::Tabs => "csv",
            FormatKind::Ndjson => "ndjson",
            FormatKind::Raw => "raw",
            FormatKind::Parquet => "parquet",
            FormatKind::Arrow => "arrow",
        }
    }

    /// Format promised by a file's name.
    fn of_name(name: &str) -> Option<FormatKind> {
        let path = Path::new(name);
        let path = match Packing::of_name(name) {
            Some(_) => path.with_extension(""),
            None => path.to_path_buf(),
        };
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(FormatKind::Csv),
            "tsv" | "tab" => Some(FormatKind::Tabs),
            "ndjson" | "jsonl" | "json" => Some(FormatKind::Ndjson),
            "parquet" | "pq" => Some(FormatKind::Parquet),
            "arrow" | "arrows" | "feather" | "ipc" => Some(FormatKind::Arrow),
            _ => None,
        }
    }

    /// Format that a file's content suggests.
    fn of_bytes(head: &[u8]) -> FormatKind {
        match head {
            _ if parquet::is_start(head) => FormatKind::Parquet,
            _ if ipc::is_start(head) => FormatKind::Arrow,
            _ if head.trim_ascii_start().starts_with(b"{") => FormatKind::Ndjson,
            _ => FormatKind::Csv,
        }
    }
}

/// Declaration inferred from the files of a path or pattern.
///
/// # Errors
///
/// If there are no files, if they are empty, or if their data cannot be understood.
pub(crate) fn declaration(given: &str, base_dir: &Path) -> Result<Declaration> {
    let (mut found, files) = of_files(given, base_dir)?;
    partitions::add(&mut found, &files, base_dir);
    Ok(found)
}

/// Declaration inferred from the files of a path or pattern, without partition columns; and the
/// files.
fn of_files(given: &str, base_dir: &Path) -> Result<(Declaration, Vec<OneFile>)> {
    let given = given.trim();
    let table = TableOptions {
        name: given.to_string(),
        schema: Arc::new(Schema::empty()),
        options: BTreeMap::new(),
        base_dir: base_dir.to_path_buf(),
        metadata: Default::default(),
        partitioned_by: Vec::new(),
        primary_key: Vec::new(),
        exact: false,
    };
    let files = Files::resolve(&Options::new(&table), Some(given))?;
    let listed = files.list()?;
    mixed::refuse_mixed(given, &listed)?;
    let named = listed.first().and_then(|file| FormatKind::of_name(&file.name));
    if let Some(format @ (FormatKind::Parquet | FormatKind::Arrow)) = named {
        return Ok((of_schema(given, format, &listed)?, listed));
    }
    let (samples, whole) = samples(&listed)?;
    // A file that is still empty may lie beside others.
    let filled: Vec<Sample> =
        samples.into_iter().filter(|s| !s.head.trim_ascii().is_empty()).collect();
    let head = filled.first().map_or(&[][..], |first| &first.head);
    let format = named.unwrap_or_else(|| FormatKind::of_bytes(head));
    if matches!(format, FormatKind::Parquet | FormatKind::Arrow) {
        return Ok((of_schema(given, format, &listed)?, listed));
    }
    if let (None, FormatKind::Csv, Some((log, times))) = (named, format, Log::of(&filled)) {
        return Ok((of_log(given, log, &times, whole)?, listed));
    }
    let columns = columns(given, format, &filled, &listed)?;
    Ok((declared(given, format, columns, whole)?, listed))
}

/// The lines of a log, and the columns that are computed of them.
fn of_log(given: &str, log: &Log, times: &[Instant], whole: bool) -> Result<Declaration> {
    let line = InferredColumn::new("line".into(), DataType::Utf8, ValueStats::default());
    let remarks = vec![log.remark.to_string()];
    let columns = Inferred { columns: vec![line], remarks, ..Inferred::default() };
    let mut values = ValueStats::default();
    let us = times.iter().filter_map(|at| at.in_unit(TimeUnit::Microsecond));
    us.for_each(|us| values.add_time(us));
    let data_type = &DataType::Timestamp(TimeUnit::Millisecond, None);
    let time = Candidate { name: "ts", data_type, values: &values };
    let found = event_time(&[time], &HashSet::new(), whole && times.len() < forms::LINES / 2);
    let declared = declared(given, FormatKind::Raw, columns, whole)?;
    let event_time = found.map(|found| found.time);
    Ok(Declaration { computed: log.computed("line"), event_time, ..declared })
}

/// Declaration of files that carry a schema.
fn of_schema(given: &str, format: FormatKind, files: &[OneFile]) -> Result<Declaration> {
    let (columns, whole) = columnar::columns(format, files)?;
    let name = files.first().map_or(given, |file| &*file.name);
    declared(given, format, checked(name, columns)?, whole)
}

/// The columns of text.
fn columns(
    given: &str,
    format: FormatKind,
    samples: &[Sample],
    files: &[OneFile],
) -> Result<Inferred> {
    let Some(first) = samples.first() else {
        return Err(Error::Data {
            place: given.to_string(),
            message: "it is empty, so nothing shows which columns it has".into(),
            help: "declare them: CREATE TABLE name (…) WITH (…)".into(),
        });
    };
    check_text(first)?;
    let columns = match format {
        FormatKind::Ndjson => ndjson::columns(samples)?,
        _ => csv::columns(samples, format == FormatKind::Tabs, files),
    };
    checked(&first.name, columns)
}

/// The columns, if they are neither none nor too many. `name` is the file's.
fn checked(name: &str, columns: Inferred) -> Result<Inferred> {
    let what = |message: String, help: &str| {
        Err(Error::Data { place: name.to_string(), message, help: help.into() })
    };
    match columns.columns.len() {
        0 if !columns.remarks.is_empty() => what(
            format!("it has no column that can be read: {}", columns.remarks.join("; ")),
            "declare what you need of it: CREATE TABLE …",
        ),
        0 => what("nothing shows which columns it has".into(), "declare them: CREATE TABLE …"),
        1..=COLUMNS_MAX => Ok(columns),
        many => what(
            format!("{many} columns have been found, and {COLUMNS_MAX} are the limit"),
            "declare those that you need: CREATE TABLE …",
        ),
    }
}

/// Names that a remark shows.
const NAMES_MAX: usize = 8;

/// Says which columns are left out as a file lacks them.
fn left_out(lacks: &str, names: &[String]) -> Option<String> {
    let shown = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| format!("left out as {lacks} does not have them: {shown}{more}"))
}

/// Refuses what is no text in UTF-8 at its very beginning.
fn check_text(sample: &Sample) -> Result<()> {
    let head = &sample.head[..sample.head.len().min(4096)];
    let wrong = |message: &str, help: &str| {
        Err(Error::Data { place: sample.name.clone(), message: message.into(), help: help.into() })
    };
    match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => wrong(
            "it is text in UTF-16, and UTF-8 is expected",
            "convert it, for example with iconv -f UTF-16 -t UTF-8",
        ),
        _ if head.contains(&0) => wrong(
            "it is no text: it has bytes that are zero",
            "files that can be read are CSV and NDJSON in UTF-8, Parquet and Arrow",
        ),
        _ if memchr(b'\n', &sample.head).is_none()
            && memchr(b'\r', sample.head.trim_ascii_end()).is_some() =>
        {
            wrong(LONE_CR, LONE_CR_HELP)
        }
        _ => Ok(()),
    }
}

/// Puts together what has been found out.
fn declared(given: &str, format: FormatKind, found: Inferred, whole: bool) -> Result<Declaration> {
    let Inferred { columns, options, mut remarks, wrong, more } = found;
    let whole = whole && !more;
    let names: HashSet<String> = columns.iter().map(|column| column.name.clone()).collect();
    let candidates: Vec<Candidate<'_>> = columns
        .iter()
        .map(|InferredColumn { name, data_type, values }| Candidate { name, data_type, values })
        .collect();
    let (computed, event_time) = match event_time(&candidates, &names, whole) {
        Some(EventTime { computed, time }) => (Vec::from_iter(computed), Some(time)),
        None => (vec![], None),
    };
    let of = if whole { "" } else { " in the sample" };
    let column = |column: InferredColumn| {
        let empty = column.values.count == 0 && column.values.nulls > 0;
        let note = empty.then(|| format!("no value{of}"));
        let sql_type = declared_type(&column.data_type);
        DeclaredColumn { name: column.name, sql_type, note }
    };
    let columns = columns.into_iter().map(column).collect();
    let option = |key: &str, value: &str| (key.to_string(), value.to_string());
    // What would be read as a secret is none.
    let path = match given.contains("$$") || given.contains("${") {
        true => given.replace('$', "$$"),
        false => given.to_string(),
    };
    let mut all =
        vec![option("connector", "file"), option("path", &path), option("format", format.name())];
    all.extend(options);
    remarks.retain(|remark| !remark.is_empty());
    let partitioned_by = Vec::new();
    let declaration =
        Declaration { columns, computed, event_time, partitioned_by, options: all, remarks };
    match wrong {
        Some(Error::Data { place, message, help }) => {
            let help = format!("{help}; {}", leaving_out(given, &declaration));
            Err(Error::Data { place, message, help })
        }
        Some(error) => Err(error),
        None => Ok(declaration),
    }
}

/// A type as a `CREATE TABLE` has it.
fn declared_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Struct(fields) => {
            let field = |field: &Arc<arrow::datatypes::Field>| {
                format!("{} {}", identifier(field.name()), declared_type(field.data_type()))
            };
            format!("ROW<{}>", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        DataType::List(element) => format!("ARRAY<{}>", declared_type(element.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                let types: Vec<_> = fields.iter().map(|f| declared_type(f.data_type())).collect();
                format!("MAP<{}>", types.join(", "))
            }
            _ => "MAP<STRING, STRING>".to_string(),
        },
        other => sql_name(other),
    }
}
