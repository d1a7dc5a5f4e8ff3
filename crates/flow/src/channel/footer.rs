//! A slot's footer: its last 16 bytes (paper, section 6.3).
//!
//! The first word is the user's tag. The second word is the slot's last 8 bytes and the only
//! location that the consumer polls. Its lower half is the payload's length, then come flags. Its
//! top byte, which is the slot's last byte, is the number of the lap around the ring. A footer of
//! an earlier lap never matches, so nothing has to be cleared.

pub use crate::link::{lap_after, lap_name};

/// Length of a footer.
pub const FOOTER_BYTES: usize = 16;

const LENGTH_MASK: u64 = 0xffff_ffff;
const END: u64 = 1 << 32;
const FREE: u64 = 1 << 33;
const UNUSED: u64 = 0x00ff_fffc_0000_0000;
const LAP_SHIFT: u32 = 56;

/// The lap that a footer's word names.
#[inline]
pub fn lap_of(word: u64) -> u8 {
    (word >> LAP_SHIFT) as u8
}

/// Contents of a footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Bytes of payload.
    pub bytes: u32,
    /// Whether the stream ends here; there is no payload then.
    pub end: bool,
    /// Whether the consumer is done with the slot; nothing else is said then. Channels return
    /// credit instead. The rings of flows (DFI) are read by their producers.
    pub free: bool,
}

/// Why a footer of the right lap is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadFooter;

impl Footer {
    /// The footer of a slot that ends the stream.
    pub const END: Footer = Footer { bytes: 0, end: true, free: false };
    /// The footer of a slot that its consumer is done with.
    pub const FREE: Footer = Footer { bytes: 0, end: false, free: true };

    /// The footer of a slot with so many bytes of payload.
    #[inline]
    pub fn full(bytes: u32) -> Footer {
        Footer { bytes, end: false, free: false }
    }

    /// The word that is polled.
    #[inline]
    pub fn encode(self, lap: u8) -> u64 {
        let flags = (u64::from(self.end) * END) | (u64::from(self.free) * FREE);
        (u64::from(lap) << LAP_SHIFT) | flags | u64::from(self.bytes)
    }

    /// Decodes a word that a peer wrote: `None` if it is not (yet) of this lap.
    #[inline]
    pub fn decode(word: u64, lap: u8, payload_bytes: usize) -> Option<Result<Footer, BadFooter>> {
        if lap_of(word) != lap {
            return None;
        }
        let bytes = word & LENGTH_MASK;
        let (end, free) = (word & END != 0, word & FREE != 0);
        let flagged = end || free;
        if word & UNUSED != 0
            || bytes > payload_bytes as u64
            || (flagged && bytes > 0)
            || (end && free)
        {
            return Some(Err(BadFooter));
        }
        Some(Ok(Footer { bytes: bytes as u32, end, free }))
    }
}

/// Fuzz target: any word is refused, belongs to another lap, or decodes and encodes back to itself.
///
/// # Panics
/// If a decoded footer does not encode to its word.
pub fn fuzz(data: &[u8]) {
    for chunk in data.chunks_exact(8) {
        let word = u64::from_le_bytes(std::array::from_fn(|i| chunk[i]));
        for lap in [(word >> LAP_SHIFT) as u8, 1] {
            if let Some(Ok(footer)) = Footer::decode(word, lap, 65520) {
                assert_eq!(footer.encode(lap), word);
                assert!(footer.bytes <= 65520);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_footer_never_matches() {
        for count in 0..600 {
            let footer = Footer::full(9);
            let word = footer.encode(lap_name(count));
            assert_eq!(Footer::decode(word, lap_name(count), 100), Some(Ok(footer)));
            assert_eq!(Footer::decode(word, lap_name(count + 1), 100), None);
            assert_eq!(Footer::decode(0, lap_name(count), 100), None);
            assert_eq!(lap_after(lap_name(count)), lap_name(count + 1));
        }
    }

    #[test]
    fn impossible_footers_are_refused() {
        let good = Footer::full(100).encode(1);
        let bad = Some(Err(BadFooter));
        assert_eq!(Footer::decode(good, 1, 99), bad);
        assert_eq!(Footer::decode(good | 1 << 34, 1, 100), bad);
        assert_eq!(Footer::decode(good | FREE, 1, 100), bad);
        assert_eq!(Footer::decode(Footer::END.encode(1) | FREE, 1, 100), bad);
        assert_eq!(Footer::decode(Footer::FREE.encode(1), 1, 100), Some(Ok(Footer::FREE)));
        assert_eq!(Footer::decode(good | END, 1, 100), bad);
        assert_eq!(Footer::decode(u64::MAX, 255, usize::MAX), bad);
    }

    #[test]
    fn random_words_do_no_harm() {
        let mut state = 1_u64;
        let mut data = Vec::new();
        for i in 0..100_000_u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Half of the words are close to good words.
            let word = if i % 2 == 0 { state } else { state & 0xff00_0003_0000_ffff };
            data.extend_from_slice(&word.to_le_bytes());
        }
        fuzz(&data);
    }
}
