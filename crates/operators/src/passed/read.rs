//! Reading rows in place, in a slot or a buffer. Rows of another process are checked here, once.

use millstream_state::VarKeys;

use super::format::{
    Argument, Bits64, Form, Format, HEAD_WORDS, MARK, MASKED_ROWS, PART, ROWS, SECTION_ROWS_MAX,
    SIDE_SHIFT, place_of,
};
use crate::columns::inputs::{Feed, Packed, View};
use crate::error::{Error, Result};
use crate::windowing::SliceId;

/// A section as it was received.
#[derive(Debug, Clone, Copy)]
pub enum Section<'a> {
    /// Rows of a slice.
    Rows(Incoming<'a>),
    /// No row of an earlier time follows. So many rows came before, in 32 bits.
    Mark {
        /// The sender's watermark.
        watermark: i64,
        /// The number of rows.
        rows: u32,
    },
    /// A part of a section of `total` words.
    Part {
        /// Bytes of the whole section.
        total: usize,
        /// Words of the section.
        words: &'a [u64],
    },
}

/// Received rows, where they stand.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'a> {
    pub(super) slice: SliceId,
    /// The side of a join that they are of.
    pub(super) side: usize,
    /// The whole section.
    pub(super) words: &'a [u64],
    pub rows: usize,
    pub(super) keys: &'a [u64],
    bits: Option<&'a [u64]>,
    /// Of all arguments.
    arguments: &'a [u64],
    vars: &'a [u8],
}

fn damaged(what: &str) -> Error {
    Error::Internal(format!("a damaged message: {what}"))
}

impl Format {
    /// Takes the first section off `words`. Sections of another process are checked here, once:
    /// lengths fit, and there are as many bytes as the lengths say.
    pub fn next<'a>(&self, words: &mut &'a [u64]) -> Result<Section<'a>> {
        let Some(([subject, counted], rest)) = words.split_first_chunk::<HEAD_WORDS>() else {
            return Err(damaged("a section without a head"));
        };
        let (kind, count) = (counted >> 32, (counted & 0xffff_ffff) as usize);
        let (side, kind) = (kind >> SIDE_SHIFT, kind & ((1 << SIDE_SHIFT) - 1));
        match kind {
            ROWS | MASKED_ROWS => {
                let format = self.of_side(side as usize);
                let format = format.ok_or_else(|| damaged("rows of a side that is not there"))?;
                let (slice, masked) = (SliceId::from_word(*subject), kind == MASKED_ROWS);
                let (mut rows, rest) = format.rows(slice, count, masked, rest)?;
                rows.words = &words[..words.len() - rest.len()];
                *words = rest;
                Ok(Section::Rows(rows))
            }
            _ if side != 0 => Err(damaged("a section of an unknown kind")),
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
        slice: SliceId,
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
        let (side, words, vars) = (self.side, &[][..], &[][..]);
        let mut incoming = Incoming { slice, side, words, rows, keys, bits, arguments, vars };
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
    pub(super) fn list_offsets(&self, incoming: &Incoming<'_>, offsets: &mut Vec<usize>) {
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

    /// Inputs of the values from received rows, with their [offsets](Format::list_offsets).
    pub(super) fn feeds<'a>(
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

/// Input of one value from received rows.
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
    pub(super) incoming: &'a Incoming<'a>,
    pub(super) offsets: &'a [usize],
    pub(super) first: usize,
}

impl VarKeys for ReceivedVars<'_> {
    #[inline]
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        let at = var * self.incoming.rows + self.first + row;
        &self.incoming.vars[self.offsets[at]..self.offsets[at + 1]]
    }
}

fn from_words<T: Bits64>(words: &[u64]) -> &[T] {
    // SAFETY: as above, the other way round.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: words are readable as bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}
