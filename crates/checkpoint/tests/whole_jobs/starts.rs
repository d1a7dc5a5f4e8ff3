//! Where a job begins: at another checkpoint than the latest, or anew.

use std::sync::Arc;

use millstream_checkpoint::Start;
use millstream_contract::plan::Plan;
use millstream_contract::sink::RowOrder;
use millstream_contract::{Error, Settings};
use millstream_store::disk::{CrashDisk, Disk, Survival};

use crate::gate::Gate;
use crate::outputs::{directory, make_directories, visible};
use crate::program::{Fate, Tally, World, prepared};
use crate::support::*;
use crate::uninterrupted;

fn world(disk: &CrashDisk, plan: &Plan, start: Start) -> Arc<World> {
    let (disk, plan, tally) = (disk.clone(), plan.clone(), Tally::default());
    let orders = vec![RowOrder::Deterministic];
    Arc::new(World { disk, plan, orders, lateness_ms: 0, keep: 2, start, tally })
}

fn numbers(world: &World) -> Vec<u64> {
    let listed = world.checkpoints(&Arc::new(Gate::new())).list().unwrap();
    listed.into_iter().map(|listed| listed.checkpoint).collect()
}

/// A plan, and a disk with two checkpoints of its job, which has not ended. There are rows between
/// the two.
fn stopped() -> (Plan, CrashDisk) {
    let mut random = Random::new(3);
    let data = records(&mut random, 2, 900, 20);
    let plan = prepared(query(table(&data, &mut random, 10), Some(1000), 0));
    let is_enough = |world: &World| {
        let [_, last] = numbers(world)[..] else { return false };
        let last = world.checkpoints(&Arc::new(Gate::new())).load(last).unwrap();
        last.outputs[0].prepared.iter().any(|prepared| !prepared.sealed.is_empty())
    };
    let disk = (0..).find_map(|seed| {
        let disk = CrashDisk::default();
        make_directories(&disk, 1);
        let world = world(&disk, &plan, Start::Latest);
        let mut stops = (0..20).map(|n| world.run(n, seed * 100 + n, Fate::Stops, true));
        let goes_on = |result| matches!(result, Err(Error::Interrupted));
        stops.any(|result| !goes_on(result) || is_enough(&world));
        (is_enough(&world) && !has_ended(&world)).then_some(disk)
    });
    (plan, disk.unwrap())
}

fn has_ended(world: &World) -> bool {
    world.checkpoints(&Arc::new(Gate::new())).latest().unwrap().unwrap().ended
}

fn clear_output(disk: &CrashDisk) {
    for entry in disk.read_dir(&directory(0)).unwrap() {
        disk.unlink(&directory(0).join(entry.name)).unwrap();
    }
}

fn expected(plan: &Plan) -> Vec<String> {
    uninterrupted(plan, &Settings::default()).unwrap().remove(0)
}

#[test]
fn a_job_that_begins_anew_leaves_the_checkpoints_of_the_former_alone() {
    let (plan, disk) = stopped();
    clear_output(&disk);
    let fresh = world(&disk, &plan, Start::Fresh);
    let before = numbers(&fresh);
    fresh.run(100, 1, Fate::Lives, true).unwrap();
    assert_eq!(visible(&disk, 0), expected(&plan));
    let after = numbers(&fresh);
    assert!(after.starts_with(&before) && after.len() > before.len(), "{before:?} {after:?}");
    assert!(after.len() <= before.len() + fresh.keep, "{after:?}");
}

#[test]
fn a_job_goes_on_from_the_checkpoint_that_is_named() {
    let (plan, disk) = stopped();
    let latest = world(&disk, &plan, Start::Latest);
    let [first, last] = numbers(&latest)[..] else { panic!("{:?}", numbers(&latest)) };
    let before = visible(&disk, 0);
    let rows = |start| {
        let disk = disk.copy();
        world(&disk, &plan, start).run(100, 1, Fate::Lives, true).unwrap();
        visible(&disk, 0).split_off(before.len())
    };
    let expected = expected(&plan);
    same_rows(&[&before[..], &rows(Start::At(last))].concat(), &expected, "the last");
    // The rows of the last interval come again.
    let again = rows(Start::At(first));
    assert!(again.len() + before.len() > expected.len(), "{} rows", again.len());
    assert!(expected.ends_with(&again), "{} rows", again.len());
    let missing = world(&disk, &plan, Start::At(999)).run(100, 1, Fate::Lives, true).unwrap_err();
    assert!(missing.to_string().contains("it has no checkpoint 999"), "{missing}");
}

#[test]
fn checkpoints_of_another_job_are_refused() {
    let (mut plan, disk) = stopped();
    let before = visible(&disk, 0);
    plan.sources[0].name = "others".into();
    let error = world(&disk, &plan, Start::Latest).run(100, 1, Fate::Lives, true).unwrap_err();
    let message = "is of another job, which reads events";
    assert!(error.to_string().contains(message), "{error}");
    assert_eq!(visible(&disk, 0), before);
}

/// A plan that passes 300 records on, and an empty disk for it.
fn passed(limit: Option<u64>, random: &mut Random) -> (Plan, CrashDisk) {
    let data = records(random, 2, 150, 20);
    let disk = CrashDisk::default();
    make_directories(&disk, 1);
    (prepared(passing(table(&data, random, 3), limit)), disk)
}

#[test]
fn a_limit_counts_the_rows_of_all_programs() {
    let mut went_on = 0;
    for seed in 0..20 {
        let (plan, disk) = passed(Some(100), &mut Random::new(seed));
        let world = world(&disk, &plan, Start::Latest);
        for program in 0..4 {
            let shown = visible(&disk, 0).len();
            went_on += u64::from(shown > 0 && shown < 100);
            if world.run(program, seed * 10 + program, Fate::Stops, true).is_ok() {
                break;
            }
        }
        world.run(100, seed, Fate::Lives, true).unwrap();
        assert_eq!(visible(&disk, 0), expected(&plan), "seed {seed}");
    }
    assert!(went_on > 5, "{went_on}");
}

/// A killed program has linked a manifest and not synced its name. The next one shows its rows:
/// then the manifest outlasts the power, too.
#[test]
fn the_power_fails_soon_after_a_kill() {
    for at in (0..160).step_by(2) {
        let (plan, first) = passed(None, &mut Random::new(5));
        let _ = world(&first, &plan, Start::Latest).run(0, 1, crash(at), true);
        first.restart(Survival::Killed);
        for again in [4, 5, 6, 7, 8, 10, 12, 14, 18, 25] {
            let disk = first.copy();
            let world = world(&disk, &plan, Start::Latest);
            let _ = world.run(1, 2, crash(again), true);
            disk.restart(Survival::Synced);
            world.run(2, 3, Fate::Lives, true).unwrap();
            same_rows(&visible(&disk, 0), &expected(&plan), &format!("{at}, then {again}"));
        }
    }
}

fn crash(at: u64) -> Fate {
    Fate::Crashes { at, after: true }
}
