//! Rows of windows against a model that adds up every window by itself.

use std::collections::BTreeMap;

use super::*;
use crate::memory::hash::{hash_bytes, hash_words};
use crate::memory::log::ChunkPool;
use crate::memory::scratch::Scratch;
use crate::table::key::{Keys, NoVarKeys, VarKeys};
use crate::table::value::read_bytes;
use crate::values::kind::ValueKind;

/// How many inputs, and the greatest text.
type Values = (u64, Vec<u8>);

/// By pane with which the window ends, and key.
type Rows = BTreeMap<(i64, u64), Values>;

/// A key, its pane, and the pane with which its first window ends.
type Input = (u64, i64, i64);

struct TextKey(Vec<u8>);

impl VarKeys for &TextKey {
    fn bytes(&self, _: usize, _: usize) -> &[u8] {
        &self.0
    }
}

fn text_of(key: u64) -> Vec<u8> {
    format!("{}{key}", "t".repeat(key as usize % 17)).into_bytes()
}

/// Random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % bound as u64) as i64
    }
}

/// Packs beside their model.
struct Run {
    overlap: Overlap,
    /// Whether keys and values are texts, and whether slices pack panes.
    texts: bool,
    packed: bool,
    layout: Arc<RowLayout>,
    panes: Panes,
    found: Rows,
    inputs: Vec<Input>,
}

impl Run {
    fn new(overlap: Overlap, texts: bool, packed: bool) -> Run {
        let count = (ValueKind::Count, false);
        // A number and, perhaps, a text; and a pane.
        let pane = usize::from(packed);
        let layout = match texts {
            true => RowLayout::new(2 + pane, vec![1], &[count, (ValueKind::MaxBytes, true)]),
            false => RowLayout::new(1 + pane, vec![], &[count]),
        };
        let layout = Arc::new(layout);
        let panes = Panes::new(layout.clone(), overlap, packed, 1 << 20);
        Run { overlap, texts, packed, layout, panes, found: Rows::new(), inputs: Vec::new() }
    }

    /// The last pane with which windows end that have a pane.
    fn last_end(&self, pane: i64) -> i64 {
        match self.overlap {
            Overlap::Hop(count) => pane + count - 1,
            Overlap::Cumulate(count) => pane - pane.rem_euclid(count) + count - 1,
        }
    }

    fn table_of(&self, inputs: &[Input]) -> Table {
        let mut table = Table::new(self.layout.clone());
        let mut pool = ChunkPool::new(self.layout.row_words(), 1 << 20, None);
        let (mut scratch, slots) = (Scratch::default(), self.layout.values().to_vec());
        let width = self.layout.key_words();
        for (key, pane, _) in inputs {
            if self.texts {
                let text = TextKey(text_of(*key));
                let words = [hash_bytes(&text.0), (text.0.len() as u64) << 32, *pane as u64];
                let words = &words[..width];
                let hashes = [hash_words(words)];
                let keys = Keys { hashes: &hashes, ahead: &[], words, vars: &text };
                let mut block = table.update(&keys, &mut pool, &mut scratch);
                block.count(slots[0], None);
                let greatest = pane_text(*pane);
                block.extreme_bytes(slots[1], None, |_| &greatest);
            } else {
                let words = [*key, *pane as u64];
                let words = &words[..width];
                let hashes = [hash_words(words)];
                let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
                table.update(&keys, &mut pool, &mut scratch).count(slots[0], None);
            }
        }
        table
    }

    /// Makes the windows that end with the pane `last` or before, of two tables of inputs.
    fn fire(&mut self, tables: [&[Input]; 2], last: i64, random: &mut Random) {
        let packed = self.packed;
        let from = |table: usize, pane: i64| {
            let same = tables[table].iter().find(|input| !packed || input.1 == pane);
            let same = same.expect("an input of this pane");
            [same.1, same.2]
        };
        self.panes.begin(tables.iter().map(|table| self.table_of(table)).collect());
        self.inputs.extend(tables.into_iter().flatten());
        loop {
            while !self.panes.is_full() && !self.panes.are_made(last) {
                let pane_of = |table: usize, word: u64| from(table, word as i64);
                self.panes.go_on(last, 1 + random.below(300) as usize, &pane_of);
            }
            if self.panes.ready().is_empty() {
                break;
            }
            self.read(last);
            self.panes.clear_ready();
        }
        let read = self.panes.read_slices().len();
        assert_eq!(read + self.panes.end(last, true).len(), tables.len());
    }

    /// Reads what is ready: windows come in their order.
    fn read(&mut self, last: i64) {
        let (rows, word) = (self.panes.ready(), self.layout.key_words() - 1);
        assert!(rows.len() <= CHUNK_ROWS);
        for row in 0..rows.len() {
            let end = if self.packed { rows.word(row, word) as i64 } else { last };
            let newest = self.found.last_key_value().map_or(end, |((end, _), _)| *end);
            assert!(newest <= end && end <= last, "{newest} and {end} before {last}");
            let [count, text] = [0, 1].map(|n| self.layout.values().get(n).map(|slot| slot.word));
            let count = rows.word(row, count.expect("a count"));
            let (key, text) = match text {
                None => (rows.word(row, 0), vec![]),
                Some(text) => {
                    let key = String::from_utf8(rows.bytes(rows.word(row, 1)).to_vec()).unwrap();
                    let text = read_bytes(rows.word(row, text), rows.arena()).unwrap();
                    (key.trim_start_matches('t').parse().unwrap(), text.to_vec())
                }
            };
            assert_eq!(self.found.insert((end, key), (count, text)), None, "{key} of {end} twice");
        }
    }

    /// What there should be of the windows that end with the pane `last` or before.
    fn expected(&self, last: i64) -> Rows {
        let mut rows = Rows::new();
        for (key, pane, first) in &self.inputs {
            for end in *first..=self.last_end(*pane).min(last) {
                let (count, text) = rows.entry((end, *key)).or_default();
                *count += 1;
                if self.texts {
                    *text = pane_text(*pane).max(std::mem::take(text));
                }
            }
        }
        rows
    }
}

fn pane_text(pane: i64) -> Vec<u8> {
    format!("{}{pane}", "p".repeat(pane.unsigned_abs() as usize % 5)).into_bytes()
}

/// Windows wider than packs and narrower, packs without rows, few keys and many, and records that
/// are late for the first windows of their pane.
#[test]
fn every_window_has_the_rows_of_its_panes() {
    let (mut random, mut late, mut read) = (Random(7), 0, 0);
    for round in 0..120 {
        let count = [2, 3, 17, 40][round % 4];
        let overlap = if round % 8 < 4 { Overlap::Hop(count) } else { Overlap::Cumulate(count) };
        let mut run = Run::new(overlap, round % 3 == 0, true);
        let pack = 1 + random.below(20);
        let keys = [2, 50, 3000][random.below(3) as usize];
        for number in -3..9 {
            let pane = |random: &mut Random| number * pack + random.below(pack);
            let rows = [0, 3, 40, 700][random.below(4) as usize];
            let inputs: Vec<Input> = (0..rows)
                .map(|_| {
                    let pane = pane(&mut random);
                    (random.below(keys) as u64, pane, pane)
                })
                .collect();
            // Of a pane before, all of them late for as many windows, the first of which ends with
            // this pack.
            let first = pane(&mut random);
            let of_late = first - 1 - random.below(count);
            let is_left = first <= run.last_end(of_late);
            let rows = if is_left { random.below(20) } else { 0 };
            let behind: Vec<Input> =
                (0..rows).map(|_| (random.below(keys) as u64, of_late, first)).collect();
            late += rows;
            run.fire([&inputs, &behind], (number + 1) * pack - 1, &mut random);
        }
        let last = 9 * pack + 2 * count;
        run.fire([&[], &[]], last, &mut random);
        assert!(run.panes.is_empty(), "round {round}");
        let expected = run.expected(last);
        assert_eq!(run.found.len(), expected.len(), "round {round}, {overlap:?}");
        for (row, values) in &expected {
            assert_eq!(run.found.get(row), Some(values), "round {round}, {overlap:?}, {row:?}");
        }
        read += expected.len();
    }
    assert!(late > 1_000 && read > 500_000, "{late} {read}");
}

/// The same of slices of one pane, each of which is given with the first window that needs it.
#[test]
fn every_window_has_the_rows_of_slices_of_one_pane() {
    let (mut random, mut late, mut read) = (Random(9), 0, 0);
    for round in 0..80 {
        let count = [2, 3, 17, 40][round % 4];
        let overlap = if round % 8 < 4 { Overlap::Hop(count) } else { Overlap::Cumulate(count) };
        let mut run = Run::new(overlap, round % 3 == 0, false);
        let keys = [2, 50, 3000][random.below(3) as usize];
        let draw = |random: &mut Random, most: i64, pane: i64, first: i64| -> Vec<Input> {
            let rows = random.below(most);
            (0..rows).map(|_| (random.below(keys) as u64, pane, first)).collect()
        };
        for pane in -20..60 {
            let most = [1, 30, 700][random.below(3) as usize];
            let inputs = draw(&mut random, most, pane, pane);
            let of_late = pane - 1 - random.below(count);
            let is_left = pane <= run.last_end(of_late);
            let behind = draw(&mut random, if is_left { 20 } else { 1 }, of_late, pane);
            late += behind.len();
            run.fire([&behind, &inputs], pane, &mut random);
        }
        let last = 60 + 2 * count;
        (60..=last).for_each(|pane| run.fire([&[], &[]], pane, &mut random));
        assert!(run.panes.is_empty(), "round {round}");
        let expected = run.expected(last);
        assert!(run.found == expected, "round {round}, {overlap:?}");
        read += expected.len();
    }
    assert!(late > 1_000 && read > 500_000, "{late} {read}");
}

/// What is left of a pack that nobody wants does not come out with the next.
#[test]
fn what_is_forgotten_is_of_no_window() {
    let mut run = Run::new(Overlap::Hop(4), false, true);
    let inputs: Vec<Input> = (0..10).map(|pane| (7, pane, pane)).collect();
    run.panes.begin(vec![run.table_of(&inputs)]);
    run.panes.go_on(9, 60, &|_, pane| [pane as i64; 2]);
    assert!(!run.panes.are_made(9) && !run.panes.is_empty());
    assert_eq!(run.panes.end(9, true).len(), 1);
    run.panes.begin(vec![]);
    assert!(run.panes.is_empty() && run.panes.are_made(19));
    run.fire([&[(7, 20, 20)], &[]], 30, &mut Random(1));
    assert_eq!(run.found, (20..24).map(|end| ((end, 7), (1, vec![]))).collect());
}
