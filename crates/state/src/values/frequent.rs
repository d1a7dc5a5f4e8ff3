//! Frequent values: the counts of few different values, and estimates for many.
//!
//! An input is a random number that was drawn for its record, eight bytes, and then the value. Up
//! to 2,048 different values are counted, exactly. Of more there are
//!
//! - a Count-Min sketch (Cormode and Muthukrishnan, *An improved data stream summary*, 2005) of
//!   4 rows with 2,048 counters each. An estimate is never below the value's count; that it is
//!   above by more than e / 2048 = 0.13% of all inputs has a probability of e^-4 = 1.8% at most.
//! - a sample of 2,048 values, weighted by how frequent they are (the *bottom-k sketch* of Cohen
//!   and Kaplan, *Summarizing data using bottom-k sketches*, 2007): a value has the least number of
//!   its inputs, and those with the least numbers stay. The records with the 2,048 least numbers
//!   have values that stay; so the probability that a value with a part f of all inputs is missing
//!   is (1 - f)^2048 at most: below one in a million from f = 0.7% on.
//!
//! Whether there are more than 2,048 values, the sums of counters and the values with the least
//! numbers depend on the inputs alone, as a multiset. So merging is associative and commutative,
//! which it is not in summaries that drop values by their counts so far (Misra-Gries,
//! Space-Saving).
//!
//! The blob has a head, 16 bytes: how many entries and how many slots there are, and a bound, 0
//! while all values are counted. Then come the counters if there are any, the slots of a hash table
//! with open addressing (eight bytes: where an entry stands behind the slots, plus one, or 0 for
//! none; and the upper half of its value's hash, so that other values are not looked at), and the
//! entries: the least number drawn, the count, the length and the bytes of a value. Where
//! there are counters, a new value goes in if its number is below the bound; a few more than 2,048
//! stay until they are sorted out.

use std::cmp::Reverse;

use crate::memory::arena::Arena;
use crate::memory::hash::hash_bytes;
use crate::memory::prefetch::prefetch as prefetch_line;
use crate::values::blob::{append, blob_bytes, bytes_mut, number_at, replace};

/// So many different values are counted exactly, and so many stay of more.
const KEPT: usize = 2048;
/// So many stand in a summary before it is sorted out.
const KEPT_MOST: usize = KEPT + KEPT / 2;
const SKETCH_ROWS: usize = 4;
const INDEX_BITS: usize = 11;
const COUNTER_BYTES: usize = 8;
const SKETCH_BYTES: usize = (SKETCH_ROWS * COUNTER_BYTES) << INDEX_BITS;

const HEAD_BYTES: usize = 16;
const SLOT_BYTES: usize = 8;
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 4096;
/// Bytes of an entry before its value.
const ENTRY_BYTES: usize = 20;
/// Any number is below this bound: one bit of what was drawn is not looked at.
const NO_BOUND: u64 = 1 << 63;

fn word_at(bytes: &[u8], at: usize) -> u64 {
    number_at(bytes, at) as u64 | (number_at(bytes, at + 4) as u64) << 32
}

/// A value with the least number drawn for it, and its count if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<'a> {
    drawn: u64,
    value: &'a [u8],
    count: u64,
}

impl<'a> Entry<'a> {
    /// The entry at the beginning of some bytes.
    fn first(bytes: &'a [u8]) -> Option<Entry<'a>> {
        let (head, rest) = bytes.split_at_checked(ENTRY_BYTES)?;
        let value = rest.get(..number_at(head, 16))?;
        Some(Entry { drawn: word_at(head, 0), count: word_at(head, 8), value })
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.value.len()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.drawn.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&(self.value.len() as u32).to_le_bytes());
        out.extend_from_slice(self.value);
    }
}

/// Where the parts of a blob stand.
#[derive(Debug, Clone, Copy)]
struct Parts {
    entries: usize,
    slots: usize,
    bound: u64,
}

impl Parts {
    fn of(bytes: &[u8]) -> Parts {
        let (entries, slots) = (number_at(bytes, 0), number_at(bytes, 4));
        Parts { entries, slots, bound: word_at(bytes, 8) }
    }

    fn is_exact(self) -> bool {
        self.bound == 0
    }

    /// Where the slots begin.
    fn table(self) -> usize {
        HEAD_BYTES + if self.is_exact() { 0 } else { SKETCH_BYTES }
    }

    fn first_entry(self) -> usize {
        self.table() + self.slots * SLOT_BYTES
    }

    /// Where the slot of a value is that has this hash, and the entry if there is one.
    #[inline]
    fn find(self, bytes: &[u8], hash: u64, value: &[u8]) -> (usize, Option<usize>) {
        let (table, first) = (self.table(), self.first_entry());
        let mut slot = slot_of(hash, self.slots);
        loop {
            let at = table + slot * SLOT_BYTES;
            let Some(entry) = number_at(bytes, at).checked_sub(1) else { return (at, None) };
            let entry = first + entry;
            if number_at(bytes, at + 4) == tag_of(hash)
                && bytes.get(entry..).and_then(Entry::first).is_some_and(|e| e.value == value)
            {
                return (at, Some(entry));
            }
            slot = (slot + 1) & (self.slots - 1);
        }
    }

    fn entries(self, bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = bytes.get(self.first_entry()..).unwrap_or_default();
        std::iter::from_fn(move || {
            let entry = Entry::first(rest)?;
            rest = &rest[entry.bytes()..];
            Some(entry)
        })
    }
}

/// Where a search for a value begins. The sketch takes other bits.
fn slot_of(hash: u64, slots: usize) -> usize {
    (hash >> (SKETCH_ROWS * INDEX_BITS)) as usize & (slots - 1)
}

/// Bits of a value's hash in its slot.
fn tag_of(hash: u64) -> usize {
    (hash >> 32) as usize
}

/// A slot for an entry that stands so far behind the slots.
fn slot_for(place: usize, hash: u64) -> [u8; SLOT_BYTES] {
    ((tag_of(hash) as u64) << 32 | (place + 1) as u64).to_le_bytes()
}

/// Whether so many entries leave enough slots free.
fn fit(entries: usize, slots: usize) -> bool {
    entries * 4 <= slots * 3
}

/// Where the counters of a value stand in a blob.
fn counters_of(hash: u64) -> [usize; SKETCH_ROWS] {
    std::array::from_fn(|row| {
        let column = (hash >> (row * INDEX_BITS)) as usize & ((1 << INDEX_BITS) - 1);
        HEAD_BYTES + ((row << INDEX_BITS) + column) * COUNTER_BYTES
    })
}

fn count_at(bytes: &mut [u8], at: usize, count: u64) {
    let sum = word_at(bytes, at).wrapping_add(count);
    bytes[at..at + COUNTER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// A blob of these entries, and of these counters if there are any; then with a bound.
fn written(counters: Option<&[u8]>, bound: u64, entries: &[Entry<'_>], slots: usize) -> Vec<u8> {
    let parts = Parts { entries: entries.len(), slots, bound };
    let size = parts.first_entry() + entries.iter().map(Entry::bytes).sum::<usize>();
    let mut blob = Vec::with_capacity(size);
    blob.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    blob.extend_from_slice(&(slots as u32).to_le_bytes());
    blob.extend_from_slice(&bound.to_le_bytes());
    blob.extend_from_slice(counters.unwrap_or_default());
    blob.resize(parts.first_entry(), 0);
    for entry in entries {
        let hash = hash_bytes(entry.value);
        let (at, _) = parts.find(&blob, hash, entry.value);
        let place = blob.len() - parts.first_entry();
        blob[at..at + SLOT_BYTES].copy_from_slice(&slot_for(place, hash));
        entry.put(&mut blob);
    }
    blob
}

/// Sorts the entries with the least numbers to the front, and drops the rest; returns the bound
/// below which later numbers must be.
fn sort_out(entries: &mut Vec<Entry<'_>>) -> u64 {
    entries.sort_unstable();
    entries.truncate(KEPT);
    match entries.get(KEPT - 1) {
        // One with the same number may come before it, as a value.
        Some(last) => last.drawn + 1,
        None => NO_BOUND,
    }
}

/// Makes a summary of exact counts.
#[cold]
fn summarise(word: &mut u64, arena: &mut Arena) {
    let bytes = blob_bytes(*word, arena);
    let mut entries: Vec<Entry<'_>> = Parts::of(bytes).entries(bytes).collect();
    let mut sketch = vec![0; HEAD_BYTES + SKETCH_BYTES];
    for entry in &mut entries {
        let places = counters_of(hash_bytes(entry.value));
        places.iter().for_each(|at| count_at(&mut sketch, *at, entry.count));
        entry.count = 0;
    }
    let bound = sort_out(&mut entries);
    let blob = written(Some(&sketch[HEAD_BYTES..]), bound, &entries, SLOTS_MAX);
    replace(word, arena, &blob);
}

/// Drops values of a summary that are not needed.
#[cold]
fn prune(word: &mut u64, arena: &mut Arena) {
    let bytes = blob_bytes(*word, arena);
    let parts = Parts::of(bytes);
    let mut entries: Vec<Entry<'_>> = parts.entries(bytes).collect();
    let bound = sort_out(&mut entries).min(parts.bound);
    let counters = &bytes[HEAD_BYTES..parts.table()];
    let blob = written(Some(counters), bound, &entries, parts.slots);
    replace(word, arena, &blob);
}

/// Makes a larger table, or a first table.
#[cold]
fn grow(word: &mut u64, arena: &mut Arena) {
    let bytes = blob_bytes(*word, arena);
    let parts = Parts::of(bytes);
    let entries: Vec<Entry<'_>> = parts.entries(bytes).collect();
    let blob = written(None, 0, &entries, (2 * parts.slots).max(SLOTS_MIN));
    replace(word, arena, &blob);
}

/// Takes an input in.
pub(crate) fn add(word: &mut u64, arena: &mut Arena, input: &[u8]) {
    let Some((drawn, value)) = input.split_first_chunk() else { return };
    take(word, arena, Entry { drawn: u64::from_le_bytes(*drawn) >> 1, count: 1, value });
}

/// Asks for the cache lines that [`add`] will change first.
#[inline]
pub(crate) fn prefetch(word: u64, arena: &Arena, input: &[u8]) {
    let bytes = blob_bytes(word, arena);
    let Some((_, value)) = input.split_first_chunk::<8>().filter(|_| !bytes.is_empty()) else {
        return;
    };
    let (hash, parts) = (hash_bytes(value), Parts::of(bytes));
    let ask = |at: usize| prefetch_line(bytes.as_ptr().wrapping_add(at).cast());
    match parts.is_exact() {
        true => ask(parts.table() + slot_of(hash, parts.slots) * SLOT_BYTES),
        false => counters_of(hash).into_iter().for_each(ask),
    }
}

/// Takes a value in, with its count.
fn take(word: &mut u64, arena: &mut Arena, new: Entry<'_>) {
    let hash = hash_bytes(new.value);
    if blob_bytes(*word, arena).is_empty() {
        grow(word, arena);
    }
    let bytes = bytes_mut(*word, arena);
    let parts = Parts::of(bytes);
    let mut entry = new;
    if !parts.is_exact() {
        counters_of(hash).iter().for_each(|at| count_at(bytes, *at, new.count));
        if new.drawn >= parts.bound {
            return;
        }
        // It is in the counters.
        entry.count = 0;
    }
    let (slot, found) = parts.find(bytes, hash, entry.value);
    if let Some(at) = found {
        let least = word_at(bytes, at).min(entry.drawn);
        bytes[at..at + 8].copy_from_slice(&least.to_le_bytes());
        count_at(bytes, at + 8, entry.count);
        return;
    }
    if parts.is_exact() && !fit(parts.entries + 1, parts.slots) {
        grow(word, arena);
        return take(word, arena, new);
    }
    let place = bytes.len() - parts.first_entry();
    bytes[slot..slot + SLOT_BYTES].copy_from_slice(&slot_for(place, hash));
    bytes[..4].copy_from_slice(&(parts.entries as u32 + 1).to_le_bytes());
    let mut put = Vec::with_capacity(entry.bytes());
    entry.put(&mut put);
    append(word, arena, &put);
    match parts.is_exact() {
        true if parts.entries >= KEPT => summarise(word, arena),
        false if parts.entries + 1 >= KEPT_MOST => prune(word, arena),
        _ => {}
    }
}

/// Merges another blob.
pub(crate) fn merge(word: &mut u64, arena: &mut Arena, theirs: &[u8]) {
    let their = Parts::of(theirs);
    if their.is_exact() {
        return their.entries(theirs).for_each(|entry| take(word, arena, entry));
    }
    if Parts::of(blob_bytes(*word, arena)).is_exact() {
        summarise(word, arena);
    }
    let bytes = bytes_mut(*word, arena);
    for at in (HEAD_BYTES..HEAD_BYTES + SKETCH_BYTES).step_by(COUNTER_BYTES) {
        count_at(bytes, at, word_at(theirs, at));
    }
    let bound = Parts::of(bytes).bound.min(their.bound);
    bytes[8..HEAD_BYTES].copy_from_slice(&bound.to_le_bytes());
    // What stands in both blobs is in the counters.
    let uncounted = |entry| Entry { count: 0, ..entry };
    their.entries(theirs).map(uncounted).for_each(|entry| take(word, arena, entry));
}

/// True if the bytes are a blob of this kind. Values may have any content.
pub(crate) fn is_frequent(bytes: &[u8]) -> bool {
    let parts = Parts::of(bytes);
    let sizes = parts.slots.is_power_of_two()
        && (SLOTS_MIN..=SLOTS_MAX).contains(&parts.slots)
        && bytes.len() >= parts.first_entry()
        && parts.bound <= NO_BOUND
        && fit(parts.entries, parts.slots);
    let most = if parts.is_exact() { KEPT } else { KEPT_MOST };
    if !sizes || parts.entries > most || (!parts.is_exact() && parts.slots != SLOTS_MAX) {
        return false;
    }
    let table = &bytes[parts.table()..parts.first_entry()];
    let used = table.chunks_exact(SLOT_BYTES).filter(|slot| number_at(slot, 0) > 0).count();
    let mut at = parts.first_entry();
    let mut count = 0;
    for entry in parts.entries(bytes) {
        count += 1;
        let sound = entry.drawn < NO_BOUND && used == parts.entries;
        let hash = hash_bytes(entry.value);
        if !sound || parts.find(bytes, hash, entry.value).1 != Some(at) {
            return false;
        }
        at += entry.bytes();
    }
    at == bytes.len() && count == parts.entries && count > 0
}

/// Values with their counts, or about their counts, the most frequent first. Of up to 2,048
/// different values they are all.
pub fn frequent_values(bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let parts = Parts::of(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let mut entries: Vec<Entry<'_>> = parts.entries(bytes).collect();
    if !parts.is_exact() {
        sort_out(&mut entries);
    }
    let count = |entry: &Entry<'_>| match parts.is_exact() {
        true => entry.count,
        false => {
            let counts = counters_of(hash_bytes(entry.value)).map(|at| word_at(bytes, at));
            counts.into_iter().min().unwrap_or(0)
        }
    };
    let mut values: Vec<(u64, &[u8])> = entries.iter().map(|e| (count(e), e.value)).collect();
    values.sort_unstable_by_key(|(count, value)| (Reverse(*count), *value));
    values
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::memory::hash::hash_word;
    use crate::values::kind::NO_BYTES;

    type Input = (u64, Vec<u8>);

    fn of<'i>(inputs: impl IntoIterator<Item = &'i Input>, arena: &mut Arena) -> u64 {
        let mut word = NO_BYTES;
        for (drawn, value) in inputs {
            add(&mut word, arena, &[&drawn.to_le_bytes()[..], value].concat());
        }
        word
    }

    fn read(word: u64, arena: &Arena) -> Vec<(u64, Vec<u8>)> {
        let bytes = blob_bytes(word, arena);
        assert!(is_frequent(bytes));
        frequent_values(bytes).into_iter().map(|(count, value)| (count, value.to_vec())).collect()
    }

    /// Expected counts, from the definitions.
    fn expected(inputs: &[Input]) -> Vec<(u64, Vec<u8>)> {
        let mut all: BTreeMap<&[u8], (u64, u64)> = BTreeMap::new();
        for (drawn, value) in inputs {
            let (least, count) = all.entry(value).or_insert((u64::MAX, 0));
            (*least, *count) = ((*least).min(*drawn), *count + 1);
        }
        let places = |value: &[u8]| counters_of(hash_bytes(value));
        let mut counters: BTreeMap<usize, u64> = BTreeMap::new();
        for (value, (_, count)) in &all {
            places(value).iter().for_each(|at| *counters.entry(*at).or_default() += count);
        }
        let mut kept: Vec<(u64, &[u8])> =
            all.iter().map(|(value, (least, _))| (least >> 1, *value)).collect();
        kept.sort();
        kept.truncate(2048);
        let count = |value: &[u8]| match all.len() > 2048 {
            true => places(value).iter().map(|at| counters[at]).min().unwrap(),
            false => all[value].1,
        };
        let mut values: Vec<(u64, Vec<u8>)> =
            kept.into_iter().map(|(_, value)| (count(value), value.to_vec())).collect();
        values.sort_by_key(|(count, value)| (Reverse(*count), value.clone()));
        values
    }

    /// So many inputs: a third is of few values, the others of up to so many.
    fn inputs(count: u64, values: u64, seed: u64) -> Vec<Input> {
        let input = |n: u64| {
            let at = hash_word(n ^ seed << 32);
            let value = if at.is_multiple_of(3) { at / 3 % 20 } else { at / 3 % values };
            (hash_word(at), format!("value {value}").into_bytes())
        };
        (0..count).map(input).collect()
    }

    /// Up to 2,048 values counts are exact, one more makes a summary; and whatever is merged with
    /// what, the result is what the definitions say of all inputs.
    #[test]
    fn merging_is_the_sequential_run() {
        let mut summaries = 0;
        for (seed, (count, values)) in [
            (3, 2),
            (3_000, 500),
            (60_000, 2_048),
            (60_000, 2_049),
            (5_000, 9_000),
            (90_000, 70_000),
        ]
        .into_iter()
        .enumerate()
        {
            let inputs = inputs(count, values, seed as u64);
            let expected = expected(&inputs);
            let mut arena = Arena::default();
            let all = of(&inputs, &mut arena);
            assert_eq!(read(all, &arena), expected, "{count} of {values}");
            summaries += usize::from(!Parts::of(blob_bytes(all, &arena)).is_exact());
            for parts in [2, 7, 60] {
                // Of unequal sizes, so that some are summaries and others are not.
                let part = |at: usize| (hash_word(at as u64) % (parts * parts)).isqrt();
                let divided = (0..parts).map(|number| {
                    let own = inputs.iter().enumerate().filter(|(at, _)| part(*at) == number);
                    of(own.map(|(_, input)| input), &mut arena)
                });
                let mut words: Vec<u64> = divided.filter(|word| *word != NO_BYTES).collect();
                // Two at a time, whichever, in either direction.
                let mut random = 7 * parts;
                while words.len() > 1 {
                    random = hash_word(random);
                    let from = words.swap_remove(random as usize % words.len());
                    let theirs = blob_bytes(from, &arena).to_vec();
                    let to = (random >> 32) as usize % words.len();
                    merge(&mut words[to], &mut arena, &theirs);
                }
                assert_eq!(read(words[0], &arena), expected, "{count} of {values}, {parts} parts");
            }
        }
        assert_eq!(summaries, 3);
    }

    /// Of 200,000 inputs, value n has a part 1/(n + 1) of the first value's share in a Zipf
    /// distribution over 100,000 values. All values with 0.7% are found, none is estimated too low;
    /// fewer than 1.8% are estimated too high by more than 0.13% of all inputs.
    #[test]
    fn estimates_keep_their_bounds() {
        let weight: f64 = (1..=100_000).map(|n| 1.0 / f64::from(n)).sum();
        let (mut inputs, mut counts): (Vec<Input>, _) = (Vec::new(), BTreeMap::new());
        for n in 0..100_000_u64 {
            let count = (200_000.0 / weight / (n + 1) as f64).round() as u64;
            let value = n.to_le_bytes().to_vec();
            for _ in 0..count {
                inputs.push((hash_word(inputs.len() as u64), value.clone()));
            }
            counts.insert(value, count);
        }
        let total = inputs.len() as f64;
        let mut arena = Arena::default();
        let word = of(&inputs, &mut arena);
        let values = read(word, &arena);
        assert_eq!(values.len(), 2048);
        let frequent = counts.iter().filter(|(_, count)| **count as f64 > 0.007 * total);
        assert!(frequent.clone().count() > 10);
        for (value, _) in frequent {
            assert!(values.iter().any(|(_, found)| found == value));
        }
        let mut beyond = 0;
        for (estimate, value) in &values {
            assert!(*estimate >= counts[value]);
            let error = (estimate - counts[value]) as f64;
            beyond += usize::from(error > std::f64::consts::E / 2048.0 * total);
        }
        assert!(beyond as f64 <= 0.018 * 2048.0, "{beyond}");
        // The first ten are the right ones, in order.
        let first: Vec<&[u8]> = values[..10].iter().map(|(_, value)| &value[..]).collect();
        let right: Vec<[u8; 8]> = (0..10_u64).map(u64::to_le_bytes).collect();
        assert_eq!(first, right);
    }

    /// Damaged bytes are refused, or can be added to without harm.
    #[test]
    fn damage_is_refused_or_does_no_harm() {
        let mut refused = 0;
        for (count, values) in [(4, 3), (3_000, 1_500), (9_000, 9_000)] {
            let mut arena = Arena::default();
            let word = of(&inputs(count, values, 1), &mut arena);
            let good = blob_bytes(word, &arena).to_vec();
            assert!(!is_frequent(&good[..good.len() - 1]) && !is_frequent(&[]));
            for round in 0..400_u64 {
                let at = hash_word(round) as usize % if round % 2 == 0 { 16 } else { good.len() };
                let mut bad = good.clone();
                bad[at] ^= 1 << (round % 8);
                if !is_frequent(&bad) {
                    refused += 1;
                    continue;
                }
                let mut own = of(&inputs(3_000, 4_000, 2), &mut arena);
                merge(&mut own, &mut arena, &bad);
                let mut word = NO_BYTES;
                append(&mut word, &mut arena, &bad);
                inputs(5_000, 5_000, 3).iter().for_each(|(drawn, value)| {
                    add(&mut word, &mut arena, &[&drawn.to_le_bytes()[..], value].concat());
                });
                assert!(read(own, &arena).len() <= 2048 && read(word, &arena).len() <= 2048);
            }
        }
        assert!(refused > 300, "{refused}");
    }
}
