//! Arrow IPC that is sent message by message: a schema, then dictionaries and record batches. A
//! connector of another crate receives the messages. Any worker decodes the chunks.

use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use millstream_contract::Result;
use millstream_contract::table::Chunk;

use super::message::{Dictionaries, Message, MessageKind};
use super::source::Body;
use super::split::{Current, IpcPlan, with_dictionary};
use crate::columns::{Columns, damaged};
use crate::input::Name;

/// Messages of one sender.
///
/// Metadata of messages come without the length before them, as Arrow Flight sends them.
pub struct ArrowMessages {
    name: Name,
    plan: Arc<IpcPlan>,
    dictionaries: Arc<Dictionaries>,
    batches: u64,
    rows: u64,
}

impl ArrowMessages {
    /// Messages behind the message of a schema. `declared` is the schema of the table, and
    /// `projection` the columns of it that are read. `name` is for messages to people, for example
    /// `channel bids, producer shop-3`.
    ///
    /// # Errors
    ///
    /// [`Error::Data`](millstream_contract::Error::Data) if the metadata are damaged, or a column
    /// is missing or has another type.
    pub fn new(
        name: &str,
        schema: Bytes,
        declared: &SchemaRef,
        projection: &[usize],
    ) -> Result<ArrowMessages> {
        let name: Name = name.into();
        let schema = Message::new(schema).and_then(|message| message.schema());
        let schema = Arc::new(schema.map_err(|message| damaged(&name, message))?);
        // The sender learns at once of a missing column, also of one that no query reads.
        let all: Vec<usize> = (0..declared.fields().len()).collect();
        Columns::find(&name, declared, &all, &schema.fields)?;
        let columns = Columns::find(&name, declared, projection, &schema.fields)?;
        let plan = Arc::new(IpcPlan { schema, columns });
        Ok(ArrowMessages { name, plan, dictionaries: Arc::default(), batches: 0, rows: 0 })
    }

    /// Bytes of the body that follows a message with these metadata.
    ///
    /// # Errors
    ///
    /// The fault of damaged metadata.
    pub fn body_bytes(metadata: &Bytes) -> std::result::Result<usize, String> {
        let bytes = Message::new(metadata.clone())?.body_bytes;
        usize::try_from(bytes).map_err(|_| "a body beyond all memory".to_string())
    }

    /// Rows of the batches that have come.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes in a message. Returns the chunks of a record batch, none for a dictionary.
    ///
    /// # Errors
    ///
    /// [`Error::Data`](millstream_contract::Error::Data) if the message is damaged. Values are
    /// looked at only when a chunk is decoded.
    pub fn take(&mut self, metadata: Bytes, body: Bytes) -> Result<Vec<Box<dyn Chunk>>> {
        let place = format!("{}, batch {}", self.name, self.batches + 1);
        let message = Message::new(metadata).map_err(|message| damaged(&place, message))?;
        if message.body_bytes != body.len() as u64 {
            let (expected, found) = (message.body_bytes, body.len());
            return Err(damaged(&place, format!("expected {expected} bytes, found {found}")));
        }
        let body = Body::Here(Buffer::from(body));
        let rows = match message.kind {
            MessageKind::Schema => return Err(damaged(&place, "a second schema")),
            MessageKind::Dictionary => {
                let (known, schema) = (&self.dictionaries, &self.plan.schema);
                self.dictionaries =
                    with_dictionary(known, &message, &body, schema, || place.clone())?;
                return Ok(Vec::new());
            }
            MessageKind::Batch(rows) => rows,
        };
        let (plan, dictionaries) = (self.plan.clone(), self.dictionaries.clone());
        let batch =
            Current::new(plan, (message, body, rows), dictionaries, place.into(), self.rows)?;
        (self.batches, self.rows) = (self.batches + 1, self.rows.saturating_add(rows));
        let (mut chunks, mut row) = (Vec::<Box<dyn Chunk>>::new(), 0);
        while let Some(chunk) = batch.chunk(row, u64::MAX) {
            row = chunk.rows.end;
            chunks.push(Box::new(chunk));
        }
        Ok(chunks)
    }
}
