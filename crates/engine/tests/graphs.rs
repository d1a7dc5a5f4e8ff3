//! Plans of any shape in one process: the same rows, at each output, as one after the other in
//! sequence. `MILLSTREAM_SEEDS=100000` runs more simulated jobs, `MILLSTREAM_SEED=7` just the one.

use std::sync::{Arc, Mutex};

use crate::support::graph::Graph;
use crate::support::{
    Collect, Random, drawn_settings, happened, lines, packed, repeat, run_seeds, same_rows,
};
use millstream_contract::sink::{RowOrder, Sink};
use millstream_contract::{Error, Result, Settings};
use millstream_engine::{Job, Stats};

/// Runs a plan; the rows of each output.
fn run(graph: &Graph, settings: &Settings, order: RowOrder) -> (Stats, Result<Vec<Vec<String>>>) {
    let collect = || Arc::new(Collect { order, batches: Mutex::default() });
    let sinks: Vec<_> = graph.outputs.iter().map(|_| collect()).collect();
    let plan = packed(graph.plan(), settings.simulate.unwrap_or_default());
    let given = sinks.iter().map(|sink| sink.clone() as Arc<dyn Sink>).collect();
    let job = match Job::new(&plan, settings, given) {
        Ok(job) => job,
        Err(error) => return (Stats::default(), Err(error)),
    };
    let (stats, result) = job.run();
    let rows = |sink: &Arc<Collect>| sink.batches.lock().unwrap().iter().flat_map(lines).collect();
    (stats, result.map(|()| sinks.iter().map(rows).collect()))
}

/// One seed's job: everything about it follows from the seed.
fn simulate(seed: u64) -> Stats {
    let mut random = Random::new(seed ^ 0x6a49_0000);
    let graph = Graph::any(&mut random);
    let drawn = drawn_settings(&mut random, 4, graph.lateness_ms);
    let settings = Settings { simulate: Some(seed), ..drawn };
    let what = format!("seed {seed}: {graph:?} {settings:?}\n{}", repeat(seed, "graphs"));
    let expected = graph.expected();
    let any = random.below(4) == 0 && !graph.has_limit();
    let order = if any { RowOrder::Any } else { RowOrder::Deterministic };
    let (stats, rows) = run(&graph, &settings, order);
    let rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
    for (output, (mut rows, expected)) in rows.into_iter().zip(&expected.rows).enumerate() {
        let mut expected = expected.clone();
        if any {
            rows.sort();
            expected.sort();
        }
        same_rows(&rows, &expected, &format!("{what}\n  output {output}"));
        assert_eq!(stats.outputs[output].rows, rows.len() as u64, "{what}");
    }
    if !graph.has_limit() {
        let counted = (stats.records, stats.late_records, stats.null_time_records);
        let expected = (expected.records, expected.late, expected.null_time);
        assert_eq!(counted, expected, "{what}");
    }
    stats
}

#[test]
fn simulated_graphs_agree_with_a_sequential_run() {
    let (seeds, sum) = run_seeds(160, simulate);
    happened(
        seeds,
        &[
            ("rows between stages", sum.inner_rows),
            ("late records", sum.late_records),
            ("records without a time", sum.null_time_records),
            ("windows fired while reading", sum.windows_fired_early),
            ("rows", sum.rows),
        ],
    );
}

/// A job that has enough memory for its largest window yields all its rows; any other ends with the
/// budget's error, and never waits for ever.
#[test]
fn scarce_memory_ends_a_graph_or_changes_nothing() {
    let (mut through, mut stalls, mut refused) = (0, 0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed ^ 0x3e6d_0000);
        let graph = Graph::any(&mut random);
        let settings = Settings {
            workers: 1 + random.below(4) as usize,
            simulate: Some(seed),
            epoch_bytes: [1, 1000, 64 << 20][random.below(3) as usize],
            allowed_lateness_us: graph.lateness_ms * 1000,
            memory_bytes: [10_000, 30_000, 100_000, 300_000][(seed % 4) as usize],
            ..Settings::default()
        };
        let what = format!("seed {seed}: {graph:?} {settings:?}");
        let (stats, rows) = run(&graph, &settings, RowOrder::Deterministic);
        match rows {
            Ok(rows) => {
                assert_eq!(rows, graph.expected().rows, "{what}");
                through += 1;
                stalls += stats.memory_stalls;
            }
            Err(Error::Memory { .. }) => refused += 1,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert!(through > 100 && refused > 0 && stalls > 0, "{through} {refused} {stalls}");
}

/// The same on threads.
#[test]
fn graphs_on_threads_agree_with_a_sequential_run() {
    let mut random = Random::new(4712);
    for round in 0..60 {
        let graph = Graph::any(&mut random);
        // Where a split is silent, that takes a minute of real time.
        if graph.is_slow() {
            continue;
        }
        let expected = graph.expected();
        for workers in [1, 3] {
            let settings = Settings {
                workers,
                epoch_bytes: 1000,
                allowed_lateness_us: graph.lateness_ms * 1000,
                ..Settings::default()
            };
            let (_, rows) = run(&graph, &settings, RowOrder::Deterministic);
            assert_eq!(rows.unwrap(), expected.rows, "round {round}: {graph:?} {settings:?}");
        }
    }
}
