//! Random runs of a coordinator, with crashes and errors.

use crate::common::{Random, checkpoints, fault_at, manifest, store, write_file};
use millstream_store::disk::{CrashDisk, Fault, Survival};
use millstream_store::*;

fn numbers(checkpoints: &Checkpoints) -> Vec<u64> {
    checkpoints.list().unwrap().into_iter().map(|listed| listed.checkpoint).collect()
}

/// A coordinator in a random run.
struct Coordinator {
    all: Checkpoints,
    run: String,
    /// The last manifest that it has published or adopted.
    last: Manifest,
}

impl Coordinator {
    fn start(disk: &CrashDisk, run: u64) -> Result<Coordinator> {
        let all = checkpoints(disk);
        store(disk).sweep()?;
        let last = match all.latest()? {
            Some(last) => all.adopt(last.checkpoint)?,
            None => manifest(0, "", vec![]),
        };
        Ok(Coordinator { all, run: format!("r{run}"), last })
    }

    /// Some files of the last checkpoint and some new ones.
    fn next(&self, number: u64, random: &mut Random) -> Result<Manifest> {
        let old = self.last.files().filter(|_| random.below(3) > 0);
        let mut files: Vec<StateFile> = old.cloned().collect();
        for label in 0..random.below(3) {
            let bytes = vec![random.below(256) as u8; random.below(40) as usize];
            files.push(write_file(&self.all, number, &label.to_string(), &self.run, &bytes)?);
        }
        Ok(manifest(number, &self.run, files))
    }
}

/// Publishes and trims until the disk crashes. The last acknowledged manifest, and the one that may
/// be there instead; `None` if it did not begin.
fn run(
    disk: &CrashDisk,
    number: u64,
    random: &mut Random,
    keep: usize,
) -> Option<(Manifest, Option<Manifest>)> {
    let mut coordinator = Coordinator::start(disk, number).ok()?;
    loop {
        let last = coordinator.last.clone();
        let at = |next| Some((last.clone(), next));
        let number = last.checkpoint + 1;
        let Ok(next) = coordinator.next(number, random) else { return at(None) };
        if coordinator.all.publish(&next).is_err() {
            return at(Some(next));
        }
        coordinator.last = next;
        let Ok(_) = coordinator.all.trim(0..=number, keep) else {
            return Some((coordinator.last, None));
        };
        if let Ok(listed) = coordinator.all.list() {
            assert!(listed.len() <= keep);
        }
    }
}

#[test]
fn random_runs_with_crashes_lose_nothing_and_leave_nothing() {
    let mut crashes = 0;
    for seed in 0..50 {
        let mut random = Random(seed);
        let disk = CrashDisk::default();
        let keep = 1 + random.below(3) as usize;
        // The latest that is durable, and the latest that is there: it may not be durable.
        let mut durable: Option<Manifest> = None;
        let mut seen: Option<Manifest> = None;
        for number in 0..12 {
            let case = format!("seed {seed}, run {number}");
            fault_at(&disk, random.below(400), Fault::Crash { after: random.below(2) == 0 });
            let outcome = run(&disk, number, &mut random, keep);
            assert!(disk.has_crashed(), "{case}");
            crashes += 1;
            let survival = match random.below(4) {
                0 => Survival::Synced,
                1 => Survival::Killed,
                _ => Survival::Some(random.below(u64::MAX)),
            };
            disk.restart(survival);
            let all = checkpoints(&disk);
            let latest = all.latest().unwrap();
            // Otherwise it crashed before it had begun.
            if let Some((last, next)) = outcome {
                durable = Some(last).filter(|last| last.checkpoint > 0);
                seen = next.or_else(|| durable.clone());
            }
            assert!(latest == durable || latest == seen, "{case}: {latest:?}");
            // Every manifest that is there has its files.
            for number in numbers(&all) {
                assert_eq!(all.verify(number).unwrap().defects, [], "{case}, {number}");
            }
            if survival != Survival::Killed {
                durable = latest.clone();
            }
            seen = latest;
        }
        let Ok(coordinator) = Coordinator::start(&disk, 99) else { panic!("seed {seed}") };
        let number = coordinator.last.checkpoint;
        coordinator.all.trim(0..=number, keep).unwrap();
        let mut needed: Vec<String> = (numbers(&coordinator.all).into_iter())
            .flat_map(|number| {
                coordinator.all.load(number).unwrap().files().cloned().collect::<Vec<_>>()
            })
            .filter(|file| file.checkpoint().unwrap() <= number)
            .map(|file| format!("1/{}", file.name))
            .collect();
        needed.sort();
        needed.dedup();
        let there = store(&disk).list("1/state/").unwrap();
        let there = there.into_iter().map(|object| object.name);
        let there: Vec<String> = there
            .filter(|name| name["1/state/".len()..][..10].parse::<u64>().unwrap() <= number)
            .collect();
        assert_eq!(there, needed, "seed {seed}");
    }
    assert_eq!(crashes, 50 * 12);
}

/// Errors now and then: the coordinator tries again, with the same manifest or a later one.
#[test]
fn random_errors_are_outlived() {
    let (mut failures, mut published) = (0, 0);
    for seed in 0..50 {
        let mut random = Random(seed);
        let disk = CrashDisk::default();
        let mut coordinator = Coordinator::start(&disk, 0).unwrap();
        let mut faults = Random(seed + 1000);
        disk.on_step(move |_| match faults.below(60) {
            0 => Fault::Error([libc::EIO, libc::ENOSPC][faults.below(2) as usize]),
            _ => Fault::None,
        });
        let mut number = 0;
        for _ in 0..40 {
            number += 1;
            let mut done = Err(Error::Missing { object: String::new() });
            if let Ok(next) = coordinator.next(number, &mut random) {
                for _ in 0..=random.below(2) {
                    done = coordinator.all.publish(&next);
                    if done.is_ok() {
                        coordinator.last = next;
                        break;
                    }
                    assert!(done.as_ref().is_err_and(Error::may_pass), "seed {seed}: {done:?}");
                }
            }
            failures += u64::from(done.is_err());
            published += u64::from(done.is_ok());
            if let Err(error) = coordinator.all.trim(0..=coordinator.last.checkpoint, 2) {
                assert!(error.may_pass(), "seed {seed}: {error}");
            }
        }
        disk.restart(Survival::Some(seed));
        let all = checkpoints(&disk);
        let latest = all.latest().unwrap().unwrap();
        // A later one has failed, and may be there.
        assert!(latest.checkpoint >= coordinator.last.checkpoint, "seed {seed}");
        assert_eq!(all.verify(latest.checkpoint).unwrap().defects, [], "seed {seed}");
        assert_eq!(all.load(coordinator.last.checkpoint), Ok(coordinator.last), "seed {seed}");
    }
    assert!(failures > 200 && published > 1200, "{failures} {published}");
}
