//! The option `path`: one file, the files of a directory, or those that a pattern matches; and the
//! error message if there are none.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use millstream_contract::table::{ReadOnce, SplitSpec};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use super::OneFile;
use super::pattern::{self, Dangling};
use crate::files::{misplaced, value_in};
use crate::input::{Name, begun_at, io_error, missing_help};
use crate::options::Options;

/// The files of a table.
#[derive(Debug, Clone)]
pub(crate) enum Files {
    /// A single file, not necessarily a regular file.
    One(OneFile),
    /// The files of a directory, except for names that begin with `.` or `_`: such files are
    /// unfinished or markers.
    Directory(PathBuf),
    /// The files of a directory of partitions: in directories `a=1/b=x` for these columns.
    Partitions(PathBuf, Arc<[String]>),
    /// The files that match a pattern: `*`, `?`, `[…]`, and `**` for directories at any depth.
    Pattern(String),
    /// The files that process 0 has found.
    Listed(Vec<OneFile>),
}

impl Files {
    /// The files of `path`, after checking that there are files.
    pub(crate) fn resolve(options: &Options<'_>, given: Option<&str>) -> Result<Files> {
        let files = Files::named(options, given)?;
        let given = given.unwrap_or_default();
        let path = options.path(given);
        if !files.list()?.is_empty() {
            return Ok(files);
        }
        match files {
            Files::Directory(_) | Files::Partitions(..) => {
                let message = format!("the directory '{}' has no files", path.display());
                Err(options.error("path", message, no_files_help(&path, given)))
            }
            _ => {
                let message = format!("no file matches '{}'", path.display());
                Err(options.error("path", message, options.start(given)))
            }
        }
    }

    /// The files of `path`, after checking that the path exists. A directory may have no files yet,
    /// and a pattern may match none.
    pub(super) fn named(options: &Options<'_>, given: Option<&str>) -> Result<Files> {
        let given = given.unwrap_or_default();
        if given.is_empty() {
            return Err(options.missing(
                "path",
                "a file needs a path",
                "write 'path' = 'data/events.csv' among the options, relative to the SQL file",
            ));
        }
        let path = options.path(given);
        let text = path.to_string_lossy();
        if text.contains(['*', '?', '[']) && !path.exists() {
            let wrong = |message, help: &str| options.error("path", message, help);
            if let Err(error) = glob::Pattern::new(&text) {
                let help = "in a pattern, '*' stands for any text, '?' for a character, '[ab]' for \
                            one of two, '**' for directories";
                return Err(wrong(format!("no pattern of paths: {}", error.msg), help));
            }
            return Ok(Files::Pattern(text.into_owned()));
        }
        let metadata = std::fs::metadata(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound if given == "-" => options.error(
                "path",
                "there is no file '-'".into(),
                "write 'path' = '/dev/stdin' to read standard input",
            ),
            ErrorKind::NotFound | ErrorKind::NotADirectory => missing(options, given, &path),
            _ => io_error(&path, &error),
        })?;
        if !metadata.is_dir() {
            return Ok(Files::One(OneFile::at(path)));
        }
        Ok(match options.partitioned_by() {
            [] => Files::Directory(path),
            columns => Files::Partitions(path, columns.into()),
        })
    }

    /// The files that process 0 has found, whose names start at `base`.
    pub(super) fn listed(splits: &[SplitSpec], base: &Path) -> Files {
        let base = without_dots(base);
        let file = |spec: &SplitSpec| OneFile::at(base.join(&spec.name)).told(spec);
        Files::Listed(splits.iter().map(file).collect())
    }

    /// The only file, if there is just one by its nature.
    pub(super) fn single(&self) -> Option<&OneFile> {
        match self {
            Files::One(file) => Some(file),
            Files::Directory(_) | Files::Partitions(..) => None,
            Files::Pattern(_) | Files::Listed(_) => None,
        }
    }

    /// The regular files that there are now, in the order of their paths.
    ///
    /// # Errors
    ///
    /// If something cannot be looked at, or is a link that leads nowhere.
    pub(crate) fn list(&self) -> Result<Vec<OneFile>> {
        self.listed_now(Dangling::Refused)
    }

    /// As [`Files::list`], where more may come: so may the file that a link leads to.
    pub(super) fn list_for_now(&self) -> Result<Vec<OneFile>> {
        self.listed_now(Dangling::Awaited)
    }

    fn listed_now(&self, dangling: Dangling) -> Result<Vec<OneFile>> {
        let mut paths = match self {
            Files::One(file) => return Ok(vec![file.clone()]),
            Files::Listed(files) => return Ok(files.clone()),
            Files::Directory(directory) => pattern::files_in(directory, dangling)?,
            Files::Partitions(directory, columns) => in_partitions(directory, columns, dangling)?,
            Files::Pattern(pattern) => pattern::matching(pattern, dangling)?,
        };
        paths.sort();
        Ok(paths.into_iter().map(OneFile::at).collect())
    }

    /// For `explain`.
    pub(super) fn describe(&self) -> String {
        match self {
            Files::One(file) => format!("file {}", file.name),
            Files::Directory(path) => format!("directory {}", path.display()),
            Files::Partitions(path, _) => format!("partitions in {}", path.display()),
            Files::Pattern(pattern) => format!("files {pattern}"),
            Files::Listed(files) => counted(files.len() as u64, "file"),
        }
    }
}

/// The name of a file's split: the file's path as `path` gives it, so that the name is the same in
/// another working directory. `base` is where the given path starts.
pub(super) fn split_name(base: &Path, file: &str) -> Name {
    let path = without_dots(Path::new(file));
    let relative = path.strip_prefix(without_dots(base)).unwrap_or(&path);
    relative.display().to_string().into()
}

/// The path without parts that are a single dot.
fn without_dots(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// The files of a directory of partitions, which lie as deep as there are columns.
fn in_partitions(directory: &Path, columns: &[String], dangling: Dangling) -> Result<Vec<PathBuf>> {
    let mut directories = vec![directory.to_path_buf()];
    for column in columns {
        let mut below = Vec::new();
        for directory in &directories {
            for path in pattern::visible(directory)? {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let is_partition = value_in(&name, column).is_some();
                if !is_partition || !pattern::is_directory(&path, dangling)? {
                    return Err(misplaced(&path, column, columns));
                }
                below.push(path);
            }
        }
        directories = below;
    }
    let mut files = Vec::new();
    for directory in &directories {
        files.extend(pattern::files_in(directory, dangling)?);
    }
    Ok(files)
}

/// Standard input, if it can be read only once by who goes on where another has read to.
pub fn standard_input() -> Option<ReadOnce> {
    gone(Path::new("/dev/stdin"), true)
}

/// Pipes and terminals are gone once they have been read, whatever the path to them; and so is of a
/// file that this process was given open what has been read of it.
pub(super) fn read_once(path: &Path) -> Option<ReadOnce> {
    gone(path, begun_at(path).is_some())
}

/// As [`read_once`]. `begun`: if it is a regular file, some of it has been read.
fn gone(path: &Path, begun: bool) -> Option<ReadOnce> {
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let metadata = path.metadata().ok()?;
    let null = Path::new("/dev/null").metadata();
    let is_new = metadata.is_file() && !begun;
    // Of what is a device, `/dev/null` can be read again.
    if is_new || metadata.is_dir() || null.is_ok_and(|null| same(&metadata, &null)) {
        return None;
    }
    let stdin = Path::new("/dev/stdin").metadata();
    let name = match stdin.is_ok_and(|stdin| same(&metadata, &stdin)) {
        true => "standard input".to_string(),
        false => format!("'{}'", path.display()),
    };
    Some(ReadOnce { id: format!("{}:{}", metadata.dev(), metadata.ino()), name })
}

/// Error for a path without a file, or with only a link.
fn missing(options: &Options<'_>, given: &str, path: &Path) -> Error {
    let shown = path.display();
    match pattern::dangling_link(path) {
        Some((what, help)) => options.error("path", format!("'{shown}' is {what}"), help),
        None => options.error(
            "path",
            format!("there is no file '{shown}'"),
            elsewhere(given).unwrap_or_else(|| missing_help(path, options.start(given))),
        ),
    }
}

/// Advice about a directory whose files are all left out.
fn no_files_help(path: &Path, given: &str) -> String {
    let directory = std::fs::read_dir(path).into_iter().flatten().flatten().find(|entry| {
        let is_hidden = entry.file_name().to_string_lossy().starts_with(['.', '_']);
        !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    let Some(directory) = directory else {
        return "files whose names begin with '.' or '_' do not count".to_string();
    };
    let name = directory.file_name().to_string_lossy().escape_debug().to_string();
    let given = given.trim_end_matches('/');
    let mut help = format!("it has directories: '{given}/**/*' names the files in all of them");
    if let Some((column, _)) = name.split_once('=') {
        help += &format!(
            "; with PARTITIONED BY ({column}, …) in CREATE TABLE, names such as {name} are columns"
        );
    }
    help
}

/// Advice about a path that leads nowhere because of its beginning.
fn elsewhere(given: &str) -> Option<String> {
    if given.starts_with('~') {
        return Some("in SQL '~' is no directory: write the whole path".into());
    }
    let (scheme, _) = given.split_once("://")?;
    let is_scheme = scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_scheme.then(|| {
        format!(
            "files of this machine are read, and {scheme}:// is elsewhere: save it here first, or \
             send it through a pipe to the connector 'stdin'"
        )
    })
}
