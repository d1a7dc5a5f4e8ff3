//! Measures what a message costs the processors at both ends, by its length. Models of machines use
//! these numbers.

use std::time::Instant;

use millstream_fabric::{Access, Fabric};
use millstream_flow::channel::{Error, Received, Result, Settings, connect};

use super::transfer::{both, fill, sum};

/// Nanoseconds of processor time for a message and for each of its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Costs of a message, regardless of its length.
    pub message_ns: f64,
    /// For each byte of its payload.
    pub byte_ns: f64,
}

/// Costs of messages between two threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Sending from where the payload stands. Over shared memory that is a copy.
    pub posting: Cost,
    /// Sending a slot that was filled in place, and how much longer filling it takes than memory of
    /// one's own.
    pub sending: Cost,
    /// Receiving, and how much longer reading takes than memory of one's own.
    pub receiving: Cost,
    /// Looking for a message where there is none, nanoseconds.
    pub look_ns: f64,
}

/// The two lengths that are measured: a line goes through them.
const BYTES: [usize; 2] = [256, 62 * 1024];
/// Messages of each length.
const MESSAGES: usize = 4_000;
/// Bytes to stay away for the head of a message, as users have one.
const HEAD_BYTES: usize = 64;

/// Measures the costs between two threads with a channel of these settings, whose slots have 64 KiB
/// at least.
///
/// # Errors
/// What the channel fails with.
pub fn costs<F: Fabric>(devices: [&F; 2], settings: Settings) -> Result<Costs> {
    let (mut posting, mut sending, mut receiving) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    for (i, bytes) in BYTES.into_iter().enumerate() {
        let own = Own::measure(settings.slots * settings.slot_bytes, bytes);
        let (post, received) = exchange(devices, settings, bytes, true)?;
        let (send, received_too) = exchange(devices, settings, bytes, false)?;
        posting[i] = post.put;
        sending[i] = send.put + (send.fill - own.fill).max(0.0);
        let beyond = |ends: Ends| ends.take + (ends.sum - own.sum).max(0.0);
        receiving[i] = (beyond(received) + beyond(received_too)) / 2.0;
    }
    Ok(Costs {
        posting: line(posting),
        sending: line(sending),
        receiving: line(receiving),
        look_ns: look_ns(devices, settings)?,
    })
}

/// The line through what both lengths take, no part of it negative.
fn line([short, long]: [f64; 2]) -> Cost {
    let byte_ns = ((long - short) / (BYTES[1] - BYTES[0]) as f64).max(0.0);
    Cost { message_ns: (short - byte_ns * BYTES[0] as f64).max(0.0), byte_ns }
}

/// Costs of a message at the ends of a channel, medians in nanoseconds.
#[derive(Default, Clone, Copy)]
struct Ends {
    fill: f64,
    put: f64,
    take: f64,
    sum: f64,
}

/// The same of memory that no other thread touches.
struct Own {
    fill: f64,
    sum: f64,
}

impl Own {
    /// In parts of a memory as long as a ring.
    fn measure(ring_bytes: usize, bytes: usize) -> Own {
        let mut ring = vec![0_u8; ring_bytes];
        let slots = (ring_bytes / (64 * 1024)).max(1);
        let (mut fills, mut sums) = (Vec::new(), Vec::new());
        for number in 0..MESSAGES {
            let start = number % slots * (ring_bytes / slots);
            let part = &mut ring[start..start + bytes];
            fills.push(timed(|| fill(part, number as u64)).0);
            sums.push(timed(|| std::hint::black_box(sum(part))).0);
        }
        Own { fill: median(fills), sum: median(sums) }
    }
}

/// Sends messages of `bytes` bytes; returns the costs at both ends.
fn exchange<F: Fabric>(
    devices: [&F; 2],
    settings: Settings,
    bytes: usize,
    from_region: bool,
) -> Result<(Ends, Ends)> {
    let (there, here) = (devices[0].events()?, devices[1].events()?);
    let (mut sender, mut receiver) = connect(devices, [&there, &here], settings)?;
    let ring_bytes = settings.slots * settings.slot_bytes;
    let region = devices[0].allocate(ring_bytes, Access::LOCAL)?;
    let slots = settings.slots;
    both(
        move || {
            let (mut fills, mut puts) = (Vec::new(), Vec::new());
            let mut own = vec![0_u8; bytes];
            for number in 0..MESSAGES {
                if from_region {
                    fill(&mut own, number as u64);
                    region.write(number % slots * (ring_bytes / slots), &own)?;
                }
                let mut slot = loop {
                    if sender.credits() > 0 {
                        match sender.try_acquire()? {
                            Some(slot) => break slot,
                            None => return Err(Error::TimedOut { what: "credit that was there" }),
                        }
                    }
                    std::hint::spin_loop();
                };
                if from_region {
                    let offset = number % slots * (ring_bytes / slots);
                    let (ns, sent) = timed(|| {
                        slot.send_from(HEAD_BYTES, &region, offset, bytes - HEAD_BYTES, 0)
                    });
                    sent?;
                    puts.push(ns);
                } else {
                    let payload = &mut slot.payload()[..bytes];
                    fills.push(timed(|| fill(payload, number as u64)).0);
                    let (ns, sent) = timed(|| slot.send(bytes, 0));
                    sent?;
                    puts.push(ns);
                }
            }
            while !sender.try_finish()? {
                std::hint::spin_loop();
            }
            Ok(Ends { fill: median(fills), put: median(puts), ..Ends::default() })
        },
        move || {
            let (mut takes, mut sums) = (Vec::new(), Vec::new());
            loop {
                let (ns, received) = timed(|| receiver.try_receive());
                match received? {
                    Received::Message(message) => {
                        takes.push(ns);
                        sums.push(timed(|| std::hint::black_box(sum(&message))).0);
                    }
                    Received::Empty => std::hint::spin_loop(),
                    Received::End => break,
                }
            }
            Ok(Ends { take: median(takes), sum: median(sums), ..Ends::default() })
        },
    )
}

/// A look at a channel that is empty.
fn look_ns<F: Fabric>(devices: [&F; 2], settings: Settings) -> Result<f64> {
    const LOOKS: usize = 100_000;
    let (there, here) = (devices[0].events()?, devices[1].events()?);
    let (mut sender, mut receiver) = connect(devices, [&there, &here], settings)?;
    let start = Instant::now();
    for _ in 0..LOOKS {
        if !matches!(receiver.try_receive()?, Received::Empty) {
            return Err(Error::TimedOut { what: "silence" });
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / LOOKS as f64;
    while !sender.try_finish()? {
        receiver.try_receive()?;
    }
    while !matches!(receiver.try_receive()?, Received::End) {}
    Ok(ns)
}

/// Nanoseconds that it takes.
fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let done = run();
    (start.elapsed().as_nanos() as f64, done)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_through_both_lengths() {
        let Cost { message_ns, byte_ns } = line([100.0 + 256.0 * 0.5, 100.0 + 62.0 * 1024.0 * 0.5]);
        assert!((message_ns - 100.0).abs() < 1e-6 && (byte_ns - 0.5).abs() < 1e-9);
        assert_eq!(line([50.0, 40.0]), Cost { message_ns: 50.0, byte_ns: 0.0 });
        let Cost { message_ns, byte_ns } = line([1.0, 1e6]);
        assert!(message_ns == 0.0 && byte_ns > 0.0);
    }
}
