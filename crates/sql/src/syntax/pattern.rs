//! Patterns of dates and times: from Java's letters, which Flink uses, to the specifiers of
//! `strftime`.

use crate::syntax::prelude::*;

/// Java's letters with their counterparts in `strftime`; longer runs first.
const LETTERS: &[(&str, &str)] = &[
    ("yyyy", "%Y"),
    ("uuuu", "%Y"),
    ("yy", "%y"),
    ("MMMM", "%B"),
    ("MMM", "%b"),
    ("MM", "%m"),
    ("M", "%-m"),
    ("dd", "%d"),
    ("d", "%-d"),
    ("DDD", "%j"),
    ("EEEE", "%A"),
    ("EEE", "%a"),
    ("E", "%a"),
    ("HH", "%H"),
    ("H", "%-H"),
    ("hh", "%I"),
    ("h", "%-I"),
    ("mm", "%M"),
    ("m", "%-M"),
    ("ss", "%S"),
    ("s", "%-S"),
    ("SSSSSSSSS", "%9f"),
    ("SSSSSS", "%6f"),
    ("SSS", "%3f"),
    ("a", "%p"),
];

/// A run of Java's letters of offsets and zones, which are only read, in `strftime`.
fn zone(run: &str) -> Option<&'static str> {
    match (run.chars().next()?, run.len()) {
        ('Z', 1..=3) => Some("%z"),
        ('X' | 'x', 1..=3) => Some("%#z"),
        ('V', 2) => Some("%Z"),
        _ => None,
    }
}

/// Whether a pattern of `strftime` has an offset or a zone.
pub(crate) fn has_zone(strftime: &str) -> bool {
    ["%z", "%#z", "%Z"].iter().any(|zone| strftime.contains(zone))
}

/// Translates `yyyy-MM-dd HH:mm:ss` to `%Y-%m-%d %H:%M:%S`.
pub(crate) fn to_strftime(pattern: &str, zones: bool) -> Result<String> {
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let run = rest.len() - rest.trim_start_matches(first).len();
        let (run, after) = rest.split_at(run);
        rest = after;
        if first == '\'' {
            rest = quoted(run, rest, &mut text, pattern)?;
        } else if first == '%' {
            text.push_str(&"%%".repeat(run.len()));
        } else if first.is_ascii_alphabetic() {
            let known = LETTERS.iter().find(|(java, _)| *java == run).map(|(_, known)| *known);
            let Some(strftime) = known.or_else(|| zone(run).filter(|_| zones)) else {
                let letters = LETTERS.iter().map(|(java, _)| *java);
                let of_zones = ["Z", "X", "x", "VV"].into_iter().filter(|_| zones);
                let letters: Vec<&str> = letters.chain(of_zones).collect();
                let message = format!("'{run}' in the pattern '{pattern}' has no meaning here");
                return Err(SqlError::unsupported(message)
                    .help(format!("the letters are {}", letters.join(", "))));
            };
            text.push_str(strftime);
        } else {
            text.push_str(run);
        }
    }
    Ok(text)
}

/// A run of quotes: `''` is a quote, a single one starts text that is taken as it is.
fn quoted<'a>(run: &str, rest: &'a str, text: &mut String, pattern: &str) -> Result<&'a str> {
    text.push_str(&"'".repeat(run.len() / 2));
    if run.len().is_multiple_of(2) {
        return Ok(rest);
    }
    let Some((literal, rest)) = rest.split_once('\'') else {
        return Err(SqlError::syntax(format!("the pattern '{pattern}' has an open quote"))
            .help("double the quote to mean the quote itself"));
    };
    text.push_str(&literal.replace('%', "%%"));
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_translated_and_text_is_kept() {
        assert_eq!(to_strftime("yyyy-MM-dd HH:mm:ss.SSS", false).unwrap(), "%Y-%m-%d %H:%M:%S.%3f");
        assert_eq!(to_strftime("yyyy-MM-dd'T'HH:mm", false).unwrap(), "%Y-%m-%dT%H:%M");
        assert_eq!(to_strftime("h ''mm''", false).unwrap(), "%-I '%M'");
        assert_eq!(to_strftime("dd/MMM/yyyy:HH Z", true).unwrap(), "%d/%b/%Y:%H %z");
        assert!(to_strftime("HH:mm Z", false).unwrap_err().message.contains("'Z'"));
        assert_eq!(to_strftime("100%", false).unwrap(), "100%%");
    }

    #[test]
    fn what_strftime_cannot_say_is_refused() {
        assert!(to_strftime("QQ", false).unwrap_err().message.contains("'QQ'"));
        assert!(to_strftime("yyyy 'open", false).unwrap_err().message.contains("open quote"));
    }
}
