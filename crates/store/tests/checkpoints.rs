//! Checkpoints: publishing, two coordinators, verifying, deleting, trimming, damage.

use crate::common::{Scratch, checkpoints, fault_at, manifest, steps_of, store, write_file};
use millstream_store::disk::{CrashDisk, Fault, StepKind, Survival};
use millstream_store::*;

fn numbers(checkpoints: &Checkpoints) -> Vec<u64> {
    checkpoints.list().unwrap().into_iter().map(|listed| listed.checkpoint).collect()
}

fn files(disk: &CrashDisk) -> Vec<String> {
    let objects = store(disk).list("1/state/").unwrap();
    objects.into_iter().map(|object| object.name.replace("1/state/0000000", "")).collect()
}

/// Publishes a checkpoint with one new file and these.
fn publish(
    checkpoints: &Checkpoints,
    number: u64,
    run: &str,
    old: &[StateFile],
) -> Result<StateFile> {
    let text = format!("state of {number} by {run}");
    let file = write_file(checkpoints, number, "0", run, text.as_bytes())?;
    let files = [old, std::slice::from_ref(&file)].concat();
    checkpoints.publish(&manifest(number, run, files)).map(|()| file)
}

fn object(number: u64) -> String {
    format!("1/manifest-{number:010}.json")
}

fn place(number: u64) -> String {
    format!("{}/{}", crate::common::ROOT, object(number))
}

/// Changes a byte of an object.
fn damage(disk: &CrashDisk, name: &str) {
    let mut bytes = store(disk).get(name, None).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    store(disk).put(name, &bytes).unwrap();
}

#[test]
fn checkpoints_are_published_listed_and_loaded() {
    let disk = CrashDisk::default();
    let all = checkpoints(&disk);
    assert_eq!((all.latest(), all.next()), (Ok(None), Ok(1)));
    assert!(matches!(all.load(1), Err(Error::Missing { .. })));
    publish(&all, 1, "a", &[]).unwrap();
    publish(&all, 12, "a", &[]).unwrap();
    store(&disk).put("1/manifest-1.json", b"no number").unwrap();
    store(&disk).put("12/manifest-0000000099.json", b"of another job").unwrap();
    disk.restart(Survival::Synced);
    let all = checkpoints(&disk);
    assert_eq!((numbers(&all), all.next()), (vec![1, 12], Ok(13)));
    assert_eq!(all.latest().unwrap().unwrap().checkpoint, 12);
    assert_eq!(all.load(1).unwrap().checkpoint, 1);
    assert_eq!(all.verify(12).unwrap().defects, []);
    let file = all.load(12).unwrap().stages[0].files[0].clone();
    assert_eq!(all.read_file(&file, Some(9..11)).unwrap(), b"12");
    assert_eq!(numbers(&Checkpoints::new(std::sync::Arc::new(store(&disk)), "").unwrap()), [0; 0]);
    Checkpoints::new(std::sync::Arc::new(store(&disk)), "../x").unwrap_err();
}

#[test]
fn files_are_written_through_a_writer_of_formats() {
    use std::io::Write;
    let scratch = Scratch::new();
    let all = Checkpoints::new(std::sync::Arc::new(LocalStore::new(&scratch.0)), "").unwrap();
    let mut writer = all.write_file(5, "0-o.window", "a").unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    writer.write_all(&bytes).unwrap();
    let file = writer.finish(0, 9, 3..7).unwrap();
    assert_eq!(file.name, "state/0000000005-0-o.window-a");
    assert_eq!((file.bytes, file.rows, file.partitions), (3_000_000, 9, (3, 7)));
    assert_eq!(file.xxh3, format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)));
    assert_eq!(file.checkpoint(), Some(5));
    all.publish(&manifest(5, "a", vec![file])).unwrap();
    assert_eq!(all.verify(5).unwrap().defects, []);
    for (number, label) in [(5, "a/b"), (5, ".."), (5, "ä"), (10_000_000_000, "a")] {
        let error = all.write_file(number, label, "a/..").unwrap_err();
        assert!(matches!(error, Error::Name { .. }), "{error}");
    }
}

#[test]
fn verify_finds_files_that_are_gone_cut_off_or_changed() {
    let disk = CrashDisk::default();
    let all = checkpoints(&disk);
    let file = publish(&all, 1, "a", &[]).unwrap();
    let name = format!("1/{}", file.name);
    let bytes = store(&disk).get(&name, None).unwrap();
    let defect = |all: &Checkpoints| {
        let defects = all.verify(1).unwrap().defects;
        assert_eq!((defects.len(), &defects[0].file), (1, &file.name));
        defects[0].message.clone()
    };
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 16;
        store(&disk).put(&name, &bytes).unwrap();
        assert!(defect(&all).starts_with("its checksum is "));
    }
    store(&disk).put(&name, &bytes[1..]).unwrap();
    assert_eq!(defect(&all), "it has 14 bytes, and had 15");
    store(&disk).delete(&name).unwrap();
    assert_eq!(defect(&all), "it is not there");
    // Another job's file in its place, of the same length.
    store(&disk).put(&name, b"state of 1 by b").unwrap();
    assert!(defect(&all).starts_with("its checksum is "));
    store(&disk).put(&name, &bytes).unwrap();
    assert_eq!(all.verify(1).unwrap().defects, []);
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_offered() {
    let disk = CrashDisk::default();
    let all = checkpoints(&disk);
    let first = publish(&all, 1, "a", &[]).unwrap();
    let second = publish(&all, 2, "a", &[]).unwrap();
    publish(&all, 3, "a", &[first, second.clone()]).unwrap();
    publish(&all, 4, "a", &[]).unwrap();
    damage(&disk, &object(4));
    let before = |result: Result<Option<Manifest>>| match result {
        Err(Error::Damaged { object: name, before, .. }) => (name, before),
        other => panic!("{other:?}"),
    };
    assert_eq!(before(all.latest()), (place(4), Some(3)));
    assert_eq!(before(all.load(4).map(Some)), (place(4), Some(3)));
    let text = all.latest().unwrap_err().to_string();
    assert!(text.ends_with("go on from checkpoint 3, which is whole"), "{text}");
    // A file that 2 and 3 need is gone.
    store(&disk).delete(&format!("1/{}", second.name)).unwrap();
    assert_eq!(before(all.latest()), (place(4), Some(1)));
    damage(&disk, &object(1));
    assert_eq!(before(all.latest()), (place(4), None));
    // Its number is not used again.
    assert_eq!(all.next(), Ok(5));
    // A copy under another name.
    store(&disk).put(&object(5), &store(&disk).get(&object(3), None).unwrap()).unwrap();
    let text = all.latest().unwrap_err().to_string();
    assert!(text.contains("it is the manifest of checkpoint 3"), "{text}");
}

#[test]
fn manifests_that_would_be_useless_are_not_published() {
    let disk = CrashDisk::default();
    let all = checkpoints(&disk);
    let file = write_file(&all, 3, "0", "a", b"x").unwrap();
    let refused = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = manifest(2, "a", vec![]);
        change(&mut manifest);
        let error = all.publish(&manifest).unwrap_err();
        assert!(matches!(&error, Error::Internal { .. }), "{error}");
    };
    refused(&|manifest| manifest.format += 1);
    refused(&|manifest| manifest.checkpoint = 10_000_000_000);
    // A file of a later checkpoint would not be safe from trimming by its number.
    refused(&|manifest| manifest.stages[0].files = vec![file.clone()]);
    for name in ["state/../x", "x", "state/3-0-a", "state/0000000001", "state/0000000001-a/b"] {
        refused(&|manifest| {
            manifest.outputs[0].waiting = vec![StateFile { name: name.into(), ..file.clone() }];
        });
    }
    // What is found by its name must have one of its own.
    refused(&|manifest| manifest.stages[0].names.push("p.window".into()));
    refused(&|manifest| manifest.outputs.extend(manifest.outputs.clone()));
    assert_eq!(numbers(&all), [0; 0]);
}

/// The store failed when this coordinator wanted to publish a checkpoint, and meanwhile another
/// coordinator did so. The next number is free, but the job has ended there, or is further.
#[test]
fn a_rival_between_two_checkpoints_is_noticed() {
    let disk = CrashDisk::default();
    let all = checkpoints(&disk);
    publish(&all, 3, "a", &[]).unwrap();
    publish(&all, 4, "a", &[]).unwrap();
    all.publish_behind(&manifest(5, "a", vec![]), 3).expect("4 is its own");
    publish(&all, 6, "b", &[]).unwrap();
    let lost = all.publish_behind(&manifest(8, "a", vec![]), 5);
    assert!(matches!(lost, Err(Error::Rival { .. })), "{lost:?}");
    assert_eq!(numbers(&all), [3, 4, 5, 6]);
    all.publish_behind(&manifest(7, "b", vec![]), 6).unwrap();
}

#[test]
fn of_two_coordinators_the_loser_learns_it() {
    let disk = CrashDisk::default();
    let (one, other) = (checkpoints(&disk), checkpoints(&disk));
    publish(&one, 1, "one", &[]).unwrap();
    other.adopt(1).unwrap();
    publish(&other, 2, "other", &[]).unwrap();
    let error = publish(&one, 2, "one", &[]).unwrap_err();
    assert!(!error.may_pass());
    let text = error.to_string();
    assert!(text.contains(&place(2)) && text.contains("checkpoint 2, run other"), "{text}");
    assert_eq!(all_attempts(&one), [(1, "one".to_string()), (2, "other".to_string())]);
}

fn all_attempts(all: &Checkpoints) -> Vec<(u64, String)> {
    numbers(all).into_iter().map(|number| (number, all.load(number).unwrap().attempt)).collect()
}

/// The number that it wants is free again, since the other has trimmed it.
#[test]
fn a_coordinator_that_slept_long_has_lost() {
    let disk = CrashDisk::default();
    let (one, other) = (checkpoints(&disk), checkpoints(&disk));
    publish(&one, 1, "one", &[]).unwrap();
    for number in 2..6 {
        publish(&other, number, "other", &[]).unwrap();
        other.trim(0..=number, 2).unwrap();
    }
    assert_eq!(numbers(&one), [4, 5]);
    let error = publish(&one, 2, "one", &[]).unwrap_err();
    assert!(error.to_string().contains("checkpoint 5, run other"), "{error}");
    assert_eq!(numbers(&one), [4, 5], "and leaves nothing to restore");
}

/// A coordinator gets an error, but its manifest is there.
#[test]
fn publishing_again_after_an_unknown_outcome_succeeds_and_lasts() {
    let disk = CrashDisk::default();
    publish(&checkpoints(&disk), 1, "a", &[]).unwrap();
    let next = manifest(2, "a", vec![]);
    let steps = steps_of(&disk, |disk| checkpoints(disk).publish(&next).unwrap());
    let mut there = 0;
    for step in 0..steps {
        let disk = disk.copy();
        fault_at(&disk, step, Fault::Error(libc::EIO));
        let all = checkpoints(&disk);
        if all.publish(&next).is_err_and(|error| error.may_pass()) {
            there += u64::from(numbers(&all) == [1, 2]);
            assert_eq!(all.publish(&next), Ok(()), "step {step}");
        }
        disk.restart(Survival::Synced);
        assert_eq!(checkpoints(&disk).latest(), Ok(Some(next.clone())), "step {step}");
    }
    assert!(there > 0, "the case happened");
}

/// The program is killed after it has given the manifest its name, and before it has synced it. The
/// next run sees the manifest, commits output, and then the power fails.
#[test]
fn an_adopted_checkpoint_outlasts_the_power() {
    let disk = CrashDisk::default();
    publish(&checkpoints(&disk), 1, "a", &[]).unwrap();
    let kinds = std::sync::Arc::new(std::sync::Mutex::new(0));
    disk.on_step({
        let kinds = kinds.clone();
        move |step| {
            *kinds.lock().unwrap() += usize::from(step.kind == StepKind::Link);
            match step.kind {
                StepKind::SyncDir if *kinds.lock().unwrap() > 0 => Fault::Crash { after: false },
                _ => Fault::None,
            }
        }
    });
    checkpoints(&disk).publish(&manifest(2, "a", vec![])).unwrap_err();
    disk.restart(Survival::Killed);
    let all = checkpoints(&disk);
    assert_eq!(all.latest().unwrap().unwrap().checkpoint, 2);
    {
        let disk = disk.copy();
        disk.restart(Survival::Synced);
        assert_eq!(numbers(&checkpoints(&disk)), [1], "it was not durable");
    }
    // Also on a full disk.
    disk.on_step(|step| match step.kind {
        StepKind::Create | StepKind::Write | StepKind::Link => Fault::Error(libc::ENOSPC),
        _ => Fault::None,
    });
    assert!(matches!(publish(&all, 3, "b", &[]), Err(Error::Full { .. })));
    assert_eq!(all.adopt(2).unwrap().checkpoint, 2);
    disk.restart(Survival::Synced);
    assert_eq!(numbers(&checkpoints(&disk)), [1, 2]);
}

#[test]
fn trimming_keeps_the_latest_and_the_files_that_they_need() {
    let disk = CrashDisk::default();
    let all = checkpoints(&disk);
    let first = publish(&all, 1, "a", &[]).unwrap();
    let second = publish(&all, 2, "a", std::slice::from_ref(&first)).unwrap();
    publish(&all, 3, "a", std::slice::from_ref(&first)).unwrap();
    publish(&all, 4, "a", &[first.clone(), second.clone()]).unwrap();
    // A file of a checkpoint that was given up, one of the next, one of another kind.
    write_file(&all, 2, "9", "a", b"given up").unwrap();
    write_file(&all, 5, "0", "a", b"next").unwrap();
    store(&disk).put("1/state/mine", b"x").unwrap();
    let removed = all.trim(0..=4, 10).unwrap();
    assert_eq!((removed.checkpoints.len(), removed.files.len(), removed.bytes), (0, 1, 8));
    assert_eq!(all.trim(0..=4, 2).unwrap().checkpoints, [1, 2]);
    assert_eq!(
        files(&disk),
        ["001-0-a", "002-0-a", "003-0-a", "004-0-a", "005-0-a", "1/state/mine"]
    );
    let removed = all.trim(0..=4, 0).unwrap();
    assert_eq!((numbers(&all), removed.files), (vec![4], vec!["state/0000000003-0-a".to_string()]));
    assert_eq!(all.verify(4).unwrap().defects, []);
    assert_eq!(all.trim(0..=4, 1), Ok(Removed::default()));
}

#[test]
fn trimming_leaves_what_it_cannot_know_alone() {
    let disk = CrashDisk::default();
    let all = checkpoints(&disk);
    for number in 1..6 {
        publish(&all, number, "a", &[]).unwrap();
    }
    damage(&disk, &object(4));
    // 3 is the second that can be read; 4 may need the files of 1 and 2.
    assert_eq!(all.trim(0..=5, 2).unwrap().checkpoints, [1, 2]);
    assert_eq!(files(&disk).len(), 5);
    // Another coordinator has published 5, which may not be durable; this one has published 3.
    assert_eq!(all.trim(0..=3, 1).unwrap(), Removed::default());
    assert_eq!(numbers(&all), [3, 4, 5]);
    // The store does not answer: nothing is deleted.
    disk.on_step(|step| match step.kind {
        StepKind::Read => Fault::Error(libc::EIO),
        _ => Fault::None,
    });
    assert!(all.trim(0..=5, 1).unwrap_err().may_pass());
    disk.on_step(|_| Fault::None);
    assert_eq!(numbers(&all), [3, 4, 5]);
    assert_eq!(all.trim(0..=5, 1).unwrap().checkpoints, [3, 4]);
    assert_eq!(files(&disk), ["005-0-a"]);
}

#[test]
fn deleting_takes_the_files_that_no_other_needs() {
    let disk = CrashDisk::default();
    let all = checkpoints(&disk);
    let first = publish(&all, 1, "a", &[]).unwrap();
    publish(&all, 2, "a", std::slice::from_ref(&first)).unwrap();
    publish(&all, 3, "a", &[]).unwrap();
    write_file(&all, 2, "9", "a", b"of nobody").unwrap();
    assert_eq!(all.delete(1).unwrap().files, [""; 0]);
    assert_eq!(all.delete(2).unwrap().files, [first.name, "state/0000000002-0-a".into()]);
    assert_eq!((numbers(&all), files(&disk)), (vec![3], vec!["002-9-a".into(), "003-0-a".into()]));
    assert!(matches!(all.delete(2), Err(Error::Missing { .. })));
    publish(&all, 4, "a", &[]).unwrap();
    damage(&disk, &object(4));
    // 4 may need the file of 3.
    assert_eq!(all.delete(3).unwrap().files, [""; 0]);
    assert_eq!(all.delete(4).unwrap(), Removed { checkpoints: vec![4], ..Removed::default() });
    assert_eq!(numbers(&all), [0; 0]);
}

/// A step of the file system within publishing or trimming, and another coordinator's checkpoint
/// just before.
#[test]
fn another_coordinator_at_any_step_never_makes_two_winners() {
    let disk = CrashDisk::default();
    publish(&checkpoints(&disk), 1, "one", &[]).unwrap();
    let steps = steps_of(&disk, |disk| drop(publish(&checkpoints(disk), 2, "one", &[]).unwrap()));
    let mut won = [0, 0];
    for ahead in 0..4 {
        for at in 0..steps {
            let disk = disk.copy();
            let (number, other) = (disk.steps() + at, checkpoints(&disk));
            let results = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
            disk.on_step({
                let results = results.clone();
                move |step| {
                    if step.number == number {
                        // It goes on from what it finds, one checkpoint or several.
                        for _ in 0..=ahead {
                            let last = other.latest().unwrap().unwrap();
                            other.adopt(last.checkpoint).unwrap();
                            let next = last.checkpoint + 1;
                            let published = publish(&other, next, "other", &[]).map(|_| next);
                            results.lock().unwrap().push(published.unwrap());
                            other.trim(0..=next, 1).unwrap();
                        }
                    }
                    Fault::None
                }
            });
            let all = checkpoints(&disk);
            let own = publish(&all, 2, "one", &[]);
            let case = format!("{ahead} ahead, before step {at}");
            let results = results.lock().unwrap();
            match own {
                Ok(_) => assert!(!results.contains(&2), "{case}"),
                Err(Error::Rival { .. }) => {}
                Err(error) => panic!("{case}: {error}"),
            }
            won[usize::from(own.is_ok())] += 1;
            let latest = all.latest().unwrap().unwrap();
            assert_eq!((latest.checkpoint, &*latest.attempt), (*results.last().unwrap(), "other"));
            assert_eq!(all.verify(latest.checkpoint).unwrap().defects, [], "{case}");
        }
    }
    assert!(won[0] > 0, "{won:?}");
}
