//! Compiling a plan into the parts that workers run.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fire::Finisher;
use crate::pipeline::{Grouping, Stateless};
use crate::plan::{Aggregate, Node, Operator, Plan};
use crate::settings::{Exchange, Settings};
use crate::stage::{Limits, Stage};
use crate::windowing::Windowing;

/// What the stages of a plan do, in executable form.
pub(super) struct Compiled {
    /// Of stages that have state.
    pub(super) operators: Vec<(Grouping, Finisher)>,
    /// Of the one stage of a plan without state.
    pub(super) stateless: Option<Stateless>,
    /// Rows of the result that are left out, and how many of the others are wanted.
    pub(super) offset: u64,
    pub(super) limit: Option<u64>,
    /// The operators' names in messages.
    pub(super) names: Vec<String>,
}

impl Compiled {
    pub(super) fn new(plan: &Plan, settings: &Settings) -> Result<Compiled> {
        check_chain(plan)?;
        check_exchange(plan, settings)?;
        let (operators, stateless, offset, limit, names) = Default::default();
        let mut compiled = Compiled { operators, stateless, offset, limit, names };
        for (number, stage) in plan.stages.iter().enumerate() {
            let filter = stage.inputs.first().and_then(|input| input.filter.clone());
            match &stage.operator {
                Operator::Aggregate(aggregate) => {
                    // Only records can be late: rows of a stage come in the order of their windows.
                    let lateness_us = if number == 0 { settings.allowed_lateness_us } else { 0 };
                    let grouping = Grouping::new(filter, aggregate, lateness_us)?;
                    let finisher = Finisher::new(aggregate, &stage.output);
                    compiled.operators.push((grouping, finisher));
                    compiled.names.push(name_of(aggregate));
                }
                Operator::Stateless { limit, offset } => {
                    let project = stage.inputs.first().and_then(|input| input.project.as_ref());
                    let columns = project.map_or(&[][..], |project| &project.columns);
                    compiled.stateless = Some(Stateless::new(filter, columns, &stage.output));
                    (compiled.offset, compiled.limit) = (*offset, *limit);
                    compiled.names.push("project".into());
                }
            }
        }
        Ok(compiled)
    }

    /// How much of the budget one of the stages may take; `leaders` of all processes.
    pub(super) fn limits(&self, settings: &Settings, leaders: usize, number: usize) -> Limits {
        let grouping = self.operators.get(number).map(|(grouping, _)| grouping);
        Limits::new(settings, self.operators.len().max(1), leaders, grouping)
    }

    /// The stages that have state.
    pub(super) fn into_stages(self, settings: &Settings, leaders: usize) -> Vec<Arc<Stage>> {
        let numbers = 0..self.operators.len();
        let limits: Vec<Limits> =
            numbers.map(|number| self.limits(settings, leaders, number)).collect();
        let stages = self.operators.into_iter().zip(limits).enumerate();
        let workers = settings.workers;
        let stage = |(number, (operator, limits))| Stage::new(number, operator, limits, workers);
        stages.map(stage).map(Arc::new).collect()
    }

    /// How the stage that takes records divides event time.
    pub(super) fn first_windowing(&self) -> Windowing {
        self.operators.first().map_or_else(Windowing::whole, |(grouping, _)| grouping.windowing)
    }

    /// How the stage whose rows leave the job divides event time.
    pub(super) fn last_windowing(&self) -> Windowing {
        self.operators.last().map_or_else(Windowing::whole, |(grouping, _)| grouping.windowing)
    }

    /// Whether the result has a row even if there is nothing.
    pub(super) fn has_empty_group(&self) -> bool {
        self.operators.last().is_some_and(|(grouping, _)| grouping.has_empty_group)
    }
}

/// That this is a plan that jobs can run, today: one source, a chain of stages, of which several
/// all have state, and one output, of the last one.
fn check_chain(plan: &Plan) -> Result<()> {
    let wrong = |what: &str| Err(Error::Internal(format!("a plan with {what}")));
    plan.source()?;
    for (number, stage) in plan.stages.iter().enumerate() {
        let before = number.checked_sub(1).map_or(Node::Source(0), Node::Stage);
        match &stage.inputs[..] {
            [input] if input.from == before => {}
            _ => return wrong("a stage that does not follow the one before"),
        }
        if matches!(stage.operator, Operator::Stateless { .. }) && plan.stages.len() > 1 {
            return wrong("a stage without state among others");
        }
    }
    match &plan.outputs[..] {
        [output] if output.stage + 1 == plan.stages.len() => Ok(()),
        _ => wrong("outputs other than its last stage"),
    }
}

/// An exchange is what late merge is measured against: records to one aggregation.
fn check_exchange(plan: &Plan, settings: &Settings) -> Result<()> {
    if settings.exchange == Exchange::LateMerge || plan.stages.len() == 1 {
        return Ok(());
    }
    Err(Error::Io {
        place: "exchange".into(),
        message: format!(
            "the query aggregates in {} stages, of which records can be exchanged for one alone",
            plan.stages.len()
        ),
        help: "leave the setting 'exchange' out".into(),
    })
}

fn name_of(aggregate: &Aggregate) -> String {
    let keys: Vec<String> = aggregate.keys.iter().map(|k| shortened(&k.name)).collect();
    format!("aggregate by ({})", keys.join(", "))
}

/// A key's text, if it is not too long to be read in a message.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
