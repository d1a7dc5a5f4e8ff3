//! From a script to jobs: all statements are planned before anything runs, and no query is dropped.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_connect::{BlackholeSink, CollectSink};
use millstream_contract::sink::{ONLY_INTERVAL, RowOrder, Sink, Writers, mark_all, publish_all};
use millstream_engine::Stats;
use millstream_sql::{Statement, parse_script};

use crate::failure::Failure;
use crate::jobs::{Jobs, SharedJobs, Shown, Submitted, explained_schema, lines, submit};
use crate::program::analyzed::analyzed as analyzed_text;
use crate::program::cluster::check_settings;
use crate::program::control::{NAME, SessionControl, one_wanted};
use crate::program::planned::{Executed, Planned};
use crate::program::saved::{Beginning, Readied, Ready, fix_start, ready};
use crate::rows::{Queue, RowsSink};
use crate::session::Session;

/// Kind of a statement, known from its rehearsal.
pub(crate) enum Rehearsed {
    /// The statement declares or sets something.
    Done,
    /// A query; the columns of its rows, if they are the program's to take.
    Query(Option<SchemaRef>),
    /// The statement answers with rows of these columns; no query of the program runs.
    Answer(SchemaRef),
}

impl Session {
    /// Submits the statements of a script: its queries run one after the other, in a thread of
    /// their own, each as a job with a handle. The session knows at once what the script declares
    /// and sets.
    ///
    /// Rows of a `SELECT` come through [`JobHandle::rows`](crate::JobHandle::rows). Separately
    /// submitted scripts run at the same time.
    ///
    /// ```
    /// use millstream::Session;
    ///
    /// let mut session = Session::new(".");
    /// let jobs = session.submit(
    ///     "CREATE TABLE numbers (n BIGINT NOT NULL)
    ///      WITH ('connector' = 'datagen', 'number-of-rows' = '1000', 'fields.n.kind' = 'sequence',
    ///            'fields.n.start' = '1', 'fields.n.end' = '1000');
    ///      CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');
    ///      INSERT INTO nowhere SELECT n FROM numbers WHERE n > 900;
    ///      SELECT SUM(n) AS total FROM numbers;",
    /// )?;
    /// assert_eq!(jobs.len(), 2);
    /// let mut jobs = jobs.into_iter();
    /// let (insert, mut select) = (jobs.next().unwrap(), jobs.next().unwrap());
    /// assert_eq!(insert.wait()?.rows, 100);
    /// for batch in select.rows().unwrap() {
    ///     println!("{:?}", batch?);
    /// }
    /// assert_eq!(select.wait()?.records, 1000);
    /// # Ok::<(), millstream::Failure>(())
    /// ```
    ///
    /// # Errors
    /// A mistake in any statement, or in the environment variable `MILLSTREAM_CPU`: then no
    /// statement has run. Later errors come from the jobs.
    pub fn submit(&mut self, script: &str) -> Result<Jobs, Failure> {
        self.start(parse_script(script, NAME)?, || Shown::Rows(Arc::new(Queue::default())))
    }

    /// Runs a script with a single `SELECT` to its end. The rows of the `SELECT` go to `sink`, and
    /// the rows of `INSERT`s to their tables. Returns the counters of the `SELECT`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use millstream::{BlackholeSink, Session};
    ///
    /// let query = "SELECT n FROM (VALUES (1), (2)) AS t (n)";
    /// let stats = Session::new(".").run(query, Arc::new(BlackholeSink::new()))?;
    /// assert_eq!(stats.rows, 2);
    /// # Ok::<(), millstream::Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::Script`] if there is no `SELECT`, or several.
    pub fn run(&mut self, sql: &str, sink: Arc<dyn Sink>) -> Result<Stats, Failure> {
        let statements = parse_script(sql, NAME)?;
        let (_, rehearsed) = self.rehearsed(&statements, 1)?;
        let jobs = rehearsed.iter().filter(|one| !matches!(one, Rehearsed::Done));
        let with_rows: Vec<usize> = jobs
            .enumerate()
            .filter(|(_, one)| !matches!(one, Rehearsed::Query(None)))
            .map(|(job, _)| job)
            .collect();
        let [select] = with_rows[..] else { return Err(one_wanted("SELECT", with_rows.len())) };
        let mut stats = self.start(statements, || Shown::Sink(sink.clone()))?.wait()?;
        Ok(stats.swap_remove(select))
    }

    /// Runs a script with one `SELECT` to its end and returns its rows, in an order that does not
    /// depend on the number of workers.
    ///
    /// ```
    /// let rows = millstream::Session::new(".").collect("SELECT n FROM (VALUES (7)) AS t (n)")?;
    /// assert_eq!(rows[0].num_rows(), 1);
    /// # Ok::<(), millstream::Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::Script`] if there is no `SELECT`, or several.
    pub fn collect(&mut self, sql: &str) -> Result<Vec<RecordBatch>, Failure> {
        let sink = Arc::new(CollectSink::new(RowOrder::Deterministic));
        self.run(sql, sink.clone())?;
        Ok(sink.take())
    }

    /// The session after the statements, and what they are.
    pub(crate) fn rehearsed(
        &self,
        statements: &[Statement],
        processes: usize,
    ) -> Result<(Session, Vec<Rehearsed>), Failure> {
        let mut trial = self.rehearsal();
        let mut rehearse = |statement| -> Result<Rehearsed, Failure> {
            Ok(match trial.execute(statement)? {
                Executed::Done => Rehearsed::Done,
                Executed::Explained(_) => Rehearsed::Answer(explained_schema()),
                Executed::Listed(rows) => Rehearsed::Answer(rows.schema()),
                Executed::Query(planned) => {
                    check_settings(processes, trial.settings())
                        .map_err(|e| trial.refuse_setting(e))?;
                    match planned.sinks.is_empty() {
                        _ if planned.analyze => Rehearsed::Answer(explained_schema()),
                        true => Rehearsed::Query(Some(planned.plan.output(0)?.output.clone())),
                        false => Rehearsed::Query(None),
                    }
                }
            })
        };
        let found = statements.iter().map(&mut rehearse).collect::<Result<_, _>>()?;
        Ok((trial.after_rehearsal(), found))
    }

    /// Submits statements; `show` says where the rows go of a query that names no sink.
    fn start(
        &mut self,
        statements: Vec<Statement>,
        show: impl Fn() -> Shown,
    ) -> Result<Jobs, Failure> {
        millstream_cpu::check().map_err(Failure::Script)?;
        let (after, rehearsed) = self.rehearsed(&statements, 1)?;
        let (submitted, steps) = jobs_of(statements, rehearsed, show);
        let session = self.clone();
        let jobs = submit(submitted, move |shared| run_all(session, &steps, shared))?;
        *self = after;
        Ok(jobs)
    }
}

/// The jobs that statements are, and the statements with whether they are one. `show` says where
/// the rows go of a query that names no sink.
pub(crate) fn jobs_of(
    statements: Vec<Statement>,
    rehearsed: Vec<Rehearsed>,
    show: impl Fn() -> Shown,
) -> (Vec<Submitted>, Vec<(Statement, bool)>) {
    let mut submitted = Vec::new();
    let mut steps = Vec::new();
    for (statement, rehearsed) in statements.into_iter().zip(rehearsed) {
        let (schema, shown) = match rehearsed {
            Rehearsed::Done => (None, None),
            Rehearsed::Query(None) => (None, Some(Shown::Nothing)),
            Rehearsed::Query(schema) => (schema, Some(show())),
            Rehearsed::Answer(schema) => (Some(schema), Some(show())),
        };
        steps.push((statement, shown.is_some()));
        if let (Some(shown), Some((statement, _))) = (shown, steps.last()) {
            let schema = schema.unwrap_or_else(explained_schema);
            submitted.push(Submitted { statement: statement.text(), schema, shown });
        }
    }
    (submitted, steps)
}

/// Executes statements one after the other, including jobs, until a statement fails.
fn run_all(mut session: Session, steps: &[(Statement, bool)], shared: &SharedJobs) {
    let mut number = 0;
    for (statement, is_job) in steps {
        let (stats, result) = match is_job {
            true => match shared.may_run(number) {
                Ok(true) => run_one(&mut session, statement, shared, number),
                Ok(false) => (Stats::default(), Ok(())),
                Err(stopped) => (Stats::default(), Err(stopped)),
            },
            // What could be planned is executed; if not, the next job cannot run.
            false => match session.execute(statement) {
                Ok(_) => continue,
                Err(failure) => (Stats::default(), Err(failure)),
            },
        };
        let failed = result.is_err();
        shared.ends(number, stats, result);
        if failed {
            return;
        }
        number += 1;
    }
}

/// Runs a job to its end.
fn run_one(
    session: &mut Session,
    statement: &Statement,
    shared: &SharedJobs,
    number: usize,
) -> (Stats, Result<(), Failure>) {
    let sink: Option<Arc<dyn Sink>> = match shared.shown(number) {
        Shown::Rows(queue) => Some(Arc::new(RowsSink(queue))),
        Shown::Sink(sink) => Some(sink),
        Shown::Nothing => None,
    };
    let answered = |rows: Result<RecordBatch, Failure>| {
        let written = rows.and_then(|rows| match &sink {
            Some(sink) => write_answer(&**sink, &rows),
            None => Ok(0),
        });
        let rows = *written.as_ref().unwrap_or(&0);
        (Stats { rows, ..Stats::default() }, written.map(drop))
    };
    fix_start(session, &Beginning::default());
    let planned = match session.execute(statement) {
        Ok(Executed::Query(planned)) => planned,
        Ok(Executed::Explained(text)) => return answered(lines(&text)),
        Ok(Executed::Listed(rows)) => return answered(Ok(rows)),
        Ok(Executed::Done) => return (Stats::default(), Ok(())),
        Err(failure) => return (Stats::default(), Err(failure)),
    };
    let analyzed = planned.analyze.then(|| (planned.explain.clone(), planned.plan.clone()));
    match prepare(session, *planned, sink.clone(), shared.count()) {
        Ok(Some(Prepared { ready, sinks, targets })) => {
            let stopping = ready.stopping.clone();
            let remarks = [&ready.remarks[..], ready.job.remarks()].concat();
            shared.runs(number, Arc::new(stopping.clone()), &remarks);
            let (stats, result) = ready.run();
            let result = result.and_then(|()| stopping.end()).and_then(|ended| match ended {
                true => mark_all(&sinks),
                false => publish_all(&sinks, &targets),
            });
            let result = result.map_err(Failure::Run).and_then(|()| match analyzed {
                Some((text, plan)) => answered(lines(&analyzed_text(&text, &plan, &stats))).1,
                None => Ok(()),
            });
            (stats, result)
        }
        Ok(None) => (Stats::default(), Ok(())),
        Err(failure) => (Stats::default(), Err(failure)),
    }
}

/// A job that is about to run, and where its rows go.
struct Prepared {
    ready: Box<Ready>,
    sinks: Vec<Arc<dyn Sink>>,
    /// The names of the tables that the sinks are of.
    targets: Vec<String>,
}

/// Prepares a job, of so many in the script; `None` if an earlier program has run it to its end.
fn prepare(
    session: &Session,
    mut planned: Planned,
    sink: Option<Arc<dyn Sink>>,
    queries: usize,
) -> Result<Option<Prepared>, Failure> {
    check_settings(1, session.settings()).map_err(|e| session.refuse_setting(e))?;
    // A query without a reader of its rows has a sink that drops them.
    let sinks = planned.take_sinks(|| sink.unwrap_or_else(|| Arc::new(BlackholeSink::new())));
    let readied = ready(session, &planned, &sinks, &Beginning::default(), queries, |_| ())?;
    let Readied::Runs(ready) = readied else { return Ok(None) };
    Ok(Some(Prepared { ready, sinks, targets: planned.targets }))
}

/// Writes a text into a sink, a row for each line; returns how many.
pub(crate) fn write_lines(sink: &dyn Sink, text: &str) -> Result<u64, Failure> {
    write_answer(sink, &lines(text)?)
}

/// Writes rows that no query has computed into a sink; returns how many.
pub fn write_answer(sink: &dyn Sink, rows: &RecordBatch) -> Result<u64, Failure> {
    sink.open(&rows.schema(), Writers::alone())?;
    match sink.write(0, rows, true) {
        // The reader has had enough.
        Err(millstream_contract::Error::OutputClosed) => {}
        written => written?,
    }
    sink.finish()?;
    sink.commit(&sink.prepare(ONLY_INTERVAL)?)?;
    Ok(rows.num_rows() as u64)
}
