//! How fast a channel is, compared with the limit of its medium in the same run (paper, figures 10a
//! and 10b).
//!
//! The work is the same on both sides of a comparison: the producer fills every word of a buffer,
//! the consumer sums every word, and the sum is checked. A limit is measured by code that is as
//! good as we can make it, but makes none of a channel's promises. Over `verbs`, where the limit is
//! `ib_write_bw`, neither side touches the bytes.

use std::time::{Duration, Instant};

use millstream_fabric::Fabric;
use millstream_flow::channel::{Error, Received, Result, Settings, Stats, connect};

/// Nothing may take longer; in an emulated machine a slot may take a second.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Measurements of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// Payload bytes moved.
    pub(crate) bytes: u64,
    /// From the first acquire to the end known at the sender.
    pub(crate) time: Duration,
    /// The consumer's sum, to be compared with [`expected_sum`]; 0 if bytes were not touched.
    pub(crate) sum: u64,
    /// Counters of sender and receiver; of a limit, zeros.
    pub(crate) stats: [Stats; 2],
}

impl Measured {
    /// Bytes per second.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64()
    }
}

/// Fills a buffer's words for message `number`.
#[inline(never)]
pub(crate) fn fill(buffer: &mut [u8], number: u64) {
    for (i, word) in buffer.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = (number + i as u64).to_ne_bytes();
    }
}

/// Sums a buffer's words.
#[inline(never)]
pub(crate) fn sum(buffer: &[u8]) -> u64 {
    let words = buffer.as_chunks::<8>().0.iter();
    words.fold(0_u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}

/// Sum of `messages` messages of `bytes` bytes.
pub(crate) fn expected_sum(messages: u64, bytes: usize) -> u64 {
    let words = bytes as u64 / 8;
    // Over all numbers n and words i: n + i.
    let triangle = |n: u64| if n == 0 { 0 } else { u128::from(n) * u128::from(n - 1) / 2 };
    let all = u128::from(words) * triangle(messages) + u128::from(messages) * triangle(words);
    all as u64
}

/// Sends `messages` full slots between two threads; with `touch`, the threads fill and sum the
/// slots.
pub(crate) fn transfer<F: Fabric>(
    devices: [&F; 2],
    settings: Settings,
    messages: u64,
    touch: bool,
) -> Result<Measured> {
    let (mut there, mut here) = (devices[0].events()?, devices[1].events()?);
    let (mut sender, mut receiver) = connect(devices, [&there, &here], settings)?;
    let bytes = sender.payload_bytes();
    let start = Instant::now();
    let (out, (sum, into)) = both(
        move || {
            for number in 0..messages {
                let mut slot = sender.acquire(&mut there, PATIENCE)?;
                if touch {
                    fill(slot.payload(), number);
                }
                slot.send(bytes, number)?;
            }
            sender.finish(&mut there, PATIENCE)
        },
        move || {
            let mut total = 0_u64;
            loop {
                match receiver.receive(&mut here, PATIENCE)? {
                    Received::Message(message) if touch => {
                        total = total.wrapping_add(sum(&message));
                    }
                    Received::Message(_) => {}
                    Received::Empty => return Err(Error::TimedOut { what: "a message" }),
                    Received::End => break,
                }
            }
            Ok((total, receiver.stats()))
        },
    )?;
    let time = start.elapsed();
    Ok(Measured { bytes: messages * bytes as u64, time, sum, stats: [out, into] })
}

/// Runs the first on a thread of its own, the second on this one.
pub(super) fn both<A: Send, B>(
    first: impl FnOnce() -> Result<A> + Send,
    second: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(first);
        let second = second();
        let first = thread.join().unwrap_or(Err(Error::TimedOut { what: "a thread that died" }));
        match (first, second) {
            // The loss at the other side is a consequence.
            (Err(Error::PeerLost { .. }), Err(cause)) | (Err(cause), _) | (Ok(_), Err(cause)) => {
                Err(cause)
            }
            (Ok(first), Ok(second)) => Ok((first, second)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::limits::{line_limit, memory_limit, socket_limit};
    use super::super::waiting::{latency, waiting};
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
            let found = transfer([a, b], settings, SMALL, true).unwrap();
            let expected = expected_sum(SMALL, settings.payload_bytes());
            assert_eq!(found.sum, expected, "{settings:?}");
            assert_eq!(found.stats[1].messages, SMALL);
        }
        for bytes in [8, Settings::default().payload_bytes()] {
            latency([a, b], Settings::default(), bytes, 100).unwrap();
        }
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
