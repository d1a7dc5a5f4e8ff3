//! Jobs with checkpoints.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_checkpoint::{JobToSave, Opened, Opening, Options, Saver, Timer, started_us};
use millstream_contract::settings::{Exchange, SettingError};
use millstream_contract::sink::{Sink, mark_all};
use millstream_contract::{self as contract, Settings};
use millstream_engine::{Job, Resume, Stats, Stopper};
use millstream_sql::{PlannedQuery, sql_type_name};
use serde::{Deserialize, Serialize};

use super::cluster::Interrupt;
use super::planned::Planned;
use crate::failure::Failure;
use crate::session::Session;

pub use millstream_checkpoint::{CheckpointDirectory, Manifest, Start, Verdict};
pub use millstream_contract::plan::OpenWindows;

/// Where a job with checkpoints begins, as the user says for one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Beginning {
    /// Where the job begins.
    pub start: Start,
    /// Stages that may start empty.
    pub allow_new: Vec<String>,
}

/// A job that is ready to run, with or without checkpoints.
pub struct Ready {
    /// The job.
    pub job: Job,
    /// Stops it.
    pub stopping: Stopping,
    /// Remarks for the user on where it goes on.
    pub remarks: Vec<String>,
    every: Duration,
}

/// Outcome of [`ready`].
pub enum Readied {
    /// The job runs.
    Runs(Box<Ready>),
    /// An earlier run has ended the job, in the checkpoint of this number.
    Ended(u64),
}

/// Stops a job. A job with checkpoints takes a last checkpoint before.
#[derive(Clone)]
pub struct Stopping {
    stopper: Stopper,
    saver: Option<Arc<Saver>>,
    /// Stops all processes of the job, if there are several.
    interrupt: Option<Interrupt>,
}

impl Stopping {
    /// Lets the job end with [`millstream_contract::Error::Interrupted`].
    pub fn stop(&self) {
        let is_in_vain = self.give_up();
        let (stopper, interrupt) = (self.stopper.clone(), self.interrupt.clone());
        let stop = move || match &interrupt {
            Some(interrupt) => interrupt.stop(),
            None => stopper.stop(),
        };
        match &self.saver {
            Some(saver) if !is_in_vain && saver.cut_and_stop(&self.stopper, stop.clone()) => {}
            _ => stop(),
        }
    }

    /// A job that has ended does not wait for its store any more, and no job waits for the receiver
    /// of its rows: it ends with [`millstream_contract::Error::Interrupted`]. Whether it waits.
    pub fn give_up(&self) -> bool {
        if let Some(interrupt) = self.interrupt.as_ref().filter(|interrupt| interrupt.is_late()) {
            // Known before the wait ends.
            interrupt.stop();
        }
        let is_away = self.stopper.interrupt_sinks();
        self.saver.as_ref().is_some_and(|saver| saver.give_up()) || is_away
    }

    /// Of a job of several processes, in process 0.
    pub(crate) fn of_all(
        stopper: Stopper,
        saver: Option<Arc<Saver>>,
        interrupt: &Interrupt,
    ) -> Stopping {
        Stopping { stopper, saver, interrupt: Some(interrupt.clone()) }
    }

    /// Whether the job has checkpoints.
    pub fn saves(&self) -> bool {
        self.saver.is_some()
    }

    /// The job's stopper.
    pub fn stopper(&self) -> &Stopper {
        &self.stopper
    }

    /// A job with checkpoints has ended well: its rows become visible. False for a job without
    /// checkpoints, whose sinks the caller publishes.
    pub fn end(&self) -> contract::Result<bool> {
        match &self.saver {
            Some(saver) => saver.end(self.stopper.marks()?, Vec::new()).map(|()| true),
            None => Ok(false),
        }
    }
}

impl Ready {
    /// Runs the job, and takes cuts meanwhile. As [`Job::run_and_keep`].
    pub fn run(self) -> (Stats, contract::Result<()>) {
        let Ready { job, stopping, every, .. } = self;
        let stopper = stopping.stopper.clone();
        let saver = stopping.saver.clone();
        let timer = stopping.saver.map(|saver| Timer::start(saver, stopper, every)).transpose();
        match timer {
            Ok(timer) => {
                let (stats, result, remains) = job.run_and_keep();
                drop((timer, remains));
                if let Some(saver) = saver {
                    saver.wait();
                }
                (stats, result)
            }
            Err(error) => (Stats::default(), Err(error)),
        }
    }
}

/// Fixes what `NOW()` means in the next query of a session: in a job that goes on from a
/// checkpoint, the time at which it was started first.
pub fn fix_start(session: &mut Session, beginning: &Beginning) {
    if let Some(us) = first_start_us(session, beginning) {
        session.planner.set_start_time_us(us);
        session.planner.set_resumes(true);
    }
}

/// The text of EXPLAIN about checkpoints: how often rows of each output come after a crash. Empty
/// without checkpoints.
pub(super) fn promised(session: &Session, planned: &PlannedQuery) -> String {
    let checkpoint = &session.settings().checkpoint;
    let Some(path) = &checkpoint.path else { return String::new() };
    let every = Duration::from_micros(checkpoint.every_us.unsigned_abs());
    let mut text = format!("checkpoints every {every:?} in {}\n", path.display());
    let again = "each row at least once; after a crash, rows since the last checkpoint come again";
    let mut add = |output: &str, promise: &str| text.push_str(&format!("  {output}: {promise}\n"));
    if planned.targets.is_empty() {
        add("result", again);
    }
    // The rows of a query that are shown are the first output.
    let first = usize::from(planned.targets.is_empty());
    for (output, name) in planned.targets.iter().chain(&planned.left_out).enumerate() {
        let overwrites = planned.overwritten.contains(name);
        let promise = match session.planner.promise(planned, first + output, name) {
            (_, Some(promise)) => promise,
            (true, None) if overwrites => "each row once, and none before the job has ended".into(),
            (true, None) => "each row once, when its checkpoint is written".into(),
            (false, None) => again.into(),
        };
        let into = if overwrites { "OVERWRITE" } else { "INTO" };
        add(&format!("INSERT {into} {name}"), &promise);
    }
    text
}

/// When the job was started first that goes on from a checkpoint, microseconds since the epoch.
pub(crate) fn first_start_us(session: &Session, beginning: &Beginning) -> Option<i64> {
    let path = session.settings().checkpoint.path.as_ref()?;
    started_us(&session.planner.path(path), beginning.start)
}

/// How the checkpoints of a planned query are kept; `None` without checkpoints.
///
/// # Errors
/// A query that cannot have checkpoints.
pub(crate) fn options_of(
    session: &Session,
    planned: &Planned,
    beginning: &Beginning,
    queries: usize,
) -> Result<Option<Options>, Failure> {
    let settings = planned.settings(session.settings());
    let Some(path) = &settings.checkpoint.path else {
        return check_beginning(beginning).map(|()| None);
    };
    check_saved(planned, &settings, queries)
        .map_err(|error| session.planner.refuse_setting(error))?;
    for source in &planned.plan.sources {
        source.table.check_resumable()?;
    }
    Ok(Some(options(&session.planner.path(path), &settings, beginning)))
}

/// Makes a job of a planned query: one that goes on from its last checkpoint, if the settings name
/// a place for checkpoints. `queries` is the number of queries of the script; `notice` is told of
/// checkpoints that cannot be written.
///
/// # Errors
/// A query that cannot have checkpoints, or a checkpoint that does not fit.
pub fn ready(
    session: &Session,
    planned: &Planned,
    sinks: &[Arc<dyn Sink>],
    beginning: &Beginning,
    queries: usize,
    notice: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Readied, Failure> {
    let settings = planned.settings(session.settings());
    let every = Duration::from_micros(settings.checkpoint.every_us.unsigned_abs());
    let (resume, saver, remarks) = match options_of(session, planned, beginning, queries)? {
        None => (Resume::default(), None, Vec::new()),
        Some(options) => {
            let job = JobToSave {
                plan: &planned.plan,
                settings: &settings,
                text: planned.targets.join(", "),
                targets: &planned.targets,
                sinks,
                type_name: &|of| sql_type_name(of),
                processes: 1,
                started_us: planned.started_us,
            };
            match millstream_checkpoint::open(&options, &job, notice)? {
                Opening::Ended(number) => {
                    // The job may have been killed before.
                    mark_all(sinks)?;
                    return Ok(Readied::Ended(number));
                }
                Opening::Runs(opened) => {
                    let Opened { resume, saver, remarks, .. } = *opened;
                    (resume, Some(saver), remarks)
                }
            }
        }
    };
    let checkpoints = saver.clone().map(|saver| saver as Arc<dyn millstream_engine::Checkpoints>);
    let job = Job::resume(&planned.plan, &settings, sinks.to_vec(), &resume, checkpoints)?;
    let stopping = Stopping { stopper: job.stopper(), saver, interrupt: None };
    if let Some(saver) = &stopping.saver
        && sinks.iter().any(|sink| sink.waits_for_checkpoint())
    {
        // No worker has read yet, so the cut is before the first record.
        saver.cut(&stopping.stopper);
    }
    Ok(Readied::Runs(Box::new(Ready { job, stopping, remarks, every })))
}

/// How the stages of a planned query go on from a checkpoint in a directory, by their names: from
/// the checkpoint of a number, or the latest.
///
/// # Errors
/// A checkpoint that cannot be read.
pub fn against(
    session: &Session,
    planned: &Planned,
    path: &Path,
    number: Option<u64>,
) -> Result<Vec<(String, Verdict)>, Failure> {
    let kept = CheckpointDirectory::new(path)?;
    let settings = planned.settings(session.settings());
    let job = JobToSave {
        plan: &planned.plan,
        settings: &settings,
        text: String::new(),
        targets: &planned.targets,
        sinks: &[],
        type_name: &|of| sql_type_name(of),
        processes: 1,
        started_us: planned.started_us,
    };
    Ok(kept.against(&kept.get(number)?, &job)?)
}

fn options(path: &Path, settings: &Settings, beginning: &Beginning) -> Options {
    let us = |us: i64| Duration::from_micros(us.unsigned_abs());
    let checkpoint = &settings.checkpoint;
    Options {
        path: path.to_path_buf(),
        every: us(checkpoint.every_us),
        keep: checkpoint.retained,
        tolerance: us(checkpoint.tolerance_us),
        start: beginning.start,
        allow_new: beginning.allow_new.clone(),
    }
}

fn check_beginning(beginning: &Beginning) -> Result<(), Failure> {
    let given = match beginning.start {
        Start::Latest if beginning.allow_new.is_empty() => return Ok(()),
        Start::Latest => "--allow-new",
        Start::Fresh => "--fresh",
        Start::At(_) => "--restore",
    };
    Err(Failure::Script(format!(
        "{given} is about checkpoints, and the job has none\n  help: say where they are with \
         --checkpoint DIR"
    )))
}

/// Refuses queries that cannot have checkpoints.
fn check_saved(planned: &Planned, settings: &Settings, queries: usize) -> Result<(), SettingError> {
    let refused = |message: String, help: &str| {
        let key = "checkpoint.path".to_string();
        Err(SettingError { key, message, help: help.into() })
    };
    if queries > 1 {
        return refused(
            format!("a script with checkpoints has one job, and this one has {queries}"),
            "put the INSERTs between BEGIN STATEMENT SET; and END;, or each into a script and a \
             directory of its own",
        );
    }
    if planned.analyze {
        return refused(
            "EXPLAIN ANALYZE measures one run, which has no checkpoints".into(),
            "leave --checkpoint out, or say --set checkpoint.path=none",
        );
    }
    if settings.simulate.is_some() || settings.exchange != Exchange::LateMerge {
        return refused(
            "a job that is simulated, or that exchanges records, has no checkpoints".into(),
            "leave 'simulate' and 'exchange' out",
        );
    }
    Ok(())
}
