//! A table as `CREATE TABLE` declares it, for its connector.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow::datatypes::SchemaRef;

/// Options of `CREATE TABLE … WITH (…)`, as handed to the connectors.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// The table's name.
    pub name: String,
    /// Physical columns and metadata columns (no computed ones).
    pub schema: SchemaRef,
    /// The metadata columns of `schema`, which are not in the records: by name, with their keys,
    /// each from [`Connectors::metadata`](crate::table::Connectors::metadata).
    pub metadata: BTreeMap<String, String>,
    /// The `WITH` options.
    pub options: BTreeMap<String, String>,
    /// `PARTITIONED BY`: physical columns, outermost first.
    pub partitioned_by: Vec<String>,
    /// The columns of the `PRIMARY KEY`, or none.
    pub primary_key: Vec<String>,
    /// Directory against which relative paths are resolved: that of the SQL file.
    pub base_dir: PathBuf,
    /// True for undeclared types, which must hold all values: a value of which a type would lose
    /// digits, or that differs from its text in the type, is an error.
    pub exact: bool,
}

impl TableOptions {
    /// A table without metadata columns, partitions and key. Relative paths are those of the
    /// working directory.
    pub fn new<K: Into<String>, V: Into<String>>(
        name: &str,
        schema: SchemaRef,
        options: impl IntoIterator<Item = (K, V)>,
    ) -> TableOptions {
        let options = options.into_iter().map(|(key, value)| (key.into(), value.into()));
        TableOptions {
            name: name.into(),
            schema,
            metadata: BTreeMap::new(),
            options: options.collect(),
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            base_dir: ".".into(),
            exact: false,
        }
    }
}
