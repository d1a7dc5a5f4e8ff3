use millstream_store::disk::{CrashDisk, Survival};

use super::*;
use crate::client::encode::NewRecord;
use crate::sink::tests::exactly_once;

fn place(disk: &CrashDisk) -> Place {
    Place::in_store(Arc::new(LocalStore::on(Arc::new(disk.clone()), "/state")), "p-o")
}

/// A spool that has not spoken to a broker.
fn spool(disk: &CrashDisk, next: u64, known: u64) -> Spool {
    let options = exactly_once();
    let producer = options.new_producer();
    Spool::new(place(disk), &options, "series", producer, (next, known))
}

fn row(number: u64, bytes: usize) -> Row {
    let mut value = number.to_string().into_bytes();
    value.resize(bytes, b'x');
    let record = NewRecord { value: Some(value), ..NewRecord::default() };
    (number as i32 % 3, NewRecord { timestamp: number as i64, ..record })
}

/// Gives the next rows to a spool, which asks for those that it does not leave out.
fn take(spool: &Spool, count: u64, bytes: usize) {
    let records = |first: u64, left_out: usize| {
        Ok((first..first + count - left_out as u64).map(|number| row(number, bytes)).collect())
    };
    spool.take(count as usize, records).unwrap();
}

fn sealed(spool: &Spool) -> Prepared {
    let mut prepared = Prepared { interval: 1, sealed: spool.prepare() };
    spool.seal(&mut prepared).unwrap();
    prepared
}

/// The rows of an interval that are written where those below `known` are there.
fn written(disk: &CrashDisk, prepared: &Prepared, known: u64) -> Result<Vec<(u64, Row)>> {
    let interval = Interval::new(prepared)?.unwrap();
    let mut found = Vec::new();
    interval.write(interval.spooled.as_ref().unwrap(), &place(disk), known, |rows, first| {
        found.extend((first..).zip(rows.iter().cloned()));
        Ok(())
    })?;
    Ok(found)
}

fn expected(numbers: std::ops::Range<u64>, bytes: usize) -> Vec<(u64, Row)> {
    numbers.map(|number| (number, row(number, bytes))).collect()
}

#[test]
fn a_sealed_interval_outlasts_the_power_and_is_written_from_any_row_on() {
    let disk = CrashDisk::default();
    let bytes = FRAME_BYTES / 3;
    let before = spool(&disk, 100, 100);
    [4, 3, 4].into_iter().for_each(|count| take(&before, count, bytes));
    let prepared = sealed(&before);
    // Of the next interval, which no checkpoint has.
    take(&before, 5, bytes);
    drop(before);
    disk.restart(Survival::Synced);
    for known in [0, 100, 101, 104, 107, 110] {
        let first = known.max(100);
        assert_eq!(written(&disk, &prepared, known).unwrap(), expected(first..111, bytes));
    }
    assert!(written(&disk, &prepared, 111).unwrap().is_empty());
    let interval = Interval::new(&prepared).unwrap().unwrap();
    assert_eq!(interval.base, Base { series: "series".into(), rows: 111, spooled: true });
}

#[test]
fn an_interval_without_rows_has_no_object() {
    let disk = CrashDisk::default();
    let spool = spool(&disk, 7, 7);
    let prepared = sealed(&spool);
    assert_eq!(prepared.sealed, [Sealed { from: "series".into(), to: "7 spool".into() }]);
    assert_eq!(place(&disk).store.list("").unwrap(), []);
}

#[test]
fn rows_that_are_there_are_left_out() {
    let disk = CrashDisk::default();
    let spool = spool(&disk, 10, 25);
    take(&spool, 10, 20);
    assert_eq!(sealed(&spool).sealed[0].to, "20", "as many rows as the cut has");
    take(&spool, 10, 20);
    let prepared = sealed(&spool);
    assert_eq!(written(&disk, &prepared, 25).unwrap(), expected(25..30, 20));
}

/// The topic has grown, say, while the job was dead.
#[test]
fn rows_that_were_written_by_replay_are_left_out_by_a_spool() {
    let base = |prepared: &Prepared| Interval::new(prepared).unwrap().unwrap().base;
    let of_replay = Sealed { from: "series".into(), to: "100".into() };
    let of_replay = base(&Prepared { interval: 1, sealed: vec![of_replay] });
    assert_eq!((of_replay.next(150, false), of_replay.next(150, true)), (100, 100));
    let disk = CrashDisk::default();
    let spool = spool(&disk, 100, 150);
    take(&spool, 20, 20);
    assert!(spool.replays());
    // Killed now, the next run leaves out the rest.
    assert_eq!(base(&sealed(&spool)).next(150, true), 120);
    take(&spool, 40, 20);
    assert!(!spool.replays());
    let prepared = sealed(&spool);
    assert_eq!(written(&disk, &prepared, 150).unwrap(), expected(150..160, 20));
    // Behind rows of a spool come other rows.
    assert_eq!((base(&prepared).next(170, false), base(&prepared).next(170, true)), (160, 170));
}

#[test]
fn intervals_are_sealed_in_any_order_and_a_checkpoint_has_several() {
    let disk = CrashDisk::default();
    let spool = spool(&disk, 0, 0);
    let mut both: Vec<Prepared> = Vec::new();
    for interval in [1, 2] {
        take(&spool, 10, 20);
        both.push(Prepared { interval, sealed: spool.prepare() });
    }
    both.iter_mut().rev().for_each(|prepared| spool.seal(prepared).unwrap());
    assert_eq!(written(&disk, &both[0], 0).unwrap(), expected(0..10, 20));
    assert_eq!(written(&disk, &both[1], 10).unwrap(), expected(10..20, 20));
}

#[test]
fn an_object_that_is_gone_or_damaged_is_named() {
    let disk = CrashDisk::default();
    let spool = spool(&disk, 0, 0);
    take(&spool, 10, 20);
    let prepared = sealed(&spool);
    let (name, store) = (prepared.sealed[1].from.clone(), place(&disk).store);
    let whole = store.get(&name, None).unwrap();
    let fails = |bytes: &[u8]| {
        store.put(&name, bytes).unwrap();
        let error = written(&disk, &prepared, 0).unwrap_err().to_string();
        assert!(error.contains(&name) && error.contains("--restore"), "{error}");
    };
    for byte in [0, 5, 9, 30, whole.len() - 1] {
        let mut other = whole.clone();
        other[byte] ^= 4;
        fails(&other);
    }
    fails(&whole[..whole.len() - 1]);
    fails(&[]);
    store.delete(&name).unwrap();
    let error = written(&disk, &prepared, 0).unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("--restore"), "{error}");
    // Nobody needs it where all rows are there.
    assert!(written(&disk, &prepared, 10).unwrap().is_empty());
}

#[test]
fn objects_are_deleted_whose_rows_are_there() {
    let disk = CrashDisk::default();
    let spool = spool(&disk, 0, 0);
    let mut names = Vec::new();
    for _ in 0..3 {
        take(&spool, 10, 20);
        names.push(sealed(&spool).sealed[1].from.clone());
    }
    // Rows of an interval that is still open.
    take(&spool, 10, 20);
    let other = Place::in_store(place(&disk).store, "another-id");
    other.store.put(&format!("{}{:020}-0", other.folder, 0), b"x").unwrap();
    place(&disk).sweep(20).unwrap();
    let left = place(&disk).store.list(&place(&disk).folder).unwrap();
    assert_eq!(left.into_iter().map(|object| object.name).collect::<Vec<_>>(), names[2..]);
    assert_eq!(other.store.list(&other.folder).unwrap().len(), 1);
    // The open interval was not disturbed.
    let prepared = sealed(&spool);
    assert_eq!(written(&disk, &prepared, 30).unwrap(), expected(30..40, 20));
}
