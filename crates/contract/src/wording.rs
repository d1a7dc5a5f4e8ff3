//! The wording of messages: numbers of things and of bytes, and quoted text that comes from data or
//! SQL.

/// `0 keys`, `1 key`, `2 keys`; `what` is the singular.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {}", plural(number, what))
}

/// The word for so many of `what`: `key` for one, `keys` otherwise.
pub fn plural(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{what}{s}")
}

/// 1234567 as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of bytes in its largest unit, of 1000: `950 B`, `12 kB`, `3.1 MB`.
pub fn bytes(number: u64) -> String {
    format!("{}B", scaled(number, [" ", " k", " M", " G", " T", " P", " E"]))
}

/// A number in its largest unit, of 1000, with at most three digits: `950`, `1.2k`, `31M`.
pub fn short(number: u64) -> String {
    scaled(number, ["", "k", "M", "G", "T", "P", "E"])
}

fn scaled(number: u64, units: [&str; 7]) -> String {
    let (mut unit, mut scale) = (0, 1u64);
    while number / scale >= 1_000 {
        scale *= 1_000;
        unit += 1;
    }
    let (whole, tenth) = (number / scale, number % scale * 10 / scale);
    match whole < 10 && unit > 0 {
        true => format!("{whole}.{tenth}{}", units[unit]),
        false => format!("{whole}{}", units[unit]),
    }
}

/// A text, in which data and SQL are quoted, without what would move a terminal's cursor, colour
/// what follows or turn the writing direction: that stands there as `\u{1b}`.
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_unicode());
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let all = [0, 1, 2].map(|number| counted(number, "key"));
        assert_eq!(all, ["0 keys", "1 key", "2 keys"]);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn numbers_are_short_and_never_too_large() {
        let all = [0, 7, 999, 1_000, 1_999, 12_345, 999_999, 1_000_000, u64::MAX];
        let expected = ["0", "7", "999", "1.0k", "1.9k", "12k", "999k", "1.0M", "18E"];
        assert_eq!(all.map(short), expected);
        assert_eq!(bytes(950), "950 B");
        assert_eq!(bytes(3_150_000), "3.1 MB");
    }
}
