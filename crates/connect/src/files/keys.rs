//! A prefix of a bucket that a job writes.
//!
//! A file is an upload in parts: invisible until it is complete. A sealed file has the service's
//! names of the upload and of its parts in place of an unfinished name, so another process can
//! complete the upload after a crash, more than once. Uploads of dead jobs cannot be seen: the
//! lifecycle rule of the bucket removes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use millstream_bucket::{Bucket, Error as BucketError, Parts, Upload};
use millstream_contract::sink::Sealed;
use millstream_contract::{Error, Result};

use super::folder::{Folder, FormerFiles, Lock, PART};
use super::output::Output;
use super::upload::failed;

/// Each open file has a part of some megabytes in memory.
const OPEN_FILES: usize = 32;

/// Where files are uploaded.
#[derive(Debug)]
pub(super) struct Keys {
    bucket: Bucket,
    path: PathBuf,
    depth: usize,
    marker: Option<String>,
}

/// The end of a key behind its last slash, and what is before.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

impl Keys {
    /// The prefix of a URL, `s3://bucket/prefix`.
    pub(super) fn new(url: &str, depth: usize, marker: Option<String>) -> Result<Keys> {
        let bucket = Bucket::open(url).map_err(failed)?;
        Ok(Keys { bucket, path: url.trim_end_matches('/').into(), depth, marker })
    }

    /// The keys of all complete files.
    fn complete(&self) -> Result<Vec<String>> {
        let listed = self.bucket.list("").map_err(failed)?;
        let keys = listed.into_iter().map(|listed| listed.name);
        let is_file =
            |key: &String| key.matches('/').count() <= self.depth && split(key).1.starts_with(PART);
        Ok(keys.filter(is_file).collect())
    }
}

impl Folder for Keys {
    fn path(&self) -> &Path {
        &self.path
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn open_max(&self) -> usize {
        OPEN_FILES
    }

    fn is_replaceable(&self) -> bool {
        false
    }

    fn make(&self) -> Result<()> {
        Ok(())
    }

    fn find(&self, process: usize) -> Result<FormerFiles> {
        let mut found = FormerFiles::default();
        for key in self.complete()? {
            found.note(process, split(&key).1);
            found.complete.push(self.path.join(key));
        }
        Ok(found)
    }

    fn sweep(&self, _: &mut FormerFiles, _: usize) -> Result<()> {
        Ok(())
    }

    fn lock(&self, _: usize) -> Result<Option<Lock>> {
        Ok(None)
    }

    fn check_unlocked(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn create(&self, names: &Sealed) -> Result<Output> {
        let parts = Parts::new(self.bucket.clone(), &names.to);
        Ok(Output::uploaded(self.bucket.place(&names.to), parts))
    }

    fn commit(&self, sealed: &[Sealed], before: bool) -> Result<Vec<PathBuf>> {
        let mut gone = Vec::new();
        for Sealed { from, to } in sealed {
            let upload: Upload = serde_json::from_str(from).map_err(|_| Error::Io {
                place: self.path.display().to_string(),
                message: format!("'{}' is no upload", from.escape_debug()),
                help: "the checkpoint is damaged, or belongs to another sink".into(),
            })?;
            match self.bucket.complete(to, &upload) {
                Err(BucketError::Missing { .. }) if before => gone.push(self.path.join(to)),
                completed => completed.map_err(failed)?,
            }
        }
        Ok(gone)
    }

    fn sync(&self, _: &[Sealed]) -> Result<()> {
        Ok(())
    }

    fn remove(&self, _: &FormerFiles, _: bool) -> Result<()> {
        Ok(())
    }

    fn mark(&self) -> Result<()> {
        let Some(marker) = &self.marker else { return Ok(()) };
        let keys = self.complete()?;
        let partitions: BTreeSet<&str> = keys.iter().map(|key| split(key).0).collect();
        for partition in partitions.into_iter().filter(|partition| !partition.is_empty()) {
            let key = format!("{partition}/{marker}");
            self.bucket.put_if_absent(&key, Vec::new()).map_err(failed)?;
        }
        Ok(())
    }
}
