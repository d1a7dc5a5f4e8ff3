//! Tests of projections. The rows are those of a sequential run. With given prices, the time is
//! always the same; it is no less than the work takes on the given processors, and no more than one
//! processor needs for all of it.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_contract::Settings;
use millstream_contract::settings::Exchange;
use millstream_contract::sink::{RowOrder, Sink};
use millstream_engine::projection::{
    Costs, Kind, Machine, Price, Projected, Projection, Shared, measure, project,
};
use millstream_fabric::sim::Model;
use millstream_flow::channel::Settings as Channels;
use support::*;

const EXCHANGES: [Exchange; 3] =
    [Exchange::LateMerge, Exchange::Repartition, Exchange::Interleaved];

struct Case {
    query: millstream_contract::plan::Plan,
    settings: Settings,
    expected: Vec<String>,
    records: u64,
}

fn case(seed: u64, exchange: Exchange, workers: usize) -> Case {
    let mut random = Random::new(seed);
    let (splits, per_split) = (4, 3_000);
    let data = records(&mut random, splits, per_split, 200);
    let source = table(&data, &mut random, 300);
    let (expected, ..) = oracle(&data, Some(1000), 100_000, 0);
    let settings = Settings { workers, exchange, memory_bytes: 1 << 30, ..Settings::default() };
    let query = query(source, Some(1000), 100_000);
    Case { query, settings, expected, records: (splits * per_split) as u64 }
}

fn sinks(processes: usize) -> (Vec<Arc<Collect>>, Vec<Arc<dyn Sink>>) {
    let sinks: Vec<_> = (0..processes)
        .map(|_| Arc::new(Collect { order: RowOrder::Deterministic, batches: Mutex::default() }))
        .collect();
    let given = sinks.iter().map(|sink| sink.clone() as Arc<dyn Sink>).collect();
    (sinks, given)
}

fn same(rows: &[String], expected: &[String], what: &str) {
    let differing = rows.iter().zip(expected).find(|(a, b)| a != b);
    assert!(differing.is_none(), "{what}\n  first difference: {differing:?}");
    assert_eq!(rows.len(), expected.len(), "{what}\n  rows and expected rows");
}

impl Case {
    fn job(&self) -> Projected<'_> {
        let channels = Channels { slots: 4, slot_bytes: 4096, ..Channels::default() };
        Projected { plan: &self.query, settings: &self.settings, channels }
    }

    /// The projection, whose rows have been compared.
    fn project(&self, processes: usize, machine: &Machine, costs: &Costs) -> Projection {
        let (sinks, given) = sinks(processes);
        let found = project(self.job(), &given, machine, costs).unwrap();
        let rows: Vec<String> = sinks[0].batches.lock().unwrap().iter().flat_map(lines).collect();
        same(&rows, &self.expected, &format!("{:?}, {machine:?}", self.settings));
        assert_eq!(found.stats.iter().map(|stats| stats.records).sum::<u64>(), self.records);
        found
    }
}

fn machine(processors: Option<usize>) -> Machine {
    Machine {
        processors: processors.map(|number| Shared { number, slice: Duration::from_micros(100) }),
        network: Model::default(),
        wake: Duration::from_micros(5),
        waking: Duration::from_micros(2),
    }
}

/// Made up: a microsecond for a record, and something for all else.
fn costs() -> Costs {
    let price = |span_ns, unit_ns| Price { span_ns, unit_ns };
    Costs::given(&[
        (Kind::Step, price(200.0, 0.0)),
        (Kind::Batch, price(0.0, 1000.0)),
        (Kind::Partition, price(0.0, 100.0)),
        (Kind::Update, price(0.0, 300.0)),
        (Kind::Merge, price(50.0, 200.0)),
        (Kind::Seal, price(500.0, 0.0)),
        (Kind::Combine, price(0.0, 100.0)),
        (Kind::Fire, price(0.0, 50.0)),
        (Kind::Post, price(300.0, 0.1)),
        (Kind::Send, price(300.0, 0.1)),
        (Kind::Receive, price(100.0, 0.1)),
        (Kind::Look, price(20.0, 0.0)),
    ])
}

#[test]
fn a_projection_follows_from_its_prices() {
    for exchange in EXCHANGES {
        for (processes, workers) in [(1, 1), (1, 2), (2, 1), (4, 1), (3, 2)] {
            let case = case(7, exchange, workers);
            let all = (processes * workers) as f64;
            let once = case.project(processes, &machine(None), &costs());
            let again = case.project(processes, &machine(None), &costs());
            assert_eq!((once.time, once.busy), (again.time, again.busy), "{exchange:?}");
            assert_eq!(once.stats, again.stats);
            // Its records take a microsecond each, and not all of them can be taken in at once.
            let work = Duration::from_micros(case.records).as_secs_f64();
            let time = once.time.as_secs_f64();
            assert!(time >= work / all, "{exchange:?}: {:?}", once.time);
            assert!(0.0 < once.busy && once.busy <= 1.0, "{}", once.busy);
            // On one processor it takes at least what the work takes, and that is all that one is
            // busy with.
            let shared = case.project(processes, &machine(Some(1)), &costs());
            let (shared_time, busy) = (shared.time.as_secs_f64(), shared.busy * all);
            assert!(shared_time >= work && busy <= 1.0 + 1e-9, "{exchange:?}: {shared:?}");
            assert!(shared_time >= time * 0.9, "{exchange:?}: {:?} {:?}", shared.time, once.time);
        }
    }
}

#[test]
fn dearer_work_and_slower_networks_take_longer() {
    for exchange in EXCHANGES {
        let case = case(8, exchange, 1);
        let time = |machine: &Machine, costs: &Costs| case.project(2, machine, costs).time;
        let plain = time(&machine(None), &costs());
        let dear = costs().with(Kind::Batch, Price { span_ns: 0.0, unit_ns: 3000.0 });
        assert!(time(&machine(None), &dear) > plain, "{exchange:?}");
        let network = Model { bytes_per_s: 1_000_000, ..Model::default() };
        let slow = Machine { network, ..machine(None) };
        assert!(time(&slow, &costs()) > plain, "{exchange:?}");
    }
}

/// Who has nothing to do for long pays for waking up, and so does who wakes it.
#[test]
fn waking_up_takes_time() {
    let case = case(8, Exchange::Repartition, 1);
    let time = |machine: &Machine| case.project(2, machine, &costs()).time;
    let plain = Machine { wake: Duration::ZERO, waking: Duration::ZERO, ..machine(None) };
    let long = Duration::from_millis(1);
    assert!(time(&Machine { wake: long, ..plain }) > time(&plain));
    assert!(time(&Machine { waking: long, ..plain }) > time(&plain));
}

#[test]
fn between_two_costs_is_a_share_of_the_way() {
    let costs = |span_ns, unit_ns| Costs::given(&[(Kind::Batch, Price { span_ns, unit_ns })]);
    let (low, high) = (costs(10.0, 2.0), costs(30.0, 1.0));
    let price = |share| low.clone().towards(&high, share).price(Kind::Batch);
    assert_eq!(price(0.25), Price { span_ns: 15.0, unit_ns: 1.75 });
    assert_eq!([price(-1.0), price(2.0)], [low.price(Kind::Batch), high.price(Kind::Batch)]);
}

#[test]
fn steps_of_the_real_code_have_prices() {
    for (exchange, kinds) in [
        (Exchange::LateMerge, &[Kind::Merge, Kind::Seal][..]),
        (Exchange::Repartition, &[Kind::Partition, Kind::Update]),
    ] {
        let case = case(9, exchange, 1);
        let (sinks, given) = sinks(2);
        let costs = measure(case.job(), &given).unwrap();
        let rows: Vec<String> = sinks[0].batches.lock().unwrap().iter().flat_map(lines).collect();
        same(&rows, &case.expected, "measured");
        let work = [Kind::Step, Kind::Prepare, Kind::Batch, Kind::Fire];
        for kind in work.iter().chain(kinds) {
            let Price { span_ns, unit_ns } = costs.price(*kind);
            assert!(span_ns + unit_ns > 0.0 && costs.share(*kind) > 0.0, "{kind:?}: {costs:?}");
        }
        let all: f64 = Kind::ALL.into_iter().map(|kind| costs.share(kind)).sum();
        assert!((all - 1.0).abs() < 1e-9);
        let of_fabric = Kind::ALL.into_iter().filter(|kind| kind.of_fabric());
        assert!(of_fabric.into_iter().all(|kind| costs.price(kind) == Price::default()));
        let first = case.project(2, &machine(Some(2)), &costs);
        assert_eq!(first.time, case.project(2, &machine(Some(2)), &costs).time);
    }
}
