//! Decoders of all schemas that a table's messages have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use millstream_contract::Result;

use super::layout::Layout;
use super::registry::SchemaRegistry;
use super::resolve;
use super::schema::Avro;

/// Help where a message is left out.
pub(super) const SKIP_HELP: &str =
    "'on_error' = 'skip' leaves such messages out, and 'table:NAME' keeps them";

/// Why messages of a schema cannot be read: message and help.
pub(super) type Flaw = (String, String);

/// Decoders by number of schema and projection.
#[derive(Debug)]
pub(super) struct Layouts {
    /// The source of schemas; `None`: all messages have the schema `given`.
    pub(super) registry: Option<Arc<dyn SchemaRegistry>>,
    /// Schema of the reader, if the table has one.
    pub(super) given: Option<Avro>,
    /// The columns of messages.
    pub(super) columns: SchemaRef,
    cache: Mutex<Cache>,
}

type Cache = HashMap<(u32, Vec<usize>), std::result::Result<Arc<Layout>, Flaw>>;

impl Layouts {
    /// None yet.
    pub(super) fn new(
        registry: Option<Arc<dyn SchemaRegistry>>,
        given: Option<Avro>,
        columns: &SchemaRef,
    ) -> Layouts {
        Layouts { registry, given, columns: columns.clone(), cache: Mutex::default() }
    }

    /// How messages of a schema are decoded. The inner error is the fault of the messages.
    pub(super) fn layout(
        &self,
        id: u32,
        projection: &[usize],
        schema: &SchemaRef,
    ) -> Result<std::result::Result<Arc<Layout>, Flaw>> {
        let key = (id, projection.to_vec());
        if let Some(found) = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(found.clone());
        }
        let layout = match &self.registry {
            None => self.given.as_ref().map_or(Err((String::new(), String::new())), |given| {
                Layout::new(id, given, None, schema).map_err(|why| (why, String::new()))
            }),
            Some(registry) => match registry.schema(id)? {
                Some(text) => self.resolved(id, &text, schema, registry.place()),
                // The registry may know the number later.
                None => {
                    let help = "check the option 'url' of the format";
                    let message = format!(
                        "schema {id} of the message is unknown to the registry {}",
                        registry.place()
                    );
                    return Ok(Err((message, format!("{help}; {SKIP_HELP}"))));
                }
            },
        };
        let layout = layout.map(Arc::new);
        let mut layouts = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(layouts.entry(key).or_insert(layout).clone())
    }

    fn resolved(
        &self,
        id: u32,
        text: &str,
        schema: &SchemaRef,
        place: &str,
    ) -> std::result::Result<Layout, Flaw> {
        let failed = |why: String| {
            let help = "declare the column as the schema has it, or leave it out";
            (format!("schema {id} of {place}: {why}"), help.to_string())
        };
        let writer = Avro::parse(text).map_err(failed)?;
        if self.given.is_none() && !resolve::has_any(&writer, &self.columns) {
            return Err(failed("it has none of the table's columns".into()));
        }
        Layout::new(id, &writer, self.given.as_ref(), schema).map_err(failed)
    }
}
