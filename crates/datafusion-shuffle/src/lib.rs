//! The shuffle as the network of a distributed DataFusion: batches of `datafusion-distributed` go
//! through slots of `millstream_flow::shuffle` in place of Arrow Flight.
//!
//! `datafusion-distributed` cuts a plan into stages, and runs the tasks of a stage on workers. A
//! task reads partitions of other workers' tasks (`NetworkShuffleExec`, `NetworkBroadcastExec`,
//! `NetworkCoalesceExec`). By default partitions go over gRPC, as Arrow IPC. Here plans and
//! requests still go over gRPC; batches do not.
//!
//! # The seam
//!
//! Sessions reach workers by a `ChannelResolver`, whose channels give a stream of batches for each
//! requested partition. [`ShuffleResolver`] is such a resolver. The planner, the plan nodes and the
//! `Worker` stay as they are. A worker's server has a further service, [`ExchangeServer`], on the
//! same port. A worker reads its own partitions directly, as before.
//!
//! # How batches travel
//!
//! - A process that reads from a worker makes a *link* to it, once, for all queries. A link has
//!   *lanes*: a sending endpoint there, a receiving one here, of any of the eight
//!   [designs](millstream_flow::shuffle::Design), over any fabric. Designs with a single endpoint
//!   have one lane, the others [`Config::lanes`], among which streams are shared out.
//! - The writer lays a batch's buffers out in slots: a header of one cache line, a table of
//!   lengths, then each buffer of each column from a multiple of 64 bytes on. That is the only copy
//!   it makes, but for offsets of slices, which have to begin at 0, bits that begin within a byte,
//!   and values that few views point to. A buffer that fits into a slot is not split; large batches
//!   take several slots.
//! - The reader's columns are slices of the slots. A slot goes back when the last array that reads
//!   it is dropped. At most half of a lane's slots are held so, since a reader may keep batches
//!   (the build side of a join does). Beyond that, and if a message is shorter than
//!   [`Config::copy_below_bytes`], it is copied out, once. A column that is longer than a slot is
//!   put together, which is a second copy. [`Counters`] say how often all of this happens.
//! - Arrived messages are checked as by Flight: lengths, offsets, keys of dictionaries, and that
//!   texts are UTF-8.
//!
//! All types have a layout but unions, run-end encoded arrays and list views. A batch with such a
//! column goes as Arrow IPC, in slots, too ([`Counters::serialised`]). Of dictionaries and views,
//! values that nothing points to are left out, as Flight does.
//!
//! # Broadcasts
//!
//! Readers of the same task that ask at about the same time ([`Config::gather`]) share one
//! replicate flow of [`millstream_dfi`]. The writer lays a batch out once, and the flow writes the
//! batch to every reader's ring, whatever the design of the lanes. Readers copy messages out of
//! their rings, which are freed in order. A reader that asks later, or alone, reads through its
//! lanes. The slowest reader of a flow decides how fast it goes.
//!
//! # Flow control
//!
//! Each stream has a window ([`Config::window_bytes`]): the writer may be so many bytes ahead of
//! the reader, and a further batch. Credit is an absolute count of bytes, and goes over gRPC with
//! each quarter of a window. So a join that waits for one side holds up only the streams of the
//! other, though all share the lanes: arrived batches leave their slots. A process keeps
//! for its readers at most
//!
//! ```text
//! open streams × (window + one batch)
//! ```
//!
//! and this counts in their memory pool.
//!
//! A writer begins when its stream is polled for the first time. A stream that is dropped before
//! its end is closed at the writer.
//!
//! # Errors
//!
//! A worker whose process ends is an error of every stream of its link, at once by its control
//! stream and, if the host is silent, by its endpoints: [`Error::Lost`], in a
//! [`DataFusionError::External`](datafusion::error::DataFusionError::External). Other links go on.
//! The next query makes a new link. An error of a worker's plan arrives as its text
//! ([`Error::Worker`]). At the writer, a reader that is gone, or whose host is silent, ends its
//! streams, and the link's memory is given back.
//!
//! # Limits
//!
//! Endpoints are used in pairs, a sender and a receiver for each lane. So the designs over
//! datagrams have as many queue pairs as the others. Each process has a thread that polls its links
//! and sleeps between looks (50 µs to 1 ms, 20 ms if no stream is open). Depth is fixed. Nothing is
//! compressed.
//!
//! # Example
//!
//! A worker:
//!
//! ```no_run
//! use datafusion::error::DataFusionError;
//! use datafusion_distributed::{DistributedExt, Worker, WorkerQueryContext};
//! use millstream_datafusion_shuffle::{Config, Exchange, ExchangeServer, ShuffleResolver};
//! use millstream_fabric::{setup::Token, shm::ShmDevice};
//!
//! # async fn run(token: Token) -> Result<(), Box<dyn std::error::Error>> {
//! // All processes need the same token and configuration.
//! let config = Config::new("SEMQ/WR".parse()?);
//! let exchange = Exchange::new(ShmDevice::open(token)?, token, config)?;
//! let resolver = ShuffleResolver::new(&exchange);
//! let worker = Worker::from_session_builder(move |query: WorkerQueryContext| {
//!     let builder = query.builder.with_distributed_channel_resolver(resolver.clone());
//!     async move { Ok::<_, DataFusionError>(builder.build()) }
//! });
//! tonic::transport::Server::builder()
//!     .add_service(ExchangeServer::new(&exchange, worker.clone()))
//!     .add_service(worker.into_worker_server())
//!     .serve("127.0.0.1:8080".parse()?)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! The coordinator's session takes the same resolver, beside what `datafusion-distributed` needs:
//!
//! ```no_run
//! use datafusion::execution::SessionStateBuilder;
//! use datafusion_distributed::{DistributedExt, SessionStateBuilderExt, WorkerResolver};
//! # use millstream_datafusion_shuffle::{Exchange, ShuffleResolver};
//! # use millstream_fabric::shm::ShmDevice;
//!
//! # fn run(exchange: Exchange<ShmDevice>, workers: impl WorkerResolver + 'static) {
//! let state = SessionStateBuilder::new()
//!     .with_default_features()
//!     .with_distributed_planner()
//!     .with_distributed_worker_resolver(workers)
//!     .with_distributed_channel_resolver(ShuffleResolver::new(&exchange))
//!     .build();
//! # }
//! ```

mod broadcast;
mod common;
mod config;
mod control;
mod counters;
mod error;
mod exchange;
mod executing;
mod frame;
mod image;
mod inbound;
mod inbox;
mod mover;
mod outbound;
mod placement;
mod resolver;
mod server;
mod slot;
mod stream;
mod streams;

pub use config::Config;
pub use counters::Counters;
pub use error::{Error, Result};
pub use exchange::Exchange;
pub use resolver::ShuffleResolver;
pub use server::ExchangeServer;
