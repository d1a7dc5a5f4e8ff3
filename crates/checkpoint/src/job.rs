//! A job as checkpoints see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use millstream_contract::Settings;
use millstream_contract::plan::Plan;
use millstream_contract::sink::Sink;
use millstream_contract::table::Table;
use millstream_engine::table_names;

/// A job that is to be saved.
pub struct JobToSave<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The settings of the run.
    pub settings: &'a Settings,
    /// The text by which people know the job.
    pub text: String,
    /// The names of the tables that the job inserts into, in the order of the outputs. Further
    /// outputs have no name.
    pub targets: &'a [String],
    /// The sinks of the outputs, not opened yet.
    pub sinks: &'a [Arc<dyn Sink>],
    /// Names types as their user does.
    pub type_name: &'a dyn Fn(&DataType) -> String,
    /// Processes of the job.
    pub processes: usize,
    /// When the job is started, microseconds since 1970: what `NOW()` is in the plan. A job that
    /// goes on was started by the run before.
    pub started_us: i64,
}

/// Names of the outputs, each once: of several outputs into one table the later have numbers.
pub(crate) fn output_names(job: &JobToSave<'_>) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let name = |number: usize| {
        let name = job.targets.get(number).cloned().unwrap_or_else(|| "result".into());
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        if *times == 1 { name } else { format!("{name}.{times}") }
    };
    (0..job.plan.outputs.len()).map(name).collect()
}

/// The tables that a job reads, under their names in marks.
pub(crate) fn tables(job: &JobToSave<'_>) -> Vec<(String, Arc<dyn Table>)> {
    let sources = &job.plan.sources;
    let names = table_names(sources.iter().map(|source| source.name.as_str()));
    names.into_iter().zip(sources.iter().map(|source| source.table.clone())).collect()
}
