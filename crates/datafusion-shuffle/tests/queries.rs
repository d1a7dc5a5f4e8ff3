//! TPC-H on several processes, over the exchange, against the answers of a single process.

mod cluster;

use std::process::Command;

use cluster::tpch::{data, query, register};
use cluster::{Cluster, Options, Way, alone};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::file_format::options::ArrowReadOptions;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use millstream_datafusion_shuffle::{Config, Counters};

/// The tables' scale: 60,000 line items.
const SCALE: f64 = 0.01;

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

fn config(design: &str) -> Config {
    Config::new(design.parse().expect("a design"))
}

/// Rows as text, in the order of their texts.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).expect("a column"))
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> =
                columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows.sort();
    rows
}

async fn answer(context: &SessionContext, text: &str) -> Result<Vec<String>> {
    Ok(rows(&context.sql(text).await?.collect().await?))
}

/// Runs queries both ways; returns what the exchange has counted.
async fn compare(options: Options, numbers: impl Iterator<Item = i32>) -> Counters {
    let data = data(SCALE);
    let single = alone();
    register(&single, &data).await.expect("tables");
    let mut cluster = start(options);
    register(&cluster.coordinator.context, &data).await.expect("tables");
    for number in numbers {
        let text = query(number, SCALE);
        let expected = answer(&single, &text).await.expect("an answer of a single process");
        let before = cluster.counters();
        let found = answer(&cluster.coordinator.context, &text).await;
        let found = found.unwrap_or_else(|error| panic!("query {number}: {error}"));
        assert_eq!(found, expected, "query {number}");
        let after = cluster.counters();
        let batches = after.batches_received - before.batches_received;
        assert!(batches > 0, "query {number} exchanged nothing");
        println!("query {number}: {} rows, {batches} batches exchanged", found.len());
    }
    cluster.counters()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_papers_queries_over_shared_memory() {
    let options = Options::new(2, Way::Shm(config("SEMQ/WR")));
    let counters = compare(options, [3, 4, 10].into_iter()).await;
    println!("{counters:?}");
    assert_eq!(counters.serialised, 0, "every type has a layout");
    assert!(counters.in_place > 0, "{counters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_22_over_shared_memory() {
    let options = Options::new(2, Way::Shm(config("SEMQ/WR")));
    let counters = compare(options, 1..=22).await;
    println!("{counters:?}");
    assert_eq!(counters.serialised, 0, "every type has a layout");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_papers_queries_over_tcp() {
    let options = Options::new(2, Way::Tcp(config("SEMQ/SR")));
    compare(options, [3, 4, 10].into_iter()).await;
}

/// Slots of which the smallest has room for a header and a line, windows of one batch, and joins,
/// which wait for one side while the other's batches fill everything.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_hangs_with_tiny_slots_and_windows() {
    let config = Config {
        message_bytes: 4096,
        depth: 2,
        credit_every: 1,
        window_bytes: 1,
        copy_below_bytes: 0,
        ..config("SEMQ/WR")
    };
    let options = Options::new(2, Way::Shm(config));
    let counters = compare(options, [3, 9, 21].into_iter()).await;
    assert!(counters.joined_bytes > 0, "columns are longer than slots: {counters:?}");
    assert!(counters.in_place > 0 && counters.copied_bytes > 0, "one slot is held: {counters:?}");
    assert!(counters.credits >= counters.batches_received, "each batch needs credit: {counters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_that_broadcast_one_side() {
    let way = Way::Shm(config("SEMQ/WR"));
    let repartitioned = plan(Options::new(2, way)).await;
    assert!(!repartitioned.contains("NetworkBroadcastExec"), "{repartitioned}");
    let options = Options { broadcast: true, ..Options::new(2, way) };
    let broadcast = plan(options).await;
    assert!(broadcast.contains("NetworkBroadcastExec"), "{broadcast}");
    compare(options, [3, 10].into_iter()).await;
}

/// The plan of query 3.
async fn plan(options: Options) -> String {
    let cluster = start(options);
    let context = &cluster.coordinator.context;
    register(context, &data(SCALE)).await.expect("tables");
    let frame = context.sql(&query(3, SCALE)).await.expect("a query");
    let plan = frame.create_physical_plan().await.expect("a plan");
    datafusion_distributed::display_plan_ascii(plan.as_ref(), false)
}

/// All designs are the same to a query, on two processes and on four.
#[tokio::test(flavor = "multi_thread")]
async fn every_design_gives_the_same_answers() {
    for design in millstream_shuffle::Design::ALL {
        for processes in [2, 4] {
            println!("{design} on {processes} processes");
            let options = Options::new(processes, Way::Shm(Config::new(design)));
            compare(options, [3, 4, 10].into_iter()).await;
        }
    }
}

/// Two tables whose files are partitioned by nation.
async fn register_by_nation(context: &SessionContext, directory: &str) -> Result<()> {
    for (table, key) in [("customer", "c_nationkey"), ("supplier", "s_nationkey")] {
        let columns = vec![(key.to_string(), DataType::Int64)];
        let options = ArrowReadOptions { table_partition_cols: columns, ..Default::default() };
        let path = format!("{directory}/{table}/");
        context.register_arrow(format!("{table}_by_nation"), path, options).await?;
    }
    Ok(())
}

/// The paper's "local data": both sides of a join lie where they meet, so only the result moves.
#[tokio::test(flavor = "multi_thread")]
async fn co_partitioned_tables_are_joined_where_they_are() {
    let single = alone();
    register(&single, &data(SCALE)).await.expect("tables");
    let directory = format!("{}/by-nation-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    for (table, key) in [("customer", "c_nationkey"), ("supplier", "s_nationkey")] {
        let copy = format!(
            "copy {table} to '{directory}/{table}/' stored as arrow partitioned by ({key})"
        );
        answer(&single, &copy).await.expect("files");
    }
    register_by_nation(&single, &directory).await.expect("tables");
    let text = "select c_nationkey, count(*), sum(c_acctbal + s_acctbal) \
                from customer_by_nation join supplier_by_nation on c_nationkey = s_nationkey \
                group by c_nationkey";
    let expected = answer(&single, text).await.expect("an answer of a single process");
    let mut bytes = Vec::new();
    for local in [false, true] {
        let mut cluster = start(Options::new(2, Way::Shm(config("SEMQ/WR"))));
        let context = &cluster.coordinator.context;
        register_by_nation(context, &directory).await.expect("tables");
        let set = format!("set datafusion.optimizer.preserve_file_partitions = {}", local as u8);
        answer(context, &set).await.expect("a setting");
        let frame = context.sql(text).await.expect("a query");
        let plan = frame.create_physical_plan().await.expect("a plan");
        let plan = datafusion_distributed::display_plan_ascii(plan.as_ref(), false);
        assert_eq!(plan.contains("NetworkShuffleExec"), !local, "{plan}");
        assert_eq!(answer(context, text).await.expect("an answer"), expected, "{plan}");
        bytes.push(cluster.counters().bytes_received);
    }
    std::fs::remove_dir_all(&directory).expect("a directory that was made here");
    assert!(0 < bytes[1] && bytes[1] < bytes[0], "repartitioned, local: {bytes:?} bytes");
}
