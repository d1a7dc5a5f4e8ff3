//! Cost of a second stage: ten-second counts of `ysb`, alone and summed up to minutes.
//!
//!     cargo run --release -p millstream-lab --example cascade -- [RECORDS] [WORKERS] [PAIRS]
//!
//! Runs both queries by turns over the same records in memory, and prints the time of the cascade
//! divided by that of its first stage: the median of the pairs, the least and the greatest. It does
//! so for counts of each event type, of 1,000 keys, and of all of the workload's keys. Most of
//! these occur once in ten seconds, so the second stage has as much to do as the first one. The
//! minutes have to be those that are counted directly.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use millstream::program::{SessionControl, parse_script};
use millstream::{BlackholeSink, CollectSink, MemoryTable, RowOrder, Session};
use millstream_workloads::{Spec, Workload, generate, schema};

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let records = numbers.next().transpose()?.unwrap_or(20_000_000);
    let workers = numbers.next().transpose()?.unwrap_or(1);
    let pairs = numbers.next().transpose()?.unwrap_or(15).max(1);
    let spec = Spec { records: records as u64, ..Spec::new(Workload::Ysb) };
    let mut session = Session::new(".");
    session.settings_mut().workers = workers;
    let splits = generate(&spec, workers, session.settings_mut().batch_rows);
    let table = MemoryTable::new(schema(spec.workload), splits)?;
    session.register_table("ysb", Arc::new(table), Some(("ts", 0)))?;
    println!("{records} records, {workers} workers, {pairs} pairs");
    for (view, key) in [("types", "event_type"), ("some", "key % 1000"), ("every", "key")] {
        let first = counts(key, 10);
        for statement in parse_script(&format!("CREATE VIEW {view} AS {first}"), "view")? {
            session.execute(&statement)?;
        }
        let cascade = format!(
            "SELECT window_time, k, SUM(n) AS n FROM TABLE(TUMBLE(TABLE {view}, \
             DESCRIPTOR(t), INTERVAL '60' SECOND)) \
             GROUP BY window_start, window_end, window_time, k"
        );
        let direct = counts(key, 60);
        let minutes = rows(&run(&mut session, &cascade)?)?;
        if minutes != rows(&run(&mut session, &direct)?)? {
            return Err(format!("the minutes by {key} are wrong").into());
        }
        let mut ratios = Vec::new();
        for pair in 0..pairs {
            let mut seconds = |query| seconds(&mut session, query);
            // Whichever comes first may find the machine in another state.
            let (one, two) = if pair % 2 == 0 {
                let one = seconds(&first)?;
                (one, seconds(&cascade)?)
            } else {
                let two = seconds(&cascade)?;
                (seconds(&first)?, two)
            };
            ratios.push(two / one);
        }
        ratios.sort_by(f64::total_cmp);
        let (median, least, greatest) = (ratios[pairs / 2], ratios[0], ratios[pairs - 1]);
        println!("by {key}: {median:.3} ({least:.3} to {greatest:.3}), {} minutes", minutes.len());
    }
    Ok(())
}

/// Counts for windows of so many seconds.
fn counts(key: &str, seconds: u32) -> String {
    format!(
        "SELECT window_time AS t, {key} AS k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ysb, \
         DESCRIPTOR(ts), INTERVAL '{seconds}' SECOND)) \
         GROUP BY window_start, window_end, window_time, {key}"
    )
}

/// Seconds that a query takes. Nobody wants its rows.
fn seconds(session: &mut Session, query: &str) -> Result<f64, Box<dyn Error>> {
    let started = Instant::now();
    session.run(query, Arc::new(BlackholeSink::default()))?;
    Ok(started.elapsed().as_secs_f64())
}

/// The rows of a query.
fn run(session: &mut Session, query: &str) -> Result<Vec<RecordBatch>, Box<dyn Error>> {
    let sink = Arc::new(CollectSink::new(RowOrder::Any));
    session.run(query, sink.clone())?;
    Ok(sink.take())
}

/// The rows as text, in order.
fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| array_value_to_string(column, row));
            rows.push(values.collect::<Result<Vec<String>, _>>()?);
        }
    }
    rows.sort();
    Ok(rows)
}
