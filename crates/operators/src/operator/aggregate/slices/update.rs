//! Updates of a slice from a batch. Rows go to the worker's own table, to fragments for other
//! leaders, or straight to leaders in other processes.

use std::sync::Arc;

use arrow::array::ArrayRef;
use millstream_state::{
    BLOCK_ROWS, ChunkPool, Fragment, Keys, Mode, Own, RowLayout, Scratch, Table, prefetch_block,
};

use super::Slice;
use super::spare::Spare;
use crate::columns::inputs::{Input, made};
use crate::columns::keys::{ColumnVars, EncodedKeys, VarColumn};
use crate::error::Result;
use crate::operator::aggregate::grouping::{Grouping, Selected};
use crate::operator::aggregate::modes::Modes;
use crate::operator::saved::Since;
use crate::passed::{Onward, Outgoing, Passed, PassedBuffers};
use crate::windowing::SliceId;

/// A slice being updated from a batch.
pub(super) struct Update<'a> {
    pub(super) id: SliceId,
    pub(super) slice: &'a mut Slice,
    pub(super) layout: &'a Arc<RowLayout>,
    pub(super) modes: &'a mut Modes,
    pub(super) mode: Mode,
    pub(super) pool: &'a mut ChunkPool,
    pub(super) scratch: &'a mut Scratch,
    pub(super) picks: &'a mut Vec<u32>,
    pub(super) spare: &'a mut Spare,
    pub(super) grouping: &'a Grouping,
    pub(super) input: &'a Selected<'a>,
    /// The key columns of variable length.
    pub(super) vars: Vec<VarColumn<'a>>,
    pub(super) passage: Option<Passage<'a>>,
    /// 0, 1, 2 and so on.
    pub(super) positions: &'a mut Vec<u32>,
    pub(super) fragment_rows: u64,
}

impl Update<'_> {
    /// Takes in rows of another leader. If its fragment passes rows on, they go on as keys and
    /// arguments, at once as far as there is room, or later. Otherwise they are kept as rows of
    /// state.
    pub(super) fn foreign(
        &mut self,
        leader: usize,
        rows: &[u32],
        keys: EncodedKeys<'_>,
    ) -> Result<()> {
        self.fragment_rows += rows.len() as u64;
        let passed = self.pass(leader, rows, keys)?;
        if passed < rows.len() {
            let width = keys.words.len() / rows.len();
            let EncodedKeys { words, hashes } = keys;
            let hashes = part_of(hashes, passed, hashes.len());
            let keys = EncodedKeys { words: &words[passed * width..], hashes };
            self.rows(To::Fragment(leader), &rows[passed..], keys)?;
        }
        Ok(())
    }

    /// Passes rows on to a leader, from the first on; returns how many.
    fn pass(&mut self, leader: usize, rows: &[u32], keys: EncodedKeys<'_>) -> Result<usize> {
        let Some(passage) = &mut self.passage else { return Ok(0) };
        if self.mode != Mode::PassThrough {
            return Ok(0);
        }
        number(self.positions, rows.len());
        let made = made(self.input.arguments, Some(rows))?;
        let made = made.as_ref().map(|made| (passage.vars_of(self.input.keys, made), &made[..]));
        let (vars, arguments) = match &made {
            Some((vars, arguments)) => (&vars[..], *arguments),
            None => (&passage.vars[..], self.input.arguments),
        };
        let outgoing = Outgoing {
            slice: passage.slice,
            picked: &self.positions[..rows.len()],
            words: keys.words,
            rows,
            vars,
            arguments,
        };
        let passing = &mut *passage.passing;
        let kept = &mut self.slice.passed;
        if kept.is_empty() {
            kept.resize_with(self.slice.fragments.len(), Passed::default);
        }
        let mut passed = 0;
        if let Some(onward) = passage.onward {
            let mut before = kept[leader].take();
            passed = onward.pass(leader, &outgoing, passing, &mut before, self.picks)?;
            kept[leader].put_back(before);
        }
        if passed < rows.len() {
            let rest = Outgoing { picked: &outgoing.picked[passed..], ..outgoing };
            let PassedBuffers { format, pool } = passing;
            passed += kept[leader].keep(format, &rest, pool, self.picks)?;
        }
        self.modes.note_passed(self.id.word(), part_of(keys.hashes, 0, passed));
        Ok(passed)
    }

    /// Whether all tables of the slice find keys without their hashes.
    pub(super) fn is_direct(&self) -> bool {
        let Slice { primary, fragments, .. } = &*self.slice;
        let fragments = fragments.iter().flatten().all(|f| f.is_direct());
        primary.is_direct()
            && (self.mode == Mode::PassThrough || fragments)
            && !self.modes.samples()
    }

    /// Updates a table's rows with keys that stand at `rows` of the batch, block by block.
    pub(super) fn rows(
        &mut self,
        to: To<'_>,
        rows: &[u32],
        EncodedKeys { words, hashes }: EncodedKeys<'_>,
    ) -> Result<()> {
        let first = part_of(hashes, 0, BLOCK_ROWS);
        let Slice { primary, fragments, since, .. } = &mut *self.slice;
        if !matches!(to, To::Fragment(_)) {
            *since = Since::CHANGED;
        }
        let mut table = match to {
            To::All(own) => Target::Joint(primary, own),
            To::Primary => Target::Table(primary),
            To::Fragment(leader) => {
                let fragment = fragments[leader]
                    .get_or_insert_with(|| open_fragment(leader, self.spare, self.layout));
                fragment.pass(self.mode == Mode::PassThrough);
                Target::Fragment(fragment)
            }
        };
        table.prefetch(first);
        let width = words.len() / rows.len();
        for start in (0..rows.len()).step_by(BLOCK_ROWS) {
            let end = (start + BLOCK_ROWS).min(rows.len());
            let rows = &rows[start..end];
            prefetch_block(words, end * width);
            let keys = Keys {
                hashes: part_of(hashes, start, end),
                ahead: part_of(hashes, end, end + BLOCK_ROWS),
                words: &words[start * width..end * width],
                vars: ColumnVars { columns: &self.vars, rows },
            };
            let mut block = match &mut table {
                Target::Fragment(fragment) if self.mode == Mode::PassThrough => {
                    self.modes.note_passed(self.id.word(), keys.hashes);
                    fragment.update(&keys, self.pool, self.scratch)
                }
                Target::Fragment(fragment) => {
                    let block = fragment.update(&keys, self.pool, self.scratch);
                    self.modes.note_looked_up(rows.len(), block.new_rows());
                    block
                }
                Target::Table(table) => table.update(&keys, self.pool, self.scratch),
                Target::Joint(table, own) => {
                    table.update_joint(&keys, *own, self.pool, self.scratch)
                }
            };
            let aggregates = &self.grouping.aggregates;
            aggregates.update(self.layout, self.input.arguments, rows, &mut block, self.picks)?;
        }
        Ok(())
    }
}

/// An empty fragment for a leader.
fn open_fragment(leader: usize, spare: &mut Spare, layout: &Arc<RowLayout>) -> Box<Fragment> {
    spare.take_fragment(leader).unwrap_or_else(|| Box::new(Fragment::new(layout.clone())))
}

/// Which of a slice's tables rows go to.
#[derive(Debug, Clone, Copy)]
pub(super) enum To<'a> {
    /// The leader of each key; these are the worker's own rows.
    All(Own<'a>),
    /// The worker itself is the leader.
    Primary,
    /// Another leader.
    Fragment(usize),
}

enum Target<'s> {
    Table(&'s mut Table),
    Joint(&'s mut Table, Own<'s>),
    Fragment(&'s mut Fragment),
}

impl Target<'_> {
    fn prefetch(&self, hashes: &[u64]) {
        match self {
            Target::Table(table) | Target::Joint(table, _) => table.prefetch(hashes),
            Target::Fragment(fragment) => fragment.prefetch(hashes),
        }
    }
}

/// A part of the hashes of some keys, as far as there are any.
pub(super) fn part_of(hashes: &[u64], start: usize, end: usize) -> &[u64] {
    &hashes[start.min(hashes.len())..end.min(hashes.len())]
}

/// Makes sure that positions are numbered up to `count`.
pub(super) fn number(positions: &mut Vec<u32>, count: usize) {
    positions.extend(positions.len() as u32..count as u32);
}

/// The way of rows that are passed through as keys and arguments.
pub(super) struct Passage<'a> {
    onward: Option<&'a dyn Onward>,
    passing: &'a mut PassedBuffers,
    slice: SliceId,
    /// Columns of variable length.
    vars: Vec<VarColumn<'a>>,
}

impl<'a> Passage<'a> {
    /// `None` where rows of this input cannot be told by themselves.
    pub(super) fn of(
        slice: SliceId,
        onward: Option<&'a dyn Onward>,
        passing: Option<&'a mut PassedBuffers>,
        input: &Selected<'a>,
    ) -> Option<Passage<'a>> {
        let passing = passing.filter(|passing| passing.format.is_for(input.arguments))?;
        let vars = passing.format.vars_of(input.keys, input.arguments);
        Some(Passage { onward, passing, slice, vars })
    }

    /// Columns of variable length of other arguments.
    fn vars_of<'i>(&self, keys: &'i [ArrayRef], arguments: &'i [Input]) -> Vec<VarColumn<'i>> {
        self.passing.format.vars_of(keys, arguments)
    }
}
