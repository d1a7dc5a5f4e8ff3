//! The format of exchanged records in a slot: 8-byte words in this machine's byte order.
//!
//! A slot holds consecutive sections. A section starts with two words: a subject, and a word with
//! the section's kind in its upper half and a count in its lower half. There are three sorts of
//! sections. The first contains the rows of one window slice. Its subject is the name of the slice,
//! and its count is the number of rows:
//!
//! 1. the keys in the form of a [`KeyBlock`](crate::columns::keys::KeyBlock), row after row: rows ×
//!    key words;
//! 2. only in the masked kind, for each row a bit for each value with a filter or NULLs, 64 to a
//!    word, word after word: rows × words of bits;
//! 3. argument by argument, for byte strings the lengths: as many words as rows, or twice as many
//!    for arguments of 128 bits;
//! 4. the bytes of variable-length keys, then of arguments, column by column.
//!
//! Rows of a join belong to one of two sides, each with keys and arguments of its own. The kind
//! names the side ([`SIDE_SHIFT`]).
//!
//! The second is a mark: it promises that no row of an earlier time follows. Its subject is a
//! watermark, and its count is the number of rows so far (its lower 32 bits). The third is one part
//! of a section that is longer than a slot. Its subject is the length of the whole section in
//! words, and its count is the number of words that follow.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;

use millstream_state::ValueKind;

use crate::columns::aggregates::Aggregates;
use crate::columns::keys::KeyCodec;
use crate::columns::stored::Stored;
use crate::columns::value::Value;

/// Words before a section's content.
pub const HEAD_WORDS: usize = 2;

/// Rows of a section at the most.
pub const SECTION_ROWS_MAX: usize = 1 << 16;

/// Where the number of the side stands in the kind of a section of rows.
pub(super) const SIDE_SHIFT: u32 = 8;

pub(super) const ROWS: u64 = 1;
pub(super) const MASKED_ROWS: u64 = 2;
pub(super) const MARK: u64 = 3;
pub(super) const PART: u64 = 4;

/// How an argument's values are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
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
            (MinBytes | MaxBytes | List | Chain | Set | Best(_) | Frequent, _) => Form::Bytes,
            (Registers | Histogram, _) => Form::Unsigned,
            (Min64 | Max64, DataType::UInt64) => Form::OrderedUnsigned,
            (Min64 | Max64, DataType::Float32 | DataType::Float64) => Form::OrderedFloat,
            (Min64 | Max64 | BitAnd | BitOr | BitXor, _) => Form::Signed,
        })
    }

    /// Of a column that is kept as it is.
    fn of_stored(stored: Stored) -> Form {
        match stored {
            Stored::Word => Form::Signed,
            Stored::Wide => Form::Wide,
            Stored::Text | Stored::Encoded => Form::Bytes,
        }
    }

    pub(super) fn words(self) -> usize {
        if self == Form::Wide { 2 } else { 1 }
    }
}

/// An argument that is sent once, however many values it feeds.
#[derive(Debug, Clone)]
pub(super) struct Argument {
    pub(super) form: Form,
    /// The first value with this argument.
    pub(super) value: usize,
    /// Words of a row before this argument, without the words of bits.
    pub(super) before: usize,
    /// Its place among what has variable length, keys first.
    pub(super) var: Option<usize>,
}

/// Form of an exchanged row of a query; the same in all workers.
#[derive(Debug, Clone)]
pub struct Format {
    /// The codec of keys.
    pub codec: KeyCodec,
    pub(super) key_words: usize,
    /// Key words that hold a length.
    pub(super) var_keys: Vec<usize>,
    pub(super) arguments: Vec<Argument>,
    /// Argument and bit of each value.
    pub(super) feeds: Vec<(Option<usize>, Option<u32>)>,
    /// Words of a row, without those of bits.
    pub(super) words: usize,
    /// Words of bits that a row has in the masked kind.
    pub(super) bit_words: usize,
    /// Columns of variable length.
    pub(super) vars: usize,
    /// Side of a join; 0 without a join.
    pub(super) side: usize,
    /// The second side's format, in the format of a join's first side.
    second: Option<Arc<Format>>,
}

impl Format {
    /// The format of these keys and arguments.
    pub fn new(codec: &KeyCodec, aggregates: &Aggregates) -> Format {
        let values = aggregates.values().iter();
        let value = |v: &Value| (Form::of(v).map(|f| (f, v.argument_likeness())), v.masked);
        Format::of(codec, values.map(value))
    }

    /// Of the two sides of a join, whose keys have the same form: each with the columns that are
    /// kept, and whether these can be NULL.
    pub(crate) fn of_sides(sides: [(&KeyCodec, &[(Stored, bool)]); 2]) -> [Arc<Format>; 2] {
        let [first, second] = sides.map(|(codec, columns)| {
            let columns = columns.iter().enumerate();
            let column = |(number, (stored, nullable)): (usize, &(Stored, bool))| {
                (Some((Form::of_stored(*stored), number)), *nullable)
            };
            Format::of(codec, columns.map(column))
        });
        let second = Arc::new(Format { side: 1, ..second });
        [Arc::new(Format { second: Some(second.clone()), ..first }), second]
    }

    /// Format of rows with such values. Each value has an argument, if it takes one; equal
    /// arguments are sent once. A value has a bit if not every row takes part.
    fn of<L: Eq + Hash>(
        codec: &KeyCodec,
        values: impl Iterator<Item = (Option<(Form, L)>, bool)>,
    ) -> Format {
        let var_keys = codec.var_words();
        let (mut words, mut vars, mut bits) = (codec.words(), var_keys.len(), 0);
        let mut arguments: Vec<Argument> = Vec::new();
        let (mut feeds, mut known) = (Vec::new(), HashMap::new());
        for (number, (argument, masked)) in values.enumerate() {
            let argument = argument.map(|(form, likeness)| {
                *known.entry((form, likeness)).or_insert_with(|| {
                    let var = (form == Form::Bytes).then_some(vars);
                    arguments.push(Argument { form, value: number, before: words, var });
                    words += form.words();
                    vars += usize::from(var.is_some());
                    arguments.len() - 1
                })
            });
            let bit = masked.then_some(bits);
            bits += u32::from(masked);
            feeds.push((argument, bit));
        }
        let bit_words = bits.div_ceil(u64::BITS) as usize;
        let (key_words, codec) = (codec.words(), codec.clone());
        let (side, second) = (0, None);
        Format {
            codec,
            key_words,
            var_keys,
            arguments,
            feeds,
            words,
            bit_words,
            vars,
            side,
            second,
        }
    }

    /// The format of side `number` of a join; `None` if there is no such side. `self` is the first
    /// side's.
    pub fn of_side(&self, side: usize) -> Option<&Format> {
        match side {
            0 => Some(self),
            1 => self.second.as_deref(),
            _ => None,
        }
    }

    /// Bytes of a row, at the most, without those of variable length.
    pub(crate) fn row_bytes(&self) -> usize {
        8 * (self.words + self.bit_words)
    }

    /// Words of a row of fixed length.
    #[doc(hidden)]
    pub fn row_words(&self) -> usize {
        self.words
    }

    /// Words of bits that a row may have.
    #[doc(hidden)]
    pub fn bit_words(&self) -> usize {
        self.bit_words
    }

    /// Whether rows have variable-length parts.
    pub fn has_vars(&self) -> bool {
        self.vars > 0
    }
}

/// Which words hold a bit of `rows` rows, and where in each.
pub(super) fn place_of(bit: u32, rows: usize) -> (Range<usize>, u32) {
    let first = (bit / u64::BITS) as usize * rows;
    (first..first + rows, bit % u64::BITS)
}

/// Numbers with the size and alignment of a word.
///
/// # Safety
/// They must have both, and any bits must be a value.
pub(super) unsafe trait Bits64: Copy {}
// SAFETY: eight bytes, aligned to eight, and any bits are a number.
unsafe impl Bits64 for i64 {}
// SAFETY: as above.
unsafe impl Bits64 for f64 {}
