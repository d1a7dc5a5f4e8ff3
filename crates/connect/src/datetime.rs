//! Parsing and formatting dates and times (proleptic Gregorian calendar, UTC, no leap seconds).

use arrow::datatypes::TimeUnit;
use millstream_contract::calendar::{
    civil_from_days, days_from_civil, days_in_month, digits, per_second,
};

use crate::number::{write_i64, write_padded};

pub(crate) const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds since the epoch and nanoseconds after that second (`0..1_000_000_000`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

impl Instant {
    /// In `unit`s, digits beyond it dropped toward the past. `None` if 64 bits do not hold it.
    #[inline]
    pub(crate) fn in_unit(self, unit: TimeUnit) -> Option<i64> {
        let factor = per_second(unit);
        let fraction = i64::from(self.nanos) / (1_000_000_000 / factor);
        // In 128 bits, because the product alone may be out of range by less than a second.
        i64::try_from(i128::from(self.seconds) * i128::from(factor) + i128::from(fraction)).ok()
    }
}

/// Reads from the front of a text.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// Exactly `count` digits.
    #[inline]
    fn digits(&mut self, count: usize) -> Option<u32> {
        let (head, rest) = self.0.split_at_checked(count)?;
        let mut value = 0u32;
        for byte in head {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + u32::from(digit);
        }
        self.0 = rest;
        Some(value)
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// `YYYY-MM-DD`; a sign allows more than four digits for the year.
    #[inline]
    fn date(&mut self) -> Option<i64> {
        let year = match self.0 {
            [b'+' | b'-', ..] => self.signed_year()?,
            _ => i64::from(self.digits(4)?),
        };
        let month = self.eat(b'-').then(|| self.digits(2))??;
        let day = self.eat(b'-').then(|| self.digits(2))??;
        let valid = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
        valid.then(|| days_from_civil(year, month, day))
    }

    #[cold]
    fn signed_year(&mut self) -> Option<i64> {
        let negative = self.eat(b'-');
        if !negative {
            self.eat(b'+');
        }
        let count = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        // The years that 64 bits of seconds reach have twelve.
        if !(4..=12).contains(&count) {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let year = digits.iter().fold(0, |year, digit| year * 10 + i64::from(digit - b'0'));
        Some(if negative { -year } else { year })
    }

    /// `HH:MM[:SS[.fraction]]` as seconds of the day and nanoseconds.
    #[inline]
    fn time(&mut self) -> Option<(u32, u32)> {
        let hour = self.digits(2)?;
        let minute = self.eat(b':').then(|| self.digits(2))??;
        let second = if self.eat(b':') { self.digits(2)? } else { 0 };
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let nanos = if self.eat(b'.') { self.fraction()? } else { 0 };
        Some((hour * 3600 + minute * 60 + second, nanos))
    }

    /// Digits after the point; those beyond nanoseconds are dropped.
    #[inline]
    fn fraction(&mut self) -> Option<u32> {
        let count = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let used = count.min(9);
        let mut nanos = self.digits(used).filter(|_| count > 0)?;
        for _ in used..9 {
            nanos *= 10;
        }
        self.0 = &self.0[count - used..];
        Some(nanos)
    }

    /// One to nine digits after the point, and nothing else: nanoseconds.
    #[inline]
    fn digits_of_nine(&mut self) -> Option<u32> {
        const POWERS: [u32; 9] =
            [100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
        let power = POWERS.get(self.0.len().checked_sub(1)?)?;
        Some(self.digits(self.0.len())? * power)
    }

    /// `Z`, `±HH:MM`, `±HHMM`, `±HH` or nothing: seconds east of UTC.
    #[inline]
    fn offset(&mut self) -> Option<i64> {
        let east = match self.0.first() {
            None => return Some(0),
            Some(b'Z' | b'z') => {
                self.0 = &self.0[1..];
                return Some(0);
            }
            Some(b'+') => 1,
            Some(b'-') => -1,
            Some(_) => return None,
        };
        self.0 = &self.0[1..];
        let hours = self.digits(2)?;
        let minutes = match self.0 {
            [] => 0,
            [b':', ..] => self.eat(b':').then(|| self.digits(2))??,
            _ => self.digits(2)?,
        };
        let east = east * i64::from(hours * 3600 + minutes * 60);
        (minutes <= 59 && east.abs() <= 18 * 3600).then_some(east)
    }
}

/// `2012-02-22` as days since 1970-01-01.
pub(crate) fn parse_date(text: &[u8]) -> Option<i32> {
    let mut cursor = Cursor(text);
    let days = cursor.date()?;
    if cursor.0.is_empty() { i32::try_from(days).ok() } else { None }
}

/// `16:46[:28[.967]]` as an instant of 1970-01-01.
pub(crate) fn parse_time(text: &[u8]) -> Option<Instant> {
    let mut cursor = Cursor(text);
    let (seconds, nanos) = cursor.time()?;
    cursor.0.is_empty().then_some(Instant { seconds: i64::from(seconds), nanos })
}

/// `2012-02-22[(T| )16:46:28[.967032]][Z|±HH:MM]`; without an offset the text is UTC.
#[inline]
pub(crate) fn parse_timestamp(text: &[u8]) -> Option<Instant> {
    usual_timestamp(text).or_else(|| any_timestamp(text).map(|(at, _)| at))
}

/// As [`parse_timestamp`], of the time of a clock: a text with an offset is none.
#[inline]
pub(crate) fn parse_local(text: &[u8]) -> Option<Instant> {
    match text {
        [.., b'Z'] => None,
        _ => usual_timestamp(text)
            .or_else(|| any_timestamp(text).filter(|(_, offset)| !offset).map(|(at, _)| at)),
    }
}

/// `2012-02-22 16:46:28[.967032][Z]`, as most files have it, several digits at a time. `None`: it
/// is another spelling, or no time at all.
#[inline]
fn usual_timestamp(text: &[u8]) -> Option<Instant> {
    // For `0000-00-` and `00:00:00`: the numbers that bring a non-digit into the high half of its
    // byte when added, and the bits that must be zero afterwards.
    const DATE: (u64, u64) = (0x0006_0600_0606_0606, 0xfff0_f0ff_f0f0_f0f0);
    const TIME: (u64, u64) = (0x0606_0006_0600_0606, 0xf0f0_fff0_f0ff_f0f0);
    let (head, rest) = text.split_first_chunk::<19>()?;
    let [y, u, r, s, a, m, n, b, d, e, t, ref clock @ ..] = *head;
    let date = u64::from_le_bytes([y, u, r, s, a, m, n, b]) ^ u64::from_le_bytes(*b"0000-00-");
    let time = u64::from_le_bytes(*clock) ^ u64::from_le_bytes(*b"00:00:00");
    let (tens, ones) = (d.wrapping_sub(b'0'), e.wrapping_sub(b'0'));
    let others =
        (date.wrapping_add(DATE.0) | date) & DATE.1 | (time.wrapping_add(TIME.0) | time) & TIME.1;
    if others != 0 || tens > 9 || ones > 9 || !matches!(t, b' ' | b'T' | b't') {
        return None;
    }
    // Each byte with the next one as a number of two digits.
    let pairs = |digits: u64| (digits * 10 + (digits >> 8)).to_le_bytes().map(u32::from);
    let ([century, _, year, _, _, month, ..], day) = (pairs(date), u32::from(tens * 10 + ones));
    let [hour, _, _, minute, _, _, second, _] = pairs(time);
    let year = i64::from(century * 100 + year);
    let valid = (1..=12).contains(&month)
        && day >= 1
        && day <= days_in_month(year, month)
        && hour <= 23
        && minute <= 59
        && second <= 59;
    let nanos = match rest {
        [] | [b'Z'] => 0,
        [b'.', fraction @ .., b'Z'] | [b'.', fraction @ ..] => Cursor(fraction).digits_of_nine()?,
        _ => return None,
    };
    let seconds = days_from_civil(year, month, day) * SECONDS_PER_DAY
        + i64::from(hour * 3600 + minute * 60 + second);
    valid.then_some(Instant { seconds, nanos })
}

/// As [`parse_timestamp`]; and whether the text has an offset.
fn any_timestamp(text: &[u8]) -> Option<(Instant, bool)> {
    let mut cursor = Cursor(text);
    let days = cursor.date()?;
    let (seconds, nanos) = match cursor.0 {
        [] => (0, 0),
        [b'T' | b't' | b' ', rest @ ..] => {
            cursor.0 = rest;
            cursor.time().filter(|_| rest.get(5) == Some(&b':'))?
        }
        _ => return None,
    };
    let offset = !cursor.0.is_empty();
    if let [b' ', rest @ ..] = cursor.0 {
        cursor.0 = rest;
    }
    let east = cursor.offset()?;
    let seconds = days.checked_mul(SECONDS_PER_DAY)?.checked_add(i64::from(seconds) - east)?;
    cursor.0.is_empty().then_some((Instant { seconds, nanos }, offset))
}

/// Appends `2012-02-22`; years beyond four digits carry a sign, as in ISO 8601.
pub(crate) fn write_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(days);
    if (0..=9999).contains(&year) {
        write_padded(year as u64, 4, out);
    } else {
        out.push(if year < 0 { b'-' } else { b'+' });
        write_padded(year.unsigned_abs(), 4, out);
    }
    out.push(b'-');
    write_padded(u64::from(month), 2, out);
    out.push(b'-');
    write_padded(u64::from(day), 2, out);
}

/// Appends `16:46:28.967`: all digits of `unit`, so that a column lines up. `value` counts `unit`s
/// since midnight; what is outside a day is written as the bare number.
pub(crate) fn write_time(value: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    let factor = per_second(unit);
    if !(0..SECONDS_PER_DAY * factor).contains(&value) {
        return write_i64(value, out);
    }
    let seconds = (value / factor) as u64;
    write_padded(seconds / 3600, 2, out);
    out.push(b':');
    write_padded(seconds / 60 % 60, 2, out);
    out.push(b':');
    write_padded(seconds % 60, 2, out);
    if factor > 1 {
        out.push(b'.');
        write_padded((value % factor) as u64, digits(unit), out);
    }
}

/// Appends `2012-02-22 16:46:28.967`, and `Z` for a type with a time zone.
pub(crate) fn write_timestamp(value: i64, unit: TimeUnit, zoned: bool, out: &mut Vec<u8>) {
    let per_day = SECONDS_PER_DAY * per_second(unit);
    write_date(value.div_euclid(per_day), out);
    out.push(b' ');
    write_time(value.rem_euclid(per_day), unit, out);
    if zoned {
        out.push(b'Z');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> Option<i64> {
        parse_timestamp(text.as_bytes())?.in_unit(TimeUnit::Millisecond)
    }

    #[test]
    fn timestamps_in_all_their_spellings() {
        let expected = Some(1_329_929_188_967);
        for text in [
            "2012-02-22T16:46:28.9670320+00:00",
            "2012-02-22 16:46:28.967",
            "2012-02-22T16:46:28.967999999999Z",
            "2012-02-22T18:46:28.967+02:00",
            "2012-02-22T11:16:28.967-0530",
            "2012-02-22 17:46:28.967 +01",
        ] {
            assert_eq!(ms(text), expected, "{text}");
        }
        assert_eq!(ms("2012-02-22"), Some(1_329_868_800_000));
        assert_eq!(ms("1969-12-31 23:59:59.9999"), Some(-1));
        assert_eq!(ms("9999-12-31 23:59:59.999"), Some(253_402_300_799_999));
        assert_eq!(ms("-0001-12-31"), ms("-0001-12-31T00:00:00"));
        assert_eq!(ms("2012-02-22 16:46"), None);
        let nano = parse_timestamp(b"2262-04-11 23:47:16.854775807").unwrap();
        assert_eq!(nano.in_unit(TimeUnit::Nanosecond), Some(i64::MAX));
        let nano = parse_timestamp(b"2262-04-11 23:47:16.854775808").unwrap();
        assert_eq!(nano.in_unit(TimeUnit::Nanosecond), None);
    }

    /// The quick way for the usual spelling, and the slow one for all.
    #[test]
    fn both_readers_of_timestamps_agree() {
        let texts = ["2012-02-22 16:46:28", "2024-02-29T23:59:59.9670Z", "1969-12-31 00:00:00.123"];
        let (mut same, mut others) = (0, 0);
        let mut check = |text: &[u8]| {
            let any = any_timestamp(text);
            let (usual, local) = (usual_timestamp(text), parse_local(text));
            assert_eq!(local, any.filter(|(_, offset)| !offset).map(|(at, _)| at));
            let any = any.map(|(at, _)| at);
            match usual {
                Some(_) => same += 1,
                None => others += 1,
            }
            assert!(usual.is_none() || usual == any, "{}", text.escape_ascii());
        };
        for text in texts {
            check(text.as_bytes());
            for at in 0..text.len() {
                for byte in 0..=255 {
                    let mut changed = text.as_bytes().to_vec();
                    changed[at] = byte;
                    check(&changed);
                    changed[at] = b'3';
                    changed.insert(at, byte);
                    check(&changed);
                }
                check(&text.as_bytes()[..at]);
            }
        }
        for text in texts {
            assert!(usual_timestamp(text.as_bytes()).is_some(), "{text}");
        }
        assert!(same > 300 && others > 300, "{same} {others}");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2012",
            "2012-2-22",
            "2012-02-30",
            "2011-02-29",
            "2012-13-01",
            "2012-02-22T",
            "2012-02-22T24:00:00",
            "2012-02-22T16:60:00",
            "2012-02-22T16:46:28.",
            "12-02-22",
            "2012-02-22T16:46:28+",
            "2012-02-22T16:46:28+1:00",
            "2012-02-22 16:46:28 PM",
            "2012-02-22T16:46:28Zx",
            "+2012-02-22T16:46:28+99:00",
            "1329929188",
        ] {
            assert_eq!(ms(text), None, "{text}");
        }
        assert_eq!(parse_date(b"2012-02-22 "), None);
        assert_eq!(parse_time(b"16:46:28.5x"), None);
    }

    #[test]
    fn times_as_text() {
        let text = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).unwrap()
        };
        let stamp = |value, unit| text(&|out| write_timestamp(value, unit, false, out));
        assert_eq!(stamp(1_329_929_188_967, TimeUnit::Millisecond), "2012-02-22 16:46:28.967");
        assert_eq!(stamp(1_329_929_188, TimeUnit::Second), "2012-02-22 16:46:28");
        assert_eq!(stamp(-1, TimeUnit::Microsecond), "1969-12-31 23:59:59.999999");
        assert_eq!(stamp(i64::MIN, TimeUnit::Nanosecond), "1677-09-21 00:12:43.145224192");
        assert_eq!(
            text(&|out| write_timestamp(0, TimeUnit::Second, true, out)),
            "1970-01-01 00:00:00Z"
        );
        assert_eq!(text(&|out| write_date(days_from_civil(-44, 3, 15), out)), "-0044-03-15");
        assert_eq!(text(&|out| write_date(days_from_civil(12_345, 3, 15), out)), "+12345-03-15");
        assert_eq!(text(&|out| write_time(-1, TimeUnit::Second, out)), "-1");
    }
}
