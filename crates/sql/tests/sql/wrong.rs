//! Wrong queries drawn at random: functions and operators over arguments of any type and number.
//! What is refused is refused in SQL's words, at a place.

use millstream_sql::{ErrorKind, parse_script};

use crate::common::*;
use crate::fuzz::Random;

const ATOMS: &[&str] = &[
    "b",
    "i8",
    "i32",
    "i64",
    "u8",
    "u64",
    "f32",
    "f64",
    "d",
    "s",
    "y",
    "dt",
    "tm",
    "t0",
    "t6",
    "t9",
    "z",
    "NULL",
    "1",
    "-1",
    "1.5",
    "1e0",
    "'abc'",
    "''",
    "TRUE",
    "INTERVAL '1' DAY",
    "INTERVAL '1' MONTH",
    "DATE '2024-01-01'",
    "TIME '10:00:00'",
    "X'00'",
    "CAST(NULL AS INT)",
];

const FUNCTIONS: &str = "ABS ACOS ATAN2 CEIL COT EXP FLOOR GCD LCM LN LOG LOG2 PI POWER SIGN SQRT \
    ASCII BIT_LENGTH BTRIM CHAR_LENGTH CONCAT CONCAT_WS INITCAP LOWER LTRIM OCTET_LENGTH REPEAT \
    REVERSE RTRIM SPLIT_INDEX STARTSWITH ENDSWITH HEX TRANSLATE UPPER REGEXP_COUNT ENCODE DECODE \
    MAKE_DATE TO_CHAR TO_DATE TO_TIMESTAMP TO_TIMESTAMP_LTZ TO_TIMESTAMP_SECONDS TO_UNIXTIME \
    COALESCE GREATEST LEAST NULLIF NVL NVL2 IFNULL ROUND TRUNCATE MOD LPAD RPAD SUBSTRING LEFT \
    RIGHT LOCATE INSTR REPLACE REGEXP REGEXP_REPLACE REGEXP_EXTRACT DATE_FORMAT DATE_TRUNC YEAR \
    HOUR UNIX_TIMESTAMP FROM_UNIXTIME SUM AVG MIN MAX COUNT LEVENSHTEIN NANVL ISNAN CONTAINS";

const FORMS: &[&str] = &[
    "(? + ?)",
    "(? - ?)",
    "(? * ?)",
    "(? / ?)",
    "(? % ?)",
    "(? || ?)",
    "(? = ?)",
    "(? < ?)",
    "(? AND ?)",
    "(? OR ?)",
    "(NOT ?)",
    "(-?)",
    "(? IS TRUE)",
    "(? IS NOT DISTINCT FROM ?)",
    "(? LIKE ?)",
    "(? SIMILAR TO ?)",
    "(? IN (?, ?))",
    "(? BETWEEN ? AND ?)",
    "CASE WHEN ? THEN ? ELSE ? END",
    "CASE ? WHEN ? THEN ? END",
    "CASE ? WHEN ?, ? THEN ? END",
    "CAST(? AS INT)",
    "CAST(? AS DATE)",
    "CAST(? AS BYTES)",
    "CAST(? AS DECIMAL(38, 30))",
    "TRY_CAST(? AS TIME(3))",
    "CAST(? AS TIMESTAMP(9))",
    "EXTRACT(HOUR FROM ?)",
    "EXTRACT(EPOCH FROM ?)",
    "FLOOR(? TO DAY)",
    "TIMESTAMPDIFF(SECOND, ?, ?)",
    "TIMESTAMPADD(DAY, ?, ?)",
    "POSITION(? IN ?)",
    "TRIM(BOTH ? FROM ?)",
    "SUBSTRING(? FROM ? FOR ?)",
    "OVERLAY(? PLACING ? FROM ?)",
];

const QUERIES: &[&str] = &[
    "SELECT ? AS r FROM typed",
    "SELECT i8 FROM typed WHERE ?",
    "SELECT i8 FROM typed LIMIT ?",
    "SELECT COUNT(*) FROM typed GROUP BY ?",
    "SELECT i8 FROM typed ORDER BY ?",
    "SELECT i8 FROM typed UNION ALL SELECT ? FROM typed",
    "SELECT MAX(?) FROM typed",
    "SELECT COUNT(*) FROM typed HAVING ?",
    "SELECT MAX(i8) FILTER (WHERE ?) FROM typed",
    "SELECT i8, ? FROM typed GROUP BY i8",
];

/// Words of the libraries that we use.
const FOREIGN: &[&str] = &[
    "DataFusion",
    "ParserError",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Float32",
    "Float64",
    "Utf8",
    "Decimal128",
    "Timestamp(",
    "Date32",
    "Time32",
    "Time64",
    "Interval(",
    "MonthDayNano",
    "Null",
    "oerc",
    "$input",
    "$fired",
    "planning:",
    "rrow",
    "utput scale",
    "UDF",
    "ser-defined",
    "signature",
    "andidate",
    "Nullary",
    "NULLARY",
    "Dictionary",
    "Binary",
    "kernel",
    "nternal",
    "report it",
    "panicked",
    "physical",
    "logical expression",
    "Optimizer",
    "schema",
    "Scalar",
    "nvalid argument",
    "Cast error",
    "backtrace",
    "Some(",
    "Execution error",
    "Expr",
];

impl Random {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn expr(&mut self, depth: usize) -> String {
        if depth == 0 || self.below(5) == 0 {
            return self.pick(ATOMS).to_string();
        }
        if self.below(2) == 0 {
            let functions: Vec<&str> = FUNCTIONS.split_whitespace().collect();
            let count = [0, 1, 1, 2, 2, 2, 3, 3, 4][self.below(9)];
            let arguments: Vec<String> = (0..count).map(|_| self.expr(depth - 1)).collect();
            return format!("{}({})", self.pick(&functions), arguments.join(", "));
        }
        let form = self.pick(FORMS);
        self.filled(form, depth - 1)
    }

    fn filled(&mut self, form: &str, depth: usize) -> String {
        let mut parts = form.split('?');
        let mut text = parts.next().unwrap_or_default().to_string();
        for part in parts {
            text += &self.expr(depth);
            text += part;
        }
        text
    }
}

#[test]
fn refusals_are_in_the_words_of_sql() {
    let mut random = Random(0x5EED);
    let mut planner = session();
    let (mut refused, mut faults) = (0, Vec::new());
    for _ in 0..2_000 {
        let depth = 1 + random.below(3) / 2;
        let form = random.pick(QUERIES);
        let text = random.filled(form, depth);
        let statements = parse_script(&text, "wrong.sql");
        let Err(error) = statements.and_then(|s| planner.execute(&s[0])) else { continue };
        refused += 1;
        let said = format!("{} {}", error.message, error.help.as_deref().unwrap_or_default());
        let foreign = FOREIGN.iter().find(|word| said.contains(**word));
        if foreign.is_some() || error.kind == ErrorKind::Internal || error.span.is_none() {
            faults.push(format!("{foreign:?}: {}", error.render()));
        }
    }
    assert!(refused > 1_000, "{refused} were refused");
    let all = faults.len();
    faults.truncate(20);
    assert!(all == 0, "{all} faults:\n{}", faults.join("\n\n"));
}
