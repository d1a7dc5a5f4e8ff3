//! Scripts on several processes, by public paths alone. Each process is this program, so there is
//! no test harness: `main` calls one test after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, process, thread};

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use millstream::program::cluster::FabricName;
use millstream::{Error, Failure, MemoryTable, Processes, RowOrder, Session, Sink, Stats, Writers};

/// Outlasts every test.
const LONG: &str = "CREATE TABLE long (n BIGINT NOT NULL)
     WITH ('connector' = 'datagen', 'number-of-rows' = '1000000000000',
           'fields.n.kind' = 'sequence');";

fn main() {
    let processes = Processes::here(set_up, std::process::exit).setting("workers", "1");
    let test = |name: &str, test: fn(Processes)| {
        test(processes.clone());
        println!("test {name} ... ok");
    };
    test("rows of all processes come to the first", rows_of_all_processes_come_to_the_first);
    test("every statement has its job", every_statement_has_its_job);
    test("one process is enough", one_process_is_enough);
    test("a mistake starts nothing", a_mistake_starts_nothing);
    test("a job can be stopped", a_job_can_be_stopped);
    test("a reader that goes ends its query only", a_reader_that_goes_ends_its_query_only);
    test("a process that fails is named", a_process_that_fails_is_named);
    test("no process is left", no_process_is_left);
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

/// Rows that this process's sink `here` has taken.
static HERE: AtomicU64 = AtomicU64::new(0);

/// Counts the rows of this process, and fails in process 1 if it is to.
#[derive(Debug)]
struct Here {
    fails: bool,
}

impl Sink for Here {
    fn open(&self, _: &SchemaRef, writers: Writers) -> millstream::Result<()> {
        match self.fails && writers.process == 1 {
            false => Ok(()),
            true => Err(Error::Io {
                place: "the shelf".into(),
                message: "it is full".into(),
                help: "take something out".into(),
            }),
        }
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> millstream::Result<()> {
        HERE.fetch_add(rows.num_rows() as u64, Ordering::SeqCst);
        Ok(())
    }
    fn is_local(&self) -> bool {
        true
    }
    fn finish(&self) -> millstream::Result<()> {
        Ok(())
    }
}

/// Four splits of the same numbers, and sinks of each process's own.
fn set_up(session: &mut Session) -> Result<(), Failure> {
    let column = Int64Array::from_iter_values(1..=100);
    let batch = RecordBatch::try_new(schema(), vec![Arc::new(column)]).expect("one column");
    let table = MemoryTable::new(schema(), vec![vec![batch]; 4])?;
    session.register_table("numbers", Arc::new(table), None)?;
    session.register_function("NEXT", &[DataType::Int64], DataType::Int64, |arguments| {
        let numbers = arguments[0].as_primitive::<Int64Type>();
        Ok(Arc::new(numbers.unary::<_, Int64Type>(|number| number + 1)))
    })?;
    session.register_sink_table("here", &schema(), Arc::new(Here { fails: false }));
    session.register_sink_table("shelf", &schema(), Arc::new(Here { fails: true }));
    Ok(())
}

fn numbers(batches: &[RecordBatch], column: usize) -> Vec<i64> {
    let values =
        |rows: &RecordBatch| rows.column(column).as_primitive::<Int64Type>().values().to_vec();
    batches.iter().flat_map(values).collect()
}

fn rows_of_all_processes_come_to_the_first(processes: Processes) {
    for (count, fabric) in [(2, FabricName::Shm), (3, FabricName::Shm), (2, FabricName::Tcp)] {
        let processes = processes.clone().count(count).over(fabric);
        let query = "SELECT n, COUNT(*) AS c FROM numbers WHERE NEXT(n) <= 4 GROUP BY n";
        let job = processes.submit(query).unwrap().into_iter().next().unwrap();
        let (rows, stats) = job.collect().unwrap();
        assert_eq!(numbers(&rows, 0), [1, 2, 3]);
        assert_eq!(numbers(&rows, 1), [4, 4, 4]);
        assert_eq!((stats.records, stats.rows), (400, 3));
    }
}

fn every_statement_has_its_job(processes: Processes) {
    HERE.store(0, Ordering::SeqCst);
    let script = "CREATE VIEW few AS SELECT n FROM numbers WHERE n <= 2;
                  INSERT INTO here SELECT n FROM few;
                  EXPLAIN SELECT n FROM few;
                  SELECT SUM(n) AS s FROM few;";
    let [insert, explained, sum] =
        processes.submit(script).unwrap().into_iter().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(insert.wait().unwrap().rows, 8);
    // The other process has written the rows of its splits to its own sink.
    assert_eq!(HERE.load(Ordering::SeqCst), 4);
    assert!(explained.collect().unwrap().0[0].num_rows() > 1);
    assert_eq!(numbers(&sum.collect().unwrap().0, 0), [12]);
}

fn one_process_is_enough(processes: Processes) {
    let jobs = processes.count(1).submit("SELECT COUNT(*) AS c FROM numbers").unwrap();
    let rows: Vec<_> = jobs.into_iter().map(|job| job.collect().unwrap().0).collect();
    assert_eq!(numbers(&rows[0], 0), [400]);
}

fn a_mistake_starts_nothing(processes: Processes) {
    no_process_is_left(processes.clone());
    let wrong = processes.submit("SELECT n FROM numbers; SELECT m FROM numbers");
    assert!(matches!(wrong, Err(Failure::Sql(_))), "{wrong:?}");
    for wrong in [
        processes.clone().count(0).submit("SELECT 1"),
        processes.clone().count(1000).submit("SELECT 1"),
        processes.setting("no.such", "1").submit("SELECT 1"),
    ] {
        assert!(matches!(wrong, Err(Failure::Script(_))), "{wrong:?}");
    }
    assert_eq!(children(), 0);
}

fn a_job_can_be_stopped(processes: Processes) {
    let script = format!("{LONG} INSERT INTO here SELECT n FROM long; SELECT 1 AS n;");
    HERE.store(0, Ordering::SeqCst);
    let mut jobs = processes.submit(&script).unwrap().into_iter();
    let (insert, select) = (jobs.next().unwrap(), jobs.next().unwrap());
    while HERE.load(Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    insert.stop();
    let ended = insert.wait();
    assert!(matches!(ended, Err(Failure::Run(Error::Interrupted))), "{ended:?}");
    assert!(matches!(select.collect(), Err(Failure::NotRun)));
}

fn a_reader_that_goes_ends_its_query_only(processes: Processes) {
    let script = format!(
        "{LONG} SELECT n FROM long; SELECT n FROM long WHERE n < 0;
         SELECT COUNT(*) AS c FROM numbers;"
    );
    let mut jobs = processes.submit(&script).unwrap().into_iter();
    let (mut first, second, third) =
        (jobs.next().unwrap(), jobs.next().unwrap(), jobs.next().unwrap());
    let mut rows = first.rows().unwrap();
    rows.next().unwrap().unwrap();
    drop(rows);
    let stats: Stats = first.wait().unwrap();
    assert!(stats.rows > 0);
    drop(second);
    assert_eq!(numbers(&third.collect().unwrap().0, 0), [400]);
}

fn a_process_that_fails_is_named(processes: Processes) {
    let script = "INSERT INTO shelf SELECT n FROM numbers; SELECT 1 AS n;";
    let mut jobs = processes.submit(script).unwrap().into_iter();
    let words = jobs.next().unwrap().wait().unwrap_err().to_string();
    assert_eq!(words, "process 1: the shelf: it is full\n  help: take something out");
    assert!(matches!(jobs.next().unwrap().collect(), Err(Failure::NotRun)));
}

fn no_process_is_left(_: Processes) {
    // Those that have ended with their jobs are waited for before the jobs' thread ends.
    for _ in 0..500 {
        if children() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{} processes are left", children());
}

/// Processes that this one has started and that are still there.
fn children() -> usize {
    let own = process::id().to_string();
    let of_this_process = |stat: String| {
        // After the name in brackets: state, and the process that started it.
        let rest = stat.rsplit_once(')').map(|(_, rest)| rest.to_string());
        rest.is_some_and(|rest| rest.split_whitespace().nth(1) == Some(&*own))
    };
    let all = fs::read_dir("/proc").expect("a Linux system").flatten();
    let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(|stat| of_this_process(stat.clone())).count()
}
