//! HyperLogLog: about how many different hashes there were.
//!
//! The first 14 bits of a hash choose one of 2^14 registers; the register keeps the greatest number
//! of leading zeros, plus one, in the other bits. Merging takes the greater of each, which is
//! exact: the registers depend on the set of hashes alone. The standard error of the estimate is
//! 0.8%.
//!
//! Up to 2048 registers are kept as a sorted list of four bytes each (the register's number, then
//! its value in the last byte); more of them as 2^14 bytes. Which of the two it is depends on how
//! many registers are not zero. The estimate is Ertl's (*New cardinality estimation algorithms for
//! HyperLogLog sketches*, 2017, section 4), which needs no table of corrections.

use crate::arena::Arena;
use crate::blob::{blob_bytes, bytes_mut, insert, number_at, replace};

const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
/// The greatest value of a register.
const GREATEST: u8 = (64 - INDEX_BITS + 1) as u8;
const ENTRY_BYTES: usize = 4;
const SPARSE_MAX: usize = 2048;

/// A hash's register, and the value that it asks for.
fn register_of(hash: u64) -> (usize, u8) {
    let rest = hash << INDEX_BITS | 1 << (INDEX_BITS - 1);
    ((hash >> (64 - INDEX_BITS)) as usize, rest.leading_zeros() as u8 + 1)
}

fn is_dense(bytes: &[u8]) -> bool {
    bytes.len() == REGISTERS
}

/// The registers that are not zero.
fn registers(bytes: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    let (sparse, dense) = if is_dense(bytes) { (&[][..], bytes) } else { (bytes, &[][..]) };
    let sparse = sparse.chunks_exact(ENTRY_BYTES).map(|entry| number_at(entry, 0));
    let dense = dense.iter().copied().enumerate().filter(|(_, value)| *value > 0);
    sparse.map(|entry| (entry >> 8, entry as u8)).chain(dense)
}

/// Adds a hash.
pub(crate) fn add(word: &mut u64, arena: &mut Arena, hash: u64) {
    let (register, value) = register_of(hash);
    set(word, arena, register, value);
}

fn set(word: &mut u64, arena: &mut Arena, register: usize, value: u8) {
    let bytes = blob_bytes(*word, arena);
    if is_dense(bytes) {
        if bytes[register] < value {
            bytes_mut(*word, arena)[register] = value;
        }
        return;
    }
    let entry = ((register << 8) as u32 | u32::from(value)).to_le_bytes();
    let (mut low, mut high) = (0, bytes.len() / ENTRY_BYTES);
    while low < high {
        let middle = low.midpoint(high);
        let known = number_at(bytes, middle * ENTRY_BYTES);
        match (known >> 8).cmp(&register) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => {
                if (known as u8) < value {
                    let at = middle * ENTRY_BYTES;
                    bytes_mut(*word, arena)[at..at + ENTRY_BYTES].copy_from_slice(&entry);
                }
                return;
            }
        }
    }
    if bytes.len() / ENTRY_BYTES < SPARSE_MAX {
        return insert(word, arena, low * ENTRY_BYTES, &entry);
    }
    let mut dense = vec![0; REGISTERS];
    registers(bytes).for_each(|(register, value)| dense[register] = value);
    dense[register] = value;
    replace(word, arena, &dense);
}

/// Takes the greater of each register.
pub(crate) fn merge(word: &mut u64, arena: &mut Arena, theirs: &[u8]) {
    for (register, value) in registers(theirs) {
        set(word, arena, register, value);
    }
}

/// Whether bytes are registers.
pub(crate) fn is_registers(bytes: &[u8]) -> bool {
    if is_dense(bytes) {
        return bytes.iter().all(|value| *value <= GREATEST);
    }
    let entries = || bytes.chunks_exact(ENTRY_BYTES).map(|entry| number_at(entry, 0));
    let sound = |entry: usize| entry >> 8 < REGISTERS && (1..=GREATEST).contains(&(entry as u8));
    bytes.len().is_multiple_of(ENTRY_BYTES)
        && bytes.len() / ENTRY_BYTES <= SPARSE_MAX
        && entries().all(sound)
        && entries().zip(entries().skip(1)).all(|(a, b)| a >> 8 < b >> 8)
}

/// About how many different hashes there were.
pub fn registers_estimate(bytes: &[u8]) -> u64 {
    let mut counts = [0_u32; GREATEST as usize + 1];
    counts[0] = REGISTERS as u32;
    for (_, value) in registers(bytes) {
        counts[usize::from(value.min(GREATEST))] += 1;
        counts[0] -= 1;
    }
    let m = REGISTERS as f64;
    let mut z = m * tau(1.0 - f64::from(counts[usize::from(GREATEST)]) / m);
    for count in counts[1..usize::from(GREATEST)].iter().rev() {
        z = 0.5 * (z + f64::from(*count));
    }
    z += m * sigma(f64::from(counts[0]) / m);
    (m * m / (2.0 * std::f64::consts::LN_2 * z)).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::hash_word;
    use crate::kind::NO_BYTES;

    /// Few are counted nearly exactly, many within four standard errors, across the change to the
    /// dense form.
    #[test]
    fn estimates_are_near() {
        let (mut word, mut arena) = (NO_BYTES, Arena::default());
        assert_eq!(registers_estimate(blob_bytes(word, &arena)), 0);
        let mut dense = 0;
        for n in 1..=300_000_u64 {
            add(&mut word, &mut arena, hash_word(n));
            add(&mut word, &mut arena, hash_word(n / 2 + 1));
            if n.is_power_of_two() || n == 300_000 {
                let (bytes, n) = (blob_bytes(word, &arena), n as f64);
                dense += usize::from(is_dense(bytes));
                assert!(is_registers(bytes));
                let error = (registers_estimate(bytes) as f64 / n - 1.0).abs();
                let most = if n <= 256.0 { 0.02 } else { 0.033 };
                assert!(error <= most, "{n}: {error}");
            }
        }
        assert!((3..10).contains(&dense));
    }

    /// By hand: all other bits zero is the greatest value, a leading one the least.
    #[test]
    fn registers_keep_leading_zeros() {
        assert_eq!(register_of(0), (0, 51));
        assert_eq!(register_of(u64::MAX), (REGISTERS - 1, 1));
        assert_eq!(register_of(1 << 49), (0, 1));
        assert_eq!(register_of(1), (0, 50));
    }
}
