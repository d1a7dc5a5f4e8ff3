//! Reading topics: `CREATE TABLE … WITH ('connector' = 'kafka', 'topic' = …)`.

mod bounds;
mod chunk;
mod fetch;
mod options;
mod split;
mod table;

pub use self::table::KafkaTable;
