//! `millstream-lab bench shuffle`: measures the shuffle operator between processes. What everybody
//! received is checked against what everybody sent before anything is printed.

mod node;
mod options;
mod processes;
mod report;

use millstream::program::counted;
use millstream_flow::shuffle::{Counters, Error};
use serde_json::{Map, Value, json};

pub use self::options::{COMPUTE_BYTES, Options, Pattern, ShuffleFailure, TUPLE_BYTES};
pub use self::processes::{ShuffleMember, measure};
pub use self::report::{NodeReport, Report};
use crate::failure::{fail, print, usage};
use crate::processes::{guard, launch};
use crate::{Failure, provenance, round};

/// Measures, and prints what came out.
pub(crate) fn run(options: &Options, as_json: bool) -> Result<(), Failure> {
    let report = measure(options, &launch(options.processes), guard).map_err(|e| failed(&e))?;
    match as_json {
        true => print(&Value::Object(object(&report)?).to_string()),
        false => print(&text(&report)),
    }
}

/// Kind of failure: a wrong option or a failed run.
pub fn failed(failure: &ShuffleFailure) -> Failure {
    match failure {
        ShuffleFailure::Options(_) => usage(failure),
        ShuffleFailure::Process(reason) => Failure::Process(reason.clone()),
        ShuffleFailure::Shuffle(Error::Setting { name, value, why }) => {
            let option = match *name {
                "depth" => "--buffers".to_string(),
                name => format!("--{}", name.replace('_', "-")),
            };
            match value {
                Some(value) => usage(&format!("{option} cannot be {value}: {why}")),
                None => usage(&format!("{option}: {why}")),
            }
        }
        other => fail(other),
    }
}

/// Million tuples that all processes together received in a second.
fn rate(report: &Report) -> f64 {
    let tuples: u64 = report.nodes.iter().map(|node| node.received.0).sum();
    tuples as f64 / report.time().as_secs_f64() / 1e6
}

fn object(report: &Report) -> Result<Map<String, Value>, Failure> {
    let mut object: Map<String, Value> =
        serde_json::from_str(&report.json()).map_err(|e| fail(&format!("the report: {e}")))?;
    let mut put = |key: &str, value: Value| object.insert(key.to_string(), value);
    put("fabric", json!("shm"));
    put("mrec_per_s", json!(round(rate(report), 3)));
    // A wrong answer is no report.
    put("ok", json!(true));
    for (key, value) in provenance::fields() {
        put(key, value);
    }
    Ok(object)
}

fn text(report: &Report) -> String {
    let Options { design, pattern, processes, threads, .. } = report.options;
    let es = if processes == 1 { "" } else { "es" };
    let (sender, receiver) = report.counters();
    let what = format!(
        "shuffle {design}, {}, {processes} process{es} of {}",
        pattern.name(),
        counted(threads as u64, "thread"),
    );
    format!(
        "{what}  {:>8.2} million tuples/s  {:>6.2} GB/s to each  {:>8.3} s  set-up {:.1} ms  \
         {:.2} operations a message  answer right\n  senders:   {}\n  receivers: {}",
        rate(report),
        report.bytes_per_s() / 1e9,
        report.time().as_secs_f64(),
        report.setup().as_secs_f64() * 1e3,
        report.operations_per_transfer(),
        half(&sender),
        half(&receiver),
    )
}

/// The most informative counters of a half.
fn half(counters: &Counters) -> String {
    format!(
        "{}, {}, {}, {}, {}, {:.1} MB registered",
        counted(counters.messages, "message"),
        counted(counters.completions, "completion"),
        counted(counters.polls, "poll"),
        counted(counters.queue_pairs, "queue pair"),
        counted(counters.buffers_max, "buffer"),
        counters.registered_bytes as f64 / 1e6,
    )
}
