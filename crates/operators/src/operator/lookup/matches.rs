//! Matches of rows: next to each row, the matching rows of the side table.
//!
//! A key may match very many rows, with long texts. So the result is made piece by piece, each
//! bounded in rows and in bytes. Candidates have the same key; a further condition is evaluated for
//! all candidates of a piece at once. Only then are rows without a match known.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use millstream_state::Range as Bucket;

use super::Lookup;
use super::index::Index;
use crate::columns::inputs::true_mask;
use crate::columns::keys::VarColumn;
use crate::error::{Error, Result};
use crate::operator::stateless::{Piece, SelectedRows};
use crate::operator::unnest::{PIECE_BYTES, PIECE_ROWS, value_bytes};

/// The pieces of a lookup's result, in order.
pub struct Matches<'a> {
    lookup: &'a Lookup,
    /// One version of the side table for all of the rows.
    index: Arc<Index>,
    taken: &'a SelectedRows,
    /// The keys' columns of texts.
    columns: Vec<ArrayRef>,
    keys: Vec<u64>,
    hashes: Vec<u64>,
    buckets: Vec<Bucket>,
    /// The next row, and whether something has matched it already.
    row: usize,
    matched: bool,
    begun: bool,
    /// Where the last row stands that has been given.
    last: Option<u32>,
}

/// Candidates: rows, each next to a row of the side table, by their numbers.
#[derive(Default)]
struct Candidates {
    rows: Vec<u32>,
    found: Vec<u32>,
}

/// The rows of a piece; `None`: nothing matches.
#[derive(Default)]
struct Picked {
    rows: Vec<u32>,
    found: Vec<Option<u32>>,
}

impl Lookup {
    /// Joins rows with their matches, in pieces, at least one; `taken` also has the rows' places.
    pub(crate) fn matches<'a>(&'a self, taken: &'a SelectedRows) -> Result<Matches<'a>> {
        let Some(index) = self.side.current() else {
            return Err(Error::Internal(format!("'{}' has not been read", self.body.name)));
        };
        Matches::new(self, index, taken)
    }
}

impl<'a> Matches<'a> {
    pub(super) fn new(
        lookup: &'a Lookup,
        index: Arc<Index>,
        taken: &'a SelectedRows,
    ) -> Result<Matches<'a>> {
        let (codec, rows) = (&lookup.keys.codec, taken.rows.num_rows());
        let columns = lookup.keys.evaluate(0, &taken.rows)?;
        let all: Vec<u32> = (0..rows as u32).collect();
        let (mut keys, mut hashes, mut buckets) = (vec![0; rows * codec.words()], vec![], vec![]);
        codec.encode_words(&columns, &all, &mut keys);
        codec.hash(&keys, rows, &mut hashes);
        let tags = if lookup.keys.is_word() { &keys } else { &hashes };
        index.buckets.find(&hashes, tags, &mut buckets);
        let (row, matched, begun, last) = (0, false, false, None);
        Ok(Matches {
            lookup,
            index,
            taken,
            columns,
            keys,
            hashes,
            buckets,
            row,
            matched,
            begun,
            last,
        })
    }

    /// The next piece; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>> {
        let rows = self.taken.rows.num_rows();
        if self.begun && self.row >= rows {
            return Ok(None);
        }
        let first = self.row;
        let candidates = self.candidates();
        let mask = self.asked(&candidates)?;
        let picked = self.pick(first..self.row, &candidates, mask.as_ref());
        self.begun = true;
        let places: Vec<u32> = match self.taken.places.as_deref() {
            Some(places) => picked.rows.iter().map(|row| places[*row as usize]).collect(),
            None => picked.rows.clone(),
        };
        let continued = places.first().copied().filter(|place| self.last == Some(*place));
        self.last = places.last().copied().or(self.last);
        let taken = SelectedRows { rows: self.rows(picked)?, places: Some(places) };
        Ok(Some(Piece { taken, continued }))
    }

    /// The next candidates: those of the rows up to the next one, and some of that one's.
    fn candidates(&mut self) -> Candidates {
        let (width, is_word) = (self.lookup.keys.codec.words(), self.lookup.keys.is_word());
        let index = &*self.index;
        let texts = [VarColumn::of(&self.columns), index.texts()];
        let sizes = Sizes::new(&self.taken.rows, &index.rows);
        let (mut candidates, mut bytes) = (Candidates::default(), 0);
        while self.row < self.hashes.len() {
            let row = self.row;
            index.buckets.look_ahead(&self.buckets, row);
            let key = &self.keys[row * width..(row + 1) * width];
            let tag = if is_word { key[0] } else { self.hashes[row] };
            while let Some(found) = index.buckets.next(&mut self.buckets[row], tag) {
                let at = found as usize;
                let mut of_texts = texts[0].iter().zip(&texts[1]);
                let equal = is_word
                    || (index.keys[at * width..(at + 1) * width] == *key
                        && of_texts.all(|(a, b)| a.bytes(row) == b.bytes(at)));
                if !equal {
                    continue;
                }
                bytes += sizes.of(row, at);
                candidates.rows.push(row as u32);
                candidates.found.push(found);
                if candidates.rows.len() >= PIECE_ROWS || bytes >= PIECE_BYTES {
                    return candidates;
                }
            }
            self.row = row + 1;
        }
        candidates
    }

    /// Which candidates match; `None`: all.
    fn asked(&self, candidates: &Candidates) -> Result<Option<BooleanArray>> {
        let body = &self.lookup.body;
        let Some(condition) = body.condition.as_ref().filter(|_| !candidates.rows.is_empty())
        else {
            return Ok(None);
        };
        let rows = UInt32Array::from(candidates.rows.clone());
        let found = UInt32Array::from(candidates.found.clone());
        let all: Vec<usize> = (0..body.pair.fields().len()).collect();
        let columns = self.columns_of(&all, &rows, &found)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let pairs = RecordBatch::try_new_with_options(body.pair.clone(), columns, &options)?;
        Ok(Some(BooleanArray::new(true_mask(condition, &pairs)?, None)))
    }

    /// The rows of the next piece. `complete` are those of which all candidates have been looked
    /// at.
    fn pick(
        &mut self,
        complete: Range<usize>,
        candidates: &Candidates,
        mask: Option<&BooleanArray>,
    ) -> Picked {
        let outer = self.lookup.body.outer;
        let mut picked = Picked::default();
        let pairs = candidates.rows.iter().zip(&candidates.found).enumerate();
        let mut pairs = pairs
            .filter(|(at, _)| mask.is_none_or(|mask| mask.value(*at)))
            .map(|(_, pair)| pair)
            .peekable();
        let mut matched = self.matched;
        for row in complete {
            while let Some((_, found)) = pairs.next_if(|(of, _)| **of as usize == row) {
                matched = true;
                picked.rows.push(row as u32);
                picked.found.push(Some(*found));
            }
            if outer && !matched {
                picked.rows.push(row as u32);
                picked.found.push(None);
            }
            matched = false;
        }
        for (row, found) in pairs {
            matched = true;
            picked.rows.push(*row);
            picked.found.push(Some(*found));
        }
        self.matched = matched;
        picked
    }

    fn rows(&self, picked: Picked) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(picked.rows.len()));
        let (rows, found) = (UInt32Array::from(picked.rows), UInt32Array::from(picked.found));
        let columns = self.columns_of(&self.lookup.body.output, &rows, &found)?;
        let schema = self.lookup.schema.clone();
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// Columns of pairs, by their numbers.
    fn columns_of(
        &self,
        columns: &[usize],
        rows: &UInt32Array,
        found: &UInt32Array,
    ) -> Result<Vec<ArrayRef>> {
        let own = self.lookup.body.input_columns();
        let column = |column: &usize| match column.checked_sub(own) {
            None => Ok(take(self.taken.rows.column(*column), rows, None)?),
            Some(column) => Ok(take(self.index.rows.column(column), found, None)?),
        };
        columns.iter().map(column).collect()
    }
}

/// About what pairs take.
struct Sizes<'a> {
    fixed: usize,
    /// Columns whose values differ in size.
    own: Vec<&'a ArrayRef>,
    side: Vec<&'a ArrayRef>,
}

impl<'a> Sizes<'a> {
    fn new(own: &'a RecordBatch, side: &'a RecordBatch) -> Sizes<'a> {
        const FIXED: usize = 16;
        fn varied(rows: &RecordBatch) -> Vec<&ArrayRef> {
            let columns = rows.columns().iter();
            columns.filter(|column| column.data_type().primitive_width().is_none()).collect()
        }
        let (all, own, side) = (own.num_columns() + side.num_columns(), varied(own), varied(side));
        Sizes { fixed: FIXED * (all - own.len() - side.len()), own, side }
    }

    fn of(&self, row: usize, found: usize) -> usize {
        let own: usize = self.own.iter().map(|column| value_bytes(column, row)).sum();
        let side: usize = self.side.iter().map(|column| value_bytes(column, found)).sum();
        self.fixed + own + side
    }
}
