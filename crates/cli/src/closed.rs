//! Standard output that is closed when the program starts (`>&-`).
//!
//! Before `main`, Rust puts `/dev/null` in its place, and rows would be lost without a word. So it
//! is looked at before that, where libraries are initialized.

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: asks for the flags of a descriptor, whether there is one or not.
    let is_closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    IS_CLOSED.store(is_closed, Relaxed);
}

#[used]
// SAFETY: functions in this section are called once, before `main`; this function needs no later
// initialization.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Stdout, or a writer that always fails if stdout was closed.
pub(crate) fn stdout() -> Box<dyn Write + Send> {
    match IS_CLOSED.load(Relaxed) {
        true => Box::new(Closed),
        false => Box::new(io::stdout()),
    }
}

struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("standard output is closed"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
