//! Sets: of inputs that have the same value, the least is kept.
//!
//! An element ends with its value and, in four bytes, the length of that; what stands before says
//! where it belongs in an order. Of elements with equal values the first one in that order counts.
//!
//! The blob has a head of four bytes: how many bytes of elements were left when it was last tidied.
//! Elements follow as in a list. New ones are put behind, until they are a few times as many bytes;
//! then repeated values are dropped. So a set takes a few times what its values take, however often
//! each comes. Who reads it drops the rest, and sees what depends on the inputs alone: merging is
//! associative and commutative.

use crate::memory::arena::Arena;
use crate::values::blob::{append, blob_bytes, number_at, replace};
use crate::values::kind::NO_BYTES;
use crate::values::list::{self, LENGTH_BYTES, is_list, list_elements};

const HEAD_BYTES: usize = 4;

/// A blob that is not larger is not worth tidying.
const TIDY_BYTES: usize = 256;

/// The value at the end of an element; the whole element if its length field is wrong.
fn value_of(element: &[u8]) -> &[u8] {
    let value = element.split_last_chunk::<LENGTH_BYTES>().and_then(|(rest, length)| {
        rest.get(rest.len().checked_sub(u32::from_le_bytes(*length) as usize)?..)
    });
    value.unwrap_or(element)
}

/// The elements whose values come first, in their order.
pub fn set_elements(bytes: &[u8]) -> Vec<&[u8]> {
    let elements = list_elements(bytes.get(HEAD_BYTES..).unwrap_or_default());
    let mut valued: Vec<(&[u8], &[u8])> =
        elements.map(|element| (value_of(element), element)).collect();
    valued.sort_unstable();
    valued.dedup_by_key(|(value, _)| *value);
    let mut firsts: Vec<&[u8]> = valued.into_iter().map(|(_, element)| element).collect();
    firsts.sort_unstable();
    firsts
}

/// Adds an element.
pub(crate) fn add(word: &mut u64, arena: &mut Arena, element: &[u8]) {
    if *word == NO_BYTES {
        append(word, arena, &[0; HEAD_BYTES]);
    }
    list::add(word, arena, element);
    tidy_if_large(word, arena);
}

/// Adds the elements of another blob.
pub(crate) fn merge(word: &mut u64, arena: &mut Arena, bytes: &[u8]) {
    append(word, arena, bytes.get(HEAD_BYTES..).unwrap_or_default());
    tidy_if_large(word, arena);
}

/// Drops repeated values, where there may be many of them.
fn tidy_if_large(word: &mut u64, arena: &mut Arena) {
    let bytes = blob_bytes(*word, arena);
    if bytes.len() <= TIDY_BYTES.max(3 * number_at(bytes, 0)) {
        return;
    }
    let mut tidied = vec![0; HEAD_BYTES];
    for element in set_elements(bytes) {
        tidied.extend_from_slice(&(element.len() as u32).to_le_bytes());
        tidied.extend_from_slice(element);
    }
    let left = (tidied.len() - HEAD_BYTES) as u32;
    tidied[..HEAD_BYTES].copy_from_slice(&left.to_le_bytes());
    replace(word, arena, &tidied);
}

/// True if the bytes are a blob of this kind. Elements may have any content.
pub(crate) fn is_set(bytes: &[u8]) -> bool {
    bytes.split_at_checked(HEAD_BYTES).is_some_and(|(_, elements)| is_list(elements))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(order: u32, value: &str) -> Vec<u8> {
        let length = (value.len() as u32).to_le_bytes();
        [&order.to_be_bytes()[..], value.as_bytes(), &length].concat()
    }

    fn read(word: u64, arena: &Arena) -> Vec<Vec<u8>> {
        set_elements(blob_bytes(word, arena)).into_iter().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn the_first_of_each_value_is_kept_in_order() {
        let (mut arena, mut word) = (Arena::default(), NO_BYTES);
        for (order, value) in [(5, "b"), (3, "a"), (4, "b"), (9, ""), (7, "a"), (8, "")] {
            add(&mut word, &mut arena, &element(order, value));
        }
        assert_eq!(read(word, &arena), [element(3, "a"), element(4, "b"), element(8, "")]);
        assert_eq!(set_elements(&[]), Vec::<&[u8]>::new());
    }

    /// Values that come again and again take no more than a few times what they are.
    #[test]
    fn a_set_is_as_large_as_its_values() {
        for values in [1, 3, 500] {
            let (mut arena, mut word) = (Arena::default(), NO_BYTES);
            for order in (0..20_000).rev() {
                add(&mut word, &mut arena, &element(order, &format!("{:08}", order % values)));
            }
            let all: usize =
                (0..values).map(|order| LENGTH_BYTES + element(order, "12345678").len()).sum();
            let bytes = blob_bytes(word, &arena).len();
            assert!(bytes <= (3 * all).max(TIDY_BYTES) + 24, "{bytes} for {all}");
            let firsts: Vec<Vec<u8>> =
                (0..values).map(|order| element(order, &format!("{order:08}"))).collect();
            assert_eq!(read(word, &arena), firsts);
        }
    }

    #[test]
    fn elements_of_other_forms_are_their_own_values() {
        let (mut arena, mut word) = (Arena::default(), NO_BYTES);
        for _ in 0..2 {
            for odd in [&b""[..], b"ab", &[0, 255, 255, 255, 255]] {
                add(&mut word, &mut arena, odd);
            }
        }
        assert_eq!(read(word, &arena), [&b""[..], &[0, 255, 255, 255, 255], b"ab"]);
        assert!(is_set(blob_bytes(word, &arena)) && is_set(&[0; 4]));
        assert!(!is_set(&[0; 3]) && !is_set(&[0, 0, 0, 0, 9, 0, 0, 0]));
    }
}
