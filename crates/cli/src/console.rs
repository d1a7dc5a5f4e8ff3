//! Messages on stderr: notes, warnings, errors, and the counters at a query's end.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{Write, stderr};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use millstream::Stats;
use millstream::program::harmless;
use tracing::Level;

use crate::log;
use crate::report::left_out;
use crate::screen::erase;

/// Whether nothing but warnings, errors and answers is written.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on, no note and no closing line is written.
pub(crate) fn be_quiet() {
    QUIET.store(true, Relaxed);
}

/// Writes a line to stderr. Where that cannot be written to, nobody is left to be told.
pub(crate) fn note(line: &dyn Display) {
    say(Level::INFO, &line.to_string());
}

/// As [`note`], of what may be wrong.
pub(crate) fn warn(line: &dyn Display) {
    say(Level::WARN, &line.to_string());
}

/// As [`note`], of why something failed.
pub(crate) fn error(line: &str) {
    say(Level::ERROR, line);
}

fn say(level: Level, line: &str) {
    // The level of an event says that it is an error.
    let is_logged = log::message(level, line.strip_prefix("error: ").unwrap_or(line));
    if !(is_logged || level == Level::INFO && QUIET.load(Relaxed)) {
        tell_person(line);
    }
}

fn tell_person(line: &str) {
    // In one piece: the processes of a job share stderr.
    let line = harmless(line) + "\n";
    let _erased = erase();
    let _ = stderr().write_all(line.as_bytes());
}

/// Says with which counters a query has ended; where it is to be quiet, what was left out.
pub(crate) fn tell_end(line: &str, stats: &Stats) {
    if log::ended(line, stats) {
        return;
    }
    match QUIET.load(Relaxed) {
        false => tell_person(line),
        true => match left_out(stats) {
            lines if lines.is_empty() => {}
            lines => tell_person(lines.trim_end()),
        },
    }
}

/// Remarks about a script's queries. Several may read the same file; what is to be said of it is
/// said once.
#[derive(Default)]
pub(crate) struct Remarks(HashSet<String>);

impl Remarks {
    pub(crate) fn say(&mut self, remarks: &[String]) {
        for remark in remarks {
            if self.0.insert(remark.clone()) {
                warn(remark);
            }
        }
    }
}
