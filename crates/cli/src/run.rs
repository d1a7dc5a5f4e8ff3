//! `millstream run` and `millstream explain`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, stdin};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::sync::Arc;

use millstream::program::cluster::check_settings;
use millstream::program::saved::{Beginning, Readied, Ready, fix_start, ready};
use millstream::program::{
    Executed, Planned, SessionControl, Statement, analyzed, counted, counters, harmless,
    parse_script,
};
use millstream::{Error, Session, Sink, Stats};
use millstream_arguments::SettingArguments;
use serde_json::Value;

use crate::arguments::{Output, Script, is_sql};
use crate::console::{Remarks, note, tell_end, warn};
use crate::failure::{Failure, fail, failed, usage};
use crate::live::StatusBoard;
use crate::output::{print, print_rows, text_sink};
use crate::report;
use crate::watch::Alone;

/// The longest script.
const SCRIPT_BYTES_MAX: u64 = 64 << 20;

/// A script as it was given.
pub(crate) struct Text {
    /// For messages.
    pub(crate) name: String,
    pub(crate) text: String,
    /// Base directory of relative paths.
    pub(crate) base_dir: PathBuf,
    /// Whether it was read from standard input.
    pub(crate) standard_input: bool,
}

/// Reads the script.
pub(crate) fn read_script(script: &Script) -> Result<Text, Failure> {
    let standard_input = script.file.as_deref() == Some(Path::new("-"));
    let (name, text, base_dir) = match (&script.file, &script.execute) {
        (Some(_), _) if standard_input => {
            let name = "<standard input>";
            let text = bounded(stdin()).map_err(|e| usage(&format!("{name}: {e}")))?;
            let text = String::from_utf8(text).map_err(|e| not_utf8(name, 1, &e))?;
            (name.to_string(), text, PathBuf::from("."))
        }
        (Some(path), _) if is_sql(&path.to_string_lossy()) => {
            let text = path.to_string_lossy().into_owned();
            ("<command line>".to_string(), text, PathBuf::from("."))
        }
        (Some(path), _) => {
            let text = read_file(path)?;
            let dir = path.parent().filter(|p| !p.as_os_str().is_empty());
            let dir = dir.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
            (path.display().to_string(), text, dir)
        }
        (None, execute) => {
            let text = execute.clone().unwrap_or_default();
            ("<command line>".to_string(), text, PathBuf::from("."))
        }
    };
    Ok(Text { name, text, base_dir, standard_input })
}

/// Reads a file of statements.
pub(crate) fn read_file(path: &Path) -> Result<String, Failure> {
    if is_data(path) {
        return Err(usage(&format!(
            "{0} is a file of records, not of SQL\n  help: millstream run -e \"SELECT * FROM '{0}'\"",
            path.display()
        )));
    }
    let text = File::open(path).and_then(bounded).map_err(|e| {
        usage(&format!("cannot read {}: {e}\n  help: {}", path.display(), near(path)))
    })?;
    String::from_utf8(text).map_err(|e| not_utf8(&path.display().to_string(), 1, &e))
}

/// All of it, unless that is too much for a script.
fn bounded(input: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut text)?;
    match text.len() as u64 > SCRIPT_BYTES_MAX {
        true => Err(io::Error::other(format!(
            "more than {} MB, which is no script",
            SCRIPT_BYTES_MAX >> 20
        ))),
        false => Ok(text),
    }
}

/// Reads the script into a session with its settings, and statements.
fn open(
    script: &Script,
    settings: &SettingArguments,
) -> Result<(Session, Vec<Statement>), Failure> {
    let Text { name, text, base_dir, standard_input } = read_script(script)?;
    let mut session = Session::new(base_dir);
    if standard_input {
        session.script_from_standard_input();
    }
    // Settings given on the command line outlast SET in the file.
    for (key, value) in settings.pairs().map_err(|e| usage(&e))? {
        session.fix_setting(&key, &value).map_err(|e| usage(&e))?;
    }
    let statements = parse_script(&text, &name).map_err(|e| failed(millstream::Failure::Sql(e)))?;
    if statements.is_empty() {
        note(&format!("there is no statement in {name}"));
    }
    Ok((session, statements))
}

/// Whether a file's name is that of records: it may be large, and is no script.
fn is_data(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    [".csv", ".tsv", ".ndjson", ".jsonl", ".json", ".parquet"].iter().any(|end| name.ends_with(end))
}

/// Says where a script stops being text, or a part of it that begins on that line.
pub(crate) fn not_utf8(name: &str, first_line: usize, error: &FromUtf8Error) -> Failure {
    let (valid, rest) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
    let valid = String::from_utf8_lossy(valid);
    let line = valid.matches('\n').count() + first_line;
    let column = valid.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let from = match rest {
        _ if error.as_bytes().contains(&0) => "UTF-16",
        _ => "ISO-8859-1",
    };
    usage(&format!(
        "{name}:{line}:{column}: expected SQL in UTF-8, found the byte 0x{:02x}\n  \
         help: convert it, for example with iconv -f {from} -t UTF-8",
        rest.first().copied().unwrap_or(0)
    ))
}

/// A file of a similar name, or what to do otherwise.
fn near(path: &Path) -> String {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    let wanted = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    match millstream::program::closest(&wanted, names.iter().map(String::as_str)) {
        Some(name) if name != wanted => format!("did you mean '{}'?", dir.join(name).display()),
        _ => "check the path; SQL on the command line goes after -e".to_string(),
    }
}

/// `millstream run`.
pub(crate) fn run(
    script: &Script,
    output: Output,
    stats_json: Option<&Path>,
    settings: &SettingArguments,
    beginning: &Beginning,
    board: &Arc<StatusBoard>,
) -> Result<(), Failure> {
    let alone = Alone::new(board);
    let (mut session, statements) = open(script, settings)?;
    if let Some(path) = stats_json {
        check_stats_path(path)?;
    }
    session.print_to(move |format| text_sink(output.with_format(format)));
    session.rehearse(&statements, 1).map_err(failed)?;
    alone.stop_on_signals().map_err(|e| fail(&e))?;
    let (mut all, mut remarks) = (Vec::new(), Remarks::default());
    let queries = statements.iter().filter(|statement| statement.is_query()).count();
    for (at, statement) in statements.iter().enumerate() {
        board.plans(at, &statement.text());
        if statement.is_query() {
            fix_start(&mut session, beginning);
        }
        match session.execute(statement).map_err(failed)? {
            Executed::Done => {}
            Executed::Explained(text) => print(&harmless(&text))?,
            Executed::Listed(rows) => print_rows(output, &rows)?,
            Executed::Query(mut planned) => {
                check_settings(1, session.settings())
                    .map_err(|e| failed(millstream::Failure::Sql(session.refuse_setting(e))))?;
                let sinks = planned.take_sinks(|| text_sink(output));
                let ready = begin(&session, &planned, &sinks, beginning, queries)?;
                let Some(ready) = ready else { continue };
                remarks.say(&ready.remarks);
                remarks.say(ready.job.remarks());
                let stopping = ready.stopping.clone();
                alone.runs(stopping.clone());
                let (stats, result) = ready.run();
                let (result, interrupted) =
                    alone.commits(result, &stopping, &sinks, &planned.targets);
                let stopped = matches!(result, Err(Error::Interrupted));
                let simulated = session.settings().simulate.is_some();
                let goes_on = report::goes_on(stopped && stopping.saves());
                let line = report::closing_line(&stats, simulated, stopped) + &goes_on;
                tell_end(&line, &stats);
                if planned.analyze && (result.is_ok() || stopped) {
                    print(&harmless(&analyzed(&planned.explain, &planned.plan, &stats)))?;
                }
                all.push(stats);
                write_stats(stats_json, &all)?;
                match result {
                    // If it was the last there is nothing left to stop.
                    Ok(()) if interrupted && at + 1 < statements.len() => {
                        return Err(Failure::Interrupted);
                    }
                    Ok(()) if alone.is_drained() => {
                        say_not_run(statements.len() - at - 1);
                        return Ok(());
                    }
                    Ok(()) => {}
                    Err(Error::Interrupted) => return Err(Failure::Interrupted),
                    Err(error) => return Err(failed(millstream::Failure::Run(error))),
                }
            }
        }
    }
    board.ends();
    // Queries have left theirs, and a named pipe's reader goes away after the first.
    if all.is_empty() { write_stats(stats_json, &all) } else { Ok(()) }
}

/// Prepares a query's job; `None` if an earlier run has ended the job.
fn begin(
    session: &Session,
    planned: &Planned,
    sinks: &[Arc<dyn Sink>],
    beginning: &Beginning,
    queries: usize,
) -> Result<Option<Box<Ready>>, Failure> {
    let say = |notice: &str| warn(&notice);
    match ready(session, planned, sinks, beginning, queries, say).map_err(failed)? {
        Readied::Runs(ready) => {
            ready.stopping.stopper().on_notice(|notice| warn(&notice));
            Ok(Some(ready))
        }
        Readied::Ended(number) => {
            say_ended(number);
            Ok(None)
        }
    }
}

/// An earlier run has ended a job, in the checkpoint of this number.
pub(crate) fn say_ended(number: u64) {
    note(&format!(
        "the job has ended with checkpoint {number}, and all its rows are written\n  \
         help: --fresh runs it anew"
    ));
}

/// A script that was drained ends with the query that ran.
pub(crate) fn say_not_run(statements: usize) {
    if statements > 0 {
        note(&format!("drained: {} not run", counted(statements as u64, "statement")));
    }
}

/// Counters of all queries so far, as a sum; for several queries, also for each.
pub(crate) fn write_stats(path: Option<&Path>, all: &[Stats]) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let mut queries: Vec<_> = all.iter().map(counters).collect();
    let mut total = queries.first().cloned().unwrap_or_default();
    for query in queries.iter().skip(1) {
        for (key, value) in query {
            let sum =
                total.get(key).and_then(Value::as_u64).zip(value.as_u64()).map(|(a, b)| a + b);
            if let Some(sum) = sum {
                total.insert(key.clone(), sum.into());
            }
        }
    }
    if queries.len() > 1 {
        let list = queries.drain(..).map(Value::Object).collect();
        total.insert("queries".into(), Value::Array(list));
    }
    std::fs::write(path, format!("{}\n", Value::Object(total)))
        .map_err(|e| fail(&not_written(path, &e)))
}

fn not_written(path: &Path, error: &io::Error) -> String {
    format!("cannot write --stats-json {}: {error}", path.display())
}

/// Whether the counters can be written to a file.
pub(crate) fn check_stats_path(path: &Path) -> Result<(), Failure> {
    check_writable(path).map_err(|e| usage(&not_written(path, &e)))
}

/// Fails for a file that cannot be written, before a long run starts. Leaves an existing file
/// unchanged, and creates none.
fn check_writable(path: &Path) -> io::Result<()> {
    let mut open = OpenOptions::new();
    open.append(true);
    match std::fs::metadata(path) {
        // A pipe's reader would take the end of a trial for the end of the counters.
        Ok(found) if !found.is_file() && !found.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            open.create(true).open(path)?;
            // A link that led nowhere stays, too.
            std::fs::remove_file(path.canonicalize()?)
        }
        _ => open.open(path).map(|_| ()),
    }
}

/// `millstream explain`.
pub(crate) fn explain(script: &Script, settings: &SettingArguments) -> Result<(), Failure> {
    let (mut session, statements) = open(script, settings)?;
    session.read_nothing_once();
    for statement in &statements {
        if let Some(text) = session.explain(statement).map_err(failed)? {
            print(&harmless(&text))?;
        }
    }
    Ok(())
}
