//! A line of any kind: which kind it is, and what all kinds have.

use std::fmt::{self, Display};

use serde_json::Value;

use super::line::{Fields, Line, Machine};
use super::shuffle::{self, Shuffled};
use super::tpch::{self, Pair};

/// What a line is about.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Entry {
    /// A job.
    Job(Line),
    /// The shuffle operator alone.
    Shuffle(Shuffled),
    /// A query over the shuffle and over Flight.
    Tpch(Pair),
}

impl Entry {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// What is wrong with it: no JSON object, a field that is missing or makes no sense.
    pub(super) fn parse(text: &str) -> Result<Entry, String> {
        let value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
        let Value::Object(map) = value else {
            return Err("expected a JSON object".to_string());
        };
        let fields = Fields { map: &map, within: "" };
        match map.get("bench").and_then(Value::as_str) {
            Some(shuffle::NAME) => Ok(Entry::Shuffle(Shuffled::parse(&fields)?)),
            Some(tpch::NAME) => Ok(Entry::Tpch(Pair::parse(&fields)?)),
            _ => Ok(Entry::Job(Line::of(&fields)?)),
        }
    }

    pub(super) fn machine(&self) -> &Machine {
        match self {
            Entry::Job(line) => &line.machine,
            Entry::Shuffle(line) => &line.machine,
            Entry::Tpch(line) => &line.machine,
        }
    }

    /// Whether the answer was right.
    pub(super) fn ok(&self) -> bool {
        match self {
            Entry::Job(line) => line.ok,
            Entry::Shuffle(line) => line.ok,
            Entry::Tpch(line) => line.ok,
        }
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Job(line) => write!(f, "{}; {}", line.data, line.setup),
            Entry::Shuffle(line) => write!(f, "shuffle {}", line.design()),
            Entry::Tpch(line) => write!(f, "TPC-H over {}", line.design()),
        }
    }
}
