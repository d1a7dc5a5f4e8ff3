//! For tests: a list of synced files and directories, with their content at that moment. A crash of
//! the program cannot show that a sync is missing, since the system keeps all written bytes.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

thread_local! {
    static SYNCED: RefCell<Vec<Synced>> = const { RefCell::new(Vec::new()) };
}

/// A file or a directory that was synced by this thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Synced {
    pub(super) path: PathBuf,
    /// Bytes of a file.
    pub(super) bytes: u64,
    /// Names in a directory.
    pub(super) names: Vec<String>,
}

pub(super) fn note(path: &Path) {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let bytes = path.metadata().map_or(0, |metadata| metadata.len());
    let synced = Synced { path: path.to_path_buf(), bytes, names };
    SYNCED.with_borrow_mut(|all| all.push(synced));
}

/// The files and directories synced since the last call.
pub(super) fn take() -> Vec<Synced> {
    SYNCED.take()
}
