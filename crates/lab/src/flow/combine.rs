//! Figure 7.9: a flow that aggregates, from eight nodes to the threads of one.

use millstream_dfi::{Combiner, LocalRegistry};
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::{Model, Sim, SimDevice};
use serde_json::{Value, json};

use super::clocks::{Turn, nanoseconds, run};
use super::combining::{CombinePlan, FLOW, Feeder, combiner, step};
use super::failure::{FlowFailure, FlowResult};
use super::figure::{Findings, FlowOptions};
use super::job::Job;
use super::price::{Price, by_turns, median, moved_by_turns};
use super::projection::{FREE, MISS_MAX, THESIS};
use super::real;
use super::tuples::{TUPLE_BYTES, with_words};
use crate::round;

/// Source nodes. Each has a thread for each target thread.
const SOURCES: u32 = 8;
/// Bytes of a segment.
const SEGMENT: usize = 8192;
/// A link counts as full from this share of its rate.
const FULL: f64 = 0.95;
/// Length of the tuples of the relation. The thesis does not say the figure's length; its shuffle
/// fills a link from 2 threads with tuples of more than 128 bytes.
const RELATED_BYTES: usize = 256;

/// Measures the figure.
pub(super) fn measure(options: &FlowOptions) -> FlowResult<Findings> {
    options.refuse_numbers()?;
    let mut found = Findings::default();
    let (mut prices, mut checks, mut least) = (Vec::new(), Vec::new(), None);
    let lengths = options.choose(&[RELATED_BYTES][..], &TUPLE_BYTES[..]);
    for tuple_bytes in lengths.iter().copied() {
        let shares = with_words!(tuple_bytes, WORDS => {
            let price = price::<WORDS>()?;
            prices.push(price.json(tuple_bytes));
            match check::<WORDS>(&price, options, &mut checks)? {
                true => Ok(Some(project::<WORDS>(&price, options, &mut found.points)?)),
                false => Ok(None),
            }
        })?;
        if tuple_bytes == RELATED_BYTES {
            least = shares.and_then(|shares: Vec<f64>| shares.into_iter().skip(1).reduce(f64::min));
        }
    }
    let text = format!(
        "least share of the link into the node from 2 threads, {RELATED_BYTES} bytes, from 0.95"
    );
    found.relate(text, least, least.is_some_and(|least| least >= FULL));
    found.more.push(("link_bytes_per_s", json!(THESIS.bytes_per_s)));
    found.more.push(("prices", Value::Array(prices)));
    found.more.push(("checks", Value::Array(checks)));
    Ok(found)
}

/// The prices of pushing a tuple and of aggregating one.
fn price<const W: usize>() -> FlowResult<Price> {
    let tuples = (16 * SEGMENT / (8 * W)) as u64;
    let all = moved_by_turns(tuples);
    let plan = CombinePlan { processes: 1, sources: 1, tuple_bytes: 8 * W, tuples: all };
    let (device, registry) = (ShmDevice::open(Token::random()?)?, LocalRegistry::new());
    plan.publish(FLOW, &registry)?;
    let source = plan.join_source((FLOW, 0), &device, &registry)?;
    let target = plan.join_target(FLOW, &device, &registry)?;
    let source = source.connect(&registry, super::mover::PATIENCE)?;
    let mut feeder: Feeder<ShmDevice, W> = Feeder::new(source, all);
    let mut combiner = combiner(target, &registry)?;
    let mut take = || {
        let mut taken = 0;
        loop {
            let (more, is_over) = step(&mut combiner, 8 * W)?;
            taken += more;
            if more == 0 || is_over {
                return Ok(taken);
            }
        }
    };
    let (push_ns, take_ns) = by_turns(|| feeder.turn(tuples), &mut take)?;
    let looks = std::time::Instant::now();
    for _ in 0..1000 {
        take()?;
    }
    let look_ns = looks.elapsed().as_secs_f64() * 1e9 / 1000.0;
    while !feeder.closed {
        feeder.turn(tuples)?;
        take()?;
    }
    plan.check(&combiner)?;
    Ok(Price { push_ns, take_ns, look_ns })
}

/// Compares the projection of a source and a target with real runs.
fn check<const W: usize>(
    price: &Price,
    options: &FlowOptions,
    checks: &mut Vec<Value>,
) -> FlowResult<bool> {
    let mut holds = true;
    let (turns, bytes) = options.choose((1, 1 << 20), (5, 128 << 20));
    for processes in [1, 2] {
        let tuples = bytes / (8 * W as u64);
        let plan = CombinePlan { processes, sources: 1, tuple_bytes: 8 * W, tuples };
        let rate = |_| {
            let ends = real::run(&Job::Combine(plan))?;
            let slowest = ends.iter().filter_map(Value::as_u64).max().unwrap_or(u64::MAX);
            Ok(bytes as f64 * 1e9 / slowest as f64)
        };
        let measured = median((0..turns).map(rate).collect::<FlowResult<Vec<f64>>>()?);
        let projected = simulate::<W>(&plan, 1, price, FREE)?;
        let miss = projected / measured - 1.0;
        holds &= miss.abs() <= MISS_MAX;
        checks.push(json!({
            "tuple_bytes": 8 * W,
            "processes": processes,
            "measured_bytes_per_s": measured.round(),
            "projected_bytes_per_s": projected.round(),
            "miss": round(miss, 4),
        }));
    }
    Ok(holds)
}

/// The shares of the link into the node, by target threads.
fn project<const W: usize>(
    price: &Price,
    options: &FlowOptions,
    points: &mut Vec<Value>,
) -> FlowResult<Vec<f64>> {
    let mut shares = Vec::new();
    for threads in [1, 2, 4] {
        let bytes = options.choose(2 << 20, 64 << 20);
        let tuples = bytes / u64::from(SOURCES * threads) / (8 * W as u64);
        let plan = CombinePlan { processes: 1, sources: SOURCES, tuple_bytes: 8 * W, tuples };
        let rate = simulate::<W>(&plan, threads, price, THESIS)?;
        let share = rate / THESIS.bytes_per_s as f64;
        points.push(json!({
            "threads": threads,
            "tuple_bytes": 8 * W,
            "bytes_per_s": rate.round(),
            "of_link": round(share, 4),
        }));
        shares.push(share);
    }
    Ok(shares)
}

/// The rate in bytes a second into a node with so many target threads. Each has a flow of its own,
/// and a source at each other node.
fn simulate<const W: usize>(
    plan: &CombinePlan,
    threads: u32,
    price: &Price,
    model: Model,
) -> FlowResult<f64> {
    let sim = Sim::new(1);
    let devices: Vec<SimDevice> = (0..=plan.sources).map(|_| sim.node(model)).collect();
    let registry = LocalRegistry::new();
    let (mut feeders, mut combiners): (Vec<Feeder<SimDevice, W>>, Vec<Combiner<SimDevice>>) =
        (Vec::new(), Vec::new());
    for thread in 0..threads {
        let name = format!("{FLOW} {thread}");
        plan.publish(&name, &registry)?;
        let source = |number: u32| {
            plan.join_source((&name, number), &devices[1 + number as usize], &registry)
        };
        let sources = (0..plan.sources).map(source).collect::<FlowResult<Vec<_>>>()?;
        let target = plan.join_target(&name, &devices[0], &registry)?;
        for source in sources {
            let source = source.connect(&registry, super::mover::PATIENCE)?;
            feeders.push(Feeder::new(source, plan.tuples));
        }
        combiners.push(combiner(target, &registry)?);
    }
    let most = (SEGMENT / (8 * W)) as u64;
    let sources = feeders.len();
    let time = run(&sim, sources + combiners.len(), |thread| {
        let (count, each, is_over) = if thread < sources {
            let pushed = feeders[thread].turn(most)?;
            (pushed, price.push_ns, feeders[thread].closed)
        } else {
            let (taken, is_over) = step(&mut combiners[thread - sources], 8 * W)?;
            (taken, price.take_ns, is_over)
        };
        let took = if count == 0 { price.look_ns } else { count as f64 * each };
        Ok(if is_over { Turn::Over } else { Turn::Took(nanoseconds(took)) })
    })?;
    for combiner in &combiners {
        plan.check(combiner)?;
    }
    if combiners.is_empty() {
        return Err(FlowFailure::Option("no thread combines".into()));
    }
    let tuples = plan.tuples * u64::from(plan.sources * threads);
    Ok(tuples as f64 * plan.tuple_bytes as f64 / time.as_secs_f64())
}
