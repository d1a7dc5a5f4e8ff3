//! Compaction of an arena: the data that rows still refer to are copied to a new arena, and
//! the rest is freed.

use crate::memory::arena::{Arena, packed_len};
use crate::memory::log::Log;
use crate::table::layout::{RowLayout, ValueSlot};
use crate::values::blob;
use crate::values::chain;
use crate::values::float_sum;
use crate::values::kind::{NO_BYTES, ValueKind};

/// Moves the values of some logs' rows from `arena` into a fresh arena. The rows stay where they
/// are.
pub(crate) fn compact<'l>(
    logs: impl Iterator<Item = &'l mut Log>,
    arena: &mut Arena,
    layout: &RowLayout,
) {
    // The new arena grows as usual, so its capacity equals that of an arena which never held the
    // dead values.
    let old = arena.seal();
    let values = referring(layout);
    for row in logs.flat_map(Log::rows_mut) {
        move_key(row, layout, &old, arena);
        move_values(row, 0, &values, &old, arena);
    }
}

/// The values that may refer to an arena.
pub(crate) fn referring(layout: &RowLayout) -> Vec<ValueSlot> {
    layout.values().iter().copied().filter(|slot| slot.kind.uses_arena()).collect()
}

/// Copies what the key of a row refers to from one arena to another.
pub(crate) fn move_key(row: &mut [u64], layout: &RowLayout, from: &Arena, to: &mut Arena) {
    for &word in layout.var_words() {
        // An empty key refers to nothing.
        if packed_len(row[word]) > 0 {
            row[word] = to.push_text(from.bytes(row[word]), row[word - 1]);
        }
    }
}

/// Copies what these values of a row refer to from one arena to another. `words` are those of the
/// row from its `first` word on.
#[inline]
pub(crate) fn move_values(
    words: &mut [u64],
    first: usize,
    values: &[ValueSlot],
    from: &Arena,
    to: &mut Arena,
) {
    for slot in values {
        let start = slot.word - first;
        let value = &mut words[start..start + slot.kind.words()];
        match (slot.kind, value) {
            (ValueKind::MinBytes | ValueKind::MaxBytes, [text]) if *text != NO_BYTES => {
                *text = to.push_bytes(from.bytes(*text));
            }
            (ValueKind::SumFloat, [.., meta]) => float_sum::relocate(meta, from, to),
            (ValueKind::Chain, [word]) => chain::relocate(word, from, to),
            (kind, [word]) if kind.is_blob() => blob::relocate(word, from, to),
            _ => {}
        }
    }
}
