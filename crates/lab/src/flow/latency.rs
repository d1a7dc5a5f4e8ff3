//! Figures 7.7b and 7.8c: round trips of single tuples, of a shuffle between processes, and of a
//! replication in a simulated network.

use std::time::Duration;

use millstream_dfi::LocalRegistry;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::{Model, Sim, SimDevice};
use serde_json::{Value, json};

use super::bare::round_trip;
use super::clocks::{Turn, nanoseconds, run};
use super::failure::FlowResult;
use super::figure::{Findings, FlowOptions};
use super::mover::{FlowPlan, Movement};
use super::ping::{Client, ClientSetup, PingPlan, Server, ServerSetup};
use super::price::{self, Price, median};
use super::projection::{FREE, MISS_MAX, THESIS};
use super::real::pinged;
use crate::round;

/// Length of the tuples, and their words.
const TUPLE_BYTES: usize = 64;
const WORDS: usize = TUPLE_BYTES / 8;
/// A round trip of a flow may take so many times a bare one.
const BARE: f64 = 1.3;

/// Measures figure 7.7b.
pub(super) fn shuffle(options: &FlowOptions) -> FlowResult<Findings> {
    options.refuse_numbers()?;
    let mut found = Findings::default();
    let device = ShmDevice::open(Token::random()?)?;
    let (turns, rounds) = options.choose((1, 500), (15, 50_000));
    for servers in [1, 4, 8] {
        for processes in [1, 2] {
            let plan = PingPlan {
                movement: Movement::Shuffle,
                processes,
                servers,
                tuple_bytes: TUPLE_BYTES,
                rounds,
            };
            let (mut ratios, mut flows, mut bares) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..turns {
                let bare = round_trip(&device, TUPLE_BYTES, rounds)?;
                let flow = pinged(&plan)?;
                ratios.push(flow / bare);
                flows.push(flow);
                bares.push(bare);
            }
            let ratio = median(ratios);
            found.points.push(json!({
                "processes": processes,
                "targets": servers,
                "tuple_bytes": TUPLE_BYTES,
                "round_trip_ns": round(median(flows), 1),
                "bare_ns": round(median(bares), 1),
                "ratio": round(ratio, 4),
            }));
            if processes == 2 {
                let text = format!("round trips with {servers} targets, times a bare one, to 1.3");
                found.relate(text, Some(ratio), ratio <= BARE);
            }
        }
    }
    Ok(found)
}

/// Prices of the client's requests, and of all answers.
#[derive(Clone, Copy)]
struct PingPrices {
    ask: Price,
    answer: Price,
}

impl PingPrices {
    fn measure(movement: Movement, servers: u32) -> FlowResult<PingPrices> {
        let plan = |movement| FlowPlan {
            latency: true,
            segments: 128,
            ..FlowPlan::new(movement, Vec::new(), TUPLE_BYTES)
        };
        let ask = price::measure::<WORDS>(&plan(movement), servers)?;
        let answer = price::measure::<WORDS>(&plan(Movement::Shuffle), 1)?;
        Ok(PingPrices { ask, answer })
    }
}

/// Measures figure 7.8c.
pub(super) fn replicate(options: &FlowOptions) -> FlowResult<Findings> {
    options.refuse_numbers()?;
    let mut found = Findings::default();
    let (holds, checks) = check(options)?;
    let mut prices_json = Vec::new();
    let (mut times, mut to_one) = (Vec::new(), None);
    for movement in [Movement::Replicate, Movement::Multicast] {
        for servers in [1, 2, 4, 8] {
            // By multicast a request is one post, as over rings to one target.
            let prices = match (movement, to_one) {
                (Movement::Multicast, Some(prices)) => prices,
                _ => PingPrices::measure(movement, servers as u32)?,
            };
            to_one.get_or_insert(prices);
            prices_json.push(json!({
                "movement": movement,
                "targets": servers,
                "ask": prices.ask.json(TUPLE_BYTES),
                "answer": prices.answer.json(TUPLE_BYTES),
            }));
            if !holds {
                continue;
            }
            let rounds = options.choose(20, 2000);
            let (processes, tuple_bytes) = (1, TUPLE_BYTES);
            let plan = PingPlan { movement, processes, servers, tuple_bytes, rounds };
            let time = simulate(&plan, &prices, THESIS)?;
            found.points.push(json!({
                "movement": movement,
                "targets": servers,
                "tuple_bytes": TUPLE_BYTES,
                "round_trip_ns": round(time, 1),
            }));
            times.push(((movement, servers), time));
        }
    }
    found.more.push(("prices", Value::Array(prices_json)));
    found.more.push(("checks", Value::Array(checks)));
    let time = |movement, servers| {
        times.iter().find(|(of, _)| *of == (movement, servers)).map(|(_, time)| *time)
    };
    for (servers, best) in [(1, "rings"), (8, "multicast")] {
        let pair = time(Movement::Multicast, servers).zip(time(Movement::Replicate, servers));
        let ratio = pair.map(|(multicast, naive)| multicast / naive);
        let met = ratio.is_some_and(|ratio| (ratio > 1.0) == (servers == 1));
        let text =
            format!("round trip to {servers} targets, multicast to rings: {best} are faster");
        found.relate(text, ratio, met);
    }
    Ok(found)
}

/// Compares the projection of round trips over rings, to one target, with real runs.
pub(super) fn check(options: &FlowOptions) -> FlowResult<(bool, Vec<Value>)> {
    let (mut holds, mut all) = (true, Vec::new());
    let (turns, rounds) = options.choose((1, 500), (9, 50_000));
    let prices = PingPrices::measure(Movement::Replicate, 1)?;
    for processes in [1, 2] {
        let movement = Movement::Replicate;
        let (servers, tuple_bytes) = (1, TUPLE_BYTES);
        let plan = PingPlan { movement, processes, servers, tuple_bytes, rounds };
        let run = |_| pinged(&plan);
        let measured = median((0..turns).map(run).collect::<FlowResult<Vec<f64>>>()?);
        let projected = simulate(&PingPlan { rounds: 200, ..plan }, &prices, FREE)?;
        let miss = projected / measured - 1.0;
        holds &= miss.abs() <= MISS_MAX;
        all.push(json!({
            "processes": processes,
            "measured_ns": round(measured, 1),
            "projected_ns": round(projected, 1),
            "miss": round(miss, 4),
        }));
    }
    Ok((holds, all))
}

/// The mean round trip in a simulated network, in nanoseconds: each server at a node of its own.
fn simulate(plan: &PingPlan, prices: &PingPrices, model: Model) -> FlowResult<f64> {
    let sim = Sim::new(1);
    let devices: Vec<SimDevice> = (0..=plan.servers).map(|_| sim.node(model)).collect();
    let registry = LocalRegistry::new();
    plan.publish(&registry)?;
    let client = ClientSetup::join(&devices[0], &registry)?;
    let servers = (0..plan.servers).map(|one| ServerSetup::join(one, &devices[1 + one], &registry));
    let servers = servers.collect::<FlowResult<Vec<_>>>()?;
    let mut client: Client<SimDevice, WORDS> = client.connect(plan, &registry)?;
    let connect = |setup: ServerSetup<SimDevice>| setup.connect(&registry);
    let mut servers: Vec<Server<SimDevice, WORDS>> =
        servers.into_iter().map(connect).collect::<FlowResult<_>>()?;
    // A message leaves when the thread's work for the message is done.
    let (mut begun, mut total, mut asking) = (Duration::ZERO, Duration::ZERO, false);
    let take = nanoseconds(prices.answer.take_ns);
    run(&sim, 1 + plan.servers, |thread| {
        if thread > 0 {
            let server = &mut servers[thread - 1];
            if client.is_over() {
                return Ok(Turn::Over);
            }
            let took = match () {
                () if server.answer()? => 0.0,
                () if server.look()? => prices.ask.take_ns + prices.answer.push_ns,
                () => prices.ask.look_ns,
            };
            return Ok(Turn::Took(nanoseconds(took)));
        }
        if client.is_over() {
            return Ok(Turn::Over);
        }
        if asking {
            client.ask()?;
            asking = false;
            return Ok(Turn::Took(Duration::ZERO));
        }
        if client.may_ask() {
            (asking, begun) = (true, sim.now());
            return Ok(Turn::Took(nanoseconds(prices.ask.push_ns)));
        }
        client.progress()?;
        if !client.look()? {
            return Ok(Turn::Took(nanoseconds(prices.answer.look_ns)));
        }
        if client.may_ask() {
            total += sim.now() + take - begun;
        }
        Ok(Turn::Took(take))
    })?;
    Ok(total.as_secs_f64() * 1e9 / plan.rounds.max(1) as f64)
}
