//! How a target over rings joins its flow and connects to the sources.

use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Fabric, QueuePair, QueueSizes, Receive, Region, Timing};
use millstream_flow::link::{BLOCK_BYTES, Block, LINE, Link, WAKES, check_region};

use crate::declaration::Declaration;
use crate::error::Result;
use crate::registry::{End, Registry, check_hello, hellos, parameters};
use crate::ring::sub_region;
use crate::sequencer::SEQUENCER;
use crate::target::inlet::{Inlet, prepare};
use crate::target::rings::RingTarget;
use crate::thread::Role;

/// Bytes of an inlet's words: the link's block, and the count that the source reads.
const WORDS_BYTES: usize = BLOCK_BYTES + LINE;
/// Entries of an inlet's send queue: going to sleep takes 2, a probe and the end 1 each, and as
/// many again until a signalled one has been polled.
const SEND_ENTRIES: u32 = 8;

/// A target over rings that has joined its flow and waits for the other threads.
pub(crate) struct RingTargetSetup<F: Fabric> {
    fabric: F,
    declaration: Declaration,
    end: End,
    queue: F::CompletionQueue,
    events: F::Events,
    pairs: Vec<F::QueuePair>,
    /// The words of all inlets, and then the word of the sequencer. The links keep the region.
    words: Region,
    rings: Vec<Region>,
}

impl<F: Fabric> RingTargetSetup<F> {
    pub(crate) fn join(
        fabric: &F,
        registry: &impl Registry,
        (declaration, end): (Declaration, End),
    ) -> Result<RingTargetSetup<F>> {
        let (shape, sources) = (declaration.shape(), declaration.sources.len());
        let sizes = QueueSizes { send: SEND_ENTRIES, receive: WAKES };
        let events = fabric.events()?;
        let entries = sources as u32 * (SEND_ENTRIES + WAKES);
        let queue = fabric.completion_queue(entries, Some(&events))?;
        let timing = Timing { silence: declaration.silence, receiver_not_ready: None };
        let words = fabric.allocate(sources * WORDS_BYTES + LINE, Access::REMOTE_ALL)?;
        let sequences = shape.ordered && end.index as usize == SEQUENCER;
        let access = Access { remote_read: true, ..Access::REMOTE_WRITE };
        let (mut pairs, mut rings, mut hellos) = (Vec::new(), Vec::new(), Vec::new());
        for source in 0..sources {
            let mut pair = fabric.queue_pair(&queue, &queue, sizes, timing)?;
            pair.post_receive(&[Receive { id: 0, buffer: None }; WAKES as usize])?;
            let ring = fabric.allocate(shape.region_bytes(), access)?;
            let at = source * WORDS_BYTES;
            prepare(&ring, &(words.clone(), at + BLOCK_BYTES), &shape);
            let mut regions = vec![
                sub_region(&words, at, BLOCK_BYTES),
                sub_region(&words, at + BLOCK_BYTES, LINE),
                ring.remote(),
            ];
            if sequences {
                regions.push(sub_region(&words, sources * WORDS_BYTES, LINE));
            }
            let parameters = parameters(&declaration, end, source);
            hellos.push(Hello { endpoint: pair.endpoint(), regions, parameters });
            pairs.push(pair);
            rings.push(ring);
        }
        registry.join(&declaration.name, end, hellos)?;
        let fabric = fabric.clone();
        Ok(RingTargetSetup { fabric, declaration, end, queue, events, pairs, words, rings })
    }

    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    pub(crate) fn connect(
        self,
        registry: &impl Registry,
        patience: Duration,
    ) -> Result<RingTarget<F>> {
        let declaration = self.declaration;
        let hellos = hellos(registry, &declaration, self.end, patience)?;
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
        let ends = (self.end, self.queue, self.events);
        Ok(RingTarget::new(self.fabric, declaration, ends, inlets))
    }
}
