//! Producers of `bench ingest`: processes of this program.
//!
//! A producer makes its batches and says `ready`. For each run it reads a line [`Order`] on stdin,
//! connects, says `connected`, waits for the line `go`, sends its batches, and answers with the
//! number of rows that the job has taken.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use millstream_ingest::{Producer, ProducerOptions};
use millstream_workloads::{Spec, Workload, generate_some, schema};
use serde::{Deserialize, Serialize};

use super::plan::Ingest;
use crate::Failure;
use crate::failure::{fail, usage};

/// The command by which the program starts itself as a producer.
pub const PRODUCE: &str = "produce";
/// The name of the table.
pub(crate) const TABLE: &str = "ro";
/// The job listens soon.
const PATIENCE: Duration = Duration::from_secs(30);

const READY: &str = "ready";
const CONNECTED: &str = "connected";
const GO: &str = "go";

/// The records of a producer, and the length of its batches.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    records: u64,
    keys: Option<u64>,
    zipf: Option<String>,
    producer: usize,
    producers: usize,
    batch_rows: usize,
}

/// A run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Where the job listens.
    pub(crate) address: String,
    /// Seconds between two batches, and how many batches; otherwise all records at once.
    pub(crate) paced: Option<(f64, u64)>,
}

/// Processes with their batches in memory. Dropping this ends them.
pub(crate) struct Producers(Vec<One>);

struct One {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Producers {
    pub(crate) fn start(ingest: &Ingest, batch_rows: usize) -> Result<Producers, Failure> {
        let mut all = Producers(Vec::new());
        for producer in 0..ingest.producers {
            let task = Task {
                records: ingest.spec.records,
                keys: ingest.spec.keys,
                zipf: ingest.spec.zipf.map(|zipf| zipf.exponent().to_string()),
                producer,
                producers: ingest.producers,
                batch_rows,
            };
            all.0.push(One::start(&task).map_err(|e| fail(&e))?);
        }
        all.expect(READY)?;
        Ok(all)
    }

    /// All producers connect for a run.
    pub(crate) fn connect(&mut self, order: &Order) -> Result<(), Failure> {
        let line = serde_json::to_string(order).map_err(|e| fail(&e))?;
        self.tell(&line)?;
        self.expect(CONNECTED)
    }

    /// All begin to send.
    pub(crate) fn go(&mut self) -> Result<(), Failure> {
        self.tell(GO)
    }

    /// Waits until all have sent; returns how many rows the job has taken.
    pub(crate) fn taken(&mut self) -> Result<u64, Failure> {
        let rows = |one: &mut One| one.answer()?.parse::<u64>().map_err(|e| fail(&e));
        self.0.iter_mut().map(rows).sum()
    }

    fn tell(&mut self, line: &str) -> Result<(), Failure> {
        let mut told = self.0.iter_mut().map(|one| writeln!(one.orders, "{line}"));
        told.try_for_each(|told| told).map_err(|e| fail(&format!("a producer: {e}")))
    }

    fn expect(&mut self, word: &str) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|one| match one.answer()? {
            answer if answer == word => Ok(()),
            answer => Err(fail(&format!("a producer says '{answer}' in place of '{word}'"))),
        })
    }
}

impl One {
    fn start(task: &Task) -> io::Result<One> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(PRODUCE)
            .arg(serde_json::to_string(task)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(orders), Some(answers)) = pipes else {
            return Err(io::Error::other("a producer without pipes"));
        };
        Ok(One { child, orders, answers: BufReader::new(answers).lines() })
    }

    fn answer(&mut self) -> Result<String, Failure> {
        match self.answers.next() {
            Some(Ok(line)) => Ok(line),
            Some(Err(error)) => Err(fail(&format!("a producer: {error}"))),
            None => Err(fail(&"a producer has ended early")),
        }
    }
}

impl Drop for One {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a producer, as its task and stdin say.
///
/// # Errors
/// If the task is none, or the job takes no records.
pub fn produce(task: &str) -> Result<(), Failure> {
    let task: Task = serde_json::from_str(task).map_err(|_| {
        usage(&"`millstream-lab produce` is started by `millstream-lab bench ingest`")
    })?;
    let zipf = task.zipf.as_ref().map(|z| z.parse()).transpose().map_err(|e| fail(&e))?;
    let spec = Spec { records: task.records, keys: task.keys, zipf, ..Spec::new(Workload::Ro) };
    let own = task.producer..task.producer + 1;
    let batches = generate_some(&spec, task.producers, own, task.batch_rows);
    let batches = batches.into_iter().next().unwrap_or_default();
    let mut orders = io::stdin().lines();
    say(READY)?;
    while let Some(order) = orders.next() {
        let order = order.map_err(|e| fail(&e))?;
        let order: Order = serde_json::from_str(&order).map_err(|e| fail(&e))?;
        let producer = connect(&order, task.producer)?;
        say(CONNECTED)?;
        if orders.next().and_then(Result::ok).as_deref() != Some(GO) {
            return Ok(());
        }
        let taken = match order.paced {
            None => send(producer, &batches),
            Some((every, count)) => send_paced(producer, (every, count), task.batch_rows),
        };
        say(&taken.map_err(|e| fail(&e))?.to_string())?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| fail(&e))
}

fn connect(order: &Order, number: usize) -> Result<Producer, Failure> {
    let options = ProducerOptions::new(&*order.address, TABLE).name(format!("producer-{number}"));
    let begin = Instant::now();
    loop {
        match options.connect(&schema(Workload::Ro)) {
            Ok(producer) => return Ok(producer),
            Err(error) if begin.elapsed() >= PATIENCE => return Err(fail(&error)),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn send(mut producer: Producer, batches: &[RecordBatch]) -> millstream::Result<u64> {
    batches.iter().try_for_each(|batch| producer.send(batch))?;
    producer.finish()
}

/// Sends `count` batches, one every so many seconds. A batch's keys are the time at which the batch
/// was due, in nanoseconds, however late the batch leaves.
fn send_paced(
    mut producer: Producer,
    (every, count): (f64, u64),
    rows: usize,
) -> millstream::Result<u64> {
    let times = Arc::new(TimestampMillisecondArray::from_value(0, rows)) as ArrayRef;
    let (begin, begin_ns) = (Instant::now(), now_ns());
    for number in 0..count {
        let due = Duration::from_secs_f64(every * number as f64);
        while begin.elapsed() < due {
            std::hint::spin_loop();
        }
        let due_ns = begin_ns + due.as_nanos() as i64;
        let keys = Arc::new(Int64Array::from_value(due_ns, rows)) as ArrayRef;
        let batch = RecordBatch::try_new(schema(Workload::Ro), vec![times.clone(), keys]);
        producer.send(&batch.map_err(|e| millstream::Error::Internal(e.to_string()))?)?;
    }
    producer.finish()
}

/// Nanoseconds since 1970, which all processes of a machine agree on.
pub(crate) fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}
