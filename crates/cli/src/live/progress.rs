//! Progress: what a query that runs is doing, as a line on a terminal or as log lines; and why, if
//! no rows come.

use std::collections::VecDeque;
use std::io::{IsTerminal, stderr};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream::observe::{
    Phase, Snapshot, behind_text, duration, lag_of, open_windows, share_read, time_text, watermark,
    why,
};
use millstream::program::{bytes, harmless, short};

use super::board::{self, StatusBoard};
use super::waiting::{self, awaited};
use crate::console::warn;
use crate::{log, screen};

/// How often it is drawn.
const EVERY: Duration = Duration::from_millis(250);
/// How often it is logged.
const LOGGED_EVERY: Duration = Duration::from_secs(10);
/// Time before the first progress line; shorter queries show no progress.
const FIRST: Duration = Duration::from_millis(500);
/// Rates are those of the last seconds.
const RATE_OVER: Duration = Duration::from_secs(3);
/// After so long without rows it says why, and again after twice as long.
const SILENCE: Duration = Duration::from_secs(10);
/// A checkpoint that has been in the making for so long is told.
const LONG_CHECKPOINT_US: u64 = 10_000_000;

/// Draws progress until it is dropped.
pub(super) struct Line {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        drop(screen::erase());
    }
}

/// Shows what `board` tells: in log lines if there are any, or if stderr is a terminal that can
/// erase a line.
pub(super) fn start(board: &Arc<StatusBoard>) -> Option<Line> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !log::is_on() && (is_dumb || !stderr().is_terminal()) {
        return None;
    }
    let over: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let (board, until) = (board.clone(), over.clone());
    let thread = thread::Builder::new().name("progress".into());
    let thread = thread.spawn(move || {
        let mut showing = Showing::default();
        let (lock, changed) = &*until;
        let mut is_over = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_over {
            let waited = changed.wait_timeout(is_over, EVERY);
            is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !*is_over {
                drop(is_over);
                showing.look(&board);
                is_over = lock.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
    });
    Some(Line { over, thread: thread.ok() })
}

/// Whether colours are wanted: <https://no-color.org>.
fn is_coloured() -> bool {
    static COLOURED: OnceLock<bool> = OnceLock::new();
    *COLOURED.get_or_init(|| std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
}

/// Columns that a line may have. Two are left for the `^C` that a terminal shows: in the next line
/// it would not be erased.
fn columns() -> usize {
    let size = terminal_size::terminal_size_of(stderr());
    size.map_or(78, |(terminal_size::Width(columns), _)| usize::from(columns).saturating_sub(2))
}

/// A text in a colour, if colours are wanted.
fn coloured(text: &str, code: &str) -> String {
    match is_coloured() {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_string(),
    }
}

/// State of the display.
#[derive(Default)]
struct Showing {
    query: u64,
    /// Last phase of the program before its query ran.
    before: board::Phase,
    samples: Samples,
    /// Rows when the last ones came, and when that was.
    rows: u64,
    rows_at: Option<Instant>,
    /// How often it has said why, since then.
    shown: u32,
    logged_at: Option<Instant>,
}

impl Showing {
    fn look(&mut self, board: &StatusBoard) {
        let now = Instant::now();
        let Some((query, snapshot)) = board.observe() else { return self.before(board) };
        if query != self.query {
            *self = Showing { query, rows_at: Some(now), ..Showing::default() };
        }
        self.samples.add(now, snapshot.records, snapshot.input_bytes);
        if Duration::from_micros(snapshot.elapsed_us) < FIRST {
            return;
        }
        self.tell_why(now, &snapshot);
        if log::is_on() {
            return self.log(now, &snapshot);
        }
        let text = line(&snapshot, self.samples.rates(), columns());
        screen::draw(&coloured(&text, "2"), || board.is_running(query));
    }

    /// No query runs yet: the script may be long, and a pipe's writer may not have come.
    fn before(&mut self, board: &StatusBoard) {
        let Some((phase, since)) = board.before_query().filter(|(_, since)| *since >= FIRST) else {
            return drop(screen::erase());
        };
        if phase != self.before {
            (self.before, self.shown) = (phase, 0);
        }
        let awaited = if phase == board::Phase::Planning { awaited() } else { vec![] };
        let text = phase.described(since, &awaited, board.missing());
        if self.is_due(since) {
            warn(&format!("no rows yet: {text}"));
        }
        if !log::is_on() {
            let line = waiting::line(&awaited, since, columns());
            let line = line.unwrap_or_else(|| cut(&text, columns()));
            let true_still = || board.before_query().is_some_and(|(now, _)| now == phase);
            screen::draw(&coloured(&harmless(&line), "2"), true_still);
        }
    }

    /// Whether it is time to say why, after such a silence: the next time is after twice as long.
    fn is_due(&mut self, silence: Duration) -> bool {
        let is_due = silence >= SILENCE * 2u32.saturating_pow(self.shown.min(20));
        self.shown += u32::from(is_due);
        is_due
    }

    fn log(&mut self, now: Instant, snapshot: &Snapshot) {
        if self.logged_at.is_some_and(|at| now.duration_since(at) < LOGGED_EVERY) {
            return;
        }
        self.logged_at = Some(now);
        let Snapshot { records, input_bytes, .. } = snapshot;
        let rows = snapshot.outputs.iter().map(|output| output.rows).sum::<u64>();
        let records_per_second = self.samples.rates().map_or(0, |(records, _)| records);
        tracing::info!(records, input_bytes, rows, records_per_second, "progress");
    }

    /// After a silence, says why; once more after twice as long, and so on.
    fn tell_why(&mut self, now: Instant, snapshot: &Snapshot) {
        let rows = snapshot.outputs.iter().map(|output| output.rows).sum();
        if rows != self.rows || self.rows_at.is_none() {
            (self.rows, self.rows_at, self.shown) = (rows, Some(now), 0);
            return;
        }
        let silence = self.rows_at.map_or(Duration::ZERO, |at| now.duration_since(at));
        if !self.is_due(silence) {
            return;
        }
        let mut text = format!("no rows for {}: ", duration(silence.as_micros() as u64));
        let reasons: Vec<String> = why(snapshot).iter().map(ToString::to_string).collect();
        text += &reasons.join("\n");
        warn(&text);
    }
}

/// Records and bytes of the last moments.
#[derive(Default)]
struct Samples(VecDeque<(Instant, u64, u64)>);

impl Samples {
    fn add(&mut self, now: Instant, records: u64, bytes: u64) {
        self.0.push_back((now, records, bytes));
        while self.0.len() > 2 && self.0.get(1).is_some_and(|s| now - s.0 >= RATE_OVER) {
            self.0.pop_front();
        }
    }

    /// Records and bytes per second, if there has been a second look.
    fn rates(&self) -> Option<(u64, u64)> {
        let ((from, records, bytes), (to, more_records, more_bytes)) =
            (self.0.front()?, self.0.back()?);
        let seconds = to.duration_since(*from).as_secs_f64();
        let rate =
            |from: &u64, to: &u64| (to.saturating_sub(*from) as f64 / seconds).round() as u64;
        (seconds > 0.0).then(|| (rate(records, more_records), rate(bytes, more_bytes)))
    }
}

/// One line of at most so many columns: as many of its parts as fit, the most telling first.
fn line(snapshot: &Snapshot, rates: Option<(u64, u64)>, columns: usize) -> String {
    // How telling each part is: the least number is left out last.
    let mut parts: Vec<(u8, String)> = Vec::new();
    match snapshot.phase {
        Phase::Draining => parts.push((0, "draining".into())),
        Phase::Ending | Phase::Ended => parts.push((0, "ending".into())),
        Phase::Reading => {}
    }
    let share = share_read(snapshot).filter(|_| snapshot.phase == Phase::Reading);
    if let Some(thousandths) = share {
        parts.push((0, format!("{} %", thousandths / 10)));
        if let Some(left) = time_left(snapshot.elapsed_us, thousandths) {
            parts.push((2, format!("{left} left")));
        }
    }
    if let Some((records, input)) = rates {
        parts.push((1, format!("{} records/s", short(records))));
        parts.push((7, format!("{}/s", bytes(input))));
    }
    if let Some((at, behind)) = watermark(snapshot) {
        parts.push((3, format!("at {}", clock_text(at, snapshot.now_us))));
        if let Some(behind) = behind {
            let text = behind_text(behind);
            parts.push((5, text.trim_end_matches(" of").to_string()));
        }
    }
    if let Some(lag) = lag_of(snapshot, None) {
        parts.push((2, format!("lag {}", short(lag.records))));
    }
    if snapshot.late_records > 0 {
        parts.push((4, format!("{} late", short(snapshot.late_records))));
    }
    let (open, more) = open_windows(snapshot);
    if open > 0 {
        let plus = if more { "+" } else { "" };
        parts.push((6, format!("{open}{plus} open")));
    }
    if let Some(status) = &snapshot.checkpoints {
        let failing = status.error.is_some();
        if let Some((number, at)) = status.last {
            let age = duration(snapshot.now_us.saturating_sub(at).max(0) as u64);
            parts.push((5, format!("checkpoint {number} {age} ago")));
        }
        if failing {
            parts.push((0, "no checkpoint can be written".to_string()));
        } else if let Some(us) = status.taking_us.filter(|us| *us >= LONG_CHECKPOINT_US) {
            parts.push((1, format!("a checkpoint takes {} so far", duration(us))));
        }
    }
    parts.push((8, format!("{} state", bytes(snapshot.memory.state_bytes))));
    fitting(parts, columns)
}

/// As many of the parts as fit, in their order.
fn fitting(mut parts: Vec<(u8, String)>, columns: usize) -> String {
    loop {
        let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
        let text = texts.join(" · ");
        let width = text.chars().count();
        let last = parts.iter().map(|(rank, _)| *rank).max();
        match last {
            Some(last) if width > columns => parts.retain(|(rank, _)| *rank != last),
            _ => return harmless(&text),
        }
    }
}

/// A text of at most `columns` columns; a longer text is cut to the part before its colon.
fn cut(text: &str, columns: usize) -> String {
    let is_long = text.chars().count() > columns;
    let text = text.split_once(':').filter(|_| is_long).map_or(text, |(before, _)| before);
    text.chars().take(columns).collect()
}

/// How long it will take if it goes on as so far.
fn time_left(elapsed_us: u64, thousandths: u64) -> Option<String> {
    // Earlier, an estimate would be a guess.
    if thousandths < 10 || elapsed_us < 1_000_000 {
        return None;
    }
    let left = u128::from(elapsed_us) * u128::from(1000 - thousandths) / u128::from(thousandths);
    u64::try_from(left).ok().map(duration)
}

/// An event time in whole seconds, without its date if that is the clock's.
fn clock_text(us: i64, now_us: i64) -> String {
    let (text, now) = (time_text(us), time_text(now_us));
    match (text.split_once(' '), now.split_once(' ')) {
        (Some((date, time)), Some((today, _))) if date == today => time.chars().take(8).collect(),
        (Some(_), _) => text.split('.').next().unwrap_or_default().to_string(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use millstream::Extent;
    use millstream::observe::{CheckpointStatus, OpenWindow, Source, Split, StageStatus};

    use super::*;

    fn snapshot(bounded: bool) -> Snapshot {
        let at = Some(1_704_110_403_000_000);
        let progress = bounded.then_some(Extent { done: 25, of: 100, bytes: true });
        let mut snapshot = Snapshot {
            now_us: 1_704_110_405_500_000,
            elapsed_us: 4_000_000,
            sources: vec![Source { watermark_us: at, live: !bounded, ..Source::default() }],
            splits: vec![Split { progress, ..Split::default() }],
            stages: vec![StageStatus {
                open: vec![OpenWindow::default(); 3],
                ..StageStatus::default()
            }],
            ..Snapshot::default()
        };
        snapshot.memory.state_bytes = 12_345_678;
        snapshot
    }

    #[test]
    fn a_wide_terminal_has_room_for_all() {
        let rates = Some((1_234_567, 85_000_000));
        assert_eq!(
            line(&snapshot(true), rates, 120),
            "25 % · 12 s left · 1.2M records/s · 85 MB/s · at 12:00:03 · 3 open · 12 MB state"
        );
        assert_eq!(
            line(&snapshot(false), rates, 120),
            "1.2M records/s · 85 MB/s · at 12:00:03 · 2.5 s behind · 3 open · 12 MB state"
        );
    }

    #[test]
    fn the_lag_of_a_log_is_told() {
        let mut log = snapshot(false);
        log.splits[0].progress = Some(Extent { done: 25, of: 12_400, bytes: false });
        let text = line(&log, Some((1_234_567, 85_000_000)), 120);
        let all = "1.2M records/s · 85 MB/s · at 12:00:03 · 2.5 s behind · lag 12k · 3 open · 12 MB state";
        assert_eq!(text, all);
    }

    #[test]
    fn reasons_come_after_twice_as_long_each_time() {
        let mut showing = Showing::default();
        let seconds: Vec<u64> =
            (0..=45).filter(|s| showing.is_due(Duration::from_secs(*s))).collect();
        assert_eq!(seconds, [10, 20, 40]);
    }

    #[test]
    fn late_records_and_another_date_than_that_of_the_clock_are_told() {
        let mut late = snapshot(false);
        (late.now_us, late.late_records) = (late.now_us - 86_400_000_000, 1_234);
        assert_eq!(
            line(&late, None, 120),
            "at 2024-01-01 12:00:03 · 23 h 59 min ahead · 1.2k late · 3 open · 12 MB state"
        );
    }

    #[test]
    fn a_checkpoint_that_takes_long_is_told() {
        let mut long = snapshot(false);
        let mut said = |us: i64| {
            let last = Some((7, long.now_us - us));
            let taking_us = Some(us as u64);
            let status = CheckpointStatus { last, taking_us, ..CheckpointStatus::default() };
            long.checkpoints = Some(status);
            line(&long, None, 120)
        };
        assert!(said(9_000_000).contains("checkpoint 7 9.0 s ago · 12 MB state"));
        let text = "checkpoint 7 11 s ago · a checkpoint takes 11 s so far · 12 MB state";
        assert!(said(11_000_000).contains(text));
    }

    #[test]
    fn a_narrow_terminal_has_what_tells_most() {
        let rates = Some((1_234_567, 85_000_000));
        for columns in 0..100 {
            for bounded in [true, false] {
                let text = line(&snapshot(bounded), rates, columns);
                assert!(text.chars().count() <= columns, "{columns}: {text}");
            }
        }
        assert_eq!(line(&snapshot(true), rates, 39), "25 % · 12 s left · 1.2M records/s");
        assert_eq!(line(&snapshot(false), rates, 39), "1.2M records/s · at 12:00:03");
        assert_eq!(line(&snapshot(true), rates, 5), "25 %");
    }

    #[test]
    fn what_comes_before_a_query_is_cut_where_it_can_be() {
        let text = "planning for 10 s: it plans the statement and opens its tables";
        assert_eq!(cut(text, 80), text);
        assert_eq!(cut(text, 38), "planning for 10 s");
        assert_eq!(cut(text, 8), "planning");
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let (mut samples, start) = (Samples::default(), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        samples.add(at(0), 0, 0);
        assert_eq!(samples.rates(), None);
        for second in 1..=20u64 {
            // 100 records a second, and from the tenth on 1000.
            let records = 100 * second.min(10) + 1000 * second.saturating_sub(10);
            samples.add(at(second), records, 8 * records);
        }
        assert_eq!(samples.rates(), Some((1000, 8000)));
        // A little more than a second for each.
        let (mut samples, step) = (Samples::default(), Duration::from_millis(1001));
        (0..4u32).for_each(|n| samples.add(start + step * n, u64::from(n), 7 * u64::from(n)));
        assert_eq!(samples.rates(), Some((1, 7)));
    }

    #[test]
    fn the_time_left_is_told_when_it_is_known() {
        assert_eq!(time_left(500_000, 500), None);
        assert_eq!(time_left(60_000_000, 5), None);
        assert_eq!(time_left(60_000_000, 250).as_deref(), Some("3 min 0 s"));
        assert_eq!(time_left(60_000_000, 1000).as_deref(), Some("0 ms"));
    }
}
