//! Checks of failures: wrong keys, ranges and rights, lost peers, full queues.

use std::time::Duration;

use super::ends::{Ends, MEMORY_BYTES, SIZES, into, receive};
use super::{Bed, Check, Outcome, ensure, same, text};
use millstream_fabric::Error;
use millstream_fabric::{Access, RemoteAddress};
use millstream_fabric::{
    Completion, Destination, Operation, Receive, Source, Status, Timing, WorkRequest,
};
use millstream_fabric::{CompletionQueue, Fabric, QueuePair, State};
use millstream_fabric::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};

pub(super) fn checks<F: Fabric>() -> Vec<(&'static str, Check<F>)> {
    vec![
        ("work before connecting is refused", not_connected::<F>),
        ("a pair connects once", connects_once::<F>),
        ("an impossible endpoint is refused", bad_endpoint::<F>),
        ("a queue without events cannot be armed", arms_nothing::<F>),
        ("ranges outside of a local region are refused", local_bounds::<F>),
        ("too much inline is refused", inline_limit::<F>),
        ("an unaligned atomic is refused", unaligned::<F>),
        ("regions of other devices are refused", foreign_region::<F>),
        ("a wrong key fails the connection, and the rest is flushed", wrong_key::<F>),
        ("a write beyond the peer's region fails", out_of_bounds::<F>),
        ("a write to a closed region fails", no_access::<F>),
        ("a read of a closed region fails", no_read_access::<F>),
        ("a write to a region that is gone fails", region_gone::<F>),
        ("a send longer than the receive fails", send_too_long::<F>),
        ("no receive in time fails the sender", receiver_not_ready::<F>),
        ("failing flushes receives", fail_flushes::<F>),
        ("a failed pair refuses work", failed_refuses::<F>),
        ("a peer that is gone is noticed", peer_gone::<F>),
        ("a completion queue that overflows says so", overflow::<F>),
        ("nobody else is hurt by a failure", isolation::<F>),
    ]
}

/// A signalled write of 8 bytes.
fn write(to: RemoteAddress, id: u64) -> WorkRequest<'static> {
    WorkRequest::write(Source::Inline(b"8 bytes."), to).signalled(id)
}

fn refused(result: Result<(), millstream_fabric::Rejected>) -> Result<Error, String> {
    match result {
        Ok(()) => Err("it was accepted".into()),
        Err(rejected) if rejected.posted == 0 => Ok(rejected.reason),
        Err(rejected) => Err(format!("{} were posted", rejected.posted)),
    }
}

fn arms_nothing<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut queue = bed.a.completion_queue(4, None).map_err(text)?;
    let result = queue.arm();
    ensure(matches!(result, Err(Error::Unsupported { .. })), || format!("{result:?}"))
}

fn not_connected<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::unconnected(bed, SIZES, 64, Timing::default())?;
    same("state", ends.a.state(), State::Fresh)?;
    let to = ends.remote.remote().at(0, 8).map_err(text)?;
    let error = refused(ends.a.post(&[write(to, 1)]))?;
    ensure(matches!(error, Error::NotConnected), || error.to_string())?;
    ends.b.post_receive(&[Receive { id: 1, buffer: None }]).map_err(text)?;
    ends.connect()?;
    same("state", ends.a.state(), State::Connected)
}

fn connects_once<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    match ends.a.connect(&ends.b.endpoint()) {
        Err(Error::AlreadyConnected) => Ok(()),
        other => Err(format!("connecting twice: {other:?}")),
    }
}

fn bad_endpoint<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::unconnected(bed, SIZES, 64, Timing::default())?;
    let other = match bed.a.provider() {
        Provider::Sim => Provider::Shm,
        _ => Provider::Sim,
    };
    let endpoint = Endpoint { provider: other, detail: [0xff; ENDPOINT_DETAIL_BYTES] };
    match ends.a.connect(&endpoint) {
        Err(Error::BadEndpoint { .. }) => Ok(()),
        other => Err(format!("another provider's endpoint: {other:?}")),
    }
}

fn local_bounds<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let to = ends.remote.remote().at(0, 8).map_err(text)?;
    for (offset, bytes) in [(MEMORY_BYTES, 1), (MEMORY_BYTES - 7, 8), (usize::MAX, 8)] {
        let source = Source::Region { region: &ends.local, offset, bytes };
        let error = refused(ends.a.post(&[WorkRequest::write(source, to)]))?;
        ensure(matches!(error, Error::OutOfBounds { .. }), || error.to_string())?;
        let into = Destination { region: &ends.local, offset, bytes };
        let read = WorkRequest::new(Operation::Read { into, from: to });
        let error = refused(ends.a.post(&[read]))?;
        ensure(matches!(error, Error::OutOfBounds { .. }), || error.to_string())?;
        let error = refused(ends.a.post_receive(&[Receive { id: 1, buffer: Some(into) }]))?;
        ensure(matches!(error, Error::OutOfBounds { .. }), || error.to_string())?;
    }
    let error = ends.remote.remote().at(1, MEMORY_BYTES as u64).err();
    ensure(matches!(error, Some(Error::OutOfBounds { .. })), || format!("{error:?}"))
}

fn inline_limit<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let bytes = bed.a.limits().inline_bytes + 1;
    let to = ends.remote.remote().at(0, bytes as u64).map_err(text)?;
    let data = vec![1; bytes];
    let error = refused(ends.a.post(&[WorkRequest::write(Source::Inline(&data), to)]))?;
    ensure(matches!(error, Error::Limit { .. }), || error.to_string())
}

fn unaligned<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let at = ends.remote.remote().at(4, 8).map_err(text)?;
    let operation = Operation::FetchAdd { into: into(&ends.local, 0, 8), at, add: 1 };
    let error = refused(ends.a.post(&[WorkRequest::new(operation)]))?;
    ensure(matches!(error, Error::Unaligned { .. }), || error.to_string())
}

fn foreign_region<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    if ends.local.device() == ends.remote.device() {
        return Ok(());
    }
    let to = ends.remote.remote().at(0, 8).map_err(text)?;
    let source = Source::Region { region: &ends.remote, offset: 0, bytes: 8 };
    let error = refused(ends.a.post(&[WorkRequest::write(source, to)]))?;
    ensure(matches!(error, Error::ForeignObject { .. }), || error.to_string())
}

/// Posts a bad request between good ones and expects it to fail with `status`.
fn fails_with<F: Fabric>(
    bed: &Bed<'_, F>,
    bad: impl Fn(&Ends<F>) -> Result<RemoteAddress, String>,
    status: Status,
) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let before = ends.remote.remote().at(0, 8).map_err(text)?;
    let after = ends.remote.remote().at(8, 8).map_err(text)?;
    let to = bad(&ends)?;
    let list = [write(before, 1), write(to, 2), write(after, 3)];
    post_around_failure(&mut ends.a, &list)?;
    let done = completions_or_less(bed, &mut ends.a_queue, 2)?;
    same("first", (done[0].id, done[0].status), (1, Status::Success))?;
    same("second", (done[1].id, done[1].status), (2, status))?;
    let mut bytes = [0; 16];
    ends.remote.read(0, &mut bytes).map_err(text)?;
    same("bytes", &bytes[..], &b"8 bytes.\0\0\0\0\0\0\0\0"[..])?;
    same("state", ends.a.state(), State::Failed)
}

/// Posts a list in which some request fails at the peer: a provider that works at once may know
/// before the end of the list.
fn post_around_failure<Q: QueuePair>(pair: &mut Q, list: &[WorkRequest<'_>]) -> Outcome {
    match pair.post(list) {
        Ok(()) => Ok(()),
        Err(rejected) if matches!(rejected.reason, Error::Failed) => Ok(()),
        Err(rejected) => Err(rejected.reason.to_string()),
    }
}

/// The first `count` completions; later completions have to be flushed.
fn completions_or_less<F: Fabric>(
    bed: &Bed<'_, F>,
    queue: &mut F::CompletionQueue,
    count: usize,
) -> Result<Vec<Completion>, String> {
    let done = bed.completions(queue, count)?;
    let mut one = [Completion::default()];
    for _ in 0..100 {
        if queue.poll(&mut one).map_err(text)? == 1 {
            same("status of the rest", one[0].status, Status::Flushed)?;
        }
        (bed.idle)();
    }
    Ok(done)
}

fn wrong_key<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let wrong = |ends: &Ends<F>| {
        let right = ends.remote.remote().at(64, 8).map_err(text)?;
        Ok(RemoteAddress { key: right.key ^ 0x5a5a_5a00, ..right })
    };
    fails_with(bed, wrong, Status::RemoteAccess)
}

fn out_of_bounds<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    for offset in [MEMORY_BYTES as u64, MEMORY_BYTES as u64 - 7, 1 << 40, u64::MAX / 2] {
        let outside = |ends: &Ends<F>| {
            let start = ends.remote.remote().at(0, 8).map_err(text)?;
            Ok(RemoteAddress { address: start.address.wrapping_add(offset), ..start })
        };
        fails_with(bed, outside, Status::RemoteAccess)?;
    }
    let below = |ends: &Ends<F>| {
        let start = ends.remote.remote().at(0, 8).map_err(text)?;
        Ok(RemoteAddress { address: start.address - 8, ..start })
    };
    fails_with(bed, below, Status::RemoteAccess)
}

fn no_access<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let access = Access { remote_read: true, ..Access::LOCAL };
    let closed = bed.b.allocate(4096, access).map_err(text)?;
    let to = closed.remote().at(0, 8).map_err(text)?;
    fails_with(bed, |_| Ok(to), Status::RemoteAccess)?;
    let mut bytes = [1; 8];
    closed.read(0, &mut bytes).map_err(text)?;
    same("bytes", bytes, [0; 8])
}

fn no_read_access<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let closed = bed.b.allocate(4096, Access::REMOTE_WRITE).map_err(text)?;
    let from = closed.remote().at(0, 8).map_err(text)?;
    let mut ends = Ends::new(bed)?;
    let read = WorkRequest::new(Operation::Read { into: into(&ends.local, 0, 8), from });
    ends.a.post(&[read.signalled(1)]).map_err(text)?;
    let done = bed.completions(&mut ends.a_queue, 1)?;
    same("read", (done[0].id, done[0].status), (1, Status::RemoteAccess))
}

fn region_gone<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let region = bed.b.allocate(4096, Access::REMOTE_ALL).map_err(text)?;
    let to = region.remote().at(0, 8).map_err(text)?;
    // The region is used before it is dropped, so that a cached look-up would show.
    let mut ends = Ends::new(bed)?;
    ends.a.post(&[write(to, 1)]).map_err(text)?;
    let done = bed.completions(&mut ends.a_queue, 1)?;
    same("before", done[0].status, Status::Success)?;
    drop(region);
    ends.a.post(&[write(to, 2)]).map_err(text)?;
    let done = bed.completions(&mut ends.a_queue, 1)?;
    same("after", (done[0].id, done[0].status), (2, Status::RemoteAccess))
}

fn send_too_long<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    ends.b.post_receive(&[receive(&ends.remote, 9, 0, 4)]).map_err(text)?;
    let send = Operation::Send { source: Source::Inline(b"longer"), immediate: None };
    ends.a.post(&[WorkRequest::new(send).signalled(1)]).map_err(text)?;
    let done = bed.completions(&mut ends.a_queue, 1)?;
    same("sender", (done[0].id, done[0].status), (1, Status::InvalidRequest))?;
    let done = bed.completions(&mut ends.b_queue, 1)?;
    same("receiver", (done[0].id, done[0].status), (9, Status::Length))?;
    let mut bytes = [0; 8];
    ends.remote.read(0, &mut bytes).map_err(text)?;
    same("bytes beyond the receive", &bytes[4..], &[0; 4][..])
}

fn receiver_not_ready<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let timing =
        Timing { receiver_not_ready: Some(Duration::from_millis(20)), ..Timing::default() };
    let mut ends = Ends::with(bed, SIZES, 64, timing)?;
    let to = ends.remote.remote().at(0, 0).map_err(text)?;
    let request = WorkRequest::write_immediate(Source::Inline(b""), to, 1);
    ends.a.post(&[request.signalled(1), request.signalled(2)]).map_err(text)?;
    let done = bed.completions(&mut ends.a_queue, 2)?;
    same("first", (done[0].id, done[0].status), (1, Status::ReceiverNotReady))?;
    same("second", (done[1].id, done[1].status), (2, Status::Flushed))
}

fn fail_flushes<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    ends.b
        .post_receive(&[receive(&ends.remote, 1, 0, 8), receive(&ends.remote, 2, 8, 8)])
        .map_err(text)?;
    ends.b.fail();
    let done = bed.completions(&mut ends.b_queue, 2)?;
    let found: Vec<_> = done.iter().map(|c| (c.id, c.status)).collect();
    same("receives", found, vec![(1, Status::Flushed), (2, Status::Flushed)])?;
    same("state", ends.b.state(), State::Failed)
}

fn failed_refuses<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    ends.a.fail();
    let to = ends.remote.remote().at(0, 8).map_err(text)?;
    // Verbs accept work for a failed pair and flush it; refusing it at once is as good.
    match ends.a.post(&[write(to, 1)]) {
        Err(rejected) => {
            ensure(matches!(rejected.reason, Error::Failed), || rejected.reason.to_string())
        }
        Ok(()) => {
            let done = bed.completions(&mut ends.a_queue, 1)?;
            same("status", done[0].status, Status::Flushed)
        }
    }
}

fn peer_gone<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let timing = Timing { silence: Duration::from_millis(200), ..Timing::default() };
    let ends = Ends::with(bed, SIZES, 64, timing)?;
    let Ends { mut a, mut a_queue, b, remote, .. } = ends;
    let to = remote.remote().at(0, 8).map_err(text)?;
    drop(b);
    match a.post(&[write(to, 1)]) {
        Err(rejected) => {
            ensure(matches!(rejected.reason, Error::Failed), || rejected.reason.to_string())?;
        }
        Ok(()) => {
            let done = bed.completions(&mut a_queue, 1)?;
            same("write", (done[0].id, done[0].status), (1, Status::PeerLost))?;
        }
    }
    same("state", a.state(), State::Failed)
}

fn overflow<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::with(bed, SIZES, 1, Timing::default())?;
    let mut posted = 0;
    // Far more than one entry, however a provider rounds.
    let found = bed.until(|| {
        for _ in 0..4 {
            let to = ends.remote.remote().at(8 * posted, 8).map_err(text)?;
            match ends.a.post(&[write(to, posted)]) {
                Ok(()) => posted += 1,
                Err(rejected) if matches!(rejected.reason, Error::QueueFull) => {}
                Err(rejected) if matches!(rejected.reason, Error::Failed) => {}
                Err(rejected) => return Err(rejected.reason.to_string()),
            }
        }
        Ok(posted >= 16 || ends.a.state() == State::Failed)
    })?;
    ensure(found, || format!("only {posted} requests were taken"))?;
    // Polling meanwhile might keep the queue from overflowing.
    let last = 8 * posted.saturating_sub(1) as usize;
    bed.until(|| {
        let mut bytes = [0; 8];
        ends.remote.read(last, &mut bytes).map_err(text)?;
        Ok(bytes != [0; 8] || ends.a.state() == State::Failed)
    })?;
    let mut one = [Completion::default(); 4];
    let found = bed.until(|| match ends.a_queue.poll(&mut one) {
        Ok(_) => Ok(false),
        Err(Error::CompletionOverflow) => Ok(true),
        Err(error) => Err(error.to_string()),
    })?;
    ensure(found, || "nobody noticed".into())
}

fn isolation<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let (mut good, mut bad) = (Ends::new(bed)?, Ends::new(bed)?);
    let right = bad.remote.remote().at(0, 8).map_err(text)?;
    bad.a.post(&[write(RemoteAddress { key: !right.key, ..right }, 1)]).map_err(text)?;
    let done = bed.completions(&mut bad.a_queue, 1)?;
    same("bad", done[0].status, Status::RemoteAccess)?;
    let to = good.remote.remote().at(0, 8).map_err(text)?;
    good.a.post(&[write(to, 2)]).map_err(text)?;
    let done = bed.completions(&mut good.a_queue, 1)?;
    same("good", (done[0].id, done[0].status), (2, Status::Success))
}
