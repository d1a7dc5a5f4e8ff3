//! Two coordinators on a directory of the machine, in processes of their own, killed at random
//! moments.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Random, Scratch, manifest, write_file};
use millstream_store::{Checkpoints, Error, LocalStore, Store};

const DIRECTORY: &str = "MILLSTREAM_STORE_DIRECTORY";

/// The program of a coordinator: goes on from the latest checkpoint, publishes and trims, and
/// begins again whenever it has lost. For each number that it wins it prints a line.
#[test]
fn coordinator() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let store = LocalStore::new(directory);
    let all = Checkpoints::new(Arc::new(store.clone()), "1").unwrap();
    let run = std::process::id().to_string();
    loop {
        store.sweep().unwrap();
        let mut last = match all.latest().unwrap().map(|last| all.adopt(last.checkpoint)) {
            // Trimmed by the other meanwhile.
            Some(Err(Error::Missing { .. })) => continue,
            last => last.map(Result::unwrap).unwrap_or_else(|| manifest(0, &run, vec![])),
        };
        loop {
            let number = last.checkpoint + 1;
            let old = last.files().last().cloned();
            let file = write_file(&all, number, "0", &run, run.as_bytes()).unwrap();
            let next = manifest(number, &run, old.into_iter().chain([file]).collect());
            match all.publish(&next) {
                Err(Error::Rival { .. }) => break,
                published => published.unwrap(),
            }
            writeln!(std::io::stdout(), "won {number}").unwrap();
            all.trim(0..=number, 2).unwrap();
            last = next;
        }
    }
}

#[test]
fn killed_coordinators_leave_whole_checkpoints_and_one_winner_each() {
    let scratch = Scratch::new();
    let all = Checkpoints::new(Arc::new(LocalStore::new(&scratch.0)), "1").unwrap();
    let mut random = Random(u64::from(std::process::id()));
    let mut winners = BTreeMap::new();
    let mut runs = BTreeSet::new();
    let mut round = 0;
    while round < 8 || winners.len() < 20 || runs.len() < 4 {
        assert!(round < 100, "{} won by {} runs", winners.len(), runs.len());
        round += 1;
        let children = [0, 1].map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "killed::coordinator", "--nocapture"])
                .env(DIRECTORY, &scratch.0)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        });
        for mut child in children {
            std::thread::sleep(Duration::from_micros(20_000 + random.below(100_000)));
            assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
            child.kill().unwrap();
            let run = child.id().to_string();
            let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
            for number in output.lines().filter_map(|line| line.strip_prefix("won ")) {
                let before = winners.insert(number.parse::<u64>().unwrap(), run.clone());
                assert_eq!(before, None, "{number}");
                runs.insert(run.clone());
            }
        }
        // Only the latest is whole for certain: a coordinator may have been killed that had just
        // taken a number which the other had trimmed.
        let latest = all.latest().unwrap().map_or(0, |last| last.checkpoint);
        let won = winners.keys().last().copied().unwrap_or(0);
        assert!(latest >= won, "round {round}: {won} was won, and {latest} is there");
        if latest > 0 {
            let verified = all.verify(latest).unwrap();
            assert_eq!(verified.defects, [], "round {round}, checkpoint {latest}");
            let run = winners.get(&latest).unwrap_or(&verified.manifest.attempt);
            assert_eq!(run, &verified.manifest.attempt);
        }
    }
    let store = LocalStore::new(&scratch.0);
    store.sweep().unwrap();
    assert_eq!(store.sweep(), Ok(0));
}
