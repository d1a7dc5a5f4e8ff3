//! Tests of sinks that are slow, on real threads: while one worker writes, the others go on, as far
//! as memory allows. Simulation cannot show this, since a simulated step writes in no time.

use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::support::*;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::sink::{RowOrder, Sink, Writers};
use millstream_contract::table::*;
use millstream_contract::{Error, Result, Settings};
use millstream_engine::{Job, Stats};

const CHUNKS: usize = 400;
const CHUNK_ROWS: usize = 100;

/// How many chunks have been taken from the table.
#[derive(Debug, Default)]
struct Taken {
    chunks: Mutex<usize>,
    more: Condvar,
}

impl Taken {
    /// Waits until so many have been taken.
    fn wait_for(&self, count: usize) {
        let (chunks, limit) = (self.chunks.lock().unwrap(), Duration::from_secs(60));
        let waited = self.more.wait_timeout_while(chunks, limit, |chunks| *chunks < count);
        // Where others wait for the sink, the test would never end.
        assert!(!waited.unwrap().1.timed_out(), "the others go on meanwhile");
    }

    /// Waits until nobody takes any more for a while; how many have been taken.
    fn wait_for_rest(&self) -> usize {
        let mut chunks = self.chunks.lock().unwrap();
        loop {
            let before = *chunks;
            let limit = Duration::from_millis(300);
            chunks = self.more.wait_timeout_while(chunks, limit, |c| *c == before).unwrap().0;
            if *chunks == before || *chunks == CHUNKS {
                return *chunks;
            }
        }
    }
}

/// One split, whose chunks are counted as they are taken.
#[derive(Debug)]
struct Counted {
    batches: Vec<RecordBatch>,
    taken: Arc<Taken>,
}

struct CountedSplit(std::vec::IntoIter<RecordBatch>, Arc<Taken>);

impl Split for CountedSplit {
    /// No test goes on from a position.
    fn position(&self) -> Position {
        Position::default()
    }
    fn name(&self) -> &str {
        "counted"
    }
    fn poll_next(&mut self, _: i64, _: &Waker) -> Result<SplitPoll> {
        let Some(batch) = self.0.next() else { return Ok(SplitPoll::Ended) };
        *self.1.chunks.lock().unwrap() += 1;
        self.1.more.notify_all();
        Ok(SplitPoll::Chunk(Box::new(batch)))
    }
}

impl Table for Counted {
    fn schema(&self) -> SchemaRef {
        self.batches[0].schema()
    }
    fn bounded(&self) -> bool {
        true
    }
    fn open(&self, _: &[usize], _: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        Ok(vec![Box::new(CountedSplit(self.batches.clone().into_iter(), self.taken.clone()))])
    }
    fn describe(&self, _: &[usize]) -> String {
        "counted".into()
    }
}

/// What happens within the first write.
type First = Box<dyn Fn(&Taken) -> Result<()> + Send + Sync>;

/// A sink whose first write takes its time.
struct Slow {
    taken: Arc<Taken>,
    first: First,
    lines: Mutex<Vec<String>>,
    writes: Mutex<usize>,
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slow")
    }
}

impl Sink for Slow {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Deterministic
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        let mut writes = self.writes.try_lock().expect("one call at a time");
        *writes += 1;
        if *writes == 1 {
            (self.first)(&self.taken)?;
        }
        self.lines.lock().unwrap().extend(lines(rows));
        Ok(())
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// Runs a plan that passes all records on into a slow sink; the rows of the result, as far as they
/// were written, and the number of writes.
fn run_slowly(
    settings: &Settings,
    limit: Option<u64>,
    first: impl Fn(&Taken) -> Result<()> + Send + Sync + 'static,
) -> (Stats, Result<()>, Vec<String>, usize) {
    let memory =
        table(&records(&mut Random::new(5), 1, CHUNKS * CHUNK_ROWS, 50), &mut Random::new(5), 1);
    let all = arrow::compute::concat_batches(&memory.schema, &memory.splits[0]).unwrap();
    let batches = (0..CHUNKS).map(|i| all.slice(i * CHUNK_ROWS, CHUNK_ROWS)).collect();
    let taken = Arc::new(Taken::default());
    let plan = passing(Arc::new(Counted { batches, taken: taken.clone() }), limit);
    let sink = Arc::new(Slow {
        taken,
        first: Box::new(first),
        lines: Mutex::default(),
        writes: Mutex::default(),
    });
    let (stats, result) = Job::new(&plan, settings, vec![sink.clone()]).unwrap().run();
    let (lines, writes) = (sink.lines.lock().unwrap().clone(), *sink.writes.lock().unwrap());
    let expected: Vec<String> = crate::support::lines(&all);
    assert_eq!(lines, expected[..lines.len()], "rows in the order of records");
    (stats, result, lines, writes)
}

fn settings(workers: usize) -> Settings {
    Settings { workers, ..Settings::default() }
}

/// The first write ends when the others have taken half of the records, and given their rows.
#[test]
fn others_go_on_while_one_writes() {
    for workers in [2, 4] {
        let first = |taken: &Taken| {
            taken.wait_for(CHUNKS / 2);
            Ok(())
        };
        let (stats, result, lines, _) = run_slowly(&settings(workers), None, first);
        result.unwrap();
        assert_eq!((lines.len(), stats.rows), (CHUNKS * CHUNK_ROWS, lines.len() as u64));
        let limit = Some(CHUNK_ROWS as u64 * 3 + 7);
        let (_, result, lines, _) = run_slowly(&settings(workers), limit, first);
        result.unwrap();
        assert_eq!(lines.len(), CHUNK_ROWS * 3 + 7);
    }
}

/// A sink that does not return for a while: the others stop when their rows have their share of the
/// memory, long before the end of the input.
#[test]
fn rows_for_a_sink_that_does_not_return_are_bounded() {
    let memory_bytes = 16 << 20;
    let (waits, waited) = std::sync::mpsc::channel();
    let first = move |taken: &Taken| {
        waits.send(taken.wait_for_rest()).unwrap();
        Ok(())
    };
    let settings = Settings { memory_bytes, ..settings(2) };
    let (stats, result, lines, _) = run_slowly(&settings, None, first);
    result.unwrap();
    assert_eq!(lines.len(), CHUNKS * CHUNK_ROWS);
    let taken = waited.recv().unwrap();
    assert!((3..CHUNKS).contains(&taken), "{taken} chunks were taken while the sink waited");
    assert!(stats.memory_bytes_peak < memory_bytes / 4, "{stats:?}");
}

/// The sink fails while the others bring it rows: the job has its error, and nobody hangs.
#[test]
fn a_sink_that_fails_while_others_bring_rows_ends_the_job_once() {
    let first = |taken: &Taken| {
        taken.wait_for(10);
        Err(Error::Io { place: "sink".into(), message: "it is full".into(), help: String::new() })
    };
    let (stats, result, lines, writes) = run_slowly(&settings(3), None, first);
    let error = result.expect_err("the sink has failed").to_string();
    assert!(error.contains("it is full"), "{error}");
    assert!((lines.len(), writes) == (0, 1), "{stats:?}");
    // Whoever reads the rows takes no more: no error.
    let first = |taken: &Taken| {
        taken.wait_for(10);
        Err(Error::OutputClosed)
    };
    let (_, result, lines, writes) = run_slowly(&settings(3), None, first);
    result.unwrap();
    assert_eq!((lines.len(), writes), (0, 1));
}
