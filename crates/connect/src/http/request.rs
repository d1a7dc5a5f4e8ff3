//! Requests that send records: the fields of a head that count.
//!
//! Few fields count: the length of the body, its packing, and the fate of the connection. Every
//! ambiguous request is refused, so that no machine in between can understand it otherwise.

use super::message::{Answer, Head};

const PRODUCER_BYTES_MAX: usize = 128;
const PRODUCER: &str = "Millstream-Producer";
const SEQUENCE: &str = "Millstream-Sequence";

const ENCODINGS: &str = "a body is packed with gzip or with zstd, once, or not at all";

/// A request that sends records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Post {
    /// The path without its query.
    pub(super) path: String,
    /// Bytes of the body as it is sent; `None`: it comes in chunks.
    pub(super) length: Option<u64>,
    pub(super) packing: Option<ContentEncoding>,
    /// Whether the connection stays open after it.
    pub(super) keep_alive: bool,
    /// Whether the sender waits to be told to go on.
    pub(super) waits: bool,
    /// The producer's name and the body's number, by which a body is known that is sent again.
    pub(super) sequence: Option<(String, u64)>,
}

/// Packing of a body: `Content-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentEncoding {
    Gzip,
    Zstd,
}

/// Reads the head of a request that sends records.
pub(super) fn post(head: &Head) -> Result<Post, Answer> {
    let bad = |what: &str| Answer::new(400, what);
    if !head.strict {
        return Err(bad("a line of the head must end with CR LF"));
    }
    let fields = Fields::of(head)?;
    if head.method != "POST" {
        return Err(Answer::new(405, "records are sent with POST"));
    }
    let path = head.target.split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(bad("expected a path, such as /, behind POST"));
    }
    fields.post(path, head.current)
}

/// The fields that count.
#[derive(Debug, Default)]
struct Fields {
    hosts: usize,
    length: Option<u64>,
    packing: Option<Option<ContentEncoding>>,
    chunked: bool,
    origin: bool,
    waits: bool,
    close: bool,
    keep_alive: bool,
    producer: Option<String>,
    number: Option<u64>,
}

impl Fields {
    fn of(head: &Head) -> Result<Fields, Answer> {
        let mut fields = Fields::default();
        for (name, value) in head.fields() {
            fields.take(name, value)?;
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
                let packing = match value.to_ascii_lowercase().as_str() {
                    "identity" => None,
                    "gzip" | "x-gzip" => Some(ContentEncoding::Gzip),
                    "zstd" => Some(ContentEncoding::Zstd),
                    _ => return Err(Answer::new(415, ENCODINGS)),
                };
                if self.packing.replace(packing).is_some() {
                    return Err(Answer::new(415, ENCODINGS));
                }
            }
            "millstream-producer" => {
                let is_name = !value.is_empty()
                    && value.len() <= PRODUCER_BYTES_MAX
                    && value.bytes().all(|byte| byte.is_ascii_graphic());
                if !is_name || self.producer.replace(value.to_string()).is_some() {
                    let what = "one name of visible ASCII characters, 128 at most";
                    return Err(Answer::new(400, format!("{PRODUCER}: expected {what}")));
                }
            }
            "millstream-sequence" => {
                let number = value.parse().ok().filter(|_| !value.starts_with('+'));
                if number.is_none() || self.number.is_some() {
                    let what = "one whole number that grows with each body";
                    return Err(Answer::new(400, format!("{SEQUENCE}: expected {what}")));
                }
                self.number = number;
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

    fn post(self, path: &str, current: bool) -> Result<Post, Answer> {
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
        let sequence = match (self.producer, self.number) {
            (Some(producer), Some(number)) => Some((producer, number)),
            (None, None) => None,
            _ => return answer(400, &format!("expected {PRODUCER} and {SEQUENCE}, or neither")),
        };
        let (length, packing) = (self.length, self.packing.flatten());
        let keep_alive = !self.close && (current || self.keep_alive);
        let (path, waits) = (path.to_string(), self.waits && current);
        Ok(Post { path, length, packing, keep_alive, waits, sequence })
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::FIELDS_MAX;
    use super::*;

    /// A request that is there as a whole.
    fn parse(bytes: &[u8]) -> Result<Post, Answer> {
        let (head, length) = Head::parse(bytes)?.expect("a head");
        assert_eq!(length, bytes.len());
        post(&head)
    }

    fn status(head: &str) -> u16 {
        let head = head.replace('\n', "\r\n");
        parse(head.as_bytes()).map_or_else(|answer| answer.status, |_| 202)
    }

    #[test]
    fn a_head_says_how_long_the_body_is() {
        let head = b"POST /?x HTTP/1.1\r\nhost: a\r\ncontent-LENGTH: \t12 \r\nExpect: 100-continue\r\n\r\n";
        let (path, packing) = ("/".to_string(), None);
        let (length, sequence) = (Some(12), None);
        let plain = Post { path, length, packing, keep_alive: true, waits: true, sequence };
        assert_eq!(parse(head), Ok(plain.clone()));
        let head =
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: x, Close\r\n\r\n";
        let closes = Post { length: Some(0), keep_alive: false, waits: false, ..plain.clone() };
        assert_eq!(parse(head), Ok(closes.clone()));
        let head = b"POST / HTTP/1.0\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(parse(head), Ok(Post { length: Some(7), ..closes }));
        let head = b"POST /a/b?x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\
                     Content-Encoding: GZIP\r\n\r\n";
        let (path, packing) = ("/a/b".to_string(), Some(ContentEncoding::Gzip));
        let chunked = Post { path, length: None, packing, waits: false, ..plain };
        assert_eq!(parse(head), Ok(chunked.clone()));
        let head = b"POST /a/b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\
                     Millstream-Producer: web/1\r\nmillstream-sequence: 17\r\n\r\n";
        let sequence = Some(("web/1".to_string(), 17));
        assert_eq!(parse(head), Ok(Post { sequence, ..chunked }));
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
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nMillstream-Producer: a\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\nMillstream-Sequence: 1\n\n", 400),
            (
                "POST / HTTP/1.1\nHost: a\nContent-Length: 1\nMillstream-Producer: a\n\
                 Millstream-Sequence: -1\n\n",
                400,
            ),
            (
                "POST / HTTP/1.1\nHost: a\nContent-Length: 1\nMillstream-Producer: a b\n\
                 Millstream-Sequence: 1\n\n",
                400,
            ),
            ("POST / HTTP/1.1\nContent-Length: 1\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nHost: b\nContent-Length: 1\n\n", 400),
            ("POST / HTTP/1.1\nHost : a\nContent-Length: 1\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\n x: 1\nContent-Length: 1\n\n", 400),
            ("POST / HTTP/1.1\nHost\n\n", 400),
            ("GET / HTTP/1.1\nHost: a\n\n", 405),
            ("POST / HTTP/2.0\nHost: a\n\n", 505),
            ("POST  / HTTP/1.1\nHost: a\n\n", 400),
            ("POST /\n\n", 400),
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
}
