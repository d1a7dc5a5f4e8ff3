//! The header: whether there is one, and which field each column is.

use arrow::datatypes::{Schema, SchemaRef};
use millstream_contract::settings::closest;
use millstream_contract::{Error, Result};

use super::dialect::{Dialect, Header};
use super::index::index;
use super::place;
use super::reader::{Block, Reader};

/// Bytes to read in search of the first record.
const FIRST_READ_BYTES: usize = 4 << 10;

/// How records map to columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Fields per record.
    pub(crate) fields: usize,
    /// Per declared column, its field.
    pub(crate) columns: Vec<usize>,
    /// Whether a header was read.
    pub(crate) named: bool,
}

impl Layout {
    /// Column `i` is field `i`.
    fn by_position(schema: &Schema) -> Layout {
        let fields = schema.fields().len();
        Layout { fields, columns: (0..fields).collect(), named: false }
    }
}

/// Reads the header if there is one, and leaves `reader` at the first record after it.
pub(crate) fn read(
    reader: &mut Reader,
    dialect: &Dialect,
    schema: &SchemaRef,
    path: &str,
) -> Result<Layout> {
    if dialect.header == Header::Absent {
        return Ok(Layout::by_position(schema));
    }
    while let Some(block) = reader.next(FIRST_READ_BYTES, 1)? {
        let (found, wrong) = index(&block.data, dialect, None, false);
        if let Some(wrong) = wrong {
            if dialect.header == Header::Auto {
                // No header looks like this; let the record be reported as one.
                reader.put_back(block);
                return Ok(Layout::by_position(schema));
            }
            return Err(Error::Data {
                place: place(path, &block.data, block.line, wrong.at),
                message: "the header cannot be read: text follows a closing quote".into(),
                help: String::new(),
            });
        }
        if found.rows() == 0 {
            continue; // a blank line or a comment
        }
        let names: Vec<(usize, String)> = (0..found.fields())
            .map(|field| {
                let (start, end) = found.field(0, field);
                (start, name(&block.data[start..end], dialect))
            })
            .collect();
        let position = |column: &str| {
            let same = names.iter().position(|(_, name)| name == column);
            same.or_else(|| {
                names.iter().position(|(_, n)| n.to_lowercase() == column.to_lowercase())
            })
        };
        let columns: Vec<Option<usize>> =
            schema.fields().iter().map(|field| position(field.name())).collect();
        let matching = columns.iter().flatten().count();
        let header = match dialect.header {
            Header::Auto => matching > 0 && matching * 2 >= columns.len(),
            _ => true,
        };
        if !header {
            reader.put_back(block);
            return Ok(Layout::by_position(schema));
        }
        let fields = names.len();
        let columns = check(schema, &columns, &names, &block, dialect, path)?;
        return Ok(Layout { fields, columns, named: true });
    }
    Ok(Layout::by_position(schema))
}

/// Every column must be there, once.
fn check(
    schema: &Schema,
    columns: &[Option<usize>],
    names: &[(usize, String)],
    block: &Block,
    dialect: &Dialect,
    path: &str,
) -> Result<Vec<usize>> {
    let error = |at: usize, message: String, help: String| Error::Data {
        place: place(path, &block.data, block.line, at),
        message,
        help,
    };
    let mut found = Vec::with_capacity(columns.len());
    for (column, field) in schema.fields().iter().zip(columns) {
        let Some(field) = field else {
            let candidates = names.iter().map(|(_, name)| name.as_str());
            let mut help = match closest(column.name(), candidates.clone()) {
                Some(similar) => format!("did you mean '{similar}'?"),
                None => format!("its columns are {}", listed(candidates)),
            };
            if dialect.header == Header::Auto {
                help.push_str(
                    "; if this line is no header but a record, set 'csv.header' = 'false'",
                );
            }
            let message = format!("the header has no column '{}'", column.name());
            return Err(error(names.first().map_or(0, |(start, _)| *start), message, help));
        };
        let (_, name) = &names[*field];
        if let Some((again, _)) = names.iter().skip(field + 1).find(|(_, other)| other == name) {
            let message = format!("the header has column '{}' twice", name.escape_debug());
            return Err(error(*again, message, "rename one of them".into()));
        }
        found.push(*field);
    }
    Ok(found)
}

/// Names for a message; the first twenty.
fn listed<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    let shown: Vec<String> = names.clone().take(20).map(|n| n.escape_debug().to_string()).collect();
    let more = if names.count() > shown.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// A header field as a name: without quotes and blanks around it.
fn name(text: &[u8], dialect: &Dialect) -> String {
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
