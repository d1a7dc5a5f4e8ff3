//! The precision of constants such as `TIMESTAMP '2024-01-31 12:30:00.5'` and `TIME '12:30:00.5'`.

use crate::syntax::prelude::*;

use datafusion_sql::sqlparser::ast::{DataType, TypedString, Value};

/// Digits that a type has where nothing else is said: of a `TIMESTAMP`, and of a `TIME`.
const DIGITS: (usize, usize) = (6, 0);
/// Digits that both may have.
const DIGITS_MAX: usize = 9;

/// Gives a constant whose seconds have more digits than usual a type that has room for them.
///
/// # Errors
///
/// If no type has.
pub(crate) fn keep_fraction(constant: &mut TypedString) -> Result<()> {
    let (name, precision, usual) = match &mut constant.data_type {
        DataType::Timestamp(precision @ None, _) => ("TIMESTAMP", precision, DIGITS.0),
        DataType::Time(precision @ None, _) => ("TIME", precision, DIGITS.1),
        _ => return Ok(()),
    };
    let Value::SingleQuotedString(text) = &constant.value.value else { return Ok(()) };
    let fraction = text.rsplit_once('.').map_or("", |(_, fraction)| fraction);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits > DIGITS_MAX {
        let error = SqlError::types(format!("'{text}' has {digits} digits after its seconds"))
            .at(Span::new(constant.value.span))
            .help(format!("a {name} has {DIGITS_MAX} at most"));
        return Err(error);
    }
    if digits > usual {
        *precision = Some(digits as u64);
    }
    Ok(())
}
