//! Producers over Arrow Flight that end, are lost or are sent away.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::flight::{Open, messages};
use super::{Got, JOINED, batch};

#[test]
fn a_producer_that_is_lost_counts_no_more() {
    let mut open = Open::new(&[("producers", "2"), ("producers.max", "3")]);
    for name in ["a", "a-again"] {
        let lost = open.producer(name, messages("bids", vec![batch(0..1)]));
        assert_eq!((open.next(0), open.next(0)), (JOINED, Got::Rows(vec![0], None)));
        lost.answer.abort();
        assert!(open.farewell().contains("was lost after 1 record"));
        assert!(open.splits.iter().all(|split| !split.is_absent()), "b has not joined");
    }
    let both = ["a", "b"].map(|name| open.producer(name, messages("bids", vec![batch(0..1)])));
    assert_eq!((open.next(0), open.next(1)), (JOINED, JOINED));
    assert!(open.splits[2].is_absent());
    drop(both);
}

#[test]
fn a_bounded_table_that_has_ended_takes_no_producer() {
    let mut open = Open::new(&[("bounded", "true"), ("producers", "2")]);
    let both = [0, 1].map(|number| {
        let feeding = open.producer("a", messages("bids", vec![batch(number..number + 1)]));
        assert_eq!(open.next(number as usize), JOINED);
        assert_eq!(open.next(number as usize), Got::Rows(vec![number], None));
        feeding
    });
    both.into_iter().for_each(|feeding| assert_eq!(open.end(feeding).unwrap(), 1));
    assert_eq!(open.next(0), Got::Ended);
    // Slot 1 has not told its end yet.
    let late = open.producer("late", messages("bids", vec![batch(2..3)])[..1].to_vec());
    let status = open.end(late).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains("the table has ended"), "{status}");
    assert_eq!(open.next(1), Got::Ended);
}

#[test]
fn a_lost_producer_is_told_and_frees_its_slot() {
    let mut open = Open::new(&[]);
    let feeding = open.producer("a", messages("bids", vec![batch(0..2)]));
    assert_eq!((open.next(0), open.next(0)), (JOINED, Got::Rows(vec![0, 1], None)));
    // The connection breaks: the runtime with all its tasks goes.
    feeding.answer.abort();
    let farewell = open.farewell();
    assert!(farewell.contains("producer a (127.0.0.1:"), "{farewell}");
    assert!(farewell.ends_with("was lost after 2 records, which count"), "{farewell}");
    assert!(open.splits[0].is_absent());
}

#[test]
fn the_loss_of_a_producer_ends_a_bounded_table_with_an_error() {
    let mut open = Open::new(&[("bounded", "true")]);
    let feeding = open.producer("a", messages("bids", vec![batch(0..2)]));
    assert_eq!((open.next(0), open.next(0)), (JOINED, Got::Rows(vec![0, 1], None)));
    feeding.answer.abort();
    let until = Instant::now() + Duration::from_secs(20);
    let error = loop {
        match open.splits[3].poll_next(0, Waker::noop()) {
            Err(error) => break error.to_string(),
            Ok(_) => assert!(Instant::now() < until, "no error"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(error.contains("was lost after 2 records"), "{error}");
    assert!(error.contains("'on_loss' = 'notice'"), "{error}");
}

#[test]
fn a_damaged_batch_is_left_out_and_ends_the_stream_of_its_producer_alone() {
    let mut open = Open::new(&[]);
    let mut sent = messages("bids", vec![batch(0..1), batch(1..2)]);
    // A text that is no UTF-8: only decoding sees it.
    let body = sent[2].data_body.to_vec();
    let at = body.windows(4).position(|bytes| bytes == b"text").unwrap();
    let mut damaged = sent.remove(2);
    damaged.data_body = [&body[..at], &[0xff], &body[at + 1..]].concat().into();
    let good = open.producer("good", messages("bids", vec![batch(7..8)]));
    assert_eq!(open.next(0), JOINED);
    let bad = open.producer("bad", sent);
    assert_eq!((open.next(1), open.next(1)), (JOINED, Got::Rows(vec![0], None)));
    open.send(&bad, damaged);
    assert_eq!(open.next(1), Got::Rows(vec![], None));
    let status = open.end(bad).unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains("producer bad (127.0.0.1:"), "{status}");
    assert!(status.message().contains("batch 2"), "{status}");
    let notices = open.notices().join("\n");
    assert!(notices.contains("a batch is left out: channel bids, producer bad"), "{notices}");
    assert!(notices.contains("was sent away after 1 record, which count: "), "{notices}");
    assert_eq!(open.next(0), Got::Rows(vec![7], None));
    assert_eq!(open.end(good).unwrap(), 1);
}

/// Also if the stream has ended before the batch is decoded.
#[test]
fn a_damaged_last_batch_is_not_taken() {
    let mut open = Open::new(&[("bounded", "true")]);
    let mut sent = messages("bids", vec![batch(0..2), batch(2..5)]);
    let mut damaged = sent.remove(2);
    damaged.data_body = vec![0xff; damaged.data_body.len()].into();
    let feeding = open.producer("a", sent);
    assert_eq!((open.next(0), open.next(0)), (JOINED, Got::Rows(vec![0, 1], None)));
    open.send(&feeding, damaged);
    drop(feeding.sender);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!feeding.answer.is_finished());
    let decoded = open.chunk(0).unwrap().decode_reporting().unwrap();
    assert_eq!((decoded.batch.num_rows(), decoded.left_out), (0, 3));
    let status = open.answered(feeding.answer).unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    let failed = open.splits[1].poll_next(0, Waker::noop()).err().unwrap().to_string();
    assert!(failed.contains("was sent away after 2 records: "), "{failed}");
}

#[test]
fn a_producer_that_has_sent_a_damaged_batch_sends_no_more() {
    let mut open = Open::new(&[]);
    let mut sent = messages("bids", vec![batch(0..1)]);
    sent[1].data_body = vec![0xff; sent[1].data_body.len()].into();
    let bad = open.producer("bad", sent);
    assert_eq!((open.next(0), open.next(0)), (JOINED, Got::Rows(vec![], None)));
    // The next message finds it.
    let next = messages("bids", vec![batch(1..2)]).remove(1);
    let _ = open.runtime.block_on(bad.sender.send(next));
    let status = open.end(bad).unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(open.notices().join("\n").contains("was sent away"));
}
