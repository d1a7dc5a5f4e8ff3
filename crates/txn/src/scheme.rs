//! The five schemes and their settings.

use crate::error::{Error, Result};

/// Most workers of a manager.
pub(crate) const WORKERS_MAX: usize = 64;
/// Most partitions of PAT.
pub(crate) const PARTITIONS_MAX: usize = 4096;

/// How transactions are executed (paper, sections 3 to 5). All but [`Scheme::Nocc`] give the
/// result of one by one execution in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// TStream: transactions are noted, and executed as chains of operations at a punctuation
    /// (section 4).
    #[default]
    TStream,
    /// Lock ahead, strict two-phase locking in order (section 3).
    Lal,
    /// Lock ahead with several versions: reads block no writes (section 3, "low water mark").
    Lwm,
    /// A numbered turn for each of so many partitions (section 3, "partition-based approach").
    Pat {
        /// Number of partitions.
        partitions: usize,
    },
    /// Two-phase locking without waiting, and without the order of events (section 5).
    Nocc,
}

/// Settings of a manager. The defaults are right outside of tests and experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Batches with fewer operations run on one worker.
    pub solo_below: usize,
    /// Groups of operations, or transactions, in one step.
    pub piece: usize,
    /// Reads in one piece of a tail of reads, which workers share. 0: tails are not shared.
    pub tail_block: usize,
    /// Whether workers take chains from a pool (section 4.3, "dynamic work-scheduling"). If not,
    /// the chains of a shard belong to one worker; a factor of figure 18.
    pub dynamic: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { solo_below: 1000, piece: 256, tail_block: 64, dynamic: true }
    }
}

impl Scheme {
    pub(crate) fn check(self, workers: usize) -> Result<()> {
        let in_range = |what, given, max| match (1..=max).contains(&given) {
            true => Ok(()),
            false => Err(Error::Count { what, given, max }),
        };
        in_range("workers", workers, WORKERS_MAX)?;
        match self {
            Scheme::Pat { partitions } => in_range("partitions", partitions, PARTITIONS_MAX),
            _ => Ok(()),
        }
    }
}
