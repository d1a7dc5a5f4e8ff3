//! Figures 7.10 to 7.12: flows between processes. `tests/flow_baselines.py` compares them with MPI.

use serde_json::json;

use super::failure::{FlowFailure, FlowResult};
use super::figure::{Findings, FlowOptions};
use super::mover::{FlowPlan, Movement, Mover};
use super::price::median;
use super::real::moved;
use super::tuples::{TUPLE_BYTES, check};
use crate::round;

/// Bytes of all sources together, and most tuples of a source.
const BYTES: u64 = 512 << 20;
/// Microseconds to compute over 32 KiB; a straggler takes twice as long.
const COMPUTE_US: f64 = 10.0;

/// Runs a plan with each length of tuples, or the one that was asked for.
fn lengths(
    options: &FlowOptions,
    plan: impl Fn(usize) -> FlowPlan,
    found: &mut Findings,
) -> FlowResult<Vec<f64>> {
    let all = options.choose(&TUPLE_BYTES[..1], &TUPLE_BYTES[..]);
    let one = options.tuple_bytes.map(|bytes| vec![bytes]);
    let mut seconds = Vec::new();
    for tuple_bytes in one.unwrap_or(all.to_vec()) {
        check(tuple_bytes)?;
        let plan = plan(tuple_bytes).with_bytes(options.choose(1 << 20, BYTES));
        let tuples = options.tuples.unwrap_or(plan.tuples);
        let plan = FlowPlan { tuples, ..plan };
        let mut times = Vec::new();
        for _ in 0..options.turns.unwrap_or(options.choose(1, 5)) {
            times.push(moved(&plan)?.time.as_secs_f64());
        }
        let time = median(times);
        let all = (tuples * plan.threads(true).count() as u64) as f64;
        found.points.push(json!({
            "processes": plan.nodes(),
            "threads": options.threads.unwrap_or(1),
            "tuple_bytes": tuple_bytes,
            "tuples": tuples,
            "compute_us": plan.compute_us,
            "straggler_us": plan.straggler_us,
            "seconds": round(time, 6),
            "mrec_per_s": round(all / time / 1e6, 3),
            "bytes_per_s": (all * tuple_bytes as f64 / time).round(),
        }));
        seconds.push(time);
    }
    Ok(seconds)
}

/// The processes that were asked for.
fn processes(options: &FlowOptions, multiple: usize) -> FlowResult<u32> {
    let processes = options.processes.unwrap_or(2);
    match processes.is_multiple_of(multiple) && processes <= 64 {
        true => Ok(processes as u32),
        false => Err(FlowFailure::Option(format!(
            "--processes {processes} does not go with this figure\n  help: use an even number up \
             to 64"
        ))),
    }
}

/// Measures figure 7.10: each thread of the first half of the processes sends to a thread of the
/// other half.
pub(super) fn point_to_point(options: &FlowOptions) -> FlowResult<Findings> {
    let mut found = Findings::default();
    let (processes, threads) = (processes(options, 2)?, options.threads.unwrap_or(1));
    let mover = |at: u32| {
        let source = at < processes / 2;
        let mover = Mover { node: at, source, targets: u32::from(!source) };
        std::iter::repeat_n(mover, threads)
    };
    let movers: Vec<Mover> = (0..processes).flat_map(mover).collect();
    lengths(options, |bytes| FlowPlan::new(Movement::Pairs, movers.clone(), bytes), &mut found)?;
    Ok(found)
}

/// Each process sends to all, with a thread for both.
fn all_to_all(options: &FlowOptions, tuple_bytes: usize) -> FlowResult<FlowPlan> {
    if options.threads.is_some() {
        let text = "--threads does not go with this figure\n  help: each process has one thread";
        return Err(FlowFailure::Option(text.into()));
    }
    let movers = (0..processes(options, 1)?).map(|node| Mover { node, source: true, targets: 1 });
    Ok(FlowPlan::new(Movement::Shuffle, movers.collect(), tuple_bytes))
}

/// Measures figure 7.11.
pub(super) fn collective(options: &FlowOptions) -> FlowResult<Findings> {
    let mut found = Findings::default();
    let plan = all_to_all(options, TUPLE_BYTES[0])?;
    lengths(options, |tuple_bytes| FlowPlan { tuple_bytes, ..plan.clone() }, &mut found)?;
    Ok(found)
}

/// Measures figure 7.12: computing receivers, without and with a straggler of half the speed.
pub(super) fn straggler(options: &FlowOptions) -> FlowResult<Findings> {
    let mut found = Findings::default();
    let plan = FlowPlan { compute_us: COMPUTE_US, ..all_to_all(options, TUPLE_BYTES[0])? };
    let options = FlowOptions { tuple_bytes: options.tuple_bytes.or(Some(16)), ..*options };
    let mut times = Vec::new();
    for straggler_us in [None, Some(2.0 * COMPUTE_US)] {
        let plan = FlowPlan { straggler_us, ..plan.clone() };
        let plan = |tuple_bytes| FlowPlan { tuple_bytes, ..plan.clone() };
        times.extend(lengths(&options, plan, &mut found)?);
    }
    if let [even, uneven] = times[..] {
        found.more.push(("cost", json!(round(uneven / even - 1.0, 4))));
    }
    Ok(found)
}
