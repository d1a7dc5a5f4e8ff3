//! Exact sums of doubles.
//!
//! A sum that rounds depends on the order of its terms; one that does not round is a CRDT like an
//! integer's. Values are kept as a 128-bit integer times a power of two (chosen by the first input),
//! which holds most real data without loss. A sum whose terms span more bits moves to a 2,240-bit
//! fixed-point number in the arena, which holds any double (a *superaccumulator*; the idea is
//! Kulisch's). Rounding happens once, to nearest even, when the result is read: the result is the
//! correctly rounded true sum, whatever the order of updates and merges.

use crate::arena::Arena;

/// The empty sum.
pub(crate) const EMPTY: [u64; 3] = [0, 0, 0];

/// Words of the wide form: bit 0 weighs 2^-1074; 2,098 bits hold any double, the rest holds carries.
const WIDE_WORDS: usize = 35;
/// Weight of the lowest bit of the wide form, and the lowest scale of the narrow one.
const LOWEST: i32 = -1074;
/// Highest scale of the narrow form: the exponents of infinities and NaN are 64 above.
const HIGHEST: i32 = LOWEST + 0x7FE - 64;
/// How far below the first input's lowest bit the narrow form's begins.
const SLACK_BITS: i32 = 24;
/// The narrow form leaves this many bits unused, so that adding one term cannot overflow.
const LIMIT: i128 = 1 << 126;

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
    crate::value::read_i128(sum[0], sum[1])
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
        // The common case: narrow, and the input finite, normal and above the scale. Then the term is the
        // mantissa shifted left by `exponent - 1075 - scale`. What is not finite would be shifted farther,
        // since scales are kept low enough for that.
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
    add_wide(words, term, scale);
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
    add_wide(arena.words_mut(offset, WIDE_WORDS), narrow(sum), scale_of(sum[2]));
    *sum = [0, 0, sum[2] & SPECIAL | WIDE | u64::from(offset) << OFFSET_SHIFT];
}

/// Adds `term * 2^scale` to a wide two's complement number.
fn add_wide(words: &mut [u64], term: i128, scale: i32) {
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

/// Adds another sum, whose wide form, if it has one, stands in `other_arena`.
#[inline]
pub(crate) fn merge(sum: &mut [u64; 3], arena: &mut Arena, other: &[u64; 3], other_arena: &Arena) {
    if merge_narrow(sum, other) {
        return;
    }
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
    let mut carry = false;
    for (slot, part) in own.iter_mut().zip(source) {
        let (partial, carry1) = slot.overflowing_add(*part);
        let (total, carry2) = partial.overflowing_add(u64::from(carry));
        *slot = total;
        carry = carry1 || carry2;
    }
}

/// The common case: the sum is empty, or both are narrow and their scales not far apart. False if it is
/// not that.
#[inline(always)]
fn merge_narrow(sum: &mut [u64; 3], other: &[u64; 3]) -> bool {
    if sum[2] == 0 && other[2] & WIDE == 0 {
        *sum = *other;
        return true;
    }
    if sum[2] & 0xFFFF != SCALED || other[2] & 0xFFFF != SCALED {
        return false;
    }
    // Flags are the same, so that the lesser word has the lower scale.
    let meta = sum[2].min(other[2]);
    let raise =
        |number: &[u64; 3]| shift_exact(narrow(number), ((number[2] - meta) >> SCALE_SHIFT) as i32);
    let (Some(own), Some(term)) = (raise(sum), raise(other)) else { return false };
    let Some(total) = own.checked_add(term).filter(|t| (-LIMIT..LIMIT).contains(t)) else {
        return false;
    };
    set_narrow(sum, total);
    sum[2] = meta;
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
        return round_wide(arena.words((sum[2] >> OFFSET_SHIFT) as u32, WIDE_WORDS));
    }
    if sum[2] & SCALED == 0 {
        return 0.0;
    }
    // Exact: either the conversion rounds to 53 bits and the scaling is by a power of two within
    // the normal range, or the integer has at most 53 bits already.
    times_power_of_two(narrow(&sum) as f64, scale_of(sum[2]))
}

/// The mean of `count` (at least one) inputs: the exact sum divided and then rounded once, so that the
/// mean of equal numbers is that number.
pub fn mean(sum: [u64; 3], arena: &Arena, count: u64) -> f64 {
    if sum[2] & SPECIAL != 0 || sum[2] & (SCALED | WIDE) == 0 {
        return finish(sum, arena);
    }
    let (negative, magnitude, exponent) = if sum[2] & WIDE != 0 {
        top_bits(arena.words((sum[2] >> OFFSET_SHIFT) as u32, WIDE_WORDS))
    } else {
        let value = narrow(&sum);
        (value < 0, value.unsigned_abs(), scale_of(sum[2]))
    };
    quotient(negative, magnitude, exponent, count)
}

/// The mean of `count` (at least one) integers with this sum, rounded once.
pub fn mean_of_integers(sum: i128, count: u64) -> f64 {
    quotient(sum < 0, sum.unsigned_abs(), 0, count)
}

/// `magnitude * 2^exponent / count`, rounded once.
fn quotient(negative: bool, magnitude: u128, exponent: i32, count: u64) -> f64 {
    if magnitude == 0 {
        return 0.0;
    }
    // Both with their highest bit set, and the dividend half of that: the quotient has 62 to 64 bits, which is
    // enough to round by, and takes one division by 64 bits.
    let (shift, count_shift) = (magnitude.leading_zeros(), count.leading_zeros());
    let dividend = magnitude << shift;
    let divisor = u128::from(count << count_shift);
    let (quotient, rest) = ((dividend >> 1) / divisor, (dividend >> 1) % divisor);
    let inexact = rest != 0 || dividend & 1 != 0;
    let rounded = (quotient as u64 | u64::from(inexact)) as f64;
    let mean = times_power_of_two(rounded, exponent + 1 - shift as i32 + count_shift as i32);
    if negative { -mean } else { mean }
}

/// Sign, top bits (everything below folded into the lowest) and their weight, of a wide number.
fn top_bits(words: &[u64]) -> (bool, u128, i32) {
    let (negative, magnitude) = magnitude_of(words);
    let Some(top) = magnitude.iter().rposition(|w| *w != 0) else { return (negative, 0, LOWEST) };
    if top == 0 {
        return (negative, magnitude[0].into(), LOWEST);
    }
    let value = u128::from(magnitude[top]) << 64 | u128::from(magnitude[top - 1]);
    let sticky = magnitude[..top - 1].iter().any(|w| *w != 0);
    (negative, value | u128::from(sticky), (top as i32 - 1) * 64 + LOWEST)
}

/// Sign and absolute value of a wide number.
fn magnitude_of(words: &[u64]) -> (bool, [u64; WIDE_WORDS]) {
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

/// `value * 2^exponent`, exact where the result is a normal number (or `value` is short enough).
fn times_power_of_two(value: f64, exponent: i32) -> f64 {
    let power = |e: i32| f64::from_bits(((e + 1023) as u64) << 52);
    if exponent < -1000 {
        value * power(exponent + 900) * power(-900)
    } else if exponent > 1000 {
        value * power(1000) * power(exponent - 1000)
    } else {
        value * power(exponent)
    }
}

/// Rounds a wide number: its top 64 bits, with all lower ones folded into the lowest.
fn round_wide(words: &[u64]) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64*, enough for tests.
    struct Random(u64);
    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
        }
    }

    fn sum_of(values: &[f64]) -> f64 {
        let (mut sum, mut arena) = (EMPTY, Arena::default());
        values.iter().for_each(|v| add(&mut sum, &mut arena, *v));
        finish(sum, &arena)
    }

    #[test]
    fn sums_are_correctly_rounded() {
        assert_eq!(sum_of(&[]), 0.0);
        assert_eq!(sum_of(&[0.1; 10]), 1.0); // naive addition gives 0.9999999999999999
        assert_eq!(sum_of(&[1e308, 1e308, -1e308]), 1e308); // no overflow in between
        assert_eq!(sum_of(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum_of(&[1e300, 1.0, -1e300]), 1.0);
        assert_eq!(sum_of(&[5e-324, 5e-324]), 1e-323);
        assert_eq!(sum_of(&[5e-324, 1e308, -1e308]), 5e-324);
        assert_eq!(sum_of(&[-0.0, -0.0]).to_bits(), 0);
        // Halfway between two doubles: to even; a speck above: up.
        let half = 2f64.powi(-53);
        assert_eq!(sum_of(&[1.0, half]), 1.0);
        assert_eq!(sum_of(&[1.0, half, 5e-324]), 1.0 + 2.0 * half);
        assert_eq!(sum_of(&[-1.0, -half, -5e-324]), -1.0 - 2.0 * half);
        assert!(sum_of(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert_eq!(sum_of(&[f64::INFINITY, -1e308]), f64::INFINITY);
        assert!(sum_of(&[f64::NAN, 1.0]).is_nan());
    }

    /// Far more terms than the narrow form has room for, none of which is too large by itself.
    #[test]
    fn a_sum_that_outgrows_the_narrow_form_is_still_exact() {
        for sign in [1.0, -1.0] {
            let mut values = vec![sign * 2f64.powi(39); 5001];
            // The first input sets the scale, as low as the others can just be added to.
            values[0] = sign;
            assert_eq!(sum_of(&values), sign * (5000.0 * 2f64.powi(39) + 1.0));
        }
    }

    /// Halfway between two doubles, the least speck decides, wherever the words of a wide sum begin.
    #[test]
    fn a_speck_anywhere_below_decides_a_tie() {
        for top in 246..310 {
            for speck in [60, 70, 100, 130, 200, 600].map(|below| 2f64.powi(top - below)) {
                let (value, half) = (2f64.powi(top), 2f64.powi(top - 53));
                for (speck, expected) in [(0.0, value), (speck, value + 2.0 * half)] {
                    for sign in [1.0, -1.0] {
                        let (mut sum, mut arena) = (EMPTY, Arena::default());
                        [1e300, value, half, speck, -1e300]
                            .iter()
                            .for_each(|v| add(&mut sum, &mut arena, sign * v));
                        assert!(sum[2] & WIDE != 0);
                        let (total, mean) = (finish(sum, &arena), mean(sum, &arena, 1));
                        assert_eq!((total, mean), (sign * expected, sign * expected), "2^{top}");
                    }
                }
            }
        }
    }

    /// What is not finite stays so, whatever the scale it is added to and whichever side it comes from.
    #[test]
    fn infinities_and_nan_outlast_updates_and_merges() {
        let (inf, minus_inf) = (f64::INFINITY, f64::NEG_INFINITY);
        for finite in [5e-324, 1e-300, 1.0, -1e290, 1e300, f64::MAX] {
            for (special, expected) in [(inf, inf), (minus_inf, minus_inf), (f64::NAN, f64::NAN)] {
                let same = |got: f64| got == expected || got.is_nan() && expected.is_nan();
                assert!(same(sum_of(&[finite, special])), "{finite:e}, then {special}");
                assert!(same(sum_of(&[special, finite])), "{special}, then {finite:e}");
                for order in [[finite, special], [special, finite]] {
                    let [(mut sum, mut arena), (other, other_arena)] = order.map(|value| {
                        let (mut sum, mut arena) = (EMPTY, Arena::default());
                        add(&mut sum, &mut arena, value);
                        (sum, arena)
                    });
                    merge(&mut sum, &mut arena, &other, &other_arena);
                    assert!(same(finish(sum, &arena)), "{order:?} merged");
                }
            }
        }
    }

    /// Sums of integers times a power of two, checked against integer arithmetic.
    #[test]
    fn sums_agree_with_integers() {
        let mut random = Random(7);
        for _ in 0..2000 {
            let exponent = (random.next() % 200) as i32 - 100;
            let terms: Vec<i64> = (0..20).map(|_| random.next() as i64 >> 20).collect();
            let values: Vec<f64> =
                terms.iter().map(|t| times_power_of_two(*t as f64, exponent)).collect();
            let exact: i128 = terms.iter().map(|t| i128::from(*t)).sum();
            assert_eq!(sum_of(&values), times_power_of_two(exact as f64, exponent));
        }
    }

    #[test]
    fn the_mean_of_equal_numbers_is_that_number() {
        let mut random = Random(3);
        for _ in 0..2000 {
            let value =
                f64::from_bits(random.next() & !(0x7FF << 52) | (random.next() % 1900 + 64) << 52);
            let count = 1 + random.next() % 50;
            let (mut sum, mut arena) = (EMPTY, Arena::default());
            (0..count).for_each(|_| add(&mut sum, &mut arena, value));
            assert_eq!(mean(sum, &arena, count), value, "{count} times {value:e}");
        }
        let (mut sum, mut arena) = (EMPTY, Arena::default());
        [1e300, 2.0, -1e300].iter().for_each(|v| add(&mut sum, &mut arena, *v));
        assert_eq!(mean(sum, &arena, 4), 0.5);
        add(&mut sum, &mut arena, f64::INFINITY);
        assert_eq!(mean(sum, &arena, 4), f64::INFINITY);
    }

    #[test]
    fn the_mean_of_equal_integers_is_the_double_nearest_to_them() {
        let integers = [1, -7, 3_002_399_751_580_331, (1 << 53) + 1, i64::MAX, i64::MIN, 0];
        for value in integers {
            for count in [1, 2, 3, 1_000_003, u64::from(u32::MAX)] {
                let sum = i128::from(value) * i128::from(count);
                assert_eq!(mean_of_integers(sum, count), value as f64, "{count} times {value}");
            }
        }
        assert_eq!(mean_of_integers(-13, 5), -2.6);
        // Halfway between two doubles but for the remainder of the division.
        let (tie, count) = ((1 << 53) + 1, 1 << 63);
        assert_eq!(mean_of_integers(tie * i128::from(count), count), 2f64.powi(53));
        assert_eq!(mean_of_integers(tie * i128::from(count) + 1, count), 2f64.powi(53) + 2.0);
        // As doubles, the sum would lose its last digit first.
        assert_eq!(mean_of_integers((1 << 53) + 1, 3), 3_002_399_751_580_331.0);
    }

    /// No double is nearer to the quotient: its distance, in exact integers, is half a unit of the last place at
    /// most, and then its last bit is even.
    #[test]
    fn the_mean_of_integers_is_the_nearest_double() {
        let mut random = Random(17);
        for _ in 0..20_000 {
            let wide = u128::from(random.next()) << 64 | u128::from(random.next());
            let sum = (wide >> (28 + random.next() % 40) | 1 << 59) as i128;
            let count = 1 + (random.next() >> (40 + random.next() % 24)) as i128;
            let mean = mean_of_integers(sum, count as u64);
            let exponent = (mean.to_bits() >> 52) as i32 - 1075;
            let mantissa = i128::from(mean.to_bits() & ((1 << 52) - 1) | 1 << 52);
            // Both in units of 2^min(exponent, 0), times the count.
            let product = (mantissa * count) << exponent.max(0);
            let distance = ((sum << (-exponent).max(0)) - product).abs();
            let unit = count << exponent.max(0);
            assert!(2 * distance <= unit, "{sum} / {count} = {mean:e}");
            assert!(2 * distance < unit || mantissa % 2 == 0, "{sum} / {count} = {mean:e}");
        }
    }

    /// The laws that P2 rests on: any grouping and order of updates and merges gives the same bits.
    #[test]
    fn order_and_grouping_do_not_matter() {
        let mut random = Random(99);
        let (mut narrow_seen, mut wide_seen) = (false, false);
        for round in 0..3000 {
            let spread = [4u64, 60, 600, 2000][round % 4];
            let count = 1 + (random.next() % 12) as usize;
            let mut values: Vec<f64> = (0..count)
                .map(|_| {
                    let exponent = (1023 - spread / 2 + random.next() % spread.max(1)) & 0x7FF;
                    f64::from_bits(random.next() & !(0x7FF << 52) | exponent << 52)
                })
                .collect();
            let expected = sum_of(&values);
            for _ in 0..4 {
                for i in (1..values.len()).rev() {
                    values.swap(i, (random.next() % (i as u64 + 1)) as usize);
                }
                let cut = (random.next() % (count as u64 + 1)) as usize;
                let (mut a, mut arena_a) = (EMPTY, Arena::default());
                let (mut b, mut arena_b) = (EMPTY, Arena::default());
                values[..cut].iter().for_each(|v| add(&mut a, &mut arena_a, *v));
                values[cut..].iter().for_each(|v| add(&mut b, &mut arena_b, *v));
                merge(&mut a, &mut arena_a, &b, &arena_b);
                narrow_seen |= a[2] & WIDE == 0;
                wide_seen |= a[2] & WIDE != 0;
                let merged = finish(a, &arena_a);
                assert!(
                    merged.to_bits() == expected.to_bits() || merged.is_nan() && expected.is_nan(),
                    "{values:?} cut at {cut}: {merged:e} and {expected:e}"
                );
            }
        }
        assert!(narrow_seen && wide_seen, "both forms must have been tested");
    }
}
