//! Completion: what a word may become when Tab is pressed.

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use millstream::Session;
use millstream::program::{SETTINGS, SessionControl};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::options;

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
    "INSERT OVERWRITE",
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
    "RESET",
    "RIGHT",
    "ROLLUP",
    "ROW_NUMBER",
    "SECOND",
    "SELECT",
    "SEMI",
    "SESSION",
    "SET",
    "SETTINGS",
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

const COMMANDS: [&str; 9] =
    ["\\?", "\\d", "\\e", "\\format", "\\i", "\\o", "\\q", "\\timing", "\\x"];

/// Words behind which a table stands.
const BEFORE_TABLES: [&str; 9] =
    ["FROM", "JOIN", "INTO", "OVERWRITE", "TABLE", "DESCRIBE", "DESC", "VIEW", "\\D"];

/// A table or view, and its columns.
struct Table {
    name: String,
    columns: Vec<String>,
}

/// The names that a session knows.
#[derive(Default)]
pub(super) struct Names {
    tables: Vec<Table>,
    functions: Vec<String>,
}

impl Names {
    pub(super) fn of(session: &Session) -> Names {
        let table = |name: String| Table { columns: session.column_names(&name), name };
        let tables = session.table_names().into_iter().map(table).collect();
        Names { tables, functions: session.function_names() }
    }

    /// Completions of the text before the cursor: the beginning of the replaced part, and the
    /// replacements. More of the line may stand behind the cursor.
    fn complete(&self, line: &str, before: &str) -> (usize, Vec<String>) {
        if before.starts_with('\\') && !before.contains(char::is_whitespace) {
            let fitting = COMMANDS.iter().filter(|command| command.starts_with(before));
            return (0, fitting.map(|command| (*command).to_string()).collect());
        }
        if before.matches('\'').count() % 2 == 1 {
            let start = before.rfind('\'').map_or(0, |quote| quote + 1);
            return (start, quoted(&before[..start], &before[start..]));
        }
        if let Some(path) = before.strip_prefix("\\i ").or_else(|| before.strip_prefix("\\o ")) {
            return ("\\i ".len(), files(path));
        }
        if let Some(key) = setting(before) {
            let keys = settings(key).map(|key| format!("'{key}'"));
            return (before.len() - key.len(), keys.collect());
        }
        let word = last_word(before);
        let start = before.len() - word.len();
        let mut found: Vec<String> = Vec::new();
        let mut add = |names: &mut dyn Iterator<Item = &str>| {
            let fits = |name: &&str| {
                name.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            };
            found.extend(names.filter(fits).map(str::to_string));
        };
        let cased = |name: &str| match word.chars().any(char::is_lowercase) {
            true => name.to_lowercase(),
            false => name.to_string(),
        };
        let last = before[..start].split_whitespace().next_back().unwrap_or("").to_uppercase();
        let all_columns = || self.tables.iter().flat_map(|t| &t.columns).map(String::as_str);
        if let Some(qualified) = before[..start].strip_suffix('.') {
            match self.table_of(line, last_word(qualified)) {
                Some(table) => add(&mut table.columns.iter().map(String::as_str)),
                None if word.is_empty() => {}
                None => add(&mut all_columns()),
            }
        } else if BEFORE_TABLES.iter().any(|before| last.ends_with(before)) {
            add(&mut self.tables.iter().map(|table| table.name.as_str()));
        } else if !word.is_empty() {
            add(&mut self.tables.iter().map(|table| table.name.as_str()));
            add(&mut all_columns());
            let keywords = KEYWORDS.iter().copied().chain(self.functions.iter().map(|f| &**f));
            let keywords: Vec<String> = keywords.map(cased).collect();
            add(&mut keywords.iter().map(String::as_str));
        }
        found.sort();
        found.dedup();
        (start, found)
    }

    /// The table of that name, or the one that a line calls so: `FROM clicks AS c`.
    fn table_of(&self, line: &str, name: &str) -> Option<&Table> {
        let named = |name: &str| self.tables.iter().find(|table| table.name == name);
        let words: Vec<&str> =
            line.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect();
        let called = || {
            let at = (1..words.len()).filter(|at| words[*at] == name);
            let of = |at: usize| match words[at - 1].eq_ignore_ascii_case("AS") {
                true => at.checked_sub(2).map(|at| words[at]),
                false => Some(words[at - 1]),
            };
            at.filter_map(of).find_map(named)
        };
        named(name).or_else(called)
    }
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The word at the end of a text; empty if the text does not end with a word.
fn last_word(text: &str) -> &str {
    text.rfind(|c| !is_part(c))
        .map_or(text, |at| &text[at + text[at..].chars().next().map_or(0, char::len_utf8)..])
}

/// The setting behind SET, as far as it is written, without quotes.
fn setting(before: &str) -> Option<&str> {
    let (first, key) = before.trim_start().split_once(char::is_whitespace)?;
    let key = key.trim_start();
    let is_key = key.chars().all(|c| is_part(c) || matches!(c, '.' | '-'));
    let is_set = ["SET", "RESET"].iter().any(|word| first.eq_ignore_ascii_case(word));
    (is_set && is_key).then_some(key)
}

/// The settings that begin like this.
fn settings(key: &str) -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(key, ..)| *key).filter(move |known| known.starts_with(key))
}

/// Completions within quotes: of a setting behind SET or RESET, of an option or its value in WITH,
/// elsewhere of a file.
fn quoted(before: &str, text: &str) -> Vec<String> {
    let first = before.split_whitespace().next().unwrap_or("");
    let is_setting = ["SET", "RESET"].iter().any(|word| first.eq_ignore_ascii_case(word));
    if is_setting && before.matches('\'').count() == 1 {
        return settings(text).map(|key| format!("{key}'")).collect();
    }
    match options::fitting(before, text) {
        found if found.is_empty() => files(text),
        found => found,
    }
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
        let (start, found) = self.0.borrow().complete(line, &line[..position]);
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
        let table = |name: &str, columns| Table { name: name.into(), columns: owned(columns) };
        Names {
            tables: vec![
                table("clicks", &["cost", "window_start"]),
                table("customers", &["cost", "name"]),
            ],
            functions: owned(&["COS", "COUNT"]),
        }
    }

    /// Of a line with the cursor at its end, or at `|`.
    fn completed(line: &str) -> Vec<String> {
        let (before, behind) = line.split_once('|').unwrap_or((line, ""));
        names().complete(&format!("{before}{behind}"), before).1
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
        assert_eq!(names().complete("", "SELECT a, win"), (10, vec!["window_start".to_string()]));
        assert_eq!(completed("\\t"), ["\\timing"]);
        assert_eq!(completed("SET 'fragment.m"), ["fragment.mode'"]);
        assert_eq!(completed("SELECT ä"), [""; 0]);
    }

    #[test]
    fn columns_of_a_table_stand_behind_its_name() {
        assert_eq!(completed("SELECT clicks."), ["cost", "window_start"]);
        assert_eq!(completed("SELECT clicks.w"), ["window_start"]);
        assert_eq!(completed("SELECT customers."), ["cost", "name"]);
        assert_eq!(completed("SELECT * FROM clicks AS c WHERE c."), ["cost", "window_start"]);
        assert_eq!(completed("SELECT c.| FROM customers c"), ["cost", "name"]);
        // Of another line's name, or of a column of type ROW, no more is known.
        assert_eq!(completed("SELECT x."), [""; 0]);
        assert_eq!(completed("SELECT x.n"), ["name"]);
        assert_eq!(completed("SELECT 1."), [""; 0]);
        assert_eq!(names().complete("", "SELECT clicks.w").0, 14);
    }

    #[test]
    fn settings_stand_behind_set() {
        assert_eq!(completed("SET fragment.m"), ["'fragment.mode'"]);
        assert_eq!(names().complete("", "set fragment.m").0, 4);
        assert_eq!(completed("SET ").len(), SETTINGS.len());
        assert_eq!(completed("SET 'fragment.mode' = "), [""; 0]);
        assert_eq!(completed("SETS fragment.m"), [""; 0]);
    }
}
