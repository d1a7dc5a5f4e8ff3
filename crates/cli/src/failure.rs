//! Failures: their text on stderr, and the program's exit code.

use std::any::Any;
use std::fmt::Display;

use millstream::program::cluster::{Cause, Fault, FaultKind, ProcessFailure};
use millstream::{Error, ErrorKind};

use crate::console::error;
use crate::report::GOES_ON;

/// Why the program ends otherwise than well: the message is on stderr already.
pub(crate) enum Failure {
    /// Wrong usage or SQL.
    Usage,
    /// The data, the machine or the run.
    Run,
    /// Another process of the job is gone.
    Lost,
    /// Ctrl-C.
    Interrupted,
}

/// Is set for the program that is watched over: how often the job was started again.
pub(crate) const SUPERVISED: &str = "MILLSTREAM_SUPERVISED";

/// Whether this program is watched over.
pub(crate) fn is_supervised() -> bool {
    std::env::var_os(SUPERVISED).is_some()
}

/// How often a supervisor has started the job again; `None` without a supervisor.
pub(crate) fn restarts() -> Option<u64> {
    std::env::var(SUPERVISED).ok()?.parse().ok()
}

/// The exit code that tells the supervisor of [`Failure::Lost`].
pub(crate) const LOST: u8 = 75;

impl Failure {
    /// The program's exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Lost if is_supervised() => LOST,
            Failure::Run | Failure::Lost => 1,
            Failure::Usage => 2,
            Failure::Interrupted => 130,
        }
    }
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

/// Prints why a job has ended early. `saves`: it has checkpoints.
pub(crate) fn tell(reason: &ProcessFailure, saves: bool) -> Failure {
    match &reason.cause {
        Cause::Interrupted => Failure::Interrupted,
        Cause::Ended(_) | Cause::Closed | Cause::Silent(_) => {
            // A supervisor gives help of its own.
            match saves && !is_supervised() {
                true => fail(&format!("{reason}\n  help: {GOES_ON}")),
                false => fail(reason),
            };
            Failure::Lost
        }
        Cause::Fault(Fault { kind: FaultKind::Usage, message }) if reason.process == 0 => {
            usage(message)
        }
        Cause::Fault(Fault { kind: FaultKind::Usage, .. }) => usage(reason),
        _ => fail(reason),
    }
}
