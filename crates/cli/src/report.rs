//! The closing line: a run's report to its user.

use std::collections::BTreeSet;

use millstream::program::{grouped, plural};
use millstream::{Stats, Totals};

/// Help after the early end of a job with checkpoints.
pub(crate) const GOES_ON: &str = "the same command goes on from the last checkpoint";

/// A line for each kind of record that did not count as others do, and below it the place of the
/// first; nothing if all counted.
pub(crate) fn left_out(stats: &Stats) -> String {
    let mut text = String::new();
    for (count, record, what, first) in [
        (
            stats.malformed_records,
            "malformed record",
            "left out ('on_error')",
            &stats.first_malformed,
        ),
        (stats.late_records, "late record", "left out ('late')", &None),
        (stats.partly_late_records, "record", "late for some of its windows", &None),
        (
            stats.null_time_records,
            "record",
            "without an event time, in no window or join by times",
            &stats.first_null_time,
        ),
        (
            stats.unusable_time_records,
            "record",
            "with an event time beyond the years that a window can have, in no window",
            &stats.first_unusable_time,
        ),
        (
            stats.ahead_records,
            "record",
            "so far ahead of the clock that the watermark does not follow ('watermark.max_ahead')",
            &stats.first_ahead,
        ),
    ] {
        if count > 0 {
            let what = if count == 1 { what } else { &what.replace(" its ", " their ") };
            text.push_str(&format!("{} {what}\n", counted(count, record)));
        }
        if let Some(first) = first {
            let the_first = if count == 1 { "" } else { "the first " };
            text.push_str(&format!("  {the_first}at {}\n", first.place));
        }
    }
    text
}

/// `16,385 records, 324 windows, 7,011 rows, 0 late records, 0.042 s, 390,119 records/s`, after the
/// lines of [`left_out`]. A simulated run has no rate: its time is not real. One that was
/// interrupted says so, and how many windows have no result.
pub(crate) fn closing_line(stats: &Stats, simulated: bool, interrupted: bool) -> String {
    let mut text = left_out(stats);
    let seconds = stats.elapsed_us as f64 / 1e6;
    let rate = if seconds > 0.0 { stats.records as f64 / seconds } else { 0.0 };
    let windows = match stats.windows {
        0 => "no windows".to_string(),
        n => counted(n, "window"),
    };
    let partly = match stats.partly_late_records {
        0 => String::new(),
        n => format!(" and {} late for some windows", grouped(n)),
    };
    let speed = match simulated {
        true => " of virtual time".to_string(),
        false => format!(", {} records/s", grouped(rate as u64)),
    };
    if interrupted {
        text += &match stats.open_windows.as_ref().map(BTreeSet::len) {
            None => "interrupted: ".to_string(),
            Some(0) => "interrupted with no window open: ".to_string(),
            Some(open) => format!("interrupted with {} open: ", counted(open as u64, "window")),
        };
    }
    text + &format!(
        "{}, {windows}, {}, {}{partly}, {seconds:.3} s{speed}",
        counted(stats.records, "record"),
        counted(stats.rows, "row"),
        counted(stats.late_records, "late record"),
    ) + &in_all(stats)
}

/// The end of the closing line of an interrupted job. `saves`: the job has checkpoints.
pub(crate) fn goes_on(saves: bool) -> String {
    if saves { format!("; {GOES_ON}") } else { String::new() }
}

/// Of a run that goes on from a checkpoint: the counts of all runs.
fn in_all(stats: &Stats) -> String {
    if stats.before == Totals::default() {
        return String::new();
    }
    let Totals { records, rows, late_records, .. } = stats.totals();
    let [records, rows, late] = [(records, "record"), (rows, "row"), (late_records, "late record")]
        .map(|(n, of)| counted(n, of));
    format!("; with the runs before: {records}, {rows}, {late}")
}

/// `0 rows`, `1 row`, `1,234 rows`.
fn counted(number: u64, what: &str) -> String {
    format!("{} {}", grouped(number), plural(number, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_counts_and_warns() {
        let mut stats = Stats { records: 1_000, rows: 1, elapsed_us: 500_000, ..Stats::default() };
        assert_eq!(
            closing_line(&stats, false, false),
            "1,000 records, no windows, 1 row, 0 late records, 0.500 s, 2,000 records/s"
        );
        assert_eq!(
            closing_line(&stats, true, false),
            "1,000 records, no windows, 1 row, 0 late records, 0.500 s of virtual time"
        );
        stats.partly_late_records = 1_234;
        assert!(closing_line(&stats, false, false).ends_with(
            ", 0 late records and 1,234 late for some windows, 0.500 s, 2,000 records/s"
        ));
        assert_eq!(left_out(&stats), "1,234 records late for some of their windows\n");
        stats.partly_late_records = 0;
        (stats.windows, stats.malformed_records, stats.null_time_records) = (2, 1, 3);
        stats.late_records = 1;
        let text = closing_line(&stats, false, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("1 malformed record left out")
                && lines[1] == "1 late record left out ('late')"
                && lines[2].starts_with("3 records ")
        );
        assert!(lines[3].contains(", 2 windows, "), "{text}");
        for (open, expected) in [
            (None, "interrupted: 1,000 records, 2 windows, "),
            (Some(0), "interrupted with no window open: 1,000 records, "),
            (Some(1), "interrupted with 1 window open: 1,000 records, "),
            (Some(1_234), "interrupted with 1,234 windows open: 1,000 records, "),
        ] {
            stats.open_windows =
                open.map(|open| (0..open).map(|number| (number, number)).collect());
            let text = closing_line(&stats, false, true);
            assert!(text.lines().last().unwrap().starts_with(expected), "{text}");
        }
    }
}
