//! `millstream run --restart N`: starts a job that died again, which goes on from its last
//! checkpoint. The death of any process ends the job.

use std::collections::VecDeque;
use std::env;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, exit};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millstream::program::counted;

use crate::console::note;
use crate::failure::{Failure, LOST, SUPERVISED, fail};
use crate::report::GOES_ON;
use crate::signals::{let_through, on_each_stop};

/// Deaths of the last hour count.
const HOUR: Duration = Duration::from_secs(3600);

/// The pause before the first start, which doubles with each death, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The watched program, and whether it was told to stop.
#[derive(Default)]
struct Watched {
    process: Option<u32>,
    is_stopped: bool,
}

/// Runs this program once more with the same arguments, and again each time that the job dies, at
/// most `restarts` times within an hour. Ends with the program's exit code.
pub(crate) fn run(restarts: u32) -> Result<(), Failure> {
    let watched = Arc::<Mutex<Watched>>::default();
    let of_signals = watched.clone();
    let tell = move |signal| {
        let mut watched = of_signals.lock().unwrap_or_else(PoisonError::into_inner);
        watched.is_stopped = true;
        match watched.process {
            // SAFETY: the call sends a signal to a process that has not been waited for.
            Some(process) => drop(unsafe { libc::kill(process as libc::pid_t, signal) }),
            None => exit(130),
        }
    };
    on_each_stop(tell).map_err(|error| fail(&error))?;
    let mut deaths: VecDeque<Instant> = VecDeque::new();
    let mut begun = 0;
    loop {
        let status =
            once(&watched, begun).map_err(|error| fail(&format!("cannot start: {error}")))?;
        let (how, code) = match (status.signal(), status.code()) {
            (Some(signal), _) => (format!("was killed by signal {signal}"), 128 + signal),
            (None, Some(code)) if code == i32::from(LOST) => ("has lost a process".to_string(), 1),
            (None, code) => exit(code.unwrap_or(1)),
        };
        if watched.lock().unwrap_or_else(PoisonError::into_inner).is_stopped {
            exit(code);
        }
        begun += 1;
        let now = Instant::now();
        deaths.push_back(now);
        deaths.retain(|death| now.duration_since(*death) < HOUR);
        let number = deaths.len() as u32;
        if number > restarts {
            return Err(fail(&format!(
                "the job {how}, and it has died {} within an hour\n  help: {GOES_ON}",
                counted(number.into(), "time")
            )));
        }
        let pause = PAUSE.saturating_mul(1 << (number - 1).min(10)).min(PAUSE_MAX);
        note(&format!(
            "the job {how}; it starts again in {} ms ({number} of {restarts} \
             within an hour)",
            pause.as_millis()
        ));
        thread::sleep(pause);
    }
}

/// Runs the program once, after so many restarts.
fn once(watched: &Mutex<Watched>, restarts: u64) -> std::io::Result<ExitStatus> {
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(SUPERVISED, restarts.to_string());
    let parent = std::process::id();
    let end_with_parent = move || {
        // SAFETY: the calls take and return numbers, and allocate nothing.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            // The parent may have gone before.
            if libc::getppid() as u32 != parent {
                libc::raise(libc::SIGTERM);
            }
        }
        // The mask of signals is inherited.
        let_through();
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls alone.
    let command = unsafe { command.pre_exec(end_with_parent) };
    let mut child: Child = command.spawn()?;
    watched.lock().unwrap_or_else(PoisonError::into_inner).process = Some(child.id());
    let status = child.wait();
    watched.lock().unwrap_or_else(PoisonError::into_inner).process = None;
    status
}
