//! How a target joins its flow and connects to the sources.

use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Fabric, QueuePair, QueueSizes, Receive, Region, Timing};
use millstream_flow::link::{BLOCK_BYTES, Block, LINE, Link, WAKES, check_region};

use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::options::Detection;
use crate::registry::{End, Registry, check_hello, parameters};
use crate::source::sub_region;
use crate::target::Target;
use crate::target::inlet::{Inlet, prepare};
use crate::thread::{Role, Thread};

/// Bytes of an inlet's words: the link's block, and the count that the source reads.
const WORDS_BYTES: usize = BLOCK_BYTES + LINE;
/// Entries of an inlet's send queue: going to sleep takes 2, a probe and the end 1 each, and as
/// many again until a signalled one has been polled.
const SEND_ENTRIES: u32 = 8;

/// A target that has joined its flow and waits for the other threads.
pub struct TargetSetup<F: Fabric> {
    fabric: F,
    declaration: Declaration,
    end: End,
    queue: F::CompletionQueue,
    events: F::Events,
    pairs: Vec<F::QueuePair>,
    /// The words of all inlets.
    words: Region,
    rings: Vec<Region>,
}

impl<F: Fabric> TargetSetup<F> {
    /// Joins the flow as the target of this thread: looks the flow up, for at most `patience`,
    /// allocates all memory, and leaves addresses and keys at the registry.
    ///
    /// # Errors
    /// No such flow, no such target, footers on a fabric without ordered placement
    /// ([`Error::Unordered`]), or the fabric has no more memory or queue pairs.
    pub fn join(
        fabric: &F,
        registry: &impl Registry,
        flow: &str,
        thread: Thread,
        patience: Duration,
    ) -> Result<TargetSetup<F>> {
        let declaration = registry.look_up(flow, patience)?;
        if declaration.detection == Detection::Footer && !fabric.limits().ordered_placement {
            return Err(Error::Unordered);
        }
        TargetSetup::join_unchecked(fabric, registry, flow, thread, patience)
    }

    /// The same, whatever the fabric says of the order in which bytes are placed: to try what
    /// happens.
    pub fn join_unchecked(
        fabric: &F,
        registry: &impl Registry,
        flow: &str,
        thread: Thread,
        patience: Duration,
    ) -> Result<TargetSetup<F>> {
        let declaration = registry.look_up(flow, patience)?;
        let end = End::find(&declaration, Role::Target, thread)?;
        let (shape, sources) = (declaration.shape(), declaration.sources.len());
        let sizes = QueueSizes { send: SEND_ENTRIES, receive: WAKES };
        let events = fabric.events()?;
        let entries = sources as u32 * (SEND_ENTRIES + WAKES);
        let queue = fabric.completion_queue(entries, Some(&events))?;
        let timing = Timing { silence: declaration.silence, receiver_not_ready: None };
        let words = fabric.allocate(sources * WORDS_BYTES, Access::REMOTE_ALL)?;
        let access = Access { remote_read: true, ..Access::REMOTE_WRITE };
        let (mut pairs, mut rings, mut hellos) = (Vec::new(), Vec::new(), Vec::new());
        for source in 0..sources {
            let mut pair = fabric.queue_pair(&queue, &queue, sizes, timing)?;
            pair.post_receive(&[Receive { id: 0, buffer: None }; WAKES as usize])?;
            let ring = fabric.allocate(shape.region_bytes(), access)?;
            let at = source * WORDS_BYTES;
            prepare(&ring, &(words.clone(), at + BLOCK_BYTES), &shape);
            hellos.push(Hello {
                endpoint: pair.endpoint(),
                regions: vec![
                    sub_region(&words, at, BLOCK_BYTES),
                    sub_region(&words, at + BLOCK_BYTES, LINE),
                    ring.remote(),
                ],
                parameters: parameters(&declaration, end, source),
            });
            pairs.push(pair);
            rings.push(ring);
        }
        registry.join(flow, end, hellos)?;
        let fabric = fabric.clone();
        Ok(TargetSetup { fabric, declaration, end, queue, events, pairs, words, rings })
    }

    /// The declaration.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// Waits until all threads of the flow have joined, for at most `patience`, and connects.
    ///
    /// # Errors
    /// Some threads have not joined, or a source does not fit.
    pub fn connect(self, registry: &impl Registry, patience: Duration) -> Result<Target<F>> {
        let declaration = self.declaration;
        let hellos = registry.peers(&declaration.name, self.end, patience)?;
        if hellos.len() != self.pairs.len() {
            let (ours, theirs) = (self.pairs.len() as u64, hellos.len() as u64);
            return Err(Error::Mismatch { what: "count of sources", ours, theirs });
        }
        let (shape, now) = (declaration.shape(), self.fabric.now());
        let mut inlets = Vec::with_capacity(hellos.len());
        let pairs = self.pairs.into_iter().zip(self.rings);
        for (source, ((pair, ring), hello)) in pairs.zip(&hellos).enumerate() {
            let peer = declaration.peer(Role::Source, source);
            check_hello(&declaration, hello, (peer, self.end.index), 1)?;
            let block = hello.regions[0];
            check_region(&block, BLOCK_BYTES)?;
            let at = source * WORDS_BYTES;
            let blocks = (Block::new(self.words.clone(), at), block);
            let link = Link::<F>::connect(pair, hello, blocks, (SEND_ENTRIES, true), now)?;
            let count = (self.words.clone(), at + BLOCK_BYTES);
            inlets.push(Inlet::new(link, peer, (ring, count), &shape));
        }
        Ok(Target::new(self.fabric, declaration, (self.end, self.queue, self.events), inlets))
    }
}
