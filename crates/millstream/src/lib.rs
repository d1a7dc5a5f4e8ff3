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

pub mod cluster;
mod counters;
mod generator;
mod jobs;
mod rows;
mod session;
mod submit;

pub use counters::counters;
pub use generator::GeneratorTable;
pub use jobs::{JobHandle, Jobs};
pub use millstream_connect::{
    BlackholeSink, ChannelTable, ChannelWriter, CollectSink, Format, MemoryTable, TextOptions,
    TextSink, channel, channels,
};
pub use millstream_contract::plan::Plan;
pub use millstream_contract::settings::{Exchange, SETTINGS, SettingError, closest};
pub use millstream_contract::sink::{RowOrder, Sink, Writers};
pub use millstream_contract::table::{Extent, FileId, OpenOptions, Split, Table};
pub use millstream_contract::wording::{counted, grouped, harmless, plural};
pub use millstream_contract::{Error, Result, Settings};
pub use millstream_engine::projection;
pub use millstream_engine::{Job, Stats, Stopper, on_refused_memory};
pub use millstream_sql::{ErrorKind, SqlError, Statement, parse_script};
pub use rows::Rows;
pub use session::{Executed, Failure, Planned, Session};
