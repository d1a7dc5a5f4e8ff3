//! A store in a directory of the machine.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use crate::common::Scratch;
use millstream_store::disk::{Disk, DiskFile, RealDisk};
use millstream_store::{Error, LocalStore, Object, Put, Store};

fn names(store: &LocalStore, prefix: &str) -> Vec<String> {
    store.list(prefix).unwrap().into_iter().map(|object| object.name).collect()
}

#[test]
fn objects_are_written_read_listed_and_deleted() {
    let scratch = Scratch::new();
    let store = LocalStore::new(scratch.0.join("not/yet/there"));
    assert_eq!(store.list(""), Ok(vec![]));
    assert!(matches!(store.get("a", None), Err(Error::Missing { .. })));
    assert_eq!(store.delete("a"), Ok(()));
    assert_eq!(store.sweep(), Ok(0));
    for name in ["1/state/x", "1/manifest", "1/manifest-2", "10/manifest", "2"] {
        assert_eq!(store.put_if_absent(name, b"0123456789"), Ok(Put::Created));
        assert_eq!(store.put_if_absent(name, b"other"), Ok(Put::Exists));
    }
    assert_eq!(names(&store, "1"), ["1/manifest", "1/manifest-2", "1/state/x", "10/manifest"]);
    assert_eq!(names(&store, "1/"), ["1/manifest", "1/manifest-2", "1/state/x"]);
    assert_eq!(names(&store, "1/m"), ["1/manifest", "1/manifest-2"]);
    assert_eq!(names(&store, "1/state/x"), ["1/state/x"]);
    assert_eq!(names(&store, "../"), [""; 0]);
    assert_eq!(store.list("2"), Ok(vec![Object { name: "2".into(), bytes: 10 }]));
    assert_eq!(store.get("2", None).unwrap(), b"0123456789");
    assert_eq!(store.get("2", Some(3..6)).unwrap(), b"345");
    assert_eq!(store.get("2", Some(10..10)).unwrap(), b"");
    let short = store.get("2", Some(3..u64::MAX)).unwrap_err();
    assert!(matches!(&short, Error::Damaged { .. }), "{short}");
    store.put("2", b"more").unwrap();
    assert_eq!(store.get("2", None).unwrap(), b"more");
    store.delete("2").unwrap();
    store.delete("2").unwrap();
    assert!(matches!(store.get("2", None), Err(Error::Missing { .. })));
    assert_eq!(names(&store, "2"), [""; 0]);
}

#[test]
fn names_lead_nowhere_else() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("secret"), b"x").unwrap();
    let store = LocalStore::new(scratch.0.join("store"));
    for name in ["../secret", "/etc/passwd", "", "a/../../secret", ".x"] {
        let refused = |error: Error| assert!(matches!(error, Error::Name { .. }), "{error}");
        refused(store.get(name, None).unwrap_err());
        refused(store.put(name, b"").unwrap_err());
        refused(store.put_if_absent(name, b"").unwrap_err());
        refused(store.create(name).unwrap_err());
        refused(store.delete(name).unwrap_err());
    }
    assert!(!scratch.0.join("store").exists());
    assert_eq!(fs::read(scratch.0.join("secret")).unwrap(), b"x");
}

#[test]
fn foreign_files_are_left_alone() {
    let scratch = Scratch::new();
    let store = LocalStore::new(&scratch.0);
    store.put("a", b"1").unwrap();
    fs::write(scratch.0.join("read me"), b"x").unwrap();
    fs::write(scratch.0.join(".hidden"), b"x").unwrap();
    symlink("/etc/passwd", scratch.0.join("link")).unwrap();
    symlink("/etc", scratch.0.join("folder")).unwrap();
    fs::create_dir(scratch.0.join("b")).unwrap();
    assert_eq!(names(&store, ""), ["a"]);
    assert_eq!(store.sweep(), Ok(0));
    assert!(scratch.0.join(".hidden").exists());
    for name in ["link", "b"] {
        let error = store.get(name, None).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
}

#[test]
fn temporary_files_of_killed_writers_are_swept() {
    let scratch = Scratch::new();
    let store = LocalStore::new(&scratch.0);
    let mut writer = store.create("x/a").unwrap();
    writer.write(b"12").unwrap();
    let left = scratch.0.join("x/.b.77-0.tmp");
    fs::write(&left, b"half").unwrap();
    // Files of others.
    let others = [".b.tmp", ".b.77.tmp", ".b.x-0.tmp", "b.77-0.tmp", ".b.77-0.tmp.bak"];
    others.iter().for_each(|name| fs::write(scratch.0.join(name), b"").unwrap());
    // The living writer holds a lock.
    assert_eq!(LocalStore::new(&scratch.0).sweep(), Ok(1));
    assert!(!left.exists());
    writer.write(b"34").unwrap();
    writer.finish().unwrap();
    assert_eq!(store.get("x/a", None).unwrap(), b"1234");
    drop(store.create("x/c").unwrap());
    let entries = fs::read_dir(scratch.0.join("x")).unwrap().count();
    assert_eq!(entries, 1, "nothing is left of a writer that was dropped");
    assert!(others.iter().all(|name| scratch.0.join(name).exists()));
}

#[test]
fn a_name_that_a_killed_process_of_the_same_number_has_used_is_passed_over() {
    let scratch = Scratch::new();
    let left = scratch.0.join(format!(".a.{}-0.tmp", std::process::id()));
    fs::write(&left, b"half").unwrap();
    LocalStore::new(&scratch.0).put("a", b"whole").unwrap();
    assert_eq!(fs::read(scratch.0.join("a")).unwrap(), b"whole");
    assert_eq!(fs::read(left).unwrap(), b"half");
}

#[test]
fn errors_name_the_object_and_what_to_do() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("file"), b"").unwrap();
    let error = LocalStore::new(scratch.0.join("file")).put("1/a", b"").unwrap_err();
    let text = error.to_string();
    assert!(error.may_pass() && text.contains("/file/1/a: "), "{text}");
    assert!(text.ends_with("help: name a directory"), "{text}");
}

#[test]
fn a_directory_that_was_removed_is_made_again() {
    let scratch = Scratch::new();
    let store = LocalStore::new(scratch.0.join("store"));
    store.put("x/a", b"1").unwrap();
    fs::remove_dir_all(scratch.0.join("store")).unwrap();
    // The store learns it with this error.
    assert!(store.put("x/a", b"2").unwrap_err().may_pass());
    store.put("x/a", b"3").unwrap();
    assert_eq!(store.get("x/a", None).unwrap(), b"3");
}

#[test]
fn of_many_threads_one_creates_while_others_sweep() {
    let scratch = Scratch::new();
    for round in 0..40 {
        let name = format!("{}/manifest", round / 10);
        let created: Vec<u8> = std::thread::scope(|scope| {
            let put = |thread: u8| {
                let store = LocalStore::new(&scratch.0);
                store.sweep().unwrap();
                let bytes = [thread; 1000];
                let put = store.put_if_absent(&format!("{}/manifest-{round}", round / 10), &bytes);
                (put.unwrap() == Put::Created).then_some(thread)
            };
            let threads: Vec<_> = (0..6).map(|thread| scope.spawn(move || put(thread))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        let [winner] = created[..] else { panic!("{created:?} have created {name}") };
        let found = LocalStore::new(&scratch.0).get(&format!("{name}-{round}"), None).unwrap();
        assert_eq!(found, [winner; 1000]);
    }
}

/// The system refuses to sync these, so a sync that did nothing would be seen.
#[test]
fn files_and_directories_of_the_machine_are_synced() {
    RealDisk.sync_dir("/proc".as_ref()).unwrap_err();
    let mut null = File::options().write(true).open("/dev/null").unwrap();
    DiskFile::sync(&mut null).unwrap_err();
    RealDisk.sync_dir(&std::env::temp_dir()).unwrap();
}
