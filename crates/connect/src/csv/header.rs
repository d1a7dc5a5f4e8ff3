//! Header of a CSV file: its detection, and the field of each column.
//!
//! Without an explicit option, the first record decides (`csv.header` = `auto`). The first record
//! is the header if all declared columns are among its fields. The first record is data if no
//! column is among its fields and one field is a number or another value that fits a column that is
//! not a string. If all columns are strings, no field can show this. Then the first record is data
//! if no column is among its fields, and the user is told. Everything else is refused: a header
//! that has another name for a column (`country,2023`) must not count as data.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use memchr::memchr;
use millstream_contract::settings::closest;
use millstream_contract::table::LeftOut;
use millstream_contract::{Error, Result};

use super::chunk::{CLOSE_HELP, CsvPlan};
use super::decode::{CsvColumn, Decoder};
use super::dialect::{Dialect, Header};
use super::index::{Index, index};
use crate::number::parse_f64;
use crate::records::{Block, Reader};

/// Bytes to read in search of the first record.
const FIRST_READ_BYTES: usize = 4 << 10;

const EITHER_HELP: &str = "if it is a header, write 'csv.header' = 'true' and name the columns \
                           as it does; if it is a record, 'csv.header' = 'false'";

/// Lines that no line feed ends.
pub(crate) const LONE_CR: &str =
    "its lines end with a carriage return (CR) alone, and a line feed (LF) is expected";
pub(crate) const LONE_CR_HELP: &str = "convert it, for example with tr '\\r' '\\n'";

/// How records map to columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CsvLayout {
    /// Fields per record.
    pub(crate) fields: usize,
    /// Per declared column, its field.
    pub(crate) columns: Vec<usize>,
    /// Whether a header was read.
    pub(crate) named: bool,
    /// Where the first record stands, if nothing says that it is no header.
    pub(crate) unsure: Option<String>,
}

impl CsvLayout {
    /// Column `i` is field `i`.
    pub(super) fn by_position(schema: &Schema) -> CsvLayout {
        let fields = schema.fields().len();
        CsvLayout { fields, columns: (0..fields).collect(), named: false, unsure: None }
    }
}

/// Reads the header if there is one, and leaves `reader` at the first record after it.
pub(crate) fn read(
    reader: &mut Reader,
    dialect: &Arc<Dialect>,
    schema: &SchemaRef,
    path: &Arc<str>,
) -> Result<CsvLayout> {
    if dialect.header == Header::Absent {
        return Ok(CsvLayout::by_position(schema));
    }
    // Blank lines and comments before it.
    let mut before = Vec::new();
    let mut layout = CsvLayout::by_position(schema);
    while let Some(block) = reader.next(FIRST_READ_BYTES, 1)? {
        if let Some(LeftOut { place, message, .. }) = block.too_long {
            let help = "this may be no CSV file; the first line, which may be a header, is never \
                        left out"
                .into();
            return Err(Error::Data { place, message, help });
        }
        let (found, wrong) = index(&block.data, dialect, None, false);
        if let Some(wrong) = wrong {
            if matches!(dialect.header, Header::Present | Header::Skipped) {
                return Err(Error::Data {
                    place: block.place(path, wrong.at),
                    message: "the header cannot be read: a quote is open, or text follows it"
                        .into(),
                    help: CLOSE_HELP.into(),
                });
            }
            // No header looks like this; let the record be reported as one.
            before.push(block);
            break;
        }
        if found.rows() == 0 {
            before.push(block);
            continue;
        }
        refuse_lone_cr(&block, &found, path)?;
        if dialect.header == Header::Skipped {
            return Ok(layout);
        }
        let first = First::new(&block, &found, dialect, schema, path);
        let header = match dialect.header {
            Header::Auto => first.is_header()?,
            _ => Some(true),
        };
        if header == Some(true) {
            let columns = first.check()?;
            return Ok(CsvLayout { fields: first.names.len(), columns, named: true, unsure: None });
        }
        layout.unsure = header.is_none().then(|| block.place(path, found.field(0, 0).0));
        before.push(block);
        break;
    }
    before.into_iter().rev().for_each(|block| reader.put_back(block));
    Ok(layout)
}

/// Refuses a first record in which a line seems to end.
fn refuse_lone_cr(block: &Block, found: &Index, path: &Arc<str>) -> Result<()> {
    for field in 0..found.fields() {
        let (start, end) = found.field(0, field);
        let text = block.data[start..end].trim_ascii_end();
        let at = memchr(b'\r', text).filter(|_| !text.starts_with(b"\""));
        if let Some(at) = at {
            return Err(Error::Data {
                place: block.place(path, start + at),
                message: LONE_CR.into(),
                help: LONE_CR_HELP.into(),
            });
        }
    }
    Ok(())
}

/// The first record.
struct First<'a> {
    block: &'a Block,
    found: &'a Index,
    dialect: &'a Arc<Dialect>,
    schema: &'a SchemaRef,
    path: &'a Arc<str>,
    /// Fields of the first record as names, with their positions.
    names: Vec<(usize, String)>,
    /// Per declared column, the field with its name.
    columns: Vec<Option<usize>>,
}

impl<'a> First<'a> {
    fn new(
        block: &'a Block,
        found: &'a Index,
        dialect: &'a Arc<Dialect>,
        schema: &'a SchemaRef,
        path: &'a Arc<str>,
    ) -> First<'a> {
        let names: Vec<(usize, String)> = (0..found.fields())
            .map(|field| {
                let (start, end) = found.field(0, field);
                (start, name(&block.data[start..end], dialect))
            })
            .collect();
        let position = |column: &str| {
            let (column, lower) = (column.trim(), column.trim().to_lowercase());
            let same = names.iter().position(|(_, name)| name == column);
            same.or_else(|| names.iter().position(|(_, name)| name.to_lowercase() == lower))
        };
        let columns = schema.fields().iter().map(|field| position(field.name())).collect();
        First { block, found, dialect, schema, path, names, columns }
    }

    /// True if the first record is the header; `None`: probably not, but no field proves it.
    fn is_header(&self) -> Result<Option<bool>> {
        let matching = self.columns.iter().flatten().count();
        if matching > 0 && matching == self.columns.len() {
            return Ok(Some(true));
        }
        if self.names.len() != self.columns.len() {
            return if matching > 0 { Ok(Some(true)) } else { Err(self.neither()) };
        }
        let (values, others) = self.values()?;
        match (matching, values, others) {
            (0, 1.., _) => Ok(Some(false)),
            (_, 1.., 0) => Err(self.either()),
            (0, 0, 0) => Ok(None),
            (0, 0, _) => Err(self.neither()),
            _ => Ok(Some(true)),
        }
    }

    /// How many fields are what names are not, numbers or other values of their columns' types;
    /// and how many fit their columns neither as that nor as text.
    fn values(&self) -> Result<(usize, usize)> {
        let (mut values, mut others) = (0, 0);
        let mut decoder = Decoder::new(&self.block.data, self.found, self.dialect);
        for (at, field) in self.schema.fields().iter().enumerate() {
            let (_, name) = &self.names[at];
            if parse_f64(name.as_bytes()).is_some() {
                values += 1;
            } else if !matches!(field.data_type(), DataType::Utf8 | DataType::Binary) {
                let column = CsvColumn {
                    name: field.name().clone(),
                    data_type: field.data_type().clone(),
                    nullable: true,
                    field: at,
                };
                match decoder.column(&column)? {
                    Ok(array) if decoder.first_skipped.is_none() => {
                        values += usize::from(array.is_valid(0));
                    }
                    _ => others += 1,
                }
                decoder.first_skipped = None;
            }
        }
        Ok((values, others))
    }

    /// Error for a first record that names some columns, not all, and may well be data.
    fn either(&self) -> Error {
        let which = |there: bool| {
            let fields = self.schema.fields().iter().zip(&self.columns);
            listed(fields.filter(|(_, at)| at.is_some() == there).map(|(f, _)| f.name().as_str()))
        };
        let (there, missing) = (which(true), which(false));
        let start = self.names.first().map_or(0, |(start, _)| *start);
        Error::Data {
            place: self.block.place(self.path, start),
            message: format!(
                "the first line may be a header or a record: it has the name of column {there}, \
                 but not of {missing}"
            ),
            help: EITHER_HELP.into(),
        }
    }

    /// Error for a first record that is no header; says why the record is no data either.
    fn neither(&self) -> Error {
        let dialect = Arc::new(Dialect { skip_errors: false, ..(**self.dialect).clone() });
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let layout = CsvLayout::by_position(self.schema);
        let decoded = CsvPlan::new(self.path, &dialect, self.schema, layout, &all)
            .and_then(|plan| plan.decode(self.block));
        let first = "the first line is neither a header with the table's columns nor a record";
        match decoded {
            Err(Error::Data { place, message, help }) => Error::Data {
                place,
                message: format!("{first}: {message}"),
                help: match help.contains("csv.field-delimiter") {
                    true => help,
                    false => EITHER_HELP.into(),
                },
            },
            Err(error) => error,
            Ok(_) => Error::Internal(format!("{first}, and yet it can be decoded")),
        }
    }

    /// As a header: every column must be there, once.
    fn check(&self) -> Result<Vec<usize>> {
        let names = &self.names;
        let error = |at: usize, message: String, help: String| Error::Data {
            place: self.block.place(self.path, at),
            message,
            help,
        };
        let mut found = Vec::with_capacity(self.columns.len());
        for (column, field) in self.schema.fields().iter().zip(&self.columns) {
            let Some(field) = field else {
                let candidates = names.iter().map(|(_, name)| name.as_str());
                let mut help = match closest(column.name(), candidates.clone()) {
                    Some(similar) => format!("did you mean '{similar}'?"),
                    None => format!("its columns are {}", listed(candidates)),
                };
                if self.dialect.header == Header::Auto {
                    help.push_str(
                        "; if this line is no header but a record, set 'csv.header' = 'false'",
                    );
                }
                let message = format!("the header has no column '{}'", column.name());
                return Err(error(names.first().map_or(0, |(start, _)| *start), message, help));
            };
            let (_, name) = &names[*field];
            if let Some((again, _)) = names.iter().skip(field + 1).find(|(_, other)| other == name)
            {
                let message = format!("the header has column '{}' twice", name.escape_debug());
                return Err(error(*again, message, "rename one of them".into()));
            }
            found.push(*field);
        }
        Ok(found)
    }
}

/// Names for a message; the first twenty.
fn listed<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    let shown: Vec<String> = names.clone().take(20).map(|n| n.escape_debug().to_string()).collect();
    let more = if names.count() > shown.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// A header field as a name: without quotes and blanks around it.
pub(crate) fn name(text: &[u8], dialect: &Dialect) -> String {
    let text = String::from_utf8_lossy(text);
    let unquoted = match dialect.quote.map(char::from) {
        Some(quote) if text.len() >= 2 && text.starts_with(quote) => {
            let doubled: String = [quote, quote].iter().collect();
            text[1..text.len() - 1].replace(&doubled, &quote.to_string())
        }
        _ => text.into_owned(),
    };
    unquoted.trim().to_string()
}
