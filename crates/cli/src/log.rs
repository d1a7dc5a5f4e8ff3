//! Logs: with `--log`, each message of a run is an event on stderr, with its time, its level, the
//! process that it comes from, and what it is about as fields: a line each, as JSON.
//!
//! Events come from the library, too (crate `tracing`). Without `--log` they have no listener.

use std::fmt::Debug;
use std::io::{Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::ValueEnum;
use millstream::Stats;
use serde_json::{Map, Value, json};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::report::left_out;
use crate::screen::erase;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct LogArguments {
    /// Write messages to stderr as log lines, with time, level and fields. There is no progress
    /// line then
    #[arg(long, value_name = "FORMAT", value_enum)]
    log: Option<LogFormat>,
    /// The least level that is logged
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info", requires = "log")]
    log_level: LogLevel,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum LogFormat {
    /// A JSON object a line
    Json,
    /// For reading: 2024-05-01T12:00:00.000000Z INFO  process=0 message key=value
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum LogLevel {
    /// Why something failed
    Error,
    /// Also what may be wrong: records that are left out, no rows for long, odd settings
    Warn,
    /// Also queries that begin and end, with their counters
    Info,
    /// Also processes that are started
    Debug,
}

/// The requested format and level, once known.
static ASKED: OnceLock<(LogFormat, LogLevel)> = OnceLock::new();
/// This process's number in its job.
static PROCESS: AtomicUsize = AtomicUsize::new(0);
/// The number of the statement whose query runs.
static STATEMENT: AtomicUsize = AtomicUsize::new(0);

impl LogArguments {
    /// From now on messages are events, if that was asked for.
    pub(crate) fn begin(self) {
        let Some(format) = self.log else { return };
        let level = match self.log_level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        };
        let _ = ASKED.set((format, self.log_level));
        let lines = tracing_subscriber::registry().with(Lines(format).with_filter(level));
        // There is one already only if this is called twice.
        let _ = tracing::subscriber::set_global_default(lines);
    }
}

/// Whether messages are events.
pub(crate) fn is_on() -> bool {
    ASKED.get().is_some()
}

/// The words that ask a further process of the job for the same.
pub(crate) fn words() -> Vec<String> {
    let name = |value: &dyn Debug| format!("{value:?}").to_lowercase();
    match ASKED.get() {
        Some((format, level)) => {
            vec!["--log".into(), name(format), "--log-level".into(), name(level)]
        }
        None => vec![],
    }
}

/// Events from now on come from this process of the job.
pub(crate) fn is_process(number: usize) {
    PROCESS.store(number, Ordering::Relaxed);
}

/// A message as an event; `false` if messages are none.
pub(crate) fn message(level: Level, text: &str) -> bool {
    if !is_on() {
        return false;
    }
    match level {
        Level::ERROR => tracing::error!("{text}"),
        Level::WARN => tracing::warn!("{text}"),
        _ => tracing::info!("{text}"),
    }
    true
}

/// Characters of a statement that are logged when it starts.
const STATEMENT_CHARS_MAX: usize = 300;

/// The query of this statement starts.
pub(crate) fn started(statement: usize, text: &str) {
    STATEMENT.store(statement, Ordering::Relaxed);
    let sql = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sql: String = sql.chars().take(STATEMENT_CHARS_MAX).collect();
    tracing::info!(statement, sql, "query started");
}

/// A query has ended, with these counters; `false` if that is to be said otherwise.
pub(crate) fn ended(line: &str, stats: &Stats) -> bool {
    let Stats { records, rows, windows, late_records, malformed_records, .. } = stats;
    if is_on() {
        let (seconds, statement) =
            (stats.elapsed_us as f64 / 1e6, STATEMENT.load(Ordering::Relaxed));
        macro_rules! event {
            ($level:ident) => {
                tracing::$level!(
                    statement,
                    records,
                    rows,
                    windows,
                    late_records,
                    malformed_records,
                    seconds,
                    "query ended: {line}"
                )
            };
        }
        match left_out(stats).is_empty() {
            true => event!(info),
            false => event!(warn),
        }
    }
    is_on()
}

/// Writes each event as a line.
struct Lines(LogFormat);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut time = String::new();
        // A clock that cannot be read leaves it empty.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut fields = String::new();
        // No field is without a value in JSON.
        let _ = JsonFields::new().format_fields(Writer::new(&mut fields), event);
        let mut fields: Map<String, Value> = serde_json::from_str(&fields).unwrap_or_default();
        let message = fields.remove("message").unwrap_or_default();
        let level = event.metadata().level();
        let process = PROCESS.load(Ordering::Relaxed);
        let mut line = match self.0 {
            LogFormat::Json => {
                let rest = fields.iter().map(|(key, value)| format!(",{}:{value}", json!(key)));
                format!(
                    r#"{{"time":{},"level":{},"process":{process},"message":{message}{}}}"#,
                    json!(time),
                    json!(level.as_str().to_lowercase()),
                    rest.collect::<String>()
                )
            }
            LogFormat::Text => {
                let text = message.as_str().unwrap_or_default();
                let text = millstream::program::harmless(text).replace('\n', "\n    ");
                let mut line = format!("{time} {level:5} process={process} {text}");
                for (key, value) in fields {
                    line.push_str(&format!(" {key}={value}"));
                }
                line
            }
        };
        line.push('\n');
        let _erased = erase();
        // Where that cannot be written to, nobody is left to be told.
        let _ = stderr().write_all(line.as_bytes());
    }
}
