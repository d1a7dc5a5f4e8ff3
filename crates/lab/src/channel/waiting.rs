//! Measures the time of a single message, and the cost of waiting.

use std::time::{Duration, Instant};

use millstream_fabric::Fabric;
use millstream_flow::channel::{Error, Received, Receiver, Result, Sender, Settings, connect};

use super::transfer::{PATIENCE, both, expected_sum, fill, sum};

/// Time of one way of a message of `bytes` bytes that is filled and summed: a pair of channels,
/// `rounds` times there and back.
pub(crate) fn latency<F: Fabric>(
    devices: [&F; 2],
    settings: Settings,
    bytes: usize,
    rounds: u32,
) -> Result<Duration> {
    let (mut here, mut there) = (devices[0].events()?, devices[1].events()?);
    let (mut ping, mut ping_end) = connect(devices, [&here, &there], settings)?;
    let (mut pong, mut pong_end) = connect([devices[1], devices[0]], [&there, &here], settings)?;
    let ((), time) = both(
        move || {
            for _ in 0..rounds {
                take(&mut ping_end, &mut there, bytes)?;
                put(&mut pong, &mut there, bytes)?;
            }
            pong.finish(&mut there, PATIENCE)?;
            while !matches!(ping_end.receive(&mut there, PATIENCE)?, Received::End) {}
            Ok(())
        },
        move || {
            let start = Instant::now();
            for _ in 0..rounds {
                put(&mut ping, &mut here, bytes)?;
                take(&mut pong_end, &mut here, bytes)?;
            }
            let time = start.elapsed();
            while !matches!(pong_end.receive(&mut here, PATIENCE)?, Received::End) {}
            ping.finish(&mut here, PATIENCE)?;
            Ok(time)
        },
    )?;
    Ok(time / (2 * rounds.max(1)))
}

fn put<F: Fabric>(to: &mut Sender<F>, events: &mut F::Events, bytes: usize) -> Result<()> {
    let mut slot = to.acquire(events, PATIENCE)?;
    fill(&mut slot.payload()[..bytes], 0);
    slot.send(bytes, 0)
}

fn take<F: Fabric>(from: &mut Receiver<F>, events: &mut F::Events, bytes: usize) -> Result<()> {
    match from.receive(events, PATIENCE)? {
        Received::Message(message) if sum(&message) == expected_sum(1, bytes) => Ok(()),
        _ => Err(Error::TimedOut { what: "the message that was sent" }),
    }
}

/// Cost of waiting, and the time to wake up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    /// Processor time of the whole process while both sides waited, as a share of one core.
    pub(crate) share: f64,
    /// From sending to receiving by a consumer that slept: the median, and the longest.
    pub(crate) wake: [Duration; 2],
}

/// A consumer that waits for one message every `pause`.
pub(crate) fn waiting<F: Fabric>(
    devices: [&F; 2],
    settings: Settings,
    rounds: u32,
    pause: Duration,
) -> Result<Waiting> {
    let (mut there, mut here) = (devices[0].events()?, devices[1].events()?);
    let (mut sender, mut receiver) = connect(devices, [&there, &here], settings)?;
    let start = Instant::now();
    let cpu = cpu_time();
    let ((), mut wakes) = both(
        move || {
            for _ in 0..rounds {
                std::thread::sleep(pause);
                let mut slot = sender.acquire(&mut there, PATIENCE)?;
                let now = start.elapsed().as_nanos() as u64;
                slot.payload()[..8].copy_from_slice(&now.to_ne_bytes());
                slot.send(8, 0)?;
            }
            sender.finish(&mut there, PATIENCE)?;
            Ok(())
        },
        move || {
            let mut wakes = Vec::new();
            loop {
                match receiver.receive(&mut here, PATIENCE)? {
                    Received::Message(message) => {
                        let sent = message.first_chunk().copied().unwrap_or_default();
                        let sent = Duration::from_nanos(u64::from_ne_bytes(sent));
                        wakes.push(start.elapsed().saturating_sub(sent));
                    }
                    Received::Empty => return Err(Error::TimedOut { what: "a message" }),
                    Received::End => break,
                }
            }
            Ok(wakes)
        },
    )?;
    let share = (cpu_time().saturating_sub(cpu)).as_secs_f64() / start.elapsed().as_secs_f64();
    wakes.sort_unstable();
    let median = |times: &[Duration]| times.get(times.len() / 2).copied().unwrap_or_default();
    let last = wakes.last().copied().unwrap_or_default();
    Ok(Waiting { share, wake: [median(&wakes), last] })
}

/// Processor time of all living threads of this process; zero where the system does not tell.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}
