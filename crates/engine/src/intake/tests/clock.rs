//! The clock of splits, in a job that goes on after the clock was put back: for each split, time
//! does not go back.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit, TimestampMillisecondType};

use super::*;
use crate::plan::Derived;
use crate::table::{SourceMarks, SplitMark};

/// Splits whose event time is the clock, and where they begin.
fn by_clock(table: &Timed, from: Option<SourceMarks>) -> Origin {
    let positions = from.as_ref().map(SourceMarks::positions).unwrap_or_default();
    let options = OpenOptions { from: positions, ..OpenOptions::alone(1, 0, 1) };
    let splits = table.open(&[0], &options).expect("it opens");
    let of_ms = DataType::Timestamp(TimeUnit::Millisecond, None);
    let fields = table.schema().fields().iter().cloned().collect::<Vec<_>>().into_iter();
    let fields = fields.chain([Arc::new(Field::new("proc", of_ms, false))]);
    let watermark = Watermark::Clock;
    let source = Source {
        name: "t".into(),
        table: Arc::new(table.clone()),
        projection: vec![0],
        derived: vec![Derived::ReadTime],
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        event_time: Some(EventTime { column: 1, watermark, zone: None, idle_timeout_us: None }),
    };
    let preparer = Preparer::new(&source, None, Vec::new());
    Origin { preparer, from, idle_timeout_us: None, ..origin_of(splits, table.clone()) }
}

/// Time of reading of a record, in milliseconds.
fn read_ms(batch: &Stamped) -> i64 {
    batch.prepared.batch.column(1).as_primitive::<TimestampMillisecondType>().value(0)
}

/// A chunk that has been read and is behind the cut is read again. Its time is not before that of
/// the records before the cut, nor before the watermark at the cut, up to which windows have fired.
#[test]
fn a_chunk_that_is_read_again_has_no_earlier_time() {
    for ticks in [false, true] {
        let clock = Arc::new(Clock::default());
        let table = Timed(vec![VecDeque::from([(0, 10), (0, 20)])]);
        let first = intake_over(vec![by_clock(&table, None)], 1, &clock);
        let read = |at_us: i64| {
            clock.pass_time(at_us);
            first.read(0, at_us).expect("it is read");
        };
        read(1_000);
        if !ticks {
            read(2_000);
        }
        assert_eq!(read_ms(&take(&first, 0)), 1);
        clock.pass_time(4_000);
        // Without a record that waits, the watermark is that of the clock.
        let low_us = if ticks { 4_000 } else { 1_000 };
        assert_eq!(finish(&first, 0), low_us);
        if ticks {
            read(6_000);
        }
        first.begin_cut(0, false);
        assert!(first.has_reached_cut());
        let marks = first.marks().expect("names are unique")[""].clone();
        let mark = &marks.splits["timed 0"];
        assert_eq!((&mark.position.0[..], mark.chunks, marks.low_us), (&[1][..], 1, low_us));
        // The clock is put back.
        clock.pass_time(0);
        let rest = intake_over(vec![by_clock(&table, Some(marks))], 1, &clock);
        let again = take(&rest, 0);
        let low_ms = low_us / 1000;
        assert_eq!((again.sequence, again.stamp, read_ms(&again)), (1, low_us, low_ms), "{ticks}");
        // The watermark stays until the clock is there again.
        let then_us = [0, 500, 9_000];
        let lows = then_us.map(|us| {
            clock.pass_time(us);
            finish(&rest, 0)
        });
        assert_eq!(lows, [low_us, low_us, 9_000], "{ticks}");
    }
}

/// Marks of the first split of two, at this time of the clock.
fn marked(clock_us: i64, low_us: i64) -> SourceMarks {
    let mark = SplitMark {
        position: Position(vec![0]),
        chunks: 0,
        records: 0,
        watermark_us: low_us,
        clock_us,
        number: 0,
        ended: false,
    };
    SourceMarks { low_us, splits: [("timed 0".to_string(), mark)].into() }
}

/// The records of a split that the earlier job did not have are not late, and have no earlier time
/// than others.
#[test]
fn a_new_split_has_the_time_of_the_others() {
    let clock = Arc::new(Clock::default());
    let table = Timed(vec![VecDeque::new(), VecDeque::from([(0, 10)])]);
    let rest = intake_over(vec![by_clock(&table, Some(marked(8_000, 7_000)))], 1, &clock);
    let new = take(&rest, 0);
    assert_eq!((new.split, new.stamp, read_ms(&new)), (1, 7_000, 8));
}

/// A split is idle after its idle time, and not when the clock is there again.
#[test]
fn a_split_is_idle_in_time_after_the_clock_was_put_back() {
    let clock = Arc::new(Clock::default());
    let quiet = VecDeque::from([(0, 10)]);
    let busy = VecDeque::from([(0, 500), (IDLE_US + 50, 600)]);
    let table = Timed(vec![quiet, busy]);
    let splits = table.open(&[0], &OpenOptions::alone(1, 0, 2)).expect("it opens");
    let from = Some(marked(1_000_000, BEGINNING));
    let reading = intake_over(vec![Origin { from, ..origin_of(splits, table) }], 2, &clock);
    for worker in [0, 1] {
        assert_eq!(take(&reading, worker).split, worker);
        finish(&reading, worker);
    }
    nothing(&reading, 0);
    clock.pass_time(IDLE_US + 50);
    assert_eq!(take(&reading, 1).split, 1);
    finish(&reading, 1);
    nothing(&reading, 1);
    assert_eq!(finish(&reading, 1), 600, "the other one is idle");
}
