//! TPC-H over the exchange and over Flight, by turns, on the same number of processes.
//!
//!     cargo bench --bench flight -- --scale 1 --rounds 5 --design SEMQ/WR --queries 3,4,10
//!
//! prints for each query the median of both times and the median of the ratios of the pairs.

#[path = "../tests/cluster/mod.rs"]
mod cluster;

use std::process::Command;
use std::time::Instant;

use cluster::tpch::{data, query, register};
use cluster::{Cluster, Options, Way};
use millstream_datafusion_shuffle::Config;

/// The value of an option, or what it is without.
fn option(name: &str, without: &str) -> String {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).unwrap_or_else(|| without.into())
}

fn start(processes: usize, way: Way) -> Cluster {
    Cluster::start(Options::new(processes, way), || {
        Command::new(std::env::current_exe().expect("this binary"))
    })
}

async fn seconds(cluster: &Cluster, text: &str) -> f64 {
    let start = Instant::now();
    let frame = cluster.coordinator.context.sql(text).await.expect("a plan");
    let rows: usize = frame.collect().await.expect("rows").iter().map(|one| one.num_rows()).sum();
    std::hint::black_box(rows);
    start.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn run() {
    let number =
        |name: &str, without: &str| -> f64 { option(name, without).parse().expect("a number") };
    let (scale, rounds) = (number("--scale", "0.1"), number("--rounds", "5") as usize);
    let processes = number("--processes", "2") as usize;
    let config = Config::new(option("--design", "SEMQ/WR").parse().expect("a design"));
    let queries = option("--queries", "3,4,10");
    let data = data(scale);
    let mut ours = start(processes, Way::Shm(config));
    let theirs = start(processes, Way::Flight);
    register(&ours.coordinator.context, &data).await.expect("tables");
    register(&theirs.coordinator.context, &data).await.expect("tables");
    let mut ratios = Vec::new();
    for name in queries.split(',') {
        let text = query(name.parse().expect("a number"), scale);
        // Once for connections and caches.
        seconds(&ours, &text).await;
        seconds(&theirs, &text).await;
        let mut times = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let (exchange, flight) = if round % 2 == 0 {
                let exchange = seconds(&ours, &text).await;
                (exchange, seconds(&theirs, &text).await)
            } else {
                let flight = seconds(&theirs, &text).await;
                (seconds(&ours, &text).await, flight)
            };
            times.0.push(exchange);
            times.1.push(flight);
            times.2.push(flight / exchange);
        }
        let ratio = median(&mut times.2);
        let (exchange, flight) = (median(&mut times.0), median(&mut times.1));
        println!("query {name}: {exchange:.3} s, Flight {flight:.3} s, {ratio:.2} times as fast");
        ratios.push(ratio);
    }
    println!("median of {} queries: {:.2}", ratios.len(), median(&mut ratios));
    println!("{:?}", ours.counters());
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
