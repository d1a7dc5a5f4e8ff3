//! Decoding of messages of one schema, by the library `arrow-avro`.
//!
//! The library appends messages to columns, many before a batch is made of them. A message that
//! does not fit its schema leaves the columns at different lengths, so the decoder is dropped then,
//! and the caller tries fewer messages.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Decimal128Type, Fields, Schema, SchemaRef};
use arrow_avro::errors::AvroError;
use arrow_avro::reader::{Decoder, ReaderBuilder};
use arrow_avro::schema::{AvroSchema, Fingerprint, FingerprintAlgorithm, SchemaStore};

use super::resolve::{Resolved, resolve};
use super::schema::Avro;
use crate::conform::conform;
use crate::guard::guarded;

/// How the library's errors begin.
const KINDS: [&str; 9] = [
    "Arrow: ",
    "Avro error: ",
    "Cast error: ",
    "Compute error: ",
    "EOF: ",
    "Invalid argument error: ",
    "Invalid argument: ",
    "Parser error: ",
    "Schema error: ",
];

/// Rows of a batch: as many as there are messages.
const ROWS_MAX: usize = i32::MAX as usize;

/// Decoder of messages of one schema into some columns.
#[derive(Debug)]
pub(super) struct Layout {
    id: u32,
    resolved: Resolved,
    /// The columns.
    schema: SchemaRef,
    /// Decoders that no worker uses at the moment.
    spare: Mutex<Vec<Decoder>>,
}

/// The fault of a message.
pub(super) struct Misfit {
    /// The message's number; `None`: any of the messages.
    pub(super) at: Option<usize>,
    pub(super) why: String,
}

impl Layout {
    /// For messages with this id in front. The error says which column cannot be read.
    pub(super) fn new(
        id: u32,
        writer: &Avro,
        given: Option<&Avro>,
        schema: &SchemaRef,
    ) -> Result<Layout, String> {
        let resolved = resolve(writer, given, schema.fields())?;
        let spare = Mutex::default();
        let layout = Layout { id, resolved, schema: schema.clone(), spare };
        let decoder = guarded(|| layout.decoder())?;
        layout.keep(decoder);
        Ok(layout)
    }

    fn decoder(&self) -> Result<Decoder, AvroError> {
        let mut store = SchemaStore::new_with_type(FingerprintAlgorithm::Id);
        let id = Fingerprint::Id(self.id);
        store.set(id, AvroSchema::new(self.resolved.writer.clone()))?;
        let decoder = ReaderBuilder::new()
            .with_reader_schema(AvroSchema::new(self.resolved.reader.clone()))
            .with_writer_schema_store(store)
            .with_active_fingerprint(id)
            .with_batch_size(ROWS_MAX)
            .build_decoder()?;
        Ok(decoder)
    }

    fn keep(&self, decoder: Decoder) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(decoder);
    }

    /// The rows of messages, each with its frame.
    pub(super) fn decode<'m>(
        &self,
        messages: impl Iterator<Item = &'m [u8]>,
    ) -> Result<RecordBatch, Misfit> {
        let within = |why: String| Misfit { at: None, why };
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut decoder = match spare {
            Some(decoder) => decoder,
            None => guarded(|| self.decoder()).map_err(within)?,
        };
        let at = Cell::new(None);
        let (batch, count) = guarded(|| read(&mut decoder, messages, &at))
            .map_err(|why| Misfit { at: at.get(), why })?;
        let batch = self.batch(batch.as_ref(), count).map_err(within)?;
        self.keep(decoder);
        Ok(batch)
    }

    /// The columns of decoded messages, as the table has them.
    fn batch(&self, decoded: Option<&RecordBatch>, rows: usize) -> Result<RecordBatch, String> {
        let Some(decoded) = decoded else { return Ok(RecordBatch::new_empty(self.schema.clone())) };
        let mut columns = decoded.columns();
        if self.resolved.within {
            let root = decoded.column(0).as_struct_opt().ok_or("the root is no record")?;
            if root.null_count() > 0 {
                return Err("expected a record, found null".into());
            }
            columns = root.columns();
        }
        let fields: &Fields = self.schema.fields();
        let column = |(field, array): (&Arc<arrow::datatypes::Field>, &ArrayRef)| {
            let name = field.name();
            let found = conform(array, field.data_type())
                .map_err(|error| format!("column '{name}': {}", said(&error.to_string())))?;
            check_decimals(&found).map_err(|error| format!("column '{name}': {error}"))?;
            match found.null_count() > 0 && !field.is_nullable() {
                true => Err(format!("column '{name}' is NOT NULL, found NULL")),
                false => Ok(found),
            }
        };
        let columns: Vec<ArrayRef> =
            fields.iter().zip(columns).map(column).collect::<Result<_, String>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema: Arc<Schema> = self.schema.clone();
        RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| said(&error.to_string()).to_string())
    }
}

/// Refuses decimals of more digits than their type has: bytes of a decimal may be any.
fn check_decimals(array: &ArrayRef) -> Result<(), String> {
    let within = match array.data_type() {
        DataType::Decimal128(precision, _) => {
            let decimals = array.as_primitive::<Decimal128Type>();
            let checked = decimals.validate_decimal_precision(*precision);
            return checked.map_err(|error| said(&error.to_string()).to_string());
        }
        DataType::Struct(_) => array.as_struct().columns().to_vec(),
        DataType::List(_) => vec![array.as_list::<i32>().values().clone()],
        DataType::Map(..) => vec![array.as_map().values().clone()],
        _ => Vec::new(),
    };
    within.iter().try_for_each(check_decimals)
}

/// Decodes messages, each of which is a row. `at` is the number of the message at hand.
fn read<'m>(
    decoder: &mut Decoder,
    messages: impl Iterator<Item = &'m [u8]>,
    at: &Cell<Option<usize>>,
) -> Result<(Option<RecordBatch>, usize), String> {
    let mut count = 0;
    for message in messages {
        at.set(Some(count));
        let consumed = decoder.decode(message).map_err(|error| unfit(&error.to_string()))?;
        let rows = decoder.batch_size() - decoder.capacity();
        if rows <= count {
            return Err(unfit("it is cut off"));
        }
        count += 1;
        if rows > count || consumed < message.len() {
            return Err(unfit("there are bytes behind its end"));
        }
    }
    at.set(None);
    let batch = decoder.flush().map_err(|error| unfit(&error.to_string()))?;
    Ok((batch, count))
}

fn unfit(why: &str) -> String {
    format!("the message does not fit its schema: {}", said(why))
}

/// The text of the library's error without its kind.
fn said(error: &str) -> &str {
    let inner = KINDS.iter().find_map(|kind| error.strip_prefix(kind));
    inner.map_or(error, said)
}
