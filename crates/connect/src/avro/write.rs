//! Rows as messages of Avro.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_avro::reader::ReaderBuilder;
use arrow_avro::schema::{
    AvroSchema, Fingerprint, FingerprintAlgorithm, FingerprintStrategy, SCHEMA_METADATA_KEY,
    SchemaStore,
};
use arrow_avro::writer::format::{AvroBinaryFormat, AvroSoeFormat};
use arrow_avro::writer::{Encoder, WriterBuilder};
use millstream_contract::{Error, Result};

use super::derive::schema_of;
use super::registry::SchemaRegistry;
use super::schema::Avro;
use crate::conform::{conform, conformed, may_hold};
use crate::guard::guarded;
use crate::options::Options;
use crate::types::sql_name;

/// Writer of messages of one schema.
#[derive(Debug)]
pub(crate) struct AvroWriter {
    table: String,
    /// The schema to be registered.
    json: String,
    registry: Option<Arc<dyn SchemaRegistry>>,
    number: OnceLock<u32>,
    /// The columns as the library takes them, and where they stand in the table.
    schema: SchemaRef,
    columns: Vec<usize>,
    /// `None` until the first rows, and while another worker has it.
    encoder: Mutex<Option<Encoder>>,
}

impl AvroWriter {
    /// From the options of a table, whose messages hold `columns`.
    pub(crate) fn from_options(
        options: &Options<'_>,
        name: &str,
        columns: &SchemaRef,
        registry: Option<Arc<dyn SchemaRegistry>>,
    ) -> Result<AvroWriter> {
        let (json, given) = schema_of(options, name, columns)?;
        let option = if given.is_some() { format!("{name}.schema") } else { "format".into() };
        let wrong = |why: String| options.error(&option, why, "");
        let avro = Avro::parse(&json).map_err(wrong)?;
        let fields = arrow_fields(&avro).map_err(wrong)?;
        let places = fields.iter().map(|field| place(field, columns).map_err(wrong));
        let places = places.collect::<Result<Vec<_>>>()?;
        if let Some(at) = (0..columns.fields().len()).find(|at| !places.contains(at)) {
            let name = columns.field(at).name();
            return Err(wrong(format!("the schema has no field for column '{name}'")));
        }
        let metadata = HashMap::from([(SCHEMA_METADATA_KEY.to_string(), avro.json().to_string())]);
        Ok(AvroWriter {
            table: options.table_name().to_string(),
            json,
            registry,
            number: OnceLock::new(),
            schema: Arc::new(Schema::new_with_metadata(fields, metadata)),
            columns: places,
            encoder: Mutex::default(),
        })
    }

    /// Registers the schema, if there is a registry.
    pub(crate) fn open(&self) -> Result<()> {
        if let Some(registry) = &self.registry
            && self.number.get().is_none()
        {
            let number = registry.register(&self.json)?;
            let _ = self.number.set(number);
        }
        Ok(())
    }

    /// A message for each row.
    pub(crate) fn messages(&self, rows: &RecordBatch) -> Result<Vec<Option<Vec<u8>>>> {
        let spare = self.encoder.lock().unwrap_or_else(PoisonError::into_inner).take();
        let failed = |why: String| Error::Data {
            place: format!("table '{}'", self.table),
            message: format!("a row cannot be written as Avro: {why}"),
            help: "declare its columns as the schema has them".into(),
        };
        let mut encoder = match spare {
            Some(encoder) => encoder,
            None => self.encoder()?,
        };
        let column = |(field, at): (&FieldRef, &usize)| {
            let column = rows.columns().get(*at).ok_or("a column is missing".to_string())?;
            let column = conform(column, field.data_type())
                .map_err(|error| format!("column '{}': {error}", field.name()))?;
            match column.null_count() > 0 && !field.is_nullable() {
                true => Err(format!("column '{}' is NULL, the schema has no null", field.name())),
                false => Ok(column),
            }
        };
        let columns = self.schema.fields().iter().zip(&self.columns).map(column);
        let columns: Vec<ArrayRef> =
            columns.collect::<std::result::Result<_, _>>().map_err(failed)?;
        let batch = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| failed(error.to_string()))?;
        let encoded = guarded(|| encoder.encode(&batch).map(|()| encoder.flush()));
        let encoded = encoded.map_err(failed)?;
        *self.encoder.lock().unwrap_or_else(PoisonError::into_inner) = Some(encoder);
        Ok(encoded.iter().map(|row| Some(row.to_vec())).collect())
    }

    fn encoder(&self) -> Result<Encoder> {
        let builder = WriterBuilder::new(self.schema.as_ref().clone());
        let encoder = match (&self.registry, self.number.get()) {
            (None, _) => builder.build_encoder::<AvroBinaryFormat>(),
            (Some(_), Some(number)) => builder
                .with_fingerprint_strategy(FingerprintStrategy::Id(*number))
                .build_encoder::<AvroSoeFormat>(),
            (Some(_), None) => return Err(Error::Internal("the schema is not registered".into())),
        };
        encoder.map_err(|error| Error::Internal(format!("Avro: {error}")))
    }
}

/// The fields of a schema as the library has them.
fn arrow_fields(avro: &Avro) -> std::result::Result<Fields, String> {
    let Avro::Record { .. } = avro else {
        return Err(format!("the schema is {}, expected a record", avro.shown()));
    };
    let mut store = SchemaStore::new_with_type(FingerprintAlgorithm::Id);
    let decoder = guarded(|| {
        store.set(Fingerprint::Id(0), AvroSchema::new(avro.json().to_string()))?;
        ReaderBuilder::new().with_writer_schema_store(store).build_decoder()
    })?;
    Ok(decoder.schema().fields().clone())
}

/// The column of a field, if the field takes its values.
fn place(field: &Field, columns: &Schema) -> std::result::Result<usize, String> {
    let name = field.name();
    let at = columns.index_of(name).map_err(|_| format!("there is no column '{name}'"))?;
    let from = columns.field(at).data_type();
    let takes = |to: DataType| may_hold(from, &to) && conform_keeps(field.data_type(), &to);
    match conformed(field.data_type()).is_some_and(takes) {
        true => Ok(at),
        false => Err(format!(
            "the field '{name}' does not take values of column '{name}' of type {}",
            sql_name(from)
        )),
    }
}

/// Whether values of a type that tables know can be made values of the library's type: enums and
/// fixed are not written.
fn conform_keeps(library: &DataType, table: &DataType) -> bool {
    use DataType as D;
    match (library, table) {
        (D::Timestamp(one, _), D::Timestamp(other, _)) => one == other,
        (D::List(one), D::List(other)) => conform_keeps(one.data_type(), other.data_type()),
        (D::Struct(one), D::Struct(other)) => one
            .iter()
            .zip(other)
            .all(|(one, other)| conform_keeps(one.data_type(), other.data_type())),
        (D::Map(one, _), D::Map(other, _)) => conform_keeps(one.data_type(), other.data_type()),
        _ => library == table,
    }
}
