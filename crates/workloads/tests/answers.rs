//! Tests of the loops and the oracle against the published answers, and against each other where
//! nothing is published.

use std::collections::HashSet;

use millstream_workloads::{
    Error, Spec, Verifier, Window, Workload, Zipf, expected, generate, generate_by_key,
    handwritten, oracle, oracle_by_split, schema,
};

/// Records of the perturbed runs: one odd size beyond a million where code is optimised.
const MANY: u64 = if cfg!(debug_assertions) { 100_003 } else { 1_000_003 };

fn by_hand(spec: &Spec, batch_rows: usize) -> millstream_workloads::Answer {
    let splits = generate(spec, 1, batch_rows);
    handwritten::run(spec, &splits[0]).expect("generated batches fit the loop").answer()
}

/// The smaller of the two published sizes.
fn smaller(workload: Workload) -> Spec {
    let records = if workload.default_records() == 5_000_000 { 500_000 } else { 1_000_000 };
    Spec { records, ..Spec::new(workload) }
}

#[test]
fn the_oracle_gives_the_published_answers() {
    for workload in Workload::ALL {
        let spec = smaller(workload);
        assert_eq!(Some(oracle(&spec)), expected(&spec), "{spec:?}");
    }
}

#[test]
fn the_loops_give_the_published_answers() {
    for workload in Workload::ALL {
        let spec = smaller(workload);
        assert_eq!(Some(by_hand(&spec, 16 * 1024)), expected(&spec), "{spec:?}");
    }
}

fn zipf(exponent: &str) -> Option<Zipf> {
    Some(exponent.parse().expect("an exponent"))
}

/// Specs that no published answer covers: every field changed, alone and together.
fn perturbed(workload: Workload) -> Vec<Spec> {
    // Of whole rows all pairs are copied.
    let records = match workload {
        Workload::Nb8Rows => 4_007,
        Workload::Nb11 => 2_003,
        _ => 20_011,
    };
    // All of a hot key are in one session.
    let skewed = if workload == Workload::Nb11 { 20_011 } else { MANY };
    let base = Spec { records, ..Spec::new(workload) };
    let mut specs = vec![
        Spec { records: MANY, keys: base.workload.keys().map(|n| n + 1), ..base.clone() },
        Spec { event_modulus: 7, ..base.clone() },
        Spec { event_modulus: 1, ..base.clone() },
        Spec { window_ms: 1, ..base.clone() },
        Spec { window_ms: 7_001, ..base.clone() },
        Spec { window_ms: 1 << 40, ..base.clone() },
        Spec { span_ms: 1, ..base.clone() },
        Spec { span_ms: 10_000_000_007, window_ms: 86_400_000, ..base.clone() },
        Spec { keys: Some(1), ..base.clone() },
        Spec { keys: Some(1 << 32), ..base.clone() },
        Spec { records: skewed, zipf: zipf("1"), keys: Some(100_000), ..base.clone() },
        Spec { zipf: zipf("0"), keys: Some(977), ..base.clone() },
        Spec { zipf: zipf("0.2"), keys: Some(5_000), event_modulus: 1, ..base.clone() },
        Spec { zipf: zipf("3"), keys: Some(1 << 20), ..base.clone() },
        Spec { zipf: zipf("2"), keys: Some(1), ..base.clone() },
    ];
    for (seed, records) in (100..).zip([0, 1, 2, 3, 5, 1023, 1024, 1025, 4096, 4097, 65_536]) {
        let keys = Some(1 + seed * seed % 977 * 13);
        let window_ms = 1 + seed * 7919 % 300_000;
        specs.push(Spec { records, seed, keys, window_ms, event_modulus: 2, ..base.clone() });
    }
    specs
}

#[test]
fn loops_and_oracle_agree_on_perturbed_workloads() {
    for workload in Workload::ALL {
        for (i, spec) in perturbed(workload).iter().enumerate() {
            let batch_rows = [16_384, 1, 1000, 4097, 1 << 20][i % 5];
            let answer = by_hand(spec, batch_rows);
            assert_eq!(answer, oracle(spec), "{spec:?}, {batch_rows} rows in a batch");
            assert_eq!(answer.result_rows == 0, spec.records == 0 || answer.checksum == 0);
        }
    }
}

#[test]
fn loops_and_oracle_agree_on_windows_of_all_kinds() {
    let windows = [
        "tumble:7001ms",
        "hop:60s:1s",
        "hop:14s:7s",
        "hop:10s:10s",
        "hop:30ms:1ms",
        "hop:1h:1m",
        "cumulate:60s:1s",
        "cumulate:14s:7s",
        "cumulate:5ms:1ms",
        "session:1ms",
        "session:700ms",
        "session:5s",
        "session:1h",
    ];
    for workload in Workload::ALL {
        for (i, window) in windows.iter().enumerate() {
            let window: Window = window.parse().expect("a window");
            let tumbles = !workload.takes_windows();
            if tumbles || workload == Workload::YsbStr && i >= 9 {
                continue;
            }
            for span_ms in [3, 7_000, 60_000] {
                let (keys, seed) = (Some([1, 40, 3_000][i % 3]), 77 + i as u64);
                let spec = Spec { records: 9_001, keys, seed, span_ms, ..Spec::new(workload) };
                let spec = spec.with_window(window);
                let batch_rows = [16_384, 1, 1000, 4097][i % 4];
                let answer = by_hand(&spec, batch_rows);
                assert_eq!(answer, oracle(&spec), "{spec:?}, {batch_rows} rows in a batch");
                assert!(answer.result_rows > 0);
            }
        }
    }
    let str = Spec::new(Workload::YsbStr).with_window("session:1s".parse().expect("a window"));
    let splits = generate(&Spec { records: 10, ..str.clone() }, 1, 10);
    let error = handwritten::run(&str, &splits[0]).expect_err("records out of order");
    assert!(error.to_string().contains("in order"), "{error}");
}

#[test]
fn an_answer_to_another_spec_is_not_taken_for_right() {
    for workload in Workload::ALL {
        let spec = Spec { records: 50_000, ..Spec::new(workload) };
        let right = oracle(&spec);
        assert_ne!(right, oracle(&Spec { records: 51_000, ..spec.clone() }));
        assert_ne!(right, oracle(&Spec { keys: Some(1 << 19), ..spec.clone() }));
        assert_ne!(right, oracle(&Spec { seed: 42, ..spec.clone() }));
        if spec.windowed() {
            assert_ne!(right, oracle(&Spec { window_ms: spec.window_ms + 1, ..spec.clone() }));
        }
        if workload.has_event_type() {
            assert_ne!(right, oracle(&Spec { event_modulus: 4, ..spec.clone() }));
        }
    }
}

/// The columns of all records but their keys, and the keys.
fn columns(spec: &Spec) -> (Vec<arrow_array::ArrayRef>, Vec<i64>) {
    let batch = &generate(spec, 1, 1 << 20)[0][0];
    let others = [0, 2].into_iter().filter_map(|i| batch.columns().get(i).cloned());
    (others.collect(), batch.column(1).to_data().buffer::<i64>(0).to_vec())
}

#[test]
fn skew_changes_keys_and_nothing_else() {
    for workload in [Workload::Ysb, Workload::YsbSmall, Workload::Nb7, Workload::Cm] {
        let plain = Spec { records: 100_003, keys: Some(10_000), ..Spec::new(workload) };
        let (others, _) = columns(&plain);
        let mut before = 0;
        for exponent in ["0", "0.5", "1", "2", "3"] {
            let (skewed, mut keys) = columns(&Spec { zipf: zipf(exponent), ..plain.clone() });
            assert_eq!(others, skewed, "{workload:?}, z = {exponent}");
            assert!(keys.iter().all(|key| (0..10_000).contains(key)));
            keys.sort_unstable();
            let hottest = keys.chunk_by(i64::eq).map(<[i64]>::len).max().unwrap_or(0);
            assert!(hottest > before, "{workload:?}, z = {exponent}: {hottest} after {before}");
            before = hottest;
        }
        // 1 / zeta(3) of the records.
        assert!((before as f64 / 100_003.0 - 0.8319).abs() < 0.005, "{before}");
    }
}

#[test]
fn splits_deal_out_the_same_records() {
    for workload in Workload::ALL {
        let spec = Spec { records: 10_007, ..Spec::new(workload) };
        let whole = &generate(&spec, 1, 1 << 20)[0][0];
        assert_eq!(whole.num_rows(), 10_007);
        assert_eq!(whole.schema(), schema(workload));
        for splits in [1, 2, 3, 16] {
            for batch_rows in [1, 100, 1 << 20] {
                let dealt = generate(&spec, splits, batch_rows);
                assert_eq!(dealt.len(), splits);
                for (split, batches) in dealt.iter().enumerate() {
                    let mut i = split;
                    for batch in batches {
                        assert!(batch.num_rows() <= batch_rows);
                        for row in 0..batch.num_rows() {
                            assert_eq!(batch.slice(row, 1), whole.slice(i, 1), "record {i}");
                            i += splits;
                        }
                    }
                    assert!(i >= 10_007 && i - splits < 10_007);
                }
            }
        }
    }
}

#[test]
fn all_of_a_key_is_in_one_split_where_keys_decide() {
    for workload in [Workload::Nb8, Workload::Nb8Rows, Workload::Nb11] {
        let spec = Spec { records: 10_007, ..Spec::new(workload) };
        let whole = &generate(&spec, 1, 1 << 20)[0][0];
        let keys = whole.column(1).to_data().buffer::<i64>(0).to_vec();
        for splits in [1, 2, 3] {
            for (split, batches) in generate_by_key(&spec, splits, 100).iter().enumerate() {
                let mut of_split = (0..keys.len()).filter(|i| keys[*i] as usize % splits == split);
                for batch in batches {
                    for row in 0..batch.num_rows() {
                        let i = of_split.next().expect("another record");
                        assert_eq!(batch.slice(row, 1), whole.slice(i, 1), "record {i}");
                    }
                }
                assert_eq!(of_split.next(), None);
            }
        }
    }
}

#[test]
fn string_keys_come_out_of_order_by_less_than_the_watermarks_delay() {
    let spec = Spec { records: 100_000, ..Spec::new(Workload::YsbStr) };
    for split in generate(&spec, 2, 1000) {
        let (mut ts_max, mut disorder_max) = (0, 0);
        for batch in split {
            let ts = batch.column(0).to_data();
            for ts in ts.buffer::<i64>(0) {
                ts_max = ts_max.max(*ts);
                disorder_max = disorder_max.max(ts_max - ts);
            }
        }
        let delay = spec.watermark_delay_ms() as i64;
        assert!((delay / 2..delay).contains(&disorder_max), "{disorder_max} ms");
    }
}

#[test]
fn parallel_loops_see_each_split_by_itself() {
    for workload in Workload::ALL {
        let spec = Spec { records: 60_001, ..Spec::new(workload) };
        let splits = handwritten::splits(&spec, 3, 1000);
        let together = handwritten::run_parallel(&spec, &splits).expect("generated batches fit");
        let alone = splits.iter().map(|s| handwritten::run(&spec, s).expect("they fit").answer());
        assert!(together.iter().map(Verifier::answer).eq(alone));
        assert!(handwritten::is_right(&spec, &together), "{spec:?}");
        let (sum, right) = (Verifier::sum(&spec, &together).answer(), oracle(&spec));
        if workload.is_join() {
            assert_eq!(sum, right, "{spec:?}: all pairs are found");
        } else {
            // Not the workload's answer: keys that appear in several splits have several rows.
            assert!(sum.result_rows > right.result_rows, "{spec:?}: {sum:?}, {right:?}");
        }
    }
}

/// By another way to the same: the generator's own batches, each row by itself.
#[test]
fn the_oracle_of_a_split_counts_the_split_s_records() {
    let spec = Spec { records: 30_011, ..Spec::new(Workload::Ro) };
    for splits in [1, 2, 3, 7] {
        let answers = oracle_by_split(&spec, splits);
        assert_eq!(answers.len(), splits);
        for (answer, batches) in answers.iter().zip(generate(&spec, splits, 1000)) {
            let keys = batches.iter().flat_map(|b| b.column(1).to_data().buffer::<i64>(0).to_vec());
            let distinct: HashSet<i64> = keys.collect();
            assert_eq!(answer.result_rows, distinct.len() as u64);
        }
    }
    assert_eq!(oracle_by_split(&spec, 1), [oracle(&spec)]);
}

#[test]
fn a_loop_that_lost_or_swapped_records_is_not_right() {
    for workload in Workload::ALL {
        let spec = Spec { records: 60_001, ..Spec::new(workload) };
        for loops in [1, 2, 3] {
            let mut splits = handwritten::splits(&spec, loops, 1000);
            let right = |splits: &[Vec<_>]| {
                let seen = handwritten::run_parallel(&spec, splits).expect("batches fit");
                handwritten::is_right(&spec, &seen)
            };
            assert!(right(&splits), "{spec:?}, {loops} loops");
            if loops > 1 {
                // The sums over all loops stay the same.
                splits.swap(0, 1);
                assert!(!right(&splits), "{spec:?}, {loops} loops: splits that were swapped");
                splits.swap(0, 1);
            }
            let batch = splits[loops - 1].remove(0);
            assert!(!right(&splits), "{spec:?}, {loops} loops: a batch that was lost");
            if workload != Workload::Nb7 {
                // To a maximum it makes no difference.
                splits[loops - 1].splice(0..0, [batch.clone(), batch]);
                assert!(!right(&splits), "{spec:?}, {loops} loops: a batch that came twice");
            }
        }
    }
}

#[test]
fn batches_of_another_workload_are_refused() {
    let cm = generate(&Spec { records: 10, ..Spec::new(Workload::Cm) }, 1, 10);
    let error = handwritten::run(&Spec::new(Workload::Ysb), &cm[0]).expect_err("no event types");
    assert!(matches!(&error, Error::Column { column, .. } if column == "event_type"), "{error}");
    let error = handwritten::run(&Spec::new(Workload::YsbStr), &cm[0]).expect_err("no strings");
    assert!(matches!(&error, Error::Column { column, .. } if column == "key"), "{error}");
}
