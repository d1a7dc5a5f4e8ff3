//! Broadcasts: the streams of a task that several processes read go through one replicate flow
//! ([`millstream_dfi`]). The writer lays each batch out once, in its own ring, and the flow writes
//! it to every reader.
//!
//! Readers of the same task that ask within [`Config::gather`](crate::Config) of each other are a
//! group. A reader that asks later, or alone, gets a copy of its own through its link. The flow
//! exists as long as its streams. Its threads meet at a registry of the writer, whose port the
//! readers learn over gRPC.
//!
//! Credit is that of the streams: the slowest reader decides. A reader that closes a stream, or is
//! gone, holds up nobody.

mod branch;
mod gathering;
mod opening;
mod trunk;

use millstream_dfi::{Bandwidth, Detection, Flow, OnLoss, Schema, Thread};
use millstream_fabric::Fabric;

use crate::common::Common;

pub(crate) use branch::Branch;
pub(crate) use gathering::Gatherings;
pub(crate) use opening::Broadcast;

/// Bytes of a flow's tuple: messages are padded to whole tuples.
const LINE: usize = 16;

/// The thread of the writer, and of a reader by its index.
const WRITER: Thread = Thread::new(0, 0);

fn reader(index: u32) -> Thread {
    Thread::new(1 + index, 0)
}

/// The flow of a broadcast to so many readers. A segment has room for the longest message.
fn flow<F: Fabric>(fabric: &F, common: &Common, name: &str, readers: u32) -> Flow {
    let segment = common.config.message_bytes.next_multiple_of(LINE);
    let segments = common.config.depth as usize;
    let detection = match fabric.limits().ordered_placement {
        true => Detection::Footer,
        false => Detection::Checksum,
    };
    Flow::replicate(name)
        .sources([WRITER])
        .targets((0..readers).map(reader))
        .schema(Schema::new().bytes::<LINE>("line"))
        .optimise(Bandwidth { segment, segments, source_segments: segments })
        .detection(detection)
        .on_loss(OnLoss::Drop)
}
