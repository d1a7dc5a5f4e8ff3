//! A table whose declaration was inferred: it says on what terms it is read, and a value that does
//! not fit is an error that shows the `CREATE TABLE` that would work.
//!
//! [`crate::wrapped`] puts these words around the table's own.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::declaration::{
    Declaration, DeclaredColumn, DeclaredTime, identifier, literal, table_name,
};
use crate::error::Error;
pub use crate::wider::MORE_DIGITS;
use crate::wider::wider_at;
use crate::wrapped::Words;

/// Characters of a statement that a message shows; longer ones are for a file.
const SHOWN_CHARS_MAX: usize = 1200;

/// How the help begins that tells of the option `on_error`.
pub const ON_ERROR_HELP: &str = "'on_error' = 'skip' leaves";
/// Help for a record that the option never leaves out.
pub const NEVER_LEFT_OUT: &str = "'on_error' leaves out no record of several lines that is so long";

/// Origin of an inferred table, and its inferred declaration.
#[derive(Debug)]
pub struct Inferred {
    /// The path or pattern.
    pub path: String,
    /// Declaration inferred from the data.
    pub declaration: Declaration,
    /// The event time, once all times have been looked at.
    looked: Mutex<Option<DeclaredTime>>,
}

impl Inferred {
    /// A declaration of the files of `path`.
    pub fn new(path: String, declaration: Declaration) -> Inferred {
        Inferred { path, declaration, looked: Mutex::default() }
    }

    /// Notes the event time that a look at all times has found.
    pub fn looked(&self, time: DeclaredTime) {
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some(time);
    }

    /// The declaration, as far as the files are known.
    fn known(&self) -> Cow<'_, Declaration> {
        match &*self.looked.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Cow::Borrowed(&self.declaration),
            time => {
                Cow::Owned(Declaration { event_time: time.clone(), ..self.declaration.clone() })
            }
        }
    }

    /// Terms of reading the table, in a single line.
    fn remark(&self) -> String {
        let columns = self.declaration.columns.len() as u64;
        let columns = crate::wording::counted(columns, "column");
        let time = self.known().time_text().unwrap_or_else(|| "no event time".to_string());
        let mut remark = format!("{}: {columns}; {time}", self.path);
        for more in &self.declaration.remarks {
            remark.push_str("; ");
            remark.push_str(more);
        }
        remark
    }

    /// The error with the declaration that would work.
    fn explained(&self, error: Error) -> Error {
        let Error::Data { place, message, help } = error else { return error };
        let init = format!("millstream init {} > declared.sql", literal(&self.path));
        let column = self.column(&message);
        let Some((column, path)) = column else {
            let more = match is_of_record(&place) {
                true if help.contains(NEVER_LEFT_OUT) => {
                    return Error::Data { place, message, help };
                }
                true => leaving_out(&self.path, &self.known()),
                false => {
                    format!("options can be given in a CREATE TABLE, which this writes: {init}")
                }
            };
            // There is no table yet that could have the option.
            let help = help.split(ON_ERROR_HELP).next().unwrap_or_default();
            let help = match help.trim_end_matches("; ") {
                "" => more,
                help => format!("{help}; {more}"),
            };
            return Error::Data { place, message, help };
        };
        let json = self.option("format") == Some("ndjson");
        let free = self.option("csv.null-literal").is_none();
        if message.contains(&format!(" no column '{}'", column.name)) {
            let help = format!("{help}; or name the files that have it by a pattern");
            return Error::Data { place, help: self.without(&column.name, &help), message };
        }
        if message.contains("that is no whole number of days") {
            return Error::Data { place, help: self.without(&column.name, &help), message };
        }
        if message.contains("' is not valid UTF-8, found ") {
            let more = leaving_out(&self.path, &self.known());
            return Error::Data { place, message, help: format!("{help}; {more}") };
        }
        let Some(wider) = wider_at(column, path, &message, json, free) else {
            let help = match message.contains("' is declared as ") {
                // The declared type fits other files.
                true => "no type takes the values of all files: name those of one schema by a \
                         pattern"
                    .to_string(),
                false if help.is_empty() => init,
                false => format!("{help}; or declare it: {init}"),
            };
            return Error::Data { place, message, help };
        };
        let message = format!("{message}; the type was inferred from a sample");
        let (name, what) = (table_name(&self.path), wider.what());
        let sql = wider.put_in(&self.known(), &column.name).map(|d| d.to_sql(&name));
        let help = match sql.filter(|sql| sql.chars().count() <= SHOWN_CHARS_MAX) {
            Some(sql) => format!("declare {what}, and select from {name}:\n{sql};"),
            None => format!(
                "declare {what}: {init} writes the statement, in which column {} is to be changed",
                identifier(&column.name)
            ),
        };
        Error::Data { place, message, help }
    }

    /// The column that a message is about, and where in it.
    fn column<'a>(&self, message: &'a str) -> Option<(&DeclaredColumn, &'a str)> {
        let found = |column: &'_ DeclaredColumn| {
            let (_, rest) = message.split_once(&format!("column '{}", column.name))?;
            let end = if rest.starts_with(['[', '.']) { rest.find("', found ")? } else { 0 };
            rest.get(end..)?.starts_with('\'').then_some(rest.get(..end)?)
        };
        let columns = self.declaration.columns.iter();
        let found = columns.filter_map(|column| Some((column, found(column)?)));
        found.max_by_key(|(column, _)| column.name.len())
    }

    /// Advice for a column that cannot be read.
    fn without(&self, column: &str, help: &str) -> String {
        let name = table_name(&self.path);
        let sql = self.known().without(column).map(|without| without.to_sql(&name));
        match sql.filter(|sql| sql.chars().count() <= SHOWN_CHARS_MAX) {
            Some(sql) => {
                format!("{help}; or declare the table without it, and select from {name}:\n{sql};")
            }
            None => help.to_string(),
        }
    }

    fn option(&self, key: &str) -> Option<&str> {
        let found = self.declaration.options.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// Whether a place is that of a record of text, which ends with its line and column.
fn is_of_record(place: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = place.rsplit(':');
    parts.next().is_some_and(number) && parts.next().is_some_and(number) && parts.next().is_some()
}

/// How to read the files of `path` without their malformed records.
pub fn leaving_out(path: &str, declaration: &Declaration) -> String {
    let mut other = declaration.clone();
    other.options.push(("on_error".to_string(), "skip".to_string()));
    let (name, what) = (table_name(path), "to leave malformed records out, declare the table");
    let sql = other.to_sql(&name);
    match sql.chars().count() <= SHOWN_CHARS_MAX {
        true => format!("{what} with 'on_error', and select from {name}:\n{sql};"),
        false => format!("{what} with 'on_error' = 'skip' among its options"),
    }
}

impl Words for Inferred {
    fn remark(&self, first: bool, inner: Option<&str>) -> Option<String> {
        let own = first.then(|| self.remark());
        match (own, inner) {
            (Some(own), Some(inner)) => Some(format!("{own}; {inner}")),
            (own, inner) => own.or(inner.map(str::to_string)),
        }
    }

    fn error(&self, error: Error) -> Error {
        self.explained(error)
    }

    fn notice(&self, inner: String) -> String {
        let path = literal(&self.path);
        format!("{inner}; to read it, declare the table: millstream init {path} begins it")
    }

    fn describe(&self, inner: String) -> String {
        format!("{inner}, inferred")
    }
}

impl fmt::Display for Inferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.remark())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::DeclaredTime;

    fn inferred(columns: usize) -> Inferred {
        let column =
            |n| DeclaredColumn { name: format!("n{n}"), sql_type: "BIGINT".into(), note: None };
        let event_time = DeclaredTime {
            column: "ts".into(),
            delay_us: 2_000_000,
            reason: "records are up to 1.5 s out of order".into(),
            span_us: 10,
            sampled: false,
        };
        let declaration = Declaration {
            columns: (0..columns).map(column).collect(),
            event_time: Some(event_time),
            options: vec![("path".into(), "logs/a.csv".into())],
            remarks: vec!["the first line is taken for a header".into()],
            ..Declaration::default()
        };
        Inferred::new("logs/a.csv".into(), declaration)
    }

    fn explained(columns: usize, message: &str) -> (String, String) {
        let error = Error::Data {
            place: "logs/a.csv:7:1".into(),
            message: message.into(),
            help: "look".into(),
        };
        let Error::Data { place, message, help } = inferred(columns).explained(error) else {
            panic!("another error")
        };
        assert_eq!(place, "logs/a.csv:7:1");
        (message, help)
    }

    #[test]
    fn a_value_that_does_not_fit_shows_the_statement_that_would_work() {
        for (found, expected) in
            [("1.5", "n1 DOUBLE"), ("x", "n1 STRING"), ("9999999999999999999", "n1 DECIMAL(38, 0)")]
        {
            let message = format!("expected BIGINT for column 'n1', found '{found}'");
            let (message, help) = explained(3, &message);
            assert!(message.contains(found) && message.contains("inferred"), "{message}");
            assert!(help.contains("CREATE TABLE a (") && help.contains(expected), "{help}");
        }
        let (_, help) = explained(5000, "expected BIGINT for column 'n4999', found 'x'");
        assert!(help.contains("millstream init 'logs/a.csv'") && help.len() < 300, "{help}");
        let null = "expected BIGINT for column 'n1', found 'NULL'";
        let (_, help) = explained(3, null);
        assert!(
            help.contains("n1 BIGINT") && help.contains("'csv.null-literal' = 'NULL'"),
            "{help}"
        );
    }

    #[test]
    fn a_file_with_a_wider_type_shows_the_statement_that_takes_both() {
        let message = "column 'n1' is declared as BIGINT, but comes as DECIMAL(38, 0)";
        let (_, help) = explained(3, &format!("{message}, which is wider"));
        assert!(help.contains("CREATE TABLE a (") && help.contains("n1 DECIMAL(38, 0)"), "{help}");
        let (_, help) = explained(3, message);
        assert!(!help.contains("CREATE TABLE") && help.contains("pattern"), "{help}");
    }

    #[test]
    fn a_file_without_a_column_shows_the_statement_without_it() {
        for message in ["the header has no column 'n1'", "there is no column 'n1'"] {
            let (_, help) = explained(3, message);
            assert!(help.contains("CREATE TABLE a (\n    n0 BIGINT,\n    n2 BIGINT,\n"), "{help}");
        }
        let (_, help) = explained(1, "the header has no column 'n0'");
        assert!(!help.contains("CREATE TABLE") && help.contains("pattern"), "{help}");
    }

    #[test]
    fn what_no_type_takes_shows_the_statement_without_it() {
        let (_, help) = explained(2, "column 'n1': a date that is no whole number of days");
        assert!(
            help.contains("look; or declare") && help.contains("(\n    n0 BIGINT,\n"),
            "{help}"
        );
        let (_, help) = explained(2, "column 'n1' is not valid UTF-8, found 'caf\u{fffd}'");
        assert!(
            help.starts_with("look; to leave") && help.contains("'on_error' = 'skip'"),
            "{help}"
        );
    }

    #[test]
    fn an_element_that_does_not_fit_widens_the_type_of_elements() {
        let of = |sql_type: &str, path: &str, found: &str| {
            let mut inferred = inferred(2);
            inferred.declaration.columns[1].sql_type = sql_type.into();
            inferred.declaration.options.push(("format".into(), "ndjson".into()));
            let message = format!("expected BIGINT for column 'n1{path}', found {found}");
            let (place, help) = ("a:1:1".into(), String::new());
            match inferred.explained(Error::Data { place, message, help }) {
                Error::Data { help, .. } => help,
                other => panic!("{other}"),
            }
        };
        let help = of("ARRAY<BIGINT>", "[1]", "\"str\"");
        assert!(help.contains("n1 ARRAY<STRING>") && help.contains("any-as-string"), "{help}");
        let help = of("ROW<a ARRAY<BIGINT>, b STRING>", ".a[12]", "1.5");
        assert!(help.contains("n1 ROW<a ARRAY<DOUBLE>, b STRING>"), "{help}");
        assert!(!help.contains("on_error") && !help.contains("any-as-string"), "{help}");
    }

    #[test]
    fn a_record_that_is_none_shows_the_statement_that_leaves_it_out() {
        let (message, help) = explained(3, "expected 3 fields, found 2");
        assert!(!message.contains("inferred") && help.starts_with("look; "), "{help}");
        assert!(
            help.contains("CREATE TABLE a (") && help.contains("'on_error' = 'skip'"),
            "{help}"
        );
        let (_, help) = explained(5000, "expected 5000 fields, found 2");
        assert!(help.contains("'on_error' = 'skip'") && help.len() < 300, "{help}");
        for (place, is_one) in [("a:7:1", true), ("a.csv", false), ("a:7", false), ("7:1", false)] {
            assert_eq!(is_of_record(place), is_one, "{place}");
        }
    }

    #[test]
    fn the_remark_says_event_time_and_watermark() {
        assert_eq!(
            inferred(2).to_string(),
            "logs/a.csv: 2 columns; event time ts, watermark ts - INTERVAL '2' SECOND (records are \
             up to 1.5 s out of order); the first line is taken for a header"
        );
    }
}
