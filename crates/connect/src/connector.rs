//! A connector as a registry has it: how its tables and sinks are made and checked.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use millstream_contract::sink::Sink;
use millstream_contract::table::{Table, TableOptions};
use millstream_contract::{Error, Result};

pub(crate) type MakeTable = Arc<dyn Fn(&TableOptions) -> Result<Arc<dyn Table>> + Send + Sync>;
pub(crate) type MakeSink = Arc<dyn Fn(&TableOptions) -> Result<Arc<dyn Sink>> + Send + Sync>;
pub(crate) type Check = Arc<dyn Fn(&TableOptions) -> Result<()> + Send + Sync>;

/// A connector of [`Registry::register`](crate::Registry::register), also of another crate.
///
/// ```
/// use millstream_connect::{BlackholeSink, Connector, Options, Registry};
/// use std::sync::Arc;
///
/// let void = Connector::new()
///     .sink(|_options| Ok(Arc::new(BlackholeSink::new())))
///     .check(|options| Options::new(options).finish("void"));
/// Registry::new().register("void", void);
/// ```
#[derive(Clone, Default)]
pub struct Connector {
    pub(crate) source: Option<MakeTable>,
    pub(crate) sink: Option<MakeSink>,
    pub(crate) check: Option<Check>,
    /// Why nothing is read.
    pub(crate) unread: Option<fn(&TableOptions) -> Error>,
    pub(crate) metadata: Vec<(&'static str, DataType)>,
    pub(crate) written_metadata: Vec<&'static str>,
    pub(crate) takes_partitions: bool,
    /// Whether a `${…}` that is no secret is a fault only when the table is used.
    pub(crate) secrets_on_use: bool,
    /// Whether a table is files that an INSERT of the same script may write.
    pub(crate) is_files: bool,
}

impl Connector {
    /// Neither a source nor a sink.
    pub fn new() -> Connector {
        Connector::default()
    }

    /// Reads. `make` is called when a table is used, perhaps several times.
    pub fn source(
        self,
        make: impl Fn(&TableOptions) -> Result<Arc<dyn Table>> + Send + Sync + 'static,
    ) -> Connector {
        Connector { source: Some(Arc::new(make)), ..self }
    }

    /// Writes. `make` is called when rows are inserted into a table.
    pub fn sink(
        self,
        make: impl Fn(&TableOptions) -> Result<Arc<dyn Sink>> + Send + Sync + 'static,
    ) -> Connector {
        Connector { sink: Some(Arc::new(make)), ..self }
    }

    /// Refuses queries over the table, with the reason.
    pub fn unread(self, why: fn(&TableOptions) -> Error) -> Connector {
        Connector { unread: Some(why), ..self }
    }

    /// Looks at the options of each `CREATE TABLE`, and opens nothing. Without a check, faults of
    /// options come to light when the table is used. Values of secrets are put in; a `check` need
    /// not know of them.
    pub fn check(
        self,
        check: impl Fn(&TableOptions) -> Result<()> + Send + Sync + 'static,
    ) -> Connector {
        Connector { check: Some(Arc::new(check)), ..self }
    }

    /// Keys of `METADATA` columns, with their types. A column may be declared with another type
    /// that holds the key's values ([`may_hold`]); its batches then have the declared type.
    ///
    /// [`may_hold`]: millstream_contract::metadata::may_hold
    pub fn metadata(self, keys: Vec<(&'static str, DataType)>) -> Connector {
        Connector { metadata: keys, ..self }
    }

    /// Keys of `METADATA` columns that sinks write. The [`TableOptions`] of a sink have these
    /// columns, and no other metadata columns.
    pub fn writes_metadata(self, keys: Vec<&'static str>) -> Connector {
        Connector { written_metadata: keys, ..self }
    }

    /// Lets a table be declared with a `${…}` that is no secret, or of a missing secret, as long as
    /// nobody uses the table. Scripts for other engines have placeholders of this form.
    pub fn secrets_on_use(self) -> Connector {
        Connector { secrets_on_use: true, ..self }
    }

    /// Takes `PARTITIONED BY`, which is refused otherwise.
    pub fn partitions(self) -> Connector {
        Connector { takes_partitions: true, ..self }
    }

    /// Files: of paths, partitions and directories of sinks.
    pub(crate) fn files(self) -> Connector {
        Connector { takes_partitions: true, is_files: true, ..self }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("source", &self.source.is_some())
            .field("sink", &self.sink.is_some())
            .field("check", &self.check.is_some())
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {

    use arrow::datatypes::Schema;
    use millstream_contract::table::Connectors;

    use super::*;
    use crate::{BlackholeSink, MemoryTable, Options, Registry};

    fn table(options: &[(&str, &str)]) -> TableOptions {
        TableOptions::new("t", Arc::new(Schema::empty()), options.iter().copied())
    }

    fn outside() -> Connector {
        Connector::new()
            .source(|table| Ok(Arc::new(MemoryTable::new(table.schema.clone(), vec![])?)))
            .check(|table| {
                let options = Options::new(table);
                options.integer("depth", 1, 9)?;
                options.finish("outside")
            })
            .metadata(vec![("depth", DataType::Int32)])
    }

    #[test]
    fn a_connector_of_another_crate_is_checked_and_has_metadata() {
        let registry = Registry::new();
        let named = [("connector", "outside")];
        assert!(!registry.knows(&table(&named)));
        registry.register("outside", outside());
        assert!(registry.check(&table(&named)).is_ok() && registry.table(&table(&named)).is_ok());
        assert_eq!(registry.metadata(&table(&named)), [("depth", DataType::Int32)]);
        let refused = |options: &[(&str, &str)]| {
            registry.check(&table(&[&named, options].concat())).unwrap_err().to_string()
        };
        assert!(refused(&[("depth", "10")]).contains("a whole number from 1 to 9"));
        assert!(refused(&[("path", "x")]).contains("outside has no such option"));
        let partitioned = TableOptions { partitioned_by: vec!["day".into()], ..table(&named) };
        for error in [registry.check(&partitioned).err(), registry.table(&partitioned).err()] {
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("the connector 'outside' has no partitions"), "{error}");
        }
        registry.register("outside", outside().partitions());
        assert!(registry.check(&partitioned).is_ok());
        let error = registry.sink(&table(&named)).map(drop).unwrap_err().to_string();
        assert!(error.contains("there is no way to write to 'outside' yet"), "{error}");
    }

    #[test]
    fn a_direction_that_is_put_in_place_of_another_is_not_checked() {
        let registry = Registry::new();
        registry.register("outside", outside());
        registry.register_sink("outside", |_| Ok(Arc::new(BlackholeSink::new())));
        let table = table(&[("connector", "outside"), ("any", "x")]);
        assert!(registry.check(&table).is_ok() && registry.metadata(&table).is_empty());
        assert!(registry.table(&table).is_ok() && registry.sink(&table).is_ok());
    }
}
