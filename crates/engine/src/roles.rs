//! Roles: which process of a job this is, who reads, and which workers send and receive if records
//! are exchanged.

use crate::settings::Exchange;

/// Place of this process in a job. Process 0 is the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub process: usize,
    /// How many there are.
    pub processes: usize,
}

/// Readers of sources: in a repartitioned job not all workers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Processes that read.
    pub(crate) processes: usize,
    /// Number of this process among them; equal to their number if the process does not read.
    pub(crate) process: usize,
    /// Workers of a process that read: the first ones.
    pub(crate) workers: usize,
}

/// The senders and receivers of a job, by their numbers among all workers. Both are empty in late
/// merge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) senders: Vec<usize>,
    pub(crate) receivers: Vec<usize>,
}

impl Roles {
    /// Roles of the workers. In the split layout the first half of a process's workers send and the
    /// others receive; with a single worker each, every other process sends. A job of a single
    /// worker does both.
    pub(crate) fn new(exchange: Exchange, processes: usize, workers: usize) -> Roles {
        let all = 0..processes * workers;
        let sends = |worker: &usize| match workers {
            1 => worker.is_multiple_of(2),
            _ => worker % workers < workers / 2,
        };
        match exchange {
            Exchange::LateMerge => Roles::default(),
            Exchange::Repartition if all.len() > 1 => {
                let (senders, receivers) = all.partition(sends);
                Roles { senders, receivers }
            }
            _ => Roles { senders: all.clone().collect(), receivers: all.collect() },
        }
    }

    /// Readers of sources, as seen by the process at `place`, with `workers` workers in each
    /// process.
    pub(crate) fn reading(&self, place: Place, workers: usize) -> Reading {
        if !self.exchange() {
            let Place { process, processes } = place;
            return Reading { processes, process, workers };
        }
        let mut processes: Vec<usize> = self.senders.iter().map(|s| s / workers).collect();
        processes.dedup();
        let process = processes.binary_search(&place.process).unwrap_or(processes.len());
        let processes = processes.len();
        Reading { processes, process, workers: self.senders.len() / processes }
    }

    /// Whether records are exchanged at all.
    pub(crate) fn exchange(&self) -> bool {
        !self.senders.is_empty()
    }

    /// The worker's number among the senders.
    pub(crate) fn sender(&self, worker: usize) -> Option<usize> {
        self.senders.binary_search(&worker).ok()
    }

    /// The worker's number among the receivers.
    pub(crate) fn receiver(&self, worker: usize) -> Option<usize> {
        self.receivers.binary_search(&worker).ok()
    }
}

/// Where the process at `place` stands among those that read, and how many do; `None` if it does
/// not. Split `i` of a table whose splits are shared whole
/// ([`Sharing::Whole`](crate::table::Sharing::Whole)) is read by number `i % n` of `n`.
pub fn reader(exchange: Exchange, place: Place, workers: usize) -> Option<(usize, usize)> {
    let Reading { process, processes, .. } =
        Roles::new(exchange, place.processes, workers).reading(place, workers);
    (process < processes).then_some((process, processes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_has_a_role() {
        for (processes, workers) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (2, 3), (4, 4)] {
            let all = processes * workers;
            assert!(!Roles::new(Exchange::LateMerge, processes, workers).exchange());
            let both = Roles::new(Exchange::Interleaved, processes, workers);
            assert_eq!((both.senders.len(), both.receivers.len()), (all, all));
            let split = Roles::new(Exchange::Repartition, processes, workers);
            assert!(split.exchange() && !split.receivers.is_empty());
            // Process 0 can read sources that no other process can read.
            assert_eq!(split.sender(0), Some(0));
            if all > 1 {
                let roles = |w| [split.sender(w).is_some(), split.receiver(w).is_some()];
                assert!((0..all).all(|w| roles(w).iter().filter(|role| **role).count() == 1));
            }
        }
    }
}
