//! `millstream init`: a `CREATE TABLE` for files, to be edited, and a query to begin with.

use std::collections::HashSet;

use millstream::program::declaration::{Declaration, free_name, identifier, interval, table_name};
use millstream::program::{SessionControl, counted, harmless};
use millstream::{Error, Session};

use crate::failure::{Failure, fail, usage};
use crate::output::print;

/// Windows of the example, microseconds.
const SIZES_US: [i64; 8] = [
    1_000_000,
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
    21_600_000_000,
    86_400_000_000,
    604_800_000_000,
];

/// Windows that the example has at most, if the sizes go as far.
const WINDOWS_MAX: i64 = 100;

/// Writes the statements for each file or pattern.
pub(crate) fn run(files: &[String]) -> Result<(), Failure> {
    let session = Session::new(".");
    let (mut names, mut texts) = (HashSet::new(), Vec::new());
    let mut example = None;
    for path in files {
        let found = session.declaration(path).map_err(|error| match error {
            Error::Option { message, help, .. } if help.is_empty() => usage(&message),
            Error::Option { message, help, .. } => usage(&format!("{message}\n  help: {help}")),
            other => fail(&other),
        })?;
        let name = free_name(&table_name(path), &names);
        names.insert(name.clone());
        example.get_or_insert_with(|| query(&name, &found));
        texts.push(statement(path, &name, &found));
    }
    texts.extend(example);
    print(&harmless(&texts.join("\n")))
}

/// A table's declaration with what is to be said of it.
fn statement(path: &str, name: &str, found: &Declaration) -> String {
    let columns = counted(found.columns.len() as u64, "column");
    let mut text = format!("-- {}: {columns}\n", path.replace(['\n', '\r'], " "));
    for remark in &found.remarks {
        text += &format!("-- {}\n", remark.replace(['\n', '\r'], " "));
    }
    if found.event_time.is_none() {
        text += "-- no column is its event time, which windows need: a time that is text can be \
                 computed from it,\n-- for example: ts AS TO_TIMESTAMP(column), WATERMARK FOR ts AS ts\n";
    }
    text + &found.to_sql_with_comments(name) + ";\n"
}

/// A query that runs without changes.
fn query(name: &str, found: &Declaration) -> String {
    let name = identifier(name);
    let Some(time) = &found.event_time else {
        return format!("SELECT COUNT(*) AS records\nFROM {name};\n");
    };
    let size = SIZES_US.into_iter().find(|size| time.span_us / size < WINDOWS_MAX);
    format!(
        "SELECT window_start, COUNT(*) AS records\n\
         FROM TABLE(TUMBLE(TABLE {name}, DESCRIPTOR({}), {}))\n\
         GROUP BY window_start, window_end;\n",
        identifier(&time.column),
        interval(size.unwrap_or(2_592_000_000_000)),
    )
}
