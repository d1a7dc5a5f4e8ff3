//! A table whose declaration was inferred: it says on what terms it is read, and a value that does
//! not fit is an error that shows the `CREATE TABLE` that would work.
//!
//! [`crate::wrapped`] puts these words around the table's own.

use std::fmt;

use crate::declaration::{
    Declaration, DeclaredColumn, NULL_WORDS, identifier, literal, table_name,
};
use crate::element;
use crate::error::Error;
use crate::wrapped::Words;

/// Characters of a statement that a message shows; longer ones are for a file.
const SHOWN_CHARS_MAX: usize = 1200;

/// How the help begins that tells of the option `on_error`.
pub const ON_ERROR_HELP: &str = "'on_error' = 'skip' leaves";
/// What a message says behind a value that a type would have to round.
pub const MORE_DIGITS: &str = ", which has more digits";
/// What the help says of a record that the option does not leave out.
pub const NEVER_LEFT_OUT: &str = "'on_error' leaves out no record of several lines that is so long";

/// What a table was inferred from, and as what.
#[derive(Debug)]
pub struct Inferred {
    /// The path or pattern.
    pub path: String,
    /// What its data declared.
    pub declaration: Declaration,
}

impl Inferred {
    /// On what terms it is read, in one line.
    fn remark(&self) -> String {
        let columns = self.declaration.columns.len() as u64;
        let columns = crate::wording::counted(columns, "column");
        let time = self.declaration.time_text().unwrap_or_else(|| "no event time".to_string());
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
                true => leaving_out(&self.path, &self.declaration),
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
        if message.contains(&format!(" has no column '{}'", column.name)) {
            return Error::Data { place, help: self.without(&column.name, &help), message };
        }
        let Some(wider) = wider_at(column, path, &message, json, free) else {
            let help = match message.contains("' is declared as ") {
                // What is declared fits other files.
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
        let sql = wider.put_in(&self.declaration, &column.name).map(|d| d.to_sql(&name));
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

    /// What to do about a file that lacks a column.
    fn without(&self, column: &str, help: &str) -> String {
        let name = table_name(&self.path);
        let sql = self.declaration.without(column).map(|without| without.to_sql(&name));
        match sql.filter(|sql| sql.chars().count() <= SHOWN_CHARS_MAX) {
            Some(sql) => format!(
                "{help}; or name the files that have it by a pattern; or declare the table \
                 without it, and select from {name}:\n{sql};"
            ),
            None => format!("{help}; or name the files that have it by a pattern"),
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

/// What takes a value, too, that the declaration does not.
struct Wider {
    sql_type: String,
    /// Another option.
    option: Option<(&'static str, String)>,
}

impl Wider {
    fn of(sql_type: &str) -> Wider {
        Wider { sql_type: sql_type.to_string(), option: None }
    }

    fn with(self, key: &'static str, value: &str) -> Wider {
        Wider { option: Some((key, value.to_string())), ..self }
    }

    /// In words.
    fn what(&self) -> String {
        match &self.option {
            None => format!("the column as {}", self.sql_type),
            Some((key, value)) => {
                format!("the column as {}, with '{key}' = {}", self.sql_type, literal(value))
            }
        }
    }

    fn put_in(&self, declaration: &Declaration, column: &str) -> Option<Declaration> {
        let same = declaration
            .columns
            .iter()
            .any(|known| known.name == column && known.sql_type == self.sql_type);
        let mut other = match same {
            true => declaration.clone(),
            false => declaration.with_type(column, &self.sql_type)?,
        };
        if let Some((key, value)) = &self.option {
            other.options.retain(|(known, _)| known != key);
            other.options.push((key.to_string(), value.clone()));
        }
        Some(other)
    }
}

/// As [`wider`], of what stands at `path` in a column.
fn wider_at(
    column: &DeclaredColumn,
    path: &str,
    message: &str,
    json: bool,
    free: bool,
) -> Option<Wider> {
    if path.is_empty() {
        return wider(column, message, json, free);
    }
    let of = |sql_type: &str| {
        let (name, sql_type) = (format!("{}{path}", column.name), sql_type.to_string());
        let wider = wider(&DeclaredColumn { name, sql_type, note: None }, message, json, free)?;
        Some((wider.sql_type, wider.option))
    };
    let (sql_type, option) = element::at(&column.sql_type, path, &of)?;
    Some(Wider { sql_type, option })
}

/// What also takes the value of which `message` says that it does not fit; `None` if it is no
/// matter of types. `json`: values are JSON, where a number is no string. `free`: no option says
/// yet what is NULL.
fn wider(column: &DeclaredColumn, message: &str, json: bool, free: bool) -> Option<Wider> {
    // As readers word it.
    let in_file = message.strip_suffix(" in the file, which is wider");
    if let Some((_, has)) = in_file.and_then(|message| message.rsplit_once(", but is ")) {
        return Some(Wider::of(has));
    }
    let (_, found) = message.split_once(&format!("column '{}', found ", column.name))?;
    let more_digits = found.ends_with(MORE_DIGITS);
    let found = found.strip_suffix(", which does not fit").unwrap_or(found);
    let found = found.strip_suffix(MORE_DIGITS).unwrap_or(found);
    let is_string = json && found.starts_with('"');
    let text = found.trim_matches('\'').trim();
    let number = !is_string && text.parse::<f64>().is_ok_and(f64::is_finite);
    let digits = text.trim_start_matches('-');
    let whole = !is_string && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let as_string = || match json {
        true => Wider::of("STRING").with("json.any-as-string", "true"),
        false => Wider::of("STRING"),
    };
    let sql_type = column.sql_type.as_str();
    // In JSON, times are strings.
    let is_time = ["DATE", "TIME"].iter().any(|time| sql_type.starts_with(time));
    Some(match sql_type {
        _ if !json && free && NULL_WORDS.contains(&text) && sql_type != "STRING" => {
            Wider::of(sql_type).with("csv.null-literal", text)
        }
        "STRING" if !json || is_string => return None,
        // No value has been seen before.
        "STRING" if column.note.is_some() && whole && digits.len() <= 18 => Wider::of("BIGINT"),
        "STRING" if column.note.is_some() && number => Wider::of("DOUBLE"),
        "STRING" if column.note.is_some() && ["true", "false"].contains(&text) => {
            Wider::of("BOOLEAN")
        }
        _ if more_digits => exact_type(sql_type, text).map_or_else(as_string, |of| Wider::of(&of)),
        // What people use as a name.
        "BIGINT" | "DECIMAL(38, 0)" | "DOUBLE" if !json && is_name(text) => as_string(),
        "BIGINT" if whole && digits.len() <= 38 => Wider::of("DECIMAL(38, 0)"),
        "BIGINT" | "DECIMAL(38, 0)" if number && !whole => Wider::of("DOUBLE"),
        _ if is_time && is_string => Wider::of("STRING"),
        _ => as_string(),
    })
}

/// Whether a number has zeros in front, or a plus sign.
fn is_name(number: &str) -> bool {
    let digits = number.trim_start_matches('-');
    let zeros =
        digits.strip_prefix('0').is_some_and(|rest| rest.starts_with(|c| matches!(c, '0'..='9')));
    zeros || number.starts_with('+')
}

/// The type like `sql_type` that holds all digits of a value which that has no place for.
fn exact_type(sql_type: &str, text: &str) -> Option<String> {
    let (whole, fraction) = text.trim_matches('"').split_once('.').unwrap_or((text, ""));
    let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    let digits = fraction[..end].trim_end_matches('0').len();
    let is_whole = end == fraction.len() && !whole.contains(['e', 'E']);
    let (kind, _) = sql_type.split_once('(')?;
    match kind {
        // There is to be room for what is wide.
        "DECIMAL" if is_whole && digits <= 9 && whole.len() + digits <= 38 => {
            Some(format!("DECIMAL(38, {digits})"))
        }
        "DECIMAL" => Some("DOUBLE".to_string()),
        _ if digits <= 6 => Some(format!("{kind}(6)")),
        // Nanoseconds reach from 1677 to 2262.
        "TIMESTAMP" => {
            let year: u32 = whole.get(..4)?.parse().ok()?;
            (1678..2262).contains(&year).then(|| "TIMESTAMP(9)".to_string())
        }
        _ => Some(format!("{kind}(9)")),
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
        };
        let declaration = Declaration {
            columns: (0..columns).map(column).collect(),
            event_time: Some(event_time),
            options: vec![("path".into(), "logs/a.csv".into())],
            remarks: vec!["the first line is taken for a header".into()],
            ..Declaration::default()
        };
        Inferred { path: "logs/a.csv".into(), declaration }
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
        let message = "column 'n1' is declared as BIGINT, but is DECIMAL(38, 0) in the file";
        let (_, help) = explained(3, &format!("{message}, which is wider"));
        assert!(help.contains("CREATE TABLE a (") && help.contains("n1 DECIMAL(38, 0)"), "{help}");
        let (_, help) = explained(3, message);
        assert!(!help.contains("CREATE TABLE") && help.contains("pattern"), "{help}");
    }

    #[test]
    fn a_file_without_a_column_shows_the_statement_without_it() {
        for message in ["the header has no column 'n1'", "the file has no column 'n1'"] {
            let (_, help) = explained(3, message);
            assert!(help.contains("CREATE TABLE a (\n    n0 BIGINT,\n    n2 BIGINT,\n"), "{help}");
        }
        let (_, help) = explained(1, "the header has no column 'n0'");
        assert!(!help.contains("CREATE TABLE") && help.contains("pattern"), "{help}");
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
    fn a_json_value_of_another_kind_needs_the_option() {
        let takes = |sql_type: &str, found: &str, empty: bool| {
            let note = empty.then(|| "no value".to_string());
            let column = DeclaredColumn { name: "c".into(), sql_type: sql_type.into(), note };
            let message = format!("expected {sql_type} for column 'c', found {found}");
            let wider = wider(&column, &message, true, true)?;
            Some((wider.sql_type, wider.option.is_some()))
        };
        let expected = |sql_type: &str, option| Some((sql_type.to_string(), option));
        assert_eq!(takes("BIGINT", "1.7", false), expected("DOUBLE", false));
        assert_eq!(
            takes("BIGINT", "99999999999999999999, which does not fit", false),
            expected("DECIMAL(38, 0)", false)
        );
        assert_eq!(takes("BIGINT", "\"12\"", false), expected("STRING", true));
        assert_eq!(takes("TIMESTAMP(3)", "\"soon\"", false), expected("STRING", false));
        assert_eq!(takes("TIMESTAMP(3)", "12", false), expected("STRING", true));
        assert_eq!(takes("STRING", "12", false), expected("STRING", true));
        assert_eq!(takes("STRING", "12", true), expected("BIGINT", false));
        assert_eq!(takes("STRING", "1e400", true), expected("STRING", true));
    }

    #[test]
    fn a_value_of_more_digits_gets_a_type_that_holds_them() {
        let takes = |sql_type: &str, found: &str| {
            let column = DeclaredColumn { name: "c".into(), sql_type: sql_type.into(), note: None };
            let message = format!("expected {sql_type} for column 'c', found {found}{MORE_DIGITS}");
            wider(&column, &message, found.starts_with('"'), true).unwrap().sql_type
        };
        for (sql_type, found, expected) in [
            ("DECIMAL(38, 0)", "'99999999999999999999.5'", "DECIMAL(38, 1)"),
            ("DECIMAL(38, 0)", "'-1.250'", "DECIMAL(38, 2)"),
            ("DECIMAL(38, 0)", "'1.0000000001'", "DOUBLE"),
            ("DECIMAL(38, 0)", "'12345678901234567890123456789012345678.5'", "DOUBLE"),
            ("DECIMAL(38, 0)", "'1e-3'", "DOUBLE"),
            ("TIMESTAMP(3)", "'2024-05-01 12:00:00.999999'", "TIMESTAMP(6)"),
            ("TIMESTAMP(3)", "\"2024-05-01T12:00:00.9999990Z\"", "TIMESTAMP(6)"),
            ("TIMESTAMP(3)", "'2024-05-01 12:00:00.1234567+02:00'", "TIMESTAMP(9)"),
            ("TIMESTAMP(3)", "'9999-05-01 12:00:00.1234567'", "STRING"),
            ("TIME(3)", "'12:00:00.0001'", "TIME(6)"),
            ("TIME(6)", "\"12:00:00.0000001\"", "TIME(9)"),
        ] {
            assert_eq!(takes(sql_type, found), expected, "{sql_type} {found}");
        }
    }

    #[test]
    fn a_number_with_zeros_in_front_is_a_text() {
        for (found, expected) in [
            ("'0012'", "STRING"),
            ("'-007'", "STRING"),
            ("'+49'", "STRING"),
            ("'0.5'", "DOUBLE"),
            ("'99999999999999999999'", "DECIMAL(38, 0)"),
        ] {
            let column = DeclaredColumn { name: "c".into(), sql_type: "BIGINT".into(), note: None };
            let message = format!("expected BIGINT for column 'c', found {found}");
            let wider = wider(&column, &message, false, true).unwrap();
            assert_eq!(wider.sql_type, expected, "{found}");
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
