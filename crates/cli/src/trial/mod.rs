//! `millstream test`: runs queries over small inputs in many ways and compares their rows with
//! those that are expected.

mod cases;
mod compare;
mod judge;
mod layouts;
mod records;
mod run;

use std::collections::VecDeque;
use std::io::{Write, stdout};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use millstream::{counted, harmless};

use crate::Failure;
use crate::console::{fail, print, usage};
use cases::{Case, find_cases};
use judge::{Verdict, judge};
use layouts::{Layout, layouts};

/// How people lay out a directory, for `--help` and where there is no case.
pub(crate) const HELP: &str = "\
A case is a directory:
  DIR/query.sql      the query, with its CREATE TABLE statements as they are in production
  DIR/clicks.csv     what table clicks has in the test (or clicks.ndjson), whatever its connector
  DIR/expected.csv   the rows of its SELECT (or expected.ndjson), in any order
  DIR/out.expected.csv   the rows that it inserts into table out (or out.expected.ndjson)
or a file NAME.sql beside a file NAME.expected, which reads what its tables say. Directories of
cases may stand in each other.

Exit codes: 0 all passed; 1 a case failed; 2 wrong usage, or there is no case";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Trial {
    /// Directories of cases, or the SQL files of some
    #[arg(value_name = "DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Write the rows that come as the expected ones
    #[arg(long)]
    update: bool,
    /// Run each case once, with one worker, and not in all ways
    #[arg(long)]
    quick: bool,
    /// How many orders in which batches are taken are drawn by chance
    #[arg(long, value_name = "N", default_value = "8")]
    seeds: u64,
    /// Run on so many processes, too; 1: on this one alone
    #[arg(long, value_name = "P", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=16))]
    processes: u64,
    /// How long a run may take, seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: u64,
    /// A setting of all runs, for example --set memory=64MB; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// A time, as it is written in an option.
fn seconds(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| "expected whole seconds, 1 or more".into())
}

/// Parameters common to all cases.
pub(crate) struct Ways {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) update: bool,
    pub(crate) timeout: Duration,
}

impl Trial {
    /// Runs all cases, and says which pass.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let settings = crate::run::setting_pairs(&crate::SettingArguments {
            workers: None,
            set: self.set.clone(),
        })?;
        let mut cases = Vec::new();
        for path in &self.paths {
            let found = find_cases(path).map_err(|message| usage(&message))?;
            if found.is_empty() {
                return Err(usage(&format!("there is no test in {}\n{HELP}", path.display())));
            }
            cases.extend(found);
        }
        let mut trial = millstream::Session::new(".");
        for (key, value) in &settings {
            trial.fix_setting(key, value).map_err(|e| usage(&e))?;
        }
        let ways = Ways {
            layouts: layouts(self.quick, self.seeds, self.processes as usize),
            settings,
            update: self.update,
            timeout: Duration::from_secs(self.timeout),
        };
        let failed = judge_all(&cases, &ways)?;
        print(&format!("{} passed, {failed} failed", cases.len() - failed))?;
        if failed > 0 { Err(Failure::Run) } else { Ok(()) }
    }
}

/// Judges several cases at a time, and tells of them in order. How many have failed.
fn judge_all(cases: &[Case], ways: &Ways) -> Result<usize, Failure> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..cases.len()).collect());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, verdicts) = mpsc::channel();
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads.min(cases.len()) {
            let sender = sender.clone();
            let work = || {
                let sender = sender;
                while let Some(number) = next() {
                    if sender.send((number, judge(&cases[number], ways))).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new()
                .spawn_scoped(scope, work)
                .map_err(|e| fail(&format!("cannot start a thread: {e}")))?;
        }
        drop(sender);
        let mut done: Vec<Option<Verdict>> = cases.iter().map(|_| None).collect();
        let (mut told, mut failed) = (0, 0);
        for (number, verdict) in verdicts {
            done[number] = Some(verdict);
            while let Some(verdict) = done.get_mut(told).and_then(Option::take) {
                failed += usize::from(!verdict.failures.is_empty());
                tell(&cases[told], &verdict)?;
                told += 1;
            }
        }
        Ok(failed)
    })
}

/// Says how a case went.
fn tell(case: &Case, verdict: &Verdict) -> Result<(), Failure> {
    let mut text = String::new();
    for line in &verdict.wrote {
        text += &format!("wrote {line}\n");
    }
    match &verdict.failures[..] {
        [] => text += &format!("ok    {} ({})\n", case.name, counted(verdict.runs as u64, "run")),
        failures => {
            text += &format!("FAIL  {}\n", case.name);
            for line in failures.iter().flat_map(|failure| failure.lines()) {
                text += &format!("        {line}\n");
            }
        }
    }
    print(&harmless(&text))?;
    let _ = stdout().flush();
    Ok(())
}
