//! How the outputs of a job go on: their remaining rows, and whether these are rows of the query.

use arrow::datatypes::FieldRef;
use millstream_contract::Result;
use millstream_contract::plan::{Operator, Output as PlanOutput, Plan, SortKey};
use millstream_engine::OutputMark;
use millstream_store::{Checkpoints, Manifest};

use crate::file::read;
use crate::job::JobToSave;

/// The meanings of the outputs' remaining rows: columns, order, LIMIT and OFFSET of each.
pub(crate) fn identities(job: &JobToSave<'_>) -> Vec<Vec<String>> {
    job.plan.outputs.iter().map(|output| identity(job, output)).collect()
}

fn identity(job: &JobToSave<'_>, output: &PlanOutput) -> Vec<String> {
    let fields = job.plan.stages[output.stage].output.fields();
    let column = |of: &FieldRef| format!("{} {}", of.name(), (job.type_name)(of.data_type()));
    let columns: Vec<String> = fields.iter().map(column).collect();
    let key = |key: &SortKey| {
        let direction = if key.descending { " DESC" } else { "" };
        let nulls = if key.nulls_first { " NULLS FIRST" } else { "" };
        format!("{}{direction}{nulls}", fields[key.column].name())
    };
    let keys = output.sort.iter().flat_map(|sort| &sort.keys).map(key).collect::<Vec<_>>();
    let order = match keys.is_empty() {
        true => "no ORDER BY".into(),
        false => format!("ORDER BY {}", keys.join(", ")),
    };
    let (limit, offset) = limits(job.plan, output);
    let limit = limit.map_or("no LIMIT".into(), |limit| format!("LIMIT {limit}"));
    vec![format!("columns ({})", columns.join(", ")), order, limit, format!("OFFSET {offset}")]
}

/// LIMIT and OFFSET of an output.
fn limits(plan: &Plan, output: &PlanOutput) -> (Option<u64>, u64) {
    match (&output.sort, &plan.stages[output.stage].operator) {
        (Some(sort), _) => (sort.limit, sort.offset),
        (None, Operator::Stateless { limit, offset }) => (*limit, *offset),
        (None, _) => (None, 0),
    }
}

/// Names of outputs that cannot go on, and why: rows wait that are not rows of this query, or LIMIT
/// or OFFSET count other rows. Old checkpoints have no identities of outputs.
pub(crate) fn changed(
    job: &JobToSave<'_>,
    names: &[String],
    manifest: &Manifest,
) -> Vec<(String, String)> {
    let why = |(name, output): (&String, &PlanOutput)| {
        let saved = manifest.outputs.iter().find(|saved| saved.name == *name)?;
        let counts = limits(job.plan, output) != (None, 0);
        if !counts && saved.limit.is_none() && saved.offset == 0 && saved.waiting.is_empty() {
            return None;
        }
        let identity = identity(job, output);
        let mut pairs = identity.iter().zip(&saved.identity);
        let (now, before) = pairs.find(|(now, before)| now != before)?;
        Some((name.clone(), format!("it has {now} now, and {before} in the checkpoint")))
    };
    names.iter().zip(&job.plan.outputs).filter_map(why).collect()
}

/// Remaining rows of the outputs. Outputs that are new, or begin `anew`, give all rows.
pub(crate) fn marks(
    store: &Checkpoints,
    manifest: &Manifest,
    plan: &Plan,
    outputs: &[String],
    anew: &[String],
) -> Result<Vec<OutputMark>> {
    let mark = |(name, output): (&String, &PlanOutput)| {
        let (limit, offset) = limits(plan, output);
        let mut mark = OutputMark { limit, offset, waiting: Vec::new() };
        let saved = manifest.outputs.iter().find(|output| output.name == *name);
        if let Some(saved) = saved.filter(|_| !anew.contains(name)) {
            (mark.limit, mark.offset) = (saved.limit, saved.offset);
            for file in &saved.waiting {
                for rows in read(store, file, &|_| true)? {
                    mark.waiting.push(rows?);
                }
            }
        }
        Ok(mark)
    };
    outputs.iter().zip(&plan.outputs).map(mark).collect()
}
