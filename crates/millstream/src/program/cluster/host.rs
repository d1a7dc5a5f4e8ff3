//! The whole life of a further process of a job. It is started by process 0, which tells it over
//! its standard input where to join, and over the connection what to do.

use std::fs::File;
use std::io::{self, IsTerminal, Read, stdin};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use millstream_fabric::setup::Token;

use super::children::STOPPED;
use super::failure::{Cause, Fault, ProcessFailure};
use super::guard::Guard;
use super::launch::RANKS_MAX;
use super::launcher::Invitation;
use super::listener::Log;
use super::member::Member;
use super::message::Setup;
use super::node::{Abandon, Node};
use super::transport::{Loopback, Network};

/// End of this process with an exit code. A library does not end the process on its own: the
/// program gives `std::process::exit`.
pub type Exit = fn(i32) -> !;

/// How long the process may take to stop cleanly when process 0 is gone.
const STOP_TIMEOUT: Duration = Duration::from_millis(1500);

/// Why a process does not take part in a job.
#[derive(Debug, thiserror::Error)]
pub enum NoPart {
    /// Nobody has invited it: it was not started by process 0 of a job.
    #[error("this process was not started by a job of several processes")]
    NotInvited,
    /// The system refuses it a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Joins the job for which process 0 has started this process, and takes part in it until its end.
/// `make` makes this process's part of the job, given its number. If the job ends early this does
/// not return: `exit` ends the process, and `log` is told why if nobody else can.
pub fn take_part<M: Member>(
    make: impl FnOnce(usize, &Setup, &Token) -> Result<M, Fault>,
    log: Log,
    exit: Exit,
) -> Result<(), NoPart> {
    let mut input = stdin();
    let invited = if input.is_terminal() { Err(0) } else { Invitation::read(&mut input) };
    let invitation = match invited {
        Ok(invitation) => invitation,
        // Process 0 was ended between starting this process and telling it why.
        Err(0) if is_pipe(&input) => exit(STOPPED),
        Err(_) => return Err(NoPart::NotInvited),
    };
    let leaving = Leaving { process: invitation.process, log, exit };
    let joined = Joined::default();
    watch_input(leaving.clone(), joined.clone()).map_err(NoPart::Thread)?;
    let node = Node::join(&Loopback, &invitation).unwrap_or_else(|reason| leaving.leave(&reason));
    *joined.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.abandon());
    leaving.serve(node, make);
    Ok(())
}

/// As [`take_part`], for a rank. Process 0 may start later.
pub fn take_rank<M: Member>(
    invitation: &Invitation,
    make: impl FnOnce(usize, &Setup, &Token) -> Result<M, Fault>,
    log: Log,
    exit: Exit,
) {
    let leaving = Leaving { process: invitation.process, log, exit };
    let network = Network { address: invitation.address.clone() };
    let joined = Node::join_within(&network, invitation, RANKS_MAX);
    let node = joined.unwrap_or_else(|reason| leaving.leave(&reason));
    leaving.serve(node, make)
}

fn is_pipe(input: &impl AsFd) -> bool {
    let file = input.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|found| found.file_type().is_fifo())
}

/// The job that this process has joined, if it has.
type Joined = Arc<Mutex<Option<Abandon>>>;

/// Ends the process soon after its input, which ends with process 0 and not before.
fn watch_input(leaving: Leaving, joined: Joined) -> io::Result<()> {
    let watch = move || {
        let _ = io::copy(&mut stdin().by_ref(), &mut io::sink());
        match &*joined.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(job) => job.stop(),
            None => leaving.leave(&ProcessFailure::gone()),
        }
        thread::sleep(STOP_TIMEOUT);
        (leaving.exit)(STOPPED);
    };
    thread::Builder::new().name("stdin".into()).spawn(watch).map(drop)
}

/// The first thread that ends the process holds it for good.
static LEAVES: Mutex<()> = Mutex::new(());

/// How this process ends early.
#[derive(Clone)]
struct Leaving {
    process: usize,
    log: Log,
    exit: Exit,
}

impl Leaving {
    /// Takes part in the job until its end.
    fn serve<M: Member>(
        &self,
        node: Node,
        make: impl FnOnce(usize, &Setup, &Token) -> Result<M, Fault>,
    ) {
        let (token, abandon) = (*node.token(), node.abandon());
        let (reasons, forced) = (abandon.clone(), self.clone());
        let leave = move || {
            if let Some(reason) = abandon.reason() {
                forced.leave(&reason);
            }
        };
        let _guard = Guard::new(move || reasons.reason(), leave);
        let served = node.serve(|process: usize, setup: &Setup| make(process, setup, &token));
        served.unwrap_or_else(|reason| self.leave(&reason));
    }

    /// Ends the process. Process 0 knows why and tells it, unless it is process 0 that is gone.
    fn leave(&self, reason: &ProcessFailure) -> ! {
        let _alone = LEAVES.lock().unwrap_or_else(PoisonError::into_inner);
        let own = reason.process == self.process && reason.is_reason();
        if reason.process == 0 && !matches!(reason.cause, Cause::Fault(_) | Cause::Interrupted) {
            (self.log)(&format!("process {} stops: {reason}", self.process));
        }
        (self.exit)(if own { 1 } else { STOPPED })
    }
}
