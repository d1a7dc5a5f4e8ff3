//! The terminal's last line, on which progress is shown, below whatever else is written there.
//!
//! Whoever writes to the terminal erases that line first; it is drawn again a moment later, unless
//! what was written last is not a whole line yet.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What stands on the terminal.
struct Screen {
    /// A line of progress does.
    drawn: bool,
    /// What was written last to stdout has no end of its line.
    within_line: bool,
}

static SCREEN: Mutex<Screen> = Mutex::new(Screen { drawn: false, within_line: false });

fn lock() -> MutexGuard<'static, Screen> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Screen {
    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            // Where it cannot be written, nobody sees it.
            let _ = stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// Lets nobody write to the terminal until it is dropped; no progress stands there.
pub(crate) struct Erased {
    _screen: MutexGuard<'static, Screen>,
}

/// Erases the line of progress, to write to stderr.
pub(crate) fn erase() -> Erased {
    let mut screen = lock();
    screen.erase();
    Erased { _screen: screen }
}

/// Draws a line of progress instead of the one before.
pub(crate) fn draw(line: &str) {
    let mut screen = lock();
    if screen.within_line {
        return;
    }
    screen.erase();
    screen.drawn = stderr().write_all(line.as_bytes()).is_ok();
    let _ = stderr().flush();
}

/// Stdout, for rows: where it is the terminal on which progress is shown, that makes room.
pub(crate) fn out() -> Box<dyn Write + Send> {
    match stdout().is_terminal() && stderr().is_terminal() {
        true => Box::new(Beside(stdout())),
        false => Box::new(stdout()),
    }
}

struct Beside<W>(W);

impl<W: Write> Write for Beside<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut screen = lock();
        screen.erase();
        let written = self.0.write(bytes)?;
        if let Some(last) = bytes[..written].last() {
            screen.within_line = *last != b'\n';
        }
        // Now, or progress would be drawn before it.
        self.0.flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
