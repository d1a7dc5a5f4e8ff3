//! End of a Parquet file: the schema, and the places of row groups and columns.
//!
//! The end is read once, and everything that decoding takes on trust is checked here.

use std::sync::Arc;

use arrow::datatypes::Fields;
use millstream_contract::{Error, Result};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{Compression, Encoding, EncodingMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy,
};

use super::{instants, thrift};
use crate::columns::damaged;
use crate::guard::guarded;
use crate::input::Anywhere;

pub(super) const MAGIC: &[u8; 4] = b"PAR1";
/// Magic of a file whose end is encrypted.
const MAGIC_ENCRYPTED: &[u8; 4] = b"PARE";
/// A schema that is deeper is taken for damage.
const DEPTH_MAX: usize = 100;
/// The length of the metadata, and the magic.
const TAIL_BYTES: usize = 8;

/// A file whose end has been read.
#[derive(Debug)]
pub(super) struct ParquetFile {
    pub(super) bytes: Anywhere,
    pub(super) metadata: Arc<ParquetMetaData>,
    /// The file's columns, in their order, in Arrow's types; one field for each nested column.
    pub(super) fields: Fields,
    /// True if `fields` differ from Arrow's own reading of the schema.
    pub(super) instants: bool,
    /// By row group, the rows before it; at last, all.
    rows_before: Vec<u64>,
}

impl ParquetFile {
    /// With statistics and with what pages are encoded in, if they are asked for.
    pub(super) fn open(bytes: Anywhere, statistics: bool, encodings: bool) -> Result<ParquetFile> {
        let name = bytes.name().clone();
        let footer = footer(&bytes)?;
        // The library has few checks of schemas and offsets, and panics where they contradict each
        // other.
        let read = || {
            let policy = |wanted| match wanted {
                true => ParquetStatisticsPolicy::KeepAll,
                false => ParquetStatisticsPolicy::SkipAll,
            };
            let options = ParquetMetaDataOptions::new()
                .with_column_stats_policy(policy(statistics))
                .with_encoding_stats_policy(policy(encodings))
                .with_encoding_stats_as_mask(true);
            let metadata =
                ParquetMetaDataReader::decode_metadata_with_options(&footer, Some(&options))?;
            // Ignores the Arrow schema in the metadata: so there are no dictionaries and views.
            let schema = parquet_to_arrow_schema(metadata.file_metadata().schema_descr(), None)?;
            Ok::<_, ParquetError>((metadata, schema))
        };
        let (metadata, schema) = guarded(read)
            .map_err(|message| damaged(&name, format!("its metadata cannot be read: {message}")))?;
        let in_micros =
            instants::in_micros(&schema.fields, metadata.file_metadata().schema_descr());
        let instants = in_micros.is_some();
        let (metadata, fields) = (Arc::new(metadata), in_micros.unwrap_or(schema.fields));
        let mut rows_before = vec![0u64];
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let before = rows_before.last().copied().unwrap_or(0);
            let rows = u64::try_from(group.num_rows()).ok();
            let Some(rows) = rows.and_then(|rows| before.checked_add(rows)) else {
                let message = format!("row group {number} has {} rows", group.num_rows());
                return Err(damaged(&name, message));
            };
            rows_before.push(rows);
        }
        let file = ParquetFile { bytes, metadata, fields, instants, rows_before };
        file.check_roots(&name)?;
        Ok(file)
    }

    /// Whether each of the schema's columns is one of Arrow's.
    fn check_roots(&self, name: &str) -> Result<()> {
        let roots = self.metadata.file_metadata().schema_descr().root_schema().get_fields().len();
        let leaves = self.metadata.file_metadata().schema_descr().num_columns();
        let groups = self.metadata.row_groups();
        if roots != self.fields.len() || groups.iter().any(|group| group.num_columns() != leaves) {
            return Err(damaged(name, "its row groups have other columns than its schema"));
        }
        Ok(())
    }

    /// Rows of all row groups.
    pub(super) fn rows(&self) -> u64 {
        self.rows_before.last().copied().unwrap_or(0)
    }

    /// The row group that holds this row, and the rows before that group and before the next.
    pub(super) fn group_of(&self, row: u64) -> Option<(usize, u64, u64)> {
        // Of several row groups that begin at this row, the last: the others are empty.
        let group = self.rows_before.partition_point(|before| *before <= row).checked_sub(1)?;
        Some((group, *self.rows_before.get(group)?, *self.rows_before.get(group + 1)?))
    }

    /// The leaf columns of these columns.
    pub(super) fn leaves(&self, roots: &[usize]) -> Vec<usize> {
        let schema = self.metadata.file_metadata().schema_descr();
        let is_read =
            |leaf: &usize| roots.binary_search(&schema.get_column_root_idx(*leaf)).is_ok();
        (0..schema.num_columns()).filter(is_read).collect()
    }

    /// Whether a column, which is a leaf, is one dictionary in each row group.
    pub(super) fn is_dictionary(&self, leaf: usize) -> bool {
        let only = |mask: &EncodingMask| {
            mask.is_only(Encoding::RLE_DICTIONARY) || mask.is_only(Encoding::PLAIN_DICTIONARY)
        };
        self.metadata.row_groups().iter().all(|group| {
            let column = group.column(leaf);
            column.dictionary_page_offset().is_some()
                && column.page_encoding_stats_mask().is_some_and(only)
        })
    }

    /// The file and a part of it, for messages.
    pub(super) fn place(&self, group: usize, leaf: Option<usize>) -> String {
        let name = self.bytes.name();
        match leaf {
            None => format!("{name}, row group {group}"),
            Some(leaf) => {
                let column = self.metadata.file_metadata().schema_descr().column(leaf);
                format!("{name}, row group {group}, column '{}'", column.path().string())
            }
        }
    }

    /// Checks what row groups say of columns that are to be read.
    pub(super) fn check_columns(&self, leaves: &[usize]) -> Result<()> {
        for (number, group) in self.metadata.row_groups().iter().enumerate() {
            for leaf in leaves {
                let column = group.column(*leaf);
                self.check_codec(number, *leaf, column.compression())?;
                let wrong = |message| Err(damaged(&self.place(number, Some(*leaf)), message));
                if !self.contains(column) {
                    return wrong("it lies outside of the file".to_string());
                }
                let (values, rows) = (column.num_values(), group.num_rows());
                let flat = column.column_descr().max_rep_level() == 0;
                if values < 0 || flat && values != rows {
                    return wrong(format!("it has {values} values of {rows} rows"));
                }
            }
        }
        Ok(())
    }

    fn contains(&self, column: &ColumnChunkMetaData) -> bool {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let (start, length) = (u64::try_from(start), u64::try_from(column.compressed_size()));
        let (Ok(start), Ok(length)) = (start, length) else { return false };
        start.checked_add(length).is_some_and(|end| end <= self.bytes.length())
    }

    fn check_codec(&self, group: usize, leaf: usize, codec: Compression) -> Result<()> {
        let name = match codec {
            Compression::BROTLI(_) => "Brotli",
            Compression::LZO => "LZO",
            _ => return Ok(()),
        };
        Err(Error::Data {
            place: self.place(group, Some(leaf)),
            message: format!("it is compressed with {name}, which cannot be unpacked"),
            help: "write the file again with zstd, snappy, lz4 or gzip, or without compression"
                .into(),
        })
    }
}

/// The metadata as they stand before the end.
fn footer(bytes: &Anywhere) -> Result<bytes::Bytes> {
    let name = bytes.name();
    let is_none = |found: String| Error::Data {
        place: name.to_string(),
        message: format!("expected a Parquet file, {found}"),
        help: "it may have been cut off, or not been written to its end, or 'format' is another"
            .into(),
    };
    let start = bytes.read_at_most(0, MAGIC.len())?;
    if start.as_ref() != MAGIC && start.as_ref() != MAGIC_ENCRYPTED {
        return Err(is_none("which begins with PAR1".into()));
    }
    let tail_at = bytes.length().saturating_sub(TAIL_BYTES as u64);
    let tail = bytes.read_at_most(tail_at, TAIL_BYTES)?;
    let Some((length, magic)) = tail.split_first_chunk::<4>() else {
        return Err(is_none(format!("found {} bytes", bytes.length())));
    };
    if magic == MAGIC_ENCRYPTED {
        return Err(Error::Data {
            place: name.to_string(),
            message: "it is encrypted, which cannot be read".into(),
            help: "write it without encryption".into(),
        });
    }
    if magic != MAGIC {
        return Err(is_none("which ends with PAR1".into()));
    }
    let length = u32::from_le_bytes(*length);
    let at = tail_at.checked_sub(u64::from(length)).filter(|at| *at >= MAGIC.len() as u64);
    let Some(at) = at else {
        return Err(is_none(format!("found one whose metadata would have {length} bytes")));
    };
    let footer = bytes.read(at, length as usize)?;
    if !thrift::is_whole(&footer) {
        return Err(damaged(name, "its metadata cannot be read: they end too early"));
    }
    // The library goes down into each column by a call of its own.
    match thrift::schema_depth(&footer) {
        Some(depth) if depth <= DEPTH_MAX => Ok(footer),
        Some(depth) => Err(damaged(name, format!("its columns are nested {depth} times"))),
        None => Err(damaged(name, "its metadata cannot be read: they have no schema")),
    }
}
