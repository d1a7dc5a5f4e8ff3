//! The wide form of a sum: a fixed-point number that holds any double, in two's complement, lowest
//! word first.

use crate::memory::numbers::times_power_of_two;

/// Words of the wide form: bit 0 weighs 2^-1074; 2,098 bits hold any double, the rest holds
/// carries.
pub(super) const WIDE_WORDS: usize = 35;
/// Weight of the lowest bit of the wide form, and the lowest scale of the narrow one.
pub(super) const LOWEST: i32 = -1074;

/// Adds `term * 2^scale` to a wide number.
pub(super) fn add(words: &mut [u64], term: i128, scale: i32) {
    let at = (scale - LOWEST) as usize;
    let (word, bit) = (at / 64, at % 64);
    let low = (term as u128) << bit;
    // What the shift pushes out at the top, sign included.
    let top = if bit == 0 { term >> 127 } else { term >> (128 - bit) };
    let extension = (term >> 127) as u64;
    let mut carry = false;
    for (i, slot) in words[word..].iter_mut().enumerate() {
        let part = match i {
            0 => low as u64,
            1 => (low >> 64) as u64,
            2 => top as u64,
            _ => extension,
        };
        if i > 2 && !carry && part == 0 {
            break;
        }
        let (partial, carry1) = slot.overflowing_add(part);
        let (total, carry2) = partial.overflowing_add(u64::from(carry));
        *slot = total;
        carry = carry1 || carry2;
    }
}

/// Adds a wide number to another.
pub(super) fn merge(words: &mut [u64], other: &[u64]) {
    let mut carry = false;
    for (slot, part) in words.iter_mut().zip(other) {
        let (partial, carry1) = slot.overflowing_add(*part);
        let (total, carry2) = partial.overflowing_add(u64::from(carry));
        *slot = total;
        carry = carry1 || carry2;
    }
}

/// Sign, top bits (everything below folded into the lowest) and their weight, of a wide number.
pub(super) fn top_bits(words: &[u64]) -> (bool, u128, i32) {
    let (negative, magnitude) = magnitude_of(words);
    let Some(top) = magnitude.iter().rposition(|w| *w != 0) else { return (negative, 0, LOWEST) };
    if top == 0 {
        return (negative, magnitude[0].into(), LOWEST);
    }
    let value = u128::from(magnitude[top]) << 64 | u128::from(magnitude[top - 1]);
    // All 128 bits are used, or what lies below might be mistaken for more than it is when a count
    // divides.
    let shift = value.leading_zeros();
    let below = if top > 1 { u128::from(magnitude[top - 2]) << shift } else { 0 };
    let value = value << shift | below >> 64;
    let sticky = below as u64 != 0 || magnitude[..top - 1].iter().rev().skip(1).any(|w| *w != 0);
    let exponent = (top as i32 - 1) * 64 + LOWEST - shift as i32;
    (negative, value | u128::from(sticky), exponent)
}

/// Sign and absolute value of a wide number.
pub(super) fn magnitude_of(words: &[u64]) -> (bool, [u64; WIDE_WORDS]) {
    let negative = (words[WIDE_WORDS - 1] as i64) < 0;
    let mut magnitude = [0u64; WIDE_WORDS];
    magnitude.copy_from_slice(words);
    if negative {
        let mut carry = true;
        for word in &mut magnitude {
            (*word, carry) = (!*word).overflowing_add(u64::from(carry));
        }
    }
    (negative, magnitude)
}

/// Rounds a wide number: its top 64 bits, with all lower ones folded into the lowest.
pub(super) fn round(words: &[u64]) -> f64 {
    let (negative, magnitude) = magnitude_of(words);
    let Some(top) = magnitude.iter().rposition(|w| *w != 0) else { return 0.0 };
    let shift = magnitude[top].leading_zeros();
    let below = if top > 0 { magnitude[top - 1] } else { 0 };
    let mut window = magnitude[top] << shift;
    let mut sticky = magnitude[..top.saturating_sub(1)].iter().any(|w| *w != 0);
    if shift > 0 {
        window |= below >> (64 - shift);
        sticky |= below << shift != 0;
    } else {
        sticky |= below != 0;
    }
    // 64 bits to a double's 53: the 11 lowest decide the rounding, so one sticky bit is enough.
    // A subnormal result has its lowest bit at or above the wide form's lowest: nothing is rounded.
    let exponent = top as i32 * 64 - shift as i32 + LOWEST;
    let rounded = times_power_of_two((window | u64::from(sticky)) as f64, exponent);
    if negative { -rounded } else { rounded }
}
