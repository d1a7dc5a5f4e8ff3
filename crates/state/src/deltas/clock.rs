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
    min: i64,
    /// Number of entries at the minimum.
    lowest: usize,
}

impl VectorClock {
    /// A clock with an entry for each of `workers`, all at the beginning of time.
    pub fn new(workers: usize) -> VectorClock {
        let min = if workers == 0 { i64::MAX } else { i64::MIN };
        VectorClock { entries: vec![i64::MIN; workers], min, lowest: workers }
    }

    /// Raises `worker`'s entry; a lower value than before changes nothing.
    pub fn advance(&mut self, worker: usize, watermark_us: i64) {
        let entry = &mut self.entries[worker];
        if watermark_us <= *entry {
            return;
        }
        let was_lowest = *entry == self.min;
        *entry = watermark_us;
        self.lowest -= usize::from(was_lowest);
        if self.lowest == 0 {
            self.min = self.entries.iter().copied().min().unwrap_or(i64::MAX);
            self.lowest = self.entries.iter().filter(|entry| **entry == self.min).count();
        }
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
        self.min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_is_that_of_all_entries() {
        let mut random = 1_u64;
        for workers in 0..9 {
            let mut clock = VectorClock::new(workers);
            for round in 0..400 * workers as i64 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let worker = (random >> 33) as usize % workers;
                clock.advance(worker, (random >> 50) as i64 % 7 + round / 20);
                let min = clock.entries().iter().copied().min();
                assert_eq!(Some(clock.min()), min, "{:?}", clock.entries());
            }
        }
        assert_eq!(VectorClock::new(0).min(), i64::MAX);
    }
}
