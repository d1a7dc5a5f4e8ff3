//! Exact sums of doubles.
//!
//! A sum that is rounded depends on the order of its terms; a sum that is not rounded is a CRDT, as
//! an integer sum is. The sum is a 128-bit integer times a power of two that the first input
//! chooses, which holds most real data without loss. A sum whose terms span more bits moves to a
//! 2,240-bit fixed-point number in the arena, which holds any double (a *superaccumulator*; the
//! idea is Kulisch's). The sum is rounded once, to nearest even, when the result is read. So the
//! result is the true sum, correctly rounded, whatever the order of updates and merges.

mod rounding;
mod terms;
mod wide;

#[cfg(test)]
mod tests;

use std::hint::select_unpredictable;

use crate::memory::arena::Arena;
use crate::memory::numbers::times_power_of_two;
use crate::values::exact::Exact;
pub use rounding::mean_of_integers;
use rounding::quotient;
pub(crate) use terms::{Scale, Terms};
use wide::{LOWEST, WIDE_WORDS};

/// The empty sum.
pub(crate) const EMPTY: [u64; 3] = [0, 0, 0];

/// Highest scale of the narrow form: the exponents of infinities and NaN are 64 above.
const HIGHEST: i32 = LOWEST + 0x7FE - 64;
/// How far below the first input's lowest bit the narrow form's begins.
const SLACK_BITS: i32 = 24;
/// The narrow form leaves this many bits unused, so that adding one term cannot overflow.
const LIMIT_BITS: u32 = 126;
const LIMIT: i128 = 1 << LIMIT_BITS;

// The third word: flags, then the scale (offset by LOWEST), then the arena offset of the wide form.
const SCALED: u64 = 1;
const WIDE: u64 = 2;
const NAN: u64 = 4;
const PLUS_INFINITY: u64 = 8;
const MINUS_INFINITY: u64 = 16;
const SPECIAL: u64 = NAN | PLUS_INFINITY | MINUS_INFINITY;
const SCALE_SHIFT: u32 = 16;
const OFFSET_SHIFT: u32 = 32;

#[inline(always)]
fn scale_of(meta: u64) -> i32 {
    (meta >> SCALE_SHIFT & 0xFFFF) as i32 + LOWEST
}

#[inline(always)]
fn narrow(sum: &[u64; 3]) -> i128 {
    crate::memory::numbers::read_i128(sum[0], sum[1])
}

#[inline(always)]
fn set_narrow(sum: &mut [u64; 3], value: i128) {
    sum[0] = value as u64;
    sum[1] = (value >> 64) as u64;
}

/// Adds one double.
#[inline(always)]
pub(crate) fn add(sum: &mut [u64; 3], arena: &mut Arena, value: f64) {
    let bits = value.to_bits();
    let exponent = (bits >> 52) as u32 & 0x7FF;
    let magnitude = (bits & ((1 << 52) - 1) | 1 << 52) as i64;
    let sign = bits as i64 >> 63;
    let mantissa = (magnitude ^ sign) - sign;
    let meta = sum[2];
    if meta & 0xFFFF == SCALED {
        // The common case: narrow, and the input finite, normal and above the scale. Then the term
        // is the mantissa shifted left by `exponent - 1075 - scale`. What is not finite would be
        // shifted farther, since scales are kept low enough for that.
        let raw_scale = (meta >> SCALE_SHIFT) as u32 & 0xFFFF;
        let shift = exponent.wrapping_sub(1).wrapping_sub(raw_scale);
        if shift.wrapping_sub(1) < 63 {
            let (low, carry) = sum[0].overflowing_add((mantissa as u64) << shift);
            let high = mantissa >> (shift.wrapping_neg() & 63);
            let high = sum[1].wrapping_add(high as u64).wrapping_add(u64::from(carry));
            // The two topmost bits agree while there is room for the next term.
            if (high ^ high << 1) >> 63 == 0 {
                (sum[0], sum[1]) = (low, high);
                return;
            }
        }
    } else if meta == 0 && (SLACK_BITS + 1..HIGHEST - LOWEST).contains(&(exponent as i32)) {
        // The first input, not near the subnormals: it sets the scale.
        set_narrow(sum, i128::from(mantissa) << SLACK_BITS);
        sum[2] = SCALED | u64::from(exponent - 1 - SLACK_BITS as u32) << SCALE_SHIFT;
        return;
    }
    add_slow(sum, arena, value);
}

/// Adds a value whose term is at hand, at the scale of `meta`.
#[inline(always)]
pub(crate) fn add_term(
    sum: &mut [u64; 3],
    arena: &mut Arena,
    [term_low, term_high]: [u64; 2],
    meta: u64,
    value: f64,
) {
    if sum[2] == meta {
        let (low, carry) = sum[0].overflowing_add(term_low);
        let high = sum[1].wrapping_add(term_high).wrapping_add(u64::from(carry));
        if (high ^ high << 1) >> 63 == 0 {
            (sum[0], sum[1]) = (low, high);
            return;
        }
    } else if sum[2] == 0 {
        *sum = [term_low, term_high, meta];
        return;
    }
    add_elsewhere(sum, arena, value);
}

/// Adds a double to a sum of another scale.
#[inline(never)]
fn add_elsewhere(sum: &mut [u64; 3], arena: &mut Arena, value: f64) {
    add(sum, arena, value);
}

#[cold]
#[inline(never)]
fn add_slow(sum: &mut [u64; 3], arena: &mut Arena, value: f64) {
    if value == 0.0 {
        return;
    }
    if !value.is_finite() {
        sum[2] |= if value.is_nan() {
            NAN
        } else if value > 0.0 {
            PLUS_INFINITY
        } else {
            MINUS_INFINITY
        };
        return;
    }
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7FF) as i32;
    let hidden = u64::from(exponent != 0) << 52;
    let mantissa = (bits & ((1 << 52) - 1) | hidden) as i128;
    let term = if value < 0.0 { -mantissa } else { mantissa };
    add_scaled(sum, arena, term, exponent.max(1) - 1075);
}

/// Adds `term * 2^scale`.
fn add_scaled(sum: &mut [u64; 3], arena: &mut Arena, term: i128, scale: i32) {
    if term == 0 {
        return;
    }
    if sum[2] & WIDE == 0 {
        if sum[2] & SCALED == 0 {
            let own = (scale - SLACK_BITS).clamp(LOWEST, HIGHEST);
            sum[2] |= SCALED | ((own - LOWEST) as u64) << SCALE_SHIFT;
        }
        if add_narrow(sum, term, scale) {
            return;
        }
        widen(sum, arena);
    }
    let words = arena.words_mut((sum[2] >> OFFSET_SHIFT) as u32, WIDE_WORDS);
    wide::add(words, term, scale);
}

/// Adds to the narrow form, lowering its scale if need be; false if that would lose bits.
fn add_narrow(sum: &mut [u64; 3], term: i128, scale: i32) -> bool {
    let own = scale_of(sum[2]);
    let (term, scale) = if scale < own {
        // Trailing zeros may be shed: 1.0 is 2^52 * 2^-52.
        let shed = (term.trailing_zeros() as i32).min(own - scale);
        (term >> shed, scale + shed)
    } else {
        (term, scale)
    };
    let common = scale.min(own);
    let (Some(current), Some(term)) =
        (shift_exact(narrow(sum), own - common), shift_exact(term, scale - common))
    else {
        return false;
    };
    let Some(total) = current.checked_add(term).filter(|t| (-LIMIT..LIMIT).contains(t)) else {
        return false;
    };
    set_narrow(sum, total);
    sum[2] = sum[2] & !(0xFFFF << SCALE_SHIFT) | ((common - LOWEST) as u64) << SCALE_SHIFT;
    true
}

fn shift_exact(value: i128, left: i32) -> Option<i128> {
    if value == 0 || left == 0 {
        return Some(value);
    }
    (left < 126 && value.unsigned_abs().leading_zeros() as i32 > left + 1).then(|| value << left)
}

/// Moves a sum to the wide form.
fn widen(sum: &mut [u64; 3], arena: &mut Arena) {
    let offset = arena.alloc_words(WIDE_WORDS);
    wide::add(arena.words_mut(offset, WIDE_WORDS), narrow(sum), scale_of(sum[2]));
    *sum = [0, 0, sum[2] & SPECIAL | WIDE | u64::from(offset) << OFFSET_SHIFT];
}

/// Copies what a sum, whose third word this is, refers to in `from`, if it is wide: from then on it
/// refers to `to`.
pub(crate) fn relocate(meta: &mut u64, from: &Arena, to: &mut Arena) {
    if *meta & WIDE != 0 {
        let offset = to.alloc_words(WIDE_WORDS);
        let words = from.words((*meta >> OFFSET_SHIFT) as u32, WIDE_WORDS);
        to.words_mut(offset, WIDE_WORDS).copy_from_slice(words);
        *meta = *meta & (SPECIAL | WIDE) | u64::from(offset) << OFFSET_SHIFT;
    }
}

/// Adds another sum; a wide form of the latter stands in `other_arena`.
#[inline(always)]
pub(crate) fn merge(sum: &mut [u64; 3], arena: &mut Arena, other: &[u64; 3], other_arena: &Arena) {
    if !merge_narrow(sum, other) {
        merge_slow(sum, arena, other, other_arena);
    }
}

#[cold]
#[inline(never)]
fn merge_slow(sum: &mut [u64; 3], arena: &mut Arena, other: &[u64; 3], other_arena: &Arena) {
    sum[2] |= other[2] & SPECIAL;
    if other[2] & WIDE == 0 {
        if other[2] & SCALED != 0 {
            add_scaled(sum, arena, narrow(other), scale_of(other[2]));
        }
        return;
    }
    if sum[2] & WIDE == 0 {
        if sum[2] & SCALED == 0 {
            sum[2] |= SCALED;
        }
        widen(sum, arena);
    }
    let source = other_arena.words((other[2] >> OFFSET_SHIFT) as u32, WIDE_WORDS);
    let own = arena.words_mut((sum[2] >> OFFSET_SHIFT) as u32, WIDE_WORDS);
    wide::merge(own, source);
}

/// Whether these words are a sum, whoever wrote them: its scale is possible, and its wide form in
/// the arena.
pub(crate) fn is_sum(sum: [u64; 3], arena: &Arena) -> bool {
    let meta = sum[2];
    let flags = meta & 0xFFFF;
    if flags & !(SCALED | WIDE | SPECIAL) != 0 || flags & (SCALED | WIDE) == SCALED | WIDE {
        return false;
    }
    if meta & WIDE != 0 {
        return (meta >> OFFSET_SHIFT) as usize + WIDE_WORDS <= arena.all_words().len();
    }
    match meta & SCALED != 0 {
        true => {
            let fits = (-LIMIT..LIMIT).contains(&narrow(&sum));
            meta >> OFFSET_SHIFT == 0 && scale_of(meta) <= HIGHEST && fits
        }
        false => [sum[0], sum[1], meta >> SCALE_SHIFT] == [0; 3],
    }
}

/// The common case: an empty sum, or two narrow sums whose scales are not far apart. False in other
/// cases.
#[inline(always)]
fn merge_narrow(sum: &mut [u64; 3], other: &[u64; 3]) -> bool {
    if sum[2] == 0 && other[2] & WIDE == 0 {
        *sum = *other;
        return true;
    }
    if (sum[2] ^ SCALED | other[2] ^ SCALED) & 0xFFFF != 0 {
        return other[2] == 0;
    }
    // Flags are the same, so that the lesser word has the lower scale: the other number is raised
    // to this scale. The choice is unpredictable: no jumps.
    let own_is_raised = sum[2] > other[2];
    let pick = |if_own: u64, if_other: u64| select_unpredictable(own_is_raised, if_own, if_other);
    let (raised_low, raised_high) = (pick(sum[0], other[0]), pick(sum[1], other[1]));
    let (low, high) = (pick(other[0], sum[0]), pick(other[1], sum[1]));
    let left = sum[2].abs_diff(other[2]) >> SCALE_SHIFT;
    if left >= 63 {
        return false;
    }
    // Room for the sign, and one bit for the sum.
    let sign = raised_high as i64 >> 63;
    let fits = raised_high as i64 >> (62 - left) == sign;
    let raised = (u128::from(raised_high) << 64 | u128::from(raised_low)) << left;
    let total = raised.wrapping_add(u128::from(high) << 64 | u128::from(low));
    let high = (total >> 64) as u64;
    if !fits || (high ^ high << 1) >> 63 != 0 {
        return false;
    }
    *sum = [total as u64, high, sum[2].min(other[2])];
    true
}

/// The sum, rounded once to the nearest double (ties to even).
pub fn finish(sum: [u64; 3], arena: &Arena) -> f64 {
    match sum[2] & SPECIAL {
        0 => {}
        PLUS_INFINITY => return f64::INFINITY,
        MINUS_INFINITY => return f64::NEG_INFINITY,
        _ => return f64::NAN,
    }
    if sum[2] & WIDE != 0 {
        return wide::round(arena.words((sum[2] >> OFFSET_SHIFT) as u32, WIDE_WORDS));
    }
    if sum[2] & SCALED == 0 {
        return 0.0;
    }
    // Exact: either the conversion rounds to 53 bits and the scaling is by a power of two within
    // the normal range, or the integer has at most 53 bits already.
    times_power_of_two(narrow(&sum) as f64, scale_of(sum[2]))
}

/// The sum as it is; `None` if it is not finite.
pub fn exact(sum: [u64; 3], arena: &Arena) -> Option<Exact> {
    match sum[2] & (SPECIAL | WIDE | SCALED) {
        0 => Some(Exact::default()),
        SCALED => Some(Exact::of_integer(narrow(&sum), scale_of(sum[2]))),
        WIDE => {
            let words = arena.words((sum[2] >> OFFSET_SHIFT) as u32, WIDE_WORDS);
            let (negative, magnitude) = wide::magnitude_of(words);
            Some(Exact::new(negative, magnitude.to_vec(), LOWEST))
        }
        _ => None,
    }
}

/// The mean of `count` (at least one) inputs: the exact sum divided and then rounded once, so that
/// the mean of equal numbers is that number.
pub fn mean(sum: [u64; 3], arena: &Arena, count: u64) -> f64 {
    if sum[2] & SPECIAL != 0 || sum[2] & (SCALED | WIDE) == 0 {
        return finish(sum, arena);
    }
    let (negative, magnitude, exponent) = if sum[2] & WIDE != 0 {
        wide::top_bits(arena.words((sum[2] >> OFFSET_SHIFT) as u32, WIDE_WORDS))
    } else {
        let value = narrow(&sum);
        (value < 0, value.unsigned_abs(), scale_of(sum[2]))
    };
    quotient(negative, magnitude, exponent, count)
}
