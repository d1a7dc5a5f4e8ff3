//! Formats of messages: the option `format`.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use millstream_contract::Result;
use millstream_contract::settings::closest;
use millstream_contract::table::TableOptions;

use super::MessageDecoder;
use super::envelope::{self, DebeziumJson};
use crate::avro::{AvroFormat, SchemaRegistry};
use crate::csv::{CsvFormat, Header};
use crate::ndjson::NdjsonFormat;
use crate::options::{OnError, Options};
use crate::raw::{RAW_MESSAGE_TYPES, RawFormat, is_message_type};
use crate::records::{RecordFormat, Unit};
use crate::types::sql_name;

const NAMES: [&str; 7] =
    ["json", "csv", "raw", "avro", "avro-confluent", "debezium-json", "debezium-avro-confluent"];

/// Formats of messages in Flink that do not run here.
const LATER: &[&str] =
    &["arrow", "canal-json", "maxwell-json", "ogg-json", "orc", "parquet", "protobuf"];

/// Options of Flink that say how values are written. A table may have them that is also read.
const WRITTEN: &[&str] = &[
    "avro.codec",
    "csv.write-bigdecimal-in-scientific-notation",
    "json.encode.decimal-as-plain-number",
    "json.encode.ignore-null-fields",
    "json.map-null-key.literal",
    "json.map-null-key.mode",
];

/// Format of a table's messages: the values, or the keys.
#[derive(Debug, Clone)]
pub struct MessageFormat {
    name: MessageFormatName,
    records: Arc<dyn RecordFormat>,
    registry: Option<Arc<dyn SchemaRegistry>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageFormatName {
    Json,
    Csv,
    Raw,
    Avro,
    AvroConfluent,
    DebeziumJson,
    DebeziumAvro,
}

impl MessageFormatName {
    fn text(self) -> &'static str {
        match self {
            MessageFormatName::Json => "json",
            MessageFormatName::Csv => "csv",
            MessageFormatName::Raw => "raw",
            MessageFormatName::Avro => "avro",
            MessageFormatName::AvroConfluent => "avro-confluent",
            MessageFormatName::DebeziumJson => "debezium-json",
            MessageFormatName::DebeziumAvro => "debezium-avro-confluent",
        }
    }

    /// Whether messages name schemas of a registry.
    pub(super) fn has_registry(self) -> bool {
        matches!(self, MessageFormatName::AvroConfluent | MessageFormatName::DebeziumAvro)
    }

    /// Whether messages are changes of a table.
    pub(super) fn is_envelope(self) -> bool {
        matches!(self, MessageFormatName::DebeziumJson | MessageFormatName::DebeziumAvro)
    }

    /// Whether a message can hold a column of this type.
    fn supports(self, data_type: &DataType) -> bool {
        match self {
            MessageFormatName::Json => NdjsonFormat::supported(data_type),
            MessageFormatName::Csv => CsvFormat::supported(data_type),
            MessageFormatName::Raw => is_message_type(data_type),
            MessageFormatName::DebeziumJson => NdjsonFormat::supported(data_type),
            // What a schema has for a type is seen when there is a schema.
            MessageFormatName::Avro
            | MessageFormatName::AvroConfluent
            | MessageFormatName::DebeziumAvro => true,
        }
    }
}

impl MessageFormat {
    /// Reads `format`, the format's own options (`json.*`, `csv.*`, `raw.*`, …) and `on_error`. The
    /// messages hold the columns of `schema`. A `registry` is for formats whose messages name their
    /// schemas.
    ///
    /// # Errors
    ///
    /// [`millstream_contract::Error::Option`], also about an option that the format does not have,
    /// and about a column that a message cannot hold.
    pub fn from_options(
        table: &TableOptions,
        schema: &SchemaRef,
        registry: Option<Arc<dyn SchemaRegistry>>,
    ) -> Result<MessageFormat> {
        let options = Options::new(table);
        let name = name(&options)?;
        if name.has_registry() != registry.is_some() {
            let message = format!("the format '{}' needs a registry of schemas", name.text());
            return Err(options.error("format", message, "name it in the option 'url'"));
        }
        let records: Arc<dyn RecordFormat> = match name {
            MessageFormatName::Json => Arc::new(NdjsonFormat::from_options(&options)?),
            MessageFormatName::Csv => {
                refuse_header(&options)?;
                Arc::new(CsvFormat::from_options(&options)?)
            }
            MessageFormatName::Raw => Arc::new(RawFormat::of_messages(&options)?),
            MessageFormatName::DebeziumJson => {
                Arc::new(DebeziumJson::from_options(table, &options, WRITTEN)?)
            }
            MessageFormatName::Avro
            | MessageFormatName::AvroConfluent
            | MessageFormatName::DebeziumAvro => {
                let own = registry.clone();
                Arc::new(AvroFormat::from_options(&options, name.text(), schema, own)?)
            }
        };
        for option in WRITTEN.iter().filter(|option| option.starts_with(name.text())) {
            options.text(option);
        }
        options.finish(&format!("the format '{}'", name.text()))?;
        if name.is_envelope() {
            envelope::check(&options, schema)?;
        }
        check_columns(&options, name, schema)?;
        Ok(MessageFormat { name, records, registry })
    }

    pub(super) fn name_of(&self) -> MessageFormatName {
        self.name
    }

    /// Name of the format, for example `json`.
    pub fn name(&self) -> &'static str {
        self.name.text()
    }

    /// Asks whether the registry of schemas is there, if the format needs it. Before the first
    /// message.
    ///
    /// # Errors
    ///
    /// The registry's errors.
    pub fn open(&self) -> Result<()> {
        self.registry.as_ref().map_or(Ok(()), |registry| registry.check())
    }

    /// Treatment of malformed messages.
    pub fn on_error(&self) -> OnError {
        self.records.on_error()
    }

    /// Decoder of the messages of a source into the columns of `projection`, which are indices into
    /// `schema`. `source` begins the places of messages, for example `topic 'clicks', partition 3`.
    pub fn decoder(
        &self,
        source: &Arc<str>,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<MessageDecoder> {
        Ok(MessageDecoder {
            registry: self.registry.clone(),
            format: self.records.clone(),
            decode: self.records.messages(source, schema, projection)?,
            joins_lines: matches!(
                self.name,
                MessageFormatName::Json | MessageFormatName::DebeziumJson
            ),
        })
    }
}

/// The format that the options name.
fn name(options: &Options<'_>) -> Result<MessageFormatName> {
    let list = format!("the formats of messages are {}", NAMES.join(", "));
    match options.text("format") {
        Some("json" | "ndjson" | "jsonl") => Ok(MessageFormatName::Json),
        Some("csv") => Ok(MessageFormatName::Csv),
        Some("raw") => Ok(MessageFormatName::Raw),
        Some("avro") => Ok(MessageFormatName::Avro),
        Some("avro-confluent") => Ok(MessageFormatName::AvroConfluent),
        Some("debezium-json") => Ok(MessageFormatName::DebeziumJson),
        Some("debezium-avro-confluent") => Ok(MessageFormatName::DebeziumAvro),
        Some(later) if LATER.contains(&later) => {
            let message = format!("the format '{later}' does not run here");
            Err(options.error("format", message, list))
        }
        Some(other) => {
            let message = format!("there is no format '{}'", other.escape_debug());
            let help = match closest(other, NAMES.into_iter()) {
                Some(name) => format!("did you mean '{name}'?"),
                None => list,
            };
            Err(options.error("format", message, help))
        }
        None => {
            let help = "write 'format' = 'json' among the options";
            Err(options.missing("format", "messages need a format", help))
        }
    }
}

/// Refuses a header: each message is a record.
fn refuse_header(options: &Options<'_>) -> Result<()> {
    match Header::from_options(options)? {
        None | Some(Header::Absent) => Ok(()),
        Some(_) => {
            let message = "a message has no header".to_string();
            Err(options.error("csv.header", message, "leave it out, or write 'false'"))
        }
    }
}

/// Refuses columns that messages of the format cannot hold.
fn check_columns(options: &Options<'_>, name: MessageFormatName, schema: &SchemaRef) -> Result<()> {
    let misfit = schema.fields().iter().find(|field| !name.supports(field.data_type()));
    if let Some(field) = misfit {
        let message = format!(
            "{} cannot hold column '{}' of type {}",
            name.text(),
            field.name(),
            sql_name(field.data_type())
        );
        let help = match (name, field.data_type()) {
            (MessageFormatName::Raw, _) => format!("declare the column {RAW_MESSAGE_TYPES}"),
            (_, DataType::Map(..)) => "a MAP has keys of type STRING".to_string(),
            _ => "declare the column with another type, for example STRING".to_string(),
        };
        return Err(options.error("format", message, help));
    }
    let misfit = match name {
        MessageFormatName::Raw => RawFormat::misfit(schema, Unit::Message),
        MessageFormatName::Csv if schema.fields().is_empty() => Some((
            "a record of CSV has a field, the table has no column for it".into(),
            "declare one",
        )),
        _ => None,
    };
    match misfit {
        Some((message, help)) => Err(options.error("format", message, help)),
        None => Ok(()),
    }
}
