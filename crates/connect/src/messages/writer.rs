//! Rows as messages.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::FormatOptions;
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use super::SchemaRegistry;
use super::format::{MessageFormat, MessageFormatName};
use crate::avro::AvroWriter;
use crate::files::csv_text_options;
use crate::options::Options;
use crate::raw::write_raw;
use crate::text::{Cells, CsvStyle, json_keys, write_json};

/// Writer of messages: the values, or the keys, of a table.
#[derive(Debug)]
pub struct MessageWriter {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// With the columns' names.
    Json(Vec<Vec<u8>>),
    Csv(CsvStyle),
    Raw {
        little_endian: bool,
    },
    Avro(Box<AvroWriter>),
}

impl MessageWriter {
    /// Options as those of [`MessageFormat::from_options`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_options(
        table: &TableOptions,
        schema: &SchemaRef,
        registry: Option<Arc<dyn SchemaRegistry>>,
    ) -> Result<MessageWriter> {
        let format = MessageFormat::from_options(table, schema, registry.clone())?;
        let options = Options::new(table);
        if options.flag("json.encode.ignore-null-fields")? {
            let message = "a member that is NULL is always written".to_string();
            let help = "leave the option out";
            return Err(options.error("json.encode.ignore-null-fields", message, help));
        }
        let kind = match format.name_of() {
            MessageFormatName::Json => {
                Kind::Json(json_keys(schema.fields().iter().map(|field| field.name().as_str())))
            }
            MessageFormatName::Csv => Kind::Csv(CsvStyle::new(&csv_text_options(&options)?)),
            MessageFormatName::Raw => {
                let endianness = table.options.get("raw.endianness").map(String::as_str);
                Kind::Raw { little_endian: endianness == Some("little-endian") }
            }
            MessageFormatName::Avro | MessageFormatName::AvroConfluent => {
                let name = format.name();
                Kind::Avro(Box::new(AvroWriter::from_options(&options, name, schema, registry)?))
            }
            MessageFormatName::DebeziumJson | MessageFormatName::DebeziumAvro => {
                let message = format!("the format '{}' is read only", format.name());
                let help = "rows op, before, after may be written as 'json' or 'avro-confluent'";
                return Err(options.error("format", message, help));
            }
        };
        Ok(MessageWriter { kind })
    }

    /// Makes known what is written: registers its schema, if there is a registry. Before the first
    /// row.
    ///
    /// # Errors
    ///
    /// The registry's errors.
    pub fn open(&self) -> Result<()> {
        match &self.kind {
            Kind::Avro(writer) => writer.open(),
            Kind::Json(_) | Kind::Csv(_) | Kind::Raw { .. } => Ok(()),
        }
    }

    /// A message for each row; `None`: a row of a single column, in the format raw, which is NULL.
    pub fn messages(&self, rows: &RecordBatch) -> Result<Vec<Option<Vec<u8>>>> {
        let count = rows.num_rows();
        if let Kind::Raw { little_endian } = self.kind {
            let column = rows.columns().first();
            let column = column.ok_or_else(|| Error::Internal("raw has one column".into()))?;
            return write_raw(column, little_endian);
        }
        if let Kind::Avro(writer) = &self.kind {
            return writer.messages(rows);
        }
        let options = FormatOptions::default();
        let columns = rows.columns().iter().map(|column| Cells::new(column, &options));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let mut messages = Vec::with_capacity(count);
        for row in 0..count {
            let mut message = Vec::with_capacity(64);
            match &self.kind {
                Kind::Json(keys) => write_json(keys, &columns, row..row + 1, &mut message),
                Kind::Csv(style) => style.write_rows(&columns, row..row + 1, &mut message),
                Kind::Raw { .. } | Kind::Avro(_) => {}
            }
            // Without the line end.
            message.pop();
            messages.push(Some(message));
        }
        Ok(messages)
    }
}
