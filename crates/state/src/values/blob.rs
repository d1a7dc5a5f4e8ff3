//! Blobs: values of variable size that change in place.
//!
//! A row has one word for a blob: its offset in the arena, or [`NO_BYTES`] while the value is
//! empty. There stands a head, one word with the length in bytes below and the capacity in words
//! above, and behind it the room. A blob that does not fit its room moves to one twice as large,
//! and leaves the old room to other blobs. When rooms without a blob are more than half of the
//! arena, the table moves everything that is alive to a fresh one ([`crate::table::compact`]). So
//! merging into the same row again and again takes no more memory than what is merged.

use crate::memory::arena::Arena;
use crate::memory::rooms::rounded;
use crate::values::kind::NO_BYTES;

/// The least room of a blob, in words.
const ROOM_WORDS_MIN: usize = 2;

#[inline(always)]
fn head(arena: &Arena, word: u64) -> (usize, usize) {
    let head = arena.words(word as u32, 1)[0];
    (head as u32 as usize, (head >> 32) as usize)
}

/// Content of a blob; empty if there is no blob.
#[inline(always)]
pub fn blob_bytes(word: u64, arena: &Arena) -> &[u8] {
    if word == NO_BYTES {
        return &[];
    }
    let (len, _) = head(arena, word);
    arena.bytes(crate::memory::arena::pack(len, word as u32 + 1))
}

/// The same, to be changed.
pub(crate) fn bytes_mut(word: u64, arena: &mut Arena) -> &mut [u8] {
    if word == NO_BYTES {
        return &mut [];
    }
    let (len, _) = head(arena, word);
    arena.bytes_mut(crate::memory::arena::pack(len, word as u32 + 1))
}

/// Mutable content of a blob of `N` bytes; `None` if its length differs.
#[inline(always)]
pub(crate) fn fixed_mut<const N: usize>(word: u64, arena: &mut Arena) -> Option<&mut [u8; N]> {
    // An empty one lies outside.
    let (head, rest) = arena.rest_mut(word).split_first_mut()?;
    if *head as u32 as usize != N {
        return None;
    }
    let words = rest.get_mut(..N.div_ceil(8))?;
    // SAFETY: so many bytes are borrowed alone, and any bits are bytes.
    Some(unsafe { &mut *words.as_mut_ptr().cast::<[u8; N]>() })
}

/// Makes a blob `len` bytes long: its content stays, as far as it fits, and zeros follow. A blob
/// that moves to a larger place gets spare room if `spare`.
pub(crate) fn resize(word: &mut u64, arena: &mut Arena, len: usize, spare: bool) {
    resize_up_to(word, arena, len, if spare { usize::MAX } else { len });
}

/// The same, with spare room for at most `most` bytes in all.
pub(crate) fn resize_up_to(word: &mut u64, arena: &mut Arena, len: usize, most: usize) {
    let (old_len, capacity) = if *word == NO_BYTES { (0, 0) } else { head(arena, *word) };
    let needed = len.div_ceil(8);
    if *word != NO_BYTES && needed <= capacity {
        arena.words_mut(*word as u32, 1)[0] = (capacity as u64) << 32 | len as u64;
        return clear(*word, arena, old_len, len);
    }
    assert!(len < u32::MAX as usize, "a value of 4 GiB");
    let room = match most > len {
        true => (2 * capacity).min(most.div_ceil(8)).max(needed).max(ROOM_WORDS_MIN),
        false => needed,
    };
    if *word != NO_BYTES && arena.ends_at(*word as usize + 1 + capacity) {
        // The last one need not move.
        arena.alloc_words(room - capacity);
        arena.note_blob(1 + room);
        arena.words_mut(*word as u32, 1)[0] = (room as u64) << 32 | len as u64;
        return clear(*word, arena, old_len, 8 * capacity);
    }
    let left = arena.take_room(1 + room);
    let (offset, words) = match left {
        Some(left) => left,
        None => {
            let words = if most > len { rounded(1 + room) } else { 1 + room };
            (arena.alloc_words(words), words)
        }
    };
    arena.note_blob(words);
    arena.words_mut(offset, 1)[0] = ((words - 1) as u64) << 32 | len as u64;
    if *word != NO_BYTES {
        let old = *word as u32 as usize + 1;
        arena.copy_within(old..old + old_len.div_ceil(8), offset as usize + 1);
        arena.leave_room(*word as u32, 1 + capacity);
    }
    *word = u64::from(offset);
    if left.is_some() {
        // The room may have bytes of the blob before.
        clear(*word, arena, old_len, len);
    }
}

/// Zeros the bytes of a blob from `start` to `end`, as far as it has them. A fresh place has zeros.
fn clear(word: u64, arena: &mut Arena, start: usize, end: usize) {
    let bytes = bytes_mut(word, arena);
    let end = end.min(bytes.len());
    if let Some(rest) = bytes.get_mut(start..end) {
        rest.fill(0);
    }
}

/// Appends bytes to a blob.
pub(crate) fn append(word: &mut u64, arena: &mut Arena, bytes: &[u8]) {
    let (len, spare) = (blob_bytes(*word, arena).len(), *word != NO_BYTES);
    resize(word, arena, len + bytes.len(), spare);
    bytes_mut(*word, arena)[len..].copy_from_slice(bytes);
}

/// Makes room for `count` bytes at a position; what stands there moves on.
pub(crate) fn insert(word: &mut u64, arena: &mut Arena, at: usize, bytes: &[u8]) {
    let len = blob_bytes(*word, arena).len();
    resize(word, arena, len + bytes.len(), true);
    let all = bytes_mut(*word, arena);
    all.copy_within(at..len, at + bytes.len());
    all[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Puts bytes in the place of all that a blob has.
pub(crate) fn replace(word: &mut u64, arena: &mut Arena, bytes: &[u8]) {
    resize(word, arena, bytes.len(), true);
    bytes_mut(*word, arena).copy_from_slice(bytes);
}

/// Copies a blob from `old` to `arena`, with a quarter of spare room if it has any.
pub(crate) fn relocate(word: &mut u64, old: &Arena, arena: &mut Arena) {
    if *word == NO_BYTES {
        return;
    }
    let bytes = blob_bytes(*word, old);
    let (_, capacity) = head(old, *word);
    let words = bytes.len().div_ceil(8);
    let room = (words + words / 4 + 1).min(capacity).max(words);
    let offset = arena.alloc_words(1 + room);
    arena.note_blob(1 + room);
    arena.words_mut(offset, 1)[0] = (room as u64) << 32 | bytes.len() as u64;
    *word = u64::from(offset);
    bytes_mut(*word, arena).copy_from_slice(bytes);
}

/// Four bytes at a position as a number.
pub(crate) fn number_at(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        Some(four) => u32::from_le_bytes(*four) as usize,
        None => 0,
    }
}
