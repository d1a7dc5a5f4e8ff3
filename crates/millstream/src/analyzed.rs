//! What `EXPLAIN ANALYZE` prints: the plan, with what came of its parts when it ran.

use std::fmt::Write;

use millstream_contract::plan::Plan;
use millstream_contract::wording::{counted, grouped};
use millstream_engine::{StageStats, Stats};

use crate::wording::bytes;

/// The plan's text (that of `EXPLAIN`, without the layout of state) with the rows that each of its
/// parts took or gave, and the times of the run. Lines that begin with `=` were measured.
pub fn analyzed(explain: &str, plan: &Plan, stats: &Stats) -> String {
    let mut text = String::new();
    let (mut stage, mut output) = (0, 0);
    for line in explain.lines() {
        text.push_str(line);
        text.push('\n');
        if line.starts_with("first pipeline") {
            stage += 1;
        } else if line.starts_with("  read ") && plan.sources.len() == 1 {
            let _ = writeln!(
                text,
                "  = {}, {}/s, {}, {}",
                rows(stats.records, "record"),
                rate(stats.records, "record", stats),
                bytes(stats.input_bytes),
                seconds(stats.read_us)
            );
        } else if line.starts_with("soft breaker") {
            let of_stage = stats.stages.iter().find(|of_stage| of_stage.stage == stage);
            let _ = of_stage.map(|of_stage| {
                let taken = rows(of_stage.rows_in, "row");
                let late = rows(of_stage.late_records, "late record");
                let partly = match of_stage.partly_late_records {
                    0 => String::new(),
                    partly => format!(" and {} late for some windows", grouped(partly)),
                };
                let (update, fire) = (seconds(of_stage.update_us), seconds(of_stage.fire_us));
                let rate = rate(of_stage.rows_in, "row", stats);
                writeln!(
                    text,
                    "  = {taken} taken, {rate}/s, {late}{partly}; {update} in its state, {fire} firing"
                )
            });
        } else if line.starts_with("result") {
            let _ = stats.outputs.get(output).map(|of_output| {
                let windows = match of_output.windows {
                    0 => String::new(),
                    windows => format!(" in {}", rows(windows, "window")),
                };
                writeln!(text, "  = {}{windows}", rows(of_output.rows, "row"))
            });
            output += 1;
        }
    }
    text + &whole(stats)
}

/// `1 row`, `1,234 rows`.
fn rows(number: u64, what: &str) -> String {
    match number {
        0..1000 => counted(number, what),
        _ => format!("{} {what}s", grouped(number)),
    }
}

/// So many rows in a second of the run: `1,234 rows`.
fn rate(number: u64, what: &str, stats: &Stats) -> String {
    let elapsed = stats.elapsed_us as f64 / 1e6;
    let rate = if elapsed > 0.0 { number as f64 / elapsed } else { 0.0 };
    format!("{} {what}s", grouped(rate as u64))
}

/// `0.123 s`.
fn seconds(us: u64) -> String {
    format!("{:.3} s", us as f64 / 1e6)
}

/// What was read.
fn read(stats: &Stats) -> String {
    format!("{}, {}", rows(stats.records, "record"), bytes(stats.input_bytes))
}

/// What is known of the run as a whole.
fn whole(stats: &Stats) -> String {
    let mut text = String::from("in all\n");
    let (what, rate) = (read(stats), rate(stats.records, "record", stats));
    let _ = writeln!(text, "  = {what} in {}, {rate}/s", seconds(stats.elapsed_us));
    let sum = |part: fn(&StageStats) -> u64| seconds(stats.stages.iter().map(part).sum());
    let (update, fire) = (sum(|stage| stage.update_us), sum(|stage| stage.fire_us));
    let (read, write) = (seconds(stats.read_us), seconds(stats.write_us));
    let _ = writeln!(
        text,
        "  = of the workers' time: {read} reading, {update} updating state, {fire} firing, {write} \
         writing"
    );
    let mut latencies = stats.fire_latency_us.clone();
    latencies.sort_unstable();
    if let Some(most) = latencies.last() {
        let median = latencies[(latencies.len() - 1) / 2];
        let (median, most) = (millis(median), millis(*most));
        let _ = writeln!(
            text,
            "  = from a window's end to its last row: {median} at the median, {most} at most"
        );
    }
    if stats.state_bytes_peak > 0 {
        let (peak, live) = (bytes(stats.state_bytes_peak), bytes(stats.state_live_bytes_at_peak));
        let _ = writeln!(text, "  = state: {peak} at most, {live} of it keys and values");
    }
    let _ = writeln!(
        text,
        "  = {}, {} shipped, {} of segments, {} for credit, {} for memory",
        rows(stats.epochs, "epoch"),
        rows(stats.rows_shipped, "row"),
        rows(stats.merges, "merge"),
        rows(stats.credit_stalls, "stall"),
        rows(stats.memory_stalls, "stall"),
    );
    text.truncate(text.trim_end().len());
    text
}

fn millis(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}
