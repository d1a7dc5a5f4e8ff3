//! Senders on the other side of real connections, well-behaved and not.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use millstream_contract::settings::parse_bytes;

use super::server::Limits;
use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn options(given: &[(&str, &str)]) -> TableOptions {
    let fields = vec![Field::new("a", DataType::Int64, true)];
    let given = given.iter().copied().chain([("connector", "http")]);
    TableOptions::new("t", Arc::new(Schema::new(fields)), given)
}

/// A split and where to send to.
fn served(given: &[(&str, &str)]) -> (Box<dyn Split>, String) {
    served_at("127.0.0.1:0", given)
}

fn served_at(listen: &str, given: &[(&str, &str)]) -> (Box<dyn Split>, String) {
    let mut all = vec![("listen", listen)];
    all.extend(given);
    let table = HttpTable::from_options(&options(&all)).unwrap();
    assert!(!table.bounded() && table.live());
    let split = table.open(&[0], &OpenOptions::alone(100, 0, 1)).unwrap().remove(0);
    let remark = split.remark().unwrap();
    let address = remark.rsplit("http://").next().unwrap().split('/').next().unwrap().to_string();
    (split, address)
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn post(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// One answer: its status, and the whole of it.
fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    let status = head.split(' ').nth(1).expect("a status line").parse().unwrap();
    (status, head + &String::from_utf8(body).unwrap())
}

fn send(address: &str, request: &str) -> (u16, String) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    answer(&mut stream)
}

/// What the split has.
fn all(split: &mut Box<dyn Split>) -> Vec<i64> {
    let mut found = Vec::new();
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        let batch = chunk.decode().unwrap();
        found.extend(batch.column(0).as_primitive::<Int64Type>().iter().flatten());
    }
    found
}

#[test]
fn bodies_are_files_of_their_own() {
    let (mut split, address) = served(&[("format", "csv")]);
    let mut stream = connect(&address);
    for (body, records) in [("a\n1\n2", "2 records"), ("3\n", "1 record"), ("", "0 records")] {
        stream.write_all(post(body).as_bytes()).unwrap();
        let (status, text) = answer(&mut stream);
        assert_eq!(status, 202, "{text}");
        assert!(text.ends_with(&format!("\r\n\r\n{records} accepted\n")), "{text}");
    }
    // Two at once, with an empty line between them.
    stream.write_all((post("4\n") + "\r\n" + &post("a\n5\n")).as_bytes()).unwrap();
    assert_eq!((answer(&mut stream).0, answer(&mut stream).0), (202, 202));
    assert_eq!(all(&mut split), [1, 2, 3, 4, 5]);
    assert!(matches!(
        split.poll_next(0, Waker::noop()).unwrap(),
        SplitPoll::Pending { retry_at_us: None }
    ));
}

#[test]
fn a_packed_body_is_refused_as_such() {
    let (_split, address) = served(&[("format", "ndjson")]);
    let mut stream = connect(&address);
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n";
    stream.write_all(&[head.as_bytes(), b"\x1f\x8b\x08\0\0\0"].concat()).unwrap();
    let (status, text) = answer(&mut stream);
    assert!(status == 415 && text.contains("gzip"), "{status} {text}");
}

/// As `curl` and `gzip` send it: in chunks, which end anywhere, and packed.
#[test]
fn bodies_come_in_chunks_and_packed() {
    let (mut split, address) = served(&[("format", "csv"), ("max-body", "30 B")]);
    let mut stream = connect(&address);
    let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let two = format!("{head}2;x=y\r\n1\n\r\n3\r\n2\n3\r\n0\r\nA: b\r\n\r\n") + &post("4\n");
    for part in two.as_bytes().chunks(7) {
        stream.write_all(part).unwrap();
    }
    assert_eq!((answer(&mut stream).0, answer(&mut stream).0), (202, 202));
    let packed = |encoding: &str, bytes: &[u8]| {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nContent-Encoding: {encoding}\r\n\r\n",
            bytes.len()
        );
        [head.as_bytes(), bytes].concat()
    };
    let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 3).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"6\n7\n").unwrap();
    for (bytes, expected) in [
        (packed("zstd", &zstd("5\n")), 202),
        (packed("gzip", &gzip.finish().unwrap()), 202),
        (packed("zstd", &zstd(&"8\n".repeat(100))), 413),
        (packed("gzip", b"8\n"), 400),
        (format!("{head}1e\r\n{}\r\n1\r\n8\r\n", "8".repeat(30)).into_bytes(), 413),
        (format!("{head}2\r\n8\n 0\r\n\r\n").into_bytes(), 400),
        (format!("{head}-2\r\n").into_bytes(), 400),
    ] {
        let mut stream = connect(&address);
        stream.write_all(&bytes).unwrap();
        let (status, text) = answer(&mut stream);
        assert_eq!(status, expected, "{text}");
    }
    assert_eq!(all(&mut split), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn an_array_of_objects_is_a_body_too() {
    let (mut split, address) = served(&[("format", "ndjson")]);
    let mut stream = connect(&address);
    for (body, expected, text) in [
        ("[{\"a\": 1},\n{\n\"a\": 2}]\n", 202, "2 records"),
        ("[]", 202, "0 records"),
        ("[{\"a\": 3},\n{\"a\": 4.5}]", 400, ", body 3:2:"),
        ("[{\"a\": 3}", 400, "no end"),
        ("[{\"a\": 3}, 4]", 400, "expected an object"),
    ] {
        stream.write_all(post(body).as_bytes()).unwrap();
        let (status, answer) = answer(&mut stream);
        assert!(status == expected && answer.contains(text), "{status} {answer}");
    }
    assert_eq!(all(&mut split), [1, 2]);
}

/// A port goes with the last of its tables.
#[test]
fn tables_of_one_port_have_each_their_path() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (mut one, address) = served_at(&free, &[("format", "csv"), ("path", "/one")]);
    let (mut two, other) = served_at(&free, &[("format", "ndjson"), ("path", "/two/b")]);
    assert_eq!((&address, &other), (&free, &free));
    let taken = [("listen", &*free), ("format", "csv"), ("path", "/one")];
    let taken = HttpTable::from_options(&options(&taken)).unwrap();
    assert!(taken.open(&[0], &OpenOptions::alone(1, 0, 1)).is_err());
    let mut stream = connect(&free);
    for (path, body) in [("one", "1\n"), ("two/b?x", "{\"a\": 2}\n")] {
        stream.write_all(post(body).replace("/ ", &format!("/{path} ")).as_bytes()).unwrap();
        assert_eq!(answer(&mut stream).0, 202);
    }
    let (status, text) = send(&free, &post("3\n"));
    assert!(status == 404 && text.contains("to /one or /two/b"), "{status} {text}");
    assert_eq!((all(&mut one), all(&mut two)), (vec![1], vec![2]));
    drop(one);
    assert_eq!(send(&free, &post("3\n").replace("/ ", "/two/b ")).0, 400, "no object");
    drop(two);
    assert!(TcpStream::connect(&free).is_err());
}

/// Two hundred columns and a body of empty objects: decoded they take a thousand times as much.
#[test]
fn a_body_is_decoded_piece_by_piece() {
    let fields: Vec<Field> =
        (0..200).map(|n| Field::new(format!("c{n}"), DataType::Int64, true)).collect();
    let given = TableOptions {
        schema: Arc::new(Schema::new(fields)),
        ..options(&[("format", "ndjson"), ("listen", "127.0.0.1:0")])
    };
    let table = HttpTable::from_options(&given).unwrap();
    let columns: Vec<usize> = (0..200).collect();
    let memory = OpenOptions { memory_bytes: 8 << 20, ..OpenOptions::alone(100, 0, 1) };
    let mut split = table.open(&columns, &memory).unwrap().remove(0);
    let address = split.remark().unwrap().rsplit("//").next().unwrap().replace('/', "");
    let (status, text) = send(&address, &post(&"{}\n".repeat(10_000)));
    assert!(status == 202 && text.contains("10000 records accepted"), "{status} {text}");
    let (mut rows, mut pieces) = (0, 0);
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        rows += chunk.decode().unwrap().num_rows();
        pieces += 1;
    }
    assert_eq!((rows, pieces), (10_000, 100));
}

#[test]
fn a_malformed_record_refuses_its_body_with_its_place() {
    let (mut split, address) = served(&[("format", "ndjson")]);
    let mut stream = connect(&address);
    stream.write_all(post("{\"a\": 1}\n{\"a\": 1.5}\n").as_bytes()).unwrap();
    let (status, text) = answer(&mut stream);
    assert_eq!(status, 400, "{text}");
    assert!(text.contains(", body 1:2:") && text.contains("expected BIGINT"), "{text}");
    stream.write_all(post("{\"a\": 2}\n").as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).0, 202);
    assert_eq!(all(&mut split), [2]);
    let (mut split, address) = served(&[("format", "ndjson"), ("on_error", "skip")]);
    let (status, text) = send(&address, &post("x\n{\"a\": 3}\n"));
    assert_eq!(status, 202);
    assert!(text.ends_with("1 record accepted, 1 left out\n"), "{text}");
    assert_eq!(all(&mut split), [3]);
}

#[test]
fn bodies_that_are_too_large_are_refused_unread() {
    let (mut split, address) = served(&[("format", "csv"), ("max-body", "10 B")]);
    assert_eq!(parse_bytes("10 B"), Some(10));
    assert_eq!(send(&address, &post("123456789\n")).0, 202);
    let (status, text) = send(&address, &post("1234567890\n"));
    assert_eq!(status, 413, "{text}");
    assert!(text.contains("Connection: close") && text.contains("'max-body'"), "{text}");
    let huge = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n";
    assert_eq!(send(&address, huge).0, 413);
    assert_eq!(all(&mut split), [123_456_789]);
}

#[test]
fn too_much_that_waits_is_answered_with_later() {
    let (mut split, address) = served(&[("format", "csv"), ("max-body", "40 MB")]);
    let body = "123456789\n".repeat(4 << 20);
    let mut stream = connect(&address);
    stream.write_all(post(&body).as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).0, 202);
    let (status, text) = send(
        &address,
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 39000000\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(status, 429, "{text}");
    assert!(text.contains("Retry-After: 1\r\n"), "{text}");
    // A chunk that a worker has not decoded yet takes its room still.
    let mut chunks = Vec::new();
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        chunks.push(chunk);
    }
    assert_eq!(chunks.iter().map(|chunk| chunk.bytes()).sum::<usize>(), body.len());
    stream.write_all(post(&body).as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).0, 429);
    drop(chunks);
    let mut stream = connect(&address);
    stream.write_all(post(&body).as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).0, 202);
}

#[test]
fn a_sender_that_waits_is_told_to_go_on() {
    let (mut split, address) = served(&[("format", "csv")]);
    let mut stream = connect(&address);
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).0, 100);
    stream.write_all(b"7\n").unwrap();
    assert_eq!(answer(&mut stream).0, 202);
    assert_eq!(all(&mut split), [7]);
}

#[test]
fn what_is_cut_off_does_not_count() {
    let (mut split, address) = served(&[("format", "csv")]);
    let whole = post("1\n2\n");
    for length in 0..whole.len() {
        let mut stream = connect(&address);
        stream.write_all(&whole.as_bytes()[..length]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
    assert_eq!(all(&mut split), [0i64; 0]);
}

#[test]
fn whatever_is_sent_the_server_goes_on() {
    let (mut split, address) = served(&[("format", "csv")]);
    let whole = (post("1\n") + &post("a\n2\n")).into_bytes();
    // A generator of numbers (xorshift): the same bytes in every run.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut refused = 0;
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..=random(6) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = random(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\r\n: 09,/\xff"[random(9)]),
            }
        }
        let mut stream = connect(&address);
        _ = stream.write_all(&bytes);
        _ = stream.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        _ = stream.read_to_end(&mut answers);
        let text = String::from_utf8(answers).unwrap();
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 "), "{text}");
        refused += usize::from(text.contains("HTTP/1.1 400"));
    }
    assert!(refused > 10, "the bytes were damaged");
    _ = all(&mut split);
    assert_eq!(send(&address, &post("7\n")).0, 202);
    assert_eq!(all(&mut split), [7]);
}

/// Drained, a split hands out what was accepted before, all of it and nothing else, and ends.
#[test]
fn what_was_accepted_before_it_is_drained_counts() {
    let (mut split, address) = served(&[("format", "csv")]);
    let mut early = connect(&address);
    for body in ["1\n2\n", "3\n"] {
        early.write_all(post(body).as_bytes()).unwrap();
        assert_eq!(answer(&mut early).0, 202);
    }
    // One whose body is on its way.
    let late = post("4\n5\n");
    let mut slow = connect(&address);
    slow.write_all(&late.as_bytes()[..late.len() - 1]).unwrap();
    assert!(split.drain());
    slow.write_all(&late.as_bytes()[late.len() - 1..]).unwrap();
    early.write_all(post("6\n").as_bytes()).unwrap();
    for stream in [&mut slow, &mut early] {
        let (status, text) = answer(stream);
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("being drained") && text.contains("Connection: close"), "{text}");
    }
    assert_eq!(send(&address, &post("7\n")).0, 503);
    assert_eq!(all(&mut split), [1, 2, 3]);
    let start = Instant::now();
    // The thread that has answered may not know that it has.
    while !matches!(split.poll_next(0, Waker::noop()).unwrap(), SplitPoll::Ended) {
        assert!(start.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_head_without_end_is_refused() {
    let (_split, address) = served(&[("format", "csv")]);
    let (status, text) = send(&address, &format!("POST /{}", "x".repeat(20 << 10)));
    assert_eq!(status, 431, "{text}");
}

#[test]
fn there_are_only_so_many_connections() {
    let (_split, address) = served(&[("format", "csv")]);
    let mut streams: Vec<TcpStream> = (0..LIMITS.connections).map(|_| connect(&address)).collect();
    // Connections are taken in their order: the answer to the last shows that all are taken.
    let last = LIMITS.connections - 1;
    for at in [last, 0] {
        streams[at].write_all(post("1\n").as_bytes()).unwrap();
        assert_eq!(answer(&mut streams[at]).0, 202);
    }
    // A sender stays longer than idle connections.
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    streams[1].write_all(head.as_bytes()).unwrap();
    assert_eq!(answer(&mut streams[1]).0, 100);
    // Connections without a request give way to as many new connections. No more come: which of
    // the two answered connections has been idle longer depends on their threads.
    let mut more: Vec<TcpStream> = streams[2..last].iter().map(|_| connect(&address)).collect();
    for stream in &mut more {
        stream.write_all(post("1\n").as_bytes()).unwrap();
        assert_eq!(answer(stream).0, 202);
    }
    for stream in &mut streams[2..last] {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "it gave way");
    }
    for at in [0, 1, last] {
        streams[at].set_nonblocking(true).unwrap();
        let kind = streams[at].read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::WouldBlock), "it is open");
    }
}

#[test]
fn connections_and_port_go_with_the_split() {
    let (split, address) = served(&[("format", "csv")]);
    let taken = HttpTable::from_options(&options(&[("listen", &address), ("format", "csv")]));
    let error = taken.unwrap().open(&[0], &OpenOptions::alone(1, 0, 1)).err().unwrap().to_string();
    assert!(error.contains("take another port"), "{error}");
    let mut stream = connect(&address);
    stream.write_all(post("1\n").as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).0, 202);
    drop(split);
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    // Connections of this side that have just been closed may hold the number for a while, but
    // nobody listens there.
    assert!(TcpStream::connect(&address).is_err());
    _ = TcpListener::bind(&address);
}

#[test]
fn options_that_are_wrong_are_refused() {
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[], "a file needs a format"),
        (&[("format", "arrow")], "what is sent over HTTP has lines"),
        (&[("format", "csv"), ("listen", "everywhere")], "a port, or an address"),
        (&[("format", "csv"), ("max-body", "2 GB")], "a number of bytes from 1 to 1 GB"),
        (&[("format", "csv"), ("path", "clicks")], "a path such as '/clicks'"),
        (&[("format", "csv"), ("port", "80")], "has no such option"),
    ];
    for (given, expected) in cases {
        let error = HttpTable::from_options(&options(given)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for (given, expected) in
        [("9000", "127.0.0.1:9000"), ("localhost:1", "127.0.0.1:1"), ("[::1]:2", "[::1]:2")]
    {
        let given = options(&[("listen", given)]);
        let address = crate::options::Options::new(&given).address("listen", "").unwrap();
        assert_eq!(address.unwrap().to_string(), expected);
    }
    let table = HttpTable::from_options(&options(&[("format", "csv")])).unwrap();
    assert_eq!(table.describe(&[0]), "http 127.0.0.1:8080 (CSV, 1 of 1 column)");
}

/// A server that waits for hardly anybody, and where to send to.
fn impatient() -> (Server, String) {
    let table = HttpTable::from_options(&options(&[("format", "csv")])).unwrap();
    let (schema, format) = (table.schema.clone(), table.format.clone());
    let served = Served {
        name: "x".into(),
        wanted: Wanted { format, schema, projection: [0].into(), batch_rows: 100, offsets: false },
        journal: None,
        path: "/".into(),
        body_bytes_max: 1000,
        waiting_bytes_max: 1000,
        decoding_bytes_max: 1 << 20,
    };
    let short = Duration::from_millis(500);
    let limits = Limits { idle: short, head: short, ..LIMITS };
    let (server, address) =
        Server::start("127.0.0.1:0".parse().unwrap(), served, limits, short).unwrap();
    (server, address.to_string())
}

#[test]
fn senders_that_take_too_long_are_told_and_give_their_room_back() {
    let (server, address) = impatient();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n";
    // Silent in the middle of a head, of a body; and a byte now and then.
    for (begins, goes_on, expected) in [
        (head.to_string(), false, "the head took too long"),
        (head.to_string(), true, "the head took too long"),
        (format!("{head}\r\n1\n2"), false, "the body took too long"),
        (format!("{head}\r\n"), true, "the body took too long"),
    ] {
        let mut stream = connect(&address);
        stream.write_all(begins.as_bytes()).unwrap();
        let mut other = stream.try_clone().unwrap();
        let sends = std::thread::spawn(move || {
            let end = Instant::now() + PATIENCE;
            while goes_on && Instant::now() < end && other.write_all(b"1").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let (status, text) = answer(&mut stream);
        assert_eq!(status, 408, "{text}");
        assert!(text.contains(expected) && text.contains("Connection: close"), "{text}");
        stream.shutdown(Shutdown::Both).unwrap();
        sends.join().unwrap();
        // 900 of 1,000 bytes were taken.
        assert_eq!(send(&address, &post(&"1\n".repeat(450))).0, 202);
        assert!(matches!(server.route.next(Waker::noop()), Next::Accepted(_)));
        while matches!(server.route.next(Waker::noop()), Next::Accepted(_)) {}
    }
    // Who has not begun is not answered.
    let mut silent = connect(&address);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
}

#[test]
fn bodies_that_wait_take_a_part_of_the_jobs_memory() {
    let given = [("format", "csv"), ("listen", "127.0.0.1:0"), ("max-body", "1000 B")];
    let table = HttpTable::from_options(&options(&given)).unwrap();
    let memory = OpenOptions { memory_bytes: 16_000, ..OpenOptions::alone(100, 0, 1) };
    let mut split = table.open(&[0], &memory).unwrap().remove(0);
    let remark = split.remark().unwrap();
    let address = remark.rsplit("http://").next().unwrap().trim_end_matches('/').to_string();
    let body = post(&"1\n".repeat(450));
    let statuses = [0; 3].map(|_| send(&address, &body).0);
    assert_eq!(statuses, [202, 202, 429], "2,000 bytes wait at most");
    assert_eq!(all(&mut split).len(), 900);
    assert_eq!(send(&address, &body).0, 202);
}
