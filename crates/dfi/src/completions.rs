//! Completions of an end's queue, and whose they are.

use std::time::Duration;

use millstream_fabric::{Completion, CompletionQueue, Fabric};

use crate::error::Result;

/// Takes all completions of an end that are there. `absorb` gets each with the time.
pub(crate) fn take<F: Fabric, E>(
    end: &mut E,
    parts: impl Fn(&mut E) -> (&F, &mut F::CompletionQueue),
    absorb: impl Fn(&mut E, &Completion, Duration) -> Result<()>,
) -> Result<()> {
    let mut some = [Completion::default(); 16];
    loop {
        let (fabric, queue) = parts(end);
        let count = queue.poll(&mut some)?;
        if count == 0 {
            return Ok(());
        }
        let now = fabric.now();
        some[..count].iter().try_for_each(|completion| absorb(end, completion, now))?;
        if count < some.len() {
            return Ok(());
        }
    }
}

/// Indices of an end's links, by number of the queue pair.
#[derive(Debug)]
pub(crate) struct Numbers(Vec<(u32, usize)>);

impl Numbers {
    /// Of queue pairs with these numbers.
    pub(crate) fn new(numbers: impl Iterator<Item = u32>) -> Numbers {
        let mut sorted: Vec<_> = numbers.enumerate().map(|(at, number)| (number, at)).collect();
        sorted.sort_unstable();
        Numbers(sorted)
    }

    /// Index of the link that a completion belongs to.
    pub(crate) fn find(&self, completion: &Completion) -> Option<usize> {
        let found = self.0.binary_search_by_key(&completion.queue_pair, |one| one.0);
        found.ok().map(|at| self.0[at].1)
    }
}
