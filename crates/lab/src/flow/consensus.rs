//! Figure 7.15: the stores of the example program `kv_store` in a simulated network, with rates and
//! times by outstanding requests of a client.

use std::time::Duration;

use serde_json::{Value, json};

use self::store::{Load, Pace, Plan, Prices, Report, Way, contradiction, run};
use super::failure::{FlowFailure, FlowResult};
use super::figure::{Findings, FlowOptions};
use super::latency::check;
use super::mover::{FlowPlan, Movement};
use super::price;
use super::projection::THESIS;
use super::tally::Tally;
use crate::round;

#[allow(dead_code, unused_imports, reason = "the example program uses the rest")]
#[path = "../../../dfi/examples/kv_store/mod.rs"]
mod store;

/// Length of a request, and its words.
const TUPLE_BYTES: usize = 64;
const WORDS: usize = TUPLE_BYTES / 8;
/// The thesis' set-up.
const FOLLOWERS: usize = 4;
const CLIENTS: usize = 6;
const CLIENT_NODES: usize = 3;
const WRITES: usize = 5;
/// Turns after which a store has got stuck.
const STEPS_MAX: u64 = 1_000_000_000;
/// Times without load may differ so much.
const DIFFERENCE: f64 = 0.1;
/// NOPaxos has to reach so many times the rate of Multi-Paxos.
const TIMES: f64 = 1.9;

/// Clients, and requests that each has outstanding.
type Clients = (usize, usize);

/// The loads of the figure. The first is hardly any.
const LOADS: [Clients; 8] = [
    (1, 1),
    (CLIENTS, 1),
    (CLIENTS, 2),
    (CLIENTS, 4),
    (CLIENTS, 8),
    (CLIENTS, 16),
    (CLIENTS, 32),
    (CLIENTS, 64),
];

const SHORT: [Clients; 2] = [LOADS[0], LOADS[4]];

/// A store's rate in requests a second, and the mean time to an answer.
#[derive(Clone, Copy)]
struct Point {
    way: Way,
    load: Clients,
    rate: f64,
    mean_us: f64,
}

/// Measures the figure.
pub(super) fn measure(options: &FlowOptions) -> FlowResult<Findings> {
    options.refuse_numbers()?;
    let mut found = Findings::default();
    let (holds, checks) = check(options)?;
    let plan = FlowPlan::new(Movement::Shuffle, Vec::new(), TUPLE_BYTES);
    let price = price::measure::<WORDS>(&FlowPlan { latency: true, segments: 128, ..plan }, 1)?;
    found.more.push(("prices", json!([price.json(TUPLE_BYTES)])));
    found.more.push(("checks", Value::Array(checks)));
    let prices = Prices { push_ns: price.push_ns, take_ns: price.take_ns, look_ns: price.look_ns };
    let mut points = Vec::new();
    let loads = options.choose(&SHORT[..], &LOADS[..]);
    for way in [Way::Paxos, Way::NoPaxos, Way::Dare] {
        // A client of DARE has one request outstanding.
        let fits = |load: &Clients| holds && (way != Way::Dare || load.1 == 1);
        for load in loads.iter().copied().filter(fits) {
            points.push(point(way, load, prices, options)?);
        }
    }
    found.points = points.iter().map(Point::json).collect();
    relate(&mut found, &points);
    Ok(found)
}

impl Point {
    fn json(&self) -> Value {
        json!({
            "store": match self.way {
                Way::Paxos => "Multi-Paxos",
                Way::NoPaxos => "NOPaxos",
                Way::Dare => "stand-in after DARE",
            },
            "clients": self.load.0,
            "outstanding": self.load.1,
            "requests_per_s": self.rate.round(),
            "mean_us": round(self.mean_us, 3),
        })
    }
}

/// Runs a store, and checks that the answers are linearizable.
fn point(
    way: Way,
    of_clients: Clients,
    prices: Prices,
    options: &FlowOptions,
) -> FlowResult<Point> {
    let (requests, (clients, outstanding)) = (options.choose(50, 5000), of_clients);
    let keys = requests as usize * clients;
    let load = Load { requests, outstanding, keys, writes: WRITES, again: None };
    let plan = Plan {
        seed: 1,
        followers: FOLLOWERS,
        clients,
        load,
        model: THESIS,
        segments: 128,
        stop: None,
        silence: Duration::from_millis(750),
        steps_max: STEPS_MAX,
        pace: Pace::Clocks(prices),
        client_nodes: CLIENT_NODES.min(clients),
    };
    let report: Report = run(way, &plan)?;
    let all = requests * clients as u64;
    let answered = report.history.iter().filter(|one| one.answered.is_some()).count() as u64;
    let wrong = contradiction(&report.history).is_some() || !report.logs_agree;
    if wrong || answered != all {
        let tally = |count| Tally { count, sum: u64::from(wrong) };
        return Err(FlowFailure::Answer { expected: tally(all), found: tally(answered) });
    }
    Ok(Point {
        way,
        load: of_clients,
        rate: all as f64 / report.ended.as_secs_f64(),
        mean_us: report.waited.as_secs_f64() * 1e6 / all as f64,
    })
}

fn relate(found: &mut Findings, points: &[Point]) {
    let of = |way| points.iter().filter(move |point| point.way == way);
    let most = |way| of(way).map(|point| point.rate).reduce(f64::max);
    let first = |way| of(way).next().map(|point| point.mean_us);
    let ratio = |pair: Option<(f64, f64)>| pair.map(|(one, other)| one / other);
    let times = ratio(first(Way::NoPaxos).zip(first(Way::Paxos)));
    let text = "time to an answer of 1 client with 1 request, NOPaxos to Multi-Paxos, 0.9 to 1.1";
    found.relate(text, times, times.is_some_and(|times| (times - 1.0).abs() <= DIFFERENCE));
    let rates = ratio(most(Way::NoPaxos).zip(most(Way::Paxos)));
    let text = "greatest rate, NOPaxos to Multi-Paxos, from 1.9";
    found.relate(text, rates, rates.is_some_and(|times| times >= TIMES));
    for (way, name) in [(Way::Paxos, "Multi-Paxos"), (Way::NoPaxos, "NOPaxos")] {
        let above = ratio(most(way).zip(most(Way::Dare)));
        let text = format!("greatest rate, {name} to the stand-in after DARE, above 1");
        found.relate(text, above, above.is_some_and(|times| times > 1.0));
    }
}
