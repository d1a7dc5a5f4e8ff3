//! Figures 7.13 and 7.14: a radix hash join between processes, and a join that replicates the inner
//! relation. `tests/flow_baselines.py` compares the former with MPI.

use serde_json::json;

use super::failure::{FlowFailure, FlowResult};
use super::figure::{Findings, FlowOptions};
use super::job::Job;
use super::join::{JoinPlan, slowest};
use super::price::median;
use super::real::run;
use crate::round;

/// Rows of the outer relation.
const OUTER_ROWS: u64 = 10_000_000;
/// The inner relation has so many times fewer rows in figure 7.14.
const FEWER: u64 = 1000;
/// The replicating join may take so much of the radix join's time.
const REPLICATE: f64 = 0.8;

/// Measures both figures.
pub(super) fn measure(options: &FlowOptions) -> FlowResult<Findings> {
    if options.threads.is_some() || options.tuple_bytes.is_some() {
        let text = "--threads and --tuple-bytes do not go with this figure\n  help: each process \
                    has a sender and a partition, and rows of 16 bytes";
        return Err(FlowFailure::Option(text.into()));
    }
    let processes = options.processes.unwrap_or(2);
    if !processes.is_power_of_two() || processes > 64 {
        return Err(FlowFailure::Option(format!(
            "--processes {processes} does not go with this figure\n  help: use a power of 2 up to 64"
        )));
    }
    let outer_rows = options.tuples.unwrap_or(options.choose(20_000, OUTER_ROWS));
    let few = (outer_rows / FEWER).max(1);
    let plan = |replicate, inner_rows| JoinPlan { processes, replicate, inner_rows, outer_rows };
    let plans = [plan(false, outer_rows), plan(false, few), plan(true, few)];
    let (large, small) = (plans[0].expected(), plans[1].expected());
    let expected = [large, small, small];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..options.turns.unwrap_or(options.choose(1, 9)) {
        for ((plan, expected), times) in plans.iter().zip(expected).zip(&mut times) {
            times.push(slowest(run(&Job::Join(*plan))?, expected)?.as_secs_f64());
        }
    }
    let mut found = Findings::default();
    for ((plan, expected), times) in plans.iter().zip(expected).zip(&times) {
        found.points.push(json!({
            "join": if plan.replicate { "replicate" } else { "radix" },
            "processes": processes,
            "inner_rows": plan.inner_rows,
            "outer_rows": plan.outer_rows,
            "seconds": round(median(times.clone()), 6),
            "pairs": expected.count,
            "sum": expected.sum,
        }));
    }
    let ratio = median(times[2].iter().zip(&times[1]).map(|(one, radix)| one / radix).collect());
    let text = "time of the replicating join to the radix join, inner 1/1000, to 0.8";
    found.relate(text, Some(ratio), ratio <= REPLICATE);
    Ok(found)
}
