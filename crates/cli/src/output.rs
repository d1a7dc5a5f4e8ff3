//! Answers on stdout: texts, and rows in the format of the command line.

use std::io::{self, Write};
use std::sync::Arc;

use millstream::arrow::array::RecordBatch;
use millstream::program::write_answer;
use millstream::{Sink, TextOptions, TextSink};

use crate::arguments::{Format, Output};
use crate::closed::stdout;
use crate::failure::{Failure, fail, failed};
use crate::screen::{erase, goes_to_file, out};

/// Writes a text to stdout, as lines. A reader who has gone away (`| head`) has read enough.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    drop(erase());
    let mut out = stdout();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(fail(&format!("the output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether whoever read stdout has gone away.
pub(crate) fn reader_is_gone() -> bool {
    let mut stdout = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    // SAFETY: one valid descriptor to look at, for the length of the call; it does not wait.
    let ready = unsafe { libc::poll(&mut stdout, 1, 0) };
    ready == 1 && stdout.revents & libc::POLLERR != 0
}

/// Rows as text to stdout.
pub(crate) fn text_sink(output: Output) -> Arc<dyn Sink> {
    let format = match output.format {
        Format::Table => millstream::Format::Table,
        Format::Csv => millstream::Format::Csv,
        Format::Ndjson => millstream::Format::Ndjson,
    };
    let Output { delimiter, expanded, .. } = output;
    let width = if goes_to_file() { None } else { terminal_width() };
    let options = TextOptions { width, delimiter, expanded, ..TextOptions::default() };
    Arc::new(TextSink::new(format, out(), options))
}

/// Prints rows that no query has computed.
pub(crate) fn print_rows(output: Output, rows: &RecordBatch) -> Result<(), Failure> {
    write_answer(&*text_sink(output), rows).map(drop).map_err(failed)
}

/// Width of the terminal in columns, if stdout is a terminal.
fn terminal_width() -> Option<u16> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(io::stdout())?;
    (columns > 0).then_some(columns)
}
