//! Declarations of tables.

use std::fmt;

/// A condition on a row: the row's words, without the key.
pub(crate) type RowCheck = Box<dyn Fn(&[u64]) -> bool + Send + Sync>;

/// A table's declaration: fixed rows of 8-byte words, and conditions that every row fulfils.
///
/// A key is hashed as `millstream_state::hash_words` hashes it. A text is its hash or a reference,
/// as the user of the table decides; this crate compares words.
pub struct TableSpec {
    pub(crate) name: String,
    pub(crate) key_words: usize,
    pub(crate) row_words: usize,
    pub(crate) checks: Vec<(String, RowCheck)>,
}

impl TableSpec {
    /// A table with keys of `key_words` words and rows of `row_words` further words.
    pub fn new(name: &str, key_words: usize, row_words: usize) -> TableSpec {
        TableSpec { name: name.to_owned(), key_words, row_words, checks: Vec::new() }
    }

    /// Adds a CHECK. A transaction that would leave a row for which `holds` says no is aborted.
    /// A table has at most 255 of them.
    pub fn check(
        mut self,
        name: &str,
        holds: impl Fn(&[u64]) -> bool + Send + Sync + 'static,
    ) -> TableSpec {
        self.checks.push((name.to_owned(), Box::new(holds)));
        self
    }
}

impl fmt::Debug for TableSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableSpec { name, key_words, row_words, checks } = self;
        let checks: Vec<_> = checks.iter().map(|(name, _)| name).collect();
        write!(f, "TableSpec {{ {name}, {key_words} + {row_words} words, checks: {checks:?} }}")
    }
}

/// A table of a store, by number, with its widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableId {
    pub(crate) number: u16,
    pub(crate) key_words: u16,
    pub(crate) row_words: u16,
    pub(crate) has_checks: bool,
}

impl TableId {
    /// The widths are in the range of 16 bits.
    pub(crate) fn new(number: usize, spec: &TableSpec) -> TableId {
        TableId {
            number: number as u16,
            key_words: spec.key_words as u16,
            row_words: spec.row_words as u16,
            has_checks: !spec.checks.is_empty(),
        }
    }

    /// Number of the table, from 0 in the order of adding.
    pub fn number(self) -> usize {
        usize::from(self.number)
    }
}
