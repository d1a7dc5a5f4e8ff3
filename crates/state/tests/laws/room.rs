//! Tests of the memory that tables and pools take, keep and give back, from the allocator and from
//! a heap.

use millstream_state::*;

use super::support::Random;
use super::{Key, Shape, count, layout, random_key, read, write};

#[test]
fn a_pool_keeps_no_more_than_it_may() {
    let (layout, limit) = (layout(Shape::Word), 4 << 20);
    let mut pool = ChunkPool::new(layout.row_words(), limit, None);
    let mut table = Table::new(layout.clone());
    let words: Vec<u64> = (0..150_000).collect();
    count(&mut table, &words, layout.values()[0], &mut pool);
    let before = table.bytes();
    table.clear(&mut pool);
    assert!(before - table.bytes() > limit, "there was more to keep");
    assert!(pool.bytes() <= limit && pool.bytes() > limit / 2, "{} bytes", pool.bytes());
}

/// What a table allocates for more keys is what it said before, and not long before they come.
#[test]
fn growth_is_foretold() {
    const ROWS: u64 = 300;
    let cases = [Shape::Word, Shape::Text].map(|shape| [(shape, false), (shape, true)]);
    for (shape, in_heap) in cases.into_iter().flatten() {
        let heap = in_heap.then(|| Heap::map(64 << 20, Idle::GivenBack).unwrap());
        let mut pool = ChunkPool::new(layout(shape).row_words(), 0, heap);
        pool.release();
        let mut scratch = Scratch::default();
        let mut table = Table::new(layout(shape));
        let (mut grown, mut quiet) = (0, 0);
        for block in 0..500 {
            let word = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let key = |n: u64| Key(word(n) as _, 0, format!("a key of {n:020}"));
            let rows: Vec<(Key, i64)> = (0..ROWS).map(|i| (key(block * ROWS + i), 1)).collect();
            let text_bytes = rows.iter().map(|(key, _)| key.2.len()).sum();
            let load = Load { rows: ROWS as usize, text_bytes };
            let (before, growth) = (table.bytes(), table.growth_bytes(load));
            write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
            assert_eq!(pool.bytes(), 0, "nothing for later while memory is scarce");
            assert!(table.bytes() <= before + growth, "{shape:?}, block {block}");
            grown += u64::from(table.bytes() > before);
            quiet += u64::from(growth == 0);
        }
        let seen = format!("{shape:?}: grew {grown} times, {quiet} quiet blocks");
        assert!(grown > 10 && quiet > 300, "{seen}, in a heap: {in_heap}");
    }
}

/// A trimmed table can be read as before, and used again once it is cleared.
#[test]
fn a_trimmed_table_keeps_its_rows() {
    let cases = [Shape::Word, Shape::Text].map(|shape| [(shape, false), (shape, true)]);
    for (shape, in_heap) in cases.into_iter().flatten() {
        let heap = in_heap.then(|| Heap::map(64 << 20, Idle::GivenBack).unwrap());
        let mut pool = ChunkPool::new(layout(shape).row_words(), 1 << 20, heap);
        let mut scratch = Scratch::default();
        let mut random = Random(3);
        let rows: Vec<(Key, i64)> =
            (0..20_000).map(|_| (random_key(&mut random, shape, 1 << 30), 1)).collect();
        let mut table = Table::new(layout(shape));
        write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
        let (expected, before) = (read(&table, shape), table.bytes());
        table.trim();
        assert!(table.bytes() < before);
        assert_eq!(read(&table, shape), expected);
        table.clear(&mut pool);
        write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
        assert_eq!(read(&table, shape), expected);
    }
}

/// A segment's rows, and what they refer to, stand in the heap from the first page on, until it is
/// dropped, whoever does that.
#[test]
fn a_sealed_segment_stands_in_the_heap() {
    for (shape, keys) in [(Shape::Word, 50_000), (Shape::Text, 5_000), (Shape::Word, 3)] {
        let heap = Heap::map(32 << 20, Idle::GivenBack).unwrap();
        let layout = layout(shape);
        let mut pool = ChunkPool::new(layout.row_words(), 0, Some(heap.clone()));
        let mut scratch = Scratch::default();
        let key = |n: u64| Key(n, 0, format!("a key of {n:020}"));
        let rows: Vec<(Key, i64)> = (0..keys).map(|n| (key(n), 1)).collect();
        let mut table = Table::new(layout.clone());
        write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
        let segment = table.seal();
        let few = keys == 3;
        let mut seen = 0;
        for run in segment.runs(&layout, 1000) {
            seen += run.len() / layout.row_words();
            let place = heap.offset_of(run);
            assert_eq!(place.is_some(), !few);
            if let Some(place) = place {
                // SAFETY: the place of words that nobody changes.
                let start = unsafe { heap.start().add(place) };
                assert_eq!(start.cast::<u64>().as_ptr().cast_const(), run.as_ptr());
            }
        }
        assert_eq!(seen as u64, keys);
        let arena = segment.arena().all_words();
        assert_eq!(heap.offset_of(arena).is_some(), matches!(shape, Shape::Text) && !few);
        // The table goes on, and its leader is another thread.
        write(&mut table, shape, &rows, false, &mut pool, &mut scratch);
        let expected = read(&table, shape);
        drop((table, pool));
        let left = heap.usage().used_bytes;
        assert_eq!(left > 0, !few);
        let (other, from) = (heap.clone(), layout.clone());
        let leader = std::thread::spawn(move || {
            let mut leader = Table::new(from.clone());
            let mut pool = ChunkPool::new(from.row_words(), 0, Some(other));
            leader.merge(&segment, &mut pool, &mut Scratch::default());
            segment.recycle(&mut pool);
            leader
        });
        let leader = leader.join().unwrap();
        assert_eq!(read(&leader, shape), expected);
        drop(leader);
        assert_eq!(heap.usage().used_bytes, 0);
        assert_eq!(heap.usage().refused, 0);
    }
}

/// Memory that is scarce goes back to the system from the heap, too.
#[test]
fn a_pool_that_is_released_leaves_nothing_in_the_heap() {
    let (layout, heap) = (layout(Shape::Word), Heap::map(64 << 20, Idle::GivenBack).unwrap());
    let mut pool = ChunkPool::new(layout.row_words(), 32 << 20, Some(heap.clone()));
    let mut table = Table::new(layout.clone());
    let words: Vec<u64> = (0..200_000).collect();
    count(&mut table, &words, layout.values()[0], &mut pool);
    table.clear(&mut pool);
    let kept = heap.usage();
    assert!(kept.used_bytes >= pool.bytes() && pool.bytes() > 0, "{kept:?}");
    pool.release();
    let HeapUse { used_bytes, idle_bytes, given_back_bytes, .. } = heap.usage();
    assert_eq!((used_bytes, idle_bytes), (0, 0));
    assert!(given_back_bytes > 0 || !cfg!(target_os = "linux"));
}

/// A few long texts do not make the others long: what is foretold is what is there.
#[test]
fn the_growth_for_texts_is_that_of_texts_that_come() {
    let layout = layout(Shape::Text);
    let mut pool = ChunkPool::new(layout.row_words(), 0, None);
    let (mut table, mut scratch) = (Table::new(layout.clone()), Scratch::default());
    let rows: Vec<(Key, i64)> = (0..2)
        .map(|i| (Key(i, 0, char::from(b'a' + i as u8).to_string().repeat(1 << 20)), 1))
        .collect();
    let growth = table.growth_bytes(Load { rows: 2, text_bytes: 2 << 20 });
    write(&mut table, Shape::Text, &rows, false, &mut pool, &mut scratch);
    assert!((2 << 20..=growth).contains(&table.bytes()), "{} of {growth}", table.bytes());
    // Thousands of short ones: a row and its text each, and room to grow by a half.
    let growth = table.growth_bytes(Load { rows: 16_384, text_bytes: 16_384 * 10 });
    assert!(growth < 8 << 20, "{growth} bytes");
}
