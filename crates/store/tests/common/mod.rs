//! Manifests, stores on disks that crash, and random choices.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_contract::plan::OpenWindows;
use millstream_contract::sink::{Prepared, Sealed};
use millstream_contract::table::{Position, SideFile, SourceMarks, SplitMark};
use millstream_store::disk::{CrashDisk, Fault};
use millstream_store::*;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

pub(crate) const ROOT: &str = "/disk/state";

pub(crate) fn store(disk: &CrashDisk) -> LocalStore {
    LocalStore::on(Arc::new(disk.clone()), ROOT)
}

pub(crate) fn checkpoints(disk: &CrashDisk) -> Checkpoints {
    Checkpoints::new(Arc::new(store(disk)), "1").unwrap()
}

/// Lets a step have a fault, counted from now.
pub(crate) fn fault_at(disk: &CrashDisk, steps: u64, fault: Fault) {
    let at = disk.steps() + steps;
    disk.on_step(move |step| if step.number == at { fault } else { Fault::None });
}

/// How many steps of a copy of the disk the action takes.
pub(crate) fn steps_of(disk: &CrashDisk, act: impl FnOnce(&CrashDisk)) -> u64 {
    let copy = disk.copy();
    act(&copy);
    copy.steps() - disk.steps()
}

/// A manifest with a stage over these files, and one of everything else.
pub(crate) fn manifest(checkpoint: u64, attempt: &str, files: Vec<StateFile>) -> Manifest {
    let mark = SplitMark {
        position: Position(vec![u64::MAX, 17, 3]),
        chunks: 12,
        records: 3412,
        watermark_us: i64::MIN,
        clock_us: 1_700_000_000_000_000,
        number: 0,
        ended: true,
    };
    let splits = [("täg \"1\".csv".to_string(), mark)].into();
    let source = SourceMarks { low_us: i64::MAX, splits };
    let sealed = Sealed { from: ".part-0-0.inprogress".into(), to: "part-0-0".into() };
    let side_file = SideFile { bytes: 7, modified: (1_700_000_000, 123) };
    Manifest {
        format: FORMAT,
        program: "0.1.0".into(),
        checkpoint,
        attempt: attempt.into(),
        job: "INSERT INTO o\nSELECT k, COUNT(*) FROM t".into(),
        time_us: 1_700_000_010_000_000,
        first: 1,
        started_us: 1_700_000_000_000_000,
        ended: false,
        sources: [("t".to_string(), source)].into(),
        stages: vec![Stage {
            names: vec!["o.window".into(), "p.window".into()],
            identity: serde_json::json!({ "keys": ["k BIGINT"], "values": [] }),
            tables: vec!["t".into()],
            layout: BTreeMap::from([("windows_in_slice".to_string(), 4)]),
            frontier_us: -5,
            windows: Some(OpenWindows { count: None, first_us: [-5, 0], last_us: [0, 5] }),
            files,
        }],
        outputs: vec![Output {
            name: "o".into(),
            identity: vec!["(k BIGINT)".into()],
            prepared: vec![Prepared { interval: checkpoint, sealed: vec![sealed] }],
            limit: Some(10),
            offset: 3,
            waiting: vec![],
        }],
        lookups: [("s".to_string(), [("s.csv".to_string(), side_file)].into())].into(),
        counters: serde_json::json!({ "records": 3412, "outputs": [{ "rows": 2 }] }),
    }
}

/// A file with some bytes.
pub(crate) fn write_file(
    checkpoints: &Checkpoints,
    checkpoint: u64,
    label: &str,
    attempt: &str,
    bytes: &[u8],
) -> Result<StateFile> {
    let mut writer = checkpoints.write_file(checkpoint, label, attempt)?;
    let (first, second) = bytes.split_at(bytes.len() / 2);
    writer.append(first)?;
    writer.append(second)?;
    writer.finish(0, bytes.len() as u64, 0..256)
}

/// A directory of the machine, empty at first, removed at the end.
pub(crate) struct Scratch(pub(crate) std::path::PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-store-{}-{n}", std::process::id());
        let scratch = Scratch(std::env::temp_dir().join(name));
        _ = std::fs::remove_dir_all(&scratch.0);
        std::fs::create_dir(&scratch.0).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}
