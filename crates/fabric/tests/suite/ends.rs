//! Setup of the checks: two connected queue pairs with their completion queues and some memory.

use super::{Bed, Failure, text};
use millstream_fabric::{Access, Region};
use millstream_fabric::{Destination, QueueSizes, Receive, Source, Timing};
use millstream_fabric::{Fabric, QueuePair};

/// Two ends of a connection and what they need.
pub struct Ends<F: Fabric> {
    /// Completions at a.
    pub a_queue: F::CompletionQueue,
    /// Completions at b.
    pub b_queue: F::CompletionQueue,
    /// a's queue pair.
    pub a: F::QueuePair,
    /// b's queue pair.
    pub b: F::QueuePair,
    /// a's memory, closed to peers.
    pub local: Region,
    /// b's memory, open for everything.
    pub remote: Region,
}

/// Length of both regions.
pub(super) const MEMORY_BYTES: usize = 256 * 1024;
/// Both queues of both ends, unless a check wants it otherwise.
pub(super) const SIZES: QueueSizes = QueueSizes { send: 16, receive: 16 };

impl<F: Fabric> Ends<F> {
    /// Connected ends with the usual sizes.
    pub fn new(bed: &Bed<'_, F>) -> Result<Ends<F>, Failure> {
        Ends::with(bed, SIZES, 64, Timing::default())
    }

    /// Connected ends.
    pub fn with(
        bed: &Bed<'_, F>,
        sizes: QueueSizes,
        completions: u32,
        timing: Timing,
    ) -> Result<Ends<F>, Failure> {
        let mut ends = Ends::unconnected(bed, sizes, completions, timing)?;
        ends.connect()?;
        Ok(ends)
    }

    /// Ends that are not connected yet.
    pub(super) fn unconnected(
        bed: &Bed<'_, F>,
        sizes: QueueSizes,
        completions: u32,
        timing: Timing,
    ) -> Result<Ends<F>, Failure> {
        let a_queue = bed.a.completion_queue(completions, None).map_err(text)?;
        let b_queue = bed.b.completion_queue(completions, None).map_err(text)?;
        let a = bed.a.queue_pair(&a_queue, &a_queue, sizes, timing).map_err(text)?;
        let b = bed.b.queue_pair(&b_queue, &b_queue, sizes, timing).map_err(text)?;
        let local = bed.a.allocate(MEMORY_BYTES, Access::LOCAL).map_err(text)?;
        let remote = bed.b.allocate(MEMORY_BYTES, Access::REMOTE_ALL).map_err(text)?;
        Ok(Ends { a_queue, b_queue, a, b, local, remote })
    }

    /// Connects both ends.
    pub(super) fn connect(&mut self) -> Result<(), Failure> {
        let (a, b) = (self.a.endpoint(), self.b.endpoint());
        self.a.connect(&b).map_err(text)?;
        self.b.connect(&a).map_err(text)
    }
}

/// A range as a source.
pub(super) fn source(region: &Region, offset: usize, bytes: usize) -> Source<'_> {
    Source::Region { region, offset, bytes }
}

/// A range as a destination.
pub(super) fn into(region: &Region, offset: usize, bytes: usize) -> Destination<'_> {
    Destination { region, offset, bytes }
}

/// A receive into a range.
pub(super) fn receive(region: &Region, id: u64, offset: usize, bytes: usize) -> Receive<'_> {
    Receive { id, buffer: Some(into(region, offset, bytes)) }
}
