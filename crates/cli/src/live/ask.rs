//! `millstream jobs`, `why` and `stop`: requests to running jobs.

use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::net::UnixStream;

use millstream::observe::{
    Lag, Snapshot, behind_text, duration, lag_of, open_windows, share_read, split_name, time_text,
    watermark, why,
};
use millstream::program::{bytes, grouped, harmless, plural};

use super::board::{Report, StopAnswer};
use super::local::{Answer, CONNECTIONS_MAX, Request, Socket, all, unusable};
use crate::console::note;
use crate::failure::{Failure, fail, usage};
use crate::output::print;

/// A script that was given with `-e` is a long text: so much of it is shown in a table, and in a
/// line of its own.
const SCRIPT_CHARS: usize = 50;
const TEXT_CHARS: usize = 100;

/// Lists the jobs that run.
pub(crate) fn jobs(json: bool) -> Result<(), Failure> {
    let found: Vec<(Socket, Result<Report, Silence>)> = all()
        .into_iter()
        .map(|socket| (socket.clone(), report(&socket)))
        .filter(|(_, answer)| !matches!(answer, Err(Silence::Ended)))
        .collect();
    if json {
        let lines: Vec<String> =
            found.iter().filter_map(|(s, answer)| json_of(s, answer)).collect();
        return match lines.is_empty() {
            true => none_is_running().map(drop),
            false => print(&lines.join("\n")),
        };
    }
    if found.is_empty() {
        return none_is_running().map(|told| note(&told));
    }
    let mut rows = vec![["JOB", "RUNNING", "PHASE", "RECORDS", "ROWS", "SCRIPT"].map(String::from)];
    rows.extend(found.iter().map(|(socket, answer)| row(socket, answer)));
    print(&harmless(&table(&rows)))?;
    for (socket, answer) in &found {
        if let Err(silence) = answer {
            note(&silence.described(socket));
        }
    }
    Ok(())
}

/// Known facts of a job, for programs.
fn json_of(socket: &Socket, answer: &Result<Report, Silence>) -> Option<String> {
    match answer {
        Ok(report) => serde_json::to_string(report).ok(),
        Err(silence) => {
            Some(serde_json::json!({ "job": socket.job, "silent": silence.name() }).to_string())
        }
    }
}

/// A job's row in the list.
fn row(socket: &Socket, answer: &Result<Report, Silence>) -> [String; 6] {
    let none = || "-".to_string();
    let report = match answer {
        Ok(report) => report,
        Err(silence) => {
            let (job, phase) = (socket.job.to_string(), silence.name().to_string());
            return [job, none(), phase, none(), none(), none()];
        }
    };
    let of = |what: fn(&Snapshot) -> u64| {
        report.snapshot.as_ref().map_or_else(none, |snapshot| grouped(what(snapshot)))
    };
    [
        report.job.to_string(),
        duration(report.running_us),
        report.phase.name().to_string(),
        of(|snapshot| snapshot.records),
        of(|snapshot| snapshot.outputs.iter().map(|output| output.rows).sum()),
        shortened(&one_line(&script(report)), SCRIPT_CHARS),
    ]
}

/// Script of a job; for a script without a file, with the current statement.
fn script(report: &Report) -> String {
    match &report.statement {
        Some((_, statement)) if report.script.starts_with('<') => {
            format!("{} {statement}", report.script)
        }
        _ => report.script.clone(),
    }
}

/// Columns below each other, two blanks apart.
fn table(rows: &[[String; 6]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Says what a job is doing, and why no rows come.
pub(crate) fn why_job(job: Option<u32>, json: bool) -> Result<(), Failure> {
    let socket = find(job)?;
    let report = report(&socket).map_err(|silence| fail(&silence.described(&socket)))?;
    match json {
        true => {
            let text = serde_json::to_string(&report);
            print(&text.map_err(|e| fail(&e))?)
        }
        false => print(&harmless(&described(&report))),
    }
}

/// Lets a job end, and waits for its end.
pub(crate) fn stop(job: Option<u32>, drain: bool) -> Result<(), Failure> {
    let socket = find(job)?;
    let request = if drain { Request::Drain } else { Request::Stop };
    match ask(&socket, request) {
        Ok((Answer::Stop(StopAnswer::Yes), mut connection)) => {
            // The job closes the connection at its end, however it ends.
            let _ = connection.get_ref().set_read_timeout(None);
            let _ = connection.read_to_end(&mut Vec::new());
        }
        Ok((Answer::Stop(StopAnswer::No(reason)), _)) => return Err(fail(&reason)),
        Ok((Answer::Report(_), _)) => return Err(fail(&"the job answers something else")),
        // The job has ended before it could answer.
        Err(Silence::Ended) => {}
        Err(silence) => return Err(fail(&silence.described(&socket))),
    }
    note(&format!("job {} has ended", socket.job));
    Ok(())
}

/// Why a job does not answer.
#[derive(Debug)]
enum Silence {
    /// The job has ended meanwhile.
    Ended,
    /// The job is suspended.
    Suspended,
    Other(std::io::Error),
}

impl Silence {
    /// In two words.
    fn name(&self) -> &'static str {
        match self {
            Silence::Ended => "has ended",
            Silence::Suspended => "suspended",
            Silence::Other(_) => "no answer",
        }
    }

    fn described(&self, socket: &Socket) -> String {
        let job = socket.job;
        match self {
            Silence::Ended => format!("job {job} has ended"),
            Silence::Suspended => format!(
                "job {job} is suspended, and does not answer\n  help: `fg` in its terminal, or \
                 `kill -CONT {job}`, lets it go on"
            ),
            Silence::Other(error) if error.kind() == ErrorKind::WouldBlock => {
                format!("job {job} does not answer in time")
            }
            Silence::Other(error) if is_end(error) => format!(
                "job {job} runs, and has closed the connection without an answer\n  help: it \
                 answers {CONNECTIONS_MAX} at a time: try again"
            ),
            Silence::Other(error) => format!("job {job} does not answer: {error}"),
        }
    }
}

/// Sends a request to a job. A suspended job receives no request: it would act on the request when
/// resumed, long after the caller has gone.
fn ask(socket: &Socket, request: Request) -> Result<(Answer, BufReader<UnixStream>), Silence> {
    if socket.is_suspended() {
        return Err(Silence::Suspended);
    }
    socket.ask(request).map_err(|error| match is_end(&error) {
        true if socket.has_ended() => Silence::Ended,
        // It may have been suspended just now.
        _ if socket.is_suspended() => Silence::Suspended,
        _ => Silence::Other(error),
    })
}

/// Whether the other side has closed the connection, or is not there.
fn is_end(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::BrokenPipe
            | ErrorKind::NotFound
    )
}

/// The words for an empty list of jobs, unless that says nothing about them.
fn none_is_running() -> Result<&'static str, Failure> {
    match unusable() {
        Some(reason) => Err(fail(&format!("jobs that run cannot be seen: {reason}"))),
        None => Ok("no job is running"),
    }
}

fn report(socket: &Socket) -> Result<Report, Silence> {
    match ask(socket, Request::Report)?.0 {
        Answer::Report(report) => Ok(*report),
        Answer::Stop(_) => Err(Silence::Other(ErrorKind::InvalidData.into())),
    }
}

/// The job of this number, or the only one.
fn find(job: Option<u32>) -> Result<Socket, Failure> {
    let mut found = all();
    let numbers = |found: &[Socket]| {
        found.iter().map(|socket| socket.job.to_string()).collect::<Vec<_>>().join(", ")
    };
    match (job, found.len()) {
        (_, 0) => Err(none_is_running().map_or_else(|failure| failure, |told| fail(&told))),
        (None, 1) => Ok(found.remove(0)),
        (None, _) => Err(usage(&format!(
            "{} jobs are running: {}\n  help: name one; `millstream jobs` says what they are",
            found.len(),
            numbers(&found)
        ))),
        (Some(job), _) => match found.iter().position(|socket| socket.job == job) {
            Some(at) => Ok(found.remove(at)),
            None => Err(fail(&format!(
                "there is no job {job}\n  help: these are running: {}",
                numbers(&found)
            ))),
        },
    }
}

/// Text about a job's state, in a few lines.
fn described(report: &Report) -> String {
    let mut text =
        format!("job {}: {}", report.job, shortened(&one_line(&report.script), TEXT_CHARS));
    if let Some((number, statement)) = &report.statement {
        text += &format!("\nstatement {number}: {}", shortened(&one_line(statement), TEXT_CHARS));
    }
    text += &format!("\n{}", report.doing());
    if let Some(snapshot) = &report.snapshot {
        text += &format!("\n{}", numbers(snapshot));
        for reason in why(snapshot) {
            text += &format!("\n{reason}");
        }
    }
    text
}

fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

/// The numbers of a query, in a line or two.
fn numbers(snapshot: &Snapshot) -> String {
    let rows: u64 = snapshot.outputs.iter().map(|output| output.rows).sum();
    let mut parts = vec![
        format!("{} {}", grouped(snapshot.records), plural(snapshot.records, "record")),
        bytes(snapshot.input_bytes),
        format!("{} {} written", grouped(rows), plural(rows, "row")),
    ];
    if let Some(thousandths) = share_read(snapshot) {
        parts.push(format!("{} % read", thousandths / 10));
    }
    parts.extend(lag_of(snapshot, None).map(|lag| lag_text(snapshot, &lag)));
    let (open, more) = open_windows(snapshot);
    parts.push(match (open, more) {
        (1, false) => "1 window open".to_string(),
        (open, false) => format!("{open} windows open"),
        (open, true) => format!("{open}+ windows open"),
    });
    parts.push(format!("{} of state", bytes(snapshot.memory.state_bytes)));
    for (number, what) in
        [(snapshot.late_records, "late record"), (snapshot.bad_records, "bad record")]
    {
        if number > 0 {
            parts.push(format!("{} {}", grouped(number), plural(number, what)));
        }
    }
    if let Some((at, behind)) = watermark(snapshot) {
        let behind = behind.map(|us| format!(", {} the clock", behind_text(us)));
        parts.push(format!("watermark {}{}", time_text(at), behind.unwrap_or_default()));
    }
    parts.join(", ")
}

/// `a lag of 1,234 records, most of them in clicks (clicks-3): 900`.
fn lag_text(snapshot: &Snapshot, lag: &Lag<'_>) -> String {
    let Lag { records, furthest: (split, most) } = lag;
    let mut text = format!("a lag of {} {}", grouped(*records), plural(*records, "record"));
    if *most > 0 {
        let name = split_name(snapshot, split);
        text += &match most == records {
            true => format!(", all of them in {name}"),
            false => format!(", most of them in {name}: {}", grouped(*most)),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use millstream::Extent;
    use millstream::observe::{OpenWindow, Source, Split, StageStatus};

    use super::super::board::Phase;

    use super::*;

    fn report(phase: Phase) -> Report {
        Report {
            job: 17,
            script: "SELECT 1;\n  SELECT 2".into(),
            phase,
            phase_us: 12_000_000,
            running_us: 13_000_000,
            statement: Some((2, "SELECT\n 2".into())),
            awaited: vec![],
            missing: None,
            snapshot: None,
        }
    }

    #[test]
    fn every_phase_has_something_to_tell() {
        for (phase, expected) in [
            (Phase::Starting, "starting for 12 s: it reads the script"),
            (Phase::Planning, "planning for 12 s: it plans the statement"),
            (Phase::Running, "running for 12 s"),
            (Phase::Draining, "draining for 12 s: it reads no more"),
            (Phase::Committing, "committing for 12 s: the result gets its names"),
            (Phase::Ending, "ending for 12 s"),
        ] {
            let text = described(&report(phase));
            assert!(
                text.starts_with("job 17: SELECT 1; SELECT 2\nstatement 2: SELECT 2\n"),
                "{text}"
            );
            assert!(text.lines().nth(2).unwrap().starts_with(expected), "{text}");
        }
        let text = described(&Report { missing: Some(2), ..report(Phase::Starting) });
        assert!(text.contains("\nstarting for 12 s: waiting for process 2 to join"), "{text}");
        let text =
            described(&Report { snapshot: Some(Snapshot::default()), ..report(Phase::Running) });
        assert!(text.contains("\n0 records, 0 B, 0 rows written, 0 windows open"), "{text}");
        assert!(text.ends_with("\n0 records have been read; no row has come of them"), "{text}");
    }

    #[test]
    fn a_script_without_a_file_is_told_by_its_statement() {
        let typed = Report { script: "<shell>".into(), ..report(Phase::Running) };
        assert_eq!(script(&typed), "<shell> SELECT\n 2");
        assert_eq!(script(&Report { statement: None, ..typed }), "<shell>");
        assert_eq!(script(&report(Phase::Running)), "SELECT 1;\n  SELECT 2");
    }

    #[test]
    fn the_lag_is_told_with_the_split_that_has_most_of_it() {
        let split = |name: &str, done| Split {
            name: name.into(),
            progress: Some(Extent { done, of: 2_000, bytes: false }),
            ..Split::default()
        };
        let told = |splits| {
            let sources = vec![Source { name: "clicks".into(), ..Source::default() }];
            numbers(&Snapshot { sources, splits, ..Snapshot::default() })
        };
        let text = told(vec![split("c-0", 1_666), split("c-1", 1_100)]);
        let most = "a lag of 1,234 records, most of them in clicks (c-1): 900, 0 windows open";
        assert!(text.contains(most), "{text}");
        let text = told(vec![split("c-0", 2_000), split("c-1", 1_999)]);
        assert!(text.contains("a lag of 1 record, all of them in clicks (c-1)"), "{text}");
        assert!(told(vec![split("c-0", 2_000)]).contains("a lag of 0 records, 0 windows"));
    }

    #[test]
    fn a_watermark_may_be_ahead_of_the_clock() {
        let source = Source { live: true, watermark_us: Some(7_200_000_000), ..Source::default() };
        let snapshot = Snapshot { sources: vec![source], ..Snapshot::default() };
        assert!(numbers(&snapshot).ends_with(", 2 h 0 min ahead of the clock"));
        let one = StageStatus { open: vec![OpenWindow::default()], ..StageStatus::default() };
        let snapshot = Snapshot { records: 1, late_records: 1, stages: vec![one], ..snapshot };
        let text = numbers(&snapshot);
        assert!(text.starts_with("1 record, 0 B, 0 rows written, 1 window open, "), "{text}");
        assert!(text.contains(", 1 late record, "), "{text}");
    }

    #[test]
    fn long_statements_are_cut_between_characters() {
        let long = "ü".repeat(101);
        assert_eq!(shortened(&long, 100), format!("{}…", "ü".repeat(100)));
        assert_eq!(shortened(&long[..200], 100), long[..200]);
        // A script that was given with -e.
        let text = described(&Report { script: long, ..report(Phase::Running) });
        assert_eq!(text.lines().next().unwrap(), format!("job 17: {}…", "ü".repeat(100)));
    }
}
