//! The terminal's last line, on which progress is shown, below whatever else is written there.
//!
//! Whoever writes to the terminal erases that line first; it is drawn again a moment later, unless
//! what was written last is not a whole line yet.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

/// What stands on the terminal.
struct Screen {
    /// A line of progress does.
    drawn: bool,
    /// What was written last to stdout has no end of its line.
    within_line: bool,
}

/// How often, and in what time, it is tried to have the terminal alone.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(2);

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
    _screen: Option<MutexGuard<'static, Screen>>,
}

/// Erases the line of progress, to write to stderr. If somebody else writes and does not get on,
/// since nobody reads, this does not wait for ever: the message may say why the program ends.
pub(crate) fn erase() -> Erased {
    for _ in 0..TRIES {
        let screen = match SCREEN.try_lock() {
            Ok(screen) => Some(screen),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut screen) = screen {
            screen.erase();
            return Erased { _screen: Some(screen) };
        }
        thread::sleep(PAUSE);
    }
    Erased { _screen: None }
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
