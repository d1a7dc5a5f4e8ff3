//! Reasons for missing rows: the window, the split that delays it, and remedies.

use std::fmt;

use arrow::array::temporal_conversions::timestamp_us_to_datetime;
use millstream_contract::wording::{bytes, grouped};
use serde::{Deserialize, Serialize};

use super::{
    Awaited, Doing, Input, Obstacle, OpenWindow, Phase, Snapshot, Split, StageStatus, lag,
    share_read, split_name,
};

/// Number of splits that are named separately.
const NAMED_MAX: usize = 3;
/// A worker that is in one step for so long does more than to compute.
const LONG_STEP_US: u64 = 1_000_000;
/// A split that has been without records for so long is called silent.
const SILENT_US: u64 = 1_000_000;
/// Where the clock says that records are due, such a silence is a fault.
const OVERDUE_US: u64 = 10_000_000;

/// A watermark that is so far ahead of the clock makes late what comes as it happens.
const AHEAD_US: i64 = 60_000_000;

/// A reason why no rows come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The missing event.
    pub what: String,
    /// Advice, if there is a remedy.
    pub help: Option<String>,
    /// Whether the state is a fault that needs action; a window that is not due is no fault.
    pub wrong: bool,
}

impl Reason {
    /// In the ordinary course of things.
    pub fn ordinary(what: String) -> Reason {
        Reason { what, help: None, wrong: false }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.help.as_ref().map_or(Ok(()), |help| write!(f, "\n  help: {help}"))
    }
}

/// Why a job yields no rows just now: all reasons, the most telling first. There is always one.
pub fn why(snapshot: &Snapshot) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if snapshot.phase == Phase::Ended {
        return vec![Reason::ordinary(
            "all workers have ended: the result is being completed".into(),
        )];
    }
    reasons.extend(output(snapshot));
    reasons.extend(memory(snapshot));
    reasons.extend(checkpoint(snapshot));
    reasons.extend(too_far_ahead(snapshot));
    reasons.extend(snapshot.stages.iter().rev().filter_map(|stage| of_stage(snapshot, stage)));
    if reasons.is_empty() {
        reasons.push(without_windows(snapshot));
    }
    reasons
}

/// Rows wait for the reader of the output.
fn output(snapshot: &Snapshot) -> Option<Reason> {
    let queued: u64 = snapshot.outputs.iter().map(|output| output.queued_bytes).sum();
    let workers = &snapshot.workers;
    let long = workers.iter().find(|w| w.doing == Doing::Step && w.since_us >= LONG_STEP_US);
    let waits = workers.iter().any(|worker| worker.doing == Doing::Output);
    if queued > 0 && (waits || long.is_some()) {
        return Some(Reason {
            what: format!("{} of result rows wait for whoever reads the output", bytes(queued)),
            help: Some("read it faster, or write to files (INSERT INTO)".into()),
            wrong: true,
        });
    }
    let long = long?;
    Some(Reason {
        what: format!(
            "worker {} of process {} has been in one step for {}: it writes to an output that \
             nobody reads, or works on a large chunk",
            long.worker,
            long.process,
            duration(long.since_us)
        ),
        help: None,
        wrong: true,
    })
}

fn memory(snapshot: &Snapshot) -> Option<Reason> {
    let waits = snapshot.workers.iter().any(|worker| worker.doing == Doing::Memory);
    let memory = &snapshot.memory;
    waits.then(|| Reason {
        what: format!(
            "memory is scarce: {} of {} are in use, and only the splits that are least far go on",
            bytes(memory.used_bytes()),
            bytes(memory.limit_bytes)
        ),
        help: Some("a larger setting 'memory', or shorter windows".into()),
        wrong: true,
    })
}

/// A checkpoint cannot be written, or is being waited for.
fn checkpoint(snapshot: &Snapshot) -> Option<Reason> {
    let status = snapshot.checkpoints.as_ref()?;
    if let Some(error) = &status.error {
        return Some(Reason {
            what: format!(
                "no checkpoint can be written, and rows become visible with the next one: {error}"
            ),
            help: None,
            wrong: true,
        });
    }
    let us = status.taking_us.filter(|us| *us >= LONG_STEP_US)?;
    let waits = status.awaits.as_ref().map_or(String::new(), |awaits| awaited(snapshot, awaits));
    let what = format!("a checkpoint has been in the making for {}{waits}", duration(us));
    Some(Reason { what, help: None, wrong: us >= OVERDUE_US })
}

/// The step for which a checkpoint waits, behind a colon.
fn awaited(snapshot: &Snapshot, awaits: &Awaited) -> String {
    let several = snapshot.workers.iter().any(|worker| worker.process > 0);
    let of = |processes: &[usize]| {
        let numbers: Vec<String> = processes.iter().map(usize::to_string).collect();
        match &numbers[..] {
            [one] if several => format!(" of process {one}"),
            [before @ .., last] if several => {
                format!(" of processes {} and {last}", before.join(", "))
            }
            _ => String::new(),
        }
    };
    match awaits {
        Awaited::Stop(processes) if processes.is_empty() => {
            ": rows from before it are on their way to outputs".into()
        }
        Awaited::Stop(processes) => {
            format!(": workers{} end what they have begun", of(processes))
        }
        Awaited::Write(processes) => format!(": state{} is being written", of(processes)),
        Awaited::Publish => ": its last file is being written, and rows become visible".into(),
    }
}

/// A record has taken the watermark ahead of the clock, and those behind it are late.
fn too_far_ahead(snapshot: &Snapshot) -> Option<Reason> {
    let live = snapshot.sources.iter().filter(|source| source.live && !source.ended);
    let (name, at) = live
        .filter_map(|source| Some((&source.name, source.watermark_us?)))
        .max_by_key(|(_, at)| *at)
        .filter(|(_, at)| at.saturating_sub(snapshot.now_us) >= AHEAD_US)?;
    (snapshot.late_records > 0).then(|| Reason {
        what: format!(
            "{} of {} came too late: the watermark of {name} is {}, {} the clock",
            grouped(snapshot.late_records),
            records(snapshot.records),
            time_text(at),
            behind_text(snapshot.now_us - at)
        ),
        help: Some(
            "a record from the future took it there; a smaller setting 'watermark.max_ahead', '10 \
             s' say, ignores the time of such a record"
                .into(),
        ),
        wrong: true,
    })
}

/// Reason for the first open window of a stage.
fn of_stage(snapshot: &Snapshot, stage: &StageStatus) -> Option<Reason> {
    let first = stage.open.first()?;
    if first.fires_at_us.is_none() {
        return Some(at_the_end(snapshot, stage));
    }
    let window = window_text(first);
    let named = format!("window {window} of stage {}", stage.stage);
    let mut waits: Vec<(&Split, i64)> = Vec::new();
    for need in &stage.needs {
        let Some(needed) = need.watermark_us else { continue };
        let of_source = |split: &&Split| split.source == need.source;
        let holds = |split: &&Split| {
            !split.ended && !split.idle && split.holds_us.is_none_or(|at| at < needed)
        };
        let splits = snapshot.splits.iter().filter(of_source).filter(holds);
        waits.extend(splits.map(|split| (split, needed)));
    }
    if waits.is_empty() {
        return Some(complete(snapshot, stage, &named));
    }
    waits.sort_by_key(|(split, _)| split.holds_us);
    let mut what = format!("{named} waits for ");
    for (number, (split, needed)) in waits.iter().take(NAMED_MAX).enumerate() {
        if number > 0 {
            what += "; and for ";
        }
        what += &split_text(snapshot, split, *needed);
    }
    if waits.len() > NAMED_MAX {
        what += &format!("; and for {} more", waits.len() - NAMED_MAX);
    }
    if let (Some(end), Some(at)) = (first.end_us, first.fires_at_us)
        && at > end
    {
        let later = duration((at - end) as u64);
        what += &format!("\n  (it fires {later} after its end: setting 'allowed_lateness')");
    }
    let wrong = waits.iter().any(|(split, needed)| is_overdue(snapshot, stage, split, *needed));
    Some(Reason { what, help: help_for(snapshot, stage, &waits), wrong })
}

/// `clicks (a.csv): its watermark is 2024-01-01 12:00:03, and must be 12:00:10, and nothing has
/// come for 12 s`. What is of the watermark's day comes without its date.
fn split_text(snapshot: &Snapshot, split: &Split, needed: i64) -> String {
    let mut text = format!("{}: ", split_name(snapshot, split));
    text += &match split.holds_us {
        None if split.records == 0 => "it has had no record yet".to_string(),
        None => "it has no watermark yet".to_string(),
        Some(at) => {
            let (at, needed) = (time_text(at), time_near(needed, Some(at)));
            format!("its watermark is {at}, and must be {needed}")
        }
    };
    if let Some(lag) = lag(snapshot, split).filter(|lag| *lag > 0) {
        text += &format!(", and its log has {} that have not been read", records(lag));
    }
    if split.ready > 0 {
        let batches = if split.ready == 1 { "batch waits" } else { "batches wait" };
        let obstacle = snapshot.sources.get(split.source).and_then(|source| source.obstacle);
        let what = obstacle.and_then(obstacle_text).unwrap_or("for a worker");
        text += &format!(", and {} {batches} {what}", split.ready);
        return text;
    }
    if split.waits && split.silent_us >= SILENT_US {
        text += &format!(", and nothing has come for {}", duration(split.silent_us));
    }
    text
}

/// Whether a split has been silent for long, and either the clock has passed the watermark that is
/// needed, or other splits are that far and wait for this one without end.
fn is_overdue(snapshot: &Snapshot, stage: &StageStatus, split: &Split, needed: i64) -> bool {
    let Some(source) = snapshot.sources.get(split.source) else { return false };
    let is_past = source.live && snapshot.now_us >= needed;
    let holds_back = source.idle_timeout_us.is_none() && others_reached(snapshot, stage);
    split.waits && split.silent_us >= OVERDUE_US && (is_past || holds_back)
}

/// Whether some split is far enough for the first window of a stage.
fn others_reached(snapshot: &Snapshot, stage: &StageStatus) -> bool {
    snapshot.splits.iter().filter(|split| !split.ended).any(|split| {
        let needed = stage.needs.iter().find(|need| need.source == split.source);
        needed.is_some_and(|need| split.watermark_us >= need.watermark_us)
    })
}

/// The setting that lets a window fire without the splits that hold it back, if there is one.
fn help_for(snapshot: &Snapshot, stage: &StageStatus, waits: &[(&Split, i64)]) -> Option<String> {
    let silent = |split: &Split| split.waits && split.silent_us >= SILENT_US;
    if !waits.iter().all(|(split, _)| silent(split)) {
        return None;
    }
    let source = snapshot.sources.get(waits.first()?.0.source)?;
    match source.idle_timeout_us {
        None if others_reached(snapshot, stage) => Some(
            "other inputs are far enough: let them go on without a silent one with \
             'scan.watermark.idle-timeout' = '10 s' in the WITH options of its table"
                .into(),
        ),
        Some(timeout) => Some(format!(
            "after {} without a record it is not waited for any longer \
             ('scan.watermark.idle-timeout')",
            duration(timeout as u64)
        )),
        None => Some(
            "it fires when a record comes that takes the watermark that far, or when the input \
             ends; `millstream stop --drain` fires all that is open, and ends"
                .into(),
        ),
    }
}

/// The watermark is far enough: what is missing is work.
fn complete(snapshot: &Snapshot, stage: &StageStatus, named: &str) -> Reason {
    if stage.firing {
        return Reason::ordinary(match stage.obstacle.and_then(obstacle_text) {
            Some(what) => format!("{named} is complete, and its rows wait {what}"),
            None => format!("{named} is complete, and its rows are being written"),
        });
    }
    let credit = snapshot.workers.iter().any(|worker| worker.doing == Doing::Credit);
    Reason::ordinary(match credit {
        true => format!("{named} is complete, and waits until leaders have merged its rows"),
        false => format!("{named} is complete, and waits for its turn"),
    })
}

/// The end of a sentence on waiting: for the removal of an obstacle.
fn obstacle_text(obstacle: Obstacle) -> Option<&'static str> {
    match obstacle {
        Obstacle::Credit | Obstacle::Slot => Some("until leaders have merged earlier rows"),
        Obstacle::Output => Some("until earlier rows have been written"),
        Obstacle::Checkpoint => Some("until a checkpoint has saved earlier rows"),
        Obstacle::Memory => Some("for memory"),
        Obstacle::NoInput | Obstacle::Unwanted => None,
    }
}

/// A result that comes at the end of the input.
fn at_the_end(snapshot: &Snapshot, stage: &StageStatus) -> Reason {
    let endless = sources_of(snapshot, stage)
        .into_iter()
        .filter_map(|source| snapshot.sources.get(source))
        .find(|source| !source.bounded && !source.ended);
    if let Some(source) = endless {
        return Reason {
            what: format!(
                "the result of stage {} comes when its input ends, and {} does not end",
                stage.stage, source.name
            ),
            help: Some(
                "group by windows (TUMBLE, HOP, SESSION), or end the input with \
                 `millstream stop --drain`"
                    .into(),
            ),
            wrong: true,
        };
    }
    let read = match share_read(snapshot) {
        Some(thousandths) => format!(", of which {} % have been read", thousandths / 10),
        None => format!(", of which {} have been read", records(snapshot.records)),
    };
    Reason::ordinary(format!(
        "the result of stage {} comes at the end of its input{read}",
        stage.stage
    ))
}

/// The sources that feed a stage, in the end.
fn sources_of(snapshot: &Snapshot, stage: &StageStatus) -> Vec<usize> {
    let mut found = Vec::new();
    for input in &stage.inputs {
        match input {
            Input::Source(source) => found.push(*source),
            Input::Stage(before) => {
                let before = snapshot.stages.get(*before);
                found.extend(before.map(|before| sources_of(snapshot, before)).unwrap_or_default());
            }
        }
    }
    found
}

/// No window is open.
fn without_windows(snapshot: &Snapshot) -> Reason {
    let open = || snapshot.splits.iter().filter(|split| !split.ended && !split.elsewhere);
    if matches!(snapshot.phase, Phase::Ending) {
        return Reason::ordinary(
            "all input has been read: what is left is fired and written".into(),
        );
    }
    let silent: Vec<&Split> = open().filter(|s| s.waits && s.silent_us >= SILENT_US).collect();
    if open().count() > 0 && silent.len() == open().count() {
        let of = |split: &&Split| match split.records {
            0 => format!("{}, no record yet", split_name(snapshot, split)),
            n => format!("{} after {}", split_name(snapshot, split), records(n)),
        };
        let names: Vec<String> = silent.iter().take(NAMED_MAX).map(of).collect();
        let more = match silent.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let least = silent.iter().map(|split| split.silent_us).min().unwrap_or(0);
        return Reason::ordinary(format!(
            "no window is open, and for {} nothing has come from {}{more}",
            duration(least),
            names.join(", ")
        ));
    }
    let Snapshot { late_records: late, bad_records: bad, .. } = snapshot;
    let dropped = match (late, bad) {
        (0, 0) => String::new(),
        (late, 0) => format!(", of which {} came too late", grouped(*late)),
        (0, bad) => format!(", of which {} were left out", grouped(*bad)),
        (late, bad) => {
            format!(
                ", of which {} came too late and {} were left out",
                grouped(*late),
                grouped(*bad)
            )
        }
    };
    let rows: u64 = snapshot.outputs.iter().map(|output| output.rows).sum();
    let rest = match (snapshot.stages.is_empty(), rows) {
        (false, _) => "no window is open".to_string(),
        (true, 0) => "no row has come of them".to_string(),
        (true, rows) => format!("nothing holds rows back, of which {} came", grouped(rows)),
    };
    let what = format!("{} have been read{dropped}; {rest}", records(snapshot.records));
    // No records remained.
    let wrong = snapshot.records > 0 && late + bad >= snapshot.records;
    Reason { wrong, ..Reason::ordinary(what) }
}

fn records(number: u64) -> String {
    format!("{} {}", grouped(number), if number == 1 { "record" } else { "records" })
}

/// `[2024-01-01 12:00:00, 12:00:10)`.
fn window_text(window: &OpenWindow) -> String {
    let Some(end) = window.end_us else { return "of the whole input".into() };
    match window.start_us {
        Some(start) => format!("[{}, {})", time_text(start), time_near(end, Some(start))),
        None => format!("up to {}", time_text(end)),
    }
}

/// An event time, as SQL writes it: `2024-01-01 12:00:00.5`.
pub fn time_text(us: i64) -> String {
    let Some(time) = timestamp_us_to_datetime(us) else { return format!("{us} µs") };
    let text = time.format("%Y-%m-%d %H:%M:%S%.6f").to_string();
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The same, without its date if that is the date of `base`.
fn time_near(us: i64, base: Option<i64>) -> String {
    let text = time_text(us);
    let base = base.map(time_text).unwrap_or_default();
    match (text.split_once(' '), base.split_once(' ')) {
        (Some((date, time)), Some((of_base, _))) if date == of_base => time.to_string(),
        _ => text,
    }
}

/// How far a watermark is from the clock: `2.5 s behind`, `3 h 7 min ahead of`.
pub fn behind_text(behind_us: i64) -> String {
    let side = if behind_us < 0 { "ahead of" } else { "behind" };
    format!("{} {side}", duration(behind_us.unsigned_abs()))
}

/// A length of time in its largest units: `850 ms`, `12.3 s`, `4 min 5 s`, `3 h 7 min`, `2 d 5 h`.
pub fn duration(us: u64) -> String {
    let (ms, s) = (us / 1_000, us / 1_000_000);
    match s {
        0 => format!("{ms} ms"),
        1..=9 => format!("{}.{} s", s, ms % 1_000 / 100),
        10..=59 => format!("{s} s"),
        60..=3_599 => format!("{} min {} s", s / 60, s % 60),
        3_600..=86_399 => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests;
