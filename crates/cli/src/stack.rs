//! The stack of the thread that runs a command.

use std::process::ExitCode;
use std::thread::{self, JoinHandle};

use crate::failure::{fail, panicked};
use crate::signals::Held;

/// Bytes of stack for a command.
const STACK_BYTES: u64 = 8 << 20;

/// Runs a command: in this thread, or in another if the system limits the stack of the first one
/// (`ulimit -s`).
pub(crate) fn with_enough(command: fn() -> ExitCode) -> ExitCode {
    if first_bytes() >= STACK_BYTES {
        return command();
    }
    // Signals come to the thread that runs the command, as if there were no other.
    let held = Held::all();
    let run = move || {
        drop(held);
        command()
    };
    let thread = thread::Builder::new().name("main".into()).stack_size(STACK_BYTES as usize);
    match thread.spawn(run).map(JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(panic)) => ExitCode::from(panicked(&*panic).code()),
        Err(error) => {
            let help = "raise the limit of stacks (ulimit -s), or of address space (ulimit -v)";
            let message = format!("the system gives no stack of 8 MB: {error}\n  help: {help}");
            ExitCode::from(fail(&message).code())
        }
    }
}

/// Bytes that the stack of the first thread may have.
fn first_bytes() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: the call writes the limit.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    limit.rlim_cur
}
