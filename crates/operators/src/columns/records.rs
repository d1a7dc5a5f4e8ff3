//! The rows that a group gives, where it gives several: the first ones of a ranking, or all records
//! of a session. They are read from rows of state a portion at a time, since a group may have any
//! number of them.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;

use millstream_state::{
    RowsRef, ValueKind, ValueSlot, best_elements, blob_bytes, chain_elements, chain_size,
    only_element,
};

use crate::columns::elements::payload_of;
use crate::columns::payload::decode;
use crate::error::{Error, Result};
use crate::plan::AggregateCall;

/// Rows of a portion, at the most, and about how many bytes of them.
pub(crate) const PORTION_ROWS: usize = 8192;
pub(crate) const PORTION_BYTES: usize = 4 << 20;

/// Unit of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Portion {
    /// All rows.
    #[default]
    All,
    /// Whole groups: one at least.
    Groups,
    /// A part of a group, too, if it keeps all of its rows.
    Rows,
}

/// How far groups have been read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    portion: Portion,
    /// The group that comes next, by the number of its row of state.
    group: usize,
    /// Rows read of this group, and their bytes.
    rows: usize,
    bytes: usize,
}

/// Rows that have been read.
pub(crate) struct RecordsOfGroups {
    /// For each, the row of state that it is of; these ascend.
    pub(crate) groups: Vec<u32>,
    pub(crate) columns: Vec<ArrayRef>,
}

impl Reading {
    /// From the first group on.
    pub(crate) fn by(portion: Portion) -> Reading {
        Reading { portion, ..Reading::default() }
    }

    /// The group that comes next.
    pub(crate) fn group(&self) -> usize {
        self.group
    }

    /// Goes on with the group that follows.
    pub(crate) fn skip_group(&mut self) {
        self.skip_to(self.group + 1);
    }

    /// Goes on with a group.
    pub(crate) fn skip_to(&mut self, group: usize) {
        *self = Reading { portion: self.portion, group, rows: 0, bytes: 0 };
    }
}

impl RecordsOfGroups {
    /// The groups' rows of state.
    pub(crate) fn range(&self) -> Range<usize> {
        match (self.groups.first(), self.groups.last()) {
            (Some(first), Some(last)) => *first as usize..*last as usize + 1,
            _ => 0..0,
        }
    }
}

/// How many rows a group has, and how many bytes they take, if it keeps all of them.
pub(super) fn size_of(slot: ValueSlot, rows: &RowsRef<'_>, group: usize) -> Option<(usize, usize)> {
    let keeps_all = slot.kind == ValueKind::Chain && group < rows.len();
    keeps_all.then(|| chain_size(rows.word(group, slot.word), rows.arena()))
}

/// Reads the next portion.
pub(super) fn read(
    call: &AggregateCall,
    slot: ValueSlot,
    rows: &RowsRef<'_>,
    reading: &mut Reading,
) -> Result<RecordsOfGroups> {
    let DataType::Struct(fields) = &call.result_type else {
        return Err(Error::Internal(format!("{} has type {}", call.name, call.result_type)));
    };
    let Some((_, columns)) = fields.split_last() else {
        return Err(Error::Internal("a ranking without a rank".into()));
    };
    let mut found = Found::default();
    while reading.group < rows.len() {
        let goes_on = match reading.portion {
            Portion::All => true,
            Portion::Rows if slot.kind == ValueKind::Chain => !found.is_full(0, 0),
            Portion::Groups | Portion::Rows => {
                let (rows, bytes) = size_of(slot, rows, reading.group).unwrap_or_default();
                found.elements.is_empty() || !found.is_full(rows.saturating_sub(1), bytes)
            }
        };
        if !goes_on || !found.take(slot, rows, reading)? {
            break;
        }
        reading.skip_group();
    }
    let columns = columns.iter().map(|field| decode(field.data_type(), &mut found.elements));
    let mut columns = columns.collect::<Result<Vec<_>>>()?;
    columns.push(Arc::new(Int64Array::from(found.ranks)));
    Ok(RecordsOfGroups { groups: found.groups, columns })
}

/// Rows that have been found, yet to be decoded.
#[derive(Default)]
struct Found<'r> {
    groups: Vec<u32>,
    ranks: Vec<i64>,
    elements: Vec<&'r [u8]>,
    bytes: usize,
}

impl<'r> Found<'r> {
    /// Whether so many more would be too many, or one more is.
    fn is_full(&self, rows: usize, bytes: usize) -> bool {
        self.elements.len() + rows >= PORTION_ROWS || self.bytes + bytes >= PORTION_BYTES
    }

    /// Takes the rows of a group, or as many as fit; returns whether it has no more.
    fn take(
        &mut self,
        slot: ValueSlot,
        rows: &'r RowsRef<'_>,
        reading: &mut Reading,
    ) -> Result<bool> {
        let (start, word) = (self.elements.len(), rows.word(reading.group, slot.word));
        let mut is_all = true;
        match slot.kind {
            ValueKind::Chain => {
                for (element, end) in chain_elements(word, rows.arena(), reading.bytes) {
                    if reading.portion == Portion::Rows && self.is_full(0, 0) {
                        is_all = false;
                        break;
                    }
                    self.bytes += element.len();
                    self.elements.push(element);
                    reading.bytes = end;
                }
                // In an order of their own, as far as they are read together.
                self.elements[start..].sort_unstable();
                let count = self.elements.len() - start;
                self.ranks.extend((reading.rows..reading.rows + count).map(|row| row as i64 + 1));
                reading.rows += count;
            }
            ValueKind::Best(wanted) => {
                let bytes = blob_bytes(word, rows.arena());
                let mut take = |(rank, element): (u64, &'r [u8])| -> Result<()> {
                    self.ranks.push(rank as i64);
                    self.elements.push(payload_of(element)?);
                    self.bytes += element.len();
                    Ok(())
                };
                match only_element(wanted, bytes) {
                    Some(element) => take((1, element))?,
                    None => best_elements(wanted, bytes).into_iter().try_for_each(take)?,
                }
            }
            other => return Err(Error::Internal(format!("rows kept as {other:?}"))),
        }
        self.groups.resize(self.elements.len(), reading.group as u32);
        Ok(is_all)
    }
}
