//! Tables of the connector `upsert-kafka`: the last message of each key counts.
//!
//! Options are those of the connector `kafka`, but for the key, which is the PRIMARY KEY. Rows with
//! the same key go to the same partition, in order.

use millstream_connect::Options;
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

/// Options that say when a sink of Flink writes. Rows are written when their window has fired.
const WITHOUT_EFFECT: [&str; 2] = ["sink.buffer-flush.max-rows", "sink.buffer-flush.interval"];

/// The options of a table of `upsert-kafka` as those of a table of `kafka`.
///
/// # Errors
/// [`Error::Option`] with the option at fault.
pub(crate) fn as_kafka(table: &TableOptions) -> Result<TableOptions> {
    let options = Options::new(table);
    if table.primary_key.is_empty() {
        let message = "a table of 'upsert-kafka' needs a PRIMARY KEY".to_string();
        let help = "add PRIMARY KEY (column, …) NOT ENFORCED to the columns";
        return Err(options.error("connector", message, help));
    }
    for (option, message, help) in [
        ("key.fields", "the key is the PRIMARY KEY", "leave it out"),
        ("sink.partitioner", "rows go to the partition of their key", "leave it out"),
        ("format", "key and value have a format each", "write 'key.format' and 'value.format'"),
    ] {
        if options.text(option).is_some() {
            return Err(options.error(option, message.into(), help));
        }
    }
    for option in ["key.format", "value.format"] {
        if options.text(option).is_none() {
            let message = "key and value have a format each".to_string();
            let help = format!("write '{option}' = 'json' among the options");
            return Err(options.error(option, message, help));
        }
    }
    let mut of_kafka = table.clone();
    of_kafka.options.retain(|option, _| !WITHOUT_EFFECT.contains(&option.as_str()));
    of_kafka.options.insert("key.fields".into(), table.primary_key.join(";"));
    Ok(of_kafka)
}

/// Why a table of `upsert-kafka` is not read.
pub(crate) fn refuse_reading(table: &TableOptions) -> Error {
    let message = "a later message of a key changes the row of an earlier one, and tables whose \
                   rows change cannot be read yet";
    let help = format!(
        "read the messages, each as a row of its own: 'connector' = 'kafka', with 'key.fields' = \
         '{}'",
        table.primary_key.join(";")
    );
    Options::new(table).error("connector", message.into(), help)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::sink::KafkaSink;

    fn table(key: &[&str], more: &[(&str, &str)]) -> TableOptions {
        let options = [
            ("topic", "t"),
            ("properties.bootstrap.servers", "localhost:9092"),
            ("key.format", "json"),
            ("value.format", "json"),
        ];
        let field = |name: &str| Field::new(name, DataType::Utf8, true);
        let mut options: BTreeMap<&str, &str> = options.into_iter().collect();
        options.extend(more.iter().copied());
        options.retain(|_, value| !value.is_empty());
        let text = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
        TableOptions {
            name: "o".into(),
            schema: Arc::new(Schema::new(vec![field("k_id"), field("v")])),
            options: options.into_iter().map(text).collect(),
            metadata: BTreeMap::new(),
            partitioned_by: Vec::new(),
            primary_key: key.iter().map(|name| name.to_string()).collect(),
            exact: false,
            base_dir: ".".into(),
        }
    }

    #[test]
    fn the_key_is_the_primary_key() {
        let prefixed = [("key.fields-prefix", "k_"), ("value.fields-include", "EXCEPT_KEY")];
        for more in [&[][..], &prefixed, &[("sink.buffer-flush.max-rows", "10")]] {
            assert!(KafkaSink::of_upserts(&table(&["k_id"], more)).is_ok(), "{more:?}");
        }
    }

    #[test]
    fn what_a_table_of_upserts_cannot_have_is_refused() {
        for (key, more, said) in [
            (&[][..], ("key.format", "json"), "needs a PRIMARY KEY"),
            (&["k_id"][..], ("key.fields", "v"), "the key is the PRIMARY KEY"),
            (&["k_id"][..], ("sink.partitioner", "fixed"), "the partition of their key"),
            (&["k_id"][..], ("format", "json"), "'key.format' and 'value.format'"),
            (&["k_id"][..], ("key.format", ""), "write 'key.format' = 'json'"),
            (&["k_id"][..], ("value.format", ""), "write 'value.format' = 'json'"),
            (&["k_id"][..], ("sink.bufer-flush.interval", "1 s"), "sink.bufer-flush.interval"),
        ] {
            let error = KafkaSink::of_upserts(&table(key, &[more])).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
