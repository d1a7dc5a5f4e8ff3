//! Positions of splits while a job runs.

use super::*;

/// The positions of a running job stand before the first record that no worker has finished, by the
/// names of splits: a job that is opened there reads just the rest, in whatever order splits come.
#[test]
fn a_job_goes_on_from_the_positions_of_its_splits() {
    let clock = Arc::new(Clock::default());
    let chunks = |times: [i64; 3]| VecDeque::from(times.map(|time| (0, time)));
    let table = Timed(vec![chunks([10, 20, 30]), chunks([11, 21, 31])]);
    let reading = intake(table.clone(), &clock);
    assert!(reading.positions().is_empty(), "nothing has been read");
    // Each worker reads its own split.
    for worker in [0, 1] {
        take(&reading, worker);
    }
    let at = |positions: &Positions, split: &str| positions.get(split).map(|at| at.0.clone());
    assert_eq!(at(&reading.positions(), "timed 0"), None, "a worker has the first batch");
    for worker in [0, 1] {
        finish(&reading, worker);
        take(&reading, worker);
    }
    finish(&reading, 0);
    assert_eq!(at(&reading.positions(), "timed 0"), Some(vec![2]));
    assert_eq!(at(&reading.positions(), "timed 1"), Some(vec![1]), "one batch is not finished");
    let from = reading.positions();
    let options = OpenOptions { from, ..OpenOptions::alone(1, 0, 2) };
    let splits = table.open(&[0], &options).expect("it opens");
    let rest = intake_of(splits, table, &clock);
    let (one, other) = (take(&rest, 0), take(&rest, 1));
    assert_eq!((one.holds, other.holds), (30, 21));
}
