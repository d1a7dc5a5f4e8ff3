//! Ports for metrics and the page: GET and HEAD are answered, and each answer ends its connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_connect::http::message::{Answer, Head, Words};
use millstream_connect::http::server::{End, Limits, Port, Sender, Service};

use super::board::StatusBoard;

/// The prefix of a target that is a whole address.
const HTTP: &str = "http://";

const LIMITS: Limits = Limits {
    connections: 256,
    head_bytes: 8 << 10,
    idle: Duration::from_secs(5),
    head: Duration::from_secs(5),
    answers_cut: true,
    words: Words {
        allow: "GET, HEAD",
        fields: "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
        busy: "too many connections",
    },
};

/// Answers a request for a path.
pub(super) type Answering = fn(&StatusBoard, &str) -> Answer;

struct Page {
    board: Arc<StatusBoard>,
    answer: Answering,
    /// Requests must name an address, or this machine.
    guarded: bool,
}

impl Service for Page {
    fn serve(&self, head: &Head, sender: &mut Sender) -> Result<(), End> {
        sender.answers();
        Err((self.answer)(&self.board, path(head, self.guarded)?).into())
    }
}

/// Listens, and answers as long as the program runs. Returns the address.
pub(super) fn serve(
    address: SocketAddr,
    board: Arc<StatusBoard>,
    answer: Answering,
) -> io::Result<SocketAddr> {
    // Other machines call this one by any name.
    let guarded = address.ip().is_loopback();
    let port = Port::open(address, Page { board, answer, guarded }, LIMITS)?;
    let bound = port.address();
    // Open until the program ends.
    std::mem::forget(port);
    Ok(bound)
}

/// The path of a request. `guarded`: only if the host is an address, or this machine.
fn path(head: &Head, guarded: bool) -> Result<&str, Answer> {
    if !matches!(head.method.as_str(), "GET" | "HEAD") {
        return Err(Answer::new(405, "only GET and HEAD are answered"));
    }
    let host = head.fields().find(|(name, _)| *name == "host").map(|(_, host)| host);
    // Where the target is a whole address, its host counts (RFC 9112, 3.2.2).
    let (host, target) = match head.target.split_at_checked(HTTP.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(HTTP) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        }
        _ => (host, head.target.as_str()),
    };
    // A page of elsewhere may have its name lead here (DNS rebinding), to read what it may not.
    if host.is_some_and(|host| guarded && !is_address(host)) {
        return Err(Answer::new(421, "use the address instead of a name, or localhost"));
    }
    match target.split('?').next() {
        None | Some("") => Ok("/"),
        Some(path) => Ok(path),
    }
}

/// Whether a host is an address, with or without a port, or this machine.
fn is_address(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &[u8], guarded: bool) -> Result<String, u16> {
        let head = Head::parse(head).map_err(|answer| answer.status)?.expect("a head").0;
        path(&head, guarded).map(String::from).map_err(|answer| answer.status)
    }

    fn request(text: &str) -> Result<String, u16> {
        parse(text.as_bytes(), true)
    }

    #[test]
    fn only_what_can_be_answered_is_understood() {
        assert_eq!(request("GET /metrics HTTP/1.1\r\n\r\n"), Ok("/metrics".into()));
        assert_eq!(request("HEAD /?a=b HTTP/1.0\r\nhOsT: localhost:9464\r\n\r\n"), Ok("/".into()));
        assert_eq!(request("GET /metrics HTTP/1.0\nHost: 127.0.0.1\n\n"), Ok("/metrics".into()));
        let host = b"GET / HTTP/1.1\r\nHost: millstream.example:9464\r\n\r\n";
        assert_eq!(parse(host, false), Ok("/".into()));
        for (text, status) in [
            ("GET /metrics\r\n\r\n", 400),
            ("GET  /metrics HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/2\r\n\r\n", 505),
            ("POST / HTTP/1.1\r\n\r\n", 405),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
            ("GET / HTTP/1.1\nHost: evil.example\n\n", 421),
        ] {
            assert_eq!(request(text), Err(status), "{text:?}");
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1\r\n\r\n", true).unwrap_err(), 400);
    }

    #[test]
    fn a_target_may_be_a_whole_address() {
        for (target, expected) in [
            ("http://127.0.0.1:9464/metrics", Ok("/metrics".into())),
            ("HTTP://localhost/metrics?a=/b", Ok("/metrics".into())),
            ("http://localhost", Ok("/".into())),
            ("http://localhost?a", Ok("/".into())),
            ("http://evil.example/metrics", Err(421)),
            ("http:///metrics", Err(421)),
            // No host: a path, of which there is none.
            ("http:/metrics", Ok("http:/metrics".into())),
        ] {
            // Whatever the field says.
            let text = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(request(&text), expected, "{target}");
        }
    }

    #[test]
    fn addresses_are_no_names() {
        for host in ["127.0.0.1", "127.0.0.1:9464", "[::1]:80", "[::1]", "localhost", "LOCALHOST:1"]
        {
            assert!(is_address(host), "{host}");
        }
        for host in ["", "a.example", "127.0.0.1.a.example:80", "localhost.a:1", "::x"] {
            assert!(!is_address(host), "{host}");
        }
    }
}
