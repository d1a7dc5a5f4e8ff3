//! `millstream node`: one of the other processes of a job. The coordinator starts it, tells it over
//! its standard input where to join, and then over the connection what to do.

use std::fs::File;
use std::io::{IsTerminal, Read, stdin};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::process::exit;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use millstream::cluster::{
    Abandon, Cause, Failure as Reason, Fault, Invitation, Member, Node, STOPPED, Setup,
};
use millstream_lab::processes::WorkloadMember;

use crate::Failure;
use crate::console::{note, usage};
use crate::processes::{Script, Task};
use crate::watch::Guard;

/// How long the process may take to stop cleanly when process 0 is gone.
const STOP_TIMEOUT: Duration = Duration::from_millis(1500);

/// Joins a job and takes part in it until its end.
pub(crate) fn run() -> Result<(), Failure> {
    let mut input = stdin();
    let invited = if input.is_terminal() { Err(0) } else { Invitation::read(&mut input) };
    let invitation = match invited {
        Ok(invitation) => invitation,
        // Process 0 was ended between starting this process and telling it why.
        Err(0) if is_pipe(&input) => exit(STOPPED),
        Err(_) => {
            return Err(usage(
                &"`millstream node` is started by `millstream run` and `bench`\n  help: use \
                  millstream run FILE.sql --processes N",
            ));
        }
    };
    let (process, token) = (invitation.process, invitation.token);
    let joined = Joined::default();
    watch_input(process, joined.clone())
        .map_err(|e| usage(&format!("cannot start a thread: {e}")))?;
    let node = Node::join(&invitation).map_err(|reason| stopped(process, &reason))?;
    let abandon = node.abandon();
    *joined.lock().unwrap_or_else(PoisonError::into_inner) = Some(abandon.clone());
    let reasons = abandon.clone();
    let leave = move || {
        if let Some(reason) = abandon.reason() {
            stopped(process, &reason);
        }
    };
    let _guard = Guard::new(move || reasons.reason(), leave);
    let make = |process: usize, setup: &Setup| -> Result<Box<dyn Member>, Fault> {
        let task = serde_json::from_value(setup.task.clone());
        let task: Task =
            task.map_err(|e| Fault::run(format!("process 0 asks for what is no task: {e}")))?;
        let fabric = setup.fabric.parse()?;
        let place = (process, setup.processes);
        Ok(match task {
            Task::Script(script) => Box::new(Script::new(&script, fabric, &token, place)?),
            Task::Bench(bench) => Box::new(WorkloadMember::new(&bench, fabric, &token, place)?),
        })
    };
    node.serve(make).map_err(|reason| stopped(process, &reason))
}

fn is_pipe(input: &impl AsFd) -> bool {
    let file = input.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|found| found.file_type().is_fifo())
}

/// The job that this process has joined, if it has.
type Joined = Arc<Mutex<Option<Abandon>>>;

/// Ends the process soon after its input, which ends with process 0 and not before.
fn watch_input(process: usize, joined: Joined) -> std::io::Result<()> {
    let watch = move || {
        let _ = std::io::copy(&mut stdin().by_ref(), &mut std::io::sink());
        match &*joined.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(job) => job.stop(),
            None => drop(stopped(process, &Reason::gone())),
        }
        thread::sleep(STOP_TIMEOUT);
        exit(STOPPED);
    };
    thread::Builder::new().name("stdin".into()).spawn(watch).map(drop)
}

/// The first thread that ends the process holds it for good.
static LEAVING: Mutex<()> = Mutex::new(());

/// Ends the process. Process 0 knows why and tells it, unless it is process 0 that is gone.
fn stopped(process: usize, reason: &Reason) -> Failure {
    let _alone = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
    let own = reason.process == process && reason.is_reason();
    if reason.process == 0 && !matches!(reason.cause, Cause::Fault(_) | Cause::Interrupted) {
        note(&format!("process {process} stops: {reason}"));
    }
    exit(if own { 1 } else { STOPPED });
}
