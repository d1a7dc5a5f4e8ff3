//! Queries that are stopped and resumed.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use millstream_contract::expr::{Evaluate, Expr};
use millstream_contract::plan::{
    Cumulate, Hop, Node, Operator, Output, Plan, Sort, SortKey, Stage, Window,
};
use millstream_contract::{Error, Result};

use crate::support::chain::Chain;
use crate::support::graph::{Graph, Kind, Stop, Take};
use crate::support::joins::Case;
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::sessions::SessionCase;
use crate::support::*;

/// A query over tables in memory.
pub(crate) struct Query {
    pub(crate) plan: Plan,
    /// For messages.
    pub(crate) what: String,
    pub(crate) lateness_ms: i64,
}

/// The amount, of which one value cannot be evaluated.
#[derive(Debug)]
struct Not(i64);

impl fmt::Display for Not {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not({})", self.0)
    }
}

impl Evaluate for Not {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let amounts = batch.column(3);
        match amounts.as_primitive::<Int64Type>().iter().flatten().any(|amount| amount == self.0) {
            false => Ok(amounts.clone()),
            true => Err(Error::Evaluation {
                expression: self.to_string(),
                message: "this amount".into(),
                frame: String::new(),
                help: String::new(),
            }),
        }
    }
    fn data_type(&self) -> &DataType {
        &DataType::Int64
    }
}

const FAILING: i64 = 77;

/// Lets a stage that passes records fail on an amount.
fn fail(stage: &mut Stage, amount: i64) {
    let project = stage.inputs[0].project.as_mut().expect("columns");
    project.columns[3] = Expr::Computed(Arc::new(Not(amount)));
}

/// Lets a graph have one output: a union of its tables, of records or of windows. A table's rows
/// wait for those of another one.
fn unite(graph: &mut Graph, windows: Option<[(i64, i64); 3]>) {
    let take = |from| Take { from, at_least: None, raw: false };
    let sources: Vec<Node> = (0..graph.origins.len()).map(Node::Source).collect();
    let mut takes: Vec<Take> = sources.into_iter().map(take).collect();
    graph.stops = Vec::new();
    for (takes, window_ms) in takes.iter_mut().zip(windows.into_iter().flatten()) {
        let stage = Node::Stage(graph.stops.len());
        let of_source = vec![std::mem::replace(takes, take(stage))];
        let kind = Kind::Aggregate { window_ms: Some(window_ms), keyed: true };
        graph.stops.push(Stop { takes: of_source, kind });
    }
    graph.outputs = vec![Output::of(graph.stops.len())];
    graph.stops.push(Stop { takes, kind: Kind::Pass { limit: None, offset: 0 } });
}

/// Whether an output of a plan wants no more than some rows.
pub(crate) fn has_limit(plan: &Plan) -> bool {
    let passes =
        |stage: &Stage| matches!(stage.operator, Operator::Stateless { limit: Some(_), .. });
    let sorts = |output: &Output| output.sort.as_ref().is_some_and(|sort| sort.limit.is_some());
    plan.stages.iter().any(passes) || plan.outputs.iter().any(sorts)
}

impl Query {
    /// One split has a record that cannot be evaluated, and the other split comes later.
    pub(crate) fn that_fails(random: &mut Random, limit: u64) -> Query {
        let mut record =
            |amount| Record { amount: Some(amount), ..records(random, 1, 1, 1)[0][0].clone() };
        let scripts = [(1_000_000, 1), (0, FAILING)].map(|(at_us, amount)| {
            let batches = batches_of(&[record(amount)], &mut Random::new(1), 1);
            Script { batches: batches.into_iter().map(|batch| (at_us, batch)).collect() }
        });
        let mut plan = passing(Arc::new(Scripted::new(scripts.into(), 0)), Some(limit));
        fail(&mut plan.stages[0], FAILING);
        Query { plan, what: format!("limit {limit}"), lateness_ms: 0 }
    }

    /// Everything about it is drawn at random.
    pub(crate) fn any(random: &mut Random) -> Query {
        match random.below(10) {
            0 => {
                let case = SessionCase::any(random);
                let plan = case.plan(random);
                Query { plan, what: case.to_string(), lateness_ms: case.lateness_ms }
            }
            1 => {
                let case = Case::any(random);
                let (plan, what) = (case.plan(), format!("{case:?}"));
                Query { plan, what, lateness_ms: case.lateness_ms }
            }
            2 => {
                let chain = Chain::any(random);
                let splits = 1 + random.below(3) as usize;
                let data = records(random, splits, 300, 60);
                let plan = chain.plan(table(&data, random, 20));
                Query { plan, what: format!("{chain:?}"), lateness_ms: chain.lateness_ms }
            }
            3..=5 => {
                let mut graph = Graph::any(random);
                match random.below(3) {
                    0 => unite(&mut graph, None),
                    1 => unite(&mut graph, Some([(50, 0), (500, 0), (1000, 70)])),
                    _ => {}
                }
                let (mut plan, what) = (graph.plan(), format!("{graph:?}"));
                // Also beside rows of other inputs, where packing leaves windows apart: a query
                // that takes over a packing may have got such an output.
                let packed = random.pick(&[1, 1, 5]);
                for stage in &mut plan.stages {
                    if let Operator::Aggregate(aggregate) = &mut stage.operator {
                        aggregate.windows_in_slice = packed;
                    }
                }
                Query { plan, what, lateness_ms: graph.lateness_ms }
            }
            _ => Query::of_one_stage(random),
        }
    }

    /// Records that are passed on, windows and groups, with and without LIMIT and ORDER BY.
    fn of_one_stage(random: &mut Random) -> Query {
        let splits = 1 + random.below(4) as usize;
        let per_split = random.pick(&[1, 40, 400, 900]);
        let keys = random.pick(&[1, 5, 60, 100_000]);
        let data = records(random, splits, per_split, keys);
        let batch_rows = random.pick(&[1, 20, 300]);
        let memory = table(&data, random, batch_rows);
        let delay_us = random.pick(&[0, 1, 100_000, 4_999_999]);
        let hop = Hop { slide_us: 500_000, size_us: 2_000_000, offset_us: 3000 };
        let cumulate = Cumulate { step_us: 300_000, size_us: 1_500_000, offset_us: 0 };
        let (some, offset) = (random.pick(&[None, Some(7), Some(150)]), random.pick(&[0, 0, 90]));
        let shape = random.below(6);
        let mut plan = match shape {
            0 | 1 => passing(memory, some),
            2 => query(memory, random.pick(&[None, Some(50), Some(1000)]), delay_us),
            3 => windowed(memory, Window::Hop(hop), delay_us),
            4 => windowed(memory, Window::Cumulate(cumulate), delay_us),
            _ => query(memory, Some(random.pick(&[50, 1000])), delay_us),
        };
        let stage = &mut plan.stages[0];
        match &mut stage.operator {
            Operator::Stateless { limit, offset: skip } => {
                *skip = offset;
                if limit.is_some() && random.below(2) == 0 {
                    fail(stage, random.below(1000) as i64 - 500);
                }
            }
            // The first windows, each in an order of its own.
            _ if shape == 5 => {
                let key = |column, descending| SortKey { column, descending, nulls_first: false };
                let keys = vec![key(0, false), key(3, true)];
                let visible = stage.output.fields().len();
                let sort = Sort { keys, visible, limit: some, offset, each_window: true };
                plan.outputs[0].sort = Some(sort);
            }
            _ => {}
        }
        let lateness_ms = random.pick(&[0, 0, 700]);
        let what = format!("shape {shape}, limit {some:?} and offset {offset}");
        Query { plan, what, lateness_ms }
    }
}
