//! The laboratory: the parts that measure Millstream and show what was measured.
//!
//! [`workload`] runs the workloads of `millstream-workloads` in the ordinary way, in one process or
//! in [several](processes), checks the answer and measures the time. [`latency`] measures a
//! rate-limited stream, [`files`] a file that is read, [`mod@ingest`] records from other processes,
//! [`mod@nexmark`] the queries of NEXMark, [`channel`] channels alone, [`shuffle`] the shuffle
//! operator, and [`flow`] flows. `tests/report.py` plots the lines of `bench --json`.
//!
//! Promises: the answer behind every printed line was checked, or the line says that it is wrong.
//! Results go to stdout, progress to stderr. The program is `millstream-lab`; the user's program
//! and library link none of this.

pub mod bench;
pub mod channel;
mod failure;
pub mod files;
pub mod flow;
mod folder;
pub mod ingest;
pub mod latency;
pub mod nexmark;
pub mod processes;
mod provenance;
mod run;
pub mod shuffle;
mod tuple;
mod verify;
pub mod workload;

pub use failure::Failure;

/// A number with so many digits behind the point.
fn round(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

/// The largest resident size of this process so far, in bytes.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
