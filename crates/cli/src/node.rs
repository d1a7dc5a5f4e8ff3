//! `millstream node`: a further process of a job, started by `run` and `bench`.

use std::sync::Arc;

use millstream::cluster::{Fault, Member, NoPart, Setup, take_part};
use millstream::script::ScriptMember;
use millstream_fabric::setup::Token;
use millstream_lab::processes::WorkloadMember;

use crate::Failure;
use crate::console::{usage, warn};
use crate::log;
use crate::processes::Task;

/// Joins a job and takes part in it until its end.
pub(crate) fn run() -> Result<(), Failure> {
    take_part(member, Arc::new(|line: &str| warn(&line))).map_err(|why| match why {
        NoPart::NotInvited => usage(
            &"`millstream node` is started by `millstream run` and `bench`\n  help: use \
              millstream run FILE.sql --processes N",
        ),
        NoPart::Thread(_) => usage(&why),
    })
}

/// This process's part of the task.
fn member(process: usize, setup: &Setup, token: &Token) -> Result<Box<dyn Member>, Fault> {
    log::is_process(process);
    let task = serde_json::from_value(setup.task.clone());
    let task: Task =
        task.map_err(|e| Fault::run(format!("process 0 asks for what is no task: {e}")))?;
    let (fabric, place) = (setup.fabric.parse()?, (process, setup.processes));
    Ok(match task {
        Task::Script(task) => {
            let session = task.session(process).map_err(Fault::usage)?;
            Box::new(ScriptMember::new(&task, session, fabric, token, place, None)?)
        }
        Task::Bench(task) => Box::new(WorkloadMember::new(&task, fabric, token, place)?),
    })
}
