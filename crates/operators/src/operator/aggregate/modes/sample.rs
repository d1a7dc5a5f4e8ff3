//! Sample of passed keys: an estimate of the share of distinct keys, where nothing else counts
//! them.

/// One key in this many is sampled.
const SAMPLED: u64 = 32;
const SAMPLE_BITS: usize = 1 << 16;

/// A full sample, and a sample that a decision used, are good for so many times the rows that they
/// took.
const UNSAMPLED: usize = 4;

/// Sample of the keys whose hashes fall into one of [`SAMPLED`] parts of their range: a bit for
/// each key, rarely shared by several keys.
#[derive(Debug, Default)]
pub(super) struct Sample {
    bits: Vec<u64>,
    set: usize,
    /// Rows since the last decision, and the estimated number of distinct rows among them.
    seen: usize,
    distinct: usize,
    /// Rows that pass before the next rows are sampled.
    unsampled: usize,
}

impl Sample {
    /// Takes note of the keys of a slice, whose number is mixed into the hashes.
    pub(super) fn note(&mut self, slice: u64, hashes: &[u64]) {
        if self.unsampled > 0 {
            self.unsampled = self.unsampled.saturating_sub(hashes.len());
            if self.unsampled == 0 {
                self.forget();
            }
            return;
        }
        self.seen += hashes.len();
        self.distinct += self.new_keys(slice, hashes);
        // More keys would share bits too often.
        if self.set >= SAMPLE_BITS / 4 {
            self.unsampled = UNSAMPLED * self.seen;
        }
    }

    /// Whether the next rows are sampled.
    pub(super) fn is_open(&self) -> bool {
        self.unsampled == 0
    }

    /// Rows since the last decision, and the estimated number of distinct rows among them.
    pub(super) fn share(&self) -> (usize, usize) {
        (self.seen, self.distinct)
    }

    /// An epoch has ended: the same keys are new in the next.
    pub(super) fn end_epoch(&mut self) {
        if self.set > 0 {
            self.bits.fill(0);
            self.set = 0;
        }
    }

    /// A decision on so many rows holds for a while.
    pub(super) fn rest(&mut self, rows: usize) {
        self.unsampled = UNSAMPLED * rows;
        (self.seen, self.distinct) = (0, 0);
        self.end_epoch();
    }

    /// Begins anew.
    pub(super) fn forget(&mut self) {
        (self.seen, self.distinct, self.unsampled) = (0, 0, 0);
        self.end_epoch();
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.bits.len() * 8
    }

    /// About how many rows are the first with their key. Neither partitions nor the index go by
    /// these bits of a hash.
    fn new_keys(&mut self, slice: u64, hashes: &[u64]) -> usize {
        self.bits.resize(SAMPLE_BITS / 64, 0);
        let (before, mixed) = (self.set, slice.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48);
        for hash in hashes.iter().map(|hash| hash >> 8).filter(|hash| hash % SAMPLED == 0) {
            let bit = ((hash / SAMPLED) ^ mixed) as usize % SAMPLE_BITS;
            let word = &mut self.bits[bit / 64];
            self.set += usize::from(*word >> (bit % 64) & 1 == 0);
            *word |= 1 << (bit % 64);
        }
        (self.set - before) * SAMPLED as usize
    }
}
