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
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use millstream::program::{SessionControl, counted, harmless};
use millstream_arguments::SettingArguments;

use crate::arguments::{TRIAL_HELP, Trial};
use crate::failure::{Failure, fail, usage};
use crate::output::print;
use cases::{Case, find_cases};
use judge::{Rules, Verdict, judge};
use layouts::layouts;

/// Runs all cases, and says which pass.
pub(crate) fn run(trial: &Trial) -> Result<(), Failure> {
    let settings = SettingArguments { workers: None, set: trial.set.clone() };
    let settings = settings.pairs().map_err(|e| usage(&e))?;
    let mut cases = Vec::new();
    for path in &trial.paths {
        let found = find_cases(path).map_err(|message| usage(&message))?;
        if found.is_empty() {
            return Err(usage(&format!("there is no test in {}\n{TRIAL_HELP}", path.display())));
        }
        cases.extend(found);
    }
    let mut session = millstream::Session::new(".");
    for (key, value) in &settings {
        session.fix_setting(key, value).map_err(|e| usage(&e))?;
    }
    let rules = Rules {
        layouts: layouts(trial.quick, trial.seeds, trial.processes as usize),
        settings,
        update: trial.update,
        timeout: Duration::from_secs(trial.timeout),
    };
    let failed = judge_all(&cases, &rules)?;
    print(&format!("{} passed, {failed} failed", cases.len() - failed))?;
    if failed > 0 { Err(Failure::Run) } else { Ok(()) }
}

/// Judges several cases at a time, and tells of them in order. How many have failed.
fn judge_all(cases: &[Case], rules: &Rules) -> Result<usize, Failure> {
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
                    if sender.send((number, judge(&cases[number], rules))).is_err() {
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
