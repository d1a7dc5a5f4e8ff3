//! Chains: all inputs, byte strings in no order, where there may be very many of them.
//!
//! Elements are those of a list ([`crate::values::list`]). They stand in pieces, of which each
//! names the next, and never move while others come: so a chain takes little more than its
//! elements, however long it grows.
//!
//! A row has one word for a chain: the offset of its head in the arena, or [`NO_BYTES`] while it is
//! empty. The head is one word, with the number of elements below and the offset of the last piece
//! above. Behind it stands the first piece. A piece begins with two words: the offset of the next
//! one (0: there is none) below and its room in words above; and the bytes in use. No element is in
//! two pieces.

use crate::memory::arena::{Arena, ROOM_WORDS_MAX, pack};
use crate::values::kind::NO_BYTES;
use crate::values::list::{LENGTH_BYTES, is_list, list_elements};

const HEAD_WORDS: usize = 1;
const PIECE_HEAD_WORDS: usize = 2;

#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Of its head.
    offset: u32,
    next: Option<u32>,
    room_words: usize,
    bytes: usize,
}

impl Piece {
    fn at(offset: u32, arena: &Arena) -> Piece {
        let head = arena.words(offset, PIECE_HEAD_WORDS);
        let next = head[0] as u32;
        Piece {
            offset,
            next: (next > 0).then_some(next),
            room_words: (head[0] >> 32) as usize,
            bytes: head[1] as usize,
        }
    }

    fn write_head(&self, arena: &mut Arena) {
        let head = arena.words_mut(self.offset, PIECE_HEAD_WORDS);
        head[0] = (self.room_words as u64) << 32 | u64::from(self.next.unwrap_or(0));
        head[1] = self.bytes as u64;
    }

    fn begin(&self) -> u32 {
        self.offset + PIECE_HEAD_WORDS as u32
    }

    fn end(&self) -> usize {
        self.begin() as usize + self.room_words
    }
}

/// The number of elements, and the offset of the last piece.
fn head(word: u64, arena: &Arena) -> (usize, u32) {
    let head = arena.words(word as u32, HEAD_WORDS)[0];
    (head as u32 as usize, (head >> 32) as u32)
}

fn pieces(word: u64, arena: &Arena) -> impl Iterator<Item = Piece> {
    let mut next = (word != NO_BYTES).then(|| word as u32 + HEAD_WORDS as u32);
    std::iter::from_fn(move || {
        let piece = Piece::at(next?, arena);
        next = piece.next;
        Some(piece)
    })
}

fn runs(word: u64, arena: &Arena) -> impl Iterator<Item = &[u8]> {
    pieces(word, arena).map(|piece| arena.bytes(pack(piece.bytes, piece.begin())))
}

/// How many elements a chain has, and how many bytes they take.
pub fn chain_size(word: u64, arena: &Arena) -> (usize, usize) {
    match word {
        NO_BYTES => (0, 0),
        _ => (head(word, arena).0, pieces(word, arena).map(|piece| piece.bytes).sum()),
    }
}

/// The elements of a chain from a number of bytes on, each with the bytes up to its end.
pub fn chain_elements(
    word: u64,
    arena: &Arena,
    from: usize,
) -> impl Iterator<Item = (&[u8], usize)> {
    let mut before = 0;
    runs(word, arena).flat_map(move |run| {
        let begin = before;
        before += run.len();
        let skipped = from.saturating_sub(begin).min(run.len());
        let mut end = begin + skipped;
        list_elements(&run[skipped..]).map(move |element| {
            end += LENGTH_BYTES + element.len();
            (element, end)
        })
    })
}

/// Adds an element.
pub(crate) fn add(word: &mut u64, arena: &mut Arena, element: &[u8]) {
    let room = room(word, arena, 1, LENGTH_BYTES + element.len());
    let (length, place) = room.split_at_mut(LENGTH_BYTES);
    length.copy_from_slice(&(element.len() as u32).to_le_bytes());
    place.copy_from_slice(element);
}

/// Adds the elements of the chain `from`, which stands in `theirs`.
pub(crate) fn merge(word: &mut u64, arena: &mut Arena, from: u64, theirs: &Arena) {
    let (mut count, bytes) = chain_size(from, theirs);
    if bytes <= 8 * ROOM_WORDS_MAX {
        if count > 0 {
            let mut room = room(word, arena, count, bytes);
            for run in runs(from, theirs) {
                let (place, rest) = room.split_at_mut(run.len());
                place.copy_from_slice(run);
                room = rest;
            }
        }
        return;
    }
    for run in runs(from, theirs) {
        room(word, arena, std::mem::take(&mut count), run.len()).copy_from_slice(run);
    }
}

/// Copies a chain from `old` to `arena`.
pub(crate) fn relocate(word: &mut u64, old: &Arena, arena: &mut Arena) {
    let from = std::mem::replace(word, NO_BYTES);
    merge(word, arena, from, old);
}

/// Words that a chain takes.
pub(crate) fn chain_words(word: u64, arena: &Arena) -> usize {
    let words = pieces(word, arena).map(|piece| PIECE_HEAD_WORDS + piece.room_words).sum::<usize>();
    if words > 0 { HEAD_WORDS + words } else { 0 }
}

/// Room for so many more elements, of so many bytes together.
fn room<'a>(word: &mut u64, arena: &'a mut Arena, count: usize, bytes: usize) -> &'a mut [u8] {
    assert!(bytes < u32::MAX as usize, "a value of 4 GiB");
    let needed = bytes.div_ceil(8);
    let (mut all, mut piece) = match *word {
        NO_BYTES => {
            let offset = arena.alloc_words(HEAD_WORDS + PIECE_HEAD_WORDS + needed);
            *word = u64::from(offset);
            let offset = offset + HEAD_WORDS as u32;
            (0, Piece { offset, next: None, room_words: needed, bytes: 0 })
        }
        _ => {
            let (all, last) = head(*word, arena);
            (all, Piece::at(last, arena))
        }
    };
    if piece.bytes + bytes > 8 * piece.room_words {
        let room_words = needed.max((2 * piece.room_words).min(ROOM_WORDS_MAX));
        let offset = arena.alloc_words(PIECE_HEAD_WORDS + room_words);
        Piece { next: Some(offset), ..piece }.write_head(arena);
        piece = Piece { offset, next: None, room_words, bytes: 0 };
    }
    arena.note_blob(piece.room_words);
    let start = piece.bytes;
    piece.bytes += bytes;
    piece.write_head(arena);
    all += count;
    arena.words_mut(*word as u32, HEAD_WORDS)[0] = u64::from(piece.offset) << 32 | all as u64;
    &mut arena.bytes_mut(pack(piece.bytes, piece.begin()))[start..]
}

/// True if a row's word, of any origin, is a chain in `arena`. Elements may have any content.
pub(crate) fn is_chain(word: u64, arena: &Arena) -> bool {
    if word == NO_BYTES {
        return true;
    }
    let words = arena.all_words().len();
    let fits = |offset: usize| offset < words.saturating_sub(PIECE_HEAD_WORDS);
    let mut next = match usize::try_from(word).ok().and_then(|word| word.checked_add(HEAD_WORDS)) {
        Some(first) if fits(first) => first,
        _ => return false,
    };
    let (count, last) = head(word, arena);
    let mut found = 0;
    loop {
        // Offsets ascend, so this ends.
        let piece = Piece::at(next as u32, arena);
        if piece.end() > words || piece.bytes == 0 || piece.bytes > 8 * piece.room_words {
            return false;
        }
        let elements = arena.bytes(pack(piece.bytes, piece.begin()));
        if !is_list(elements) {
            return false;
        }
        found += list_elements(elements).count();
        match piece.next {
            None => return piece.offset == last && found == count,
            Some(after) if after as usize >= piece.end() && fits(after as usize) => {
                next = after as usize;
            }
            Some(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(word: u64, arena: &Arena) -> Vec<Vec<u8>> {
        chain_elements(word, arena, 0).map(|(element, _)| element.to_vec()).collect()
    }

    /// Elements stay in the order in which they came, and reading goes on behind any of them.
    #[test]
    fn elements_stay_in_their_order() {
        let (mut arena, mut word) = (Arena::default(), NO_BYTES);
        assert!(is_chain(word, &arena) && chain_size(word, &arena) == (0, 0));
        let mut expected = Vec::new();
        for number in 0..3_000_u32 {
            let element = vec![number as u8; (number % 40) as usize];
            add(&mut word, &mut arena, &element);
            expected.push(element);
            if number % 400 == 0 {
                // Larger than any room made ahead.
                expected.push(vec![7; 9 * ROOM_WORDS_MAX]);
                add(&mut word, &mut arena, &vec![7; 9 * ROOM_WORDS_MAX]);
            }
        }
        assert_eq!(elements(word, &arena), expected);
        let bytes = expected.iter().map(|element| LENGTH_BYTES + element.len()).sum();
        assert_eq!(chain_size(word, &arena), (expected.len(), bytes));
        let ends: Vec<usize> = chain_elements(word, &arena, 0).map(|(_, end)| end).collect();
        assert_eq!(ends.last(), Some(&bytes));
        for (before, end) in ends.iter().enumerate() {
            let next = chain_elements(word, &arena, *end).next().map(|(element, _)| element);
            assert_eq!(next, expected.get(before + 1).map(Vec::as_slice));
        }
        assert!(is_chain(word, &arena));
        assert_eq!(chain_words(word, &arena), arena.all_words().len());
    }

    /// A chain of many small elements takes little more than these, wherever it is copied.
    #[test]
    fn a_long_chain_takes_little_more_than_its_elements() {
        let (mut arena, mut word, mut other) = (Arena::default(), NO_BYTES, Arena::default());
        (0..100_000_u32).for_each(|n| add(&mut word, &mut arena, &n.to_le_bytes()));
        let (count, bytes) = chain_size(word, &arena);
        assert_eq!((count, bytes), (100_000, 800_000));
        assert!(arena.used_bytes() < bytes + 8 * ROOM_WORDS_MAX + bytes / 100);
        let mut copy = NO_BYTES;
        merge(&mut copy, &mut other, word, &arena);
        assert!(other.used_bytes() < bytes + 8 * ROOM_WORDS_MAX + bytes / 100);
        let before = elements(word, &arena);
        relocate(&mut word, &arena, &mut other);
        assert!(elements(word, &other) == before && elements(copy, &other) == before);
        assert!(is_chain(word, &other) && is_chain(copy, &other));
    }
}
