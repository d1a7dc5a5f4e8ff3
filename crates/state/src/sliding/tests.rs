//! Sliding windows against a model that adds up every window by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::arena::Arena;
use crate::key::{Keys, NoVarKeys, VarKeys};
use crate::kind::ValueKind;
use crate::layout::ValueSlot;
use crate::log::ChunkPool;
use crate::scratch::Scratch;
use crate::table::Table;
use crate::value::{Block, read_bytes};
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
            block.sum_float(float, None, None, |_| float_of(value));
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
    inputs.iter().for_each(|v| crate::float_sum::add(&mut words, &mut arena, float_of(*v)));
    crate::float_sum::finish(words, &arena)
}

/// What is read of a window.
fn window(sliding: &mut Sliding, texts: bool, keys: u64) -> BTreeMap<u64, Values> {
    let mut found = BTreeMap::new();
    let names: BTreeMap<Vec<u8>, u64> = (0..keys).map(|key| (text_of(key), key)).collect();
    for block in 0..sliding.read_blocks() {
        let rows = sliding.read(block);
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
                values.float = crate::float_sum::finish(words, rows.arena());
            }
            assert!(found.insert(key, values).is_none(), "a key twice");
        }
    }
    sliding.end(true);
    found
}

/// Random panes, some of them empty, holes, keys that come once or in all panes, and rows that
/// come late, for a pane before the newest.
#[test]
fn every_window_has_what_its_panes_have() {
    let mut state = 11u64;
    let mut below = move |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let (mut read, mut late, mut rebuilt) = (0, 0, 0);
    for round in 0..200 {
        let texts = round % 2 == 0;
        let panes = [2, 3, 5, 16, 60][below(5) as usize] as i64;
        let keys = [3, 40, 1500][below(3) as usize];
        let layout = Arc::new(layout(texts));
        let mut sliding = Sliding::new(layout.clone(), 1 << 20);
        let mut pool = ChunkPool::new(layout.row_words(), 0, None);
        let mut scratch = Scratch::default();
        // By pane and key: the inputs, and from which window on they count.
        let mut inputs: BTreeMap<i64, Vec<(u64, i64, i64)>> = BTreeMap::new();
        let origin = [0, -5, i64::from(u32::MAX) - 20][below(3) as usize];
        let mut newest = origin;
        for _ in 0..3 * panes.min(12) + 5 {
            newest += if below(10) == 0 { 1 + below(2 * panes as u64 + 2) as i64 } else { 1 };
            let first = newest - panes + 1;
            let had_rows = sliding.rows();
            sliding.begin(first, newest);
            while sliding.prepare() {}
            rebuilt += usize::from(sliding.rows() < had_rows);
            let mut take = |pane: i64, rows: u64, below: &mut dyn FnMut(u64) -> u64| {
                let mut table = Table::new(layout.clone());
                for _ in 0..rows {
                    // Some keys are new in every pane.
                    let key =
                        if below(3) == 0 { below(keys) } else { newest.unsigned_abs() % keys };
                    let key =
                        if below(4) == 0 { (key + newest.unsigned_abs()) % keys } else { key };
                    let value = below(1000) as i64 - 500;
                    add(&mut table, &mut pool, &mut scratch, key, value);
                    inputs.entry(pane).or_default().push((key, value, first));
                }
                (0..table.scan_blocks()).for_each(|b| sliding.absorb(pane, &table, b));
            };
            for pane in first..newest {
                if below(panes as u64) == 0 {
                    take(pane, below(20), &mut below);
                    late += 1;
                }
            }
            let rows = if below(5) == 0 { 0 } else { below(2 * keys) };
            take(newest, rows, &mut below);
            let mut expected: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
            for (key, value, from) in inputs.range(first..=newest).flat_map(|(_, rows)| rows) {
                if *from <= first {
                    expected.entry(*key).or_default().push(*value);
                }
            }
            let expected: BTreeMap<u64, Values> =
                expected.iter().map(|(key, inputs)| (*key, model(inputs, texts))).collect();
            let found = window(&mut sliding, texts, keys);
            for (key, values) in &expected {
                assert_eq!(found.get(key), Some(values), "key {key}, round {round}");
            }
            assert_eq!(found.len(), expected.len(), "round {round}");
            read += expected.len();
        }
        // Windows without new panes: in the end nothing is left.
        for _ in 0..panes {
            newest += 1;
            sliding.begin(newest - panes + 1, newest);
            while sliding.prepare() {}
            window(&mut sliding, texts, keys);
        }
        assert!(sliding.is_empty());
    }
    assert!(read > 100_000 && late > 500 && rebuilt > 50, "{read} {late} {rebuilt}");
}
