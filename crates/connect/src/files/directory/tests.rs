//! Tests of names and locks in a directory.

use super::*;
use crate::files::folder::names;

fn directory(name: &str) -> Directory {
    let name = format!("millstream-directory-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    _ = fs::remove_dir_all(&path);
    let made = Directory { path, depth: 1, marker: None };
    made.make().unwrap();
    made
}

fn written(directory: &Directory, partition: &str, name: &str) -> Sealed {
    let sealed = names(partition, name);
    let mut file = directory.create(&sealed).unwrap();
    io::Write::write_all(&mut file, name.as_bytes()).unwrap();
    sealed
}

#[test]
fn committing_again_is_harmless_at_any_point() {
    let directory = directory("again");
    let sealed = [written(&directory, "a=1", "part-0-0-0"), written(&directory, "", "part-1")];
    let (from, to) = (directory.path.join(&sealed[0].from), directory.path.join(&sealed[0].to));
    // As a crash between the two steps leaves it.
    fs::hard_link(&from, &to).unwrap();
    for _ in 0..3 {
        directory.commit(&sealed, false).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "part-0-0-0");
        assert_eq!(fs::read_to_string(directory.path.join("part-1")).unwrap(), "part-1");
        assert!(!from.exists());
    }
    fs::remove_file(&to).unwrap();
    let error = directory.commit(&sealed, false).unwrap_err().to_string();
    assert!(error.contains("a=1/part-0-0-0: it was sealed, and is gone"), "{error}");
    // A reader of the directory may move files away once they are there.
    assert_eq!(directory.commit(&sealed, true).unwrap(), [to]);
    fs::remove_dir_all(&directory.path).unwrap();
}

#[test]
fn nothing_outside_is_named() {
    let directory = directory("outside");
    for name in ["../x", "/tmp/x", "a/../../x"] {
        let sealed = [Sealed { from: name.into(), to: "part-0".into() }];
        let error = directory.commit(&sealed, false).unwrap_err().to_string();
        assert!(error.contains("is no file in this directory"), "{error}");
    }
    fs::remove_dir_all(&directory.path).unwrap();
}

#[test]
fn what_is_there_is_found_in_partitions_too() {
    let directory = directory("found");
    written(&directory, "a=1", ".x");
    written(&directory, "a=1", "part-0-0-7");
    written(&directory, "a=2", "part-1-0-7");
    written(&directory, "", "part-0-1");
    directory.commit(&[written(&directory, "a=3", "part-0-0-1")], false).unwrap();
    fs::write(directory.path.join("part-00000-c1f2.parquet"), "").unwrap();
    let found = directory.find(0).unwrap();
    assert_eq!((found.next(0, 0), found.next(0, 1), found.next(0, 2)), (8, 1, 0));
    let left = ".part-0-1.inprogress, a=1/.part-0-0-7.inprogress, a=2/.part-1-0-7.inprogress";
    assert_eq!(directory.named(&found.unfinished), left);
    assert_eq!(directory.named(&found.complete), "a=3/part-0-0-1, part-00000-c1f2.parquet");
    // A file locked by a job belongs to that job.
    let locked = File::open(&found.unfinished[2]).unwrap();
    locked.lock().unwrap();
    assert_eq!(directory.find(0).unwrap().unfinished.len(), 2);
    assert!(directory.find(1).unwrap_err().to_string().contains("another job is writing it"));
    directory.remove(&found, true).unwrap();
    let kept = directory.find(0).unwrap();
    // The partition has no new file.
    assert_eq!(directory.named(&kept.complete), "a=3/part-0-0-1");
    assert!(kept.unfinished.is_empty() && found.unfinished[2].exists());
    fs::remove_dir_all(&directory.path).unwrap();
}
