//! Heads of HTTP/1.1 requests, parsed by the crate `httparse`, and answers (RFC 9112).

use httparse::{EMPTY_HEADER, Error, Status};

/// Fields of a head at most.
pub(super) const FIELDS_MAX: usize = 100;

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// `GET`, for example.
    pub method: String,
    /// The path, with its query, or a whole address.
    pub target: String,
    /// HTTP/1.1; otherwise 1.0.
    pub current: bool,
    /// Each line ends with CR LF, none with LF alone.
    pub strict: bool,
    /// Names in lower case, and values without blanks around them.
    fields: Vec<(String, String)>,
}

impl Head {
    /// Parses the head at the front of these bytes, and its length; `None` if its end is missing.
    ///
    /// # Errors
    ///
    /// The refusal of a malformed head.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Answer> {
        let mut room = [EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut room);
        let length = match request.parse(bytes).map_err(|error| refusal(error, bytes))? {
            Status::Complete(length) => length,
            Status::Partial => return Ok(None),
        };
        let mut fields = Vec::with_capacity(request.headers.len());
        for field in &*request.headers {
            let value = std::str::from_utf8(field.value);
            let value = value.map_err(|_| Answer::new(400, "the head is no text"))?;
            let value = value.trim_matches([' ', '\t']).to_string();
            fields.push((field.name.to_ascii_lowercase(), value));
        }
        let text = bytes[..length].trim_ascii_start();
        let head = Head {
            method: request.method.unwrap_or_default().to_string(),
            target: request.path.unwrap_or_default().to_string(),
            current: request.version == Some(1),
            strict: text.split_inclusive(|byte| *byte == b'\n').all(|l| l.ends_with(b"\r\n")),
            fields,
        };
        Ok(Some((head, length)))
    }

    /// The fields in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The refusal of a head with this error.
fn refusal(error: Error, bytes: &[u8]) -> Answer {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has_version = memchr::memmem::find(line, b" HTTP/").is_some();
    match error {
        Error::TooManyHeaders => Answer::new(431, format!("more than {FIELDS_MAX} header fields")),
        Error::Version if has_version => Answer::new(505, "expected HTTP/1.1"),
        Error::HeaderName => Answer::new(400, "a header field has no name, or blanks in its name"),
        Error::HeaderValue | Error::NewLine => {
            Answer::new(400, "a line of the head must end with CR LF")
        }
        _ => Answer::new(400, "expected a request line such as 'GET / HTTP/1.1'"),
    }
}

/// Words of the answers of a port.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// The methods that are answered.
    pub allow: &'static str,
    /// Lines of each head.
    pub fields: &'static str,
    /// The answer where there are too many connections.
    pub busy: &'static str,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The text, or the document.
    pub body: String,
}

impl Answer {
    /// An answer of one line of text.
    pub fn new(status: u16, text: impl Into<String>) -> Answer {
        let body = text.into() + "\n";
        Answer { status, content_type: "text/plain; charset=utf-8", body }
    }

    /// A document.
    pub fn document(content_type: &'static str, body: String) -> Answer {
        Answer { status: 200, content_type, body }
    }

    fn reason(&self) -> &'static str {
        match self.status {
            200 => "OK",
            202 => "Accepted",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            411 => "Length Required",
            413 => "Content Too Large",
            415 => "Unsupported Media Type",
            421 => "Misdirected Request",
            429 => "Too Many Requests",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            503 => "Service Unavailable",
            505 => "HTTP Version Not Supported",
            _ => "Error",
        }
    }

    /// The head of the answer, with the empty line at its end.
    pub(super) fn head(&self, keep_alive: bool, words: Words) -> String {
        let Answer { status, content_type, body } = self;
        let mut head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
            self.reason(),
            body.len()
        );
        head += words.fields;
        match status {
            405 => head += &format!("Allow: {}\r\n", words.allow),
            429 | 503 => head += "Retry-After: 1\r\n",
            _ => {}
        }
        head + if keep_alive { "\r\n" } else { "Connection: close\r\n\r\n" }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_says_how_long_it_is() {
        let words = Words { allow: "POST", fields: "A: b\r\n", busy: "" };
        let head = Answer::new(429, "later").head(false, words);
        let expected = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain; charset=utf-8\
                        \r\nContent-Length: 6\r\nA: b\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
        assert_eq!(head, expected);
        assert!(Answer::new(405, "").head(true, words).ends_with("A: b\r\nAllow: POST\r\n\r\n"));
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        for (text, strict) in [
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("\r\nGET / HTTP/1.1\r\nb: c\r\n\r\n", true),
            ("GET / HTTP/1.1\n\n", false),
            ("GET / HTTP/1.1\r\nb: c\n\r\n", false),
        ] {
            let (head, length) =
                Head::parse(&[text, "more"].concat().into_bytes()).unwrap().unwrap();
            assert_eq!((length, head.strict), (text.len(), strict), "{text:?}");
        }
        for text in ["", "GET", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\n\r", "\r\n\r\n"] {
            assert_eq!(Head::parse(text.as_bytes()), Ok(None), "{text:?}");
        }
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
            let parts = parts.concat().into_bytes();
            let both = [parts.clone(), noise.clone()].concat();
            for bytes in [parts, noise, both] {
                match Head::parse(&bytes) {
                    Ok(head) => prop_assert!(head.is_none_or(|(_, length)| length <= bytes.len())),
                    Err(answer) => prop_assert!((400..=505).contains(&answer.status)),
                }
            }
        }
    }
}
