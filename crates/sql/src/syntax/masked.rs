//! Passwords in a text of SQL, hidden where the text is shown.

/// Parts of names of options that have secrets.
const SECRET: [&str; 7] = ["pass", "pwd", "jaas", "token", "secret", "user-info", "keystore.key"];

/// The text with stars for the values of secret options, and for names and passwords within URLs.
/// Each character keeps its line and column. The text need not be whole, nor SQL.
pub(crate) fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    // Whether the next literal is the value of a secret option.
    let (mut rest, mut is_value) = (text, false);
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            '\'' | '"' | '`' => end_of_quoted(rest, first),
            _ => first.len_utf8(),
        };
        let (part, after) = rest.split_at(end);
        rest = after;
        match first {
            '\'' if is_value => {
                is_value = false;
                shown.extend(part.chars().map(star));
            }
            '\'' => {
                let name = part.to_ascii_lowercase();
                is_value = SECRET.iter().any(|secret| name.contains(secret));
                push_without_users(part, &mut shown);
            }
            _ => {
                is_value &= first.is_whitespace() || matches!(first, '=' | '-' | '/');
                shown.push_str(part);
            }
        }
    }
    shown
}

/// The length of a quoted text, in which the quote may stand twice.
fn end_of_quoted(text: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(found) = text[at..].find(quote) {
        at += found + 1;
        if !text[at..].starts_with(quote) {
            return at;
        }
        at += 1;
    }
    text.len()
}

fn star(c: char) -> char {
    if matches!(c, '\'' | '\n') { c } else { '*' }
}

/// Adds a literal, whose URLs have stars for `name:password`.
fn push_without_users(literal: &str, shown: &mut String) {
    let mut rest = literal;
    while let Some(scheme) = rest.find("://") {
        let (before, after) = rest.split_at(scheme + 3);
        shown.push_str(before);
        let host = after.find(['/', '?', '#', ' ', '\'']).unwrap_or(after.len());
        let user = after[..host].rfind('@').unwrap_or(0);
        shown.extend(after[..user].chars().map(star));
        rest = &after[user..];
    }
    shown.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_stars_and_keep_their_places() {
        for (text, secret) in [
            (
                "'properties.sasl.jaas.config' = 'x required user=\"me\" password=\"hunter2\";'",
                "hunter2",
            ),
            ("'properties.sasl.password'='hunter2', 'properties.grup.id'='x'", "hunter2"),
            ("'properties.ssl.key.password' = 'hunter2'", "hunter2"),
            ("'properties.ssl.keystore.key' = '-----BEGIN\nhunter2\n-----END'", "hunter2"),
            ("'avro-confluent.url' = 'http://me:hunter2@host:1/x'", "hunter2"),
            ("'avro-confluent.basic-auth.user-info' = 'hunter2'", "hunter2"),
            ("'SASL.PassWord' /* it's */ = -- it's\n 'hun''ter2'", "ter2"),
            ("'my.secret' = 'ünd hunter2", "hunter2"),
            ("'urls' = 'http://a, http://me:hunter2@b'", "hunter2"),
        ] {
            let shown = masked(text);
            assert!(!shown.contains(secret), "{shown}");
            assert_eq!(shown.chars().count(), text.chars().count());
            let places = |text: &str| text.match_indices(['\'', '\n']).count();
            assert_eq!(places(&shown), places(text));
        }
    }

    #[test]
    fn other_texts_stay() {
        for text in [
            "SELECT 'password', 'x' FROM `it's` WHERE \"it's\" = 'y' -- 'password' = 'z'",
            "'properties.bootstrap.servers' = 'SASL_SSL://host:9092', 'topic' = 'a@b'",
            "'path' = 's3://bucket/a@b'",
            "'url' = 'http://host:8081?a=b@c",
            "/* 'token' = 'x'",
            "",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
