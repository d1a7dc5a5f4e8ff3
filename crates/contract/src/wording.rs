//! The wording of messages: numbers of things, and quoted text that comes from data or SQL.

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
}
