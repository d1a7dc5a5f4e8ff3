//! Ingestion: programs stream Arrow batches into a job, `'connector' = 'channel'`.
//!
//! | option | default | |
//! |---|---|---|
//! | `listen` | `127.0.0.1:8815` | an address, or a port of this machine alone |
//! | `name` | the table's name | the path of Flight's descriptor; unique for a `listen` |
//! | `producers` | `1` | so many producers have to join before any window fires |
//! | `producers.max` | `16`, or `producers` | producers at the same time at most |
//! | `bounded` | `false` | the table ends after as many producers as `producers` says |
//! | `on_loss` | `notice`, or `fail` for a bounded table | the reaction to the loss of a producer |
//! | `token` | | what producers have to present; best a secret, `${…}` |
//! | `transport` | `flight` | `flight`, or rings: `tcp`, `shm` (shared memory), `rdma` |
//! | `segment`, `segments` | `64 KB`, `8` | of a ring: bytes of a segment, and segments |
//!
//! Producers speak Arrow Flight ([`flight`]), so any Flight client is a producer: Python, Java, Go,
//! C++, Rust. Or they link this library ([`Producer`]), and batches come over a ring, which is a
//! shuffle flow of `millstream_dfi` from the producer to its slot. `docs/ingestion.md` says what a
//! user does, `docs/wire.md` what a message looks like.
//!
//! **Slots.** A producer takes a *slot*, which is a split of the table, until its stream ends. So
//! each producer has its own watermark. A slot without a producer is idle at once. A new producer
//! begins with the low watermark of the others: its older records are late.
//!
//! **Back-pressure.** Slots hold together an eighth of the setting `memory`, at most 64 MiB. Each
//! adds a message that is being received, and dictionaries. A producer whose slot is full waits.
//!
//! **The end.** A producer that ends its stream is answered when all its batches are decoded. So it
//! learns of a damaged one, and the answer counts just the rows that the job has.
//!
//! **Watermarks.** The table's `WATERMARK` is computed from records, as for any table. A producer
//! may also send watermarks of its own. So windows fire although no record comes.
//!
//! **Trust.** Producers are not trusted. Columns are checked when a stream begins, and each
//! message when a worker decodes it. A damaged batch is left out, and ends the stream of its
//! producer alone. Producers of rings share the registry of set-up, where the names of flows are
//! random; each has a token of its own for its ring. Bytes of a ring are copied before they are
//! parsed, so a producer that still writes there damages its own batch only. There is no
//! encryption: another address than one of this machine has to be written.
//!
//! **A table to write** has the option `connect` in place of `listen`, with `name`, `producer` and
//! `token`: [`ChannelSink`] is a producer of another job's table, whose transport is a ring.
//!
//! **Processes.** With rings, each process of a job listens and has slots. Producers come to the
//! coordinator, which sends some of them to other processes ([`elsewhere`]). Flight clients cannot
//! be sent away, so the coordinator has all of them.
//!
//! Records come once, so a job with checkpoints is refused the table.

mod elsewhere;
mod fabric;
mod feed;
mod flight;
mod merged;
mod producer;
mod ring;
mod sent;
mod served;
mod sink;
mod slots;
mod table;
mod welcome;
mod wire;

use std::sync::Arc;

use millstream_connect::{Connector, Registry};

pub use producer::{Producer, ProducerOptions};
pub use sink::ChannelSink;
pub use table::ChannelSource;
pub use wire::Transport;

/// Makes the connector `channel` known.
pub fn register(registry: &Registry) {
    registry.register(
        "channel",
        Connector::new()
            .source(|options| {
                sink::refuse_reading(options)?;
                Ok(Arc::new(ChannelSource::from_options(options)?))
            })
            .sink(sink::make)
            .check(sink::check),
    );
}
