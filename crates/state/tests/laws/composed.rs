//! Laws of what is made of several values: variances and regressions of a count and of exact sums,
//! and of the bits of integers. Whichever table a record goes to, and in whatever order and
//! grouping tables are merged, the results are those of one table, to the last bit.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_state::moments::{Moments, Sums, product};
use millstream_state::*;

use super::support::Random;

/// A record; one that takes no part has no values.
#[derive(Clone, Copy, Debug)]
struct Record {
    key: u64,
    y: f64,
    x: f64,
    bits: i64,
    takes_part: bool,
}

/// What feeds the sums of doubles.
const FEEDS: [fn(&Record) -> f64; 8] = [
    |r| r.x,
    |r| r.y,
    |r| product(r.x, r.y)[0],
    |r| product(r.x, r.y)[1],
    |r| product(r.x, r.x)[0],
    |r| product(r.x, r.x)[1],
    |r| product(r.y, r.y)[0],
    |r| product(r.y, r.y)[1],
];

const KINDS: [ValueKind; 4] =
    [ValueKind::Count, ValueKind::BitAnd, ValueKind::BitOr, ValueKind::BitXor];

fn layout() -> Arc<RowLayout> {
    let sums = FEEDS.map(|_| (ValueKind::SumFloat, true));
    let others = KINDS.map(|kind| (kind, true));
    Arc::new(RowLayout::new(1, vec![], &[&sums[..], &others].concat()))
}

fn write(table: &mut Table, records: &[Record], pool: &mut ChunkPool, scratch: &mut Scratch) {
    let layout = layout();
    let (sums, others) = layout.values().split_at(FEEDS.len());
    for records in records.chunks(BLOCK_ROWS) {
        let words: Vec<u64> = records.iter().map(|r| r.key).collect();
        let hashes: Vec<u64> = words.iter().map(|w| hash_word(*w)).collect();
        let picks = (0..records.len() as u32).filter(|k| records[*k as usize].takes_part);
        let picks: Vec<u32> = picks.collect();
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: NoVarKeys };
        let mut block = table.update(&keys, pool, scratch);
        for (slot, feed) in sums.iter().zip(FEEDS) {
            let values: Vec<f64> = records.iter().map(feed).collect();
            block.sum_float(*slot, None, Some(&picks), &values);
        }
        block.count(others[0], Some(&picks));
        for slot in &others[1..] {
            block.bits(*slot, Some(&picks), |k| records[k].bits);
        }
    }
}

/// By key: the bits of all results.
fn read(table: &Table) -> BTreeMap<u64, Vec<u64>> {
    let layout = layout();
    let (sums, others) = layout.values().split_at(FEEDS.len());
    let mut found = BTreeMap::new();
    for block in 0..table.scan_blocks() {
        let rows = table.scan(block);
        for row in 0..rows.len() {
            let mut results: Vec<u64> =
                others.iter().map(|slot| rows.word(row, slot.word)).collect();
            let sum = |at: usize| {
                let words = [0, 1, 2].map(|word| rows.word(row, sums[at].word + word));
                float_sum::exact(words, rows.arena())
            };
            let both = |at: usize| Some(&sum(at)? + &sum(at + 1)?);
            let all =
                || Some(Sums { x: sum(0)?, y: sum(1)?, xy: both(2)?, xx: both(4)?, yy: both(6)? });
            if let (Some(sums), count @ 1..) = (all(), results[0]) {
                results.extend(moments(count, sums));
            }
            assert!(found.insert(rows.word(row, 0), results).is_none());
        }
    }
    found
}

fn moments(count: u64, sums: Sums) -> Vec<u64> {
    let of = Moments::new(count, sums);
    let always = [of.var_pop(), of.covar_pop(), of.sum_of_squares(), of.sum_of_products()];
    let some = [of.var_samp(), of.covar_samp(), of.corr(), of.slope(), of.intercept(), of.r2()];
    let always = always.into_iter().map(f64::to_bits);
    always.chain(some.into_iter().map(|value| value.map_or(7, f64::to_bits))).collect()
}

/// Doubles of few sizes or of all, also such whose squares are below the least double.
fn random_double(random: &mut Random, all_sizes: bool) -> f64 {
    let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
    let exponent = match all_sizes {
        true => random.below(1000) as i32 - 500,
        false => random.below(20) as i32,
    };
    sign * ((wide(random) >> 11) as f64) * 2f64.powi(exponent - 53)
}

/// All bits.
fn wide(random: &mut Random) -> u64 {
    random.below(1 << 32) << 32 | random.below(1 << 32)
}

#[test]
fn results_are_those_of_one_table() {
    let mut varied = 0;
    for seed in 1..60u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let special = seed % 10 == 0;
        let records: Vec<Record> = (0..1 + random.below(3000))
            .map(|_| Record {
                key: random.below(7),
                y: random_double(&mut random, seed % 3 == 0),
                x: match random.below(1000) {
                    0 if special => [f64::NAN, f64::INFINITY, 1e200][random.below(3) as usize],
                    _ => random_double(&mut random, seed % 3 == 0),
                },
                bits: wide(&mut random) as i64,
                takes_part: random.below(5) > 0,
            })
            .collect();
        let (mut pool, mut scratch) =
            (ChunkPool::new(layout().row_words(), 1 << 20, None), Scratch::default());
        let mut one = Table::new(layout());
        write(&mut one, &records, &mut pool, &mut scratch);
        let expected = read(&one);
        // Several tables, some of which take no record. Any is merged into any other, until one is
        // left.
        let mut tables: Vec<Table> =
            (0..2 + random.below(6)).map(|_| Table::new(layout())).collect();
        for record in &records {
            let table = random.below(tables.len() as u64) as usize;
            write(&mut tables[table], &[*record], &mut pool, &mut scratch);
        }
        tables.push(Table::new(layout()));
        while tables.len() > 1 {
            let mut from = tables.swap_remove(random.below(tables.len() as u64) as usize);
            let into = random.below(tables.len() as u64) as usize;
            tables[into].merge(&from.seal(), &mut pool, &mut scratch);
        }
        assert_eq!(read(&tables[0]), expected, "seed {seed}");
        varied += expected.values().filter(|results| results.len() > KINDS.len()).count();
    }
    assert!(varied > 200, "{varied} groups with moments");
}

/// Against arithmetic with integers, which has all digits.
#[test]
fn moments_are_the_nearest_doubles_or_next_to_them() {
    let mut random = Random(11);
    for _ in 0..500 {
        let n = 2 + random.below(50) as i128;
        // Far from zero, beside how far apart they are.
        let value = |random: &mut Random| (1 << 40) + random.below(1000) as i128;
        let pairs: Vec<(i128, i128)> =
            (0..n).map(|_| (value(&mut random), value(&mut random))).collect();
        let records: Vec<Record> = pairs
            .iter()
            .map(|(y, x)| Record { key: 0, y: *y as f64, x: *x as f64, bits: 0, takes_part: true })
            .collect();
        let mut table = Table::new(layout());
        let mut pool = ChunkPool::new(layout().row_words(), 1 << 20, None);
        write(&mut table, &records, &mut pool, &mut Scratch::default());
        let sum = |of: &dyn Fn(i128, i128) -> i128| pairs.iter().map(|(y, x)| of(*y, *x)).sum();
        let (x, y): (i128, i128) = (sum(&|_, x| x), sum(&|y, _| y));
        let xx = n * sum(&|_, x| x * x) - x * x;
        let yy = n * sum(&|y, _| y * y) - y * y;
        let xy = n * sum(&|y, x| y * x) - x * y;
        let (n, xx, yy, xy) = (n as f64, xx as f64, yy as f64, xy as f64);
        let expected = [xx / (n * n), xy / (n * n), xx / n, xy / n, xx / (n * (n - 1.0))];
        let more = [xy / (n * (n - 1.0)), xy / xx.sqrt() / yy.sqrt(), xy / xx];
        let results = &read(&table)[&0][KINDS.len()..];
        for (got, expected) in results.iter().zip(expected.iter().chain(&more)) {
            let got = f64::from_bits(*got);
            assert!((got - expected).abs() <= expected.abs() * 1e-15, "{got}, not {expected}");
        }
    }
}

#[test]
fn what_does_not_vary_has_a_variance_of_zero() {
    for value in [0.1, 1e-200, -7e150, 5e-324] {
        let record = Record { key: 0, y: 2.0 * value, x: value, bits: 0, takes_part: true };
        let mut table = Table::new(layout());
        let mut pool = ChunkPool::new(layout().row_words(), 1 << 20, None);
        write(&mut table, &[record; 1000], &mut pool, &mut Scratch::default());
        let results = &read(&table)[&0][KINDS.len()..];
        let zero = 0f64.to_bits();
        assert_eq!(results[0], zero, "{value}");
        // Neither a correlation nor a line.
        assert_eq!(results[6..], [7; 4], "{value}");
    }
}
