//! Kafka: topics as tables that are read ([`KafkaTable`]) and written ([`KafkaSink`]).
//!
//! Names of options are Flink's; `docs/kafka.md` says what a user does.
//!
//! A client of our own speaks the protocol ([`client`]); the layout of its messages is that of the
//! crate `kafka-protocol`. Batches of records are handed out as the broker sends them, still
//! compressed, and any worker unpacks and decodes them, so a topic of one partition keeps all
//! workers busy.
//!
//! **Why no other client.** Measured once, before this crate was written: one broker (4.4.0) on the
//! same two processors (Zen 3), consumers that add up lengths of values and look at each byte, five
//! million values of 100 bytes of JSON, or one million of 1 KB, batches of 16 KB, median of three
//! turns. Millions of records per second of the client's processor time:
//!
//! | | `rdkafka` 0.39 | `krafka` 0.28 | `kafka-protocol` 0.18 |
//! |---|---|---|---|
//! | JSON, not compressed, 1 and 4 partitions | 0.73, 0.57 | 1.01, 1.25 | 10.8, 10.4 |
//! | JSON, lz4 | 0.51, 0.71 | 0.77, 0.96 | 8.4, 8.8 |
//! | 1 KB, not compressed | 0.71, 0.49 | 1.13, 1.05 | 2.3, 1.7 |
//! | 1 KB, lz4 | 0.55, 0.36 | 0.17, 0.25 | 0.60, 0.57 |
//!
//! The last column fetches and decodes; fetching alone takes a fortieth of `rdkafka`'s processor
//! time for JSON. For writing, `rdkafka` has transactions of version 1 only, and `krafka` does not
//! write a text beside the offset of a transaction, which is the marker of [`sink`]. Kerberos would
//! need `rdkafka`, and is not there.

mod client;
mod columns;
mod formats;
mod registry;
mod sink;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use millstream_connect::{Connector, Registry};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

pub use sink::KafkaSink;
pub use source::KafkaTable;

/// Makes the connectors `kafka` and `upsert-kafka` known.
pub fn register(registry: &Registry) {
    registry.register(
        "kafka",
        Connector::new()
            .source(|options| Ok(Arc::new(KafkaTable::from_options(options)?)))
            .sink(|options| Ok(Arc::new(KafkaSink::from_options(options)?)))
            .check(check)
            .secrets_on_use()
            .metadata(columns::metadata())
            .writes_metadata(columns::WRITTEN.to_vec()),
    );
    registry.register(
        "upsert-kafka",
        Connector::new()
            .unread(sink::refuse_reading)
            .sink(|options| Ok(Arc::new(KafkaSink::of_upserts(options)?)))
            .check(|options| KafkaSink::of_upserts(options).map(drop))
            .secrets_on_use()
            .metadata(columns::metadata())
            .writes_metadata(columns::WRITTEN.to_vec()),
    );
}

/// Whether the options are those of a table that may be read or written.
fn check(table: &TableOptions) -> Result<()> {
    KafkaTable::declared(table)?;
    match KafkaSink::from_options(table) {
        Err(Error::Option { option, table, message, help }) if option.starts_with("sink.") => {
            Err(Error::Option { option, table, message, help })
        }
        // What a sink does not have is said when it is written.
        _ => Ok(()),
    }
}
