//! Tuples of the benchmarks without queries: a key and a number.

/// The tuple of this number: a key without order, and the number.
#[inline]
pub(crate) fn tuple(number: u64) -> (u64, u64) {
    let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (key ^ (key >> 31), number)
}

/// Weight of a tuple in the sum: depends on both halves and their order.
#[inline]
pub(crate) fn weight(key: u64, value: u64) -> u64 {
    key.wrapping_add(value.wrapping_mul(3))
}
