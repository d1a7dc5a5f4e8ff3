//! Every operation of a local store, with a crash before and after each of its steps, an error in
//! each, and another program between any two.

use std::sync::{Arc, Mutex};

use crate::common::{ROOT, fault_at, steps_of, store};
use millstream_store::disk::{CrashDisk, Disk, Fault, StepKind, Survival};
use millstream_store::{Error, LocalStore, Put, Result, Store};

const OLD: &[u8] = b"the bytes that were there before, longer than a piece of a torn file";
const NEW: &[u8] = b"the new bytes, which are longer than a piece of a torn file, and other ones";

/// An operation, and its object before and after.
struct Operation {
    name: &'static str,
    object: &'static str,
    before: Option<&'static [u8]>,
    after: Option<&'static [u8]>,
    run: fn(&LocalStore, &str) -> Result<()>,
}

const OPERATIONS: [Operation; 7] = [
    Operation { name: "put", object: "new/folders/a", before: None, after: Some(NEW), run: put },
    Operation { name: "put over", object: "a/old", before: Some(OLD), after: Some(NEW), run: put },
    Operation {
        name: "put if absent",
        object: "new/a",
        before: None,
        after: Some(NEW),
        run: |store, name| store.put_if_absent(name, NEW).map(|put| assert_eq!(put, Put::Created)),
    },
    Operation {
        name: "put if absent, which is there",
        object: "a/old",
        before: Some(OLD),
        after: Some(OLD),
        run: |store, name| store.put_if_absent(name, NEW).map(|put| assert_eq!(put, Put::Exists)),
    },
    Operation {
        name: "pieces",
        object: "a/new",
        before: None,
        after: Some(NEW),
        run: |store, name| {
            let mut writer = store.create(name)?;
            NEW.chunks(20).try_for_each(|piece| writer.write(piece))?;
            writer.finish()
        },
    },
    Operation {
        name: "pieces, not finished",
        object: "a/old",
        before: Some(OLD),
        after: Some(OLD),
        run: |store, name| store.create(name)?.write(NEW),
    },
    Operation {
        name: "delete",
        object: "a/old",
        before: Some(OLD),
        after: None,
        run: |store, name| store.delete(name),
    },
];

fn put(store: &LocalStore, name: &str) -> Result<()> {
    store.put(name, NEW)
}

/// A disk with a few objects, all durable.
fn disk() -> CrashDisk {
    let disk = CrashDisk::default();
    store(&disk).put("a/old", OLD).unwrap();
    store(&disk).put("a/other", OLD).unwrap();
    disk.restart(Survival::Synced);
    disk
}

fn get(store: &LocalStore, name: &str) -> Option<Vec<u8>> {
    match store.get(name, None) {
        Err(Error::Missing { .. }) => None,
        bytes => Some(bytes.unwrap()),
    }
}

/// What must hold after a restart or an error.
fn check(store: &LocalStore, operation: &Operation, acknowledged: bool, case: &str) {
    let found = get(store, operation.object);
    let (before, after) = (operation.before, operation.after);
    if acknowledged {
        assert_eq!(found.as_deref(), after, "{case}: acknowledged");
    } else {
        assert!(found.as_deref() == before || found.as_deref() == after, "{case}: {found:?}");
    }
    assert_eq!(get(store, "a/other").as_deref(), Some(OLD), "{case}: another object");
    for object in store.list("").unwrap() {
        assert!([operation.object, "a/old", "a/other"].contains(&&*object.name), "{case}");
        let bytes = get(store, &object.name).unwrap();
        assert_eq!(object.bytes, bytes.len() as u64, "{case}");
    }
}

/// Whether a temporary file is anywhere.
fn has_temporary(disk: &CrashDisk, folder: &str) -> bool {
    disk.read_dir(folder.as_ref()).unwrap_or_default().into_iter().any(|entry| {
        let path = format!("{folder}/{}", entry.name);
        if entry.bytes.is_some() {
            entry.name.ends_with(".tmp")
        } else {
            has_temporary(disk, &path)
        }
    })
}

fn survivals() -> impl Iterator<Item = Survival> {
    [Survival::Synced, Survival::Killed].into_iter().chain((0..12).map(Survival::Some))
}

#[test]
fn a_crash_at_any_step_undoes_nothing_that_was_acknowledged() {
    let disk = disk();
    for operation in &OPERATIONS {
        let steps = steps_of(&disk, |disk| {
            (operation.run)(&store(disk), operation.object).unwrap();
        });
        assert!(steps >= 2, "{}: {steps}", operation.name);
        for step in 0..=steps {
            for after in [false, true] {
                for survival in survivals() {
                    let case = format!("{}, step {step}, {after}, {survival:?}", operation.name);
                    let disk = disk.copy();
                    fault_at(&disk, step, Fault::Crash { after });
                    let done = (operation.run)(&store(&disk), operation.object);
                    assert_eq!(disk.has_crashed(), step < steps, "{case}");
                    // The power fails at the latest now.
                    disk.restart(survival);
                    check(&store(&disk), operation, done.is_ok(), &case);

                    store(&disk).sweep().unwrap();
                    assert!(!has_temporary(&disk, ROOT), "{case}");
                    again(&disk, operation, &case);
                }
            }
        }
    }
}

/// After a restart the operation can be carried out, and lasts.
fn again(disk: &CrashDisk, operation: &Operation, case: &str) {
    let store = store(disk);
    let put_if_absent = operation.name.starts_with("put if absent");
    if !put_if_absent || get(&store, operation.object).as_deref() == operation.before {
        (operation.run)(&store, operation.object).unwrap();
        disk.restart(Survival::Synced);
        check(&crate::common::store(disk), operation, true, case);
    }
}

#[test]
fn an_error_at_any_step_leaves_the_object_whole_or_as_before() {
    let disk = disk();
    for operation in &OPERATIONS {
        let steps = steps_of(&disk, |disk| {
            (operation.run)(&store(disk), operation.object).unwrap();
        });
        for step in 0..steps {
            for code in [libc::EIO, libc::ENOSPC, libc::EACCES] {
                for survival in survivals() {
                    let case = format!("{}, step {step}, {code}, {survival:?}", operation.name);
                    let disk = disk.copy();
                    let store = store(&disk);
                    fault_at(&disk, step, Fault::Error(code));
                    let done = (operation.run)(&store, operation.object);
                    if let Err(error) = &done {
                        assert!(error.may_pass(), "{case}: {error}");
                        assert_eq!(matches!(error, Error::Full { .. }), code == libc::ENOSPC);
                        let text = error.to_string();
                        assert!(text.contains(operation.object) && text.contains("help"), "{text}");
                    }
                    check(&store, operation, done.is_ok(), &case);
                    // It works again: the same store goes on, though a sync has failed before.
                    again(&disk.copy(), operation, &case);
                    disk.restart(survival);
                    check(&store, operation, done.is_ok(), &case);
                }
            }
        }
    }
}

/// Runs an action before each step of an operation, one step at a time.
fn between(
    operation: &Operation,
    act: impl Fn(&LocalStore, &str) + Send + Sync + 'static,
    then: impl Fn(&CrashDisk, &Result<()>, &str),
) {
    let disk = disk();
    let act = Arc::new(act);
    let steps = steps_of(&disk, |disk| {
        (operation.run)(&store(disk), operation.object).unwrap();
    });
    for at in 0..steps {
        let case = format!("{}, before step {at}", operation.name);
        let disk = disk.copy();
        let (number, act, other) = (disk.steps() + at, act.clone(), store(&disk));
        disk.on_step({
            let case = case.clone();
            move |step| {
                if step.number == number {
                    act(&other, &case);
                }
                Fault::None
            }
        });
        let done = (operation.run)(&store(&disk), operation.object);
        then(&disk, &done, &case);
    }
}

#[test]
fn readers_see_whole_objects_between_any_two_steps() {
    for operation in &OPERATIONS {
        let look = move |store: &LocalStore, case: &str| check(store, operation, false, case);
        between(operation, look, |disk, done, case| {
            assert_eq!(done, &Ok(()), "{case}");
            disk.restart(Survival::Synced);
            check(&store(disk), operation, true, case);
        });
    }
}

#[test]
fn a_sweep_leaves_living_writers_alone() {
    for operation in &OPERATIONS {
        let sweep = |store: &LocalStore, case: &str| assert_eq!(store.sweep(), Ok(0), "{case}");
        between(operation, sweep, |disk, done, case| {
            assert_eq!(done, &Ok(()), "{case}");
            check(&store(disk), operation, true, case);
            assert!(!has_temporary(disk, ROOT), "{case}");
        });
    }
}

#[test]
fn of_two_that_put_if_absent_one_wins() {
    const OTHER: &[u8] = b"of the other";
    let disk = disk();
    let put = |disk: &CrashDisk| store(disk).put_if_absent("new/a", NEW).unwrap();
    let steps = steps_of(&disk, |disk| assert_eq!(put(disk), Put::Created));
    let mut wins = 0;
    for at in 0..steps {
        let disk = disk.copy();
        let other = Arc::new(Mutex::new(None));
        let (number, store, result) = (disk.steps() + at, store(&disk), other.clone());
        disk.on_step(move |step| {
            if step.number == number {
                *result.lock().unwrap() = Some(store.put_if_absent("new/a", OTHER).unwrap());
            }
            Fault::None
        });
        let own = put(&disk);
        assert_ne!(Some(own), *other.lock().unwrap(), "before step {at}");
        disk.restart(Survival::Synced);
        let winner = if own == Put::Created { NEW } else { OTHER };
        assert_eq!(
            get(&crate::common::store(&disk), "new/a").as_deref(),
            Some(winner),
            "before step {at}"
        );
        wins += u64::from(own == Put::Created);
    }
    assert!((1..steps).contains(&wins), "{wins} of {steps}");
}

#[test]
fn a_slow_disk_is_waited_for_and_one_that_comes_back_is_used() {
    let disk = disk();
    disk.on_step(|_| {
        std::thread::sleep(std::time::Duration::from_micros(300));
        Fault::None
    });
    let store = store(&disk);
    store.put("b", NEW).unwrap();
    assert_eq!(get(&store, "b").as_deref(), Some(NEW));
    // For a while everything fails.
    let mut left = 20;
    disk.on_step(move |_| {
        left -= 1;
        if left > 0 { Fault::Error(libc::EIO) } else { Fault::None }
    });
    let failed = (0..100).take_while(|_| store.put("c", NEW).is_err()).count();
    assert!((1..100).contains(&failed), "{failed}");
    disk.restart(Survival::Synced);
    assert_eq!(get(&store, "c").as_deref(), Some(NEW));
}

#[test]
fn directories_made_by_a_program_that_was_killed_are_synced() {
    let disk = CrashDisk::default();
    let steps = steps_of(&disk, |disk| store(disk).put("x/y/a", OLD).unwrap());
    for step in 0..steps {
        let disk = disk.copy();
        fault_at(&disk, step, Fault::Crash { after: true });
        _ = store(&disk).put("x/y/a", OLD);
        disk.restart(Survival::Killed);
        store(&disk).put("x/y/b", NEW).unwrap();
        disk.restart(Survival::Synced);
        assert_eq!(get(&store(&disk), "x/y/b").as_deref(), Some(NEW), "step {step}");
    }
}

/// The disk itself forgets what was not synced, or these tests would prove nothing.
#[test]
fn the_disk_forgets() {
    let disk = disk();
    let path = |name: &str| std::path::PathBuf::from(format!("{ROOT}/a/{name}"));
    let mut file = disk.create(&path("x")).unwrap();
    file.write(NEW).unwrap();
    file.sync().unwrap();
    disk.link(&path("x"), &path("y")).unwrap();
    disk.unlink(&path("old")).unwrap();
    let seen = |survival| {
        let disk = disk.copy();
        disk.restart(survival);
        ["x", "y", "old"].map(|name| disk.read(&path(name), None).ok())
    };
    assert_eq!(seen(Survival::Synced), [None, None, Some(OLD.to_vec())]);
    let all = [Some(NEW.to_vec()), Some(NEW.to_vec()), None];
    assert_eq!(seen(Survival::Killed), all);
    let some: std::collections::HashSet<_> =
        (0..100).map(|seed| seen(Survival::Some(seed))).collect();
    assert_eq!(some.len(), 8, "each name by itself");

    // Synced names of a file that is not.
    let mut file = disk.create(&path("z")).unwrap();
    file.write(NEW).unwrap();
    disk.sync_dir(path("z").parent().unwrap()).unwrap();
    disk.on_step(|step| match step.kind {
        StepKind::Sync => Fault::Error(libc::EIO),
        _ => Fault::None,
    });
    file.sync().unwrap_err();
    disk.on_step(|_| Fault::None);
    file.sync().unwrap();
    let torn = |seed| {
        let disk = disk.copy();
        disk.restart(seed);
        disk.read(&path("z"), None).unwrap()
    };
    assert_eq!(torn(Survival::Synced), b"");
    let some: std::collections::HashSet<_> =
        (0..100).map(|seed| torn(Survival::Some(seed))).collect();
    assert!(some.len() > 20 && some.iter().any(|bytes| bytes.contains(&0)), "{}", some.len());
}
