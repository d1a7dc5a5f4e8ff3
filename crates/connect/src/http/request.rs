//! The head of an HTTP/1.1 request, and the head of an answer (RFC 9112).
//!
//! What is read is little: the method, the path, and the fields that say how long the body is and
//! what becomes of the connection. All else is passed over, but it must be well formed. Whatever is
//! ambiguous is refused, so that nobody in between can understand it otherwise.

use std::fmt::Write;

/// Bytes of a head at most.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
const ENCODINGS: &str = "a body is packed with gzip or with zstd, once, or not at all";
/// Fields of a head at most.
pub(super) const FIELDS_MAX: usize = 100;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Without what stands behind a question mark.
    pub(super) path: String,
    /// Bytes of the body as it is sent; `None`: it comes in chunks.
    pub(super) length: Option<u64>,
    pub(super) packed: Packed,
    /// Whether the connection stays open after it.
    pub(super) keep_alive: bool,
    /// Whether the sender waits to be told to go on.
    pub(super) waits: bool,
}

/// Packing of a body: `Content-Encoding`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Packed {
    #[default]
    Not,
    Gzip,
    Zstd,
}

/// What a sender is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn new(status: u16, text: impl Into<String>) -> Answer {
        Answer { status, text: text.into() }
    }

    fn reason(&self) -> &'static str {
        match self.status {
            202 => "Accepted",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            411 => "Length Required",
            413 => "Content Too Large",
            415 => "Unsupported Media Type",
            429 => "Too Many Requests",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            501 => "Not Implemented",
            505 => "HTTP Version Not Supported",
            _ => "Error",
        }
    }

    /// As it is sent.
    pub(super) fn bytes(&self, keep_alive: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, self.reason());
        let length = self.text.len() + 1;
        // Writing to a string does not fail.
        _ = write!(head, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n");
        match self.status {
            405 => head.push_str("Allow: POST\r\n"),
            429 | 503 => head.push_str("Retry-After: 1\r\n"),
            _ => {}
        }
        if !keep_alive {
            head.push_str("Connection: close\r\n");
        }
        format!("{head}\r\n{}\n", self.text).into_bytes()
    }
}

/// Where the head at the front of these bytes ends: behind the empty line.
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// Reads a head, with the empty line at its end.
pub(super) fn parse(head: &[u8]) -> Result<Head, Answer> {
    let bad = |what: &str| Answer::new(400, what);
    let text = std::str::from_utf8(head).map_err(|_| bad("the head is no text"))?;
    let text = text.strip_suffix("\r\n\r\n").ok_or_else(|| bad("the head has no end"))?;
    if text.split("\r\n").any(|line| line.contains(['\r', '\n', '\0'])) {
        return Err(bad("a line of the head must end with CR LF"));
    }
    let mut lines = text.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = first[..] else {
        return Err(bad("expected a request line such as 'POST / HTTP/1.1'"));
    };
    if method.is_empty() || !method.bytes().all(is_token) {
        return Err(bad("the method is none"));
    }
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        let known = version.starts_with("HTTP/");
        let answer = Answer::new(505, "expected HTTP/1.1");
        return Err(if known { answer } else { bad("expected a request line that ends HTTP/1.1") });
    }
    let fields = Fields::of(lines)?;
    if method != "POST" {
        return Err(Answer::new(405, "records are sent with POST"));
    }
    let path = target.split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(bad("expected a path, such as /, behind POST"));
    }
    fields.head(path, version == "HTTP/1.1")
}

/// The fields that count.
#[derive(Debug, Default)]
struct Fields {
    hosts: usize,
    length: Option<u64>,
    packed: Option<Packed>,
    chunked: bool,
    origin: bool,
    waits: bool,
    close: bool,
    keep_alive: bool,
}

impl Fields {
    fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Fields, Answer> {
        let mut fields = Fields::default();
        for (number, line) in lines.enumerate() {
            if number == FIELDS_MAX {
                return Err(Answer::new(431, format!("more than {FIELDS_MAX} header fields")));
            }
            let Some((name, value)) = line.split_once(':') else {
                return Err(Answer::new(400, "a header field has no colon"));
            };
            // Also a line that goes on with the one before: nobody writes this any more.
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(Answer::new(400, "a header field has no name, or blanks in it"));
            }
            fields.take(&name.to_ascii_lowercase(), value.trim_matches([' ', '\t']))?;
        }
        Ok(fields)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), Answer> {
        let listed = |word: &str| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(word));
        match name {
            "host" => self.hosts += 1,
            "content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let length = value.parse().ok().filter(|_| digits);
                let Some(length) = length else {
                    return Err(Answer::new(400, "Content-Length is no number of bytes"));
                };
                if self.length.is_some_and(|other| other != length) {
                    return Err(Answer::new(400, "Content-Length is given twice"));
                }
                self.length = Some(length);
            }
            "transfer-encoding" if self.chunked || !value.eq_ignore_ascii_case("chunked") => {
                return Err(Answer::new(501, "the only Transfer-Encoding is chunked"));
            }
            "transfer-encoding" => self.chunked = true,
            "content-encoding" => {
                let packed = match value.to_ascii_lowercase().as_str() {
                    "identity" => Packed::Not,
                    "gzip" | "x-gzip" => Packed::Gzip,
                    "zstd" => Packed::Zstd,
                    _ => return Err(Answer::new(415, ENCODINGS)),
                };
                if self.packed.replace(packed).is_some() {
                    return Err(Answer::new(415, ENCODINGS));
                }
            }
            "origin" => self.origin = true,
            "expect" => self.waits |= value.eq_ignore_ascii_case("100-continue"),
            "connection" => {
                self.close |= listed("close");
                self.keep_alive |= listed("keep-alive");
            }
            _ => {}
        }
        Ok(())
    }

    fn head(self, path: &str, current: bool) -> Result<Head, Answer> {
        let answer = |status, text: &str| Err(Answer::new(status, text));
        if current && self.hosts != 1 {
            return answer(400, "expected one field Host");
        }
        // A page that a browser shows may send to any address of this machine.
        if self.origin {
            return answer(403, "a web page may not send records");
        }
        match (self.chunked, self.length) {
            // Somebody in between could take the one for the other.
            (true, Some(_)) => {
                return answer(400, "expected either Content-Length or Transfer-Encoding");
            }
            (true, None) if !current => {
                return answer(400, "HTTP/1.0 has no Transfer-Encoding");
            }
            (false, None) => {
                return answer(
                    411,
                    "a request needs Content-Length, or Transfer-Encoding: chunked",
                );
            }
            _ => {}
        }
        let (length, packed) = (self.length, self.packed.unwrap_or_default());
        let keep_alive = !self.close && (current || self.keep_alive);
        let (path, waits) = (path.to_string(), self.waits && current);
        Ok(Head { path, length, packed, keep_alive, waits })
    }
}

/// What names consist of.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status(head: &str) -> u16 {
        let head = head.replace('\n', "\r\n");
        parse(head.as_bytes()).map_or_else(|answer| answer.status, |_| 202)
    }

    #[test]
    fn a_head_says_how_long_the_body_is() {
        let head = b"POST /?x HTTP/1.1\r\nhost: a\r\ncontent-LENGTH: \t12 \r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(head_end(head), Some(head.len()));
        let (path, packed) = ("/".to_string(), Packed::Not);
        let plain = Head { path, length: Some(12), packed, keep_alive: true, waits: true };
        assert_eq!(parse(head), Ok(plain.clone()));
        let head =
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: x, Close\r\n\r\n";
        let closes = Head { length: Some(0), keep_alive: false, waits: false, ..plain.clone() };
        assert_eq!(parse(head), Ok(closes.clone()));
        let head = b"POST / HTTP/1.0\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(parse(head), Ok(Head { length: Some(7), ..closes }));
        let head = b"POST /a/b?x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\
                     Content-Encoding: GZIP\r\n\r\n";
        let (path, packed) = ("/a/b".to_string(), Packed::Gzip);
        assert_eq!(parse(head), Ok(Head { path, length: None, packed, waits: false, ..plain }));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (head, expected) in [
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\n\n", 202),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nContent-Length: 1\n\n", 202),
            ("POST / HTTP/1.1\nHost: a\n\n", 411),
            ("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n", 202),
            ("POST / HTTP/1.0\nTransfer-Encoding: chunked\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: gzip, chunked\n\n", 501),
            (
                "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n",
                501,
            ),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nTransfer-Encoding: chunked\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nContent-Length: 2\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: +1\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: -1\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1, 1\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 99999999999999999999\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nContent-Encoding: zstd\n\n", 202),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nContent-Encoding: br\n\n", 415),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nContent-Encoding: gzip, zstd\n\n", 415),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nOrigin: http://x\n\n", 403),
            ("POST / HTTP/1.1\nContent-Length: 1\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nHost: b\nContent-Length: 1\n\n", 400),
            ("POST / HTTP/1.1\nHost : a\nContent-Length: 1\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\n x: 1\nContent-Length: 1\n\n", 400),
            ("POST / HTTP/1.1\nHost\n\n", 400),
            ("GET / HTTP/1.1\nHost: a\n\n", 405),
            ("POST / HTTP/2.0\nHost: a\n\n", 505),
            ("POST  / HTTP/1.1\nHost: a\n\n", 400),
            ("POST /\n\n", 400),
            ("\n\n", 400),
            ("P\u{e9}ST / HTTP/1.1\nHost: a\n\n", 400),
        ] {
            assert_eq!(status(head), expected, "{head}");
        }
        let many = "x: y\n".repeat(FIELDS_MAX + 1);
        assert_eq!(status(&format!("POST / HTTP/1.1\n{many}\n")), 431);
        assert_eq!(parse(b"POST / HTTP/1.1\nHost: a\n\n").unwrap_err().status, 400);
        assert_eq!(parse(b"\xff\xfe\r\n\r\n").unwrap_err().status, 400);
        assert_eq!(parse(b"POST / HTTP/1.1\r\nHost: a\rb\r\n\r\n").unwrap_err().status, 400);
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let answer = Answer::new(429, "later").bytes(false);
        let expected = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain; charset=utf-8\
                        \r\nContent-Length: 6\r\nRetry-After: 1\r\nConnection: close\r\n\r\nlater\n";
        assert_eq!(String::from_utf8(answer).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            parts in proptest::collection::vec(
                prop_oneof![
                    "(POST|GET| |/|HTTP/1.[01]|\r\n|\r|\n|:|,)",
                    "(Host: a|Content-Length: [0-9]{0,22}|Connection: close|Expect: )",
                    "\\PC{0,3}",
                ],
                0..24,
            ),
            noise in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = parts.concat().into_bytes();
            for head in [bytes.clone(), noise.clone()] {
                if let Err(answer) = parse(&head) {
                    prop_assert!((400..=505).contains(&answer.status));
                }
            }
            bytes.extend(noise);
            if let Some(end) = head_end(&bytes) {
                prop_assert!(end <= bytes.len());
                _ = parse(&bytes[..end]);
            }
        }
    }
}
