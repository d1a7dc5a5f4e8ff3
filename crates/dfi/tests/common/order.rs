//! Checks of the order in which targets consume.

use std::collections::HashSet;
use std::time::Duration;

use millstream_dfi::Flow;
use millstream_fabric::Fabric;

use super::{Consumption, Ends, Outcome, Row, connect, threads};

/// Why targets did not consume in one order. With gaps, a place may be a gap at some of them.
pub(crate) fn disorder(orders: &[Vec<Consumption>]) -> Option<String> {
    let places = orders.iter().map(Vec::len).max().unwrap_or(0);
    for place in 0..places {
        let mut tuple = None;
        for (target, order) in orders.iter().enumerate() {
            match order.get(place) {
                None => return Some(format!("target {target} has nothing in place {place}")),
                Some(Consumption::Gap(number)) if *number == place as u64 => {}
                Some(Consumption::Gap(number)) => {
                    return Some(format!("target {target} names gap {number} in place {place}"));
                }
                Some(one) if *tuple.get_or_insert(*one) == *one => {}
                Some(one) => return Some(format!("place {place}: {tuple:?} and {one:?}")),
            }
        }
    }
    None
}

/// Whether the targets but one have consumed the beginning of one order.
pub(crate) fn begins_in_one_order(outcome: &Outcome, without: Option<usize>) -> bool {
    let living = outcome.orders.iter().enumerate().filter(|(at, _)| Some(*at) != without);
    let orders: Vec<_> = living.map(|(_, order)| order).collect();
    let shortest = orders.iter().map(|one| one.len()).min().unwrap_or(0);
    let begin: Vec<_> = orders.iter().map(|one| one[..shortest].to_vec()).collect();
    disorder(&begin).is_none()
}

/// Two sources and three targets on threads of their own, which wait and sleep. Returns what each
/// target has consumed: each tuple once.
pub(crate) fn wait_and_sleep<F: Fabric>(
    devices: &[F],
    flow: Flow,
    tuples: u64,
) -> Vec<Vec<Consumption>> {
    let lists = (threads(2, 2, 0), threads(3, 2, 100));
    let Ends { sources, targets } = connect(devices, flow, (&lists.0, &lists.1)).unwrap();
    let readers = targets.into_iter().map(|mut target| {
        std::thread::spawn(move || {
            let mut order = Vec::new();
            while let Some(batch) = target.consume().unwrap() {
                let rows = batch.rows::<Row>().unwrap().iter();
                assert!(rows.clone().all(Row::is_whole));
                order.extend(rows.map(|row| Consumption::Tuple(row.source, row.number)));
            }
            order
        })
    });
    let readers: Vec<_> = readers.collect();
    let writers = sources.into_iter().enumerate().map(|(at, mut source)| {
        std::thread::spawn(move || {
            for number in 0..tuples {
                source.push(&Row::new(at as u64, number)).unwrap();
                if number == tuples / 2 {
                    // Long enough for targets to sleep.
                    source.flush().unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            source.close().unwrap();
        })
    });
    writers.collect::<Vec<_>>().into_iter().for_each(|one| one.join().unwrap());
    let orders: Vec<_> = readers.into_iter().map(|one| one.join().unwrap()).collect();
    for order in &orders {
        assert_eq!(order.len() as u64, 2 * tuples);
        let different: HashSet<_> = order.iter().collect();
        assert_eq!(different.len(), order.len());
    }
    orders
}
