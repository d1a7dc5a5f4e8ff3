//! Journals on a disk that crashes, fails, and damages files.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use super::*;
use crate::disk::{CrashDisk, Disk, Fault, StepKind, Survival};
use crate::error::Result;

const MAX: u64 = 1 << 20;

fn open(disk: &CrashDisk) -> Result<Arc<Journal>> {
    Journal::open(Arc::new(disk.clone()), "/a/journal", "clicks", MAX)
}

/// Entry `n`, of this length at least, from one of three producers.
fn entry(n: u64, length: usize) -> Vec<u8> {
    let mut bytes = format!("{n};").into_bytes();
    bytes.resize(bytes.len().max(length), b'x');
    bytes
}

fn add(journal: &Journal, n: u64, length: usize) -> Result<Appended> {
    let producer = ["a", "b", "c"][n as usize % 3];
    journal.append(Some(&entry(n, length)), Some(Sequence { producer, number: n }))
}

/// The numbers of the entries from an offset on. They lie one behind the other.
fn numbers(reader: &mut Reader) -> Result<Vec<u64>> {
    let (mut numbers, mut next): (Vec<u64>, Option<(u64, u64)>) = (Vec::new(), None);
    while let Some(Entry { number, offset, bytes }) = reader.next(Waker::noop())? {
        assert_eq!((number, offset), next.unwrap_or((number, offset)));
        let bytes = bytes.unwrap_or_default();
        next = Some((number + 1, offset + bytes.len() as u64));
        let text = String::from_utf8(bytes).expect("text");
        numbers.push(text.split(';').next().expect("a number").parse().expect("a number"));
    }
    Ok(numbers)
}

fn all(journal: &Arc<Journal>) -> Vec<u64> {
    numbers(&mut journal.reader(journal.start()).unwrap()).unwrap()
}

/// Puts other bytes in place of a file's.
fn change(disk: &CrashDisk, path: &str, with: impl FnOnce(&mut Vec<u8>)) {
    let path = Path::new(path);
    let mut bytes = disk.read(path, None).unwrap();
    with(&mut bytes);
    disk.unlink(path).unwrap();
    disk.create(path).unwrap().write(&bytes).unwrap();
}

/// Forty entries in several segments, of which the first are trimmed. Returns which are durable.
fn run(disk: &CrashDisk, durable: &mut BTreeSet<u64>) -> Result<()> {
    let journal = open(disk)?;
    for n in 1..=40 {
        add(&journal, n, 20_000)?;
        durable.insert(n);
        if n == 30 {
            journal.trim(200_000, 0)?;
        }
    }
    Ok(())
}

/// The power fails at each step of the disk. What was durable is there, once, and in order; what
/// was not is sent again, and then it is there once, too.
#[test]
fn no_crash_loses_a_durable_entry_or_lets_one_count_twice() {
    let whole = CrashDisk::default();
    run(&whole, &mut BTreeSet::new()).unwrap();
    let steps = whole.steps();
    assert!(steps > 100 && open(&whole).unwrap().lock().segments.len() > 3, "the case");
    for step in 0..steps {
        for (after, survival) in [
            (false, Survival::Synced),
            (true, Survival::Synced),
            (true, Survival::Killed),
            (false, Survival::Some(step)),
            (true, Survival::Some(step + 1_000_000)),
        ] {
            let (disk, mut durable) = (CrashDisk::default(), BTreeSet::new());
            disk.on_step(move |now| match now.number == step {
                true => Fault::Crash { after },
                false => Fault::None,
            });
            run(&disk, &mut durable).unwrap_err();
            disk.restart(survival);
            let journal = open(&disk).unwrap();
            let case = format!("step {step}, after: {after}, {survival:?}");
            for n in 1..=40 {
                let before = add(&journal, n, 20_000).unwrap() == Appended::Before;
                assert!(before || !durable.contains(&n), "{case}: entry {n} counts again");
                if durable.len() < n as usize {
                    assert!(!before || n as usize == durable.len() + 1, "{case}: entry {n}");
                }
            }
            let found = all(&journal);
            let first = *found.first().unwrap();
            assert!(first <= 11, "{case}: {found:?}");
            assert_eq!(found, (first..=40).collect::<Vec<_>>(), "{case}");
            // A crash without an error of the disk leaves nothing that a second run cannot read.
            drop(journal);
            assert_eq!(all(&open(&disk).unwrap()), found, "{case}");
        }
    }
}

/// A disk that is full, or broken, at each step for a while: the entry does not count, and the same
/// entry counts once when the disk works again.
#[test]
fn a_disk_that_fails_loses_nothing() {
    let whole = CrashDisk::default();
    run(&whole, &mut BTreeSet::new()).unwrap();
    for step in 0..whole.steps() {
        for times in [1, 3] {
            let disk = CrashDisk::default();
            let open_first = || loop {
                if let Ok(journal) = open(&disk) {
                    return journal;
                }
            };
            disk.on_step(move |now| match (step..step + times).contains(&now.number) {
                true => Fault::Error(28),
                false => Fault::None,
            });
            let journal = open_first();
            for n in 1..=12 {
                while let Err(error) = add(&journal, n, 20_000) {
                    assert!(error.may_pass(), "{error}");
                }
            }
            // The step may be one of the reader.
            let read = || numbers(&mut journal.reader(0)?);
            let read = (0..9).find_map(|_| read().ok()).expect("numbers");
            assert_eq!(read, (1..=12).collect::<Vec<_>>(), "step {step}");
            drop(journal);
            disk.on_step(|_| Fault::None);
            disk.restart(Survival::Synced);
            assert_eq!(all(&open(&disk).unwrap()), read, "step {step}");
        }
    }
}

/// A file that ends anywhere in its last frame is cut there; with a byte changed before its last
/// frame it is refused, with the file and the offset.
#[test]
fn a_torn_end_is_cut_off_and_damage_before_it_is_an_error() {
    let disk = CrashDisk::default();
    let journal = open(&disk).unwrap();
    let mut ends = Vec::new();
    for n in 1..=3 {
        add(&journal, n, 10).unwrap();
        ends.push(journal.lock().segments[0].bytes as usize);
    }
    drop(journal);
    let path = "/a/journal/segment-1";
    for length in ends[1]..ends[2] {
        let copy = disk.copy();
        change(&copy, path, |bytes| bytes.truncate(length));
        let journal = open(&copy).unwrap();
        assert_eq!(all(&journal), [1, 2]);
        for n in [3, 4] {
            assert_eq!(add(&journal, n, 10).unwrap(), Appended::Durable);
        }
        drop(journal);
        assert_eq!(all(&open(&copy).unwrap()), [1, 2, 3, 4]);
    }
    for at in 0..ends[2] {
        let copy = disk.copy();
        change(&copy, path, |bytes| bytes[at] ^= 1);
        let begins = ends.iter().filter(|end| **end <= at).count();
        match open(&copy) {
            Ok(journal) => assert!(all(&journal) == [1, 2] && at >= ends[1], "byte {at}"),
            Err(error) => {
                let from =
                    if at < ends[0] { [0, journal_head(&disk)] } else { [ends[begins - 1]; 2] };
                let says = |from| {
                    error
                        .to_string()
                        .contains(&format!("{path} is damaged: the bytes from offset {from} "))
                };
                assert!(at < ends[1] && from.into_iter().any(says), "byte {at}: {error}");
            }
        }
    }
}

fn journal_head(disk: &CrashDisk) -> usize {
    open(&disk.copy()).unwrap().lock().segments[0].head as usize
}

#[test]
fn damage_in_an_earlier_segment_is_found_by_who_reads_it() {
    let disk = CrashDisk::default();
    run(&disk, &mut BTreeSet::new()).unwrap();
    let journal = open(&disk).unwrap();
    let segment = journal.lock().segments[1].clone();
    let path = journal.path(segment.number).display().to_string();
    change(&disk, &path, |bytes| bytes[segment.head as usize + 50] ^= 1);
    let error = numbers(&mut journal.reader(journal.start()).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{path} is damaged")), "{error}");
    assert!(!error.may_pass());
}

#[test]
fn one_job_at_a_time_has_a_journal_and_it_knows_its_input() {
    let disk = CrashDisk::default();
    let journal = open(&disk).unwrap();
    add(&journal, 1, 10).unwrap();
    let error = open(&disk).unwrap_err().to_string();
    assert!(error.contains("another job, or another table, has this journal open"), "{error}");
    drop(journal);
    let other = Journal::open(Arc::new(disk.clone()), "/a/journal", "views", MAX);
    let error = other.unwrap_err().to_string();
    assert!(error.contains("it is the journal of 'clicks', and not of 'views'"), "{error}");
    assert_eq!(all(&open(&disk).unwrap()), [1]);
}

#[test]
fn a_full_journal_takes_entries_again_once_it_is_trimmed() {
    let disk = CrashDisk::default();
    let journal = open(&disk).unwrap();
    let mut last = 0;
    let error = loop {
        match add(&journal, last + 1, 20_000) {
            Ok(_) => last += 1,
            Err(error) => break error,
        }
    };
    assert!(error.may_pass() && error.to_string().contains("is full"), "{error}");
    assert!((40..=MAX / 20_000).contains(&last), "{last}");
    let bytes: u64 =
        disk.read_dir(Path::new("/a/journal")).unwrap().iter().filter_map(|e| e.bytes).sum();
    assert!(bytes <= MAX);
    // The first segment has the head of the input, which stays.
    journal.trim(500_000, 10).unwrap();
    assert_eq!(add(&journal, last + 1, 20_000).unwrap(), Appended::Durable);
    assert!(numbers(&mut journal.head()).unwrap_err().to_string().contains("segment-1"));
    for offset in [journal.start(), 500_000, 500_001] {
        let found = numbers(&mut journal.reader(offset).unwrap()).unwrap();
        assert_eq!(found, (offset / 20_000 + 1..=last + 1).collect::<Vec<_>>());
    }
    assert!(journal.start() > 300_000);
    for (offset, words) in [(0, "it begins at byte"), (2 * MAX, "it ends at byte")] {
        let error = journal.reader(offset).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(&format!("byte {offset}")), "{error}");
    }
    drop(journal);
    // What was trimmed is forgotten, but not its producers.
    assert_eq!(add(&open(&disk).unwrap(), 1, 10).unwrap(), Appended::Before);
}

#[test]
fn another_input_begins_where_the_last_has_ended() {
    let disk = CrashDisk::default();
    let journal = open(&disk).unwrap();
    for n in 1..=10 {
        add(&journal, n, 20_000).unwrap();
    }
    journal.append(None, None).unwrap();
    drop(journal);
    let journal = open(&disk).unwrap();
    assert!(journal.has_ended());
    assert_eq!(journal.reader(200_000).unwrap().next(Waker::noop()).unwrap().unwrap().bytes, None);
    journal.restart().unwrap();
    let begins = |journal: Arc<Journal>| {
        assert!(!journal.has_ended());
        assert_eq!((journal.begin(), journal.start(), all(&journal)), (200_000, 200_000, vec![]));
        assert_eq!(add(&journal, 10, 10).unwrap(), Appended::Before);
    };
    begins(journal);
    begins(open(&disk).unwrap());
}

/// Entries that come while the disk syncs share the next sync.
#[test]
fn entries_of_several_threads_share_a_sync() {
    let disk = CrashDisk::default();
    let journal = open(&disk).unwrap();
    let syncs = Arc::new(AtomicUsize::new(0));
    let seen = syncs.clone();
    disk.on_step(move |step| {
        if step.kind == StepKind::Sync {
            seen.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(5));
        }
        Fault::None
    });
    thread::scope(|scope| {
        for thread in 0..8 {
            let journal = &journal;
            scope.spawn(move || {
                for n in 0..10 {
                    let producer = &format!("p{thread}");
                    let sequence = Sequence { producer, number: n };
                    let bytes = entry(thread * 10 + n, 10);
                    // Twice at the same time: one of them counts.
                    thread::scope(|both| {
                        let append = || journal.append(Some(&bytes), Some(sequence)).unwrap();
                        let other = both.spawn(append);
                        let mut got = [append() as u8, other.join().unwrap() as u8];
                        got.sort_unstable();
                        assert_eq!(got, [Appended::Durable as u8, Appended::Before as u8]);
                    });
                }
            });
        }
    });
    let syncs = syncs.load(Ordering::Relaxed);
    assert!((11..60).contains(&syncs), "{syncs} syncs");
    let found = all(&journal);
    let distinct: BTreeSet<u64> = found.iter().copied().collect();
    assert_eq!((found.len(), distinct.len()), (80, 80));
}

#[test]
fn so_many_producers_are_remembered() {
    let disk = CrashDisk::default();
    let journal = open(&disk).unwrap();
    let send = |journal: &Journal, n: usize| {
        let producer = format!("producer {n}");
        journal.append(Some(b""), Some(Sequence { producer: &producer, number: 1 })).unwrap()
    };
    for n in 0..=PRODUCERS_MAX {
        assert_eq!(send(&journal, n), Appended::Durable);
    }
    drop(journal);
    let journal = open(&disk).unwrap();
    assert_eq!(send(&journal, 1), Appended::Before);
    assert_eq!(send(&journal, PRODUCERS_MAX), Appended::Before);
    assert_eq!(send(&journal, 0), Appended::Durable, "the oldest was forgotten");
}
