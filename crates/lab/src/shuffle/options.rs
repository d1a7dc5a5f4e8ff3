//! How fast a shuffle is: tuples of 16 bytes between processes, with the answer checked (paper,
//! section 7.1).
//!
//! Every process generates tuples of a key and a value, and sends each to the process of its key's
//! hash (or all to all). Receivers add them up, again and again if they are to compute. What
//! everybody received has to add up to what everybody sent. Besides times, a [`Report`] has counts,
//! which hold on any machine.
//!
//! [`measure`](super::measure) starts the processes and leads them; a
//! [`ShuffleMember`](super::ShuffleMember) is the part of each.

use std::fmt;
use std::str::FromStr;

use millstream::program::cluster::{Cause, ProcessFailure};
use millstream_fabric::Fabric as _;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_flow::shuffle::{Depth, Design, Endpoints, Error, Groups, Settings};

/// Bytes of a tuple: a key and a value.
pub const TUPLE_BYTES: usize = 16;
/// Bytes that the paper's receivers add up at a time (section 7.1): as many as a first-level cache
/// holds.
pub const COMPUTE_BYTES: usize = 32 * 1024;

/// Receivers of a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// The process of its key's hash.
    Repartition,
    /// Every process.
    Broadcast,
}

impl Pattern {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Repartition => "repartition",
            Pattern::Broadcast => "broadcast",
        }
    }

    pub(super) fn groups(self, processes: usize) -> Groups {
        match self {
            Pattern::Repartition => Groups::repartition(processes),
            Pattern::Broadcast => Groups::broadcast(processes),
        }
    }
}

impl FromStr for Pattern {
    type Err = ShuffleFailure;

    fn from_str(name: &str) -> Result<Pattern, ShuffleFailure> {
        let all = [Pattern::Repartition, Pattern::Broadcast];
        let found = all.into_iter().find(|pattern| pattern.name() == name);
        let refused = || format!("no pattern {name:?}; there are repartition and broadcast");
        found.ok_or_else(|| ShuffleFailure::Options(refused()))
    }
}

/// Options of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Which design.
    pub design: Design,
    /// Receivers of a tuple.
    pub pattern: Pattern,
    /// Number of processes, each sender and receiver, also to itself.
    pub processes: usize,
    /// Threads of each process, which send and receive by turns.
    pub threads: usize,
    /// Bytes of a message's payload, a multiple of a tuple's.
    pub message_bytes: usize,
    /// Buffers in circulation.
    pub depth: Depth,
    /// Credit is written back after so many messages (f).
    pub credit_every: u32,
    /// Time to compute over [`COMPUTE_BYTES`] received bytes in microseconds, besides the sum.
    pub compute_us: f64,
    /// The same for process 0, if it computes more than the others (or less).
    pub straggler_us: Option<f64>,
    /// Whether a process adds its own tuples up where they are, instead of sending them to itself;
    /// of a broadcast it cannot.
    pub keep_own: bool,
    /// Tuples that each process sends; in a broadcast, to all others.
    pub tuples: u64,
}

impl Options {
    /// The paper's settings for a design, between two processes of one thread.
    pub fn new(design: Design) -> Options {
        let Settings { message_bytes, depth, credit_every, .. } = Settings::new(design);
        Options {
            design,
            pattern: Pattern::Repartition,
            processes: 2,
            threads: 1,
            message_bytes,
            depth,
            credit_every,
            compute_us: 0.0,
            straggler_us: None,
            keep_own: false,
            tuples: 10_000_000,
        }
    }

    /// Treatment of a process's own tuples, without and with `keep_own`.
    pub(super) const OWN: [&str; 2] = ["send", "keep"];

    /// The settings of each endpoint.
    pub fn settings(&self) -> Settings {
        let threads = match self.design.endpoints {
            Endpoints::Several => 1,
            Endpoints::Single => self.threads as u32,
        };
        Settings {
            message_bytes: self.message_bytes,
            depth: self.depth,
            credit_every: self.credit_every,
            threads,
            ..Settings::new(self.design)
        }
    }

    /// Time of a process to compute over [`COMPUTE_BYTES`] received bytes, in microseconds.
    pub(super) fn compute_us_of(&self, process: usize) -> f64 {
        self.straggler_us.filter(|_| process == 0).unwrap_or(self.compute_us)
    }

    /// The process that an endpoint belongs to.
    fn process_of(&self, endpoint: u32) -> usize {
        endpoint as usize / (2 * self.design.endpoints_of(self.threads))
    }

    /// Checks that a shuffle is possible with these options, over shared memory.
    pub fn check(&self) -> Result<(), ShuffleFailure> {
        let refused = |name, value, why: String| Err(Error::Setting { name, value, why }.into());
        for (name, count) in [("processes", self.processes), ("threads", self.threads)] {
            if count == 0 {
                return refused(name, Some(0), "a shuffle needs one".into());
            }
        }
        if !self.message_bytes.is_multiple_of(TUPLE_BYTES) {
            let value = Some(self.message_bytes as u64);
            return refused("message_bytes", value, "a tuple has 16 bytes, and is whole".into());
        }
        let straggler_us = self.straggler_us.unwrap_or(0.0);
        for (name, us) in [("compute_us", self.compute_us), ("straggler_us", straggler_us)] {
            if !(0.0..=1e6).contains(&us) {
                let why = format!("0 to a million microseconds are possible, not {us}");
                return refused(name, None, why);
            }
        }
        if self.keep_own && self.pattern == Pattern::Broadcast {
            let why = "a process keeps its own tuples only where each goes to one process";
            return refused("own", None, why.into());
        }
        let without = |e| ProcessFailure::new(0, Cause::Start(format!("cannot draw a token: {e}")));
        let token = Token::random().map_err(|e| ShuffleFailure::Process(without(e)))?;
        let device = ShmDevice::open(token)?;
        Ok(self.settings().check(device.limits(), self.processes)?)
    }

    /// Bytes that all processes together register at most. The options have to be possible.
    pub fn registered_bytes(&self) -> u64 {
        let settings = self.settings();
        let endpoints = self.processes * self.design.endpoints_of(self.threads);
        let each = settings.sender_bytes(self.processes) + settings.receiver_bytes(self.processes);
        each.saturating_mul(endpoints as u64)
    }
}

/// Text in a single line, for another process.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { design, pattern, processes, threads, .. } = self;
        let Options { message_bytes, depth, credit_every, compute_us, tuples, .. } = self;
        let pattern = pattern.name();
        write!(f, "{design},{pattern},{processes},{threads},{message_bytes},{depth},")?;
        let straggler = self.straggler_us.map_or("none".into(), |us| us.to_string());
        let own = Options::OWN[usize::from(self.keep_own)];
        write!(f, "{credit_every},{compute_us},{straggler},{own},{tuples}")
    }
}

impl FromStr for Options {
    type Err = ShuffleFailure;

    fn from_str(line: &str) -> Result<Options, ShuffleFailure> {
        fn number<T: FromStr>(text: &str) -> Result<T, ShuffleFailure> {
            text.parse().map_err(|_| ShuffleFailure::Options(format!("{text:?} is no number")))
        }
        let parts: Vec<&str> = line.split(',').collect();
        let [design, pattern, processes, threads, bytes, depth, credit, compute, slow, own, count] =
            parts[..]
        else {
            return Err(ShuffleFailure::Options(format!("{line:?} does not have eleven parts")));
        };
        let options = Options {
            design: design.parse()?,
            pattern: pattern.parse()?,
            processes: number(processes)?,
            threads: number(threads)?,
            message_bytes: number(bytes)?,
            depth: depth.parse()?,
            credit_every: number(credit)?,
            compute_us: number(compute)?,
            straggler_us: match slow {
                "none" => None,
                us => Some(number(us)?),
            },
            keep_own: own == Options::OWN[1],
            tuples: number(count)?,
        };
        options.check()?;
        Ok(options)
    }
}

/// Why nothing was measured.
#[derive(Debug)]
pub enum ShuffleFailure {
    /// An option is impossible.
    Options(String),
    /// An endpoint failed.
    Shuffle(Error),
    /// An endpoint failed because of another process.
    Peer {
        /// The other.
        peer: usize,
        /// Cause of the failure.
        error: Error,
    },
    /// A process has failed.
    Process(ProcessFailure),
    /// The run was stopped from outside.
    Stopped,
    /// The received tuples differ from the sent tuples.
    Answer {
        /// Count and sum of the expected tuples.
        expected: (u64, u64),
        /// Count and sum of the received tuples.
        found: (u64, u64),
    },
}

impl ShuffleFailure {
    /// With the process in the place of an endpoint, whose number says nothing to a user.
    pub(super) fn seen_by(self, options: &Options) -> ShuffleFailure {
        match self {
            ShuffleFailure::Shuffle(error) => match error.endpoint() {
                Some(id) => ShuffleFailure::Peer { peer: options.process_of(id), error },
                None => ShuffleFailure::Shuffle(error),
            },
            other => other,
        }
    }
}

impl fmt::Display for ShuffleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShuffleFailure::Options(what) => f.write_str(what),
            ShuffleFailure::Shuffle(error) => error.fmt(f),
            ShuffleFailure::Peer { peer, error } => match error {
                Error::PeerLost { .. } => {
                    write!(f, "process {peer} is gone, has failed or stands still")
                }
                Error::Silent { time, .. } => write!(
                    f,
                    "nothing was heard of process {peer} for {} ms, though something was due",
                    time.as_millis()
                ),
                other => write!(f, "process {peer}: {other}"),
            },
            ShuffleFailure::Process(failure) => failure.fmt(f),
            ShuffleFailure::Stopped => f.write_str("the run was stopped"),
            ShuffleFailure::Answer { expected, found } => write!(
                f,
                "the answer is wrong: {} tuples that add up to {:#x} were sent, and {} that add \
                 up to {:#x} received",
                expected.0, expected.1, found.0, found.1
            ),
        }
    }
}

impl std::error::Error for ShuffleFailure {}

impl From<Error> for ShuffleFailure {
    fn from(error: Error) -> ShuffleFailure {
        ShuffleFailure::Shuffle(error)
    }
}

impl From<millstream_fabric::Error> for ShuffleFailure {
    fn from(error: millstream_fabric::Error) -> ShuffleFailure {
        ShuffleFailure::Shuffle(error.into())
    }
}
