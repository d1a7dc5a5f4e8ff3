use std::collections::BTreeMap;

use super::*;
use crate::memory::hash::hash_words;
use crate::memory::log::ChunkPool;
use crate::memory::scratch::Scratch;
use crate::table::key::{Keys, NoVarKeys};
use crate::table::prefix::Prefix;
use crate::values::chain::chain_elements;
use crate::values::kind::ValueKind;

/// Key and time.
type Record<const WORDS: usize> = ([u64; WORDS], i64);
/// Key, first and last time of the session, and how many records there are of the key.
type Session<const WORDS: usize> = ([u64; WORDS], i64, i64, u64);

/// The sessions that slices of this width give of records, which are in the order of time. Each has
/// all of its records.
fn sessions<const WORDS: usize>(
    prefix: Option<Prefix>,
    records: &[Record<WORDS>],
    gap: i64,
    width: i64,
) -> Vec<Session<WORDS>> {
    let kinds = [ValueKind::Count, ValueKind::Min64, ValueKind::Max64, ValueKind::Chain];
    let layout = RowLayout::new(WORDS, vec![], &kinds.map(|kind| (kind, false)));
    let layout = Arc::new(layout.led_by(prefix));
    let slots = layout.values().to_vec();
    let mut sessions = Sessions::new(layout.clone(), [slots[1], slots[2]], None, gap, 1 << 16);
    let (mut pool, mut scratch) = (ChunkPool::new(8, 0, None), Scratch::default());
    let mut found = Vec::new();
    let mut slice = records[0].1.div_euclid(width);
    let mut rest = records;
    while !rest.is_empty() || !sessions.is_empty() {
        let end = (slice + 1) * width;
        let (now, later) = rest.split_at(rest.partition_point(|(_, time)| *time < end));
        rest = later;
        let mut table = Table::new(layout.clone());
        for (words, time) in now {
            let mut hashes = [hash_words(words)];
            if let Some(prefix) = prefix {
                prefix.lead(words, WORDS, &mut hashes);
            }
            let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
            let mut block = table.update(&keys, &mut pool, &mut scratch);
            block.count(slots[0], None);
            block.extreme64(slots[1], None, |_| *time);
            block.extreme64(slots[2], None, |_| *time);
            let record = record(words, *time);
            block.blob_bytes(slots[3], None, |_| &record);
        }
        sessions.begin(Some(table).filter(|table| table.rows() > 0).into_iter().collect());
        while !sessions.are_made(end) {
            sessions.go_on(end, usize::MAX, &|_, _| [0, 0]);
            let over = sessions.ready();
            for row in 0..over.len() {
                let at = |slot: usize| over.word(row, slots[slot].word);
                let key = std::array::from_fn(|word| over.word(row, word));
                let session = (key, at(1) as i64, at(2) as i64, at(0));
                let records = chain_elements(at(3), over.arena(), 0);
                let times: Vec<i64> = records.map(|(bytes, _)| time_of(&key, bytes)).collect();
                assert_eq!(times.len() as u64, session.3);
                assert!(times.iter().all(|time| (session.1..=session.2).contains(time)));
                found.push(session);
            }
            sessions.clear_ready();
        }
        sessions.end(end, true);
        slice += 1;
    }
    assert_eq!(sessions.left_words, 0);
    found.sort_unstable();
    found
}

/// What is kept of a record: its key and its time.
fn record(key: &[u64], time: i64) -> Vec<u8> {
    key.iter().flat_map(|word| word.to_le_bytes()).chain(time.to_le_bytes()).collect()
}

/// The time of a record of this key.
fn time_of(key: &[u64], record: &[u8]) -> i64 {
    let (of, time) = record.split_at(8 * key.len());
    assert_eq!(of, &self::record(key, 0)[..of.len()]);
    i64::from_le_bytes(time.try_into().unwrap())
}

/// What they are by the definition, where keys of the same `part` share sessions.
fn model<const WORDS: usize>(
    records: &[Record<WORDS>],
    gap: i64,
    part: impl Fn(&[u64; WORDS]) -> Vec<u64>,
) -> Vec<Session<WORDS>> {
    let mut parts: BTreeMap<Vec<u64>, Vec<&Record<WORDS>>> = BTreeMap::new();
    records.iter().for_each(|record| parts.entry(part(&record.0)).or_default().push(record));
    let mut model = Vec::new();
    for records in parts.values() {
        for session in records.chunk_by(|a, b| b.1 - a.1 <= gap) {
            let mut counts: BTreeMap<[u64; WORDS], u64> = BTreeMap::new();
            session.iter().for_each(|(key, _)| *counts.entry(*key).or_default() += 1);
            let (first, last) = (session[0].1, session[session.len() - 1].1);
            model.extend(counts.into_iter().map(|(key, count)| (key, first, last, count)));
        }
    }
    model.sort_unstable();
    model
}

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    /// Records of so many keys, at distances about a gap.
    fn records<const WORDS: usize>(
        &mut self,
        count: usize,
        keys: u64,
        gap: i64,
    ) -> Vec<Record<WORDS>> {
        let mut time = self.below(1000) as i64 - 500;
        let record = |_| {
            time += [0, 1, gap - 1, gap, gap + 1, 3][self.below(6) as usize] / keys.min(6) as i64;
            let mut key = [self.below(keys); WORDS];
            // The last word has values of its own.
            key[WORDS - 1] = if WORDS > 1 { self.below(4) } else { key[0] };
            (key, time)
        };
        (0..count).map(record).collect()
    }
}

const GAP: i64 = 48;
const WIDTHS: [i64; 4] = [GAP, GAP / 3, GAP / 16, 1];

/// Whether slices are a gap, a third or a sixteenth of it wide, sessions are what records say:
/// those a gap apart belong together, those one more do not.
#[test]
fn the_width_of_slices_makes_no_difference() {
    let (mut draw, mut many) = (Draw(3), 0);
    for keys in [1, 3, 40, 5_000] {
        for _ in 0..20 {
            let records = draw.records::<1>(2_000, keys, GAP);
            let model = model(&records, GAP, |key| key.to_vec());
            for width in WIDTHS {
                assert_eq!(sessions(None, &records, GAP, width), model, "{keys} keys, {width}");
            }
            many += usize::from(model.len() > 100);
        }
    }
    assert!(many > 20, "{many}");
}

/// The same, where keys share sessions: those with the same first word, with the same first word
/// and some bit of it, and all of them.
#[test]
fn keys_share_the_sessions_of_their_prefix() {
    let (mut draw, mut apart) = (Draw(4), 0);
    for keys in [1, 3, 40, 5_000] {
        for _ in 0..10 {
            let records = draw.records::<2>(300, keys, GAP);
            let alone = model(&records, GAP, |key| key.to_vec());
            for (prefix, mask) in [
                (Prefix { words: 1, nulls: None }, u64::MAX),
                (Prefix { words: 1, nulls: Some(1) }, 1),
                (Prefix { words: 1, nulls: Some(0) }, 0),
                (Prefix { words: 0, nulls: None }, 0),
            ] {
                let model = model(&records, GAP, |key| vec![key[0] & mask]);
                for width in WIDTHS {
                    let sessions = sessions(Some(prefix), &records, GAP, width);
                    assert_eq!(sessions, model, "{keys} keys, {width}, {prefix:?}");
                }
                apart += usize::from(model != alone);
            }
        }
    }
    assert!(apart > 20, "{apart}");
}

/// Of two rows in a slice, one is a gap from the open session and the other is not: the session
/// goes on for both, though the row that is farther away comes first. The third key's row, which is
/// in no slice any more, has its bounds.
#[test]
fn a_row_bridges_the_distance_of_another() {
    let prefix = Some(Prefix { words: 1, nulls: None });
    let records = [([7, 1], 0), ([7, 3], 40), ([7, 2], 95), ([8, 1], 81), ([7, 1], 60)];
    let found = sessions(prefix, &records, GAP, GAP);
    let expected =
        [([7, 1], 0, 95, 2), ([7, 2], 0, 95, 1), ([7, 3], 0, 95, 1), ([8, 1], 81, 81, 1)];
    assert_eq!(found, expected);
}

/// All keys of a prefix have one leader, whatever the rest of them; hashes differ all the same.
#[test]
fn the_prefix_says_who_leads() {
    use crate::table::partition::partition_of;
    let lead = |prefix: Prefix, key: [u64; 3]| {
        let mut hashes = [hash_words(&key)];
        prefix.lead(&key, 3, &mut hashes);
        hashes[0]
    };
    for nulls in [None, Some(0b01)] {
        let prefix = Prefix { words: 2, nulls };
        let mut partitions = std::collections::BTreeSet::new();
        for k in 0..200 {
            let same = [[1, k, 5], [1, k, 6]].map(|key| lead(prefix, key));
            assert_eq!(partition_of(same[0]), partition_of(same[1]));
            assert_ne!(same[0], same[1]);
            if nulls.is_some() {
                // The second bit is not of the prefix.
                assert_eq!(partition_of(lead(prefix, [0b11, k, 0])), partition_of(same[0]));
            }
            partitions.insert(partition_of(same[0]));
        }
        assert!(partitions.len() > 100, "{partitions:?}");
    }
}

/// The records of sessions that have been given take no memory for long, while one goes on.
#[test]
fn records_that_have_been_given_are_left_behind() {
    let layout = [ValueKind::Min64, ValueKind::Max64, ValueKind::Chain].map(|kind| (kind, false));
    let layout = Arc::new(RowLayout::new(1, vec![], &layout));
    let slots = layout.values().to_vec();
    let mut sessions = Sessions::new(layout.clone(), [slots[0], slots[1]], None, GAP, 1 << 16);
    assert!(sessions.in_place);
    let (mut pool, mut scratch) = (ChunkPool::new(8, 0, None), Scratch::default());
    let (mut given, mut most) = (0, 0);
    for slice in 0..2_000 {
        let (begin, end) = (slice * GAP, (slice + 1) * GAP);
        let mut table = Table::new(layout.clone());
        // One record of the key 7, which goes on; a hundred of another key, which is new.
        for key in [&[7][..], &[100 + slice as u64; 100]].concat() {
            let keys =
                Keys { hashes: &[hash_words(&[key])], ahead: &[], words: &[key], vars: NoVarKeys };
            let mut block = table.update(&keys, &mut pool, &mut scratch);
            block.extreme64(slots[0], None, |_| begin);
            block.extreme64(slots[1], None, |_| begin);
            block.blob_bytes(slots[2], None, |_| &[1; 100]);
        }
        sessions.begin(vec![table]);
        while !sessions.are_made(end) {
            sessions.go_on(end, usize::MAX, &|_, _| [0, 0]);
            let over = sessions.ready();
            let records =
                |row| chain_elements(over.word(row, slots[2].word), over.arena(), 0).count();
            given += (0..over.len()).map(records).sum::<usize>();
            sessions.clear_ready();
        }
        sessions.end(end, true);
        most = most.max(sessions.bytes());
    }
    assert!(given > 190_000, "{given}");
    // The session that goes on has 2,000 records of 104 bytes.
    assert!(most < 1 << 20, "{most}");
}
