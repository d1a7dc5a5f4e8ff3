//! The rings of a pair: shape, and meaning of the footers (thesis, section 7.5.2).

use millstream_fabric::{Region, RemoteRegion};
use millstream_flow::channel::footer::{FOOTER_BYTES, Footer};
use millstream_flow::link::{LINE, Position, lap_name};
use millstream_state::hash_word;
use std::sync::atomic::Ordering;

/// Shape of a flow's rings, the same for all pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of payload of a segment, a multiple of 16.
    pub(crate) payload: usize,
    /// Segments at the target.
    pub(crate) segments: usize,
    /// Segments at the source.
    pub(crate) source_segments: usize,
    /// Whether a segment is one tuple.
    pub(crate) latency: bool,
    /// If credit is a count at the target: the count is read when less credit is left. Otherwise a
    /// footer tells that its segment is free.
    pub(crate) ask_below: Option<u64>,
    /// Whether footers have checksums.
    pub(crate) checksum: bool,
    /// Whether a segment has a number in the flow's order, in front of its footer.
    pub(crate) ordered: bool,
}

/// Bytes of the number of an ordered flow's segment; the second half is unused.
const NUMBER_BYTES: usize = 16;

impl Shape {
    /// Bytes of a segment: payload, then trailer.
    #[inline]
    pub(crate) fn stride(&self) -> usize {
        self.payload + self.trailer()
    }

    /// Bytes behind the payload: in an ordered flow the number, and always the footer.
    #[inline]
    pub(crate) fn trailer(&self) -> usize {
        FOOTER_BYTES + if self.ordered { NUMBER_BYTES } else { 0 }
    }

    /// Offset of the number of an ordered flow's segment that begins at `offset`.
    #[inline]
    pub(crate) fn number_at(&self, offset: usize) -> usize {
        offset + self.payload
    }

    /// Segments between two looks at the clock by a busy thread: a tuple costs less than a look.
    #[inline]
    pub(crate) fn per_look(&self) -> u64 {
        if self.latency { 16 } else { 1 }
    }

    /// Most numbers of an ordered flow that a target has not consumed: of segments in its rings
    /// and in the rings of sources.
    pub(crate) fn numbers(&self, sources: usize) -> usize {
        sources * (self.segments + self.source_segments)
    }

    /// Bytes of a ring at the target.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.segments * self.stride()
    }

    /// Bytes of a ring at the source.
    pub(crate) fn source_ring_bytes(&self) -> usize {
        self.source_segments * self.stride()
    }

    /// The target's ring as a region: whole cache lines.
    pub(crate) fn region_bytes(&self) -> usize {
        self.ring_bytes().next_multiple_of(LINE)
    }

    /// Position of the first segment of the target's ring.
    pub(crate) fn start(&self) -> Position {
        Position::new(self.segments, self.stride())
    }

    /// Offset of the footer's polled word, in a segment that begins at `offset`.
    #[inline]
    pub(crate) fn word_at(&self, offset: usize) -> usize {
        offset + self.stride() - 8
    }

    /// The lap that the footer of segment `number` had before that segment's turn, free or not. On
    /// the first lap it is 0: the target writes it when it opens the ring.
    #[inline]
    pub(crate) fn lap_before(&self, number: u64) -> u8 {
        match (number / self.segments as u64).checked_sub(1) {
            Some(laps) => lap_name(laps),
            None => 0,
        }
    }
}

/// Whether a footer's word, read by the source, says that its segment may be written. `before` is
/// [`Shape::lap_before`]; `None`: no target writes such a word.
#[inline]
pub(crate) fn is_free(word: u64, before: u8, payload: usize) -> Option<bool> {
    match Footer::decode(word, before, payload) {
        Some(Ok(footer)) => Some(footer.free),
        _ => None,
    }
}

/// A part of a region, for a peer.
pub(crate) fn sub_region(region: &Region, at: usize, bytes: usize) -> RemoteRegion {
    let RemoteRegion { address, key, .. } = region.remote();
    RemoteRegion { address: address + at as u64, bytes: bytes as u64, key }
}

/// The checksum of a segment in `ring` at `offset`: of the payload's words, the number in the
/// flow's order, 0 without one, and the footer's word.
///
/// A peer may be writing the payload meanwhile. So each word is loaded as an atomic.
pub(crate) fn checksum(
    ring: &Region,
    (offset, bytes): (usize, usize),
    number: u64,
    footer: u64,
) -> u64 {
    let mut sum = hash_word(footer ^ number.rotate_left(32));
    for at in (0..bytes.next_multiple_of(8)).step_by(8) {
        let word = ring.word(offset + at).load(Ordering::Relaxed);
        sum = hash_word(sum.rotate_left(5) ^ word);
    }
    sum
}

/// Fuzz target: a source takes any footer's word for free, taken or impossible, without a panic.
///
/// # Panics
/// If a word counts as free that is not exactly the free footer of its lap.
pub fn fuzz(data: &[u8]) {
    for chunk in data.chunks_exact(8) {
        let word = u64::from_le_bytes(std::array::from_fn(|i| chunk[i]));
        for lap in [0, 1, (word >> 56) as u8] {
            if is_free(word, lap, 8192) == Some(true) {
                assert_eq!(word, Footer::FREE.encode(lap));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        payload: 8192,
        segments: 32,
        source_segments: 32,
        latency: false,
        ask_below: None,
        checksum: false,
        ordered: false,
    };

    #[test]
    fn rings_have_the_published_size() {
        assert_eq!(SHAPE.ring_bytes(), 32 * (8192 + 16));
        // The thesis, section 7.6.1.4: nodes with 4 or 14 sources and as many targets, with source
        // rings as large as target rings.
        for (nodes, threads, mib) in [(2, 4, 16.03), (8, 4, 64.13), (8, 14, 785.53)] {
            let pairs = threads * nodes * threads;
            let bytes = pairs * (SHAPE.ring_bytes() + SHAPE.source_ring_bytes());
            let found = bytes as f64 / (1 << 20) as f64;
            assert!((found - mib).abs() < 0.005, "{found} MiB, not {mib}");
        }
    }

    #[test]
    fn an_ordered_segment_has_its_number_in_front_of_the_footer() {
        let ordered = Shape { ordered: true, ..SHAPE };
        assert_eq!((SHAPE.stride(), ordered.stride()), (8208, 8224));
        assert_eq!((ordered.number_at(8224), ordered.word_at(8224)), (8224 + 8192, 2 * 8224 - 8));
        assert_eq!(SHAPE.word_at(0), 8200);
    }

    #[test]
    fn a_footer_is_free_taken_or_impossible() {
        let full = Footer::full(8192).encode(7);
        assert_eq!(is_free(full, 7, 8192), Some(false));
        assert_eq!(is_free(Footer::FREE.encode(7), 7, 8192), Some(true));
        assert_eq!(is_free(Footer::FREE.encode(0), 0, 8192), Some(true));
        assert_eq!(is_free(Footer::FREE.encode(7), 8, 8192), None, "an older lap");
        assert_eq!(is_free(0, 0, 8192), Some(false), "a ring that was never opened");
        assert_eq!(is_free(u64::MAX, 255, 8192), None);
        assert_eq!((SHAPE.lap_before(31), SHAPE.lap_before(32), SHAPE.lap_before(64)), (0, 1, 2));
    }

    #[test]
    fn random_words_do_no_harm() {
        let mut state = 1_u64;
        let mut data = Vec::new();
        for i in 0..100_000_u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let word = if i % 2 == 0 { state } else { state & 0xff00_0003_0000_3fff };
            data.extend_from_slice(&word.to_le_bytes());
        }
        fuzz(&data);
    }
}
