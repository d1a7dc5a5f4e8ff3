//! Section 7.6.1.4: the memory of a node, and what fewer segments cost.

use millstream_dfi::{LocalRegistry, Registry as _};
use serde_json::{Value, json};

use super::failure::FlowResult;
use super::figure::{Findings, FlowOptions};
use super::mover::{FLOW, FlowPlan, Movement, Mover, PATIENCE, full_mesh};
use super::price::{self, median};
use super::projection::{THESIS, check};
use super::real::moved;
use super::simulated::simulate;
use crate::round;

/// Length of the tuples that are moved, and their words.
const TUPLE_BYTES: usize = 256;
const WORDS: usize = TUPLE_BYTES / 8;
/// The thesis' nodes, source and target threads of each, and MiB of a node.
const PUBLISHED: [(u32, u32, f64); 3] = [(2, 4, 16.0), (8, 4, 64.1), (8, 14, 785.5)];
/// Segments of a ring.
const SEGMENTS: [usize; 3] = [32, 16, 8];
/// Fewer segments may cost so much.
const COST_MAX: f64 = 0.1;

/// Measures the figure.
pub(super) fn measure(options: &FlowOptions) -> FlowResult<Findings> {
    options.refuse_numbers()?;
    let mut found = Findings::default();
    for (nodes, threads, mib) in PUBLISHED {
        let plan = FlowPlan {
            source_segments: 32,
            ..FlowPlan::new(Movement::Shuffle, full_mesh(nodes, threads), TUPLE_BYTES)
        };
        let bytes = ring_bytes(&plan)?;
        let ours = round(bytes as f64 / f64::from(1 << 20), 1);
        let few = FlowPlan { source_segments: 4, ..plan.clone() };
        found.points.push(json!({
            "nodes": nodes,
            "threads": threads,
            "mib": ours,
            "thesis_mib": mib,
            "mib_with_4_source_segments": round(ring_bytes(&few)? as f64 / f64::from(1 << 20), 1),
        }));
        found.relate(format!("MiB of a node, exactly {mib}"), Some(ours), ours == mib);
    }
    let Simulated { rates, price, checks } = in_simulation(options)?;
    relate(&mut found, "simulated", rates.as_deref());
    let real = between_processes(options)?;
    relate(&mut found, "2 processes", Some(&real));
    found.more.push(("prices", json!([price])));
    found.more.push(("checks", Value::Array(checks)));
    found.more.push(("simulated", rates.as_deref().map_or(Value::Null, rates_json)));
    found.more.push(("processes", rates_json(&real)));
    Ok(found)
}

/// Bytes of all rings of node 0, as the registry's declaration says.
fn ring_bytes(plan: &FlowPlan) -> FlowResult<usize> {
    let registry = LocalRegistry::new();
    plan.flow().publish(&registry)?;
    Ok(registry.look_up(FLOW, PATIENCE)?.ring_bytes(0))
}

/// Projected rates, by segments.
struct Simulated {
    /// `None`: withheld.
    rates: Option<Vec<f64>>,
    price: Value,
    checks: Vec<Value>,
}

/// Rates of a shuffle among four nodes of four source and four target threads.
fn in_simulation(options: &FlowOptions) -> FlowResult<Simulated> {
    let (nodes, bytes) = options.choose((2, 4 << 20), (4, 512 << 20));
    let plan = FlowPlan::new(Movement::Shuffle, full_mesh(nodes, 4), TUPLE_BYTES);
    let price = price::measure::<WORDS>(&plan, 8)?;
    let rate = |segments: &usize| {
        let plan = FlowPlan { segments: *segments, ..plan.clone() }.with_bytes(bytes);
        Ok(simulate::<WORDS>(&plan, &price, THESIS)?.bytes_per_s(&plan))
    };
    let (mut holds, mut checks) = (true, Vec::new());
    for segments in SEGMENTS {
        let plan = FlowPlan { segments, ..plan.clone() };
        let check = check::<WORDS>(&plan, &price, 8, options)?;
        holds &= check.holds;
        checks.extend(check.json);
    }
    let rates = match holds {
        true => Some(SEGMENTS.iter().map(rate).collect::<FlowResult<_>>()?),
        false => None,
    };
    Ok(Simulated { rates, price: price.json(TUPLE_BYTES), checks })
}

/// The same between a source and a target in two processes, by turns: medians of ratios to 32
/// segments, times the median rate with 32.
fn between_processes(options: &FlowOptions) -> FlowResult<Vec<f64>> {
    let movers = vec![
        Mover { node: 0, source: true, targets: 0 },
        Mover { node: 1, source: false, targets: 1 },
    ];
    let plan = FlowPlan::new(Movement::Shuffle, movers, TUPLE_BYTES);
    let (turns, bytes) = options.choose((1, 4 << 20), (9, 1 << 30));
    let mut rates = vec![Vec::new(); SEGMENTS.len()];
    for _ in 0..turns {
        for (segments, rates) in SEGMENTS.iter().zip(&mut rates) {
            let plan = FlowPlan { segments: *segments, ..plan.clone() }.with_bytes(bytes);
            rates.push(moved(&plan)?.bytes_per_s(&plan));
        }
    }
    let full = median(rates[0].clone());
    let ratios = rates.iter().map(|some| {
        let ratios = some.iter().zip(&rates[0]).map(|(one, full)| one / full).collect();
        full * median(ratios)
    });
    Ok(ratios.collect())
}

fn relate(found: &mut Findings, way: &str, rates: Option<&[f64]>) {
    for (at, segments) in SEGMENTS.iter().enumerate().skip(1) {
        let cost = rates.map(|rates| 1.0 - rates[at] / rates[0]);
        let text = format!("cost of {segments} segments ({way}), below 0.1");
        found.relate(text, cost, cost.is_some_and(|cost| cost < COST_MAX));
    }
}

fn rates_json(rates: &[f64]) -> Value {
    let all = SEGMENTS.iter().zip(rates);
    all.map(|(segments, rate)| json!({"segments": segments, "bytes_per_s": rate.round()})).collect()
}
