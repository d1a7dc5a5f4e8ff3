//! A small HTTP server, for metrics and the page: it answers GET and HEAD, and closes the
//! connection after each answer (RFC 9112).

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::accept::accept_all;
use super::desk::Desk;

/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Connections at a time. For one beyond, the one ends that has not sent its request for longest;
/// if all have, it is told to come again.
const CONNECTIONS_MAX: usize = 256;
/// How long a request may take, and an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a target begins with that is a whole address.
const HTTP: &str = "http://";

/// Answer of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn new(content_type: &'static str, body: String) -> Answer {
        Answer { status: 200, content_type, body }
    }

    pub(super) fn failed(status: u16, text: &str) -> Answer {
        Answer { status, content_type: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    fn reason(&self) -> &'static str {
        match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        }
    }

    /// As it is sent; `HEAD` asks for all but the body.
    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let Answer { status, content_type, body } = self;
        let allow = if *status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{allow}\
             Connection: close\r\n\r\n",
            self.reason(),
            body.len()
        )
        .into_bytes();
        if with_body {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

/// Answers a request for a path.
pub(super) type Answering = fn(&Desk, &str) -> Answer;

/// Listens, and answers as long as the program runs. Returns where.
pub(super) fn serve(
    address: SocketAddr,
    desk: Arc<Desk>,
    answer: Answering,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    // Who listens to other machines is called by whatever name they have for this one.
    let guarded = address.ip().is_loopback();
    let thread = thread::Builder::new().name("http".into());
    thread.spawn(move || accept(&listener, desk, (answer, guarded)))?;
    Ok(bound)
}

/// Connections whose request is not there yet, by the order in which they came.
#[derive(Default)]
struct Unheard {
    came: AtomicU64,
    streams: Mutex<BTreeMap<u64, Arc<TcpStream>>>,
}

impl Unheard {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<TcpStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: TcpStream) -> (u64, Arc<TcpStream>) {
        let (number, stream) = (self.came.fetch_add(1, Ordering::Relaxed), Arc::new(stream));
        self.lock().insert(number, stream.clone());
        (number, stream)
    }

    fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Ends the connection that has waited longest, if it came before this one: whoever serves it
    /// reads its end.
    fn end_oldest_before(&self, number: u64) -> bool {
        let mut streams = self.lock();
        let oldest = streams.first_entry().filter(|oldest| *oldest.key() < number);
        let ended = oldest.map(|oldest| oldest.remove().shutdown(Shutdown::Both));
        ended.is_some()
    }
}

fn accept(listener: &TcpListener, desk: Arc<Desk>, answering: (Answering, bool)) {
    let unheard = Arc::new(Unheard::default());
    let served = unheard.clone();
    accept_all(
        ("http", CONNECTIONS_MAX),
        || listener.accept().map(|(stream, _)| Some(unheard.add(stream))),
        |(number, stream)| {
            if unheard.end_oldest_before(number) {
                return Some((number, stream));
            }
            unheard.remove(number);
            refuse(&stream);
            None
        },
        move |(number, stream)| {
            let heard = || served.remove(number);
            // A connection that breaks concerns whoever has opened it.
            let _ = converse(&stream, heard, &desk, answering);
            heard();
        },
    );
}

/// Tells that all connections are being answered. Whoever cannot even take this is not waited for.
fn refuse(mut stream: &TcpStream) {
    // Bytes that nobody has read would make the system throw the answer away.
    let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
    let _ = stream.read(&mut [0; HEAD_BYTES_MAX]);
    let _ = stream.set_nonblocking(true);
    let _ = stream.write(&Answer::failed(503, "too many connections").bytes(true));
}

fn converse(
    mut stream: &TcpStream,
    heard: impl Fn(),
    desk: &Desk,
    (answer, guarded): (Answering, bool),
) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (head, whole) = head(stream)?;
    heard();
    if head.is_empty() && whole.is_ok() {
        return Ok(());
    }
    let path = whole.and_then(|()| parse(&head, guarded));
    let reply = path.map_or_else(|refused| refused, |path| answer(desk, path));
    stream.write_all(&reply.bytes(!head.starts_with(b"HEAD ")))?;
    stream.shutdown(Shutdown::Write)?;
    // What is still sent is taken in for a moment: else the answer could be lost.
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let _ = stream.read(&mut [0; 4096]);
    Ok(())
}

/// The head of a request, up to its empty line, or what there is of it and why it is refused.
/// Nothing at all may come.
fn head(mut stream: &TcpStream) -> io::Result<(Vec<u8>, Result<(), Answer>)> {
    let (mut head, end) = (Vec::new(), Instant::now() + PATIENCE);
    let mut part = [0; 2048];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok((head, Err(Answer::failed(408, "the head took too long"))));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) if head.is_empty() => return Ok((head, Ok(()))),
            Ok(0) => return Ok((head, Err(Answer::failed(400, "the head has no end")))),
            Ok(got) => head.extend_from_slice(&part[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if is_whole(&head) {
            return Ok((head, Ok(())));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok((head, Err(Answer::failed(431, "the head is too long"))));
        }
    }
}

/// Whether a head has its empty line. A line may end with a line feed alone (RFC 9112, 2.2).
fn is_whole(head: &[u8]) -> bool {
    head.windows(2).any(|two| two == b"\n\n") || head.windows(3).any(|three| three == b"\n\r\n")
}

/// The path that a request asks for. `guarded`: only if it names an address, or this machine.
fn parse(head: &[u8], guarded: bool) -> Result<&str, Answer> {
    let bad = |text: &str| Answer::failed(400, text);
    let text = std::str::from_utf8(head).map_err(|_| bad("the head is no text"))?;
    let mut lines = text.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
        return Err(bad("expected a request line such as 'GET /metrics HTTP/1.1'"));
    };
    if !matches!(method, "GET" | "HEAD") {
        return Err(Answer::failed(405, "only GET and HEAD are answered"));
    }
    let mut hosts = lines.filter_map(|line| line.split_once(':'));
    let host = hosts.find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map(|(_, host)| host.trim());
    // Where the target is a whole address, its host counts (RFC 9112, 3.2.2).
    let (host, target) = match target.split_at_checked(HTTP.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(HTTP) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        }
        _ => (host, target),
    };
    // A page of elsewhere may have its name lead here (DNS rebinding), to read what it may not.
    if host.is_some_and(|host| guarded && !is_address(host)) {
        return Err(Answer::failed(421, "use the address instead of a name, or localhost"));
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

    fn request(text: &str) -> Result<&str, u16> {
        parse(text.as_bytes(), true).map_err(|answer| answer.status)
    }

    #[test]
    fn only_what_can_be_answered_is_understood() {
        assert_eq!(request("GET /metrics HTTP/1.1\r\n\r\n"), Ok("/metrics"));
        assert_eq!(request("HEAD /?a=b HTTP/1.0\r\nhOsT: localhost:9464\r\n\r\n"), Ok("/"));
        assert_eq!(request("GET /metrics HTTP/1.0\nHost: 127.0.0.1\n\n"), Ok("/metrics"));
        let host = b"GET / HTTP/1.1\r\nHost: millstream.example:9464\r\n\r\n";
        assert_eq!(parse(host, false), Ok("/"));
        for (text, status) in [
            ("\r\n\r\n", 400),
            ("GET /metrics\r\n\r\n", 400),
            ("GET  /metrics HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/2\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\n\r\n", 405),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
            ("GET / HTTP/1.1\nHost: evil.example\n\n", 421),
        ] {
            assert_eq!(request(text), Err(status), "{text:?}");
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1\r\n\r\n", true).unwrap_err().status, 400);
    }

    #[test]
    fn a_target_may_be_a_whole_address() {
        for (target, expected) in [
            ("http://127.0.0.1:9464/metrics", Ok("/metrics")),
            ("HTTP://localhost/metrics?a=/b", Ok("/metrics")),
            ("http://localhost", Ok("/")),
            ("http://localhost?a", Ok("/")),
            ("http://evil.example/metrics", Err(421)),
            ("http:///metrics", Err(421)),
            // No host: a path, of which there is none.
            ("http:/metrics", Ok("http:/metrics")),
        ] {
            // Whatever the field says.
            let text = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(request(&text), expected, "{target}");
        }
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        for text in ["a\r\n\r\n", "a\n\n", "a\r\nb: c\n\r\n", "a\nb\n\nmore"] {
            assert!(is_whole(text.as_bytes()), "{text:?}");
        }
        for text in ["", "a", "a\n", "a\r\n\r", "a\r\r\n", "a\nb\n", "a\n \n"] {
            assert!(!is_whole(text.as_bytes()), "{text:?}");
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

    #[test]
    fn an_answer_to_head_has_no_body() {
        let answer = Answer::new("text/plain", "abc".into());
        let with = String::from_utf8(answer.bytes(true)).unwrap();
        let without = String::from_utf8(answer.bytes(false)).unwrap();
        assert_eq!(with, format!("{without}abc"));
        assert!(with.contains("Content-Length: 3\r\n"), "{with}");
    }
}
