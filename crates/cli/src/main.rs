//! The `millstream` program: runs SQL files, and explains them.
//!
//! Result rows go to stdout, everything else to stderr. Exit codes: 0 done, 1 the data or the run
//! failed, 2 wrong usage or SQL, 130 interrupted.

mod arguments;
mod check;
mod checkpoint;
mod closed;
mod completions;
mod console;
mod fabric;
mod failure;
mod init;
mod live;
mod log;
mod manual;
mod meeting;
mod node;
mod output;
mod processes;
mod ranks;
mod report;
mod run;
mod screen;
mod shell;
mod signals;
mod stack;
mod supervise;
mod trial;
mod watch;

use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::process::ExitCode;

use arguments::Command;
use failure::{fail, panicked, usage};

/// The answer to `millstream bench`.
const BENCH: &str = "benchmarks are in another program, millstream-lab\n  help: in a checkout, \
                     cargo run --release -p millstream-lab -- bench ysb";

fn main() -> ExitCode {
    failure::report_panics_politely();
    signals::let_large_files_fail();
    millstream_allocator::keep_large_apart();
    millstream::program::on_refused_memory(millstream_allocator::refused);
    stack::with_enough(command)
}

/// Prints help, the version, or a mistake in the arguments.
fn printed(error: &clap::Error) -> ExitCode {
    // For a mistake clap's code is 2, too.
    let code = error.exit_code();
    match error.print() {
        Err(e) if code == 0 && e.kind() != ErrorKind::BrokenPipe => {
            ExitCode::from(fail(&format!("the output: {e}")).code())
        }
        _ => ExitCode::from(code as u8),
    }
}

/// Runs the command of the arguments.
fn command() -> ExitCode {
    let arguments = match arguments::parse() {
        Ok(arguments) => arguments,
        Err(error) => return printed(&error),
    };
    if let Err(text) = millstream_cpu::check() {
        return ExitCode::from(usage(&text).code());
    }
    let result = catch_unwind(|| match arguments.command.as_ref().unwrap_or(&Command::Shell) {
        Command::Shell => shell::run(),
        Command::Run {
            script,
            output,
            stats_json,
            checkpoints,
            processes,
            ranks,
            settings,
            live,
            log,
        } => {
            let place = ranks.found(processes)?;
            if let Some(restarts) = checkpoints.restarts() {
                return supervise::run(restarts);
            }
            log.begin();
            output.check()?;
            let path = stats_json.as_deref();
            let settings = checkpoints.added_to(settings)?;
            let how = (&settings, &checkpoints.beginning());
            let party = match &place {
                Some(place) if place.rank > 0 => return node::rank(place),
                place => processes::Party::of(place.as_ref(), processes)?,
            };
            live::shown(live, &script.words(), |board| match party.count() {
                1 => run::run(script, *output, path, &settings, how.1, board),
                _ => processes::run(script, *output, path, party, how, board),
            })
        }
        Command::Jobs { json } => live::jobs(*json),
        Command::Why { job, json } => live::why_job(*job, *json),
        Command::Stop { job, drain } => live::stop(*job, *drain),
        Command::Explain { script, settings } => run::explain(script, settings),
        Command::Check { script, against, settings } => {
            check::run(script, against.as_deref(), settings)
        }
        Command::Checkpoint(command) => checkpoint::run(command),
        Command::Test(trial) => trial::run(trial),
        Command::Init { files } => init::run(files),
        Command::Bench { .. } => Err(usage(&BENCH)),
        Command::Fabric => fabric::list(),
        Command::Completions { shell } => completions::run(*shell),
        Command::Man { command } => manual::page(command.as_deref()),
        Command::Node { log } => {
            log.begin();
            node::run()
        }
    });
    match result.unwrap_or_else(|panic| Err(panicked(&*panic))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.code()),
    }
}
