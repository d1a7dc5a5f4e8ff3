//! Intervals from one unit to another, such as `INTERVAL '1 02:03:04.5' DAY TO SECOND`. DataFusion
//! knows only intervals with named units: `INTERVAL '1 DAY 2 HOUR 3 MINUTE 4.5 SECOND'`.

use crate::syntax::prelude::*;

use datafusion_sql::sqlparser::ast::{DateTimeField, Expr, Interval, Value, ValueWithSpan};

/// The units of each of the two kinds, what stands before each but the first, and the most of each
/// but the first.
const MONTHS: &[IntervalUnit] = &[("YEAR", ' ', 0), ("MONTH", '-', 11)];
const TIME: &[IntervalUnit] =
    &[("DAY", ' ', 0), ("HOUR", ' ', 23), ("MINUTE", ':', 59), ("SECOND", ':', 59)];

/// Digits that seconds have behind the point at most.
const FRACTION_MAX: u64 = 9;

type IntervalUnit = (&'static str, char, u32);

/// Names the units within the text of an interval from one unit to another. Leaves the text of an
/// interval of a single unit as written.
///
/// # Errors
///
/// If there is no such interval, or the text is none of its kind.
pub(crate) fn name_units(interval: &mut Interval) -> Result<()> {
    let (Some(from), Some(to)) = (&interval.leading_field, &interval.last_field) else {
        return Ok(());
    };
    let place = Span::new(interval.value.span());
    let Some(units) = units(from, to) else {
        let error = SqlError::types(format!("there is no interval {from} TO {to}"));
        return Err(error.at(place).help("write YEAR TO MONTH, or DAY TO HOUR, MINUTE or SECOND"));
    };
    let fraction_max = interval.fractional_seconds_precision.unwrap_or(FRACTION_MAX);
    let named = match &*interval.value {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
            named(text, units, fraction_max)
        }
        _ => None,
    };
    let Some(named) = named else {
        let error = SqlError::types(format!("{} is no interval {from} TO {to}", interval.value));
        let help = format!("write for example INTERVAL '{}' {from} TO {to}", example(units));
        return Err(error.at(place).help(help));
    };
    let span = interval.value.span();
    *interval = Interval {
        value: Box::new(Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(named),
            span,
        })),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    };
    Ok(())
}

fn units(from: &DateTimeField, to: &DateTimeField) -> Option<&'static [IntervalUnit]> {
    let (from, to) = (from.to_string().to_uppercase(), to.to_string().to_uppercase());
    [MONTHS, TIME].into_iter().find_map(|units| {
        let at = |name: &str| units.iter().position(|unit| unit.0 == name);
        let (first, last) = (at(&from)?, at(&to)?);
        (first < last).then(|| &units[first..=last])
    })
}

fn example(units: &[IntervalUnit]) -> String {
    let mut example = String::from("1");
    for (_, before, _) in &units[1..] {
        example.push(*before);
        example.push_str("02");
    }
    example
}

/// `1 02:03` as `1 DAY 2 HOUR 3 MINUTE`; `None` if the text's parts do not match `units`.
fn named(text: &str, units: &[IntervalUnit], fraction_max: u64) -> Option<String> {
    let text = text.trim();
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let mut named = Vec::new();
    for (n, (unit, _, most)) in units.iter().enumerate() {
        let part = match units.get(n + 1) {
            Some((_, before, _)) => {
                let (part, after) = rest.split_once(*before)?;
                rest = after.trim_start();
                part
            }
            None => rest,
        };
        let (whole, fraction) = match part.split_once('.') {
            Some((whole, fraction)) if *unit == "SECOND" => (whole, fraction),
            Some(_) => return None,
            None => (part, "0"),
        };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() as u64 > fraction_max {
            return None;
        }
        if n > 0 && whole.parse::<u32>().ok()? > *most {
            return None;
        }
        named.push(format!("{sign}{part} {unit}"));
    }
    Some(named.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_named() {
        use DateTimeField::{Day, Hour, Minute, Month, Second, Year};
        for (text, from, to, expected) in [
            ("1 02:03:04.5", Day, Second, Some("1 DAY 02 HOUR 03 MINUTE 04.5 SECOND")),
            ("-1 02:03", Day, Minute, Some("-1 DAY -02 HOUR -03 MINUTE")),
            ("+30:59", Hour, Minute, Some("30 HOUR 59 MINUTE")),
            ("90:00.25", Minute, Second, Some("90 MINUTE 00.25 SECOND")),
            ("0:00.1234", Minute, Second, None),
            ("1-6", Year, Month, Some("1 YEAR 6 MONTH")),
            ("1-12", Year, Month, None),
            ("1 24", Day, Hour, None),
            ("1 02:03", Day, Second, None),
            ("1 02:03:04", Day, Minute, None),
            ("1 02:60", Day, Minute, None),
            ("1.5 02", Day, Hour, None),
            ("", Year, Month, None),
        ] {
            let units = units(&from, &to).unwrap();
            assert_eq!(named(text, units, 3).as_deref(), expected, "{text} {from} TO {to}");
            assert!(named(&example(units), units, 3).is_some());
        }
        assert!(units(&Year, &Day).is_none() && units(&Second, &Day).is_none());
    }
}
