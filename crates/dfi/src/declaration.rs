//! A declaration: what the registry tells the threads of a flow.

use std::fmt;
use std::time::Duration;

use millstream_state::hash_bytes;

use crate::datagram::Layout;
use crate::error::{Error, Result};
use crate::options::{
    Bandwidth, Detection, Gaps, Latency, OnLoss, Optimise, Pipelined, Route, RouteFunction,
};
use crate::ring::Shape;
use crate::schema::Schema;
use crate::thread::{Peer, Role, Thread};
use crate::wire::{Fields, Put, Read, malformed};

/// Longest name of a flow, an attribute or a type, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Most threads at one end.
const THREADS_MAX: usize = 1 << 14;
/// Most attributes of a schema.
const ATTRIBUTES_MAX: usize = 1 << 12;
/// Most segments of a ring, as of a channel's ring.
const SEGMENTS_MAX: usize = 1 << 12;
/// Longest segment.
const SEGMENT_BYTES_MAX: usize = 1 << 26;

/// The kinds of flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowKind {
    /// A tuple goes to one target.
    Shuffle = 1,
    /// A tuple goes to every target.
    Replicate = 2,
    /// A tuple goes to the only target, and is aggregated there.
    Combine = 3,
}

/// The route as a declaration holds it.
#[derive(Clone)]
pub(crate) enum Routing {
    /// By the first attribute.
    First,
    Key(String),
    /// The function is absent where the declaration came over a network.
    By(Option<RouteFunction>),
    Explicit,
}

impl fmt::Debug for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Routing::First => f.write_str("First"),
            Routing::Key(name) => write!(f, "Key({name:?})"),
            Routing::By(_) => f.write_str("By(…)"),
            Routing::Explicit => f.write_str("Explicit"),
        }
    }
}

/// A published flow, as its threads look it up.
#[derive(Debug, Clone)]
pub struct Declaration {
    pub(crate) name: String,
    pub(crate) kind: FlowKind,
    pub(crate) sources: Vec<Thread>,
    pub(crate) targets: Vec<Thread>,
    pub(crate) schema: Schema,
    pub(crate) routing: Routing,
    pub(crate) optimise: Optimise,
    pub(crate) detection: Detection,
    pub(crate) on_loss: OnLoss,
    pub(crate) silence: Duration,
    pub(crate) multicast: bool,
    pub(crate) ordered: bool,
    pub(crate) gaps: Gaps,
    pub(crate) time_out: Duration,
}

impl Declaration {
    pub(crate) fn new(name: &str, kind: FlowKind) -> Declaration {
        Declaration {
            name: name.to_owned(),
            kind,
            sources: Vec::new(),
            targets: Vec::new(),
            schema: Schema::new(),
            routing: Routing::First,
            optimise: Bandwidth::default().into(),
            detection: Detection::default(),
            on_loss: OnLoss::default(),
            silence: Duration::from_millis(750),
            multicast: false,
            ordered: false,
            gaps: Gaps::default(),
            time_out: Duration::from_millis(1),
        }
    }

    pub(crate) fn route(&mut self, route: Route<'_>) {
        self.routing = match route {
            Route::Key(name) => Routing::Key(name.to_owned()),
            Route::By(function) => Routing::By(Some(function)),
            Route::Explicit => Routing::Explicit,
        };
    }

    /// Name of the flow.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kind of the flow.
    pub fn kind(&self) -> FlowKind {
        self.kind
    }

    /// Schema of the tuples.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The threads of an end, by index.
    pub fn threads(&self, role: Role) -> &[Thread] {
        match role {
            Role::Source => &self.sources,
            Role::Target => &self.targets,
        }
    }

    /// The end of this role and index.
    pub(crate) fn peer(&self, role: Role, index: usize) -> Peer {
        Peer { role, index: index as u32, thread: self.threads(role)[index] }
    }

    /// Bytes of all rings at one node, of its targets and its sources (thesis, section 7.6.1.4).
    pub fn ring_bytes(&self, node: u32) -> usize {
        let here = |threads: &[Thread]| threads.iter().filter(|one| one.node == node).count();
        let shape = self.shape();
        if self.multicast {
            let layout = self.layout();
            let at_targets = here(&self.targets) * layout.target_bytes();
            return at_targets + here(&self.sources) * layout.source_bytes();
        }
        let at_targets = here(&self.targets) * self.sources.len() * shape.ring_bytes();
        let rings = if self.kind == FlowKind::Replicate { 1 } else { self.targets.len() };
        at_targets + here(&self.sources) * rings * shape.source_ring_bytes()
    }

    /// The rings' shape.
    pub(crate) fn shape(&self) -> Shape {
        let shape = |bandwidth: Bandwidth, ask_below: Option<usize>| Shape {
            payload: bandwidth.segment,
            segments: bandwidth.segments,
            source_segments: bandwidth.source_segments,
            latency: false,
            ask_below: ask_below.map(|below| below.max(1) as u64),
            checksum: self.detection == Detection::Checksum,
            ordered: self.ordered,
        };
        match self.optimise {
            Optimise::Bandwidth(bandwidth) => shape(bandwidth, None),
            Optimise::Pipelined(Pipelined(one)) => shape(one, Some(one.segments / 2)),
            Optimise::Latency(Latency { segments }) => {
                let segment = self.schema.tuple_bytes().next_multiple_of(16);
                let one = Bandwidth { segment, segments, source_segments: segments };
                Shape { latency: true, ..shape(one, Some(segments / 4)) }
            }
        }
    }

    /// The layout of a multicast flow's memory.
    pub(crate) fn layout(&self) -> Layout {
        Layout::new(&self.shape(), self.sources.len())
    }

    /// A number that both ends of a pair compare.
    pub(crate) fn fingerprint(&self) -> u64 {
        hash_bytes(&self.encode())
    }

    /// Whether a flow can be like this.
    ///
    /// # Errors
    /// [`Error::Declaration`] says what is wrong.
    pub fn check(&self) -> Result<()> {
        let fault = self.fault_of_threads().or_else(|| self.schema.fault());
        let fault = fault.or_else(|| self.fault_of_shape()).or_else(|| self.fault_of_route());
        match fault.or_else(|| self.fault_of_order()).or_else(|| self.fault_of_multicast()) {
            Some(why) => Err(Error::Declaration { flow: self.name.clone(), why }),
            None => Ok(()),
        }
    }

    fn fault_of_threads(&self) -> Option<String> {
        let mut names = self.schema.attributes().iter().flat_map(|one| [&one.name, &one.type_name]);
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            return Some("a flow's name has 1 to 256 bytes".into());
        }
        if names.any(|name| name.is_empty() || name.len() > NAME_BYTES_MAX) {
            return Some("the name of an attribute or a type has 1 to 256 bytes".into());
        }
        if self.schema.attributes().len() > ATTRIBUTES_MAX {
            return Some("a schema has at most 4,096 attributes".into());
        }
        for role in [Role::Source, Role::Target] {
            let threads = self.threads(role);
            if !(1..=THREADS_MAX).contains(&threads.len()) {
                return Some(format!("{} {role}s; there have to be 1 to 16,384", threads.len()));
            }
            let mut sorted: Vec<_> = threads.iter().map(|one| (one.node, one.id)).collect();
            sorted.sort_unstable();
            if let Some(twice) = sorted.windows(2).find(|two| two[0] == two[1]) {
                let (node, id) = twice[0];
                return Some(format!("node {node}, thread {id} is a {role} twice"));
            }
        }
        let many = self.kind == FlowKind::Combine && self.targets.len() != 1;
        many.then(|| format!("a combine flow has 1 target, not {}", self.targets.len()))
    }

    fn fault_of_shape(&self) -> Option<String> {
        let (shape, tuple_bytes) = (self.shape(), self.schema.tuple_bytes());
        for segments in [shape.segments, shape.source_segments] {
            if !(1..=SEGMENTS_MAX).contains(&segments) {
                return Some(format!("{segments} segments; a ring has 1 to 4,096"));
            }
        }
        let whole = shape.payload.is_multiple_of(16) && shape.payload <= SEGMENT_BYTES_MAX;
        if !whole || shape.payload < tuple_bytes {
            return Some(format!(
                "segments of {} bytes; a multiple of 16 is needed, at least a tuple's {tuple_bytes} \
                 bytes and at most 64 MiB",
                shape.payload
            ));
        }
        let silent = self.silence.is_zero() || self.silence > Duration::from_secs(3600);
        silent.then(|| "silence has to be positive and at most an hour".into())
    }

    fn fault_of_route(&self) -> Option<String> {
        let Routing::Key(name) = &self.routing else { return None };
        let known = self.schema.find(name).is_some();
        (!known)
            .then(|| format!("no attribute {name:?} to route by; the schema is {}", self.schema))
    }

    fn fault_of_order(&self) -> Option<String> {
        if self.ordered && self.kind != FlowKind::Replicate {
            let why =
                "only a replicate flow has one order: targets of other flows get other tuples";
            return Some(why.into());
        }
        let without = self.gaps == Gaps::Notify && !self.multicast;
        without.then(|| "gaps come with multicast only: rings lose nothing".into())
    }

    fn fault_of_multicast(&self) -> Option<String> {
        if !self.multicast {
            return None;
        }
        if self.kind != FlowKind::Replicate {
            return Some("only a replicate flow can use multicast".into());
        }
        if self.gaps == Gaps::Notify && !self.ordered {
            return Some("gaps can be told of in ordered flows only".into());
        }
        let most = Bandwidth::DATAGRAMS.segment;
        if self.shape().payload > most {
            return Some(format!(
                "segments of {} bytes; multicast takes {most}, as many as fit a datagram",
                self.shape().payload
            ));
        }
        let endless = self.time_out.is_zero() || self.time_out > self.silence;
        endless.then(|| "the time-out has to be positive and at most the silence".into())
    }

    /// Encodes for the registry's messages; a routing function stays here.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        to.put_text(&self.name);
        to.push(self.kind as u8);
        for threads in [&self.sources, &self.targets] {
            to.put_list(threads, |to, one| {
                to.put_u32(one.node);
                to.put_u32(one.id);
            });
        }
        to.put_list(self.schema.attributes(), |to, one| {
            to.put_text(&one.name);
            to.put_text(&one.type_name);
            to.put_u64(one.bytes as u64);
            to.put_u64(one.align as u64);
        });
        match &self.routing {
            Routing::First => to.push(0),
            Routing::Key(name) => {
                to.push(1);
                to.put_text(name);
            }
            Routing::By(_) => to.push(2),
            Routing::Explicit => to.push(3),
        }
        match self.optimise {
            Optimise::Bandwidth(bandwidth) => {
                to.push(1);
                bandwidth.put(&mut to);
            }
            Optimise::Pipelined(Pipelined(bandwidth)) => {
                to.push(3);
                bandwidth.put(&mut to);
            }
            Optimise::Latency(Latency { segments }) => {
                to.push(2);
                to.put_u64(segments as u64);
            }
        }
        to.push((self.detection == Detection::Checksum).into());
        to.push((self.on_loss == OnLoss::Drop).into());
        to.put_u64(self.silence.as_nanos() as u64);
        to.push(self.multicast.into());
        to.push(self.ordered.into());
        to.push((self.gaps == Gaps::Notify).into());
        to.put_u64(self.time_out.as_nanos() as u64);
        to
    }

    /// Decodes and checks a peer's message.
    pub(crate) fn decode(from: &mut Fields<'_>) -> Read<Declaration> {
        let name = from.text()?;
        let kind = match from.u8()? {
            1 => FlowKind::Shuffle,
            2 => FlowKind::Replicate,
            3 => FlowKind::Combine,
            _ => return malformed("no such kind of flow"),
        };
        let thread = |from: &mut Fields<'_>| Ok(Thread::new(from.u32()?, from.u32()?));
        let (sources, targets) = (from.list(8, thread)?, from.list(8, thread)?);
        let mut schema = Schema::new();
        let attributes = from.list(24, |from| {
            let (name, type_name) = (from.text()?, from.text()?);
            Ok((name, type_name, from.size()?, from.size()?))
        })?;
        for (name, type_name, bytes, align) in attributes {
            if bytes > SEGMENT_BYTES_MAX || align > 16 || schema.tuple_bytes() > SEGMENT_BYTES_MAX {
                return malformed("an attribute is too long");
            }
            schema = schema.described(&name, &type_name, bytes, align);
        }
        let routing = match from.u8()? {
            0 => Routing::First,
            1 => Routing::Key(from.text()?),
            2 => Routing::By(None),
            3 => Routing::Explicit,
            _ => return malformed("no such route"),
        };
        let optimise = match from.u8()? {
            1 => Bandwidth::take(from)?.into(),
            3 => Pipelined(Bandwidth::take(from)?).into(),
            2 => Latency { segments: from.size()? }.into(),
            _ => return malformed("no such goal"),
        };
        let detection = if flag(from)? { Detection::Checksum } else { Detection::Footer };
        let on_loss = if flag(from)? { OnLoss::Drop } else { OnLoss::Fail };
        let silence = Duration::from_nanos(from.u64()?);
        let (multicast, ordered) = (flag(from)?, flag(from)?);
        let gaps = if flag(from)? { Gaps::Notify } else { Gaps::Resend };
        let time_out = Duration::from_nanos(from.u64()?);
        let declaration = Declaration {
            name,
            kind,
            sources,
            targets,
            schema,
            routing,
            optimise,
            detection,
            on_loss,
            silence,
            multicast,
            ordered,
            gaps,
            time_out,
        };
        match declaration.check() {
            Ok(()) => Ok(declaration),
            Err(_) => malformed("an impossible declaration"),
        }
    }
}

fn flag(from: &mut Fields<'_>) -> Read<bool> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => malformed("a flag that is neither 0 nor 1"),
    }
}
impl Bandwidth {
    fn put(&self, to: &mut Vec<u8>) {
        for number in [self.segment, self.segments, self.source_segments] {
            to.put_u64(number as u64);
        }
    }

    fn take(from: &mut Fields<'_>) -> Read<Bandwidth> {
        let (segment, segments) = (from.size()?, from.size()?);
        Ok(Bandwidth { segment, segments, source_segments: from.size()? })
    }
}
