//! A table as a `CREATE TABLE` would declare it, found out by looking at its data.
//!
//! All parts of the program use the same declaration: `millstream init` prints it, a file in FROM
//! is planned with it, and error messages propose it.

use std::collections::HashSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Contents of a `CREATE TABLE`, except for the table's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// The physical columns, in order.
    pub columns: Vec<DeclaredColumn>,
    /// Columns that are computed: a time, or the parts of a line.
    pub computed: Vec<ComputedColumn>,
    /// The event time, if there is a column for it.
    pub event_time: Option<DeclaredTime>,
    /// The columns whose values stand in the names of directories.
    #[serde(default)]
    pub partitioned_by: Vec<String>,
    /// The options, in the order in which people write them.
    pub options: Vec<(String, String)>,
    /// Remarks for the user on the inference: a sentence each, without a period.
    pub remarks: Vec<String>,
}

/// A physical column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredColumn {
    /// Name of the column, as in the data.
    pub name: String,
    /// Its type in SQL.
    pub sql_type: String,
    /// A remark on the column, for example that it had no values.
    pub note: Option<String>,
}

/// A computed column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputedColumn {
    /// Its name.
    pub name: String,
    /// SQL of the computed column, with `{}` for the column below.
    pub form: String,
    /// The column in place of `{}`.
    pub column: String,
}

/// The event time, and the watermark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredTime {
    /// The column's name.
    pub column: String,
    /// How far the watermark is behind the greatest event time, microseconds.
    pub delay_us: i64,
    /// Why so far, for example `records were at most 3 s out of order`.
    pub reason: String,
    /// From the least time seen to the greatest, microseconds.
    pub span_us: i64,
    /// Whether there are more times than have been seen.
    pub sampled: bool,
}

/// Words for NULL in CSV.
pub const NULL_WORDS: [&str; 6] = ["NULL", "null", "\\N", "NA", "N/A", "None"];

/// A name as SQL has it: as it is, or in quotes.
pub fn identifier(name: &str) -> String {
    let mut chars = name.chars();
    let plain = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    match plain && !RESERVED.contains(&name.to_ascii_uppercase().as_str()) {
        true => name.to_string(),
        false => format!("`{}`", name.replace('`', "``")),
    }
}

/// A text as SQL has it.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A duration as SQL has it, for example `INTERVAL '5' SECOND`. Microseconds, not negative.
pub fn interval(us: i64) -> String {
    const UNITS: [(i64, &str); 4] = [
        (86_400_000_000, "DAY"),
        (3_600_000_000, "HOUR"),
        (60_000_000, "MINUTE"),
        (1_000_000, "SECOND"),
    ];
    match UNITS.iter().find(|(unit, _)| us > 0 && us % unit == 0) {
        Some((unit, name)) => format!("INTERVAL '{}' {name}", us / unit),
        None => {
            let fraction = format!("{:06}", us % 1_000_000);
            let fraction = fraction.trim_end_matches('0');
            format!("INTERVAL '{}.{fraction}' SECOND", us / 1_000_000)
        }
    }
}

/// A name for the table of a path or pattern: that of the file or, of several, of their directory.
pub fn table_name(path: &str) -> String {
    let several = |part: &&str| !part.is_empty() && !part.contains(['*', '?', '[']);
    let part = path.rsplit('/').find(several).unwrap_or_default();
    let stem = part.trim_start_matches('.').split('.').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = stem.chars().map(plain).collect();
    let name = name.trim_matches('_');
    match name.chars().next() {
        None => "records".to_string(),
        Some('0'..='9') => format!("t_{name}"),
        Some(_) if RESERVED.contains(&name.to_ascii_uppercase().as_str()) => {
            format!("{name}_table")
        }
        Some(_) => name.to_string(),
    }
}

impl ComputedColumn {
    /// SQL of the expression.
    pub fn to_sql(&self) -> String {
        self.form.replace("{}", &identifier(&self.column))
    }
}

impl Declaration {
    /// Event time and watermark in words.
    pub fn time_text(&self) -> Option<String> {
        let DeclaredTime { reason, .. } = self.event_time.as_ref()?;
        let watermark = self.watermark()?;
        let column = &self.event_time.as_ref()?.column;
        let column = match self.computed.iter().find(|computed| computed.name == *column) {
            Some(computed) => {
                format!("{} = {}", identifier(column), computed.to_sql())
            }
            _ => identifier(column),
        };
        Some(format!("event time {column}, watermark {watermark} ({reason})"))
    }

    /// The watermark's expression.
    fn watermark(&self) -> Option<String> {
        let DeclaredTime { column, delay_us, .. } = self.event_time.as_ref()?;
        let column = identifier(column);
        Some(match delay_us {
            0 => column,
            us => format!("{column} - {}", interval(*us)),
        })
    }

    /// The statement, without a semicolon.
    pub fn to_sql(&self, name: &str) -> String {
        self.written(name, &|_| None)
    }

    /// The statement with notes and reasons as comments.
    pub fn to_sql_with_comments(&self, name: &str) -> String {
        self.written(name, &|note| Some(format!("  -- {}", note.replace(['\n', '\r'], " "))))
    }

    /// The same without a column; `None` if there is no such column, or no other.
    pub fn without(&self, column: &str) -> Option<Declaration> {
        let mut other = self.with_type(column, "")?;
        other.columns.retain(|known| known.name != column);
        other.partitioned_by.retain(|known| known != column);
        (!other.columns.is_empty()).then_some(other)
    }

    /// The same with another type for a column; `None` if there is no such column.
    pub fn with_type(&self, column: &str, sql_type: &str) -> Option<Declaration> {
        let mut other = self.clone();
        let found = other.columns.iter_mut().find(|known| known.name == column)?;
        found.sql_type = sql_type.to_string();
        // What is no time any more has no watermark.
        if other.event_time.as_ref().is_some_and(|time| time.column == column) {
            other.event_time = None;
        }
        if other.computed.iter().any(|computed| computed.column == column) {
            (other.computed, other.event_time) = (vec![], None);
        }
        Some(other)
    }

    /// `comment` makes a comment, with the blanks before it.
    fn written(&self, name: &str, comment: &dyn Fn(&str) -> Option<String>) -> String {
        let mut lines: Vec<(String, Option<&str>)> = Vec::new();
        for DeclaredColumn { name, sql_type, note } in &self.columns {
            lines.push((format!("{} {sql_type}", identifier(name)), note.as_deref()));
        }
        for computed in &self.computed {
            let text = format!("{} AS {}", identifier(&computed.name), computed.to_sql());
            lines.push((text, None));
        }
        if let (Some(time), Some(watermark)) = (&self.event_time, self.watermark()) {
            let text = format!("WATERMARK FOR {} AS {watermark}", identifier(&time.column));
            lines.push((text, Some(&time.reason)));
        }
        let mut sql = format!("CREATE TABLE {} (", identifier(name));
        let last = lines.len().saturating_sub(1);
        for (at, (line, note)) in lines.iter().enumerate() {
            let comma = if at == last { "" } else { "," };
            let note = note.and_then(comment).unwrap_or_default();
            let _ = write!(sql, "\n    {line}{comma}{note}");
        }
        sql += "\n)";
        if !self.partitioned_by.is_empty() {
            let names: Vec<_> = self.partitioned_by.iter().map(|name| identifier(name)).collect();
            let _ = write!(sql, " PARTITIONED BY ({})", names.join(", "));
        }
        sql += " WITH (";
        for (at, (key, value)) in self.options.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(sql, "{comma}\n    {} = {}", literal(key), literal(value));
        }
        sql + "\n)"
    }
}

/// A name that is not among `taken`: `wanted`, or with a number behind it.
pub fn free_name(wanted: &str, used: &HashSet<String>) -> String {
    let numbered = (2u64..).map(|n| format!("{wanted}_{n}"));
    let mut names = std::iter::once(wanted.to_string()).chain(numbered);
    names.find(|name| !used.contains(name)).unwrap_or_default()
}

/// Words that are no names unless they are quoted, or that a `CREATE TABLE` or a query may read as
/// something else.
const RESERVED: &[&str] = &[
    "ALL",
    "AND",
    "ANY",
    "ARRAY",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COLUMN",
    "CONSTRAINT",
    "CREATE",
    "CROSS",
    "CURRENT_DATE",
    "CURRENT_TIME",
    "CURRENT_TIMESTAMP",
    "DATE",
    "DESC",
    "DESCRIPTOR",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "ESCAPE",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT",
    "FALSE",
    "FETCH",
    "FILTER",
    "FOR",
    "FOREIGN",
    "FROM",
    "FULL",
    "FUNCTION",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "KEY",
    "LATERAL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "LOCALTIME",
    "LOCALTIMESTAMP",
    "MAP",
    "MATCH_RECOGNIZE",
    "METADATA",
    "MINUS",
    "NATURAL",
    "NOT",
    "NULL",
    "OF",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "PRIMARY",
    "QUALIFY",
    "RIGHT",
    "ROW",
    "SELECT",
    "SET",
    "SOME",
    "STRUCT",
    "SYSTEM_TIME",
    "TABLE",
    "TABLESAMPLE",
    "THEN",
    "TIME",
    "TIMESTAMP",
    "TO",
    "TRIM",
    "TRUE",
    "UNION",
    "UNIQUE",
    "UNNEST",
    "USER",
    "USING",
    "VALUES",
    "VIEW",
    "WATERMARK",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, sql_type: &str) -> DeclaredColumn {
        DeclaredColumn { name: name.into(), sql_type: sql_type.into(), note: None }
    }

    fn example() -> Declaration {
        Declaration {
            columns: vec![column("at", "BIGINT"), column("user name", "STRING")],
            computed: vec![ComputedColumn {
                name: "ts".into(),
                form: "to_timestamp_millis({})".into(),
                column: "at".into(),
            }],
            event_time: Some(DeclaredTime {
                column: "ts".into(),
                delay_us: 5_000_000,
                reason: "two lines\nof reasons".into(),
                span_us: 0,
                sampled: false,
            }),
            partitioned_by: vec![],
            options: vec![("path".into(), "it's.csv".into()), ("format".into(), "csv".into())],
            remarks: vec![],
        }
    }

    #[test]
    fn a_declaration_is_written_as_people_write_it() {
        let expected = "CREATE TABLE clicks (
    at BIGINT,
    `user name` STRING,
    ts AS to_timestamp_millis(at),
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
    'path' = 'it''s.csv',
    'format' = 'csv'
)";
        assert_eq!(example().to_sql("clicks"), expected);
        let commented = example().to_sql_with_comments("clicks");
        assert!(
            commented.contains("INTERVAL '5' SECOND  -- two lines of reasons\n"),
            "{commented}"
        );
    }

    #[test]
    fn what_is_no_time_any_more_has_no_watermark() {
        let other = example().with_type("at", "STRING").unwrap();
        assert_eq!((&other.computed, &other.event_time), (&vec![], &None));
        let other = example().with_type("user name", "BIGINT").unwrap();
        assert_eq!(other.event_time, example().event_time);
        assert_eq!(example().with_type("no such", "STRING"), None);
    }

    #[test]
    fn names_are_quoted_where_they_must_be() {
        for (name, expected) in [
            ("a_1", "a_1"),
            ("1a", "`1a`"),
            ("", "``"),
            ("time", "`time`"),
            ("größe", "`größe`"),
            ("a`b", "`a``b`"),
            ("a.b", "`a.b`"),
        ] {
            assert_eq!(identifier(name), expected);
        }
    }

    #[test]
    fn intervals_have_the_largest_unit_that_fits() {
        for (us, expected) in [
            (1_000, "INTERVAL '0.001' SECOND"),
            (1_500_000, "INTERVAL '1.5' SECOND"),
            (60_000_000, "INTERVAL '1' MINUTE"),
            (90_000_000, "INTERVAL '90' SECOND"),
            (7_200_000_000, "INTERVAL '2' HOUR"),
            (86_400_000_000, "INTERVAL '1' DAY"),
        ] {
            assert_eq!(interval(us), expected);
        }
    }

    #[test]
    fn tables_are_named_after_files_or_their_directory() {
        for (path, expected) in [
            ("events.csv", "events"),
            ("/data/My Events-2024.csv.gz", "my_events_2024"),
            ("logs/*.parquet", "logs"),
            ("logs/2024/**/*.csv", "t_2024"),
            ("*.csv", "records"),
            ("./", "records"),
            ("order.csv", "order_table"),
        ] {
            assert_eq!(table_name(path), expected, "{path}");
        }
    }

    #[test]
    fn a_free_name_is_not_taken() {
        let used: HashSet<String> = ["ts", "ts_2"].map(str::to_string).into();
        assert_eq!(free_name("ts", &used), "ts_3");
        assert_eq!(free_name("at", &used), "at");
    }
}
