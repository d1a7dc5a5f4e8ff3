//! Displays of a running script: the progress line, the local socket, metrics and the page. All
//! displays read the [`StatusBoard`].

mod ask;
mod board;
mod http;
mod local;
mod metrics;
mod progress;
mod rates;
mod ui;
mod waiting;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::arguments::LiveArguments;
use crate::console::{be_quiet, note, warn};
use crate::failure::{Failure, usage};

pub(crate) use ask::{jobs, stop, why_job};
pub(crate) use board::{StatusBoard, StopAnswer};

/// Why nobody can listen on an address; `other` is where the program listens already.
fn not_bound(address: SocketAddr, error: &io::Error, other: Option<SocketAddr>) -> String {
    let help = match (error.kind(), other) {
        (ErrorKind::AddrInUse, Some(other)) if other.port() == address.port() => {
            let help = "choose another port for one of them";
            return format!("--metrics has {other}\n  help: {help}");
        }
        (ErrorKind::AddrNotAvailable, _) => {
            "no interface of this machine has that address: 127.0.0.1 is for this machine alone, \
             and 0.0.0.0 for all who can reach it"
        }
        (ErrorKind::PermissionDenied, _) => "choose a port from 1024 on, or 0 for any that is free",
        _ => "choose another port, or 0 for any that is free",
    };
    format!("cannot listen on {address}: {error}\n  help: {help}")
}

/// Runs a script, and shows it. A port that is in use is an error before anything runs.
pub(crate) fn shown<T>(
    arguments: &LiveArguments,
    script: &str,
    run: impl FnOnce(&Arc<StatusBoard>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let board = Arc::new(StatusBoard::new(script));
    for (option, address, answer) in [
        ("--metrics", arguments.metrics, metrics::answer as http::Answering),
        ("--ui", arguments.ui, ui::answer),
    ] {
        let Some(address) = address else { continue };
        let other = arguments.metrics.filter(|_| option == "--ui");
        let bound = http::serve(address, board.clone(), answer)
            .map_err(|error| usage(&format!("{option}: {}", not_bound(address, &error, other))))?;
        if address.ip().is_unspecified() {
            warn(&format!("{option}: all who can reach this machine can read {bound}"));
        }
        if address.port() == 0 {
            note(&format!("{option}: http://{bound}/"));
        }
    }
    if arguments.quiet {
        be_quiet();
    }
    if arguments.ui.is_some() {
        let sampled = board.clone();
        rates::every_second(move || sampled.sample());
    }
    let show = Show::begin(&board, arguments.quiet);
    let result = run(&board);
    show.until_the_program_ends();
    result
}

/// Shows a status board on the terminal and to readers of the local socket, until it is dropped.
pub(crate) struct Show {
    _line: Option<progress::Line>,
    /// Without it, the job runs all the same; it cannot be asked.
    socket: Option<local::Listening>,
}

impl Show {
    pub(crate) fn begin(board: &Arc<StatusBoard>, quiet: bool) -> Show {
        let socket = local::open(board);
        Show { _line: if quiet { None } else { progress::start(board) }, socket }
    }

    /// Keeps the connections of stop requests open until the program's end.
    fn until_the_program_ends(mut self) {
        std::mem::forget(self.socket.take());
    }
}
