//! `millstream-lab bench latency`: measures the time from the watermark passing a window's end
//! until the window's last row is written, on a rate-limited stream.

use std::sync::Arc;

use millstream::program::{SessionControl, counted, counters};
use millstream::{Format, Session, Settings, TextOptions, TextSink};
use serde_json::Value;

use crate::Failure;
use crate::failure::{fail, print};

/// A paced stream.
#[derive(Debug, Clone, Copy)]
pub struct Paced {
    /// Events per second.
    pub rate: u64,
    /// How long it lasts.
    pub seconds: u64,
    /// How many keys it has.
    pub keys: u64,
}

/// Measures, and prints what came out.
pub fn run(paced: Paced, settings: Settings, as_json: bool) -> Result<(), Failure> {
    let mut session = Session::new(".");
    let Paced { rate, seconds, keys } = paced;
    let rows = rate * seconds;
    let script = format!(
        "CREATE TABLE events (ts TIMESTAMP(3) NOT NULL, key BIGINT NOT NULL,
             WATERMARK FOR ts AS ts)
         WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}', 'number-of-rows' = '{rows}',
             'fields.ts.kind' = 'sequence', 'fields.key.min' = '0', 'fields.key.max' = '{}');
         SELECT window_start, key, COUNT(*) AS value
         FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.1' SECOND))
         GROUP BY window_start, window_end, key;",
        keys.max(1) - 1,
    );
    // Formatted and written like any output, into a pipe whose reader drops the rows.
    let (mut reader, writer) = std::io::pipe().map_err(|e| fail(&e))?;
    let drain = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let sink = TextSink::new(Format::Csv, Box::new(writer), TextOptions::default());
    *session.settings_mut() = settings;
    let stats = session.run(&script, Arc::new(sink)).map_err(|e| fail(&e))?;
    drop(session);
    drain.join().map_or(Ok(0), |copied| copied).map_err(|e| fail(&e))?;
    let counters = counters(&stats);
    if as_json {
        return print(&Value::Object(counters).to_string());
    }
    print(&format!(
        "{} at {rate} events/s, from the watermark to the last row in a pipe: p50 {} us, p99 {} us, max {} us",
        counted(stats.windows, "window"),
        counters["fire_latency_us_p50"],
        counters["fire_latency_us_p99"],
        counters["fire_latency_us_max"],
    ))
}
