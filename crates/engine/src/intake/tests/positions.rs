//! Positions of splits while a job runs.

use super::*;
use crate::table::{JobMarks, SourceMarks, SplitMark};

/// Position of a split of the table of these tests, which has no name.
fn at(marks: &JobMarks, split: &str) -> Vec<u64> {
    marks[""].splits[split].position.0.clone()
}

fn chunks(times: [i64; 3]) -> VecDeque<(i64, i64)> {
    VecDeque::from(times.map(|time| (0, time)))
}

/// The positions of a running job stand before the first record that no worker has finished, by the
/// names of splits: a job that is opened there reads just the rest, in whatever order splits come.
#[test]
fn a_job_goes_on_from_the_positions_of_its_splits() {
    let clock = Arc::new(Clock::default());
    let table = Timed(vec![chunks([10, 20, 30]), chunks([11, 21, 31])]);
    let reading = intake(table.clone(), &clock);
    let marks = |intake: &Intake| intake.marks().expect("names are unique");
    assert_eq!(marks(&reading)[""].splits.len(), 2, "all splits, though nothing has been read");
    // Each worker reads its own split.
    for worker in [0, 1] {
        take(&reading, worker);
    }
    assert_eq!(at(&marks(&reading), "timed 0"), [0], "a worker has the first batch");
    for worker in [0, 1] {
        finish(&reading, worker);
        take(&reading, worker);
    }
    finish(&reading, 0);
    let left = marks(&reading);
    assert_eq!(at(&left, "timed 0"), [2]);
    assert_eq!(at(&left, "timed 1"), [1], "one batch is not finished");
    let options = OpenOptions { from: left[""].positions(), ..OpenOptions::alone(1, 0, 2) };
    let mut splits = table.open(&[0], &options).expect("it opens");
    splits.reverse();
    let origin = Origin { from: Some(left[""].clone()), ..origin_of(splits, table) };
    let rest = intake_over(vec![origin], 2, &clock);
    assert_eq!(marks(&rest), left, "where it begins, before anything is read");
    let (one, other) = (take(&rest, 0), take(&rest, 1));
    let place = |of: &Stamped| (of.number, of.sequence, of.first_record, of.stamp);
    assert_eq!(
        (place(&one), place(&other)),
        ((0, 2, 2, 20), (1, 1, 1, 11)),
        "as they would have been, in the order of the first job"
    );
}

/// Tables of one name have numbers; two splits of one name could not be told apart.
#[test]
fn tables_and_splits_are_told_apart_by_name() {
    let clock = Arc::new(Clock::default());
    let table = Timed(vec![chunks([10, 20, 30])]);
    let origin = || {
        let splits = table.open(&[0], &OpenOptions::alone(1, 0, 1)).expect("it opens");
        Origin { name: "t".into(), ..origin_of(splits, table.clone()) }
    };
    let two = intake_over(vec![origin(), origin()], 2, &clock);
    take(&two, 1);
    finish(&two, 1);
    let marks = two.marks().expect("names are unique");
    let of = |table: &str| marks[table].splits["timed 0"].position.0.clone();
    assert_eq!((of("t"), of("t.2")), (vec![0], vec![1]));
    let mut equal = origin();
    equal.splits.extend(origin().splits);
    let error = intake_over(vec![equal], 2, &clock).marks().expect_err("they are equal");
    assert!(error.to_string().contains("two splits have the name 'timed 0'"), "{error}");
}

/// A split that an earlier job did not have begins where its source stood, and its number follows
/// the numbers that are there.
#[test]
fn a_new_split_begins_with_the_low_watermark() {
    let clock = Arc::new(Clock::default());
    let table = Timed(vec![chunks([10, 20, 30])]);
    let reading = intake(table.clone(), &clock);
    (0..2).for_each(|_| {
        take(&reading, 0);
        finish(&reading, 0);
    });
    let left = reading.marks().expect("names are unique")[""].clone();
    assert_eq!((left.low_us, left.splits["timed 0"].watermark_us), (20, 20));
    let table = Timed(vec![chunks([10, 20, 30]), chunks([5, 6, 40])]);
    let options = OpenOptions { from: left.positions(), ..OpenOptions::alone(1, 0, 2) };
    let splits = table.open(&[0], &options).expect("it opens");
    let rest =
        intake_over(vec![Origin { from: Some(left), ..origin_of(splits, table) }], 2, &clock);
    let (old, new) = (take(&rest, 0), take(&rest, 1));
    assert_eq!((old.number, old.stamp), (0, 20));
    assert_eq!((new.number, new.sequence, new.stamp), (1, 0, 20), "its first records are late");
}

/// A split that was idle resumes where the others have got to. So does a job that goes on from
/// before the chunk that has ended the idleness: windows may have fired meanwhile.
#[test]
fn a_split_that_was_idle_goes_on_where_the_others_had_got_to() {
    let clock = Arc::new(Clock::default());
    let quiet = VecDeque::from([(0, 10), (2 * IDLE_US, 20)]);
    let busy = VecDeque::from([(0, 500), (IDLE_US + 50, 600)]);
    let table = Timed(vec![quiet, busy]);
    let reading = intake(table.clone(), &clock);
    for worker in [0, 1] {
        assert_eq!(take(&reading, worker).split, worker);
        finish(&reading, worker);
    }
    nothing(&reading, 0);
    clock.pass_time(IDLE_US + 50);
    assert_eq!(take(&reading, 1).split, 1);
    finish(&reading, 1);
    nothing(&reading, 1);
    assert_eq!(finish(&reading, 1), 600, "the other one is idle");
    clock.pass_time(2 * IDLE_US);
    let away = take(&reading, 0);
    assert_eq!((away.split, away.stamp), (0, 600));
    let left = reading.marks().expect("names are unique")[""].clone();
    let mark = &left.splits["timed 0"];
    assert_eq!((mark.position.0.clone(), mark.watermark_us), (vec![1], 600));
    let options = OpenOptions { from: left.positions(), ..OpenOptions::alone(1, 0, 2) };
    let splits = table.open(&[0], &options).expect("it opens");
    let origin = Origin { from: Some(left), ..origin_of(splits, table) };
    let again = take(&intake_over(vec![origin], 2, &clock), 0);
    assert_eq!((again.split, again.stamp), (0, 600));
}

/// An ended split stays ended, and is not read again.
#[test]
fn an_ended_split_is_not_read_again() {
    let clock = Arc::new(Clock::default());
    let table = Timed(vec![chunks([10, 20, 30])]);
    let splits = table.open(&[0], &OpenOptions::alone(1, 0, 1)).expect("it opens");
    let mark = SplitMark {
        position: Position(vec![3]),
        chunks: 3,
        records: 3,
        watermark_us: 30,
        clock_us: 0,
        number: 0,
        ended: true,
    };
    let from = SourceMarks { low_us: 30, splits: [("timed 0".to_string(), mark)].into() };
    let rest =
        intake_over(vec![Origin { from: Some(from), ..origin_of(splits, table) }], 1, &clock);
    let offer = rest.take(0, &[Admitted::All], &mut None).expect("nothing is read");
    assert!(matches!(offer, Offer::Ended));
    assert_eq!(rest.ended_splits(), [Some(3)]);
    assert!(rest.marks().expect("names are unique")[""].splits["timed 0"].ended);
}
