//! Tables for tests, and tests of the connector.

pub(crate) mod double;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, Field, Schema};
use millstream_contract::sink::{Sink, Writers};
use millstream_contract::table::{OpenOptions, Position, Positions, Table, TableOptions};

use self::double::{Double, Script};
use super::*;
use crate::client::address::Address;
use crate::client::cluster::Cluster;
use crate::client::settings::ClientSettings;

/// A table of columns that may be NULL, read from its first record on if it is read.
pub(crate) fn table(columns: &[(&str, DataType)], options: &[(&str, &str)]) -> TableOptions {
    let fields = columns.iter().map(|(name, of)| Field::new(*name, of.clone(), true));
    let usual = [
        ("topic", "t"),
        ("properties.bootstrap.servers", "localhost:1"),
        ("scan.startup.mode", "earliest-offset"),
    ];
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    TableOptions::new("t", schema, usual.iter().chain(options).copied())
}

#[test]
fn what_one_side_does_not_use_is_accepted_by_both() {
    let options = [
        ("format", "json"),
        ("sink.transaction-naming-strategy", "POOLING"),
        ("properties.key.serializer", "a"),
        ("properties.value.serializer", "b"),
        ("properties.key.deserializer", "c"),
    ];
    let table = table(&[("v", DataType::Int32)], &options);
    check(&table).unwrap();
    KafkaTable::from_options(&table).unwrap();
    KafkaSink::from_options(&table).unwrap();
}

#[test]
fn a_start_looks_for_leaders_again_and_may_be_within_open_transactions() {
    let script = Script { partitions: 1, last_stable: 10, high_watermark: 12, ..Script::default() };
    let broker = Double::start(Script { looks_needed: 3, ..script });
    let servers = broker.address.to_string();
    let open = |offset: i64| {
        let offset = format!("partition:0,offset:{offset}");
        let options = [
            ("format", "raw"),
            ("properties.bootstrap.servers", &servers),
            ("scan.startup.mode", "specific-offsets"),
            ("scan.startup.specific-offsets", &offset),
        ];
        let table = KafkaTable::from_options(&table(&[("v", DataType::Binary)], &options)).unwrap();
        table.open(&[0], &OpenOptions::alone(100, 0, 1))
    };
    let splits = open(11).unwrap();
    assert_eq!(splits[0].position().0[0], 11);
    assert!(broker.script().looks >= 3);
    let error = open(13).err().unwrap().to_string();
    assert!(error.contains("offset 13") && error.contains("ends at offset 12"), "{error}");
}

#[test]
fn messages_that_a_registry_may_know_later_vary() {
    let varies = |options: &[(&str, &str)]| {
        let table = table(&[("v", DataType::Utf8)], options);
        KafkaTable::from_options(&table).unwrap().varies()
    };
    let url = ("avro-confluent.url", "http://localhost:1");
    let (avro, skip) = (("format", "avro-confluent"), ("on_error", "skip"));
    assert!(varies(&[avro, url, skip]).unwrap().contains("registry"));
    assert_eq!(varies(&[avro, url]), None);
    assert_eq!(varies(&[("format", "json"), skip]), None);
}

#[test]
fn a_silent_peer_is_named_soon_and_does_not_hide_a_broker() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let peer = Address { host: "127.0.0.1".into(), port };
    let broker = Double::start(Script { partitions: 1, ..Script::default() });
    let settings = |servers: Vec<Address>| ClientSettings { servers, ..broker.client() };
    let began = Instant::now();
    let mut cluster = Cluster::new(settings(vec![peer.clone()]), true);
    let fault = cluster.patiently(|cluster| cluster.metadata(None)).unwrap_err().text();
    assert!(fault.contains(&format!("127.0.0.1:{port}: no answer in time")), "{fault}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let mut cluster = Cluster::new(settings(vec![peer, broker.address.clone()]), true);
    let topics = ["t".to_string()];
    assert_eq!(
        cluster.patiently(|cluster| cluster.metadata(Some(&topics))).unwrap().topics.len(),
        1
    );
}

#[test]
fn the_end_of_a_bounded_read_is_committed_to_its_group() {
    let broker = Double::start(Script { partitions: 2, ..Script::default() });
    let servers = broker.address.to_string();
    let options = [
        ("format", "raw"),
        ("properties.bootstrap.servers", &servers),
        ("properties.group.id", "g"),
        ("scan.bounded.mode", "latest-offset"),
    ];
    let table = KafkaTable::from_options(&table(&[("v", DataType::Binary)], &options)).unwrap();
    let committed = |name: &str, offset: u64| {
        let position = Position(vec![offset, 0, 0, 0, offset]);
        let ended = BTreeSet::from([name.to_string()]);
        table.committed(&Positions::from([(name.to_string(), position)]), &ended).unwrap();
        broker.script().commits
    };
    // The first was read to its end by an earlier run.
    assert_eq!((committed("t-0", 0), committed("t-1", 10)), (0, 1));
}

/// A topic that is read from a broker.
fn read_from(broker: &Double) -> KafkaTable {
    let servers = broker.address.to_string();
    let options = [("format", "raw"), ("properties.bootstrap.servers", servers.as_str())];
    KafkaTable::from_options(&table(&[("v", DataType::Binary)], &options)).unwrap()
}

#[test]
fn a_topic_that_was_made_a_moment_ago_is_found() {
    let script = || Script { partitions: 2, looks_unknown: 4, ..Script::default() };
    let broker = Double::start(script());
    let names = read_from(&broker).splits().unwrap().into_iter().map(|split| split.name);
    assert_eq!(names.collect::<Vec<_>>(), ["t-0", "t-1"]);
    // To write, too; this broker knows no producers.
    let broker = Double::start(script());
    let servers = broker.address.to_string();
    let options = [("format", "raw"), ("properties.bootstrap.servers", servers.as_str())];
    let sink = KafkaSink::from_options(&table(&[("v", DataType::Binary)], &options)).unwrap();
    let schema = Arc::new(Schema::empty());
    let error = sink.open(&schema, Writers::alone()).unwrap_err().to_string();
    assert!(error.contains("a broker that knows InitProducerId"), "{error}");
    assert!(broker.script().looks > 4);
}

#[test]
fn a_topic_that_is_not_there_is_named_soon() {
    let broker = Double::start(Script { looks_unknown: usize::MAX, ..Script::default() });
    let began = Instant::now();
    let error = read_from(&broker).splits().unwrap_err().to_string();
    assert!(error.contains("there is no topic 't'"), "{error}");
    assert!(!error.contains("whether the broker runs"), "{error}");
    let took = began.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(5)).contains(&took), "{took:?}");
}
