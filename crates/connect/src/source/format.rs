//! Formats of files: the option `format`.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use millstream_contract::Result;
use millstream_contract::settings::closest;
use millstream_contract::table::{Split, TableOptions};

use crate::csv::CsvFormat;
use crate::input::Input;
use crate::ipc::{IpcFormat, IpcSplit};
use crate::ndjson::NdjsonFormat;
use crate::options::Options;
use crate::parquet::{ParquetFormat, ParquetSplit};
use crate::raw::RawFormat;
use crate::records::{Reading, RecordFormat, RecordSplit, Unit};
use crate::types::sql_name;

/// A format of files.
pub(crate) trait ReadFormat: Send + Sync + Debug {
    /// As the option names it.
    fn name(&self) -> &'static str;

    /// Whether a column of this type can be read.
    fn supports(&self, data_type: &DataType) -> bool;

    /// Fault of these columns as a whole, with advice.
    fn misfit(&self, _schema: &Schema) -> Option<(String, &'static str)> {
        None
    }

    /// Layout of the records in the bytes, one after the other; `None`: a file is read as a whole.
    fn records(&self) -> Option<Arc<dyn RecordFormat>> {
        None
    }

    /// Opens a file. Whatever the workers and processes, the chunks are the same, and each ends at
    /// a position from which the rest can be read. A value that does not fit its column is an error
    /// with its place, when the chunk is decoded.
    fn open(&self, input: Input, reading: &Reading<'_>) -> Result<Box<dyn Split>>;
}

impl ReadFormat for CsvFormat {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn supports(&self, data_type: &DataType) -> bool {
        CsvFormat::supported(data_type)
    }

    fn records(&self) -> Option<Arc<dyn RecordFormat>> {
        Some(Arc::new(self.clone()))
    }

    fn open(&self, input: Input, reading: &Reading<'_>) -> Result<Box<dyn Split>> {
        Ok(Box::new(RecordSplit::open(Arc::new(self.clone()), input, reading)?))
    }
}

impl ReadFormat for NdjsonFormat {
    fn name(&self) -> &'static str {
        "ndjson"
    }

    fn supports(&self, data_type: &DataType) -> bool {
        NdjsonFormat::supported(data_type)
    }

    fn records(&self) -> Option<Arc<dyn RecordFormat>> {
        Some(Arc::new(self.clone()))
    }

    fn open(&self, input: Input, reading: &Reading<'_>) -> Result<Box<dyn Split>> {
        Ok(Box::new(RecordSplit::open(Arc::new(self.clone()), input, reading)?))
    }
}

impl ReadFormat for RawFormat {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn supports(&self, data_type: &DataType) -> bool {
        RawFormat::supported(data_type)
    }

    fn misfit(&self, schema: &Schema) -> Option<(String, &'static str)> {
        RawFormat::misfit(schema, Unit::Line)
    }

    fn records(&self) -> Option<Arc<dyn RecordFormat>> {
        Some(Arc::new(*self))
    }

    fn open(&self, input: Input, reading: &Reading<'_>) -> Result<Box<dyn Split>> {
        Ok(Box::new(RecordSplit::open(Arc::new(*self), input, reading)?))
    }
}

impl ReadFormat for ParquetFormat {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn supports(&self, data_type: &DataType) -> bool {
        ParquetFormat::supported(data_type)
    }

    fn open(&self, input: Input, reading: &Reading<'_>) -> Result<Box<dyn Split>> {
        Ok(Box::new(ParquetSplit::open(input, reading)?))
    }
}

impl ReadFormat for IpcFormat {
    fn name(&self) -> &'static str {
        "arrow"
    }

    fn supports(&self, data_type: &DataType) -> bool {
        IpcFormat::supported(data_type)
    }

    fn open(&self, input: Input, reading: &Reading<'_>) -> Result<Box<dyn Split>> {
        Ok(Box::new(IpcSplit::open(input, reading)?))
    }
}

/// The formats that files are read in.
const NAMES: [&str; 5] = ["csv", "ndjson", "parquet", "arrow", "raw"];

/// Formats that are planned, for a better message.
const LATER: &[&str] = &["avro", "orc"];

/// Whether the format that the options name is one of other engines, not one with a wrong letter.
pub(crate) fn is_foreign(options: &TableOptions) -> bool {
    let known = NAMES.into_iter().chain(["jsonl", "json", "table", "stdout"]);
    options.options.get("format").is_some_and(|name| {
        LATER.contains(&name.as_str()) || !name.contains('$') && closest(name, known).is_none()
    })
}

/// The format that the options name, with its own options.
pub(super) fn from_options(options: &Options<'_>) -> Result<Arc<dyn ReadFormat>> {
    let list = format!("the formats of files to read are {}", NAMES.join(", "));
    match options.text("format") {
        Some("csv") => Ok(Arc::new(CsvFormat::from_options(options)?)),
        // Flink's `json` reads consecutive objects; by habit there is one per line.
        Some("ndjson" | "jsonl" | "json") => Ok(Arc::new(NdjsonFormat::from_options(options)?)),
        Some("parquet") => Ok(Arc::new(ParquetFormat)),
        Some("arrow") => Ok(Arc::new(IpcFormat)),
        Some("raw") => Ok(Arc::new(RawFormat::from_options(options)?)),
        Some(later) if LATER.contains(&later) => {
            Err(options.error("format", format!("the format '{later}' does not run here"), list))
        }
        Some(other) => Err(options.error(
            "format",
            format!("there is no format '{}'", other.escape_debug()),
            match closest(other, NAMES.into_iter()) {
                Some(name) => format!("did you mean '{name}'?"),
                None => list,
            },
        )),
        None => Err(options.missing(
            "format",
            "a file needs a format",
            "write 'format' = 'csv' among the options",
        )),
    }
}

/// The format of what comes as lines, without end: `what` says of what. Options that no format
/// knows are left to the caller.
pub(crate) fn lines_from_options(
    options: &Options<'_>,
    schema: &SchemaRef,
    what: &str,
) -> Result<Arc<dyn RecordFormat>> {
    let format = from_options(options)?;
    let Some(records) = format.records() else {
        let message = format!("{what} has lines, and '{}' has none", format.name());
        return Err(options.error("format", message, "the formats of lines are csv, ndjson, raw"));
    };
    check_columns(options, &*format, schema, &|_, _| false)?;
    Ok(records)
}

/// Refuses columns of types that the format cannot hold, except for columns `beside` the records.
pub(super) fn check_columns(
    options: &Options<'_>,
    format: &dyn ReadFormat,
    schema: &Schema,
    beside: &dyn Fn(&str, &DataType) -> bool,
) -> Result<()> {
    for field in schema.fields() {
        let data_type = field.data_type();
        if !format.supports(data_type) && !beside(format.name(), data_type) {
            let message = format!(
                "{} cannot hold column '{}' of type {}",
                format.name(),
                field.name(),
                sql_name(data_type)
            );
            let help = match format.name() {
                "raw" => "raw is whole lines: declare the column STRING, or take another format",
                _ if matches!(data_type, DataType::Map(..)) => "a MAP has keys of type STRING",
                _ => "declare the column with another type, for example STRING",
            };
            return Err(options.error("format", message, help));
        }
    }
    match format.misfit(schema) {
        Some((message, help)) => Err(options.error("format", message, help)),
        None => Ok(()),
    }
}
