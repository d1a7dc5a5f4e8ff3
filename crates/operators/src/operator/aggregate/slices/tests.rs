//! What is kept for later windows, as the budget counts it.

use millstream_state::{Fragment, NoVarKeys, ValueKind, hash_words};

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
    let mut fragment = Fragment::new(layout);
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
    slice.fragments[1] = Some(Box::new(fragment));

    let table = slices.remove(id).expect("the slice");
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

/// Slices come, change and go by the hundred: sums and maxima are those of all open slices.
#[test]
fn many_slices_count_as_each_by_itself() {
    let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
    let mut slices = Slices::new(layout, Leaders::even(1), 0, None, Room::default());
    let load = Load::rows(10);
    for n in 0..400_u64 {
        slices.begin_batch();
        for id in [n, n / 2] {
            let id = SliceId::from_word(id);
            slices.ensure(id);
            let Slices { slices: open, counted, pool, scratch, .. } = &mut slices;
            let slice = open.get_mut(&id).expect("it was opened");
            counted.change(id, slice);
            update(1 + n % 7 * 40, |keys| _ = slice.primary.update(keys, pool, scratch));
        }
        if n % 3 == 0 {
            let id = SliceId::from_word(n / 3);
            slices.remove(id).into_iter().for_each(|table| slices.recycle(table));
        }
        let usage = slices.usage(load, load);
        let each = slices.slices.values().map(|slice| slice.recount(load, load, None).0);
        let (mut bytes, mut keys, mut growth_bytes) = (usage.spare_bytes, 0, 0);
        for own in each {
            bytes += own.bytes + slice_bytes(1) as u64;
            keys += own.keys;
            growth_bytes = growth_bytes.max(own.growth_bytes);
        }
        assert_eq!((usage.bytes, usage.keys), (bytes, keys), "after {n}");
        let opened_bytes = (slices.opened * small_table_bytes(&slices.layout, 1)) as u64;
        assert_eq!(usage.growth_bytes, growth_bytes.max(opened_bytes), "after {n}");
        assert!(!slices.has_fragment_rows());
    }
    assert!(slices.slices.len() > 200);
}

/// Passed rows that have been sealed are not counted any more, however many slices are open: an
/// epoch that ends because of their bytes would end for ever.
#[test]
fn sealed_rows_of_one_slice_among_many_are_gone() {
    let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
    let mut slices = Slices::new(layout.clone(), Leaders::even(2), 0, None, Room::default());
    (0..100).for_each(|id| slices.ensure(SliceId::from_word(id)));
    let load = Load::rows(10);
    assert_eq!(slices.usage(load, load).largest_passed_bytes, 0);
    let id = SliceId::from_word(50);
    let mut fragment = Fragment::new(layout);
    fragment.pass(true);
    let Slices { slices: open, counted, pool, scratch, .. } = &mut slices;
    let slice = open.get_mut(&id).expect("it was opened");
    counted.change(id, slice);
    update(20_000, |keys| _ = fragment.update(keys, pool, scratch));
    slice.fragments[1] = Some(Box::new(fragment));
    assert!(slices.usage(load, load).largest_passed_bytes > 0 && slices.has_fragment_rows());
    let parcels = slices.seal(|_| SealSlice::EndEpoch, false);
    assert_eq!([0, 1].map(|leader| parcels[leader].rows()), [0, 20_000]);
    assert_eq!(slices.usage(load, load).largest_passed_bytes, 0);
    assert!(!slices.has_fragment_rows());
}

/// The fragments of a closed slice go on to later slices at once, not when its window fires.
#[test]
fn fragments_of_closed_slices_are_used_again() {
    let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
    let mut slices = Slices::new(layout.clone(), Leaders::even(2), 0, None, Room::default());
    let load = Load::rows(10);
    for n in 0..100_u64 {
        let id = SliceId::from_word(n);
        slices.ensure(id);
        let Slices { slices: open, counted, pool, scratch, spare, .. } = &mut slices;
        let slice = open.get_mut(&id).expect("it was opened");
        counted.change(id, slice);
        let mut fragment = spare.take_fragment(1).unwrap_or_else(|| {
            assert_eq!(n, 0, "the fragment of the slice before");
            Box::new(Fragment::new(layout.clone()))
        });
        update(5, |keys| _ = fragment.update(keys, pool, scratch));
        slice.fragments[1] = Some(fragment);
        assert!(slices.has_fragment_rows());
        let parcels = slices.seal(|_| SealSlice::Close, false);
        assert_eq!([0, 1].map(|leader| parcels[leader].rows()), [0, 5]);
        assert!(!slices.has_fragment_rows());
        let usage = slices.usage(load, load);
        let each = slices.slices.values().map(|slice| slice.recount(load, load, None).0.bytes);
        let own_bytes = (slices.slices.len() * slice_bytes(2)) as u64;
        assert_eq!(usage.bytes, usage.spare_bytes + own_bytes + each.sum::<u64>());
    }
    assert_eq!((slices.slices.len(), slices.spare.counts()), (100, (0, 1)));
}
