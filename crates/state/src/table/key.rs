//! The keys of a block of records, and how rows of state hold keys.

use crate::memory::arena::{Arena, packed_len};
use crate::table::layout::RowLayout;

/// The variable-length parts of a block's keys.
pub trait VarKeys {
    /// The bytes of the `var`-th variable-length key column for row `row` of the block.
    fn bytes(&self, row: usize, var: usize) -> &[u8];
}

/// For keys of fixed width.
#[derive(Debug, Clone, Copy)]
pub struct NoVarKeys;

impl VarKeys for NoVarKeys {
    fn bytes(&self, _row: usize, _var: usize) -> &[u8] {
        &[]
    }
}

/// A block of keys, row after row, with their hashes.
///
/// A variable-length key column has two words: the hash of its content, and its length in the upper
/// half of the second, whose lower half is 0; `hash_words` over the row's words is the key's hash,
/// to which a [`Prefix`](crate::Prefix), if the layout has one, gives its partition.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a, V> {
    /// One hash per row. For [`Table::update`](crate::Table::update) there may be none where keys
    /// have one word each: they are hashed if need be
    /// ([`Table::is_direct`](crate::Table::is_direct)).
    pub hashes: &'a [u64],
    /// Hashes of the block that comes next, if it is known: their cache lines are asked for
    /// meanwhile.
    pub ahead: &'a [u64],
    /// `key_words` words per row.
    pub words: &'a [u64],
    /// Contents of the variable-length columns.
    pub vars: V,
}

impl<V: VarKeys> Keys<'_, V> {
    /// How many there are.
    pub(crate) fn rows(&self, layout: &RowLayout) -> usize {
        if layout.has_word_keys() {
            let one_each = self.hashes.len() == self.words.len();
            assert!(self.hashes.is_empty() || one_each, "a hash for every key, or none");
            return self.words.len();
        }
        assert_eq!(
            self.words.len(),
            self.hashes.len() * layout.key_words(),
            "a hash for every key"
        );
        self.hashes.len()
    }

    /// Writes a new row at `place`, copying variable-length keys into the arena. Keys may share a
    /// text's place.
    ///
    /// # Safety
    /// `place` must be memory for a row of this layout.
    #[inline]
    pub(crate) unsafe fn write_row(
        &self,
        row: usize,
        place: *mut u64,
        layout: &RowLayout,
        arena: &mut Arena,
    ) {
        let width = layout.key_words();
        let key = &self.words[row * width..(row + 1) * width];
        // SAFETY: the row has its key's words, followed by the template's.
        let words = unsafe {
            std::ptr::copy_nonoverlapping(key.as_ptr(), place, width);
            let template = layout.template();
            std::ptr::copy_nonoverlapping(template.as_ptr(), place.add(width), template.len());
            std::slice::from_raw_parts_mut(place, width)
        };
        for (var, &word) in layout.var_words().iter().enumerate() {
            let bytes = self.vars.bytes(row, var);
            if !bytes.is_empty() {
                // The text's hash stands before.
                words[word] = arena.push_text(bytes, words[word - 1]);
            }
        }
    }

    /// Whether the row at `place` has the key of row `row` of the block.
    ///
    /// # Safety
    /// `place` must be a written row of this layout that refers to `arena`, and that nobody
    /// changes.
    #[inline]
    pub(crate) unsafe fn is_at(
        &self,
        row: usize,
        place: *const u64,
        layout: &RowLayout,
        arena: &Arena,
    ) -> bool {
        let width = layout.key_words();
        let key = &self.words[row * width..(row + 1) * width];
        // SAFETY: as the caller promises.
        let stored = unsafe { std::slice::from_raw_parts(place, width) };
        let vars = layout.var_words();
        if vars.is_empty() {
            // Keys are short: a call of a comparison takes longer than comparing their words.
            return stored.iter().zip(key).fold(0, |differ, (s, k)| differ | (s ^ k)) == 0;
        }
        stored.iter().zip(key).enumerate().all(|(i, (s, k))| {
            if vars.contains(&i) { packed_len(*s) == packed_len(*k) } else { s == k }
        }) && vars.iter().enumerate().all(|(var, &word)| {
            packed_len(stored[word]) == 0
                || same(arena.bytes(stored[word]), self.vars.bytes(row, var))
        })
    }
}

/// Whether two texts are the same. Most are short, and a call that compares any takes longer than
/// their two ends, which may overlap.
#[inline]
fn same(left: &[u8], right: &[u8]) -> bool {
    fn ends<const N: usize>(text: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
        text.first_chunk::<N>().zip(text.last_chunk::<N>())
    }
    if left.len() != right.len() {
        return false;
    }
    match left.len() {
        8..=16 => ends::<8>(left) == ends::<8>(right),
        4..8 => ends::<4>(left) == ends::<4>(right),
        2..4 => ends::<2>(left) == ends::<2>(right),
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_length_are_the_same_if_no_byte_differs() {
        for length in 0..40 {
            let text: Vec<u8> = (0..length).map(|at| at as u8).collect();
            assert!(same(&text, &text.clone()), "{length}");
            for at in 0..length {
                let mut other = text.clone();
                other[at] ^= 1;
                assert!(!same(&text, &other) && !same(&other, &text), "{length}, {at}");
            }
            let longer = [&text[..], b"x"].concat();
            assert!(!same(&text, &longer) && !same(&longer, &text), "{length}");
        }
    }
}
