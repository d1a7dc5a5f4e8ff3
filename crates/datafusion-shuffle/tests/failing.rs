//! What happens when a worker's process ends, or stands still, in the middle of a query.

mod cluster;

use std::time::{Duration, Instant};

use cluster::tpch::{data, register};
use cluster::{Cluster, Options, PARTITIONS, Process, Way};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures::{FutureExt, StreamExt};
use millstream_datafusion_shuffle::{Config, Counters, Error};

/// One of each implementation of endpoints.
const DESIGNS: [&str; 4] = ["SEMQ/WR", "MEMQ/RD", "SEMQ/SR", "MESQ/SR"];

fn config(design: &str) -> Config {
    Config::new(design.parse().expect("a design"))
}

/// The exchange's error among the causes of a query's error.
fn cause(error: &DataFusionError) -> Option<&Error> {
    let mut error: &(dyn std::error::Error + 'static) = error;
    loop {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        error = error.source()?;
    }
}

/// Whether it is an error of gRPC.
fn is_status(error: &DataFusionError) -> bool {
    matches!(error, DataFusionError::External(error) if error.is::<tonic::Status>())
}

/// Long enough for any machine; a query that hangs does so for ever.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(time: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, what).await.expect("an end, and no waiting")
}

/// A query has begun: a stream of what it gives.
async fn begin(cluster: &Cluster, query: &str) -> SendableRecordBatchStream {
    let frame = cluster.coordinator.context.sql(query).await.expect("a plan");
    frame.execute_stream().await.expect("a stream")
}

/// The error with which a stream ends.
async fn error_of(batches: &mut SendableRecordBatchStream) -> DataFusionError {
    loop {
        match batches.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return error,
            None => panic!("a query without half of its data"),
        }
    }
}

async fn a_killed_worker(design: &str) {
    // Workers are far from done when the first batch arrives.
    let config = Config { window_bytes: 1, ..config(design) };
    let cluster = Cluster::start(Options::new(2, Way::Shm(config)));
    register(&cluster.coordinator.context, &data(0.01)).await.expect("tables");
    let query = "select * from lineitem";
    let mut batches = begin(&cluster, query).await;
    batches.next().await.expect("a batch").expect("a batch");
    cluster.processes[0].signal("KILL");
    let error = within(PATIENCE, error_of(&mut batches)).await;
    match cause(&error) {
        Some(Error::Lost { worker, .. }) => {
            assert_eq!(worker, &cluster.processes[0].url().to_string());
        }
        // The coordinator's connection for plans may be the first to notice.
        None if is_status(&error) => {}
        other => panic!("{design}: {other:?} of {error}"),
    }
    drop(batches);
    // The next query needs that worker, too. It fails as well, and does not hang.
    let again = cluster.coordinator.context.sql(query).await.expect("a plan").collect();
    assert!(within(PATIENCE, again).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_is_a_typed_error_and_nothing_hangs() {
    for design in DESIGNS {
        a_killed_worker(design).await;
    }
}

/// How a reader is lost, and what its writer waits for at this moment.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Killed; the writer waits for credit, since the coordinator does not go on reading.
    Killed,
    /// Stopped, so that the writer has no slots, and killed then.
    Stopped,
    /// Stopped while the writer sends, as if its host had no power any more: no connection ends.
    Silent,
}

/// Both workers read from each other, and join what they read.
const JOIN: &str = "select * from lineitem join orders on l_orderkey = o_orderkey";

/// Shared memory that belongs to no link.
const OF_THE_DEVICE: u64 = 4096;

/// How soon everybody has to know.
const SOON: Duration = Duration::from_secs(2);

/// Worker 0 is lost while worker 1 sends to it. At worker 1 the streams end, and the memory of its
/// links to worker 0 is given back.
async fn a_lost_reader(way: fn(Config) -> Way, design: &str, loss: Loss) {
    let config = match loss {
        Loss::Killed => Config { window_bytes: 1, ..config(design) },
        // Everything may be sent, by way of few and small slots.
        Loss::Stopped | Loss::Silent => Config {
            message_bytes: 1024,
            depth: 2,
            credit_every: 1,
            window_bytes: 1 << 40,
            ..config(design)
        },
    };
    let mut cluster = Cluster::start(Options::new(2, way(config)));
    let context = &cluster.coordinator.context;
    register(context, &data(0.01)).await.expect("tables");
    // Streams have many batches.
    let set = context.sql("set distributed.shuffle_batch_size = 256").await.expect("a setting");
    set.collect().await.expect("no rows");
    // Now worker 1 has a link to the coordinator, and no other.
    let alone = context.sql("select * from lineitem").await.expect("a plan").collect();
    within(PATIENCE, alone).await.expect("rows");
    let before = cluster.processes[1].counters();
    let mapped = cluster.processes[1].mapped_bytes();
    assert!(before.links == 1 && before.registered_bytes > 0, "{before:?}");

    let mut batches = begin(&cluster, JOIN).await;
    let (reader, writer) = cluster.processes.split_at_mut(1);
    let (reader, writer) = (&reader[0], &mut writer[0]);
    let begun = Instant::now();
    loop {
        let now = writer.counters();
        if sends_to_a_worker(&now) && now.messages_sent > before.messages_sent {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing is sent: {now:?}");
        // A query runs from its first poll on.
        drop(batches.next().now_or_never());
    }
    let mut lost = Instant::now();
    if !matches!(loss, Loss::Killed) {
        reader.signal("STOP");
    }
    if !matches!(loss, Loss::Silent) {
        stands_still(writer).await;
        lost = Instant::now();
        reader.signal("KILL");
    }
    let error = within(PATIENCE, error_of(&mut batches)).await;
    println!("{design}, {loss:?}: after {:?} {error}", lost.elapsed());
    match cause(&error) {
        Some(Error::Lost { .. }) => {}
        // The writer reads from it as well, and this is what its part of the query failed of.
        Some(Error::Worker { reason, .. }) => assert!(reason.contains("is lost"), "{reason}"),
        None if is_status(&error) => {}
        other => panic!("{design}, {loss:?}: {other:?} of {error}"),
    }
    drop(batches);
    gives_back(writer, &before, mapped, lost, &format!("{design}, {loss:?}")).await;
}

/// Waits until a process has of memory what it had before.
async fn gives_back(
    writer: &mut Process,
    before: &Counters,
    mapped: u64,
    lost: Instant,
    what: &str,
) {
    loop {
        let (now, now_mapped) = (writer.counters(), writer.mapped_bytes());
        if now.streams_begun == now.streams_over
            && now.registered_bytes == before.registered_bytes
            && now_mapped <= mapped + OF_THE_DEVICE
        {
            break;
        }
        let late = lost.elapsed() > SOON;
        assert!(!late, "{what}: {mapped} {before:?}\nstill {now_mapped} {now:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("{what}: all is given back after {:?}", lost.elapsed());
}

/// Streams to the coordinator are as many as a task has partitions.
fn sends_to_a_worker(now: &Counters) -> bool {
    now.streams_begun - now.streams_over > PARTITIONS as u64
}

/// Waits until a worker that sends to another has sent all that it may.
async fn stands_still(writer: &mut Process) {
    let begun = Instant::now();
    let mut last = writer.counters();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = writer.counters();
        if sends_to_a_worker(&now) && now.messages_sent == last.messages_sent {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing stands still: {now:?}");
        last = now;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_notice_a_killed_reader_and_give_back_its_memory() {
    for design in DESIGNS {
        a_lost_reader(Way::Shm, design, Loss::Killed).await;
        a_lost_reader(Way::Shm, design, Loss::Stopped).await;
    }
    a_lost_reader(Way::Tcp, "SEMQ/SR", Loss::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_notice_a_silent_reader_and_give_back_its_memory() {
    for design in DESIGNS {
        a_lost_reader(Way::Tcp, design, Loss::Silent).await;
    }
}
