//! The `millstream` program: runs SQL files, explains them, measures the engine.
//!
//! Result rows go to stdout, everything else to stderr. Exit codes: 0 done, 1 the data or the run
//! failed, 2 wrong usage or SQL, 130 interrupted.

mod allocator;
mod bench;
mod bench_options;
mod bench_shuffle;
mod check;
mod closed;
mod completions;
mod console;
mod fabric;
mod init;
mod live;
mod log;
mod manual;
mod node;
mod processes;
mod report;
mod run;
mod screen;
mod shell;
mod signals;
mod trial;
mod watch;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::{self, JoinHandle};

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use millstream::cluster::{self, PROCESSES_MAX};
use millstream_lab::report_page;

#[derive(Parser)]
#[command(
    name = "millstream",
    version,
    about = "Continuous SQL over event streams",
    after_help = "Without a command: a shell, or the statements of standard input if that is no terminal. \
                  Options, a file and SQL without a command: those of `run`"
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Statements as they are typed: the same as no command at all
    Shell,
    /// Run the statements of a SQL file, or of the command line, one after the other
    #[command(after_help = run::settings_help())]
    Run {
        #[command(flatten)]
        script: Script,
        #[command(flatten)]
        output: Output,
        /// Write the counters of the run to this file, as JSON
        #[arg(long, value_name = "PATH")]
        stats_json: Option<PathBuf>,
        #[command(flatten)]
        processes: ProcessArguments,
        #[command(flatten)]
        settings: SettingArguments,
        #[command(flatten)]
        live: live::LiveArguments,
        #[command(flatten)]
        log: log::LogArguments,
    },
    /// List the jobs of this user that run
    Jobs {
        /// As JSON, an object a line
        #[arg(long)]
        json: bool,
    },
    /// Say what a running job is doing, and why no rows come
    Why {
        /// The job's number, which `millstream jobs` lists; not needed if only one runs
        #[arg(value_parser = live::job_number)]
        job: Option<u32>,
        /// As JSON, with all that is known
        #[arg(long)]
        json: bool,
    },
    /// Let a running job end, as Ctrl-C does, and wait for its end
    Stop {
        /// The job's number, which `millstream jobs` lists; not needed if only one runs
        #[arg(value_parser = live::job_number)]
        job: Option<u32>,
        /// Read no more, fire the windows that are open as if the input had ended, and end well
        #[arg(long)]
        drain: bool,
    },
    /// Show how the queries of a SQL file would run: logical plan, pipelines, state layout
    Explain {
        #[command(flatten)]
        script: Script,
        #[command(flatten)]
        settings: SettingArguments,
    },
    /// Find the mistakes in a SQL file, all at once: parse and plan it, run nothing
    Check {
        #[command(flatten)]
        script: Script,
        #[command(flatten)]
        settings: SettingArguments,
    },
    /// Run queries over small inputs in many ways, and compare their rows with expected ones
    Test(trial::Trial),
    /// Write a CREATE TABLE for files, with types, event time and watermark found in their data,
    /// and a query that runs as it is
    Init {
        /// Files, or patterns of files in quotes: a table each
        #[arg(value_name = "FILE_OR_PATTERN", required = true)]
        files: Vec<String>,
    },
    /// Run a benchmark workload on data generated in memory, and check the answer
    Bench(Box<bench::Bench>),
    /// Write DIR/report.html: plots of the lines that `bench --json` wrote into the folder's
    /// *.jsonl files
    Report {
        /// A folder of *.jsonl or *.json files, a JSON object a line
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// List fabrics (shared memory, TCP, RDMA), their devices and limits
    Fabric,
    /// Write what a shell needs to complete the arguments of this program
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual page of this program, or of one of its commands
    Man {
        /// The command, for example run
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
    /// A further process of a job: started by `run` and `bench`, which tell it what to do
    #[command(hide = true)]
    Node {
        #[command(flatten)]
        log: log::LogArguments,
    },
    /// A process of `bench shuffle`, which starts it
    #[command(hide = true, name = bench_shuffle::CHILD)]
    ShuffleNode {
        /// The options, as one word
        options: String,
        /// Its number
        process: usize,
    },
}

#[derive(clap::Args)]
struct ProcessArguments {
    /// Processes to run queries on, all on this machine; `memory` and `workers` are per process
    /// [default: 1; of `bench shuffle` 2]
    #[arg(long, value_name = "P", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=PROCESSES_MAX as u64))]
    processes: Option<u64>,
    /// What processes are connected by, if there are several; `channel`: what it runs over
    /// [default: shm]
    #[arg(long, value_enum)]
    fabric: Option<FabricName>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum FabricName {
    /// Shared memory
    Shm,
    /// The loopback interface
    Tcp,
    /// An RDMA device
    Verbs,
}

impl FabricName {
    fn library(self) -> cluster::FabricName {
        match self {
            FabricName::Shm => cluster::FabricName::Shm,
            FabricName::Tcp => cluster::FabricName::Tcp,
            FabricName::Verbs => cluster::FabricName::Verbs,
        }
    }
}

impl ProcessArguments {
    fn count(&self) -> usize {
        self.given().unwrap_or(1)
    }

    /// How many were asked for.
    fn given(&self) -> Option<usize> {
        self.processes.map(|processes| processes as usize)
    }

    fn fabric(&self) -> FabricName {
        self.fabric.unwrap_or(FabricName::Shm)
    }

    /// Who names a fabric should not believe that one process uses it.
    fn check_fabric(&self) {
        if self.count() == 1 && self.fabric.is_some() {
            console::note(
                &"--fabric has no effect: it connects processes, and there is one (--processes)",
            );
        }
    }
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Script {
    /// A file of SQL statements, or - for standard input; relative paths in it start from its
    /// directory
    #[arg(value_name = "FILE.sql")]
    file: Option<PathBuf>,
    /// SQL statements on the command line
    #[arg(
        short = 'e',
        visible_short_alias = 'c',
        long = "execute",
        value_name = "SQL",
        allow_hyphen_values = true
    )]
    execute: Option<String>,
}

impl Script {
    /// As it was named on the command line.
    fn words(&self) -> String {
        match (&self.file, &self.execute) {
            (Some(path), _) => path.display().to_string(),
            (None, execute) => execute.clone().unwrap_or_default(),
        }
    }
}

#[derive(clap::Args)]
struct SettingArguments {
    /// Worker threads of each process [default: processors / processes]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    workers: Option<String>,
    /// A setting, for example --set memory=1GB; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// How result rows are written to stdout.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Output {
    /// How result rows are written
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// What stands between the fields of --format csv: one ASCII character, or \t [default: ,]
    #[arg(long, value_name = "CHAR", allow_hyphen_values = true, value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Tables with a line for each value: `\x` of the shell.
    #[arg(skip)]
    expanded: bool,
}

impl Output {
    /// In the format of a table that prints its rows, if it has one of its own.
    fn with_format(self, format: Option<millstream::Format>) -> Output {
        let format = match format {
            None => return self,
            Some(millstream::Format::Table) => Format::Table,
            Some(millstream::Format::Csv) => Format::Csv,
            Some(millstream::Format::Ndjson) => Format::Ndjson,
        };
        Output { format, ..self }
    }

    /// A delimiter stands in CSV alone.
    fn check(&self) -> Result<(), Failure> {
        if self.delimiter.is_some() && self.format != Format::Csv {
            return Err(console::usage(&"--delimiter goes with --format csv"));
        }
        Ok(())
    }
}

/// As the option `csv.field-delimiter` takes them.
fn delimiter(text: &str) -> Result<u8, String> {
    match if text == "\\t" { b"\t" } else { text.as_bytes() } {
        [b'"' | b'\n' | b'\r' | b'\0'] => Err("it cannot stand between fields".into()),
        [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() => Ok(*byte),
        _ => Err("expected one ASCII character, no letter and no digit, or \\t".into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// Columns side by side, for reading
    Table,
    /// RFC 4180, with a header line
    Csv,
    /// One JSON object per row
    Ndjson,
}

/// Why the program ends otherwise than well: the message is on stderr already.
enum Failure {
    /// Wrong usage or SQL.
    Usage,
    /// The data, the machine or the run.
    Run,
    /// Ctrl-C.
    Interrupted,
}

/// Bytes of stack that a command has.
const STACK_BYTES: u64 = 8 << 20;

fn main() -> ExitCode {
    console::report_panics_politely();
    signals::let_large_files_fail();
    allocator::keep_large_apart();
    millstream::on_refused_memory(allocator::refused);
    match allocator::stack_limit() {
        limit if limit < STACK_BYTES => with_a_larger_stack(),
        _ => command(),
    }
}

/// Runs the command in a thread of its own, since the system limits the stack of the first one
/// (`ulimit -s`).
fn with_a_larger_stack() -> ExitCode {
    // Signals come to the thread that runs the command, as if there were no other.
    let held = signals::Held::all();
    let run = move || {
        drop(held);
        command()
    };
    let thread = thread::Builder::new().name("main".into()).stack_size(STACK_BYTES as usize);
    match thread.spawn(run).map(JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(panic)) => ExitCode::from(code(&console::panicked(&*panic))),
        Err(error) => {
            let help = "raise the limit of stacks (ulimit -s), or of address space (ulimit -v)";
            let message = format!("the system gives no stack of 8 MB: {error}\n  help: {help}");
            ExitCode::from(code(&console::fail(&message)))
        }
    }
}

/// Runs what the arguments ask for.
fn command() -> ExitCode {
    let arguments = match Arguments::try_parse_from(words(std::env::args_os().collect())) {
        Ok(arguments) => arguments,
        Err(error) => {
            let error = with_meant(error);
            // Help and version are answers; the rest are mistakes, for which clap's code is 2 too.
            let code = error.exit_code();
            return match error.print() {
                Err(e) if code == 0 && e.kind() != ErrorKind::BrokenPipe => {
                    ExitCode::from(crate::code(&console::fail(&format!("the output: {e}"))))
                }
                _ => ExitCode::from(code as u8),
            };
        }
    };
    let result = catch_unwind(|| match arguments.command.as_ref().unwrap_or(&Command::Shell) {
        Command::Shell => shell::run(),
        Command::Run { script, output, stats_json, processes, settings, live, log } => {
            log.begin();
            let path = stats_json.as_deref();
            output.check()?;
            processes.check_fabric();
            live::shown(live, &script.words(), |desk| match processes.count() {
                1 => run::run(script, *output, path, settings, desk),
                _ => processes::run(script, *output, path, processes, settings, desk),
            })
        }
        Command::Jobs { json } => live::jobs(*json),
        Command::Why { job, json } => live::why_job(*job, *json),
        Command::Stop { job, drain } => live::stop(*job, *drain),
        Command::Explain { script, settings } => run::explain(script, settings),
        Command::Check { script, settings } => check::run(script, settings),
        Command::Test(trial) => trial.run(),
        Command::Init { files } => init::run(files),
        Command::Bench(bench) => bench.run(),
        Command::Report { folder } => report_page::run(folder).map_err(console::told),
        Command::Fabric => fabric::list(),
        Command::Completions { shell } => completions::run(*shell),
        Command::Man { command } => manual::page(command.as_deref()),
        Command::Node { log } => {
            log.begin();
            node::run()
        }
        Command::ShuffleNode { options, process } => bench_shuffle::child(options, *process),
    });
    match result.unwrap_or_else(|panic| Err(console::panicked(&*panic))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(code(&failure)),
    }
}

/// The words of the command line, with the command `run` before a script, SQL or options without a
/// command.
fn words(mut words: Vec<OsString>) -> Vec<OsString> {
    let Some(first) = words.get(1) else { return words };
    let text = first.to_string_lossy();
    let command = Arguments::command();
    let is_command = text == "help" || command.find_subcommand(&*text).is_some();
    let is_option = text.starts_with('-') && !["-h", "--help", "-V", "--version"].contains(&&*text);
    let is_script = text.ends_with(".sql") || run::is_sql(&text) || Path::new(first).is_file();
    if !is_command && (is_option || is_script) {
        words.insert(1, "run".into());
    }
    words
}

/// A command that is none, with the one that is most like it: clap knows none for a short one.
fn with_meant(mut error: clap::Error) -> clap::Error {
    let command = Arguments::command();
    let names = command.get_subcommands().filter(|command| !command.is_hide_set());
    if let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand)
        && error.get(ContextKind::SuggestedSubcommand).is_none()
        && let Some(meant) = millstream::closest(wrong, names.map(|command| command.get_name()))
    {
        let meant = ContextValue::Strings(vec![meant.to_string()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
    error
}

/// The program's exit code.
fn code(failure: &Failure) -> u8 {
    match failure {
        Failure::Run => 1,
        Failure::Usage => 2,
        Failure::Interrupted => 130,
    }
}
