//! Operations on values of any size, by kind: input, merging, checking.

use crate::memory::arena::Arena;
use crate::values::blob::{append, blob_bytes};
use crate::values::kind::{NO_BYTES, ValueKind};
use crate::{
    values::best, values::chain, values::frequent, values::histogram, values::list,
    values::registers, values::set,
};

/// Takes one input of bytes in.
pub(crate) fn take_bytes(kind: ValueKind, word: &mut u64, arena: &mut Arena, input: &[u8]) {
    match kind {
        ValueKind::List => list::add(word, arena, input),
        ValueKind::Chain => chain::add(word, arena, input),
        ValueKind::Set => set::add(word, arena, input),
        ValueKind::Best(wanted) => best::add(wanted, word, arena, input),
        ValueKind::Frequent => frequent::add(word, arena, input),
        _ => debug_assert!(false, "{kind:?} takes no bytes"),
    }
}

/// Merges the blob or chain `from`, which stands in `theirs`, into one of the same kind.
pub(crate) fn merge(kind: ValueKind, word: &mut u64, arena: &mut Arena, from: u64, theirs: &Arena) {
    if kind == ValueKind::Chain {
        return chain::merge(word, arena, from, theirs);
    }
    let bytes = blob_bytes(from, theirs);
    if bytes.is_empty() {
        return;
    }
    if *word == NO_BYTES {
        // Merging into an empty value copies the bytes, for every kind; without spare room, since
        // few rows are merged twice.
        append(word, arena, bytes);
        return;
    }
    match kind {
        ValueKind::List => append(word, arena, bytes),
        ValueKind::Set => set::merge(word, arena, bytes),
        ValueKind::Best(wanted) => best::merge(wanted, word, arena, bytes),
        ValueKind::Frequent => frequent::merge(word, arena, bytes),
        ValueKind::Registers => registers::merge(word, arena, bytes),
        ValueKind::Histogram => histogram::merge(word, arena, bytes),
        _ => debug_assert!(false, "{kind:?} is no blob"),
    }
}

/// Whether a row's word, whatever a peer has written, is a blob of this kind in `arena`.
pub(crate) fn is_blob(kind: ValueKind, word: u64, arena: &Arena) -> bool {
    if word == NO_BYTES {
        return true;
    }
    let words = arena.all_words();
    let Some(head) = usize::try_from(word).ok().and_then(|offset| words.get(offset)) else {
        return false;
    };
    let (len, capacity) = (*head as u32 as usize, (*head >> 32) as usize);
    let fits = word < u64::from(u32::MAX)
        && capacity < words.len() - word as usize
        && len.div_ceil(8) <= capacity
        && len > 0;
    if !fits {
        return false;
    }
    let bytes = blob_bytes(word, arena);
    match kind {
        ValueKind::List => list::is_list(bytes),
        ValueKind::Set => set::is_set(bytes),
        ValueKind::Best(_) => best::is_best(bytes),
        ValueKind::Frequent => frequent::is_frequent(bytes),
        ValueKind::Registers => registers::is_registers(bytes),
        ValueKind::Histogram => histogram::is_histogram(bytes),
        _ => false,
    }
}
