//! Which windows there are, and when what is complete.

use super::*;
use crate::event_time::USABLE;
use crate::plan::{Cumulate, Hop, OpenWindows, Session};

fn tumbling(size_us: i64, offset_us: i64, lateness_us: i64) -> Windowing {
    Windowing::new(Some(Tumble { size_us, offset_us }.into()), lateness_us)
}

#[test]
fn slices_are_half_open_also_before_the_epoch() {
    let windowing = tumbling(10_000, 0, 0);
    for (time, start) in [(0, 0), (9_999, 0), (10_000, 10_000), (-1, -10_000), (-10_000, -10_000)] {
        let slice = windowing.slice_of(time);
        let (id, end) = (SliceId(start), start + 10_000);
        assert_eq!(slice, Bounds { slice: id, start, end }, "{time}");
        assert!(slice.contains(time) && !slice.contains(slice.end));
    }
    let shifted = tumbling(10_000, 3_000, 0);
    assert_eq!(shifted.slice_of(2_999).start, -7_000);
    assert_eq!(shifted.slice_of(3_000).start, 3_000);
    assert!(shifted.has_slice(SliceId(3_000)) && !shifted.has_slice(SliceId(0)));
    assert_eq!(windowing.slices_between(9_999, 10_000), 2);
    let first = Bounds { slice: SliceId(0), start: 0, end: 10_000 };
    assert_eq!(windowing.common_slice(0, 9_999), Some(first));
    assert_eq!(windowing.common_slice(0, 10_000), None);
}

#[test]
fn a_window_fires_when_the_watermark_reaches_its_end_and_the_lateness_after_it() {
    for lateness_us in [0, 500] {
        let windowing = tumbling(10_000, 0, lateness_us);
        let first = WindowId(0);
        let fires_at = windowing.fires_at(first);
        assert_eq!(fires_at, 10_000 + lateness_us);
        let passed = windowing.passed(fires_at - 1);
        assert_eq!(windowing.passed(lateness_us), passed);
        assert_eq!(windowing.passed(fires_at), passed + 1);
        let slice = windowing.slice_of(9_999).slice;
        assert_eq!(windowing.windows_of(slice).collect::<Vec<_>>(), [first]);
        assert_eq!(windowing.slices_of(first), slice..=slice);
        assert_eq!(windowing.next_window(slice, fires_at - 1), Some(first));
        assert_eq!(windowing.next_window(slice, fires_at), None);
        assert_eq!(windowing.closes_at(slice), fires_at);
    }
}

/// Minutes over ten seconds: a minute is complete with its last part, not one later; parts that
/// wait for late records delay it, and nothing else does.
#[test]
fn results_are_complete_with_the_last_window_that_has_fired() {
    const S: i64 = 1_000_000;
    for lateness in [0, 5 * S] {
        let (parts, minutes) = (tumbling(10 * S, 0, lateness), tumbling(60 * S, 0, 0));
        assert_eq!(parts.row_time(WindowId(50 * S)), Some(60 * S - 1000));
        let watermark = |frontier| parts.watermark_after(frontier);
        assert_eq!(watermark(59 * S + lateness), 60 * S - 1000);
        assert_eq!(watermark(60 * S + lateness), 70 * S - 1000);
        assert_eq!(watermark(60 * S + lateness - 1), 60 * S - 1000);
        let fires_at = minutes.fires_at(WindowId(0));
        assert!(watermark(60 * S + lateness - 1) < fires_at);
        assert!(watermark(60 * S + lateness) >= fires_at);
        assert_eq!(parts.frontier_for(fires_at), 60 * S + lateness);
        // A window that ends between two of the parts' ends waits for the one before.
        assert_eq!(parts.frontier_for(65 * S), 60 * S + lateness);
        for at in [-1, 0, 1, 999, 1000, 1001, 59_999_000, 59_999_001, 60_000_000] {
            let frontier = parts.frontier_for(at);
            assert!(watermark(frontier) >= at && watermark(frontier - 1) < at, "{at}");
        }
    }
    let whole = Windowing::new(None, 0);
    assert_eq!((whole.watermark_after(7), whole.watermark_after(END)), (BEGINNING, END));
    assert_eq!((whole.frontier_for(7), whole.row_time(WindowId::WHOLE)), (END, None));
}

#[test]
fn the_whole_input_is_one_slice_that_fires_at_its_end() {
    let windowing = Windowing::new(None, 0);
    let (slice, window) = (SliceId::WHOLE, WindowId::WHOLE);
    assert!(windowing.is_whole() && windowing.has_slice(slice));
    assert!(!windowing.has_slice(SliceId(1)));
    assert_eq!(windowing.slice_of(-5).slice, slice);
    assert_eq!(
        (windowing.slice_of_rows(None), windowing.begin_of(slice)),
        (Some(slice), BEGINNING)
    );
    assert_eq!((windowing.fires_at(window), windowing.columns_of(window)), (END, None));
    assert_eq!(windowing.passed(7), windowing.passed(BEGINNING));
    assert!(windowing.passed(END) > windowing.passed(7));
}

/// Panes, slices and windows by brute force over their times.
#[test]
fn panes_serve_the_windows_that_contain_them() {
    for hop in [true, false] {
        for (unit, count) in [(1_000, 2), (10_000, 3), (7_000, 7), (1_000, 60)] {
            let (size_us, offset_us, lateness_us) = (unit * count, unit / 3 / 1000 * 1000, 500);
            let window = match hop {
                true => Window::Hop(Hop { slide_us: unit, size_us, offset_us }),
                false => Window::Cumulate(Cumulate { step_us: unit, size_us, offset_us }),
            };
            let windowing = Windowing::new(Some(window), lateness_us);
            for time in (-3 * size_us..3 * size_us).step_by(unit as usize / 2 + 1) {
                let slice = windowing.slice_of(time);
                assert!(slice.contains(time) && slice.end - slice.start == unit);
                let windows: Vec<_> = windowing.windows_of(slice.slice).collect();
                let times: Vec<_> =
                    windows.iter().map(|w| windowing.columns_of(*w).unwrap()).collect();
                assert!(times.iter().all(|[start, end, _]| *start <= time && time < *end));
                assert!(times.windows(2).all(|t| t[1][1] - t[0][1] == unit));
                let expected = match hop {
                    true => count,
                    false => (times[0][0] + size_us - slice.start) / unit,
                };
                assert_eq!(windows.len() as i64, expected, "{hop} {unit} {count} {time}");
                assert_eq!(windowing.closes_at(slice.slice), slice.end + lateness_us);
                // Late for one window after the other.
                let mut names = vec![slice.slice];
                for (n, window) in windows.iter().enumerate() {
                    let fires_at = windowing.fires_at(*window);
                    assert_eq!(fires_at, times[n][1] + lateness_us);
                    assert!(windowing.slices_of(*window).contains(&names[n]));
                    let fate = windowing.fate(&slice, time, fires_at);
                    match windows.get(n + 1) {
                        None => assert_eq!(fate, Fate::Late),
                        Some(next) => {
                            let Fate::Partly(later) = fate else { panic!("{fate:?}") };
                            assert!(windowing.has_slice(later) && later > names[n]);
                            assert_eq!(windowing.windows_of(later).next(), Some(*next));
                            assert_eq!(windowing.windows_of(later).last(), windows.last().copied());
                            assert_eq!(windowing.closes_at(later), windowing.fires_at(*next));
                            assert_eq!(windowing.begin_of(later), slice.start);
                            assert_eq!(
                                windowing.fate(&slice, time, fires_at - 1),
                                match n {
                                    0 => Fate::InTime,
                                    _ => Fate::Partly(names[n]),
                                }
                            );
                            names.push(later);
                        }
                    }
                    let next = windows.get(n + 1).copied();
                    assert_eq!(windowing.window_after(*window, slice.slice), next);
                }
                assert_eq!(windowing.last_end_of(&slice), Some(times.last().unwrap()[1]));
            }
        }
    }
}

#[test]
fn a_record_is_late_for_its_session_by_its_own_time() {
    let session = Session::new(40_000, 1);
    let windowing = Windowing::new(Some(Window::Session(session)), 500);
    let slice = windowing.slice_of(15_000);
    assert_eq!((slice.start, slice.end), (10_000, 20_000));
    for (watermark, fate) in [(15_500, Fate::InTime), (15_501, Fate::Late)] {
        assert_eq!(windowing.fate(&slice, 15_000, watermark), fate);
    }
    // What comes in time is there before its slice is complete.
    assert_eq!(windowing.closes_at(slice.slice), 20_500);
    let window = windowing.windows_of(slice.slice).next().unwrap();
    assert_eq!(windowing.columns_of(window), None);
    // Sessions are left that end with the slice or later.
    let frontier = windowing.fires_at(window);
    assert_eq!(windowing.watermark_after(frontier), 20_000 - 1000);
    for at in [-1, 0, 1, 18_999, 19_000, 19_001, 60_000] {
        let frontier = windowing.frontier_for(at);
        let watermark = |frontier| windowing.watermark_after(frontier);
        assert!(watermark(frontier) >= at && watermark(frontier - 1) < at, "{at}");
    }
}

/// A record is late by its own window; all else is a matter of the slice.
#[test]
fn packed_windows_share_a_slice_and_fire_with_the_last_of_them() {
    let windowing = tumbling(10_000, 3_000, 500).packed(4);
    let pack = windowing.slice_of(3_000).slice;
    for (time, start) in [(3_000, 3_000), (12_999, 3_000), (13_000, 13_000), (42_999, 33_000)] {
        let bounds = windowing.slice_of(time);
        assert_eq!(bounds, Bounds { slice: pack, start, end: start + 10_000 }, "{time}");
        let late_at = start + 10_000 + 500;
        assert_eq!(windowing.fate(&bounds, time, late_at - 1), Fate::InTime);
        assert_eq!(windowing.fate(&bounds, time, late_at), Fate::Late);
        assert_eq!(windowing.last_end_of(&bounds), Some(start + 10_000));
    }
    assert!(windowing.slice_of(2_999).slice < pack && pack < windowing.slice_of(43_000).slice);
    assert!(windowing.has_slice(pack) && !windowing.has_slice(SliceId(13_000)));
    assert_eq!((windowing.begin_of(pack), windowing.closes_at(pack)), (3_000, 43_500));
    let window = windowing.windows_of(pack).next().unwrap();
    assert_eq!(windowing.windows_of(pack).count(), 1);
    assert_eq!((windowing.fires_at(window), windowing.columns_of(window)), (43_500, None));
    // What may come next is of the first window of the next pack.
    assert_eq!(windowing.watermark_after(43_500), 53_000 - 1000);
    assert_eq!(windowing.watermark_after(43_499), 13_000 - 1000);
    for at in [-1, 0, 1, 11_999, 12_000, 12_001, 51_999, 52_000, 52_001, 60_000] {
        let frontier = windowing.frontier_for(at);
        let watermark = |frontier| windowing.watermark_after(frontier);
        assert!(watermark(frontier) >= at && watermark(frontier - 1) < at, "{at}");
    }
    assert_eq!(tumbling(10_000, 3_000, 500).packed(1), tumbling(10_000, 3_000, 500));
    assert_eq!(Windowing::new(None, 0).packed(4), Windowing::new(None, 0));
}

/// Windows of panes, of the same panes in packs: what a record counts for, and when that fires, is
/// the same, but that windows fire together whose last panes are in one pack.
#[test]
fn packed_panes_count_for_the_same_windows() {
    let (pane_us, offset_us, lateness_us) = (1_000, 300, 200);
    for (count, pack) in [(2, 2), (3, 4), (3, 7), (5, 5), (5, 2), (7, 3)] {
        let size_us = count * pane_us;
        let hop = Window::Hop(Hop { slide_us: pane_us, size_us, offset_us });
        let cumulate = Window::Cumulate(Cumulate { step_us: pane_us, size_us, offset_us });
        for window in [hop, cumulate] {
            let plain = Windowing::new(Some(window), lateness_us);
            let packed = plain.packed(pack);
            assert_eq!(packed.packing(), Packing::Parts);
            for time in (-30_000..30_000).step_by(370) {
                let (a, b) = (plain.slice_of(time), packed.slice_of(time));
                assert_eq!((a.start, a.end), (b.start, b.end), "{time}");
                for watermark in (time - 2_000..time + 9_000).step_by(130) {
                    same_windows(&plain, &packed, [a, b], time, watermark);
                }
            }
        }
    }
}

fn same_windows(
    plain: &Windowing,
    packed: &Windowing,
    [a, b]: [Bounds; 2],
    time: i64,
    watermark: i64,
) {
    let (own, pack) = match (plain.fate(&a, time, watermark), packed.fate(&b, time, watermark)) {
        (Fate::InTime, Fate::InTime) => (a.slice, b.slice),
        (Fate::Partly(own), Fate::Partly(pack)) => (own, pack),
        (Fate::Late, Fate::Late) => {
            return assert_eq!(plain.last_end_of(&a), packed.last_end_of(&b));
        }
        different => panic!("{time} at {watermark}: {different:?}"),
    };
    assert!(packed.has_slice(pack));
    assert!(
        packed.begin_of(pack) <= time && time < packed.begin_of(pack) + packed.reach_us().unwrap()
    );
    let windows: Vec<[i64; 3]> =
        plain.windows_of(own).filter_map(|w| plain.columns_of(w)).collect();
    let WindowingKind::Packs(packs) = packed.kind else { panic!("panes that are packed") };
    let [first, last] = packs.ends_of(pack, b.start);
    let [starts, ends, times] = packed.columns_from((first..=last).collect());
    let found: Vec<[i64; 3]> =
        starts.iter().zip(&ends).zip(&times).map(|((s, e), t)| [*s, *e, *t]).collect();
    assert_eq!(found, windows, "{time} at {watermark}");
    // Each fires under a name that its slice serves, when the pack of its last pane is over.
    let names: Vec<WindowId> = packed.windows_of(pack).collect();
    for (end, pane) in ends.iter().zip(first..=last) {
        let name = names.iter().find(|name| packed.last_end_in(**name) >= pane).unwrap();
        let fires_at = packed.fires_at(*name);
        let least = end + packed.lateness_us();
        assert!((least..least + packed.slices.unwrap().size_us).contains(&fires_at), "{fires_at}");
    }
    // The first of them needs it, and it closes then.
    assert!(packed.slices_of(names[0]).contains(&pack));
    assert_eq!(packed.closes_at(pack), packed.fires_at(names[0]));
    assert!(packed.closes_at(pack) > watermark, "{time} at {watermark}: added to a closed slice");
}

/// Times with the same first and last slices in an interval join, time by time.
#[test]
fn times_that_meet_the_same_slices_stand_together() {
    for (before_us, after_us) in [(0, 0), (7, 3), (25, 0), (-4, 9), (30, -30), (10, 10)] {
        let interval = Interval { anchor: 0, before_us, after_us };
        let windowing = Windowing::new(Some(Window::Interval(interval)), 0);
        let near = -200..200_i64;
        let far = [USABLE, -USABLE].into_iter().flat_map(|end| end - 100..=end + 100);
        let times: Vec<i64> = near.chain(far).collect();
        for time in &times {
            let starts = windowing.starts_meeting(*time, *time);
            let alike = windowing.times_meeting(starts);
            let is_within = time.saturating_add(before_us).abs().max((time - after_us).abs());
            assert!(alike.contains(time) || is_within > USABLE, "{time} {interval:?}");
            for other in times.iter().filter(|other| alike.contains(other)) {
                assert_eq!(windowing.starts_meeting(*other, *other), starts, "{other}");
            }
        }
    }
}

/// Of slices that follow each other each leader has one, and the slices of any even distance are
/// those of all leaders.
#[test]
fn slices_of_an_interval_join_are_shared_out_among_leaders() {
    let interval = Interval { anchor: 0, before_us: 1_000_000, after_us: 1_000_000 };
    let windowing = Windowing::new(Some(Window::Interval(interval)), 0);
    for leaders in [1, 2, 3, 5, 256] {
        let number = leaders as i64;
        let leader_of = |slice: i64| windowing.leader_of(SliceId(slice * 1_000_000), leaders);
        for block in [-1_000_000, -1, 0, 7, 1_000_000] {
            let mut found: Vec<usize> =
                (block * number..(block + 1) * number).map(leader_of).collect();
            found.sort_unstable();
            assert_eq!(found, (0..leaders).collect::<Vec<_>>(), "{block} of {leaders}");
        }
        for apart in [2, 10, 60, number] {
            let mut count = vec![0; leaders];
            (0..100 * number).for_each(|slice| count[leader_of(slice * apart)] += 1);
            let least = count.iter().min().copied();
            assert!(least > Some(50), "{leaders} leaders, {apart} apart: {count:?}");
        }
    }
}

/// Open windows, compared with all windows of all slices.
#[test]
fn open_windows_are_those_of_slices_that_have_not_fired() {
    let hop = Window::Hop(Hop { slide_us: 1_000, size_us: 5_000, offset_us: 0 });
    let cumulate = Window::Cumulate(Cumulate { step_us: 1_000, size_us: 5_000, offset_us: 0 });
    let tumble = Window::Tumble(Tumble { size_us: 3_000, offset_us: 1_000 });
    let slices_of = |windowing: &Windowing, times: &[i64], late_by: i64| {
        let slices = times.iter().map(|time| {
            let slice = windowing.slice_of(*time);
            match windowing.fate(&slice, *time, time + late_by) {
                Fate::Partly(slice) => slice,
                _ => slice.slice,
            }
        });
        slices.collect::<std::collections::BTreeSet<_>>()
    };
    let mut partly = 0;
    for window in [hop, cumulate, tumble] {
        let windowing = Windowing::new(Some(window), 500);
        for times in [&[0; 0][..], &[-7_000, 100, 900], &[0, 1_000, 2_000, 9_000], &[4_999, 30_000]]
        {
            for late_by in [0, 2_500] {
                let slices = slices_of(&windowing, times, late_by);
                partly += usize::from(late_by > 0 && slices != slices_of(&windowing, times, 0));
                for frontier in (-10_000..40_000).step_by(500) {
                    let windows = slices.iter().flat_map(|slice| windowing.windows_of(*slice));
                    let open = windows.filter(|window| windowing.fires_at(*window) > frontier);
                    let open: std::collections::BTreeSet<_> = open.collect();
                    let bounds = |window: &WindowId| {
                        let [start, end, _] = windowing.columns_of(*window).unwrap();
                        [start, end]
                    };
                    let expected = open.first().zip(open.last()).map(|(first, last)| OpenWindows {
                        count: Some(open.len() as u64),
                        first_us: bounds(first),
                        last_us: bounds(last),
                    });
                    let found = windowing.open(slices.iter().copied(), frontier);
                    assert_eq!(found, expected, "{window:?} {times:?} {late_by} {frontier}");
                }
            }
        }
    }
    assert!(partly > 0, "no record was late for some of its windows");
    // Several windows share a slice.
    let packed = |window| {
        let windowing = Windowing::new(Some(window), 500).packed(8);
        windowing.open(slices_of(&windowing, &[900, 17_000], 0), -100_000)
    };
    let open = |first_us, last_us| Some(OpenWindows { count: None, first_us, last_us });
    let tumble = Window::Tumble(Tumble { size_us: 1_000, offset_us: 0 });
    assert_eq!(packed(tumble), open([0, 8_000], [16_000, 24_000]));
    // The last window with the pane of 23 ms ends with that of 27 ms, in the pack of 24 to 32 ms.
    assert_eq!(packed(hop), open([-4_000, 8_000], [20_000, 32_000]));
    for window in [None, Some(Window::Session(Session::new(1_000, 1)))] {
        let windowing = Windowing::new(window, 0);
        assert_eq!(windowing.open([windowing.slice_of(0).slice], i64::MIN), None);
    }
}
