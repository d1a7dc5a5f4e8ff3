//! Producers that link the library, over shared memory and over TCP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use millstream_contract::Result;
use millstream_contract::table::{OpenOptions, Split, SplitPoll, Table};
use millstream_ingest::{Producer, ProducerOptions};

use super::{Got, JOINED, batch, farewell, next, notices, poll, rows, schema, table};

/// An open table, which reads both columns.
struct Open {
    splits: Vec<Box<dyn Split>>,
    address: String,
}

impl Open {
    fn new(transport: &str, options: &[(&str, &str)]) -> Open {
        let options = [options, &[("transport", transport)]].concat();
        let splits = table(&options).unwrap();
        let splits = splits.open(&[0, 1], &OpenOptions::alone(1024, 0, 1)).unwrap();
        let remark = splits[0].remark().unwrap();
        let address = remark.split("producers on ").nth(1).unwrap().split(',').next().unwrap();
        let address = address.to_string();
        Open { splits, address }
    }

    fn options(&self, name: &str) -> ProducerOptions {
        ProducerOptions::new(&*self.address, "bids").name(name)
    }

    fn producer(&self, name: &str) -> Producer {
        self.options(name).connect(&schema()).unwrap()
    }

    fn next(&mut self, slot: usize) -> Got {
        next(&mut *self.splits[slot])
    }
}

/// What `finish` says, while the job reads on.
fn finished(open: &mut Open, producer: Producer) -> Result<u64> {
    let finishing = thread::spawn(move || producer.finish());
    while !finishing.is_finished() {
        assert_eq!(poll(&mut *open.splits[0]), Got::Nothing);
    }
    finishing.join().unwrap()
}

fn in_order(transport: &str) {
    let mut open = Open::new(transport, &[("bounded", "true"), ("segment", "4 KB")]);
    let mut producer = open.producer("shop-3");
    producer.send(&batch(0..3)).unwrap();
    producer.send_watermark(77).unwrap();
    // Many segments, and many rings.
    let long = batch(10..30_010);
    let sending = thread::spawn(move || {
        producer.send(&long).unwrap();
        producer.send(&batch(5..6)).unwrap();
        producer
    });
    assert_eq!(open.next(0), JOINED);
    assert_eq!(open.next(0), Got::Rows(vec![0, 1, 2], None));
    assert_eq!(open.next(0), Got::Rows(vec![], Some(77)));
    let mut found = Vec::new();
    while found.len() < 30_001 {
        let Got::Rows(rows, None) = open.next(0) else { panic!("after {} rows", found.len()) };
        found.extend(rows);
    }
    assert_eq!(found, (10..30_010).chain([5]).collect::<Vec<i64>>());
    let producer = sending.join().unwrap();
    let finishing = thread::spawn(move || producer.finish());
    assert_eq!(open.next(0), Got::Ended);
    assert_eq!(finishing.join().unwrap().unwrap(), 30_004);
    assert!((1..16).all(|slot| open.next(slot) == Got::Ended));
    let notices = notices(&mut *open.splits[0]);
    assert!(notices[0].starts_with("channel bids: producer shop-3 (127.0.0.1:"), "{notices:?}");
    assert!(notices[1].ends_with("has ended after 30004 records"), "{notices:?}");
}

#[test]
fn batches_come_in_order_over_shared_memory() {
    in_order("shm");
}

#[test]
fn batches_come_in_order_over_tcp() {
    in_order("tcp");
}

#[test]
fn who_does_not_fit_is_refused_with_the_reason() {
    let open = Open::new("shm", &[("producers.max", "1"), ("token", "s3cret")]);
    let refused = |options: ProducerOptions| {
        let refused = options.token("s3cret").connect(&schema());
        refused.unwrap_err().to_string()
    };
    let wrong = open.options("a").token("s3creT").connect(&schema()).unwrap_err().to_string();
    assert!(wrong.contains("table 'bids' has a token") && !wrong.contains("s3cret"), "{wrong}");
    let error = refused(ProducerOptions::new(&*open.address, "bets"));
    assert!(error.contains("no table 'bets': there is bids"), "{error}");
    assert!(refused(open.options("a b")).contains("1 to 64 letters"));
    let narrow = batch(0..1).project(&[0]).unwrap().schema();
    let error = open.options("a").token("s3cret").connect(&narrow).unwrap_err().to_string();
    assert!(error.contains("there is no column 't'"), "{error}");
    let present = open.options("b").token("s3cret").connect(&schema()).unwrap();
    assert!(refused(open.options("c")).contains("has 1 producer already"));
    drop(present);
    let closed = ProducerOptions::new("127.0.0.1:1", "bids").connect(&schema()).unwrap_err();
    assert!(closed.to_string().contains("channel bids at 127.0.0.1:1"), "{closed}");
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let open = Open::new("shm", &[]);
    let mut producer = open.producer("a");
    let other = StringArray::from(vec!["x"]);
    let other = RecordBatch::try_from_iter([("n", std::sync::Arc::new(other) as ArrayRef)]);
    let error = producer.send(&other.unwrap()).unwrap_err().to_string();
    assert!(error.contains("another schema than the producer"), "{error}");
    producer.send(&batch(0..1)).unwrap();
}

#[test]
fn a_lost_producer_is_told_and_frees_its_slot() {
    for transport in ["shm", "tcp"] {
        let mut open = Open::new(transport, &[]);
        let mut producer = open.producer("a");
        producer.send(&batch(0..2)).unwrap();
        assert_eq!((open.next(0), open.next(0)), (JOINED, Got::Rows(vec![0, 1], None)));
        drop(producer);
        let farewell = farewell(&mut open.splits, |split| assert_eq!(poll(split), Got::Nothing));
        assert!(farewell.contains("producer a (127.0.0.1:"), "{farewell}");
        assert!(farewell.ends_with("was lost after 2 records, which count"), "{farewell}");
        assert!(open.splits[0].is_absent());
        let mut second = open.producer("b");
        second.send(&batch(7..8)).unwrap();
        assert_eq!((open.next(0), open.next(0)), (JOINED, Got::Rows(vec![7], None)));
        assert_eq!(finished(&mut open, second).unwrap(), 1);
    }
}

#[test]
fn a_producer_learns_that_the_job_takes_no_more() {
    let mut open = Open::new("shm", &[]);
    let mut producer = open.producer("a");
    producer.send(&batch(0..2)).unwrap();
    assert_eq!((open.next(0), open.next(0)), (JOINED, Got::Rows(vec![0, 1], None)));
    // The ring may hold more. Of the others nothing is asked any more.
    let go_on: Vec<bool> = open.splits.iter_mut().map(|split| split.drain()).collect();
    assert!(go_on[0] && !go_on[1..].contains(&true), "{go_on:?}");
    assert_eq!(open.next(0), Got::Ended);
    let until = Instant::now() + Duration::from_secs(20);
    let error = loop {
        assert!(Instant::now() < until, "no error");
        if let Err(error) = producer.send(&batch(2..3)) {
            break error.to_string();
        }
    };
    assert!(error.contains("being drained") && error.contains("taken before: 2"), "{error}");
}

#[test]
fn what_lies_in_the_ring_of_a_drained_job_counts() {
    let mut open = Open::new("shm", &[]);
    let (mut stays, mut ends) = (open.producer("stays"), open.producer("ends"));
    (0..3).for_each(|n| stays.send(&batch(n..n + 1)).unwrap());
    ends.send(&batch(7..8)).unwrap();
    let ending = thread::spawn(move || ends.finish());
    assert_eq!((open.next(0), open.next(1)), (JOINED, JOINED));
    thread::sleep(Duration::from_millis(100));
    assert!(open.splits.iter_mut().take(2).all(|split| split.drain()));
    assert_eq!(rows(&mut *open.splits[0], 3), Got::Rows(vec![0, 1, 2], None));
    assert_eq!(open.next(0), Got::Ended);
    let error = stays.finish().unwrap_err().to_string();
    assert!(error.contains("being drained") && error.contains("taken before: 3"), "{error}");
    assert_eq!((open.next(1), open.next(1)), (Got::Rows(vec![7], None), Got::Ended));
    assert_eq!(ending.join().unwrap().unwrap(), 1);
}

#[test]
fn a_producer_that_ends_waits_for_a_slow_job() {
    let mut open = Open::new("shm", &[]);
    let mut producer = open.producer("a");
    producer.send(&batch(0..2)).unwrap();
    let finishing = thread::spawn(move || producer.finish());
    assert_eq!(open.next(0), JOINED);
    let chunk = loop {
        match open.splits[0].poll_next(0, Waker::noop()).unwrap() {
            SplitPoll::Chunk(chunk) => break chunk,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    };
    for _ in 0..300 {
        assert_eq!(poll(&mut *open.splits[0]), Got::Nothing);
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!finishing.is_finished(), "its batch has not been decoded");
    assert_eq!(chunk.decode().unwrap().num_rows(), 2);
    while !finishing.is_finished() {
        assert_eq!(poll(&mut *open.splits[0]), Got::Nothing);
    }
    assert_eq!(finishing.join().unwrap().unwrap(), 2);
    // A job that has gone ends the wait.
    let lost = open.producer("b");
    let finishing = thread::spawn(move || lost.finish());
    thread::sleep(Duration::from_millis(300));
    drop(open);
    assert!(finishing.join().unwrap().is_err());
}

/// Short batches that wait in a ring are one chunk, up to the next watermark.
#[test]
fn short_batches_are_merged() {
    let mut open = Open::new("shm", &[("segment", "4 KB")]);
    let mut producer = open.producer("a");
    (0..5).for_each(|n| producer.send(&batch(3 * n..3 * n + 3)).unwrap());
    producer.send_watermark(9).unwrap();
    producer.send(&batch(15..16)).unwrap();
    assert_eq!(open.next(0), JOINED);
    assert_eq!(open.next(0), Got::Rows((0..15).collect(), None));
    assert_eq!(open.next(0), Got::Rows(vec![], Some(9)));
    assert_eq!(open.next(0), Got::Rows(vec![15], None));
}

/// Other splits have their turn meanwhile.
#[test]
fn a_look_into_a_ring_ends_without_a_chunk() {
    let mut open = Open::new("shm", &[("segment", "4 KB"), ("segments", "512")]);
    let mut producer = open.producer("a");
    producer.send(&batch(0..20_000)).unwrap();
    assert_eq!(open.next(0), JOINED);
    assert_eq!(poll(&mut *open.splits[0]), Got::Nothing);
    let Got::Rows(rows, None) = open.next(0) else { panic!("no rows") };
    assert_eq!(rows.len(), 20_000);
}

/// A greeting of version 1, whose sender then does nothing.
const GREETING: &[u8] = include_bytes!("../../../../tests/golden/wire/ring-1.greeting");

#[test]
fn who_does_not_join_its_flow_has_not_been_there() {
    let mut open = Open::new("shm", &[("bounded", "true"), ("token", "s3cret")]);
    let mut stream = TcpStream::connect(&open.address).unwrap();
    stream.write_all(GREETING).unwrap();
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    let answers = String::from_utf8_lossy(&answers);
    assert!(answers.contains("welcome") && answers.contains("refused"), "{answers}");
    assert_eq!(poll(&mut *open.splits[0]), Got::Nothing);
    assert!(!open.splits[1].is_absent(), "a producer has to join");
    assert_eq!(notices(&mut *open.splits[0]), Vec::<String>::new());
}

#[test]
fn a_greeting_has_to_come_in_time() {
    let open = Open::new("shm", &[("token", "s3cret")]);
    let (mut stream, begin) = (TcpStream::connect(&open.address).unwrap(), Instant::now());
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    for byte in GREETING {
        let sent = stream.write_all(std::slice::from_ref(byte));
        let answer = stream.read(&mut [0]);
        if sent.is_err() || answer.is_ok() {
            break;
        }
    }
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "a byte at a time for {took:?}");
}

#[test]
fn a_slow_job_holds_its_producer_back() {
    let mut open = Open::new("shm", &[("segment", "4 KB"), ("segments", "4")]);
    let mut producer = open.producer("a");
    let sending = thread::spawn(move || {
        (0..200).for_each(|number| producer.send(&batch(number..number + 1000)).unwrap());
        producer
    });
    assert_eq!(open.next(0), JOINED);
    thread::sleep(Duration::from_millis(300));
    assert!(!sending.is_finished(), "200 batches of 20 KB are in 16 KB");
    let mut rows = 0;
    while rows < 200_000 {
        let Got::Rows(found, _) = open.next(0) else { panic!("after {rows} rows") };
        rows += found.len();
    }
    let producer = sending.join().unwrap();
    assert_eq!(finished(&mut open, producer).unwrap(), 200_000);
}

#[test]
fn options_of_rings_are_checked() {
    let error = |options: &[(&str, &str)]| table(options).unwrap_err().to_string();
    assert!(error(&[("segment", "64 KB")]).contains("Arrow Flight has no segments"));
    assert!(error(&[("transport", "pigeon")]).contains("'flight', 'tcp', 'shm' or 'rdma'"));
    assert!(error(&[("transport", "shm"), ("segment", "1 KB")]).contains("from 4 KB to 4 MB"));
}
