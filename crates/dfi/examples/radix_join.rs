//! Two distributed hash joins over two bandwidth flows (thesis, sections 7.4.3.1 and 7.6.3.1).
//!
//! *Radix join.* Both flows are shuffles, and a row goes to the target of its partition.
//! *Fragment and replicate.* The inner flow is a replication, and the outer rows go to the targets
//! by turns. This saves sending a large outer relation by key where the inner one is small.
//!
//! Sender threads read their part of both relations once: there is no histogram pass, since a flow
//! needs no sizes in advance. Each partition has a target of its own. A partition builds its hash
//! table while segments of the inner relation arrive, and probes while segments of the outer one
//! arrive: there is no barrier between partitioning and joining.
//!
//! Tuples are compressed. All keys of a radix partition have the same low bits, so these bits do
//! not travel, and a tuple takes 8 bytes instead of 16. The segments of the sources' rings are the
//! write-combining buffers. They are written with ordinary stores, not with streaming ones.
//!
//!     cargo run --release -p millstream-dfi --example radix_join -- radix|replicate [NUMBERS]
//!
//! The numbers are: senders, the logarithm of partitions, inner rows, outer rows.

use std::error::Error;
use std::time::{Duration, Instant};

use millstream_dfi::{
    Flow, LocalRegistry, Registry, Result, Route, Schema, Source, SourceSetup, Target, TargetSetup,
    Thread,
};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;

const PATIENCE: Duration = Duration::from_secs(10);

millstream_dfi::tuple! {
    /// A tuple on its way: the key without the bits that name its partition, and the value.
    struct Packed { key: u32, value: u32 }
}

/// A tuple of a relation.
type Row = (u64, u32);

/// Destination of the inner rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// The partition of the key.
    Radix,
    /// Every partition.
    Replicate,
}

/// How the join runs.
#[derive(Debug, Clone, Copy)]
struct Plan {
    variant: Variant,
    senders: usize,
    partition_bits: u32,
}

impl Plan {
    fn partitions(self) -> usize {
        1 << self.partition_bits
    }

    /// The partition of a sender's row number `number`, and the row as it travels.
    fn split(self, number: usize, (key, value): Row) -> (usize, Packed) {
        let (partition, key) = match self.variant {
            Variant::Radix => (key as usize, key >> self.partition_bits),
            Variant::Replicate => (number, key),
        };
        let key = u32::try_from(key).expect("a key that travels has 32 bits");
        (partition & (self.partitions() - 1), Packed { key, value })
    }
}

/// Result of a join: how many pairs, and the sum of the products of their values, which wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Joined {
    pairs: u64,
    sum: u64,
}

/// A hash table of one partition's inner tuples: chains in the order of arrival.
struct Chains {
    heads: Vec<u32>,
    tuples: Vec<(Packed, u32)>,
}

const NONE: u32 = u32::MAX;

impl Chains {
    fn new() -> Chains {
        Chains { heads: vec![NONE; 1 << 10], tuples: Vec::new() }
    }

    fn slot(&self, key: u32) -> usize {
        let hash = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.heads.len() - 1)
    }

    fn insert(&mut self, tuple: Packed) {
        if self.tuples.len() == self.heads.len() {
            self.grow();
        }
        let slot = self.slot(tuple.key);
        self.tuples.push((tuple, self.heads[slot]));
        self.heads[slot] = (self.tuples.len() - 1) as u32;
    }

    fn grow(&mut self) {
        self.heads = vec![NONE; 4 * self.heads.len()];
        for at in 0..self.tuples.len() {
            let slot = self.slot(self.tuples[at].0.key);
            self.tuples[at].1 = std::mem::replace(&mut self.heads[slot], at as u32);
        }
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

/// A sender: both relations, one after the other, each read once.
fn send<F: Fabric>(
    (mut inner, mut outer): (Source<F>, Source<F>),
    (inner_rows, outer_rows): (&[Row], &[Row]),
    plan: Plan,
) -> Result<()> {
    for (number, row) in inner_rows.iter().enumerate() {
        let (partition, tuple) = plan.split(number, *row);
        match plan.variant {
            Variant::Radix => inner.push_to(partition, &tuple)?,
            Variant::Replicate => inner.push(&tuple)?,
        }
    }
    inner.close()?;
    for (number, row) in outer_rows.iter().enumerate() {
        let (partition, tuple) = plan.split(number, *row);
        outer.push_to(partition, &tuple)?;
    }
    outer.close()
}

/// A partition: builds while the inner relation arrives, then probes while the outer one does.
fn build_and_probe<F: Fabric>(mut inner: Target<F>, mut outer: Target<F>) -> Result<Joined> {
    let (mut chains, mut joined) = (Chains::new(), Joined::default());
    while let Some(batch) = inner.consume()? {
        batch.rows::<Packed>()?.iter().for_each(|tuple| chains.insert(*tuple));
    }
    while let Some(batch) = outer.consume()? {
        batch.rows::<Packed>()?.iter().for_each(|tuple| chains.probe(*tuple, &mut joined));
    }
    Ok(joined)
}

/// Declares a flow from all senders to all partitions.
fn declare(name: &str, plan: Plan, registry: &impl Registry) -> Result<()> {
    let flow = match (name, plan.variant) {
        ("inner", Variant::Replicate) => Flow::replicate(name),
        _ => Flow::shuffle(name),
    };
    flow.sources((0..plan.senders).map(|sender| Thread::new(0, sender as u32)))
        .targets((0..plan.partitions()).map(|partition| Thread::new(1, partition as u32)))
        .schema(Schema::new().u32("key").u32("value"))
        .route(Route::Explicit)
        // With more threads than cores a thread may be late to connect.
        .silence(PATIENCE)
        .publish(registry)
}

/// Joins two relations, of which each sender has a part.
fn join<F: Fabric>(device: &F, plan: Plan, inner: &[Row], outer: &[Row]) -> Result<Joined> {
    let registry = LocalRegistry::new();
    let names = ["inner", "outer"];
    names.iter().try_for_each(|name| declare(name, plan, &registry))?;
    let part = |rows: usize| rows.div_ceil(plan.senders).max(1);
    let mut inner = inner.chunks(part(inner.len()));
    let mut outer = outer.chunks(part(outer.len()));
    std::thread::scope(|scope| {
        let registry = &registry;
        let senders = (0..plan.senders).map(|sender| {
            let rows = (inner.next().unwrap_or_default(), outer.next().unwrap_or_default());
            scope.spawn(move || {
                let thread = Thread::new(0, sender as u32);
                let [inner, outer] =
                    names.map(|name| SourceSetup::join(device, registry, name, thread, PATIENCE));
                let inner = inner?.connect(registry, PATIENCE)?;
                send((inner, outer?.connect(registry, PATIENCE)?), rows, plan)
            })
        });
        let senders: Vec<_> = senders.collect();
        let partitions = (0..plan.partitions()).map(|partition| {
            scope.spawn(move || {
                let thread = Thread::new(1, partition as u32);
                let [inner, outer] =
                    names.map(|name| TargetSetup::join(device, registry, name, thread, PATIENCE));
                let inner = inner?.connect(registry, PATIENCE)?;
                build_and_probe(inner, outer?.connect(registry, PATIENCE)?)
            })
        });
        let partitions: Vec<_> = partitions.collect();
        for sender in senders {
            sender.join().expect("a sender does not panic")?;
        }
        partitions.into_iter().try_fold(Joined::default(), |all, partition| {
            let one = partition.join().expect("a partition does not panic")?;
            Ok(Joined { pairs: all.pairs + one.pairs, sum: all.sum.wrapping_add(one.sum) })
        })
    })
}

/// A relation of so many rows whose keys are below `keys`, all from a seed.
fn relation(rows: u64, keys: u64, seed: u64) -> Vec<Row> {
    let row = |number: u64| {
        let mut z = (seed << 40 | number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 27;
        (z % keys, (z >> 40) as u32)
    };
    (0..rows).map(row).collect()
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let variant = match std::env::args().nth(1).as_deref() {
        Some("replicate") => Variant::Replicate,
        _ => Variant::Radix,
    };
    let numbers = std::env::args().skip(2).map(|text| text.parse());
    let numbers = numbers.collect::<std::result::Result<Vec<u64>, _>>()?;
    let number = |at: usize, usual: u64| numbers.get(at).copied().unwrap_or(usual);
    let (senders, partition_bits) = (number(0, 1) as usize, number(1, 1) as u32);
    let plan = Plan { variant, senders, partition_bits };
    let (inner_rows, outer_rows) = (number(2, 1_000_000), number(3, 1_000_000));
    let inner = relation(inner_rows, inner_rows, 1);
    let outer = relation(outer_rows, inner_rows, 2);
    let device = ShmDevice::open(Token::random()?)?;
    let start = Instant::now();
    let joined = join(&device, plan, &inner, &outer)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{plan:?}, {inner_rows} and {outer_rows} rows: {joined:?} in {seconds:.3} s");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The join by a loop.
    fn expected(inner: &[Row], outer: &[Row]) -> Joined {
        let mut table: HashMap<u64, Vec<u32>> = HashMap::new();
        inner.iter().for_each(|(key, value)| table.entry(*key).or_default().push(*value));
        let mut joined = Joined::default();
        for (key, value) in outer {
            for other in table.get(key).into_iter().flatten() {
                joined.pairs += 1;
                let product = u64::from(*other) * u64::from(*value);
                joined.sum = joined.sum.wrapping_add(product);
            }
        }
        joined
    }

    #[test]
    fn finds_every_pair_once() {
        let device = ShmDevice::open(Token::new([1; 32])).unwrap();
        let plans = [(1, 0), (1, 2), (2, 1), (3, 3)]
            .into_iter()
            .flat_map(|plan| [Variant::Radix, Variant::Replicate].map(|variant| (variant, plan)));
        for (variant, (senders, partition_bits)) in plans {
            for (rows, keys) in [(20_000, 5_000), (3_000, 1 << 32), (10, 2), (0, 1)] {
                let (inner, outer) = (relation(rows, keys, 1), relation(2 * rows, keys, 2));
                let plan = Plan { variant, senders, partition_bits };
                let joined = join(&device, plan, &inner, &outer).unwrap();
                assert_eq!(joined, expected(&inner, &outer), "{plan:?}, {rows} rows");
            }
        }
    }
}
