//! Stacks windows against a model that adds up every window by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::memory::arena::Arena;
use crate::memory::log::BLOCK_ROWS;
use crate::memory::log::ChunkPool;
use crate::memory::scratch::Scratch;
use crate::table::key::{Keys, NoVarKeys, VarKeys};
use crate::table::keyed::Table;
use crate::table::layout::ValueSlot;
use crate::table::rows::RowsRef;
use crate::table::segment::Sources;
use crate::table::value::{Block, read_bytes};
use crate::values::kind::ValueKind;
use crate::{hash_bytes, hash_words};

/// What a key has: how many, their sum, the least, the greatest text, and their sum as doubles.
#[derive(Debug, Clone, PartialEq)]
struct Values {
    count: u64,
    sum: i128,
    least: i64,
    text: Vec<u8>,
    float: f64,
}

fn layout(texts: bool) -> RowLayout {
    let kinds = [ValueKind::Count, ValueKind::SumInt, ValueKind::Min64];
    let mut kinds: Vec<_> = kinds.into_iter().map(|kind| (kind, false)).collect();
    let (mut words, mut vars) = (1, vec![]);
    if texts {
        kinds.extend([(ValueKind::MaxBytes, true), (ValueKind::SumFloat, true)]);
        (words, vars) = (2, vec![1]);
    }
    RowLayout::new(words, vars, &kinds)
}

struct TextKey(Vec<u8>);

impl VarKeys for &TextKey {
    fn bytes(&self, _: usize, _: usize) -> &[u8] {
        &self.0
    }
}

/// A key as bytes of a text of some length.
fn text_of(key: u64) -> Vec<u8> {
    format!("{}-{key}", "k".repeat(key as usize % 40)).into_bytes()
}

/// Adds an input to a table of a pane.
fn add(table: &mut Table, pool: &mut ChunkPool, scratch: &mut Scratch, key: u64, value: i64) {
    let layout = table.layout.clone();
    let slots = layout.values().to_vec();
    let update = |block: &mut Block<'_>| {
        block.count(slots[0], None);
        block.sum_int(slots[1], None, |_| value.into());
        block.extreme64(slots[2], None, |_| value);
        if let [_, _, _, text, float] = slots[..] {
            let bytes = value.to_string().into_bytes();
            block.extreme_bytes(text, None, |_| &bytes);
            // Some are so large that the exact sum takes its wide form.
            block.sum_float(float, None, None, &[float_of(value)]);
        }
    };
    if layout.var_words().is_empty() {
        let keys = Keys { hashes: &[], ahead: &[], words: &[key], vars: NoVarKeys };
        return update(&mut table.update(&keys, pool, scratch));
    }
    let text = text_of(key);
    let words = [hash_bytes(&text), (text.len() as u64) << 32];
    let hashes = [hash_words(&words)];
    let key = TextKey(text);
    let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: &key };
    update(&mut table.update(&keys, pool, scratch));
}

fn float_of(value: i64) -> f64 {
    if value % 5 == 0 { value as f64 * 1e250 } else { value as f64 / 8.0 }
}

/// The sum of doubles that are added in ascending order of their sizes is exact enough here: the
/// same sum in the same order is expected, so the model uses the same exact sum.
fn model(inputs: &[i64], texts: bool) -> Values {
    let best = inputs.iter().map(|v| v.to_string().into_bytes()).max().unwrap();
    Values {
        count: inputs.len() as u64,
        sum: inputs.iter().map(|v| i128::from(*v)).sum(),
        least: *inputs.iter().min().unwrap(),
        text: if texts { best } else { vec![] },
        float: if texts { exact_sum(inputs) } else { 0.0 },
    }
}

/// Large and small inputs are multiples of powers of two that do not meet: the large ones decide.
fn exact_sum(inputs: &[i64]) -> f64 {
    let mut arena = Arena::default();
    let mut words = [0; 3];
    inputs.iter().for_each(|v| crate::values::float_sum::add(&mut words, &mut arena, float_of(*v)));
    crate::values::float_sum::finish(words, &arena)
}

/// What is read of a window.
fn window(stacks: &mut Stacks, texts: bool, keys: u64) -> BTreeMap<u64, Values> {
    let mut found = BTreeMap::new();
    let names: BTreeMap<Vec<u8>, u64> = (0..keys).map(|key| (text_of(key), key)).collect();
    for block in 0..stacks.read_blocks() {
        let mut output = RowCopies::default();
        let rows = read(stacks, block, &mut output);
        let slots = rows.layout().values().to_vec();
        for row in 0..rows.len() {
            let at = |slot: ValueSlot, word: usize| rows.word(row, slot.word + word);
            let key = match texts {
                true => names[rows.bytes(rows.word(row, 1))],
                false => rows.word(row, 0),
            };
            let mut values = Values {
                count: at(slots[0], 0),
                sum: crate::read_i128(at(slots[1], 0), at(slots[1], 1)),
                least: at(slots[2], 0) as i64,
                text: vec![],
                float: 0.0,
            };
            if texts {
                values.text = read_bytes(at(slots[3], 0), rows.arena()).unwrap().to_vec();
                let words = [0, 1, 2].map(|word| at(slots[4], word));
                values.float = crate::values::float_sum::finish(words, rows.arena());
            }
            assert!(found.insert(key, values).is_none(), "a key twice");
        }
    }
    stacks.end(true);
    found
}

/// The rows of a block.
fn read<'a>(stacks: &'a mut Stacks, block: usize, output: &'a mut RowCopies) -> RowsRef<'a> {
    let to = To { moves: stacks.live.layout.uses_arena(), mark: None };
    stacks.read(block, output, to);
    RowsRef::of_words(&output.words, &output.arena, &stacks.live.layout)
}

/// Gives all rows of a pane.
fn absorb(stacks: &mut Stacks, pane: i64, table: &Table) {
    for chunk in table.log.chunks() {
        let rows = Sources::new(chunk, 0, &table.layout);
        stacks.absorb(pane, rows, chunk.rows(), &table.arena);
    }
}

/// Random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Windows beside their model.
struct Run {
    texts: bool,
    keys: u64,
    panes: i64,
    layout: Arc<RowLayout>,
    stacks: Stacks,
    pool: ChunkPool,
    scratch: Scratch,
    newest: i64,
    /// By pane: keys, inputs, and from which window on they count.
    inputs: BTreeMap<i64, Vec<(u64, i64, i64)>>,
}

impl Run {
    fn new(texts: bool, random: &mut Random) -> Run {
        let layout = Arc::new(layout(texts));
        Run {
            texts,
            keys: [3, 40, 1500][random.below(3) as usize],
            panes: [2, 3, 5, 16, 60][random.below(5) as usize],
            stacks: Stacks::new(layout.clone(), true, 1 << 20),
            pool: ChunkPool::new(layout.row_words(), 0, None),
            layout,
            scratch: Scratch::default(),
            newest: [0, -5, i64::from(u32::MAX) - 20][random.below(3) as usize],
            inputs: BTreeMap::new(),
        }
    }

    fn first(&self) -> i64 {
        self.newest - self.panes + 1
    }

    fn begin(&mut self) {
        self.stacks.begin(self.first(), self.newest);
        while self.stacks.prepare() {}
    }

    /// Gives so many rows of a pane, of some keys that come often and some that come once.
    fn give(&mut self, pane: i64, rows: u64, random: &mut Random) {
        let now = self.newest.unsigned_abs();
        let keys = (0..rows).map(|_| {
            let key = if random.below(3) == 0 { random.below(self.keys) } else { now % self.keys };
            let key = if random.below(4) == 0 { (key + now) % self.keys } else { key };
            (key, random.below(1000) as i64 - 500)
        });
        let inputs: Vec<_> = keys.collect();
        self.give_inputs(pane, &inputs);
    }

    /// Gives a pane inputs of keys.
    fn give_inputs(&mut self, pane: i64, inputs: &[(u64, i64)]) {
        let (mut table, first) = (Table::new(self.layout.clone()), self.first());
        for (key, value) in inputs {
            add(&mut table, &mut self.pool, &mut self.scratch, *key, *value);
            self.inputs.entry(pane).or_default().push((*key, *value, first));
        }
        absorb(&mut self.stacks, pane, &table);
    }

    /// Compares the window with what its panes have; returns how many keys it has.
    fn check(&mut self) -> usize {
        let first = self.first();
        let mut expected: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        for (key, value, from) in self.inputs.range(first..=self.newest).flat_map(|(_, r)| r) {
            if *from <= first {
                expected.entry(*key).or_default().push(*value);
            }
        }
        let found = window(&mut self.stacks, self.texts, self.keys);
        for (key, inputs) in &expected {
            let values = model(inputs, self.texts);
            assert_eq!(found.get(key), Some(&values), "key {key} of window {first}");
        }
        assert_eq!(found.len(), expected.len());
        found.len()
    }
}

/// Random panes, some of them empty, holes, keys that come once or in all panes, and rows that
/// come late, for a pane before the newest.
#[test]
fn every_window_has_what_its_panes_have() {
    let mut random = Random(11);
    let (mut read, mut late, mut rebuilt) = (0, 0, 0);
    for round in 0..200 {
        let mut run = Run::new(round % 2 == 0, &mut random);
        for _ in 0..3 * run.panes.min(12) + 5 {
            let hole = random.below(10) == 0;
            let step = if hole { random.below(2 * run.panes as u64 + 2) as i64 } else { 0 };
            run.newest += 1 + step;
            let had_rows = run.stacks.rows();
            run.begin();
            rebuilt += usize::from(run.stacks.rows() < had_rows);
            for pane in run.first()..run.newest {
                if random.below(run.panes as u64) == 0 {
                    let rows = random.below(20);
                    run.give(pane, rows, &mut random);
                    late += 1;
                }
            }
            let rows = if random.below(5) == 0 { 0 } else { random.below(2 * run.keys) };
            run.give(run.newest, rows, &mut random);
            read += run.check();
        }
        // Windows without new panes: in the end nothing is left.
        for _ in 0..run.panes {
            run.newest += 1;
            run.begin();
            run.check();
        }
        assert!(run.stacks.is_empty(), "round {round}");
    }
    assert!(read > 50_000 && late > 500 && rebuilt > 20, "{read} {late} {rebuilt}");
}

/// Keys that come in every pane, of which half are others after a while: rows are left behind, and
/// what panes have follows.
#[test]
fn values_of_panes_follow_when_rows_are_left_behind() {
    let mut random = Random(5);
    for texts in [false, true] {
        let mut run = Run { texts, keys: 4_900, panes: 5, ..Run::new(texts, &mut random) };
        let mut rebuilt = 0;
        for generation in 0..6 {
            for _ in 0..8 {
                run.newest += 1;
                let had_rows = run.stacks.rows();
                run.begin();
                rebuilt += usize::from(run.stacks.rows() < had_rows);
                let late: Vec<_> = (0..3).map(|i| (700 * generation + 7 * i, 40)).collect();
                run.give_inputs(run.newest - 3, &late);
                let keys = 700 * generation..700 * (generation + 2);
                let inputs: Vec<_> = keys.map(|key| (key, random.below(90) as i64)).collect();
                run.give_inputs(run.newest, &inputs);
                assert!(run.check() >= 1_400);
            }
        }
        assert!(rebuilt > 3, "{rebuilt}");
    }
}

/// Keys of which none comes twice: what is kept takes little more than the tables of the panes,
/// also where rows are short.
#[test]
fn unique_keys_take_little_more_than_their_panes() {
    // Whole chunks, so that the panes' tables have no room to spare for rows.
    let (panes, keys) = (60, 8_192);
    let count = RowLayout::new(1, vec![], &[(ValueKind::Count, false)]);
    for layout in [layout(false), count] {
        let layout = Arc::new(layout);
        let mut stacks = Stacks::new(layout.clone(), true, 0);
        let mut pool = ChunkPool::new(layout.row_words(), 0, None);
        let mut scratch = Scratch::default();
        let (mut panes_bytes, mut peak, mut key) = (0, 0, 0u64);
        for pane in 0..4 * panes {
            let mut table = Table::new(layout.clone());
            for _ in 0..keys / BLOCK_ROWS {
                // No integers in a dense range.
                let words = [(); BLOCK_ROWS].map(|()| {
                    key += 1;
                    hash_words(&[key])
                });
                let keys = Keys { hashes: &[], ahead: &[], words: &words, vars: NoVarKeys };
                table.update(&keys, &mut pool, &mut scratch).count(layout.values()[0], None);
            }
            // What the panes of a window take, each as a table of its own.
            panes_bytes = panes_bytes.max(panes as usize * table.bytes());
            stacks.begin(pane - panes + 1, pane);
            while stacks.prepare() {
                peak = peak.max(stacks.bytes());
            }
            absorb(&mut stacks, pane, &table);
            peak = peak.max(stacks.bytes());
            let mut rows = 0;
            for block in 0..stacks.read_blocks() {
                let mut output = RowCopies::default();
                rows += read(&mut stacks, block, &mut output).len();
                peak = peak.max(stacks.bytes() + output.bytes());
            }
            assert_eq!(rows, (pane + 1).min(panes) as usize * keys);
            stacks.end(true);
        }
        assert!(peak > panes_bytes / 2);
        assert!(2 * peak <= 3 * panes_bytes, "{peak} bytes for panes of {panes_bytes}");
    }
}

/// Keys that come in every pane: for each a row, and no more than a value in each pane.
#[test]
fn keys_that_come_always_take_a_value_in_each_pane() {
    let (panes, keys) = (60, 5_000);
    let layout = Arc::new(layout(false));
    let mut stacks = Stacks::new(layout.clone(), true, 0);
    let (mut pool, mut scratch) = (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
    for pane in 0..3 * panes {
        let mut table = Table::new(layout.clone());
        (0..keys).for_each(|key| add(&mut table, &mut pool, &mut scratch, key, 1));
        stacks.begin(pane - panes + 1, pane);
        while stacks.prepare() {}
        absorb(&mut stacks, pane, &table);
        let blocks = 0..stacks.read_blocks();
        let read = |block| read(&mut stacks, block, &mut RowCopies::default()).len();
        let rows: usize = blocks.map(read).sum();
        assert_eq!(rows, keys as usize);
        stacks.end(true);
    }
    // Beside its values, an entry has two words.
    let entries = (panes as usize + 4) * keys as usize * 8 * (layout.template().len() + 2);
    let bytes = stacks.bytes();
    assert!(4 * bytes < 5 * entries, "{bytes} bytes, {entries} of entries");
}
