//! Lines of TPC-H over the shuffle and over Flight, by turns (`--json` of the benchmark in
//! `crates/datafusion-shuffle`), and their plots.

use std::collections::BTreeMap;

use super::html::element;
use super::line::{Fields, Machine};
use super::shuffle::{DESIGNS, Sorted, bars, designs, sources};

/// What `"bench"` is in such a line.
pub(super) const NAME: &str = "tpch";

/// The number of Flight's bars, in front of the designs.
const FLIGHT: u64 = 0;
const FLIGHT_COLOUR: &str = "#777777";

/// One query both ways.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    /// Its place among the designs.
    design: usize,
    query: u64,
    scale: f64,
    processes: u64,
    /// Where workers have the tables.
    tables: &'static str,
    compression: String,
    seconds: f64,
    flight_seconds: f64,
    pub(super) ok: bool,
    pub(super) machine: Machine,
    command: String,
    date: String,
}

impl Pair {
    pub(super) fn parse(fields: &Fields) -> Result<Pair, String> {
        // A ratio is finite.
        let seconds = |name| match fields.number(name)? {
            least if least < 1e-6 => Err(fields.wrong(name, "a number from 0.000001 up")),
            seconds => Ok(seconds),
        };
        Ok(Pair {
            design: fields.one_of("design", &designs())?,
            query: fields.whole("query", 22)?,
            scale: fields.number("scale")?,
            processes: fields.count("processes")?,
            tables: fields.one_of("tables", &[("memory", "memory"), ("files", "files")])?,
            compression: fields.text("compression")?,
            seconds: seconds("seconds")?,
            flight_seconds: seconds("flight_seconds")?,
            ok: fields.truth("ok")?,
            machine: fields.machine()?,
            command: fields.text("command")?,
            date: fields.date()?,
        })
    }

    pub(super) fn design(&self) -> &'static str {
        DESIGNS[self.design].0
    }

    fn by_design(&self) -> Sorted {
        (FLIGHT + 1 + self.design as u64, self.design().to_string())
    }
}

const NOTE: &str = "Queries of TPC-H by DataFusion on several processes, which exchange batches over Flight or over \
     the shuffle operator over shared memory, by turns. Names have the scale of the tables, the \
     number of processes, where these have the tables, and how Flight compresses.";

/// All plots of the lines of one machine.
pub(super) fn all(lines: &[&Pair]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut sets = BTreeMap::<String, Vec<&Pair>>::new();
    for line in lines {
        let Pair { scale, processes, tables, compression, .. } = line;
        let name = format!(
            "scale {scale}, {processes} processes, tables in {tables}, compression {compression}"
        );
        sets.entry(name).or_default().push(line);
    }
    let colour = |_, name: &Sorted| match name.0.checked_sub(FLIGHT + 1) {
        Some(design) => DESIGNS[design as usize].1,
        None => FLIGHT_COLOUR,
    };
    let mut out = element("h3", &"TPC-H: by design") + &element("p", &NOTE);
    for (set, lines) in sets {
        let mut times = Vec::new();
        let mut ratios = Vec::new();
        for line in lines {
            let flight = (FLIGHT, "Flight".to_string());
            times.push((line.query, flight, line.flight_seconds));
            times.push((line.query, line.by_design(), line.seconds));
            ratios.push((line.query, line.by_design(), line.flight_seconds / line.seconds));
        }
        for (unit, values) in [("s", times), ("times as fast as Flight", ratios)] {
            let place =
                |(query, name, _): &(u64, Sorted, f64)| ((*query, query.to_string()), name.clone());
            let values: Vec<_> = values.iter().collect();
            out.push_str(&bars(
                (set.clone(), unit, "query"),
                &values,
                |value| value.2,
                place,
                colour,
            ));
        }
    }
    out.push_str(&element("h3", &"TPC-H: lines"));
    out + &sources(lines.iter().map(|line| (&*line.command, &*line.date)))
}
