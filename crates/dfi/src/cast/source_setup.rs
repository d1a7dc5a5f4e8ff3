//! How the source of a multicast flow joins and connects to the targets.

use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Datagram, Fabric, QueuePair, QueueSizes, Region, Timing};
use millstream_flow::link::{BLOCK_BYTES, Block, LINE, Link, check_region};

use crate::cast::backflow::Line;
use crate::cast::sending::{Outlet, send_entries};
use crate::cast::source::{Back, CastSource, Course};
use crate::cast::{check_limits, group_of, tag_of};
use crate::completions::Numbers;
use crate::counters::Counters;
use crate::declaration::Declaration;
use crate::error::Result;
use crate::registry::{End, Registry, check_hello, hellos, parameters};
use crate::ring::sub_region;
use crate::sequencer::{SEQUENCER, Sequencer};
use crate::stage::Standing;
use crate::thread::Role;

/// Bytes of a target's words: the link's block, and the back-flow.
const WORDS_BYTES: usize = BLOCK_BYTES + LINE;

/// A source of a multicast flow that has joined and waits for the other threads.
pub(crate) struct CastSourceSetup<F: Fabric> {
    pair: F::Datagram,
    pairs: Vec<F::QueuePair>,
    queue: F::CompletionQueue,
    words: Region,
    ring: Region,
    fabric: F,
    declaration: Declaration,
    end: End,
    tag: u32,
}

/// Entries of a connection's send queue: fetch-and-adds, and a few more.
fn link_entries(declaration: &Declaration) -> u32 {
    declaration.layout().segments as u32 + 8
}

impl<F: Fabric> CastSourceSetup<F> {
    pub(crate) fn join(
        fabric: &F,
        registry: &impl Registry,
        (declaration, end): (Declaration, End),
    ) -> Result<CastSourceSetup<F>> {
        check_limits(&declaration, fabric.limits())?;
        let (layout, targets) = (declaration.layout(), declaration.targets.len());
        let sizes = QueueSizes { send: link_entries(&declaration), receive: 1 };
        let casting = QueueSizes { send: send_entries(&layout), receive: 1 };
        let entries = targets as u32 * (sizes.send + sizes.receive) + casting.send + 1;
        let queue = fabric.completion_queue(entries, None)?;
        let timing = Timing { silence: declaration.silence, receiver_not_ready: None };
        let pairs = (0..targets)
            .map(|_| Ok(fabric.queue_pair(&queue, &queue, sizes, timing)?))
            .collect::<Result<Vec<_>>>()?;
        let pair = fabric.datagram(&queue, &queue, casting)?;
        let tag = tag_of(&declaration, &pair.endpoint(), end.index);
        let words = fabric.allocate(targets * WORDS_BYTES, Access::REMOTE_ALL)?;
        let ring = fabric.allocate(layout.source_bytes(), Access::LOCAL)?;
        let hellos = pairs.iter().enumerate().map(|(target, pair)| {
            let at = target * WORDS_BYTES;
            let mut numbers = parameters(&declaration, end, target);
            numbers.push(tag.into());
            Hello {
                endpoint: pair.endpoint(),
                regions: vec![
                    sub_region(&words, at, BLOCK_BYTES),
                    sub_region(&words, at + BLOCK_BYTES, LINE),
                ],
                parameters: numbers,
            }
        });
        registry.join(&declaration.name, end, hellos.collect())?;
        let fabric = fabric.clone();
        Ok(CastSourceSetup { pair, pairs, queue, words, ring, fabric, declaration, end, tag })
    }

    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    pub(crate) fn connect(
        mut self,
        registry: &impl Registry,
        patience: Duration,
    ) -> Result<CastSource<F>> {
        let declaration = self.declaration;
        let hellos = hellos(registry, &declaration, self.end, patience)?;
        let (layout, now) = (declaration.layout(), self.fabric.now());
        let mut sequencer = None;
        let mut backs = Vec::with_capacity(hellos.len());
        for (target, (pair, hello)) in self.pairs.into_iter().zip(&hellos).enumerate() {
            let peer = declaration.peer(Role::Target, target);
            let numbers = declaration.ordered && target == SEQUENCER;
            check_hello(&declaration, hello, (peer, self.end.index), 1 + usize::from(numbers))?;
            check_region(&hello.regions[0], BLOCK_BYTES)?;
            if numbers {
                let word = hello.regions[1];
                sequencer = Some(Sequencer::connect(&self.fabric, word, layout.segments)?);
            }
            let at = target * WORDS_BYTES;
            let blocks = (Block::new(self.words.clone(), at), hello.regions[0]);
            let entries = (link_entries(&declaration), false);
            let link = Link::<F>::connect(pair, hello, blocks, entries, now)?;
            let line = Line { region: self.words.clone(), at: at + BLOCK_BYTES };
            backs.push(Back { link, peer, line, answered: 0, lost: false });
        }
        let group = self.pair.resolve_group(group_of(&declaration))?;
        let outlet = Outlet::new((self.pair, group), self.ring, layout, (self.end.index, self.tag));
        let numbers = Numbers::new(backs.iter().map(|back| back.link.number()));
        Ok(CastSource {
            outlet,
            backs,
            sequencer,
            queue: self.queue,
            fabric: self.fabric,
            declaration,
            layout,
            end: self.end,
            numbers,
            course: Course::new(layout.segments as u64),
            counters: Counters::default(),
            standing: Standing::open(),
            losses: Vec::new(),
            probed: now,
        })
    }
}
