//! Tests of tables against a plain map. Whatever is updated, appended, sealed and merged,
//! in whatever order, the state is that of a sequential run.

mod blobs;
mod composed;
mod fragments;
mod indexes;
mod room;
mod seen;
#[path = "../support/mod.rs"]
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
    let mut found = BTreeMap::new();
    for block in 0..table.scan_blocks() {
        let rows = table.scan(block);
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

/// How often each one-word key has been counted.
fn counts_of(table: &Table, layout: &RowLayout) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    let word = layout.values()[0].word;
    for block in 0..table.scan_blocks() {
        let rows = table.scan(block);
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

#[test]
// tidy: long function: one run, from what is drawn to what came of it
fn state_is_that_of_a_sequential_run() {
    let (mut recycled, mut grown, mut cleared) = (0, 0, 0);
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
                        leader.merge(&segment, &mut pool, &mut scratch);
                        if random.below(2) == 0 {
                            segment.recycle(&mut pool);
                            recycled += 1;
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
    assert!(recycled > 0 && grown > 0 && cleared > 0);
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
            let mut found = BTreeMap::new();
            for block in 0..table.scan_blocks() {
                let rows = table.scan(block);
                for row in 0..rows.len() {
                    let at = |word| rows.word(row, word);
                    let sum = read_i128(at(slots[0].word), at(slots[0].word + 1));
                    let (word, bit) = layout.seen(slots[0]).expect("the sum may stay empty");
                    let seen = at(word) & bit != 0;
                    let all = (sum, at(slots[1].word), at(slots[2].word), seen);
                    assert!(found.insert(at(0), all).is_none(), "{} stands twice", at(0));
                }
            }
            assert_eq!(found, expected, "{share} in 100, {apart} apart");
        }
    }
}
