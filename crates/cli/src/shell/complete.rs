//! Completion: what a word may become when Tab is pressed.

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use millstream::{SETTINGS, Session};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

/// Words of the dialect.
const KEYWORDS: &[&str] = &[
    "ALL",
    "AND",
    "ANTI",
    "AS",
    "ASC",
    "BEGIN",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "BYTES",
    "CASE",
    "CAST",
    "CREATE",
    "CROSS",
    "CUBE",
    "CUMULATE",
    "CURRENT_TIMESTAMP",
    "DATE",
    "DATA",
    "DAY",
    "DECIMAL",
    "DESC",
    "DESCRIBE",
    "DESCRIPTOR",
    "DISTINCT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "END",
    "EXECUTE",
    "EXISTS",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "FALSE",
    "FILTER",
    "FLOAT",
    "FROM",
    "FULL",
    "FUNCTION",
    "FUNCTIONS",
    "GROUP BY",
    "GROUPING SETS",
    "HAVING",
    "HOP",
    "HOUR",
    "IF",
    "IN",
    "INNER",
    "INSERT INTO",
    "INT",
    "INTERVAL",
    "IS",
    "JOIN",
    "LATERAL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "METADATA",
    "MINUTE",
    "MONTH",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER BY",
    "OUTER",
    "OVER",
    "PARTITION BY",
    "PARTITIONED BY",
    "REPLACE",
    "RIGHT",
    "ROLLUP",
    "ROW_NUMBER",
    "SECOND",
    "SELECT",
    "SEMI",
    "SESSION",
    "SET",
    "SHOW",
    "SMALLINT",
    "STATEMENT",
    "STRING",
    "TABLE",
    "TABLES",
    "TEMPORARY",
    "THEN",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "TINYINT",
    "TRUE",
    "TUMBLE",
    "UNION ALL",
    "UNNEST",
    "VALUES",
    "VARCHAR",
    "VIEW",
    "VIEWS",
    "VIRTUAL",
    "WATERMARK FOR",
    "WHEN",
    "WHERE",
    "WITH",
    "YEAR",
];

const COMMANDS: [&str; 6] = ["\\?", "\\d", "\\format", "\\i", "\\q", "\\timing"];

/// Words behind which a table stands.
const BEFORE_TABLES: [&str; 8] =
    ["FROM", "JOIN", "INTO", "TABLE", "DESCRIBE", "DESC", "VIEW", "\\D"];

/// The names that a session knows.
#[derive(Default)]
pub(super) struct Names {
    tables: Vec<String>,
    columns: Vec<String>,
    functions: Vec<String>,
}

impl Names {
    pub(super) fn of(session: &Session) -> Names {
        let tables = session.table_names();
        let mut columns: Vec<String> =
            tables.iter().flat_map(|table| session.column_names(table)).collect();
        columns.sort();
        columns.dedup();
        Names { tables, columns, functions: session.function_names() }
    }

    /// What the text before the cursor may become: where the part begins that is replaced, and by
    /// what.
    fn complete(&self, before: &str) -> (usize, Vec<String>) {
        if before.starts_with('\\') && !before.contains(char::is_whitespace) {
            let fitting = COMMANDS.iter().filter(|command| command.starts_with(before));
            return (0, fitting.map(|command| (*command).to_string()).collect());
        }
        if before.matches('\'').count() % 2 == 1 {
            let start = before.rfind('\'').map_or(0, |quote| quote + 1);
            return (start, quoted(&before[..start], &before[start..]));
        }
        if let Some(path) = before.strip_prefix("\\i ") {
            return ("\\i ".len(), files(path));
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let word = before.rfind(|c| !is_part(c)).map_or(before, |at| {
            &before[at + before[at..].chars().next().map_or(0, char::len_utf8)..]
        });
        let start = before.len() - word.len();
        let last = before[..start].split_whitespace().next_back().unwrap_or("").to_uppercase();
        let mut found: Vec<String> = Vec::new();
        let mut add = |names: &[String]| {
            let fits = |name: &&String| {
                name.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            };
            found.extend(names.iter().filter(fits).cloned());
        };
        let table_follows = BEFORE_TABLES.iter().any(|before| last.ends_with(before));
        if table_follows || !word.is_empty() {
            add(&self.tables);
        }
        if !table_follows && !word.is_empty() {
            add(&self.columns);
            let cased = |name: &str| match word.chars().any(char::is_lowercase) {
                true => name.to_lowercase(),
                false => name.to_string(),
            };
            add(&KEYWORDS.iter().map(|keyword| cased(keyword)).collect::<Vec<_>>());
            add(&self.functions.iter().map(|name| cased(name)).collect::<Vec<_>>());
        }
        found.sort();
        found.dedup();
        (start, found)
    }
}

/// What stands in quotes: a setting behind SET, elsewhere a file.
fn quoted(before: &str, text: &str) -> Vec<String> {
    let first = before.split_whitespace().next().unwrap_or("");
    if first.eq_ignore_ascii_case("SET") && before.matches('\'').count() == 1 {
        let keys = SETTINGS.iter().map(|(key, ..)| *key).filter(|key| key.starts_with(text));
        return keys.map(|key| format!("{key}'")).collect();
    }
    files(text)
}

/// The files whose paths begin like this.
fn files(path: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(f, n)| (&path[..=f.len()], n));
    let entries = fs::read_dir(if folder.is_empty() { "." } else { folder });
    let entries = entries.into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter_map(|entry| {
            let own = entry.file_name().into_string().ok()?;
            let fits = own.starts_with(name) && (!own.starts_with('.') || name.starts_with('.'));
            let end = if entry.path().is_dir() { "/" } else { "" };
            fits.then(|| format!("{folder}{own}{end}"))
        })
        .collect();
    found.sort();
    found
}

/// The editor's helper: completion and nothing else.
pub(super) struct Completion(pub(super) Rc<RefCell<Names>>);

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = self.0.borrow().complete(&line[..position]);
        let pair = |text: String| Pair { display: text.clone(), replacement: text };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        Names {
            tables: owned(&["clicks", "customers"]),
            columns: owned(&["cost", "window_start"]),
            functions: owned(&["COS", "COUNT"]),
        }
    }

    fn completed(before: &str) -> Vec<String> {
        names().complete(before).1
    }

    #[test]
    fn words_are_completed_by_what_stands_before() {
        assert_eq!(completed("SELECT * FROM c"), ["clicks", "customers"]);
        assert_eq!(completed("SELECT * FROM "), ["clicks", "customers"]);
        assert_eq!(completed("DESCRIBE cl"), ["clicks"]);
        assert_eq!(completed("\\d cu"), ["customers"]);
        assert_eq!(completed("SELECT co"), ["cos", "cost", "count"]);
        assert_eq!(completed("SELECT COU"), ["COUNT"]);
        assert_eq!(completed("SELECT "), [""; 0]);
        assert_eq!(completed("sel"), ["select"]);
        assert_eq!(names().complete("SELECT a, win"), (10, vec!["window_start".to_string()]));
        assert_eq!(completed("\\t"), ["\\timing"]);
        assert_eq!(completed("SET 'fragment.m"), ["fragment.mode'"]);
        assert_eq!(completed("SELECT ä"), [""; 0]);
    }
}
