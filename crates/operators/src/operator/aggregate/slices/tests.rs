//! What is kept for later windows, as the budget counts it.

use millstream_state::{NoVarKeys, ValueKind, hash_words};

use super::*;

/// Keys that are their own words, as one block.
fn update(keys: u64, mut take: impl FnMut(&Keys<'_, NoVarKeys>)) {
    let words: Vec<u64> = (0..keys).collect();
    for words in words.chunks(BLOCK_ROWS) {
        let hashes: Vec<u64> = words.iter().map(|w| hash_words(&[*w])).collect();
        take(&Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys });
    }
}

/// What is kept for later windows counts, and counts as what can be given back.
#[test]
fn spare_tables_and_fragments_are_counted_until_they_are_released() {
    let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
    let mut slices = Slices::new(layout.clone(), Leaders::even(2), 0, None, Room::default());
    assert_eq!(slices.usage(Load::default(), Load::rows(1)).bytes, 0);
    let id = SliceId::from_word(0);
    slices.ensure(id);
    let mut fragment = Fragment::new(layout, Some(Mode::Aggregate));
    let Slices { slices: open, pool, scratch, .. } = &mut slices;
    let slice = open.get_mut(&id).expect("it was opened");
    update(10_000, |keys| {
        slice.primary.update(keys, pool, scratch);
        fragment.update(keys, pool, scratch);
    });
    fragment.seal();
    let (table_bytes, fragment_bytes) = (slice.primary.index_bytes(), fragment.bytes());
    // 10,000 keys, for each of which an index has a slot of 4 bytes.
    assert!(table_bytes >= 40_000 && fragment_bytes >= 40_000, "sizes that can be told");
    slice.fragments[1] = Some(fragment);

    let table = slices.remove(id..=id).expect("the slice");
    let usage = slices.usage(Load::default(), Load::rows(1));
    assert!(usage.spare_bytes >= fragment_bytes as u64, "{usage:?}");
    let before = usage.spare_bytes;
    slices.recycle(table);
    let usage = slices.usage(Load::default(), Load::rows(1));
    assert_eq!(slices.spare.counts(), (1, 1));
    assert!(usage.spare_bytes >= before + table_bytes as u64, "{usage:?}");
    assert!(usage.bytes >= usage.spare_bytes, "{usage:?}");

    let counters = slices.counters();
    assert!(counters.growths >= 2, "both have grown");
    slices.release_spare();
    let usage = slices.usage(Load::default(), Load::rows(1));
    assert_eq!((usage.bytes, usage.spare_bytes), (0, 0));
    assert_eq!(slices.counters().growths, counters.growths, "those that are gone still count");
}
