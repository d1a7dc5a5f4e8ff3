//! Tests of whether a fragment aggregates or passes rows through.

use std::sync::Arc;

use millstream_state::*;

use super::{Shape, layout};

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
        // After a clear verdict four times the rows that it took are not sampled.
        feed(fragment, (0..60_000).map(|i| i % 7), pool);
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

/// The same share of distinct rows is passed through where that is cheap beside merging rows of
/// state, and aggregated where it is not; and where look-ups are cheap because there are few keys,
/// more is aggregated than where there are many.
#[test]
fn what_rows_and_look_ups_cost_decides_the_mode() {
    let mean = [(ValueKind::SumFloat, false), (ValueKind::Count, false)];
    let mean = Arc::new(RowLayout::new(1, vec![], &mean));
    let mode_of = |layout: &Arc<RowLayout>, words: usize, keys: u64, rows_per_key: u64| {
        let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
        let costs = Costs::new(layout, words);
        let fragment = &mut Fragment::with_costs(layout.clone(), costs, None);
        for _ in 0..2 {
            // Less than three in four are distinct from the first batch on.
            (0..rows_per_key).for_each(|_| feed(fragment, 0..keys, pool));
            fragment.seal();
        }
        fragment.mode()
    };
    assert_eq!(mode_of(&narrow(), 2, 4_000, 2), Mode::PassThrough);
    assert_eq!(mode_of(&narrow(), 2, 4_000, 5), Mode::Aggregate);
    assert_eq!(mode_of(&narrow(), 2, 100_000, 4), Mode::PassThrough);
    assert_eq!(mode_of(&narrow(), 2, 100_000, 40), Mode::Aggregate);
    // A key and a number against a row of five words; and rows of ten words that are no shorter
    // when they are passed through.
    assert_eq!(mode_of(&mean, 2, 4_000, 4), Mode::PassThrough);
    assert_eq!(mode_of(&mean, 2, 4_000, 10), Mode::Aggregate);
    assert_eq!(mode_of(&mean, 10, 4_000, 3), Mode::Aggregate);
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
    for part in 0..15 {
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

/// After a clear verdict keys are not sampled for a while; then it is found out that they repeat.
#[test]
fn a_clear_verdict_holds_for_a_while() {
    let layout = narrow();
    let pool = &mut ChunkPool::new(layout.row_words(), 1 << 20, None);
    let fragment = &mut Fragment::new(layout.clone(), None);
    fragment.begin_in(Mode::PassThrough);
    feed(fragment, 0..10_000, pool);
    fragment.seal().expect("there are rows").recycle(pool);
    for rows in [20_000, 19_000] {
        feed(fragment, (0..rows).map(|i| i % 7), pool);
        fragment.seal().expect("there are rows").recycle(pool);
        assert_eq!(fragment.mode(), Mode::PassThrough);
    }
    feed(fragment, (0..20_000).map(|i| i % 7), pool);
    fragment.seal().expect("there are rows").recycle(pool);
    assert_eq!((fragment.mode(), fragment.switches()), (Mode::Aggregate, 1));
}

/// Where it costs little to be wrong, a table that has become too large tells by what it has seen.
#[test]
fn many_distinct_keys_are_better_passed_through() {
    let costs = |words| Costs::new(&narrow(), words);
    assert!(costs(2).should_pass(120_000, 65_000));
    assert!(!costs(2).should_pass(400_000, 65_000));
    assert!(!costs(7).should_pass(65_000, 65_000));
    assert!(!costs(2).should_pass(50, 50), "too few to tell");
    for (fixed, mode) in [(None, Mode::PassThrough), (Some(Mode::Aggregate), Mode::Aggregate)] {
        let mut fragment = Fragment::new(narrow(), fixed);
        fragment.begin_in(Mode::PassThrough);
        assert_eq!((fragment.mode(), fragment.switches()), (mode, 0));
    }
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
