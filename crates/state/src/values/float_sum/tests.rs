//! Tests of sums and averages against integer arithmetic, and of the laws that P2 rests on.

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

/// No double is nearer to the quotient: its distance, in exact integers, is half a unit of the last
/// place at most, and then its last bit is even.
#[test]
fn the_mean_of_integers_is_the_nearest_double() {
    let mut random = Random(17);
    for _ in 0..20_000 {
        let wide = u128::from(random.next()) << 64 | u128::from(random.next());
        // Every other one of so few bits that a double holds it.
        let sum = match random.next() % 2 {
            0 => (wide >> (28 + random.next() % 40) | 1 << 59) as i128,
            _ => i128::from(random.next() >> (11 + random.next() % 50) | 1),
        };
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

/// Adds the values of a block to one sum, in several rounds; counts blocks with a common scale.
fn add_block(sum: &mut [u64; 3], arena: &mut Arena, values: &[f64], common: &mut u32) {
    for values in values.chunks(5) {
        if let Scale::Common(scale) = Scale::of(values) {
            let mut halves = Terms::ROOM;
            let terms = Terms::new(values, scale, &mut halves);
            for (term, value) in terms.iter().zip(values) {
                add_term(sum, arena, term, terms.meta, *value);
            }
            *common += 1;
        } else {
            values.iter().for_each(|value| add(sum, arena, *value));
        }
    }
}

/// The laws that P2 rests on: any grouping and order of updates and merges gives the same bits.
#[test]
fn order_and_grouping_do_not_matter() {
    let mut random = Random(99);
    let (mut narrow_seen, mut wide_seen, mut common_seen) = (false, false, 0);
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
            add_block(&mut b, &mut arena_b, &values[cut..], &mut common_seen);
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
    assert!(common_seen > 1000, "{common_seen} blocks had a common scale");
}

/// Sums of more than 128 bits that lie a speck below a tie once they are divided: what lies below
/// the top words must not count for more than it is.
#[test]
fn a_speck_does_not_carry_a_mean_over_a_tie() {
    let mut random = Random(23);
    for _ in 0..1_000 {
        let mantissa = (random.next() >> 11 | 1 << 52) & !1;
        let count = (random.next() >> 51 | 1 << 13) | 1;
        // The tie above `mantissa / 4`, times the count, in eighths; the sum lies just above its
        // floor.
        let tie = (2 * u128::from(mantissa) + 1) * u128::from(count);
        let floor = (tie >> 3) as i128;
        // With its highest bit alone in a word.
        let top = 127 - floor.leading_zeros() as i32;
        let scale = -((top - wide::LOWEST) % 64);
        let mut words = [0; wide::WIDE_WORDS];
        wide::add(&mut words, floor, scale);
        wide::add(&mut words, 1, scale - 200);
        let (negative, magnitude, exponent) = wide::top_bits(&words);
        let mean = rounding::quotient(negative, magnitude, exponent, count);
        let expected = mantissa as f64 * 2f64.powi(scale - 2);
        assert_eq!(mean, expected, "{mantissa} and {count}");
    }
}

/// Of means below the least normal number, too, no double is nearer: in units of the least double,
/// which all of these are whole numbers of, the distance is half a unit at most, and then the last
/// bit is even.
#[test]
fn subnormal_means_are_rounded_once() {
    let mut random = Random(41);
    let least_normal = f64::MIN_POSITIVE.to_bits() as i128;
    let (mut ties, mut twice, mut to_normal) = (0, 0, 0);
    for round in 0..50_000 {
        // The quotient is near a half, or anywhere; it has up to 52 bits before the point.
        let whole = (random.next() >> (12 + random.next() % 52)) as i128;
        let whole = if round % 64 == 0 { least_normal - 1 } else { whole };
        let count = 1 + (random.next() >> (10 + random.next() % 54)) as i128;
        let near = (count / 2 + (random.next() % 3) as i128 - 1).clamp(0, count - 1);
        let rest = if round % 2 == 0 { near } else { random.next() as i128 % count };
        let sum = whole * count + rest;
        let mean = rounding::quotient(false, sum as u128, wide::LOWEST, count as u64);
        assert_eq!(rounding::quotient(true, sum as u128, wide::LOWEST, count as u64), -mean);
        let units = mean.to_bits() as i128;
        let distance = (sum - units * count).abs();
        assert!(2 * distance <= count, "{sum} / {count} = {mean:e}");
        assert!(2 * distance < count || units % 2 == 0, "{sum} / {count} = {mean:e}");
        ties += u32::from(2 * distance == count);
        to_normal += u32::from(whole < least_normal && units == least_normal);
        // To 53 bits first: what that gets wrong is what this is about.
        let first = ((sum << 60) / count) | i128::from((sum << 60) % count != 0);
        twice += u32::from(times_power_of_two(first as f64, wide::LOWEST - 60) != mean);
    }
    assert!(ties > 100 && twice > 100 && to_normal > 100, "{ties}, {twice}, {to_normal}");
}

/// The sum of such doubles, divided by how many they are.
#[test]
fn the_mean_of_subnormal_numbers_is_rounded_once() {
    let mut random = Random(43);
    for _ in 0..2_000 {
        let (mut sum, mut arena, mut units) = (EMPTY, Arena::default(), 0i128);
        let count = 1 + random.next() % 40;
        for _ in 0..count {
            let bits = random.next() >> (12 + random.next() % 52);
            add(&mut sum, &mut arena, f64::from_bits(bits));
            units += i128::from(bits);
        }
        let mean = mean(sum, &arena, count).to_bits() as i128;
        let (distance, count) = ((units - mean * i128::from(count)).abs(), i128::from(count));
        assert!(2 * distance < count || 2 * distance == count && mean % 2 == 0);
    }
}
