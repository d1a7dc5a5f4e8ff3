//! Two distributed hash joins over two bandwidth flows (thesis, sections 7.4.3.1 and 7.6.3.1).
//!
//! *Radix join.* Both flows are shuffles, and a row goes to the target of its partition.
//! *Fragment and replicate.* The inner flow is a replication. The outer rows stay where they are:
//! each partition probes with a fragment of its own. A large outer relation is not sent where the
//! inner one is small.
//!
//! Sender threads read their part of both relations once: there is no histogram pass, since a flow
//! needs no sizes in advance. Each partition has a target of its own. A partition builds its hash
//! table while segments of the inner relation arrive, and probes while segments of the outer one
//! arrive: there is no barrier between partitioning and joining. Where the inner relation is large,
//! a partition divides both relations as they arrive, and then joins part by part, in the cache.
//!
//! Tuples are compressed. All keys of a radix partition have the same low bits, so these bits do
//! not travel, and a tuple takes 8 bytes instead of 16. The segments of the sources' rings are the
//! write-combining buffers. They are written with ordinary stores, not with streaming ones.
//!
//!     cargo run --release -p millstream-dfi --example radix_join -- radix|replicate [NUMBERS]
//!
//! The numbers are: senders, the logarithm of partitions, inner rows, outer rows.

mod join;

use std::error::Error;
use std::time::Instant;

use millstream_dfi::{LocalRegistry, Result, SourceSetup, TargetSetup};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;

use join::{
    INNER, Joined, OUTER, Outer, PATIENCE, Plan, Row, Variant, build_and_probe, declare, relation,
    send, share,
};

/// One of `parts` equal parts of a relation.
fn part(rows: &[Row], part: usize, parts: usize) -> &[Row] {
    let share = share(rows.len() as u64, part, parts);
    &rows[share.start as usize..share.end as usize]
}

/// Joins two relations, of which each sender has a part.
fn join<F: Fabric>(device: &F, plan: Plan, inner: &[Row], outer: &[Row]) -> Result<Joined> {
    let registry = &LocalRegistry::new();
    plan.flows().iter().try_for_each(|name| declare(name, plan, registry))?;
    let has_outer = plan.flows().contains(&OUTER);
    std::thread::scope(|scope| {
        let senders = (0..plan.senders).map(|sender| {
            let rows = [inner, outer].map(|rows| part(rows, sender, plan.senders));
            scope.spawn(move || {
                let join =
                    |name| SourceSetup::join(device, registry, name, plan.sender(sender), PATIENCE);
                let inner = join(INNER)?;
                let outer = has_outer.then(|| join(OUTER)).transpose()?;
                let inner = inner.connect(registry, PATIENCE)?;
                let outer = outer.map(|outer| outer.connect(registry, PATIENCE)).transpose()?;
                send((inner, outer), (rows[0], rows[1]), plan)
            })
        });
        let senders: Vec<_> = senders.collect();
        let partitions = (0..plan.partitions()).map(|partition| {
            let fragment = part(outer, partition, plan.partitions());
            scope.spawn(move || {
                let thread = plan.partition(partition);
                let join = |name| TargetSetup::join(device, registry, name, thread, PATIENCE);
                let inner = join(INNER)?;
                let outer = has_outer.then(|| join(OUTER)).transpose()?;
                let inner = inner.connect(registry, PATIENCE)?;
                let outer = match outer {
                    Some(outer) => Outer::Flow(outer.connect(registry, PATIENCE)?.into()),
                    None => Outer::Fragment(fragment),
                };
                build_and_probe(inner, outer, plan)
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

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let variant = match std::env::args().nth(1).as_deref() {
        Some("replicate") => Variant::Replicate,
        _ => Variant::Radix,
    };
    let numbers = std::env::args().skip(2).map(|text| text.parse());
    let numbers = numbers.collect::<std::result::Result<Vec<u64>, _>>()?;
    let number = |at: usize, usual: u64| numbers.get(at).copied().unwrap_or(usual);
    let (senders, partition_bits) = (number(0, 1) as usize, number(1, 1) as u32);
    let plan = Plan { variant, processes: 1, senders, partition_bits };
    let (inner_rows, outer_rows) = (number(2, 1_000_000), number(3, 1_000_000));
    let inner = relation(0..inner_rows, inner_rows, 1);
    let outer = relation(0..outer_rows, inner_rows, 2);
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
                let (inner, outer) = (relation(0..rows, keys, 1), relation(0..2 * rows, keys, 2));
                let plan = Plan { variant, processes: 1, senders, partition_bits };
                let joined = join(&device, plan, &inner, &outer).unwrap();
                assert_eq!(joined, expected(&inner, &outer), "{plan:?}, {rows} rows");
            }
        }
    }
}
