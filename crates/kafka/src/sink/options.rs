//! The options of a table that is written, by Flink's names.
//!
//! | option | default | |
//! |---|---|---|
//! | `topic` | | one name |
//! | `sink.delivery-guarantee` | `at-least-once` | or `exactly-once`, `none` |
//! | `sink.transactional-id-prefix` | | of `exactly-once`: a name that no other job has |
//! | `sink.spool` | | a directory or a bucket for rows until their checkpoint |
//! | `sink.partitioner` | `default` | or `fixed`, `round-robin` |
//! | `properties.compression.type` | `none` | or `gzip`, `snappy`, `lz4`, `zstd` |
//! | `properties.transaction.timeout.ms` | `60000` | until a broker ends an open transaction |
//! | `properties.batch.size` | 1 MB | bytes of a batch at most |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_connect::Options;
use millstream_contract::settings::is_bucket;
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use super::partitioner::Partitioner;
use crate::client::away::Away;
use crate::client::cluster::Cluster;
use crate::client::fault::Fault;
use crate::client::producer::{Producer, ProducerSettings};
use crate::client::settings::ClientSettings;
use crate::client::unpack::Packing;

/// Properties without effect: all replicas have a record before it counts, no record
/// comes twice, and rows are sent when their window has fired.
const WITHOUT_EFFECT: &[&str] = &[
    "auto.offset.reset",
    "buffer.memory",
    "delivery.timeout.ms",
    "enable.idempotence",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "isolation.level",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "max.request.size",
    "retries",
    "value.serializer",
];

/// Options without effect.
const UNUSED: [&str; 3] =
    ["sink.parallelism", "sink.transaction-naming-strategy", "value.tombstones"];

/// The promise of a sink about its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guarantee {
    None,
    AtLeastOnce,
    ExactlyOnce,
}

/// The options of a sink.
#[derive(Debug, Clone)]
pub(super) struct SinkOptions {
    pub(super) client: ClientSettings,
    pub(super) producer: ProducerSettings,
    pub(super) guarantee: Guarantee,
    pub(super) partitioner: Partitioner,
    /// The given place for rows until their checkpoint.
    pub(super) spool: Option<PathBuf>,
    /// Whether brokers take rows, known to all producers of the sink.
    pub(super) away: Arc<Away>,
}

impl SinkOptions {
    /// A producer with these options.
    pub(super) fn new_producer(&self) -> Producer {
        let client = ClientSettings { away: Some(self.away.clone()), ..self.client.clone() };
        let cluster = Cluster::new(client, true);
        Producer::new(cluster, self.producer.clone(), self.away.clone())
    }

    /// The error of a fault.
    pub(super) fn failed(&self, fault: Fault) -> Error {
        self.away.error(fault, &self.client.shown())
    }

    pub(super) fn from_options(table: &TableOptions, options: &Options<'_>) -> Result<SinkOptions> {
        let of_sources = table.options.keys().filter(|name| name.starts_with("scan."));
        for name in of_sources.map(String::as_str).chain(UNUSED) {
            options.text(name);
        }
        for name in WITHOUT_EFFECT {
            options.text(&format!("properties.{name}"));
        }
        let topic = match (options.text("topic"), options.text("topic-pattern")) {
            (Some(topic), None) if !topic.contains(';') && !topic.trim().is_empty() => topic.trim(),
            _ => {
                let message = "rows are written to one topic".to_string();
                return Err(options.error("topic", message, "write 'topic' = 'NAME'"));
            }
        };
        let form = "'at-least-once', 'exactly-once' or 'none'";
        let guarantee = |text: &str| match text.trim() {
            "none" => Some(Guarantee::None),
            "at-least-once" => Some(Guarantee::AtLeastOnce),
            "exactly-once" => Some(Guarantee::ExactlyOnce),
            _ => None,
        };
        let new = options.parsed("sink.delivery-guarantee", form, guarantee)?;
        // Its older name.
        let old = options.parsed("sink.semantic", form, guarantee)?;
        let guarantee = new.or(old).unwrap_or(Guarantee::AtLeastOnce);
        let prefix = options.text("sink.transactional-id-prefix").map(str::trim);
        let prefix = prefix.filter(|prefix| !prefix.is_empty());
        if guarantee == Guarantee::ExactlyOnce && prefix.is_none() {
            return Err(options.error(
                "sink.transactional-id-prefix",
                "'exactly-once' needs a name that no other job has".into(),
                "write 'sink.transactional-id-prefix' = 'NAME' among the options",
            ));
        }
        let spool = spool(table, options, guarantee)?;
        let transactional = prefix.filter(|_| guarantee == Guarantee::ExactlyOnce);
        let form = "'default', 'fixed' or 'round-robin'";
        let partitioner = options.parsed("sink.partitioner", form, Partitioner::named)?;
        let form = "'none', 'gzip', 'snappy', 'lz4' or 'zstd'";
        let packing = options
            .parsed("properties.compression.type", form, |text| Packing::named(text.trim()))?;
        let timeout = options.integer("properties.transaction.timeout.ms", 1, i32::MAX as u64)?;
        let batch_bytes = options.integer("properties.batch.size", 0, 1 << 30)?;
        let acks = options.parsed("properties.acks", "'all', '1' or '0'", |text| {
            matches!(text.trim(), "all" | "-1" | "0" | "1").then(|| text.trim() == "1")
        })?;
        let acks = if guarantee == Guarantee::None && acks == Some(true) { 1 } else { -1 };
        let client = ClientSettings::from_options(table, options)?;
        Ok(SinkOptions {
            away: Arc::new(Away::new(topic, &client.shown())),
            client,
            producer: ProducerSettings {
                topic: topic.to_string(),
                transactional_id: transactional.map(|prefix| format!("{prefix}-{}", table.name)),
                transaction_timeout_ms: timeout.map_or(60_000, |timeout| timeout as i32),
                acks,
                packing: packing.flatten(),
                // Brokers take a megabyte by default, with the head.
                batch_bytes: batch_bytes.map_or(1_000_000, |bytes| bytes as usize).max(16 << 10),
            },
            guarantee,
            partitioner: partitioner.unwrap_or(Partitioner::Default),
            spool,
        })
    }
}

/// The given place for rows until their checkpoint.
fn spool(
    table: &TableOptions,
    options: &Options<'_>,
    guarantee: Guarantee,
) -> Result<Option<PathBuf>> {
    let given = options.parsed("sink.spool", "the path of a directory", |text| {
        Some(text.trim().to_string()).filter(|text| !text.is_empty())
    })?;
    if guarantee != Guarantee::ExactlyOnce && given.is_some() {
        return Err(options.error(
            "sink.spool",
            "rows wait for their checkpoint with 'exactly-once' only".into(),
            "write 'sink.delivery-guarantee' = 'exactly-once', or leave 'sink.spool' out",
        ));
    }
    Ok(given.map(|path| match is_bucket(Path::new(&path)) {
        true => PathBuf::from(path),
        false => table.base_dir.join(path),
    }))
}
