//! Checks of unreliable datagrams.

use super::ends::SIZES;
use super::{Bed, Check, Failure, Outcome, ensure, pattern, same, text};
use millstream_fabric::Error;
use millstream_fabric::{Access, Region};
use millstream_fabric::{
    Completion, DATAGRAM_HEADER_BYTES, Destination, Kind, Outgoing, QueueSizes, Receive, Source,
    Status,
};
use millstream_fabric::{CompletionQueue, Datagram, Fabric};

pub(super) fn checks<F: Fabric>() -> Vec<(&'static str, Check<F>)> {
    vec![
        ("a datagram arrives behind its header", arrives::<F>),
        ("datagrams can be answered", answered::<F>),
        ("a datagram without a receive is lost", without_receive::<F>),
        ("datagrams wait while their way is full", way_full::<F>),
        ("a full way holds up nobody else's datagrams", other_way::<F>),
        ("a datagram longer than the limit is refused", too_long::<F>),
        ("a datagram longer than the receive harms nothing", longer_than_receive::<F>),
    ]
}

pub(super) struct Side<F: Fabric> {
    pub(super) queue: F::CompletionQueue,
    pub(super) datagrams: F::Datagram,
    pub(super) memory: Region,
}

impl<F: Fabric> Side<F> {
    pub(super) fn new(device: &F) -> Result<Side<F>, Failure> {
        Side::with(device, SIZES)
    }

    fn with(device: &F, sizes: QueueSizes) -> Result<Side<F>, Failure> {
        let entries = sizes.send + sizes.receive;
        let queue = device.completion_queue(entries.max(64), None).map_err(text)?;
        let datagrams = device.datagram(&queue, &queue, sizes).map_err(text)?;
        let memory = device.allocate(64 * 1024, Access::LOCAL).map_err(text)?;
        Ok(Side { queue, datagrams, memory })
    }

    pub(super) fn receive(&mut self, id: u64, offset: usize, bytes: usize) -> Outcome {
        let buffer = Some(Destination { region: &self.memory, offset, bytes });
        self.datagrams.post_receive(&[Receive { id, buffer }]).map_err(text)
    }

    fn send(&mut self, to: &Side<F>, bytes: usize, immediate: Option<u32>) -> Outcome {
        let to = self.datagrams.resolve(&to.datagrams.endpoint()).map_err(text)?;
        let source = Source::Region { region: &self.memory, offset: 0, bytes };
        let request = Outgoing { id: 8, to: &to, source, immediate, signalled: true };
        self.datagrams.post(&[request]).map_err(text)
    }

    fn sent(&mut self, bed: &Bed<'_, F>) -> Outcome {
        let done = bed.completions(&mut self.queue, 1)?;
        let found = (done[0].id, done[0].status, done[0].kind);
        same("sender's completion", found, (8, Status::Success, Kind::Send))
    }
}

/// Sends until one arrives: the medium may lose some.
fn arrival<F: Fabric>(
    bed: &Bed<'_, F>,
    from: &mut Side<F>,
    to: &mut Side<F>,
    bytes: usize,
) -> Result<Completion, Failure> {
    for _ in 0..100 {
        from.send(to, bytes, Some(3))?;
        from.sent(bed)?;
        let mut one = [Completion::default()];
        for _ in 0..1000 {
            if to.queue.poll(&mut one).map_err(text)? == 1 {
                return Ok(one[0]);
            }
            (bed.idle)();
        }
    }
    Err("none of 100 datagrams arrived".into())
}

fn arrives<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let (mut a, mut b) = (Side::new(bed.a)?, Side::new(bed.b)?);
    let most = bed.a.limits().datagram_bytes;
    ensure(most >= 1024, || format!("the longest datagram has {most} bytes"))?;
    for (i, bytes) in [0, 1, 100, 1024].into_iter().enumerate() {
        let data = pattern(i as u64, bytes);
        a.memory.write(0, &data).map_err(text)?;
        b.receive(i as u64, 4096 * i, 2048)?;
        let done = arrival(bed, &mut a, &mut b, bytes)?;
        let found = (done.id, done.status, done.kind);
        same("completion", found, (i as u64, Status::Success, Kind::Receive))?;
        same("bytes", done.bytes as usize, DATAGRAM_HEADER_BYTES + bytes)?;
        same("immediate", done.immediate, Some(3))?;
        same("sender", done.source_queue_pair, a.datagrams.number())?;
        same("receiver", done.queue_pair, b.datagrams.number())?;
        let mut copy = vec![0; bytes];
        b.memory.read(4096 * i + DATAGRAM_HEADER_BYTES, &mut copy).map_err(text)?;
        ensure(copy == data, || format!("{bytes} bytes arrived damaged"))?;
    }
    Ok(())
}

fn answered<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let (mut a, mut b) = (Side::new(bed.a)?, Side::new(bed.b)?);
    b.receive(1, 0, 2048)?;
    arrival(bed, &mut a, &mut b, 10)?;
    a.receive(2, 8192, 2048)?;
    let done = arrival(bed, &mut b, &mut a, 20)?;
    same("completion", (done.id, done.bytes as usize), (2, DATAGRAM_HEADER_BYTES + 20))
}

fn without_receive<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let (mut a, mut b) = (Side::new(bed.a)?, Side::new(bed.b)?);
    a.send(&b, 100, None)?;
    a.sent(bed)?;
    bed.nothing(&mut b.queue)?;
    // And the pair goes on working.
    b.receive(1, 0, 2048)?;
    arrival(bed, &mut a, &mut b, 10).map(drop)
}

/// More datagrams than a socket holds, to a receiver with a receive for each that does not look.
fn way_full<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    const COUNT: usize = 60;
    let sizes = QueueSizes { send: COUNT as u32, receive: COUNT as u32 };
    let mut a = Side::with(bed.a, sizes)?;
    let mut b = Side::with(bed.b, sizes)?;
    for id in 0..COUNT {
        b.receive(id as u64, 1024 * id, 1024)?;
    }
    for number in 0..COUNT {
        a.send(&b, 8, Some(number as u32))?;
    }
    let mut arrived = Vec::new();
    let found = bed.until(|| {
        let mut some = [Completion::default(); 4];
        a.queue.poll(&mut some).map_err(text)?;
        let count = b.queue.poll(&mut some).map_err(text)?;
        arrived.extend(some[..count].iter().map(|done| done.immediate));
        Ok(arrived.len() == COUNT)
    })?;
    let expected: Vec<_> = (0..COUNT as u32).map(Some).collect();
    arrived.sort_unstable();
    ensure(found && arrived == expected, || format!("of {COUNT} these arrived: {arrived:?}"))
}

/// More datagrams than a socket holds, to a receiver that never looks, and one for another.
fn other_way<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    const COUNT: u32 = 60;
    let mut a = Side::with(bed.a, QueueSizes { send: 2 * COUNT + 100, receive: 1 })?;
    let (b, mut c) = (Side::new(bed.b)?, Side::new(bed.b)?);
    for _ in 0..COUNT {
        a.send(&b, 8, None)?;
    }
    c.receive(1, 0, 1024)?;
    arrival(bed, &mut a, &mut c, 8).map(drop)
}

fn too_long<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let (mut a, b) = (Side::new(bed.a)?, Side::new(bed.b)?);
    let bytes = bed.a.limits().datagram_bytes + 1;
    let to = a.datagrams.resolve(&b.datagrams.endpoint()).map_err(text)?;
    let source = Source::Region { region: &a.memory, offset: 0, bytes };
    let request = Outgoing { id: 8, to: &to, source, immediate: None, signalled: true };
    match a.datagrams.post(&[request]) {
        Err(rejected) => {
            ensure(matches!(rejected.reason, Error::Limit { .. }), || rejected.reason.to_string())
        }
        Ok(()) => Err("it was accepted".into()),
    }
}

fn longer_than_receive<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let (mut a, mut b) = (Side::new(bed.a)?, Side::new(bed.b)?);
    b.memory.write(0, &[0xee; 4096]).map_err(text)?;
    b.receive(1, 0, DATAGRAM_HEADER_BYTES + 10)?;
    a.send(&b, 500, None)?;
    a.sent(bed)?;
    for _ in 0..200 {
        (bed.idle)();
    }
    let mut copy = vec![0; 4096 - DATAGRAM_HEADER_BYTES - 10];
    b.memory.read(DATAGRAM_HEADER_BYTES + 10, &mut copy).map_err(text)?;
    ensure(copy.iter().all(|b| *b == 0xee), || "bytes beyond the receive changed".into())
}
