//! A growing vector of words, in the allocator's memory or in a heap.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use crate::memory::heap::{Heap, RUN_BYTES_MIN, Run, run_bytes};
use crate::memory::refused::refused;

/// Like a vector of words, which can also stand in a heap.
#[derive(Debug)]
pub(crate) struct Words {
    start: NonNull<u64>,
    len: usize,
    capacity: usize,
    /// The heap's run, unless the memory is the allocator's.
    run: Option<Run>,
}

// SAFETY: the memory is owned by this value alone, like a vector's.
unsafe impl Send for Words {}
// SAFETY: as above; it is only written through `&mut`.
unsafe impl Sync for Words {}

impl Default for Words {
    fn default() -> Words {
        Words { start: NonNull::dangling(), len: 0, capacity: 0, run: None }
    }
}

impl From<Vec<u64>> for Words {
    fn from(words: Vec<u64>) -> Words {
        let mut words = ManuallyDrop::new(words);
        let (len, capacity) = (words.len(), words.capacity());
        // A vector never has a null pointer.
        let start = NonNull::new(words.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Words { start, len, capacity, run: None }
    }
}

fn layout(words: usize) -> Layout {
    Layout::array::<u64>(words).expect("words of less than 2^63 bytes")
}

impl Words {
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that room for so many bytes in all, more than there is, takes in a heap beside what
    /// there is: all of it where the words have to be copied.
    pub(crate) fn growth_in_heap(&self, bytes: usize) -> usize {
        let had = self.capacity * 8;
        let stays = match &self.run {
            Some(run) => run.could_extend(bytes / 8),
            None => had < RUN_BYTES_MIN,
        };
        run_bytes(bytes) - if stays { had } else { 0 }
    }

    /// Makes room for at least so many words in all: in the heap, if there is one and they are not
    /// few.
    pub(crate) fn reserve(&mut self, capacity: usize, heap: Option<&Arc<Heap>>) {
        if capacity <= self.capacity {
            return;
        }
        if let Some(run) = &mut self.run
            && run.extend(capacity)
        {
            self.capacity = run.words();
            return;
        }
        match heap.and_then(|heap| heap.take(capacity * 8)) {
            Some(run) => {
                let (start, capacity) = (run.start(), run.words());
                self.move_to(start, capacity, Some(run));
            }
            None => self.allocate(capacity),
        }
    }

    /// Room from the allocator.
    fn allocate(&mut self, capacity: usize) {
        let new = layout(capacity);
        if self.run.is_some() || self.capacity == 0 {
            // SAFETY: the layout is not empty, since room only grows.
            let start = unsafe { alloc(new) }.cast::<u64>();
            if start.is_null() {
                refused(new);
            }
            self.move_to(start, capacity, None);
            return;
        }
        // SAFETY: allocated with this layout, not empty; the new size is checked by `layout`.
        let start =
            unsafe { realloc(self.start.as_ptr().cast(), layout(self.capacity), new.size()) };
        let Some(start) = NonNull::new(start.cast()) else { refused(new) };
        (self.start, self.capacity) = (start, capacity);
    }

    /// Goes on in other memory, of at least as much room as is in use.
    fn move_to(&mut self, start: *mut u64, capacity: usize, run: Option<Run>) {
        debug_assert!(self.len <= capacity);
        // SAFETY: both have room for `len` words, and they are different memory.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), start, self.len) };
        let len = self.len;
        let start = NonNull::new(start).expect("memory that was allocated");
        // The old memory is freed.
        *self = Words { start, len, capacity, run };
    }

    /// Makes it longer by zeroes, for which there is room.
    pub(crate) fn extend_zeroed(&mut self, count: usize) {
        assert!(count <= self.capacity - self.len, "words without room");
        // SAFETY: there is room for so many behind those in use.
        unsafe { ptr::write_bytes(self.start.as_ptr().add(self.len), 0, count) };
        self.len += count;
    }

    /// Forgets all words, not their memory.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Gives back room that is not in use.
    pub(crate) fn shrink(&mut self) {
        if self.len == 0 {
            *self = Words::default();
        } else if let Some(run) = &mut self.run {
            run.shrink(self.len);
            self.capacity = run.words();
        } else if self.len < self.capacity {
            self.allocate(self.len);
        }
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        // SAFETY: so many words are initialised, and the pointer is aligned even if there are none.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and owned.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.run.is_none() && self.capacity > 0 {
            // SAFETY: allocated with this layout, and not used after this.
            unsafe { dealloc(self.start.as_ptr().cast(), layout(self.capacity)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves between allocator and heap keep the words' values.
    #[test]
    fn words_move_between_allocator_and_heap() {
        let heap = Heap::map(4 << 20, crate::memory::heap::Idle::GivenBack).unwrap();
        let mut words = Words::from(vec![1, 2, 3]);
        let mut expected = vec![1, 2, 3];
        let mut grow = |words: &mut Words, capacity, heap| {
            words.reserve(capacity, heap);
            assert!(words.capacity() >= capacity);
            let at = expected.len();
            words.extend_zeroed(7);
            expected.resize(at + 7, 0);
            words[at] = capacity as u64;
            expected[at] = capacity as u64;
            assert_eq!(words[..], expected[..]);
        };
        let inside = |words: &Words| heap.offset_of(words).is_some();
        grow(&mut words, 100, Some(&heap));
        assert!(!inside(&words), "too few");
        grow(&mut words, 1000, Some(&heap));
        assert!(inside(&words));
        let place = words.as_ptr();
        grow(&mut words, 5000, Some(&heap));
        assert_eq!(words.as_ptr(), place, "it grows where it stands");
        words.shrink();
        assert_eq!((words.capacity(), heap.usage().used_bytes), (512, 4096));
        // The other run stands right behind.
        let other = heap.take(8192).unwrap();
        grow(&mut words, 600, Some(&heap));
        grow(&mut words, 1100, Some(&heap));
        assert!(inside(&words));
        grow(&mut words, 1 << 20, Some(&heap));
        assert!(!inside(&words), "there is no place for so many");
        assert_eq!((heap.usage().refused, heap.usage().refused_bytes), (1, 8 << 20));
        words.shrink();
        grow(&mut words, 2000, None);
        drop((words, other));
        assert_eq!(heap.usage().used_bytes, 0);
    }
}
