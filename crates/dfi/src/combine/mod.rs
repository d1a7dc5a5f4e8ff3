//! Combine flows: the only target aggregates by group (thesis, section 7.5.4).
//!
//! The target keeps a [`Table`] of `millstream-state`: keys are the tuples' group attributes,
//! values are mergeable. Results do not depend on the order in which tuples arrive, to the last
//! bit, floats included.

mod aggregate;
mod number;

use std::sync::Arc;

use millstream_fabric::Fabric;
use millstream_state::{
    BLOCK_ROWS, ChunkPool, Keys, NoVarKeys, RowLayout, RowsRef, Scratch, Table, ValueKind,
    blob_bytes, float_from_ordered, float_sum, hash_words, read_bytes, read_decimal_sum, read_i128,
};

use crate::batch::{Batch, Consumed};
use crate::combine::aggregate::Planned;
use crate::error::{Error, Result};
use crate::schema::{Schema, Type};
use crate::target::Target;

pub use aggregate::Aggregate;

/// Bytes of the table's chunks that are kept for use again.
const POOL_BYTES: usize = 1 << 20;

/// An aggregating target: the receiving end of a combine flow.
///
/// The target may belong to a flow of any kind. Behind a shuffle by key, each target has its own
/// groups.
pub struct Combiner<F: Fabric> {
    target: Target<F>,
    groups: Groups,
}

impl<F: Fabric> Combiner<F> {
    /// Aggregates the tuples of `target` by these attributes. An empty list makes one group.
    ///
    /// # Errors
    /// The schema has no such attribute, or its type does not fit the function
    /// ([`Error::NoAttribute`]).
    pub fn new(
        target: Target<F>,
        group_by: &[&str],
        aggregates: &[Aggregate],
    ) -> Result<Combiner<F>> {
        let groups = Groups::new(target.schema(), group_by, aggregates)?;
        Ok(Combiner { target, groups })
    }

    /// Takes the next segment, waiting for it. Returns false when all sources have closed.
    ///
    /// # Errors
    /// As [`Target::consume`].
    pub fn step(&mut self) -> Result<bool> {
        match self.target.consume()? {
            Some(batch) => {
                self.groups.take(&batch);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Takes the next segment, if it is there. Never waits.
    ///
    /// # Errors
    /// As [`Target::try_consume`].
    pub fn try_step(&mut self) -> Result<Combined> {
        Ok(match self.target.try_consume()? {
            Consumed::Batch(batch) => {
                self.groups.take(&batch);
                Combined::Segment
            }
            // Combine flows have no gaps.
            Consumed::Empty | Consumed::Gap(_) => Combined::Empty,
            Consumed::End => Combined::End,
        })
    }

    /// Takes everything, until all sources have closed.
    ///
    /// # Errors
    /// As [`Target::consume`].
    pub fn finish(&mut self) -> Result<()> {
        while self.step()? {}
        Ok(())
    }

    /// The groups so far, in no order.
    pub fn rows(&self) -> impl Iterator<Item = Group<'_>> {
        let table = &self.groups.table;
        (0..table.scan_blocks()).flat_map(move |block| {
            let rows = table.scan(block);
            (0..rows.len()).map(move |row| Group {
                groups: &self.groups,
                rows: table.scan(block),
                row,
            })
        })
    }

    /// The target.
    pub fn target(&mut self) -> &mut Target<F> {
        &mut self.target
    }
}

/// Result of [`Combiner::try_step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combined {
    /// A segment was aggregated.
    Segment,
    /// Nothing yet.
    Empty,
    /// All sources have closed.
    End,
}

/// A group attribute's place in the tuple and in the row's key.
#[derive(Debug, Clone)]
struct KeyPart {
    offset: usize,
    bytes: usize,
    word: usize,
    type_name: String,
}

/// The state of all groups.
struct Groups {
    parts: Vec<KeyPart>,
    aggregates: Vec<Planned>,
    layout: Arc<RowLayout>,
    table: Table,
    pool: ChunkPool,
    scratch: Scratch,
    /// Of a block of tuples: words of keys, hashes, doubles.
    words: Vec<u64>,
    hashes: Vec<u64>,
    doubles: Vec<f64>,
}

impl Groups {
    fn new(schema: &Schema, group_by: &[&str], aggregates: &[Aggregate]) -> Result<Groups> {
        let mut parts = Vec::new();
        let mut word = 0;
        for name in group_by {
            let Some(attribute) = schema.find(name) else {
                let (name, wanted) = ((*name).to_owned(), "any kind".to_owned());
                return Err(Error::NoAttribute { name, wanted, schema: schema.to_string() });
            };
            let (offset, bytes) = (attribute.offset, attribute.bytes);
            parts.push(KeyPart { offset, bytes, word, type_name: attribute.type_name.clone() });
            word += bytes.div_ceil(8);
        }
        let plan = |one: &Aggregate| one.plan(schema);
        let aggregates: Vec<Planned> = aggregates.iter().map(plan).collect::<Result<_>>()?;
        let kinds: Vec<(ValueKind, bool)> =
            aggregates.iter().map(|one| (one.kind, false)).collect();
        // Without a group attribute all tuples have the same key of one word.
        let layout = Arc::new(RowLayout::new(word.max(1), Vec::new(), &kinds));
        Ok(Groups {
            parts,
            aggregates,
            table: Table::new(layout.clone()),
            pool: ChunkPool::new(layout.row_words(), POOL_BYTES, None),
            words: Vec::with_capacity(BLOCK_ROWS * layout.key_words()),
            layout,
            scratch: Scratch::default(),
            hashes: Vec::with_capacity(BLOCK_ROWS),
            doubles: Vec::with_capacity(BLOCK_ROWS),
        })
    }

    /// Aggregates a batch, a block of rows at a time.
    fn take(&mut self, batch: &Batch<'_>) {
        for block in batch.bytes().chunks(BLOCK_ROWS * batch.tuple_bytes) {
            self.take_block(block, batch.tuple_bytes);
        }
    }

    fn take_block(&mut self, block: &[u8], tuple_bytes: usize) {
        let width = self.layout.key_words();
        let count = block.len() / tuple_bytes;
        self.words.clear();
        self.words.resize(count * width, 0);
        let tuples = block.chunks_exact(tuple_bytes);
        for (tuple, key) in tuples.zip(self.words.chunks_exact_mut(width)) {
            for part in &self.parts {
                let words = &mut key[part.word..];
                let bytes = &tuple[part.offset..part.offset + part.bytes];
                for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_ne_bytes(whole);
                }
            }
        }
        self.hashes.clear();
        self.hashes.extend(self.words.chunks_exact(width).map(hash_words));
        let keys = Keys { hashes: &self.hashes, ahead: &[], words: &self.words, vars: NoVarKeys };
        let mut rows = self.table.update(&keys, &mut self.pool, &mut self.scratch);
        for (planned, slot) in self.aggregates.iter().zip(self.layout.values()) {
            let tuple = |k: usize| &block[k * tuple_bytes..(k + 1) * tuple_bytes];
            planned.update(&mut rows, *slot, (count, tuple), &mut self.doubles);
        }
    }
}

/// A group: values of attributes and aggregates.
pub struct Group<'a> {
    groups: &'a Groups,
    rows: RowsRef<'a>,
    row: usize,
}

/// The result of an aggregate.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Of [`ValueKind::Count`].
    Count(u64),
    /// A sum or extreme of integers.
    Integer(i128),
    /// A sum or extreme of floats.
    Float(f64),
    /// Of the bit operations.
    Bits(u64),
    /// An extreme of byte strings, or a blob: `millstream-state` reads it (`list_elements`,
    /// `registers_estimate`, `histogram_quantile`, `frequent_values`).
    Bytes(&'a [u8]),
    /// A chain: `millstream-state` reads it (`chain_elements`), with the word and
    /// [`Group::state`]'s arena.
    Chain(u64),
    /// A sum that needs more than 128 bits, in decimal.
    Wide(String),
}

impl<'a> Group<'a> {
    /// The value of the `index`-th group attribute; `None` if there is no such attribute, or its
    /// type is another.
    pub fn key<T: Type>(&self, index: usize) -> Option<T> {
        let part = self.groups.parts.get(index)?;
        if part.type_name != T::NAME || part.bytes != size_of::<T>() {
            return None;
        }
        let words = part.bytes.div_ceil(8);
        let all: Vec<u64> =
            (part.word..part.word + words).map(|word| self.rows.word(self.row, word)).collect();
        // SAFETY: the words hold the attribute's bytes, of which every pattern is a value.
        Some(unsafe { all.as_ptr().cast::<T>().read_unaligned() })
    }

    /// The result of the `index`-th aggregate; `None` if there is no such aggregate.
    pub fn value(&self, index: usize) -> Option<Value<'a>> {
        let planned = self.groups.aggregates.get(index)?;
        let slot = self.groups.layout.values().get(index)?;
        let word = |at: usize| self.rows.word(self.row, slot.word + at);
        let arena = self.rows.arena();
        Some(match planned.kind {
            ValueKind::Count => Value::Count(word(0)),
            ValueKind::SumInt | ValueKind::Min128 | ValueKind::Max128 => {
                Value::Integer(read_i128(word(0), word(1)))
            }
            ValueKind::SumDecimal => match read_decimal_sum([word(0), word(1), word(2)]) {
                Ok(sum) => Value::Integer(sum),
                Err(text) => Value::Wide(text),
            },
            ValueKind::SumFloat => {
                Value::Float(float_sum::finish([word(0), word(1), word(2)], arena))
            }
            ValueKind::Min64 | ValueKind::Max64 if planned.is_ordered_float() => {
                Value::Float(float_from_ordered(word(0) as i64))
            }
            ValueKind::Min64 | ValueKind::Max64 => Value::Integer((word(0) as i64).into()),
            ValueKind::BitAnd | ValueKind::BitOr | ValueKind::BitXor => Value::Bits(word(0)),
            ValueKind::MinBytes | ValueKind::MaxBytes => {
                Value::Bytes(read_bytes(word(0), arena).unwrap_or_default())
            }
            ValueKind::Chain => Value::Chain(word(0)),
            _ => Value::Bytes(blob_bytes(word(0), arena)),
        })
    }

    /// The rows of the table that the group stands in, for kinds of value that
    /// `millstream-state` reads.
    pub fn state(&self) -> &RowsRef<'a> {
        &self.rows
    }
}
