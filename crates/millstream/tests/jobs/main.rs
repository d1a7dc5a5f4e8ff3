//! Scripts that are submitted: jobs, their handles and their rows, by public paths alone; and what
//! Submitted scripts: jobs, their handles and their rows, by public paths alone; functions of the
//! program's own ([`functions`]); what is left of a job's state at its end ([`left`]); positions of
//! a running job ([`positions`]); the level of the processor ([`processor`]).

mod functions;
mod left;
mod positions;
mod processor;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use millstream::program::SessionControl;
use millstream::{
    BlackholeSink, Error, Failure, MemoryTable, Prepared, RowOrder, Session, Sink, Writers, channel,
};

const NUMBERS: &str = "CREATE TABLE numbers (n BIGINT NOT NULL)
     WITH ('connector' = 'datagen', 'number-of-rows' = '1000', 'fields.n.kind' = 'sequence',
           'fields.n.start' = '1', 'fields.n.end' = '1000');";
/// Outlasts every test, and gives as much as is taken.
const LONG: &str = "CREATE TABLE long (n BIGINT NOT NULL)
     WITH ('connector' = 'datagen', 'number-of-rows' = '1000000000000',
           'fields.n.kind' = 'sequence');";

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

fn batch(numbers: impl IntoIterator<Item = i64>) -> RecordBatch {
    let column = Int64Array::from_iter_values(numbers);
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).unwrap()
}

fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
    let column =
        |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    batches.iter().flat_map(column).collect()
}

fn message(failure: Failure) -> String {
    let Failure::Script(message) = failure else { panic!("{failure:?}") };
    message
}

#[test]
fn each_query_of_a_script_is_a_job_and_nothing_is_dropped() {
    let mut session = Session::new(".");
    let hole = Arc::new(BlackholeSink::new());
    session.register_sink_table("hole", &schema(), hole.clone());
    let script = format!(
        "{NUMBERS} INSERT INTO hole SELECT n FROM numbers WHERE n > 990;
         SELECT n FROM numbers WHERE n <= 2;
         EXPLAIN SELECT n FROM numbers;
         SELECT COUNT(*) AS c FROM numbers;"
    );
    let jobs = session.submit(&script).unwrap();
    let statements: Vec<String> = jobs.iter().map(|job| job.statement().to_string()).collect();
    assert_eq!(statements[1], "SELECT n FROM numbers WHERE n <= 2");
    let [insert, first, explained, counted] =
        jobs.into_iter().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(insert.wait().unwrap().rows, 10);
    assert_eq!(hole.rows(), 10);
    let (rows, stats) = first.collect().unwrap();
    assert_eq!((numbers(&rows), stats.records), (vec![1, 2], 1000));
    let (plan, _) = explained.collect().unwrap();
    let lines: Vec<_> = plan[0].column(0).as_string::<i32>().iter().flatten().collect();
    assert!(lines.iter().any(|line| line.contains("numbers")), "{lines:?}");
    assert_eq!(numbers(&counted.collect().unwrap().0), [1000]);
    // What the script has declared stays.
    assert_eq!(numbers(&session.collect("SELECT MAX(n) AS m FROM numbers").unwrap()), [1000]);
}

#[test]
fn what_answers_is_a_job_with_rows() {
    let mut session = Session::new(".");
    let script = format!(
        "{NUMBERS} DESCRIBE numbers; SHOW TABLES;
         EXPLAIN ANALYZE SELECT COUNT(*) AS c FROM numbers WHERE n > 5;"
    );
    let [described, shown, analyzed] =
        session.submit(&script).unwrap().into_iter().collect::<Vec<_>>().try_into().unwrap();
    let lines = |rows: &[RecordBatch]| -> Vec<String> {
        let column = rows[0].column(0).as_string::<i32>();
        column.iter().flatten().map(str::to_string).collect()
    };
    let (rows, stats) = described.collect().unwrap();
    assert_eq!((lines(&rows), stats.rows), (vec!["n".to_string()], 1));
    assert_eq!(rows[0].schema().field(1).name(), "type");
    assert_eq!(lines(&shown.collect().unwrap().0), ["numbers"]);
    let (rows, stats) = analyzed.collect().unwrap();
    let lines = lines(&rows);
    assert!(lines.iter().any(|line| line.starts_with("  = 1,000 records, ")), "{lines:?}");
    // Not the rows of the query, which nobody takes, but its counters.
    assert_eq!((stats.records, stats.rows), (1000, 1));
    assert!(session.collect("EXPLAIN ANALYZE SELECT n FROM numbers").is_ok());
    assert!(session.plan("EXPLAIN ANALYZE SELECT n FROM numbers").is_err());
}

#[test]
fn a_mistake_in_the_last_statement_is_found_before_anything_runs() {
    let mut session = Session::new(".");
    let hole = Arc::new(BlackholeSink::new());
    session.register_sink_table("hole", &schema(), hole.clone());
    let script =
        format!("{NUMBERS} INSERT INTO hole SELECT n FROM numbers; SELECT m FROM numbers;");
    let Failure::Sql(error) = session.submit(&script).unwrap_err() else { panic!("no SQL error") };
    assert!(error.to_string().contains('m'), "{error}");
    assert_eq!(hole.rows(), 0);
    // Nor has anything been declared.
    assert!(session.collect("SELECT n FROM numbers").is_err());
}

#[test]
fn run_and_collect_run_inserts_too_and_refuse_what_they_would_drop() {
    let mut session = Session::new(".");
    let hole = Arc::new(BlackholeSink::new());
    session.register_sink_table("hole", &schema(), hole.clone());
    let insert = "INSERT INTO hole SELECT n FROM numbers WHERE n <= 7;";
    let rows = session.collect(&format!("{NUMBERS} {insert} SELECT n FROM numbers WHERE n = 5;"));
    assert_eq!((numbers(&rows.unwrap()), hole.rows()), (vec![5], 7));
    for (script, found) in
        [(insert, "0 SELECTs"), ("SELECT n FROM numbers; SELECT 1;", "2 SELECTs")]
    {
        let words = message(session.collect(script).unwrap_err());
        assert!(words.contains(found) && words.contains("use submit"), "{words}");
        assert_eq!(hole.rows(), 7);
    }
    assert!(message(session.plan(insert).unwrap_err()).contains("INSERT INTO hole"));
    session.plan("SELECT n FROM numbers").unwrap();
}

#[test]
fn a_slow_reader_slows_the_job_and_one_that_goes_ends_it() {
    let mut session = Session::new(".");
    session.set("workers", "1").unwrap();
    let (writer, table) = channel(schema(), 1);
    session.register_table("fed", Arc::new(table), None).unwrap();
    let mut jobs = session.submit("SELECT n FROM fed").unwrap();
    let mut rows = jobs.iter_mut().next().unwrap().rows().unwrap();
    assert_eq!(rows.schema().field(0).name(), "n");
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let feeder = thread::spawn(move || {
        for n in 0.. {
            if let Err(error) = writer.send(batch([n])) {
                return error;
            }
            counted.store(n as u64 + 1, Ordering::SeqCst);
        }
        unreachable!()
    });
    assert_eq!(numbers(&[rows.next().unwrap().unwrap()]), [0]);
    // Until everything between the feeder and the reader is full.
    let mut before = u64::MAX;
    while sent.load(Ordering::SeqCst) != before {
        before = sent.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(numbers(&[rows.next().unwrap().unwrap()]), [1]);
    drop(rows);
    assert!(matches!(feeder.join().unwrap(), Error::OutputClosed));
    // As with a LIMIT, the job has ended well.
    jobs.wait().unwrap();
}

#[test]
fn a_stream_that_is_dropped_ends_a_job_that_has_no_rows_to_write() {
    let mut session = Session::new(".");
    let script = format!("{LONG} SELECT n FROM long WHERE n < 0; SELECT 1 AS n;");
    let mut jobs = session.submit(&script).unwrap().into_iter();
    drop(jobs.next());
    // The next one has its turn.
    assert_eq!(numbers(&jobs.next().unwrap().collect().unwrap().0), [1]);
}

#[test]
fn what_is_stopped_ends_and_what_is_behind_it_is_not_run() {
    let mut session = Session::new(".");
    let hole = Arc::new(BlackholeSink::new());
    session.register_sink_table("hole", &schema(), hole.clone());
    let script = format!("{LONG} INSERT INTO hole SELECT n FROM long; SELECT n FROM long;");
    let jobs = session.submit(&script).unwrap();
    let mut jobs = jobs.into_iter();
    let (insert, mut select) = (jobs.next().unwrap(), jobs.next().unwrap());
    while hole.rows() == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!insert.has_ended());
    assert!(insert.counters().rows > 0);
    insert.stop();
    assert!(matches!(insert.wait(), Err(Failure::Run(Error::Interrupted))));
    let mut rows = select.rows().unwrap();
    assert!(matches!(rows.next(), Some(Err(Failure::NotRun))));
    assert!(rows.next().is_none());
    assert!(matches!(select.wait(), Err(Failure::NotRun)));
}

#[test]
fn a_job_that_waits_for_its_reader_can_be_stopped() {
    let mut session = Session::new(".");
    let mut jobs = session.submit(&format!("{LONG} SELECT n FROM long")).unwrap();
    let mut rows = jobs.iter_mut().next().unwrap().rows().unwrap();
    rows.next().unwrap().unwrap();
    thread::sleep(Duration::from_millis(50));
    jobs.stop();
    let ends = rows.by_ref().find(Result::is_err);
    assert!(matches!(ends, Some(Err(Failure::Run(Error::Interrupted)))), "{ends:?}");
    assert!(rows.next().is_none());
}

#[test]
fn whoever_asks_a_job_that_waits_for_its_reader_need_not_wait() {
    let mut session = Session::new(".");
    let times = TimestampMillisecondArray::from_iter_values((0..1000).map(|second| second * 1000));
    let batch = RecordBatch::try_from_iter([("ts", Arc::new(times) as _)]).unwrap();
    let table = MemoryTable::new(batch.schema(), vec![vec![batch]]).unwrap();
    session.register_table("seconds", Arc::new(table), Some(("ts", 0))).unwrap();
    let query = "SELECT window_start, COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE seconds, DESCRIPTOR(ts), INTERVAL '1' SECOND))
         GROUP BY window_start, window_end";
    let mut job = session.submit(query).unwrap().into_iter().next().unwrap();
    let mut rows = job.rows().unwrap();
    let first = rows.next().unwrap().unwrap().num_rows();
    // Until the job has written all that has room.
    let mut before = 0;
    while job.counters().rows != before || before == 0 {
        before = job.counters().rows;
        thread::sleep(Duration::from_millis(100));
    }
    assert!(before < 1000 && !job.has_ended());
    let rest: usize = rows.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(first + rest, 1000);
    assert_eq!(job.wait().unwrap().windows, 1000);
}

#[test]
fn scripts_run_beside_each_other() {
    let mut session = Session::new(".");
    session.register_sink_table("hole", &schema(), Arc::new(BlackholeSink::new()));
    let endless = "CREATE TABLE endless (n BIGINT NOT NULL)
         WITH ('connector' = 'datagen', 'rows-per-second' = '10', 'fields.n.kind' = 'sequence');";
    let first = session.submit(&format!("{endless} INSERT INTO hole SELECT n FROM endless"));
    let first = first.unwrap();
    assert_eq!(numbers(&session.collect("SELECT 1 AS n").unwrap()), [1]);
    first.stop();
    assert!(matches!(first.wait(), Err(Failure::Run(Error::Interrupted))));
}

#[test]
fn waiting_for_rows_that_nobody_takes_is_refused() {
    let mut session = Session::new(".");
    let jobs = session.submit(&format!("{NUMBERS} SELECT n FROM numbers")).unwrap();
    let words = message(jobs.wait().unwrap_err());
    assert!(words.contains("SELECT n FROM numbers") && words.contains("collect()"), "{words}");
}

/// Fails at its first row.
#[derive(Debug)]
struct Full;

impl Sink for Full {
    fn open(&self, _: &SchemaRef, _: Writers) -> millstream::Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, _: &RecordBatch, _: bool) -> millstream::Result<()> {
        let (place, help) = ("the shelf".into(), "take something out".into());
        Err(Error::Io { place, message: "it is full".into(), help })
    }
    fn finish(&self) -> millstream::Result<()> {
        Ok(())
    }
}

#[test]
fn a_job_that_fails_says_so_and_ends_the_script() {
    let mut session = Session::new(".");
    session.register_sink_table("shelf", &schema(), Arc::new(Full));
    let script = format!("{NUMBERS} INSERT INTO shelf SELECT n FROM numbers; SELECT 1 AS n;");
    let mut jobs = session.submit(&script).unwrap().into_iter();
    let failure = jobs.next().unwrap().wait().unwrap_err().to_string();
    assert_eq!(failure, "the shelf: it is full\n  help: take something out");
    assert!(matches!(jobs.next().unwrap().collect(), Err(Failure::NotRun)));
}

/// Takes all rows, and cannot show them.
#[derive(Debug)]
struct Locked;

impl Sink for Locked {
    fn open(&self, _: &SchemaRef, _: Writers) -> millstream::Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, _: &RecordBatch, _: bool) -> millstream::Result<()> {
        Ok(())
    }
    fn finish(&self) -> millstream::Result<()> {
        Ok(())
    }
    fn commit(&self, _: &Prepared) -> millstream::Result<()> {
        let (place, help) = ("the window".into(), String::new());
        Err(Error::Io { place, message: "it is locked".into(), help })
    }
}

/// A session with the tables `low` and `high`, and what they take.
fn with_two_sinks() -> (Session, Arc<BlackholeSink>, Arc<BlackholeSink>) {
    let mut session = Session::new(".");
    let (low, high) = (Arc::new(BlackholeSink::new()), Arc::new(BlackholeSink::new()));
    session.register_sink_table("low", &schema(), low.clone());
    session.register_sink_table("high", &schema(), high.clone());
    (session, low, high)
}

#[test]
fn a_statement_set_is_one_job() {
    let (mut session, low, high) = with_two_sinks();
    let script = format!(
        "{NUMBERS} EXECUTE STATEMENT SET BEGIN INSERT INTO low SELECT n FROM numbers WHERE n <= 3;
         INSERT INTO high SELECT n FROM numbers WHERE n > 990; END; SELECT 1 AS n;"
    );
    let mut jobs = session.submit(&script).unwrap().into_iter();
    assert_eq!(jobs.len(), 2);
    let stats = jobs.next().unwrap().wait().unwrap();
    // The table is read once.
    assert_eq!((stats.records, stats.rows), (1000, 13));
    let rows: Vec<u64> = stats.outputs.iter().map(|output| output.rows).collect();
    assert_eq!((rows, low.rows(), high.rows()), (vec![3, 10], 3, 10));
    assert_eq!(numbers(&jobs.next().unwrap().collect().unwrap().0), [1]);
}

#[test]
fn a_job_whose_results_are_published_in_part_says_which() {
    let (mut session, ..) = with_two_sinks();
    session.register_sink_table("shelf", &schema(), Arc::new(Locked));
    let insert = |table: &str| format!("INSERT INTO {table} SELECT n FROM numbers;");
    let [low, shelf, high] = ["low", "shelf", "high"].map(insert);
    let set = format!("EXECUTE STATEMENT SET BEGIN {low} {shelf} {high} END;");
    let jobs = session.submit(&format!("{NUMBERS} {set}")).unwrap();
    assert_eq!(
        jobs.wait().unwrap_err().to_string(),
        "the window: it is locked (of the job's results, published: 'low'; not yet: 'shelf', \
         'high')"
    );
    // Of one result there is nothing to tell apart.
    let error = session.submit(&shelf).unwrap().wait().unwrap_err().to_string();
    assert_eq!(error, "the window: it is locked");
}

#[test]
fn a_sink_of_the_programs_own_is_not_read() {
    let mut session = Session::new(".");
    session.register_sink_table("shelf", &schema(), Arc::new(Full));
    let error = session.collect("SELECT n FROM shelf").unwrap_err().to_string();
    assert!(error.contains("nothing can be read from 'shelf'"), "{error}");
}
