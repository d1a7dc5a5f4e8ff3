//! Tests of values that can stay empty: however many there are, each has a bit of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millstream_state::*;

use super::support::Random;

const KEYS: u64 = 300;

/// Per key: which values have met input.
type Met = BTreeMap<u64, BTreeSet<usize>>;

/// Feeds a block of random keys to some of the values, of each key to a part of them.
fn feed(random: &mut Random, table: &mut Table, layout: &RowLayout, met: &mut Met) {
    let (mut pool, mut scratch) = (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
    let words: Vec<u64> = (0..BLOCK_ROWS).map(|_| random.below(KEYS)).collect();
    let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
    let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: NoVarKeys };
    let mut block = table.update(&keys, &mut pool, &mut scratch);
    for word in &words {
        met.entry(*word).or_default();
    }
    for (value, slot) in layout.values().iter().enumerate() {
        if random.below(8) > 0 {
            continue;
        }
        let rows = 0..words.len() as u32;
        let picks: Vec<u32> = rows.filter(|_| random.below(4) == 0).collect();
        block.extreme64(*slot, Some(&picks), |_| value as i64);
        for k in picks {
            met.entry(words[k as usize]).or_default().insert(value);
        }
    }
}

fn read(table: &Table, layout: &RowLayout) -> Met {
    let mut met = Met::new();
    for block in 0..table.scan_blocks() {
        let rows = table.scan(block);
        for row in 0..rows.len() {
            let has_met = |slot: &ValueSlot| {
                let (word, bit) = layout.seen(*slot).expect("all can stay empty");
                let met = rows.word(row, word) & bit != 0;
                // What has met nothing is as it was in the beginning.
                let empty = rows.word(row, slot.word) == slot.kind.empty()[0];
                assert_eq!(met, !empty);
                met
            };
            let slots = layout.values().iter().enumerate();
            let of_row = slots.filter(|(_, slot)| has_met(slot)).map(|(value, _)| value);
            assert!(met.insert(rows.word(row, 0), of_row.collect()).is_none());
        }
    }
    met
}

#[test]
fn each_value_has_its_own_bit() {
    let mut random = Random(0x5EED_0064);
    for (values, seen_words) in [(0, 0), (1, 1), (63, 1), (64, 1), (65, 2), (128, 2), (200, 4)] {
        let of = |value| (if value % 2 == 0 { ValueKind::Min64 } else { ValueKind::Max64 }, true);
        // Among them stand some that need no bit.
        let mut kinds: Vec<(ValueKind, bool)> = (0..values).map(of).collect();
        let layout = Arc::new(RowLayout::new(1, vec![], &kinds));
        assert_eq!(layout.seen_words(), 1..1 + seen_words);
        assert_eq!(layout.row_words(), (1 + seen_words + values).max(1));
        kinds.insert(values / 2, (ValueKind::Count, true));
        assert_eq!(RowLayout::new(1, vec![], &kinds).seen_words(), 1..1 + seen_words);
        for _ in 0..8 {
            let mut tables: Vec<Table> = (0..3).map(|_| Table::new(layout.clone())).collect();
            let mut expected = Met::new();
            for table in &mut tables {
                (0..3).for_each(|_| feed(&mut random, table, &layout, &mut expected));
            }
            let [leader, one, other] = &mut tables[..] else { unreachable!("three") };
            let mut pool = ChunkPool::new(layout.row_words(), 0, None);
            leader.merge(&one.seal(), &mut pool, &mut Scratch::default());
            leader.merge(&other.seal(), &mut pool, &mut Scratch::default());
            assert_eq!(read(leader, &layout), expected, "{values} values");
        }
    }
}
