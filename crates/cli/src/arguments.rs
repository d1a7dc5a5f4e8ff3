//! The words of the command line: commands, their options, and their defaults.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use millstream::program::saved::{Beginning, Start};
use millstream::program::{SETTINGS, is_url};
use millstream_arguments::{ProcessArguments, SettingArguments};

use crate::failure::{Failure, is_supervised, usage};
use crate::log::LogArguments;
use crate::ranks::RankArguments;

#[derive(Parser)]
#[command(
    name = "millstream",
    version,
    about = "Continuous SQL over event streams",
    after_help = "Without a command: a shell, or the statements of standard input if that is no terminal. \
                  Options, a file and SQL without a command: those of `run`"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Statements as they are typed: the same as no command at all
    Shell,
    /// Run the statements of a SQL file, or of the command line, one after the other
    #[command(after_help = settings_help())]
    Run {
        #[command(flatten)]
        script: Script,
        #[command(flatten)]
        output: Output,
        /// Write the counters of the run to this file, as JSON
        #[arg(long, value_name = "PATH")]
        stats_json: Option<PathBuf>,
        #[command(flatten)]
        checkpoints: Box<CheckpointArguments>,
        #[command(flatten)]
        processes: ProcessArguments,
        #[command(flatten)]
        ranks: RankArguments,
        #[command(flatten)]
        settings: SettingArguments,
        #[command(flatten)]
        live: LiveArguments,
        #[command(flatten)]
        log: LogArguments,
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
        #[arg(value_parser = job_number)]
        job: Option<u32>,
        /// As JSON, with all that is known
        #[arg(long)]
        json: bool,
    },
    /// Let a running job end, as Ctrl-C does, and wait for its end
    Stop {
        /// The job's number, which `millstream jobs` lists; not needed if only one runs
        #[arg(value_parser = job_number)]
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
        /// Say for each stage how it would go on from the latest checkpoint in this directory
        #[arg(long, value_name = "DIR")]
        against: Option<PathBuf>,
        #[command(flatten)]
        settings: SettingArguments,
    },
    /// Look at the checkpoints in a directory, check and delete them
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Run queries over small inputs in many ways, and compare their rows with expected ones
    Test(Trial),
    /// Write a CREATE TABLE for files, with types, event time and watermark found in their data,
    /// and a query that runs as it is
    Init {
        /// Files, or patterns of files in quotes: a table each
        #[arg(value_name = "FILE_OR_PATTERN", required = true)]
        files: Vec<String>,
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
    /// A further process of a job: started by `run`, which tells it what to do
    #[command(hide = true)]
    Node {
        #[command(flatten)]
        log: LogArguments,
    },
    /// A command of another program, `millstream-lab`
    #[command(hide = true, disable_help_flag = true)]
    Bench {
        /// Whatever follows
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Script {
    /// A file of SQL statements, or - for standard input; relative paths in it start from its
    /// directory
    #[arg(value_name = "FILE.sql")]
    pub(crate) file: Option<PathBuf>,
    /// SQL statements on the command line
    #[arg(
        short = 'e',
        visible_short_alias = 'c',
        long = "execute",
        value_name = "SQL",
        allow_hyphen_values = true
    )]
    pub(crate) execute: Option<String>,
}

impl Script {
    /// As it was named on the command line.
    pub(crate) fn words(&self) -> String {
        match (&self.file, &self.execute) {
            (Some(path), _) => path.display().to_string(),
            (None, execute) => execute.clone().unwrap_or_default(),
        }
    }
}

/// How result rows are written to stdout.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Output {
    /// How result rows are written
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
    /// What stands between the fields of --format csv: one ASCII character, or \t [default: ,]
    #[arg(long, value_name = "CHAR", allow_hyphen_values = true, value_parser = delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// Tables with a line for each value: `\x` of the shell.
    #[arg(skip)]
    pub(crate) expanded: bool,
}

impl Output {
    /// Output in the format of a printing table, if the table names a format.
    pub(crate) fn with_format(self, format: Option<millstream::Format>) -> Output {
        let format = match format {
            None => return self,
            Some(millstream::Format::Table) => Format::Table,
            Some(millstream::Format::Csv) => Format::Csv,
            Some(millstream::Format::Ndjson) => Format::Ndjson,
        };
        Output { format, ..self }
    }

    /// A delimiter stands in CSV alone.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.delimiter.is_some() && self.format != Format::Csv {
            return Err(usage(&"--delimiter goes with --format csv"));
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
pub(crate) enum Format {
    /// Columns side by side, for reading
    Table,
    /// RFC 4180, with a header line
    Csv,
    /// One JSON object per row
    Ndjson,
}

/// Commands about the checkpoints in a directory.
#[derive(Subcommand)]
pub(crate) enum CheckpointCommand {
    /// List all checkpoints, the oldest first
    List {
        /// The directory
        dir: PathBuf,
    },
    /// Show what is in a checkpoint: splits and their positions, stages, outputs
    Show {
        /// The directory
        dir: PathBuf,
        /// The checkpoint's number [default: the latest]
        number: Option<u64>,
        /// Print the rows of this stage's state, as far as they have columns for people
        #[arg(long, value_name = "STAGE")]
        state: Option<String>,
        /// As JSON, with all that is known
        #[arg(long, conflicts_with = "state")]
        json: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Read all files of a checkpoint, and compare them with what was written
    Verify {
        /// The directory
        dir: PathBuf,
        /// The checkpoint's number [default: all]
        number: Option<u64>,
    },
    /// Delete a checkpoint, and the files that no other needs
    Delete {
        /// The directory
        dir: PathBuf,
        /// The checkpoint's number
        number: u64,
    },
}

/// Checkpoints of a run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CheckpointArguments {
    /// Keep checkpoints in this directory or at s3://BUCKET/PREFIX, and go on from the last one
    /// there
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Time between two checkpoints, for example 10s [default: 10 s]
    #[arg(long, value_name = "TIME", requires = "checkpoint")]
    every: Option<String>,
    /// Start the job again when it is killed, from its last checkpoint: so many times within an
    /// hour
    #[arg(long, value_name = "TIMES", requires = "checkpoint")]
    restart: Option<u32>,
    /// Begin anew; earlier checkpoints stay
    #[arg(long, conflicts_with = "restore")]
    fresh: bool,
    /// Go on from the checkpoint of this number, and not from the last one
    #[arg(long, value_name = "NUMBER")]
    restore: Option<u64>,
    /// Let a stage start empty whose state in the checkpoint does not fit; may be given several
    /// times
    #[arg(long, value_name = "STAGE")]
    allow_new: Vec<String>,
}

impl CheckpointArguments {
    /// The settings, with those of checkpoints.
    pub(crate) fn added_to(
        &self,
        settings: &SettingArguments,
    ) -> Result<SettingArguments, Failure> {
        let mut settings = settings.clone();
        if let Some(path) = &self.checkpoint {
            let path = checkpoint_path("--checkpoint", path).map_err(|e| usage(&e))?;
            settings.set.push(format!("checkpoint.path={path}"));
        }
        settings.set.extend(self.every.iter().map(|every| format!("checkpoint.interval={every}")));
        Ok(settings)
    }

    /// The number of restarts of a killed job; `None` in the supervised program.
    pub(crate) fn restarts(&self) -> Option<u32> {
        self.restart.filter(|_| !is_supervised())
    }

    /// Where the job begins.
    pub(crate) fn beginning(&self) -> Beginning {
        let start = match self.restore {
            Some(number) => Start::At(number),
            None if self.fresh => Start::Fresh,
            None => Start::Latest,
        };
        Beginning { start, allow_new: self.allow_new.clone() }
    }
}

/// A place in an option as the setting `checkpoint.path`. A relative path starts where the user
/// stands, whatever the script's directory.
pub(crate) fn checkpoint_path(option: &str, place: &Path) -> Result<String, String> {
    let absolute = match is_url(place) {
        true => Ok(place.to_path_buf()),
        false => std::path::absolute(place),
    };
    let absolute = absolute.map_err(|error| format!("{option} {}: {error}", place.display()))?;
    absolute.to_str().map(str::to_string).ok_or_else(|| format!("{option} needs a name in UTF-8"))
}

/// Live views of a run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LiveArguments {
    /// Show no progress line and no closing line: rows, warnings and errors alone
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Serve metrics for Prometheus at http://ADDRESS/metrics, and /healthz
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Serve a page that shows the running query at http://ADDRESS/
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) ui: Option<SocketAddr>,
}

/// An address to listen on, as it is written in an option.
fn address(text: &str) -> Result<SocketAddr, String> {
    let numbers = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numbers.as_deref().unwrap_or(text).parse().map_err(|_| {
        "expected ADDRESS:PORT, for example 127.0.0.1:9464, or 0.0.0.0:9464 for all who can reach \
         this machine"
            .to_string()
    })
}

/// A job's number, as it is written in a command.
pub(crate) fn job_number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "a job is a number, and `millstream jobs` lists them".into())
}

/// How people lay out a directory, for `--help` and where there is no case.
pub(crate) const TRIAL_HELP: &str = "\
A case is a directory:
  DIR/query.sql      the query, with its CREATE TABLE statements as they are in production
  DIR/clicks.csv     what table clicks has in the test (or clicks.ndjson), whatever its connector
  DIR/expected.csv   the rows of its SELECT (or expected.ndjson), in any order
  DIR/out.expected.csv   the rows that it inserts into table out (or out.expected.ndjson)
or a file NAME.sql beside a file NAME.expected, which reads what its tables say. Directories of
cases may stand in each other.

Exit codes: 0 all passed; 1 a case failed; 2 wrong usage, or there is no case";

#[derive(clap::Args)]
#[command(after_help = TRIAL_HELP)]
pub(crate) struct Trial {
    /// Directories of cases, or the SQL files of some
    #[arg(value_name = "DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Write the rows that come as the expected ones
    #[arg(long)]
    pub(crate) update: bool,
    /// Run each case once, with one worker, and not in all ways
    #[arg(long)]
    pub(crate) quick: bool,
    /// How many orders in which batches are taken are drawn by chance
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) seeds: u64,
    /// Run on so many processes, too; 1: on this one alone
    #[arg(long, value_name = "P", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) processes: u64,
    /// How long a run may take, seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: u64,
    /// A setting of all runs, for example --set memory=64MB; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// A time, as it is written in an option.
fn seconds(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| "expected whole seconds, 1 or more".into())
}

/// The arguments of this process.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(words(std::env::args_os().collect())).map_err(with_meant)
}

/// The words of the command line, with the command `run` before a script, SQL or options without a
/// command.
fn words(mut words: Vec<OsString>) -> Vec<OsString> {
    let Some(first) = words.get(1) else { return words };
    let text = first.to_string_lossy();
    let command = Arguments::command();
    let is_command = text == "help" || command.find_subcommand(&*text).is_some();
    let is_option = text.starts_with('-') && !["-h", "--help", "-V", "--version"].contains(&&*text);
    let is_script = text.ends_with(".sql") || is_sql(&text) || Path::new(first).is_file();
    if !is_command && (is_option || is_script) {
        words.insert(1, "run".into());
    }
    words
}

/// Adds the most similar command to the error of an unknown command; clap suggests none for a
/// short name.
fn with_meant(mut error: clap::Error) -> clap::Error {
    let command = Arguments::command();
    let names = command.get_subcommands().filter(|command| !command.is_hide_set());
    if let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand)
        && error.get(ContextKind::SuggestedSubcommand).is_none()
        && let Some(meant) =
            millstream::program::closest(wrong, names.map(|command| command.get_name()))
    {
        let meant = ContextValue::Strings(vec![meant.to_string()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
    error
}

/// Whether a word in the place of a script is SQL itself.
pub(crate) fn is_sql(word: &str) -> bool {
    let is_text = word.trim().contains(char::is_whitespace) && !word.ends_with(".sql");
    is_text && !Path::new(word).exists()
}

/// The settings, for `--help`.
fn settings_help() -> String {
    let mut text = String::from("Settings (--set KEY=VALUE, or SET 'KEY' = 'VALUE' in SQL):\n");
    for (key, form, what) in SETTINGS {
        text.push_str(&format!("  {key:<20} {what}: {form}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_numbers_or_localhost() {
        assert_eq!(address("localhost:9464").unwrap().to_string(), "127.0.0.1:9464");
        assert_eq!(address("[::1]:80").unwrap().port(), 80);
        for wrong in ["9464", ":80", "localhost", "localhost:x"] {
            assert!(address(wrong).unwrap_err().contains("127.0.0.1:9464"), "{wrong}");
        }
    }
}
