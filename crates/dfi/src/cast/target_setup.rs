//! How the target of a multicast flow joins and connects to the sources.

use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Datagram, Fabric, QueuePair, QueueSizes, Receive, Region, Timing};
use millstream_flow::link::{BLOCK_BYTES, Block, LINE, Link, WAKES, check_region};

use crate::cast::arrival::ReceiveList;
use crate::cast::backflow::Line;
use crate::cast::stream::Stream;
use crate::cast::target::{CastTarget, post_receive};
use crate::cast::{check_limits, group_of};
use crate::completions::Numbers;
use crate::counters::Counters;
use crate::declaration::Declaration;
use crate::error::Result;
use crate::lists::NextList;
use crate::registry::{End, Registry, check_hello, hellos, parameters};
use crate::ring::sub_region;
use crate::sequencer::SEQUENCER;
use crate::thread::Role;

/// Entries of a connection's send queue: the back-flow, a confirmation, a probe, and last words,
/// and as many again until a completion has been polled.
const SEND_ENTRIES: u32 = 8;

/// A target of a multicast flow that has joined and waits for the other threads.
pub(crate) struct CastTargetSetup<F: Fabric> {
    pair: F::Datagram,
    pairs: Vec<F::QueuePair>,
    queue: F::CompletionQueue,
    events: F::Events,
    /// The blocks of all links, and then the word of the sequencer. The links keep the region.
    words: Region,
    /// The lines of the back-flow, from which it is written.
    lines: Region,
    slots: Region,
    fabric: F,
    declaration: Declaration,
    end: End,
}

impl<F: Fabric> CastTargetSetup<F> {
    /// Joins the flow and the group, with all receives posted: a source that connects later cannot
    /// send too early.
    pub(crate) fn join(
        fabric: &F,
        registry: &impl Registry,
        (declaration, end): (Declaration, End),
    ) -> Result<CastTargetSetup<F>> {
        check_limits(&declaration, fabric.limits())?;
        let (layout, sources) = (declaration.layout(), declaration.sources.len());
        let sizes = QueueSizes { send: SEND_ENTRIES, receive: WAKES };
        let receives = layout.slots() as u32;
        let events = fabric.events()?;
        let entries = sources as u32 * (SEND_ENTRIES + WAKES) + receives + 1;
        let queue = fabric.completion_queue(entries, Some(&events))?;
        let sizes_of_group = QueueSizes { send: 1, receive: receives };
        let mut pair = fabric.datagram(&queue, &queue, sizes_of_group)?;
        let slots = fabric.allocate(layout.target_bytes(), Access::LOCAL)?;
        for slot in 0..receives {
            post_receive(&mut pair, &slots, (slot, &layout))?;
        }
        pair.join(group_of(&declaration))?;
        let timing = Timing { silence: declaration.silence, receiver_not_ready: None };
        let words = fabric.allocate(sources * BLOCK_BYTES + LINE, Access::REMOTE_ALL)?;
        let lines = fabric.allocate(sources * LINE, Access::LOCAL)?;
        let sequences = declaration.ordered && end.index as usize == SEQUENCER;
        let (mut pairs, mut hellos) = (Vec::new(), Vec::new());
        for source in 0..sources {
            let mut pair = fabric.queue_pair(&queue, &queue, sizes, timing)?;
            pair.post_receive(&[Receive { id: 0, buffer: None }; WAKES as usize])?;
            let mut regions = vec![sub_region(&words, source * BLOCK_BYTES, BLOCK_BYTES)];
            if sequences {
                regions.push(sub_region(&words, sources * BLOCK_BYTES, LINE));
            }
            let parameters = parameters(&declaration, end, source);
            hellos.push(Hello { endpoint: pair.endpoint(), regions, parameters });
            pairs.push(pair);
        }
        registry.join(&declaration.name, end, hellos)?;
        let fabric = fabric.clone();
        Ok(CastTargetSetup {
            pair,
            pairs,
            queue,
            events,
            words,
            lines,
            slots,
            fabric,
            declaration,
            end,
        })
    }

    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    pub(crate) fn connect(
        self,
        registry: &impl Registry,
        patience: Duration,
    ) -> Result<CastTarget<F>> {
        let declaration = self.declaration;
        let hellos = hellos(registry, &declaration, self.end, patience)?;
        let (layout, now) = (declaration.layout(), self.fabric.now());
        let mut streams = Vec::with_capacity(hellos.len());
        for (source, (pair, hello)) in self.pairs.into_iter().zip(&hellos).enumerate() {
            let peer = declaration.peer(Role::Source, source);
            check_hello(&declaration, hello, (peer, self.end.index), 2)?;
            check_region(&hello.regions[0], BLOCK_BYTES)?;
            check_region(&hello.regions[1], LINE)?;
            let block = Block::new(self.words.clone(), source * BLOCK_BYTES);
            let blocks = (block, hello.regions[0]);
            let link = Link::<F>::connect(pair, hello, blocks, (SEND_ENTRIES, true), now)?;
            let line = Line { region: self.lines.clone(), at: source * LINE };
            let tag = hello.parameters.get(4).copied().unwrap_or(0) as u32;
            let places = (line, hello.regions[1]);
            streams.push(Stream::new(link, (peer, tag), places, layout.segments));
        }
        let numbers = Numbers::new(streams.iter().map(|stream| stream.link.number()));
        let lists = if declaration.ordered { 1 } else { streams.len() };
        let places = if declaration.ordered { layout.numbers() } else { layout.segments };
        Ok(CastTarget {
            pair: self.pair,
            receive_list: ReceiveList::with_capacity(layout.slots()),
            next_lists: (0..lists).map(|_| NextList::new(places)).collect(),
            streams,
            queue: self.queue,
            events: self.events,
            slots: self.slots,
            fabric: self.fabric,
            declaration,
            layout,
            end: self.end,
            numbers,
            resume: None,
            held: None,
            horizon: 0,
            gap: None,
            found: 0,
            probed: now,
            counters: Counters::default(),
            failed: None,
            losses: Vec::new(),
        })
    }
}
