//! The registry of connectors: from `WITH ('connector' = '…')` to a table or a sink.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arrow::datatypes::DataType;
use millstream_contract::declaration::{Declaration, DeclaredTime};
use millstream_contract::settings::closest;
use millstream_contract::sink::Sink;
use millstream_contract::table::{Connectors, Table, TableOptions};
use millstream_contract::{Error, Result};

use crate::beside;
use crate::connector::Connector;
use crate::datagen::DatagenTable;
use crate::files::{FileSink, is_only_written, refuse_partitions};
use crate::http::HttpTable;
use crate::infer;
use crate::options::{Options, option_error};
use crate::secrets::{resolved, without_missing};
use crate::sinks::BlackholeSink;
use crate::socket::SocketTable;
use crate::source::{FileTable, FollowTable, is_followed, is_foreign};
use crate::text::{Format, TextOptions, TextSink};
use crate::types::sql_name;
use crate::written::may_be_written;

/// Connectors that people may look for and that are planned.
const LATER: &[&str] = &["jdbc", "rdma", "object-store", "s3"];

/// Other names of `file` and `print`.
const SECOND_NAMES: [&str; 2] = ["filesystem", "stdout"];

/// The connectors by name. [`Registry::new`] knows those of this crate:
///
/// | connector | source | sink | |
/// |---|---|---|---|
/// | `file`, `filesystem` | yes | yes | [`FileTable`]; [`FileSink`] |
/// | `stdin` | yes | | [`FileTable`] of `/dev/stdin` |
/// | `socket` | yes | | [`SocketTable`] |
/// | `http` | yes | | [`HttpTable`] |
/// | `datagen` | yes | | [`DatagenTable`] |
/// | `memory` | yes | | a table given to [`Registry::register_table`] |
/// | `print`, `stdout` | | yes | [`TextSink`]; `format` is `table`, `csv` or `ndjson` |
/// | `blackhole` | | yes | [`BlackholeSink`] |
///
/// More can be registered at any time, also in place of these.
///
/// ```
/// use millstream_connect::{BlackholeSink, Registry};
/// use std::sync::Arc;
///
/// let registry = Registry::new();
/// registry.register_sink("void", |_options| Ok(Arc::new(BlackholeSink::new())));
/// ```
///
/// [`Registry::register`] adds a connector with metadata columns and a check of its options.
pub struct Registry {
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    connectors: BTreeMap<String, Connector>,
    tables: BTreeMap<String, Arc<dyn Table>>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// The connectors of this crate.
    pub fn new() -> Registry {
        let registry = Registry { known: RwLock::default() };
        let file = Connector::new()
            .source(file)
            .sink(|options| Ok(Arc::new(FileSink::from_options(options)?)))
            .check(check_file)
            .metadata(beside::of_files())
            .files();
        registry.register("filesystem", file.clone());
        registry.register("file", file);
        let stdin = Connector::new()
            .source(|options| Ok(Arc::new(FileTable::from_options(&standard_input(options)?)?)))
            .check(|options| FileTable::check(&standard_input(options)?))
            .metadata(beside::of_streams());
        registry.register("stdin", stdin);
        let datagen = Connector::new()
            .source(|options| Ok(Arc::new(DatagenTable::from_options(options)?)))
            .check(|options| DatagenTable::from_options(options).map(drop));
        registry.register("datagen", datagen);
        let socket = Connector::new()
            .source(|options| Ok(Arc::new(SocketTable::from_options(options)?)))
            .check(|options| SocketTable::from_options(options).map(drop))
            .metadata(beside::of_streams());
        registry.register("socket", socket);
        let http = Connector::new()
            .source(|options| Ok(Arc::new(HttpTable::from_options(options)?)))
            .check(|options| HttpTable::from_options(options).map(drop));
        registry.register("http", http);
        let to_stdout = Connector::new()
            .sink(|options| Ok(Arc::new(print(options)?)))
            .check(|options| print(options).map(drop));
        registry.register("stdout", to_stdout.clone());
        registry.register("print", to_stdout);
        let nothing = |options: &TableOptions| Options::new(options).finish("blackhole");
        let blackhole = Connector::new()
            .sink(move |options| {
                nothing(options)?;
                Ok(Arc::new(BlackholeSink::new()))
            })
            .check(nothing);
        registry.register("blackhole", blackhole);
        registry
    }

    /// Adds a connector, in place of one of the same name.
    pub fn register(&self, name: &str, connector: Connector) {
        self.change().connectors.insert(name.to_string(), connector);
    }

    /// Adds a connector to read from, or changes how a connector reads. Its options are looked at
    /// only by `make`, which is called when a table is used.
    pub fn register_source(
        &self,
        connector: &str,
        make: impl Fn(&TableOptions) -> Result<Arc<dyn Table>> + Send + Sync + 'static,
    ) {
        self.register(connector, self.unchecked(connector).source(make));
    }

    /// As [`Registry::register_source`], to write to.
    pub fn register_sink(
        &self,
        connector: &str,
        make: impl Fn(&TableOptions) -> Result<Arc<dyn Sink>> + Send + Sync + 'static,
    ) {
        self.register(connector, self.unchecked(connector).sink(make));
    }

    /// The connector of this name, or a new one, of which nothing but its directions is known.
    fn unchecked(&self, connector: &str) -> Connector {
        let Connector { source, sink, .. } = self.connector(connector);
        Connector { source, sink, ..Connector::new().partitions() }
    }

    /// The connector of this name, if it is there; else nothing to read from or write to.
    fn connector(&self, name: &str) -> Connector {
        self.known().connectors.get(name).cloned().unwrap_or_default()
    }

    /// Makes the connector `print` write to other sinks than stdout; its options stay. `sink` is
    /// called with its option `format`, if that is given.
    pub fn print_to(
        &self,
        sink: impl Fn(Option<Format>) -> Arc<dyn Sink> + Send + Sync + Clone + 'static,
    ) {
        for name in ["print", "stdout"] {
            let sink = sink.clone();
            let print = self.connector(name).sink(move |options| Ok(sink(print_format(options)?)));
            self.register(name, print);
        }
    }

    /// Adds a table that exists already, under a name. `CREATE TABLE name (…) WITH ('connector' =
    /// 'memory')` finds it, with the declared columns as a check; `'table' = '…'` names another.
    pub fn register_table(&self, name: &str, table: Arc<dyn Table>) {
        self.change().tables.insert(name.to_string(), table);
    }

    /// The table registered under `name`, for queries that need no `CREATE TABLE` for it.
    pub fn registered_table(&self, name: &str) -> Option<Arc<dyn Table>> {
        self.known().tables.get(name).cloned()
    }

    /// A panic elsewhere cannot leave a map half changed, so a poisoned lock is as good.
    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all connectors, sorted.
    fn names(&self) -> Vec<String> {
        self.names_of(|_| true, true)
    }

    /// The names of connectors that are `wanted`, sorted, and perhaps `memory`.
    fn names_of(&self, wanted: impl Fn(&Connector) -> bool, memory: bool) -> Vec<String> {
        let known = self.known();
        let names = known.connectors.iter().filter(|(_, of)| wanted(of)).map(|(name, _)| name);
        let memory = memory.then(|| "memory".to_string());
        let all: BTreeSet<String> = names.cloned().chain(memory).collect();
        all.into_iter().collect()
    }

    /// The registered table that a `memory` table means.
    fn memory(&self, table: &TableOptions) -> Result<Arc<dyn Table>> {
        let options = Options::new(table);
        let name = options.text("table").unwrap_or(&table.name);
        options.finish("memory")?;
        let known = self.known();
        let Some(found) = known.tables.get(name) else {
            let names = known.tables.keys().map(String::as_str);
            let help = match closest(name, names.clone()) {
                Some(similar) => format!("did you mean '{similar}'?"),
                None if known.tables.is_empty() => {
                    "give the table to the session before its CREATE TABLE".to_string()
                }
                None => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
            };
            return Err(options.error(
                "table",
                format!("there is no table '{name}' in memory"),
                help,
            ));
        };
        let columns = |schema: &arrow::datatypes::Schema| -> Vec<String> {
            let column = |field: &Arc<arrow::datatypes::Field>| {
                format!("{} {}", field.name(), sql_name(field.data_type()))
            };
            schema.fields().iter().map(column).collect()
        };
        let (declared, actual) = (columns(&table.schema), columns(&found.schema()));
        if declared != actual {
            let message = format!(
                "expected the columns ({}), found ({})",
                actual.join(", "),
                declared.join(", ")
            );
            return Err(options.error("table", message, "declare the columns that the table has"));
        }
        Ok(found.clone())
    }
}

impl Connectors for Registry {
    fn table(&self, options: &TableOptions) -> Result<Arc<dyn Table>> {
        let (options, secrets) = resolved(options)?;
        let table = self.made_table(&options).map_err(|error| secrets.hide(error))?;
        Ok(secrets.hide_in(table))
    }

    fn table_after(
        &self,
        options: &TableOptions,
        written: &[TableOptions],
    ) -> Result<Arc<dyn Table>> {
        let is_files = self.connector(named(options)).is_files;
        match self.table(options) {
            Err(Error::Option { option, .. })
                if is_files && option == "path" && !is_followed(options)? =>
            {
                let (own, secrets) = resolved(options)?;
                let written = written.iter().map(|w| resolved(w).map(|(written, _)| written));
                match may_be_written(&own, &written.collect::<Result<Vec<_>>>()?) {
                    true => {
                        let table = FileTable::not_yet(&own).map_err(|e| secrets.hide(e))?;
                        Ok(secrets.hide_in(Arc::new(table)))
                    }
                    false => self.table(options),
                }
            }
            found => found,
        }
    }

    fn sink(&self, options: &TableOptions) -> Result<Arc<dyn Sink>> {
        let (options, secrets) = resolved(options)?;
        let sink = self.made_sink(&options).map_err(|error| secrets.hide(error))?;
        Ok(secrets.hide_in_sink(sink))
    }

    fn knows(&self, options: &TableOptions) -> bool {
        self.names().iter().any(|name| name == named(options))
    }

    fn check(&self, options: &TableOptions) -> Result<()> {
        let name = named(options);
        let may_be_meant = |names: Vec<String>| {
            closest(name, names.iter().map(String::as_str)).is_some() || name.contains('$')
        };
        // As in Flink, the connector is looked for when the table is used, but for a wrong letter.
        if !name.is_empty() && !self.knows(options) && !may_be_meant(self.names()) {
            return Ok(());
        }
        let (options, secrets, missing) = match resolved(options) {
            Ok((found, secrets)) => (found, secrets, None),
            Err(_) if self.connector(name).secrets_on_use => return Ok(()),
            // Where it has to be there, it would hide what else is wrong.
            Err(error) => match without_missing(options) {
                Some((found, secrets)) => (found, secrets, Some(error)),
                None => return Err(error),
            },
        };
        match (self.checked(&options).map_err(|error| secrets.hide(error)), missing) {
            // A fault of a present option is reported before a missing option.
            (Err(Error::Option { option, .. }), Some(missing))
                if !options.options.contains_key(&option) =>
            {
                Err(missing)
            }
            (Ok(()), Some(missing)) => Err(missing),
            // A format is looked for on use, too.
            (Err(Error::Option { option, .. }), None)
                if option == "format" && is_foreign(&options) =>
            {
                Ok(())
            }
            (checked, _) => checked,
        }
    }

    fn metadata(&self, options: &TableOptions) -> Vec<(&'static str, DataType)> {
        self.connector(named(options)).metadata
    }

    fn written_metadata(&self, options: &TableOptions) -> Vec<&'static str> {
        self.connector(named(options)).written_metadata
    }

    fn declaration(&self, path: &str, base_dir: &Path) -> Result<Declaration> {
        infer::declaration(path, base_dir)
    }

    fn time_of_all(&self, table: &dyn Table, found: &Declaration) -> Result<Option<DeclaredTime>> {
        infer::time_of_all(table, found)
    }
}

/// With the secrets of options put in.
impl Registry {
    fn made_table(&self, options: &TableOptions) -> Result<Arc<dyn Table>> {
        if let Some(why) = self.connector(named(options)).unread {
            return Err(why(options));
        }
        let names = self.names_of(|connector| connector.source.is_some(), true);
        let is_sink = self.connector(named(options)).sink.is_some();
        let name = connector(options, "read from", &names, is_sink)?;
        let connector = self.connector(name);
        check_partitions(options, name, &connector)?;
        match connector.source {
            Some(make) => make(options),
            None => self.memory(options),
        }
    }

    fn checked(&self, options: &TableOptions) -> Result<()> {
        let name = connector(options, "read from and write to", &self.names(), false)?;
        let connector = self.connector(name);
        check_partitions(options, name, &connector)?;
        match connector.check {
            Some(check) => check(options),
            None if name == "memory" => {
                let options = Options::new(options);
                options.text("table");
                options.finish("memory")
            }
            None => Ok(()),
        }
    }

    fn made_sink(&self, options: &TableOptions) -> Result<Arc<dyn Sink>> {
        let names = self.names_of(|connector| connector.sink.is_some(), false);
        let is_source = self.connector(named(options)).source.is_some();
        let opposite = is_source || named(options) == "memory";
        let name = connector(options, "write to", &names, opposite)?;
        let connector = self.connector(name);
        check_partitions(options, name, &connector)?;
        match connector.sink {
            Some(make) => make(options),
            None => Err(Error::Internal(format!("sink {name} vanished"))),
        }
    }
}

/// Refuses partitions of a connector without partitions.
fn check_partitions(options: &TableOptions, name: &str, connector: &Connector) -> Result<()> {
    match connector.takes_partitions {
        true => Ok(()),
        false => refuse_partitions(options, &format!("the connector '{name}'")),
    }
}

/// The option `connector`, or nothing.
fn named(options: &TableOptions) -> &str {
    options.options.get("connector").map_or("", String::as_str)
}

/// The connector's name, if it is among `names`. `opposite`: the connector exists, for the other
/// direction.
fn connector<'a>(
    options: &'a TableOptions,
    direction: &str,
    names: &[String],
    opposite: bool,
) -> Result<&'a str> {
    let name = named(options);
    if names.iter().any(|known| known == name) {
        return Ok(name);
    }
    // Second names are understood, and not advertised.
    let first = names.iter().map(String::as_str).filter(|name| !SECOND_NAMES.contains(name));
    let list = format!("connectors to {direction} are {}", first.collect::<Vec<_>>().join(", "));
    let error = |message, help| Err(option_error(&options.name, "connector", message, help));
    if name.is_empty() {
        return error("a table needs a connector".to_string(), list);
    }
    let shown = name.escape_debug();
    if opposite {
        return error(format!("there is no way to {direction} '{shown}' yet"), list);
    }
    if LATER.contains(&name.to_ascii_lowercase().as_str()) {
        return error(format!("the connector '{shown}' does not run here"), list);
    }
    let help = match closest(name, names.iter().map(String::as_str)) {
        Some(similar) => format!("did you mean '{similar}'?"),
        None => list,
    };
    error(format!("there is no connector '{shown}'"), help)
}

/// A file to read, or to follow.
fn file(table: &TableOptions) -> Result<Arc<dyn Table>> {
    Ok(match is_followed(table)? {
        true => Arc::new(FollowTable::from_options(table)?),
        false => Arc::new(FileTable::from_options(table)?),
    })
}

/// Checks options of a file, for reading or writing. If neither fits, the error is about the
/// direction that the user seems to mean.
fn check_file(table: &TableOptions) -> Result<()> {
    let Err(read) = FileTable::check(table) else { return Ok(()) };
    let Err(written) = FileSink::from_options(table) else { return Ok(()) };
    let of_format =
        |error: &Error| matches!(error, Error::Option { option, .. } if option == "format");
    // What is followed is read.
    let only_read = table.options.contains_key("follow");
    let only_written = of_format(&read) && !of_format(&written) && !only_read;
    let to_write = table.options.keys().any(|key| is_only_written(key)) || only_written;
    Err(if to_write { written } else { read })
}

/// `'connector' = 'stdin'` as a file.
fn standard_input(table: &TableOptions) -> Result<TableOptions> {
    if table.options.contains_key("path") {
        let message = "standard input has no path".to_string();
        let help = "leave it out, or write 'connector' = 'file'";
        return Err(option_error(&table.name, "path", message, help));
    }
    let mut file = table.clone();
    file.options.insert("path".into(), "/dev/stdin".into());
    Ok(file)
}

/// `'connector' = 'print'`: rows on stdout.
fn print(table: &TableOptions) -> Result<TextSink> {
    let format = print_format(table)?.unwrap_or(Format::Table);
    Ok(TextSink::new(format, Box::new(std::io::stdout()), TextOptions::default()))
}

/// The option `format` of such a table.
fn print_format(table: &TableOptions) -> Result<Option<Format>> {
    let options = Options::new(table);
    let format = match options.text("format").map(str::parse::<Format>) {
        None => None,
        Some(Ok(format)) => Some(format),
        Some(Err(help)) => {
            let given = options.text("format").unwrap_or_default().escape_debug();
            return Err(options.error("format", format!("there is no format '{given}'"), help));
        }
    };
    options.finish("print")?;
    Ok(format)
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known();
        f.debug_struct("Registry")
            .field("connectors", &known.connectors)
            .field("tables", &known.tables.keys())
            .finish()
    }
}
