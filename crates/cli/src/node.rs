//! `millstream node`: a further process of a job, started by `run`.

use std::process::exit;
use std::sync::Arc;

use millstream::program::cluster::{Fault, NoPart, Setup, take_part};
use millstream::program::script::{ScriptMember, script_member};
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
fn member(process: usize, setup: &Setup, token: &Token) -> Result<ScriptMember, Fault> {
    log::is_process(process);
    script_member(process, setup, token, |_| Ok(()))
}
