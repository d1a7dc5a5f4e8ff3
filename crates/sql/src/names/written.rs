//! Where INSERTs write: two of one statement set must not write to one place, nor two tables of a
//! script to one directory of files.

use std::path::{Component, Path, PathBuf};

use millstream_contract::table::TableOptions;

use crate::names::catalog::{Origin, TableEntry};
use crate::syntax::prelude::*;

/// The target to which a table's rows are written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Written {
    Stdout,
    Path(PathBuf),
    /// A target of this table only.
    Table(String),
}

impl Written {
    pub(crate) fn of(entry: &TableEntry) -> Written {
        match &entry.origin {
            Origin::Connector(declared) => Written::of_options(&declared.options),
            _ => Written::Table(entry.name.clone()),
        }
    }

    fn of_options(table: &TableOptions) -> Written {
        let option = |key: &str| table.options.get(key).map(|value| value.trim());
        if matches!(option("connector"), Some("print" | "stdout")) {
            return Written::Stdout;
        }
        let Some(path) = option("path") else { return Written::Table(table.name.clone()) };
        let path = path.strip_prefix("file://").unwrap_or(path);
        match path {
            "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => Written::Stdout,
            path => Written::Path(real(&table.base_dir.join(path))),
        }
    }
}

/// Refuses a table of files into whose directory a statement before writes files of another table,
/// which may have other columns or another format.
pub(crate) fn check_new(table: &TableOptions, before: &[TableOptions]) -> Result<()> {
    let is_file = |table: &&TableOptions| {
        let connector = table.options.get("connector").map(|connector| connector.trim());
        matches!(connector, Some("file" | "filesystem"))
    };
    let (true, Written::Path(path)) = (is_file(&table), Written::of_options(table)) else {
        return Ok(());
    };
    let same = |before: &&TableOptions| Written::of_options(before) == Written::Path(path.clone());
    let others = before.iter().filter(|other| is_file(other) && other.name != table.name);
    let Some(other) = others.clone().find(same) else { return Ok(()) };
    let message = format!(
        "a statement before writes to the directory of '{}' already, for '{}'",
        table.name, other.name
    );
    Err(SqlError::unsupported(message).help(format!(
        "insert into {} here, too, or give {} another 'path'",
        other.name, table.name
    )))
}

/// A path as the file system has it, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut real = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = real.pop(),
            part => real.push(part),
        }
        if let Ok(found) = real.canonicalize() {
            real = found;
        }
    }
    real
}

/// Two INSERTs of a statement set that write to the same place.
pub(crate) fn twice(to: &Written, one: &TableEntry, other: &TableEntry) -> SqlError {
    let same = one.name == other.name;
    if *to == Written::Stdout && !same {
        let message = format!(
            "two INSERTs of the statement set print on stdout, those into '{}' and '{}': nobody \
             could tell their rows apart",
            one.name, other.name
        );
        return SqlError::unsupported(message).help(
            "write one of them to a file: WITH ('connector' = 'file', 'path' = '…', 'format' = 'csv')",
        );
    }
    let message = match same {
        true => format!("two INSERTs of the statement set write to '{}'", one.name),
        false => format!(
            "two INSERTs of the statement set write to one path: that of '{}' and '{}'",
            one.name, other.name
        ),
    };
    SqlError::unsupported(message).help(format!(
        "write one of them: INSERT INTO {} SELECT … UNION ALL SELECT …, or insert into a table of \
         its own",
        one.name
    ))
}

/// Says of a table that cannot be read that the same statement would write it.
pub(crate) fn written_by<'t>(
    error: SqlError,
    table: &TableEntry,
    mut targets: impl Iterator<Item = &'t TableEntry>,
) -> SqlError {
    let Written::Path(read) = Written::of(table) else { return error };
    let writes = |target: &&TableEntry| match Written::of(target) {
        Written::Path(written) => read.starts_with(written),
        _ => false,
    };
    match targets.find(writes).filter(|_| error.kind == ErrorKind::Connector) {
        Some(target) => error.help(format!(
            "the INSERT INTO {} of the same statement writes it; insert in a statement before, and \
             read in the next",
            target.name
        )),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_ways_around_lead_to_one_place() {
        let folder = folder();
        std::fs::create_dir_all(folder.join("a")).expect("a folder");
        std::os::unix::fs::symlink(folder.join("a"), folder.join("link")).expect("a link");
        let place = real(&folder.join("a/new"));
        for other in ["link/new", "a/../a/./new", "none/../link/new"] {
            assert_eq!(real(&folder.join(other)), place, "{other}");
        }
        assert_ne!(real(&folder.join("a/other")), place);
        std::fs::remove_dir_all(&folder).expect("to clean up");
    }

    fn folder() -> PathBuf {
        let name = format!("millstream-written-{}", std::process::id());
        std::env::temp_dir().join(name)
    }
}
