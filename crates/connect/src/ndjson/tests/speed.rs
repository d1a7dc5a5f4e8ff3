//! How fast records are decoded; run by hand:
//!
//!     cargo test --profile ci -p millstream-connect --lib -- --ignored \
//!         --nocapture ndjson::tests::speed
//!
//! With `MILLSTREAM_RECORDS=20000` short enough for `valgrind`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::super::decode::Plan;
use super::*;
use crate::records::Block;

const BLOCK_BYTES: usize = 1 << 20;

/// Six columns, 93 bytes a record; `gap` stands behind commas and colons.
fn blocks(records: usize, gap: &str) -> Vec<Vec<u8>> {
    let (mut blocks, mut text) = (Vec::new(), String::new());
    for n in 0..records {
        let (minute, second, milli) = (n / 60_000 % 60, n / 1000 % 60, n % 1000);
        let (user, price, quantity) = (n * 7919 % 10_000, n * 31 % 100_000, n % 9);
        writeln!(
            text,
            "{{\"ts\":{gap}\"2024-01-01 00:{minute:02}:{second:02}.{milli:03}\",{gap}\"user\":{gap}\
             \"user{user}\",{gap}\"page\":{gap}\"/p/{quantity}\",{gap}\"price\":{gap}{}.{:02},{gap}\
             \"n\":{gap}{n},{gap}\"ok\":{gap}{}}}",
            price / 100,
            price % 100,
            n % 3 == 0,
        )
        .unwrap();
        if text.len() >= BLOCK_BYTES || n + 1 == records {
            blocks.push(std::mem::take(&mut text).into_bytes());
        }
    }
    blocks
}

fn columns() -> SchemaRef {
    schema(&[
        ("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        ("user", DataType::Utf8, true),
        ("page", DataType::Utf8, true),
        ("price", DataType::Float64, true),
        ("n", DataType::Int64, true),
        ("ok", DataType::Boolean, true),
    ])
}

fn time(blocks: &[Vec<u8>], plan: &Plan) -> (Duration, usize) {
    let (mut took, mut rows) = (Duration::ZERO, 0);
    for data in blocks {
        let lines = data.iter().filter(|byte| **byte == b'\n').count();
        let block = Block {
            data: data.clone(),
            line: 1,
            lines,
            offset: 0,
            offsets: false,
            too_long: None,
            messages: None,
        };
        let start = Instant::now();
        let decoded = plan.decode(&block).unwrap();
        took += start.elapsed();
        rows += decoded.batch.num_rows();
    }
    (took, rows)
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let records = std::env::var("MILLSTREAM_RECORDS").map_or(500_000, |n| n.parse().unwrap());
    for (name, gap, projection) in [
        ("all columns", "", &[0, 1, 2, 3, 4, 5][..]),
        ("all columns, blanks", " ", &[0, 1, 2, 3, 4, 5][..]),
        ("three columns", "", &[0, 1, 3][..]),
        ("none", "", &[][..]),
    ] {
        let blocks = blocks(records, gap);
        let bytes: usize = blocks.iter().map(Vec::len).sum();
        let plan = |careful| {
            let format =
                NdjsonFormat { on_error: OnError::Fail, careful, ..NdjsonFormat::default() };
            Plan::new(&"x.ndjson".into(), &columns(), projection, format).unwrap()
        };
        let (plan, careful) = (plan(false), plan(true));
        let (mut quick, mut slow) = (Duration::MAX, Duration::MAX);
        for _ in 0..5 {
            for (plan, best) in [(&plan, &mut quick), (&careful, &mut slow)] {
                let (took, rows) = time(&blocks, plan);
                assert_eq!(rows, records);
                *best = took.min(*best);
            }
        }
        let rate = |took: Duration| bytes as f64 / took.as_secs_f64() / 1e6;
        println!(
            "{name}: {:.0} MB/s, {:.1} ns a record; with serde_json {:.0} MB/s",
            rate(quick),
            quick.as_secs_f64() * 1e9 / records as f64,
            rate(slow),
        );
    }
}
