//! Rates of the schemes on the paper's workloads (section 6).
//!
//!     cargo run --release --example txn_bench -- --workload ledger --scheme tstream --workers 2
//!
//! Options: `--workload micro|ledger|bidding`, `--scheme tstream|lal|lwm|pat|nocc|hand|all`,
//! `--workers`, `--theta`, `--read-ratio`, `--length`, `--keys`, `--partitions`,
//! `--multi-partition`, `--spread`, `--events`, `--batch`, `--seed`, `--repeat`.

mod bidding;
mod driver;
mod ledger;
mod micro;
mod workload;
mod zipf;

use std::collections::HashMap;

use driver::{Report, Run, by_hand, run};
use millstream_txn::{Scheme, Settings};
use workload::{Parameters, Workload};

struct Options(HashMap<String, String>);

impl Options {
    fn from_arguments() -> Options {
        let mut given = HashMap::new();
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let name = name.trim_start_matches("--").to_owned();
            given.insert(name, arguments.next().unwrap_or_default());
        }
        Options(given)
    }

    fn text(&self, name: &str, usual: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| usual.to_owned())
    }

    fn number<N: std::str::FromStr>(&self, name: &str, usual: N) -> N {
        match self.0.get(name).map(|text| text.parse()) {
            None => usual,
            Some(Ok(number)) => number,
            Some(Err(_)) => panic!("--{name} takes a number"),
        }
    }
}

fn main() {
    let options = Options::from_arguments();
    match options.text("workload", "ledger").as_str() {
        "micro" => bench::<micro::Micro>(&options, 100_000, 0.0),
        "bidding" => bench::<bidding::Bidding>(&options, 10_000, 0.75),
        "ledger" => bench::<ledger::Ledger>(&options, 100_000, 0.5),
        other => panic!("no workload '{other}'"),
    }
}

fn bench<W: Workload>(options: &Options, keys: u64, multi_partition: f64) {
    let parameters = Parameters {
        keys: options.number("keys", keys),
        theta: options.number("theta", 0.6),
        read_ratio: options.number("read-ratio", 0.5),
        length: options.number("length", 10),
        partitions: options.number("partitions", 0),
        multi_partition: options.number("multi-partition", multi_partition),
        spread: options.number("spread", 4),
    };
    let workload = W::new(parameters);
    let base = Run {
        scheme: Scheme::TStream,
        workers: options.number("workers", 1),
        events: options.number("events", 1_000_000),
        batch: options.number("batch", 50_000),
        seed: options.number("seed", 1),
        settings: Settings::default(),
    };
    let pat = Scheme::Pat { partitions: parameters.partitions.max(8) };
    let schemes = [
        ("tstream", Scheme::TStream),
        ("lal", Scheme::Lal),
        ("lwm", Scheme::Lwm),
        ("pat", pat),
        ("nocc", Scheme::Nocc),
    ];
    let wanted = options.text("scheme", "all");
    for _ in 0..options.number("repeat", 1) {
        if wanted == "hand" || wanted == "all" {
            print("hand", 1, &by_hand(&workload, &base).0);
        }
        for (name, scheme) in schemes {
            if wanted == name || wanted == "all" {
                let report = run(&workload, &Run { scheme, ..base }, |_| {});
                print(name, base.workers, &report);
            }
        }
    }
}

fn print(name: &str, workers: usize, report: &Report) {
    let (rate, p90_ms) = (report.rate() / 1e6, report.p90_ns as f64 / 1e6);
    println!(
        "{name:8} workers {workers}  {rate:7.3} M events/s  p90 {p90_ms:8.2} ms  sum {:x}  {:?}",
        report.sum, report.counts
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every scheme in order, on each workload, equals the loop by hand: outputs and tables.
    fn equals_the_loop<W: Workload>(keys: u64, length: usize) {
        for (theta, partitions) in [(0.0, 0), (0.9, 5)] {
            let parameters = Parameters {
                keys,
                theta,
                read_ratio: 0.5,
                length,
                partitions,
                multi_partition: 0.5,
                spread: 3,
            };
            let workload = W::new(parameters);
            for scheme in [
                Scheme::TStream,
                Scheme::Lal,
                Scheme::Lwm,
                Scheme::Pat { partitions: partitions.max(2) },
            ] {
                let settings = Settings::default();
                let what =
                    Run { scheme, workers: 2, events: 6_000, batch: 2_500, seed: 5, settings };
                let (hand, maps) = by_hand(&workload, &what);
                let report = run(&workload, &what, |store| {
                    for (number, map) in maps.iter().enumerate() {
                        let mut rows: Vec<_> =
                            map.iter().map(|(key, row)| (vec![*key], row.to_vec())).collect();
                        rows.sort();
                        let table = store.tables().nth(number).expect("as many tables as maps");
                        assert_eq!(store.rows(table), rows, "{scheme:?}, table {number}");
                    }
                });
                assert_eq!(report.sum, hand.sum, "{scheme:?}");
            }
        }
    }

    #[test]
    fn micro_equals_the_loop() {
        equals_the_loop::<micro::Micro>(300, 8);
    }

    #[test]
    fn ledger_equals_the_loop() {
        equals_the_loop::<ledger::Ledger>(300, 8);
    }

    #[test]
    fn bidding_equals_the_loop() {
        equals_the_loop::<bidding::Bidding>(300, 8);
    }
}
