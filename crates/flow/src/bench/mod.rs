//! How fast a channel is, beside what the medium gives, in the same run (paper, figures 10a and 10b).
//!
//! The work is the same on both sides of a comparison: the producer fills every word of a buffer, the
//! consumer sums every word, and the sum is checked. A limit is as good as we can make it without a
//! channel's promises.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millstream_fabric::Fabric;

use crate::{
    Error, Received, Receiver, ReceiverSetup, Result, Sender, SenderSetup, Settings, Stats,
};

/// Nothing may take longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a run measured.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Payload bytes moved.
    pub bytes: u64,
    /// From the first acquire to the end known at the sender.
    pub time: Duration,
    /// The consumer's sum, to be compared with [`expected_sum`].
    pub sum: u64,
    /// Counters of sender and receiver; of a limit, zeros.
    pub stats: [Stats; 2],
}

impl Measured {
    /// Bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64()
    }
}

/// Fills a buffer's words for message `number`.
#[inline(never)]
pub fn fill(buffer: &mut [u8], number: u64) {
    for (i, word) in buffer.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = (number + i as u64).to_ne_bytes();
    }
}

/// Sums a buffer's words.
#[inline(never)]
pub fn sum(buffer: &[u8]) -> u64 {
    let words = buffer.as_chunks::<8>().0.iter();
    words.fold(0_u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}

/// What the sums of `messages` messages of `bytes` bytes come to.
pub fn expected_sum(messages: u64, bytes: usize) -> u64 {
    let words = bytes as u64 / 8;
    // Over all numbers n and words i: n + i.
    let triangle = |n: u64| if n == 0 { 0 } else { u128::from(n) * u128::from(n - 1) / 2 };
    let all = u128::from(words) * triangle(messages) + u128::from(messages) * triangle(words);
    all as u64
}

/// Two connected sides on devices that can reach each other.
pub fn connect<F: Fabric>(
    devices: [&F; 2],
    events: [&F::Events; 2],
    settings: Settings,
) -> Result<(Sender<F>, Receiver<F>)> {
    let sender = SenderSetup::new(devices[0], events[0], settings)?;
    let receiver = ReceiverSetup::new(devices[1], events[1], settings)?;
    let (to_receiver, to_sender) = (sender.hello(), receiver.hello());
    Ok((sender.connect(&to_sender)?, receiver.connect(&to_receiver)?))
}

/// Sends `messages` full slots from one thread to another.
pub fn channel<F: Fabric>(devices: [&F; 2], settings: Settings, messages: u64) -> Result<Measured> {
    let (mut there, mut here) = (devices[0].events()?, devices[1].events()?);
    let (mut sender, mut receiver) = connect(devices, [&there, &here], settings)?;
    let bytes = sender.payload_bytes();
    let start = Instant::now();
    let (out, (sum, into)) = both(
        move || {
            for number in 0..messages {
                let mut slot = sender.acquire(&mut there, PATIENCE)?;
                fill(slot.payload(), number);
                slot.send(bytes, number)?;
            }
            sender.finish(&mut there, PATIENCE)
        },
        move || {
            let mut total = 0_u64;
            loop {
                match receiver.receive(&mut here, PATIENCE)? {
                    Received::Message(message) => total = total.wrapping_add(sum(&message)),
                    Received::Empty => return Err(Error::TimedOut { what: "a message" }),
                    Received::End => break,
                }
            }
            Ok((total, *receiver.stats()))
        },
    )?;
    let time = start.elapsed();
    Ok(Measured { bytes: messages * bytes as u64, time, sum, stats: [out, into] })
}

/// Runs the first on a thread of its own, the second on this one.
fn both<A: Send, B>(
    first: impl FnOnce() -> Result<A> + Send,
    second: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(first);
        let second = second();
        let first = thread.join().unwrap_or(Err(Error::TimedOut { what: "a thread that died" }));
        Ok((first?, second?))
    })
}

/// A counter on a cache line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

impl Line {
    fn wait_for(&self, ready: impl Fn(u64) -> bool) {
        while !ready(self.0.load(Ordering::Acquire)) {
            std::hint::spin_loop();
        }
    }
}

/// The limit of shared memory: two threads pass `slots` buffers of `bytes` bytes round, which the
/// producer fills where the consumer sums them, with two counters and nothing else.
pub fn memory_limit(slots: usize, bytes: usize, messages: u64) -> Measured {
    /// Buffers that two threads take turns with.
    struct Buffers(Vec<std::cell::UnsafeCell<Vec<u8>>>);
    // SAFETY: the counters give every buffer to one thread at a time.
    unsafe impl Sync for Buffers {}

    let buffers = Buffers((0..slots).map(|_| vec![1; bytes].into()).collect());
    let (filled, summed) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let start = Instant::now();
    let sum = std::thread::scope(|scope| {
        let (buffers, filled, summed) = (&buffers, &filled, &summed);
        scope.spawn(move || {
            for number in 0..messages {
                summed.wait_for(|summed| number - summed < slots as u64);
                // SAFETY: the consumer has summed this buffer, and looks again when `filled` says so.
                fill(unsafe { &mut *buffers.0[number as usize % slots].get() }, number);
                filled.0.store(number + 1, Ordering::Release);
            }
        });
        let mut total = 0_u64;
        for number in 0..messages {
            filled.wait_for(|filled| filled > number);
            // SAFETY: the producer has filled this buffer, and writes again when `summed` says so.
            let buffer = unsafe { &*buffers.0[number as usize % slots].get() };
            total = total.wrapping_add(self::sum(buffer));
            summed.0.store(number + 1, Ordering::Release);
        }
        total
    });
    let time = start.elapsed();
    Measured { bytes: messages * bytes as u64, time, sum, stats: [Stats::default(); 2] }
}

/// The limit of TCP: a bare loop of writes and reads of whole buffers over one connection.
pub fn socket_limit(bytes: usize, messages: u64) -> io::Result<Measured> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = TcpStream::connect(listener.local_addr()?)?;
    let (mut into, _) = listener.accept()?;
    out.set_nodelay(true)?;
    let start = Instant::now();
    let sum = std::thread::scope(|scope| {
        let producer = scope.spawn(move || -> io::Result<()> {
            let mut buffer = vec![1; bytes];
            for number in 0..messages {
                fill(&mut buffer, number);
                out.write_all(&buffer)?;
            }
            Ok(())
        });
        let mut buffer = vec![1; bytes];
        let mut total = 0_u64;
        for _ in 0..messages {
            into.read_exact(&mut buffer)?;
            total = total.wrapping_add(self::sum(&buffer));
        }
        producer.join().unwrap_or_else(|_| Err(io::Error::other("the producer died")))?;
        Ok::<u64, io::Error>(total)
    })?;
    let time = start.elapsed();
    Ok(Measured { bytes: messages * bytes as u64, time, sum, stats: [Stats::default(); 2] })
}

/// Time of one way of a small message: a pair of channels, `rounds` times there and back.
pub fn latency<F: Fabric>(devices: [&F; 2], settings: Settings, rounds: u32) -> Result<Duration> {
    let (mut here, mut there) = (devices[0].events()?, devices[1].events()?);
    let (mut ping, mut ping_end) = connect(devices, [&here, &there], settings)?;
    let (mut pong, mut pong_end) = connect([devices[1], devices[0]], [&there, &here], settings)?;
    let ((), time) = both(
        move || {
            for _ in 0..rounds {
                pass(&mut ping_end, &mut pong, &mut there)?;
            }
            pong.finish(&mut there, PATIENCE)?;
            while !matches!(ping_end.receive(&mut there, PATIENCE)?, Received::End) {}
            Ok(())
        },
        move || {
            let start = Instant::now();
            for number in 0..rounds {
                let mut slot = ping.acquire(&mut here, PATIENCE)?;
                slot.payload()[..4].copy_from_slice(&number.to_ne_bytes());
                slot.send(4, 0)?;
                match pong_end.receive(&mut here, PATIENCE)? {
                    Received::Message(message) if *message == number.to_ne_bytes() => {}
                    _ => return Err(Error::TimedOut { what: "an answer" }),
                }
            }
            let time = start.elapsed();
            while !matches!(pong_end.receive(&mut here, PATIENCE)?, Received::End) {}
            ping.finish(&mut here, PATIENCE)?;
            Ok(time)
        },
    )?;
    Ok(time / (2 * rounds.max(1)))
}

/// Sends back what comes.
fn pass<F: Fabric>(
    from: &mut Receiver<F>,
    to: &mut Sender<F>,
    events: &mut F::Events,
) -> Result<()> {
    let Received::Message(message) = from.receive(events, PATIENCE)? else {
        return Err(Error::TimedOut { what: "a question" });
    };
    let mut slot = to.acquire(events, PATIENCE)?;
    let bytes = message.len();
    slot.payload()[..bytes].copy_from_slice(&message);
    drop(message);
    slot.send(bytes, 0)
}

/// What waiting costs, and how fast it ends.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// Processor time of the whole process while both sides waited, as a share of one core.
    pub share: f64,
    /// From sending to receiving by a consumer that slept: the median, and the longest.
    pub wake: [Duration; 2],
}

/// A consumer that waits for one message every `pause`.
pub fn waiting<F: Fabric>(
    devices: [&F; 2],
    settings: Settings,
    rounds: u32,
    pause: Duration,
) -> Result<Waiting> {
    let (mut there, mut here) = (devices[0].events()?, devices[1].events()?);
    let (mut sender, mut receiver) = connect(devices, [&there, &here], settings)?;
    let start = Instant::now();
    let cpu = cpu_time();
    let (_, mut wakes) = both(
        move || {
            for _ in 0..rounds {
                std::thread::sleep(pause);
                let mut slot = sender.acquire(&mut there, PATIENCE)?;
                let now = start.elapsed().as_nanos() as u64;
                slot.payload()[..8].copy_from_slice(&now.to_ne_bytes());
                slot.send(8, 0)?;
            }
            sender.finish(&mut there, PATIENCE)
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
    let last = wakes.last().copied().unwrap_or_default();
    let median = wakes.get(wakes.len() / 2).copied().unwrap_or_default();
    Ok(Waiting { share, wake: [median, last] })
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

/// Time of one way of a single cache line between two threads that do nothing but look at it.
pub fn line_limit(rounds: u32) -> Duration {
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        let (ping, pong) = (&ping, &pong);
        scope.spawn(move || {
            for round in 1..=u64::from(rounds) {
                ping.wait_for(|value| value == round);
                pong.0.store(round, Ordering::Release);
            }
        });
        let start = Instant::now();
        for round in 1..=u64::from(rounds) {
            ping.0.store(round, Ordering::Release);
            pong.wait_for(|value| value == round);
        }
        start.elapsed() / (2 * rounds.max(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_fabric::setup::Token;
    use millstream_fabric::shm::ShmDevice;
    use millstream_fabric::tcp::TcpDevice;

    const SMALL: u64 = 50;

    #[test]
    fn sums_are_what_they_should_be() {
        let mut total = 0_u64;
        let mut buffer = vec![0; 64];
        for number in 0..7 {
            fill(&mut buffer, number);
            total = total.wrapping_add(sum(&buffer));
        }
        // Eight words: 0..8 is 28, and every message adds 8 times its number.
        assert_eq!(total, 7 * 28 + 8 * 21);
        assert_eq!(expected_sum(7, 64), total);
    }

    #[test]
    fn limits_move_every_byte() {
        assert_eq!(memory_limit(4, 4096, SMALL).sum, expected_sum(SMALL, 4096));
        assert_eq!(socket_limit(4096, SMALL).unwrap().sum, expected_sum(SMALL, 4096));
        assert!(line_limit(100) > Duration::ZERO);
    }

    fn channels<F: Fabric>(a: &F, b: &F) {
        for (slots, slot_bytes) in [(1, 128), (4, 4096), (8, 65536)] {
            let settings = Settings { slots, slot_bytes, ..Settings::default() };
            let found = channel([a, b], settings, SMALL).unwrap();
            let expected = expected_sum(SMALL, settings.payload_bytes());
            assert_eq!(found.sum, expected, "{settings:?}");
            assert_eq!(found.stats[1].messages, SMALL);
        }
        latency([a, b], Settings::default(), 100).unwrap();
        let waits = waiting([a, b], Settings::default(), 3, Duration::from_millis(2)).unwrap();
        assert!(waits.wake[1] >= waits.wake[0]);
    }

    #[test]
    fn channels_over_shared_memory() {
        let device = ShmDevice::open(Token::new([1; 32])).unwrap();
        channels(&device, &device);
    }

    #[test]
    fn channels_over_tcp() {
        let open = || TcpDevice::open(Token::new([1; 32]), "127.0.0.1:0".parse().unwrap()).unwrap();
        channels(&open(), &open());
    }
}
