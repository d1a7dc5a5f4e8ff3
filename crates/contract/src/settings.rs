//! The settings of a job: `SET 'key' = 'value'` in SQL, `--set key=value` on the command line.

use std::path::PathBuf;

use strsim::osa_distance;

use crate::available::available_memory_bytes;
use crate::place::checked;
use crate::wording::counted;
use crate::zone::Zone;

pub use crate::available::machine_memory_bytes;
pub use crate::place::{is_bucket, is_url};

/// Everything that can be set for a job, with its default.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `workers`: worker threads. Default: the number of processors.
    pub workers: usize,
    /// `memory`: budget in bytes for state, buffers and queues. Default: half of what the
    /// process may use, of the machine, by its cgroup and by `ulimit -v`.
    pub memory_bytes: u64,
    /// `epoch.bytes`: input bytes per worker after which an epoch ends.
    pub epoch_bytes: u64,
    /// `epoch.max_idle_ms`: an epoch with changes ends after this long without input.
    pub epoch_max_idle_ms: u64,
    /// `fragment.bytes`: bytes of rows in one fragment after which an epoch ends. Rows that are
    /// passed through are shipped when there is a quarter of that.
    pub fragment_bytes: u64,
    /// `fragment.mode`: whether fragments aggregate or pass rows through.
    pub fragment_mode: FragmentMode,
    /// `batch.rows`: rows in a batch at most.
    pub batch_rows: usize,
    /// `watermark.max_ahead`: how far ahead of the clock a record may push the watermark.
    pub max_ahead: MaxAhead,
    /// `allowed_lateness`: how much longer than its end a window waits for late records,
    /// microseconds. It delays firing by as much: a fired window never changes.
    pub allowed_lateness_us: i64,
    /// `windows.pack`: sessions over input that ends are computed a gap at a time unless this is 0,
    /// and tumbling windows over input that ends are packed, as many as this has room
    /// for, microseconds: they share state and fire together. Panes have a quarter of it. `None`:
    /// [`PACK_US`](crate::plan::PACK_US), or more where input is small
    /// ([`Plan::pack_small_input`](crate::plan::Plan::pack_small_input)).
    pub pack_us: Option<i64>,
    /// `join.within`: the event times of two rows that are joined without a window are at most so
    /// far apart, microseconds. `None`: however far.
    pub join_within_us: Option<i64>,
    /// `lookup.reload`: how often a lookup join looks whether its side table has changed,
    /// microseconds; 0: never.
    pub lookup_reload_us: i64,
    /// `time_zone`: where windows over TIMESTAMP_LTZ begin at full hours and days, and in which
    /// such times are written; `None`: UTC.
    pub time_zone: Option<Zone>,
    /// `exchange`: how the workers' parts come together.
    pub exchange: Exchange,
    /// `simulate`: run all workers on one thread in virtual time, every choice drawn from this
    /// seed.
    pub simulate: Option<u64>,
    /// Checkpoints of the job.
    pub checkpoint: CheckpointSettings,
    /// Whether workers note how long each part of their work takes. No key sets it: `EXPLAIN
    /// ANALYZE` does.
    pub timed: bool,
}

/// Checkpoints of a job: how often, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// `checkpoint.path`: the directory of the checkpoints, or their place in a bucket
    /// ([`is_bucket`]); `None`: the job has none.
    pub path: Option<PathBuf>,
    /// `checkpoint.interval`: time between two checkpoints, microseconds.
    pub every_us: i64,
    /// `checkpoint.retained`: how many stay.
    pub retained: usize,
    /// `checkpoint.tolerance`: the job ends if no checkpoint can be written for so long,
    /// microseconds.
    pub tolerance_us: i64,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        let (every_us, tolerance_us) = (10_000_000, 600_000_000);
        CheckpointSettings { path: None, every_us, retained: 3, tolerance_us }
    }
}

/// How far ahead of the clock a record may push the watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MaxAhead {
    /// A day in a live table, without limit in any other: who is late in a file depends on the file
    /// alone.
    #[default]
    Auto,
    /// Microseconds.
    Us(i64),
    /// As far as it likes.
    Unlimited,
}

impl MaxAhead {
    /// In microseconds, for a table that is live or not; see [`crate::table::Table::live`].
    pub fn us(self, live: bool) -> Option<i64> {
        match self {
            MaxAhead::Auto => live.then_some(86_400_000_000),
            MaxAhead::Us(us) => Some(us),
            MaxAhead::Unlimited => None,
        }
    }
}

/// How what belongs to a key comes together from all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exchange {
    /// Every worker aggregates what it reads, and partial state is merged.
    #[default]
    LateMerge,
    /// Half of the workers read and partition records, the others aggregate them: the traditional
    /// way, to compare with.
    Repartition,
    /// Every worker reads, partitions and aggregates.
    Interleaved,
}

impl Exchange {
    /// The exchange of this name.
    pub fn from_name(name: &str) -> Option<Exchange> {
        Some(match name.to_ascii_lowercase().as_str() {
            "late-merge" => Exchange::LateMerge,
            "repartition" => Exchange::Repartition,
            "interleaved" => Exchange::Interleaved,
            _ => return None,
        })
    }
}

/// How a worker treats rows whose keys another worker leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentMode {
    /// Decided by measured costs, from how many rows of an epoch are distinct.
    Auto,
    /// Always look the key up and update in place.
    Aggregate,
    /// Always append, leaving all merging to the leader.
    PassThrough,
    /// One table for the keys of all leaders, as long as it lies in a near cache.
    Joint,
}

/// A setting that does not exist or a value that does not fit it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting '{key}': {message}\n  help: {help}")]
pub struct SettingError {
    /// The key as given.
    pub key: String,
    /// Description of the mistake.
    pub message: String,
    /// Advice.
    pub help: String,
}

/// Every key with the form of its values and what it does, for messages and documentation.
pub const SETTINGS: &[(&str, &str, &str)] = &[
    (
        "workers",
        "1 to 256",
        "worker threads of a process; default: the processors, shared among the processes",
    ),
    (
        "memory",
        "'1GB', '512MB' or bytes",
        "a process's budget for state, buffers and queues; default: half of the memory there is (of the machine, its cgroup or ulimit -v), shared among the processes",
    ),
    ("epoch.bytes", "'64MB' or bytes", "input per worker after which an epoch ends"),
    ("epoch.max_idle_ms", "milliseconds", "idle time after which an open epoch ends"),
    (
        "fragment.bytes",
        "'8MB' or bytes",
        "rows in a fragment after which an epoch ends; a quarter where rows are passed through",
    ),
    (
        "fragment.mode",
        "auto, aggregate, pass-through or joint",
        "treatment of rows of other leaders",
    ),
    ("batch.rows", "1 to 1048576", "rows in a batch at most"),
    (
        "watermark.max_ahead",
        "auto, none, '1 day' or '10 s'",
        "how far ahead of the clock a record may push the watermark; auto: a day in pipes and endless tables, none in files",
    ),
    (
        "allowed_lateness",
        "'5 s', 36500 days at the most",
        "how much longer than its end a window waits for late records",
    ),
    (
        "windows.pack",
        "auto, '1 s', 0 for none, 1 hour at the most",
        "short windows over input that ends are computed together, as many as this has room for; auto: 1 s, for small files 1 hour",
    ),
    (
        "join.within",
        "'1 hour', 3650 days at the most, or none",
        "how far apart the event times of two rows may be that are joined without a window",
    ),
    (
        "lookup.reload",
        "'1 s', 0 for never, 1 day at the most",
        "how often lookup joins look whether a file that they have read has changed",
    ),
    (
        "time_zone",
        "'UTC', 'Europe/Zurich' or '+02:00'",
        "where windows over TIMESTAMP_LTZ begin at full hours and days, and in which such times are written",
    ),
    (
        "checkpoint.path",
        "a directory or none",
        "where checkpoints are kept, from which the job goes on when it is started again",
    ),
    ("checkpoint.interval", "'10 s', 10 ms to 1 day", "time between two checkpoints"),
    ("checkpoint.retained", "1 to 1000", "how many checkpoints stay; older ones are deleted"),
    (
        "checkpoint.tolerance",
        "'10 min', 30 days at the most",
        "the job ends if no checkpoint can be written for so long",
    ),
    (
        "exchange",
        "late-merge, repartition or interleaved",
        "how workers bring together what belongs to a key; all but the first are there to compare with",
    ),
    (
        "simulate",
        "a seed (a number) or none",
        "runs all workers on one thread in virtual time, every choice drawn from the seed",
    ),
];

/// More would hold results back without making anything faster.
const PACK_US_MAX: i64 = 3_600_000_000;

/// Workers would stand most of the time.
const EVERY_US_MIN: i64 = 10_000;
const EVERY_US_MAX: i64 = 86_400_000_000;

/// Until then somebody has looked at the store.
const TOLERANCE_US_MAX: i64 = 30 * 86_400_000_000;

/// Ten years, as for the intervals that conditions say.
const JOIN_US_MAX: i64 = 3_650 * 86_400_000_000;

/// A user with a longer interval may as well start the query again.
const RELOAD_US_MAX: i64 = 86_400_000_000;

/// A hundred years: every window fires before the end of time.
const LATENESS_US_MAX: i64 = 36_500 * 86_400_000_000;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            workers: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes: available_memory_bytes() / 2,
            epoch_bytes: 64 << 20,
            epoch_max_idle_ms: 100,
            fragment_bytes: 8 << 20,
            fragment_mode: FragmentMode::Auto,
            batch_rows: 16 * 1024,
            max_ahead: MaxAhead::Auto,
            allowed_lateness_us: 0,
            pack_us: None,
            join_within_us: None,
            lookup_reload_us: 1_000_000,
            time_zone: None,
            exchange: Exchange::LateMerge,
            simulate: None,
            checkpoint: CheckpointSettings::default(),
            timed: false,
        }
    }
}

impl Settings {
    /// [`Settings::epoch_max_idle_ms`] in microseconds.
    pub fn epoch_max_idle_us(&self) -> i64 {
        self.epoch_max_idle_ms as i64 * 1_000
    }

    /// Sets `key` from its textual `value`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let value = value.trim();
        match key {
            "workers" => self.workers = number(key, value, 1, 256)? as usize,
            "memory" => self.memory_bytes = bytes(key, value, 16 << 20)?,
            "epoch.bytes" => self.epoch_bytes = bytes(key, value, 1)?,
            "epoch.max_idle_ms" => self.epoch_max_idle_ms = number(key, value, 1, 3_600_000)?,
            "fragment.bytes" => self.fragment_bytes = bytes(key, value, 1)?,
            "fragment.mode" => {
                self.fragment_mode = match value.to_ascii_lowercase().as_str() {
                    "auto" => FragmentMode::Auto,
                    "aggregate" => FragmentMode::Aggregate,
                    "pass-through" => FragmentMode::PassThrough,
                    "joint" => FragmentMode::Joint,
                    _ => return Err(wrong(key, value)),
                }
            }
            "batch.rows" => self.batch_rows = number(key, value, 1, 1 << 20)? as usize,
            "watermark.max_ahead" => {
                self.max_ahead = match value.to_ascii_lowercase().as_str() {
                    "auto" => MaxAhead::Auto,
                    "none" => MaxAhead::Unlimited,
                    _ => MaxAhead::Us(duration_us(key, value, i64::MAX)?),
                }
            }
            "allowed_lateness" => {
                self.allowed_lateness_us = duration_us(key, value, LATENESS_US_MAX)?;
            }
            "windows.pack" if value.eq_ignore_ascii_case("auto") => self.pack_us = None,
            "windows.pack" => self.pack_us = Some(duration_us(key, value, PACK_US_MAX)?),
            "join.within" if value.eq_ignore_ascii_case("none") => self.join_within_us = None,
            "join.within" => self.join_within_us = Some(duration_us(key, value, JOIN_US_MAX)?),
            "lookup.reload" => self.lookup_reload_us = duration_us(key, value, RELOAD_US_MAX)?,
            // Flink's name for it.
            "time_zone" | "table.local-time-zone" => {
                let zone = value.parse().map_err(|()| wrong("time_zone", value))?;
                self.time_zone = Some(zone).filter(|zone: &Zone| zone.to_string() != "UTC");
            }
            "checkpoint.path" if value.eq_ignore_ascii_case("none") => self.checkpoint.path = None,
            "checkpoint.path" if value.is_empty() => return Err(wrong(key, value)),
            "checkpoint.path" => self.checkpoint.path = Some(place(key, value)?),
            "checkpoint.interval" => {
                let us = duration_us(key, value, EVERY_US_MAX)?;
                self.checkpoint.every_us =
                    Some(us).filter(|us| *us >= EVERY_US_MIN).ok_or_else(|| wrong(key, value))?;
            }
            "checkpoint.retained" => {
                self.checkpoint.retained = number(key, value, 1, 1000)? as usize;
            }
            "checkpoint.tolerance" => {
                self.checkpoint.tolerance_us = duration_us(key, value, TOLERANCE_US_MAX)?;
            }
            "exchange" => {
                self.exchange = Exchange::from_name(value).ok_or_else(|| wrong(key, value))?;
            }
            "simulate" if value.eq_ignore_ascii_case("none") => self.simulate = None,
            "simulate" => self.simulate = Some(number(key, value, 0, u64::MAX)?),
            _ => return Err(unknown(key)),
        }
        Ok(())
    }
}

fn wrong(key: &str, value: &str) -> SettingError {
    let form = SETTINGS.iter().find(|s| s.0 == key).map_or("", |s| s.1);
    SettingError {
        key: key.to_string(),
        message: format!("'{value}' does not fit"),
        help: format!("write {form}"),
    }
}

fn unknown(key: &str) -> SettingError {
    let names: Vec<&str> = SETTINGS.iter().map(|s| s.0).collect();
    let help = match closest(key, names.iter().copied()) {
        Some(name) => format!("did you mean '{name}'?"),
        None => format!("the settings are {}", names.join(", ")),
    };
    SettingError { key: key.to_string(), message: "there is no such setting".into(), help }
}

fn number(key: &str, value: &str, min: u64, max: u64) -> Result<u64, SettingError> {
    value.parse().ok().filter(|n| (min..=max).contains(n)).ok_or_else(|| wrong(key, value))
}

fn place(key: &str, value: &str) -> Result<PathBuf, SettingError> {
    let refused = |(message, help)| SettingError { key: key.to_string(), message, help };
    checked(value).map_err(refused)
}

fn duration_us(key: &str, value: &str, max: i64) -> Result<i64, SettingError> {
    parse_duration_us(value).filter(|us| *us <= max).ok_or_else(|| wrong(key, value))
}

fn bytes(key: &str, value: &str, min: u64) -> Result<u64, SettingError> {
    let parsed = parse_bytes(value).ok_or_else(|| wrong(key, value))?;
    if parsed < min {
        return Err(SettingError {
            key: key.to_string(),
            message: format!("'{value}' is too little"),
            help: format!("give at least {}", counted(min, "byte")),
        });
    }
    Ok(parsed)
}

/// Splits `'12 ms'` into number and unit.
fn number_and_unit(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim().to_ascii_lowercase()))
}

/// Parses `1GB`, `64 MiB`, `4096`; both KB and KiB count 1024 bytes. `None` beyond 64 bits, too.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    let bytes = number * factor as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// Parses `10 s`, `5 minutes`, `1 day`, `250ms` into microseconds; a unit is required, except for
/// 0.
pub fn parse_duration_us(text: &str) -> Option<i64> {
    let (number, unit) = number_and_unit(text)?;
    let factor: f64 = match unit.as_str() {
        "" if number == 0.0 => 1.0,
        "us" | "microsecond" | "microseconds" => 1.0,
        "ms" | "millisecond" | "milliseconds" => 1e3,
        "s" | "sec" | "second" | "seconds" => 1e6,
        "min" | "minute" | "minutes" => 60e6,
        "h" | "hour" | "hours" => 3_600e6,
        "d" | "day" | "days" => 86_400e6,
        _ => return None,
    };
    let us = number * factor;
    (us < i64::MAX as f64).then_some(us as i64)
}

/// Characters of a word that somebody may have mistyped.
const MISTYPED_CHARS_MAX: usize = 1_000;

/// The candidate most like `word`, if one is like it at all (for "did you mean").
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let chars = word.chars().count();
    // Comparing takes the product of both lengths.
    if chars > MISTYPED_CHARS_MAX {
        return None;
    }
    let most = |c: &str| 1 + c.len().min(word.len()) / 4;
    candidates
        .filter(|c| c.chars().count().abs_diff(chars) <= most(c))
        .map(|c| (osa_distance(&word, &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= most(c))
        // Something must be alike.
        .filter(|(distance, c)| *distance < c.len().max(word.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_with_their_units() {
        let mut s = Settings::default();
        s.set("memory", "1GB").unwrap();
        assert_eq!(s.memory_bytes, 1 << 30);
        s.set("memory", "16777215 TB").unwrap();
        assert_eq!(s.memory_bytes, 16_777_215 << 40);
        for too_much in ["16777216TB", "99999999999999999999GB", &"9".repeat(400)] {
            assert!(s.set("memory", too_much).unwrap_err().help.contains("1GB"), "{too_much}");
        }
        s.set("watermark.max_ahead", "2 hours").unwrap();
        assert_eq!(s.max_ahead, MaxAhead::Us(7_200_000_000));
        s.set("watermark.max_ahead", "none").unwrap();
        assert_eq!(s.max_ahead, MaxAhead::Unlimited);
        s.set("watermark.max_ahead", "Auto").unwrap();
        assert_eq!(s.max_ahead, MaxAhead::Auto);
        assert_eq!([true, false].map(|live| s.max_ahead.us(live)), [Some(86_400_000_000), None]);
    }

    #[test]
    fn a_typing_mistake_is_answered_with_the_nearest_setting() {
        let error = Settings::default().set("memroy", "1GB").unwrap_err();
        assert!(error.to_string().contains("did you mean 'memory'?"), "{error}");
        // What is far too long for a mistake is not compared.
        let long = "memory".repeat(200_000);
        let settings = std::iter::repeat_n(long.as_str(), 1_000);
        assert_eq!(closest(&long[1..], settings.clone()), None);
        assert_eq!(closest("memroy", settings.chain(["memory"])), Some("memory"));
        let error = Settings::default().set("workers", "many").unwrap_err();
        assert!(error.to_string().contains("1 to 256"), "{error}");
    }
}
