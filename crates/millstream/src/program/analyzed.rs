//! Text of `EXPLAIN ANALYZE`: the plan, with the measurements of its parts in the run.

use std::fmt::Write;

use millstream_contract::plan::{Input, Plan};
use millstream_contract::wording::{bytes, counted, grouped};
use millstream_engine::{ModeStats, SourceStats, StageStats, Stats};

/// The plan's text (that of `EXPLAIN`, without the layout of state) with the rows that each of its
/// parts took or gave, and the times of the run. Lines that begin with `=` were measured.
pub fn analyzed(explain: &str, plan: &Plan, stats: &Stats) -> String {
    let mut text = String::new();
    let mut at = At::default();
    for line in explain.lines() {
        text.push_str(line);
        text.push('\n');
        if let Some(measured) = at.measured(line, plan, stats) {
            let _ = writeln!(text, "  = {measured}");
        }
    }
    text + &whole(stats)
}

/// Where in a plan's text a line is: numbers count from 1, and 0 is before the first.
#[derive(Default)]
struct At {
    source: usize,
    stage: usize,
    /// Of the stage.
    input: usize,
    /// Whether the line is about rows that the stage fires.
    fires: bool,
    /// Whether it is about the side table of a lookup.
    looks_up: bool,
    output: usize,
}

impl At {
    /// Goes on by a line; returns the measurements of the part that the line describes.
    fn measured(&mut self, line: &str, plan: &Plan, stats: &Stats) -> Option<String> {
        let is_of_input =
            ["  records of source ", "  malformed records of source ", "  rows of stage "];
        if line.starts_with("first pipeline") {
            let At { source, stage, output, .. } = *self;
            *self = At { source, stage: stage + 1, output, ..At::default() };
        } else if line.starts_with("  lookup: ") {
            self.looks_up = true;
        } else if line.starts_with("  read ") && !self.looks_up {
            // In the text of a plan that is no chain, sources stand before the stages.
            self.input += usize::from(self.stage > 0);
            self.source += 1;
            return stats.sources.get(self.source - 1).map(|source| read_in(source, stats));
        } else if is_of_input.iter().any(|start| line.starts_with(start)) {
            self.input += 1;
            let inputs = &plan.stages.get(self.stage.checked_sub(1)?)?.inputs;
            let Input { filter, late, .. } = inputs.get(self.input.checked_sub(1)?)?;
            let is_shown = inputs.len() > 1 && filter.is_none() && late.is_none();
            return self.of_input(stats).filter(|_| is_shown).map(|count| rows(count, "row"));
        } else if line.starts_with("  filter ") {
            let passed = match self.fires {
                true => self.of_stage(stats)?.rows_out,
                false => self.of_input(stats)?,
            };
            return Some(format!("{} let through", rows(passed, "row")));
        } else if line.starts_with("soft breaker") {
            return self.of_stage(stats).map(|of_stage| taken_in(of_stage, stats));
        } else if line.starts_with("second pipeline") {
            self.fires = true;
        } else if line.starts_with("result") {
            self.output += 1;
            return stats.outputs.get(self.output - 1).map(|of_output| {
                let windows = match of_output.windows {
                    0 => String::new(),
                    windows => format!(" in {}", rows(windows, "window")),
                };
                format!("{}{windows}", rows(of_output.rows, "row"))
            });
        }
        None
    }

    /// Of the stage, if it has state.
    fn of_stage<'s>(&self, stats: &'s Stats) -> Option<&'s StageStats> {
        stats.stages.iter().find(|of_stage| of_stage.stage == self.stage)
    }

    /// The rows that the stage has taken of the input.
    fn of_input(&self, stats: &Stats) -> Option<u64> {
        let by_input = match self.of_stage(stats) {
            Some(of_stage) => &of_stage.rows_in_by_input,
            None => stats.passed.get(self.stage.checked_sub(1)?)?,
        };
        by_input.get(self.input.checked_sub(1)?).copied()
    }
}

/// Text of the counters of a source.
fn read_in(source: &SourceStats, stats: &Stats) -> String {
    format!(
        "{}, {}/s, {}, {}",
        rows(source.records, "record"),
        rate(source.records, "record", stats),
        bytes(source.input_bytes),
        seconds(source.read_us)
    )
}

/// Text of the input counters of a stage.
fn taken_in(of_stage: &StageStats, stats: &Stats) -> String {
    let rows_in = rows(of_stage.rows_in, "row");
    let late = rows(of_stage.late_records, "late record");
    let partly = match of_stage.partly_late_records {
        0 => String::new(),
        partly => format!(" and {} late for some windows", grouped(partly)),
    };
    let (update, fire) = (seconds(of_stage.update_us), seconds(of_stage.fire_us));
    let rate = rate(of_stage.rows_in, "row", stats);
    let mut text =
        format!("{rows_in} taken, {rate}/s, {late}{partly}; {update} in its state, {fire} firing");
    let is_measured = |of_worker: &&ModeStats| of_worker.ns.iter().any(Option::is_some);
    let mut modes: Vec<&ModeStats> = of_stage.modes.iter().filter(is_measured).collect();
    modes.sort_by_key(|of_worker| of_worker.worker);
    for of_worker in modes.iter().take(MODES_MAX) {
        let _ = write!(text, "\n  = {}", mode(of_worker));
    }
    if modes.len() > MODES_MAX {
        let _ = write!(text, "\n  = and {} more", rows((modes.len() - MODES_MAX) as u64, "worker"));
    }
    text
}

/// So many workers' modes are shown.
const MODES_MAX: usize = 8;

/// Text of a worker's mode and its costs.
fn mode(of_worker: &ModeStats) -> String {
    let ModeStats { worker, mode, ns, switches, switched_at } = of_worker;
    let since = match switches {
        0 => String::new(),
        1 => format!(" from record {} on", grouped(*switched_at)),
        _ => format!(" from record {} on, change {switches}", grouped(*switched_at)),
    };
    let names = ["record joint", "record aggregated", "record passed through"];
    let names = names.into_iter().chain(["row merged by its leader", "row taken in by its leader"]);
    let costs = names.zip(ns).filter_map(|(name, ns)| Some(format!("{name} {:.1}", (*ns)?)));
    let costs: Vec<String> = costs.collect();
    format!("worker {worker}: {mode}{since}; ns of a {}", costs.join(", "))
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

/// Text of the counters of all sources.
fn read(stats: &Stats) -> String {
    format!("{}, {}", rows(stats.records, "record"), bytes(stats.input_bytes))
}

/// Text about the run as a whole.
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
        let what = if stats.windows > 0 { "a window" } else { "a slice" };
        let _ = writeln!(
            text,
            "  = from {what}'s end to its last row: {median} at the median, {most} at most"
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
