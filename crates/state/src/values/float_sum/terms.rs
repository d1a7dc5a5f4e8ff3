//! Terms of a block of doubles, at one scale.
//!
//! The terms of a block are shifted to a common scale side by side, in vector registers. A sum of
//! the same scale then takes a term in with one addition of 128 bits.

use std::mem::MaybeUninit;

use super::{HIGHEST, LIMIT_BITS, LOWEST, SCALE_SHIFT, SCALED};
use crate::memory::log::BLOCK_ROWS;

/// How far below the block's lowest bit its scale is at least.
const SLACK_BITS: u32 = 4;
/// Scales are multiples of the first of these numbers that leaves room for further terms, so that
/// most blocks of a column have the same scale.
const GRIDS: [u32; 4] = [32, 16, 8, 4];
/// A sum has room for 2 to the power of so many terms of the block's greatest size.
const ROOM_BITS: u32 = 32;
/// The scale of a sum is at most so high.
const SCALE_MAX: u32 = (HIGHEST - LOWEST) as u32;
const MANTISSA_BITS: u32 = 53;
const SHIFT_MAX: u32 = LIMIT_BITS - MANTISSA_BITS - ROOM_BITS;

/// Room for the halves of a block's terms, of which the lower stand first.
pub(crate) type Halves = [[MaybeUninit<u64>; BLOCK_ROWS]; 2];

/// Terms as 128-bit integers, in two halves.
#[derive(Debug)]
pub(crate) struct Terms<'h> {
    low: &'h [u64],
    high: &'h [u64],
    /// The third word of a sum that has the terms' scale.
    pub(crate) meta: u64,
}

/// A block's scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// All values are zero.
    Zero,
    /// Offset by `LOWEST`, as in a sum.
    Common(u32),
    /// Values are not finite, or too far apart, or too small.
    None,
}

impl Scale {
    /// The scale for these values.
    #[inline(always)]
    pub(crate) fn of(values: &[f64]) -> Scale {
        // Without the sign; zero is the greatest in `least`.
        let (mut least, mut greatest) = (u64::MAX, 0);
        for value in values {
            let magnitude = value.to_bits() << 1;
            least = least.min(magnitude.wrapping_sub(1));
            greatest = greatest.max(magnitude);
        }
        if greatest == 0 {
            return Scale::Zero;
        }
        let (lowest, highest) = ((least.wrapping_add(1) >> 53) as u32, (greatest >> 53) as u32);
        if highest == 0x7FF || lowest <= SLACK_BITS + 1 {
            return Scale::None;
        }
        let scales = GRIDS.map(|grid| ((lowest - 1 - SLACK_BITS) / grid * grid).min(SCALE_MAX));
        let fits = |scale: &u32| highest - 1 - scale <= SHIFT_MAX;
        scales.into_iter().find(fits).map_or(Scale::None, Scale::Common)
    }
}

impl<'h> Terms<'h> {
    /// Room for terms.
    pub(crate) const ROOM: Halves = [[MaybeUninit::uninit(); BLOCK_ROWS]; 2];

    /// The terms of a block's values at their common scale.
    #[inline(always)]
    pub(crate) fn new(values: &[f64], scale: u32, [lows, highs]: &'h mut Halves) -> Terms<'h> {
        let (lows, highs) = (&mut lows[..values.len()], &mut highs[..values.len()]);
        for (value, (low, high)) in values.iter().zip(lows.iter_mut().zip(&mut *highs)) {
            let bits = value.to_bits();
            let magnitude = bits & ((1 << 52) - 1) | 1 << 52;
            let sign = (bits as i64 >> 63) as u64;
            // Of zero nothing is left.
            let magnitude = if bits << 1 == 0 { 0 } else { magnitude };
            // From 1 to 63, unless the value is zero.
            let shift = (bits >> 52 & 0x7FF).wrapping_sub(1 + u64::from(scale)) & 63;
            let mantissa = (magnitude ^ sign).wrapping_sub(sign);
            low.write(mantissa << shift);
            high.write(((mantissa as i64) >> (shift.wrapping_neg() & 63)) as u64);
        }
        let meta = SCALED | u64::from(scale) << SCALE_SHIFT;
        // SAFETY: both halves of each value's term have been written.
        unsafe { Terms { low: lows.assume_init_ref(), high: highs.assume_init_ref(), meta } }
    }

    /// The halves of each term, the lower first.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = [u64; 2]> {
        self.low.iter().zip(self.high).map(|(low, high)| [*low, *high])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::numbers::{read_i128, times_power_of_two};
    use crate::values::float_sum::scale_of;

    /// A value is its term times two to the power of the scale.
    #[test]
    fn terms_are_the_values() {
        let blocks: [&[f64]; 6] = [
            &[0.1, 0.2, 0.3, -0.7, 0.0, -0.0],
            &[1.0, 2.0, 1e6, -1e6],
            &[1e-300, -3e-300],
            &[1e300, 5e299],
            &[f64::MIN_POSITIVE * 128.0],
            &[-1.5],
        ];
        for values in blocks {
            let Scale::Common(scale) = Scale::of(values) else { panic!("a scale of {values:?}") };
            let mut halves = Terms::ROOM;
            let terms = Terms::new(values, scale, &mut halves);
            assert_eq!(scale_of(terms.meta), scale as i32 + LOWEST);
            assert!(scale_of(terms.meta) <= HIGHEST);
            for (value, [low, high]) in values.iter().zip(terms.iter()) {
                let term = read_i128(low, high);
                let exponent = scale as i32 + LOWEST;
                // The term has trailing zeros, so a double holds it.
                let (whole, rest) = (term / (1 << 40), term % (1 << 40));
                let read =
                    |part: i128, shift: i32| times_power_of_two(part as f64, exponent + shift);
                assert_eq!(read(whole, 40) + read(rest, 0), *value);
            }
        }
    }

    #[test]
    fn some_blocks_have_no_common_scale() {
        assert_eq!(Scale::of(&[0.0, -0.0]), Scale::Zero);
        assert_eq!(Scale::of(&[f64::MAX, 1e308]), Scale::None);
        assert_eq!(Scale::of(&[1.0, f64::NAN]), Scale::None);
        assert_eq!(Scale::of(&[1.0, f64::INFINITY]), Scale::None);
        assert_eq!(Scale::of(&[1.0, 1e30]), Scale::None);
        assert_eq!(Scale::of(&[f64::MIN_POSITIVE]), Scale::None);
        assert_eq!(Scale::of(&[f64::from_bits(1), 1.0]), Scale::None);
    }
}
