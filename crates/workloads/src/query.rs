//! The workloads' queries as SQL text in Flink's dialect.

use crate::spec::{Spec, Workload};
use crate::window::WindowKind;

/// The `SELECT` of `spec` over a table named after the workload, in whose schema (see
/// [`crate::schema`]) `ts` is the event time with a watermark [`Spec::watermark_delay_ms`] behind.
pub fn sql(spec: &Spec) -> String {
    let table = spec.workload.name();
    let (name, keys, lengths) = match spec.windows {
        WindowKind::Tumble => ("TUMBLE", "", vec![spec.window_ms]),
        WindowKind::Hop { slide_ms } => ("HOP", "", vec![slide_ms, spec.window_ms]),
        WindowKind::Cumulate { step_ms } => ("CUMULATE", "", vec![step_ms, spec.window_ms]),
        WindowKind::Session => ("SESSION", " PARTITION BY key", vec![spec.window_ms]),
    };
    let lengths: Vec<String> =
        lengths.iter().map(|ms| format!("INTERVAL {}", interval_seconds(*ms))).collect();
    let lengths = lengths.join(", ");
    let windows =
        |table: &str| format!("TABLE({name}(TABLE {table}{keys}, DESCRIPTOR(ts), {lengths}))");
    if spec.windows == WindowKind::Session && spec.workload.has_event_type() {
        // What does not count does not make sessions longer.
        return format!(
            "WITH seen AS (SELECT * FROM {table} WHERE event_type = 0) \
             SELECT window_start, window_end, key, COUNT(*) AS value FROM {} \
             GROUP BY window_start, window_end, key",
            windows("seen")
        );
    }
    let windows = windows(table);
    let bounds = if spec.windows.has_ends() { "window_start, window_end" } else { "window_start" };
    let by = "GROUP BY window_start, window_end, key";
    match spec.workload {
        Workload::Ysb | Workload::YsbSmall | Workload::YsbStr => format!(
            "SELECT {bounds}, key, COUNT(*) AS value FROM {windows} WHERE event_type = 0 {by}"
        ),
        Workload::Nb7 => {
            format!("SELECT {bounds}, key, MAX(price) AS value FROM {windows} {by}")
        }
        Workload::Cm => {
            format!("SELECT {bounds}, key, COUNT(*) AS value, AVG(cpu) AS avg FROM {windows} {by}")
        }
        Workload::Nb8Count => {
            format!("SELECT {bounds}, key, COUNT(*) AS value FROM {windows} {by}")
        }
        Workload::Ro => format!("SELECT key, COUNT(*) AS value FROM {table} GROUP BY key"),
        Workload::Nb8 | Workload::Nb8Rows | Workload::Nb11 => {
            let side = |event_type: u8| {
                format!("(SELECT * FROM {windows} WHERE event_type = {event_type})")
            };
            let bounds = match spec.windows.has_ends() {
                true => "a.window_start, a.window_end",
                false => "a.window_start",
            };
            let rows = match spec.workload {
                Workload::Nb8Rows | Workload::Nb11 => ", a.data, s.data AS seller",
                _ => "",
            };
            format!(
                "SELECT {bounds}, a.key, a.id AS value{rows} FROM {} AS a JOIN {} AS s \
                 ON a.key = s.key AND a.window_start = s.window_start \
                 AND a.window_end = s.window_end",
                side(1),
                side(0)
            )
        }
    }
}

/// `'600' SECOND`, or with three decimals where the seconds are not whole.
fn interval_seconds(ms: u64) -> String {
    match ms % 1000 {
        0 => format!("'{}' SECOND", ms / 1000),
        rest => format!("'{}.{rest:03}' SECOND", ms / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_workloads_query() {
        assert_eq!(
            sql(&Spec::new(Workload::Ysb)),
            "SELECT window_start, key, COUNT(*) AS value FROM TABLE(TUMBLE(TABLE ysb, \
             DESCRIPTOR(ts), INTERVAL '600' SECOND)) WHERE event_type = 0 \
             GROUP BY window_start, window_end, key"
        );
        assert_eq!(
            sql(&Spec::new(Workload::Ro)),
            "SELECT key, COUNT(*) AS value FROM ro GROUP BY key"
        );
    }

    #[test]
    fn the_text_has_the_windows_that_are_asked_for() {
        let text = |workload, window: &str| {
            sql(&Spec::new(workload).with_window(window.parse().expect("a window")))
        };
        assert_eq!(
            text(Workload::Cm, "hop:60s:500ms"),
            "SELECT window_start, key, COUNT(*) AS value, AVG(cpu) AS avg FROM TABLE(HOP(TABLE cm, \
             DESCRIPTOR(ts), INTERVAL '0.500' SECOND, INTERVAL '60' SECOND)) \
             GROUP BY window_start, window_end, key"
        );
        assert_eq!(
            text(Workload::Ysb, "session:1s"),
            "WITH seen AS (SELECT * FROM ysb WHERE event_type = 0) SELECT window_start, \
             window_end, key, COUNT(*) AS value FROM TABLE(SESSION(TABLE seen PARTITION BY key, \
             DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start, window_end, key"
        );
        assert_eq!(
            sql(&Spec::new(Workload::Nb11)),
            "SELECT a.window_start, a.window_end, a.key, a.id AS value, a.data, s.data AS seller \
             FROM (SELECT * FROM TABLE(SESSION(TABLE nb11 PARTITION BY key, DESCRIPTOR(ts), \
             INTERVAL '1' SECOND)) WHERE event_type = 1) AS a JOIN (SELECT * FROM \
             TABLE(SESSION(TABLE nb11 PARTITION BY key, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
             WHERE event_type = 0) AS s ON a.key = s.key AND a.window_start = s.window_start AND \
             a.window_end = s.window_end"
        );
        assert_eq!(
            text(Workload::Nb7, "cumulate:60s:1s"),
            "SELECT window_start, window_end, key, MAX(price) AS value FROM TABLE(CUMULATE(TABLE \
             nb7, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '60' SECOND)) \
             GROUP BY window_start, window_end, key"
        );
    }

    #[test]
    fn intervals_are_exact() {
        assert_eq!(interval_seconds(2_000), "'2' SECOND");
        assert_eq!(interval_seconds(7_001), "'7.001' SECOND");
        assert_eq!(interval_seconds(50), "'0.050' SECOND");
    }
}
