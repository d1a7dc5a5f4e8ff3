//! The `millstream` program: runs SQL files, explains them, measures the engine.
//!
//! Result rows go to stdout, everything else to stderr. Exit codes: 0 done, 1 the data or the run
//! failed, 2 wrong usage or SQL, 130 interrupted.

mod bench;
mod channel;
mod fabric;
mod provenance;
mod report;
mod report_page;
mod run;

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(name = "millstream", version, about = "Continuous SQL over event streams")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the statements of a SQL file, or of the command line, one after the other
    #[command(after_help = run::settings_help())]
    Run {
        #[command(flatten)]
        script: Script,
        /// How result rows are written
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
        /// Write the counters of the run to this file, as JSON
        #[arg(long, value_name = "PATH")]
        stats_json: Option<PathBuf>,
        #[command(flatten)]
        settings: SettingArguments,
    },
    /// Show how the queries of a SQL file would run: logical plan, pipelines, state layout
    Explain {
        #[command(flatten)]
        script: Script,
        #[command(flatten)]
        settings: SettingArguments,
    },
    /// Run a benchmark workload on data generated in memory, and check the answer
    Bench(bench::Bench),
    /// Write DIR/report.html: plots of the lines that `bench --json` wrote into the folder's *.jsonl files
    Report {
        /// A folder of *.jsonl or *.json files, a JSON object a line
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// List fabrics (shared memory, TCP, RDMA), their devices and limits
    Fabric,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Script {
    /// A file of SQL statements; relative paths in it start from its directory
    #[arg(value_name = "FILE.sql")]
    file: Option<PathBuf>,
    /// SQL statements on the command line
    #[arg(short = 'e', long = "execute", value_name = "SQL")]
    execute: Option<String>,
}

#[derive(clap::Args)]
struct SettingArguments {
    /// Worker threads [default: the number of processors]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    workers: Option<String>,
    /// A setting, for example --set memory=1GB; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
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

fn main() -> ExitCode {
    run::report_panics_politely();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers; the rest are mistakes, for which clap's code is 2 too.
            let code = error.exit_code();
            let _ = error.print();
            return ExitCode::from(code as u8);
        }
    };
    let result = catch_unwind(|| match &arguments.command {
        Command::Run { script, format, stats_json, settings } => {
            run::run(script, *format, stats_json.as_deref(), settings)
        }
        Command::Explain { script, settings } => run::explain(script, settings),
        Command::Bench(bench) => bench.run(),
        Command::Report { folder } => report_page::run(folder),
        Command::Fabric => fabric::list(),
    });
    match result.unwrap_or_else(|panic| Err(run::panicked(&*panic))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Run) => ExitCode::from(1),
        Err(Failure::Usage) => ExitCode::from(2),
        Err(Failure::Interrupted) => ExitCode::from(130),
    }
}
