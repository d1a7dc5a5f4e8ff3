//! `millstream node`: a further process of a job. It is started by process 0, which tells it over its standard
//! input where to join, and over the connection what to do.

use std::io::{IsTerminal, Read, stdin};
use std::process::exit;
use std::thread;
use std::time::Duration;

use millstream::cluster::{
    Cause, Failure as Reason, Fault, Invitation, Member, Node, STOPPED, Setup,
};

use crate::Failure;
use crate::bench_processes::BenchMember;
use crate::processes::{Script, Task};
use crate::run::{note, usage};

/// How long the process may take to stop cleanly when process 0 is gone.
const STOP_TIMEOUT: Duration = Duration::from_millis(1500);

/// Joins a job and takes part in it until its end.
pub(crate) fn run() -> Result<(), Failure> {
    let mut input = stdin();
    let invited = if input.is_terminal() { None } else { Invitation::read(&mut input) };
    let Some(invitation) = invited else {
        return Err(usage(
            &"`millstream node` is started by `millstream run` and `bench`\n  help: use \
              millstream run FILE.sql --processes N",
        ));
    };
    let node = Node::join(&invitation).map_err(|reason| stopped(invitation.process, &reason))?;
    let (process, token, abandon) = (invitation.process, *node.token(), node.abandon());
    let watching = thread::Builder::new().name("stdin".into()).spawn(move || {
        // It ends with process 0 and not before.
        let _ = std::io::copy(&mut stdin().by_ref(), &mut std::io::sink());
        abandon.stop();
        thread::sleep(STOP_TIMEOUT);
        exit(STOPPED);
    });
    watching.map_err(|e| usage(&format!("cannot start a thread: {e}")))?;
    let make = |process: usize, setup: &Setup| -> Result<Box<dyn Member>, Fault> {
        let task = serde_json::from_value(setup.task.clone());
        let task: Task =
            task.map_err(|e| Fault::run(format!("process 0 asks for what is no task: {e}")))?;
        let fabric = setup.fabric.parse()?;
        let place = (process, setup.processes);
        Ok(match task {
            Task::Script(script) => Box::new(Script::new(&script, fabric, &token, place)?),
            Task::Bench(bench) => Box::new(BenchMember::new(&bench, fabric, &token, place)?),
        })
    };
    node.serve(make).map_err(|reason| stopped(process, &reason))
}

/// Ends the process. Process 0 knows why and tells it, unless it is process 0 that is gone.
fn stopped(process: usize, reason: &Reason) -> Failure {
    let own = reason.process == process && reason.is_reason();
    if reason.process == 0 && !matches!(reason.cause, Cause::Fault(_) | Cause::Interrupted) {
        note(&format!("process {process} stops: {reason}"));
    }
    exit(if own { 1 } else { STOPPED });
}
