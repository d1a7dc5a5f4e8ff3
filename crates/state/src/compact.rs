//! Compaction of an arena: the data that rows still refer to are copied to a new arena, and
//! the rest is freed.

use crate::arena::{Arena, packed_len};
use crate::blob;
use crate::float_sum;
use crate::kind::{NO_BYTES, ValueKind};
use crate::layout::RowLayout;
use crate::log::Log;

/// Gives the rows of some logs, which refer to `arena`, a fresh one. They stay where they are.
pub(crate) fn compact<'l>(
    logs: impl Iterator<Item = &'l mut Log>,
    arena: &mut Arena,
    layout: &RowLayout,
) {
    // It grows like any other, so that it takes what it would have taken without what is left
    // behind.
    let old = arena.seal();
    let values: Vec<_> =
        layout.values().iter().copied().filter(|slot| slot.kind.uses_arena()).collect();
    for row in logs.flat_map(Log::rows_mut) {
        for &word in layout.var_words() {
            // An empty key refers to nothing.
            if packed_len(row[word]) > 0 {
                row[word] = arena.push_bytes(old.bytes(row[word]));
            }
        }
        for slot in &values {
            let value = &mut row[slot.word..slot.word + slot.kind.words()];
            match (slot.kind, value) {
                (ValueKind::MinBytes | ValueKind::MaxBytes, [text]) if *text != NO_BYTES => {
                    *text = arena.push_bytes(old.bytes(*text));
                }
                (ValueKind::SumFloat, [.., meta]) => float_sum::relocate(meta, &old, arena),
                (kind, [word]) if kind.is_blob() => blob::relocate(word, &old, arena),
                _ => {}
            }
        }
    }
}
