//! Tests that a buffer belongs to its owner again after its completion, whichever thread does the
//! card's work at the time.

use super::frame::{Frame, FrameKind, GREETING_BYTES, HEADER_BYTES};
use super::reader::{Arriving, Brought, Memory, Reader};
use super::*;
use crate::contract::{CompletionQueue, Datagram, QueuePair};
use crate::setup::head;
use crate::work::{
    Completion, Destination, Operation, Outgoing, Receive, Source, Status, WorkRequest,
};

/// A device, a pair of it that is connected to a peer of the test's own, and the connection.
struct Bed {
    device: TcpDevice,
    queue: TcpQueue,
    pair: TcpPair,
    peer: TcpStream,
}

fn bed() -> Bed {
    let token = Token::new([4; 32]);
    let device = TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap();
    let queue = device.completion_queue(8, None).unwrap();
    let sizes = QueueSizes { send: 4, receive: 4 };
    let mut pair = device.queue_pair(&queue, &queue, sizes, Timing::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = encode(1, 1, listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut [0; GREETING_BYTES]).unwrap();
        let answer: [u8; HEAD_BYTES] = head(&token);
        peer.write_all(&answer).unwrap();
        peer
    });
    pair.connect(&endpoint).unwrap();
    Bed { device, queue, pair, peer: peer.join().unwrap() }
}

/// Waits until something holds.
fn until(mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it never happens");
        std::thread::yield_now();
    }
}

/// Somebody who has heard a greeting, and says it again, is told nothing and does no harm.
#[test]
fn a_copy_of_a_greeting_is_not_answered() {
    let Bed { device, pair, queue: _queue, peer: _open } = bed();
    let (address, to) = (device.address(), pair.number());
    let greeting = |device, to| Greeting { device, from: 1, to }.encode(&Token::new([4; 32]));
    let call = |greeting: &[u8]| {
        let mut caller = TcpStream::connect(address).unwrap();
        caller.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        caller.write_all(greeting).unwrap();
        let answered = caller.read_exact(&mut [0; HEAD_BYTES]).is_ok();
        (caller, answered)
    };
    let (mut peer, answered) = call(&greeting(1, to));
    assert!(answered);
    // The first frame says that its pair is connected.
    peer.read_exact(&mut [0; HEADER_BYTES]).unwrap();
    for copy in 0..3 {
        assert!(!call(&greeting(1, to)).1, "copy {copy}");
    }
    // Nor is who calls what is connected to another, or not there.
    assert!(!call(&greeting(2, to)).1);
    assert!(!call(&greeting(1, to + 1)).1);
    // The connection is as it was.
    peer.write_all(&Frame::new(FrameKind::Ping).encode()).unwrap();
    peer.read_exact(&mut [0; HEADER_BYTES]).unwrap();
    let shared = lock(&device.device().pairs).get(&to).and_then(Weak::upgrade).unwrap();
    assert!(!shared.is_failed());
}

#[test]
fn an_answer_that_is_late_leaves_the_memory_alone() {
    const BYTES: usize = 64 * 1024;
    let Bed { device, mut queue, mut pair, mut peer } = bed();
    let memory = device.allocate(BYTES, Access::LOCAL).unwrap();
    let into = Destination { region: &memory, offset: 0, bytes: BYTES };
    let from = crate::RemoteAddress { address: 0, key: 0 };
    let read = WorkRequest::new(Operation::Read { into, from });
    pair.post(&[read.signalled(1)]).unwrap();
    peer.read_exact(&mut [0; HEADER_BYTES]).unwrap();
    let header =
        Frame { bytes: BYTES as u32, address: 1, ..Frame::new(FrameKind::ReadData) }.encode();
    peer.write_all(&header).unwrap();
    peer.write_all(&[1; BYTES / 2]).unwrap();
    until(|| memory.word(BYTES / 2 - 8).load(Ordering::Relaxed) != 0);

    // The card stops in the middle of the answer, and the rest comes.
    let mut card = lock(&device.device().card);
    peer.write_all(&[2; BYTES / 2]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    pair.fail();
    let mut one = [Completion::default()];
    until(|| queue.poll(&mut one).unwrap() == 1);
    assert_eq!((one[0].id, one[0].status), (1, Status::Flushed));
    // The memory is ours again.
    memory.write(0, &[0; BYTES]).unwrap();
    card.turn(device.device());
    drop(card);
    let mut found = vec![9; BYTES];
    memory.read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
}

/// A failure in the middle of the card's turn, at each moment at which a receive is written.
#[test]
fn a_receive_that_was_flushed_is_not_written() {
    const BYTES: usize = 64;
    let device = TcpDevice::open(Token::new([4; 32]), "127.0.0.1:0".parse().unwrap()).unwrap();
    let queue = device.completion_queue(8, None).unwrap();
    let sizes = QueueSizes { send: 4, receive: 4 };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Before bytes that have come are copied, before the rest of them comes, and before the last 8
    // are released; and how many are there by then.
    for (came, expected_first, written) in
        [(BYTES, false, 0), (BYTES / 2, true, BYTES / 2), (BYTES, true, BYTES - 8)]
    {
        let mut pair = device.queue_pair(&queue, &queue, sizes, Timing::default()).unwrap();
        let shared = lock(&device.device().pairs).get(&pair.number()).and_then(Weak::upgrade);
        let memory = device.allocate(BYTES, Access::LOCAL).unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let frame = Frame { bytes: BYTES as u32, ..Frame::new(FrameKind::Send) };
        peer.write_all(&[&frame.encode()[..], &vec![1; came]].concat()).unwrap();

        let mut reader = Reader::new();
        let mut got = 0;
        until(|| {
            if let Brought::Bytes { got: more, .. } = reader.read(&socket) {
                got += more;
            }
            got == HEADER_BYTES + came
        });
        assert_eq!(reader.take_header(), Some(Some(frame)));
        let place = Memory::Posted(shared.unwrap(), memory.clone(), 0);
        let arriving = Arriving::new(place, BYTES);
        if expected_first {
            reader.expect(arriving);
            pair.fail();
        } else {
            pair.fail();
            reader.expect(arriving);
        }
        peer.write_all(&vec![1; BYTES - came]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!reader.message_complete());
        assert!(matches!(reader.read(&socket), Brought::End));
        let mut found = [9; BYTES];
        memory.read(0, &mut found).unwrap();
        assert_eq!(found.iter().filter(|byte| **byte != 0).count(), written);
    }
}

/// A member of group 3 with so many receives, and its queue.
fn member(device: &TcpDevice, receives: usize) -> (TcpQueue, TcpDatagram, Region) {
    let queue = device.completion_queue(64, None).unwrap();
    let sizes = QueueSizes { send: 4, receive: 32 };
    let mut datagrams = device.datagram(&queue, &queue, sizes).unwrap();
    let memory = device.allocate(8192, Access::LOCAL).unwrap();
    let buffer = Some(Destination { region: &memory, offset: 0, bytes: 8192 });
    datagrams.join(Group::new(3)).unwrap();
    datagrams.post_receive(&vec![Receive { id: 1, buffer }; receives]).unwrap();
    (queue, datagrams, memory)
}

/// Any program of the host can send to a group's address.
#[test]
fn a_group_hears_nothing_without_the_token() {
    let token = Token::new([4; 32]);
    let device = TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (mut queue, _datagrams, memory) = member(&device, 32);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    multicast::send_from(&stranger, Ipv4Addr::LOCALHOST).unwrap();
    let to = Group::new(3).address(&token);
    let whole = [&token.bytes()[..], &[7, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0], b"grist"].concat();
    let mut wrong = whole.clone();
    wrong[31] ^= 1;
    let too_long = [&whole[..], &[0; 5000]].concat();
    for bytes in [&[][..], &[0; 3], &whole[..31], &whole[..43], &wrong, &[0xff; 500], &too_long] {
        stranger.send_to(bytes, to).unwrap();
    }
    stranger.send_to(&whole, to).unwrap();
    let mut some = [Completion::default(); 16];
    let mut count = 0;
    until(|| {
        count += queue.poll(&mut some[count..]).unwrap();
        count > 0
    });
    // The last datagram came behind all others.
    assert_eq!((count, some[0].immediate, some[0].source_queue_pair), (1, Some(9), 7));
    let mut bytes = [0; 5];
    memory.read(crate::DATAGRAM_HEADER_BYTES, &mut bytes).unwrap();
    assert_eq!(&bytes, b"grist");
}

/// A member that hears a lot from a group still hears its own address, and the other way round.
#[test]
fn no_socket_of_a_member_starves() {
    let token = Token::new([8; 32]);
    let device = TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (mut queue, mut datagrams, _memory) = member(&device, 20);
    let own = datagrams.resolve(&datagrams.endpoint()).unwrap();
    let group = datagrams.resolve_group(Group::new(3)).unwrap();
    // Each poll takes one datagram; both kinds wait all the time.
    let mut heard = [0; 2];
    for to in [&own, &group] {
        for _ in 0..4 {
            let source = Source::Inline(&[1]);
            let immediate = Some(u32::from(std::ptr::eq(to, &raw const group)));
            let datagram = Outgoing { id: 1, to, source, immediate, signalled: true };
            datagrams.post(&[datagram]).unwrap();
            queue.poll(&mut [Completion::default()]).unwrap();
        }
    }
    let mut one = [Completion::default()];
    for _ in 0..4 {
        until(|| queue.poll(&mut one).unwrap() == 1);
        heard[one[0].immediate.unwrap() as usize] += 1;
    }
    assert_eq!(heard, [2, 2]);
}

#[test]
fn groups_need_an_ipv4_address() {
    let error = multicast::interface("[::1]:1".parse().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert!(error.to_string().contains("IPv4"), "{error}");
}
