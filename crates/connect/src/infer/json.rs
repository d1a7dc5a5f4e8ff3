//! A reader of one JSON value, as it stands: numbers keep their text, objects the order of their
//! fields.

use std::borrow::Cow;

/// Values within each other.
const DEPTH_MAX: usize = 64;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Boolean,
    Number(&'a [u8]),
    Text(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// The value that a line consists of; where the line goes wrong otherwise.
pub(super) fn parse(line: &[u8]) -> Result<Json<'_>, usize> {
    let mut reader = Reader { text: line, at: 0 };
    let value = reader.value(0).ok_or(reader.at.min(line.len()))?;
    reader.blanks();
    match reader.at == line.len() {
        true => Ok(value),
        false => Err(reader.at),
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        self.blanks();
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Option<Json<'a>> {
        self.text[self.at..].starts_with(word.as_bytes()).then_some(())?;
        self.at += word.len();
        Some(value)
    }

    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.blanks();
        match self.peek()? {
            b'n' => self.word("null", Json::Null),
            b't' => self.word("true", Json::Boolean),
            b'f' => self.word("false", Json::Boolean),
            b'"' => self.string().map(Json::Text),
            b'[' => self.array(depth),
            b'{' => self.object(depth),
            b'-' | b'0'..=b'9' => {
                let start = self.at;
                while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
                    self.at += 1;
                }
                Some(Json::Number(&self.text[start..self.at]))
            }
            _ => None,
        }
    }

    fn array(&mut self, depth: usize) -> Option<Json<'a>> {
        self.eat(b'[')?;
        let mut values = Vec::new();
        if self.eat(b']').is_some() {
            return Some(Json::Array(values));
        }
        loop {
            values.push(self.value(depth + 1)?);
            if self.eat(b']').is_some() {
                return Some(Json::Array(values));
            }
            self.eat(b',')?;
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json<'a>> {
        self.eat(b'{')?;
        let mut fields = Vec::new();
        if self.eat(b'}').is_some() {
            return Some(Json::Object(fields));
        }
        loop {
            self.blanks();
            let name = self.string()?;
            self.eat(b':')?;
            fields.push((name, self.value(depth + 1)?));
            if self.eat(b'}').is_some() {
                return Some(Json::Object(fields));
            }
            self.eat(b',')?;
        }
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.eat(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                ..0x20 => return None,
                _ => self.at += 1,
            }
        }
        let text = self.text.get(start..self.at)?;
        self.at += 1;
        let Ok(text) = std::str::from_utf8(text) else {
            return Some(String::from_utf8_lossy(text));
        };
        if escaped { unescaped(text).map(Cow::Owned) } else { Some(Cow::Borrowed(text)) }
    }
}

/// A string without its escapes.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next()? {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'u' => {
                let high = hexadecimal(&mut chars)?;
                let code = match high {
                    0xd800..0xdc00 => {
                        (chars.next()? == '\\' && chars.next()? == 'u').then_some(())?;
                        let low = hexadecimal(&mut chars)?.checked_sub(0xdc00)?;
                        0x10000 + ((high - 0xd800) << 10) + low
                    }
                    code => code,
                };
                out.push(char::from_u32(code)?);
            }
            other => out.push(other),
        }
    }
    Some(out)
}

fn hexadecimal(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut code = 0;
    for _ in 0..4 {
        code = code * 16 + chars.next()?.to_digit(16)?;
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_stand() {
        let text = |text: &'static str| Json::Text(text.into());
        let line =
            r#" {"a": [1, -2.50e3 ], "b\u00e9": {"c":null,"d":true}, "e": "x\n\ud83d\ude00"} "#;
        let expected = Json::Object(vec![
            ("a".into(), Json::Array(vec![Json::Number(b"1"), Json::Number(b"-2.50e3")])),
            (
                "bé".into(),
                Json::Object(vec![("c".into(), Json::Null), ("d".into(), Json::Boolean)]),
            ),
            ("e".into(), text("x\n😀")),
        ]);
        assert_eq!(parse(line.as_bytes()), Ok(expected));
        assert_eq!(parse(b"[]"), Ok(Json::Array(vec![])));
    }

    #[test]
    fn what_is_no_value_says_where() {
        for (line, at) in [
            ("", 0),
            ("{", 1),
            (r#"{"a":1"#, 6),
            (r#"{"a":1} x"#, 8),
            (r#"{"a" 1}"#, 5),
            ("[1 2]", 3),
            (r#""a\"#, 3),
            ("nul", 0),
            ("{'a':1}", 1),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(at), "{line}");
        }
        assert!(parse(&b"[".repeat(100_000)).is_err());
    }
}
