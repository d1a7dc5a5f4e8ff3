//! Flows: movement of tuples between threads of several processes, declared once (DFI).
//!
//! This is the Data Flow Interface of Thostrup, *Towards Network-Accelerated Databases* (2023),
//! chapters 2 and 7 ("the thesis" in this crate). A flow has a name, a schema, source threads and
//! target threads. A source pushes tuples; a target consumes batches of tuples where they arrived.
//! The program declares the movement and its goal. The flow owns memory, requests and credit.
//!
//! ```
//! use std::time::Duration;
//! use millstream_dfi::*;
//! use millstream_fabric::{setup::Token, shm::ShmDevice};
//!
//! let patience = Duration::from_secs(5);
//! let device = ShmDevice::open(Token::random()?)?;
//! let registry = LocalRegistry::new();
//! Flow::shuffle("orders")
//!     .sources([Thread::new(0, 0)])
//!     .targets([Thread::new(0, 1), Thread::new(0, 2)])
//!     .schema(Schema::new().u64("key").u64("value"))
//!     .route(Route::Key("key"))
//!     .optimise(Bandwidth::default())
//!     .publish(&registry)?;
//!
//! // Each thread joins, and then connects once all have joined.
//! let source = SourceSetup::join(&device, &registry, "orders", Thread::new(0, 0), patience)?;
//! let targets: Vec<_> = [1, 2]
//!     .map(|id| TargetSetup::join(&device, &registry, "orders", Thread::new(0, id), patience))
//!     .into_iter()
//!     .collect::<Result<_>>()?;
//! let mut source = source.connect(&registry, patience)?;
//! let readers: Vec<_> = targets
//!     .into_iter()
//!     .map(|target| -> Result<_> {
//!         let mut target = target.connect(&registry, patience)?;
//!         let value = target.schema().field::<u64>("value")?;
//!         Ok(std::thread::spawn(move || -> Result<u64> {
//!             let mut sum = 0;
//!             while let Some(batch) = target.consume()? {
//!                 sum += batch.tuples().map(|tuple| value.get(tuple)).sum::<u64>();
//!             }
//!             Ok(sum)
//!         }))
//!     })
//!     .collect::<Result<_>>()?;
//! for key in 0..1000_u64 {
//!     source.push(&[key, 1])?;
//! }
//! source.close()?;
//! let sums = readers.into_iter().map(|reader| reader.join().expect("no panic"));
//! assert_eq!(sums.sum::<Result<u64>>()?, 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Kinds of flow (thesis, section 7.4.2)
//!
//! | kind | topology | a tuple goes to |
//! |---|---|---|
//! | [`Flow::shuffle`] | 1:1, N:1, 1:N, N:M | one target, chosen by [`Route`] |
//! | [`Flow::replicate`] | 1:N, N:M | every target; [`Route`] says nothing then |
//! | [`Flow::combine`] | N:1 | the only target, which aggregates ([`Combiner`]) |
//!
//! The topology follows from the lists of threads. [`Bandwidth`] batches tuples into segments
//! (8,192 bytes and 32 segments by default). [`Latency`] sends each tuple as it is pushed.
//!
//! # What it promises
//!
//! - A pushed tuple reaches its target once and whole, or both ends get a typed error.
//! - Tuples of one source reach one target in the order of pushing. Nothing is promised about the
//!   order between pairs, except by ordered flows. A target scans its rings round robin, one
//!   segment each.
//! - [`Source::push`] copies the tuple and returns; it waits only for a segment. A pushed tuple
//!   leaves when its segment is full, or with [`Source::flush`] or [`Source::close`].
//! - [`Target::consume`] copies nothing. The [`Batch`] borrows the target, so a call frees what the
//!   call before returned, and the compiler enforces it.
//! - A target ends when all sources have closed. [`Source::close`] returns when every target has
//!   the whole stream in its memory.
//! - An endpoint whose process ends, or whose host does not answer, is an error at every endpoint
//!   within two seconds, as long as the endpoints are called. With [`OnLoss::Drop`] a lost target
//!   leaves a replicate flow, and a lost source ends after its last whole segment; each loss is
//!   reported once ([`Source::take_losses`], [`Target::take_losses`]).
//! - Nothing is allocated per tuple or per segment. A tuple of a bandwidth flow costs no atomic
//!   operation, a segment a few and one sequentially consistent fence.
//! - Calls that begin with `try_` never wait.
//!
//! Connect soon after joining. A joined peer that does not connect within the flow's silence
//! ([`Flow::silence`]) after the first segment for the peer counts as lost.
//!
//! Not promised: a stopped process (`SIGSTOP`) of a live host goes unnoticed, since one-sided
//! requests need no thread of the target. Connections are not made again, sources and targets do
//! not come and go, and a tuple has a fixed length.
//!
//! # Rings (thesis, section 7.5.2)
//!
//! Each pair of a source and a target has a ring of its own in the target's memory. A segment is
//! its payload, then a footer of 16 bytes ([`millstream_flow::channel::footer`]): fill, flags and
//! lap. At the source there is a smaller ring for each target, or one for all if every target gets
//! the same.
//!
//! *Bandwidth.* A full segment is one WRITE, footer last. With the write of segment n goes a READ
//! of the footer of segment n + 1. If that footer says *free*, the next segment is written at once.
//! Otherwise the READ is repeated after a random back-off of 1 to 16 µs (the thesis gives no
//! figure). Of the writes, only the one that wraps the source's ring is signalled. READs are
//! signalled, since a completion announces the answer. The target's next `consume` sets
//! *free*, in its own memory: targets post nothing for a segment.
//!
//! *Latency* (thesis, section 7.5.3). A segment is one tuple. The target counts consumed segments
//! plus the ring's length. The source keeps a copy of that count, and READs it only when less than
//! a quarter of the ring is left (the thesis gives no figure).
//!
//! *Pipelined* ([`Pipelined`], ours). Segments as of bandwidth, credit as of latency; the count is
//! read below half of the ring. Bandwidth waits for a round trip with each segment, which costs
//! little in the thesis' network, and much over TCP.
//!
//! *Partial segments.* A flushed segment that is less than half full is two chained writes, of
//! payload and footer.
//!
//! *End.* The last segment of a pair has the flag END and no payload. The target confirms it with
//! one write, so that a source knows whether a connection broke before or after its end.
//!
//! *Failure.* A failing endpoint names the lost thread to all its peers, with a write to each. The
//! endpoint waits up to 2 ms for these writes to leave.
//!
//! *Sleep.* A target that finds nothing for a while sleeps, and the next segment's write wakes it
//! ([`millstream_flow::link`]). A source that waits for a slow target does not sleep.
//!
//! # Multicast (thesis, section 7.5.4)
//!
//! With [`Flow::multicast`] a replicate flow sends each segment once, as a datagram to the group of
//! all targets, for 1 target and for 8 ([`Counters::datagrams`]). A fabric without multicast is
//! refused ([`Error::NoMulticast`]); `shm` has none. A segment has to fit a datagram: at most 4,064
//! bytes of payload.
//!
//! *Credit.* A target posts a receive for each segment of credit, and 8 more for each source. The
//! receive is posted again when the next call of `consume` frees the segment. The target writes a
//! back-flow over a reliable connection to each source: how much it has consumed, how much it has
//! without a gap, and the numbers of up to 5 missing segments. The source sends no further than the
//! slowest target allows. A source keeps each segment until all targets have it, so its ring is as
//! long as the targets' rings, whatever `source_segments` says.
//!
//! *Losses.* A target asks for a segment that has been missing for the time-out
//! ([`Flow::time_out`], 1 ms), and asks again after each further time-out. The source sends the
//! segment again, to all. Targets drop duplicates. A lost last segment leaves no gap. So a source
//! whose segments are not all confirmed sends a mark after the time-out: a datagram that names the
//! count of segments. Further marks follow after 2, 4, … up to 32 time-outs.
//!
//! *End.* The mark of the end is repeated until each target has confirmed the whole stream.
//!
//! *Attention.* A source repeats only while it is called. Programs with long pauses call
//! [`Source::progress`]. Lost peers are noticed on the reliable connections, as over rings. The
//! flow waits for ever for a target that answers there and gets no multicast at all, say behind a
//! switch that drops it.
//!
//! # Order (thesis, section 7.5.4)
//!
//! With [`Flow::ordered`] all targets of a replicate flow consume all segments in one order, over
//! rings and by multicast. Other flows are refused: their targets have no segment in common. A
//! source draws the number of each segment by fetch-and-add at a word of target 0, the sequencer.
//! The number takes a round trip, so a pushed tuple leaves with a later call. A target moves
//! arrivals from its receive list to its next list by their places in memory, and copies nothing.
//! If the sequencer is lost, the flow fails. If a source is lost, the flow fails too, since targets
//! may differ in that source's last segments.
//!
//! *Over rings* the number stands in 16 bytes in front of the footer, and is drawn when a segment
//! is full. The rings are the receive list. A target looks ahead in each ring, so that a segment
//! out of turn neither hides the end of its source nor keeps the target awake. All targets wait
//! for a source that has drawn a number, until the source is called again: call [`Source::flush`]
//! before a pause.
//!
//! *By multicast* the number is drawn once there is credit for the segment.
//!
//! *Gaps.* With [`Gaps::Notify`], which needs multicast, nothing is sent again. A number that has
//! been missing for the time-out is [`Consumed::Gap`] of [`Target::try_consume`] and [`Error::Gap`]
//! of [`Target::consume`], once. The program then has to reach agreement. A segment that comes
//! later is dropped. With [`OnLoss::Drop`] such a flow outlives lost sources.
//!
//! # Placement
//!
//! A footer proves that its segment is complete only where bytes land in address order
//! ([`millstream_fabric::Limits::ordered_placement`]). Other fabrics are refused, unless the flow
//! uses [`Detection::Checksum`]: then the footer's first word is a checksum of 64 bits over
//! payload, fill, flags and lap.
//!
//! # Registry (thesis, section 7.3.3)
//!
//! A [`Registry`] holds declarations, addresses and keys until every thread has joined. It is never
//! on the data path: if it is lost, running flows go on. [`LocalRegistry`] serves the threads of a
//! process, [`RegistryService`] and [`RegistryClient`] those of a job's processes.
//!
//! # Trust
//!
//! Peers hold the job's token and are trusted not to write to a segment that is not free. All else
//! that a peer writes (footers, counts, set-up messages) is checked from a private copy before use.

/// The examples of the guide are run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/flows.md")]
struct Guide;

#[cfg(test)]
extern crate self as millstream_dfi;

mod batch;
mod cast;
mod combine;
mod completions;
mod counters;
mod datagram;
mod declaration;
mod error;
mod farewell;
mod flow;
mod lists;
#[cfg(test)]
mod loom_tests;
mod options;
mod registry;
mod ring;
mod schema;
mod sequencer;
mod source;
mod stage;
mod target;
mod thread;
mod wire;

pub use batch::{Batch, Consumed};

pub use combine::{Aggregate, Combined, Combiner, Group, Value};
pub use counters::Counters;
pub use datagram::fuzz as fuzz_datagrams;
pub use declaration::{Declaration, FlowKind};
pub use error::{Error, Result};
pub use flow::Flow;
pub use options::{
    Bandwidth, Detection, Gaps, Latency, OnLoss, Optimise, Pipelined, Route, RouteFunction,
};
pub use registry::fuzz as fuzz_messages;
pub use registry::{End, LocalRegistry, Registry, RegistryClient, RegistryService};
pub use ring::fuzz as fuzz_footers;
pub use schema::{AsTuple, Attribute, Field, Schema, Tuple, Type};
pub use source::{Source, SourceSetup};
pub use target::{Target, TargetSetup};
pub use thread::{Loss, Peer, Role, Thread};
