//! Combine flows: aggregates by group, over any fabric.

use std::collections::HashMap;

use crate::common::{Chance, connect, shm, simulated, tcp, threads};
use millstream_dfi::{
    Aggregate, Combined, Combiner, Error, Flow, Group, Schema, Source, Thread, Value,
};
use millstream_fabric::Fabric;
use millstream_fabric::sim::Model;
use millstream_state::{ValueKind, histogram_quantile, list_elements, registers_estimate};

millstream_dfi::tuple! {
    struct Sale { shop: u64, price: i64, weight: f64, large: u64, city: [u8; 4], count: i32 }
}

const SHOPS: u64 = 40;

fn sale(source: u64, number: u64) -> Sale {
    let mut chance = Chance(source << 32 | number);
    let price = chance.below(2000) as i64 - 1000;
    Sale {
        shop: chance.below(SHOPS as usize) as u64,
        price,
        weight: price as f64 / 7.0,
        large: u64::MAX - chance.below(100) as u64,
        city: [b'a' + (number % 3) as u8, b'x', 0, 0],
        count: -(price as i32),
    }
}

fn schema() -> Schema {
    <Sale as millstream_dfi::Tuple>::schema()
}

/// Runs a flow of `sources` sources, each with so many sales, and gives the groups to `read`.
fn combined<F: Fabric>(
    devices: &[F],
    (sources, sales): (usize, u64),
    (group_by, aggregates): (&[&str], &[Aggregate]),
    mut idle: impl FnMut(),
    read: impl FnOnce(&Combiner<F>),
) {
    let lists = (threads(sources, devices.len(), 0), [Thread::new(0, 100)]);
    let flow = Flow::combine("f").schema(schema());
    let mut ends = connect(devices, flow, (&lists.0, &lists.1)).unwrap();
    let target = ends.targets.pop().unwrap();
    let mut combiner = Combiner::new(target, group_by, aggregates).unwrap();
    let mut pushed = vec![0; sources];
    let mut push = |at: usize, source: &mut Source<F>| {
        if pushed[at] == sales {
            source.try_close().unwrap();
        } else {
            let went = source.try_push(&sale(at as u64, pushed[at])).unwrap();
            pushed[at] += u64::from(went);
        }
    };
    loop {
        ends.sources.iter_mut().enumerate().for_each(|(at, source)| push(at, source));
        idle();
        if combiner.try_step().unwrap() == Combined::End {
            break;
        }
    }
    read(&combiner);
}

/// What a group should say: count; sum, least and greatest of prices; greatest large number.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Expected {
    count: u64,
    sum: i128,
    least: i64,
    greatest: i64,
    large: i128,
}

fn expected(sources: u64, sales: u64) -> HashMap<u64, Expected> {
    let mut groups = HashMap::new();
    for one in (0..sources).flat_map(|source| (0..sales).map(move |number| sale(source, number))) {
        let empty = Expected { count: 0, sum: 0, least: i64::MAX, greatest: i64::MIN, large: 0 };
        let group = groups.entry(one.shop).or_insert(empty);
        group.count += 1;
        group.sum += i128::from(one.price);
        group.least = group.least.min(one.price);
        group.greatest = group.greatest.max(one.price);
        group.large = group.large.max(one.large.into());
    }
    groups
}

fn found(group: &Group<'_>) -> Expected {
    let integer = |at: usize| match group.value(at).unwrap() {
        Value::Integer(value) => value,
        other => panic!("{other:?}"),
    };
    let Some(Value::Count(count)) = group.value(0) else { panic!("no count") };
    Expected {
        count,
        sum: integer(1),
        least: integer(2) as i64,
        greatest: integer(3) as i64,
        large: integer(4),
    }
}

/// The usual functions, over these devices.
fn sums_counts_and_extremes<F: Fabric>(devices: &[F], idle: impl FnMut()) {
    let aggregates = [
        Aggregate::count(),
        Aggregate::sum("price"),
        Aggregate::min("price"),
        Aggregate::max("price"),
        Aggregate::max("large"),
    ];
    combined(devices, (3, 2000), (&["shop"], &aggregates), idle, |combiner| {
        let groups: HashMap<u64, Expected> =
            combiner.rows().map(|group| (group.key::<u64>(0).unwrap(), found(&group))).collect();
        assert_eq!(groups, expected(3, 2000));
        assert_eq!(groups.len() as u64, SHOPS);
    });
}

#[test]
fn sim_sums_counts_and_extremes() {
    let (sim, devices) = simulated(1, Model::default(), 2);
    sums_counts_and_extremes(&devices, || {
        sim.step();
    });
}

#[test]
fn shm_and_tcp_sums_counts_and_extremes() {
    sums_counts_and_extremes(&shm(1), || {});
    sums_counts_and_extremes(&tcp(2), || {});
}

/// Whatever the number of sources, and so the order of arrival, sums of floats are the same.
#[test]
fn sums_of_floats_do_not_depend_on_the_order() {
    let mut sums = Vec::new();
    for seed in 0..4 {
        let model =
            Model { latency: std::time::Duration::from_micros(1 + seed), ..Model::default() };
        let (sim, devices) = simulated(seed, model, 3);
        let aggregates = [Aggregate::sum("weight"), Aggregate::min("weight")];
        let step = || {
            sim.step();
        };
        combined(&devices, (3, 1000), (&[], &aggregates), step, |combiner| {
            let rows: Vec<_> = combiner.rows().collect();
            assert_eq!(rows.len(), 1, "one group without attributes");
            let (Some(Value::Float(sum)), Some(Value::Float(least))) =
                (rows[0].value(0), rows[0].value(1))
            else {
                panic!("no floats")
            };
            let all = (0..3).flat_map(|source| (0..1000).map(move |number| sale(source, number)));
            assert_eq!(least, all.map(|one| one.weight).fold(f64::INFINITY, f64::min));
            sums.push(sum.to_bits());
        });
    }
    assert!(sums.windows(2).all(|two| two[0] == two[1]), "{sums:?}");
}

/// Groups of several attributes, and kinds of value beyond numbers.
#[test]
fn any_kind_of_value() {
    let (sim, devices) = simulated(1, Model::default(), 1);
    let aggregates = [
        Aggregate::of(ValueKind::Registers, "shop"),
        Aggregate::of(ValueKind::Histogram, "price"),
        Aggregate::of(ValueKind::BitOr, "count"),
        Aggregate::min("city"),
        Aggregate::of(ValueKind::List, "city"),
        Aggregate::sum("count"),
    ];
    let step = || {
        sim.step();
    };
    combined(&devices, (1, 900), (&["city", "shop"], &aggregates), step, |combiner| {
        let mut tuples = 0;
        for group in combiner.rows() {
            let (city, shop) = (group.key::<[u8; 4]>(0).unwrap(), group.key::<u64>(1).unwrap());
            assert!(group.key::<i64>(1).is_none(), "another type");
            let all = (0..900).map(|number| sale(0, number));
            let own: Vec<Sale> = all.filter(|one| (one.city, one.shop) == (city, shop)).collect();
            let bytes = |at: usize| match group.value(at) {
                Some(Value::Bytes(bytes)) => bytes,
                other => panic!("{other:?}"),
            };
            assert_eq!(registers_estimate(bytes(0)), 1);
            let median = histogram_quantile(bytes(1), 0.0).unwrap();
            let least = own.iter().map(|one| one.price).min().unwrap() as f64;
            assert!((median - least).abs() <= 0.02 * least.abs(), "{median}, not {least}");
            let bits = own.iter().fold(0, |bits, one| bits | i64::from(one.count) as u64);
            assert_eq!(group.value(2), Some(Value::Bits(bits)));
            assert_eq!(bytes(3), city);
            assert_eq!(list_elements(bytes(4)).count(), own.len());
            let sum = own.iter().map(|one| i128::from(one.count)).sum();
            assert_eq!(group.value(5), Some(Value::Integer(sum)));
            tuples += own.len();
        }
        assert_eq!(tuples, 900);
    });
}

#[test]
fn functions_that_do_not_fit_are_refused() {
    let (_sim, devices) = simulated(1, Model::default(), 1);
    for (group_by, aggregate, text) in [
        (&["shop"][..], Aggregate::sum("city"), "no attribute \"city\" of type a number"),
        (&["shop"], Aggregate::sum("nothing"), "no attribute \"nothing\""),
        (&["nothing"], Aggregate::count(), "no attribute \"nothing\""),
        (&["shop"], Aggregate::of(ValueKind::BitOr, "weight"), "of type integer"),
        (&["shop"], Aggregate::of(ValueKind::Set, "shop"), "of type element"),
    ] {
        let flow = Flow::combine("f").schema(schema());
        let lists = ([Thread::new(0, 0)], [Thread::new(0, 100)]);
        let mut ends = connect(&devices, flow, (&lists.0, &lists.1)).unwrap();
        let target = ends.targets.pop().unwrap();
        let error = Combiner::new(target, group_by, &[aggregate]).err().unwrap();
        assert!(matches!(error, Error::NoAttribute { .. }));
        assert!(error.to_string().contains(text), "{error}");
    }
}
