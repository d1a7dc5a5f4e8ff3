//! Output file: counts written bytes, and keeps the system's error.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millstream_contract::{Error, Result};

use crate::text::write_error;

/// From now on the bytes of a file, or the names in a directory, outlast a crash.
#[cfg_attr(not(test), expect(unused_variables, reason = "tests take note of the path"))]
pub(super) fn sync(file: &File, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    super::synced::note(path);
    file.sync_all()
}

/// Handle of a file for its writers.
#[derive(Debug, Clone)]
pub(super) struct Output(Arc<OutFile>);

#[derive(Debug)]
struct OutFile {
    /// For messages.
    place: String,
    /// Locked for as long as it is open.
    file: File,
    bytes: AtomicU64,
    /// Formats wrap errors in their own; this is what people have to be told.
    failed: Mutex<Option<io::Error>>,
}

impl Output {
    pub(super) fn new(place: String, file: File) -> Output {
        Output(Arc::new(OutFile {
            place,
            file,
            bytes: AtomicU64::new(0),
            failed: Mutex::default(),
        }))
    }

    pub(super) fn place(&self) -> &str {
        &self.0.place
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// From now on what was written outlasts a crash.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = sync(&self.0.file, Path::new(&self.0.place));
        synced.map_err(|error| write_error(&self.0.place, &error))
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
        match (&self.0.file).write(bytes) {
            Ok(written) => {
                self.0.bytes.fetch_add(written as u64, Ordering::Relaxed);
                Ok(written)
            }
            Err(error) => {
                let same = match error.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::from(error.kind()),
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
