//! What happens when a worker's process ends in the middle of a query.

mod cluster;

use std::process::Command;
use std::time::Duration;

use cluster::tpch::{data, register};
use cluster::{Cluster, Options, Way};
use datafusion::error::DataFusionError;
use futures::StreamExt;
use millstream_datafusion_shuffle::{Config, Error};

/// What the other tests start as a worker's process.
#[test]
#[ignore = "started by other tests"]
fn worker_process() {
    cluster::worker();
}

fn start(options: Options) -> Cluster {
    Cluster::start(options, || {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--ignored", "--exact", "worker_process", "--nocapture"]);
        command
    })
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

/// Long enough for any machine; a query that hangs does so for ever.
const PATIENCE: Duration = Duration::from_secs(60);

async fn a_killed_worker(design: &str) {
    let data = data(0.01);
    // Workers are far from done when the first batch arrives.
    let config = Config { window_bytes: 1, ..Config::new(design.parse().expect("a design")) };
    let mut cluster = start(Options::new(2, Way::Shm(config)));
    register(&cluster.coordinator.context, &data).await.expect("tables");
    let query = "select * from lineitem";
    let frame = cluster.coordinator.context.sql(query).await.expect("a plan");
    let mut batches = frame.execute_stream().await.expect("a stream");
    batches.next().await.expect("a batch").expect("a batch");
    cluster.kill(0);
    let error = tokio::time::timeout(PATIENCE, async {
        loop {
            match batches.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return error,
                None => panic!("a query without half of its data"),
            }
        }
    });
    let error = error.await.expect("an error, and no waiting");
    match cause(&error) {
        Some(Error::Lost { worker, .. }) => {
            assert_eq!(worker, &cluster.processes[0].url().to_string());
        }
        other => panic!("{design}: {other:?} of {error}"),
    }
    drop(batches);
    // The next query needs that worker, too. It fails as well, and does not hang.
    let again = cluster.coordinator.context.sql(query).await.expect("a plan").collect();
    let again = tokio::time::timeout(PATIENCE, again).await.expect("an error, and no waiting");
    assert!(again.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_is_a_typed_error_and_nothing_hangs() {
    for design in ["SEMQ/WR", "MEMQ/RD", "SEMQ/SR", "MESQ/SR"] {
        a_killed_worker(design).await;
    }
}
