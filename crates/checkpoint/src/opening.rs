//! Choice of the checkpoint from which a job goes on, and of the fitting state.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use millstream_contract::plan::Layout;
use millstream_contract::settings::is_bucket;
use millstream_contract::wording::{bytes, counted, grouped, plural};
use millstream_contract::{Error, Result};
use millstream_engine::{Fit, Resume, StageIdentity, Totals, fits, gone, identities};
use millstream_store::{Checkpoints, LocalStore, Manifest, S3Store, Stage, Store};
use serde::Deserialize;

use crate::failing::io;
use crate::job::{JobToSave, output_names, tables};
use crate::options::{Options, Start};
use crate::outputs;
use crate::saver::{Restored, Resumed, Saver};
use crate::writer::{Fixed, committed};

/// A job with checkpoints that is about to begin or to go on.
#[derive(Debug)]
pub struct Opened {
    /// Where the job goes on, for [`millstream_engine::Job::resume`].
    pub resume: Resume,
    /// Takes its cuts.
    pub saver: Arc<Saver>,
    /// The same for the other processes of the job.
    pub place: Place,
    /// Remarks for the user, a line each.
    pub remarks: Vec<String>,
}

/// Where a job goes on, for a process that [`join`]s: the number of the checkpoint, if there is
/// one, the number of the next cut, and a text that tells runs apart.
pub type Place = (Option<u64>, u64, String);

/// The state of a job that is to begin.
#[derive(Debug)]
pub enum Opening {
    /// The job begins or goes on.
    Runs(Box<Opened>),
    /// The job has ended in the checkpoint of this number. Its rows are visible.
    Ended(u64),
}

/// Finds the checkpoint from which a job goes on. The rows that the checkpoint has prepared become
/// visible. `notice` is told of checkpoints that cannot be written.
///
/// # Errors
/// A checkpoint that cannot be read, or that does not fit the job, with the reason for each stage.
pub fn open(
    options: &Options,
    job: &JobToSave<'_>,
    notice: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Opening> {
    if !is_bucket(&options.path) {
        let made = fs::create_dir_all(&options.path);
        made.map_err(|error| Error::Io {
            place: options.path.display().to_string(),
            message: format!("the directory cannot be made: {error}"),
            help: "--checkpoint DIR names a directory for this job's checkpoints".into(),
        })?;
    }
    open_in(store_in(&options.path)?, options, job, notice)
}

/// As [`open`], in any store. The path of the options is for messages.
pub fn open_in(
    store: Checkpoints,
    options: &Options,
    job: &JobToSave<'_>,
    notice: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Opening> {
    let began = Instant::now();
    let next = store.next().map_err(|error| io(&error))?;
    let found = find(&store, options)?;
    if let Err(error) = store.sweep() {
        tracing::warn!(%error, "what killed runs have left unfinished cannot be deleted");
    }
    if let Some(manifest) = &found {
        let outputs = output_names(job);
        check_job(manifest, job, &outputs, &options.path.display().to_string())?;
        commit(manifest, job, &outputs)?;
        if manifest.ended {
            committed(&tables(job), &manifest.sources);
            return Ok(Opening::Ended(manifest.checkpoint));
        }
    }
    let begin = Begin { store, attempt: attempt(), next, began };
    begin.begin(options, job, found, Box::new(notice)).map(|opened| Opening::Runs(Box::new(opened)))
}

/// Takes part in a job that the first process has opened at a place.
///
/// # Errors
/// As [`open`].
pub fn join(options: &Options, job: &JobToSave<'_>, place: Place) -> Result<Opened> {
    let store = store_in(&options.path)?;
    let (number, next, attempt) = place;
    let found = number.map(|number| store.load(number)).transpose().map_err(|error| io(&error))?;
    let begin = Begin { store, attempt, next, began: Instant::now() };
    begin.begin(options, job, found, Box::new(|_| ()))
}

/// Parameters of a beginning.
struct Begin {
    store: Checkpoints,
    attempt: String,
    /// The number of the next cut.
    next: u64,
    began: Instant,
}

impl Begin {
    /// Goes on from a checkpoint, if one was found.
    fn begin(
        self,
        options: &Options,
        job: &JobToSave<'_>,
        found: Option<Manifest>,
        notice: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Opened> {
        let Begin { store, attempt, next, began } = self;
        let stages = identities(job.plan, job.settings, job.type_name)?;
        let outputs = output_names(job);
        let number = found.as_ref().map(|manifest| manifest.checkpoint);
        let place = (number, next, attempt.clone());
        job.sinks.iter().for_each(|sink| sink.follow(next.saturating_sub(1)));
        let (mut remarks, mut line) = (Vec::new(), None);
        let (mut resume, mut from) = (Resume::default(), vec![Vec::new(); stages.len()]);
        let (mut first, mut started_us) = (next, job.started_us);
        if let Some(manifest) = found {
            (first, started_us) = (manifest.first, manifest.started_us);
            let changed = outputs::changed(job, &outputs, &manifest);
            let fitting = Fitting::new(&stages, changed, &manifest, options)?;
            line = Some(resumed(&manifest, began));
            remarks.extend((manifest.checkpoint + 1 < next).then(|| repeats(manifest.checkpoint)));
            remarks.extend(fitting.remarks);
            from = fitting.files;
            let outputs = outputs::marks(&store, &manifest, job.plan, &outputs, &fitting.anew)?;
            resume = Resume {
                started_us: None,
                marks: manifest.sources,
                frontiers: fitting.frontiers,
                layouts: fitting.layouts,
                outputs,
                lookups: manifest.lookups,
                totals: totals(&manifest.counters)?,
            };
        }
        // Also of a job that begins: generators and `NOW()` count from one time, now and later.
        resume.started_us = Some(started_us);
        let fixed = Fixed {
            store,
            attempt,
            job: job.text.clone(),
            first,
            started_us,
            stages,
            identities: outputs::identities(job),
            outputs,
            sinks: job.sinks.to_vec(),
            tables: tables(job),
            leaders: job.processes * job.settings.workers,
            keep: options.keep,
            tolerance: options.tolerance,
        };
        let saver = Arc::new(Saver::new(fixed, (from, line), next, notice)?);
        Ok(Opened { resume, saver, place, remarks })
    }
}

/// The counts of a manifest. Manifests of older versions have no counts.
pub(crate) fn totals(counters: &serde_json::Value) -> Result<Totals> {
    if counters.is_null() {
        return Ok(Totals::default());
    }
    Totals::deserialize(counters)
        .map_err(|error| Error::Internal(format!("the counters of a manifest: {error}")))
}

/// The checkpoints in a directory, or in a bucket.
pub(crate) fn store_in(path: &Path) -> Result<Checkpoints> {
    let store: Arc<dyn Store> = match path.to_str().filter(|_| is_bucket(path)) {
        Some(url) => Arc::new(S3Store::open(url).map_err(|error| io(&error))?),
        None => Arc::new(LocalStore::new(path)),
    };
    Checkpoints::new(store, "").map_err(|error| io(&error))
}

/// The checkpoint that is wanted, durable.
fn find(store: &Checkpoints, options: &Options) -> Result<Option<Manifest>> {
    let number = match options.start {
        Start::Fresh => return Ok(None),
        Start::At(number) => Some(number),
        Start::Latest => store.latest().map_err(|error| io(&error))?.map(|found| found.checkpoint),
    };
    let adopted = number.map(|number| store.adopt(number)).transpose();
    adopted.map_err(|error| match (options.start, &error) {
        (Start::At(number), millstream_store::Error::Missing { .. }) => Error::Io {
            place: options.path.display().to_string(),
            message: format!("it has no checkpoint {number}"),
            help: "`millstream checkpoint list` shows those that are there".into(),
        },
        _ => io(&error),
    })
}

/// Refuses the checkpoint of another job.
fn check_job(
    manifest: &Manifest,
    job: &JobToSave<'_>,
    outputs: &[String],
    place: &str,
) -> Result<()> {
    let refused = |message: String, help: &str| {
        Err(Error::Io { place: place.into(), message, help: help.into() })
    };
    let anew = "give this job a directory of its own, or begin anew with --fresh";
    let number = manifest.checkpoint;
    let reads = |name: &String| job.plan.sources.iter().any(|source| source.name == *table(name));
    if !manifest.sources.is_empty() && !manifest.sources.keys().any(reads) {
        let tables: Vec<_> = manifest.sources.keys().map(String::as_str).collect();
        return refused(
            format!("checkpoint {number} is of another job, which reads {}", tables.join(", ")),
            anew,
        );
    }
    let lost = manifest.outputs.iter().find(|output| {
        output.prepared.iter().any(|prepared| !prepared.sealed.is_empty())
            && !outputs.contains(&output.name)
    });
    match lost {
        Some(output) => refused(
            format!(
                "checkpoint {number} has rows for '{}', into which the script no longer inserts",
                output.name
            ),
            "run the script as it was once more, so that the rows become visible; or begin anew \
             with --fresh",
        ),
        None => Ok(()),
    }
}

/// The table of a source's name in marks, `t` of `t.2`.
fn table(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((table, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => table,
        _ => name,
    }
}

/// Makes the rows visible that the checkpoint has prepared.
fn commit(manifest: &Manifest, job: &JobToSave<'_>, outputs: &[String]) -> Result<()> {
    for (name, sink) in outputs.iter().zip(job.sinks) {
        let saved = manifest.outputs.iter().filter(|output| output.name == *name);
        for prepared in saved.flat_map(|output| &output.prepared) {
            sink.commit(prepared)?;
        }
    }
    Ok(())
}

/// The first start of the job of these checkpoints, microseconds since 1970: `NOW()` in the query.
/// `None` for a job that begins.
pub fn started_us(path: &Path, start: Start) -> Option<i64> {
    let store = store_in(path).ok()?;
    let found = match start {
        Start::Fresh => Ok(None),
        Start::At(number) => store.load(number).map(Some),
        Start::Latest => store.latest(),
    };
    // An error is told when the checkpoint is opened.
    found.ok().flatten().map(|manifest| manifest.started_us)
}

/// Saved stages as the engine knows them.
pub(crate) fn saved_identities(saved: &[Stage]) -> Result<Vec<StageIdentity>> {
    let known = |stage: &Stage| {
        let identity = serde_json::from_value(stage.identity.clone())
            .map_err(|error| Error::Internal(format!("a saved stage: {error}")))?;
        let (names, tables) = (stage.names.clone(), stage.tables.clone());
        Ok(StageIdentity { names, identity, tables })
    };
    saved.iter().map(known).collect()
}

/// State of saved stages that fits.
struct Fitting {
    files: Restored,
    frontiers: Vec<i64>,
    layouts: Vec<Layout>,
    /// Outputs that cannot go on, and begin anew.
    anew: Vec<String>,
    remarks: Vec<String>,
}

impl Fitting {
    fn new(
        stages: &[StageIdentity],
        outputs: Vec<(String, String)>,
        saved: &Manifest,
        options: &Options,
    ) -> Result<Fitting> {
        let identities = saved_identities(&saved.stages)?;
        let fits = fits(stages, &identities, &|table| saved.sources.contains_key(table));
        let saved = &saved.stages;
        let (files, frontiers, layouts, anew, remarks) = Default::default();
        let mut fitting = Fitting { files, frontiers, layouts, anew, remarks };
        let mut changed = Vec::new();
        for (stage, fit) in stages.iter().zip(&fits) {
            let name = stage.names.join(", ");
            let (mut files, mut frontier, mut layout) = (Vec::new(), i64::MIN, Layout::new());
            match fit {
                Fit::Kept(number) => {
                    files = saved[*number].files.clone();
                    frontier = saved[*number].frontier_us;
                    layout = saved[*number].layout.clone();
                }
                Fit::New => fitting.remarks.push(format!("stage {name} is new, and starts empty")),
                Fit::Changed { reason, .. } => {
                    match stage.names.iter().any(|name| options.allow_new.contains(name)) {
                        true => fitting.remarks.push(format!("stage {name} starts empty")),
                        false => changed.push((stage.names[0].clone(), reason.clone())),
                    }
                }
            }
            fitting.files.push(files);
            fitting.frontiers.push(frontier);
            fitting.layouts.push(layout);
        }
        for number in gone(&fits, &identities) {
            let names = identities[number].names.join(", ");
            fitting.remarks.push(format!("the state of stage {names} is not used any more"));
        }
        for (name, reason) in outputs {
            match options.allow_new.contains(&name) {
                true => {
                    fitting.remarks.push(format!("output {name} begins anew"));
                    fitting.anew.push(name);
                }
                false => changed.push((name, reason)),
            }
        }
        match changed.first() {
            None => Ok(fitting),
            Some((first, _)) => {
                let all = changed.iter().map(|(name, reason)| format!("\n  {name}: {reason}"));
                Err(Error::Io {
                    place: options.path.display().to_string(),
                    message: format!(
                        "{} of the query cannot go on from the checkpoint:{}",
                        counted(changed.len() as u64, "part"),
                        all.collect::<String>()
                    ),
                    help: format!("--allow-new {first} lets it start empty; --fresh begins anew"),
                })
            }
        }
    }
}

/// The line that says where a job goes on, with the time from `began` until the line is made.
fn resumed(manifest: &Manifest, began: Instant) -> Resumed {
    let splits = manifest.sources.values().flat_map(|source| source.splits.values());
    let (count, records) =
        splits.fold((0, 0), |(count, records), split| (count + 1, records + split.records));
    let (number, time) = (manifest.checkpoint, time_of_day(manifest.time_us));
    let (size, splits) = (bytes(manifest.bytes()), counted(count, "split"));
    let records = format!("{} {}", grouped(records), plural(records, "record"));
    let have = if records == "1 record" { "has" } else { "have" };
    Box::new(move || {
        let seconds = began.elapsed().as_secs_f64();
        format!(
            "resumed from checkpoint {number} of {time} ({size} in {seconds:.2} s; {records} of \
             {splits} {have} been read)"
        )
    })
}

/// The remark for a job that goes on from a checkpoint with later ones behind it.
fn repeats(number: u64) -> String {
    format!(
        "checkpoint {number} is not the last: rows that outputs have got since it come once more"
    )
}

/// A time of day in UTC.
fn time_of_day(us: i64) -> String {
    let second = us.div_euclid(1_000_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// A text that is unique to this run.
fn attempt() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", since.as_nanos(), std::process::id())
}
