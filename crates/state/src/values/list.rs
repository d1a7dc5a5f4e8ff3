//! Lists: a blob of elements, in no order. Readers sort the elements by their first bytes; so
//! appending is associative and commutative.
//!
//! An element is its length, four bytes, and its bytes.

use crate::memory::arena::Arena;
use crate::values::blob::{blob_bytes, bytes_mut, number_at, resize};
use crate::values::kind::NO_BYTES;

/// The length of an element, before its bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The elements of a list.
pub fn list_elements(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>()?;
        let (element, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = after;
        Some(element)
    })
}

/// Adds an element.
pub(crate) fn add(word: &mut u64, arena: &mut Arena, element: &[u8]) {
    let (len, spare) = (blob_bytes(*word, arena).len(), *word != NO_BYTES);
    resize(word, arena, len + LENGTH_BYTES + element.len(), spare);
    let (length, place) = bytes_mut(*word, arena)[len..].split_at_mut(LENGTH_BYTES);
    length.copy_from_slice(&(element.len() as u32).to_le_bytes());
    place.copy_from_slice(element);
}

/// Whether bytes are whole elements, one after the other.
pub(crate) fn is_list(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        if bytes.len() - at < LENGTH_BYTES {
            return false;
        }
        at += LENGTH_BYTES + number_at(bytes, at);
    }
    at == bytes.len()
}
