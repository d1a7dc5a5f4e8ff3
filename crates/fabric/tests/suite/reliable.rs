//! Checks of a reliable connection when nothing fails.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ends::{Ends, SIZES, into, receive, source};
use super::{Bed, Check, Failure, Outcome, ensure, pattern, same, text};
use millstream_fabric::{Access, Region, RemoteAddress};
use millstream_fabric::{
    Completion, Kind, Operation, QueueSizes, Receive, Source, Status, Timing, WorkRequest,
};
use millstream_fabric::{CompletionQueue, Events, Fabric, QueuePair, State};

pub(super) fn checks<F: Fabric>() -> Vec<(&'static str, Check<F>)> {
    vec![
        ("a write lands where it should and nowhere else", write_lands::<F>),
        ("only signalled work completes, in order", selective_signalling::<F>),
        ("a later write is not visible before an earlier one", writes_in_order::<F>),
        ("a write of 1 MiB arrives", large_write::<F>),
        ("an empty write completes", empty_write::<F>),
        ("inline bytes are free when posted", inline::<F>),
        ("a write's immediate value completes a receive", write_immediate::<F>),
        ("a read brings the peer's bytes", read::<F>),
        ("a send fills the next receive", send::<F>),
        ("a send waits for a receive", send_waits::<F>),
        ("a write behind one that waits for a receive waits too", waits_behind::<F>),
        ("fetch-and-add returns the old value", fetch_add::<F>),
        ("compare-and-swap swaps only what it expected", compare_swap::<F>),
        ("operations of all kinds keep their order", mixed_order::<F>),
        ("both sides send at once", both_ways::<F>),
        ("many queue pairs share a completion queue", shared_queue::<F>),
        ("a full send queue refuses, and is free after polling", full_send_queue::<F>),
        ("a window is the peer's memory", window::<F>),
        ("registered memory of the program is a source", registered_source::<F>),
        ("a completion wakes who waits", wait_wakes::<F>),
        ("waiting ends when its time is over", wait_ends::<F>),
        ("the queues can be used for long", many_rounds::<F>),
    ]
}

fn bytes_of(region: &Region, offset: usize, bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut copy = vec![0; bytes];
    region.read(offset, &mut copy).map_err(text)?;
    Ok(copy)
}

fn good(completion: &Completion, id: u64, kind: Kind) -> Outcome {
    let found = (completion.id, completion.status, completion.kind);
    same("completion", found, (id, Status::Success, kind))
}

fn write_lands<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    for (i, bytes) in [1, 7, 8, 9, 63, 64, 100, 4096, 5000, 65536].into_iter().enumerate() {
        let data = pattern(i as u64, bytes);
        ends.local.write(24, &data).map_err(text)?;
        ends.remote.write(0, &vec![0xee; bytes + 128]).map_err(text)?;
        let to = ends.remote.remote().at(61, bytes as u64).map_err(text)?;
        let request =
            WorkRequest::write(Source::Region { region: &ends.local, offset: 24, bytes }, to);
        ends.a.post(&[request.signalled(77)]).map_err(text)?;
        let done = bed.completions(&mut ends.a_queue, 1)?;
        good(&done[0], 77, Kind::Write)?;
        same("queue pair", done[0].queue_pair, ends.a.number())?;
        let landed = bytes_of(&ends.remote, 0, bytes + 128)?;
        ensure(landed[61..61 + bytes] == data, || format!("{bytes} bytes landed wrongly"))?;
        let around = landed[..61].iter().chain(&landed[61 + bytes..]);
        ensure(around.into_iter().all(|b| *b == 0xee), || "bytes around it changed".into())?;
    }
    bed.nothing(&mut ends.b_queue)
}

fn selective_signalling<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let list: Vec<WorkRequest<'_>> = (0..12)
        .map(|i| {
            let to = ends.remote.remote().at(i * 8, 8).expect("inside");
            let request = WorkRequest::write(source(&ends.local, 0, 8), to);
            if i % 4 == 3 { request.signalled(i) } else { WorkRequest { id: i, ..request } }
        })
        .collect();
    ends.a.post(&list).map_err(text)?;
    let done = bed.completions(&mut ends.a_queue, 3)?;
    same("ids", done.iter().map(|c| c.id).collect::<Vec<_>>(), vec![3, 7, 11])?;
    bed.nothing(&mut ends.a_queue)
}

fn writes_in_order<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    // A payload and, at a lower address, a flag: whoever sees the flag has to see the payload.
    let bytes = 4096;
    for round in 1..200_u64 {
        let data = pattern(round, bytes);
        ends.local.write(0, &data).map_err(text)?;
        let remote = ends.remote.remote();
        let payload = remote.at(64, bytes as u64).map_err(text)?;
        let flag = remote.at(0, 8).map_err(text)?;
        let value = round.to_ne_bytes();
        ends.a
            .post(&[
                WorkRequest::write(source(&ends.local, 0, bytes), payload),
                WorkRequest::write(Source::Inline(&value), flag).signalled(round),
            ])
            .map_err(text)?;
        let word = ends.remote.word(0);
        let seen = bed.until(|| Ok(word.load(std::sync::atomic::Ordering::Acquire) == round))?;
        ensure(seen, || "the flag never came".into())?;
        ensure(bytes_of(&ends.remote, 64, bytes)? == data, || {
            format!("round {round}: the flag was there before the payload")
        })?;
        good(&bed.completions(&mut ends.a_queue, 1)?[0], round, Kind::Write)?;
    }
    Ok(())
}

fn large_write<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let bytes = 1 << 20;
    let source = bed.a.allocate(bytes, Access::LOCAL).map_err(text)?;
    let target = bed.b.allocate(bytes, Access::REMOTE_WRITE).map_err(text)?;
    let data = pattern(5, bytes);
    source.write(0, &data).map_err(text)?;
    let to = target.remote().at(0, bytes as u64).map_err(text)?;
    let from = Source::Region { region: &source, offset: 0, bytes };
    ends.a.post(&[WorkRequest::write(from, to).signalled(1)]).map_err(text)?;
    good(&bed.completions(&mut ends.a_queue, 1)?[0], 1, Kind::Write)?;
    ensure(bytes_of(&target, 0, bytes)? == data, || "the bytes differ".into())
}

fn empty_write<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let to = ends.remote.remote().at(0, 0).map_err(text)?;
    ends.a.post(&[WorkRequest::write(source(&ends.local, 0, 0), to).signalled(4)]).map_err(text)?;
    good(&bed.completions(&mut ends.a_queue, 1)?[0], 4, Kind::Write)
}

fn inline<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let bytes = bed.a.limits().inline_bytes;
    ensure(bytes >= 16, || format!("only {bytes} bytes inline"))?;
    let to = ends.remote.remote().at(8, bytes as u64).map_err(text)?;
    let data = pattern(3, bytes);
    let mut scratch = data.clone();
    ends.a.post(&[WorkRequest::write(Source::Inline(&scratch), to).signalled(1)]).map_err(text)?;
    scratch.fill(0);
    good(&bed.completions(&mut ends.a_queue, 1)?[0], 1, Kind::Write)?;
    ensure(bytes_of(&ends.remote, 8, bytes)? == data, || "the bytes differ".into())
}

fn write_immediate<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    ends.b
        .post_receive(&[Receive { id: 31, buffer: None }, Receive { id: 32, buffer: None }])
        .map_err(text)?;
    let data = pattern(8, 3000);
    ends.local.write(0, &data).map_err(text)?;
    let remote = ends.remote.remote();
    let plain = remote.at(8000, 3000).map_err(text)?;
    let to = remote.at(100, 3000).map_err(text)?;
    ends.a
        .post(&[
            WorkRequest::write(source(&ends.local, 0, 3000), plain),
            WorkRequest::write_immediate(source(&ends.local, 0, 3000), to, 0xdead_beef)
                .signalled(1),
            WorkRequest::write_immediate(source(&ends.local, 0, 0), to, 0).signalled(2),
        ])
        .map_err(text)?;
    let arrived = bed.completions(&mut ends.b_queue, 2)?;
    ensure(bytes_of(&ends.remote, 100, 3000)? == data, || "the bytes are not there".into())?;
    ensure(bytes_of(&ends.remote, 8000, 3000)? == data, || {
        "an earlier write's bytes are not there".into()
    })?;
    good(&arrived[0], 31, Kind::ReceiveWrite)?;
    same("immediate", arrived[0].immediate, Some(0xdead_beef))?;
    same("bytes", arrived[0].bytes, 3000)?;
    same("queue pair", arrived[0].queue_pair, ends.b.number())?;
    good(&arrived[1], 32, Kind::ReceiveWrite)?;
    same("immediate", arrived[1].immediate, Some(0))?;
    let sent = bed.completions(&mut ends.a_queue, 2)?;
    good(&sent[0], 1, Kind::Write)?;
    good(&sent[1], 2, Kind::Write)
}

fn read<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    for bytes in [1, 8, 1000, 65536] {
        let data = pattern(bytes as u64, bytes);
        ends.remote.write(40, &data).map_err(text)?;
        let from = ends.remote.remote().at(40, bytes as u64).map_err(text)?;
        let request =
            WorkRequest::new(Operation::Read { into: into(&ends.local, 16, bytes), from });
        ends.a.post(&[request.signalled(6)]).map_err(text)?;
        good(&bed.completions(&mut ends.a_queue, 1)?[0], 6, Kind::Read)?;
        ensure(bytes_of(&ends.local, 16, bytes)? == data, || {
            format!("{bytes} bytes were read wrongly")
        })?;
    }
    Ok(())
}

fn send<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    ends.b
        .post_receive(&[
            receive(&ends.remote, 1, 0, 1000),
            receive(&ends.remote, 2, 1000, 1000),
            Receive { id: 3, buffer: None },
        ])
        .map_err(text)?;
    let data = pattern(2, 1000);
    ends.local.write(0, &data).map_err(text)?;
    let send = |bytes, immediate| {
        WorkRequest::new(Operation::Send { source: source(&ends.local, 0, bytes), immediate })
    };
    let list =
        [send(1000, None), send(10, Some(9)), send(0, None)].map(|request| request.signalled(5));
    ends.a.post(&list).map_err(text)?;
    let arrived = bed.completions(&mut ends.b_queue, 3)?;
    for (completion, (id, bytes, immediate)) in
        arrived.iter().zip([(1, 1000, None), (2, 10, Some(9)), (3, 0, None)])
    {
        good(completion, id, Kind::Receive)?;
        same("bytes", completion.bytes, bytes)?;
        same("immediate", completion.immediate, immediate)?;
    }
    ensure(bytes_of(&ends.remote, 0, 1000)? == data, || "the first send's bytes differ".into())?;
    ensure(bytes_of(&ends.remote, 1000, 10)? == data[..10], || {
        "the second send's bytes differ".into()
    })?;
    for completion in bed.completions(&mut ends.a_queue, 3)? {
        good(&completion, 5, Kind::Send)?;
    }
    Ok(())
}

fn send_waits<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let send = Operation::Send { source: Source::Inline(b"late"), immediate: None };
    ends.a.post(&[WorkRequest::new(send).signalled(1)]).map_err(text)?;
    bed.nothing(&mut ends.a_queue)?;
    ends.b.post_receive(&[receive(&ends.remote, 2, 0, 64)]).map_err(text)?;
    // The sender's card tries again; in some providers only while the sender polls.
    good(&bed.completions(&mut ends.a_queue, 1)?[0], 1, Kind::Send)?;
    good(&bed.completions(&mut ends.b_queue, 1)?[0], 2, Kind::Receive)?;
    same("bytes", bytes_of(&ends.remote, 0, 4)?, b"late".to_vec())
}

fn waits_behind<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let to = ends.remote.remote();
    let (first, second) = (to.at(0, 5).map_err(text)?, to.at(64, 6).map_err(text)?);
    ends.a
        .post(&[
            WorkRequest::write_immediate(Source::Inline(b"first"), first, 1),
            WorkRequest::write(Source::Inline(b"second"), second).signalled(2),
        ])
        .map_err(text)?;
    bed.nothing(&mut ends.a_queue)?;
    same("bytes of the second", bytes_of(&ends.remote, 64, 6)?, vec![0; 6])?;
    ends.b.post_receive(&[Receive { id: 3, buffer: None }]).map_err(text)?;
    good(&bed.completions(&mut ends.a_queue, 1)?[0], 2, Kind::Write)?;
    good(&bed.completions(&mut ends.b_queue, 1)?[0], 3, Kind::ReceiveWrite)?;
    same("bytes of the second", bytes_of(&ends.remote, 64, 6)?, b"second".to_vec())
}

fn fetch_add<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    ends.remote.write(64, &(u64::MAX - 1).to_ne_bytes()).map_err(text)?;
    let at = ends.remote.remote().at(64, 8).map_err(text)?;
    for (id, old) in [(1, u64::MAX - 1), (2, 1)] {
        let operation = Operation::FetchAdd { into: into(&ends.local, 8, 8), at, add: 3 };
        ends.a.post(&[WorkRequest::new(operation).signalled(id)]).map_err(text)?;
        good(&bed.completions(&mut ends.a_queue, 1)?[0], id, Kind::FetchAdd)?;
        same("old value", bytes_of(&ends.local, 8, 8)?, u64::to_ne_bytes(old).to_vec())?;
    }
    same("new value", bytes_of(&ends.remote, 64, 8)?, 4_u64.to_ne_bytes().to_vec())
}

fn compare_swap<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    ends.remote.write(64, &7_u64.to_ne_bytes()).map_err(text)?;
    let at = ends.remote.remote().at(64, 8).map_err(text)?;
    for (expected, new, old, after) in [(8, 9, 7_u64, 7_u64), (7, 9, 7, 9)] {
        let operation = Operation::CompareSwap { into: into(&ends.local, 8, 8), at, expected, new };
        ends.a.post(&[WorkRequest::new(operation).signalled(1)]).map_err(text)?;
        good(&bed.completions(&mut ends.a_queue, 1)?[0], 1, Kind::CompareSwap)?;
        same("old value", bytes_of(&ends.local, 8, 8)?, old.to_ne_bytes().to_vec())?;
        same("new value", bytes_of(&ends.remote, 64, 8)?, after.to_ne_bytes().to_vec())?;
    }
    Ok(())
}

fn mixed_order<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    ends.b.post_receive(&[receive(&ends.remote, 50, 512, 64)]).map_err(text)?;
    ends.local.write(0, &41_u64.to_ne_bytes()).map_err(text)?;
    let at = ends.remote.remote().at(128, 8).map_err(text)?;
    ends.a
        .post(&[
            WorkRequest::write(source(&ends.local, 0, 8), at).signalled(1),
            WorkRequest::new(Operation::FetchAdd { into: into(&ends.local, 64, 8), at, add: 1 })
                .signalled(2),
            WorkRequest::new(Operation::Send {
                source: source(&ends.local, 0, 8),
                immediate: None,
            })
            .signalled(3),
            WorkRequest::new(Operation::Read { into: into(&ends.local, 72, 8), from: at })
                .signalled(4),
        ])
        .map_err(text)?;
    let done = bed.completions(&mut ends.a_queue, 4)?;
    for (completion, (id, kind)) in
        done.iter().zip([(1, Kind::Write), (2, Kind::FetchAdd), (3, Kind::Send), (4, Kind::Read)])
    {
        good(completion, id, kind)?;
    }
    same("value fetched", bytes_of(&ends.local, 64, 8)?, 41_u64.to_ne_bytes().to_vec())?;
    same("value read", bytes_of(&ends.local, 72, 8)?, 42_u64.to_ne_bytes().to_vec())
}

fn both_ways<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let back = bed.a.allocate(4096, Access::REMOTE_WRITE).map_err(text)?;
    let to_b = ends.remote.remote().at(0, 4).map_err(text)?;
    let to_a = back.remote().at(0, 4).map_err(text)?;
    ends.a.post(&[WorkRequest::write(Source::Inline(b"ping"), to_b).signalled(1)]).map_err(text)?;
    ends.b.post(&[WorkRequest::write(Source::Inline(b"pong"), to_a).signalled(2)]).map_err(text)?;
    good(&bed.completions(&mut ends.a_queue, 1)?[0], 1, Kind::Write)?;
    good(&bed.completions(&mut ends.b_queue, 1)?[0], 2, Kind::Write)?;
    same("b's memory", bytes_of(&ends.remote, 0, 4)?, b"ping".to_vec())?;
    same("a's memory", bytes_of(&back, 0, 4)?, b"pong".to_vec())
}

fn shared_queue<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let mut others = Vec::new();
    for _ in 0..3 {
        let timing = Timing::default();
        let queue = &ends.a_queue;
        let mut a = bed.a.queue_pair(queue, queue, SIZES, timing).map_err(text)?;
        let mut b = bed.b.queue_pair(&ends.b_queue, &ends.b_queue, SIZES, timing).map_err(text)?;
        a.connect(&b.endpoint()).map_err(text)?;
        b.connect(&a.endpoint()).map_err(text)?;
        others.push((a, b));
    }
    let mut expected = Vec::new();
    for (i, (a, _)) in others.iter_mut().enumerate() {
        let to = ends.remote.remote().at(8 * i as u64, 8).map_err(text)?;
        let value = (i as u64).to_ne_bytes();
        let request = WorkRequest::write(Source::Inline(&value), to);
        a.post(&[request.signalled(100 + i as u64)]).map_err(text)?;
        expected.push((100 + i as u64, a.number()));
    }
    let done = bed.completions(&mut ends.a_queue, 3)?;
    let mut found: Vec<_> = done.iter().map(|c| (c.id, c.queue_pair)).collect();
    found.sort_unstable();
    same("completions", found, expected)?;
    same("state", ends.a.state(), State::Connected)
}

fn full_send_queue<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let sizes = QueueSizes { send: 4, receive: 4 };
    let mut ends = Ends::with(bed, sizes, 64, Timing::default())?;
    let to = ends.remote.remote().at(0, 8).map_err(text)?;
    let mut posted = 0;
    let most = 4 * bed.a.limits().queue_entries as usize;
    // Unsignalled work frees nothing, so some post has to be refused, whatever was rounded up.
    let refused = loop {
        match ends.a.post(&[WorkRequest::write(source(&ends.local, 0, 8), to)]) {
            Ok(()) => posted += 1,
            Err(rejected) => break rejected,
        }
        ensure(posted <= most, || format!("{posted} requests were taken"))?;
    };
    same("posted of the list", refused.posted, 0)?;
    ensure(matches!(refused.reason, millstream_fabric::Error::QueueFull), || {
        refused.reason.to_string()
    })?;
    ensure(posted >= 4, || format!("only {posted} of 4 entries could be used"))?;

    // All entries but the last unsignalled, and a list that is too long by one.
    let mut ends = Ends::with(bed, sizes, 64, Timing::default())?;
    let to = ends.remote.remote().at(0, 8).map_err(text)?;
    for round in 0..3 {
        let request = WorkRequest::write(source(&ends.local, 0, 8), to);
        let mut list = vec![request; posted + 1];
        list[posted - 1] = request.signalled(round);
        let refused = ends.a.post(&list).err().ok_or("a list that was too long was taken")?;
        same("posted of the list", refused.posted, posted)?;
        good(&bed.completions(&mut ends.a_queue, 1)?[0], round, Kind::Write)?;
    }
    Ok(())
}

fn window<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let remote = ends.remote.remote();
    // Most fabrics have none.
    let Some(window) = ends.a.window(&remote).map_err(text)? else { return Ok(()) };
    same("length", window.len(), ends.remote.len())?;
    let data = pattern(9, 1000);
    window.write(100, &data).map_err(text)?;
    let flag = remote.at(0, 8).map_err(text)?;
    let request = WorkRequest::write(Source::Inline(&[1; 8]), flag);
    ends.a.post(&[request.signalled(1)]).map_err(text)?;
    good(&bed.completions(&mut ends.a_queue, 1)?[0], 1, Kind::Write)?;
    ensure(bytes_of(&ends.remote, 100, 1000)? == data, || "the bytes differ".into())?;
    window.word(16).store(77, Ordering::Release);
    same("a word stored", ends.remote.word(16).load(Ordering::Acquire), 77)?;
    let closed = bed.b.allocate(4096, Access::LOCAL).map_err(text)?;
    let found = ends.a.window(&closed.remote()).map_err(text)?;
    ensure(found.is_none(), || "a window to a closed region".into())
}

fn registered_source<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let mut memory = pattern(4, 10_000);
    let start = std::ptr::NonNull::new(memory.as_mut_ptr()).ok_or("no memory")?;
    // SAFETY: `memory` is not touched until the work is done and the region dropped.
    let region = unsafe { bed.a.register(start, memory.len(), Access::LOCAL) }.map_err(text)?;
    let to = ends.remote.remote().at(0, 9_000).map_err(text)?;
    let source = Source::Region { region: &region, offset: 1_000, bytes: 9_000 };
    ends.a.post(&[WorkRequest::write(source, to).signalled(1)]).map_err(text)?;
    good(&bed.completions(&mut ends.a_queue, 1)?[0], 1, Kind::Write)?;
    drop(region);
    ensure(bytes_of(&ends.remote, 0, 9_000)? == memory[1_000..], || "the bytes differ".into())
}

fn wait_wakes<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let mut events = bed.b.events().map_err(text)?;
    let mut queue = bed.b.completion_queue(16, Some(&events)).map_err(text)?;
    let timing = Timing::default();
    let mut a = bed.a.queue_pair(&ends.a_queue, &ends.a_queue, SIZES, timing).map_err(text)?;
    let mut b = bed.b.queue_pair(&queue, &queue, SIZES, timing).map_err(text)?;
    a.connect(&b.endpoint()).map_err(text)?;
    b.connect(&a.endpoint()).map_err(text)?;
    let to = RemoteAddress { address: 0, ..ends.remote.remote().at(0, 0).map_err(text)? };
    for round in 0..3 {
        b.post_receive(&[Receive { id: round, buffer: None }]).map_err(text)?;
        queue.arm().map_err(text)?;
        let to = RemoteAddress { address: ends.remote.remote().address, ..to };
        let request = WorkRequest::write_immediate(Source::Inline(b""), to, 5);
        a.post(&[request.signalled(round)]).map_err(text)?;
        let mut one = [Completion::default()];
        let mut woken = 0;
        // It may wake for nothing, but not sleep through the completion.
        while queue.poll(&mut one).map_err(text)? == 0 {
            let something = events.wait(bed.patience).map_err(text)?;
            ensure(something, || "it slept through a completion".into())?;
            woken += 1;
            ensure(woken < 1000, || "it keeps waking for nothing".into())?;
        }
        good(&one[0], round, Kind::ReceiveWrite)?;
        good(&bed.completions(&mut ends.a_queue, 1)?[0], round, Kind::Write)?;
    }
    Ok(())
}

fn wait_ends<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut events = bed.a.events().map_err(text)?;
    let mut queue = bed.a.completion_queue(4, Some(&events)).map_err(text)?;
    queue.arm().map_err(text)?;
    let something = events.wait(Duration::from_millis(5)).map_err(text)?;
    same("something happened", something, false)
}

fn many_rounds<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut ends = Ends::new(bed)?;
    let mut expected = 0_u64;
    for round in 0..500_u64 {
        for _ in 0..3 {
            ends.b.post_receive(&[Receive { id: round, buffer: None }]).map_err(text)?;
        }
        let slot = round % 8;
        let to = ends.remote.remote().at(slot * 64, 16).map_err(text)?;
        let value = [round.to_ne_bytes(), (!round).to_ne_bytes()].concat();
        let request = WorkRequest::write_immediate(Source::Inline(&value), to, round as u32);
        ends.a.post(&[request, request, request.signalled(round)]).map_err(text)?;
        for arrived in bed.completions(&mut ends.b_queue, 3)? {
            good(&arrived, round, Kind::ReceiveWrite)?;
            same("immediate", arrived.immediate, Some(round as u32))?;
            expected += 1;
        }
        same("bytes", bytes_of(&ends.remote, slot as usize * 64, 16)?, value)?;
        good(&bed.completions(&mut ends.a_queue, 1)?[0], round, Kind::Write)?;
    }
    same("arrivals", expected, 1500)
}
