//! Temporal joins: each row of the left side with the last version of its key that is no later than
//! it.
//!
//! The version is in the row's own slice, or else the last version of earlier slices, which have
//! fired ([`versions`](super::versions)).

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::compute::{cast, interleave, take};
use arrow::datatypes::{Int64Type, SchemaRef};

use super::program::JoinProgram;
use super::sides::SideColumns;
use super::slice::{Sought, VersionsOfSlice, orders};
use super::versions::{At, Versions};
use crate::columns::inputs::true_mask;
use crate::error::{Error, Result};
use crate::operator::record_order::time_bytes;

/// The version that a row of the left side meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// Of the slice.
    Own(u32),
    Before(At),
}

impl JoinProgram {
    /// Joins rows of the left side with their versions.
    pub(super) fn as_of(
        &self,
        left: &SideColumns,
        slice: &VersionsOfSlice,
        versions: &Versions,
    ) -> Result<Option<RecordBatch>> {
        let mut met = self.met(left, slice, versions)?;
        if let Some(condition) = &self.condition {
            let places: Vec<u32> =
                (0..left.rows as u32).filter(|row| met[*row as usize].is_some()).collect();
            if !places.is_empty() {
                let pairs = self.beside(&self.pair, left, &places, &met, (slice, versions))?;
                let mask = true_mask(condition, &pairs)?;
                for (at, row) in places.iter().enumerate() {
                    if !mask.value(at) {
                        met[*row as usize] = None;
                    }
                }
            }
        }
        let given = |row: &u32| self.kind.keeps_left() || met[*row as usize].is_some();
        let places: Vec<u32> = (0..left.rows as u32).filter(given).collect();
        if places.is_empty() {
            return Ok(None);
        }
        self.beside(&self.fired, left, &places, &met, (slice, versions)).map(Some)
    }

    /// The version that each row of the left side meets.
    fn met(
        &self,
        left: &SideColumns,
        slice: &VersionsOfSlice,
        versions: &Versions,
    ) -> Result<Vec<Option<Met>>> {
        let [own, other] = &self.sides;
        let times = own.hidden.and_then(|hidden| left.columns.get(hidden));
        let times = times.and_then(|times| times.as_primitive_opt::<Int64Type>());
        let times = times.ok_or_else(|| Error::Internal("rows without a time".into()))?;
        let bytes = orders(other, &slice.columns)?;
        let (left_texts, right_texts) = (left.texts(own), slice.columns.texts(other));
        let mut met = Vec::with_capacity(left.rows);
        for row in 0..left.rows {
            let sought = Sought::of(left, &left_texts, row);
            // Of all versions that are no later, the last.
            let latest = (sought.hash, time_bytes(Some(times.value(row))));
            let is_before = |version: &u32| {
                let version = *version as usize;
                let time = &bytes.bytes(version)[..8];
                (slice.columns.hashes[version], time) <= (latest.0, &latest.1[..])
            };
            let end = slice.order.partition_point(is_before);
            let own = slice.order[..end].iter().rev();
            let own =
                own.take_while(|version| slice.columns.hashes[**version as usize] == latest.0);
            let mut own = own.filter(|version| {
                sought.is_of(&Sought::of(&slice.columns, &right_texts, **version as usize))
            });
            met.push(match own.next() {
                Some(version) => Some(Met::Own(*version)),
                None => versions.find(other, &sought).map(Met::Before),
            });
        }
        Ok(met)
    }

    /// Rows of the left side, at some places, next to the versions that they meet, or NULLs.
    fn beside(
        &self,
        schema: &SchemaRef,
        left: &SideColumns,
        places: &[u32],
        met: &[Option<Met>],
        (slice, versions): (&VersionsOfSlice, &Versions),
    ) -> Result<RecordBatch> {
        let rows = UInt32Array::from(places.to_vec());
        let mut columns: Vec<ArrayRef> = Vec::new();
        for column in &left.columns[..self.sides[0].shown] {
            let taken = take(column, &rows, None)?;
            let wanted = schema.field(columns.len()).data_type();
            columns.push(if taken.data_type() == wanted { taken } else { cast(&taken, wanted)? });
        }
        // NULL, the slice's own, then those of slices before.
        let place = |row: &u32| match met[*row as usize] {
            None => (0, 0),
            Some(Met::Own(version)) => (1, version as usize),
            Some(Met::Before(at)) => (2 + at.chunk as usize, at.row as usize),
        };
        let from: Vec<(usize, usize)> = places.iter().map(place).collect();
        for column in 0..self.sides[1].shown {
            let null = new_null_array(schema.field(columns.len()).data_type(), 1);
            let own = &slice.columns.columns[column];
            let before = versions.chunks().map(|chunk| &chunk.columns[column]);
            let all = [&null, own].into_iter().chain(before).map(|array| &**array);
            columns.push(interleave(&all.collect::<Vec<&dyn Array>>(), &from)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    }
}
