//! The counters of a query, as JSON.

use std::collections::BTreeSet;

use millstream_engine::{Leftover, Stats};
use serde_json::{Map, Value, json};

/// All counters of a query by name, as `millstream run --stats-json` writes them.
pub fn counters(stats: &Stats) -> Map<String, Value> {
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
        "open_windows": stats.open_windows.as_ref().map_or(0, BTreeSet::len),
        "rows": stats.rows,
        "inner_rows": stats.inner_rows,
        "late_records": stats.late_records,
        "partly_late_records": stats.partly_late_records,
        "malformed_records": stats.malformed_records,
        "null_time_records": stats.null_time_records,
        "unusable_time_records": stats.unusable_time_records,
        "ahead_records": stats.ahead_records,
        "epochs": stats.epochs,
        "empty_epochs": stats.empty_epochs,
        "fragment_rows_in": stats.fragment_rows_in,
        "joint_rows_in": stats.joint_rows_in,
        "rows_shipped": stats.rows_shipped,
        "segments_shipped": stats.segments_shipped,
        "rows_sent": stats.rows_sent,
        "rows_passed": stats.rows_passed,
        "bytes_sent": stats.bytes_sent,
        "bytes_copied": stats.bytes_copied,
        "messages_sent": stats.messages_sent,
        "rows_combined": stats.rows_combined,
        "merges": stats.merges,
        "mode_switches": stats.mode_switches,
        "index_growths": stats.index_growths,
        "windows_fired_early": stats.windows_fired_early,
        "credit_stalls": stats.credit_stalls,
        "memory_stalls": stats.memory_stalls,
        "output_stalls": stats.output_stalls,
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
    let mut counters = match value {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    counters.insert("sources".into(), json!(stats.sources));
    counters.insert("stages".into(), json!(stats.stages));
    counters.insert("before".into(), json!(stats.before));
    let Leftover { rows, bytes, windows, credit } = stats.left;
    let left = [("rows", rows), ("bytes", bytes), ("windows", windows), ("credit", credit)];
    counters.extend(left.map(|(what, count)| (format!("left_{what}"), count.into())));
    counters
}
