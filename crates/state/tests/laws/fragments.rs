//! Tests of fragments: rows are aggregated or passed through.

use std::sync::Arc;

use millstream_state::*;

/// Takes these keys in.
fn feed(fragment: &mut Fragment, words: impl Iterator<Item = u64>, pool: &mut ChunkPool) {
    let (words, mut scratch): (Vec<u64>, _) = (words.collect(), Scratch::default());
    for words in words.chunks(BLOCK_ROWS) {
        let hashes: Vec<u64> = words.iter().map(|w| hash_word(*w)).collect();
        let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
        fragment.update(&keys, pool, &mut scratch);
    }
}

/// Passed rows are appended as they come, and sealed in parts; aggregated rows are those of
/// distinct keys. The leader has the same rows either way, also where the mode changes.
#[test]
fn fragments_pass_rows_through_or_aggregate_them() {
    let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
    let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
    let fragment = &mut Fragment::new(layout.clone());
    let mut leader = Table::new(layout.clone());
    let keys = || (0..20_000).map(|i| i % 5_000);
    feed(fragment, keys(), pool);
    assert_eq!((fragment.rows(), fragment.passed_bytes()), (5_000, 0));
    for part in 0..3 {
        fragment.pass(true);
        feed(fragment, keys(), pool);
        let rows = if part == 0 { 25_000 } else { 20_000 };
        assert_eq!((fragment.rows(), fragment.passed_bytes()), (rows, rows * 16), "part {part}");
        let segment = fragment.seal().expect("there are rows");
        leader.merge(&segment, pool, &mut Scratch::default());
        assert!(fragment.rows() == 0 && fragment.seal().is_none());
    }
    fragment.pass(false);
    feed(fragment, keys(), pool);
    assert_eq!((fragment.rows(), fragment.passed_bytes()), (5_000, 0));
    assert_eq!(leader.rows(), 5_000);
}
