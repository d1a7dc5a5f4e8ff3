//! Measures channels and the limits of their medium by turns, in one run. It reports medians over
//! pairs, since the speed of a machine changes from minute to minute.

use std::time::Duration;
use std::{error, fmt, io};

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::verbs::{Options, Verbs};
use millstream_fabric::{Error as FabricError, Fabric};
use millstream_flow::channel::{Error, Settings, Stats};

use super::limits::{line_limit, memory_limit, socket_limit, write_bandwidth};
use super::transfer::{Measured, expected_sum, transfer};
use super::waiting::latency;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Runs of channel and limit, by turns; the median counts.
    pub(crate) pairs: usize,
    /// Bytes that a run moves, about.
    pub(crate) bytes: usize,
    /// Small messages there and back.
    pub(crate) rounds: u32,
}

/// A channel beside the limit, at one length of slots and number of credits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    /// Slots and their bytes.
    pub(crate) settings: Settings,
    /// Full slots sent in a run.
    pub(crate) messages: u64,
    /// The channel's bytes per second, in the pair with the median ratio.
    pub(crate) bytes_per_s: f64,
    /// The limit's, in the same pair.
    pub(crate) limit_bytes_per_s: f64,
    /// Least, median and greatest ratio of the pairs.
    pub(crate) ratios: [f64; 3],
    /// Time of one way of a full slot.
    pub(crate) one_way: Duration,
    /// Counters of sender and receiver in the median pair.
    pub(crate) stats: [Stats; 2],
}

/// Latency of a small message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SmallMessage {
    /// Time of one way, in the pair with the median ratio.
    pub(crate) one_way: Duration,
    /// The same of a bare cache line between two threads.
    pub(crate) line: Duration,
    /// Least, median and greatest ratio of the pairs.
    pub(crate) ratios: [f64; 3],
}

/// Why nothing could be measured.
#[derive(Debug)]
pub(crate) enum ChannelFailure {
    /// The channel failed.
    Channel(Error),
    /// The limit could not be found out.
    Limit(io::Error),
    /// Bytes were damaged on the way, here or at the limit: the consumer's sum is wrong.
    Sum,
    /// A plan without pairs.
    NoPairs,
}

impl fmt::Display for ChannelFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelFailure::Channel(error) => error.fmt(f),
            ChannelFailure::Limit(error) => {
                write!(f, "the fabric's limit could not be measured: {error}")
            }
            ChannelFailure::Sum => f.write_str("the sum of what arrived is wrong"),
            ChannelFailure::NoPairs => f.write_str("at least one pair of runs has to be asked for"),
        }
    }
}

impl error::Error for ChannelFailure {}

impl From<Error> for ChannelFailure {
    fn from(error: Error) -> ChannelFailure {
        ChannelFailure::Channel(error)
    }
}

impl From<FabricError> for ChannelFailure {
    fn from(error: FabricError) -> ChannelFailure {
        ChannelFailure::Channel(error.into())
    }
}

/// Two devices, or the same twice, between which channels run, and the limits without channels.
pub(crate) trait Medium {
    /// The devices' fabric.
    type Fabric: Fabric;

    /// The sender's device and the receiver's.
    fn devices(&self) -> [&Self::Fabric; 2];

    /// Measures the limit: `messages` buffers as long as these slots or their payload.
    fn limit(&self, settings: Settings, messages: u64) -> Result<Rate, ChannelFailure>;
}

/// Rates of a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Bytes per second.
    pub(crate) bytes_per_s: f64,
    /// Whether the bytes were filled and summed.
    pub(crate) touches: bool,
}

/// Shared memory. The limit: two threads that pass buffers.
pub(crate) struct Shm(ShmDevice);

impl Shm {
    /// Opens a device.
    pub(crate) fn open() -> Result<Shm, ChannelFailure> {
        Ok(Shm(ShmDevice::open(token()?)?))
    }
}

impl Medium for Shm {
    type Fabric = ShmDevice;

    fn devices(&self) -> [&ShmDevice; 2] {
        [&self.0, &self.0]
    }

    fn limit(&self, settings: Settings, messages: u64) -> Result<Rate, ChannelFailure> {
        let bytes = settings.payload_bytes();
        summed(memory_limit(settings.slots, bytes, messages), messages, bytes)
    }
}

/// The loopback interface. The limit: a bare loop over a socket.
pub(crate) struct Tcp([TcpDevice; 2]);

impl Tcp {
    /// Opens two devices.
    pub(crate) fn open() -> Result<Tcp, ChannelFailure> {
        let (token, any) = (token()?, std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        Ok(Tcp([TcpDevice::open(token, any)?, TcpDevice::open(token, any)?]))
    }
}

impl Medium for Tcp {
    type Fabric = TcpDevice;

    fn devices(&self) -> [&TcpDevice; 2] {
        [&self.0[0], &self.0[1]]
    }

    fn limit(&self, settings: Settings, messages: u64) -> Result<Rate, ChannelFailure> {
        let bytes = settings.payload_bytes();
        summed(socket_limit(bytes, messages).map_err(ChannelFailure::Limit)?, messages, bytes)
    }
}

/// An RDMA device connected to itself. The limit: `ib_write_bw`.
pub(crate) struct Rdma(Verbs);

impl Rdma {
    /// Opens a device.
    pub(crate) fn open(options: &Options) -> Result<Rdma, ChannelFailure> {
        Ok(Rdma(Verbs::open(options)?))
    }
}

impl Medium for Rdma {
    type Fabric = Verbs;

    fn devices(&self) -> [&Verbs; 2] {
        [&self.0, &self.0]
    }

    fn limit(&self, settings: Settings, messages: u64) -> Result<Rate, ChannelFailure> {
        let rate = write_bandwidth(&self.0, settings.slot_bytes, messages);
        Ok(Rate { bytes_per_s: rate.map_err(ChannelFailure::Limit)?, touches: false })
    }
}

fn token() -> Result<Token, ChannelFailure> {
    Token::random().map_err(ChannelFailure::Limit)
}

fn summed(limit: Measured, messages: u64, bytes: usize) -> Result<Rate, ChannelFailure> {
    if limit.sum != expected_sum(messages, bytes) {
        return Err(ChannelFailure::Sum);
    }
    Ok(Rate { bytes_per_s: limit.bytes_per_s(), touches: true })
}

/// Measures one cell.
pub(crate) fn cell<M: Medium>(
    medium: &M,
    settings: Settings,
    plan: Plan,
) -> Result<Cell, ChannelFailure> {
    let devices = medium.devices();
    let payload = settings.payload_bytes();
    let messages = (plan.bytes / payload).max(8) as u64;
    let mut runs = Vec::with_capacity(plan.pairs);
    for _ in 0..plan.pairs {
        let rate = medium.limit(settings, messages)?;
        let found = transfer(devices, settings, messages, rate.touches)?;
        if rate.touches && found.sum != expected_sum(messages, payload) {
            return Err(ChannelFailure::Sum);
        }
        runs.push((found.bytes_per_s() / rate.bytes_per_s, (found, rate)));
    }
    let (ratios, (found, rate)) = median(runs).ok_or(ChannelFailure::NoPairs)?;
    // A quarter of the bytes.
    let rounds = (messages / 8).clamp(8, 20_000) as u32;
    Ok(Cell {
        settings,
        messages,
        bytes_per_s: found.bytes_per_s(),
        limit_bytes_per_s: rate.bytes_per_s,
        ratios,
        one_way: latency(devices, settings, payload, rounds)?,
        stats: found.stats,
    })
}

/// Bytes per second of a channel over shared memory, through which so many bytes go in full slots.
pub(crate) fn channel_rate(settings: Settings, bytes: u64) -> Result<f64, ChannelFailure> {
    let shm = Shm::open()?;
    let payload = settings.payload_bytes();
    let messages = (bytes / payload as u64).max(8);
    let found = transfer(shm.devices(), settings, messages, true)?;
    if found.sum != expected_sum(messages, payload) {
        return Err(ChannelFailure::Sum);
    }
    Ok(found.bytes_per_s())
}

/// Bytes per second of a bare loop over a socket, in buffers of the same length.
pub(crate) fn socket_rate(settings: Settings, bytes: u64) -> Result<f64, ChannelFailure> {
    let payload = settings.payload_bytes();
    let messages = (bytes / payload as u64).max(8);
    let limit = socket_limit(payload, messages).map_err(ChannelFailure::Limit)?;
    Ok(summed(limit, messages, payload)?.bytes_per_s)
}

/// Measures the latency of a message of 8 bytes.
pub(crate) fn small_message<M: Medium>(
    medium: &M,
    settings: Settings,
    plan: Plan,
) -> Result<SmallMessage, ChannelFailure> {
    let mut runs = Vec::with_capacity(plan.pairs);
    for _ in 0..plan.pairs {
        let line = line_limit(plan.rounds);
        let one_way = latency(medium.devices(), settings, 8, plan.rounds)?;
        runs.push((one_way.as_secs_f64() / line.as_secs_f64().max(1e-9), (one_way, line)));
    }
    let (ratios, (one_way, line)) = median(runs).ok_or(ChannelFailure::NoPairs)?;
    Ok(SmallMessage { one_way, line, ratios })
}

/// Least, median and greatest ratio, and what belongs to the median.
fn median<T: Copy>(mut runs: Vec<(f64, T)>) -> Option<([f64; 3], T)> {
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, middle) = (runs.first()?.0, runs[runs.len() / 2]);
    Some(([first, middle.0, runs.last()?.0], middle.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_pair_is_reported() {
        let found = median(vec![(3.0, 'c'), (1.0, 'a'), (2.0, 'b')]);
        assert_eq!(found, Some(([1.0, 2.0, 3.0], 'b')));
        assert_eq!(median::<u8>(Vec::new()), None);
    }

    #[test]
    fn cells_are_measured_and_checked() {
        let plan = Plan { pairs: 1, bytes: 1 << 16, rounds: 10 };
        let settings = Settings { slots: 4, slot_bytes: 4096, ..Settings::default() };
        let shm = Shm::open().unwrap();
        let found = cell(&shm, settings, plan).unwrap();
        assert_eq!(found.stats[1].messages, found.messages);
        assert!(small_message(&shm, settings, plan).unwrap().ratios[1] > 0.0);
        assert!(cell(&Tcp::open().unwrap(), settings, plan).unwrap().ratios[1] > 0.0);
        let none = Plan { pairs: 0, ..plan };
        assert!(matches!(cell(&shm, settings, none), Err(ChannelFailure::NoPairs)));
        let damaged = Measured { sum: 1, ..memory_limit(4, 64, 8) };
        assert!(matches!(summed(damaged, 8, 64), Err(ChannelFailure::Sum)));
    }
}
