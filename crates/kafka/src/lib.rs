//! Kafka: topics as tables that are read ([`KafkaTable`]) and written ([`KafkaSink`]).
//!
//! Names of options are Flink's; `docs/kafka.md` says what a user does.
//!
//! A client of our own speaks the protocol ([`client`]); the layout of its messages is a library's.
//! Batches of records are handed out as the broker sends them, still compressed, and any worker
//! unpacks and decodes them, so a topic of one partition keeps all workers busy.

mod client;
mod columns;
mod formats;
mod sink;
mod source;

use std::sync::Arc;

use millstream_connect::{Connector, Registry};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

pub use sink::KafkaSink;
pub use source::KafkaTable;

/// Makes the connector `kafka` known.
pub fn register(registry: &Registry) {
    registry.register(
        "kafka",
        Connector::new()
            .source(|options| Ok(Arc::new(KafkaTable::from_options(options)?)))
            .sink(|options| Ok(Arc::new(KafkaSink::from_options(options)?)))
            .check(check)
            .secrets_on_use()
            .metadata(columns::metadata()),
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
