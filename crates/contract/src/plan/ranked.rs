//! Parameters of aggregate calls besides their arguments.

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share(u64);

impl Share {
    /// Of the median.
    pub const HALF: Share = Share(0.5_f64.to_bits());

    /// `None` for a number outside 0 to 1.
    pub fn new(share: f64) -> Option<Share> {
        (0.0..=1.0).contains(&share).then(|| Share((share + 0.0).to_bits()))
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Which rows of a group are the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Best {
    /// The greatest rank of rows that are kept; one at least.
    pub limit: u32,
    /// Definition of the rank.
    pub ranking: Ranking,
    /// How many fields of the argument are sort keys; at most 64.
    pub keys: u8,
    /// How each of them is sorted.
    pub directions: Directions,
    /// With a limit of one row: the last record of those with equal sort keys, not the first.
    pub keeps_last: bool,
}

/// Definitions of the rank of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ranking {
    /// Its number. Rows with equal sort keys come in the order of records.
    RowNumber,
    /// One more than there are rows with lesser sort keys.
    Rank,
    /// One more than there are different lesser sort keys.
    DenseRank,
    /// A number, and all rows are kept, in no order: the records of sessions.
    All,
}

/// The directions of up to 64 sort keys: a bit for each, the lowest for the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Directions {
    /// DESC.
    pub descending: u64,
    /// NULLS LAST.
    pub nulls_last: u64,
}

impl Directions {
    /// Of a key: whether it is descending, and whether NULLs come first.
    pub fn of(self, key: usize) -> (bool, bool) {
        let bit = |bits: u64| bits.checked_shr(key as u32).unwrap_or(0) & 1 == 1;
        (bit(self.descending), !bit(self.nulls_last))
    }
}
