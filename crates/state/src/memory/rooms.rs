//! Free rooms in an arena: a blob that moves to a larger room leaves the old room to later blobs.
//!
//! Rooms of like size are a list, which is threaded through the rooms: the first word of a room has
//! its length in words above, and below the offset of the next one.

/// Lists for each power of two of words.
const LISTS_OF_POWER: u32 = 4;
/// Powers of two from the least room on, of four words: a room has 256 KB at most.
const POWERS: u32 = 14;
const LISTS: usize = (LISTS_OF_POWER * POWERS) as usize;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// The first room of each list; no lists before the first room.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Option<Box<[u32; LISTS]>>);

/// The list of a room of so many words, and the least number of words in this list.
fn list_of(words: usize) -> Option<(usize, usize)> {
    let power = words.checked_ilog2()?.checked_sub(2)?;
    let step = 1 << power;
    let list = LISTS_OF_POWER * power + (words / step) as u32 - LISTS_OF_POWER;
    (power < POWERS).then_some((list as usize, words / step * step))
}

/// The least number of words of a list, not less than `words`.
pub(crate) fn rounded(words: usize) -> usize {
    match list_of(words) {
        Some((_, least)) if least < words => words.next_multiple_of(1 << (words.ilog2() - 2)),
        _ => words,
    }
}

impl Rooms {
    /// Puts a room into its list.
    pub(crate) fn put(&mut self, arena: &mut [u64], offset: u32, words: usize) {
        let Some((list, _)) = list_of(words) else { return };
        let first = self.0.get_or_insert_with(|| Box::new([NONE; LISTS]));
        arena[offset as usize] = (words as u64) << 32 | u64::from(first[list]);
        first[list] = offset;
    }

    /// Takes a room of at least so many words. Returns the room's offset and words.
    pub(crate) fn take(&mut self, arena: &[u64], words: usize) -> Option<(u32, usize)> {
        let firsts = self.0.as_deref_mut()?;
        let (list, _) = list_of(rounded(words))?;
        let first = &mut firsts[list];
        let head = *arena.get(*first as usize)?;
        let offset = std::mem::replace(first, head as u32);
        Some((offset, (head >> 32) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_large_enough_and_come_once() {
        let mut arena = vec![0; 1 << 20];
        let (mut rooms, mut end, mut left) = (Rooms::default(), 0, 0);
        for words in (1..400).chain([1 << 15, (1 << 16) - 1, 1 << 16, 1 << 17]) {
            assert!(rounded(words) >= words && rounded(words) <= words + words / 4);
            if end + words <= arena.len() {
                rooms.put(&mut arena, end as u32, words);
                left += usize::from((4..1 << 16).contains(&words));
                end += words;
            }
        }
        let mut taken = Vec::new();
        for words in (1..1 << 16).rev() {
            while let Some((offset, has)) = rooms.take(&arena, words) {
                assert!(has >= words, "{has} of {words}");
                taken.push(offset);
            }
        }
        assert_eq!(taken.len(), left);
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), left);
    }
}
