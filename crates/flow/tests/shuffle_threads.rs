//! Threads that share endpoints, and the operators, over shared memory.

mod common;

use common::{Chance, PATIENCE, Pattern, Shuffle as Nodes, patient, settings};
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_flow::shuffle::{
    Design, Error, Groups, Reader, Received, Shuffle, State, Transport,
};

const THREADS: usize = 3;
/// A row: node, thread, number, and what it should be.
const ROW_BYTES: usize = 16;

fn devices(count: usize) -> Vec<ShmDevice> {
    let token = Token::new([1; 32]);
    (0..count).map(|_| ShmDevice::open(token).unwrap()).collect()
}

fn row(node: usize, thread: usize, number: u32) -> [u8; ROW_BYTES] {
    let mut row = [0; ROW_BYTES];
    row[0] = node as u8;
    row[1] = thread as u8;
    row[4..8].copy_from_slice(&number.to_le_bytes());
    row[8..].copy_from_slice(&u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    row
}

/// Two nodes of three threads each: every thread writes rows to groups, and every thread reads.
/// Every row is read as often as its group has destinations, and rows of one thread that one thread
/// reads come in order where that is promised.
fn operators(design: Design, pattern: Pattern, rows: u32) {
    let nodes = Nodes::new(&devices(2), patient(settings(design, 3, 2)), THREADS).unwrap();
    let groups = Groups::multicast(pattern.groups(2), 2).unwrap();
    let ends = design.endpoints_of(THREADS);
    let each = THREADS / ends;
    let operators: Vec<Vec<_>> = nodes
        .senders
        .iter()
        .map(|all| {
            let new = |sender| Shuffle::new(sender, groups.clone(), each, PATIENCE).unwrap();
            all.iter().map(new).collect()
        })
        .collect();
    let read = std::thread::scope(|scope| {
        for (node, all) in operators.iter().enumerate() {
            for thread in 0..THREADS {
                let mut writer = all[thread % ends].writer().unwrap();
                scope.spawn(move || {
                    let mut chance = Chance((node * 10 + thread) as u64);
                    let groups = all[0].groups().len();
                    for number in 0..rows {
                        writer.push(chance.below(groups), &row(node, thread, number)).unwrap();
                    }
                    writer.finish().unwrap();
                });
            }
        }
        let mut readers = Vec::new();
        for all in &nodes.receivers {
            for thread in 0..THREADS {
                let mut reader = Reader::new(&all[thread % ends], PATIENCE);
                readers.push(scope.spawn(move || {
                    let (mut all, mut some) = (Vec::new(), Vec::new());
                    loop {
                        let more = reader.next(&mut some, 7 * ROW_BYTES).unwrap();
                        all.extend_from_slice(&some);
                        if !more {
                            return all;
                        }
                    }
                }));
            }
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    for receiver in nodes.receivers.iter().flatten() {
        receiver.finish(PATIENCE).unwrap();
    }
    check(design, pattern, rows, &read);
}

fn check(design: Design, pattern: Pattern, rows: u32, read: &[Vec<u8>]) {
    let groups = pattern.groups(2);
    for node in 0..2 {
        for thread in 0..THREADS {
            let mut chance = Chance((node * 10 + thread) as u64);
            let copies = (0..rows).map(|_| groups[chance.below(groups.len())].len());
            let copies: Vec<usize> = copies.collect();
            let mut found = vec![0; rows as usize];
            for all in read {
                let mut last = None;
                for one in all.chunks(ROW_BYTES) {
                    if (usize::from(one[0]), usize::from(one[1])) != (node, thread) {
                        continue;
                    }
                    let number = u32::from_le_bytes(one[4..8].try_into().unwrap());
                    assert_eq!(one, row(node, thread, number), "{design}: a row is damaged");
                    found[number as usize] += 1;
                    // Rows of two groups are in different buffers, so only one group is in order.
                    if design.is_ordered() && pattern == Pattern::Broadcast {
                        assert!(last < Some(number), "{design}: {last:?} before {number}");
                        last = Some(number);
                    }
                }
            }
            assert_eq!(found, copies, "{design} {pattern:?}");
        }
    }
}

#[test]
fn all_rows_come_once_whoever_reads_them() {
    for design in Design::VARIANTS {
        for pattern in Pattern::ALL {
            operators(design, pattern, 200);
        }
    }
}

#[test]
fn operators_refuse_what_would_wait_for_ever() {
    let design = "SEMQ/SR".parse().unwrap();
    let nodes = Nodes::new(&devices(2), settings(design, 1, 1), 2).unwrap();
    let sender = &nodes.senders[0][0];
    // 1 buffer for each of 2 peers and 2 threads.
    let five = Groups::multicast(vec![vec![0]; 5], 2).unwrap();
    let refused = Shuffle::new(sender, five, 1, PATIENCE).err();
    assert!(matches!(refused, Some(Error::Setting { value: Some(4), .. })), "{refused:?}");
    let shuffle = Shuffle::new(sender, Groups::repartition(2), 2, PATIENCE).unwrap();
    let mut writers = [shuffle.writer().unwrap(), shuffle.writer().unwrap()];
    assert!(matches!(shuffle.writer().err(), Some(Error::Setting { value: Some(3), .. })));
    let error = writers[0].push(0, &[0; 97]).unwrap_err();
    assert!(matches!(error, Error::TooLong { bytes: 97, max: 96 }), "{error}");
    writers[0].push(0, &[0; 96]).unwrap();
}

/// A sender that ends abruptly is an error behind what it had sent. What the receiver would have to
/// read from its memory is gone with it.
#[test]
fn what_arrived_before_an_abrupt_end_is_delivered() {
    for design in Design::VARIANTS {
        if matches!(design.transport, Transport::Read | Transport::Datagrams) {
            continue;
        }
        let mut nodes = Nodes::new(&devices(2), settings(design, 4, 2), 1).unwrap();
        let sender = nodes.senders[0].remove(0);
        for number in 0..4 {
            let buffer = sender.acquire(PATIENCE).unwrap();
            sender.put(buffer, number, &[1], State::MoreData).unwrap();
        }
        sender.flush(PATIENCE).unwrap();
        drop(sender);
        let receiver = &nodes.receivers[1][0];
        for number in 0..4 {
            let message = receiver.get(PATIENCE).unwrap().expect("a message");
            assert_eq!(message.len(), number, "{design}");
        }
        let error = receiver.get(PATIENCE).unwrap_err();
        assert!(matches!(error, Error::PeerLost { peer: 100, .. }), "{design}: {error}");
    }
}

/// A sender whose thread is away does not take its credit, of which there is more than a socket
/// holds. Another's goes by.
#[test]
fn a_sender_that_is_away_holds_up_no_other() {
    for name in ["MESQ/SR", "SESQ/SR"] {
        let design = name.parse().unwrap();
        let nodes = Nodes::new(&devices(2), patient(settings(design, 64, 1)), 1).unwrap();
        let (away, sender) = (&nodes.senders[0][0], &nodes.senders[1][0]);
        let receiver = &nodes.receivers[1][0];
        for _ in 0..60 {
            let buffer = away.acquire(PATIENCE).unwrap();
            away.put(buffer, 8, &[1], State::MoreData).unwrap();
            // The others' sockets are full as well if nobody looks.
            receiver.keep_alive().unwrap();
        }
        let begin = std::time::Instant::now();
        let (mut put, mut got) = (0, 0);
        while got < 60 + 200 {
            assert!(begin.elapsed() < PATIENCE, "{name}: {put} put, {got} got");
            if put < 200
                && let Some(buffer) = sender.try_acquire().unwrap()
            {
                sender.put(buffer, 8, &[1], State::MoreData).unwrap();
                put += 1;
            }
            sender.keep_alive().unwrap();
            if let Received::Message(message) = receiver.try_get().unwrap() {
                message.release().unwrap();
                got += 1;
            }
        }
    }
}

/// Time-outs are errors of one call, and change nothing.
#[test]
fn who_waits_too_long_may_try_again() {
    let design = "SEMQ/RD".parse().unwrap();
    let nodes = Nodes::new(&devices(1), settings(design, 1, 1), 1).unwrap();
    let (sender, receiver) = (&nodes.senders[0][0], &nodes.receivers[0][0]);
    let soon = std::time::Duration::from_millis(5);
    let error = receiver.get(soon).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    let buffer = sender.acquire(PATIENCE).unwrap();
    let error = sender.acquire(soon).err().expect("there is one buffer");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    sender.put(buffer, 3, &[0], State::MoreData).unwrap();
    let message = receiver.get(PATIENCE).unwrap().expect("a message");
    assert!(!sender.try_finish().unwrap(), "its buffer is being read");
    message.release().unwrap();
    std::thread::scope(|scope| {
        let ends = scope.spawn(|| sender.finish(PATIENCE));
        let last = receiver.get(PATIENCE).unwrap().expect("the last message");
        assert_eq!((last.len(), last.state()), (0, State::Depleted));
        drop(last);
        assert!(receiver.get(PATIENCE).unwrap().is_none());
        receiver.finish(PATIENCE).unwrap();
        ends.join().unwrap().unwrap();
    });
}
