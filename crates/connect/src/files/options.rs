//! The options of a directory that is written.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use arrow::ipc::CompressionType;
use millstream_contract::settings::{closest, is_bucket, parse_bytes};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};
use parquet::basic::{Compression, GzipLevel, ZstdLevel};

use super::directory::Directory;
use super::encode::Encoding;
use super::folder::Folder;
use super::ipc::ArrowOptions;
use super::keys::Keys;
use super::parquet::ParquetOptions;
use super::rolling::Rolling;
use crate::csv::Header;
use crate::options::Options;
use crate::text::{Format, PLAIN, TextOptions};
use crate::types::sql_name;

/// Settings of a table's files.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) folder: Arc<dyn Folder>,
    pub(super) encoding: Encoding,
    pub(super) rolling: Option<Rolling>,
    pub(super) partitioned_by: Vec<String>,
}

const FORMATS: &str = "the formats of files to write are csv, ndjson, parquet and arrow";

/// Sizes of row groups, encoded.
const GROUP_BYTES_DEFAULT: u64 = 32 << 20;
const GROUP_BYTES_MIN: u64 = 64 << 10;
const GROUP_BYTES_MAX: u64 = 1 << 30;

impl Settings {
    pub(super) fn from_options(table: &TableOptions) -> Result<Settings> {
        let options = Options::new(table);
        let encoding = match options.text("format") {
            Some("csv") => Encoding::Text(Format::Csv, csv_text_options(&options)?),
            // Flink's `json` is one object per line, too.
            Some("ndjson" | "jsonl" | "json") => {
                Encoding::Text(Format::Ndjson, TextOptions::default())
            }
            Some("parquet") => Encoding::Parquet(parquet_options(&options)?),
            Some("arrow") => Encoding::Arrow(arrow_options(&options)?),
            Some("raw") => {
                let message = "raw is read, and not written".to_string();
                return Err(options.error("format", message, FORMATS));
            }
            Some(other) => {
                let message = format!("there is no format '{}'", other.escape_debug());
                return Err(options.error("format", message, FORMATS));
            }
            None => return Err(options.missing("format", "a file needs a format", FORMATS)),
        };
        let given = options.text("path").map_or("", str::trim);
        if given.is_empty() {
            let help = "write 'path' = 'results' among the options, relative to the SQL file";
            return Err(options.missing("path", "files need a path to a directory", help));
        }
        let rolling = Rolling::from_options(&options)?;
        let marker = marker(&options)?;
        options.finish("a file that is written")?;
        check_partitions(&options, &table.schema)?;
        let depth = table.partitioned_by.len();
        let folder: Arc<dyn Folder> = match is_bucket(given.as_ref()) {
            true => Arc::new(Keys::new(given, depth, marker)?),
            false => Arc::new(Directory { path: options.path(given), depth, marker }),
        };
        Ok(Settings { folder, encoding, rolling, partitioned_by: table.partitioned_by.clone() })
    }
}

/// Whether rows can be told apart by these columns, and the files have columns left.
pub(crate) fn check_partitions(options: &Options<'_>, schema: &Schema) -> Result<()> {
    let by = options.partitioned_by();
    let wrong = |message: String, help: &str| Err(options.error("PARTITIONED BY", message, help));
    for (number, name) in by.iter().enumerate() {
        let Ok(field) = schema.field_with_name(name) else {
            let meant = closest(name, schema.fields().iter().map(|field| field.name().as_str()));
            let help = meant.map(|meant| format!("did you mean '{meant}'?")).unwrap_or_default();
            return wrong(format!("there is no column '{name}'"), &help);
        };
        if by[..number].contains(name) {
            return wrong(format!("column '{name}' is named twice"), "leave one of them out");
        }
        let data_type = field.data_type();
        let nested = matches!(data_type, DataType::Map(..)) || data_type.is_nested();
        if nested {
            let message = format!("'{name}' is {}, and no single value", sql_name(data_type));
            return wrong(message, "name a column whose values can stand in a path");
        }
    }
    if !by.is_empty() && by.len() == schema.fields().len() {
        let help = "leave out one of them: the columns stand in the paths, not in the files";
        return wrong("no column is left for the files".into(), help);
    }
    Ok(())
}

/// The `csv.*` options, with the same meaning as for a source.
pub(crate) fn csv_text_options(options: &Options<'_>) -> Result<TextOptions> {
    let header = Header::from_options(options)?;
    let (delimiter, quote) =
        (options.ascii_char("csv.field-delimiter")?, options.ascii_char("csv.quote-character")?);
    let between = delimiter.unwrap_or(b',');
    let around = quote.unwrap_or(b'"');
    if around == between {
        let message = "the same character is the field delimiter".into();
        return Err(options.error("csv.quote-character", message, "choose another character"));
    }
    if PLAIN.contains(&around) {
        let message = format!("numbers and times have '{}' in them", char::from(around));
        return Err(options.error("csv.quote-character", message, "choose another character"));
    }
    let null_literal = options.text("csv.null-literal").map(str::to_string);
    let special = |byte: &u8| [between, around, b'\n', b'\r'].contains(byte);
    if null_literal.as_ref().is_some_and(|text| text.as_bytes().iter().any(special)) {
        let message = "it must do without quotes, and has such a character in it".into();
        return Err(options.error("csv.null-literal", message, "choose another text"));
    }
    let without_header = header == Some(Header::Absent);
    Ok(TextOptions { without_header, delimiter, quote, null_literal, ..TextOptions::default() })
}

fn parquet_options(options: &Options<'_>) -> Result<ParquetOptions> {
    let names = "'snappy', 'zstd', 'gzip', 'lz4' or 'none'";
    let compression = options.parsed("parquet.compression", names, |text| {
        Some(match text.to_ascii_lowercase().as_str() {
            "snappy" => Compression::SNAPPY,
            "zstd" => Compression::ZSTD(ZstdLevel::default()),
            "gzip" => Compression::GZIP(GzipLevel::default()),
            "lz4" => Compression::LZ4_RAW,
            "none" | "uncompressed" => Compression::UNCOMPRESSED,
            _ => return None,
        })
    })?;
    let size = options.parsed("parquet.block.size", "a size from '64 KB' to '1 GB'", |text| {
        parse_bytes(text).filter(|bytes| (GROUP_BYTES_MIN..=GROUP_BYTES_MAX).contains(bytes))
    })?;
    let compression = compression.unwrap_or(Compression::SNAPPY);
    Ok(ParquetOptions { compression, group_bytes: size.unwrap_or(GROUP_BYTES_DEFAULT) })
}

fn arrow_options(options: &Options<'_>) -> Result<ArrowOptions> {
    let compression = options.parsed("arrow.compression", "'lz4', 'zstd' or 'none'", |text| {
        Some(match text.to_ascii_lowercase().as_str() {
            "lz4" => Some(CompressionType::LZ4_FRAME),
            "zstd" => Some(CompressionType::ZSTD),
            "none" => None,
            _ => return None,
        })
    })?;
    Ok(ArrowOptions { compression: compression.flatten() })
}

/// Flink's option that says how a partition is marked that has all its rows.
const COMMITTED_BY: &str = "sink.partition-commit.policy.kind";
const MARKER: &str = "sink.partition-commit.success-file.name";
/// Options of Flink's that say when, while it is the end of the job here; and how often it looks
/// whether files are to be rolled.
const WITHOUT_EFFECT: [&str; 7] = [
    "sink.partition-commit.trigger",
    "sink.partition-commit.delay",
    "sink.partition-commit.watermark-time-zone",
    "partition.time-extractor.kind",
    "partition.time-extractor.timestamp-pattern",
    "partition.time-extractor.timestamp-formatter",
    "sink.rolling-policy.check-interval",
];

/// Name of the marker file of a complete partition, by Flink's options. Options without effect are
/// accepted, but not suggested where other options are missing.
fn marker(options: &Options<'_>) -> Result<Option<String>> {
    for option in WITHOUT_EFFECT {
        if options.any(|key| key == option) {
            options.text(option);
        }
    }
    let (policy, name) = (options.text(COMMITTED_BY), options.text(MARKER));
    if policy.is_none() && name.is_none() {
        return Ok(None);
    }
    let name = name.unwrap_or("_SUCCESS");
    // Readers of the directory skip such names.
    let is_fit = name.len() > 1 && name.starts_with(['_', '.']) && !name.contains('/');
    if !is_fit || name.starts_with(".part-") || name == ".." {
        let message = format!("'{}' is no name for it", name.escape_debug());
        let help = "write a name that begins with '_', which who reads the directory passes over";
        return Err(options.error(MARKER, message, help));
    }
    match policy {
        Some("success-file") => {}
        Some(other) => {
            let message = format!("there is no policy '{}'", other.escape_debug());
            let help =
                "'success-file' marks a partition by a file, _SUCCESS: there is no metastore";
            return Err(options.error(COMMITTED_BY, message, help));
        }
        None => {
            let help = "write 'sink.partition-commit.policy.kind' = 'success-file', too";
            return Err(options.error(MARKER, "no file marks a partition".into(), help));
        }
    }
    if options.partitioned_by().is_empty() {
        let help = "write PARTITIONED BY (…) in front of WITH, or leave this option out";
        return Err(options.error(COMMITTED_BY, "the table has no partitions".into(), help));
    }
    Ok(Some(name.to_string()))
}

/// Whether an option belongs to files that are written, and to no file that is read.
pub(crate) fn is_only_written(option: &str) -> bool {
    // Files of these formats are read without options.
    ["sink.", "partition.", "parquet.", "arrow."].iter().any(|start| option.starts_with(start))
}

/// Checks options of written files: they have no effect on a source that reads the same files.
pub(crate) fn ask_written(options: &Options<'_>) -> Result<()> {
    if !options.any(is_only_written) {
        return Ok(());
    }
    match options.text("format") {
        Some("parquet") => drop(parquet_options(options)?),
        Some("arrow") => drop(arrow_options(options)?),
        _ => {}
    }
    Rolling::from_options(options)?;
    marker(options).map(drop)
}

/// Refuses `PARTITIONED BY` for a table that is not written to files.
pub(crate) fn refuse_partitions(table: &TableOptions, what: &str) -> Result<()> {
    if table.partitioned_by.is_empty() {
        return Ok(());
    }
    Err(Error::Option {
        table: table.name.clone(),
        option: "PARTITIONED BY".into(),
        message: format!("{what} has no partitions"),
        help: "only a table of files has them: leave it out".into(),
    })
}
