//! Producers that link the library, over shared memory and over TCP.

use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use millstream_contract::Result;
use millstream_contract::table::{OpenOptions, Split, Table};
use millstream_ingest::{Producer, ProducerOptions};

use super::{Got, JOINED, batch, farewell, next, notices, poll, schema, table};

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
    open.splits.iter_mut().for_each(|split| assert!(!split.drain()));
    assert!((0..16).all(|slot| open.next(slot) == Got::Ended));
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
