//! The job of `bench ingest`, and its runs.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use millstream::program::{Job, SessionControl};
use millstream::{Error, RowOrder, Session, Sink, Writers};
use millstream_workloads::{Verifier, expected, oracle, sql};

use super::plan::{Ingest, QueryName};
use super::producers::{Order, Producers, TABLE, now_ns};
use crate::Failure;
use crate::failure::fail;
use crate::verify::VerifySink;

/// A query without cost.
const PASS: &str = "SELECT ts, key FROM ro";

/// Result of a run.
pub(crate) struct Ran {
    pub(crate) seconds: f64,
    /// Whether the answer is right.
    pub(crate) ok: bool,
}

/// Runs the query over all records of the producers.
pub(crate) fn run(
    ingest: &Ingest,
    segment: usize,
    producers: &mut Producers,
) -> Result<Ran, Failure> {
    let paced = None;
    match ingest.query {
        QueryName::Pass => {
            let sink = Arc::new(PassedSink::default());
            let seconds = execute(ingest, segment, PASS, (sink.clone(), producers, paced))?;
            let rows = sink.rows.load(Ordering::Relaxed);
            Ok(Ran { seconds, ok: rows == ingest.spec.records })
        }
        QueryName::Ro => {
            let spec = &ingest.spec;
            let sink = VerifySink::new(spec, ingest.settings.workers);
            let seconds = execute(ingest, segment, &sql(spec), (sink.clone(), producers, paced))?;
            let mut all = Verifier::new(spec);
            sink.add_to(&mut all);
            let ok = all.answer() == expected(spec).unwrap_or_else(|| oracle(spec));
            Ok(Ran { seconds, ok })
        }
    }
}

/// Latencies of batches that come one every so many seconds, in nanoseconds.
pub(crate) fn latencies(
    ingest: &Ingest,
    segment: usize,
    (producers, every, batches): (&mut Producers, f64, u64),
) -> Result<Vec<i64>, Failure> {
    let sink = Arc::new(PassedSink { times: Some(Mutex::default()), ..PassedSink::default() });
    execute(ingest, segment, PASS, (sink.clone(), producers, Some((every, batches))))?;
    let mut found = sink.times.iter().flat_map(|times| times.lock());
    Ok(found.next().map_or(Vec::new(), |mut found| std::mem::take(&mut *found)))
}

/// Seconds from the word to begin to the job's end.
fn execute(
    ingest: &Ingest,
    segment: usize,
    query: &str,
    (sink, producers, paced): (Arc<dyn Sink>, &mut Producers, Option<(f64, u64)>),
) -> Result<f64, Failure> {
    // A port that is free now.
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| fail(&e))?;
    let address = listener.local_addr().map_err(|e| fail(&e))?.to_string();
    drop(listener);
    let mut session = Session::new(".");
    *session.settings_mut() = ingest.settings.clone();
    let (producers_count, segments) = (ingest.producers, ingest.segments);
    let table = format!(
        "CREATE TABLE {TABLE} (ts TIMESTAMP(3) NOT NULL, key BIGINT NOT NULL)
         WITH ('connector' = 'channel', 'listen' = '{address}', 'bounded' = 'true',
             'transport' = '{}', 'producers' = '{producers_count}', 'segments' = '{segments}',
             'producers.max' = '{producers_count}', 'segment' = '{segment} B');",
        ingest.transport.name(),
    );
    let planned = session.plan(&format!("{table}{query};")).map_err(|e| fail(&e))?;
    let settings = ingest.settings.clone();
    let job = Job::new(&planned, &settings, vec![sink]).map_err(|e| fail(&e))?;
    // If a producer fails, the job waits for ever, and the program ends without it.
    let running = std::thread::spawn(move || {
        let (_, result) = job.run();
        (Instant::now(), result)
    });
    producers.connect(&Order { address, paced })?;
    let begin = Instant::now();
    producers.go()?;
    let taken = producers.taken()?;
    let (end, result) = running.join().map_err(|_| fail(&"the job has panicked"))?;
    result.map_err(|e| fail(&e))?;
    let sent = match paced {
        None => ingest.spec.records,
        Some((_, batches)) => {
            batches * ingest.producers as u64 * Ingest::batch_rows(segment)? as u64
        }
    };
    if taken != sent {
        return Err(fail(&format!("the job has taken {taken} records of {sent}")));
    }
    Ok((end - begin).as_secs_f64())
}

/// Counts rows. With `times`, a row's key is a time, and the ages of batches are noted.
#[derive(Debug, Default)]
struct PassedSink {
    rows: AtomicU64,
    times: Option<Mutex<Vec<i64>>>,
}

impl Sink for PassedSink {
    fn open(&self, _: &SchemaRef, _: Writers) -> millstream::Result<()> {
        Ok(())
    }

    fn order(&self) -> RowOrder {
        RowOrder::Any
    }

    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> millstream::Result<()> {
        self.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        let Some(found) = &self.times else { return Ok(()) };
        let now = now_ns();
        let times = rows.column(1).as_primitive_opt::<Int64Type>();
        let times = times.ok_or_else(|| Error::Internal("times of another type".into()))?;
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = None;
        for time in times.values() {
            if before != Some(time) {
                found.push(now - time);
                before = Some(time);
            }
        }
        Ok(())
    }

    fn is_local(&self) -> bool {
        true
    }

    fn finish(&self) -> millstream::Result<()> {
        Ok(())
    }
}
