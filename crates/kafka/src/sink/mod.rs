//! Writing topics: `INSERT INTO` a table of Kafka.
//!
//! Rows come in an order that depends on the input alone
//! ([`RowOrder::Deterministic`](millstream_contract::sink::RowOrder)), whatever the workers. The
//! sink has a thread that sends rows.
//!
//! **Exactly once by replay.** Rows have numbers, in their order. A transaction has the rows of one
//! or several windows, and the number behind its last row as its marker. So rows are visible as
//! soon as their window has fired, and no transaction waits for a checkpoint. A checkpoint has the
//! number of rows before its cut, and waits until these rows are in Kafka. A job that goes on
//! computes the rows behind the cut again. Rows up to the marker are there already, and are left
//! out.
//!
//! **Exactly once by a spool** ([`spool`]), where rows, or their order, may be others when they are
//! computed again: rows wait in a store until their checkpoint is durable.

mod frames;
mod numbered;
mod options;
mod partitioner;
mod rows;
mod sender;
mod spool;
mod table;
#[cfg(test)]
mod tests;
mod upsert;

pub use self::table::KafkaSink;
pub(crate) use self::upsert::refuse_reading;
