//! Further processes of a job: `millstream node`, which `run` starts, and ranks above 0.

use std::process::exit;
use std::sync::Arc;

use millstream::program::cluster::{Fault, Invitation, NoPart, Setup, take_part, take_rank};
use millstream::program::script::{ScriptMember, script_member};
use millstream_fabric::setup::Token;

use crate::console::{note, warn};
use crate::failure::{Failure, usage};
use crate::ranks::Place;
use crate::{log, signals};

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

/// Joins a job of ranks, and takes part in it until its end.
pub(crate) fn rank(place: &Place) -> Result<(), Failure> {
    let (token, _) = place.token().map_err(|e| usage(&e))?;
    note(&place.line());
    let (address, process) = (place.address.clone(), place.rank);
    let joined = |process, setup: &Setup, token: &Token| {
        // Process 0 gets the same signals, and decides.
        signals::ignore_stops();
        member(process, setup, token)
    };
    let log = Arc::new(|line: &str| warn(&line));
    take_rank(&Invitation { address, process, token }, joined, log, exit);
    Ok(())
}

/// This process's part of the task.
fn member(process: usize, setup: &Setup, token: &Token) -> Result<ScriptMember, Fault> {
    log::is_process(process);
    script_member(process, setup, token, |_| Ok(()))
}
