//! Figures 7.7a and 7.8a, b: rates from one node to eight, by threads and length of tuples; of a
//! shuffle, and of a replication over rings and by multicast.

use serde_json::{Value, json};

use super::failure::FlowResult;
use super::figure::{Findings, FlowOptions};
use super::mover::{FlowPlan, Movement, Mover};
use super::price::{self, Price};
use super::projection::{THESIS, check};
use super::simulated::simulate;
use super::tuples::{TUPLE_BYTES, with_words};
use crate::round;

/// Target nodes, with a thread each.
const TARGETS: u32 = 8;
/// A link counts as full from this share of its rate.
const FULL: f64 = 0.95;
/// Multicast has to be so many times as fast as a replication over rings: 64 of 11.64 GiB/s.
const MULTICAST: f64 = 5.5;

/// So many source threads at one node, and the targets at nodes of their own.
fn movers(threads: u32) -> Vec<Mover> {
    let source = Mover { node: 0, source: true, targets: 0 };
    let targets = (1..=TARGETS).map(|node| Mover { node, source: false, targets: 1 });
    std::iter::repeat_n(source, threads as usize).chain(targets).collect()
}

/// A length of tuples: by threads, the rate of all targets as a share of the link.
struct Row {
    tuple_bytes: usize,
    /// `None`: withheld.
    shares: Option<Vec<(u32, f64)>>,
}

/// The rows of a movement.
struct Rows(Vec<Row>);

impl Rows {
    fn share(row: &Row, threads: u32) -> Option<f64> {
        let shares = row.shares.as_ref()?;
        shares.iter().find(|(count, _)| *count == threads).map(|(_, share)| *share)
    }

    /// The least share with so many threads and tuples of so many bytes or more. `None`: one was
    /// withheld.
    fn least(&self, threads: u32, from: usize) -> Option<f64> {
        let rows = self.0.iter().filter(|row| row.tuple_bytes >= from);
        let all: Option<Vec<f64>> = rows.map(|row| Rows::share(row, threads)).collect();
        all?.into_iter().reduce(f64::min)
    }

    /// The greatest share.
    fn greatest(&self) -> Option<f64> {
        let shares = self.0.iter().filter_map(|row| row.shares.as_ref()).flatten();
        shares.map(|(_, share)| *share).reduce(f64::max)
    }

    /// The shortest tuples that fill the link with so many threads.
    fn shortest(&self, threads: u32) -> Option<usize> {
        let fills = |row: &&Row| Rows::share(row, threads).is_some_and(|share| share >= FULL);
        self.0.iter().find(fills).map(|row| row.tuple_bytes)
    }
}

/// Measures figure 7.7a.
pub(super) fn shuffle(options: &FlowOptions) -> FlowResult<Findings> {
    options.refuse_numbers()?;
    let (mut found, mut costs) = (Findings::default(), Costs::default());
    let rows = sweep(options, Movement::Shuffle, &mut found.points, &mut costs)?;
    costs.put(&mut found);
    let one = rows.0.first().and_then(|row| Rows::share(row, 1));
    let text = "share of the link with 1 thread and the shortest tuples, below 0.95";
    found.relate(text, one, one.is_some_and(|share| share < FULL));
    for (threads, from, words) in [(2, 256, "more than 128 bytes"), (4, 0, "any length")] {
        let least = rows.least(threads, from);
        let text = format!("least share of the link with {threads} threads, {words}, from 0.95");
        found.relate(text, least, least.is_some_and(|share| share >= FULL));
    }
    let lengths = [1, 2, 4].map(|threads| rows.shortest(threads).unwrap_or(usize::MAX));
    let text = "bytes of the shortest tuples that fill the link with 4 threads: fewer than with 1";
    let shortest = rows.shortest(4).map(|bytes| bytes as f64);
    let falls = lengths[2] <= lengths[1] && lengths[1] <= lengths[0] && lengths[2] < lengths[0];
    found.relate(text, shortest, falls);
    Ok(found)
}

/// Measures figures 7.8a and b.
pub(super) fn replicate(options: &FlowOptions) -> FlowResult<Findings> {
    options.refuse_numbers()?;
    let (mut found, mut costs) = (Findings::default(), Costs::default());
    let naive = sweep(options, Movement::Replicate, &mut found.points, &mut costs)?;
    let multicast = sweep(options, Movement::Multicast, &mut found.points, &mut costs)?;
    costs.put(&mut found);
    let best = naive.greatest();
    let text = "greatest share of the sender's link over rings, 0.95 to 1";
    found.relate(text, best, best.is_some_and(|share| (FULL..=1.0).contains(&share)));
    let least = naive.least(1, 128);
    let text = "least share of the link over rings with 1 thread, more than 64 bytes, from 0.95";
    found.relate(text, least, least.is_some_and(|share| share >= FULL));
    let times = multicast.greatest().zip(best).map(|(multicast, naive)| multicast / naive);
    let text = "greatest rate by multicast, times the greatest over rings, from 5.5";
    found.relate(text, times, times.is_some_and(|times| times >= MULTICAST));
    Ok(found)
}

/// Prices and checks of all lengths.
#[derive(Default)]
struct Costs {
    prices: Vec<Value>,
    checks: Vec<Value>,
}

impl Costs {
    fn put(self, found: &mut Findings) {
        found.more.push(("link_bytes_per_s", json!(THESIS.bytes_per_s)));
        found.more.push(("prices", Value::Array(self.prices)));
        found.more.push(("checks", Value::Array(self.checks)));
    }
}

/// All lengths of tuples.
fn sweep(
    options: &FlowOptions,
    movement: Movement,
    points: &mut Vec<Value>,
    costs: &mut Costs,
) -> FlowResult<Rows> {
    let mut rows = Vec::new();
    let lengths = options.choose(&TUPLE_BYTES[..1], &TUPLE_BYTES[..]);
    for tuple_bytes in lengths.iter().copied() {
        let plan = FlowPlan::new(movement, Vec::new(), tuple_bytes);
        if plan.segment < tuple_bytes {
            // No datagram has room for the tuple.
            continue;
        }
        let row = with_words!(tuple_bytes, WORDS => {
            let price = price::measure::<WORDS>(&plan, TARGETS)?;
            let check = check::<WORDS>(&plan, &price, TARGETS, options)?;
            costs.prices.push(price.json(tuple_bytes));
            costs.checks.extend(check.json);
            let shares = match check.holds {
                true => Some(project::<WORDS>(&plan, &price, options, points)?),
                false => None,
            };
            Ok(Row { tuple_bytes, shares })
        })?;
        rows.push(row);
    }
    Ok(Rows(rows))
}

/// The rates of a length of tuples by threads, in a network like the thesis'.
fn project<const W: usize>(
    plan: &FlowPlan,
    price: &Price,
    options: &FlowOptions,
    points: &mut Vec<Value>,
) -> FlowResult<Vec<(u32, f64)>> {
    let mut shares = Vec::new();
    for threads in options.choose(&[1, 4][..], &[1, 2, 4, 8][..]).iter().copied() {
        let plan = FlowPlan { movers: movers(threads), ..plan.clone() };
        let plan = plan.with_bytes(options.choose(2 << 20, 64 << 20));
        let run = simulate::<W>(&plan, price, THESIS)?;
        let (rate, segments) = (run.bytes_per_s(&plan), run.sources.segments.max(1) as f64);
        let share = rate / THESIS.bytes_per_s as f64;
        points.push(json!({
            "movement": plan.movement,
            "threads": threads,
            "tuple_bytes": plan.tuple_bytes,
            "bytes_per_s": rate.round(),
            "of_link": round(share, 4),
            "writes_per_segment": round(run.sources.writes as f64 / segments, 3),
            "reads_per_segment": round(run.sources.reads as f64 / segments, 3),
            "datagrams_per_segment": round(run.sources.datagrams as f64 / segments, 3),
        }));
        shares.push((threads, share));
    }
    Ok(shares)
}
