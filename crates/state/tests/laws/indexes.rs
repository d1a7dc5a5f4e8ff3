//! Tests of how rows are found: by hash, in slots, and when row numbers start over.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_state::*;

use super::{Key, Shape, Totals, count, counts_of, layout, read, write};

/// Keys that share the upper half of their hashes, which may be all that an index holds of them:
/// among many others in a table beyond any near cache, and by themselves in a small one; in rows of
/// every width that has a loop of its own; updated and merged.
#[test]
fn keys_whose_hashes_collide_keep_apart() {
    // Far apart, so that they are looked up by their hashes.
    let words: Vec<u64> =
        (0..400_000).map(|i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let mut by_half: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    words.iter().for_each(|w| by_half.entry(hash_word(*w) >> 32).or_default().push(*w));
    let colliding: Vec<u64> = by_half.into_values().filter(|w| w.len() > 1).flatten().collect();
    assert!(colliding.len() > 10, "{} keys that collide", colliding.len());
    for sums in 0..5 {
        let mut values = vec![(ValueKind::Count, false)];
        values.resize(1 + sums, (ValueKind::Max64, false));
        let layout = Arc::new(RowLayout::new(1, vec![], &values));
        let slot = layout.values()[0];
        for keys in [&words, &colliding] {
            let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
            let mut scratch = Scratch::default();
            let (mut leader, mut helper) = (Table::new(layout.clone()), Table::new(layout.clone()));
            count(&mut leader, keys, slot, &mut pool);
            count(&mut leader, keys, slot, &mut pool);
            count(&mut helper, keys, slot, &mut pool);
            leader.merge(&helper.seal(), &mut pool, &mut scratch);
            count(&mut helper, keys, slot, &mut pool);
            leader.merge(&helper.seal(), &mut pool, &mut scratch);
            let counts = counts_of(&leader, &layout);
            assert_eq!(counts.len(), keys.len(), "{} values", 1 + sums);
            assert!(counts.values().all(|n| *n == 4), "{} values", 1 + sums);
        }
    }
}

/// Keys that are numbers close together are found without their hashes, others by them; a table
/// changes between the two as keys come, and holds each once, whichever it is.
#[test]
fn keys_close_together_and_far_apart() {
    let far = |i: i64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64);
    // Keys of one epoch after the other, and whether they are found without hashes at its end.
    type KeyOf = Box<dyn Fn(i64) -> i64>;
    let mixed = |i: i64| if i == 7_000 { 1 << 50 } else { i % 5_000 };
    let epochs: [Vec<(KeyOf, bool)>; 7] = [
        vec![(Box::new(|i| i % 3_000), true), (Box::new(|i| i % 3_000), true)],
        vec![(Box::new(|i| i), true), (Box::new(|i| i + 10_000), true)],
        vec![(Box::new(|i| -i), true), (Box::new(|i| i - 500), true)],
        vec![(Box::new(|i| i64::MAX - i % 1_000), true), (Box::new(|i| i64::MIN + i % 100), true)],
        vec![(Box::new(mixed), false), (Box::new(|i| i % 5_000), false)],
        vec![(Box::new(far), false), (Box::new(far), false)],
        // Too few in too wide a range; then they are many.
        vec![(Box::new(|i| i % 100 * 999), false), (Box::new(|i| i % 9_000), true)],
    ];
    let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
    let slot = layout.values()[0];
    for (case, epochs) in epochs.iter().enumerate() {
        for hashed in [true, false] {
            let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
            let (mut table, mut scratch) = (Table::new(layout.clone()), Scratch::default());
            let mut merged = Table::new(layout.clone());
            let mut all = BTreeMap::new();
            for (key, direct) in epochs {
                let words: Vec<u64> = (0..12_000).map(|i| key(i) as u64).collect();
                let mut expected = BTreeMap::new();
                for words in words.chunks(200) {
                    let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
                    let hashes = if hashed { &hashes[..] } else { &[] };
                    let keys = Keys { hashes, ahead: &[], words, vars: NoVarKeys };
                    let growth = table.growth_bytes(Load::rows(words.len()));
                    // They may lie beside the span of those before, however few they are.
                    assert!(!table.is_direct() || growth >= table.index_bytes(), "case {case}");
                    let room = table.bytes() + growth;
                    table.update(&keys, &mut pool, &mut scratch).count(slot, None);
                    assert!(table.bytes() <= room, "case {case}: growth is foretold");
                    words.iter().for_each(|word| *expected.entry(*word).or_insert(0) += 1);
                }
                assert_eq!(table.is_direct(), *direct, "case {case}");
                assert_eq!(table.rows(), expected.len(), "case {case}");
                assert_eq!(counts_of(&table, &layout), expected, "case {case}");
                // In buckets a key takes 16 bytes, and up to twice as much while there are few.
                assert!(table.index_bytes() <= 64 * table.rows() + 4096, "case {case}");
                expected.iter().for_each(|(word, n)| *all.entry(*word).or_insert(0) += n);
                merged.merge(&table.seal(), &mut pool, &mut scratch);
            }
            assert_eq!(counts_of(&merged, &layout), all, "case {case}, merged");
        }
    }
}

/// In whatever order they come, keys close together make an index grow now and then, not for every
/// block.
#[test]
fn an_index_of_keys_close_together_grows_seldom() {
    let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
    let slot = layout.values()[0];
    let orders: [fn(i64) -> i64; 5] = [
        |i| i,
        |i| -i,
        |i| 1_000_000_000 - i,
        // To both sides by turns, a block at a time.
        |i| if i / 256 % 2 == 0 { i } else { -i },
        |i| i64::MAX - i,
    ];
    for (case, order) in orders.iter().enumerate() {
        let mut table = Table::new(layout.clone());
        let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
        let words: Vec<u64> = (0..100_000).map(|i| order(i) as u64).collect();
        count(&mut table, &words, slot, &mut pool);
        assert!(table.is_direct() || case == 3, "case {case}");
        assert!(table.growths() < 40, "case {case}: {} growths", table.growths());
        assert_eq!(counts_of(&table, &layout).len(), words.len(), "case {case}");
        // The next window has other keys, as many: it goes on in the same slots.
        let (bytes, growths) = (table.index_bytes(), table.growths());
        table.clear(&mut pool);
        if case == 0 {
            let words: Vec<u64> = words.iter().map(|word| word + 700_000).collect();
            count(&mut table, &words, slot, &mut pool);
            assert_eq!((table.index_bytes(), table.growths()), (bytes, growths));
            assert_eq!(counts_of(&table, &layout).len(), words.len());
        }
    }
}

/// Row numbers run out in the end; then they start over, and nothing of before may be found again.
#[test]
fn row_numbers_start_over() {
    let layout = layout(Shape::Word);
    let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
    let mut table = Table::new(layout.clone());
    let words: Vec<u64> = (0..5_001).collect();
    // A sealed table goes on with the numbers of the next chunk: 2^31 of them last for 2^19 seals.
    for _ in 0..10 {
        count(&mut table, &words, layout.values()[0], &mut pool);
        let counts = counts_of(&table, &layout);
        assert_eq!(counts.len(), words.len());
        assert!(counts.values().all(|n| *n == 1));
        for _ in 0..100_000 {
            table.seal();
        }
    }
}

/// A table goes on in the index of one that is complete, without anything of that and without
/// growing; the complete one keeps its rows. Whatever keys are, and window after window.
#[test]
fn a_table_goes_on_in_the_index_of_a_complete_one() {
    const KEYS: u64 = 40_000;
    let key_of = |shape, window: u64, i: u64| match shape {
        // Far apart, so that they are looked up by their hashes. Some come in every window.
        Shape::Word => {
            Key((i * (1 + window % 2)).wrapping_mul(0x9E37_79B9_7F4A_7C15), 0, String::new())
        }
        Shape::Words => Key(i % 10, i + window * 10, String::new()),
        Shape::Text | Shape::Alike => Key(i % 3, 0, format!("{:05}", i / 3 + window)),
    };
    for shape in [Shape::Word, Shape::Words, Shape::Text] {
        let rows = |window| -> Vec<(Key, i64)> {
            (0..KEYS).map(|i| (key_of(shape, window, i), i as i64 % 7)).collect()
        };
        let totals = |rows: &[(Key, i64)]| -> BTreeMap<Key, Totals> {
            rows.iter().map(|(key, v)| (key.clone(), (1, i128::from(*v), *v, *v))).collect()
        };
        let mut pool = ChunkPool::new(layout(shape).row_words(), 1 << 20, None);
        let mut scratch = Scratch::default();
        let mut add = |table: &mut Table, rows: &[(Key, i64)], pool: &mut ChunkPool| {
            write(table, shape, rows, false, pool, &mut scratch);
        };
        let mut complete = Table::new(layout(shape));
        add(&mut complete, &rows(0), &mut pool);
        for window in 1..5 {
            // How many of the next window's keys have come by then.
            let so_far = [0, 300, 3_000, 9_000][window as usize - 1];
            let (before, bytes) = (rows(window - 1), complete.index_bytes());
            let now = rows(window);
            let mut next = Table::new(layout(shape));
            add(&mut next, &now[..so_far], &mut pool);
            let growths = next.growths() + complete.growths();
            assert!(next.take_index(&mut complete, &mut pool, &mut Scratch::default()));
            assert_eq!((next.index_bytes(), complete.index_bytes()), (bytes, 0), "{shape:?}");
            assert_eq!(read(&complete, shape), totals(&before), "{shape:?}, window {window}");
            assert_eq!(read(&next, shape), totals(&now[..so_far]), "{shape:?}, window {window}");
            assert_eq!(next.rows(), so_far);
            add(&mut next, &now[so_far..], &mut pool);
            assert_eq!(read(&next, shape), totals(&now), "{shape:?}, window {window}");
            assert_eq!(next.growths(), growths, "{shape:?}: it has room for as many");
            complete.clear(&mut pool);
            assert_eq!(complete.rows(), 0);
            complete = next;
        }
    }
}

/// It has its own where that is large enough, where either finds keys without hashes, or where the
/// other's is far too large for what is in it: then that goes with its table.
#[test]
fn an_index_stays_where_taking_it_would_not_do() {
    let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
    let slot = layout.values()[0];
    let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
    let far = |n: u64| -> Vec<u64> {
        (0..n).map(|i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect()
    };
    let near = |n: u64| -> Vec<u64> { (0..n).collect() };
    let cases = [
        (0, far(5_000), far(4_000)),
        (0, near(50_000), far(100)),
        (0, far(50_000), near(100)),
        // It held so many before.
        (100_000, far(1_000), far(100)),
    ];
    for (before, complete_keys, next_keys) in cases {
        let (mut complete, mut next) = (Table::new(layout.clone()), Table::new(layout.clone()));
        count(&mut complete, &far(before), slot, &mut pool);
        complete.clear(&mut pool);
        count(&mut complete, &complete_keys, slot, &mut pool);
        count(&mut next, &next_keys, slot, &mut pool);
        let bytes = (complete.index_bytes(), next.index_bytes());
        assert!(!next.take_index(&mut complete, &mut pool, &mut Scratch::default()));
        assert_eq!((complete.index_bytes(), next.index_bytes()), bytes);
        count(&mut next, &next_keys, slot, &mut pool);
        let counts = counts_of(&next, &layout);
        assert!(counts.len() == next_keys.len() && counts.values().all(|n| *n == 2));
        complete.clear(&mut pool);
        assert!(before == 0 || complete.index_bytes() == 0, "it is given back");
    }
}
