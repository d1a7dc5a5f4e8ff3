//! How a source over rings joins its flow and connects to the targets.

use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Fabric, QueuePair, QueueSizes, Region, Timing};
use millstream_flow::link::{BLOCK_BYTES, Block, LINE, Link, check_region};

use crate::declaration::{Declaration, FlowKind, Routing};
use crate::error::{Error, Result};
use crate::options::RouteFunction;
use crate::registry::{End, Registry, check_hello, hellos, parameters};
use crate::ring::{Shape, sub_region};
use crate::sequencer::{SEQUENCER, Sequencer};
use crate::source::lane::{Lane, Places, REQUESTS};
use crate::source::outbox::Outbox;
use crate::source::rings::RingSource;
use crate::source::router::Router;
use crate::thread::Role;

/// Bytes of a lane's words: the link's block, and the word where READs land.
const WORDS_BYTES: usize = BLOCK_BYTES + LINE;

/// A source over rings that has joined its flow and waits for the other threads.
pub(crate) struct RingSourceSetup<F: Fabric> {
    fabric: F,
    declaration: Declaration,
    end: End,
    queue: F::CompletionQueue,
    pairs: Vec<F::QueuePair>,
    /// The words of all lanes.
    words: Region,
    rings: Vec<Region>,
    function: Option<RouteFunction>,
}

impl<F: Fabric> RingSourceSetup<F> {
    pub(crate) fn join(
        fabric: &F,
        registry: &impl Registry,
        (declaration, end): (Declaration, End),
    ) -> Result<RingSourceSetup<F>> {
        let shape = declaration.shape();
        let targets = declaration.targets.len();
        let sizes = QueueSizes { send: send_entries(&shape), receive: 1 };
        let entries = targets as u32 * (sizes.send + sizes.receive);
        let queue = fabric.completion_queue(entries, None)?;
        let timing = Timing { silence: declaration.silence, receiver_not_ready: None };
        let pairs = (0..targets)
            .map(|_| Ok(fabric.queue_pair(&queue, &queue, sizes, timing)?))
            .collect::<Result<Vec<_>>>()?;
        let words = fabric.allocate(targets * WORDS_BYTES, Access::REMOTE_ALL)?;
        let rings = if declaration.kind == FlowKind::Replicate { 1 } else { targets };
        let ring = |_| Ok(fabric.allocate(shape.source_ring_bytes(), Access::LOCAL)?);
        let rings = (0..rings).map(ring).collect::<Result<Vec<_>>>()?;
        let hellos = pairs.iter().enumerate().map(|(target, pair)| Hello {
            endpoint: pair.endpoint(),
            regions: vec![sub_region(&words, target * WORDS_BYTES, BLOCK_BYTES)],
            parameters: parameters(&declaration, end, target),
        });
        registry.join(&declaration.name, end, hellos.collect())?;
        let fabric = fabric.clone();
        Ok(RingSourceSetup { fabric, declaration, end, queue, pairs, words, rings, function: None })
    }

    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// Gives the function of a flow declared with [`Route::By`](crate::Route).
    pub(crate) fn route_by(&mut self, function: RouteFunction) {
        self.function = Some(function);
    }

    pub(crate) fn connect(
        self,
        registry: &impl Registry,
        patience: Duration,
    ) -> Result<RingSource<F>> {
        let declaration = self.declaration;
        let router = Router::new(&declaration, self.function)?;
        let hellos = hellos(registry, &declaration, self.end, patience)?;
        let (shape, now) = (declaration.shape(), self.fabric.now());
        let mut sequencer = None;
        let mut lanes = Vec::with_capacity(self.pairs.len());
        for (target, (pair, hello)) in self.pairs.into_iter().zip(&hellos).enumerate() {
            let peer = declaration.peer(Role::Target, target);
            let numbers = shape.ordered && target == SEQUENCER;
            check_hello(&declaration, hello, (peer, self.end.index), 3 + usize::from(numbers))?;
            if numbers {
                let (word, segments) = (hello.regions[3], shape.source_segments);
                sequencer = Some(Sequencer::connect(&self.fabric, word, segments)?);
            }
            let [block, count, ring] = [0, 1, 2].map(|at| hello.regions[at]);
            check_region(&block, BLOCK_BYTES)?;
            check_region(&count, 8)?;
            check_region(&ring, shape.ring_bytes())?;
            let at = target * WORDS_BYTES;
            let blocks = (Block::new(self.words.clone(), at), block);
            let queue = (send_entries(&shape), false);
            let link = Link::<F>::connect(pair, hello, blocks, queue, now)?;
            let landing = (self.words.clone(), at + BLOCK_BYTES);
            lanes.push(Lane::new(link, peer, Places { ring, count, landing }, &shape));
        }
        let all = lanes.len();
        let lanes_of = |ring: usize| if router.is_to_all() { 0..all } else { ring..ring + 1 };
        let rings = self.rings.into_iter().enumerate();
        let outboxes = rings.map(|(at, ring)| Outbox::new(ring, lanes_of(at), &shape)).collect();
        let ends = (self.end, self.queue);
        Ok(RingSource::new(self.fabric, declaration, ends, lanes, (outboxes, router, sequencer)))
    }
}

/// Entries of a lane's send queue. One write is signalled in each lap of the source's ring, so a
/// lap's requests fit, and a few more: of the next segment, of a repeated READ and of a probe. In
/// an ordered flow a number is drawn for each segment.
fn send_entries(shape: &Shape) -> u32 {
    let of_segment = REQUESTS as u32 + u32::from(shape.ordered);
    of_segment * shape.source_segments as u32 + 16
}

impl Router {
    /// The router of a declaration.
    fn new(declaration: &Declaration, function: Option<RouteFunction>) -> Result<Router> {
        let targets = declaration.targets.len();
        if declaration.kind == FlowKind::Replicate {
            return Ok(Router::All);
        }
        let schema = &declaration.schema;
        let key = match &declaration.routing {
            Routing::First => schema.attributes().first(),
            Routing::Key(name) => schema.find(name),
            Routing::Explicit => return Ok(Router::Explicit),
            Routing::By(own) => match function.or_else(|| own.clone()) {
                Some(function) => return Ok(Router::By(function)),
                None => {
                    let what = "the flow routes by a function, which does not travel: give it with \
                                SourceSetup::route_by";
                    return Err(Error::Route { what });
                }
            },
        };
        match key {
            _ if targets == 1 => Ok(Router::One),
            Some(key) => Ok(Router::key(key.offset, key.bytes, targets)),
            None => Err(Error::Route { what: "the flow has no attribute to route by" }),
        }
    }
}
