//! The format of exchanged records in a slot: 8-byte words in this machine's byte order.
//!
//! A slot holds sections, one after the other. A section starts with two words: a subject, and a
//! word with the section's kind in its upper half and a count in its lower half. There are three
//! sorts of sections. The first contains the rows of one window slice. Its subject is the start of
//! the slice, and its count is the number of rows:
//!
//! 1. the keys as [`KeyBlock`](crate::columns::keys::KeyBlock) has them, row after row: rows × key
//!    words;
//! 2. only in the masked kind, for each row a bit for each value that not every row feeds, 64 to a
//!    word, word after word: rows × words of bits;
//! 3. one argument after the other, for byte strings their lengths: as many words as rows, or twice
//!    as many for arguments of 128 bits;
//! 4. the bytes of variable-length keys, then of arguments, column by column.
//!
//! The second is a mark: it promises that no row of an earlier time follows. Its subject is a
//! watermark, and its count is the number of rows so far (its lower 32 bits). The third is one part
//! of a section that is longer than a slot. Its subject is the length of the whole section in
//! words, and its count is the number of words that follow.

use std::collections::HashMap;
use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use millstream_state::{ValueKind, VarKeys};

use crate::columns::aggregates::{Aggregates, Value};
use crate::columns::inputs::{Feed, Input, Packed, View};
use crate::columns::keys::{KeyCodec, VarColumn, range_of};
use crate::error::{Error, Result};

use super::gather::{gather, gather_positions};

/// Words before a section's content.
pub(crate) const HEAD_WORDS: usize = 2;

/// Rows of a section at the most.
pub(crate) const SECTION_ROWS_MAX: usize = 1 << 16;

const ROWS: u64 = 1;
const MASKED_ROWS: u64 = 2;
const MARK: u64 = 3;
const PART: u64 = 4;

/// How an argument's values are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    Signed,
    Unsigned,
    Float,
    /// Floats as integers of the same order.
    OrderedFloat,
    /// Unsigned integers as signed ones of the same order.
    OrderedUnsigned,
    Wide,
    Bytes,
}

impl Form {
    fn of(value: &Value) -> Option<Form> {
        use ValueKind::*;
        Some(match (value.kind, &value.argument_type) {
            (Count, _) => return None,
            (SumInt, DataType::UInt64) => Form::Unsigned,
            (SumInt, _) => Form::Signed,
            (SumFloat, _) => Form::Float,
            (SumDecimal | Min128 | Max128, _) => Form::Wide,
            (MinBytes | MaxBytes, _) => Form::Bytes,
            (Min64 | Max64, DataType::UInt64) => Form::OrderedUnsigned,
            (Min64 | Max64, DataType::Float32 | DataType::Float64) => Form::OrderedFloat,
            (Min64 | Max64, _) => Form::Signed,
        })
    }

    fn words(self) -> usize {
        if self == Form::Wide { 2 } else { 1 }
    }
}

/// An argument that is sent once, however many values it feeds.
#[derive(Debug, Clone)]
struct Argument {
    form: Form,
    /// The first value that it feeds.
    value: usize,
    /// Words of a row before it, without those of bits.
    before: usize,
    /// Its place among what has variable length, keys first.
    var: Option<usize>,
}

/// What an exchanged row of one query consists of; the same in all workers.
#[derive(Debug, Clone)]
pub(crate) struct Format {
    key_words: usize,
    /// Key words that hold a length.
    var_keys: Vec<usize>,
    arguments: Vec<Argument>,
    /// Per value: which argument feeds it, and its bit.
    feeds: Vec<(Option<usize>, Option<u32>)>,
    /// Words of a row, without those of bits.
    words: usize,
    /// Words of bits that a row has in the masked kind.
    bit_words: usize,
    /// Columns of variable length.
    vars: usize,
}

impl Format {
    pub(crate) fn new(codec: &KeyCodec, aggregates: &Aggregates) -> Format {
        let var_keys = codec.var_words();
        let (mut words, mut vars, mut bits) = (codec.words(), var_keys.len(), 0);
        let mut arguments: Vec<Argument> = Vec::new();
        let (mut feeds, mut known) = (Vec::new(), HashMap::new());
        for (number, value) in aggregates.values().iter().enumerate() {
            let argument = Form::of(value).map(|form| {
                *known.entry((form, value.argument_likeness())).or_insert_with(|| {
                    let var = (form == Form::Bytes).then_some(vars);
                    arguments.push(Argument { form, value: number, before: words, var });
                    words += form.words();
                    vars += usize::from(var.is_some());
                    arguments.len() - 1
                })
            });
            let bit = value.masked.then_some(bits);
            bits += u32::from(value.masked);
            feeds.push((argument, bit));
        }
        let bit_words = bits.div_ceil(u64::BITS) as usize;
        Format { key_words: codec.words(), var_keys, arguments, feeds, words, bit_words, vars }
    }

    /// Bytes of a row, at the most, without those of variable length.
    pub(crate) fn row_bytes(&self) -> usize {
        8 * (self.words + self.bit_words)
    }

    /// Words of a row of fixed length.
    #[cfg(test)]
    pub(crate) fn row_words(&self) -> usize {
        self.words
    }

    /// Words of bits that a row may have.
    #[cfg(test)]
    pub(crate) fn bit_words(&self) -> usize {
        self.bit_words
    }

    /// Whether rows have variable-length parts.
    pub(crate) fn has_vars(&self) -> bool {
        self.vars > 0
    }
}

/// Rows to be sent, which share a slice and a receiver.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) start: i64,
    /// Positions of the rows in what follows.
    pub(crate) picked: &'a [u32],
    /// A group of encoded keys.
    pub(crate) words: &'a [u64],
    /// Where the group's rows stand in the batch.
    pub(crate) rows: &'a [u32],
    /// Of the whole batch: what has [variable length](Format::vars_of).
    pub(crate) vars: &'a [VarColumn<'a>],
    pub(crate) arguments: &'a [Input],
}

impl Outgoing<'_> {
    fn row(&self, k: usize) -> usize {
        self.rows[self.picked[k] as usize] as usize
    }
}

impl Format {
    /// How many of the rows, taken from the first, fit into so many words with their head; and how
    /// many words these take.
    pub(crate) fn fit(&self, rows: &Outgoing<'_>, room: usize) -> (usize, usize) {
        let masked = self.is_masked(rows.arguments);
        let row_words = self.words + if masked { self.bit_words } else { 0 };
        let Some(room) = room.checked_sub(HEAD_WORDS) else { return (0, HEAD_WORDS) };
        if !self.has_vars() {
            // Rows of no word at all are counted only.
            let count = room.checked_div(row_words).unwrap_or(usize::MAX).min(rows.picked.len());
            return (count, HEAD_WORDS + count * row_words);
        }
        // As many as fit if all are alike, and fewer until they do: the caller goes on with the
        // rest.
        let mut count = rows.picked.len();
        loop {
            let words = count * row_words + self.var_bytes(rows, count).div_ceil(8);
            if words <= room || count == 0 {
                return (count, HEAD_WORDS + words);
            }
            count = (count * room / words).min(count - 1);
        }
    }

    /// Bytes of variable length in the first `count` rows.
    fn var_bytes(&self, rows: &Outgoing<'_>, count: usize) -> usize {
        let picked = &rows.picked[..count];
        let mut bytes = 0;
        for (var, column) in rows.vars.iter().enumerate() {
            bytes += match self.var_keys.get(var) {
                Some(word) => {
                    let words = &rows.words[*word..];
                    let length = |k: &u32| words[*k as usize * self.key_words] >> 32;
                    picked.iter().map(length).sum::<u64>() as usize
                }
                None => (0..count).map(|k| column.bytes(rows.row(k)).len()).sum(),
            };
        }
        bytes
    }

    /// What has variable length in a batch, in its order.
    pub(crate) fn vars_of<'a>(
        &self,
        keys: &'a [ArrayRef],
        inputs: &'a [Input],
    ) -> Vec<VarColumn<'a>> {
        let mut columns = VarColumn::of(keys);
        for argument in self.arguments.iter().filter(|a| a.var.is_some()) {
            if let View::Column(column) = inputs[argument.value].view() {
                columns.extend(VarColumn::new(column));
            }
        }
        columns
    }

    /// Whether rows of these inputs can be told: none that feed a value without a bit stays out.
    pub(crate) fn is_for(&self, inputs: &[Input]) -> bool {
        let told =
            |((_, bit), input): (&(_, Option<u32>), &Input)| bit.is_some() || input.takes_all();
        self.feeds.len() == inputs.len() && self.feeds.iter().zip(inputs).all(told)
    }

    fn is_masked(&self, inputs: &[Input]) -> bool {
        self.feeds.iter().zip(inputs).any(|((_, bit), input)| bit.is_some() && !input.takes_all())
    }

    /// Writes the rows as a section, into as many words as [`Format::fit`] said.
    pub(crate) fn write(
        &self,
        rows: &Outgoing<'_>,
        out: &mut [u64],
        scratch: &mut Vec<u32>,
    ) -> Result<()> {
        let count = rows.picked.len();
        let masked = self.is_masked(rows.arguments);
        let kind = if masked { MASKED_ROWS } else { ROWS };
        let (head, out) = out.split_at_mut(HEAD_WORDS);
        head.copy_from_slice(&[rows.start as u64, kind << 32 | count as u64]);
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
            View::None | View::Pairs(_) | View::Packed(_) => {
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
            for k in 0..rows.picked.len() {
                let bytes = column.bytes(rows.row(k));
                out[end..end + bytes.len()].copy_from_slice(bytes);
                end += bytes.len();
            }
        }
    }
}

/// A section as it was received.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Section<'a> {
    Rows(Incoming<'a>),
    /// No row of an earlier time follows. So many rows came before, in 32 bits.
    Mark {
        watermark: i64,
        rows: u32,
    },
    /// A part of a section of `total` words.
    Part {
        total: usize,
        words: &'a [u64],
    },
}

/// Received rows, where they stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) start: i64,
    pub(crate) rows: usize,
    pub(crate) keys: &'a [u64],
    bits: Option<&'a [u64]>,
    /// Of all arguments.
    arguments: &'a [u64],
    vars: &'a [u8],
}

/// Which words hold a bit of `rows` rows, and where in each.
fn place_of(bit: u32, rows: usize) -> (Range<usize>, u32) {
    let first = (bit / u64::BITS) as usize * rows;
    (first..first + rows, bit % u64::BITS)
}

fn damaged(what: &str) -> Error {
    Error::Internal(format!("a damaged message: {what}"))
}

impl Format {
    /// Takes the first section off `words`. What another process wrote is checked here, once:
    /// lengths fit, and there are as many bytes as the lengths say.
    pub(crate) fn next<'a>(&self, words: &mut &'a [u64]) -> Result<Section<'a>> {
        let Some(([subject, counted], rest)) = words.split_first_chunk::<HEAD_WORDS>() else {
            return Err(damaged("a section without a head"));
        };
        let (kind, count) = (counted >> 32, (counted & 0xffff_ffff) as usize);
        match kind {
            ROWS | MASKED_ROWS => {
                let (rows, rest) = self.rows(*subject as i64, count, kind == MASKED_ROWS, rest)?;
                *words = rest;
                Ok(Section::Rows(rows))
            }
            MARK => {
                *words = rest;
                Ok(Section::Mark { watermark: *subject as i64, rows: count as u32 })
            }
            PART => match (rest.split_at_checked(count), usize::try_from(*subject)) {
                (Some((part, rest)), Ok(total)) if count > 0 && count <= total => {
                    *words = rest;
                    Ok(Section::Part { total, words: part })
                }
                _ => Err(damaged("a part of another length than it says")),
            },
            _ => Err(damaged("a section of an unknown kind")),
        }
    }

    fn rows<'a>(
        &self,
        start: i64,
        rows: usize,
        masked: bool,
        words: &'a [u64],
    ) -> Result<(Incoming<'a>, &'a [u64])> {
        let too_short = || damaged("fewer words than its rows take");
        if !(1..=SECTION_ROWS_MAX).contains(&rows) {
            return Err(damaged("an impossible number of rows"));
        }
        let (keys, rest) = words.split_at_checked(rows * self.key_words).ok_or_else(too_short)?;
        let bit_words = if masked { self.bit_words } else { 0 };
        let (bits, rest) = rest.split_at_checked(rows * bit_words).ok_or_else(too_short)?;
        let argument_words = self.words - self.key_words;
        let (arguments, rest) =
            rest.split_at_checked(rows * argument_words).ok_or_else(too_short)?;
        let bits = masked.then_some(bits);
        let mut incoming = Incoming { start, rows, keys, bits, arguments, vars: &[] };
        if !self.has_vars() {
            return Ok((incoming, rest));
        }
        let mut bytes = 0;
        for var in 0..self.vars {
            for row in 0..rows {
                let length = self.length(&incoming, var, row);
                bytes += length.ok_or_else(|| damaged("a byte string of impossible length"))?;
            }
        }
        let (vars, rest) = rest.split_at_checked(bytes.div_ceil(8)).ok_or_else(too_short)?;
        incoming.vars = &bytes_of(vars)[..bytes];
        Ok((incoming, rest))
    }

    /// Bytes of a variable-length column in a row; `None` if there cannot be as many. At most 2^32,
    /// so that a sum over what a slot holds does not overflow.
    fn length(&self, incoming: &Incoming<'_>, var: usize, row: usize) -> Option<usize> {
        match self.var_keys.get(var) {
            Some(word) => {
                // The lower half is for a place, which it has not.
                let reference = incoming.keys[row * self.key_words + word];
                (reference as u32 == 0).then_some((reference >> 32) as usize)
            }
            None => {
                let argument = self.arguments.iter().find(|a| a.var == Some(var))?;
                let length = self.column(argument, incoming)[row];
                u32::try_from(length).ok().map(|length| length as usize)
            }
        }
    }

    fn column<'a>(&self, argument: &Argument, incoming: &Incoming<'a>) -> &'a [u64] {
        let rows = incoming.rows;
        let first = rows * (argument.before - self.key_words);
        &incoming.arguments[first..first + rows * argument.form.words()]
    }

    /// Lists where each byte string of the received rows starts, column by column; and where the
    /// last one ends.
    pub(crate) fn list_offsets(&self, incoming: &Incoming<'_>, offsets: &mut Vec<usize>) {
        offsets.clear();
        if !self.has_vars() {
            return;
        }
        let mut end = 0;
        offsets.push(end);
        for var in 0..self.vars {
            for row in 0..incoming.rows {
                // All have been looked at when they were received.
                end += self.length(incoming, var, row).unwrap_or(0);
                offsets.push(end);
            }
        }
    }

    /// What feeds the values from received rows, with their [offsets](Format::list_offsets).
    pub(crate) fn feeds<'a>(
        &self,
        incoming: &Incoming<'a>,
        offsets: &'a [usize],
    ) -> Vec<Received<'a>> {
        let feed = |(argument, bit): &(Option<usize>, Option<u32>)| {
            let view = match argument {
                None => View::None,
                Some(number) => self.view(&self.arguments[*number], incoming, offsets),
            };
            let bits = incoming.bits.zip(*bit).map(|(bits, bit)| {
                let (words, bit) = place_of(bit, incoming.rows);
                (&bits[words], bit)
            });
            Received { view, bits }
        };
        self.feeds.iter().map(feed).collect()
    }

    fn view<'a>(
        &self,
        argument: &Argument,
        incoming: &Incoming<'a>,
        offsets: &'a [usize],
    ) -> View<'a> {
        let words = self.column(argument, incoming);
        match argument.form {
            Form::Signed | Form::OrderedFloat | Form::OrderedUnsigned => {
                View::Signed(from_words(words))
            }
            Form::Unsigned => View::Unsigned(words),
            Form::Float => View::Float(from_words(words)),
            Form::Wide => View::Pairs(words.as_chunks::<2>().0),
            Form::Bytes => {
                let first = argument.var.unwrap_or(0) * incoming.rows;
                let offsets = &offsets[first..=first + incoming.rows];
                View::Packed(Packed { offsets, bytes: incoming.vars })
            }
        }
    }
}

/// What feeds one value from received rows.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    view: View<'a>,
    bits: Option<(&'a [u64], u32)>,
}

impl Feed for Received<'_> {
    fn takes_all(&self) -> bool {
        self.bits.is_none()
    }

    #[inline]
    fn takes(&self, row: u32) -> bool {
        self.bits.is_none_or(|(bits, bit)| bits[row as usize] >> bit & 1 == 1)
    }

    fn view(&self) -> View<'_> {
        self.view
    }
}

/// The variable-length keys of a block of received rows, which starts at `first`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedVars<'a> {
    pub(crate) incoming: &'a Incoming<'a>,
    pub(crate) offsets: &'a [usize],
    pub(crate) first: usize,
}

impl VarKeys for ReceivedVars<'_> {
    #[inline]
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        let at = var * self.incoming.rows + self.first + row;
        &self.incoming.vars[self.offsets[at]..self.offsets[at + 1]]
    }
}

/// The two words of a mark behind so many rows.
pub(crate) fn mark(watermark: i64, rows: u64) -> [u64; HEAD_WORDS] {
    [watermark as u64, MARK << 32 | u64::from(rows as u32)]
}

/// The head of a part of `count` words, of a section of `total`.
pub(crate) fn part(total: usize, count: u32) -> [u64; HEAD_WORDS] {
    [total as u64, PART << 32 | u64::from(count)]
}

/// Numbers with the size and alignment of a word.
///
/// # Safety
/// They must have both, and any bits must be a value.
unsafe trait Bits64: Copy {}
// SAFETY: eight bytes, aligned to eight, and any bits are a number.
unsafe impl Bits64 for i64 {}
// SAFETY: as above.
unsafe impl Bits64 for f64 {}

fn words_of<T: Bits64>(values: &[T]) -> &[u64] {
    // SAFETY: that is what `Bits64` says.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

fn from_words<T: Bits64>(words: &[u64]) -> &[T] {
    // SAFETY: as above, the other way round.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: words are readable as bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: words are writable as bytes, any bytes being words.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}
