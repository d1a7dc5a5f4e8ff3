//! Millstream as a library: continuous SQL over event streams, embedded, on one machine.
//!
//! A [`Session`] holds tables, views and settings. SQL goes in; rows come out through a [`Sink`]
//! while the query runs, or as Arrow batches when it has ended.
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

mod analyzed;
mod check;
pub mod cluster;
mod counters;
mod failure;
mod generator;
mod jobs;
mod nexmark;
pub mod observe;
mod planned;
mod processes;
mod rows;
pub mod script;
mod session;
mod submit;
mod wording;

pub use analyzed::analyzed;
/// Batches, columns and types: of this version, tables and sinks are.
pub use arrow;
pub use check::Checked;
pub use counters::counters;
pub use failure::Failure;
pub use generator::GeneratorTable;
pub use jobs::{JobHandle, Jobs};
pub use millstream_connect::{
    AwaitedPipe, BlackholeSink, ChannelTable, ChannelWriter, CollectSink, Format, MemoryTable,
    TextOptions, TextSink, awaited_pipes, channel, channels, give_up_pipes,
};
pub use millstream_contract::declaration;
pub use millstream_contract::plan::Plan;
pub use millstream_contract::settings::{Exchange, SETTINGS, SettingError, closest};
pub use millstream_contract::sink::{Prepared, RowOrder, Sealed, Sink, Writers, publish_all};
pub use millstream_contract::table::{
    Chunk, Decoded, Extent, FileId, OpenOptions, Places, Position, ReadOnce, Sharing, Split,
    SplitPoll, SplitSpec, Table, TableOptions,
};
pub use millstream_contract::wording::{counted, grouped, harmless, plural};
pub use millstream_contract::{Error, Result, Settings};
pub use millstream_engine::{Job, Stats, Stopper, on_refused_memory};
pub use millstream_sql::{ErrorKind, SqlError, Statement, parse_script};
pub use nexmark::NexmarkTable;
pub use planned::{Executed, Planned};
pub use processes::{Processes, SetUp};
pub use rows::Rows;
pub use session::Session;
pub use submit::write_answer;
pub use wording::{bytes, short};

/// The examples of the documentation, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
mod documentation {}
