//! The section of projections, computed by a model of the cluster. A projection is shown only if
//! the same model was right, within a tenth, about what could be measured: 1, 2 and 4 processes on
//! this machine.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::{Rates, UNIT, key, warning};
use super::html::table;
use super::line::{Data, Exchange, Fabric, Finding, Line, Setup};
use super::spread::{Spread, short};
use super::svg::Curves;

/// The numbers of processes that the model has to be right about.
const CHECKED: [u64; 3] = [1, 2, 4];
/// How wrong it may be.
const DEVIATION_MAX: f64 = 0.1;

/// What a model said of a workload with an exchange.
#[derive(Default)]
struct Model {
    /// Of machines that were not there, by nodes, workers of each, and records of each worker.
    projected: BTreeMap<(u64, u64, u64), Vec<f64>>,
    /// Of data and setups that were measured, too.
    predicted: BTreeMap<(Data, Setup), Vec<f64>>,
}

/// The workload and the exponent of its keys. The number of records grows with the number of nodes,
/// so it does not tell models apart.
type Kind = (String, Option<u64>);

fn kind(data: &Data) -> Kind {
    (data.workload.clone(), data.zipf)
}

fn named((workload, zipf): &Kind) -> String {
    match zipf {
        Some(zipf) => format!("{workload}, z = {}", *zipf as f64 / 1000.0),
        None => workload.clone(),
    }
}

pub(super) fn section(lines: &[&Line], rates: &Rates) -> String {
    let mut models = BTreeMap::<(Kind, Exchange), Model>::new();
    for line in lines {
        let Finding::Projected { mrec_per_s, predicts } = line.finding else { continue };
        let setup = line.setup;
        let model = models.entry((kind(&line.data), setup.exchange)).or_default();
        let entry = match predicts {
            None => {
                let (processes, workers) = (setup.processes, setup.workers);
                let records = line.data.records / (processes * workers);
                model.projected.entry((processes, workers, records)).or_default()
            }
            Some(fabric) => {
                let of = (line.data.clone(), real(setup, fabric));
                model.predicted.entry(of).or_default()
            }
        };
        entry.push(mrec_per_s);
    }
    if models.is_empty() {
        return String::new();
    }
    let mut out = warning(
        "Projection. Nothing in this section was measured on a cluster: the numbers are virtual time from a model of \
         the network and of the cost of the code.",
    );
    let mut rows = Vec::new();
    let mut right = BTreeSet::new();
    for ((kind, exchange), model) in &models {
        let checks = checks(model, rates);
        let good = |processes| {
            let mut of =
                checks.iter().filter(|check| check.setup.processes == processes).peekable();
            of.peek().is_some() && of.all(|check| check.deviation.abs() <= DEVIATION_MAX)
        };
        if CHECKED.into_iter().all(good) {
            right.insert((kind.clone(), *exchange));
        } else if !model.projected.is_empty() {
            out.push_str(&warning(&format!(
                "Not shown: {}, {exchange}. The model has not been right within 10% about 1, 2 and 4 real processes.",
                named(kind)
            )));
        }
        rows.extend(checks.iter().map(|check| {
            vec![
                check.data.to_string(),
                check.setup.to_string(),
                short(check.predicted),
                short(check.measured),
                format!("{:+.1}%", check.deviation * 100.0),
            ]
        }));
    }
    out.push_str(&plots(&models, &right));
    if !rows.is_empty() {
        out.push_str(&table(&["data", "setup", "predicted", "measured", "deviation"], &rows));
    }
    out
}

/// The setup that a prediction is about.
fn real(setup: Setup, fabric: Fabric) -> Setup {
    Setup { fabric: (setup.processes > 1).then_some(fabric), ..setup }
}

/// A prediction beside what was measured.
struct Check {
    data: Data,
    setup: Setup,
    predicted: f64,
    measured: f64,
    deviation: f64,
}

fn checks(model: &Model, rates: &Rates) -> Vec<Check> {
    let check = |(of, predicted): (&(Data, Setup), &Vec<f64>)| {
        let predicted = Spread::of(predicted.iter().copied())?.median;
        let measured = Spread::of(rates.get(of)?.iter().copied())?.median;
        (measured > 0.0).then(|| Check {
            data: of.0.clone(),
            setup: of.1,
            predicted,
            measured,
            deviation: predicted / measured - 1.0,
        })
    };
    model.predicted.iter().filter_map(check).collect()
}

/// A plot for each workload, number of workers and of their records, a curve for each exchange.
fn plots(models: &BTreeMap<(Kind, Exchange), Model>, right: &BTreeSet<(Kind, Exchange)>) -> String {
    let mut plots = BTreeMap::<(&Kind, u64, u64), BTreeMap<Exchange, Vec<(f64, Spread)>>>::new();
    for (of @ (kind, exchange), model) in models {
        if !right.contains(of) {
            continue;
        }
        for ((processes, workers, records), numbers) in &model.projected {
            let Some(spread) = Spread::of(numbers.iter().copied()) else { continue };
            let plot = plots.entry((kind, *workers, *records)).or_default();
            plot.entry(*exchange).or_default().push((*processes as f64, spread));
        }
    }
    let mut out = String::new();
    for ((kind, workers, records), curves) in plots {
        let series =
            curves.into_iter().map(|(exchange, points)| (key(exchange, Some(Fabric::Sim)), points));
        let (kind, records) = (named(kind), millstream::grouped(records));
        let curves = Curves {
            name: format!("Projection: {kind}, {workers} workers a node, {records} records each"),
            unit: format!("{UNIT}, projected"),
            across: "nodes".to_string(),
            series: series.collect(),
        };
        out.push_str(&curves.svg());
    }
    out
}
