//! The first elements in an order: a blob that keeps the least elements, as many as are wanted.
//!
//! An element begins with the length of its sort key (four bytes); behind that, elements compare as
//! bytes, and the sort key comes first. Elements with equal sort keys are *peers*. What `RANK` or
//! `DENSE_RANK` bounds are elements by their sort keys, so they keep all peers of the last one.
//!
//! The blob has a head of three numbers of four bytes: how many elements there are, how many of
//! them have stood at its beginning since it was last pruned, and where the last of these in their
//! order stands if no element behind it is wanted any more (0: any may be). Elements follow as in a
//! list, the last one first: a look at the head brings the element that new ones are compared with.
//! New ones are put behind, until there are half as many more; then the blob is pruned. What it
//! keeps depends on the set of elements alone, so merging is associative and commutative. Where all
//! elements are wanted ([`Wanted::keeps_all`]), they are put behind each other, and nothing is
//! pruned. Where few elements are wanted ([`Wanted::keeps_few`]), a lesser element takes the place
//! of the last one.

use crate::memory::arena::Arena;
use crate::values::blob::{append, blob_bytes, bytes_mut, number_at, resize, resize_up_to};
use crate::values::kind::{Counted, NO_BYTES, Wanted};
use crate::values::list::{LENGTH_BYTES, is_list, list_elements};

/// The head: three numbers.
const HEAD_BYTES: usize = 12;

/// Room for a blob that is written anew, before its length is known.
const ROOM_BYTES: usize = 4 << 10;

/// So few elements are looked through faster than they are sorted.
const FEW: u32 = 16;

/// The sort key of an element.
pub fn sort_key(element: &[u8]) -> &[u8] {
    let comparable = comparable(element);
    &comparable[..number_at(element, 0).min(comparable.len())]
}

/// The part of an element for comparisons.
fn comparable(element: &[u8]) -> &[u8] {
    element.get(LENGTH_BYTES..).unwrap_or_default()
}

impl Wanted {
    /// Whether all elements are wanted.
    pub(crate) fn keeps_all(self) -> bool {
        self.counted == Counted::Elements && self.limit == u32::MAX
    }

    /// Whether one element is wanted.
    pub(crate) fn keeps_one(self) -> bool {
        self.counted == Counted::Elements && self.limit == 1
    }

    /// Whether few elements are wanted, however many have the same sort key.
    fn keeps_few(self) -> bool {
        self.counted == Counted::Elements && self.limit <= FEW
    }

    /// How many elements a blob has at most.
    fn most(self) -> usize {
        match (self.limit as usize, self.keeps_few()) {
            (limit, true) => limit,
            (limit, false) => limit.saturating_add(limit / 2 + 1),
        }
    }

    /// How many of some sorted elements are wanted, and whether none that follows them is.
    fn prune(self, sorted: &[&[u8]]) -> (usize, bool) {
        let limit = self.limit as usize;
        let mut keys = 0;
        for (at, element) in sorted.iter().enumerate() {
            let new = at == 0 || sort_key(sorted[at - 1]) != sort_key(element);
            keys += usize::from(new);
            let beyond = match self.counted {
                Counted::Elements => at >= limit,
                Counted::Lesser => new && at >= limit,
                Counted::Keys => keys > limit,
            };
            if beyond {
                return (at, true);
            }
        }
        let full = match self.counted {
            Counted::Elements | Counted::Lesser => sorted.len() >= limit,
            Counted::Keys => keys >= limit,
        };
        (sorted.len(), full)
    }

    /// Whether an element may be wanted, where the last of those that are is this one, and there
    /// are enough.
    fn may_take(self, element: &[u8], last: &[u8]) -> bool {
        match self.counted {
            Counted::Elements => comparable(element) < comparable(last),
            Counted::Lesser | Counted::Keys => sort_key(element) <= sort_key(last),
        }
    }
}

/// The only element that is kept; `None` if there are none or several.
pub fn only_element(wanted: Wanted, bytes: &[u8]) -> Option<&[u8]> {
    let (length, element) = bytes.get(HEAD_BYTES..)?.split_first_chunk::<LENGTH_BYTES>()?;
    let is_all = u32::from_le_bytes(*length) as usize == element.len();
    (is_all && wanted.limit > 0).then_some(element)
}

/// The elements that are kept, sorted, each with its rank among all.
pub fn best_elements(wanted: Wanted, bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let sorted = sorted(bytes);
    let (kept, _) = wanted.prune(&sorted);
    let (mut rank, mut keys) = (0, 0);
    let ranked = |(at, element): (usize, &&'_ [u8])| {
        let new = at == 0 || sort_key(sorted[at - 1]) != sort_key(element);
        keys += u64::from(new);
        rank = match (wanted.counted, new) {
            (Counted::Elements, _) | (Counted::Lesser, true) => at as u64 + 1,
            (Counted::Lesser, false) => rank,
            (Counted::Keys, _) => keys,
        };
        rank
    };
    let ranks: Vec<u64> = sorted[..kept].iter().enumerate().map(ranked).collect();
    ranks.into_iter().zip(sorted[..kept].iter().copied()).collect()
}

fn sorted(bytes: &[u8]) -> Vec<&[u8]> {
    let mut elements: Vec<&[u8]> =
        list_elements(bytes.get(HEAD_BYTES..).unwrap_or_default()).collect();
    elements.sort_unstable_by(|a, b| comparable(a).cmp(comparable(b)));
    elements
}

/// Adds an element.
pub(crate) fn add(wanted: Wanted, word: &mut u64, arena: &mut Arena, element: &[u8]) {
    if wanted.keeps_all() {
        let write = |room: &mut [u8]| write_element(room, element);
        return keep(word, arena, 1, LENGTH_BYTES + element.len(), write);
    }
    if !may_enter(*word, arena, sort_key(element)) {
        return;
    }
    if wanted.keeps_one() {
        return keep_least(word, arena, element);
    }
    if *word == NO_BYTES {
        let mut first = Vec::with_capacity(HEAD_BYTES + LENGTH_BYTES + element.len());
        first.resize(HEAD_BYTES, 0);
        first.extend_from_slice(&(element.len() as u32).to_le_bytes());
        first.extend_from_slice(element);
        first[..4].copy_from_slice(&1_u32.to_le_bytes());
        append(word, arena, &first);
        return prune_if_many(wanted, word, arena);
    }
    let bytes = blob_bytes(*word, arena);
    if let Some(last) = last_of(bytes) {
        if !wanted.may_take(element, last) {
            return;
        }
        if wanted.keeps_few() {
            return replace_last(word, arena, element);
        }
    }
    let (len, count) = (bytes.len(), number_at(bytes, 0) + 1);
    let end = len + LENGTH_BYTES + element.len();
    let most = ((end - HEAD_BYTES) / count).saturating_mul(wanted.most().max(count));
    resize_up_to(word, arena, end, most.saturating_add(2 * HEAD_BYTES));
    let (kept, room) = bytes_mut(*word, arena).split_at_mut(len);
    kept[..4].copy_from_slice(&(count as u32).to_le_bytes());
    write_element(room, element);
    prune_if_many(wanted, word, arena);
}

/// Writes an element, with its length, over all of `room`.
fn write_element(room: &mut [u8], element: &[u8]) {
    let (length, place) = room.split_at_mut(LENGTH_BYTES);
    length.copy_from_slice(&(element.len() as u32).to_le_bytes());
    place.copy_from_slice(element);
}

/// Puts a lesser element in the place of the last one.
fn replace_last(word: &mut u64, arena: &mut Arena, element: &[u8]) {
    let bytes = blob_bytes(*word, arena);
    let last = last_of(bytes).map(<[u8]>::as_ptr);
    let all = list_elements(bytes.get(HEAD_BYTES..).unwrap_or_default());
    let others = all.filter(|other| Some(other.as_ptr()) != last);
    let mut kept: Vec<&[u8]> = others.chain([element]).collect();
    let greatest = (0..kept.len()).max_by(|a, b| comparable(kept[*a]).cmp(comparable(kept[*b])));
    kept.swap(0, greatest.unwrap_or(0));
    let written = written(kept.into_iter(), true);
    write(word, arena, &written);
}

/// A blob of elements, of which the last one in their order comes first; whether no element behind
/// it is wanted.
fn written<'e>(elements: impl ExactSizeIterator<Item = &'e [u8]>, full: bool) -> Vec<u8> {
    let (count, last) = (elements.len() as u32, if full { HEAD_BYTES as u32 } else { 0 });
    let mut written = Vec::with_capacity(ROOM_BYTES);
    written.resize(HEAD_BYTES, 0);
    write_head(&mut written, [count, count, last]);
    for element in elements {
        written.extend_from_slice(&(element.len() as u32).to_le_bytes());
        written.extend_from_slice(element);
    }
    written
}

/// Puts other bytes in the place of a blob's, with little spare room.
fn write(word: &mut u64, arena: &mut Arena, bytes: &[u8]) {
    resize_up_to(word, arena, bytes.len(), bytes.len() + bytes.len() / 8);
    bytes_mut(*word, arena).copy_from_slice(bytes);
}

/// The last element that is wanted, if no element behind it is.
fn last_of(bytes: &[u8]) -> Option<&[u8]> {
    let last = Some(number_at(bytes, 8)).filter(|last| *last > 0)?;
    list_elements(bytes.get(last..)?).next()
}

/// Whether an element with this sort key may be wanted. Elements with equal sort keys may be.
#[inline]
pub(crate) fn may_enter(word: u64, arena: &Arena, key: &[u8]) -> bool {
    last_of(blob_bytes(word, arena)).is_none_or(|last| key <= sort_key(last))
}

/// Puts an element in the place of the one that there is, if it is less.
fn keep_least(word: &mut u64, arena: &mut Arena, element: &[u8]) {
    let bytes = blob_bytes(*word, arena);
    if last_of(bytes).is_some_and(|last| comparable(last) <= comparable(element)) {
        return;
    }
    resize(word, arena, HEAD_BYTES + LENGTH_BYTES + element.len(), false);
    let (head, kept) = bytes_mut(*word, arena).split_at_mut(HEAD_BYTES);
    write_head(head, [1, 1, HEAD_BYTES as u32]);
    write_element(kept, element);
}

fn write_head(head: &mut [u8], numbers: [u32; 3]) {
    for (place, number) in head.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

/// Puts elements behind those that a blob has, in as many bytes.
fn keep(
    word: &mut u64,
    arena: &mut Arena,
    elements: usize,
    bytes: usize,
    write: impl FnOnce(&mut [u8]),
) {
    let (len, spare) = (blob_bytes(*word, arena).len().max(HEAD_BYTES), *word != NO_BYTES);
    resize(word, arena, len + bytes, spare);
    let (kept, room) = bytes_mut(*word, arena).split_at_mut(len);
    let count = number_at(kept, 0) + elements;
    kept[..4].copy_from_slice(&(count as u32).to_le_bytes());
    write(room);
}

fn prune_if_many(wanted: Wanted, word: &mut u64, arena: &mut Arena) {
    let bytes = blob_bytes(*word, arena);
    let (count, ordered) = (number_at(bytes, 0), number_at(bytes, 4));
    let kept = ordered.max(wanted.limit as usize);
    let full = number_at(bytes, 8) == 0 && count >= kept;
    if !full && count <= kept + kept / 2 {
        return;
    }
    let sorted = sorted(bytes);
    let (kept, full) = wanted.prune(&sorted);
    let written = written(sorted[..kept].iter().rev().copied(), full);
    write(word, arena, &written);
}

/// Adds the elements of another blob.
pub(crate) fn merge(wanted: Wanted, word: &mut u64, arena: &mut Arena, bytes: &[u8]) {
    if let (true, Some(elements)) = (wanted.keeps_all(), bytes.get(HEAD_BYTES..)) {
        let count = number_at(bytes, 0);
        return keep(word, arena, count, elements.len(), |room| room.copy_from_slice(elements));
    }
    for element in list_elements(bytes.get(HEAD_BYTES..).unwrap_or_default()) {
        add(wanted, word, arena, element);
    }
}

/// True if the bytes are a blob of this kind. Elements may have any content.
pub(crate) fn is_best(bytes: &[u8]) -> bool {
    let Some((head, elements)) = bytes.split_at_checked(HEAD_BYTES) else { return false };
    if !is_list(elements) || list_elements(elements).any(|element| element.len() < LENGTH_BYTES) {
        return false;
    }
    let (count, ordered, last) = (number_at(head, 0), number_at(head, 4), number_at(head, 8));
    let mut at = HEAD_BYTES;
    let mut places = list_elements(elements).map(|element| {
        let place = at;
        at += LENGTH_BYTES + element.len();
        place
    });
    let last_is_there = last == 0 || places.any(|place| place == last);
    last_is_there && count > 0 && ordered <= count && count == list_elements(elements).count()
}
