//! Histograms: how many inputs fall into each bucket. Merging adds, so it is exact.
//!
//! A bucket of doubles has the values that agree in sign, exponent and the seven highest bits of
//! the mantissa: a 128th part of what lies between a power of two and the next (a sketch of the
//! DDSketch family, with buckets for which no logarithm has to be computed). So a value and the
//! least magnitude of its bucket differ by less than 1 in 128. Subnormal doubles are taken times
//! 2^52, which makes them normal.
//!
//! The blob has the buckets that are not empty, in order: each is its number, four bytes, and its
//! count, eight bytes.

use crate::memory::arena::Arena;
use crate::values::blob::{blob_bytes, bytes_mut, insert, number_at, replace};

const ENTRY_BYTES: usize = 12;
/// Bits of a double that a bucket does not look at.
const DROPPED_BITS: u32 = 45;
/// Factor for subnormal doubles: the product is among the least normal doubles.
const RAISED: f64 = (1_u64 << 52) as f64;
/// Buckets of one power of two.
const NORMAL: u32 = 1 << (52 - DROPPED_BITS);
/// How far the buckets of normal doubles are moved up, for those of subnormal ones.
const SUBNORMAL: u32 = 52 * NORMAL;
const ZERO: u32 = 1 << 31;
const NAN: u32 = u32::MAX;

/// The bucket of a double. Buckets are in the order of their values; NaN comes last.
pub fn bucket_of(value: f64) -> u32 {
    if value.is_nan() {
        return NAN;
    }
    if value == 0.0 {
        return ZERO;
    }
    let magnitude = match value.is_subnormal() {
        false => (value.abs().to_bits() >> DROPPED_BITS) as u32 + SUBNORMAL,
        true => ((value.abs() * RAISED).to_bits() >> DROPPED_BITS) as u32,
    };
    if value > 0.0 { ZERO + 1 + magnitude } else { ZERO - 1 - magnitude }
}

/// The value of least magnitude in a bucket.
fn value_of(bucket: u32) -> f64 {
    let double = |part: u32| f64::from_bits(u64::from(part) << DROPPED_BITS);
    let magnitude = |part: u32| match part.checked_sub(SUBNORMAL) {
        Some(normal) if normal >= NORMAL => double(normal),
        _ => double(part) / RAISED,
    };
    match bucket {
        NAN => f64::NAN,
        ZERO => 0.0,
        bucket if bucket > ZERO => magnitude(bucket - ZERO - 1),
        bucket => -magnitude(ZERO - 1 - bucket),
    }
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = (u32, u64)> + '_ {
    bytes.chunks_exact(ENTRY_BYTES).map(|entry| (number_at(entry, 0) as u32, count_at(entry, 4)))
}

fn count_at(bytes: &[u8], at: usize) -> u64 {
    number_at(bytes, at) as u64 | (number_at(bytes, at + 4) as u64) << 32
}

/// About the value below or at which a part `share` (0 to 1) of all inputs lie: that of the bucket
/// which the nearest rank falls into. `None` if there was no input.
pub fn histogram_quantile(bytes: &[u8], share: f64) -> Option<f64> {
    let total = entries(bytes).fold(0_u64, |sum, (_, count)| sum.saturating_add(count));
    let rank = ((share * total as f64).ceil() as u64).clamp(1, total.max(1));
    let mut before = 0_u64;
    for (bucket, count) in entries(bytes) {
        before = before.saturating_add(count);
        if before >= rank {
            return Some(value_of(bucket));
        }
    }
    None
}

/// Adds to a bucket.
pub(crate) fn add(word: &mut u64, arena: &mut Arena, bucket: u32, count: u64) {
    let bytes = blob_bytes(*word, arena);
    let (mut low, mut high) = (0, bytes.len() / ENTRY_BYTES);
    while low < high {
        let middle = low.midpoint(high);
        match (number_at(bytes, middle * ENTRY_BYTES) as u32).cmp(&bucket) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => {
                let at = middle * ENTRY_BYTES + 4;
                let sum = count_at(bytes, at).wrapping_add(count);
                bytes_mut(*word, arena)[at..at + 8].copy_from_slice(&sum.to_le_bytes());
                return;
            }
        }
    }
    let mut entry = [0; ENTRY_BYTES];
    entry[..4].copy_from_slice(&bucket.to_le_bytes());
    entry[4..].copy_from_slice(&count.to_le_bytes());
    insert(word, arena, low * ENTRY_BYTES, &entry);
}

/// Adds another histogram.
pub(crate) fn merge(word: &mut u64, arena: &mut Arena, theirs: &[u8]) {
    let sum = sum(blob_bytes(*word, arena), theirs);
    replace(word, arena, &sum);
}

fn sum(own: &[u8], theirs: &[u8]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(own.len() + theirs.len());
    let (mut a, mut b) = (entries(own).peekable(), entries(theirs).peekable());
    loop {
        let (bucket, count) = match (a.peek().copied(), b.peek().copied()) {
            (None, None) => break,
            (Some(one), None) => {
                a.next();
                one
            }
            (Some(one), Some(other)) if one.0 < other.0 => {
                a.next();
                one
            }
            (Some(one), Some(other)) if one.0 == other.0 => {
                a.next();
                b.next();
                (one.0, one.1.wrapping_add(other.1))
            }
            (_, Some(other)) => {
                b.next();
                other
            }
        };
        merged.extend_from_slice(&bucket.to_le_bytes());
        merged.extend_from_slice(&count.to_le_bytes());
    }
    merged
}

/// Whether bytes are buckets in order.
pub(crate) fn is_histogram(bytes: &[u8]) -> bool {
    let buckets = || entries(bytes).map(|(bucket, _)| bucket);
    bytes.len().is_multiple_of(ENTRY_BYTES) && buckets().zip(buckets().skip(1)).all(|(a, b)| a < b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value and that of its bucket differ by less than 1 in 128, whole numbers up to 256 not at
    /// all, and buckets are in the order of values.
    #[test]
    fn a_bucket_is_near_its_values() {
        let mut values: Vec<f64> = (-256..=256).map(f64::from).collect();
        values.iter().for_each(|value| assert_eq!(value_of(bucket_of(*value)), *value));
        let mut magnitude = 5e-324;
        while magnitude < 1e300 {
            values.extend([magnitude, -magnitude]);
            magnitude = f64::max(magnitude * 1.003, magnitude.next_up());
        }
        for value in &values {
            let error = (value_of(bucket_of(*value)) - value).abs();
            assert!(error <= value.abs() / 128.0, "{value}: {error}");
        }
        values.sort_by(f64::total_cmp);
        assert!(values.is_sorted_by_key(|value| bucket_of(*value)));
        let ends = [f64::NEG_INFINITY, f64::MIN, -0.0, 0.0, f64::MAX, f64::INFINITY, f64::NAN];
        assert!(ends.is_sorted_by_key(|value| bucket_of(*value)));
        assert_eq!(value_of(bucket_of(f64::INFINITY)), f64::INFINITY);
        assert_eq!(bucket_of(-0.0), bucket_of(0.0));
    }

    /// By hand: of 1, 2, 3, 4 the median is 2, three quarters lie at or below 3.
    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let (mut word, mut arena) = (crate::values::kind::NO_BYTES, Arena::default());
        assert_eq!(histogram_quantile(blob_bytes(word, &arena), 0.5), None);
        for value in [3.0, 1.0, 4.0, 2.0] {
            add(&mut word, &mut arena, bucket_of(value), 1);
        }
        let bytes = blob_bytes(word, &arena);
        let at = [0.0, 0.25, 0.5, 0.51, 0.75, 1.0].map(|share| histogram_quantile(bytes, share));
        assert_eq!(at, [1.0, 1.0, 2.0, 3.0, 3.0, 4.0].map(Some));
    }
}
