//! Numbers as they are written. With a point they are decimals, with an exponent doubles, as in
//! Flink. DataFusion knows one or the other, so a number with an exponent becomes a cast of a text.
//!
//! A decimal has as many digits as are written, also zeros before the point: `0.5` is a
//! `DECIMAL(2, 1)`. DataFusion does not count these, so [`count_zeros`] writes such a number as a
//! dictionary, which is no syntax of ours, and [`decimal_of`] makes the constant of it.

use datafusion_sql::sqlparser::ast::{
    CastKind, DataType, DictionaryField, ExactNumberInfo, Expr, TypedString, UnaryOperator, Value,
    ValueWithSpan, VisitMut,
};

use crate::syntax::calls::{double_text, string};
use crate::syntax::prelude::*;

/// Digits that a decimal has at most.
const DIGITS_MAX: usize = 38;

/// The double of a constant with an exponent; `None` for a constant of another form.
///
/// # Errors
///
/// If the number is too large, or has more digits than a decimal.
pub(crate) fn double(constant: &ValueWithSpan) -> Result<Option<Expr>> {
    let Value::Number(number, _) = &constant.value else { return Ok(None) };
    if !number.contains(['e', 'E']) {
        return check_digits(number).map(|()| None).map_err(|e| e.at(Span::new(constant.span)));
    }
    if !number.parse::<f64>().is_ok_and(f64::is_finite) {
        let error = SqlError::types(format!("{number} does not fit DOUBLE"));
        return Err(error
            .at(Span::new(constant.span))
            .help("the largest is 1.7976931348623157E308"));
    }
    let value = Value::SingleQuotedString(number.clone());
    let text = Expr::Value(ValueWithSpan { value, span: constant.span });
    Ok(Some(cast(text, DataType::Double(ExactNumberInfo::None))))
}

/// `DECIMAL '1.5'`: the number in the quotes, with as many digits as are written there; `None` if
/// the type says how many, or is another. (DataFusion would take it for a DECIMAL(10, 0).)
///
/// # Errors
///
/// If it is no number, or has more digits than a decimal.
pub(crate) fn decimal(constant: &TypedString) -> Result<Option<Expr>> {
    use DataType::{Dec, Decimal, Numeric};
    let (Decimal(ExactNumberInfo::None)
    | Numeric(ExactNumberInfo::None)
    | Dec(ExactNumberInfo::None)) = constant.data_type
    else {
        return Ok(None);
    };
    let Value::SingleQuotedString(text) = &constant.value.value else { return Ok(None) };
    let at = |error: SqlError| error.at(Span::new(constant.value.span));
    let number = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = whole.len() + fraction.len() > 0
        && [whole, fraction].iter().all(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if !is_number {
        let error = SqlError::types(format!("'{text}' is no DECIMAL"));
        return Err(at(error).help("write digits, with a point or without one: DECIMAL '1.5'"));
    }
    check_digits(number).map_err(at)?;
    let precision = (whole.len() + fraction.len()).min(DIGITS_MAX) as u64;
    let exact = ExactNumberInfo::PrecisionAndScale(precision, fraction.len() as i64);
    Ok(Some(cast(Expr::Value(constant.value.clone()), Decimal(exact))))
}

/// The double of [`double`], with a minus before its number.
pub(crate) fn negative(of: &Expr) -> Option<Expr> {
    let text = double_text(of).filter(|text| !text.starts_with('-'))?;
    let value = Value::SingleQuotedString(format!("-{text}"));
    let text = Expr::Value(ValueWithSpan { value, span: of.span() });
    Some(cast(text, DataType::Double(ExactNumberInfo::None)))
}

/// The key of the dictionary that stands for a decimal.
const DECIMAL: &str = "$decimal";

/// Writes decimals that begin with a zero so that this digit counts, for the planner alone: what
/// looks at the syntax before it sees numbers. A number that ends with its point is an integer.
pub(crate) fn count_zeros<T: VisitMut>(mut syntax: T) -> T {
    let _ = syntax.each_expr_mut(|expr| {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => {
                match number.split_once('.') {
                    Some((whole, "")) => *number = whole.to_string(),
                    Some((whole, _)) if whole.starts_with('0') => *expr = counted(number),
                    _ => {}
                }
            }
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: of } => {
                if let Some(number) = counted_text(of).filter(|number| !number.starts_with('-')) {
                    *expr = counted(&format!("-{number}"));
                }
            }
            // It takes the number as a text.
            Expr::Interval(interval) => {
                if let Some(number) = counted_text(&interval.value) {
                    *interval.value = Expr::value(Value::Number(number.to_string(), false));
                }
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    syntax
}

fn counted(number: &str) -> Expr {
    let value = Box::new(string(number));
    Expr::Dictionary(vec![DictionaryField { key: Ident::new(DECIMAL), value }])
}

fn counted_text(expr: &Expr) -> Option<&str> {
    let Expr::Dictionary(fields) = expr else { return None };
    let [DictionaryField { key, value }] = &fields[..] else { return None };
    match &**value {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. })
            if key.value == DECIMAL =>
        {
            Some(text)
        }
        _ => None,
    }
}

/// The decimal that a dictionary of this key and this value stands for, if it is one of
/// [`count_zeros`].
pub(crate) fn decimal_of(key: &str, number: &str) -> Option<ScalarValue> {
    let (whole, fraction) = number.split_once('.').filter(|_| key == DECIMAL)?;
    let digits = whole.trim_start_matches('-').len() + fraction.len();
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i8::try_from(fraction.len()).ok()?;
    Some(ScalarValue::Decimal128(Some(value), digits.min(DIGITS_MAX) as u8, scale))
}

fn check_digits(number: &str) -> Result<()> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0').len();
    let digits = match whole {
        0 => fraction.len(),
        whole => whole + fraction.len(),
    };
    if digits <= DIGITS_MAX {
        return Ok(());
    }
    let error = format!("a number of {digits} digits: a DECIMAL has at most {DIGITS_MAX}");
    Err(SqlError::types(error).help("with an exponent it is a DOUBLE: 1.5E0"))
}

/// Casts in VALUES are written twice, so that they differ from the casts that DataFusion puts
/// in, which make decimals of doubles.
pub(crate) fn keep_casts(query: &mut Query) {
    keep_casts_of(&mut query.body);
}

fn keep_casts_of(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => {
            for value in values.rows.iter_mut().flat_map(|row| row.iter_mut()) {
                let to = match value {
                    Expr::Cast { data_type, .. } if is_decimal(data_type) => data_type.clone(),
                    _ => continue,
                };
                *value = cast(value.clone(), to);
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            keep_casts_of(left);
            keep_casts_of(right);
        }
        // A query in brackets is visited itself.
        _ => {}
    }
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal(_) | DataType::Numeric(_) | DataType::Dec(_))
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    let expr = Box::new(expr);
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

#[cfg(test)]
mod tests {
    use datafusion_sql::sqlparser::tokenizer;

    use super::*;

    fn read(number: &str) -> Result<Option<Expr>> {
        let value = Value::Number(number.into(), false);
        double(&ValueWithSpan { value, span: tokenizer::Span::empty() })
    }

    #[test]
    fn numbers_with_an_exponent_are_doubles() {
        for number in ["1e3", "1.5E0", "5e-324", "1E400"] {
            match read(number) {
                Ok(Some(read)) => assert_eq!(double_text(&read), Some(number)),
                Ok(None) => panic!("{number} is a decimal"),
                Err(error) => assert!(number == "1E400" && error.message.contains("DOUBLE")),
            }
        }
    }

    /// Calcite counts the digits that are written, and so does Flink.
    #[test]
    fn zeros_before_the_point_count() {
        let (zeros, long) = ("0".repeat(37), "0".repeat(40));
        for (number, value, precision, scale) in [
            ("0.5", 5, 2, 1),
            ("-0.05", -5, 3, 2),
            ("00.10", 10, 4, 2),
            ("0.0", 0, 2, 1),
            ("01.5", 15, 3, 1),
            (&format!("0.{zeros}1"), 1, 38, 38),
            (&format!("{long}1.5"), 15, 38, 1),
        ] {
            let decimal = ScalarValue::Decimal128(Some(value), precision, scale);
            assert_eq!(decimal_of(DECIMAL, number), Some(decimal), "{number}");
        }
        let number = |text: &str| Expr::value(Value::Number(text.into(), false));
        assert_eq!(counted_text(&count_zeros(number("0.5"))), Some("0.5"));
        for plain in ["1.5", ".5", "12", "007"] {
            assert_eq!(count_zeros(number(plain)), number(plain));
        }
        assert_eq!(count_zeros(number("12.")), number("12"));
    }

    #[test]
    fn a_decimal_has_38_digits() {
        let (ones, zeros) = ("1".repeat(38), "0".repeat(37));
        for (number, fits) in [
            (ones.clone(), true),
            (format!("{ones}1"), false),
            (format!("00{ones}"), true),
            (format!("{ones}."), true),
            (format!("{ones}.0"), false),
            (format!("0.{zeros}1"), true),
            (format!(".{zeros}1"), true),
            (format!("0.{zeros}10"), false),
            (format!("1.{zeros}"), true),
            (format!("1.{zeros}0"), false),
        ] {
            assert_eq!(read(&number).is_ok(), fits, "{number}");
        }
    }
}
