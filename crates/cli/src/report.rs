//! What a run says of itself: the closing line for people, the counters as JSON.

use millstream::Stats;
use serde_json::{Map, Value, json};

/// `16,385 records, 324 windows, 7,011 rows, 0 late, 0.042 s, 390,119 records/s`.
pub(crate) fn closing_line(stats: &Stats) -> String {
    let seconds = stats.elapsed_us as f64 / 1e6;
    let rate = if seconds > 0.0 { stats.records as f64 / seconds } else { 0.0 };
    let mut line = format!(
        "{} records, {} windows, {} rows, {} late records, {seconds:.3} s, {} records/s",
        grouped(stats.records),
        grouped(stats.windows),
        grouped(stats.rows),
        grouped(stats.late_records),
        grouped(rate as u64),
    );
    if stats.null_time_records > 0 {
        let count = grouped(stats.null_time_records);
        line = format!("{count} records had no event time and are in no window\n{line}");
    }
    if stats.ahead_records > 0 {
        let count = grouped(stats.ahead_records);
        line = format!(
            "{count} records lie so far ahead of the clock that they did not move the watermark \
             (watermark.max_ahead)\n{line}"
        );
    }
    line
}

/// 1234567 as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// All counters by name.
pub(crate) fn counters(stats: &Stats) -> Map<String, Value> {
    let latency = |share: f64| {
        let mut sorted = stats.fire_latency_us.clone();
        sorted.sort_unstable();
        let at = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
        sorted.get(at).copied()
    };
    let value = json!({
        "records": stats.records,
        "input_bytes": stats.input_bytes,
        "windows": stats.windows,
        "rows": stats.rows,
        "late_records": stats.late_records,
        "null_time_records": stats.null_time_records,
        "ahead_records": stats.ahead_records,
        "epochs": stats.epochs,
        "empty_epochs": stats.empty_epochs,
        "fragment_rows_in": stats.fragment_rows_in,
        "rows_shipped": stats.rows_shipped,
        "segments_shipped": stats.segments_shipped,
        "merges": stats.merges,
        "adoptions": stats.adoptions,
        "mode_switches": stats.mode_switches,
        "index_growths": stats.index_growths,
        "windows_fired_early": stats.windows_fired_early,
        "credit_stalls": stats.credit_stalls,
        "memory_stalls": stats.memory_stalls,
        "batches_stolen": stats.batches_stolen,
        "state_bytes_peak": stats.state_bytes_peak,
        "state_live_bytes_at_peak": stats.state_live_bytes_at_peak,
        "state_bytes_rest": stats.state_bytes_rest,
        "state_live_bytes_rest": stats.state_live_bytes_rest,
        "memory_bytes_peak": stats.memory_bytes_peak,
        "fire_latency_us_p50": latency(0.5),
        "fire_latency_us_p99": latency(0.99),
        "fire_latency_us_max": latency(1.0),
        "elapsed_us": stats.elapsed_us,
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The largest resident size of this process so far, in bytes.
pub(crate) fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
