//! Whole jobs whose checkpoints are on a disk that crashes, tears files, fails for a while and is
//! slow, and of which several may run at a time. They are started again until they end. Readers of
//! the outputs see the rows of a job that was never stopped, each once, in the same order.
//!
//! Simulated: a seed tells all that happens. `MILLSTREAM_SEEDS` and `MILLSTREAM_SEED` as in the
//! engine's tests of equivalence.

mod gate;
mod outputs;
mod program;
#[allow(dead_code, reason = "the engine's tests use all")]
#[path = "../../../engine/tests/restart/queries.rs"]
mod queries;
#[path = "../../../engine/tests/restart/reading.rs"]
mod reading;
mod saver;
mod starts;
#[path = "../../../engine/tests/support/mod.rs"]
mod support;
mod unchanged;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gate::Gate;
use millstream_checkpoint::Start;
use millstream_contract::plan::Plan;
use millstream_contract::sink::{RowOrder, Sink};
use millstream_contract::{Error, Result, Settings};
use millstream_engine::{Job, Resume, Stats};
use millstream_store::disk::{CrashDisk, Disk, Survival};
use outputs::{make_directories, visible};
use program::{Fate, STATE, Tally, World, has_lost, prepared};
use queries::Query;
use reading::{Look, read};
use support::*;

/// Nothing happens.
#[derive(Debug)]
struct Nothing;

impl Look for Nothing {
    fn look(&self) {}
}

/// The rows of a job that is not stopped, by output.
fn uninterrupted(plan: &Plan, settings: &Settings) -> Result<Vec<Vec<String>>> {
    let look: Arc<dyn Look> = Arc::new(Nothing);
    let plan = read(plan.clone(), &look, &Resume::default(), (false, false));
    let collect = |_| Collect { order: RowOrder::Deterministic, batches: Mutex::default() };
    let sinks: Vec<_> = plan.outputs.iter().map(collect).map(Arc::new).collect();
    let job = sinks.iter().map(|sink| sink.clone() as Arc<dyn Sink>).collect();
    Job::new(&plan, settings, job)?.run().1?;
    let rows = |sink: &Arc<Collect>| sink.batches.lock().unwrap().iter().flat_map(lines).collect();
    Ok(sinks.iter().map(rows).collect())
}

/// What happens to a program.
fn any_fate(random: &mut Random) -> Fate {
    let within = random.pick(&[20, 100, 400]);
    let at = random.below(within);
    match random.below(7) {
        0 => Fate::Stops,
        1 => Fate::Sleeps { at, seed: random.below(1 << 30) },
        2 | 3 => {
            let code = random.pick(&[libc::EIO, libc::ENOSPC]);
            Fate::Fails { from: at, to: at + random.pick(&[1, 10, 100]), code }
        }
        _ => Fate::Crashes { at, after: random.below(2) == 0 },
    }
}

fn any_survival(random: &mut Random) -> Survival {
    match random.below(4) {
        0 => Survival::Synced,
        1 => Survival::Killed,
        _ => Survival::Some(random.below(1 << 30)),
    }
}

/// No reader has seen a row that is wrong, or there too often.
fn check_visible(world: &World, expected: &[Vec<String>], what: &str) {
    for (output, (expected, order)) in expected.iter().zip(&world.orders).enumerate() {
        let rows = visible(&world.disk, output);
        if *order == RowOrder::Deterministic {
            same_rows(&rows, &expected[..rows.len().min(expected.len())], what);
            continue;
        }
        let mut left: HashMap<&str, i64> = HashMap::new();
        expected.iter().for_each(|row| *left.entry(row).or_default() += 1);
        for row in &rows {
            let left = left.entry(row).or_default();
            *left -= 1;
            assert!(*left >= 0, "{what}\n  not expected: {row}");
        }
    }
}

/// Every checkpoint that is there is whole.
fn check_store(world: &World, what: &str) -> BTreeSet<String> {
    let checkpoints = world.checkpoints(&Arc::new(Gate::new()));
    let mut files = BTreeSet::new();
    for listed in checkpoints.list().unwrap() {
        let verified = checkpoints.verify(listed.checkpoint).unwrap();
        assert_eq!(verified.defects, [], "{what}\n  checkpoint {}", listed.checkpoint);
        files.extend(verified.manifest.files().map(|file| file.name.clone()));
    }
    files
}

/// Nothing is left in the store but the checkpoints that stay, and their files, unless programs
/// died or slept in the end (not `exact`).
fn check_end(world: &World, exact: bool, what: &str) {
    let needed = check_store(world, what);
    let there = world.checkpoints(&Arc::new(Gate::new())).list().unwrap().len();
    assert!(there > 0 && (there <= world.keep || !exact), "{what}\n  {there} checkpoints");
    let names = |directory: &str| -> BTreeSet<String> {
        let entries = world.disk.read_dir(format!("{STATE}/{directory}").as_ref());
        entries
            .unwrap_or_default()
            .into_iter()
            .map(|entry| format!("{directory}{}", entry.name))
            .collect()
    };
    let there = names("state/");
    assert!(there == needed || !exact && there.is_superset(&needed), "{what}\n  {there:?}");
    assert!(names("").iter().all(|name| !name.starts_with('.')), "{what}\n  {:?}", names(""));
}

/// Sums over all seeds of what must have happened.
#[derive(Debug, Default)]
struct Sums {
    tally: Tally,
    crashed: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
}

impl Sums {
    fn add(&self, one: &Tally) {
        let pairs = [
            (&self.tally.written, &one.written),
            (&self.tally.missed, &one.missed),
            (&self.tally.resumed, &one.resumed),
            (&self.tally.told, &one.told),
            (&self.tally.ended, &one.ended),
            (&self.tally.merges, &one.merges),
        ];
        for (sum, one) in pairs {
            sum.fetch_add(one.load(Relaxed), Relaxed);
        }
    }
}

/// One seed's programs.
fn simulate(seed: u64, sums: &Sums) -> Stats {
    let mut random = Random::new(seed);
    let Query { plan, what, lateness_ms } = Query::any(&mut random);
    let plan = prepared(plan);
    let mut what = format!("seed {seed}: {what}\n{}", repeat(seed, "whole_jobs"));
    let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 4, lateness_ms) };
    let expected = uninterrupted(&packed(plan.clone(), random.below(1 << 30)), &settings);
    let any = |_| random.pick(&[RowOrder::Any, RowOrder::Deterministic, RowOrder::Deterministic]);
    let orders: Vec<RowOrder> = plan.outputs.iter().map(any).collect();
    let (disk, keep) = (CrashDisk::default(), 1 + random.below(3) as usize);
    make_directories(&disk, orders.len());
    let (start, tally) = (Start::Latest, Tally::default());
    let world = Arc::new(World { disk, plan, orders, lateness_ms, keep, start, tally });
    let (programs, mut slept, mut exact) = (1 + random.below(8), false, false);
    let result = (0..).find_map(|program| {
        let fate = if program < programs { any_fate(&mut random) } else { Fate::Lives };
        what += &format!("program {program}: {fate:?}\n");
        slept |= matches!(fate, Fate::Sleeps { .. });
        let ended = world.tally.ended.load(Relaxed);
        let result = world.run(program, random.below(1 << 30), fate, true);
        let crashed = world.disk.has_crashed();
        let fails = crashed || matches!(fate, Fate::Fails { .. });
        exact = !slept && !fails && world.tally.ended.load(Relaxed) == ended;
        match crashed {
            true => world.disk.restart(any_survival(&mut random)),
            false => world.disk.on_step(|_| millstream_store::disk::Fault::None),
        }
        check_store(&world, &what);
        if let Ok(expected) = &expected {
            check_visible(&world, expected, &what);
        }
        match (result, &expected) {
            (Ok(()), _) => return Some(Ok(())),
            (Err(error), Err(expected)) if error.to_string() == expected.to_string() => {
                return Some(Err(error));
            }
            (Err(_), _) if crashed => {
                sums.crashed.fetch_add(1, Relaxed);
            }
            (Err(Error::Interrupted), _) => assert_eq!(fate, Fate::Stops, "{what}"),
            (Err(error), _) if has_lost(&error) => {
                assert!(matches!(fate, Fate::Sleeps { .. }), "{what}{error}");
                sums.lost.fetch_add(1, Relaxed);
            }
            (Err(error), _) => {
                let fails = matches!(fate, Fate::Fails { .. }) && matches!(error, Error::Io { .. });
                assert!(fails, "{what}{error}");
                sums.failed.fetch_add(1, Relaxed);
            }
        }
        assert!(program < 40, "{what}  no end");
        None
    });
    sums.add(&world.tally);
    match (expected, result.unwrap()) {
        (Ok(expected), Ok(())) => {
            check_visible(&world, &expected, &what);
            // Whoever starts the job once more is told of its end.
            world.run(1 << 20, seed, Fate::Lives, true).unwrap();
            check_end(&world, exact, &what);
            for (output, expected) in expected.iter().enumerate() {
                assert_eq!(visible(&world.disk, output).len(), expected.len(), "{what}");
            }
        }
        (Err(_), Err(_)) => {}
        (expected, result) => panic!("{what}: {result:?} for {:?}", expected.err()),
    }
    Stats::default()
}

#[test]
fn simulated_jobs_outlive_their_programs_and_disks() {
    let sums = Sums::default();
    let (seeds, _) = run_seeds(200, |seed| simulate(seed, &sums));
    let count = |sum: &AtomicU64| sum.load(Relaxed);
    happened(
        seeds,
        &[
            ("checkpoints", count(&sums.tally.written)),
            ("missed checkpoints", count(&sums.tally.missed)),
            ("programs that went on", count(&sums.tally.resumed)),
            ("programs that said so", count(&sums.tally.told)),
            ("jobs that had ended", count(&sums.tally.ended)),
            ("merges", count(&sums.tally.merges)),
            ("crashes", count(&sums.crashed)),
            ("failures", count(&sums.failed)),
            ("lost races", count(&sums.lost)),
        ],
    );
}
