//! The workloads' queries as SQL text in Flink's dialect.

use crate::spec::{Spec, Workload};

/// The `SELECT` of `spec` over a table named after the workload, in whose schema (see
/// [`crate::schema`]) `ts` is the event time with a watermark [`Spec::watermark_delay_ms`] behind.
pub fn sql(spec: &Spec) -> String {
    let table = spec.workload.name();
    let interval = interval_seconds(spec.window_ms);
    let windows = format!("TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL {interval}))");
    let by = "GROUP BY window_start, window_end, key";
    match spec.workload {
        Workload::Ysb | Workload::YsbSmall | Workload::YsbStr => format!(
            "SELECT window_start, key, COUNT(*) AS value FROM {windows} WHERE event_type = 0 {by}"
        ),
        Workload::Nb7 => {
            format!("SELECT window_start, key, MAX(price) AS value FROM {windows} {by}")
        }
        Workload::Cm => format!(
            "SELECT window_start, key, COUNT(*) AS value, AVG(cpu) AS avg FROM {windows} {by}"
        ),
        Workload::Ro => format!("SELECT key, COUNT(*) AS value FROM {table} GROUP BY key"),
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
    fn intervals_are_exact() {
        assert_eq!(interval_seconds(2_000), "'2' SECOND");
        assert_eq!(interval_seconds(7_001), "'7.001' SECOND");
        assert_eq!(interval_seconds(50), "'0.050' SECOND");
    }
}
