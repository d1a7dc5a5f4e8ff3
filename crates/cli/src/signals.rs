//! Signals that stop the program, and signals that must not.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::{null, null_mut};
use std::thread;

/// The signals that stop a job: Ctrl-C, `kill`, a terminal that is closed.
const STOPPING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Calls `stop` in a thread of its own at each signal to stop. One that was ignored when the
/// program started stays ignored, as `nohup` and a shell's background jobs mean it to be.
pub(crate) fn on_stop(stop: impl FnMut() + Send + 'static) -> Result<(), String> {
    let ignored: Vec<_> = STOPPING.into_iter().filter(|signal| is_ignored(*signal)).collect();
    // None may come in between.
    let held = Held::new(&ignored);
    let set = ctrlc::set_handler(stop);
    ignored.iter().for_each(|signal| ignore(*signal));
    drop(held);
    set.map_err(|e| format!("cannot listen for Ctrl-C: {e}"))
}

/// From now on a signal to stop does nothing.
pub(crate) fn ignore_stops() {
    STOPPING.into_iter().for_each(ignore);
}

/// Calls `stop` with each signal to stop, in a thread of its own. Has to be called while one thread
/// alone gets signals. One that was ignored when the program started stays ignored.
pub(crate) fn on_each_stop(
    mut stop: impl FnMut(libc::c_int) + Send + 'static,
) -> Result<(), String> {
    // Threads started later hold these signals, too; the waiting thread gets them.
    std::mem::forget(Held::new(&STOPPING));
    let wait = move || {
        loop {
            let mut signal = 0;
            // SAFETY: a set of signals is plain data; the calls write it and the signal.
            let failed = unsafe {
                let mut awaited: libc::sigset_t = zeroed();
                libc::sigemptyset(&mut awaited);
                for signal in STOPPING {
                    libc::sigaddset(&mut awaited, signal);
                }
                libc::sigwait(&awaited, &mut signal)
            };
            match failed {
                0 => stop(signal),
                _ => return,
            }
        }
    };
    let started = thread::Builder::new().name("signals".into()).spawn(wait);
    started.map(drop).map_err(|e| format!("cannot listen for Ctrl-C: {e}"))
}

/// Lets the signals to stop through again that [`on_each_stop`] holds. For a new process: between
/// fork and exec, where it is safe.
pub(crate) fn let_through() {
    // SAFETY: a set of signals is plain data; the calls write it and the mask of this thread.
    unsafe {
        let mut held: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut held);
        for signal in STOPPING {
            libc::sigaddset(&mut held, signal);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &held, null_mut());
    }
}

/// How the terminal at standard input works, to be restored before the program ends in the middle
/// of a line.
pub(crate) struct TerminalMode(libc::termios);

impl TerminalMode {
    /// As it is now; `None` if there is no terminal.
    pub(crate) fn saved() -> Option<TerminalMode> {
        let mut mode = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the call writes the mode, if it succeeds.
        unsafe {
            (libc::tcgetattr(libc::STDIN_FILENO, mode.as_mut_ptr()) == 0)
                .then(|| TerminalMode(mode.assume_init()))
        }
    }

    pub(crate) fn restore(&self) {
        // SAFETY: the mode is an earlier mode of the terminal.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &self.0) };
    }
}

/// How long nothing has to come for what was pasted to be over.
const PASTE_PAUSE_MS: libc::c_int = 100;

/// Reads what has been typed or pasted at the terminal, and throws it away.
pub(crate) fn discard_typed() {
    let Some(mode) = TerminalMode::saved() else { return };
    let mut raw = mode.0;
    let mut buffer = [0u8; 4096];
    let mut ready = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    // SAFETY: the mode is a copy of one that the terminal has; a read writes at most the buffer.
    unsafe {
        // Without lines and echo, as the editor has it. Ctrl-C stays a signal.
        raw.c_lflag &= !(libc::ICANON | libc::ECHO);
        libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw);
        while libc::poll(&mut ready, 1, PASTE_PAUSE_MS) > 0
            && libc::read(libc::STDIN_FILENO, buffer.as_mut_ptr().cast(), buffer.len()) > 0
        {
        }
    }
    mode.restore();
}

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail, with an error that can be told,
/// rather than end the program.
pub(crate) fn let_large_files_fail() {
    ignore(libc::SIGXFSZ);
}

/// Whether a signal is ignored.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only writes the old one, if it succeeds.
    unsafe {
        libc::sigaction(signal, null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

fn ignore(signal: libc::c_int) {
    // SAFETY: ignoring a signal runs no code of ours. It fails only for signals that cannot be
    // ignored.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Signals held back for this thread, until dropped. The thread that drops the value gets the
/// signals.
pub(crate) struct Held(libc::sigset_t);

impl Held {
    /// All.
    pub(crate) fn all() -> Held {
        // SAFETY: a set of signals is plain data; the calls write both sets and nothing else.
        unsafe {
            let (mut held, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
            libc::sigfillset(&mut held);
            libc::pthread_sigmask(libc::SIG_BLOCK, &held, &mut before);
            Held(before)
        }
    }

    fn new(signals: &[libc::c_int]) -> Held {
        // SAFETY: a set of signals is plain data; the calls write both sets and nothing else.
        unsafe {
            let (mut held, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
            libc::sigemptyset(&mut held);
            for signal in signals {
                libc::sigaddset(&mut held, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &held, &mut before);
            Held(before)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, null_mut()) };
    }
}
