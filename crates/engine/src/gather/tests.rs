//! Tests of writing: whoever has rows for an output goes on while another worker writes, and what
//! is written, and told, is the same as if it had waited.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};

use super::writer::Written;
use super::*;
use crate::edges::Root;
use crate::error::{Error, Result};
use crate::plan::Tumble;
use crate::rows::{Rows, RowsKind, changes_refused};
use crate::sink::Writers;
use millstream_operators::budget::Kind;
use millstream_operators::operator::RowTimes;
use millstream_operators::stamped::BatchPlace;
use millstream_operators::windowing::{WindowId, Windowing};

const SIZE_US: i64 = 100;

/// A sink that takes as long over each write as its gate stays closed, and says before that it
/// writes.
#[derive(Debug)]
struct Gated {
    says: Mutex<Sender<()>>,
    gate: Mutex<Receiver<Result<()>>>,
    rows: Mutex<Vec<i64>>,
}

impl Sink for Gated {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Deterministic
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        // One call at a time: a second one would find this locked.
        let gate = self.gate.try_lock().expect("nobody else writes");
        self.says.lock().expect("no panic").send(()).expect("the test is there");
        // Where others wait for this one, the test would never end.
        gate.recv_timeout(Duration::from_secs(60)).expect("the others go on meanwhile")?;
        self.rows.lock().expect("no panic").extend(values(rows));
        Ok(())
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

fn batch(values: impl IntoIterator<Item = i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_from_iter([("value", column)]).expect("one column")
}

fn values(rows: &RecordBatch) -> Vec<i64> {
    rows.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// An output, and its sink from outside.
struct Fixture {
    gather: Gather,
    sink: Arc<Gated>,
    writes: Receiver<()>,
    opens: Sender<Result<()>>,
    budget: Arc<Budget>,
}

/// A sink of rows in any order, which takes changes, too, or does not.
#[derive(Debug)]
struct Loose {
    takes_changes: bool,
    rows: Mutex<Vec<i64>>,
}

impl Sink for Loose {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        self.rows.lock().expect("no panic").extend(values(rows));
        Ok(())
    }
    fn write_changes(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        match self.takes_changes {
            true => self.write(worker, rows, flush),
            false => Err(changes_refused("table 'loose'")),
        }
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// An output of windows or of records, for two leaders or of two splits.
fn output(root: Root, limit: Option<u64>) -> GatheredOutput {
    let windowing = Windowing::new(Some(Tumble { size_us: SIZE_US, offset_us: 0 }.into()), 0);
    let (stages, splits) = match root {
        Root::Stage(stage) => (vec![(stage, windowing)], vec![]),
        Root::Source(_) => (vec![], vec![0, 1]),
    };
    GatheredOutput {
        output: 0,
        schema: batch([]).schema(),
        inputs: vec![root],
        stages,
        turns: Turns::together(splits),
        offset: 0,
        limit,
        sort: None,
        side: false,
        leaders: 2,
        role: Role::Alone { elsewhere: false },
        one_writer: false,
    }
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 20, 2, vec![millstream_operators::budget::Holder::any()], 1))
}

impl Fixture {
    /// Of the windows of two leaders, or of the records of two splits.
    fn new(root: Root, limit: Option<u64>) -> Fixture {
        let (says, writes) = channel();
        let (opens, gate) = channel();
        let rows = Mutex::default();
        let sink = Arc::new(Gated { says: Mutex::new(says), gate: Mutex::new(gate), rows });
        let budget = budget();
        let gather = Gather::new(output(root, limit), sink.clone(), budget.clone());
        Fixture { gather, sink, writes, opens, budget }
    }

    /// Both leaders have fired the window with this number, each some of its rows.
    fn fire(&self, number: i64, rows: [RecordBatch; 2]) {
        for (worker, rows) in rows.into_iter().enumerate() {
            let watermark = (number + 1) * SIZE_US;
            let window = WindowId::from_word((number * SIZE_US) as u64);
            self.gather
                .window_rows(
                    worker,
                    (0, window),
                    (Rows::of_final(rows), &RowTimes::Same(None)),
                    true,
                )
                .expect("no error");
            self.gather.advance(worker, 0, watermark).expect("no error");
        }
    }

    /// A chunk of a split, which has this one value.
    fn chunk(&self, worker: usize, (sequence, split): ChunkAt, value: i64) {
        let rows = BatchRows { rows: Rows::of_final(batch([value])), then: None, last: true };
        let place = BatchPlace { sequence, split, part: 0 };
        self.gather.batch_rows(worker, place, rows, &[None, None]).expect("no error");
    }

    fn written(&self) -> Vec<i64> {
        self.sink.rows.lock().expect("no panic").clone()
    }

    fn held(&self) -> u64 {
        self.budget.held(Kind::Output)
    }

    /// Lets `meanwhile` happen while worker 0 writes what there is first; each write ends as it
    /// says. What came of that worker's share.
    fn write_during(
        &self,
        meanwhile: impl FnOnce(),
        ends: impl IntoIterator<Item = Result<()>>,
    ) -> Result<Written> {
        let gather = &self.gather;
        thread::scope(|scope| {
            let slow = scope.spawn(|| gather.write_share(0));
            self.writes.recv().expect("worker 0 writes");
            meanwhile();
            ends.into_iter().for_each(|end| self.opens.send(end).expect("worker 0 is there"));
            slow.join().expect("no panic")
        })
    }
}

/// While a window is written, others bring rows of the next ones, which come out after it, and are
/// told of only then.
#[test]
fn nobody_waits_for_a_window_that_another_writes() {
    let output = Fixture::new(Root::Stage(0), None);
    output.fire(0, [batch([2, 4]), batch([1, 3])]);
    let meanwhile = || {
        output.fire(1, [batch([6]), batch([5])]);
        output.fire(2, [batch([7]), batch([])]);
        assert!(!output.gather.needs_writer(), "somebody writes");
        assert!(output.gather.write_share(1).expect("no error").windows.is_empty());
        assert_eq!(output.gather.fired(0), BEGINNING, "nothing has been written");
        assert!(output.gather.others_behind(0, SIZE_US));
    };
    let written = output.write_during(meanwhile, [Ok(()), Ok(()), Ok(())]).expect("no error");
    assert_eq!(written.windows.len(), 3);
    assert!(!written.enough && !output.gather.needs_writer());
    assert_eq!(output.written(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((output.gather.fired(0), output.gather.rows()), (3 * SIZE_US, 7));
    assert_eq!((output.held(), output.gather.queued_bytes()), (0, 0));
}

/// Rows of records, too, come out in the order of their batches.
#[test]
fn nobody_waits_for_rows_of_records_that_another_writes() {
    let output = Fixture::new(Root::Source(0), None);
    output.chunk(0, (0, 0), 1);
    let meanwhile = || {
        output.chunk(1, (1, 0), 3);
        output.chunk(1, (1, 1), 4);
        output.chunk(1, (0, 1), 2);
    };
    output.write_during(meanwhile, (0..4).map(|_| Ok(()))).expect("no error");
    assert_eq!(output.written(), [1, 2, 3, 4]);
    assert_eq!((output.held(), output.gather.queued_bytes()), (0, 0));
}

/// Which rows a LIMIT lets through depends on the queue's order alone; it is reached when the last
/// of them has been written, and then nothing is left.
#[test]
fn a_limit_is_reached_when_its_last_row_has_been_written() {
    let output = Fixture::new(Root::Source(0), Some(3));
    output.chunk(0, (0, 0), 1);
    let meanwhile = || {
        for (number, chunk) in [(0, 1), (1, 0), (1, 1), (2, 0)].into_iter().enumerate() {
            output.chunk(1, chunk, number as i64 + 2);
        }
        assert!(!output.gather.write_share(1).expect("no error").enough);
    };
    let written = output.write_during(meanwhile, (0..3).map(|_| Ok(()))).expect("no error");
    assert!(written.enough);
    assert_eq!(output.written(), [1, 2, 3]);
    assert_eq!((output.held(), output.gather.queued_bytes()), (0, 0));
    assert!(output.gather.end());
    output.chunk(1, (2, 1), 7);
    assert!(!output.gather.needs_writer() && output.held() == 0);
}

/// Who writes gets the sink's error, once. The others go on; what they have brought is dropped.
#[test]
fn the_error_of_a_sink_comes_once_and_nobody_hangs() {
    let output = Fixture::new(Root::Stage(0), None);
    output.fire(0, [batch([1]), batch([])]);
    let meanwhile = || output.fire(1, [batch([2]), batch([3])]);
    let error = output.write_during(meanwhile, [Err(Error::OutputClosed)]).map(|w| w.windows);
    assert!(matches!(error, Err(Error::OutputClosed)), "{error:?}");
    output.fire(2, [batch([4]), batch([5])]);
    assert!(!output.gather.needs_writer());
    assert!(output.gather.write_share(1).expect("no second error").windows.is_empty());
    assert!(output.written().is_empty());
    assert_eq!((output.held(), output.gather.queued_bytes()), (0, 0));
}

/// Rows that wait for a slow sink are counted, and beyond some of them no more are welcome, until
/// they have been written.
#[test]
fn rows_that_wait_for_a_slow_sink_are_bounded() {
    let output = Fixture::new(Root::Source(0), None);
    output.chunk(0, (0, 0), 0);
    let (mut count, most) = (1, output.budget.queue_bytes_max());
    let gather = &output.gather;
    thread::scope(|scope| {
        let slow = scope.spawn(|| gather.write_share(0));
        output.writes.recv().expect("worker 0 writes");
        while !output.gather.is_congested() {
            assert!(output.gather.queued_bytes() < most, "never congested");
            output.chunk(1, (count / 2, count as usize % 2), count as i64);
            count += 1;
        }
        assert!(output.held() >= most && output.held() <= most + most / 8);
        (0..count).for_each(|_| output.opens.send(Ok(())).expect("somebody writes"));
        let first = slow.join().expect("no panic").expect("no error");
        assert!(!first.enough && output.gather.needs_writer(), "a share is not all");
        while output.gather.needs_writer() {
            output.gather.write_share(1).expect("no error");
        }
    });
    assert!(!output.gather.is_congested() && output.held() == 0);
    assert_eq!(output.written(), (0..count as i64).collect::<Vec<_>>());
}

/// Changes of earlier rows reach a sink that takes them; a sink of final rows, and an output whose
/// rows have an order, refuse them with the same error.
#[test]
fn changes_are_refused_unless_the_sink_takes_them() {
    let changes = |gather: &Gather| {
        let rows = Rows { batch: batch([1, 2]), kind: RowsKind::Changes };
        let window = (0, WindowId::from_word(0));
        let came = gather.window_rows(0, window, (rows, &RowTimes::Same(None)), true);
        came.map_err(|error| error.to_string())
    };
    let refused = |taker: &str| Err(changes_refused(taker).to_string());
    let loose = |takes_changes| Arc::new(Loose { takes_changes, rows: Mutex::default() });
    let gather = |sink: Arc<dyn Sink>| Gather::new(output(Root::Stage(0), None), sink, budget());
    let takes = loose(true);
    assert_eq!(changes(&gather(takes.clone())), Ok(()));
    assert_eq!(*takes.rows.lock().expect("no panic"), [1, 2]);
    let refuses = loose(false);
    assert_eq!(changes(&gather(refuses.clone())), refused("table 'loose'"));
    assert!(refuses.rows.lock().expect("no panic").is_empty());
    let ordered = Fixture::new(Root::Stage(0), None);
    assert_eq!(changes(&ordered.gather), refused("result 1"));
    assert!(!ordered.gather.needs_writer());
}
