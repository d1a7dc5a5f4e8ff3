//! `--metrics`: what a query is doing, in the text format of Prometheus.
//!
//! Names follow Prometheus's conventions: base units, which end the name, and `_total` for what
//! only grows. `docs/metrics.md` lists all of them, which a test compares.

use std::fmt::Write;

use millstream::observe::{
    CheckpointStatus, Doing, Latency, Snapshot, Split, Stops, WorkerStatus, lag, lag_of, share_read,
};
use millstream_connect::http::message::Answer;

use super::board::StatusBoard;
use crate::failure::restarts;

/// Answers a request for metrics.
pub(super) fn answer(board: &StatusBoard, path: &str) -> Answer {
    match path {
        "/metrics" => Answer::document("text/plain; version=0.0.4; charset=utf-8", text(board)),
        "/healthz" => Answer::document("text/plain; charset=utf-8", "ok\n".into()),
        _ => Answer::new(404, "there is /metrics, and /healthz"),
    }
}

/// All metrics.
fn text(board: &StatusBoard) -> String {
    let observed = board.observe();
    let mut text = Text::default();
    let version = &[("version", env!("CARGO_PKG_VERSION").to_string())][..];
    text.gauge("millstream_info", "The program, with its version.").sample(version, 1.0);
    text.gauge("millstream_running_seconds", "How long the program has run.")
        .sample(&[], board.running().as_secs_f64());
    text.counter("millstream_queries_total", "Queries of the script that have begun.")
        .sample(&[], board.queries() as f64);
    text.counter("millstream_restarts_total", "How often `--restart` has started the job again.")
        .sample(&[], restarts().unwrap_or(0) as f64);
    text.gauge("millstream_query_running", "Whether a query runs: 1 or 0.")
        .sample(&[], f64::from(u8::from(observed.is_some())));
    let none = Snapshot::default();
    let (snapshot, runs) = match &observed {
        Some((_, snapshot)) => (&**snapshot, true),
        None => (&none, false),
    };
    input(&mut text, snapshot, runs);
    splits(&mut text, snapshot);
    workers(&mut text, snapshot);
    stages(&mut text, snapshot);
    outputs(&mut text, snapshot, runs);
    channels(&mut text, snapshot);
    memory(&mut text, snapshot, runs);
    checkpoints(&mut text, snapshot);
    text.0
}

fn input(text: &mut Text, snapshot: &Snapshot, runs: bool) {
    let whole: [(&str, &str, u64); 4] = [
        ("millstream_records_total", "Records read.", snapshot.records),
        ("millstream_input_bytes_total", "Input bytes read.", snapshot.input_bytes),
        (
            "millstream_bad_records_total",
            "Records left out: malformed, or without a usable event time.",
            snapshot.bad_records,
        ),
        (
            "millstream_late_records_total",
            "Records that came too late for all of their windows.",
            snapshot.late_records,
        ),
    ];
    for (name, help, value) in whole {
        text.counter(name, help).sample_if(runs, &[], value as f64);
    }
    let read = share_read(snapshot).map(|thousandths| thousandths as f64 / 1000.0);
    text.gauge("millstream_input_read_ratio", "How much of the input has been read, if known.")
        .sample_if(runs && read.is_some(), &[], read.unwrap_or(0.0));
    let sources = || snapshot.sources.iter().enumerate();
    let label =
        |number: usize, name: &str| [("source", number.to_string()), ("table", name.to_string())];
    let help = "A table's low watermark: event time since 1970.";
    let mut family = text.gauge("millstream_source_watermark_seconds", help);
    for (number, source) in sources() {
        if let Some(at) = source.watermark_us {
            family.sample(&label(number, &source.name), seconds(at));
        }
    }
    let behind = "How far the watermark is behind the clock, where records come as they happen.";
    let mut family = text.gauge("millstream_source_watermark_lag_seconds", behind);
    for (number, source) in sources().filter(|(_, source)| source.live && !source.ended) {
        if let Some(at) = source.watermark_us {
            family.sample(&label(number, &source.name), seconds(snapshot.now_us - at));
        }
    }
    let help = "Records of a log that are there and have not been read.";
    let mut family = text.gauge("millstream_source_lag_records", help);
    for (number, source) in sources() {
        if let Some(lag) = lag_of(snapshot, Some(number)) {
            family.sample(&label(number, &source.name), lag.records as f64);
        }
    }
}

fn splits(text: &mut Text, snapshot: &Snapshot) {
    let splits = || snapshot.splits.iter().enumerate();
    let label = |number: usize, split: &Split| {
        let table = snapshot.sources.get(split.source).map(|source| source.name.clone());
        [
            ("split", number.to_string()),
            ("table", table.unwrap_or_default()),
            ("name", split.name.clone()),
        ]
    };
    let mut family = text.counter("millstream_split_records_total", "Records read of a split.");
    for (number, split) in splits() {
        family.sample(&label(number, split), split.records as f64);
    }
    let mut family = text.counter("millstream_split_bytes_total", "Bytes read of a split.");
    for (number, split) in splits() {
        family.sample(&label(number, split), split.bytes as f64);
    }
    let help = "A split's watermark: event time since 1970.";
    let mut family = text.gauge("millstream_split_watermark_seconds", help);
    for (number, split) in splits() {
        if let Some(at) = split.watermark_us {
            family.sample(&label(number, split), seconds(at));
        }
    }
    let help = "Records of a split of a log that are there and have not been read.";
    let mut family = text.gauge("millstream_split_lag_records", help);
    for (number, split) in splits() {
        if let Some(lag) = lag(snapshot, split) {
            family.sample(&label(number, split), lag as f64);
        }
    }
    let help = "How long ago the last record of a split came.";
    let mut family = text.gauge("millstream_split_silent_seconds", help);
    for (number, split) in splits().filter(|(_, split)| !split.ended) {
        family.sample(&label(number, split), split.silent_us as f64 / 1e6);
    }
    let help = "Whether a split is idle, so that the others do not wait for it: 1 or 0.";
    let mut family = text.gauge("millstream_split_idle", help);
    for (number, split) in splits() {
        family.sample(&label(number, split), f64::from(u8::from(split.idle)));
    }
}

fn workers(text: &mut Text, snapshot: &Snapshot) {
    let label = |worker: &WorkerStatus, state: &str| {
        [
            ("process", worker.process.to_string()),
            ("worker", worker.worker.to_string()),
            ("state", state.to_string()),
        ]
    };
    let help = "What a worker's time has gone into: busy, idle (no input), blocked (credit, memory \
                or output).";
    let mut family = text.counter("millstream_worker_seconds_total", help);
    for worker in &snapshot.workers {
        for (state, us) in
            [("busy", worker.busy_us), ("idle", worker.idle_us), ("blocked", worker.blocked_us)]
        {
            family.sample(&label(worker, state), us as f64 / 1e6);
        }
    }
    let help = "Workers by what they are doing now.";
    let mut family = text.gauge("millstream_workers", help);
    for doing in Doing::ALL {
        let count = snapshot.workers.iter().filter(|worker| worker.doing == doing).count();
        let name = format!("{doing:?}").to_lowercase();
        family.sample_if(!snapshot.workers.is_empty(), &[("doing", name)], count as f64);
    }
}

fn stages(text: &mut Text, snapshot: &Snapshot) {
    let label = |stage: usize| [("stage", stage.to_string())];
    type Of = fn(&millstream::observe::StageStatus) -> u64;
    let counters: [(&str, &str, Of); 4] = [
        (
            "millstream_stage_rows_in_total",
            "Rows that have passed the conditions of a stage, which it has taken.",
            |s| s.rows_in,
        ),
        ("millstream_stage_rows_out_total", "Rows that a stage has fired.", |s| s.rows_out),
        (
            "millstream_stage_late_records_total",
            "Records that came too late for all windows of a stage.",
            |s| s.late_records,
        ),
        (
            "millstream_stage_partly_late_records_total",
            "Records that came too late for some windows of a stage.",
            |s| s.partly_late_records,
        ),
    ];
    for (name, help, of) in counters {
        let mut family = text.counter(name, help);
        for stage in &snapshot.stages {
            family.sample(&label(stage.stage), of(stage) as f64);
        }
    }
    let gauges: [(&str, &str, Of); 3] = [
        (
            "millstream_stage_open_windows",
            "Windows of a stage that have rows and have not fired; 1000 at the most.",
            |s| s.open.len() as u64,
        ),
        ("millstream_stage_state_rows", "Keys that a stage holds.", |s| s.state_rows),
        ("millstream_stage_state_bytes", "Bytes that a stage's state takes.", |s| s.state_bytes),
    ];
    for (name, help, of) in gauges {
        let mut family = text.gauge(name, help);
        for stage in &snapshot.stages {
            family.sample(&label(stage.stage), of(stage) as f64);
        }
    }
    let help = "Windows of a stage that fire up to here have fired: event time since 1970.";
    let mut family = text.gauge("millstream_stage_frontier_seconds", help);
    for stage in &snapshot.stages {
        if let Some(at) = stage.frontier_us {
            family.sample(&label(stage.stage), seconds(at));
        }
    }
}

fn outputs(text: &mut Text, snapshot: &Snapshot, runs: bool) {
    let outputs = || snapshot.outputs.iter().enumerate();
    let label = |number: usize| [("output", number.to_string())];
    let mut family = text.counter("millstream_output_rows_total", "Rows written to an output.");
    outputs().for_each(|(number, output)| family.sample(&label(number), output.rows as f64));
    let mut family =
        text.counter("millstream_output_windows_total", "Windows with rows written to an output.");
    outputs().for_each(|(number, output)| family.sample(&label(number), output.windows as f64));
    let help = "Bytes of rows that wait for an output.";
    let mut family = text.gauge("millstream_output_queued_bytes", help);
    outputs()
        .for_each(|(number, output)| family.sample(&label(number), output.queued_bytes as f64));
    let help = "From the watermark passing a window's end until its last row has been written; \
                quantiles are of the latest 1000 windows.";
    let family = text.family("millstream_fire_latency_seconds", "summary", help);
    summary(family, runs, &snapshot.latency);
}

fn summary(mut family: Family<'_>, runs: bool, times: &Latency) {
    for (quantile, us) in [("0.5", times.p50_us), ("0.99", times.p99_us), ("1", times.max_us)] {
        let labels = [("quantile", quantile.to_string())];
        // As OpenMetrics wants it: 0 would be the best time there is.
        let seconds = if times.windows == 0 { f64::NAN } else { us as f64 / 1e6 };
        family.sample_if(runs, &labels, seconds);
    }
    family.sample_as(runs, "_sum", times.sum_us as f64 / 1e6);
    family.sample_as(runs, "_count", times.windows as f64);
}

fn channels(text: &mut Text, snapshot: &Snapshot) {
    type Of = fn(&millstream::observe::Channel) -> u64;
    let all: [(&str, &str, Of); 4] = [
        ("millstream_channel_bytes_total", "Bytes of rows sent to another process.", |c| c.bytes),
        ("millstream_channel_messages_total", "Messages sent to another process.", |c| c.messages),
        ("millstream_channel_rows_total", "Rows sent to another process.", |c| c.rows),
        (
            "millstream_channel_credit_stalls_total",
            "Times that a slot was wanted and there was no credit.",
            |c| c.credit_stalls,
        ),
    ];
    for (name, help, of) in all {
        let mut family = text.counter(name, help);
        for channel in &snapshot.channels {
            let labels = [("from", channel.from.to_string()), ("to", channel.to.to_string())];
            family.sample(&labels, of(channel) as f64);
        }
    }
}

fn memory(text: &mut Text, snapshot: &Snapshot, runs: bool) {
    let memory = &snapshot.memory;
    let help = "The memory budget of all processes: the setting 'memory'.";
    text.gauge("millstream_memory_limit_bytes", help).sample_if(
        runs,
        &[],
        memory.limit_bytes as f64,
    );
    let mut family =
        text.gauge("millstream_memory_bytes", "Memory in use, by what it is used for.");
    for (kind, bytes) in [
        ("state", memory.state_bytes),
        ("input", memory.input_bytes),
        ("segments", memory.segment_bytes),
        ("output", memory.output_bytes),
    ] {
        family.sample_if(runs, &[("kind", kind.to_string())], bytes as f64);
    }
    let help = "The most memory that was in use at once.";
    text.gauge("millstream_memory_peak_bytes", help).sample_if(runs, &[], memory.peak_bytes as f64);
}

fn checkpoints(text: &mut Text, snapshot: &Snapshot) {
    let none = CheckpointStatus::default();
    let (status, saves) = match &snapshot.checkpoints {
        Some(status) => (status, true),
        None => (&none, false),
    };
    text.counter("millstream_checkpoints_total", "Checkpoints written.").sample_if(
        saves,
        &[],
        status.written as f64,
    );
    let help = "Checkpoints that could not be written.";
    text.counter("millstream_checkpoint_failures_total", help).sample_if(
        saves,
        &[],
        status.failed as f64,
    );
    let last = status.last.is_some();
    let age = status.last.map_or(0, |(_, at)| snapshot.now_us.saturating_sub(at).max(0));
    let help = "How long ago the last checkpoint was written.";
    text.gauge("millstream_checkpoint_age_seconds", help).sample_if(last, &[], seconds(age));
    let help = "Time from the request of the last checkpoint until it was durable.";
    let duration = seconds(status.duration_us as i64);
    text.gauge("millstream_checkpoint_duration_seconds", help).sample_if(last, &[], duration);
    let help = "Bytes of state in the last checkpoint.";
    text.gauge("millstream_checkpoint_bytes", help).sample_if(last, &[], status.bytes as f64);
    let help = "How long a worker stood still for a checkpoint; quantiles are of the latest 1000 \
                times.";
    let Stops { pauses, drain_us, save_us, complete_us } = &snapshot.stops;
    let family = text.family("millstream_checkpoint_pause_seconds", "summary", help);
    summary(family, saves, pauses);
    let help = "The last time that workers stood for a checkpoint, by parts.";
    let mut family = text.gauge("millstream_checkpoint_stop_seconds", help);
    for (part, us) in [("drain", drain_us), ("save", save_us), ("complete", complete_us)] {
        family.sample_if(last, &[("part", part.to_string())], seconds(*us as i64));
    }
}

fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}

/// The text, as it grows.
#[derive(Default)]
struct Text(String);

/// Samples of one name.
struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Text {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { text: &mut self.0, name }
    }

    fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }
}

impl Family<'_> {
    fn sample(&mut self, labels: &[(&str, String)], value: f64) {
        self.text.push_str(self.name);
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        if !labels.is_empty() {
            let _ = write!(self.text, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.text, " {value}");
    }

    fn sample_if(&mut self, holds: bool, labels: &[(&str, String)], value: f64) {
        if holds {
            self.sample(labels, value);
        }
    }

    /// Under the family's name with an end.
    fn sample_as(&mut self, holds: bool, end: &str, value: f64) {
        if holds {
            let _ = writeln!(self.text, "{}{end} {value}", self.name);
        }
    }
}

/// A label's value, as the format has it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use millstream::Extent;
    use millstream::observe::{Channel, Source};

    use super::*;

    /// Names and kinds, in code and in the documentation.
    #[test]
    fn the_documentation_lists_all_metrics_and_no_others() {
        let text = text(&StatusBoard::new("-e"));
        let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let found: BTreeSet<String> = kinds.map(str::to_string).collect();
        let page = include_str!("../../../../docs/metrics.md");
        let listed = page.lines().filter(|line| line.starts_with("| `millstream_"));
        let listed: BTreeSet<String> = listed
            .map(|line| {
                let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
                let name = cells.nth(1).unwrap_or_default();
                format!("{name} {}", cells.next().unwrap_or_default())
            })
            .collect();
        assert_eq!(found, listed);
        assert!(found.len() > 30, "{found:?}");
    }

    #[test]
    fn names_follow_the_conventions() {
        let text = text(&StatusBoard::new("-e"));
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            let allowed = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(allowed), "{line}");
        }
        // Without a query, only the program's own have a value.
        let values = text.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<&str> = values.filter_map(|line| line.split([' ', '{']).next()).collect();
        assert_eq!(
            names,
            [
                "millstream_info",
                "millstream_running_seconds",
                "millstream_queries_total",
                "millstream_restarts_total",
                "millstream_query_running",
            ]
        );
    }

    #[test]
    fn values_stand_with_their_labels() {
        let board = StatusBoard::new("-e");
        board.runs(|| Snapshot {
            records: 17,
            now_us: 12_500_000,
            sources: vec![Source {
                name: "a\"b\\\n".into(),
                live: true,
                watermark_us: Some(10_000_000),
                ..Source::default()
            }],
            splits: vec![Split {
                name: "s".into(),
                idle: true,
                progress: Some(Extent { done: 3, of: 10, bytes: false }),
                ..Split::default()
            }],
            workers: vec![WorkerStatus { busy_us: 1_500_000, ..WorkerStatus::default() }],
            channels: vec![Channel { from: 1, to: 0, bytes: 9, ..Channel::default() }],
            ..Snapshot::default()
        });
        let text = text(&board);
        for line in [
            "millstream_records_total 17",
            "millstream_query_running 1",
            "millstream_source_watermark_lag_seconds{source=\"0\",table=\"a\\\"b\\\\\\n\"} 2.5",
            "millstream_split_idle{split=\"0\",table=\"a\\\"b\\\\\\n\",name=\"s\"} 1",
            "millstream_split_lag_records{split=\"0\",table=\"a\\\"b\\\\\\n\",name=\"s\"} 7",
            "millstream_source_lag_records{source=\"0\",table=\"a\\\"b\\\\\\n\"} 7",
            "millstream_worker_seconds_total{process=\"0\",worker=\"0\",state=\"busy\"} 1.5",
            "millstream_channel_bytes_total{from=\"1\",to=\"0\"} 9",
            "millstream_fire_latency_seconds_count 0",
            "millstream_fire_latency_seconds{quantile=\"0.99\"} NaN",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
