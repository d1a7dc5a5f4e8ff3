//! `millstream-lab bench ingest`: records of `ro` come from other processes over rings (paper,
//! figures 10a to 10c).
//!
//! A producer is a process of its own. The producer has its records in memory, as Arrow batches,
//! each as long as a segment of the ring holds (the paper's buffers). The job is in this process.
//! Runs of the job and of the limit take turns, since the speed of a machine changes from minute to
//! minute. Each producer has a counterpart in the limit. Over `shm` that is a bare channel, whose
//! sender fills every word of a slot and whose receiver sums every word. Over `tcp` it is a loop of
//! writes and reads over a socket, with the same work.
//!
//! The time of a run begins with the word to send, when all producers have connected, and ends with
//! the job. The latency of a batch begins when the batch was due, and ends when a sink gets its
//! rows; the query is always `pass`. Meanwhile the producers send at a part of the median rate.

mod job;
mod plan;
mod producers;
mod report;

use millstream_flow::channel::Settings as Slots;

use self::plan::RECORD_BYTES;
pub use self::plan::{Ingest, QueryName, TransportName};
use self::producers::Producers;
pub use self::producers::{PRODUCE, produce};
use self::report::{BySegment, Latency, median};
use crate::Failure;
use crate::channel::compare::{channel_rate, socket_rate};
use crate::failure::{fail, print, usage};

/// Segments that are measured in turn, as in the paper's figures 10a and 10b.
const SEGMENTS: [usize; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Batches whose latency is measured, about.
const PACED_BATCHES: u64 = 4000;
/// Seconds of a paced run at most.
const PACED_SECONDS: f64 = 4.0;

/// Measures, and prints what came out.
///
/// # Errors
/// If a producer or the job fails, or an answer is wrong.
pub fn run(ingest: &Ingest) -> Result<(), Failure> {
    let mut results = Vec::new();
    if !ingest.json {
        print(report::HEADING)?;
    }
    for segment in ingest.segment.map_or(SEGMENTS.to_vec(), |one| vec![one]) {
        let result = measure(ingest, segment)?;
        if !ingest.json {
            print(&result.row())?;
            for target in result.targets(ingest) {
                print(&target.text())?;
            }
        }
        results.push(result);
    }
    if ingest.json {
        print(&report::object(ingest, &results).to_string())?;
    }
    match results.iter().all(|result| result.ok) {
        true => Ok(()),
        false => Err(fail(&"an answer is wrong")),
    }
}

/// Measures segments of one length.
fn measure(ingest: &Ingest, segment: usize) -> Result<BySegment, Failure> {
    let batch_rows = Ingest::batch_rows(segment)?;
    let mut producers = Producers::start(ingest, batch_rows)?;
    let bytes = ingest.spec.records * RECORD_BYTES as u64;
    let (mut pairs, mut ok) = (Vec::with_capacity(ingest.pairs), true);
    for _ in 0..ingest.pairs {
        let limit = limit(ingest, segment, bytes)?;
        let ran = job::run(ingest, segment, &mut producers)?;
        ok &= ran.ok;
        pairs.push((bytes as f64 / ran.seconds, limit));
    }
    let rates = median(&mut pairs).ok_or_else(|| usage(&"--pairs: at least 1"))?;
    let latency = match ingest.load {
        0.0 => None,
        load => {
            let found = latency(ingest, (load, rates.bytes_per_s), segment, &mut producers)?;
            Some(found)
        }
    };
    Ok(BySegment { segment, batch_rows, records: ingest.spec.records, rates, latency, ok })
}

/// Bytes per second that the medium moves without a job, through as many channels or sockets at the
/// same time as there are producers. The slowest counts.
fn limit(ingest: &Ingest, segment: usize, bytes: u64) -> Result<f64, Failure> {
    let slots = Slots { slots: ingest.segments, slot_bytes: segment, ..Slots::default() };
    let each = bytes / ingest.producers as u64;
    let rate = || match ingest.transport {
        TransportName::Shm => channel_rate(slots, each).map_err(|e| fail(&e)),
        TransportName::Tcp => socket_rate(slots, each).map_err(|e| fail(&e)),
    };
    let rates: Result<Vec<f64>, Failure> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..ingest.producers).map(|_| scope.spawn(rate)).collect();
        let ended = all.into_iter().map(|one| one.join());
        ended.map(|rate| rate.unwrap_or_else(|_| Err(fail(&"a limit has panicked")))).collect()
    });
    let rates = rates?;
    let slowest = rates.into_iter().reduce(f64::min).unwrap_or(0.0);
    Ok(slowest * ingest.producers as f64)
}

/// Latencies of batches at a part of a rate.
fn latency(
    ingest: &Ingest,
    (load, bytes_per_s): (f64, f64),
    segment: usize,
    producers: &mut Producers,
) -> Result<Latency, Failure> {
    let bytes_per_s = load * bytes_per_s;
    let batch_bytes = (Ingest::batch_rows(segment)? * RECORD_BYTES) as f64;
    let each = bytes_per_s / ingest.producers as f64 / batch_bytes;
    let batches = (PACED_BATCHES as f64).min(each * PACED_SECONDS).max(50.0) as u64;
    let nanos = job::latencies(ingest, segment, (producers, 1.0 / each, batches))?;
    Latency::of(bytes_per_s, nanos).ok_or_else(|| fail(&"no batch has come"))
}
