//! Output file: counts written bytes, and keeps the system's error.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream_bucket::Parts;
use millstream_contract::{Error, Result};

use super::upload;
use crate::text::write_error;

/// From now on the bytes of a file, or the names in a directory, outlast a crash.
#[cfg_attr(not(test), expect(unused_variables, reason = "tests take note of the path"))]
pub(super) fn sync(file: &File, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    super::synced::note(path);
    file.sync_all()
}

/// A writer that panics ends the job, and its upload stays unfinished.
fn locked(parts: &Mutex<Option<Parts>>) -> MutexGuard<'_, Option<Parts>> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handle of a file for its writers.
#[derive(Debug, Clone)]
pub(super) struct Output(Arc<OutFile>);

#[derive(Debug)]
struct OutFile {
    /// For messages.
    place: String,
    target: Target,
    bytes: AtomicU64,
    /// Formats wrap errors in their own; this is what people have to be told.
    failed: Mutex<Option<io::Error>>,
}

#[derive(Debug)]
enum Target {
    /// Locked for as long as it is open.
    File(File),
    /// `None`: sealed.
    Upload(Mutex<Option<Parts>>),
}

impl Output {
    /// A file, which is locked.
    pub(super) fn file(place: String, file: File) -> Output {
        Output::new(place, Target::File(file))
    }

    /// An object of a bucket.
    pub(super) fn uploaded(place: String, parts: Parts) -> Output {
        Output::new(place, Target::Upload(Mutex::new(Some(parts))))
    }

    fn new(place: String, target: Target) -> Output {
        let (bytes, failed) = (AtomicU64::new(0), Mutex::default());
        Output(Arc::new(OutFile { place, target, bytes, failed }))
    }

    pub(super) fn place(&self) -> &str {
        &self.0.place
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// From now on what was written outlasts a crash, and nothing is added. The unfinished name, if
    /// the name is known only now.
    pub(super) fn seal(&self) -> Result<Option<String>> {
        match &self.0.target {
            Target::File(file) => {
                let synced = sync(file, Path::new(&self.0.place));
                synced.map_err(|error| write_error(&self.0.place, &error)).map(|()| None)
            }
            Target::Upload(parts) => locked(parts).take().map(upload::sealed).transpose(),
        }
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0.target {
            Target::File(file) => (&mut &*file).write(bytes),
            Target::Upload(parts) => match locked(parts).as_mut() {
                Some(parts) => parts.append(bytes).map(|()| bytes.len()).map_err(io::Error::other),
                None => Err(io::Error::other("the upload is sealed")),
            },
        }
    }

    /// The file's own error, if there was one; else the format's error.
    pub(super) fn error(&self, error: impl Display) -> Error {
        let failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        match failed {
            Some(failed) => write_error(&self.0.place, &failed),
            None => Error::Io {
                place: self.0.place.clone(),
                message: error.to_string(),
                help: String::new(),
            },
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.write_some(bytes) {
            Ok(written) => {
                self.0.bytes.fetch_add(written as u64, Ordering::Relaxed);
                Ok(written)
            }
            Err(error) => {
                let same = match error.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(error.kind(), error.to_string()),
                };
                *self.0.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(same);
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
