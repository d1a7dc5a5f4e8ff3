//! `millstream node`: a further process of a job, started by `run`.

use std::process::exit;
use std::sync::Arc;

use millstream::program::cluster::{Fault, Member, NoPart, Setup, take_part};
use millstream::program::script::{ScriptMember, ScriptTask};
use millstream_fabric::setup::Token;

use crate::console::warn;
use crate::failure::{Failure, usage};
use crate::log;

/// Joins a job and takes part in it until its end.
pub(crate) fn run() -> Result<(), Failure> {
    take_part(member, Arc::new(|line: &str| warn(&line)), exit).map_err(|why| match why {
        NoPart::NotInvited => usage(
            &"`millstream node` is started by `millstream run`\n  help: use millstream run FILE.sql \
              --processes N",
        ),
        NoPart::Thread(_) => usage(&why),
    })
}

/// This process's part of the task.
fn member(process: usize, setup: &Setup, token: &Token) -> Result<Box<dyn Member>, Fault> {
    log::is_process(process);
    let task: ScriptTask = serde_json::from_value(setup.task.clone())
        .map_err(|e| Fault::run(format!("process 0 sends a task that cannot be read: {e}")))?;
    let (fabric, place) = (setup.fabric.parse()?, (process, setup.processes));
    let session = task.session(process).map_err(Fault::usage)?;
    Ok(Box::new(ScriptMember::new(&task, session, fabric, token, place, None)?))
}
