//! State of a temporal join from fired slices: the last version of each key. Earlier versions have
//! no more use, and are dropped.
//!
//! Versions stand in chunks of columns. Each slice adds a chunk; the last two chunks are merged
//! unless one is much smaller than the other, so there are few, and each version is copied a few
//! times. A chunk most of whose versions have been replaced is merged, too.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;

use super::sides::{JoinSide, SideColumns};
use super::slice::{Sought, VersionsOfSlice};
use crate::error::Result;

/// The last version of each key.
#[derive(Default)]
pub(super) struct Versions {
    chunks: Vec<Chunk>,
    /// By the hash of the key, or, if that belongs to another key, the next that is free.
    places: Places,
}

type Places = HashMap<u64, At, BuildHasherDefault<Same>>;

/// Versions of several keys.
struct Chunk {
    columns: SideColumns,
    /// Which of them are still the last of their key, and how many these are.
    live: Vec<bool>,
    live_rows: usize,
}

/// Where a version stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) chunk: u32,
    pub(super) row: u32,
}

/// Hashes are their own.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Versions {
    /// Keys.
    pub(super) fn rows(&self) -> usize {
        self.places.len()
    }

    pub(super) fn bytes(&self) -> usize {
        let chunk = |chunk: &Chunk| chunk.columns.bytes() + chunk.live.capacity();
        let place_bytes = size_of::<(u64, At)>() + 1;
        self.chunks.iter().map(chunk).sum::<usize>() + self.places.capacity() * place_bytes
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = &SideColumns> {
        self.chunks.iter().map(|chunk| &chunk.columns)
    }

    /// The last version of a key.
    pub(super) fn find(&self, side: &JoinSide, sought: &Sought<'_>) -> Option<At> {
        place(&self.chunks, &self.places, side, sought).1
    }

    /// Copies of all chunks, and which versions in them are still the last of their key.
    pub(super) fn copy(&self) -> Vec<(SideColumns, Vec<bool>)> {
        self.chunks.iter().map(|chunk| (chunk.columns.clone(), chunk.live.clone())).collect()
    }

    /// Takes in the versions of a slice, which are later than all before.
    pub(super) fn take_in(&mut self, side: &JoinSide, slice: VersionsOfSlice) -> Result<()> {
        let VersionsOfSlice { columns, order } = slice;
        if columns.rows == 0 {
            return Ok(());
        }
        let texts = columns.texts(side);
        let mut last: Vec<u32> = Vec::new();
        for (at, row) in order.iter().enumerate() {
            let own = Sought::of(&columns, &texts, *row as usize);
            // Keys with one hash may stand among each other.
            let mut later = order[at + 1..].iter();
            let mut later = std::iter::from_fn(|| {
                later.next().filter(|row| columns.hashes[**row as usize] == own.hash)
            });
            if !later.any(|row| own.is_of(&Sought::of(&columns, &texts, *row as usize))) {
                last.push(*row);
            }
        }
        let from: Vec<(usize, usize)> = last.iter().map(|row| (0, *row as usize)).collect();
        let columns = gathered(&[&columns], &from)?;
        self.add(side, columns);
        self.merge(side)
    }

    /// Adds a chunk of versions that replace others.
    fn add(&mut self, side: &JoinSide, columns: SideColumns) {
        let (chunk, rows) = (self.chunks.len(), columns.rows);
        self.chunks.push(Chunk { columns, live: vec![true; rows], live_rows: rows });
        let columns = &self.chunks[chunk].columns;
        let texts = columns.texts(side);
        let mut replaced = Vec::new();
        for row in 0..rows {
            let sought = Sought::of(columns, &texts, row);
            let (hash, before) = place(&self.chunks, &self.places, side, &sought);
            self.places.insert(hash, At { chunk: chunk as u32, row: row as u32 });
            replaced.extend(before);
        }
        for At { chunk, row } in replaced {
            let chunk = &mut self.chunks[chunk as usize];
            chunk.live_rows -= usize::from(std::mem::take(&mut chunk.live[row as usize]));
        }
    }

    /// Merges chunks until there are few, and few versions in them that have been replaced.
    fn merge(&mut self, side: &JoinSide) -> Result<()> {
        while let [.., before, last] = &self.chunks[..]
            && before.live_rows <= 2 * last.live_rows
        {
            self.merge_from(side, self.chunks.len() - 2)?;
        }
        let mostly_replaced = |chunk: &Chunk| chunk.live_rows * 2 < chunk.columns.rows;
        if let Some(first) = self.chunks.iter().position(mostly_replaced) {
            self.merge_from(side, first)?;
        }
        Ok(())
    }

    /// Merges the chunks from `first` on into one.
    fn merge_from(&mut self, side: &JoinSide, first: usize) -> Result<()> {
        let chunks = self.chunks.split_off(first);
        let mut from: Vec<(usize, usize)> = Vec::new();
        for (number, chunk) in chunks.iter().enumerate() {
            let live = chunk.live.iter().enumerate().filter(|(_, live)| **live);
            from.extend(live.map(|(row, _)| (number, row)));
        }
        let all: Vec<&SideColumns> = chunks.iter().map(|chunk| &chunk.columns).collect();
        let columns = gathered(&all, &from)?;
        for (row, (number, old)) in from.iter().enumerate() {
            let old = At { chunk: (first + number) as u32, row: *old as u32 };
            let mut hash = columns.hashes[row];
            while self.places.get(&hash).is_some_and(|at| *at != old) {
                hash = hash.wrapping_add(1);
            }
            self.places.insert(hash, At { chunk: first as u32, row: row as u32 });
        }
        let rows = columns.rows;
        debug_assert!(columns.columns.len() >= side.shown);
        self.chunks.push(Chunk { columns, live: vec![true; rows], live_rows: rows });
        Ok(())
    }
}

/// Under which hash a key's last version is, or would be; and where it stands.
fn place(
    chunks: &[Chunk],
    places: &Places,
    side: &JoinSide,
    sought: &Sought<'_>,
) -> (u64, Option<At>) {
    let mut hash = sought.hash;
    while let Some(at) = places.get(&hash) {
        let columns = &chunks[at.chunk as usize].columns;
        let row = at.row as usize;
        // The texts are looked at only where the rest is equal.
        if columns.hashes[row] == sought.hash {
            let texts = columns.texts(side);
            if sought.is_of(&Sought::of(columns, &texts, row)) {
                return (hash, Some(*at));
            }
        }
        hash = hash.wrapping_add(1);
    }
    (hash, None)
}

/// Rows of several columns as one.
fn gathered(all: &[&SideColumns], from: &[(usize, usize)]) -> Result<SideColumns> {
    let width = all.iter().map(|c| c.keys.len() / c.rows.max(1)).max().unwrap_or(0);
    let mut keys = Vec::with_capacity(from.len() * width);
    let mut hashes = Vec::with_capacity(from.len());
    for (number, row) in from {
        let columns = all[*number];
        keys.extend_from_slice(&columns.keys[row * width..(row + 1) * width]);
        hashes.push(columns.hashes[*row]);
    }
    let column = |at: usize| -> Result<ArrayRef> {
        let arrays: Vec<&dyn Array> = all.iter().map(|columns| &*columns.columns[at]).collect();
        Ok(interleave(&arrays, from)?)
    };
    let columns = all.first().map_or(0, |columns| columns.columns.len());
    let columns = (0..columns).map(column).collect::<Result<_>>()?;
    Ok(SideColumns { rows: from.len(), keys, hashes, columns, places: None })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, BinaryArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;
    use crate::expr::Expr;
    use crate::plan::{Interval, Join, JoinKind, Key, Window};
    use crate::support::Random;

    type Row = (i64, &'static str, i64);

    fn join() -> Join {
        let field = |name, of| Field::new(name, of, false);
        let own = [DataType::Int64, DataType::Utf8, DataType::Int64].map(|of| field("c", of));
        let both = Arc::new(Schema::new([own.clone(), own].concat()));
        let key = |column, data_type: DataType| {
            let expr = Expr::Column(column);
            let key = Key { name: String::new(), expr, data_type, nullable: false };
            [key.clone(), key]
        };
        Join {
            kind: JoinKind::Inner,
            window: Some(Window::Interval(Interval::AS_OF)),
            left_inputs: 1,
            left_columns: 3,
            keys: vec![key(0, DataType::Int64), key(1, DataType::Utf8)],
            as_of: true,
            nulls_are_equal: false,
            broadcast: None,
            condition: None,
            pair: both.clone(),
            fired: both,
            time: None,
            having: None,
            project: vec![],
        }
    }

    /// Rows in their order, from `first` on. Many keys have the same hash.
    fn columns(side: &JoinSide, rows: &[Row], first: usize) -> SideColumns {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)));
        let values = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2)));
        let order = |at: usize| ((first + at) as u64).to_be_bytes();
        let orders = Arc::new(BinaryArray::from_iter_values((0..rows.len()).map(order)));
        let all: Vec<u32> = (0..rows.len() as u32).collect();
        let mut words = vec![0; rows.len() * side.codec.words()];
        side.codec.encode_words(&[keys.clone(), texts.clone()], &all, &mut words);
        let hashes = rows.iter().map(|row| (row.0 % 50) as u64).collect();
        SideColumns {
            rows: rows.len(),
            keys: words,
            hashes,
            columns: vec![keys, texts, values, orders],
            places: None,
        }
    }

    #[test]
    fn the_last_version_of_each_key_is_kept_in_few_chunks() {
        let join = join();
        let [_, side] = &JoinSide::both(&join).unwrap();
        let mut random = Random::new(3);
        let (mut versions, mut last) = (Versions::default(), HashMap::new());
        let mut number = 0;
        for slice in 0..200 {
            let keys = if slice % 20 == 0 { 600 } else { 40 };
            let rows = random.below(if slice % 20 == 0 { 900 } else { 6 });
            let row = |at| {
                let text = ["", "a", "a longer text"][random.below(3) as usize];
                (random.below(keys) as i64, text, number + at as i64)
            };
            let rows: Vec<Row> = (0..rows).map(row).collect();
            last.extend(rows.iter().map(|row| ((row.0, row.1), row.2)));
            let all = columns(side, &rows, number as usize);
            versions.take_in(side, VersionsOfSlice::new(side, all, &join.pair).unwrap()).unwrap();
            number += rows.len() as i64;
            assert_eq!(versions.rows(), last.len());
            assert!(versions.chunks.len() <= 12, "{} chunks", versions.chunks.len());
            let stored: usize = versions.chunks().map(|chunk| chunk.rows).sum();
            assert!(stored <= 2 * last.len() + 1, "{stored} of {}", last.len());
        }
        let mut found = 0;
        for key in 0..700 {
            for text in ["", "a", "a longer text", "nobody's"] {
                let sought = columns(side, &[(key, text, 0)], 0);
                let texts = sought.texts(side);
                let at = versions.find(side, &Sought::of(&sought, &texts, 0));
                let value = |at: At| {
                    let chunk = versions.chunks().nth(at.chunk as usize).unwrap();
                    chunk.columns[2].as_primitive::<Int64Type>().value(at.row as usize)
                };
                assert_eq!(at.map(value), last.get(&(key, text)).copied(), "{key} {text}");
                found += usize::from(at.is_some());
            }
        }
        assert!(found == last.len() && found > 1000, "{found}");
    }
}
