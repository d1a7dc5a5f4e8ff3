//! Checks of threads that sleep at events and are woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::ends::SIZES;
use super::{Bed, Check, Outcome, ensure, same, text};
use millstream_fabric::Access;
use millstream_fabric::{Completion, Kind, Receive, Source, Timing, WorkRequest};
use millstream_fabric::{CompletionQueue, Events, Fabric, QueuePair};

pub(super) fn checks<F: Fabric>() -> Vec<(&'static str, Check<F>)> {
    vec![
        ("waking ends the next wait, if there is none", before_waiting::<F>),
        ("waking ends a wait, from any thread and every time", from_another_thread::<F>),
        ("waking takes no completion away", beside_completions::<F>),
        ("waking is harmless when the sleeper is gone", gone::<F>),
    ]
}

/// Time after which a wake-up is no longer expected.
const MOMENT: Duration = Duration::from_millis(5);

fn before_waiting<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    const TIMES: u32 = 3;
    let mut events = bed.a.events().map_err(text)?;
    let (mut other, waker) = (bed.a.events().map_err(text)?, events.waker());
    for _ in 0..2 {
        let before = bed.a.now();
        for _ in 0..TIMES {
            waker.wake_by_ref();
        }
        ensure(events.wait(bed.patience).map_err(text)?, || "waking was forgotten".into())?;
        let passed = bed.a.now().saturating_sub(before);
        ensure(passed < bed.patience / 2, || format!("the wait took {passed:?}"))?;
        // Each counts once at most.
        let mut woken = 1;
        while events.wait(MOMENT).map_err(text)? {
            woken += 1;
            ensure(woken <= TIMES, || "it keeps waking".into())?;
        }
        same("others are woken", other.wait(Duration::ZERO).map_err(text)?, false)?;
    }
    Ok(())
}

fn from_another_thread<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut events = bed.a.events().map_err(text)?;
    let (waker, said) = (events.waker(), Arc::new(AtomicU64::new(0)));
    let (ask, asked) = mpsc::channel::<u64>();
    let speaker = said.clone();
    let thread = std::thread::spawn(move || {
        for round in asked {
            speaker.store(round, Ordering::Relaxed);
            waker.wake_by_ref();
        }
    });
    for round in 1..=200 {
        ask.send(round).map_err(|error| error.to_string())?;
        let end = Instant::now() + bed.patience;
        // A wait may end without cause; and in virtual time a wait may be over before the thread
        // has run.
        while !events.wait(bed.patience).map_err(text)? || said.load(Ordering::Relaxed) != round {
            ensure(Instant::now() < end, || format!("round {round}: it was not woken"))?;
        }
    }
    drop(ask);
    thread.join().map_err(|_| "the thread that wakes has panicked".into())
}

fn beside_completions<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut events = bed.b.events().map_err(text)?;
    let mut queue = bed.b.completion_queue(16, Some(&events)).map_err(text)?;
    let mut a_queue = bed.a.completion_queue(16, None).map_err(text)?;
    let timing = Timing::default();
    let mut a = bed.a.queue_pair(&a_queue, &a_queue, SIZES, timing).map_err(text)?;
    let mut b = bed.b.queue_pair(&queue, &queue, SIZES, timing).map_err(text)?;
    a.connect(&b.endpoint()).map_err(text)?;
    b.connect(&a.endpoint()).map_err(text)?;
    let memory = bed.b.allocate(4096, Access::REMOTE_WRITE).map_err(text)?;
    let waker = events.waker();
    for round in 0..10 {
        b.post_receive(&[Receive { id: round, buffer: None }]).map_err(text)?;
        queue.arm().map_err(text)?;
        waker.wake_by_ref();
        ensure(events.wait(bed.patience).map_err(text)?, || "it was not woken".into())?;
        let to = memory.remote().at(0, 0).map_err(text)?;
        let request = WorkRequest::write_immediate(Source::Inline(b""), to, 5);
        a.post(&[request.signalled(round)]).map_err(text)?;
        let mut one = [Completion::default()];
        let mut woken = 0;
        while queue.poll(&mut one).map_err(text)? == 0 {
            let something = events.wait(bed.patience).map_err(text)?;
            ensure(something, || "it slept through a completion".into())?;
            woken += 1;
            ensure(woken < 1000, || "it keeps waking for nothing".into())?;
        }
        same("arrival", (one[0].id, one[0].kind), (round, Kind::ReceiveWrite))?;
        same("sender's completion", bed.completions(&mut a_queue, 1)?[0].id, round)?;
    }
    Ok(())
}

fn gone<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let events = bed.a.events().map_err(text)?;
    let waker = events.waker();
    drop(events);
    let mut later = bed.a.events().map_err(text)?;
    waker.wake_by_ref();
    let other = waker.clone();
    let thread = std::thread::spawn(move || other.wake());
    thread.join().map_err(|_| "waking has panicked")?;
    same("somebody else is woken", later.wait(MOMENT).map_err(text)?, false)
}
