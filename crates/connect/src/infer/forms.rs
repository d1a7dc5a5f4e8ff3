//! Times in forms other than SQL's, and lines of logs: the columns computed from them.

use millstream_contract::declaration::ComputedColumn;

use super::sample::Sample;
use crate::datetime::{Instant, parse_timestamp};

/// Patterns of times, in Java's letters, each with the SQL that reads them in a column.
const FORMS: [(&str, &str); 6] = [
    ("dd/MMM/yyyy:HH:mm:ss Z", "TO_TIMESTAMP_LTZ({}, 'dd/MMM/yyyy:HH:mm:ss Z')"),
    ("yyyy-MM-dd HH:mm", "TO_TIMESTAMP({}, 'yyyy-MM-dd HH:mm')"),
    ("yyyy/MM/dd HH:mm:ss", "TO_TIMESTAMP({}, 'yyyy/MM/dd HH:mm:ss')"),
    ("yyyy/MM/dd HH:mm", "TO_TIMESTAMP({}, 'yyyy/MM/dd HH:mm')"),
    ("dd.MM.yyyy HH:mm:ss", "TO_TIMESTAMP({}, 'dd.MM.yyyy HH:mm:ss')"),
    ("dd.MM.yyyy HH:mm", "TO_TIMESTAMP({}, 'dd.MM.yyyy HH:mm')"),
];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time of one of the patterns, and the SQL that reads it.
pub(super) fn time(text: &[u8]) -> Option<(Instant, &'static str)> {
    FORMS.iter().find_map(|(pattern, sql)| match read(pattern, text)? {
        (at, []) => Some((at, *sql)),
        _ => None,
    })
}

/// Reads the time of a text or of a line.
pub(super) type Parse = fn(&[u8]) -> Option<Instant>;

/// The reader of the texts that this SQL makes times of.
pub(super) fn reader(sql: &str) -> Option<Parse> {
    if FORMS.iter().any(|(_, form)| *form == sql) {
        return Some(|text| time(text).map(|(at, _)| at));
    }
    let log = LOGS.iter().find(|log| log.computed("").iter().any(|column| column.form == sql));
    log.map(|log| log.time)
}

/// A time of a pattern, and the text behind it. Without a year it is in 1972,
/// a leap year.
fn read<'t>(pattern: &str, text: &'t [u8]) -> Option<(Instant, &'t [u8])> {
    let (mut date, mut clock, mut offset) = ([1972, 1, 1], [0; 3], "");
    let (mut pattern, mut rest) = (pattern, text);
    while let Some(letter) = pattern.chars().next() {
        let run = pattern.len() - pattern.trim_start_matches(letter).len();
        let width = match letter {
            'Z' => 5,
            // A day may have a blank in front.
            'd' => 2,
            _ => run,
        };
        let (part, behind) = rest.split_at_checked(width)?;
        let (letters, behind_run) = pattern.split_at_checked(run)?;
        let part = str::from_utf8(part).ok()?;
        let number =
            |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?;
        match letter {
            'y' => date[0] = number(part)?,
            'M' if run == 3 => date[1] = 1 + MONTHS.iter().position(|month| *month == part)?,
            'M' => date[1] = number(part)?,
            'd' => date[2] = number(if run == 1 { part.trim_start() } else { part })?,
            'H' => clock[0] = number(part)?,
            'm' => clock[1] = number(part)?,
            's' => clock[2] = number(part)?,
            'Z' => offset = part,
            _ if part == letters => {}
            _ => return None,
        }
        (pattern, rest) = (behind_run, behind);
    }
    let ([year, month, day], [hour, minute, second]) = (date, clock);
    let time = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{offset}");
    Some((parse_timestamp(time.as_bytes())?, rest))
}

/// A kind of logs.
pub(super) struct Log {
    /// The time of a line.
    time: Parse,
    /// The columns, of which `ts` is the time: a name, the pattern of a part of the line, and the
    /// SQL that makes the value of this part, `{}`.
    columns: &'static [(&'static str, &'static str, &'static str)],
    pub(super) remark: &'static str,
}

/// Lines of a sample that are looked at.
pub(super) const LINES: usize = 1000;

static LOGS: [Log; 3] = [
    // Access logs of web servers, in the common and the combined format.
    Log {
        time: |line| {
            let at = line.iter().position(|b| *b == b'[')?;
            let (time, rest) = read("dd/MMM/yyyy:HH:mm:ss Z", &line[at + 1..])?;
            rest.starts_with(b"] \"").then_some(time)
        },
        columns: &[
            ("ts", r"\[([^\]]+)\]", "TRY_TO_TIMESTAMP_LTZ({}, 'dd/MMM/yyyy:HH:mm:ss Z')"),
            ("host", r"^(\S+)", "{}"),
            ("remote_user", r"^\S+ \S+ (\S+)", "{}"),
            ("request", r#"\] "((?:[^"\\]|\\.)*)""#, "{}"),
            ("status", r#"" (\d\d\d) "#, "TRY_CAST({} AS INT)"),
            ("bytes", r#"" \d\d\d (\d+)"#, "TRY_CAST({} AS BIGINT)"),
        ],
        remark: "",
    },
    // Syslog of RFC 3164.
    Log {
        time: |line| {
            let (time, rest) = read("MMM d HH:mm:ss", line)?;
            rest.starts_with(b" ").then_some(time)
        },
        columns: &[
            (
                "ts",
                r"^(\S+ +\S+ \S+)",
                "TRY_TO_TIMESTAMP(CONCAT('1972 ', {}), 'yyyy MMM d HH:mm:ss')",
            ),
            ("host", r"^\S+ +\S+ \S+ (\S+)", "{}"),
            ("program", r"^\S+ +\S+ \S+ \S+ ([^:\[ ]+)", "{}"),
            ("pid", r"^[^:]+:\d+:\d+ \S+ [^:\[ ]+\[(\d+)\]", "TRY_CAST({} AS BIGINT)"),
            ("message", r"^\S+ +\S+ \S+ \S+ [^:]+: (.*)", "{}"),
        ],
        remark: "the lines name no year: their times are in 1972, a leap year; for another year, \
                 write it in place of 1972",
    },
    // Syslog of RFC 5424.
    Log {
        time: |line| {
            let at = line.windows(3).position(|three| three == b">1 ").filter(|at| *at <= 4)?;
            let time = line.get(at + 3..)?.split(|b| *b == b' ').next()?;
            parse_timestamp(time).filter(|_| line[0] == b'<')
        },
        columns: &[
            ("ts", r"^<\d+>1 (\S+)", "TRY_TO_TIMESTAMP_LTZ({})"),
            ("host", r"^<\d+>1 \S+ (\S+)", "{}"),
            ("program", r"^<\d+>1 \S+ \S+ (\S+)", "{}"),
            ("message", r"^<\d+>1(?: \S+){5} (?:-|(?:\[[^\]]*\])+) (.*)", "{}"),
        ],
        remark: "",
    },
];

impl Log {
    /// The kind of logs that samples are of: nine of ten lines of the first one.
    pub(super) fn of(samples: &[Sample]) -> Option<(&'static Log, Vec<Instant>)> {
        let head = &samples.first()?.head;
        let lines = || head.split(|b| *b == b'\n').filter(|line| !line.is_empty()).take(LINES);
        LOGS.iter().find_map(|log| {
            let times: Vec<Instant> = lines().filter_map(log.time).collect();
            (!times.is_empty() && times.len() * 10 >= lines().count() * 9).then_some((log, times))
        })
    }

    /// The columns that are computed of the line, which is a column of this name.
    pub(super) fn computed(&self, line: &str) -> Vec<ComputedColumn> {
        let column = |(name, pattern, value): &(&str, &str, &str)| ComputedColumn {
            name: name.to_string(),
            form: value.replace("{}", &format!("REGEXP_EXTRACT({{}}, '{pattern}', 1)")),
            column: line.to_string(),
        };
        self.columns.iter().map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_by_their_patterns() {
        for (text, same) in [
            ("06/May/2024:08:00:01 +0200", Some("2024-05-06 06:00:01")),
            ("2024-05-06 08:00", Some("2024-05-06 08:00:00")),
            ("29.02.2024 08:00:01", Some("2024-02-29 08:00:01")),
            ("29.02.2023 08:00:01", None),
            ("06/Mai/2024:08:00:01 +0200", None),
            ("2024-05-06 08:00 ", None),
        ] {
            let at = time(text.as_bytes()).map(|(at, _)| at);
            assert_eq!(at, same.and_then(|same| parse_timestamp(same.as_bytes())), "{text}");
        }
        // Two years and a day behind 1970.
        let (at, rest) = read("MMM d HH:mm:ss", b"Jan  2 00:00:03 host").unwrap();
        assert_eq!((at.seconds, rest), (731 * 86_400 + 3, &b" host"[..]));
        assert!(read("MMM d HH:mm:ss", b"Feb 29 00:00:03").is_some());
    }
}
