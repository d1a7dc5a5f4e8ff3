//! Saved state: operators that are given it back go on with the same rows, whatever the number of
//! leaders before and after.

#[path = "../support/cuts.rs"]
mod cuts;
mod damaged;
mod data;
mod plans;
#[path = "../support/random.rs"]
mod random;
mod run;
mod unchanged;

use std::sync::atomic::Ordering::Relaxed;

use arrow::datatypes::DataType;
use millstream_contract::plan::*;
use millstream_operators::operator::identity::Identity;
use plans::{aggregate, calls, joined, ranked};
use run::{LEFT_OUT, THAWED, compare};

const MS: i64 = 1000;

/// Windows of one slice and of several, and slices of several windows or parts of them.
#[test]
fn aggregates_go_on_from_saved_rows() {
    let hop = |size: i64| {
        Window::Hop(Hop { slide_us: 10 * MS, size_us: size * 10 * MS, offset_us: 3 * MS })
    };
    let cumulate = Window::Cumulate(Cumulate { step_us: 10 * MS, size_us: 70 * MS, offset_us: MS });
    let tumble = Window::Tumble(Tumble { size_us: 10 * MS, offset_us: 0 });
    let mut seed = 0_u64;
    for (window, packs) in [
        (Some(hop(3)), 7),
        (Some(hop(20)), 4),
        (Some(hop(20)), 50),
        (Some(cumulate), 5),
        (Some(tumble), 6),
        (None, 1),
    ] {
        let mut saved = [0; 2];
        for windows_in_slice in [1, packs] {
            for keys in [&[0][..], &[1], &[1, 0], &[]] {
                seed += 1;
                let calls = match seed % 3 {
                    0 => calls(),
                    // DISTINCT.
                    1 if !keys.is_empty() => vec![],
                    _ => calls()[..2].to_vec(),
                };
                let lateness_us = [0, 15 * MS][seed as usize % 2];
                let program = aggregate(window, windows_in_slice, keys, calls, lateness_us);
                let own = compare(&program, 1, 25 * MS as u64, seed);
                saved = [saved[0] + own[0], saved[1] + own[1]];
            }
        }
        let overlap = window.is_some_and(|window| window != tumble);
        assert!(saved[0] > 10 && (saved[1] > 30 || !overlap), "{window:?}: {saved:?}");
    }
    assert!(THAWED.iter().all(|count| count.load(Relaxed) > 100), "{THAWED:?}");
    assert!(LEFT_OUT.iter().all(|count| count.load(Relaxed) > 100), "{LEFT_OUT:?}");
}

/// Rankings in windows that hop.
#[test]
fn rankings_go_on_from_saved_rows() {
    let window = Window::Hop(Hop { slide_us: 10 * MS, size_us: 50 * MS, offset_us: 0 });
    for (seed, ranking) in
        [Ranking::RowNumber, Ranking::Rank, Ranking::DenseRank].iter().enumerate()
    {
        for windows_in_slice in [1, 6] {
            let program = aggregate(Some(window), windows_in_slice, &[1], ranked(*ranking), 0);
            let saved = compare(&program, 1, 25 * MS as u64, seed as u64);
            assert!(saved[1] > 1, "{ranking:?}: {saved:?}");
        }
    }
}

/// Sessions of groups by themselves and shared ones, with parts in slices of their own and packed.
#[test]
fn sessions_go_on_from_saved_rows() {
    let mut seed = 0;
    let mut saved = [0; 2];
    for (keys, partition) in [(&[0][..], 1), (&[1], 1), (&[1, 0], 2), (&[1, 0], 1), (&[1, 0], 0)] {
        for (slices_of_gap, windows_in_slice) in [(4, 1), (1, 1), (1, 6)] {
            if windows_in_slice > 1 && partition < keys.len() {
                continue;
            }
            for calls in [calls(), calls()[..2].to_vec(), ranked(Ranking::All)] {
                seed += 1;
                let gap_us = [4, 20, 90][seed as usize % 3] * MS;
                let window = Window::Session(Session { gap_us, partition, slices_of_gap });
                let lateness_us = [0, 15 * MS][seed as usize % 2];
                let program = aggregate(Some(window), windows_in_slice, keys, calls, lateness_us);
                let own = compare(&program, 1, 25 * MS as u64, seed);
                saved = [saved[0] + own[0], saved[1] + own[1]];
            }
        }
    }
    assert!(saved[1] > 100, "{saved:?}");
}

/// Joins of windows, of intervals, and with the last version of a key; and those where all leaders
/// have the rows of one side.
#[test]
fn joins_go_on_from_saved_rows() {
    let tumble = Window::Tumble(Tumble { size_us: 60 * MS, offset_us: 0 });
    let interval = Window::Interval(Interval { anchor: 0, before_us: 50 * MS, after_us: 70 * MS });
    let long = Window::Interval(Interval { anchor: 0, before_us: 40_000 * MS, after_us: 0 });
    let as_of = Window::Interval(Interval::AS_OF);
    for (kind, window, is_as_of, broadcast) in [
        (JoinKind::Full, Some(tumble), false, None),
        (JoinKind::Inner, None, false, None),
        (JoinKind::Left, Some(interval), false, None),
        (JoinKind::Left, Some(long), false, None),
        (JoinKind::Left, Some(as_of), true, None),
        (JoinKind::Inner, Some(as_of), true, None),
        (JoinKind::Left, Some(tumble), false, Some(1)),
        (JoinKind::Right, Some(interval), false, Some(0)),
    ] {
        let mut saved = [0; 2];
        for seed in 0..6 {
            let keys: &[usize] = match (seed as usize % 3, broadcast) {
                (0, _) => &[0],
                (1, _) => &[1, 0],
                (_, None) => &[1],
                (_, Some(_)) => &[],
            };
            let program = joined(kind, window, is_as_of, broadcast, keys);
            let own = compare(&program, 2, 50 * MS as u64, seed);
            saved = [saved[0] + own[0], saved[1] + own[1]];
        }
        assert!(saved[0] > 20 && (saved[1] > 10 || !is_as_of), "{window:?}: {saved:?}");
    }
}

/// The texts are compared with those of checkpoints, also of earlier releases: they may not change.
#[test]
fn identities_are_of_what_state_means() {
    let hop = Window::Hop(Hop { slide_us: 10 * MS, size_us: 50 * MS, offset_us: 0 });
    let type_name = |of: &DataType| of.to_string();
    let of = |window, packs, keys: &[usize], lateness_us| {
        aggregate(window, packs, keys, calls()[..2].to_vec(), lateness_us).identity(&type_name)
    };
    let one = of(Some(hop), 1, &[1, 0], 0);
    let expected = Identity {
        operator: "an aggregate".into(),
        keys: vec!["name Utf8".into(), "number Int64".into()],
        values: vec!["Count of () as Int64".into(), "Sum of (Int64) as Int64".into()],
        window: "windows of 50 ms every 10 ms from 0 ms".into(),
        lateness_us: 0,
        layout: vec!["Count".into(), "SumInt or nothing".into()],
    };
    assert_eq!(one, expected);
    assert_eq!(of(Some(hop), 6, &[1, 0], 0).difference(&one), None);
    let reason = |other: Identity| other.difference(&one).expect("another identity");
    let keys = "the keys are (number Int64) now, and (name Utf8, number Int64) in the checkpoint";
    assert_eq!(reason(of(Some(hop), 1, &[0], 0)), keys);
    let late = "late records are waited for 15 ms now, and 0 ms in the checkpoint";
    assert_eq!(reason(of(Some(hop), 1, &[1, 0], 15 * MS)), late);
    assert!(reason(of(None, 1, &[1, 0], 0)).starts_with("it has one window"));
    let join = joined(JoinKind::Left, Some(hop), false, None, &[0]).identity(&type_name);
    assert_eq!(join.keys, ["left number Int64", "right number Int64"]);
    assert_eq!(join.values[1], "left left name Utf8");
    let broadcast = joined(JoinKind::Left, Some(hop), false, Some(1), &[0]).identity(&type_name);
    assert_eq!(broadcast, join);
}
