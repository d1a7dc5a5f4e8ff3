//! Jobs that are drained at any step, asked of any process: the rows are those of a job over what
//! was read, which of each split is its first chunks. None of them is lost, and none counts twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_contract::Settings;
use millstream_contract::sink::RowOrder;
use millstream_contract::table::Sharing;
use millstream_engine::simulation::{Fault, Scenario};

use super::stateless::{in_order, select_all};
use super::{counted_by_key, described, happened, record_of, run, run_all, seeds};
use crate::support::Random;
use crate::support::script::{Script, Scripted, batches_of};

/// Keys of a split: each record has one of its own.
const KEYS: i64 = 1_000_000;

#[derive(Default)]
struct Came {
    /// Jobs that were drained before their end, and those of them whose splits all processes read.
    early: u64,
    early_by_chunk: u64,
    /// Splits that had ended by themselves, where others had not.
    uneven: u64,
    failed: u64,
}

fn scripts(random: &mut Random, batch_rows: u64) -> Vec<Script> {
    let splits = 1 + random.below(4) as i64;
    let script = |split: i64| {
        let count = [0, 30, 300, 1_500][random.below(4) as usize];
        let records: Vec<_> = (0..count).map(|i| record_of(split * KEYS + i)).collect();
        let pace_us = [0, 0, 100, 2_000][random.below(4) as usize];
        let batches = batches_of(&records, random, batch_rows).into_iter().enumerate();
        Script { batches: batches.map(|(i, batch)| (i as i64 * pace_us, batch)).collect() }
    };
    (0..splits).map(script).collect()
}

/// The scripts up to what has been read of them: these keys.
fn read(scripts: &[Script], keys: &[i64], what: &str) -> Vec<Script> {
    let mut by_split: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    keys.iter().for_each(|key| by_split.entry(key / KEYS).or_default().push(key % KEYS));
    let mut read = scripts.to_vec();
    for (split, script) in (0i64..).zip(&mut read) {
        let mut found = by_split.remove(&split).unwrap_or_default();
        found.sort_unstable();
        let all: Vec<i64> = (0..found.len() as i64).collect();
        assert_eq!(found, all, "{what}\n  split {split}: one is missing, or came twice");
        let mut rows = 0;
        let before = |(_, batch): &&(i64, arrow::array::RecordBatch)| {
            rows += batch.num_rows();
            rows <= all.len()
        };
        let chunks = script.batches.iter().take_while(before).count();
        script.batches.truncate(chunks);
        let rows: usize = script.batches.iter().map(|(_, batch)| batch.num_rows()).sum();
        assert_eq!(rows, all.len(), "{what}\n  split {split} ends in the middle of a chunk");
    }
    read
}

fn run_seed(seed: u64, aggregates: bool, with_faults: bool) -> Came {
    let mut random = Random::new(seed ^ 0xd7a1_0000);
    let processes = 2 + random.below(3) as usize;
    let batch_rows = [1, 20, 300][random.below(3) as usize];
    let scripts = scripts(&mut random, batch_rows);
    let sharing =
        [Sharing::Whole, Sharing::ByChunk, Sharing::Coordinator][random.below(3) as usize];
    // A batch takes so much at the most.
    let batch_bytes = 2_000 + 100 * batch_rows;
    let memory_bytes = [64 * batch_bytes, 1 << 30][random.below(2) as usize];
    let settings = Settings {
        workers: 1 + random.below(3) as usize,
        memory_bytes: if aggregates { 1 << 30 } else { memory_bytes },
        ..Settings::default()
    };
    let step = [0, 100, 1_000, 6_000][random.below(4) as usize] + random.below(300);
    let drain = Some((step, random.below(processes as u64) as usize));
    let mut scenario = Scenario { drain, ..Scenario::from_seed(seed, processes) };
    if with_faults {
        // About when it is drained. (Others test links that are cut.)
        let killed = random.below(processes as u64) as usize;
        scenario.faults = vec![(step + random.below(600), Fault::Kill(killed))];
    }
    let what = described(seed, "drained", &settings, &scenario);
    let lengths: Vec<usize> = scripts.iter().map(|script| script.batches.len()).collect();
    let what = format!("{what}batches {lengths:?}, {sharing:?}, aggregates {aggregates}");
    let (plan, order) = match aggregates {
        false => (select_all(scripts.clone(), sharing, 0, None), RowOrder::Deterministic),
        true => {
            let table = Scripted::new(scripts.clone(), 0).shared(sharing);
            (counted_by_key(Arc::new(table)), RowOrder::Any)
        }
    };
    let ran = run(&plan, &settings, &scenario, order);
    if with_faults && !ran.well() {
        let failed = ran.ends_with_a_fault(None, &ran.rows, &what);
        return Came { failed, ..Came::default() };
    }
    let column = if aggregates { 0 } else { 1 };
    let key = |row: &String| row.split('|').nth(column).unwrap().parse().unwrap();
    let keys: Vec<i64> = ran.rows.iter().map(key).collect();
    let read = read(&scripts, &keys, &what);
    let mut expected = in_order(&read);
    if aggregates {
        expected = keys.iter().map(|key| format!("{key}|1")).collect();
        expected.sort();
    }
    ran.is_all(&expected, &what);
    assert_eq!(ran.stats().records, keys.len() as u64, "{what}");
    let is_early = |read: &Script, all: &Script| read.batches.len() < all.batches.len();
    let early = read.iter().zip(&scripts).filter(|(read, all)| is_early(read, all)).count();
    Came {
        early: u64::from(early > 0),
        early_by_chunk: u64::from(early > 0 && sharing == Sharing::ByChunk),
        uneven: u64::from(early > 0 && early < read.len()),
        failed: 0,
    }
}

fn sum_of(seeds: &[u64], with_faults: bool) -> Came {
    let mut sum = Came::default();
    for aggregates in [false, true] {
        for came in run_all(seeds, |seed| run_seed(seed, aggregates, with_faults)) {
            sum.early += came.early;
            sum.early_by_chunk += came.early_by_chunk;
            sum.uneven += came.uneven;
            sum.failed += came.failed;
        }
    }
    sum
}

#[test]
fn drained_jobs_have_the_rows_of_what_was_read() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(19, REGRESSIONS);
    let sum = sum_of(&seeds, false);
    happened(
        &seeds,
        &[
            ("jobs that were drained before their end", sum.early),
            ("splits that all processes read and that ended early", sum.early_by_chunk),
            ("splits that ended by themselves", sum.uneven),
        ],
    );
}

#[test]
fn drained_jobs_end_also_with_a_fault() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(15, REGRESSIONS);
    let sum = sum_of(&seeds, true);
    happened(&seeds, &[("drained", sum.early), ("failed", sum.failed)]);
}
