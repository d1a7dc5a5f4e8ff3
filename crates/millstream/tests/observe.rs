//! What a running job is doing, and how it is drained, by public paths alone.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use millstream::observe::{Phase, Snapshot, why};
use millstream::{ChannelWriter, JobHandle, Session, channels};

const QUERY: &str = "SELECT window_start, k, COUNT(*) AS n
     FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
     GROUP BY window_start, window_end, k";
const SECOND_US: i64 = 1_000_000;

fn schema() -> SchemaRef {
    let ts = DataType::Timestamp(TimeUnit::Millisecond, None);
    let fields = [Field::new("ts", ts, false), Field::new("k", DataType::Int64, false)];
    Arc::new(Schema::new(fields.to_vec()))
}

/// Records of these seconds.
fn batch(seconds: &[i64]) -> RecordBatch {
    let times = TimestampMillisecondArray::from_iter_values(seconds.iter().map(|s| s * 1000));
    let keys = Int64Array::from_iter_values(seconds.iter().map(|_| 7));
    RecordBatch::try_new(schema(), vec![Arc::new(times), Arc::new(keys)]).unwrap()
}

/// A job that reads two splits, one for each writer.
fn job(workers: &str) -> (JobHandle, Vec<ChannelWriter>) {
    let mut session = Session::new(".");
    session.set("workers", workers).unwrap();
    let (writers, table) = channels(schema(), 8, 2);
    session.register_table("events", Arc::new(table), Some(("ts", 0))).unwrap();
    let job = session.submit(QUERY).unwrap().into_iter().next().unwrap();
    (job, writers)
}

/// Looks until `holds` does.
fn wait_until(job: &JobHandle, what: &str, holds: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let snapshot = job.observe();
        match snapshot.filter(|snapshot| holds(snapshot)) {
            Some(snapshot) => return snapshot,
            None => assert!(Instant::now() < end, "never: {what}; {:?}", job.observe()),
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_observer_sees_splits_windows_and_whom_they_wait_for() {
    for workers in ["1", "3"] {
        let (mut job, writers) = job(workers);
        let mut rows = job.rows().unwrap();
        writers[0].send(batch(&[1, 2, 12])).unwrap();
        writers[1].send(batch(&[3, 4])).unwrap();
        let read = |snapshot: &Snapshot| {
            let watermarks: Vec<_> = snapshot.splits.iter().map(|s| s.watermark_us).collect();
            snapshot.records == 5
                && watermarks == [Some(12 * SECOND_US), Some(4 * SECOND_US)]
                && snapshot.stages[0].open.len() == 2
        };
        let snapshot = wait_until(&job, "five records and two windows", read);
        assert_eq!(snapshot.phase, Phase::Reading);
        assert_eq!(snapshot.workers.len(), workers.parse::<usize>().unwrap());
        let records: Vec<u64> = snapshot.splits.iter().map(|split| split.records).collect();
        assert_eq!(records, [3, 2]);
        let stage = &snapshot.stages[0];
        assert_eq!((stage.rows_in, stage.rows_out, stage.late_records), (5, 0, 0));
        let ends: Vec<_> =
            stage.open.iter().map(|window| (window.start_us, window.end_us)).collect();
        assert_eq!(ends[0], (Some(0), Some(10 * SECOND_US)));
        assert_eq!(ends[1], (Some(10 * SECOND_US), Some(20 * SECOND_US)));
        assert_eq!(stage.needs[0].watermark_us, Some(10 * SECOND_US));
        // Only the second split holds the first window back.
        let reasons = why(&snapshot);
        let name = &snapshot.splits[1].name;
        assert!(reasons[0].what.starts_with(&format!(
            "window [1970-01-01 00:00:00, 00:00:10) of stage 1 waits for events ({name}): its watermark is \
             1970-01-01 00:00:04, and must be 00:00:10"
        )), "{reasons:?}");
        assert!(!reasons[0].what.contains(&snapshot.splits[0].name), "{reasons:?}");

        writers[1].send(batch(&[5, 11])).unwrap();
        // The frontier is the least that workers have reported; each reports for itself.
        let fired = |snapshot: &Snapshot| {
            let stage = &snapshot.stages[0];
            let rows = (stage.rows_out, snapshot.outputs[0].rows);
            rows == (1, 1) && stage.frontier_us == Some(11 * SECOND_US)
        };
        let snapshot = wait_until(&job, "the first window has fired", fired);
        assert_eq!(snapshot.latency.windows, 1);
        let first = rows.next().unwrap().unwrap();
        assert_eq!(first.column(2).as_primitive::<Int64Type>().values(), &[5]);
        drop(writers);
        let rest: Vec<_> = rows.map(Result::unwrap).collect();
        assert_eq!(rest[0].column(2).as_primitive::<Int64Type>().values(), &[2]);
        job.wait().unwrap();
    }
}

#[test]
fn a_job_that_is_drained_fires_what_is_open_and_ends_well() {
    for workers in ["1", "2"] {
        let (job, writers) = job(workers);
        writers[0].send(batch(&[1, 2, 12])).unwrap();
        wait_until(&job, "three records", |snapshot| snapshot.records == 3);
        assert!(job.drain());
        let (rows, stats) = job.collect().unwrap();
        let counts =
            |batch: &RecordBatch| batch.column(2).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(rows.iter().flat_map(counts).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((stats.records, stats.open_windows), (3, None));
        drop(writers);
    }
}

/// What a channel has taken when the job is told to drain counts, and it takes no more.
#[test]
fn what_was_sent_to_a_job_before_it_is_drained_counts() {
    for workers in ["1", "2"] {
        let (job, writers) = job(workers);
        wait_until(&job, "it runs", |_| true);
        for second in 1..=4 {
            writers.iter().for_each(|writer| writer.send(batch(&[second, second])).unwrap());
        }
        assert!(job.drain());
        // Once it has been told, which a worker that reads just then puts off.
        let end = Instant::now() + Duration::from_secs(60);
        let mut more = 0u64;
        while writers[0].send(batch(&[5])).is_ok() {
            more += 1;
            assert!(Instant::now() < end, "it takes records for ever");
        }
        let (rows, stats) = job.collect().unwrap();
        assert_eq!(stats.records, 16 + more);
        assert_eq!(rows[0].column(2).as_primitive::<Int64Type>().values(), &[16 + more as i64]);
    }
}

/// What has been read when it is told to drain counts, and nothing of it twice.
#[test]
fn a_busy_job_can_be_drained_at_any_moment() {
    for wait_ms in [0, 1, 5, 20] {
        let mut session = Session::new(".");
        session.set("workers", "2").unwrap();
        let script =
            "CREATE TABLE long (n BIGINT NOT NULL, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
             WITH ('connector' = 'datagen', 'splits' = '3', 'fields.n.kind' = 'sequence',
                   'fields.ts.kind' = 'sequence', 'fields.ts.step' = '1 ms');
             SELECT COUNT(*) AS c, COUNT(DISTINCT n) AS d
             FROM TABLE(TUMBLE(TABLE long, DESCRIPTOR(ts), INTERVAL '1' HOUR))
             GROUP BY window_start, window_end";
        let mut job = session.submit(script).unwrap().into_iter().next().unwrap();
        let rows = job.rows().unwrap();
        wait_until(&job, "it reads", |snapshot| snapshot.records > 0);
        thread::sleep(Duration::from_millis(wait_ms));
        assert!(job.drain());
        let rows: Vec<RecordBatch> = rows.map(Result::unwrap).collect();
        let stats = job.wait().unwrap();
        let sum = |column: usize| -> i64 {
            let of = |batch: &RecordBatch| {
                batch.column(column).as_primitive::<Int64Type>().values().iter().sum::<i64>()
            };
            rows.iter().map(of).sum()
        };
        assert_eq!(sum(0), stats.records as i64);
        assert_eq!(sum(1), stats.records as i64);
        assert!(stats.records > 0 && stats.late_records == 0);
    }
}

#[test]
fn a_job_is_observed_and_drained_only_while_it_runs() {
    let script = "CREATE TABLE long (n BIGINT NOT NULL)
         WITH ('connector' = 'datagen', 'number-of-rows' = '1000000000000',
               'fields.n.kind' = 'sequence');
         SELECT COUNT(*) AS n FROM long; SELECT 1 AS n";
    let mut jobs = Session::new(".").submit(script).unwrap().into_iter();
    let (mut first, second) = (jobs.next().unwrap(), jobs.next().unwrap());
    wait_until(&first, "it reads", |snapshot| snapshot.records > 0);
    assert!(second.observe().is_none() && !second.drain());
    assert!(first.drain());
    let rows: Vec<RecordBatch> = first.rows().unwrap().map(Result::unwrap).collect();
    while !first.has_ended() {
        thread::sleep(Duration::from_millis(2));
    }
    assert!(first.observe().is_none() && !first.drain());
    // What was read counts, and the script goes on.
    let records = first.wait().unwrap().records as i64;
    assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().values(), &[records]);
    assert_eq!(second.collect().unwrap().0[0].num_rows(), 1);
}
