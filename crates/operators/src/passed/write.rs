//! Writing rows: as sections, into as many words as there are.

use std::ops::Range;

use arrow::array::ArrayRef;

use super::format::{
    Argument, Bits64, Format, HEAD_WORDS, MARK, MASKED_ROWS, PART, ROWS, SIDE_SHIFT, place_of,
};
use super::gather::{gather, gather_positions};
use crate::columns::inputs::{Feed, Input, View};
use crate::columns::keys::{VarColumn, range_of};
use crate::error::{Error, Result};
use crate::windowing::SliceId;

/// Rows whose length is looked at together.
const PORTION_ROWS: usize = 128;

/// Rows to be sent, which share a slice and a receiver.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// The slice of the rows.
    pub slice: SliceId,
    /// Positions of the rows in what follows.
    pub picked: &'a [u32],
    /// A group of encoded keys.
    pub words: &'a [u64],
    /// Where the group's rows stand in the batch.
    pub rows: &'a [u32],
    /// Of the whole batch: what has [variable length](Format::vars_of).
    pub vars: &'a [VarColumn<'a>],
    /// Arguments of the aggregates.
    pub arguments: &'a [Input],
}

impl Outgoing<'_> {
    fn row(&self, k: usize) -> usize {
        self.rows[self.picked[k] as usize] as usize
    }
}

impl Format {
    /// How many of the rows, taken from the first, fit into so many words with their head; and how
    /// many words these take.
    pub fn fit(&self, rows: &Outgoing<'_>, room: usize) -> (usize, usize) {
        let masked = self.is_masked(rows.arguments);
        let row_words = self.words + if masked { self.bit_words } else { 0 };
        let Some(room) = room.checked_sub(HEAD_WORDS) else { return (0, HEAD_WORDS) };
        if !self.has_vars() {
            // Rows of no word at all are counted only.
            let count = room.checked_div(row_words).unwrap_or(usize::MAX).min(rows.picked.len());
            return (count, HEAD_WORDS + count * row_words);
        }
        // Portions of rows, smaller ones as soon as one does not fit: of many rows, most are not
        // looked at here.
        let most = room.checked_div(row_words).unwrap_or(usize::MAX).min(rows.picked.len());
        let (mut count, mut bytes, mut portion) = (0, 0, PORTION_ROWS);
        while count < most && portion > 0 {
            let end = (count + portion).min(most);
            let longer = bytes + self.var_bytes(rows, count..end);
            if end * row_words + longer.div_ceil(8) <= room {
                (count, bytes) = (end, longer);
            } else {
                portion = (end - count) / 2;
            }
        }
        (count, HEAD_WORDS + count * row_words + bytes.div_ceil(8))
    }

    /// Bytes of variable length in some of the rows.
    fn var_bytes(&self, rows: &Outgoing<'_>, range: Range<usize>) -> usize {
        let picked = &rows.picked[range.clone()];
        let mut bytes = 0;
        for (var, column) in rows.vars.iter().enumerate() {
            bytes += match self.var_keys.get(var) {
                Some(word) => {
                    let words = &rows.words[*word..];
                    let length = |k: &u32| words[*k as usize * self.key_words] >> 32;
                    picked.iter().map(length).sum::<u64>() as usize
                }
                None => range.clone().map(|k| column.bytes(rows.row(k)).len()).sum::<usize>(),
            };
        }
        bytes
    }

    /// The columns of variable length in a batch, in the format's order.
    pub fn vars_of<'a>(&self, keys: &'a [ArrayRef], inputs: &'a [Input]) -> Vec<VarColumn<'a>> {
        self.vars_behind(VarColumn::of(keys), inputs)
    }

    /// The same, behind those of the keys.
    pub(crate) fn vars_behind<'a>(
        &self,
        mut columns: Vec<VarColumn<'a>>,
        inputs: &'a [Input],
    ) -> Vec<VarColumn<'a>> {
        for argument in self.arguments.iter().filter(|a| a.var.is_some()) {
            if let View::Column(column) = inputs[argument.value].view() {
                columns.extend(VarColumn::new(column));
            }
        }
        columns
    }

    /// Whether rows of these inputs can be told: none that feed a value without a bit stays out.
    pub fn is_for(&self, inputs: &[Input]) -> bool {
        let told =
            |((_, bit), input): (&(_, Option<u32>), &Input)| bit.is_some() || input.takes_all();
        self.feeds.len() == inputs.len() && self.feeds.iter().zip(inputs).all(told)
    }

    fn is_masked(&self, inputs: &[Input]) -> bool {
        self.feeds.iter().zip(inputs).any(|((_, bit), input)| bit.is_some() && !input.takes_all())
    }

    /// Writes the rows as a section, into as many words as [`Format::fit`] said.
    pub fn write(
        &self,
        rows: &Outgoing<'_>,
        out: &mut [u64],
        scratch: &mut Vec<u32>,
    ) -> Result<()> {
        let count = rows.picked.len();
        let masked = self.is_masked(rows.arguments);
        let kind = if masked { MASKED_ROWS } else { ROWS } | (self.side as u64) << SIDE_SHIFT;
        let (head, out) = out.split_at_mut(HEAD_WORDS);
        head.copy_from_slice(&[rows.slice.word(), kind << 32 | count as u64]);
        let (keys, mut out) = out.split_at_mut(count * self.key_words);
        match self.key_words {
            1 => gather(rows.words, rows.picked, keys),
            width => {
                for (k, key) in rows.picked.iter().zip(keys.chunks_exact_mut(width.max(1))) {
                    let at = *k as usize * width;
                    key.copy_from_slice(&rows.words[at..at + width]);
                }
            }
        }
        if masked {
            let (bits, rest) = out.split_at_mut(count * self.bit_words);
            self.write_bits(rows, bits);
            out = rest;
        }
        // Rows that follow each other in the batch are picked from where they stand there.
        let (first, positions) = match range_of(rows.rows) {
            Some(range) => (range.start, rows.picked),
            None if self.arguments.is_empty() => (0, rows.picked),
            None => (0, gather_positions(rows.rows, rows.picked, scratch)),
        };
        for argument in &self.arguments {
            let (column, rest) = out.split_at_mut(count * argument.form.words());
            self.write_argument(argument, rows, first, positions, column)?;
            out = rest;
        }
        if self.has_vars() {
            self.write_vars(rows, out);
        }
        Ok(())
    }

    fn write_bits(&self, rows: &Outgoing<'_>, bits: &mut [u64]) {
        bits.fill(0);
        for ((_, bit), input) in self.feeds.iter().zip(rows.arguments) {
            let Some((words, bit)) = bit.map(|bit| place_of(bit, rows.picked.len())) else {
                continue;
            };
            for (k, word) in bits[words].iter_mut().enumerate() {
                *word |= u64::from(input.takes(rows.row(k) as u32)) << bit;
            }
        }
    }

    fn write_argument(
        &self,
        argument: &Argument,
        rows: &Outgoing<'_>,
        first: usize,
        positions: &[u32],
        out: &mut [u64],
    ) -> Result<()> {
        match rows.arguments[argument.value].view() {
            View::Signed(values) => gather(&words_of(values)[first..], positions, out),
            View::Float(values) => gather(&words_of(values)[first..], positions, out),
            View::Unsigned(values) => gather(&values[first..], positions, out),
            View::Wide(values) => {
                for (row, out) in positions.iter().zip(out.as_chunks_mut::<2>().0) {
                    let value = values[first + *row as usize];
                    *out = [value as u64, (value >> 64) as u64];
                }
            }
            View::Column(_) => {
                let column = argument.var.and_then(|var| rows.vars.get(var));
                for (k, out) in out.iter_mut().enumerate() {
                    *out = column.map_or(0, |column| column.bytes(rows.row(k)).len() as u64);
                }
            }
            View::None | View::Pairs(_) | View::Packed(_) | View::Elements(_) => {
                return Err(Error::Internal("an argument that cannot be exchanged".into()));
            }
        }
        Ok(())
    }

    fn write_vars(&self, rows: &Outgoing<'_>, out: &mut [u64]) {
        // Nothing of what was in the slot before goes out behind the last byte.
        if let Some(last) = out.last_mut() {
            *last = 0;
        }
        let (out, mut end) = (bytes_of_mut(out), 0);
        for column in rows.vars {
            let places = (0..rows.picked.len()).map(|k| rows.row(k));
            end += column.copy(places, &mut out[end..]);
        }
    }
}

/// The two words of a mark behind so many rows.
pub fn mark(watermark: i64, rows: u64) -> [u64; HEAD_WORDS] {
    [watermark as u64, MARK << 32 | u64::from(rows as u32)]
}

/// The head of a part of `count` words, of a section of `total`.
pub fn part(total: usize, count: u32) -> [u64; HEAD_WORDS] {
    [total as u64, PART << 32 | u64::from(count)]
}

fn words_of<T: Bits64>(values: &[T]) -> &[u64] {
    // SAFETY: guaranteed by `Bits64`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: words are writable as bytes, any bytes being words.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}
