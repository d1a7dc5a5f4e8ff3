//! Checkpoints in a directory, to look at, to check and to delete.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use millstream_contract::settings::is_bucket;
use millstream_contract::{Error, Result};
use millstream_engine::{Fit, fits, gone, identities};
use millstream_operators::operator::saved::SLICE;
use millstream_store::{Checkpoints, Manifest, Removed};

use crate::failing::io;
use crate::file::{counting, read};
use crate::job::{JobToSave, output_names};
use crate::opening::{saved_identities, store_in};
use crate::outputs::changed;

/// The checkpoints in a directory.
#[derive(Debug)]
pub struct CheckpointDirectory {
    store: Checkpoints,
    path: PathBuf,
}

/// How a stage of an edited query goes on from a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// With its state.
    Kept,
    /// The stage is new, and starts empty.
    New,
    /// The query has no such stage any more.
    Gone,
    /// Not at all, for this reason.
    Changed(String),
}

impl CheckpointDirectory {
    /// The checkpoints in a directory.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn new(path: &Path) -> Result<CheckpointDirectory> {
        let kept = CheckpointDirectory { store: store_in(path)?, path: path.to_path_buf() };
        match path.is_dir() || is_bucket(path) {
            true => Ok(kept),
            false => Err(kept.nothing("there is no such directory")),
        }
    }

    fn nothing(&self, message: &str) -> Error {
        Error::Io {
            place: self.path.display().to_string(),
            message: message.into(),
            help: "`millstream run job.sql --checkpoint DIR` makes checkpoints in DIR".into(),
        }
    }

    /// All checkpoints, the oldest first, with the reason why one cannot be read.
    pub fn all(&self) -> Result<Vec<(u64, Result<Manifest>)>> {
        let listed = self.store.list().map_err(|error| io(&error))?;
        let read = |number| self.store.load(number).map_err(|error| io(&error));
        let numbers = listed.into_iter().map(|listed| listed.checkpoint);
        Ok(numbers.map(|number| (number, read(number))).collect())
    }

    /// A checkpoint, or the latest.
    ///
    /// # Errors
    /// It is not there, or damaged.
    pub fn get(&self, number: Option<u64>) -> Result<Manifest> {
        let found = match number {
            Some(number) => self.store.load(number).map(Some),
            None => self.store.latest(),
        };
        found.map_err(|error| io(&error))?.ok_or_else(|| self.nothing("it has no checkpoint"))
    }

    /// Reads all of a checkpoint: the differences to what was written.
    pub fn verify(&self, number: u64) -> Result<Vec<String>> {
        let verified = self.store.verify(number).map_err(|error| io(&error))?;
        let line =
            |defect: millstream_store::Defect| format!("{}: {}", defect.file, defect.message);
        Ok(verified.defects.into_iter().map(line).collect())
    }

    /// Deletes a checkpoint, and the files that no other needs. If the next checkpoint of a running
    /// job refers to them, it fails, and the one behind it has everything.
    pub fn delete(&self, number: u64) -> Result<Removed> {
        self.store.delete(number).map_err(|error| io(&error))
    }

    /// Gives `take` the rows of a stage's state, in the columns that people read.
    ///
    /// # Errors
    /// The checkpoint has no such stage.
    pub fn rows(
        &self,
        manifest: &Manifest,
        stage: &str,
        mut take: impl FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let found = manifest.stages.iter().find(|of| of.names.iter().any(|name| name == stage));
        let found = found.ok_or_else(|| {
            let names = manifest.stages.iter().flat_map(|stage| &stage.names);
            let names: Vec<_> = names.map(String::as_str).collect();
            let help = match names.is_empty() {
                true => "the query keeps no state".to_string(),
                false => format!("its stages are {}", names.join(", ")),
            };
            let message = format!("checkpoint {} has no stage '{stage}'", manifest.checkpoint);
            Error::Io { place: self.path.display().to_string(), message, help }
        })?;
        for file in &found.files {
            let is_shown = |name: &str| !name.starts_with('$');
            for rows in read(&self.store, file, &|name| name == SLICE || is_shown(name))? {
                let rows = counting(file, &rows?)?;
                let schema = rows.schema();
                let shown = schema.fields().iter().enumerate();
                let shown = shown.filter(|(_, field)| is_shown(field.name()));
                let shown: Vec<usize> = shown.map(|(column, _)| column).collect();
                let rows = rows.project(&shown);
                take(&rows.map_err(|error| Error::Internal(error.to_string()))?)?;
            }
        }
        Ok(())
    }

    /// How the stages of a job go on from a checkpoint, by their names; and outputs that cannot.
    pub fn against(
        &self,
        manifest: &Manifest,
        job: &JobToSave<'_>,
    ) -> Result<Vec<(String, Verdict)>> {
        let now = identities(job.plan, job.settings, job.type_name)?;
        let saved = saved_identities(&manifest.stages)?;
        let fits = fits(&now, &saved, &|table| manifest.sources.contains_key(table));
        let mut verdicts = Vec::new();
        for (stage, fit) in now.iter().zip(&fits) {
            let verdict = match fit {
                Fit::Kept(_) => Verdict::Kept,
                Fit::New => Verdict::New,
                Fit::Changed { reason, .. } => Verdict::Changed(reason.clone()),
            };
            verdicts.push((stage.names.join(", "), verdict));
        }
        let named = |number: usize| (saved[number].names.join(", "), Verdict::Gone);
        let is_told = |name: &String| verdicts.iter().any(|(told, _)| told == name);
        let gone: Vec<_> =
            gone(&fits, &saved).into_iter().map(named).filter(|(name, _)| !is_told(name)).collect();
        verdicts.extend(gone);
        let outputs = changed(job, &output_names(job), manifest).into_iter();
        verdicts.extend(outputs.map(|(name, reason)| (name, Verdict::Changed(reason))));
        Ok(verdicts)
    }
}
