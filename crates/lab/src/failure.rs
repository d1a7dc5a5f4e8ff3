//! Failures of measurements, and notes during measurements.

use std::fmt::Display;
use std::io::{self, Write, stderr, stdout};

use millstream::program::cluster::{self, Cause, Fault, FaultKind};
use millstream::program::harmless;

/// Why a measurement came to nothing. It has not been told yet.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The command line makes no sense.
    Usage(String),
    /// The machine, the data, or a wrong answer.
    Run(String),
    /// A process of the job has failed.
    Process(cluster::ProcessFailure),
}

impl Failure {
    /// Says on stderr why nothing was measured. Returns the program's exit code.
    pub fn tell(&self) -> u8 {
        let (message, code): (&dyn Display, u8) = match self {
            Failure::Usage(message) => (message, 2),
            Failure::Run(message) => (message, 1),
            Failure::Process(reason) => match &reason.cause {
                Cause::Interrupted => return 130,
                Cause::Fault(Fault { kind: FaultKind::Usage, message }) if reason.process == 0 => {
                    (message, 2)
                }
                Cause::Fault(Fault { kind: FaultKind::Usage, .. }) => (reason, 2),
                _ => (reason, 1),
            },
        };
        note(&format!("error: {message}"));
        code
    }
}

/// The run has failed.
pub(crate) fn fail(message: &dyn Display) -> Failure {
    Failure::Run(message.to_string())
}

/// The user has made a mistake.
pub(crate) fn usage(message: &dyn Display) -> Failure {
    Failure::Usage(message.to_string())
}

/// Writes a line to stderr. Where that cannot be written to, nobody is left to be told.
pub(crate) fn note(line: &dyn Display) {
    let _ = stderr().write_all((harmless(&line.to_string()) + "\n").as_bytes());
}

/// Writes a text to stdout, as lines. A reader who has gone away (`| head`) has read enough.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match writeln!(stdout(), "{}", text.trim_end()).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(fail(&format!("the output: {error}")))
        }
        _ => Ok(()),
    }
}
