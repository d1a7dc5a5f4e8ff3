//! Millstream as a library: continuous SQL over event streams, embedded, on one machine.
//!
//! A [`Session`] holds tables, views and settings. SQL goes in; rows come out through a [`Sink`]
//! while the query runs, or as Arrow batches when it has ended. [`Processes`] runs scripts on
//! several processes. The module [`program`] is for our own programs.
//!
//! ```
//! use std::sync::Arc;
//! use arrow::array::{Int64Array, RecordBatch, TimestampMillisecondArray};
//! use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
//! use millstream::{MemoryTable, Session};
//!
//! let schema = Arc::new(Schema::new(vec![
//!     Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
//!     Field::new("page", DataType::Int64, false),
//! ]));
//! let batch = RecordBatch::try_new(schema.clone(), vec![
//!     Arc::new(TimestampMillisecondArray::from(vec![100, 900, 1500])),
//!     Arc::new(Int64Array::from(vec![7, 7, 8])),
//! ])?;
//! let clicks = MemoryTable::new(schema, vec![vec![batch]])?;
//!
//! let mut session = Session::new(".");
//! session.register_table("clicks", Arc::new(clicks), Some(("ts", 0)))?;
//! let rows = session.collect(
//!     "SELECT window_start, page, COUNT(*) AS clicks
//!      FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' SECOND))
//!      GROUP BY window_start, window_end, page",
//! )?;
//! assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod failure;
mod jobs;
mod nexmark;
pub mod observe;
mod processes;
pub mod program;
mod rows;
mod session;
mod submit;

/// Batches, columns and types: of this version, tables and sinks are.
pub use arrow;
pub use failure::Failure;
pub use jobs::{JobHandle, Jobs};
pub use millstream_connect::{
    BlackholeSink, ChannelTable, ChannelWriter, CollectSink, Format, MemoryTable, TextOptions,
    TextSink, channel, channels,
};
pub use millstream_contract::pruning::Pruning;
pub use millstream_contract::settings::{Exchange, SettingError};
pub use millstream_contract::sink::{Manner, Prepared, RowOrder, Sealed, Sink, Writers};
pub use millstream_contract::table::{
    AddedSplits, Chunk, Decoded, Extent, FileId, JobMarks, OpenOptions, Places, Position,
    Positions, ReadOnce, Sharing, ShownName, SourceMarks, Split, SplitMark, SplitPoll, SplitSpec,
    Table, TableOptions,
};
pub use millstream_contract::{Error, Result, Settings};
pub use millstream_engine::{Stats, Totals};
pub use millstream_sql::{ErrorKind, SqlError};
pub use nexmark::NexmarkTable;
pub use processes::{Processes, SetUp};
pub use program::cluster::{Exit, FabricName};
pub use rows::Rows;
pub use session::Session;

/// The examples of the documentation, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
mod documentation {}
