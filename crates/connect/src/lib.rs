//! The sources, sinks and formats of Millstream: what is behind `CREATE TABLE … WITH (…)`.
//!
//! **Sources** ([`Table`](millstream_contract::table::Table)): files ([`FileTable`]), lines over
//! TCP ([`SocketTable`]) and HTTP ([`HttpTable`]), generated records ([`DatagenTable`]), Arrow
//! batches in memory ([`MemoryTable`]) or from another thread ([`channel`]). **Sinks**
//! ([`Sink`](millstream_contract::sink::Sink)): text as a table, CSV or JSON ([`TextSink`]),
//! directories of CSV, JSON, Parquet or Arrow files ([`FileSink`]), batches for the program
//! ([`CollectSink`]), nothing ([`BlackholeSink`]). [`Registry`] finds them by the option
//! `connector`.
//!
//! For connectors of other crates: [`Connector`] is what a [`Registry`] has under a name,
//! [`Options`] reads the options of a table, and [`messages`] decodes records that come one by one.
//!
//! Promises: a split gives the same records in the same order, whatever the chunks and whichever
//! thread decodes; a record that cannot be read is reported with file, line and column; a split can
//! be read on from the end of any chunk; no input causes a panic. Not promised: a sink that failed
//! half-way does not undo its writing (names of files show that they are incomplete).

mod avro;
mod beside;
mod channel;
mod columns;
mod conform;
mod connector;
mod csv;
mod datagen;
mod datetime;
mod files;
mod fuzz;
mod guard;
mod hidden;
pub mod http;
mod infer;
mod input;
mod ipc;
mod journal;
mod memory;
pub mod messages;
mod ndjson;
mod number;
mod options;
mod parquet;
mod random;
mod raw;
mod records;
mod registry;
#[cfg(test)]
mod round_trip_tests;
mod scalar;
mod secrets;
mod sinks;
mod socket;
mod source;
mod text;
mod types;
mod written;

pub use channel::{ChannelTable, ChannelWriter, channel, channels};
pub use connector::Connector;
pub use csv::fuzz_csv;
pub use datagen::DatagenTable;
pub use files::FileSink;
pub use http::{HttpTable, fuzz_http};
pub use infer::fuzz_infer;
pub use input::{AwaitedPipe, awaited_pipes, give_up_pipes, io_error};
pub use ipc::{ArrowBatch, ArrowMessage, ArrowMessages, fuzz_arrow};
pub use memory::MemoryTable;
pub use ndjson::fuzz_ndjson;
pub use options::{OnError, Options};
pub use parquet::fuzz_parquet;
pub use registry::Registry;
pub use sinks::{BlackholeSink, CollectSink};
pub use socket::{SocketTable, everybody};
pub use source::{FileTable, standard_input};
pub use text::{Format, TextOptions, TextSink};
