//! The laboratory: what measures Millstream and shows what was measured.
//!
//! [`workload`] runs the workloads of `millstream-workloads` through the ordinary path, in one
//! process or [several](processes), checks the answer and says how long it took; [`latency`] looks
//! at a paced stream and [`channel`] at channels alone; [`projection`] computes what a job would
//! take on other machines; [`report_page`] draws what `bench --json` wrote.
//!
//! What it promises: a line's answer was checked, or the line says that it is wrong. What it does
//! not: it reads no command line. Results go to stdout, what it is doing to stderr.

pub mod channel;
mod failure;
pub mod latency;
pub mod processes;
pub mod projection;
mod provenance;
pub mod report_page;
mod run;
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
