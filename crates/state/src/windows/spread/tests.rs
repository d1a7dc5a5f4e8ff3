//! Rows of windows against a model that adds up every window by itself.

use std::collections::BTreeMap;

use super::*;
use crate::memory::hash::hash_words;
use crate::table::key::{Keys, NoVarKeys};
use crate::table::value::read_bytes;
use crate::values::kind::ValueKind;

/// How many inputs, and the greatest text.
type Values = (u64, Vec<u8>);

/// Keys are two words: a number and a pane.
fn layout() -> Arc<RowLayout> {
    let kinds = [(ValueKind::Count, false), (ValueKind::MaxBytes, true)];
    Arc::new(RowLayout::new(2, vec![], &kinds))
}

/// A table of the inputs of some panes.
fn table_of(layout: &Arc<RowLayout>, inputs: &[(u64, i64)]) -> Table {
    let mut table = Table::new(layout.clone());
    let mut pool = ChunkPool::new(layout.row_words(), 0, None);
    let mut scratch = Scratch::default();
    for (key, pane) in inputs {
        let words = [*key, *pane as u64];
        let hashes = [hash_words(&words)];
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: NoVarKeys };
        let mut block = table.update(&keys, &mut pool, &mut scratch);
        block.count(layout.values()[0], None);
        let text = text_of(*key, *pane);
        block.extreme_bytes(layout.values()[1], None, |_| &text);
    }
    table
}

fn text_of(key: u64, pane: i64) -> Vec<u8> {
    format!("{}{pane}", "t".repeat(key as usize % 7)).into_bytes()
}

/// Reads what is ready into `windows`, which has none of these rows.
fn read(spread: &Spread, layout: &RowLayout, windows: &mut BTreeMap<(i64, u64), Values>) {
    for block in 0..spread.ready_blocks() {
        let rows = spread.ready(block);
        for row in 0..rows.len() {
            let [count, text] = [0, 1].map(|n| rows.word(row, layout.values()[n].word));
            let text = read_bytes(text, rows.arena()).unwrap_or_default().to_vec();
            let window = (rows.word(row, 1) as i64, rows.word(row, 0));
            assert_eq!(windows.insert(window, (count, text)), None, "{window:?} twice");
        }
    }
}

/// Packs of 12 panes, windows of up to 4 of them, in groups of 4 panes and more.
#[test]
fn every_window_has_the_rows_of_its_panes() {
    const PACK: i64 = 12;
    const WIDTH: i64 = 4;
    let layout = layout();
    let mut spread = Spread::new(layout.clone(), 1, 1 << 20);
    let (mut windows, mut expected) = (BTreeMap::new(), BTreeMap::<(i64, u64), Values>::new());
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for pack in -2..20_i64 {
        // Some packs have no rows, some few, and some more than a block.
        let count = [0, 3, 60, 3000][draw(4) as usize];
        let keys = 1 + draw(900);
        // The second table is of late rows, which count for windows from the third on; the first of
        // those is of this pack.
        let tables = [(count, 0), (count / 7, 2)].map(|(count, late)| -> Vec<(u64, i64)> {
            let pane = |n: u64| pack * PACK + n as i64;
            (0..count).map(|_| (draw(keys), pane(draw(PACK as u64 - late)))).collect()
        });
        let ends = |table: usize, pane: i64| [pane + [0, 2][table], pane + WIDTH - 1];
        for (number, table) in tables.iter().enumerate() {
            for (key, pane) in table {
                let [first, last] = ends(number, *pane);
                for end in first..=last {
                    let values = expected.entry((end, *key)).or_default();
                    values.0 += 1;
                    values.1 = text_of(*key, *pane).max(std::mem::take(&mut values.1));
                }
            }
        }
        spread.begin(tables.iter().map(|table| table_of(&layout, table)).collect());
        while spread.note(|table, word| ends(table, word as i64)).is_some() {}
        assert!(spread.is_noted());
        let last = (pack + 1) * PACK - 1;
        let mut until = pack * PACK + WIDTH - 1 + draw(3) as i64;
        loop {
            let rows_max = 1 + draw(100) as usize;
            while spread.spread(until, rows_max) > 0 {}
            read(&spread, &layout, &mut windows);
            assert!(windows.keys().all(|(end, _)| *end <= until), "a window too early");
            spread.go_on();
            if until == last {
                break;
            }
            until = if last - until < 2 * WIDTH { last } else { until + WIDTH };
        }
        assert!(spread.next_end().is_none_or(|end| end > last));
        let due = expected.range(..=(last, u64::MAX)).count();
        assert_eq!(windows.len(), due, "all windows that end with pack {pack}");
    }
    spread.begin(vec![]);
    read(&spread, &layout, &mut windows);
    assert_eq!(windows, expected);
}
