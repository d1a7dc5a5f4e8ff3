//! Wider types and options for values that do not fit a table whose declaration was inferred
//! ([`crate::inferred`]).

use crate::declaration::{Declaration, DeclaredColumn, NULL_WORDS, literal};
use crate::element;

/// Suffix of a message about a value that a type would have to round.
pub const MORE_DIGITS: &str = ", which has more digits";

/// A type or an option under which a value fits.
pub(crate) struct Wider {
    pub(crate) sql_type: String,
    /// Another option.
    pub(crate) option: Option<(&'static str, String)>,
}

impl Wider {
    fn of(sql_type: &str) -> Wider {
        Wider { sql_type: sql_type.to_string(), option: None }
    }

    fn with(self, key: &'static str, value: &str) -> Wider {
        Wider { option: Some((key, value.to_string())), ..self }
    }

    /// In words.
    pub(crate) fn what(&self) -> String {
        match &self.option {
            None => format!("the column as {}", self.sql_type),
            Some((key, value)) => {
                format!("the column as {}, with '{key}' = {}", self.sql_type, literal(value))
            }
        }
    }

    pub(crate) fn put_in(&self, declaration: &Declaration, column: &str) -> Option<Declaration> {
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
pub(crate) fn wider_at(
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

/// The type or option under which the value in `message` fits; `None` if the type is not the cause.
/// `json`: values are JSON, where a number is no string. `free`: no option names the word for NULL
/// yet.
fn wider(column: &DeclaredColumn, message: &str, json: bool, free: bool) -> Option<Wider> {
    // As readers word it.
    let wider = message.strip_suffix(", which is wider");
    if let Some((_, has)) = wider.and_then(|message| message.rsplit_once(", but comes as ")) {
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
        _ if let Some(digits) =
            sql_type.strip_prefix("TIMESTAMP(").filter(|_| is_instant(text)) =>
        {
            Wider::of(&format!("TIMESTAMP_LTZ({digits}"))
        }
        _ if is_time && is_string => Wider::of("STRING"),
        _ => as_string(),
    })
}

/// Whether a text is a time with an offset from UTC.
fn is_instant(text: &str) -> bool {
    let text = text.trim_matches('"');
    let digits = |text: &str, marks: &[u8]| {
        text.bytes().all(|byte| byte.is_ascii_digit() || marks.contains(&byte))
    };
    let Some((date, clock)) = text.split_once(['T', ' ']) else { return false };
    let offset = clock.find(['Z', '+', '-']).unwrap_or(clock.len());
    let (time, offset) = clock.split_at(offset);
    let is_time = digits(date, b"-") && time.len() >= 8 && digits(time.trim_end(), b":.");
    is_time && (offset == "Z" || offset.len() > 2 && digits(&offset[1..], b":"))
}

/// Whether a number has zeros in front, or a plus sign.
fn is_name(number: &str) -> bool {
    let digits = number.trim_start_matches('-');
    let zeros =
        digits.strip_prefix('0').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    zeros || number.starts_with('+')
}

/// The type like `sql_type` that holds all digits of a value which that has no place for.
fn exact_type(sql_type: &str, text: &str) -> Option<String> {
    let (whole, fraction) = text.trim_matches('"').split_once('.').unwrap_or((text, ""));
    let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    let digits = fraction[..end].trim_end_matches('0').len();
    let is_whole = end == fraction.len() && !whole.contains(['e', 'E']);
    if sql_type == "DOUBLE" {
        return (is_whole && whole.len() <= 29).then(|| "DECIMAL(38, 9)".to_string());
    }
    let (kind, _) = sql_type.split_once('(')?;
    match kind {
        // There is to be room for what is wide.
        "DECIMAL" if is_whole && digits <= 9 && whole.len() + digits <= 38 => {
            Some(format!("DECIMAL(38, {digits})"))
        }
        "DECIMAL" => Some("DOUBLE".to_string()),
        _ if digits <= 6 => Some(format!("{kind}(6)")),
        // Nanoseconds reach from 1677 to 2262.
        "TIMESTAMP" | "TIMESTAMP_LTZ" => {
            let year: u32 = whole.get(..4)?.parse().ok()?;
            (1678..2262).contains(&year).then(|| format!("{kind}(9)"))
        }
        _ => Some(format!("{kind}(9)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for instant in ["\"2024-05-01T12:00:00Z\"", "\"2024-05-01 12:00:00.5 +02:00\""] {
            assert_eq!(takes("TIMESTAMP(3)", instant, false), expected("TIMESTAMP_LTZ(3)", false));
        }
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
            ("DOUBLE", "'9007199254740993'", "DECIMAL(38, 9)"),
            ("DOUBLE", "'12345678901234567890123456789012345678'", "STRING"),
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
}
