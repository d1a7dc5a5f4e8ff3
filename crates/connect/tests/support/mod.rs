//! What the tests of this crate share.

use std::path::PathBuf;
use std::{env, fs, process};

/// A directory of its own that goes when the test ends.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        let path = env::temp_dir().join(format!("millstream-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}
