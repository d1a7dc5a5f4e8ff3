//! Compiling a plan into the parts that workers run.

use std::sync::Arc;

use crate::edges::{Edges, Root, Takers};
use crate::error::{Contents, Error, Result};
use crate::expr::Expr;
use crate::plan::{self, Plan};
use crate::settings::{Exchange, Settings};
use crate::stage::{Operation, Stage, StageLimits};
use millstream_operators::budget::Holder;
use millstream_operators::operator::{Program, stateless::Taking};
use millstream_operators::prepare::Spread;
use millstream_operators::windowing::Windowing;

/// Stages of a plan in executable form.
pub(super) struct Compiled {
    /// Of stages that have state.
    pub(super) operations: Vec<Operation>,
    pub(super) edges: Edges,
    /// The operators, for messages.
    pub(super) holders: Vec<Holder>,
}

impl Compiled {
    pub(super) fn new(plan: &Plan, settings: &Settings) -> Result<Compiled> {
        plan.check()?;
        let mut edges = Edges::new(plan, settings.allowed_lateness_us)?;
        let mut operations = Vec::new();
        let stages = plan.stages.iter().enumerate();
        let with_state = stages.filter(|(_, stage)| stage.operator.has_state());
        for ((place, stage), inputs) in with_state.zip(&edges.inputs) {
            // Only records can be late: rows of a stage come in the order of their windows.
            let takes_records = inputs.iter().any(|input| matches!(input, Root::Source(_)));
            let lateness_us = if takes_records { settings.allowed_lateness_us } else { 0 };
            if let Some(program) = crate::registry::program(stage, lateness_us)? {
                let computes_texts = program.computes_texts();
                let names = stage.names.clone();
                operations.push(Operation { program, computes_texts, place, names });
            }
        }
        check_exchange(plan, &operations, settings)?;
        let holder = |Operation { program, .. }: &Operation| Holder {
            name: program.name(),
            contents: program.contents(),
        };
        let mut holders: Vec<Holder> = operations.iter().map(holder).collect();
        if holders.is_empty() {
            holders.push(Holder { name: "project".into(), contents: Contents::Output });
        }
        for feeds in edges.sources.iter_mut().chain(&mut edges.stages) {
            find_texts(&mut feeds.takers, &Some, &mut operations);
        }
        Ok(Compiled { operations, edges, holders })
    }

    /// Program of a stage with state.
    pub(super) fn program(&self, stage: usize) -> Option<&dyn Program> {
        self.operations.get(stage).map(|operation| &*operation.program)
    }

    /// How much of the budget one of the stages may take; `leaders` of all processes.
    pub(super) fn limits(&self, settings: &Settings, leaders: usize, number: usize) -> StageLimits {
        let stages = self.operations.len().max(1);
        StageLimits::new(settings, stages, leaders, self.program(number))
    }

    /// The stages that have state, and all edges.
    pub(super) fn into_stages(
        self,
        settings: &Settings,
        leaders: usize,
    ) -> (Vec<Arc<Stage>>, Edges) {
        let numbers = 0..self.operations.len();
        let limits: Vec<StageLimits> =
            numbers.map(|number| self.limits(settings, leaders, number)).collect();
        let stages = self.operations.into_iter().zip(limits).enumerate();
        let (workers, edges) = (settings.workers, self.edges);
        let stage = |(number, (operation, limits))| {
            Stage::new(number, edges.inputs[number].clone(), operation, limits, workers)
        };
        (stages.map(stage).map(Arc::new).collect(), edges)
    }

    /// How the stages that take records of a source divide event time.
    pub(super) fn windowings(&self, source: usize) -> Vec<Windowing> {
        self.edges.sources[source].stages.iter().map(|stage| self.windowing(*stage)).collect()
    }

    /// How many tables of windows these stages may open with a batch.
    pub(super) fn spreads(
        &self,
        source: usize,
        settings: &Settings,
        leaders: usize,
    ) -> Vec<Spread> {
        let spread = |stage: &usize| {
            let tables_max = self.limits(settings, leaders, *stage).tables_max;
            Spread { windowing: self.windowing(*stage), leaders, tables_max }
        };
        let spreads = self.edges.sources[source].stages.iter().map(spread);
        spreads.filter(|spread| !spread.windowing.is_whole()).collect()
    }

    /// Columns of a source whose elements become rows.
    pub(super) fn arrays(&self, source: usize) -> Vec<usize> {
        let passes = self.edges.sources[source].takers.passes.iter();
        passes.filter_map(|pass| pass.expansion.as_ref()?.array(&pass.taking)).collect()
    }

    pub(super) fn windowing(&self, stage: usize) -> Windowing {
        self.operations[stage].program.windowing()
    }

    /// Stages with state whose rows come to an output, each once.
    pub(super) fn stages_of(&self, output: usize) -> Vec<usize> {
        let stage = |root: &Root| match root {
            Root::Stage(stage) => Some(*stage),
            Root::Source(_) => None,
        };
        let mut stages: Vec<usize> = self.edges.outputs[output].iter().filter_map(stage).collect();
        stages.sort_unstable();
        stages.dedup();
        stages
    }

    /// Whether a result has a row even if there is nothing.
    pub(super) fn has_empty_group(&self, output: usize) -> bool {
        let programs = |stage: usize| self.program(stage);
        self.stages_of(output).into_iter().filter_map(programs).any(|p| p.has_empty_group())
    }
}

/// Finds the columns of a source or of a stage with texts that stages keep, also behind passes;
/// tells a stage whether such texts are computed on the way. `of` maps a column that `takers` see
/// to the source's or stage's column.
fn find_texts(
    takers: &mut Takers,
    of: &dyn Fn(usize) -> Option<usize>,
    operations: &mut [Operation],
) {
    for edge in &mut takers.edges {
        let Operation { program, computes_texts, .. } = &mut operations[edge.stage];
        for column in program.kept_texts(edge.input) {
            match before(&edge.taking, *column).and_then(of) {
                Some(column) => edge.texts.push(column),
                None => *computes_texts = true,
            }
        }
    }
    for pass in &mut takers.passes {
        let (taking, expands) = (&pass.taking, pass.expansion.is_some());
        // Of each record's texts there are as many as it has elements, or matches.
        let of = |column| if expands { None } else { before(taking, column).and_then(of) };
        find_texts(&mut pass.takers, &of, operations);
    }
}

/// The column's index before projection, if it existed then.
fn before(taking: &Taking, column: usize) -> Option<usize> {
    match &taking.project {
        None => Some(column),
        Some(project) => match project.columns.get(column) {
            Some(Expr::Column(before)) => Some(*before),
            _ => None,
        },
    }
}

/// An exchange is what late merge is measured against: records of one source to one aggregation, or
/// of two to one join, whose rows leave the job at one output.
fn check_exchange(plan: &Plan, operations: &[Operation], settings: &Settings) -> Result<()> {
    if settings.exchange == Exchange::LateMerge {
        return Ok(());
    }
    let for_one = |has: String| format!("{has} records can be exchanged for one alone");
    let joins = |stage: &plan::Stage| matches!(stage.operator, plan::Operator::Join(_));
    let sides = if plan.stages.first().is_some_and(joins) { 2 } else { 1 };
    let inputs = plan.stages.first().map_or(0, |stage| stage.inputs.len());
    let message = match (plan.sources.len(), plan.stages.len(), plan.outputs.len()) {
        (sources, 1, 1) if sources > sides => {
            for_one(format!("the query reads {sources} tables, and"))
        }
        (_, 1, 1) if inputs > sides => for_one(format!("the query has {inputs} inputs, and")),
        (_, 1, 1) => match operations.iter().find(|o| o.program.format().is_none()) {
            None => return Ok(()),
            Some(other) => format!("records cannot be exchanged for '{}'", other.program.name()),
        },
        (_, stages, 1) => {
            for_one(format!("the query has {stages} stages that aggregate or join, of which"))
        }
        (_, _, outputs) => for_one(format!("there are {outputs} results, and")),
    };
    Err(Error::Io {
        place: "exchange".into(),
        message,
        help: "leave the setting 'exchange' out".into(),
    })
}
