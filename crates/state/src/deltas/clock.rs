//! The vector clock of watermarks (paper, section 5.1, *Progress tracking*).

/// A leader's view of every worker's progress: one watermark per worker, in microseconds of event
/// time, each covering only state that has already been merged here.
///
/// ```
/// use millstream_state::VectorClock;
/// let mut clock = VectorClock::new(2);
/// clock.advance(0, 70);
/// assert_eq!(clock.min(), i64::MIN); // the second worker has not reported
/// clock.advance(1, 50);
/// assert_eq!(clock.min(), 50);
/// ```
#[derive(Debug, Clone)]
pub struct VectorClock {
    entries: Vec<i64>,
}

impl VectorClock {
    /// A clock with an entry for each of `workers`, all at the beginning of time.
    pub fn new(workers: usize) -> VectorClock {
        VectorClock { entries: vec![i64::MIN; workers] }
    }

    /// Raises `worker`'s entry; a lower value than before changes nothing.
    pub fn advance(&mut self, worker: usize, watermark_us: i64) {
        let entry = &mut self.entries[worker];
        *entry = (*entry).max(watermark_us);
    }

    /// The watermark that `worker` has reported.
    pub fn of(&self, worker: usize) -> i64 {
        self.entries[worker]
    }

    /// The watermarks that all workers have reported, in their order.
    pub fn entries(&self) -> &[i64] {
        &self.entries
    }

    /// The watermark that every worker has passed.
    pub fn min(&self) -> i64 {
        self.entries.iter().copied().min().unwrap_or(i64::MAX)
    }
}
