//! Completion of the options in WITH, also on lines of their own.

/// The options of tables, but for those that have names of columns in them.
const OPTIONS: &[&str] = &[
    "arrow.compression",
    "connector",
    "csv.allow-comments",
    "csv.disable-quote-character",
    "csv.field-delimiter",
    "csv.header",
    "csv.ignore-parse-errors",
    "csv.null-literal",
    "csv.quote-character",
    "follow",
    "format",
    "hostname",
    "journal",
    "journal_bytes",
    "json.any-as-string",
    "late",
    "listen",
    "max-body",
    "number-of-rows",
    "on_error",
    "parquet.block.size",
    "parquet.compression",
    "path",
    "port",
    "rows-per-second",
    "seed",
    "sink.partition-commit.policy.kind",
    "sink.partition-commit.success-file.name",
    "sink.rolling-policy.file-size",
    "sink.rolling-policy.rollover-interval",
    "sink.rolling-policy.rows",
    "sink.rolling-policy.window",
    "splits",
];

/// Options with a few values.
const VALUES: &[(&str, &[&str])] = &[
    ("connector", &["blackhole", "channel", "datagen", "file", "http", "print", "socket", "stdin"]),
    ("follow", &["false", "true"]),
    ("format", &["arrow", "csv", "ndjson", "parquet", "raw", "table"]),
    ("late", &["drop", "table:"]),
    ("on_error", &["fail", "skip", "table:"]),
];

/// Completions behind the quote at the end of `before`: options, or an option's values.
pub(super) fn fitting(before: &str, text: &str) -> Vec<String> {
    let before = before.strip_suffix('\'').unwrap_or(before).trim_end();
    let in_with = before.to_uppercase().contains("WITH") || before.trim_start().starts_with('\'');
    let begins = |name: &&&str| name.starts_with(text);
    if let Some(option) = before.strip_suffix('=') {
        let key = option.trim_end().trim_end_matches('\'').rsplit('\'').next().unwrap_or("");
        let values = VALUES.iter().find(|(known, _)| in_with && *known == key);
        let values = values.map_or(&[][..], |(_, values)| *values);
        return values.iter().filter(begins).map(|value| format!("{value}'")).collect();
    }
    let is_key = before.is_empty() || (in_with && before.ends_with(['(', ',']));
    let keys = OPTIONS.iter().filter(begins).filter(|_| is_key);
    keys.map(|key| format!("{key}' = '")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_their_values_stand_in_with() {
        for (line, expected) in [
            ("WITH ('conn", &["connector' = '"][..]),
            ("  'conn", &["connector' = '"]),
            ("'connector' = 'file', 'pat", &["path' = '"]),
            ("WITH ('connector' = 'f", &["file'"]),
            ("'format' = 'nd", &["ndjson'"]),
            ("'path' = 'c", &[]),
            ("SELECT 'conn", &[]),
            ("WHERE k IN ('conn", &[]),
        ] {
            let quote = line.rfind('\'').unwrap() + 1;
            assert_eq!(fitting(&line[..quote], &line[quote..]), expected, "{line}");
        }
    }

    #[test]
    fn options_are_those_of_the_documentation() {
        let page = include_str!("../../../../docs/connectors.md");
        for option in OPTIONS {
            let written = [format!("`{option}`"), format!("'{option}' = ")];
            assert!(written.iter().any(|written| page.contains(written)), "{option}");
        }
    }
}
