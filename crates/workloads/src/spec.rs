//! Specification of a workload: its name and size. Everything else follows from a [`Spec`].

use crate::window::{self, Window};
use crate::zipf::Zipf;

/// Of the records of a join one in so many is a seller (`event_type` 0); the others are auctions
/// (`nb8`, `nb8_rows`) or bids (`nb11`).
pub(crate) const SELLER_EVERY: u64 = 5;

/// The keys of a long tail are below this number.
const LONG_TAIL_KEYS: u64 = 1 << 20;

/// A benchmark workload: data and query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Workload {
    /// Yahoo streaming benchmark, 10 million keys: count per key and 10 minute window.
    Ysb,
    /// The same with 10 thousand keys, where pre-aggregation shrinks everything.
    YsbSmall,
    /// The same with string keys and records up to 5 s out of order.
    YsbStr,
    /// NEXMark query 7: the highest price per key and minute, with a long tail of keys.
    Nb7,
    /// Cluster monitoring: mean and count per job and 2 second window.
    Cm,
    /// Read-only: count per key over all of the input, nearly all keys distinct.
    Ro,
    /// NEXMark query 8: auctions joined with their sellers, by key and window of 12 hours.
    Nb8,
    /// The same with whole rows: auctions of 269 bytes and sellers of 206, all of which come out.
    Nb8Rows,
    /// Counts of the records of `nb8`, by key and window: the baseline of its join.
    Nb8Count,
    /// NEXMark query 11 as a join: bids of 32 bytes with the sellers of 206 bytes in their session.
    Nb11,
}

impl Workload {
    /// Every workload, in the order of their documentation.
    pub const ALL: [Workload; 10] = [
        Workload::Ysb,
        Workload::YsbSmall,
        Workload::YsbStr,
        Workload::Nb7,
        Workload::Cm,
        Workload::Ro,
        Workload::Nb8,
        Workload::Nb8Rows,
        Workload::Nb8Count,
        Workload::Nb11,
    ];

    /// The name used on command lines, which is also the table's name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Ysb => "ysb",
            Workload::YsbSmall => "ysb_small",
            Workload::YsbStr => "ysb_str",
            Workload::Nb7 => "nb7",
            Workload::Cm => "cm",
            Workload::Ro => "ro",
            Workload::Nb8 => "nb8",
            Workload::Nb8Rows => "nb8_rows",
            Workload::Nb8Count => "nb8_count",
            Workload::Nb11 => "nb11",
        }
    }

    /// All names, for messages.
    pub fn names() -> [&'static str; 10] {
        Workload::ALL.map(Workload::name)
    }

    /// The workload called `name`.
    pub fn from_name(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|w| w.name() == name)
    }

    /// Records of the published full-size run.
    pub fn default_records(self) -> u64 {
        match self {
            Workload::Nb8 | Workload::Nb8Rows | Workload::Nb8Count | Workload::Nb11 => 5_000_000,
            _ => 20_000_000,
        }
    }

    /// Event time that the records span, milliseconds. `ro`'s timestamps are record numbers, so
    /// its span is its number of records and this is 0.
    pub fn span_ms(self) -> u64 {
        match self {
            Workload::Ysb | Workload::YsbSmall | Workload::YsbStr => 2_400_000,
            Workload::Nb7 => 600_000,
            Workload::Cm => 200_000,
            Workload::Nb8 | Workload::Nb8Rows | Workload::Nb8Count => 172_800_000,
            Workload::Nb11 => 1_000_000,
            Workload::Ro => 0,
        }
    }

    /// Length of the tumbling window, or the gap of sessions (`nb11`), milliseconds; 0 for `ro`,
    /// which has no window.
    pub fn window_ms(self) -> u64 {
        match self {
            Workload::Ysb | Workload::YsbSmall | Workload::YsbStr => 600_000,
            Workload::Nb7 => 60_000,
            Workload::Cm => 2_000,
            Workload::Nb8 | Workload::Nb8Rows | Workload::Nb8Count => 43_200_000,
            Workload::Nb11 => 1_000,
            Workload::Ro => 0,
        }
    }

    /// The windows of its own.
    pub fn windows(self) -> window::WindowKind {
        match self {
            Workload::Nb11 => window::WindowKind::Session,
            _ => window::WindowKind::Tumble,
        }
    }

    /// The modulus of the key's draw (`nb11`: of a seller's); `None` where keys have a long tail
    /// instead (`nb7`).
    pub fn keys(self) -> Option<u64> {
        match self {
            Workload::Ysb => Some(10_000_000),
            Workload::YsbSmall => Some(10_000),
            Workload::YsbStr => Some(100_000),
            Workload::Nb7 => None,
            Workload::Cm => Some(12_500),
            Workload::Ro => Some(100_000_000),
            Workload::Nb8 | Workload::Nb8Rows | Workload::Nb8Count => Some(250_000),
            Workload::Nb11 => Some(20_000),
        }
    }

    /// The number that seeds the generator.
    pub fn id(self) -> u64 {
        match self {
            Workload::Ysb => 1,
            Workload::YsbSmall => 2,
            Workload::Nb7 => 3,
            Workload::Cm => 4,
            Workload::Nb8 | Workload::Nb8Rows | Workload::Nb8Count => 5,
            Workload::Ro => 6,
            Workload::YsbStr => 7,
            Workload::Nb11 => 8,
        }
    }

    /// True if the query works with other windows.
    pub fn takes_windows(self) -> bool {
        !matches!(self, Workload::Ro | Workload::Nb8Count) && !self.is_join()
    }

    /// Whether its query joins.
    pub fn is_join(self) -> bool {
        matches!(self, Workload::Nb8 | Workload::Nb8Rows | Workload::Nb11)
    }

    /// Whether records carry an `event_type` that is drawn, of which the query keeps one.
    pub fn has_event_type(self) -> bool {
        matches!(self, Workload::Ysb | Workload::YsbSmall | Workload::YsbStr)
    }
}

/// A workload at a size, perhaps perturbed: data, SQL text and right answer follow from it.
///
/// [`Spec::new`] is the published workload; tests change single fields, so that an engine cannot
/// know answers by heart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The data's shape and the query.
    pub workload: Workload,
    /// How many records.
    pub records: u64,
    /// Modulus of the key's draw instead of the workload's own, at most 2^32. For `nb7` the long
    /// tail is reduced modulo it. For `ysb_str` at most 10^11, so that 11 digits suffice.
    pub keys: Option<u64>,
    /// Keys with a Zipf distribution over the workload's key range ([`Spec::key_range`], then at
    /// most [`crate::ZIPF_KEYS_MAX`]) instead of its own. The key's draw is the same, and so are
    /// all others.
    pub zipf: Option<Zipf>,
    /// Event time that the records span, milliseconds (`ro` ignores it).
    pub span_ms: u64,
    /// Length of the windows, or the gap of sessions, milliseconds, at least 1 (`ro` ignores it).
    pub window_ms: u64,
    /// How windows lie (`ro` ignores it).
    pub windows: window::WindowKind,
    /// Modulus of `event_type`'s draw, so that one record in so many passes the filter.
    pub event_modulus: u64,
    /// Seed of the generator, normally the workload's id.
    pub seed: u64,
}

impl Spec {
    /// The published workload at its default size.
    pub fn new(workload: Workload) -> Spec {
        Spec {
            workload,
            records: workload.default_records(),
            keys: None,
            zipf: None,
            span_ms: workload.span_ms(),
            window_ms: workload.window_ms(),
            windows: workload.windows(),
            event_modulus: 3,
            seed: workload.id(),
        }
    }

    /// The same workload with other windows.
    pub fn with_window(self, window: Window) -> Spec {
        Spec { window_ms: window.ms, windows: window.kind, ..self }
    }

    /// The windows.
    pub fn window(&self) -> Window {
        Window { kind: self.windows, ms: self.window_ms }
    }

    /// How far the watermark stays behind the highest timestamp, milliseconds.
    pub fn watermark_delay_ms(&self) -> u64 {
        match self.workload {
            Workload::YsbStr => 5_000,
            _ => 0,
        }
    }

    /// Keys are below this number.
    pub fn key_range(&self) -> u64 {
        self.keys.or(self.workload.keys()).unwrap_or(LONG_TAIL_KEYS).max(1)
    }

    /// Of a join, about how many pairs it gives where keys are uniform; of sessions, if there are
    /// so few keys that sessions hardly ever end. It grows with the square of a key's records.
    pub fn pairs(&self) -> Option<u64> {
        let (records, keys) = (u128::from(self.records), u128::from(self.key_range()));
        let (window_ms, span_ms) = (u128::from(self.window_ms), u128::from(self.span_ms.max(1)));
        let sellers = records / u128::from(SELLER_EVERY);
        let in_one_window = sellers * (records - sellers) / keys;
        let pairs = match self.workload {
            Workload::Nb8 | Workload::Nb8Rows => {
                in_one_window.saturating_mul(window_ms.min(span_ms)) / span_ms
            }
            // Sessions go on and on where several records of a key come within a gap.
            Workload::Nb11 if records * window_ms > 3 * keys * span_ms => in_one_window,
            _ => return None,
        };
        Some(u64::try_from(pairs).unwrap_or(u64::MAX))
    }

    /// Whether the query has windows (all but `ro`).
    pub fn windowed(&self) -> bool {
        self.workload != Workload::Ro
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_told_before_they_come() {
        let spec = |workload, records, keys| Spec { records, keys, ..Spec::new(workload) };
        // 1,000 sellers and 4,000 auctions, a quarter of each in each of four windows.
        assert_eq!(spec(Workload::Nb8, 5_000, Some(1)).pairs(), Some(4 * 250 * 1_000));
        assert_eq!(spec(Workload::Nb8Rows, 5_000, Some(100)).pairs(), Some(4 * 250 * 1_000 / 100));
        // One session, or sessions of a few records each.
        assert_eq!(spec(Workload::Nb11, 5_000, Some(1)).pairs(), Some(1_000 * 4_000));
        assert_eq!(spec(Workload::Nb11, 5_000_000, None).pairs(), None);
        assert_eq!(spec(Workload::Nb11, u64::MAX, Some(1)).pairs(), Some(u64::MAX));
        assert_eq!(Spec::new(Workload::Ysb).pairs(), None);
    }
}
