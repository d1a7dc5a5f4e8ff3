//! Real runs between processes of this program.

use serde_json::Value;

use super::failure::{FlowFailure, FlowResult};
use super::job::Job;
use super::member::run_job;
use super::mover::FlowPlan;
use super::moving::Ran;
use super::ping::PingPlan;
use crate::processes::{guard, launch};

/// Moves a plan's tuples between its processes.
pub(super) fn moved(plan: &FlowPlan) -> FlowResult<Ran> {
    Ran::new(plan, run(&Job::Move(plan.clone()))?)
}

/// Asks and answers. Returns the nanoseconds of a round.
pub(super) fn pinged(plan: &PingPlan) -> FlowResult<f64> {
    let ends = run(&Job::Ping(*plan))?;
    let mean = ends.first().and_then(Value::as_f64);
    mean.ok_or_else(|| FlowFailure::Option("process 0 sends no times".into()))
}

/// Runs a job. Returns what each process says.
pub(super) fn run(job: &Job) -> FlowResult<Vec<Value>> {
    run_job(job, &launch(job.processes()), guard)
}
