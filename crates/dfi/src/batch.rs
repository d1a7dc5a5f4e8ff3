//! The tuples of a segment, consumed where they arrived.

use crate::error::{Error, Result};
use crate::schema::Tuple;

/// The tuples of one segment, in the target's ring. It borrows the target: the next call of
/// [`Target::consume`](crate::Target::consume) frees the segment.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) tuple_bytes: usize,
    pub(crate) source: usize,
}

impl<'a> Batch<'a> {
    /// Index of the source in the declaration's list.
    pub fn source(&self) -> usize {
        self.source
    }

    /// How many tuples, at least 1.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.tuple_bytes
    }

    /// Whether there is no tuple; never so for a batch of a target.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of all tuples.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Tuple by tuple.
    #[inline]
    pub fn tuples(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks_exact(self.tuple_bytes)
    }

    /// The tuples as structs, in place.
    ///
    /// # Errors
    /// The struct has another length than the flow's tuples ([`Error::TupleLength`]).
    #[inline]
    pub fn rows<T: Tuple>(&self) -> Result<&'a [T]> {
        let first = self.bytes.as_ptr().cast::<T>();
        if size_of::<T>() != self.tuple_bytes || !first.is_aligned() {
            let (expected, found) = (self.tuple_bytes, size_of::<T>());
            return Err(Error::TupleLength { expected, found });
        }
        // SAFETY: aligned, initialised, unchanged as long as the batch lives; a `Tuple` has no
        // invalid patterns of bits.
        Ok(unsafe { std::slice::from_raw_parts(first, self.len()) })
    }
}

/// Result of [`Target::try_consume`](crate::Target::try_consume).
#[derive(Debug, Clone, Copy)]
pub enum Consumed<'a> {
    /// The next batch.
    Batch(Batch<'a>),
    /// Nothing yet.
    Empty,
    /// In an ordered flow with [`Gaps::Notify`](crate::Gaps): the segment of this number did not
    /// arrive in time, and will not be returned. Returned once.
    Gap(u64),
    /// All sources have closed; there will be nothing more.
    End,
}
