//! HyperLogLog: about how many different hashes there were.
//!
//! The first 14 bits of a hash choose one of 2^14 registers; the register keeps the greatest number
//! of leading zeros, plus one, in the other bits. Merging takes the greater of each, which is
//! exact: the registers depend on the set of hashes alone. The standard error of the estimate is
//! 0.8%.
//!
//! Few registers are kept in a table with open addressing: the number of entries, then four bytes
//! for each slot (the register's number, then its value in the last byte; 0: there is
//! none). Beyond 1536 they are kept as 2^14 bytes. Which of the two it is depends on how many
//! registers are not zero. The estimate is Ertl's (*New cardinality estimation algorithms for
//! HyperLogLog sketches*, 2017, section 4), which needs no table of corrections.

use crate::memory::arena::Arena;
use crate::memory::prefetch::prefetch as prefetch_line;
use crate::values::blob::{blob_bytes, bytes_mut, fixed_mut, number_at, resize};

const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
/// The greatest value of a register.
const GREATEST: u8 = (64 - INDEX_BITS + 1) as u8;
/// Bytes of an entry, and of their number before them.
const ENTRY_BYTES: usize = 4;
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 2048;

/// A hash's register, and the value that it asks for.
#[inline(always)]
fn register_of(hash: u64) -> (usize, u8) {
    let rest = hash << INDEX_BITS | 1 << (INDEX_BITS - 1);
    ((hash >> (64 - INDEX_BITS)) as usize, rest.leading_zeros() as u8 + 1)
}

fn is_dense(bytes: &[u8]) -> bool {
    bytes.len() == REGISTERS
}

/// How many slots a table has.
fn slots_of(table: &[u8]) -> usize {
    (table.len() / ENTRY_BYTES).saturating_sub(1)
}

/// Whether so many entries leave enough slots free.
fn fit(entries: usize, slots: usize) -> bool {
    entries * 4 <= slots * 3
}

/// Where the entry of a register stands in a table with free slots, or would stand, and the entry.
#[inline]
fn find(table: &[u8], register: usize) -> (usize, usize) {
    let last = slots_of(table) - 1;
    let mut slot = register & last;
    loop {
        let at = (slot + 1) * ENTRY_BYTES;
        let entry = number_at(table, at);
        if entry == 0 || entry >> 8 == register {
            return (at, entry);
        }
        slot = (slot + 1) & last;
    }
}

fn entry_of(register: usize, value: u8) -> [u8; ENTRY_BYTES] {
    ((register << 8) as u32 | u32::from(value)).to_le_bytes()
}

/// The registers that are not zero.
fn registers(bytes: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    let (table, dense) = if is_dense(bytes) { (&[][..], bytes) } else { (bytes, &[][..]) };
    let dense = dense.iter().copied().enumerate().filter(|(_, value)| *value > 0);
    let entries = table.chunks_exact(ENTRY_BYTES).skip(1).map(|entry| number_at(entry, 0));
    let entries = entries.filter(|entry| *entry != 0);
    entries.map(|entry| (entry >> 8, entry as u8)).chain(dense)
}

/// Adds a hash.
#[inline(always)]
pub(crate) fn add(word: &mut u64, arena: &mut Arena, hash: u64) {
    let (register, value) = register_of(hash);
    match fixed_mut::<REGISTERS>(*word, arena) {
        // Never as a jump: nobody could predict it, and the processor would wait for the register
        // before it goes on to the next.
        Some(dense) => dense[register] = dense[register].max(value),
        None => set(word, arena, register, value),
    }
}

/// Asks for the cache line that [`add`] will look at first.
#[inline(always)]
pub(crate) fn prefetch(word: u64, arena: &Arena, hash: u64) {
    let bytes = blob_bytes(word, arena);
    let (register, _) = register_of(hash);
    let at = match slots_of(bytes) {
        _ if is_dense(bytes) => register,
        0 => return,
        slots => ((register & (slots - 1)) + 1) * ENTRY_BYTES,
    };
    prefetch_line(bytes.as_ptr().wrapping_add(at).cast());
}

#[inline(never)]
fn set(word: &mut u64, arena: &mut Arena, register: usize, value: u8) {
    let bytes = bytes_mut(*word, arena);
    if is_dense(bytes) {
        bytes[register] = bytes[register].max(value);
        return;
    }
    if !bytes.is_empty() {
        let (at, known) = find(bytes, register);
        let entries = number_at(bytes, 0) + usize::from(known == 0);
        if known != 0 && (known as u8) >= value {
            return;
        }
        if fit(entries, slots_of(bytes)) {
            bytes[..ENTRY_BYTES].copy_from_slice(&(entries as u32).to_le_bytes());
            bytes[at..at + ENTRY_BYTES].copy_from_slice(&entry_of(register, value));
            return;
        }
    }
    grow(word, arena);
    set(word, arena, register, value);
}

/// Makes room for one more register.
#[cold]
fn grow(word: &mut u64, arena: &mut Arena) {
    let bytes = blob_bytes(*word, arena);
    let slots = slots_of(bytes);
    if slots >= SLOTS_MAX {
        let mut dense = vec![0; REGISTERS];
        registers(bytes).for_each(|(register, value)| dense[register] = value);
        return put(word, arena, &dense);
    }
    let mut table = vec![0; ((2 * slots).max(SLOTS_MIN) + 1) * ENTRY_BYTES];
    table[..bytes.len().min(ENTRY_BYTES)].copy_from_slice(&bytes[..bytes.len().min(ENTRY_BYTES)]);
    for (register, value) in registers(bytes) {
        let (at, _) = find(&table, register);
        table[at..at + ENTRY_BYTES].copy_from_slice(&entry_of(register, value));
    }
    put(word, arena, &table);
}

fn put(word: &mut u64, arena: &mut Arena, bytes: &[u8]) {
    resize(word, arena, bytes.len(), false);
    bytes_mut(*word, arena).copy_from_slice(bytes);
}

/// Takes the greater of each register.
pub(crate) fn merge(word: &mut u64, arena: &mut Arena, theirs: &[u8]) {
    if !is_dense(theirs) {
        registers(theirs).for_each(|(register, value)| set(word, arena, register, value));
        return;
    }
    let own = blob_bytes(*word, arena);
    if is_dense(own) {
        let own = bytes_mut(*word, arena).iter_mut().zip(theirs);
        return own.for_each(|(own, their)| *own = (*own).max(*their));
    }
    let own: Vec<(usize, u8)> = registers(own).collect();
    put(word, arena, theirs);
    own.into_iter().for_each(|(register, value)| set(word, arena, register, value));
}

/// Whether bytes are registers.
pub(crate) fn is_registers(bytes: &[u8]) -> bool {
    if is_dense(bytes) {
        return bytes.iter().all(|value| *value <= GREATEST);
    }
    let slots = slots_of(bytes);
    let is_table = bytes.len() == (slots + 1) * ENTRY_BYTES
        && slots.is_power_of_two()
        && (SLOTS_MIN..=SLOTS_MAX).contains(&slots);
    let sound = |(register, value): (usize, u8)| {
        let found = |entry| entry == register << 8 | usize::from(value);
        register < REGISTERS && (1..=GREATEST).contains(&value) && found(find(bytes, register).1)
    };
    is_table
        && number_at(bytes, 0) == registers(bytes).count()
        && fit(number_at(bytes, 0), slots)
        && registers(bytes).all(sound)
}

/// About how many different hashes there were.
pub fn registers_estimate(bytes: &[u8]) -> u64 {
    let mut counts = [0_u32; GREATEST as usize + 1];
    counts[0] = REGISTERS as u32;
    let mut count = |value: u8| {
        counts[usize::from(value.min(GREATEST))] += 1;
        counts[0] -= 1;
    };
    match is_dense(bytes) {
        true => bytes.iter().for_each(|value| count(*value)),
        false => registers(bytes).for_each(|(_, value)| count(value)),
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
    use crate::memory::hash::hash_word;
    use crate::values::kind::NO_BYTES;

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

    /// However registers came, the estimate is that of all; what is not made so is refused.
    #[test]
    fn merged_in_any_order_they_say_the_same() {
        for (left, right) in [(3, 5), (900, 1200), (10, 40_000), (40_000, 10), (30_000, 50_000)] {
            let mut arena = Arena::default();
            let mut of = |range: std::ops::Range<u64>| {
                let mut word = NO_BYTES;
                range.for_each(|n| add(&mut word, &mut arena, hash_word(n)));
                word
            };
            let (a, b, all) =
                (of(0..left), of(left / 2..left / 2 + right), of(0..left.max(left / 2 + right)));
            let bytes = [a, b].map(|word| blob_bytes(word, &arena).to_vec());
            let expected = registers_estimate(blob_bytes(all, &arena));
            for (mut word, theirs) in [(a, &bytes[1]), (b, &bytes[0])] {
                merge(&mut word, &mut arena, theirs);
                let merged = blob_bytes(word, &arena);
                assert!(is_registers(merged));
                assert_eq!(registers_estimate(merged), expected, "{left} and {right}");
            }
        }
        let (mut word, mut arena) = (NO_BYTES, Arena::default());
        (1..=3).for_each(|n| add(&mut word, &mut arena, hash_word(n)));
        let good = blob_bytes(word, &arena).to_vec();
        assert!(is_registers(&good) && !is_registers(&good[..good.len() - 4]));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] = bad[at].wrapping_add(77);
            assert!(!is_registers(&bad), "byte {at}");
        }
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
