//! Layout of a row: the words of keys and values.
//!
//! A row is a whole number of 8-byte words: the key's words; then, if any value needs them, *seen*
//! bits (has this value met an input that is not NULL?), 64 to a word; then the values. The layout
//! is fixed when a job is planned, and is the same in every worker.

use std::ops::Range;

use crate::table::prefix::Prefix;
use crate::values::kind::ValueKind;

/// Seen bits in a word.
const SEEN_BITS: u32 = u64::BITS;

/// Layout of the rows of one operator's state.
#[derive(Debug, Clone, PartialEq)]
pub struct RowLayout {
    key_words: usize,
    /// Key words that hold a packed arena reference; the word before holds the content's hash.
    var_words: Vec<usize>,
    /// The part of a key that decides about its leader; `None`: the whole key.
    prefix: Option<Prefix>,
    seen_words: Range<usize>,
    values: Vec<ValueSlot>,
    /// Initial words of a new row behind the key: every value empty.
    template: Vec<u64>,
}

/// Where one mergeable value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueSlot {
    /// Kind of the value.
    pub kind: ValueKind,
    /// Its first word within the row.
    pub word: usize,
    /// Its bit in the seen words, if it can stay empty in a row that exists.
    pub seen_bit: Option<u32>,
}

impl RowLayout {
    /// Lays out rows with `key_words` words of key, of which `var_words` are arena references, and
    /// the given values; the flag says whether a row may exist without the value having met input.
    pub fn new(key_words: usize, var_words: Vec<usize>, values: &[(ValueKind, bool)]) -> RowLayout {
        let optional = values.iter().filter(|(kind, opt)| *opt && kind.tracks_seen()).count();
        let seen_words = key_words..key_words + optional.div_ceil(SEEN_BITS as usize);
        let mut word = seen_words.end;
        let (mut slots, mut template) = (Vec::new(), vec![0; word - key_words]);
        let mut next_bit = 0;
        for &(kind, opt) in values {
            let seen_bit = (opt && kind.tracks_seen()).then(|| {
                next_bit += 1;
                next_bit - 1
            });
            slots.push(ValueSlot { kind, word, seen_bit });
            template.extend_from_slice(kind.empty());
            word += kind.words();
        }
        if word == 0 {
            // Neither key nor value: a row is still something.
            template.push(0);
        }
        RowLayout { key_words, var_words, prefix: None, seen_words, values: slots, template }
    }

    /// The same rows, with keys whose leaders their prefixes alone say.
    pub fn led_by(self, prefix: Option<Prefix>) -> RowLayout {
        RowLayout { prefix, ..self }
    }

    /// The part of a key that decides about its leader; `None`: the whole key.
    pub fn prefix(&self) -> Option<Prefix> {
        self.prefix
    }

    /// The same rows without the last word of their keys, which refers to no text; the leader
    /// follows from the other words. Rows must have other words ([`RowLayout::with_note`]).
    pub fn without_last_key_word(&self) -> RowLayout {
        debug_assert!(self.row_words() > 1, "rows of no words");
        let mut layout = RowLayout { prefix: None, ..self.clone() };
        layout.key_words -= 1;
        layout.seen_words = self.seen_words.start - 1..self.seen_words.end - 1;
        layout.values.iter_mut().for_each(|slot| slot.word -= 1);
        layout
    }

    /// The same rows with one more word, which is 0 in a new row, and no value.
    pub fn with_note(&self) -> RowLayout {
        let mut layout = self.clone();
        layout.template.push(0);
        layout
    }

    /// Words of key.
    #[inline]
    pub fn key_words(&self) -> usize {
        self.key_words
    }

    /// Words of a row.
    #[inline]
    pub fn row_words(&self) -> usize {
        self.key_words + self.template.len()
    }

    /// Bytes of a row, without what it refers to in the arena.
    pub fn row_bytes(&self) -> usize {
        self.row_words() * 8
    }

    /// Key words that are arena references.
    #[inline]
    pub fn var_words(&self) -> &[usize] {
        &self.var_words
    }

    /// Whether keys are a single word, of fixed width, whose hash alone says who leads them: what
    /// most records have.
    pub(crate) fn has_word_keys(&self) -> bool {
        self.key_words == 1 && self.var_words.is_empty() && self.prefix.is_none()
    }

    /// The words of seen bits; empty if no value needs a bit.
    pub fn seen_words(&self) -> Range<usize> {
        self.seen_words.clone()
    }

    /// A word of each row, and which bit of it says whether `slot` has met input.
    #[inline(always)]
    pub fn seen(&self, slot: ValueSlot) -> Option<(usize, u64)> {
        let bit = slot.seen_bit?;
        let word = self.seen_words.start + (bit / SEEN_BITS) as usize;
        assert!(word < self.seen_words.end, "a value of another layout");
        Some((word, 1 << (bit % SEEN_BITS)))
    }

    /// The values.
    #[inline]
    pub fn values(&self) -> &[ValueSlot] {
        &self.values
    }

    /// A new row's words after its key.
    pub fn template(&self) -> &[u64] {
        &self.template
    }

    /// Texts that a row refers to at the most, of its key and its values.
    pub fn texts(&self) -> usize {
        let texts = |kind: ValueKind| kind.bytes_per_input() > 0;
        self.var_words.len() + self.values.iter().filter(|value| texts(value.kind)).count()
    }

    /// Maximum bytes of an input in the arena, besides its texts.
    pub(crate) fn bytes_per_input(&self) -> usize {
        let values = self.values.iter().map(|value| value.kind.bytes_per_input());
        8 * self.var_words.len() + values.sum::<usize>()
    }

    /// Whether some values are blobs.
    pub(crate) fn has_blobs(&self) -> bool {
        self.values.iter().any(|value| value.kind.is_blob())
    }

    /// Whether some values are chains.
    pub(crate) fn has_chains(&self) -> bool {
        self.values.iter().any(|value| value.kind == ValueKind::Chain)
    }

    /// Whether rows may own memory in the arena.
    pub fn uses_arena(&self) -> bool {
        !self.var_words.is_empty() || self.values.iter().any(|v| v.kind.uses_arena())
    }
}
