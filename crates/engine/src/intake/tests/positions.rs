//! Positions of splits while a job runs.

use super::*;
use crate::table::JobPositions;

/// Position of a split of the table of these tests, which has no name.
fn at(positions: &JobPositions, split: &str) -> Vec<u64> {
    positions[""][split].0.clone()
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
    let positions = |intake: &Intake| intake.positions().expect("names are unique");
    assert_eq!(positions(&reading)[""].len(), 2, "all splits, though nothing has been read");
    // Each worker reads its own split.
    for worker in [0, 1] {
        take(&reading, worker);
    }
    assert_eq!(at(&positions(&reading), "timed 0"), [0], "a worker has the first batch");
    for worker in [0, 1] {
        finish(&reading, worker);
        take(&reading, worker);
    }
    finish(&reading, 0);
    let left = positions(&reading);
    assert_eq!(at(&left, "timed 0"), [2]);
    assert_eq!(at(&left, "timed 1"), [1], "one batch is not finished");
    let options = OpenOptions { from: left[""].clone(), ..OpenOptions::alone(1, 0, 2) };
    let mut splits = table.open(&[0], &options).expect("it opens");
    splits.reverse();
    let rest = intake_of(splits, table, &clock);
    assert_eq!(positions(&rest), left, "where it begins, before anything is read");
    let (one, other) = (take(&rest, 0), take(&rest, 1));
    assert_eq!((one.holds, other.holds), (21, 30));
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
    let positions = two.positions().expect("names are unique");
    let of = |table: &str| positions[table]["timed 0"].0.clone();
    assert_eq!((of("t"), of("t.2")), (vec![0], vec![1]));
    let mut equal = origin();
    equal.splits.extend(origin().splits);
    let error = intake_over(vec![equal], 2, &clock).positions().expect_err("they are equal");
    assert!(error.to_string().contains("two splits have the name 'timed 0'"), "{error}");
}
