//! The conformance suite: it checks what the contract says, the same for all providers.
//!
//! [`run`] takes two devices that can reach each other (they may be the same one) and returns which
//! checks passed, failed and were skipped. Tests of each provider run it.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses a part")]

mod datagram;
mod ends;
mod errors;
mod multicast;
mod reliable;
mod waking;

use std::fmt;
use std::time::{Duration, Instant};

pub use self::ends::Ends;
pub use self::multicast::names as multicast_names;
use millstream_fabric::Completion;
use millstream_fabric::{CompletionQueue, Fabric};

/// Why a check failed.
pub type Failure = String;
/// Outcome of a check.
pub type Outcome = std::result::Result<(), Failure>;

/// Devices and conditions of the checks.
pub struct Bed<'a, F> {
    /// First side.
    pub a: &'a F,
    /// The other side; perhaps the same device.
    pub b: &'a F,
    /// A device of another job.
    pub stranger: &'a F,
    /// Called when there is nothing to do: lets time pass (in `sim`, an event happen).
    pub idle: &'a dyn Fn(),
    /// How long anything may take before it counts as hanging.
    pub patience: Duration,
}

/// A check that a provider cannot pass, and why.
#[derive(Debug, Clone, Copy)]
pub struct Skip {
    /// Name of the check.
    pub check: &'static str,
    /// Why the provider cannot.
    pub reason: &'static str,
}

/// Results of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Names of the checks that passed.
    pub passed: Vec<&'static str>,
    /// Checks that failed, with the reason.
    pub failed: Vec<(&'static str, Failure)>,
    /// Checks that were not run, with the reason.
    pub skipped: Vec<Skip>,
}

impl Report {
    /// True if nothing failed and at least one check passed.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && !self.passed.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.passed {
            writeln!(f, "passed   {name}")?;
        }
        for skip in &self.skipped {
            writeln!(f, "skipped  {}: {}", skip.check, skip.reason)?;
        }
        for (name, failure) in &self.failed {
            writeln!(f, "FAILED   {name}: {failure}")?;
        }
        let (passed, failed) = (self.passed.len(), self.failed.len());
        write!(f, "{passed} passed, {failed} failed, {} skipped", self.skipped.len())
    }
}

type Check<F> = fn(&Bed<'_, F>) -> Outcome;

fn checks<F: Fabric>() -> Vec<(&'static str, Check<F>)> {
    let mut all: Vec<(&'static str, Check<F>)> = Vec::new();
    all.extend(reliable::checks::<F>());
    all.extend(errors::checks::<F>());
    all.extend(waking::checks::<F>());
    all.extend(datagram::checks::<F>());
    all.extend(multicast::checks::<F>());
    all
}

/// Runs all checks but the skipped ones. A skip that names no check is a failure.
pub fn run<F: Fabric>(bed: &Bed<'_, F>, skips: &[Skip]) -> Report {
    let mut report = Report::default();
    let checks = checks::<F>();
    for skip in skips {
        if !checks.iter().any(|(name, _)| *name == skip.check) {
            report.failed.push((skip.check, "there is no such check to skip".into()));
        }
    }
    for (name, check) in checks {
        if let Some(skip) = skips.iter().find(|skip| skip.check == name) {
            report.skipped.push(*skip);
            continue;
        }
        match check(bed) {
            Ok(()) => report.passed.push(name),
            Err(failure) => report.failed.push((name, failure)),
        }
    }
    report
}

impl<F: Fabric> Bed<'_, F> {
    /// Polls until `count` completions are there.
    fn completions(
        &self,
        queue: &mut F::CompletionQueue,
        count: usize,
    ) -> std::result::Result<Vec<Completion>, Failure> {
        let mut all = Vec::new();
        let found = self.until(|| {
            let mut some = [Completion::default(); 4];
            let room = some.len().min(count - all.len());
            let n = queue.poll(&mut some[..room]).map_err(|error| error.to_string())?;
            all.extend_from_slice(&some[..n]);
            Ok(all.len() == count)
        })?;
        if !found {
            return Err(format!("{} of {count} completions came: {all:?}", all.len()));
        }
        Ok(all)
    }

    /// Checks that no completion comes for a while.
    fn nothing(&self, queue: &mut F::CompletionQueue) -> Outcome {
        for _ in 0..200 {
            let mut one = [Completion::default()];
            let n = queue.poll(&mut one).map_err(|error| error.to_string())?;
            ensure(n == 0, || format!("unexpected completion: {one:?}"))?;
            (self.idle)();
        }
        Ok(())
    }

    /// Idles until `done` or patience is over; returns whether it was done.
    fn until(
        &self,
        mut done: impl FnMut() -> std::result::Result<bool, Failure>,
    ) -> std::result::Result<bool, Failure> {
        let end = Instant::now() + self.patience;
        while !done()? {
            if Instant::now() > end {
                return Ok(false);
            }
            (self.idle)();
        }
        Ok(true)
    }
}

fn ensure(holds: bool, failure: impl FnOnce() -> Failure) -> Outcome {
    if holds { Ok(()) } else { Err(failure()) }
}

/// Checks that two values are equal.
fn same<T: PartialEq + fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    ensure(found == expected, || format!("{what} is {found:?}, expected {expected:?}"))
}

/// Any error as a failure.
fn text(error: impl Into<millstream_fabric::Error>) -> Failure {
    error.into().to_string()
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}
