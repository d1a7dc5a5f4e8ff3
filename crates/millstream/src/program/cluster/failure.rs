//! Why a job on several processes ends early, and which of several reasons is reported.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

/// A process's report of its own failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// For people.
    pub message: String,
    /// Kind of the failure.
    pub kind: FaultKind,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// The data, the machine or the run.
    Run,
    /// Wrong SQL, option or setting.
    Usage,
    /// The process stopped because another process had failed, whose reason counts.
    Consequence,
}

impl Fault {
    /// A fault of the run.
    pub fn run(message: impl fmt::Display) -> Fault {
        Fault { message: message.to_string(), kind: FaultKind::Run }
    }

    /// A mistake of the user.
    pub fn usage(message: impl fmt::Display) -> Fault {
        Fault { message: message.to_string(), kind: FaultKind::Usage }
    }

    /// Fault as a consequence of another process's failure.
    pub fn consequence(message: impl fmt::Display) -> Fault {
        Fault { message: message.to_string(), kind: FaultKind::Consequence }
    }
}

/// Why a process is no longer part of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The process could not be started, or did not join.
    Start(String),
    /// The process has ended: `was killed by signal 9 (SIGKILL)`.
    Ended(String),
    /// The process reports a fault.
    Fault(Fault),
    /// Nothing has come from it for so many milliseconds.
    Silent(u64),
    /// The process sent an invalid message.
    Rubbish(String),
    /// The plan differs from process 0's plan: `other SQL: …`.
    Differs(String),
    /// Its connection was closed; why is not known.
    Closed,
    /// No process gets on, and each waits for others: what for.
    Stuck(String),
    /// Ctrl-C.
    Interrupted,
}

/// A process, and its failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct ProcessFailure {
    /// Its number.
    pub process: usize,
    /// Cause of the failure.
    pub cause: Cause,
}

impl ProcessFailure {
    /// `cause` at `process`.
    pub fn new(process: usize, cause: Cause) -> ProcessFailure {
        ProcessFailure { process, cause }
    }

    /// The end of process 0, as the others learn of it.
    pub fn gone() -> ProcessFailure {
        ProcessFailure::new(0, Cause::Ended("has ended".into()))
    }

    /// Whether this tells more than `other`: a closed connection and what follows from another's
    /// failure give way to the reason itself.
    pub(super) fn tells_more_than(&self, other: &ProcessFailure) -> bool {
        self.rank() > other.rank()
    }

    /// Whether nothing can tell more.
    pub fn is_reason(&self) -> bool {
        self.rank() >= 2
    }

    fn rank(&self) -> u8 {
        match &self.cause {
            // The first of these counts: the end of a process closes connections of other processes
            // too.
            Cause::Closed | Cause::Fault(Fault { kind: FaultKind::Consequence, .. }) => 0,
            // A mistake of the user that all processes meet is told as that of the one that was
            // asked.
            Cause::Fault(Fault { kind: FaultKind::Usage, .. }) if self.process == 0 => 3,
            _ => 2,
        }
    }
}

impl fmt::Display for ProcessFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Interrupted => write!(f, "interrupted"),
            Cause::Stuck(_) => self.cause.fmt(f),
            Cause::Fault(fault) => write!(f, "process {}: {}", self.process, fault.message),
            cause => write!(f, "process {} {cause}", self.process),
        }
    }
}

/// Text of the cause, with the process as subject.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Start(why) => f.write_str(why),
            Cause::Ended(how) => f.write_str(how),
            Cause::Fault(fault) => f.write_str(&fault.message),
            Cause::Silent(ms) => write!(f, "has not answered for {} s", *ms as f64 / 1000.0),
            Cause::Rubbish(what) => write!(f, "has sent {what}"),
            Cause::Differs(what) => write!(f, "does not run what process 0 runs: {what}"),
            Cause::Stuck(waits) => write!(
                f,
                "the query is stuck: {waits}\n  help: run it again; this is a fault of Millstream, \
                 please report it"
            ),
            Cause::Closed => f.write_str("has closed its connection"),
            Cause::Interrupted => f.write_str("was interrupted"),
        }
    }
}

/// Runs a part of process `process`; a panic becomes the process's failure.
pub(super) fn guarded<T>(process: usize, part: impl FnOnce() -> T) -> Result<T, ProcessFailure> {
    catch_unwind(AssertUnwindSafe(part)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let fault = Fault::run(format!("internal error (please report it): {text}"));
        ProcessFailure::new(process, Cause::Fault(fault))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_that_tells_what_it_said() {
        assert_eq!(guarded(3, || 7), Ok(7));
        let failure = guarded(3, || panic!("index {}", 8)).unwrap_err();
        assert_eq!(failure.to_string(), "process 3: internal error (please report it): index 8");
        assert!(failure.is_reason());
        assert!(guarded(0, || std::panic::panic_any(17)).is_err());
    }
}
