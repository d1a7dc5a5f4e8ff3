//! Debezium's envelope: a message is a change of a row in a database.
//!
//! Each message is a row, with the columns `op`, `before` and `after`, and no row is taken back:
//! the table is one of changes, not of their result. With the option
//! `debezium-json.schema-include`, the envelope is the member `payload` of an object.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_contract::table::{Decoded, TableOptions};
use millstream_contract::{Error, Result};

use crate::input::Name;
use crate::ndjson::NdjsonFormat;
use crate::options::{OnError, Options};
use crate::records::{Block, Cut, Decode, Endless, Reader, RecordFormat, Started};
use crate::types::sql_name;

/// Where options of the format begin, and those of JSON.
const PREFIX: &str = "debezium-json.";
const JSON: &str = "json.";
/// Whether the envelope stands beside its schema.
const WITH_SCHEMA: &str = "debezium-json.schema-include";

const PAYLOAD: &str = "payload";

/// Columns that a table of changes may have.
const COLUMNS: [&str; 8] =
    ["op", "before", "after", "source", "transaction", "ts_ms", "ts_us", "ts_ns"];

/// Refuses columns that are not in an envelope.
pub(super) fn check(options: &Options<'_>, schema: &SchemaRef) -> Result<()> {
    let help = "declare op STRING, before ROW<…>, after ROW<…> with the columns of the database's \
                table in both rows; query after.x WHERE op IN ('c', 'r')";
    for field in schema.fields() {
        let (name, of) = (field.name().as_str(), field.data_type());
        let fits = match name {
            "op" => *of == DataType::Utf8,
            "before" | "after" => matches!(of, DataType::Struct(_)),
            _ => true,
        };
        if !COLUMNS.contains(&name) || !fits {
            let name = name.escape_debug();
            let message = match fits {
                false => format!("the column '{name}' of a change is not {}", sql_name(of)),
                true => format!(
                    "a row is a change, which has no column '{name}': its columns are {}",
                    COLUMNS.join(", ")
                ),
            };
            return Err(options.error("format", message, help));
        }
    }
    Ok(())
}

/// Changes in JSON.
#[derive(Debug)]
pub(super) struct DebeziumJson {
    json: NdjsonFormat,
    with_schema: bool,
}

impl DebeziumJson {
    /// From the options `debezium-json.*`. `written` are options of JSON without effect on reading.
    pub(super) fn from_options(
        table: &TableOptions,
        options: &Options<'_>,
        written: &[&str],
    ) -> Result<DebeziumJson> {
        let with_schema = options.flag(WITH_SCHEMA)?;
        let mut own = table.clone();
        own.options.retain(|option, _| !option.starts_with(PREFIX));
        for (option, value) in &table.options {
            if let Some(name) = option.strip_prefix(PREFIX)
                && option != WITH_SCHEMA
            {
                options.text(option);
                own.options.insert(format!("{JSON}{name}"), value.clone());
            }
        }
        let as_written = |error| match error {
            Error::Option { table, option, message, help } => {
                let option = match option.strip_prefix(JSON) {
                    Some(name) => format!("{PREFIX}{name}"),
                    None => option,
                };
                Error::Option { table, option, message, help }
            }
            other => other,
        };
        let inner = Options::new(&own);
        inner.text("format");
        for option in written {
            inner.text(option);
        }
        let json = NdjsonFormat::from_options(&inner).map_err(as_written)?;
        inner.finish("the format 'debezium-json'").map_err(as_written)?;
        Ok(DebeziumJson { json, with_schema })
    }
}

impl RecordFormat for DebeziumJson {
    fn name(&self) -> &'static str {
        self.json.name()
    }

    fn on_error(&self) -> OnError {
        self.json.on_error()
    }

    fn cut(&self, buffer: &[u8], last: bool, records_max: usize) -> Cut {
        self.json.cut(buffer, last, records_max)
    }

    fn endless(&self, buffer: &[u8], what: Endless) -> (usize, String, String) {
        self.json.endless(buffer, what)
    }

    fn start(&self, _: &mut Reader, _: &SchemaRef, _: &[usize]) -> Result<Started> {
        Err(Error::Internal("changes are read from messages only".into()))
    }

    fn messages(
        &self,
        source: &Name,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Arc<dyn Decode>> {
        if !self.with_schema {
            return self.json.messages(source, schema, projection);
        }
        let projected: SchemaRef = Arc::new(schema.project(projection)?);
        // A row has a field.
        let fields = match projection.is_empty() {
            true => schema.fields().clone(),
            false => projected.fields().clone(),
        };
        let outer = Schema::new(vec![Field::new(PAYLOAD, DataType::Struct(fields), false)]);
        let decode = self.json.messages(source, &Arc::new(outer), &[0])?;
        Ok(Arc::new(Payload { decode, schema: projected }))
    }
}

/// Decoder of envelopes within an object.
#[derive(Debug)]
struct Payload {
    decode: Arc<dyn Decode>,
    /// The projected columns.
    schema: SchemaRef,
}

impl Decode for Payload {
    fn decode(&self, block: &Block) -> Result<Decoded> {
        let decoded = self.decode.decode(block)?;
        let rows = decoded.batch.num_rows();
        let payload = decoded.batch.columns().first().and_then(|column| column.as_struct_opt());
        let payload = payload.filter(|payload| payload.null_count() == 0);
        let columns = payload.map(|payload| payload.columns().to_vec()).unwrap_or_default();
        let columns = columns.into_iter().take(self.schema.fields().len()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        Ok(Decoded { batch, ..decoded })
    }
}
