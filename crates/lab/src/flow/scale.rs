//! Figure 7.7c: the rate of a shuffle among all nodes, from two nodes to eight.

use serde_json::{Value, json};

use super::failure::FlowResult;
use super::figure::{Findings, FlowOptions};
use super::mover::{FlowPlan, Movement, full_mesh};
use super::price;
use super::projection::{THESIS, check};
use super::simulated::simulate;
use crate::round;

/// Length of the tuples, of which the thesis says nothing, and their words.
const TUPLE_BYTES: usize = 256;
const WORDS: usize = TUPLE_BYTES / 8;
/// Source threads of a node, and target threads.
const THREADS: u32 = 14;
/// Segments of a ring. One process holds the rings of all nodes, so they are shorter than usual.
const SEGMENTS: usize = 8;
/// Bytes of each pair of threads: three times the ring.
const PAIR_BYTES: u64 = 24 * 8192;
/// Rates may be so far from a multiple of that of two nodes.
const MISS_MAX: f64 = 0.05;

/// Measures the figure.
pub(super) fn measure(options: &FlowOptions) -> FlowResult<Findings> {
    options.refuse_numbers()?;
    let mut found = Findings::default();
    let plan = FlowPlan::new(Movement::Shuffle, Vec::new(), TUPLE_BYTES);
    let plan = FlowPlan { segments: SEGMENTS, ..plan };
    let price = price::measure::<WORDS>(&plan, 8)?;
    let check = check::<WORDS>(&plan, &price, 8, options)?;
    let mut rates = Vec::new();
    if check.holds {
        let threads = options.choose(2, THREADS);
        for nodes in options.choose(&[2, 3][..], &[2, 4, 6, 8][..]).iter().copied() {
            let pairs = u64::from(nodes * threads).pow(2);
            let plan = FlowPlan { movers: full_mesh(nodes, threads), ..plan.clone() };
            let plan = plan.with_bytes(pairs * PAIR_BYTES);
            let rate = simulate::<WORDS>(&plan, &price, THESIS)?.bytes_per_s(&plan);
            found.points.push(json!({
                "nodes": nodes,
                "threads": threads,
                "bytes_per_s": rate.round(),
                "of_links": round(rate / f64::from(nodes) / THESIS.bytes_per_s as f64, 4),
            }));
            rates.push(rate / f64::from(nodes));
        }
    }
    let worst = rates.iter().map(|rate| (rate / rates[0] - 1.0).abs()).reduce(f64::max);
    let text = "greatest distance from a rate that is linear in the nodes, at most 0.05";
    found.relate(text, worst, worst.is_some_and(|worst| worst <= MISS_MAX));
    found.more.push(("segments", json!(SEGMENTS)));
    found.more.push(("prices", json!([price.json(TUPLE_BYTES)])));
    found.more.push(("checks", Value::Array(check.json)));
    Ok(found)
}
