//! TPC-H on several processes, over the exchange, against the answers of a single process.
//! `MILLSTREAM_TPCH_SCALE` is the tables' scale.

mod cluster;

use std::time::Instant;

use cluster::tpch::{data, query, register};
use cluster::{Cluster, Options, Way, alone, rows};
use datafusion::arrow::datatypes::DataType;
use datafusion::datasource::file_format::options::ArrowReadOptions;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use millstream_datafusion_shuffle::{Config, Counters};
use millstream_flow::shuffle::{Design, Transport};

/// The tables' scale; 0.01 has 60,000 line items.
fn scale() -> f64 {
    let given = std::env::var("MILLSTREAM_TPCH_SCALE").ok();
    given.map_or(0.01, |scale| scale.parse().expect("MILLSTREAM_TPCH_SCALE is a number"))
}

fn config(design: &str) -> Config {
    Config::new(design.parse().expect("a design"))
}

async fn answer(context: &SessionContext, text: &str) -> Result<Vec<String>> {
    Ok(rows(&context.sql(text).await?.collect().await?))
}

/// The numbers of queries, and the answers of a single process.
struct Expected(Vec<(i32, Vec<String>)>);

impl Expected {
    async fn of(numbers: impl IntoIterator<Item = i32>) -> Expected {
        let single = alone();
        register(&single, &data(scale())).await.expect("tables");
        let mut answers = Vec::new();
        for number in numbers {
            let text = query(number, scale());
            let found = answer(&single, &text).await.expect("an answer of a single process");
            answers.push((number, found));
        }
        Expected(answers)
    }

    /// Runs the queries on several processes; returns what the exchange has counted.
    async fn compare(&self, options: Options) -> Counters {
        let mut cluster = Cluster::start(options);
        register(&cluster.coordinator.context, &data(scale())).await.expect("tables");
        for (number, expected) in &self.0 {
            let before = cluster.counters();
            let found = answer(&cluster.coordinator.context, &query(*number, scale())).await;
            let found = found.unwrap_or_else(|error| panic!("query {number}: {error}"));
            assert_eq!(&found, expected, "query {number}");
            let after = cluster.counters();
            let batches = after.batches_received - before.batches_received;
            assert!(batches > 0, "query {number} exchanged nothing");
            println!("query {number}: {} rows, {batches} batches exchanged", found.len());
        }
        cluster.counters()
    }
}

/// Runs queries both ways; returns what the exchange has counted.
async fn compare(options: Options, numbers: impl IntoIterator<Item = i32>) -> Counters {
    Expected::of(numbers).await.compare(options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_papers_queries_over_tcp() {
    let options = Options::new(2, Way::Tcp(config("SEMQ/SR")));
    compare(options, [3, 4, 10]).await;
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
    let counters = compare(options, [3, 9, 21]).await;
    assert!(counters.joined_bytes > 0, "columns are longer than slots: {counters:?}");
    assert!(counters.in_place > 0 && counters.copied_bytes > 0, "one slot is held: {counters:?}");
    assert!(counters.credits >= counters.batches_received, "each batch needs credit: {counters:?}");
}

/// The plan of query 3.
async fn plan(options: Options) -> String {
    let cluster = Cluster::start(options);
    let context = &cluster.coordinator.context;
    register(context, &data(scale())).await.expect("tables");
    let frame = context.sql(&query(3, scale())).await.expect("a query");
    let plan = frame.create_physical_plan().await.expect("a plan");
    datafusion_distributed::display_plan_ascii(plan.as_ref(), false)
}

/// Runs queries with each design, on two processes and on four: they are the same to a query.
async fn with_every_design(numbers: impl IntoIterator<Item = i32>, broadcast: bool) {
    let expected = Expected::of(numbers).await;
    for design in Design::ALL {
        for processes in [2, 4] {
            let begun = Instant::now();
            let way = Way::Shm(Config::new(design));
            let counters =
                expected.compare(Options { broadcast, ..Options::new(processes, way) }).await;
            assert_eq!(counters.serialised, 0, "every type has a layout");
            // A worker reads its own partitions directly: of two, each has one reader.
            let (flows, readers) = (counters.broadcasts, counters.broadcast_readers);
            let (may_be, has_to_be) = (processes > 2, broadcast && processes > 2);
            assert!((flows == 0 || may_be) && (flows > 0 || !has_to_be), "{counters:?}");
            assert!(readers >= 2 * flows, "{counters:?}");
            assert_eq!(counters.messages_received > counters.messages_sent, flows > 0);
            let datagrams = design.transport == Transport::Datagrams;
            assert!(datagrams || counters.in_place > 0, "{counters:?}");
            println!("{design}, {processes} processes: {:?}, {counters:?}", begun.elapsed());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_22_with_every_design() {
    with_every_design(1..=22, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_that_broadcast_one_side_with_every_design() {
    let way = Way::Shm(config("SEMQ/WR"));
    let repartitioned = plan(Options::new(2, way)).await;
    assert!(!repartitioned.contains("NetworkBroadcastExec"), "{repartitioned}");
    let broadcast = plan(Options { broadcast: true, ..Options::new(2, way) }).await;
    assert!(broadcast.contains("NetworkBroadcastExec"), "{broadcast}");
    with_every_design([3, 4, 10], true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long"]
async fn all_22_that_broadcast_with_every_design() {
    with_every_design(1..=22, true).await;
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
    register(&single, &data(scale())).await.expect("tables");
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
        let mut cluster = Cluster::start(Options::new(2, Way::Shm(config("SEMQ/WR"))));
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
