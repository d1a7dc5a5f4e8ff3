//! Row layout: what stands where in a row of state.
//!
//! A row is a whole number of 8-byte words: the key's words, then, if any value needs it, one word
//! of *seen* bits (has this value met a non-NULL input?), then the values. It is decided once, when
//! a job is planned, and is the same in every worker.

use crate::value::ValueKind;

/// Layout of the rows of one operator's state.
#[derive(Debug, Clone, PartialEq)]
pub struct RowLayout {
    key_words: usize,
    /// Key words that hold a packed arena reference; the word before holds the content's hash.
    var_words: Vec<usize>,
    seen_word: Option<usize>,
    values: Vec<ValueSlot>,
    /// What a new row's words after the key start as: every value empty.
    template: Vec<u64>,
}

/// Where one mergeable value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueSlot {
    /// What it is.
    pub kind: ValueKind,
    /// Its first word within the row.
    pub word: usize,
    /// Its bit in the seen word, if it can stay empty in a row that exists.
    pub seen_bit: Option<u32>,
}

impl RowLayout {
    /// Lays out rows with `key_words` words of key, of which `var_words` are arena references, and
    /// the given values; the flag says whether a row may exist without the value having met input.
    ///
    /// # Panics
    /// If more than 64 values may stay empty; the planner refuses such queries.
    pub fn new(key_words: usize, var_words: Vec<usize>, values: &[(ValueKind, bool)]) -> RowLayout {
        let optional = values.iter().filter(|(kind, opt)| *opt && kind.tracks_seen()).count();
        assert!(optional <= 64, "more than 64 values that may stay empty");
        let seen_word = (optional > 0).then_some(key_words);
        let mut word = key_words + usize::from(optional > 0);
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
        RowLayout { key_words, var_words, seen_word, values: slots, template }
    }

    /// Words of key.
    pub fn key_words(&self) -> usize {
        self.key_words
    }

    /// Words of a row.
    pub fn row_words(&self) -> usize {
        self.key_words + self.template.len()
    }

    /// Bytes of a row, without what it refers to in the arena.
    pub fn row_bytes(&self) -> usize {
        self.row_words() * 8
    }

    /// Key words that are arena references.
    pub fn var_words(&self) -> &[usize] {
        &self.var_words
    }

    /// Whether keys are a single word, of fixed width: what most records have.
    pub(crate) fn has_word_keys(&self) -> bool {
        self.key_words == 1 && self.var_words.is_empty()
    }

    /// The word of seen bits, if there is one.
    pub fn seen_word(&self) -> Option<usize> {
        self.seen_word
    }

    /// The values.
    pub fn values(&self) -> &[ValueSlot] {
        &self.values
    }

    /// A new row's words after its key.
    pub fn template(&self) -> &[u64] {
        &self.template
    }

    /// Texts that a row refers to at the most, of its key and its values.
    pub fn texts(&self) -> usize {
        let texts = |kind| matches!(kind, ValueKind::MinBytes | ValueKind::MaxBytes);
        self.var_words.len() + self.values.iter().filter(|value| texts(value.kind)).count()
    }

    /// Whether rows may own memory in the arena.
    pub fn uses_arena(&self) -> bool {
        !self.var_words.is_empty() || self.values.iter().any(|v| v.kind.uses_arena())
    }
}
