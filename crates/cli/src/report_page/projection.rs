//! What a model of the cluster computed, in a section of its own. It is shown only where the same model was right about
//! what could be measured: 1, 2 and 4 processes on this machine, within a tenth.

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
    /// Of machines that were not there.
    projected: BTreeMap<(u64, u64), Vec<f64>>,
    /// Of setups that were measured, too.
    predicted: BTreeMap<Setup, Vec<f64>>,
}

pub(super) fn section(lines: &[&Line], rates: &Rates) -> String {
    let mut models = BTreeMap::<(Data, Exchange), Model>::new();
    for line in lines {
        let Finding::Projected { mrec_per_s, predicts } = line.finding else { continue };
        let setup = line.setup;
        let model = models.entry((line.data.clone(), setup.exchange)).or_default();
        let entry = match predicts {
            None => model.projected.entry((setup.processes, setup.workers)).or_default(),
            Some(fabric) => model.predicted.entry(real(setup, fabric)).or_default(),
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
    for ((data, exchange), model) in &models {
        let checks = checks(data, model, rates);
        let good = |processes| {
            let mut of =
                checks.iter().filter(|check| check.setup.processes == processes).peekable();
            of.peek().is_some() && of.all(|check| check.deviation.abs() <= DEVIATION_MAX)
        };
        if CHECKED.into_iter().all(good) {
            right.insert((data.clone(), *exchange));
        } else if !model.projected.is_empty() {
            out.push_str(&warning(&format!(
                "Not shown: {data}, {exchange}. The model has not been right within 10% about 1, 2 and 4 real processes."
            )));
        }
        rows.extend(checks.iter().map(|check| {
            vec![
                data.to_string(),
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
    setup: Setup,
    predicted: f64,
    measured: f64,
    deviation: f64,
}

fn checks(data: &Data, model: &Model, rates: &Rates) -> Vec<Check> {
    let check = |(setup, predicted): (&Setup, &Vec<f64>)| {
        let predicted = Spread::of(predicted.iter().copied())?.median;
        let measured = rates.get(&(data.clone(), *setup))?;
        let measured = Spread::of(measured.iter().copied())?.median;
        (measured > 0.0).then(|| Check {
            setup: *setup,
            predicted,
            measured,
            deviation: predicted / measured - 1.0,
        })
    };
    model.predicted.iter().filter_map(check).collect()
}

/// A plot for each workload and number of workers, a curve for each exchange.
fn plots(models: &BTreeMap<(Data, Exchange), Model>, right: &BTreeSet<(Data, Exchange)>) -> String {
    let mut plots = BTreeMap::<(&Data, u64), BTreeMap<Exchange, Vec<(f64, Spread)>>>::new();
    for (of @ (data, exchange), model) in models {
        if !right.contains(of) {
            continue;
        }
        for ((processes, workers), numbers) in &model.projected {
            let Some(spread) = Spread::of(numbers.iter().copied()) else { continue };
            let plot = plots.entry((data, *workers)).or_default();
            plot.entry(*exchange).or_default().push((*processes as f64, spread));
        }
    }
    let mut out = String::new();
    for ((data, workers), curves) in plots {
        let series =
            curves.into_iter().map(|(exchange, points)| (key(exchange, Some(Fabric::Sim)), points));
        let curves = Curves {
            name: format!("Projection: {data}, {workers} workers a node"),
            unit: format!("{UNIT}, projected"),
            across: "nodes".to_string(),
            series: series.collect(),
        };
        out.push_str(&curves.svg());
    }
    out
}
