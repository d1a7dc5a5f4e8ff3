//! TPC-H over the exchange and over Flight, by turns, on the same number of processes.
//!
//!     cargo run --profile dist --example flight -- --scale 1 --rounds 15 --queries all
//!
//! prints, for each design and query, the median of the times and of the ratios of the pairs with
//! their quartiles, and the same for the sums of a round. All answers are compared. `--json FILE`
//! appends a line for each pair, which `tests/report.py` plots.

#[path = "../tests/cluster/mod.rs"]
mod cluster;
#[path = "../../lab/src/provenance.rs"]
#[allow(unused_imports, reason = "its tests run in its own crate")]
mod provenance;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Instant;

use cluster::tpch::{data, query, register};
use cluster::{Cluster, Options, Way, rows};
use datafusion::prelude::SessionContext;
use millstream_datafusion_shuffle::Config;
use millstream_flow::shuffle::Design;
use serde_json::json;

/// The value of an option, or what it is without.
fn option(name: &str, without: &str) -> String {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).unwrap_or_else(|| without.into())
}

fn number<T: std::str::FromStr>(name: &str, without: &str) -> T {
    let value = option(name, without);
    value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}"))
}

/// Parameters of a measurement.
struct Bench {
    scale: f64,
    rounds: usize,
    processes: usize,
    compression: String,
    /// Whether workers have their tables in memory.
    loaded: bool,
    queries: Vec<i32>,
    lines: Option<File>,
}

/// Seconds of one pair.
#[derive(Clone, Copy, Default)]
struct Pair {
    exchange: f64,
    flight: f64,
}

/// A median and its quartiles.
fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [2, 1, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn summary(name: &str, pairs: &[Pair]) -> String {
    let [exchange, ..] = quartiles(pairs.iter().map(|pair| pair.exchange));
    let [flight, ..] = quartiles(pairs.iter().map(|pair| pair.flight));
    let [ratio, low, high] = quartiles(pairs.iter().map(|pair| pair.flight / pair.exchange));
    format!(
        "{name}: {exchange:.3} s, Flight {flight:.3} s, {ratio:.2} times as fast \
         ({low:.2} to {high:.2})"
    )
}

async fn timed(cluster: &Cluster, text: &str) -> (f64, Vec<String>) {
    let start = Instant::now();
    let frame = cluster.coordinator.context.sql(text).await.expect("a plan");
    let batches = frame.collect().await.expect("rows");
    (start.elapsed().as_secs_f64(), rows(&batches))
}

async fn set(context: &SessionContext, what: &str) {
    context.sql(&format!("set {what}")).await.expect("a setting").collect().await.expect("no rows");
}

impl Bench {
    async fn cluster(&self, way: Way) -> Cluster {
        let options = Options { loaded: self.loaded, ..Options::new(self.processes, way) };
        let cluster = Cluster::start(options);
        register(&cluster.coordinator.context, &data(self.scale)).await.expect("tables");
        cluster
    }

    /// A query both ways, alternating which way is first.
    async fn pair(&self, ours: &Cluster, theirs: &Cluster, number: i32, round: usize) -> Pair {
        let text = query(number, self.scale);
        let (exchange, flight) = if round.is_multiple_of(2) {
            let exchange = timed(ours, &text).await;
            (exchange, timed(theirs, &text).await)
        } else {
            let flight = timed(theirs, &text).await;
            (timed(ours, &text).await, flight)
        };
        assert_eq!(exchange.1, flight.1, "query {number}");
        Pair { exchange: exchange.0, flight: flight.0 }
    }

    fn line(&mut self, design: Design, query: i32, pair: Pair) {
        let Some(lines) = &mut self.lines else { return };
        let mut line = json!({
            "bench": "tpch", "design": design.to_string(), "query": query, "scale": self.scale,
            "processes": self.processes, "compression": self.compression,
            "tables": if self.loaded { "memory" } else { "files" },
            "seconds": pair.exchange, "flight_seconds": pair.flight, "ok": true,
        });
        for (name, value) in provenance::fields() {
            line[name] = value;
        }
        let words: Vec<String> = std::env::args().skip(1).collect();
        let command = "cargo run --profile dist --example flight --";
        line["command"] = json!(format!("{command} {}", words.join(" ")));
        writeln!(lines, "{line}").expect("room for lines");
    }

    async fn design(&mut self, design: Design, theirs: &Cluster) {
        let mut ours = self.cluster(Way::Shm(Config::new(design))).await;
        let mut pairs = vec![Vec::new(); self.queries.len()];
        let mut sums = vec![Pair::default(); self.rounds];
        // Once before, for connections and caches.
        for number in &self.queries {
            self.pair(&ours, theirs, *number, 0).await;
        }
        for (round, sum) in sums.iter_mut().enumerate() {
            for (number, pairs) in self.queries.clone().into_iter().zip(&mut pairs) {
                let pair = self.pair(&ours, theirs, number, round).await;
                sum.exchange += pair.exchange;
                sum.flight += pair.flight;
                pairs.push(pair);
                self.line(design, number, pair);
            }
        }
        for (number, pairs) in self.queries.iter().zip(&pairs) {
            println!("{}", summary(&format!("{design}, query {number}"), pairs));
        }
        println!("{}", summary(&format!("{design}, all"), &sums));
        println!("{:?}", ours.counters());
    }
}

async fn run() {
    let queries = match option("--queries", "3,4,10").as_str() {
        "all" => (1..=22).collect(),
        some => some.split(',').map(|one| one.parse().expect("a query's number")).collect(),
    };
    let lines = option("--json", "");
    let append = |path: &str| OpenOptions::new().append(true).create(true).open(path);
    let mut bench = Bench {
        scale: number("--scale", "0.1"),
        rounds: number("--rounds", "5"),
        processes: number("--processes", "2"),
        compression: option("--compression", "lz4"),
        loaded: match option("--tables", "memory").as_str() {
            "memory" => true,
            "files" => false,
            other => panic!("--tables is memory or files, not {other}"),
        },
        queries,
        lines: (!lines.is_empty()).then(|| append(&lines).expect("a file for lines")),
    };
    let theirs = bench.cluster(Way::Flight).await;
    let compression = format!("distributed.compression = '{}'", bench.compression);
    set(&theirs.coordinator.context, &compression).await;
    for design in option("--designs", "SEMQ/WR").split(',') {
        bench.design(design.parse().expect("a design"), &theirs).await;
    }
}

fn main() {
    if cluster::is_worker() {
        return cluster::worker();
    }
    // `cargo test --benches` runs it, too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    tokio::runtime::Runtime::new().expect("a runtime").block_on(run());
}
