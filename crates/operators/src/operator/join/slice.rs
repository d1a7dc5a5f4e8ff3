//! The versions of a slice, in order, and sought keys.

use arrow::array::Array;
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;

use super::sides::{JoinSide, SideColumns};
use crate::columns::keys::VarColumn;
use crate::error::{Error, Result};

/// The versions of a slice that fires.
pub(super) struct VersionsOfSlice {
    pub(super) columns: SideColumns,
    /// Their numbers, by the hash of the key, then in the order of all records.
    pub(super) order: Vec<u32>,
}

/// A key to be looked up: hash, words, and the place of the texts.
#[derive(Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) hash: u64,
    pub(super) words: &'a [u64],
    pub(super) texts: &'a [VarColumn<'a>],
    pub(super) row: usize,
}

impl<'a> Sought<'a> {
    /// The key of a row.
    pub(super) fn of(
        columns: &'a SideColumns,
        texts: &'a [VarColumn<'a>],
        row: usize,
    ) -> Sought<'a> {
        let width = columns.keys.len() / columns.rows.max(1);
        let words = &columns.keys[row * width..(row + 1) * width];
        Sought { hash: columns.hashes[row], words, texts, row }
    }

    /// True if another row has the same key.
    pub(super) fn is_of(&self, other: &Sought<'_>) -> bool {
        let mut texts = self.texts.iter().zip(other.texts);
        self.hash == other.hash
            && self.words == other.words
            && texts.all(|(a, b)| a.bytes(self.row) == b.bytes(other.row))
    }
}

/// The bytes that tell the order of a version.
pub(super) fn orders<'a>(side: &JoinSide, columns: &'a SideColumns) -> Result<VarColumn<'a>> {
    let column = side.hidden.and_then(|hidden| columns.columns.get(hidden));
    column.and_then(VarColumn::new).ok_or_else(|| Error::Internal("versions without order".into()))
}

impl VersionsOfSlice {
    /// Of versions, whose columns become those of the right side of a `pair`.
    pub(super) fn new(
        side: &JoinSide,
        mut columns: SideColumns,
        pair: &SchemaRef,
    ) -> Result<VersionsOfSlice> {
        let first = pair.fields().len() - side.shown;
        for (at, column) in columns.columns.iter_mut().take(side.shown).enumerate() {
            // A text may be of the large type.
            let wanted = pair.field(first + at).data_type();
            if column.data_type() != wanted {
                *column = cast(column, wanted)?;
            }
        }
        let bytes = orders(side, &columns)?;
        let mut order: Vec<u32> = (0..columns.rows as u32).collect();
        let rank = |row: &u32| (columns.hashes[*row as usize], bytes.bytes(*row as usize));
        order.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)));
        Ok(VersionsOfSlice { columns, order })
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.bytes() + 4 * self.order.capacity()
    }
}
