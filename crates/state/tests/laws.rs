//! Tables against a plain map: whatever is updated, appended, sealed, merged and adopted, in
//! whatever order, the state is that of a sequential run.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_state::*;

use support::Random;

/// A key of one fixed word or two, or of one and a variable-length string.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Word,
    Words,
    Text,
    /// Text whose hash many others share.
    Alike,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64, u64, String);

/// Everything a row holds, in plain form: count, sum, least, greatest.
type Totals = (u64, i128, i64, i64);

struct Texts<'a>(&'a [Key]);
impl VarKeys for Texts<'_> {
    fn bytes(&self, row: usize, _var: usize) -> &[u8] {
        self.0[row].2.as_bytes()
    }
}

fn layout(shape: Shape) -> Arc<RowLayout> {
    let (words, var) = match shape {
        Shape::Word => (1, vec![]),
        Shape::Words => (2, vec![]),
        Shape::Text | Shape::Alike => (3, vec![2]),
    };
    let values = [
        (ValueKind::Count, false),
        (ValueKind::SumInt, true),
        (ValueKind::Min64, true),
        (ValueKind::Max64, false),
    ];
    Arc::new(RowLayout::new(words, var, &values))
}

fn words_of(shape: Shape, key: &Key) -> Vec<u64> {
    match shape {
        Shape::Word => vec![key.0],
        Shape::Words => vec![key.0, key.1],
        Shape::Text => {
            vec![key.0, hash_bytes(key.2.as_bytes()), (key.2.len() as u64) << 32]
        }
        Shape::Alike => {
            vec![key.0, key.2.bytes().map(u64::from).sum(), (key.2.len() as u64) << 32]
        }
    }
}

fn random_key(random: &mut Random, shape: Shape, keys: u64) -> Key {
    let n = random.below(keys);
    match shape {
        Shape::Word => Key(n.wrapping_mul(7919), 0, String::new()),
        Shape::Words => Key(n % 10, n, String::new()),
        // Also the empty string, and some that differ in the last place only.
        Shape::Text => Key(n % 3, 0, "x".repeat((n % 20) as usize) + &"y".repeat((n % 2) as usize)),
        Shape::Alike => Key(n % 3, 0, format!("{:03}", n % 1000)),
    }
}

fn write(
    table: &mut Table,
    shape: Shape,
    rows: &[(Key, i64)],
    append: bool,
    pool: &mut ChunkPool,
    scratch: &mut Scratch,
) {
    let layout = layout(shape);
    let slots = layout.values();
    for rows in rows.chunks(BLOCK_ROWS) {
        let keys: Vec<Key> = rows.iter().map(|r| r.0.clone()).collect();
        let each: Vec<Vec<u64>> = keys.iter().map(|k| words_of(shape, k)).collect();
        let hashes: Vec<u64> = each.iter().map(|w| hash_words(w)).collect();
        let words = each.concat();
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: Texts(&keys) };
        let mut block = if append {
            table.append(&keys, pool, scratch)
        } else {
            table.update(&keys, pool, scratch)
        };
        block.count(slots[0], None);
        block.sum_int(slots[1], None, |k| rows[k].1.into());
        block.extreme64(slots[2], None, |k| rows[k].1);
        block.extreme64(slots[3], None, |k| rows[k].1);
    }
}

fn read(table: &Table, shape: Shape) -> BTreeMap<Key, Totals> {
    let layout = layout(shape);
    let word: Vec<usize> = layout.values().iter().map(|v| v.word).collect();
    let mut buffer = Vec::new();
    let mut found = BTreeMap::new();
    for block in 0..table.scan_blocks() {
        let rows = table.scan(block, &mut buffer);
        for row in 0..rows.len() {
            let at = |word| rows.word(row, word);
            let key = match shape {
                Shape::Word => Key(at(0), 0, String::new()),
                Shape::Words => Key(at(0), at(1), String::new()),
                Shape::Text | Shape::Alike => {
                    Key(at(0), 0, String::from_utf8(rows.bytes(at(2)).to_vec()).unwrap())
                }
            };
            let sum = read_i128(at(word[1]), at(word[1] + 1));
            let totals = (at(word[0]), sum, at(word[2]) as i64, at(word[3]) as i64);
            assert!(found.insert(key.clone(), totals).is_none(), "{key:?} stands twice");
        }
    }
    found
}

#[test]
fn state_is_that_of_a_sequential_run() {
    let (mut adopted, mut merged, mut taken_over, mut grown, mut cleared) = (0, 0, 0, 0, 0);
    let (mut in_heap, mut refused) = (0, 0);
    for seed in 1..120u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let shapes = [Shape::Word, Shape::Words, Shape::Text, Shape::Alike];
        let shape = shapes[(seed % 4) as usize];
        let keys = [3, 200, 30_000][random.below(3) as usize];
        let row_words = layout(shape).row_words();
        // Rows stand in the allocator's memory, in a heap, or in one that is too small for all of
        // them.
        let heap = [None, Some(64 << 20), Some(400 << 10)][(seed / 4 % 3) as usize]
            .map(|bytes| Heap::map(bytes, Idle::GivenBack).unwrap());
        let mut pool = ChunkPool::new(row_words, 1 << 20, heap.clone());
        let mut scratch = Scratch::default();
        let mut leader = Table::new(layout(shape));
        leader.expect(random.below(1000) as usize);
        let mut helpers = [Table::new(layout(shape)), Table::new(layout(shape))];
        // Two windows one after the other in the same tables.
        for _window in 0..2 {
            let mut expected: BTreeMap<Key, Totals> = BTreeMap::new();
            for _ in 0..1 + random.below(8) {
                let count = [1, 40, 3000, 20_000][random.below(4) as usize];
                let rows: Vec<(Key, i64)> = (0..count)
                    .map(|_| (random_key(&mut random, shape, keys), random.below(100) as i64 - 50))
                    .collect();
                for (key, value) in &rows {
                    let t = expected.entry(key.clone()).or_insert((0, 0, i64::MAX, i64::MIN));
                    let (least, greatest) = (t.2.min(*value), t.3.max(*value));
                    *t = (t.0 + 1, t.1 + i128::from(*value), least, greatest);
                }
                match random.below(3) {
                    0 => write(&mut leader, shape, &rows, false, &mut pool, &mut scratch),
                    helper => {
                        let helper = &mut helpers[helper as usize - 1];
                        let append = random.below(2) == 0;
                        write(helper, shape, &rows, append, &mut pool, &mut scratch);
                    }
                }
                for helper in &mut helpers {
                    if random.below(2) == 0 {
                        let segment = helper.seal();
                        assert_eq!(helper.rows(), 0);
                        match random.below(3) {
                            0 => match leader.adopt(segment, &mut scratch) {
                                Ok(_) => adopted += 1,
                                Err(segment) => {
                                    leader.merge(&segment, &mut pool, &mut scratch);
                                }
                            },
                            1 => {
                                leader.merge(&segment, &mut pool, &mut scratch);
                                segment.recycle(&mut pool);
                                merged += 1;
                            }
                            _ => {
                                let taken = leader.take_in(segment, &mut pool, &mut scratch);
                                taken_over += u64::from(taken);
                            }
                        }
                    }
                }
            }
            for helper in &mut helpers {
                leader.merge(&helper.seal(), &mut pool, &mut scratch);
            }
            assert_eq!(read(&leader, shape), expected, "seed {seed}");
            assert_eq!(leader.rows(), expected.len(), "seed {seed}");
            grown += leader.growths();
            leader.clear(&mut pool);
            helpers.iter_mut().for_each(|h| h.clear(&mut pool));
            assert_eq!(leader.rows(), 0);
            cleared += 1;
        }
        let Some(heap) = heap else { continue };
        in_heap += heap.usage().used_bytes;
        refused += heap.usage().refused;
        drop((leader, helpers, pool));
        assert_eq!(heap.usage().used_bytes, 0, "seed {seed}");
    }
    assert!(in_heap > 0 && refused > 100, "{refused} refused");
    assert!(adopted > 0 && merged > 0 && taken_over > 0 && grown > 0 && cleared > 0);
}

/// A row of two words, which is cheap to move.
fn narrow() -> Arc<RowLayout> {
    Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]))
}

#[test]
fn fragments_find_out_whether_keys_repeat() {
    let layout = narrow();
    let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
    let mut scratch = Scratch::default();
    let mut fragment = Fragment::new(layout, None);
    let mut next = 0;
    let mut batch = |fragment: &mut Fragment, few: bool| {
        let words: Vec<u64> = (0..250)
            .map(|i| {
                next += 1;
                if few { i % 7 } else { next }
            })
            .collect();
        let hashes: Vec<u64> = words.iter().map(|w| hash_word(*w)).collect();
        fragment.begin_batch();
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: NoVarKeys };
        fragment.update(&keys, &mut pool, &mut scratch);
    };
    (0..40).for_each(|_| batch(&mut fragment, false));
    assert_eq!(fragment.mode(), Mode::PassThrough);
    (0..600).for_each(|_| batch(&mut fragment, true));
    assert_eq!(fragment.mode(), Mode::Aggregate);
    assert_eq!(fragment.switches(), 2);
}

/// Takes these keys in as one batch.
fn feed(fragment: &mut Fragment, words: impl Iterator<Item = u64>, pool: &mut ChunkPool) {
    let (words, mut scratch): (Vec<u64>, _) = (words.collect(), Scratch::default());
    fragment.begin_batch();
    for words in words.chunks(BLOCK_ROWS) {
        let hashes: Vec<u64> = words.iter().map(|w| hash_word(*w)).collect();
        let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
        fragment.update(&keys, pool, &mut scratch);
    }
}

/// What counts is whether keys repeat within an epoch; and each epoch is judged by itself.
#[test]
fn fragments_judge_every_epoch_by_itself() {
    let layout = layout(Shape::Word);
    let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
    let fragment = &mut Fragment::new(layout, None);
    let few = || (0..20_000).map(|i| i % 7);
    feed(fragment, few(), pool);
    fragment.seal();
    // Distinct keys so far may still repeat before the epoch is over.
    feed(fragment, 0..8_000, pool);
    feed(fragment, 8_000..8_001, pool);
    assert_eq!(fragment.mode(), Mode::Aggregate);
    fragment.seal();
    assert_eq!(fragment.mode(), Mode::PassThrough);
    // Small epochs with the same keys each: within none of them do they repeat.
    for _ in 0..20 {
        feed(fragment, 0..1_000, pool);
        fragment.seal();
    }
    assert_eq!(fragment.mode(), Mode::PassThrough);
    // A change in the middle of an epoch: what is left of it says little.
    feed(fragment, few(), pool);
    feed(fragment, 0..8_000, pool);
    assert_eq!(fragment.mode(), Mode::Aggregate);
    fragment.seal();
    assert_eq!(fragment.mode(), Mode::Aggregate);
    feed(fragment, 0..8_000, pool);
    fragment.seal();
    assert_eq!((fragment.mode(), fragment.switches()), (Mode::PassThrough, 3));
}

/// A change of mode near the end of an epoch is a matter of that epoch: the next is judged as a
/// whole, by its own rows.
#[test]
fn fragments_forget_a_change_of_mode_with_its_epoch() {
    let layout = layout(Shape::Word);
    let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
    for after in [1, 100, 4_000] {
        let fragment = &mut Fragment::new(layout.clone(), None);
        feed(fragment, 0..8_000, pool);
        fragment.seal();
        assert_eq!(fragment.mode(), Mode::PassThrough);
        feed(fragment, (0..20_000).map(|i| i % 7), pool);
        // The change, and too few rows behind it to tell anything.
        feed(fragment, (0..after).map(|i| i % 7), pool);
        fragment.seal();
        assert_eq!((fragment.mode(), fragment.switches()), (Mode::Aggregate, 2));
        // 4,000 rows of seven keys would outweigh these.
        feed(fragment, 0..5_000, pool);
        fragment.seal();
        assert_eq!((fragment.mode(), fragment.switches()), (Mode::PassThrough, 3), "{after} rows");
    }
}

/// The same share of distinct rows is passed through where moving rows is cheap, and aggregated
/// where it is not; and where look-ups are cheap because there are few keys, more is aggregated
/// than where there are many.
#[test]
fn what_rows_and_look_ups_cost_decides_the_mode() {
    let wide = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::SumFloat, false); 2]));
    let mode_of = |layout: &Arc<RowLayout>, keys: u64, rows_per_key: u64| {
        let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
        let fragment = &mut Fragment::new(layout.clone(), None);
        for _ in 0..2 {
            // Less than three in four are distinct from the first batch on.
            (0..rows_per_key).for_each(|_| feed(fragment, 0..keys, pool));
            fragment.seal();
        }
        fragment.mode()
    };
    assert_eq!(mode_of(&narrow(), 4_000, 2), Mode::PassThrough);
    assert_eq!(mode_of(&wide, 4_000, 2), Mode::Aggregate);
    assert_eq!(mode_of(&narrow(), 4_000, 4), Mode::Aggregate);
    assert_eq!(mode_of(&narrow(), 100_000, 4), Mode::PassThrough);
    assert_eq!(mode_of(&narrow(), 100_000, 40), Mode::Aggregate);
}

/// What is passed through goes in parts; whether its keys repeat is a question about the epoch.
#[test]
fn a_flush_does_not_end_the_epoch() {
    let layout = narrow();
    let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
    let fragment = &mut Fragment::new(layout.clone(), None);
    feed(fragment, 0..8_000, pool);
    fragment.seal();
    assert_eq!((fragment.mode(), fragment.passed_bytes()), (Mode::PassThrough, 0));
    // Distinct within each part, and the same ones again.
    let mut leader = Table::new(layout.clone());
    for part in 0..6 {
        feed(fragment, 0..20_000, pool);
        if fragment.mode() == Mode::PassThrough {
            assert_eq!(fragment.passed_bytes(), 20_000 * 16, "part {part}");
        }
        let segment = fragment.flush().expect("there are rows");
        leader.merge(&segment, pool, &mut Scratch::default());
        assert!(fragment.rows() == 0 && fragment.flush().is_none());
    }
    fragment.seal();
    assert_eq!((fragment.mode(), leader.rows()), (Mode::Aggregate, 20_000));
}

/// In an epoch that does not end, more different keys than can be estimated do not hide that there
/// are few later.
#[test]
fn keys_that_change_within_a_long_epoch_are_noticed() {
    let layout = narrow();
    let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
    let fragment = &mut Fragment::new(layout.clone(), None);
    let mut flushed = |fragment: &mut Fragment, words: std::ops::Range<u64>| {
        feed(fragment, words, pool);
        fragment.flush().expect("there are rows").recycle(pool);
    };
    (0..50).for_each(|part| flushed(fragment, part * 20_000..(part + 1) * 20_000));
    assert_eq!(fragment.mode(), Mode::PassThrough);
    for _ in 0..3_000 {
        flushed(fragment, 0..1_000);
    }
    assert_eq!(fragment.mode(), Mode::Aggregate);
}

#[test]
fn a_given_mode_is_kept() {
    let layout = layout(Shape::Word);
    let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
    for mode in [Mode::Aggregate, Mode::PassThrough] {
        let fragment = &mut Fragment::new(layout.clone(), Some(mode));
        for _ in 0..3 {
            feed(fragment, 0..10_000, pool);
            fragment.seal();
            feed(fragment, (0..10_000).map(|i| i % 7), pool);
            fragment.seal();
        }
        assert_eq!((fragment.mode(), fragment.switches()), (mode, 0));
    }
}

#[test]
fn a_pool_keeps_no_more_than_it_may() {
    let (layout, limit) = (layout(Shape::Word), 4 << 20);
    let mut pool = ChunkPool::new(layout.row_words(), limit, None);
    let mut table = Table::new(layout.clone());
    let words: Vec<u64> = (0..150_000).collect();
    count(&mut table, &words, layout.values()[0], &mut pool);
    let before = table.bytes();
    table.clear(&mut pool);
    assert!(before - table.bytes() > limit, "there was more to keep");
    assert!(pool.bytes() <= limit && pool.bytes() > limit / 2, "{} bytes", pool.bytes());
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

/// Blocks in which one row is met again and again, however often and in whichever index: sums are
/// what one addition after the other makes them, whether all records take part in them or a few.
#[test]
fn rows_that_come_often_add_up() {
    let values = [(ValueKind::SumInt, true), (ValueKind::Count, false), (ValueKind::Count, false)];
    let wide = [&values[..], &[(ValueKind::Max64, false); 2]].concat();
    let extremes = [0, 1, -1, i64::MAX.into(), i64::MIN.into(), u64::MAX.into(), i128::MAX];
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for (apart, values) in [(1, &values[..]), (0x9E37_79B9_7F4A_7C15, &values), (1 << 40, &wide)] {
        for share in [0, 20, 60, 90, 100] {
            let layout = Arc::new(RowLayout::new(1, vec![], values));
            let slots = layout.values();
            let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
            let (mut table, mut scratch) = (Table::new(layout.clone()), Scratch::default());
            let mut expected: BTreeMap<u64, (i128, u64, u64, bool)> = BTreeMap::new();
            for block in 0..200u64 {
                let rows = [256, 200, 64, 63, 9, 1][random.below(6) as usize];
                let often = random.below(3);
                let key = |random: &mut Random| match random.below(100) < share {
                    true => often,
                    false => random.below(500),
                };
                let words: Vec<u64> =
                    (0..rows).map(|_| key(&mut random).wrapping_mul(apart)).collect();
                let inputs: Vec<i128> =
                    words.iter().map(|_| extremes[random.below(7) as usize]).collect();
                let picks: Vec<u32> = (0..rows).filter(|_| random.below(3) > 0).collect();
                let picks = (block % 3 > 0).then_some(&picks[..]);
                for (k, word) in words.iter().enumerate() {
                    let row = expected.entry(*word).or_default();
                    row.2 += 1;
                    if picks.is_none_or(|picks| picks.contains(&(k as u32))) {
                        row.0 = row.0.wrapping_add(inputs[k]);
                        (row.1, row.3) = (row.1 + 1, true);
                    }
                }
                let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
                let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: NoVarKeys };
                let mut block = table.update(&keys, &mut pool, &mut scratch);
                block.sum_int(slots[0], picks, |k| inputs[k]);
                block.count(slots[1], picks);
                block.count(slots[2], None);
            }
            let (mut buffer, mut found) = (Vec::new(), BTreeMap::new());
            for block in 0..table.scan_blocks() {
                let rows = table.scan(block, &mut buffer);
                for row in 0..rows.len() {
                    let at = |word| rows.word(row, word);
                    let sum = read_i128(at(slots[0].word), at(slots[0].word + 1));
                    let seen = at(layout.seen_word().expect("the sum may stay empty")) & 1 == 1;
                    let all = (sum, at(slots[1].word), at(slots[2].word), seen);
                    assert!(found.insert(at(0), all).is_none(), "{} stands twice", at(0));
                }
            }
            assert_eq!(found, expected, "{share} in 100, {apart} apart");
        }
    }
}

/// How often each one-word key has been counted.
fn counts_of(table: &Table, layout: &RowLayout) -> BTreeMap<u64, u64> {
    let (mut buffer, mut counts) = (Vec::new(), BTreeMap::new());
    let word = layout.values()[0].word;
    for block in 0..table.scan_blocks() {
        let rows = table.scan(block, &mut buffer);
        assert!(rows.words(0).eq(rows.collect(0, |word| word)));
        for row in 0..rows.len() {
            let seen = counts.insert(rows.word(row, 0), rows.word(row, word));
            assert!(seen.is_none(), "{} stands twice", rows.word(row, 0));
        }
    }
    counts
}

/// Counts every key once, a block at a time.
fn count(table: &mut Table, words: &[u64], slot: ValueSlot, pool: &mut ChunkPool) {
    let mut scratch = Scratch::default();
    let hashes: Vec<u64> = words.iter().map(|w| hash_word(*w)).collect();
    for (block, words) in words.chunks(BLOCK_ROWS).enumerate() {
        let (hashes, rest) = hashes[block * BLOCK_ROWS..].split_at(words.len());
        let ahead = &rest[..rest.len().min(BLOCK_ROWS)];
        let keys = Keys { hashes, ahead, words, vars: NoVarKeys };
        table.update(&keys, pool, &mut scratch).count(slot, None);
    }
}

/// Keys that share the upper half of their hashes, which may be all that an index holds of them:
/// among many others in a table beyond any near cache, and by themselves in a small one; in rows of
/// every width that has a loop of its own; updated, merged and adopted.
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
            leader.adopt(helper.seal(), &mut scratch).expect("keys of fixed width");
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
            let (mut merged, mut adopted) =
                (Table::new(layout.clone()), Table::new(layout.clone()));
            let mut all = BTreeMap::new();
            for (key, direct) in epochs {
                let words: Vec<u64> = (0..12_000).map(|i| key(i) as u64).collect();
                let mut expected = BTreeMap::new();
                for words in words.chunks(200) {
                    let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
                    let hashes = if hashed { &hashes[..] } else { &[] };
                    let keys = Keys { hashes, ahead: &[], words, vars: NoVarKeys };
                    let growth = table.growth_bytes(words.len());
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
                let segment = table.seal();
                merged.merge(&segment, &mut pool, &mut scratch);
                adopted.adopt(segment, &mut scratch).expect("keys of fixed width");
            }
            assert_eq!(counts_of(&merged, &layout), all, "case {case}, merged");
            assert_eq!(counts_of(&adopted, &layout), all, "case {case}, adopted");
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

/// What a table allocates for more keys is what it said before, and not long before they come.
#[test]
fn growth_is_foretold() {
    const ROWS: u64 = 300;
    let cases = [Shape::Word, Shape::Text].map(|shape| [(shape, false), (shape, true)]);
    for (shape, in_heap) in cases.into_iter().flatten() {
        let heap = in_heap.then(|| Heap::map(64 << 20, Idle::GivenBack).unwrap());
        let mut pool = ChunkPool::new(layout(shape).row_words(), 0, heap);
        pool.release();
        let mut scratch = Scratch::default();
        let mut table = Table::new(layout(shape));
        let (mut grown, mut quiet) = (0, 0);
        for block in 0..500 {
            let word = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let key = |n: u64| Key(word(n) as _, 0, format!("a key of {n:020}"));
            let rows: Vec<(Key, i64)> = (0..ROWS).map(|i| (key(block * ROWS + i), 1)).collect();
            let (before, growth) = (table.bytes(), table.growth_bytes(ROWS as usize));
            write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
            assert_eq!(pool.bytes(), 0, "nothing for later while memory is scarce");
            // How long keys are it knows from the first block on.
            if block > 0 {
                assert!(table.bytes() <= before + growth, "{shape:?}, block {block}");
                grown += u64::from(table.bytes() > before);
                quiet += u64::from(growth == 0);
            }
        }
        let seen = format!("{shape:?}: grew {grown} times, {quiet} quiet blocks");
        assert!(grown > 10 && quiet > 300, "{seen}, in a heap: {in_heap}");
    }
}

/// A trimmed table can be read as before, and used again once it is cleared.
#[test]
fn a_trimmed_table_keeps_its_rows() {
    let cases = [Shape::Word, Shape::Text].map(|shape| [(shape, false), (shape, true)]);
    for (shape, in_heap) in cases.into_iter().flatten() {
        let heap = in_heap.then(|| Heap::map(64 << 20, Idle::GivenBack).unwrap());
        let mut pool = ChunkPool::new(layout(shape).row_words(), 1 << 20, heap);
        let mut scratch = Scratch::default();
        let mut random = Random(3);
        let rows: Vec<(Key, i64)> =
            (0..20_000).map(|_| (random_key(&mut random, shape, 1 << 30), 1)).collect();
        let mut table = Table::new(layout(shape));
        write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
        let (expected, before) = (read(&table, shape), table.bytes());
        table.trim();
        assert!(table.bytes() < before);
        assert_eq!(read(&table, shape), expected);
        table.clear(&mut pool);
        write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
        assert_eq!(read(&table, shape), expected);
    }
}

/// A segment's rows, and what they refer to, stand in the heap from the first page on, until it is
/// dropped, whoever does that.
#[test]
fn a_sealed_segment_stands_in_the_heap() {
    for (shape, keys) in [(Shape::Word, 50_000), (Shape::Text, 5_000), (Shape::Word, 3)] {
        let heap = Heap::map(32 << 20, Idle::GivenBack).unwrap();
        let layout = layout(shape);
        let mut pool = ChunkPool::new(layout.row_words(), 0, Some(heap.clone()));
        let mut scratch = Scratch::default();
        let key = |n: u64| Key(n, 0, format!("a key of {n:020}"));
        let rows: Vec<(Key, i64)> = (0..keys).map(|n| (key(n), 1)).collect();
        let mut table = Table::new(layout.clone());
        write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
        let segment = table.seal();
        let few = keys == 3;
        let mut seen = 0;
        for run in segment.runs(&layout, 1000) {
            seen += run.len() / layout.row_words();
            let place = heap.offset_of(run);
            assert_eq!(place.is_some(), !few);
            if let Some(place) = place {
                // SAFETY: the place of words that nobody changes.
                let start = unsafe { heap.start().add(place) };
                assert_eq!(start.cast::<u64>().as_ptr().cast_const(), run.as_ptr());
            }
        }
        assert_eq!(seen as u64, keys);
        let arena = segment.arena().all_words();
        assert_eq!(heap.offset_of(arena).is_some(), matches!(shape, Shape::Text) && !few);
        // The table goes on, and its leader is another thread.
        write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
        let expected = read(&table, shape);
        drop((table, pool));
        let left = heap.usage().used_bytes;
        assert_eq!(left > 0, !few);
        let (other, from) = (heap.clone(), layout.clone());
        let leader = std::thread::spawn(move || {
            let mut leader = Table::new(from.clone());
            let mut pool = ChunkPool::new(from.row_words(), 0, Some(other));
            leader.take_in(segment, &mut pool, &mut Scratch::default());
            leader
        });
        let leader = leader.join().unwrap();
        assert_eq!(read(&leader, shape), expected);
        drop(leader);
        assert_eq!(heap.usage().used_bytes, 0);
        assert_eq!(heap.usage().refused, 0);
    }
}

/// Memory that is scarce goes back to the system from the heap, too.
#[test]
fn a_pool_that_is_released_leaves_nothing_in_the_heap() {
    let (layout, heap) = (layout(Shape::Word), Heap::map(64 << 20, Idle::GivenBack).unwrap());
    let mut pool = ChunkPool::new(layout.row_words(), 32 << 20, Some(heap.clone()));
    let mut table = Table::new(layout.clone());
    let words: Vec<u64> = (0..200_000).collect();
    count(&mut table, &words, layout.values()[0], &mut pool);
    table.clear(&mut pool);
    let kept = heap.usage();
    assert!(kept.used_bytes >= pool.bytes() && pool.bytes() > 0, "{kept:?}");
    pool.release();
    let HeapUse { used_bytes, idle_bytes, given_back_bytes, .. } = heap.usage();
    assert_eq!((used_bytes, idle_bytes), (0, 0));
    assert!(given_back_bytes > 0 || !cfg!(target_os = "linux"));
}

/// Rows that an adopted segment leaves behind as holes are nothing that a later merge may count
/// again.
#[test]
fn a_table_that_has_adopted_can_itself_be_sealed_and_merged() {
    let layout = layout(Shape::Word);
    let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
    let mut scratch = Scratch::default();
    let mut add = |table: &mut Table, keys: std::ops::Range<u64>, pool: &mut ChunkPool| {
        let words: Vec<u64> = keys.collect();
        for words in words.chunks(BLOCK_ROWS) {
            let hashes: Vec<u64> = words.iter().map(|w| hash_word(*w)).collect();
            let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
            table.update(&keys, pool, &mut scratch).count(layout.values()[0], None);
        }
    };
    let mut tables: Vec<Table> = (0..3).map(|_| Table::new(layout.clone())).collect();
    let [helper, leader, next] = &mut tables[..] else { unreachable!("three") };
    add(leader, 0..1000, &mut pool);
    // Every tenth key is known.
    add(helper, 900..10_000, &mut pool);
    assert_eq!(leader.adopt(helper.seal(), &mut Scratch::default()).unwrap(), 9_000);
    add(next, 5_000..5_010, &mut pool);
    let sealed = leader.seal();
    next.merge(&sealed, &mut pool, &mut Scratch::default());
    let expected = |key| match key {
        900..1000 | 5_000..5_010 => 2,
        _ => 1,
    };
    let expected: BTreeMap<u64, u64> = (0..10_000).map(|key| (key, expected(key))).collect();
    assert_eq!(counts_of(next, &layout), expected);
    // Nor can what has holes be adopted.
    add(leader, 0..10, &mut pool);
    add(helper, 5..20, &mut pool);
    assert!(leader.adopt(helper.seal(), &mut Scratch::default()).is_ok());
    assert!(next.adopt(leader.seal(), &mut Scratch::default()).is_err());
}
