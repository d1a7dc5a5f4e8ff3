//! Tests of what holds the low watermark back, seen from outside.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;

use super::*;
use crate::error::Result;
use crate::plan::{EventTime, Source, Tumble, Watermark};
use crate::roles::Reading;
use crate::table::{Chunk, OpenOptions, Position, SplitPoll, Table};
use millstream_operators::budget::Holder;
use millstream_operators::event_time::BEGINNING;
use millstream_operators::prepare::Preparer;
use millstream_operators::stamped::Stamped;
use millstream_operators::windowing::Windowing;

const IDLE_US: i64 = 100;

/// A clock that is set by hand; no chance.
#[derive(Debug, Default)]
struct Clock {
    now_us: AtomicI64,
    wakes: AtomicUsize,
}

impl Env for Clock {
    fn now_us(&self) -> i64 {
        self.now_us.load(Relaxed)
    }
    fn wait(&self, _: usize, _: Option<i64>) {}
    fn wake(&self, _: usize) {
        self.wakes.fetch_add(1, Relaxed);
    }
    fn choose(&self, _: u64) -> Option<u64> {
        None
    }
    fn pass_time(&self, until_us: i64) {
        self.now_us.store(until_us, Relaxed);
    }
}

/// Splits of records with these event times, each a chunk of its own that is there from its moment
/// on.
#[derive(Debug, Clone)]
struct Timed(Vec<VecDeque<(i64, i64)>>);

struct TimedSplit {
    name: String,
    chunks: VecDeque<(i64, i64)>,
    /// Chunks handed out, also before it was opened.
    given: u64,
}

impl TimedSplit {
    fn new(number: usize, chunks: &VecDeque<(i64, i64)>, options: &OpenOptions) -> TimedSplit {
        let name = format!("timed {number}");
        let given = options.from(&name).0.first().map_or(0, |given| *given);
        TimedSplit { chunks: chunks.iter().skip(given as usize).copied().collect(), name, given }
    }
}

impl Table for Timed {
    fn schema(&self) -> SchemaRef {
        batch(0).schema()
    }
    fn bounded(&self) -> bool {
        false
    }
    fn open(&self, _: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let split = |(number, chunks)| -> Box<dyn Split> {
            Box::new(TimedSplit::new(number, chunks, options))
        };
        Ok(self.0.iter().enumerate().map(split).collect())
    }
    fn describe(&self, _: &[usize]) -> String {
        "timed".into()
    }
}

impl Split for TimedSplit {
    fn position(&self) -> Position {
        Position(vec![self.given])
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn poll_next(&mut self, now_us: i64, _: &Waker) -> Result<SplitPoll> {
        if self.chunks.front().is_none_or(|(moment, _)| *moment > now_us) {
            return Ok(SplitPoll::Pending { retry_at_us: None });
        }
        self.given += 1;
        let chunk = self.chunks.pop_front();
        let chunk = chunk.map(|(_, time)| Box::new(batch(time)) as Box<dyn Chunk>);
        Ok(chunk.map_or(SplitPoll::Ended, SplitPoll::Chunk))
    }
}

/// A split whose only chunk comes when a gate opens: whoever reads from it waits that long, and
/// says before that it does.
struct Gated(Sender<()>, Receiver<()>);

impl Split for Gated {
    /// No test goes on from a position.
    fn position(&self) -> Position {
        Position::default()
    }
    fn name(&self) -> &str {
        "gated"
    }
    fn poll_next(&mut self, _: i64, _: &Waker) -> Result<SplitPoll> {
        self.0.send(()).expect("the test is there");
        // Where others wait for this one, the test would never end.
        self.1.recv_timeout(Duration::from_secs(60)).expect("the others go on meanwhile");
        Ok(SplitPoll::Chunk(Box::new(batch(30))))
    }
}

fn batch(time: i64) -> RecordBatch {
    let column: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![time]));
    RecordBatch::try_from_iter([("ts", column)]).expect("one column")
}

/// As many workers as splits, windows of 100 µs.
fn intake(table: Timed, clock: &Arc<Clock>) -> Intake {
    let workers = table.0.len();
    let options = OpenOptions::alone(1, 0, workers);
    let splits = table.open(&[0], &options).expect("it opens");
    intake_of(splits, table, clock)
}

fn intake_of(splits: Vec<Box<dyn Split>>, table: Timed, clock: &Arc<Clock>) -> Intake {
    let workers = splits.len();
    intake_over(vec![origin_of(splits, table)], workers, clock)
}

fn origin_of(splits: Vec<Box<dyn Split>>, table: Timed) -> Origin {
    let (watermark, idle_timeout_us) = (Watermark::Delay(0), Some(IDLE_US));
    let schema = table.schema();
    let source = Source {
        name: "t".into(),
        table: Arc::new(table),
        projection: vec![0],
        derived: vec![],
        schema,
        event_time: Some(EventTime { column: 0, watermark, zone: None, idle_timeout_us }),
    };
    let preparer = Preparer::new(&source, None, Vec::new());
    let windowings = vec![Windowing::new(Some(Tumble { size_us: 100, offset_us: 0 }.into()), 0)];
    let (name, about, bounded, live, from) = (String::new(), String::new(), true, false, None);
    Origin {
        name,
        about,
        bounded,
        live,
        splits,
        spare: 0,
        from,
        preparer,
        idle_timeout_us,
        windowings,
        group: 0,
    }
}

fn intake_over(origins: Vec<Origin>, workers: usize, clock: &Arc<Clock>) -> Intake {
    let budget = Arc::new(Budget::new(1 << 30, workers, vec![Holder::any()], 1));
    let reading = Reading { processes: 1, process: 0, workers };
    Intake::new(origins, clock.clone(), None, workers, reading, budget)
}

/// The low watermark, when a worker has done its batch.
fn finish(intake: &Intake, worker: usize) -> i64 {
    let mut lows = Vec::new();
    intake.finish(worker, &mut lows).expect("nothing fails");
    lows[0]
}

/// The next batch, which must be there.
fn take(intake: &Intake, worker: usize) -> Box<Stamped> {
    loop {
        match intake
            .take(worker, &[Admitted::All, Admitted::All], &mut None)
            .expect("nothing fails")
        {
            Offer::Batch(batch) => return batch,
            // It has looked at a split that had not begun.
            Offer::Again => {}
            _ => panic!("no batch for worker {worker}"),
        }
    }
}

/// Looks at the splits, of which none has anything.
fn nothing(intake: &Intake, worker: usize) {
    let taken =
        intake.take(worker, &[Admitted::All, Admitted::All], &mut None).expect("nothing fails");
    assert!(matches!(taken, Offer::Wait { .. }));
}

/// While a worker reads from a split that takes its time, others take what there is of other
/// splits. Who has nothing else to do is woken when the split can be read from again.
#[test]
fn nobody_waits_for_a_split_that_another_reads_from() {
    let clock = Arc::new(Clock::default());
    let (reads, says) = channel();
    let (opens, gate) = channel();
    let table = Timed(vec![VecDeque::from([(0, 10), (0, 20)])]);
    let splits: Vec<Box<dyn Split>> = vec![
        Box::new(Gated(reads, gate)),
        Box::new(TimedSplit::new(0, &table.0[0], &OpenOptions::alone(1, 0, 1))),
    ];
    let intake = intake_of(splits, table, &clock);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| take(&intake, 0).after);
        says.recv().expect("worker 0 reads");
        // As long as that may be just a moment, they do not run ahead of it.
        assert!(matches!(
            intake.take(1, &[Admitted::All, Admitted::All], &mut None),
            Ok(Offer::Again)
        ));
        assert!(matches!(
            intake.take(1, &[Admitted::All, Admitted::All], &mut None),
            Ok(Offer::Wait { until_us: Some(_) })
        ));
        clock.pass_time(10_000);
        for after in [10, 20] {
            assert_eq!(take(&intake, 1).after, after);
            assert_eq!(finish(&intake, 1), BEGINNING);
        }
        nothing(&intake, 1);
        let wakes = clock.wakes.load(Relaxed);
        opens.send(()).expect("worker 0 waits");
        assert_eq!(slow.join().expect("it ends well"), 30);
        assert!(clock.wakes.load(Relaxed) >= wakes + 2, "both workers are woken");
    });
}

/// A split that has accepted a record, which comes when it is drained, and before the end.
struct Accepting {
    reads: Option<(Sender<()>, Receiver<()>)>,
    drained: bool,
    chunks: VecDeque<i64>,
}

impl Split for Accepting {
    /// No test goes on from a position.
    fn position(&self) -> Position {
        Position::default()
    }
    fn name(&self) -> &str {
        "accepting"
    }
    fn drain(&mut self) -> bool {
        assert!(!std::mem::replace(&mut self.drained, true), "it is told twice");
        true
    }
    fn poll_next(&mut self, _: i64, _: &Waker) -> Result<SplitPoll> {
        if let Some((says, waits)) = self.reads.take() {
            says.send(()).expect("the test is there");
            waits.recv_timeout(Duration::from_secs(60)).expect("the test goes on");
            return Ok(SplitPoll::Pending { retry_at_us: None });
        }
        let chunk = if self.drained { self.chunks.pop_front() } else { None };
        Ok(match chunk {
            Some(time) => SplitPoll::Chunk(Box::new(batch(time))),
            None if self.drained => SplitPoll::Ended,
            None => SplitPoll::Pending { retry_at_us: None },
        })
    }
}

/// What has been accepted is handed out after a drain, also if somebody reads from the split while
/// that is asked for; other splits end where they are.
#[test]
fn a_drained_split_hands_out_what_it_has_accepted() {
    for reads in [false, true] {
        let clock = Arc::new(Clock::default());
        let (says, heard) = channel();
        let (opens, gate) = channel();
        let table = Timed(vec![VecDeque::from([(0, 40), (i64::MAX, 50)])]);
        let accepting = Accepting {
            reads: reads.then_some((says, gate)),
            drained: false,
            chunks: VecDeque::from([10, 20]),
        };
        let splits: Vec<Box<dyn Split>> = vec![
            Box::new(accepting),
            Box::new(TimedSplit::new(0, &table.0[0], &OpenOptions::alone(1, 0, 1))),
        ];
        let intake = intake_of(splits, table, &clock);
        std::thread::scope(|scope| {
            let reader = reads.then(|| {
                let reader = scope.spawn(|| intake.read(0, 0).is_ok());
                heard.recv().expect("it reads");
                reader
            });
            intake.drain().expect("nothing fails");
            if let Some(reader) = reader {
                assert_eq!(intake.ended_splits(), [None, Some(0)]);
                let wakes = clock.wakes.load(Relaxed);
                opens.send(()).expect("it reads");
                assert!(reader.join().expect("it ends well"));
                assert!(clock.wakes.load(Relaxed) > wakes, "somebody has to look again");
            }
        });
        for after in [10, 20] {
            assert_eq!(take(&intake, 0).after, after);
            finish(&intake, 0);
        }
        let ends = |_: &i32| {
            matches!(intake.take(0, &[Admitted::All, Admitted::All], &mut None), Ok(Offer::Ended))
        };
        assert!((0..10).any(|look| ends(&look)), "it does not end");
        assert_eq!(intake.ended_splits(), [Some(2), Some(0)]);
        assert_eq!(finish(&intake, 0), millstream_operators::event_time::END);
    }
}

/// Who has to wait, for memory or a slow sink, does not look at its splits meanwhile. They are not
/// idle for that: what comes of them would be late.
#[test]
fn a_split_that_nobody_looks_at_is_not_idle() {
    let clock = Arc::new(Clock::default());
    let slow = VecDeque::from([(0, 10), (50, 20)]);
    let intake = intake(Timed(vec![slow, VecDeque::from([(0, 500)])]), &clock);
    for worker in [0, 1] {
        assert_eq!(take(&intake, worker).split, worker);
        finish(&intake, worker);
    }
    nothing(&intake, 0);
    clock.pass_time(10 * IDLE_US);
    assert_eq!(finish(&intake, 0), 10);
    assert!(matches!(
        intake.take(0, &[Admitted::Nothing], &mut None),
        Ok(Offer::Wait { until_us: None })
    ));
    let late = take(&intake, 0);
    assert_eq!((late.split, late.stamp), (0, 10));
    assert_eq!(finish(&intake, 0), 20);
    nothing(&intake, 0);
    // The other one has been without records all the time; this one has just had some.
    clock.pass_time(10 * IDLE_US + 1);
    assert_eq!(finish(&intake, 0), 20);
    assert!(!intake.lock().splits[0].idle && intake.lock().splits[1].idle);
}

/// A split may count as idle while its last batch is away with a worker. If that puts it back, it
/// holds the low watermark again: else windows would fire without the batch.
#[test]
fn a_batch_that_is_put_back_holds_the_low_watermark() {
    let clock = Arc::new(Clock::default());
    let quiet = VecDeque::from([(0, 10), (0, 20)]);
    let busy = VecDeque::from([(0, 500), (IDLE_US + 50, 600)]);
    let intake = intake(Timed(vec![quiet, busy]), &clock);
    assert_eq!(take(&intake, 0).split, 0);
    finish(&intake, 0);
    let away = take(&intake, 0);
    assert_eq!((away.split, away.stamp, away.after), (0, 10, 20));
    assert_eq!(take(&intake, 1).split, 1);
    assert_eq!(finish(&intake, 1), 10);
    // Neither split has anything, and only the other one gets something in time.
    nothing(&intake, 1);
    clock.pass_time(IDLE_US + 50);
    assert_eq!(take(&intake, 1).split, 1);
    assert_eq!(finish(&intake, 1), 10);
    nothing(&intake, 1);
    assert_eq!(finish(&intake, 1), 10);
    assert!(intake.lock().splits[0].idle, "the case that this is about");

    intake.put_back(0, away);
    for worker in [0, 1] {
        assert_eq!(finish(&intake, worker), 10, "worker {worker}");
    }
    let again = take(&intake, 1);
    assert_eq!((again.split, again.stamp, again.after), (0, 10, 20));
    // Now the split is idle indeed, and the other one alone counts.
    assert_eq!(finish(&intake, 1), 600);
}

/// A source of which nothing comes does not hold back another one that it is joined with: it is
/// taken to be as far as that one. What comes of it after all resumes there.
#[test]
fn a_source_that_is_idle_goes_with_what_it_is_joined_with() {
    let clock = Arc::new(Clock::default());
    let quiet = Timed(vec![VecDeque::from([(0, 10), (3 * IDLE_US, 900)])]);
    let busy = Timed(vec![VecDeque::from([(0, 60), (2 * IDLE_US, 350), (2 * IDLE_US, 420)])]);
    let origin = |table: Timed| {
        let splits = table.open(&[0], &OpenOptions::alone(1, 0, 2)).expect("it opens");
        origin_of(splits, table)
    };
    let intake = intake_over(vec![origin(quiet), origin(busy)], 2, &clock);
    let lows = |worker: usize| {
        let mut lows = Vec::new();
        intake.finish(worker, &mut lows).expect("nothing fails");
        lows
    };
    let mut splits = [take(&intake, 0).split, take(&intake, 1).split];
    splits.sort_unstable();
    assert_eq!(splits, [0, 1]);
    lows(0);
    assert_eq!(lows(1), [10, 60], "each has its own, as long as there is something");
    nothing(&intake, 0);
    clock.pass_time(IDLE_US);
    nothing(&intake, 0);
    assert_eq!(lows(0), [60, 60], "both are idle: the farthest counts");
    clock.pass_time(2 * IDLE_US);
    assert_eq!(take(&intake, 0).after, 350);
    assert_eq!(lows(0), [350, 350]);
    assert_eq!(take(&intake, 0).after, 420);
    assert_eq!(lows(0), [420, 420]);
    clock.pass_time(3 * IDLE_US);
    let late = take(&intake, 1);
    assert_eq!((late.split, late.stamp, late.after), (0, 420, 900));
}

/// As above, for a process alone with its split: it must not tell the others that it is idle while
/// it has a batch, or they would fire windows that the batch belongs to.
#[test]
fn a_process_that_puts_a_batch_back_is_not_idle() {
    let clock = Arc::new(Clock::default());
    let own = VecDeque::from([(0, 10), (0, 150), (0, 160)]);
    let intake = intake(Timed(vec![own, VecDeque::new()]), &clock);
    for _ in 0..2 {
        take(&intake, 0);
        finish(&intake, 0);
    }
    let away = take(&intake, 0);
    assert_eq!((away.stamp, away.after), (150, 160));
    clock.pass_time(IDLE_US);
    nothing(&intake, 1);
    assert_eq!(finish(&intake, 1), 150);
    assert!(intake.is_idle(&intake.lock(), 0), "the case that this is about");
    intake.put_back(0, away);
    assert!(!intake.is_idle(&intake.lock(), 0));
    assert_eq!(finish(&intake, 1), 150);
    assert!(!intake.is_idle(&intake.lock(), 0));
}

/// A batch in work holds the low watermark, though its split has gone on, or has ended.
#[test]
fn a_batch_in_work_holds_the_low_watermark() {
    let clock = Arc::new(Clock::default());
    let long = VecDeque::from([(0, 10), (0, 120), (0, 250), (0, 380)]);
    let intake = intake(Timed(vec![long, VecDeque::from([(0, 900)])]), &clock);
    // The first record's batch stays in work with worker 1.
    assert_eq!(take(&intake, 0).after, 10);
    assert_eq!(finish(&intake, 0), 10);
    let slow = loop {
        let batch = take(&intake, 1);
        if batch.split == 0 {
            break batch;
        }
        finish(&intake, 1);
    };
    assert_eq!((slow.stamp, slow.after), (10, 120));
    for after in [250, 380] {
        assert_eq!(take(&intake, 0).after, after);
        assert_eq!(finish(&intake, 0), 10, "after {after}");
    }
    // Everything else has been taken and done.
    while let Offer::Batch(batch) =
        intake.take(0, &[Admitted::All, Admitted::All], &mut None).expect("nothing fails")
    {
        assert_eq!(batch.split, 1);
        assert_eq!(finish(&intake, 0), 10);
    }
    assert_eq!(finish(&intake, 0), 10);
    // When it is done, only what may still come does.
    assert_eq!(finish(&intake, 1), 380);
}

/// Of several files, one that begins later holds the low watermark where it begins, before any of
/// its records is taken in: windows of the others need not wait for its turn.
#[test]
fn a_split_that_has_been_looked_at_holds_the_low_watermark_where_it_begins() {
    let clock = Arc::new(Clock::default());
    let early = VecDeque::from([(0, 10), (0, 150), (0, 420)]);
    let late = VecDeque::from([(0, 400), (0, 500)]);
    let intake = intake(Timed(vec![early, late]), &clock);
    // The later one has been looked at, too, but is not taken in before its turn.
    for after in [10, 150, 420] {
        let batch = take(&intake, 0);
        assert_eq!((batch.split, batch.after), (0, after));
        assert_eq!(finish(&intake, 0), after.min(400), "no further than where the other begins");
    }
    let batch = take(&intake, 0);
    assert_eq!((batch.split, batch.stamp, batch.holds), (1, BEGINNING, 400));
}

mod clock;
mod positions;
mod senders;
