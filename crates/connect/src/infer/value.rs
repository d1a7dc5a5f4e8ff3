//! Shape of a text, and the strictest type that fits all values of a column.
//!
//! | values | type |
//! |---|---|
//! | `true`, `false` | BOOLEAN |
//! | whole numbers | BIGINT; DECIMAL(38, 0) if one does not fit 64 bits |
//! | numbers with a point or an exponent, whole ones among them | DOUBLE[^1] |
//! | `2024-05-01` | DATE |
//! | `12:30`, `12:30:00.5` | TIME(p) |
//! | `2024-05-01 12:30:00`, with `T` for the blank, dates among them | TIMESTAMP(p) |
//! | the same, with an offset from UTC, or `Z` | TIMESTAMP_LTZ(p) |
//! | no value at all, or anything else | STRING |
//!
//! [^1]: If that would round one of the whole numbers, DECIMAL(38, s) with the most digits behind a
//! point, or STRING if there are too many digits.
//!
//! The precision is 3, 6 or 9 by the most digits that a second has in the sample. Numbers that
//! people use as names stay text: numbers with leading zeros (`007`) or a plus sign, and numbers of
//! more than 38 digits. So do times of which no type holds all digits: times with digits below a
//! microsecond are held from 1677 to 2262.

use arrow::datatypes::{DataType, TimeUnit};
use millstream_contract::declaration::NULL_WORDS;

use super::forms;
use super::order::Order;
use crate::datetime::{Instant, parse_date, parse_local, parse_time, parse_timestamp};
use crate::number::parse_f64;

/// Digits of the largest DECIMAL.
const DECIMAL_DIGITS_MAX: usize = 38;

/// Shape of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TextShape {
    Boolean,
    Integer(i64),
    /// Beyond 64 bits, with so many digits; `rounded`: a DOUBLE does not hold it.
    WideInteger {
        digits: u8,
        rounded: bool,
    },
    /// With so many digits before and behind the point; `None`: with an exponent, or no number.
    /// `rounded`: a DOUBLE does not hold the part before the point.
    Float {
        digits: Option<(u8, u8)>,
        rounded: bool,
    },
    Date,
    /// With so many digits of a second.
    Time(u8),
    Timestamp {
        at: Instant,
        digits: u8,
        zoned: bool,
    },
    /// A time in another form, which this SQL reads.
    Form {
        at: Instant,
        form: &'static str,
    },
    Text,
}

/// Shape of a text, apart from blanks around it.
pub(super) fn shape(text: &[u8]) -> TextShape {
    let text = text.trim_ascii();
    match text {
        [b'0'..=b'9', ..] => {
            let formed = || forms::time(text).map(|(at, form)| TextShape::Form { at, form });
            number(text).or_else(|| time(text)).or_else(formed).unwrap_or(TextShape::Text)
        }
        [b'-' | b'.', ..] => number(text).unwrap_or(TextShape::Text),
        _ if text.eq_ignore_ascii_case(b"true") || text.eq_ignore_ascii_case(b"false") => {
            TextShape::Boolean
        }
        _ if text.eq_ignore_ascii_case(b"nan") => TextShape::Float { digits: None, rounded: false },
        _ => TextShape::Text,
    }
}

/// A number as computers write it.
fn number(text: &[u8]) -> Option<TextShape> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(rest);
    if whole > 1 && rest[0] == b'0' {
        return None;
    }
    if whole == rest.len() {
        return (whole > 0).then(|| integer(rest, negative)).flatten();
    }
    let mut rest = &rest[whole..];
    let mut fraction = 0;
    if let [b'.', after @ ..] = rest {
        fraction = digits(after);
        rest = &after[fraction..];
    }
    if whole + fraction == 0 {
        return None;
    }
    if let [b'e' | b'E', after @ ..] = rest {
        let after = match after {
            [b'+' | b'-', after @ ..] => after,
            after => after,
        };
        if after.is_empty() || digits(after) != after.len() {
            return None;
        }
    } else if !rest.is_empty() {
        return None;
    }
    let exponent = !rest.is_empty();
    let digits = u8::try_from(whole).ok().zip(u8::try_from(fraction).ok());
    let before = str::from_utf8(&text[usize::from(negative)..][..whole]).ok();
    let before = before.and_then(|digits| digits.parse().ok());
    let rounded = !exponent && whole > 0 && before.is_none_or(is_rounded);
    let shape = TextShape::Float { digits: digits.filter(|_| !exponent), rounded };
    parse_f64(text).filter(|number| number.is_finite()).map(|_| shape)
}

fn integer(digits: &[u8], negative: bool) -> Option<TextShape> {
    if digits.len() > DECIMAL_DIGITS_MAX {
        return None;
    }
    let value = digits.iter().fold(0i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    let value = if negative { -value } else { value };
    let wide = || TextShape::WideInteger { digits: digits.len() as u8, rounded: is_rounded(value) };
    Some(i64::try_from(value).map_or_else(|_| wide(), TextShape::Integer))
}

/// Whether a DOUBLE does not hold a whole number.
fn is_rounded(value: i128) -> bool {
    value as f64 as i128 != value
}

/// A date, a time, or both.
fn time(text: &[u8]) -> Option<TextShape> {
    let fraction = text.iter().position(|byte| *byte == b'.').map_or(0, |point| {
        text[point + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count()
    });
    let digits = u8::try_from(fraction.min(9)).unwrap_or(9);
    match text.get(2..5)? {
        [b':', ..] => parse_time(text).map(|_| TextShape::Time(digits)),
        [_, _, b'-'] if parse_date(text).is_some() => Some(TextShape::Date),
        [_, _, b'-'] => parse_timestamp(text).map(|at| {
            let zoned = parse_local(text).is_none();
            TextShape::Timestamp { at, digits, zoned }
        }),
        _ => None,
    }
}

/// Properties of a column's values so far.
#[derive(Debug, Clone, Default)]
pub(super) struct ValueStats {
    /// Number of values that are not NULL.
    pub(super) count: u64,
    pub(super) nulls: u64,
    booleans: u64,
    integers: u64,
    wide: u64,
    floats: u64,
    /// Whether a DOUBLE would round one of the whole numbers.
    rounded: bool,
    /// Of numbers, the most digits before and behind the point.
    most: (u8, u8),
    /// True if a value has an exponent, or too many digits for a DECIMAL.
    no_decimal: bool,
    dates: u64,
    times: u64,
    timestamps: u64,
    /// Times in another form, and the SQL that reads the first.
    formed: u64,
    form: Option<&'static str>,
    /// Whether a timestamp has an offset from UTC.
    zoned: bool,
    /// Most digits that a second had.
    digits: u8,
    /// Whether nanoseconds in 64 bits hold all timestamps.
    fits_nanos: bool,
    /// Whether a timestamp has digits below a microsecond.
    below_micros: bool,
    /// Of integers.
    pub(super) least: i64,
    pub(super) greatest: i64,
    /// Of integers as they are, or of timestamps in microseconds.
    pub(super) order: Order,
    /// Which of [`NULL_WORDS`] have been found, a bit each. They count neither as values nor as
    /// NULL.
    pub(super) null_words: u8,
}

/// Which of [`NULL_WORDS`] a text is.
pub(super) fn null_word(text: &[u8]) -> Option<usize> {
    NULL_WORDS.iter().position(|word| word.as_bytes() == text)
}

impl ValueStats {
    pub(super) fn add_null(&mut self) {
        self.nulls += 1;
    }

    pub(super) fn add(&mut self, shape: TextShape) {
        self.count += 1;
        match shape {
            TextShape::Boolean => self.booleans += 1,
            TextShape::Integer(value) => {
                let first = self.integers == 0;
                self.least = if first { value } else { self.least.min(value) };
                self.greatest = if first { value } else { self.greatest.max(value) };
                self.integers += 1;
                self.order.add(value);
                self.rounded |= is_rounded(value.into());
                // Upper bound of an `i64`'s digits.
                self.most.0 = self.most.0.max(19);
            }
            TextShape::WideInteger { digits, rounded } => {
                self.wide += 1;
                self.rounded |= rounded;
                self.most.0 = self.most.0.max(digits);
            }
            TextShape::Float { digits, rounded } => {
                self.floats += 1;
                self.rounded |= rounded;
                self.no_decimal |= digits.is_none();
                let (whole, fraction) = digits.unwrap_or_default();
                self.most = (self.most.0.max(whole), self.most.1.max(fraction));
            }
            TextShape::Date => self.dates += 1,
            TextShape::Time(digits) => {
                self.times += 1;
                self.digits = self.digits.max(digits);
            }
            TextShape::Timestamp { at, digits, zoned } => {
                let fits = at.in_unit(TimeUnit::Nanosecond).is_some();
                self.fits_nanos = fits && (self.timestamps == 0 || self.fits_nanos);
                self.below_micros |= at.nanos % 1000 != 0;
                self.timestamps += 1;
                self.zoned |= zoned;
                self.digits = self.digits.max(digits);
                if let Some(us) = at.in_unit(TimeUnit::Microsecond) {
                    self.order.add(us);
                }
            }
            TextShape::Form { at, form } => {
                if *self.form.get_or_insert(form) == form {
                    self.formed += 1;
                }
                if let Some(us) = at.in_unit(TimeUnit::Microsecond) {
                    self.order.add(us);
                }
            }
            TextShape::Text => {}
        }
    }

    /// A time, in microseconds since 1970, of a column whose type is known.
    pub(super) fn add_time(&mut self, us: i64) {
        self.count += 1;
        self.order.add(us);
    }

    /// The SQL that makes times of all values, if they are texts of one form.
    pub(super) fn form(&self) -> Option<&'static str> {
        self.form.filter(|_| self.formed == self.count)
    }

    /// The next values do not come right after those before.
    pub(super) fn gap(&mut self) {
        self.order.gap();
    }

    /// The strictest type that fits all values.
    pub(super) fn data_type(&self) -> DataType {
        let all = |shapes: &[u64]| self.count > 0 && shapes.iter().sum::<u64>() == self.count;
        if all(&[self.booleans]) {
            DataType::Boolean
        } else if all(&[self.integers]) {
            DataType::Int64
        } else if all(&[self.integers, self.wide]) {
            DataType::Decimal128(DECIMAL_DIGITS_MAX as u8, 0)
        } else if all(&[self.integers, self.wide, self.floats]) {
            let (whole, fraction) = self.most;
            match u32::from(whole) + u32::from(fraction) <= DECIMAL_DIGITS_MAX as u32 {
                _ if !self.rounded => DataType::Float64,
                true if !self.no_decimal => {
                    DataType::Decimal128(DECIMAL_DIGITS_MAX as u8, fraction as i8)
                }
                _ => DataType::Utf8,
            }
        } else if all(&[self.dates]) {
            DataType::Date32
        } else if all(&[self.dates, self.timestamps]) && (self.fits_nanos || !self.below_micros) {
            let zone = self.zoned.then(|| "UTC".into());
            DataType::Timestamp(self.unit(self.fits_nanos), zone)
        } else if all(&[self.times]) {
            match self.unit(true) {
                TimeUnit::Second | TimeUnit::Millisecond => DataType::Time32(TimeUnit::Millisecond),
                unit => DataType::Time64(unit),
            }
        } else {
            DataType::Utf8
        }
    }

    fn unit(&self, nanos: bool) -> TimeUnit {
        match self.digits {
            0..=3 => TimeUnit::Millisecond,
            7.. if nanos => TimeUnit::Nanosecond,
            _ => TimeUnit::Microsecond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::sql_name;

    fn type_of(texts: &[&str]) -> String {
        let mut values = ValueStats::default();
        texts.iter().for_each(|text| values.add(shape(text.as_bytes())));
        sql_name(&values.data_type())
    }

    #[test]
    fn the_strictest_type_that_fits_is_chosen() {
        let cases: &[(&[&str], &str)] = &[
            (&[], "STRING"),
            (&["true", "False"], "BOOLEAN"),
            (&["true", "1"], "STRING"),
            (&["0", "1"], "BIGINT"),
            (&["-5", " 12 ", "9223372036854775807"], "BIGINT"),
            (&["1", "9223372036854775808"], "DECIMAL(38, 0)"),
            (&["99999999999999999999999999999999999999"], "DECIMAL(38, 0)"),
            (&["999999999999999999999999999999999999999"], "STRING"),
            (&["1", "1.5"], "DOUBLE"),
            (&["9223372036854775808", "-.5e-3"], "DOUBLE"),
            (&["1e400"], "STRING"),
            (&["9007199254740993", "1.25", "0.5"], "DECIMAL(38, 2)"),
            (&["9007199254740994", "1.25"], "DOUBLE"),
            (&["9007199254740993.0", "-9007199254740993.25"], "DECIMAL(38, 2)"),
            (&["9007199254740994.5", "0.1"], "DOUBLE"),
            (&["9223372036854775809", "1.5"], "DECIMAL(38, 1)"),
            (&["9007199254740993", "1e-5"], "STRING"),
            (&["9007199254740993", "0.12345678901234567890"], "STRING"),
            (&["1", "nan"], "DOUBLE"),
            (&["0", "0.5"], "DOUBLE"),
            (&["007"], "STRING"),
            (&["00.5"], "STRING"),
            (&["+49"], "STRING"),
            (&["-"], "STRING"),
            (&["."], "STRING"),
            (&["1e"], "STRING"),
            (&["1,5"], "STRING"),
            (&["0x10"], "STRING"),
            (&["2024-05-01", "2024-02-29"], "DATE"),
            (&["2023-02-29"], "STRING"),
            (&["2024-05-01 12:30"], "STRING"),
            (&["2024-05-01 12:30:00", "2024-05-01"], "TIMESTAMP(3)"),
            (&["2024-05-01T12:30:01.25Z", "2024-05-01"], "TIMESTAMP_LTZ(3)"),
            (&["2024-05-01 12:30:01.1234"], "TIMESTAMP(6)"),
            (&["2012-02-22T16:46:28.9670320+00:00"], "TIMESTAMP_LTZ(9)"),
            (&["2012-02-22T16:46:28.9670320", "9999-12-31 00:00:00"], "TIMESTAMP(6)"),
            (&["2012-02-22T16:46:28.9670321+00:00", "9999-12-31 00:00:00"], "STRING"),
            (&["2024-05-01 12:30:00", "12:30"], "STRING"),
            (&["12:30", "23:59:59.5"], "TIME(3)"),
            (&["12:30:00.1234567"], "TIME(9)"),
            (&["1.2.3.4"], "STRING"),
            (&["12:30 PM"], "STRING"),
        ];
        for (texts, expected) in cases {
            assert_eq!(type_of(texts), *expected, "{texts:?}");
        }
    }
}
