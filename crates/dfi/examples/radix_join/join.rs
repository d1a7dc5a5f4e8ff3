//! The parts of both joins: a sender, a partition, and the flows between them.

use std::ops::Range;
use std::time::Duration;

use millstream_dfi::{Flow, Registry, Result, Route, Schema, Source, Target, Thread};
use millstream_fabric::Fabric;

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Names of the flows.
pub(crate) const INNER: &str = "inner";
pub(crate) const OUTER: &str = "outer";

millstream_dfi::tuple! {
    /// A tuple on its way: the key without the bits that name its partition, and the value.
    struct Packed { key: u32, value: u32 }
}

/// A tuple of a relation.
pub(crate) type Row = (u64, u32);

/// Destination of the inner rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The partition of the key.
    Radix,
    /// Every partition.
    Replicate,
}

/// How the join runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) variant: Variant,
    /// Processes, and senders and partitions of all processes together.
    pub(crate) processes: usize,
    pub(crate) senders: usize,
    pub(crate) partition_bits: u32,
}

impl Plan {
    pub(crate) fn partitions(self) -> usize {
        1 << self.partition_bits
    }

    /// The thread of a sender: each process has as many.
    pub(crate) fn sender(self, number: usize) -> Thread {
        Thread::new((number * self.processes / self.senders) as u32, number as u32)
    }

    /// The thread of a partition.
    pub(crate) fn partition(self, number: usize) -> Thread {
        Thread::new((number * self.processes / self.partitions()) as u32, number as u32)
    }

    /// The flows' names.
    pub(crate) fn flows(self) -> &'static [&'static str] {
        match self.variant {
            Variant::Radix => &[INNER, OUTER],
            Variant::Replicate => &[INNER],
        }
    }

    /// The partition of a row, and the row as it travels.
    fn split(self, (key, value): Row) -> (usize, Packed) {
        let (partition, key) = match self.variant {
            Variant::Radix => (key as usize & (self.partitions() - 1), key >> self.partition_bits),
            Variant::Replicate => (0, key),
        };
        let key = u32::try_from(key).expect("a key that travels has 32 bits");
        (partition, Packed { key, value })
    }
}

/// One of `parts` equal parts of so many rows.
pub(crate) fn share(rows: u64, part: usize, parts: usize) -> Range<u64> {
    let each = rows.div_ceil(parts as u64);
    let at = |part: usize| (part as u64 * each).min(rows);
    at(part)..at(part + 1)
}

/// Result of a join: how many pairs, and the sum of the products of their values, which wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Joined {
    pub(crate) pairs: u64,
    pub(crate) sum: u64,
}

/// A hash table of inner tuples: chains in the order of arrival.
struct Chains {
    heads: Vec<u32>,
    tuples: Vec<(Packed, u32)>,
}

const NONE: u32 = u32::MAX;

fn hash(key: u32) -> u64 {
    u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Chains {
    /// A table for so many tuples at most.
    fn new(tuples: usize) -> Chains {
        let heads = vec![NONE; tuples.next_power_of_two()];
        Chains { heads, tuples: Vec::with_capacity(tuples) }
    }

    fn slot(&self, key: u32) -> usize {
        (hash(key) >> 32) as usize & (self.heads.len() - 1)
    }

    fn insert(&mut self, tuple: Packed) {
        let slot = self.slot(tuple.key);
        self.tuples.push((tuple, self.heads[slot]));
        self.heads[slot] = (self.tuples.len() - 1) as u32;
    }

    fn probe(&self, tuple: Packed, joined: &mut Joined) {
        let mut at = self.heads[self.slot(tuple.key)];
        while at != NONE {
            let (inner, next) = self.tuples[at as usize];
            if inner.key == tuple.key {
                joined.pairs += 1;
                let product = u64::from(inner.value) * u64::from(tuple.value);
                joined.sum = joined.sum.wrapping_add(product);
            }
            at = next;
        }
    }
}

/// Tuples by local partition: a table of a partition fits a processor's cache. A partition grows by
/// pieces, so nothing is copied.
struct Locals(Vec<Vec<Vec<Packed>>>);

const LOCAL_BITS: u32 = 8;
const PIECE_TUPLES: usize = 1 << 11;

impl Locals {
    fn new() -> Locals {
        Locals(vec![vec![Vec::with_capacity(PIECE_TUPLES)]; 1 << LOCAL_BITS])
    }

    fn add(&mut self, tuple: Packed) {
        let pieces = &mut self.0[(hash(tuple.key) >> (64 - LOCAL_BITS)) as usize];
        match pieces.last_mut() {
            Some(piece) if piece.len() < PIECE_TUPLES => piece.push(tuple),
            _ => {
                let mut piece = Vec::with_capacity(PIECE_TUPLES);
                piece.push(tuple);
                pieces.push(piece);
            }
        }
    }
}

/// Inner tuples, and outer ones if they have to wait for their table.
enum Tables {
    /// One table. Outer tuples probe it at once.
    One(Chains),
    Many(Locals, Locals),
}

/// Tuples of a table that tuples of all keys come to: it fits a second-level cache.
const TABLE_TUPLES: usize = 1 << 14;

impl Tables {
    fn insert(&mut self, tuple: Packed) {
        match self {
            Tables::One(table) if table.tuples.len() < TABLE_TUPLES => table.insert(tuple),
            Tables::One(table) => {
                let mut locals = Locals::new();
                table.tuples.iter().for_each(|(tuple, _)| locals.add(*tuple));
                locals.add(tuple);
                *self = Tables::Many(locals, Locals::new());
            }
            Tables::Many(inner, _) => inner.add(tuple),
        }
    }

    fn probe(&mut self, tuple: Packed, joined: &mut Joined) {
        match self {
            Tables::One(table) => table.probe(tuple, joined),
            Tables::Many(_, outer) => outer.add(tuple),
        }
    }

    /// Joins the tuples that wait.
    fn finish(self, joined: &mut Joined) {
        let Tables::Many(inner, outer) = self else { return };
        for (inner, outer) in inner.0.into_iter().zip(outer.0) {
            let mut table = Chains::new(inner.iter().map(Vec::len).sum());
            inner.iter().flatten().for_each(|tuple| table.insert(*tuple));
            outer.iter().flatten().for_each(|tuple| table.probe(*tuple, joined));
        }
    }
}

/// A sender: both relations, one after the other, each read once. Without a flow for the outer
/// relation its rows stay where they are.
pub(crate) fn send<F: Fabric>(
    (mut inner, outer): (Source<F>, Option<Source<F>>),
    (inner_rows, outer_rows): (&[Row], &[Row]),
    plan: Plan,
) -> Result<()> {
    for row in inner_rows {
        let (partition, tuple) = plan.split(*row);
        match plan.variant {
            Variant::Radix => inner.push_to(partition, &tuple)?,
            Variant::Replicate => inner.push(&tuple)?,
        }
    }
    inner.close()?;
    let Some(mut outer) = outer else { return Ok(()) };
    for row in outer_rows {
        let (partition, tuple) = plan.split(*row);
        outer.push_to(partition, &tuple)?;
    }
    outer.close()
}

/// Where a partition's outer rows come from.
pub(crate) enum Outer<'a, F: Fabric> {
    /// From all senders.
    Flow(Box<Target<F>>),
    /// From the partition's own fragment of the relation.
    Fragment(&'a [Row]),
}

/// A partition: builds while the inner relation arrives, then probes while the outer one does. If
/// the inner relation is large, it divides both as they arrive, and then joins the parts.
pub(crate) fn build_and_probe<F: Fabric>(
    mut inner: Target<F>,
    outer: Outer<'_, F>,
    plan: Plan,
) -> Result<Joined> {
    let (mut tables, mut joined) = (Tables::One(Chains::new(TABLE_TUPLES)), Joined::default());
    while let Some(batch) = inner.consume()? {
        batch.rows::<Packed>()?.iter().for_each(|tuple| tables.insert(*tuple));
    }
    match outer {
        Outer::Flow(mut outer) => {
            while let Some(batch) = outer.consume()? {
                let tuples = batch.rows::<Packed>()?.iter();
                tuples.for_each(|tuple| tables.probe(*tuple, &mut joined));
            }
        }
        Outer::Fragment(rows) => {
            rows.iter().for_each(|row| tables.probe(plan.split(*row).1, &mut joined));
        }
    }
    tables.finish(&mut joined);
    Ok(joined)
}

/// Declares a flow from all senders to all partitions.
pub(crate) fn declare(name: &str, plan: Plan, registry: &impl Registry) -> Result<()> {
    let flow = match (name, plan.variant) {
        (INNER, Variant::Replicate) => Flow::replicate(name),
        _ => Flow::shuffle(name),
    };
    flow.sources((0..plan.senders).map(|sender| plan.sender(sender)))
        .targets((0..plan.partitions()).map(|partition| plan.partition(partition)))
        .schema(Schema::new().u32("key").u32("value"))
        .route(Route::Explicit)
        // With more threads than cores a thread may be late to connect.
        .silence(PATIENCE)
        .publish(registry)
}

/// Rows of a relation by number. Keys are below `keys`, and all comes from a seed.
pub(crate) fn relation(rows: Range<u64>, keys: u64, seed: u64) -> Vec<Row> {
    let row = |number: u64| {
        let mut z = (seed << 40 | number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 27;
        (z % keys, (z >> 40) as u32)
    };
    rows.map(row).collect()
}
