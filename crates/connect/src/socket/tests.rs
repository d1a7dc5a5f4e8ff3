//! A sender on the other side of real connections.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::task::Wake;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn options(given: &[(&str, &str)]) -> TableOptions {
    let fields = vec![Field::new("a", DataType::Int64, true)];
    let given = given.iter().copied().chain([("connector", "socket")]);
    TableOptions::new("t", Arc::new(Schema::new(fields)), given)
}

fn open(given: &[(&str, &str)]) -> Result<Box<dyn Split>> {
    let table = SocketTable::from_options(&options(given))?;
    assert!(!table.bounded() && table.live());
    Ok(table.open(&[0], &OpenOptions::alone(100, 0, 1))?.remove(0))
}

/// A split and its sender.
fn connected() -> (Box<dyn Split>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let split = open(&[("hostname", "localhost"), ("port", &port), ("format", "csv")]).unwrap();
    let sender = listener.accept().unwrap().0;
    (split, sender)
}

/// Says that something has come.
struct Bell(mpsc::Sender<()>);
impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Later than the test looks, it does no harm.
        _ = self.0.send(());
    }
}

/// The numbers of the next chunk; `None` at the end.
fn next(split: &mut Box<dyn Split>) -> Result<Option<Vec<i64>>> {
    let start = Instant::now();
    loop {
        match split.poll_next(0, Waker::noop())? {
            SplitPoll::Chunk(chunk) => {
                let batch = chunk.decode()?;
                let numbers = batch.column(0).as_primitive::<Int64Type>();
                return Ok(Some(numbers.iter().flatten().collect()));
            }
            SplitPoll::Ended => return Ok(None),
            SplitPoll::Pending { .. } => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(start.elapsed() < PATIENCE, "nothing came");
    }
}

#[test]
fn lines_come_as_they_are_sent_and_the_last_needs_no_line_end() {
    let (mut split, mut sender) = connected();
    assert!(matches!(split.poll_next(0, Waker::noop()).unwrap(), SplitPoll::Pending { .. }));
    sender.write_all(b"1\n2").unwrap();
    assert_eq!(next(&mut split).unwrap(), Some(vec![1]));
    sender.write_all(b"3\n").unwrap();
    assert_eq!(next(&mut split).unwrap(), Some(vec![23]));
    assert_eq!(split.position(), Position(vec![5, 3]));
    sender.write_all(b"4").unwrap();
    drop(sender);
    assert_eq!(next(&mut split).unwrap(), Some(vec![4]));
    assert_eq!(next(&mut split).unwrap(), None);
}

#[test]
fn it_listens_until_a_sender_comes() {
    let mut split = open(&[("listen", "127.0.0.1:0"), ("format", "ndjson")]).unwrap();
    let address = split.remark().unwrap().rsplit(' ').next().unwrap().to_string();
    assert!(matches!(split.poll_next(0, Waker::noop()).unwrap(), SplitPoll::Pending { .. }));
    // A port scan is no sender, whether it closes the connection or resets it.
    for linger in [false, true] {
        let scan = TcpStream::connect(&address).unwrap();
        if linger {
            let zero = libc::linger { l_onoff: 1, l_linger: 0 };
            let (value, length) = (std::ptr::from_ref(&zero).cast(), size_of_val(&zero) as u32);
            // SAFETY: the option's value and its length, for the length of the call.
            let set = unsafe {
                libc::setsockopt(scan.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, length)
            };
            assert_eq!(set, 0);
        }
    }
    let mut sender = TcpStream::connect(&address).unwrap();
    sender.write_all(b"{\"a\": 7}\n").unwrap();
    assert_eq!(next(&mut split).unwrap(), Some(vec![7]));
    assert!(TcpStream::connect(&address).is_err(), "there is one sender");
    drop(sender);
    assert_eq!(next(&mut split).unwrap(), None);
}

#[test]
fn a_port_is_free_again_when_nobody_reads() {
    let split = open(&[("listen", "127.0.0.1:0"), ("format", "csv")]).unwrap();
    let address = split.remark().unwrap().rsplit(' ').next().unwrap().to_string();
    let taken = open(&[("listen", &address), ("format", "csv")]).err().unwrap().to_string();
    assert!(taken.contains("take another port"), "{taken}");
    drop(split);
    let start = Instant::now();
    while TcpListener::bind(&address).is_err() {
        assert!(start.elapsed() < PATIENCE, "the port is still taken");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn learns_that_nobody_reads(sender: &mut TcpStream) {
    let start = Instant::now();
    while sender.write_all(b"1\n").is_ok() {
        assert!(start.elapsed() < PATIENCE, "the connection is still open");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_sender_learns_that_nobody_reads() {
    let (split, mut sender) = connected();
    drop(split);
    learns_that_nobody_reads(&mut sender);
}

#[test]
fn a_slow_reader_holds_the_sender_back() {
    let (mut split, mut sender) = connected();
    assert!(matches!(split.poll_next(0, Waker::noop()).unwrap(), SplitPoll::Pending { .. }));
    sender.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let lines = b"1234567\n".repeat(8 << 10);
    let mut sent = 0u64;
    while let Ok(bytes) = sender.write(&lines) {
        sent += bytes as u64;
        assert!(sent < 1 << 30, "nothing held it back");
    }
    drop(sender);
    while next(&mut split).unwrap().is_some() {}
    assert_eq!(split.position().0[0], sent, "and nothing is lost");
}

#[test]
fn a_connection_that_is_reset_is_an_error_and_what_came_before_counts() {
    let (mut split, mut sender) = connected();
    sender.write_all(b"1\n").unwrap();
    assert_eq!(next(&mut split).unwrap(), Some(vec![1]));
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let bytes = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and `linger` is what this option wants, of that length.
    let set = unsafe {
        let value: *const libc::linger = &raw const linger;
        libc::setsockopt(sender.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value.cast(), bytes)
    };
    assert_eq!(set, 0);
    drop(sender);
    let error = next(&mut split).unwrap_err().to_string();
    assert!(error.starts_with("socket localhost:") && error.contains("reset"), "{error}");
    assert!(error.contains("closes the connection"), "{error}");
}

/// Drained, it hands out the lines that it has received, without a part of one, and ends. The
/// sender learns that.
#[test]
fn lines_that_were_received_before_it_is_drained_count() {
    let (mut split, mut sender) = connected();
    sender.write_all(b"1\n2").unwrap();
    assert_eq!(next(&mut split).unwrap(), Some(vec![1]));
    let (ring, rung) = mpsc::channel();
    let waker = Waker::from(Arc::new(Bell(ring)));
    assert!(matches!(split.poll_next(0, &waker).unwrap(), SplitPoll::Pending { .. }));
    sender.write_all(b"3\n4\n5").unwrap();
    rung.recv_timeout(PATIENCE).unwrap();
    // These have been received, and nobody has taken them in.
    assert!(split.drain());
    assert_eq!(next(&mut split).unwrap(), Some(vec![23, 4]));
    assert_eq!(next(&mut split).unwrap(), None);
    let notice = split.notice().unwrap();
    assert!(notice.ends_with("drained in the middle of line 4, which is left out"), "{notice}");
    assert_eq!(split.notice(), None);
    learns_that_nobody_reads(&mut sender);
}

/// Where the sender has closed the connection before, its last line counts.
#[test]
fn what_was_complete_before_it_is_drained_is_not_cut_off() {
    let (mut split, mut sender) = connected();
    sender.write_all(b"1\n").unwrap();
    assert_eq!(next(&mut split).unwrap(), Some(vec![1]));
    sender.write_all(b"2").unwrap();
    drop(sender);
    assert_eq!(next(&mut split).unwrap(), Some(vec![2]));
    split.drain();
    assert_eq!(next(&mut split).unwrap(), None);
    assert_eq!(split.notice(), None);
}

#[test]
fn without_a_sender_there_is_nothing_to_drain() {
    let mut split = open(&[("listen", "127.0.0.1:0"), ("format", "csv")]).unwrap();
    assert!(!split.drain());
}

#[test]
fn a_refused_connection_says_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let given = [("hostname", "127.0.0.1"), ("port", port.as_str()), ("format", "raw")];
    let error = open(&given).err().map(|error| error.to_string());
    assert!(error.unwrap().contains("raw cannot hold column 'a'"));
    let given = [("hostname", "127.0.0.1"), ("port", port.as_str()), ("format", "csv")];
    let error = next(&mut open(&given).unwrap()).unwrap_err().to_string();
    assert!(error.contains("refused") && error.contains("start the sender first"), "{error}");
}

#[test]
fn other_processes_and_positions() {
    let given = [("listen", "127.0.0.1:1"), ("format", "csv")];
    let table = SocketTable::from_options(&options(&given)).unwrap();
    let mut opened = OpenOptions::alone(100, 0, 1);
    opened.process = 1;
    let mut split = table.open(&[0], &opened).unwrap().remove(0);
    assert_eq!(split.sharing(), Sharing::Coordinator);
    assert_eq!(next(&mut split).unwrap(), None);
    opened.process = 0;
    opened.from.insert("any".into(), Position(vec![5, 2]));
    let error = table.open(&[0], &opened).err().unwrap().to_string();
    assert!(error.contains("come once"), "{error}");
    assert_eq!(table.describe(&[0]), "socket 127.0.0.1:1 (CSV, 1 of 1 column)");
}

#[test]
fn options_that_are_wrong_are_refused() {
    let host = ("hostname", "localhost");
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[("format", "csv")], "needs a host and a port"),
        (&[("format", "csv"), host], "needs a host and a port"),
        (&[("format", "csv"), host, ("port", "0")], "a whole number from 1 to 65535"),
        (&[("format", "csv"), host, ("port", "1"), ("listen", "[::1]:1")], "listens or connects"),
        (&[("format", "csv"), ("listen", "here")], "an address such as '127.0.0.1:9999'"),
        (&[("format", "parquet"), host, ("port", "1")], "a socket has lines"),
        (&[("format", "csv"), host, ("port", "1"), ("byte-delimiter", "0")], "the line end"),
    ];
    for (given, expected) in cases {
        let error = SocketTable::from_options(&options(given)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
