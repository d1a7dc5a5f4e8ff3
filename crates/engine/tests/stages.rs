//! Tests of aggregations over the rows of aggregations, in one process: the same rows as when they
//! are run one after the other, and no later than with the last record that they wait for.
//! `MILLSTREAM_SEEDS=100000` runs more simulated jobs, `MILLSTREAM_SEED=7` only that one.

use std::sync::{Arc, Mutex};

use crate::support::chain::{Chain, Link};
use crate::support::script::{Script, Scripted, batches_of, with_a_silent_split};
use crate::support::watch::Watch;
use crate::support::*;
use millstream_contract::Settings;
use millstream_contract::settings::Exchange;
use millstream_contract::table::Table;
use millstream_engine::{Job, Stats};

/// One seed's job: everything about it follows from the seed.
fn simulate(seed: u64) -> Stats {
    let mut random = Random::new(seed ^ 0x57a6_0000);
    let splits = 1 + random.below(4) as usize;
    let per_split = [0, 1, 40, 400, 900][random.below(5) as usize];
    let keys = [1, 5, 60, 100_000][random.below(4) as usize];
    let data = records(&mut random, splits, per_split, keys);
    let chain = Chain::any(&mut random);
    let batch_rows = [1, 20, 300][random.below(3) as usize];
    let idle = random.below(3) == 0;
    let plan = chain.plan(match idle {
        true => Arc::new(with_a_silent_split(&data, &mut random)) as Arc<dyn Table>,
        false => table(&data, &mut random, batch_rows),
    });
    let mut plan = packed(plan, seed);
    if idle {
        event_time(&mut plan).idle_timeout_us = Some(60_000_000);
    }
    let drawn = drawn_settings(&mut random, 4, chain.lateness_ms);
    let settings = Settings { simulate: Some(seed), ..drawn };
    let (expected, late, null_time) = chain.expected(&data);
    let (stats, rows) = run(&plan, &settings);
    let what = format!("seed {seed}: {chain:?} {settings:?}\n{}", repeat(seed, "stages"));
    let rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
    same_rows(&rows, &expected, &what);
    assert_eq!((stats.late_records, stats.null_time_records), (late, null_time), "{what}");
    stats
}

#[test]
fn simulated_chains_agree_with_a_sequential_run() {
    let (seeds, sum) = run_seeds(400, simulate);
    happened(
        seeds,
        &[
            ("epochs", sum.epochs),
            ("late records", sum.late_records),
            ("windows fired while reading", sum.windows_fired_early),
            ("rows between stages", sum.inner_rows),
            ("merges", sum.merges),
            ("credit stalls", sum.credit_stalls),
        ],
    );
}

fn three_links() -> Chain {
    let link = |window_ms, keys| Link { window_ms: Some((window_ms, 0)), keys, at_least: 0 };
    let links = vec![link(1_000, 2), link(10_000, 1), link(60_000, 0)];
    Chain { links, delay_us: 100_000, lateness_ms: 0 }
}

#[test]
fn threads_agree_with_a_sequential_run() {
    let mut random = Random::new(4712);
    let data = records(&mut random, 3, 20_000, 2_000);
    let chain = three_links();
    let source = table(&data, &mut random, 500);
    let (expected, ..) = chain.expected(&data);
    for workers in [1, 2, 4] {
        for epoch_bytes in [1, 64 << 20] {
            let settings = Settings { workers, epoch_bytes, ..Settings::default() };
            let (stats, rows) = run(&chain.plan(source.clone()), &settings);
            assert_eq!(rows.unwrap(), expected, "{settings:?}");
            assert!(stats.inner_rows > 0 && stats.epochs > 0, "{stats:?}");
        }
    }
}

/// A minute's row comes with the record that completes the minute's last part, before the next
/// record does: not one part later. Allowed lateness delays the stage that reads the table, and no
/// other one.
#[test]
fn a_chain_fires_with_the_last_record_that_it_waits_for() {
    const STEP_MS: i64 = 250;
    for seed in 0..60u64 {
        let mut random = Random::new(seed);
        let links: Vec<Link> = [(1_000, 1), (3_000, 1), (6_000, 0)]
            .map(|(size, keys)| Link { window_ms: Some((size, 0)), keys, at_least: 0 })
            .into();
        let links = links[..2 + seed as usize % 2].to_vec();
        let size = links.last().and_then(|link| link.window_ms).map_or(0, |(size, _)| size);
        let lateness_ms = [0, 1_500][random.below(2) as usize];
        let chain = Chain { links, delay_us: 0, lateness_ms };
        let data: Vec<Record> = (0..200)
            .map(|i| {
                let (ts_ms, name) = (Some(i * STEP_MS), String::from("n"));
                Record { ts_ms, key: Some(i % 3), name, amount: Some(i), price: 1.0 }
            })
            .collect();
        let batches = batches_of(&data, &mut random, 1).into_iter().enumerate();
        // Time enough between two records for all that may fire.
        let batches = batches.map(|(i, batch)| (i as i64 * 1_000_000, batch)).collect();
        let source = Scripted::new(vec![Script { batches }], 0);
        let handed_out = source.handed_out.clone();
        let settings = Settings {
            workers: 1 + seed as usize % 3,
            simulate: Some(seed),
            allowed_lateness_us: lateness_ms * 1000,
            ..Settings::default()
        };
        let sink = Arc::new(Watch { handed_out, seen: Mutex::default() });
        let plan = chain.plan(Arc::new(source) as Arc<dyn Table>);
        let (stats, result) = Job::new(&plan, &settings, vec![sink.clone()]).unwrap().run();
        result.unwrap();
        let seen = sink.seen.lock().unwrap();
        let on_the_way: Vec<_> = seen.iter().filter(|(_, least)| *least < i64::MAX).collect();
        assert!(on_the_way.len() >= 6, "seed {seed}: {seen:?}");
        for (start, least) in on_the_way {
            assert_eq!(*least, start + size + lateness_ms, "seed {seed}: window {start}");
        }
        assert_eq!(stats.late_records, 0, "seed {seed}");
        // In virtual time, where a step takes a microsecond.
        let latency_us = stats.fire_latency_us.iter().max();
        assert!(latency_us.is_some_and(|us| *us < 2_000), "seed {seed}: {latency_us:?} us");
    }
}

/// State of all stages counts: what does not fit ends with an error that names the stage, and what
/// just fits is right.
#[test]
fn the_budget_counts_all_stages() {
    const MIB: u64 = 1 << 20;
    let mut random = Random::new(3);
    let mut data = records(&mut random, 2, 60_000, 1 << 30);
    data.iter_mut().flatten().for_each(|record| record.name = String::from("n"));
    // Hardly any state at first, and all keys in the second stage.
    let links = vec![
        Link { window_ms: Some((1_000, 0)), keys: 1, at_least: 0 },
        Link { window_ms: Some((10_000_000, 0)), keys: 1, at_least: 0 },
    ];
    let chain = Chain { links, delay_us: 0, lateness_ms: 0 };
    let source = table(&data, &mut random, 500);
    let (expected, ..) = chain.expected(&data);
    let plan = chain.plan(source);
    for workers in [1, 3] {
        let within = |memory_bytes| Settings { workers, memory_bytes, ..Settings::default() };
        let (stats, rows) = run(&plan, &within(1 << 40));
        assert_eq!(rows.unwrap(), expected);
        let most = stats.memory_bytes_peak;
        assert!(most > 5 * MIB, "{stats:?}");
        let (_, rows) = run(&plan, &within(4 * most));
        assert_eq!(rows.unwrap(), expected);
        let (_, rows) = run(&plan, &within(MIB));
        let error = rows.expect_err("more than a megabyte").to_string();
        assert!(error.contains("aggregate by (key)"), "{error}");
    }
}

#[test]
fn an_exchange_of_several_stages_is_refused() {
    let mut random = Random::new(3);
    let source = table(&records(&mut random, 1, 10, 3), &mut random, 5);
    let plan = three_links().plan(source);
    for exchange in [Exchange::Interleaved, Exchange::Repartition] {
        let (_, rows) = run(&plan, &Settings { exchange, workers: 2, ..Settings::default() });
        let error = rows.expect_err("it is refused").to_string();
        assert!(error.contains("has 3 stages"), "{error}");
    }
}
