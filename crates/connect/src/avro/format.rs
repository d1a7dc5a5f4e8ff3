//! The formats `avro` and `avro-confluent`.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_contract::Result;

use super::decode::{AvroMessages, no_files};
use super::derive::schema_of;
use super::layouts::Layouts;
use super::registry::SchemaRegistry;
use super::schema::Avro;
use crate::input::Name;
use crate::options::{OnError, Options};
use crate::records::{Cut, Decode, Endless, Reader, RecordFormat, Started};

/// Messages of Avro.
#[derive(Debug)]
pub(crate) struct AvroFormat {
    on_error: OnError,
    layouts: Arc<Layouts>,
}

impl AvroFormat {
    /// From the options of a table. `name` is the format's name, without which its options stand.
    pub(crate) fn from_options(
        options: &Options<'_>,
        name: &str,
        columns: &SchemaRef,
        registry: Option<Arc<dyn SchemaRegistry>>,
    ) -> Result<AvroFormat> {
        let on_error = options.on_error(None)?;
        let mut given = None;
        match registry {
            Some(_) => {
                // The derived schema is for writing only.
                options.flag(&format!("{name}.timestamp_mapping.legacy"))?;
                if options.text(&format!("{name}.schema")).is_some() {
                    given = schema_of(options, name, columns)?.1;
                }
            }
            None => {
                options.parsed("avro.encoding", "'binary'", |text| {
                    (text.trim() == "binary").then_some(())
                })?;
                let (text, _) = schema_of(options, name, columns)?;
                let parsed = Avro::parse(&text).map_err(|why| options.error("format", why, ""));
                given = Some(parsed?);
            }
        }
        Ok(AvroFormat { on_error, layouts: Arc::new(Layouts::new(registry, given, columns)) })
    }
}

impl RecordFormat for AvroFormat {
    fn name(&self) -> &'static str {
        "Avro"
    }

    fn on_error(&self) -> OnError {
        self.on_error
    }

    fn cut(&self, buffer: &[u8], _last: bool, _records_max: usize) -> Cut {
        Cut::At(buffer.len())
    }

    fn endless(&self, _buffer: &[u8], _what: Endless) -> (usize, String, String) {
        (0, no_files().to_string(), String::new())
    }

    fn start(&self, _: &mut Reader, _: &SchemaRef, _: &[usize]) -> Result<Started> {
        Err(no_files())
    }

    fn messages(
        &self,
        source: &Name,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Arc<dyn Decode>> {
        Ok(Arc::new(AvroMessages {
            layouts: self.layouts.clone(),
            on_error: self.on_error,
            source: source.clone(),
            schema: Arc::new(schema.project(projection)?),
            projection: projection.to_vec(),
        }))
    }
}
