//! The terminal: what the program prints there, and the exit code that an error means.

use std::any::Any;
use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, Write, stderr};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use millstream::cluster::{Cause, Failure as Reason, Fault, FaultKind};
use millstream::{Error, ErrorKind, Stats, harmless};
use tracing::Level;

use crate::Failure;
use crate::closed::stdout;
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
fn error(line: &str) {
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

/// Writes a text to stdout, as lines. A reader who has gone away (`| head`) has read enough.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    drop(erase());
    let mut out = stdout();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(fail(&format!("the output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether whoever read stdout has gone away.
pub(crate) fn reader_is_gone() -> bool {
    let mut stdout = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    // SAFETY: one valid descriptor to look at, for the length of the call; it does not wait.
    let ready = unsafe { libc::poll(&mut stdout, 1, 0) };
    ready == 1 && stdout.revents & libc::POLLERR != 0
}

/// Prints an error and says that the run failed.
pub(crate) fn fail(message: &dyn Display) -> Failure {
    error(&format!("error: {message}"));
    Failure::Run
}

/// Prints an error and says that it is the user's.
pub(crate) fn usage(message: &dyn Display) -> Failure {
    error(&format!("error: {message}"));
    Failure::Usage
}

pub(crate) fn failed(failure: millstream::Failure) -> Failure {
    match failure {
        millstream::Failure::Sql(error) if error.kind == ErrorKind::System => fail(&error),
        millstream::Failure::Sql(error) => {
            self::error(&error.render());
            Failure::Usage
        }
        // A wrong option of a table is the user's mistake, found late.
        millstream::Failure::Run(error @ Error::Option { .. }) => usage(&error),
        other => fail(&other),
    }
}

/// A panic is a mistake of ours: say so in one line, without a backtrace.
pub(crate) fn report_panics_politely() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// The message of a panic on the main thread.
pub(crate) fn panicked(panic: &dyn Any) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    fail(&format!("internal error (please report it): {}", text.unwrap_or("a panic")))
}

/// Prints why a job has ended early.
pub(crate) fn tell(reason: &Reason) -> Failure {
    match &reason.cause {
        Cause::Interrupted => Failure::Interrupted,
        Cause::Fault(Fault { kind: FaultKind::Usage, message }) if reason.process == 0 => {
            usage(message)
        }
        Cause::Fault(Fault { kind: FaultKind::Usage, .. }) => usage(reason),
        _ => fail(reason),
    }
}

/// Prints why nothing was measured.
pub(crate) fn told(failure: millstream_lab::Failure) -> Failure {
    match failure {
        millstream_lab::Failure::Usage(message) => usage(&message),
        millstream_lab::Failure::Run(message) => fail(&message),
        millstream_lab::Failure::Process(reason) => tell(&reason),
    }
}
