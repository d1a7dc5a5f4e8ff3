//! Messages of Avro: those of `avro` have the schema of the table, those of `avro-confluent` name
//! their schemas.
//!
//! A message of `avro-confluent` begins with a byte 0 and the number of its schema in four bytes.
//! The schema comes from a registry ([`SchemaRegistry`]), which is asked once for each number, from
//! the worker that finds it first. A batch may have messages of many schemas: they are decoded
//! schema by schema ([`layout`]), and put in order again ([`decode`]).
//!
//! [`schema`] reads schemas, [`derive`] makes those of tables, [`resolve`] compares the two. The
//! crate `arrow-avro` decodes and encodes.

mod decode;
mod derive;
mod format;
mod layout;
mod layouts;
mod registry;
mod resolve;
mod schema;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use self::format::AvroFormat;
pub use self::registry::SchemaRegistry;
pub(crate) use self::write::AvroWriter;
