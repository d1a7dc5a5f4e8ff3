//! The kinds of mergeable value, and the empty value of each.

use crate::values::float_sum;

/// The kinds of mergeable value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// How many inputs: `u64`.
    Count,
    /// Sum of 64-bit integers: `i128`, which 2^63 inputs cannot overflow.
    SumInt,
    /// Sum of 128-bit integers (decimals): 192 bits.
    SumDecimal,
    /// Exact sum of doubles.
    SumFloat,
    /// Least `i64`.
    Min64,
    /// Greatest `i64`.
    Max64,
    /// Least `i128`.
    Min128,
    /// Greatest `i128`.
    Max128,
    /// Least byte string.
    MinBytes,
    /// Greatest byte string.
    MaxBytes,
    /// The bits that all inputs have: 64.
    BitAnd,
    /// The bits that some input has: 64.
    BitOr,
    /// The bits that an odd number of inputs have: 64.
    BitXor,
    // Blobs of any size ([`crate::values::blob`]).
    /// All inputs, which are byte strings.
    List,
    /// All inputs, where there may be very many ([`crate::values::chain`]).
    Chain,
    /// Of inputs with the same value, the least ([`crate::values::set`]).
    Set,
    /// The least of some byte strings with sort keys.
    Best(Wanted),
    /// How often each input came, or about how often the frequent ones
    /// ([`crate::values::frequent`]).
    Frequent,
    /// A HyperLogLog of hashes.
    Registers,
    /// How many inputs are in each bucket.
    Histogram,
}

/// Unit of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Elements (`ROW_NUMBER`).
    Elements,
    /// Elements with a lesser sort key (`RANK`): at most the limit less one.
    Lesser,
    /// Different sort keys (`DENSE_RANK`).
    Keys,
}

/// Which elements are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// One at least.
    pub limit: u32,
    /// Unit of the limit.
    pub counted: Counted,
}

/// Marks a byte string that has met no input.
pub(crate) const NO_BYTES: u64 = u64::MAX;

impl ValueKind {
    /// The empty value.
    pub fn empty(self) -> &'static [u64] {
        const MIN: u64 = i64::MIN as u64;
        const MAX: u64 = i64::MAX as u64;
        match self {
            ValueKind::Count => &[0],
            ValueKind::SumInt => &[0, 0],
            ValueKind::SumDecimal => &[0, 0, 0],
            ValueKind::SumFloat => &float_sum::EMPTY,
            ValueKind::Min64 => &[MAX],
            ValueKind::Max64 => &[MIN],
            ValueKind::Min128 => &[u64::MAX, MAX],
            ValueKind::Max128 => &[0, MIN],
            ValueKind::MinBytes | ValueKind::MaxBytes => &[NO_BYTES],
            ValueKind::BitAnd => &[u64::MAX],
            ValueKind::BitOr | ValueKind::BitXor => &[0],
            ValueKind::List | ValueKind::Chain | ValueKind::Set | ValueKind::Best(_) => &[NO_BYTES],
            ValueKind::Frequent | ValueKind::Registers | ValueKind::Histogram => &[NO_BYTES],
        }
    }

    /// Words it takes in a row.
    pub fn words(self) -> usize {
        self.empty().len()
    }

    /// Whether only a seen bit tells an empty value from one that met input.
    pub fn tracks_seen(self) -> bool {
        !matches!(self, ValueKind::Count | ValueKind::MinBytes | ValueKind::MaxBytes)
            && !self.has_any_size()
    }

    /// Whether it may refer to the arena.
    pub fn uses_arena(self) -> bool {
        matches!(self, ValueKind::SumFloat | ValueKind::MinBytes | ValueKind::MaxBytes)
            || self.has_any_size()
    }

    /// Whether it is a blob or a chain.
    pub fn has_any_size(self) -> bool {
        self.is_blob() || self == ValueKind::Chain
    }

    /// Whether it is a blob.
    pub fn is_blob(self) -> bool {
        use ValueKind::*;
        matches!(self, List | Set | Best(_) | Frequent | Registers | Histogram)
    }

    /// Maximum bytes of an input in the arena, besides its own bytes.
    pub(crate) fn bytes_per_input(self) -> usize {
        match self {
            ValueKind::MinBytes | ValueKind::MaxBytes => 8,
            ValueKind::List | ValueKind::Chain | ValueKind::Set => 64,
            ValueKind::Best(_) | ValueKind::Frequent => 64,
            ValueKind::Registers | ValueKind::Histogram => 24,
            _ => 0,
        }
    }
}
