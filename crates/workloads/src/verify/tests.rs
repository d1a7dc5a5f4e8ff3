//! Tests of the verifier: it reads batches by column name, in any of the types with which an engine
//! may answer.

use std::sync::Arc;

use arrow_array::types::ArrowTimestampType;
use arrow_array::{
    Float64Array, Int32Array, Int64Array, PrimitiveArray, StringArray, StringViewArray,
};

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn numbers(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn times<T: ArrowTimestampType>(values: &[i64]) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter_values(values.iter().copied()))
}

fn answer(workload: Workload, batch: &RecordBatch) -> Result<Answer> {
    let mut verifier = Verifier::new(&Spec::new(workload));
    verifier.add_batch(batch)?;
    Ok(verifier.answer())
}

/// A window by its start, of a kind whose ends do not count.
fn at(start: i64) -> Bounds {
    Bounds { start, end: start + 1 }
}

#[test]
fn every_time_unit_and_key_type_gives_the_same_answer() {
    let key_texts = ["user-00000000007", "user-00000000008", "user-99999999999"];
    let keys: [ArrayRef; 3] = [
        numbers(&[7, 8, 99_999_999_999]),
        Arc::new(StringArray::from(key_texts.to_vec())),
        Arc::new(StringViewArray::from(key_texts.to_vec())),
    ];
    let windows: [ArrayRef; 4] = [
        times::<TimestampSecondType>(&[0, 600, 600]),
        times::<TimestampMillisecondType>(&[0, 600_000, 600_000]),
        times::<TimestampMicrosecondType>(&[0, 600_000_000, 600_000_000]),
        times::<TimestampNanosecondType>(&[0, 600_000_000_000, 600_000_000_000]),
    ];
    let mut direct = Verifier::new(&Spec::new(Workload::YsbStr));
    direct.add_rows(at(600_000), &[8, 99_999_999_999], &[2, 300]);
    let mut other = direct.clone();
    other = {
        let mut fresh = Verifier::new(&Spec::new(Workload::YsbStr));
        fresh.merge(&other);
        fresh
    };
    other.add_rows(at(0), &[7], &[1]);
    for key in &keys {
        for window in &windows {
            let rows = batch(vec![
                ("value", numbers(&[1, 2, 300])),
                ("key", Arc::clone(key)),
                ("window_start", Arc::clone(window)),
            ]);
            assert_eq!(answer(Workload::YsbStr, &rows).unwrap(), other.answer());
        }
    }
    // The weak sum by hand: 31 times the keys, 17 times the windows, the values.
    let by_hand = 31 * (7 + 8 + 99_999_999_999u64) + 17 * 1_200_000 + 303;
    assert_eq!(other.answer().checksum, by_hand);
    assert_eq!(other.answer().result_rows, 3);
}

#[test]
fn a_value_moved_to_another_key_or_window_shows() {
    let spec = Spec::new(Workload::Ysb);
    let of = |rows: &[(i64, i64, i64)]| {
        let mut verifier = Verifier::new(&spec);
        rows.iter().for_each(|(w, k, v)| verifier.add_rows(at(*w), &[*k], &[*v]));
        verifier.answer()
    };
    let right = of(&[(0, 1, 10), (600_000, 2, 20)]);
    assert_eq!(right, of(&[(600_000, 2, 20), (0, 1, 10)]));
    for wrong in [
        of(&[(0, 1, 20), (600_000, 2, 10)]),
        of(&[(0, 2, 10), (600_000, 1, 20)]),
        of(&[(0, 2, 20), (600_000, 1, 10)]),
    ] {
        assert_eq!(right.checksum, wrong.checksum);
        assert_ne!(right, wrong);
    }
}

#[test]
fn a_row_of_a_window_with_another_end_shows() {
    let of = |window: &str, rows: &[(i64, i64)]| {
        let window = window.parse().expect("a window");
        let mut verifier = Verifier::new(&Spec::new(Workload::Ysb).with_window(window));
        let starts: Vec<i64> = rows.iter().map(|_| 5_000).collect();
        let ends: Vec<i64> = rows.iter().map(|row| row.0).collect();
        let keys: Vec<i64> = rows.iter().map(|row| row.1).collect();
        let rows = batch(vec![
            ("window_start", times::<TimestampMillisecondType>(&starts)),
            ("window_end", times::<TimestampMillisecondType>(&ends)),
            ("key", numbers(&keys)),
            ("value", numbers(&vec![1; keys.len()])),
        ]);
        verifier.add_batch(&rows).expect("rows of the workload");
        verifier.answer()
    };
    // As many rows as the memo is filled for, and fewer.
    for keys in [1, 70] {
        let rows = |first: i64, second: i64| -> Vec<(i64, i64)> {
            (0..2 * keys).map(|i| (if i < keys { first } else { second }, i)).collect()
        };
        for window in ["cumulate:10s:1s", "session:1s"] {
            let right = of(window, &rows(6_000, 7_000));
            let mut reversed = rows(6_000, 7_000);
            reversed.reverse();
            assert_eq!(right, of(window, &reversed));
            for wrong in [rows(7_000, 6_000), rows(6_000, 7_001), rows(6_000, 6_000)] {
                let wrong = of(window, &wrong);
                assert_eq!(right.checksum, wrong.checksum);
                assert_ne!(right, wrong, "{window}");
            }
        }
        for window in ["tumble:1s", "hop:10s:1s"] {
            assert_eq!(of(window, &rows(6_000, 7_000)), of(window, &rows(7_000, 6_000)));
        }
    }
}

#[test]
fn windows_change_within_a_batch_at_any_row() {
    for change in [0, 1, 31, 32, 33, 64, 99] {
        let windows: Vec<i64> = (0..100).map(|row| if row < change { 0 } else { 2_000 }).collect();
        let keys: Vec<i64> = (0..100).collect();
        let mut direct = Verifier::new(&Spec::new(Workload::Cm));
        for row in 0..100 {
            direct.add_rows(at(windows[row]), &keys[row..=row], &[1]);
        }
        direct.add_averages(&[0.25; 100]);
        let rows = batch(vec![
            ("window_start", times::<TimestampMillisecondType>(&windows)),
            ("key", numbers(&keys)),
            ("value", numbers(&[1; 100])),
            ("avg", Arc::new(Float64Array::from(vec![0.25; 100]))),
        ]);
        let answer = answer(Workload::Cm, &rows).unwrap();
        assert_eq!(answer, direct.answer());
        assert_eq!(answer.avg_sum, Some(25.0));
    }
}

#[test]
fn what_cannot_be_an_answer_is_refused() {
    let window = || times::<TimestampMicrosecondType>(&[1_000]);
    let message = |columns| answer(Workload::Ysb, &batch(columns)).unwrap_err().to_string();
    let missing = message(vec![("window_start", window()), ("key", numbers(&[1]))]);
    assert!(missing.contains("'value'") && missing.contains("no such column"), "{missing}");
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let narrow =
        message(vec![("window_start", window()), ("key", numbers(&[1])), ("value", narrow)]);
    assert!(narrow.contains("expected BIGINT, found Int32"), "{narrow}");
    let null: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    let null = message(vec![("window_start", window()), ("key", numbers(&[1])), ("value", null)]);
    assert!(null.contains("row 0") && null.contains("NULL"), "{null}");
    let fraction = times::<TimestampMicrosecondType>(&[1_001]);
    let fraction =
        message(vec![("window_start", fraction), ("key", numbers(&[1])), ("value", numbers(&[1]))]);
    assert!(fraction.contains("whole number of milliseconds"), "{fraction}");
    for text in ["user-", "user-1x", "bot-1", "user-1234567890123456789"] {
        let key: ArrayRef = Arc::new(StringArray::from(vec![text]));
        let wrong =
            message(vec![("window_start", window()), ("key", key), ("value", numbers(&[1]))]);
        assert!(wrong.contains(text), "{wrong}");
    }
}
