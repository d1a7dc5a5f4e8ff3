//! The paper's figures, drawn from measured lines for one machine. A figure is left out if no line
//! belongs to it.

use std::collections::{BTreeMap, BTreeSet};

use super::html::{element, escape, table};
use super::line::{Data, Engine, Exchange, Fabric, Finding, Line, Setup};
use super::projection;
use super::spread::Spread;
use super::svg::{Bars, Curves, Key};

/// What the numbers of all plots are.
pub(super) const UNIT: &str = "million records/s";

/// Measured rates of runs of the same thing, in the order in which they ran.
pub(super) type Rates = BTreeMap<(Data, Setup), Vec<f64>>;

/// The workloads of the paper's figure 9, in its order; others come behind.
const FIRST: [&str; 4] = ["ysb", "ysb_small", "nb7", "cm"];

/// All figures of the lines of one machine.
pub(super) fn all(lines: &[&Line]) -> String {
    let rates = rates(lines);
    let sections = [
        ("Throughput by processes and workers", throughput(&rates)),
        ("Skewed keys", skew(&rates)),
        ("One worker against a hand-written loop", cost(&rates)),
        ("Instructions and cache misses", counts(lines)),
        ("Projection: computed, not measured", projection::section(lines, &rates)),
    ];
    let mut out = String::new();
    for (name, body) in sections.iter().filter(|(_, body)| !body.is_empty()) {
        out.push_str(&element("h3", name));
        out.push_str(body);
    }
    out
}

fn rates(lines: &[&Line]) -> Rates {
    let mut rates = Rates::new();
    let mut in_order: Vec<&&Line> = lines.iter().collect();
    in_order.sort_by(|a, b| a.date.cmp(&b.date));
    for line in in_order {
        if let Finding::Rate(rate) = line.finding {
            rates.entry((line.data.clone(), line.setup)).or_default().push(rate);
        }
    }
    rates
}

/// The data that occur, workloads in the paper's order.
fn data_of<'a>(all: impl Iterator<Item = &'a Data>) -> Vec<&'a Data> {
    let mut data: Vec<&Data> = all.collect::<BTreeSet<_>>().into_iter().collect();
    let place = |data: &&Data| FIRST.iter().position(|name| *name == data.workload);
    data.sort_by_key(|data| place(data).unwrap_or(FIRST.len()));
    data
}

/// Name and colour: the exchange gives the hue, the fabric the shade.
pub(super) fn key(exchange: Exchange, fabric: Option<Fabric>) -> Key {
    let shades = match exchange {
        Exchange::LateMerge => ["#12395b", "#1f6fb2", "#7db8e8", "#4a90a4"],
        Exchange::Repartition => ["#7a3b00", "#d9730d", "#f5b97a", "#a8743f"],
        Exchange::Interleaved => ["#1e4d2b", "#3a8f4f", "#93cfa1", "#6b8f71"],
    };
    let (shade, name) = match fabric {
        None => (0, format!("{exchange}, one process")),
        Some(fabric @ (Fabric::Shm | Fabric::Sim)) => (1, format!("{exchange}, {fabric}")),
        Some(fabric @ Fabric::Tcp) => (2, format!("{exchange}, {fabric}")),
        Some(fabric @ Fabric::Verbs) => (3, format!("{exchange}, {fabric}")),
    };
    Key { name, colour: shades[shade] }
}

/// Figure 9: a plot for each workload, a group of bars for each number of processes and workers.
fn throughput(rates: &Rates) -> String {
    let own_keys = || {
        rates
            .iter()
            .filter(|((data, setup), _)| data.zipf.is_none() && setup.engine == Engine::Millstream)
    };
    let mut out = String::new();
    for data in data_of(own_keys().map(|((data, _), _)| data)) {
        let cells: BTreeMap<Setup, Spread> = own_keys()
            .filter(|((of, _), _)| of == data)
            .filter_map(|((_, setup), rates)| Some((*setup, Spread::of(rates.iter().copied())?)))
            .collect();
        let layouts: BTreeSet<(u64, u64)> =
            cells.keys().map(|s| (s.processes, s.workers)).collect();
        let kinds: BTreeSet<(Exchange, Option<Fabric>)> =
            cells.keys().map(|s| (s.exchange, s.fabric)).collect();
        let series = kinds.into_iter().map(|(exchange, fabric)| {
            let bars = layouts.iter().map(|(processes, workers)| {
                let engine = Engine::Millstream;
                let (processes, workers) = (*processes, *workers);
                cells.get(&Setup { engine, processes, workers, exchange, fabric }).copied()
            });
            (key(exchange, fabric), bars.collect())
        });
        let bars = Bars {
            name: data.to_string(),
            unit: UNIT.to_string(),
            across: "processes × workers of each".to_string(),
            groups: layouts.iter().map(|(p, t)| format!("{p} × {t}")).collect(),
            series: series.collect(),
        };
        out.push_str(&bars.svg());
    }
    if out.is_empty() {
        return out;
    }
    let note = "Bars are medians, whiskers go from the least to the greatest.";
    element("p", &note) + &out + &ratios(rates, |data| data.zipf.is_none())
}

/// Late merge against the others, run by run.
fn ratios(rates: &Rates, belongs: impl Fn(&Data) -> bool) -> String {
    let mut rows = Vec::new();
    for ((data, setup), ours) in rates.iter().filter(|((data, _), _)| belongs(data)) {
        if setup.engine != Engine::Millstream
            || setup.exchange != Exchange::LateMerge
            || setup.processes < 2
        {
            continue;
        }
        let repartition = Setup { exchange: Exchange::Repartition, ..*setup };
        let interleaved = Setup { exchange: Exchange::Interleaved, ..*setup };
        let workers = setup.processes * setup.workers;
        let one = Setup { processes: 1, workers, fabric: None, ..*setup };
        let ratio = |other: Setup| {
            let theirs = rates.get(&(data.clone(), other));
            paired(ours, theirs.map_or(&[][..], Vec::as_slice))
                .map_or(String::new(), |spread| format!("{spread}, {}", spread.count))
        };
        let cells = [ratio(repartition), ratio(interleaved), ratio(one)];
        if cells.iter().any(|cell| !cell.is_empty()) {
            rows.push([vec![data.to_string(), setup.to_string()], cells.to_vec()].concat());
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "data",
        "setup",
        "to repartition, pairs",
        "to interleaved, pairs",
        "to one process with as many workers, pairs",
    ];
    let note = "Ratios of late merge to the others: runs are paired in the order in which they ran; the median of the \
                pairs, least and greatest, and how many pairs there are.";
    element("p", &note) + &table(&head, &rows)
}

/// The ratios of the first to the first, the second to the second, and so on.
fn paired(ours: &[f64], theirs: &[f64]) -> Option<Spread> {
    let pairs = ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 0.0);
    Spread::of(pairs.map(|(ours, theirs)| ours / theirs))
}

/// Figure 10d: throughput by the exponent of the keys' distribution.
fn skew(rates: &Rates) -> String {
    /// A curve for each exchange, a plot for each of the rest.
    type Plots = BTreeMap<(Data, u64, u64, Option<Fabric>), BTreeMap<Exchange, Vec<(f64, Spread)>>>;
    let mut plots = Plots::new();
    for ((data, setup), rates) in rates {
        let (Some(zipf), Engine::Millstream) = (data.zipf, setup.engine) else { continue };
        let Some(spread) = Spread::of(rates.iter().copied()) else { continue };
        let all = Data { zipf: None, ..data.clone() };
        let plot = plots.entry((all, setup.processes, setup.workers, setup.fabric)).or_default();
        plot.entry(setup.exchange).or_default().push((zipf as f64 / 1000.0, spread));
    }
    let mut out = String::new();
    for ((data, processes, workers, fabric), curves) in plots {
        let series = curves.into_iter().map(|(exchange, points)| (key(exchange, fabric), points));
        let curves = Curves {
            name: format!("{data}, {processes} × {workers}"),
            unit: UNIT.to_string(),
            across: "exponent z".to_string(),
            series: series.collect(),
        };
        out.push_str(&curves.svg());
    }
    let note = "Keys have a Zipf distribution with exponent z; 0 is uniform. Circles are medians, whiskers go from the \
                least to the greatest.";
    match out.is_empty() {
        true => out,
        false => element("p", &note) + &out + &ratios(rates, |data| data.zipf.is_some()),
    }
}

/// Figure 11: one worker beside the loop that does nothing else.
fn cost(rates: &Rates) -> String {
    let one = |engine| Setup {
        engine,
        processes: 1,
        workers: 1,
        exchange: Exchange::LateMerge,
        fabric: None,
    };
    let (loops, engine) = (one(Engine::Handwritten), one(Engine::Millstream));
    let with =
        |setup: Setup| rates.keys().filter(move |(_, of)| *of == setup).map(|(data, _)| data);
    let compared: BTreeSet<&Data> = with(loops).collect();
    let data = data_of(with(engine).filter(|data| compared.contains(data)));
    if data.is_empty() {
        return String::new();
    }
    let numbers =
        |data: &&Data, setup| rates.get(&((*data).clone(), setup)).map_or(&[][..], Vec::as_slice);
    let bars =
        |setup| data.iter().map(|data| Spread::of(numbers(data, setup).iter().copied())).collect();
    let key = |name: &str, colour| Key { name: name.to_string(), colour };
    let plot = Bars {
        name: "One worker".to_string(),
        unit: UNIT.to_string(),
        across: "workload".to_string(),
        groups: data.iter().map(|data| short_name(data)).collect(),
        series: vec![
            (key("handwritten", "#8a8a8a"), bars(loops)),
            (key("millstream, one worker", "#12395b"), bars(engine)),
        ],
    };
    let rows: Vec<Vec<String>> = data
        .iter()
        .map(|data| {
            let (ours, theirs) = (numbers(data, engine), numbers(data, loops));
            let text = |numbers: &[f64]| {
                Spread::of(numbers.iter().copied()).map_or(String::new(), |s| s.to_string())
            };
            let ratio = paired(ours, theirs).map_or(String::new(), |s| format!("{s}, {}", s.count));
            vec![data.to_string(), text(theirs), text(ours), ratio]
        })
        .collect();
    plot.svg() + &table(&["data", "handwritten", "millstream", "ratio, pairs"], &rows)
}

/// What has room under a bar.
fn short_name(data: &Data) -> String {
    match data.zipf {
        Some(zipf) => format!("{}, z = {}", data.workload, zipf as f64 / 1000.0),
        None => data.workload.clone(),
    }
}

/// Table 1.
fn counts(lines: &[&Line]) -> String {
    let mut found = BTreeMap::<_, Vec<[f64; 3]>>::new();
    for line in lines {
        if let Finding::Counts { role, instructions, d1_misses, ll_misses } = line.finding {
            let of = (line.data.clone(), role, line.setup);
            found.entry(of).or_default().push([instructions, d1_misses, ll_misses]);
        }
    }
    if found.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|((data, role, setup), counts)| {
            let column = |i: usize| {
                Spread::of(counts.iter().map(|counts| counts[i]))
                    .map_or(String::new(), |s| s.to_string())
            };
            let first = [data.to_string(), role.to_string(), setup.to_string()];
            [first, [column(0), column(1), column(2)]].concat()
        })
        .collect();
    let head = ["data", "role", "setup", "instructions", "first-level misses", "last-level misses"];
    let note = "Per record of the input, without generating it, counted by callgrind, which knows no AVX-512; misses are \
                those of its simulated caches.";
    element("p", &note) + &table(&head, &rows)
}

/// All lines by what they ran, with their commands and dates.
pub(super) fn sources(lines: &[&Line]) -> String {
    let mut sets = BTreeMap::<(Data, String), Vec<&Line>>::new();
    for line in lines {
        let what = match line.finding {
            Finding::Rate(_) => line.setup.to_string(),
            Finding::Projected { .. } => format!("{}: projection", line.setup),
            Finding::Counts { role, .. } => format!("{}: counts of {role}", line.setup),
        };
        sets.entry((line.data.clone(), what)).or_default().push(line);
    }
    let mut rows = Vec::new();
    let mut mixed = String::new();
    for ((data, what), lines) in sets {
        let commands: BTreeSet<&str> = lines.iter().map(|line| line.command.as_str()).collect();
        if commands.len() > 1 {
            let count = commands.len();
            mixed.push_str(&warning(&format!(
                "{data}, {what}: the lines of {count} different commands are taken for runs of the same thing."
            )));
        }
        for command in commands {
            let same = || lines.iter().filter(|line| line.command == command);
            let dates: BTreeSet<&str> = same().map(|line| line.date.as_str()).collect();
            let first_and_last = [dates.first(), dates.last().filter(|_| dates.len() > 1)];
            rows.push(vec![
                data.to_string(),
                what.clone(),
                same().count().to_string(),
                command.to_string(),
                first_and_last.into_iter().flatten().copied().collect::<Vec<_>>().join(" to "),
            ]);
        }
    }
    let head = ["data", "setup", "lines", "command", "date (UTC)"];
    element("h3", &"Lines") + &mixed + &table(&head, &rows)
}

/// A paragraph that has to be seen.
pub(super) fn warning(text: &str) -> String {
    format!("<p class=\"warning\">{}</p>\n", escape(&text))
}
