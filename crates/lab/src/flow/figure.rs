//! The figures, their options, and the findings of a measurement.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use super::failure::{FlowFailure, FlowResult};

/// A figure of the thesis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// 7.7a: a shuffle from one node to eight
    ShuffleBandwidth,
    /// 7.7b: a tuple there and back
    ShuffleLatency,
    /// 7.7c: a shuffle among two to eight nodes
    ShuffleScale,
    /// 7.8a, b: a replication from one node to eight, over rings and by multicast
    ReplicateBandwidth,
    /// 7.8c: a tuple to all targets and back
    ReplicateLatency,
    /// 7.9: a flow that aggregates
    Combine,
    /// 7.6.1.4: bytes of all rings, and rates with fewer segments
    Memory,
    /// 7.10: pairs of threads of different processes
    PointToPoint,
    /// 7.11: all processes with all
    Collective,
    /// 7.12: the same with a process that is half as fast
    Straggler,
    /// 7.13, 7.14: a radix join, and one that replicates the inner relation
    Join,
    /// 7.15: key-value stores
    Consensus,
}

impl Figure {
    /// The name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
    }
}

/// How a figure is measured. What is not given is the figure's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowOptions {
    /// Whether few points are measured with little data, to test the figure.
    pub short: bool,
    /// Processes of a real run.
    pub processes: Option<usize>,
    /// Threads of each process.
    pub threads: Option<usize>,
    /// Bytes of a tuple.
    pub tuple_bytes: Option<usize>,
    /// Tuples of each source; of a join, rows of the outer relation.
    pub tuples: Option<u64>,
    /// How often a real run is repeated; the median counts.
    pub turns: Option<usize>,
}

impl FlowOptions {
    /// One of two values: for short measurements, and for others.
    pub(super) fn choose<T>(&self, short: T, usual: T) -> T {
        if self.short { short } else { usual }
    }

    /// Refuses all options but `short`: the figure has its own points.
    pub(super) fn refuse_numbers(&self) -> FlowResult<()> {
        let given = [
            (self.processes.is_some(), "--processes"),
            (self.threads.is_some(), "--threads"),
            (self.tuple_bytes.is_some(), "--tuple-bytes"),
            (self.tuples.is_some(), "--tuples"),
            (self.turns.is_some(), "--turns"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(FlowFailure::Option(format!(
                "{option} does not go with this figure\n  help: the figure has points of its own"
            ))),
            None => Ok(()),
        }
    }
}

/// A relation that a figure has to show.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Relation {
    /// The relation in words.
    text: String,
    /// The number that was found; `null` if it was withheld.
    found: Option<f64>,
    /// Whether the number is as the relation says.
    met: bool,
}

/// Findings of a measurement.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The points of the figure.
    pub(super) points: Vec<Value>,
    /// Further fields of the report.
    pub(super) more: Vec<(&'static str, Value)>,
    pub(super) relations: Vec<Relation>,
}

impl Findings {
    /// Notes whether a relation is met.
    pub(super) fn relate(&mut self, text: impl Into<String>, found: Option<f64>, met: bool) {
        let found = found.map(|found| crate::round(found, 4));
        self.relations.push(Relation { text: text.into(), found, met: met && found.is_some() });
    }

    /// The findings for a reader.
    pub(super) fn text(&self, figure: Figure) -> String {
        let mut text = format!("flow {}: answers right\n", figure.name());
        // Writing to a string does not fail.
        for point in self.points.iter().filter_map(Value::as_object) {
            let cells: Vec<String> =
                point.iter().map(|(key, value)| format!("{key} {value}")).collect();
            let _ = writeln!(text, "  {}", cells.join("  "));
        }
        for (key, value) in &self.more {
            let _ = writeln!(text, "  {key}: {value}");
        }
        for Relation { text: what, found, met } in &self.relations {
            let found = found.map_or("withheld".to_string(), |found| found.to_string());
            let met = if *met { "met" } else { "NOT MET" };
            let _ = writeln!(text, "{met}: {what}: {found}");
        }
        text
    }
}
