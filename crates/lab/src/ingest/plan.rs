//! The plan of `bench ingest`.

use millstream::Settings;
use millstream_workloads::Spec;

use crate::Failure;
use crate::failure::usage;

/// Most bytes of a message of Arrow beside the values, with the head of its frame.
const BESIDE_BYTES: usize = 512;
/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 16;

/// The ring's transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TransportName {
    /// Shared memory
    Shm,
    /// TCP, over the loopback interface
    Tcp,
}

impl TransportName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TransportName::Shm => "shm",
            TransportName::Tcp => "tcp",
        }
    }
}

/// The query of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum QueryName {
    /// All rows pass to a sink, where they are counted
    Pass,
    /// The number of records by key: the paper's `ro`
    Ro,
}

impl QueryName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            QueryName::Pass => "pass",
            QueryName::Ro => "ro",
        }
    }
}

/// A plan: records, producers, rings, query.
#[derive(Debug, Clone)]
pub struct Ingest {
    /// Records, keys and skew, of all producers together.
    pub spec: Spec,
    /// The connection of a producer.
    pub transport: TransportName,
    /// How many processes send.
    pub producers: usize,
    /// Bytes of a segment [default: 4 KiB to 1 MiB, in turn].
    pub segment: Option<usize>,
    /// Segments of a ring.
    pub segments: usize,
    /// The query of the job.
    pub query: QueryName,
    /// Runs of job and limit, by turns.
    pub pairs: usize,
    /// The part of the median rate at which latency is measured; 0: not at all.
    pub load: f64,
    /// Of the job.
    pub settings: Settings,
    /// Whether one JSON object is printed.
    pub json: bool,
}

impl Ingest {
    /// Rows of a batch that fits a segment.
    pub(crate) fn batch_rows(segment: usize) -> Result<usize, Failure> {
        let rows = segment.saturating_sub(BESIDE_BYTES) / RECORD_BYTES / 8 * 8;
        if rows == 0 {
            return Err(usage(&format!("--segment {segment} is too short: take 4096 to 4194304")));
        }
        Ok(rows)
    }
}
