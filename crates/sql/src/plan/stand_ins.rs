//! Stand-ins: what takes the place of a table's connector where a query is tested, files for what
//! it reads and the test's own sinks for what it writes.

use millstream_contract::sink::Sink;

use crate::names::catalog::{LATE, ON_ERROR};
use crate::plan::create::IDLE_TIMEOUT;
use crate::syntax::create_table::{ColumnKind, CreateTable, OptionDef};
use crate::syntax::prelude::*;

/// Makes the sink of a table by its name.
type Sinks = Arc<dyn Fn(&str) -> Arc<dyn Sink> + Send + Sync>;

/// Replacements of connectors.
#[derive(Clone, Default)]
pub(crate) struct StandIns {
    /// Paths of files, by table.
    files: BTreeMap<String, String>,
    sinks: Option<Sinks>,
}

impl fmt::Debug for StandIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandIns").field("files", &self.files).finish_non_exhaustive()
    }
}

impl StandIns {
    pub(crate) fn read_from_file(&mut self, table: &str, path: &str) {
        self.files.insert(table.to_string(), path.to_string());
    }

    pub(crate) fn insert_into(&mut self, sinks: Sinks) {
        self.sinks = Some(sinks);
    }

    /// Replacement sink for rows inserted into `table`, if the declared sink is not used.
    pub(crate) fn sink(&self, table: &str) -> Option<Arc<dyn Sink>> {
        self.sinks.as_ref().map(|sinks| sinks(table))
    }

    /// The tables that there are files for, whether they are declared or not.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Whether a query is tested.
    pub(crate) fn are_used(&self) -> bool {
        self.sinks.is_some()
    }

    /// The table as it would be declared if its records were in its file, if there is one.
    ///
    /// Columns, event time and watermark stay. Metadata columns are columns of the file. Of the
    /// options those stay that say what records count, or how a value of the file's format reads.
    pub(crate) fn table(&self, create: &CreateTable) -> Option<CreateTable> {
        let path = self.files.get(&create.name.value)?;
        let is_csv = path.to_ascii_lowercase().ends_with(".csv");
        let format = if is_csv { "csv" } else { "ndjson" };
        let mut table = create.clone();
        for column in &mut table.columns {
            if let ColumnKind::Metadata { type_def, nullable, .. } = &column.kind {
                let (type_def, nullable) = (type_def.clone(), *nullable);
                column.kind = ColumnKind::Physical { type_def, nullable };
            }
        }
        table.partitioned_by.clear();
        table.options.retain(|option| match option.key.as_str() {
            ON_ERROR | LATE | IDLE_TIMEOUT => true,
            "csv.ignore-parse-errors" => is_csv,
            key => !is_csv && key.starts_with("json."),
        });
        let mut set = |key: &str, value: &str| {
            let (key, value) = (key.to_string(), value.to_string());
            table.options.push(OptionDef { key, value, key_span: None, value_span: None });
        };
        set("connector", "file");
        set("path", path);
        set("format", format);
        if is_csv {
            set("csv.header", "true");
        }
        Some(table)
    }
}
