//! Temporary folders.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::Failure;
use crate::failure::fail;

/// A temporary folder, which is removed.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty one; `what` it is for is part of its name.
    pub(crate) fn new(what: &str) -> Result<Folder, Failure> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let name = format!("millstream-{what}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).map_err(|e| fail(&e))?;
        Ok(Folder(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
