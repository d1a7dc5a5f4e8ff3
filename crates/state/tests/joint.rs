//! Tests of joint tables against a plain map. Whatever comes for any leader, is sealed, and is
//! merged from others, each leader ends up with the rows of a sequential run.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_state::*;

use support::Random;

/// What rows are like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// Whole numbers close together: slots.
    Close,
    /// Whole numbers far apart: buckets.
    Apart,
    /// One word each, and a long row.
    Long,
    Pair,
    Text,
    /// No key: all records are one group.
    Whole,
}

const SHAPES: [Shape; 6] =
    [Shape::Close, Shape::Apart, Shape::Long, Shape::Pair, Shape::Text, Shape::Whole];

struct Names(Vec<String>);

impl VarKeys for Names {
    fn bytes(&self, row: usize, _: usize) -> &[u8] {
        self.0[row].as_bytes()
    }
}

fn name(key: u64) -> String {
    format!("{key:0>width$}", width = (key % 20) as usize)
}

impl Shape {
    fn layout(self) -> Arc<RowLayout> {
        let (words, vars) = match self {
            Shape::Close | Shape::Apart | Shape::Long => (1, vec![]),
            Shape::Pair => (2, vec![]),
            Shape::Text => (2, vec![1]),
            Shape::Whole => (0, vec![]),
        };
        let values =
            [(ValueKind::Count, false), (ValueKind::SumFloat, false), (ValueKind::MinBytes, true)];
        // Of one word, of a few, and of more than any fast path is for.
        let values = match self {
            Shape::Close | Shape::Apart => &values[..1],
            Shape::Pair | Shape::Whole => &values[..2],
            Shape::Long | Shape::Text => &values[..],
        };
        Arc::new(RowLayout::new(words, vars, values))
    }

    fn words(self, key: u64) -> Vec<u64> {
        match self {
            Shape::Close | Shape::Long => vec![key],
            Shape::Apart => vec![key.wrapping_mul(0x9E37_79B9_7F4A_7C15)],
            Shape::Pair => vec![key % 7, key],
            Shape::Text => vec![hash_bytes(name(key).as_bytes()), (name(key).len() as u64) << 32],
            Shape::Whole => vec![],
        }
    }

    fn hash(self, key: u64) -> u64 {
        hash_words(&self.words(key))
    }

    /// What a row stands for.
    fn key_of(self, row: impl Fn(usize) -> u64, bytes: impl Fn(u64) -> Vec<u8>) -> u64 {
        match self {
            Shape::Close | Shape::Long => row(0),
            Shape::Apart => row(0).wrapping_mul(0xF1DE_83E1_9937_733D),
            Shape::Pair => row(1),
            Shape::Text => String::from_utf8(bytes(row(1))).unwrap().parse().unwrap_or(0),
            Shape::Whole => 0,
        }
    }
}

/// Adds to the rows of these keys: a count, a number that makes sums go wide now and then, a text.
fn update(
    table: &mut Table,
    shape: Shape,
    rows: &[(u64, f64)],
    own: Option<Own<'_>>,
    (pool, scratch): (&mut ChunkPool, &mut Scratch),
) {
    let layout = shape.layout();
    for rows in rows.chunks(BLOCK_ROWS) {
        let keys: Vec<u64> = rows.iter().map(|row| row.0).collect();
        let names = keys.iter().map(|key| name(*key)).collect();
        let words: Vec<u64> = keys.iter().flat_map(|key| shape.words(*key)).collect();
        let mut hashes: Vec<u64> = keys.iter().map(|key| shape.hash(*key)).collect();
        if shape == Shape::Close && rows.len().is_multiple_of(2) {
            // There need not be any.
            hashes.clear();
        }
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: Names(names) };
        let mut block = match own {
            Some(own) => table.update_joint(&keys, own, pool, scratch),
            None => table.update(&keys, pool, scratch),
        };
        let values = layout.values();
        block.count(values[0], None);
        if let Some(sum) = values.get(1) {
            let numbers: Vec<f64> = rows.iter().map(|row| row.1).collect();
            block.sum_float(*sum, None, None, &numbers);
        }
        if let Some(least) = values.get(2) {
            let texts: Vec<String> = rows.iter().map(|row| format!("{:?}", row.1)).collect();
            block.extreme_bytes(*least, None, |k| texts[k].as_bytes());
        }
    }
}

type Totals = BTreeMap<u64, (u64, u64, Option<Vec<u8>>)>;

fn read(table: &Table, shape: Shape) -> Totals {
    let layout = shape.layout();
    let mut all = Totals::new();
    for block in 0..table.scan_blocks() {
        let rows = table.scan(block);
        for row in 0..rows.len() {
            let word = |word| rows.word(row, word);
            let key = shape.key_of(word, |at| rows.bytes(at).to_vec());
            let value = |number: usize| layout.values().get(number).map(|value| value.word);
            let sum = value(1).map_or(0, |at| {
                float_sum::finish([0, 1, 2].map(|i| word(at + i)), rows.arena()).to_bits()
            });
            let least =
                value(2).and_then(|at| read_bytes(word(at), rows.arena()).map(<[u8]>::to_vec));
            let count = word(value(0).unwrap());
            assert!(all.insert(key, (count, sum, least)).is_none(), "{key} stands twice");
        }
    }
    all
}

#[test]
// tidy: long function: one run, from what is drawn to what came of it
fn each_leader_gets_what_a_sequential_run_has() {
    let (mut sealed, mut parted, mut reused) = (0, 0, 0);
    for seed in 1..400u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let shape = SHAPES[(seed % 6) as usize];
        let count = [2, 3, 5][random.below(3) as usize];
        let (leaders, layout) = (Leaders::even(count), shape.layout());
        let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
        let mut scratch = Scratch::default();
        let tools = &mut (&mut pool, &mut scratch);
        let mut tables: Vec<Table> = (0..count).map(|_| Table::new(layout.clone())).collect();
        // Windows, in each of which tables are used again.
        for window in 0..3 {
            let mut expected: Vec<Table> = (0..count).map(|_| Table::new(layout.clone())).collect();
            let mut on_their_way: Vec<(usize, Segment)> = Vec::new();
            let keys = [3, 300, 5_000][random.below(3) as usize];
            let first = random.below(3) * 1_000_000;
            for _ in 0..random.below(12) {
                let worker = random.below(count as u64) as usize;
                match random.below(4) {
                    0 => {
                        let others = tables[worker].other_rows();
                        let segments = tables[worker].seal_others(&leaders, tools.0, tools.1);
                        assert_eq!(tables[worker].other_rows(), 0);
                        let rows: usize = segments.iter().map(|(_, s)| s.rows()).sum();
                        assert_eq!(rows, others);
                        sealed += usize::from(others > 0);
                        parted += usize::from(segments.len() > 1);
                        on_their_way.extend(segments);
                    }
                    1 => {
                        for (leader, segment) in on_their_way.drain(..) {
                            tables[leader].merge(&segment, tools.0, tools.1);
                            segment.recycle(tools.0);
                        }
                    }
                    _ => {
                        let rows = random.below(3_000) as usize;
                        let number = |random: &mut Random| match random.below(1_000) {
                            0 if seed % 3 == 0 => 1e300,
                            n => n as f64 * 0.1,
                        };
                        let rows: Vec<_> = (0..rows)
                            .map(|_| (first + random.below(keys), number(&mut random)))
                            .collect();
                        for (leader, table) in expected.iter_mut().enumerate() {
                            let theirs =
                                |row: &&(u64, f64)| leaders.of(shape.hash(row.0)) == leader;
                            let theirs: Vec<_> = rows.iter().filter(theirs).copied().collect();
                            update(table, shape, &theirs, None, (tools.0, tools.1));
                        }
                        // Some of it not jointly: the worker's own.
                        let mine = |row: &&(u64, f64)| leaders.of(shape.hash(row.0)) == worker;
                        if random.below(4) > 0 {
                            let own = Some(leaders.own(worker));
                            update(&mut tables[worker], shape, &rows, own, (tools.0, tools.1));
                        } else {
                            let own: Vec<_> = rows.iter().filter(mine).copied().collect();
                            update(&mut tables[worker], shape, &own, None, (tools.0, tools.1));
                            let other = |row: &&(u64, f64)| !mine(row);
                            let others: Vec<_> = rows.iter().filter(other).copied().collect();
                            for leader in (0..count).filter(|leader| *leader != worker) {
                                let theirs =
                                    |row: &&(u64, f64)| leaders.of(shape.hash(row.0)) == leader;
                                let theirs: Vec<_> =
                                    others.iter().filter(theirs).copied().collect();
                                let mut fragment = Table::new(layout.clone());
                                update(&mut fragment, shape, &theirs, None, (tools.0, tools.1));
                                on_their_way.push((leader, fragment.seal()));
                            }
                        }
                    }
                }
            }
            for table in &mut tables {
                on_their_way.extend(table.seal_others(&leaders, tools.0, tools.1));
            }
            for (leader, segment) in on_their_way.drain(..) {
                tables[leader].merge(&segment, tools.0, tools.1);
                segment.recycle(tools.0);
            }
            for (leader, table) in tables.iter_mut().enumerate() {
                let what =
                    format!("seed {seed}, {shape:?}, window {window}, leader {leader} of {count}");
                assert_eq!(read(table, shape), read(&expected[leader], shape), "{what}");
                assert_eq!(table.rows(), expected[leader].rows(), "{what}");
                table.clear(tools.0);
                reused += usize::from(window > 0);
            }
        }
    }
    assert!(sealed > 300 && parted > 50 && reused > 100);
}

/// Segments are merged beside rows of other leaders, into a table that no near cache holds.
#[test]
fn large_segments_are_merged_by_joint_tables() {
    for (shape, count) in [(Shape::Close, 2), (Shape::Apart, 2), (Shape::Apart, 3)] {
        let (leaders, layout) = (Leaders::even(count), shape.layout());
        let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
        let mut scratch = Scratch::default();
        let keys = 400_000;
        let row = |key: u64| (key, 1.0);
        let is_own = |key: &u64| leaders.of(shape.hash(*key)) == 1;
        let (mut table, mut helper) = (Table::new(layout.clone()), Table::new(layout.clone()));
        // Of all leaders, a tenth of the keys; then what another worker has for this one; then all
        // again.
        let tenth: Vec<_> = (0..keys).step_by(10).map(row).collect();
        let own: Vec<_> = (0..keys).filter(is_own).filter(|key| key % 10 > 0).map(row).collect();
        let all: Vec<_> = (0..keys).map(row).collect();
        let own_keys = Some(leaders.own(1));
        update(&mut table, shape, &tenth, own_keys, (&mut pool, &mut scratch));
        update(&mut helper, shape, &own, None, (&mut pool, &mut scratch));
        assert!(table.other_rows() > 1_000);
        table.merge(&helper.seal(), &mut pool, &mut scratch);
        update(&mut table, shape, &all, own_keys, (&mut pool, &mut scratch));
        let sealed = table.seal_others(&leaders, &mut pool, &mut scratch);
        update(&mut table, shape, &all, own_keys, (&mut pool, &mut scratch));
        let mut others = BTreeMap::new();
        let more = table.seal_others(&leaders, &mut pool, &mut scratch);
        for (leader, segment) in sealed.into_iter().chain(more) {
            let other = others.entry(leader).or_insert_with(|| Table::new(layout.clone()));
            other.merge(&segment, &mut pool, &mut scratch);
        }
        others.insert(1, table);
        let mut found = 0;
        for (leader, table) in &others {
            for (key, (count, ..)) in read(table, shape) {
                // A tenth of them, and twice all; and once what was merged.
                let expected = 2 + u64::from(key % 10 == 0 || *leader == 1);
                assert_eq!((leaders.of(shape.hash(key)), count), (*leader, expected), "{shape:?}");
                found += 1;
            }
        }
        assert_eq!(found, keys);
    }
}

/// With one other leader, rows are sealed where they stand, and others are found as before.
#[test]
fn rows_of_one_other_leader_are_not_copied() {
    let layout = Shape::Close.layout();
    let (mut pool, mut scratch) =
        (ChunkPool::new(layout.row_words(), 1 << 20, None), Scratch::default());
    let (leaders, mut table) = (Leaders::even(2), Table::new(layout.clone()));
    let rows: Vec<_> = (0..5_000).map(|key| (key, 1.0)).collect();
    for epoch in 1..4 {
        update(&mut table, Shape::Close, &rows, Some(leaders.own(1)), (&mut pool, &mut scratch));
        let (own, others, before) = (table.rows(), table.other_rows(), pool.bytes());
        assert_eq!(own + others, rows.len());
        let mut segments = table.seal_others(&leaders, &mut pool, &mut scratch);
        let (leader, segment) = segments.pop().expect("a segment");
        assert_eq!((leader, segment.rows(), segments.len()), (0, others, 0));
        assert_eq!((pool.bytes(), table.rows(), table.keys_max()), (before, own, rows.len()));
        assert!(read(&table, Shape::Close).values().all(|(count, ..)| *count == epoch));
        segment.recycle(&mut pool);
    }
}

/// Rows held for others have numbers of their own, which run out after some ten thousand epochs.
#[test]
fn numbers_of_other_leaders_rows_start_over() {
    for shape in [Shape::Close, Shape::Apart] {
        let layout = shape.layout();
        let (mut pool, mut scratch) =
            (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
        let (leaders, mut table) = (Leaders::even(2), Table::new(layout.clone()));
        let key_of = |leader| (0..).find(|key| leaders.of(shape.hash(*key)) == leader).unwrap();
        let rows = [(key_of(0), 1.0), (key_of(1), 1.0), (key_of(0), 1.0)];
        const EPOCHS: u64 = 70_000;
        for _ in 0..EPOCHS {
            update(&mut table, shape, &rows, Some(leaders.own(1)), (&mut pool, &mut scratch));
            let (_, segment) = table.seal_others(&leaders, &mut pool, &mut scratch).pop().unwrap();
            assert_eq!(segment.rows(), 1);
            let mut leader = Table::new(layout.clone());
            leader.merge(&segment, &mut pool, &mut scratch);
            segment.recycle(&mut pool);
            assert_eq!(read(&leader, shape)[&rows[0].0].0, 2);
        }
        assert_eq!(read(&table, shape)[&rows[1].0].0, EPOCHS);
    }
}

/// What is held for others needs room of its own, and leaves none behind.
#[test]
fn small_tables_take_room_for_their_own_rows() {
    let (shape, leaders) = (Shape::Apart, Leaders::even(4));
    let layout = shape.layout();
    let (mut pool, mut scratch) = (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
    let rows: Vec<_> = (0..100).map(|key| (key, 1.0)).collect();
    let own: Vec<_> =
        rows.iter().filter(|row| leaders.of(shape.hash(row.0)) == 1).copied().collect();
    let (mut table, mut plain) = (Table::new(layout.clone()), Table::new(layout.clone()));
    update(&mut plain, shape, &own, None, (&mut pool, &mut scratch));
    update(&mut table, shape, &rows, Some(leaders.own(1)), (&mut pool, &mut scratch));
    table.seal_others(&leaders, &mut pool, &mut scratch);
    let rows_of = |table: &Table| table.bytes() - table.index_bytes();
    assert!(rows_of(&table) < rows_of(&plain) + 200, "{} {}", rows_of(&table), rows_of(&plain));
}

/// What the rows of other leaders refer to, texts and sums that are wide, leaves with them: a table
/// that is sealed again and again has what a sequential run has, and takes little more.
#[test]
fn what_sealed_rows_refer_to_does_not_stay() {
    // Few keys for many epochs; and so many that what the own rows refer to moves out of several
    // chunks.
    let cases = [
        (Shape::Text, 2, 2_000),
        (Shape::Text, 4, 2_000),
        (Shape::Long, 2, 2_000),
        (Shape::Text, 2, 20_000),
        (Shape::Long, 2, 20_000),
    ];
    for (shape, count, keys_max) in cases {
        let (leaders, layout) = (Leaders::even(count), shape.layout());
        let (mut pool, mut scratch) =
            (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
        let (mut table, mut expected) = (Table::new(layout.clone()), Table::new(layout.clone()));
        // What is sealed is now more than what stays, now less.
        let few = |key: &u64| leaders.of(shape.hash(*key)) == 1 || key.is_multiple_of(50);
        let (mut most, mut moved) = (0, 0);
        for epoch in 0..200_000 / keys_max {
            let keys = (0..keys_max).filter(|key| epoch % 3 == 0 || few(key));
            // Texts become less from epoch to epoch, and longer or shorter.
            let number = |key: u64| match key % 8 {
                0 => 1e300 / (epoch + 1) as f64,
                _ => 1.0 / (epoch + 1) as f64,
            };
            let rows: Vec<_> = keys.map(|key| (key, number(key))).collect();
            let own: Vec<_> =
                rows.iter().filter(|row| leaders.of(shape.hash(row.0)) == 1).copied().collect();
            update(&mut table, shape, &rows, Some(leaders.own(1)), (&mut pool, &mut scratch));
            update(&mut expected, shape, &own, None, (&mut pool, &mut scratch));
            let before = table.live_bytes();
            let segments = table.seal_others(&leaders, &mut pool, &mut scratch);
            let sealed: usize = segments.iter().map(|(_, segment)| segment.rows()).sum();
            assert_eq!(sealed, rows.len() - own.len());
            if table.live_bytes() < before {
                moved += 1;
                // A chunk is a block to read.
                let chunks = table.scan_blocks();
                assert_eq!(chunks > 1, keys_max == 20_000, "{shape:?}: {chunks} chunks");
            }
            if epoch < 10 {
                most = most.max(table.bytes());
            }
            let what = format!("{shape:?}, {count} leaders, epoch {epoch}");
            let (live, own) = (table.live_bytes(), expected.live_bytes());
            assert!(2 * live <= 3 * own, "{what}: {live} bytes, of which {own} are its own");
            assert!(table.bytes() <= 2 * most, "{what}: {} bytes, {most} before", table.bytes());
            assert_eq!(read(&table, shape), read(&expected, shape), "{what}");
        }
        assert!(moved > 3, "{shape:?}, {count} leaders, {keys_max} keys: moved {moved} times");
        table.clear(&mut pool);
        assert_eq!(table.arena_bytes_of_row(), 0);
    }
}

/// Whatever the hashes that come with keys: a row finds the room that has been made for it.
#[test]
fn a_key_that_comes_often_goes_where_its_hash_says() {
    let (shape, leaders) = (Shape::Apart, Leaders::even(2));
    let layout = shape.layout();
    let (mut pool, mut scratch) = (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
    for leader in [0, 1] {
        // Its true hash is the other leader's.
        let key = (0..).find(|key| leaders.of(shape.hash(*key)) != leader).unwrap();
        let other = (0..).find(|key| leaders.of(shape.hash(*key)) == leader).unwrap();
        let hashes = [shape.hash(other); BLOCK_ROWS];
        let words: Vec<u64> = (0..BLOCK_ROWS).flat_map(|_| shape.words(key)).collect();
        let (mut table, own) = (Table::new(layout.clone()), leaders.own(1));
        // Many others, so that it has buckets.
        let rows: Vec<_> = (1_000..2_000).map(|key| (key, 1.0)).collect();
        update(&mut table, shape, &rows, Some(own), (&mut pool, &mut scratch));
        assert!(!table.is_direct());
        let before = (table.other_rows(), table.rows());
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: Names(vec![]) };
        let mut block = table.update_joint(&keys, own, &mut pool, &mut scratch);
        block.count(layout.values()[0], None);
        let after = (before.0 + 1 - leader, before.1 + leader);
        assert_eq!((table.other_rows(), table.rows()), after);
    }
}

/// A table that goes on in another's index, where both are joint before and after: nothing of the
/// other is there, and each leader has its rows.
#[test]
fn a_joint_table_goes_on_in_the_index_of_another() {
    let leaders = Leaders::even(3);
    for shape in [Shape::Apart, Shape::Pair, Shape::Text] {
        let mut pool = ChunkPool::new(shape.layout().row_words(), 1 << 20, None);
        let mut scratch = Scratch::default();
        let mut complete = Table::new(shape.layout());
        for window in 0..4u64 {
            let rows: Vec<(u64, f64)> = (0..30_000).map(|i| (window * 9_000 + i, 1.0)).collect();
            let mut next = Table::new(shape.layout());
            let (own, rest) = rows.split_at(2_000);
            // What it has when it goes on in the other's index is its own.
            let own: Vec<_> =
                own.iter().copied().filter(|row| leaders.of(shape.hash(row.0)) == 0).collect();
            update(&mut next, shape, &own, None, (&mut pool, &mut scratch));
            let taken = next.take_index(&mut complete, &mut pool, &mut scratch);
            assert_eq!(taken, window > 0, "{shape:?}, window {window}");
            for rest in rest.chunks(rest.len() / 2) {
                let own = Some(leaders.own(0));
                update(&mut next, shape, rest, own, (&mut pool, &mut scratch));
                let segments = next.seal_others(&leaders, &mut pool, &mut scratch);
                let sent: usize = segments.iter().map(|(_, segment)| segment.rows()).sum();
                let others = rest.iter().filter(|row| leaders.of(shape.hash(row.0)) != 0);
                assert_eq!(sent, others.count(), "{shape:?}, window {window}");
            }
            let rest = rest.iter().filter(|row| leaders.of(shape.hash(row.0)) == 0).count();
            assert_eq!(next.rows(), own.len() + rest, "{shape:?}, window {window}");
            complete.clear(&mut pool);
            complete = next;
        }
    }
}
