//! Slices that a cut leaves out, since the cut before has them.

use std::sync::Arc;

use millstream_contract::plan::*;
use millstream_operators::operator::Program;
use millstream_operators::windowing::SliceId;
use millstream_state::Mode;

use crate::MS;
use crate::data::Chunk;
use crate::plans::{aggregate, calls, joined};
use crate::run::Run;

/// A part, and the slice of a time.
type Named = (usize, i64);

/// The slices that both workers leave out at the next cut. What is set aside is not copied, and
/// `meanwhile` these rows come.
fn cut(run: &mut Run, meanwhile: &[Chunk]) -> Vec<(usize, SliceId)> {
    let left_out = run.cut(meanwhile).expect("rows that fit");
    assert_eq!(left_out.len(), 2);
    assert_eq!(left_out[0], left_out[1]);
    left_out[0].clone()
}

fn named(program: &Arc<dyn Program>, names: &[Named]) -> Vec<(usize, SliceId)> {
    let windowing = program.windowing();
    names.iter().map(|(part, time)| (*part, windowing.slice_of(*time).slice)).collect()
}

/// Rows of both workers' keys at a time.
fn rows(input: usize, time: i64, watermark: i64) -> Chunk {
    let rows = (0..40).map(|key| (time, [key, key % 4, key, key % 9])).collect();
    Chunk { input, rows, watermark }
}

/// Before all rows.
const EARLY: i64 = -1000 * MS;

#[test]
fn slices_of_an_aggregate_are_left_out_until_rows_come() {
    let tumble = Window::Tumble(Tumble { size_us: 10 * MS, offset_us: 0 });
    let [a, b, c] = [MS, 11 * MS, 21 * MS];
    for mode in [Mode::Aggregate, Mode::PassThrough, Mode::Joint] {
        let program = aggregate(Some(tumble), 1, &[0], calls(), 20 * MS);
        let names = |times: &[i64]| {
            named(&program, &times.iter().map(|time| (0, *time)).collect::<Vec<_>>())
        };
        let mut run = Run::new(&program, 1, 2, Some(mode));
        let take = |run: &mut Run, time, watermark, worker| {
            run.take(&rows(0, time, watermark), 1, worker).expect("rows that fit");
        };
        [a, b, c].into_iter().for_each(|time| take(&mut run, time, EARLY, 0));
        assert_eq!(cut(&mut run, &[]), []);
        assert_eq!(cut(&mut run, &[]), names(&[a, b, c]));
        // One worker has its own rows, and the other merges them.
        take(&mut run, b, EARLY, 1);
        assert_eq!(cut(&mut run, &[]), names(&[a, c]), "{mode:?}");
        // Rows come while the older ones are set aside, and both are merged.
        take(&mut run, b, EARLY, 0);
        assert_eq!(cut(&mut run, &[rows(0, b, EARLY)]), names(&[a, c]), "{mode:?}");
        assert_eq!(cut(&mut run, &[]), names(&[a, c]), "{mode:?}");
        assert_eq!(cut(&mut run, &[]), names(&[a, b, c]), "{mode:?}");
        // Late rows, within lateness.
        take(&mut run, c, 25 * MS, 1);
        assert_eq!(cut(&mut run, &[]), names(&[a, b]), "{mode:?}");
        take(&mut run, a, 25 * MS, 1);
        assert_eq!(cut(&mut run, &[]), names(&[b, c]), "{mode:?}");
        // The first slice fires.
        take(&mut run, c, 31 * MS, 0);
        assert_eq!(cut(&mut run, &[]), names(&[b]), "{mode:?}");
    }
}

/// A slice that has fired, and that later windows need, does not change any more.
#[test]
fn panes_that_have_fired_are_left_out() {
    let hop = Window::Hop(Hop { slide_us: 10 * MS, size_us: 30 * MS, offset_us: 0 });
    let program = aggregate(Some(hop), 1, &[0], calls(), 0);
    let names =
        |times: &[i64]| named(&program, &times.iter().map(|time| (0, *time)).collect::<Vec<_>>());
    let mut run = Run::new(&program, 1, 2, Some(Mode::Aggregate));
    let [a, b, c, d] = [MS, 11 * MS, 21 * MS, 31 * MS];
    for time in [a, b, c] {
        run.take(&rows(0, time, EARLY), 1, 0).expect("rows that fit");
    }
    assert_eq!(cut(&mut run, &[]), []);
    // The windows up to 20 ms fire.
    run.take(&rows(0, c, 20 * MS), 1, 1).expect("rows that fit");
    assert_eq!(cut(&mut run, &[]), names(&[a, b]));
    run.take(&rows(0, d, 20 * MS), 1, 0).expect("rows that fit");
    assert_eq!(cut(&mut run, &[]), names(&[a, b, c]));
    // No window needs the first any more.
    run.take(&rows(0, d, 30 * MS), 1, 0).expect("rows that fit");
    assert_eq!(cut(&mut run, &[]), names(&[b, c]));
}

#[test]
fn bags_of_a_join_are_left_out_until_rows_come() {
    let tumble = Window::Tumble(Tumble { size_us: 60 * MS, offset_us: 0 });
    let program = joined(JoinKind::Full, Some(tumble), false, None, &[0]);
    let names = |names: &[Named]| named(&program, names);
    let mut run = Run::new(&program, 2, 2, None);
    let take = |run: &mut Run, side, time, watermark, worker| {
        run.take(&rows(side, time, watermark), 1, worker).expect("rows that fit");
    };
    let [a, b] = [MS, 61 * MS];
    for (side, time) in [(0, a), (1, a), (0, b)] {
        take(&mut run, side, time, EARLY, 0);
    }
    assert_eq!(cut(&mut run, &[]), []);
    assert_eq!(cut(&mut run, &[]), names(&[(0, a), (1, a), (0, b)]));
    take(&mut run, 1, a, EARLY, 1);
    assert_eq!(cut(&mut run, &[]), names(&[(0, a), (0, b)]));
    take(&mut run, 0, b, EARLY, 1);
    assert_eq!(cut(&mut run, &[rows(0, b, EARLY)]), names(&[(0, a), (1, a)]));
    assert_eq!(cut(&mut run, &[]), names(&[(0, a), (1, a)]));
    assert_eq!(cut(&mut run, &[]), names(&[(0, a), (1, a), (0, b)]));
    take(&mut run, 1, b, 60 * MS, 0);
    assert_eq!(cut(&mut run, &[]), names(&[(0, b)]));
}

/// So a checkpoint refers to the files of few others.
#[test]
fn a_slice_is_saved_again_after_some_cuts() {
    let program = aggregate(None, 1, &[0], calls(), 0);
    let mut run = Run::new(&program, 1, 2, None);
    run.take(&rows(0, 0, EARLY), 1, 0).expect("rows that fit");
    let saved: Vec<usize> = (1..150).filter(|_| cut(&mut run, &[]).is_empty()).collect();
    assert_eq!(saved, [1, 65, 129]);
}
