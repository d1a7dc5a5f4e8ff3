//! History of statements: a file that is readable for its user only.

use std::env;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use rustyline::Editor;
use rustyline::history::FileHistory;

use super::complete::Completion;

/// Where statements are kept, if anywhere.
pub(super) struct History(Option<PathBuf>);

impl History {
    /// Reads what there is. A shell whose history cannot be kept works without.
    pub(super) fn open(editor: &mut Editor<Completion, FileHistory>) -> History {
        let Some(path) = path() else { return History(None) };
        if let Some(folder) = path.parent() {
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        }
        // The mode counts for a file that is made here; others keep theirs.
        let made = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        if made.is_err() {
            return History(None);
        }
        let _ = editor.load_history(&path);
        History(Some(path))
    }

    /// Adds a statement.
    pub(super) fn add(&self, editor: &mut Editor<Completion, FileHistory>, text: &str) {
        let added = editor.add_history_entry(text).unwrap_or(false);
        if let (true, Some(path)) = (added, &self.0) {
            let _ = editor.append_history(path);
        }
    }
}

/// `$XDG_STATE_HOME/millstream/history`, or `~/.millstream_history`.
fn path() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    match folder("XDG_STATE_HOME") {
        Some(state) => Some(state.join("millstream/history")),
        None => folder("HOME").map(|home| home.join(".millstream_history")),
    }
}
