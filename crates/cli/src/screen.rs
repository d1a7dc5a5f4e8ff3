//! The terminal's last line, on which progress is shown, below whatever else is written there.
//!
//! Writers to the terminal erase the line of progress first; it is drawn again a moment later,
//! unless the text before is not a whole line yet. Rows that go into a pipe may come to the same
//! terminal (`| cat`, `| grep`), so they are treated as written to the terminal.

use std::fs::File;
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::closed;

/// State of the terminal.
struct Screen {
    /// A line of progress does.
    drawn: bool,
    /// The last text on stdout has no end of its line.
    within_line: bool,
    /// When rows were last written into a pipe.
    piped_at: Option<Instant>,
}

/// How often, and in what time, it is tried to have the terminal alone.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// So long whoever reads a pipe may take to write what has been written into it.
const PASSING_ON: Duration = Duration::from_millis(100);

static SCREEN: Mutex<Screen> =
    Mutex::new(Screen { drawn: false, within_line: false, piped_at: None });

fn lock() -> MutexGuard<'static, Screen> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` while somebody else writes.
fn try_lock() -> Option<MutexGuard<'static, Screen>> {
    match SCREEN.try_lock() {
        Ok(screen) => Some(screen),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Screen {
    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            // A failure is invisible, as the line is.
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
        if let Some(mut screen) = try_lock() {
            screen.erase();
            return Erased { _screen: Some(screen) };
        }
        thread::sleep(PAUSE);
    }
    Erased { _screen: None }
}

/// Draws a line of progress instead of the one before. Not while somebody else writes, and not if
/// the line is not `true_still`: what was said meanwhile may be that the query has ended.
pub(crate) fn draw(line: &str, true_still: impl FnOnce() -> bool) {
    let Some(mut screen) = try_lock() else { return };
    if !true_still() {
        return;
    }
    if screen.within_line || screen.piped_at.is_some_and(|at| at.elapsed() < PASSING_ON) {
        return;
    }
    screen.erase();
    screen.drawn = stderr().write_all(line.as_bytes()).is_ok();
    let _ = stderr().flush();
}

/// The file that rows go to, in place of stdout.
static ROWS_TO: Mutex<Option<Arc<File>>> = Mutex::new(None);

fn rows_to() -> MutexGuard<'static, Option<Arc<File>>> {
    ROWS_TO.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets rows go to a file from now on, or to stdout.
pub(crate) fn rows_go_to(file: Option<File>) {
    *rows_to() = file.map(Arc::new);
}

/// Whether rows go to a file.
pub(crate) fn goes_to_file() -> bool {
    rows_to().is_some()
}

/// Stdout, for rows: where they may come to the terminal on which progress is shown, that makes
/// room.
pub(crate) fn out() -> Box<dyn Write + Send> {
    if let Some(file) = rows_to().as_ref() {
        return Box::new(file.clone());
    }
    let is_pipe = is_pipe();
    match stderr().is_terminal() && (is_pipe || stdout().is_terminal()) {
        true => Box::new(Beside { out: stdout(), is_pipe }),
        false => closed::stdout(),
    }
}

/// Whether stdout is a pipe, or a socket in the place of one.
fn is_pipe() -> bool {
    let kind = stdout().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    kind.is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}

struct Beside<W> {
    out: W,
    is_pipe: bool,
}

impl<W: Write> Write for Beside<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut screen = lock();
        screen.erase();
        // While the pipe is not read, its reader writes no lines: progress may be shown.
        let alone = (!self.is_pipe).then_some(screen);
        let written = self.out.write(bytes)?;
        // Now, or progress would be drawn before it.
        self.out.flush()?;
        let mut screen = alone.unwrap_or_else(lock);
        if let Some(last) = bytes[..written].last() {
            screen.within_line = *last != b'\n';
        }
        screen.piped_at = self.is_pipe.then(Instant::now);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
