//! A measured line, checked field by field: printed by `bench --json`, or counted with callgrind.

use std::fmt::{self, Display};

use serde_json::{Map, Value};

/// What ran the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Engine {
    Handwritten,
    Millstream,
}

/// How partial results of different workers come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exchange {
    LateMerge,
    Repartition,
    Interleaved,
}

impl Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exchange::LateMerge => "late merge",
            Exchange::Repartition => "repartition",
            Exchange::Interleaved => "interleaved repartition",
        })
    }
}

/// What processes talk over. `sim` is a model in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fabric {
    Shm,
    Tcp,
    Verbs,
    Sim,
}

impl Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fabric::Shm => "shm",
            Fabric::Tcp => "tcp",
            Fabric::Verbs => "verbs",
            Fabric::Sim => "sim",
        })
    }
}

/// Whose instructions were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Handwritten,
    LateMerge,
    Sender,
    Receiver,
}

impl Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Handwritten => "handwritten",
            Role::LateMerge => "late merge",
            Role::Sender => "repartition, sender",
            Role::Receiver => "repartition, receiver",
        })
    }
}

/// The machine that a line was measured on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: u64,
    pub(super) memory_bytes: u64,
    pub(super) kernel: String,
}

/// The records that were read: lines can be compared where these are the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Data {
    pub(super) workload: String,
    pub(super) records: u64,
    /// The exponent of the keys' Zipf distribution in thousandths, if they have one.
    pub(super) zipf: Option<u64>,
}

impl Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} records", self.workload, millstream::grouped(self.records))?;
        match self.zipf {
            Some(zipf) => write!(f, ", z = {}", zipf as f64 / 1000.0),
            None => Ok(()),
        }
    }
}

/// What ran it: lines that agree in this and in the data are runs of the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setup {
    pub(super) engine: Engine,
    pub(super) processes: u64,
    /// Of each process.
    pub(super) workers: u64,
    pub(super) exchange: Exchange,
    /// None in one process.
    pub(super) fabric: Option<Fabric>,
}

impl Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u64| if n == 1 { "" } else { "s" };
        let Setup { processes, workers, exchange, .. } = self;
        if self.engine == Engine::Handwritten {
            return write!(f, "handwritten, {workers} loop{}", plural(*workers));
        }
        write!(f, "{exchange}, {processes} process")?;
        f.write_str(if *processes == 1 { "" } else { "es" })?;
        write!(f, " of {workers} worker{}", plural(*workers))?;
        match self.fabric {
            Some(fabric) => write!(f, ", {fabric}"),
            None => Ok(()),
        }
    }
}

/// What was found out.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Finding {
    /// Million records a second, measured.
    Rate(f64),
    /// The same, but computed: for machines that were not there, or, to judge the model, for what
    /// was also measured over the fabric that is named.
    Projected { mrec_per_s: f64, predicts: Option<Fabric> },
    /// Per input record, by [`Role`].
    Counts { role: Role, instructions: f64, d1_misses: f64, ll_misses: f64 },
}

/// A line whose fields all make sense.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) data: Data,
    pub(super) setup: Setup,
    pub(super) finding: Finding,
    /// Whether the answer was right.
    pub(super) ok: bool,
    pub(super) machine: Machine,
    pub(super) command: String,
    /// UTC, RFC 3339.
    pub(super) date: String,
}

/// Far above what there is: million records/s, instructions per record.
const NUMBER_MAX: f64 = 1e9;
/// The most processes, and workers of each.
const COUNT_MAX: u64 = 65_536;
/// The longest text in a field, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

impl Line {
    pub(super) fn of(fields: &Fields) -> Result<Line, String> {
        let setup = fields.setup()?;
        let machine = fields.machine()?;
        Ok(Line {
            data: Data {
                workload: fields.workload()?,
                records: fields.whole("records", u64::MAX)?,
                zipf: fields.zipf()?,
            },
            finding: fields.finding(&setup)?,
            setup,
            ok: fields.truth("ok")?,
            machine,
            command: fields.text("command")?,
            date: fields.date()?,
        })
    }
}

/// The fields of an object, and where it stands.
pub(super) struct Fields<'a> {
    pub(super) map: &'a Map<String, Value>,
    /// What it is a field of, with a point.
    pub(super) within: &'a str,
}

impl Fields<'_> {
    /// The workload, with its windows if they are not its own.
    fn workload(&self) -> Result<String, String> {
        let name = self.text("workload")?;
        match self.given("window") {
            None => Ok(name),
            Some(_) => Ok(format!("{name}, {}", self.text("window")?)),
        }
    }

    fn setup(&self) -> Result<Setup, String> {
        let engines = [("millstream", Engine::Millstream), ("handwritten", Engine::Handwritten)];
        let exchanges = [
            ("late-merge", Exchange::LateMerge),
            ("repartition", Exchange::Repartition),
            ("interleaved", Exchange::Interleaved),
        ];
        // Lines of one process may leave out what only several have.
        let processes = self.given("processes").map_or(Ok(1), |_| self.count("processes"));
        let processes = processes?;
        let fabric = match (processes, self.given("fabric")) {
            (1, None) => None,
            _ => Some(self.one_of("fabric", &FABRICS)?),
        };
        let exchange = match (processes, self.given("exchange")) {
            (1, None) => Exchange::LateMerge,
            _ => self.one_of("exchange", &exchanges)?,
        };
        Ok(Setup {
            engine: self.one_of("engine", &engines)?,
            processes,
            workers: self.count("workers")?,
            exchange,
            fabric: fabric.filter(|fabric| processes > 1 || *fabric == Fabric::Sim),
        })
    }

    fn finding(&self, setup: &Setup) -> Result<Finding, String> {
        let projection =
            self.given("projection").map_or(Ok(false), |_| self.truth("projection"))?;
        let simulated = setup.fabric == Some(Fabric::Sim);
        if let Some(role) = self.given("role") {
            let roles = [
                ("handwritten", Role::Handwritten),
                ("late-merge", Role::LateMerge),
                ("repartition-sender", Role::Sender),
                ("repartition-receiver", Role::Receiver),
            ];
            if projection || simulated {
                return Err(format!("field 'role': {role} was not counted but projected"));
            }
            return Ok(Finding::Counts {
                role: self.one_of("role", &roles)?,
                instructions: self.number("instructions_per_record")?,
                d1_misses: self.number("d1_misses_per_record")?,
                ll_misses: self.number("ll_misses_per_record")?,
            });
        }
        let mrec_per_s = self.number("mrec_per_s")?;
        match (projection, simulated) {
            (false, false) => Ok(Finding::Rate(mrec_per_s)),
            (true, true) => {
                let predicts = self.given("predicts").map(|_| self.one_of("predicts", &FABRICS));
                Ok(Finding::Projected { mrec_per_s, predicts: predicts.transpose()? })
            }
            _ => Err("'projection' has to be true where 'fabric' is sim, and only there: a time that was computed \
                      is not a measured one"
                .to_string()),
        }
    }

    pub(super) fn machine(&self) -> Result<Machine, String> {
        let Some(Value::Object(map)) = self.given("machine") else {
            return Err(self.wrong("machine", "an object"));
        };
        let fields = Fields { map, within: "machine." };
        Ok(Machine {
            processor: fields.text("processor")?,
            cores: fields.whole("cores", u64::MAX)?,
            memory_bytes: fields.whole("memory_bytes", u64::MAX)?,
            kernel: fields.text("kernel")?,
        })
    }

    fn zipf(&self) -> Result<Option<u64>, String> {
        if self.given("zipf").is_none() {
            return Ok(None);
        }
        let zipf = self.number("zipf")?;
        match zipf <= 10.0 {
            true => Ok(Some((zipf * 1000.0).round() as u64)),
            false => Err(self.wrong("zipf", "a number from 0 to 10")),
        }
    }

    /// `2024-05-01T12:00:03Z`.
    pub(super) fn date(&self) -> Result<String, String> {
        let date = self.text("date")?;
        let shape = date.bytes().map(|b| if b.is_ascii_digit() { b'0' } else { b });
        match shape.eq(*b"0000-00-00T00:00:00Z") {
            true => Ok(date),
            false => Err(self.wrong("date", "a time in UTC like 2024-05-01T12:00:03Z")),
        }
    }

    /// The field's value, if there is one that is not null.
    pub(super) fn given(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        match self.given(name) {
            Some(Value::String(text)) if (1..=TEXT_BYTES_MAX).contains(&text.len()) => {
                Ok(text.clone())
            }
            _ => Err(self.wrong(name, &format!("a text of 1 to {TEXT_BYTES_MAX} bytes"))),
        }
    }

    pub(super) fn truth(&self, name: &str) -> Result<bool, String> {
        let value = self.given(name).and_then(Value::as_bool);
        value.ok_or_else(|| self.wrong(name, "true or false"))
    }

    pub(super) fn whole(&self, name: &str, most: u64) -> Result<u64, String> {
        let value = self.given(name).and_then(Value::as_u64).filter(|value| *value <= most);
        value.ok_or_else(|| self.wrong(name, &format!("a whole number up to {most}")))
    }

    /// Of processes or threads: at least one.
    pub(super) fn count(&self, name: &str) -> Result<u64, String> {
        match self.whole(name, COUNT_MAX)? {
            0 => Err(self.wrong(name, &format!("a whole number from 1 to {COUNT_MAX}"))),
            count => Ok(count),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<f64, String> {
        let value = self.given(name).and_then(Value::as_f64);
        let value = value.filter(|value| (0.0..=NUMBER_MAX).contains(value));
        value.ok_or_else(|| self.wrong(name, &format!("a number from 0 to {NUMBER_MAX}")))
    }

    pub(super) fn one_of<T: Copy>(&self, name: &str, known: &[(&str, T)]) -> Result<T, String> {
        let found = self.given(name).and_then(Value::as_str);
        let entry = known.iter().find(|(name, _)| Some(*name) == found);
        entry.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            self.wrong(name, &names.join(" or "))
        })
    }

    /// Of bytes a second.
    pub(super) fn large_number(&self, name: &str) -> Result<f64, String> {
        let value = self.given(name).and_then(Value::as_f64);
        let value = value.filter(|value| (0.0..=NUMBER_MAX * 1e9).contains(value));
        value.ok_or_else(|| self.wrong(name, "a number from 0 to 1e18"))
    }

    pub(super) fn wrong(&self, name: &str, expected: &str) -> String {
        let found = self.map.get(name).map_or("no such field".to_string(), Value::to_string);
        let short: String = found.chars().take(60).collect();
        let dots = if short.len() < found.len() { "…" } else { "" };
        format!("field '{}{name}': expected {expected}, found {short}{dots}", self.within)
    }
}

const FABRICS: [(&str, Fabric); 4] =
    [("shm", Fabric::Shm), ("tcp", Fabric::Tcp), ("verbs", Fabric::Verbs), ("sim", Fabric::Sim)];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::entry::Entry;
    use super::*;

    fn good() -> Value {
        json!({
            "engine": "millstream", "workload": "ysb", "records": 1000, "processes": 2, "workers": 3,
            "fabric": "tcp", "exchange": "repartition", "zipf": 0.2, "mrec_per_s": 12.5, "ok": true,
            "command": "millstream bench ysb", "date": "2024-05-01T12:00:03Z", "more": [1, {"a": 2}],
            "machine": {"processor": "P", "cores": 2, "memory_bytes": 1 << 30, "kernel": "6.1"},
        })
    }

    /// Of a job.
    fn parse(text: &str) -> Result<Line, String> {
        match Entry::parse(text)? {
            Entry::Job(line) => Ok(line),
            other => panic!("{other:?}"),
        }
    }

    fn with(name: &str, value: Value) -> Value {
        let mut line = good();
        line[name] = value;
        line
    }

    #[test]
    fn a_line_is_read() {
        let line = parse(&good().to_string()).expect("a good line");
        assert_eq!(line.data.to_string(), "ysb, 1,000 records, z = 0.2");
        assert_eq!(line.setup.to_string(), "repartition, 2 processes of 3 workers, tcp");
        assert_eq!(line.finding, Finding::Rate(12.5));
        assert!(line.ok);
    }

    #[test]
    fn one_process_needs_neither_fabric_nor_exchange() {
        let mut line = good();
        for name in ["processes", "fabric", "exchange", "zipf"] {
            line.as_object_mut().expect("an object").remove(name);
        }
        let line = parse(&line.to_string()).expect("a good line");
        assert_eq!(line.setup.to_string(), "late merge, 1 process of 3 workers");
        // What a single process says of its fabric means nothing.
        let same = parse(&with("processes", json!(1)).to_string()).expect("a good line");
        assert_eq!(same.setup.fabric, None);
    }

    #[test]
    fn a_projection_says_so_or_is_none() {
        let mut line = with("fabric", json!("sim"));
        assert!(parse(&line.to_string()).is_err_and(|e| e.contains("'projection'")));
        line["projection"] = json!(true);
        let read = parse(&line.to_string()).expect("a projection");
        assert_eq!(read.finding, Finding::Projected { mrec_per_s: 12.5, predicts: None });
        line["fabric"] = json!("shm");
        assert!(parse(&line.to_string()).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (name, value) in [
            ("mrec_per_s", json!("12")),
            ("mrec_per_s", json!(-1)),
            ("mrec_per_s", json!(1e300)),
            ("workers", json!(1.5)),
            ("workers", json!(1u64 << 60)),
            ("processes", json!([])),
            ("processes", json!(0)),
            ("workers", json!(0)),
            ("records", json!(-3)),
            ("zipf", json!(1e9)),
            ("fabric", json!("<b>")),
            ("fabric", json!(null)),
            ("exchange", json!("")),
            ("engine", json!(1)),
            ("ok", json!("true")),
            ("ok", json!(null)),
            ("date", json!("yesterday")),
            ("command", json!("x".repeat(5000))),
            ("machine", json!("fast")),
            ("workload", json!("")),
            ("window", json!(7)),
        ] {
            let error = parse(&with(name, value).to_string()).expect_err(name);
            assert!(error.contains(&format!("field '{name}'")) && error.len() < 300, "{error}");
        }
        let error = parse(&with("machine", json!({})).to_string()).expect_err("no processor");
        assert!(
            error.contains("'machine.processor'") && error.contains("no such field"),
            "{error}"
        );
        for text in ["", "{", "[]", "1", "null", "{\"a\":1e999}", "\u{0}", "{\"ok\":true} x"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }
}
