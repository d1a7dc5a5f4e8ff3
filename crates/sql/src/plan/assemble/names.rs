//! Names of the stages of a plan ([`Stage::names`]).

use std::collections::HashSet;

use millstream_contract::plan::{Node, Plan, Stage};

use crate::names::scope::{numbered, quoted};

/// Name of a stage that only makes the rows of a sink.
pub(super) fn name_of_rows(sink: &str) -> String {
    format!("{}.rows", quoted(sink))
}

/// Names the first stages, the passes, after the stages that take their rows, and parts names that
/// are equal.
pub(super) fn name_stages(plan: &mut Plan, passes: usize) {
    for pass in (0..passes).rev() {
        let takers = plan.stages.iter().flat_map(|stage| names_of_input(stage, pass));
        plan.stages[pass].names = takers.collect();
    }
    let mut taken: HashSet<String> = HashSet::new();
    for stage in &mut plan.stages {
        for name in &mut stage.names {
            let free = (1..).map(|number| numbered(name, number)).find(|n| !taken.contains(n));
            *name = free.unwrap_or_default();
            taken.insert(name.clone());
        }
    }
}

/// Names of a pass as an input of a stage; empty without such an input.
fn names_of_input(stage: &Stage, pass: usize) -> Vec<String> {
    let mut inputs = Vec::new();
    for input in &stage.inputs {
        if !inputs.contains(&input.from) {
            inputs.push(input.from);
        }
    }
    let Some(at) = inputs.iter().position(|from| *from == Node::Stage(pass)) else { return vec![] };
    stage.names.iter().map(|name| numbered(&format!("{name}.input"), at + 1)).collect()
}
