//! The files that a pattern matches, and those of a directory.
//!
//! An unreadable file or directory is an error with its path: a file must not be missing from a
//! result unnoticed.

use std::fs::DirEntry;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern};
use millstream_contract::{Error, Result};

use crate::input::io_error;

/// As in a shell, a hidden file is matched only by a pattern that names its dot.
const MATCH: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Treatment of a symbolic link that leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dangling {
    /// The link is an error.
    Refused,
    /// The link is ignored: its file may come.
    Awaited,
}

/// Kind of a path's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetKind {
    File,
    Directory,
    /// A pipe, a device, a socket.
    Other,
}

/// Kind of a path's target, through links; `None` if the target is gone.
fn kind(path: &Path, dangling: Dangling) -> Result<Option<TargetKind>> {
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(Some(TargetKind::File)),
        Ok(metadata) if metadata.is_dir() => Ok(Some(TargetKind::Directory)),
        Ok(_) => Ok(Some(TargetKind::Other)),
        Err(error) if is_absent(error.kind()) => match dangling_link(path) {
            Some((what, help)) if dangling == Dangling::Refused => Err(Error::Io {
                place: path.display().to_string(),
                message: format!("it is {what}"),
                help: help.into(),
            }),
            _ => Ok(None),
        },
        Err(error) => Err(io_error(path, &error)),
    }
}

fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Message and advice about a symbolic link that leads nowhere; `None` if the path is no link.
pub(super) fn dangling_link(path: &Path) -> Option<(String, &'static str)> {
    let target = std::fs::read_link(path).ok()?;
    let target = target.display().to_string();
    Some((
        format!("a symbolic link that leads nowhere, to '{}'", target.escape_debug()),
        "let it lead to a file, or remove it",
    ))
}

/// The files of a directory whose names do not begin with `.` or `_`.
pub(super) fn files_in(directory: &Path, dangling: Dangling) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in visible(directory)? {
        if kind(&path, dangling)? == Some(TargetKind::File) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Entries of a directory whose names do not begin with `.` or `_`.
pub(super) fn visible(directory: &Path) -> Result<Vec<PathBuf>> {
    let counts = |entry: &DirEntry| {
        let name = entry.file_name();
        !name.as_encoded_bytes().starts_with(b".") && !name.as_encoded_bytes().starts_with(b"_")
    };
    let found = entries(directory).map_err(|error| io_error(directory, &error))?;
    let found = found.into_iter().filter(counts);
    Ok(found.map(|entry| entry.path()).collect())
}

/// Whether a path leads to a directory.
///
/// # Errors
///
/// If it cannot be looked at.
pub(super) fn is_directory(path: &Path, dangling: Dangling) -> Result<bool> {
    Ok(kind(path, dangling)? == Some(TargetKind::Directory))
}

fn entries(directory: &Path) -> io::Result<Vec<DirEntry>> {
    std::fs::read_dir(directory)?.collect()
}

/// The regular files that a pattern matches. `**` is any number of directories, none of which is
/// a symbolic link: a link to a directory around it would lead in circles.
pub(super) fn matching(pattern: &str, dangling: Dangling) -> Result<Vec<PathBuf>> {
    let wrong = |error: glob::PatternError| Error::Io {
        place: pattern.to_string(),
        message: format!("no pattern of paths: {}", error.msg),
        help: String::new(),
    };
    if pattern.ends_with('/') {
        return Ok(Vec::new());
    }
    let mut root = PathBuf::new();
    let mut steps = Vec::new();
    for component in Path::new(pattern).components() {
        let text = component.as_os_str().to_string_lossy();
        match component {
            Component::Normal(_) if text == "**" => {
                // `**/**` is the same as `**`.
                if !matches!(steps.last(), Some(Step::Below)) {
                    steps.push(Step::Below);
                }
            }
            Component::Normal(_) if text.contains(['*', '?', '[']) => {
                steps.push(Step::Matching(Pattern::new(&text).map_err(wrong)?));
            }
            // `./x` is said as `x`.
            Component::CurDir => {}
            _ if steps.is_empty() => root.push(component),
            _ => steps.push(Step::Named(component.as_os_str().into())),
        }
    }
    if matches!(steps.last(), Some(Step::Below)) {
        steps.push(Step::Matching(Pattern::new("*").map_err(wrong)?));
    }
    let mut walk = Walk { dangling, found: Vec::new() };
    walk.follow(root, &steps)?;
    // `**` twice leads to a file in several ways.
    walk.found.sort();
    walk.found.dedup();
    Ok(walk.found)
}

/// One part of a pattern, between slashes.
enum Step {
    Named(PathBuf),
    Matching(Pattern),
    /// `**`
    Below,
}

struct Walk {
    dangling: Dangling,
    found: Vec<PathBuf>,
}

impl Walk {
    /// Adds the files that `steps` lead to from here. The depth is that of the pattern, and of the
    /// directories below `**`, which paths bound.
    fn follow(&mut self, from: PathBuf, steps: &[Step]) -> Result<()> {
        let Some((step, rest)) = steps.split_first() else {
            if kind(&from, self.dangling)? == Some(TargetKind::File) {
                self.found.push(from);
            }
            return Ok(());
        };
        match step {
            Step::Named(name) => self.follow(from.join(name), rest),
            Step::Matching(pattern) => self.matches(&from, pattern, rest),
            Step::Below => {
                self.follow(from.clone(), rest)?;
                for entry in below(&from)? {
                    let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                    if !is_hidden && is_own_directory(&entry)? {
                        self.follow(from.join(entry.file_name()), steps)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn matches(&mut self, from: &Path, pattern: &Pattern, rest: &[Step]) -> Result<()> {
        for entry in below(from)? {
            let name = entry.file_name();
            if pattern.matches_with(&name.to_string_lossy(), MATCH) {
                self.follow(from.join(name), rest)?;
            }
        }
        Ok(())
    }
}

/// Entries of a directory; none if the path is no directory.
fn below(directory: &Path) -> Result<Vec<DirEntry>> {
    let here = Path::new(".");
    let directory = if directory.as_os_str().is_empty() { here } else { directory };
    match entries(directory) {
        Err(error) if is_absent(error.kind()) => Ok(Vec::new()),
        found => found.map_err(|error| io_error(directory, &error)),
    }
}

/// Whether it is a directory, and no link to one.
fn is_own_directory(entry: &DirEntry) -> Result<bool> {
    let kind = entry.file_type().map_err(|error| io_error(&entry.path(), &error))?;
    Ok(kind.is_dir())
}
