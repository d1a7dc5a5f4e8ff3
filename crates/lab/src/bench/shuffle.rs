//! `millstream-lab bench shuffle`: turns its arguments into options of the shuffle's own benchmark,
//! whose processes are this program again.

use crate::shuffle::{Options, Pattern};
use clap::ValueEnum;
use millstream::Settings;
use millstream_flow::shuffle::Design;

use crate::failure::usage;
use crate::{Failure, shuffle};

/// Options of `bench shuffle` alone.
#[derive(clap::Args)]
pub(crate) struct ShuffleArguments {
    /// `shuffle`: which of the eight designs, for example SEMQ/WR
    #[arg(long, value_name = "NAME")]
    design: Option<String>,
    /// `shuffle`: who gets a tuple [default: repartition]
    #[arg(long, value_enum)]
    pattern: Option<PatternName>,
    /// `shuffle`, `flow`: threads of each process [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(super) threads: Option<u64>,
    /// `shuffle`: bytes of a message, a multiple of 16 [default: 65536; of datagrams 4080]
    #[arg(long, value_name = "M", allow_negative_numbers = true)]
    message_bytes: Option<usize>,
    /// `shuffle`: buffers for each peer and thread: fixed:K, bdp:BYTES_PER_S:LATENCY_NS, adaptive
    /// or adaptive:LEAST:MOST [default: fixed:2]
    #[arg(long, value_name = "DEPTH")]
    buffers: Option<String>,
    /// `shuffle`: credit is written back after so many messages [default: 2]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    credit_every: Option<u32>,
    /// `shuffle`: microseconds that a receiver computes for each 32 KiB [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    compute_us: Option<f64>,
    /// `shuffle`: the same for process 0, which is then slower than the others
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    straggler_us: Option<f64>,
    /// `shuffle`: what becomes of a process's own tuples [default: send]
    #[arg(long, value_enum)]
    own: Option<Own>,
    /// `shuffle`: tuples of 16 bytes that each process sends [default: 10000000]; `flow`: of each
    /// source
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(super) tuples: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PatternName {
    /// The process of its key's hash
    Repartition,
    /// Every process
    Broadcast,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Own {
    /// Through the fabric, like tuples of other processes
    Send,
    /// Added up where they are
    Keep,
}

impl ShuffleArguments {
    /// The first of these options that was given, besides some.
    pub(crate) fn given(&self, besides: &[&str]) -> Option<&'static str> {
        let given = [
            (self.design.is_some(), "--design"),
            (self.pattern.is_some(), "--pattern"),
            (self.threads.is_some(), "--threads"),
            (self.message_bytes.is_some(), "--message-bytes"),
            (self.buffers.is_some(), "--buffers"),
            (self.credit_every.is_some(), "--credit-every"),
            (self.compute_us.is_some(), "--compute-us"),
            (self.straggler_us.is_some(), "--straggler-us"),
            (self.own.is_some(), "--own"),
            (self.tuples.is_some(), "--tuples"),
        ];
        let found = given.iter().find(|(given, option)| *given && !besides.contains(option));
        found.map(|(_, option)| *option)
    }

    /// Measures between so many processes.
    pub(crate) fn run(&self, processes: Option<usize>, as_json: bool) -> Result<(), Failure> {
        shuffle::run(&self.options(processes)?, as_json)
    }

    fn options(&self, processes: Option<usize>) -> Result<Options, Failure> {
        let mut options = Options::new(self.design()?);
        if let Some(text) = &self.buffers {
            options.depth = text.parse().map_err(|_| {
                usage(&format!(
                    "--buffers '{text}' is no number of buffers\n  help: use fixed:K, \
                     bdp:BYTES_PER_S:LATENCY_NS, adaptive or adaptive:LEAST:MOST"
                ))
            })?;
        }
        options.pattern = match self.pattern {
            Some(PatternName::Broadcast) => Pattern::Broadcast,
            Some(PatternName::Repartition) | None => Pattern::Repartition,
        };
        options.processes = processes.unwrap_or(options.processes);
        options.threads = self.threads.map_or(options.threads, |threads| threads as usize);
        options.message_bytes = self.message_bytes.unwrap_or(options.message_bytes);
        options.credit_every = self.credit_every.unwrap_or(options.credit_every);
        options.compute_us = self.compute_us.unwrap_or(options.compute_us);
        options.straggler_us = self.straggler_us;
        options.keep_own = self.own == Some(Own::Keep);
        options.tuples = self.tuples.unwrap_or(options.tuples);
        options.check().map_err(|e| shuffle::failed(&e))?;
        let needed = options.registered_bytes();
        if needed > 2 * Settings::default().memory_bytes {
            return Err(usage(&format!(
                "its buffers take up to {} GB, more than this machine has\n  help: use fewer \
                 --buffers, --message-bytes, --processes or --threads",
                needed >> 30
            )));
        }
        Ok(options)
    }

    fn design(&self) -> Result<Design, Failure> {
        let names = Design::VARIANTS.map(Design::name);
        let help = format!("use one of {}", names.join(", "));
        let Some(name) = &self.design else {
            return Err(usage(&format!("the workload 'shuffle' needs a --design\n  help: {help}")));
        };
        name.parse().map_err(|_| {
            let help = match millstream::program::closest(name, names.into_iter()) {
                Some(like) => format!("did you mean '{like}'? If not, {help}"),
                None => help,
            };
            usage(&format!("there is no design '{name}'\n  help: {help}"))
        })
    }
}
