//! Provenance of a measured number: the command, date and machine, which every line of `bench
//! --json` has.

use std::ffi::OsString;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::temporal_conversions::timestamp_s_to_datetime;
use serde_json::{Value, json};

/// The fields `command`, `date` (UTC, now) and `machine`.
pub(crate) fn fields() -> [(&'static str, Value); 3] {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    [
        ("command", json!(command(std::env::args_os()))),
        ("date", json!(date(seconds))),
        ("machine", machine()),
    ]
}

/// The words of a command as one would type them, the program without its folder.
fn command(words: impl Iterator<Item = OsString>) -> String {
    let words = words.enumerate().map(|(i, word)| {
        let name = Path::new(&word).file_name().filter(|_| i == 0).map_or(&*word, |name| name);
        quoted(&name.to_string_lossy())
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A word in a shell's single quotes, if it needs them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Seconds since 1970 as RFC 3339: `2024-05-01T12:00:03Z`.
fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(timestamp_s_to_datetime);
    time.map_or(String::new(), |time| format!("{}Z", time.format("%Y-%m-%dT%H:%M:%S")))
}

/// Processor model, level of fast paths, cores that this process may use, memory and kernel;
/// `unknown` or 0 where the system does not say.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let text = |value: Option<&str>| value.map_or("unknown".to_string(), |v| v.trim().to_string());
    let cpuinfo = read("/proc/cpuinfo");
    let processor = field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "CPU part"));
    let meminfo = read("/proc/meminfo");
    let kib = field(&meminfo, "MemTotal").and_then(|v| v.split_whitespace().next()?.parse().ok());
    let kernel = read("/proc/sys/kernel/osrelease");
    json!({
        "processor": text(processor),
        "instructions": millstream_cpu::level().name(),
        "cores": available_parallelism().map_or(0, |n| n.get()),
        "memory_bytes": kib.unwrap_or(0u64) * 1024,
        "kernel": text(Some(kernel.as_str()).filter(|kernel| !kernel.is_empty())),
    })
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|pair| pair.0 == name).map(|p| p.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_where_a_shell_needs_it() {
        let words = ["/opt/some where/millstream", "bench", "ysb", "--set", "a=it's b", ""];
        let text = command(words.into_iter().map(OsString::from));
        assert_eq!(text, r"millstream bench ysb --set 'a=it'\''s b' ''");
    }

    #[test]
    fn dates_are_rfc_3339() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(u64::MAX), "");
    }

    #[test]
    fn fields_are_found_by_their_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2:1\nmodel name : other\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2:1"));
        assert_eq!(field(text, "model"), None);
    }
}
