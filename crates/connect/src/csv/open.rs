//! Opening the file: the options `path` and `format`, and the error message if the file does not
//! exist.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use millstream_contract::settings::closest;
use millstream_contract::table::ReadOnce;
use millstream_contract::{Error, Result};

use crate::options::Options;

/// Formats that are planned, for a better message.
const LATER: &[&str] = &["json", "ndjson", "parquet", "avro", "raw", "orc"];

/// Only `csv` so far.
pub(super) fn check_format(options: &Options<'_>, format: Option<&str>) -> Result<()> {
    match format {
        Some("csv") => Ok(()),
        Some(later) if LATER.contains(&later) => Err(options.error(
            "format",
            format!("'{later}' comes in a later version"),
            "the format of files to read is 'csv' for now",
        )),
        Some(other) => Err(options.error(
            "format",
            format!("there is no format '{}'", other.escape_debug()),
            match closest(other, std::iter::once("csv")) {
                Some(name) => format!("did you mean '{name}'?"),
                None => "the format of files to read is 'csv' for now".to_string(),
            },
        )),
        None => Err(options.error(
            "format",
            "a file needs a format".into(),
            "write 'format' = 'csv' among the options",
        )),
    }
}

/// The file that `path` names, after checking that it can be one.
pub(super) fn resolve(options: &Options<'_>, given: Option<&str>) -> Result<PathBuf> {
    let given = given.unwrap_or_default();
    if given.is_empty() {
        return Err(options.error(
            "path",
            "a file needs a path".into(),
            "write 'path' = 'data/events.csv' among the options, relative to the SQL file",
        ));
    }
    let path = options.path(given);
    let metadata = std::fs::metadata(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound if given == "-" => options.error(
            "path",
            "there is no file '-'".into(),
            "write 'path' = '/dev/stdin' to read standard input",
        ),
        ErrorKind::NotFound | ErrorKind::NotADirectory => options.error(
            "path",
            format!("there is no file '{}'", path.display()),
            missing_help(&path, options.start(given)),
        ),
        _ => io_error(&path, &error),
    })?;
    if metadata.is_dir() {
        let message = format!("'{}' is a directory, not a file", path.display());
        return Err(options.error("path", message, directory_help(&path)));
    }
    Ok(path)
}

/// Standard input, if it can be read only once.
pub fn standard_input() -> Option<ReadOnce> {
    read_once(Path::new("/dev/stdin"))
}

/// Pipes and terminals are gone once they have been read, whatever the path to them.
pub(super) fn read_once(path: &Path) -> Option<ReadOnce> {
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let metadata = path.metadata().ok()?;
    let null = Path::new("/dev/null").metadata();
    // Of what is a device, `/dev/null` can be read again.
    if metadata.is_file() || metadata.is_dir() || null.is_ok_and(|null| same(&metadata, &null)) {
        return None;
    }
    let stdin = Path::new("/dev/stdin").metadata();
    let name = match stdin.is_ok_and(|stdin| same(&metadata, &stdin)) {
        true => "standard input".to_string(),
        false => format!("'{}'", path.display()),
    };
    Some(ReadOnce { id: format!("{}:{}", metadata.dev(), metadata.ino()), name })
}

/// What the system said about a file, and what can be done about it.
pub(super) fn io_error(path: &Path, error: &std::io::Error) -> Error {
    let help = match error.kind() {
        ErrorKind::NotFound => missing_help(path, "check the path"),
        ErrorKind::PermissionDenied => "make the file readable for this user (chmod)".to_string(),
        _ => String::new(),
    };
    Error::Io { place: path.display().to_string(), message: error.to_string(), help }
}

/// Looks at the deepest directory that exists for something with a similar name.
/// `start` says where such paths start.
fn missing_help(path: &Path, start: &str) -> String {
    let mut missing = path;
    while let Some(parent) = missing.parent() {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if !parent.is_dir() {
            missing = parent;
            if parent == Path::new(".") {
                break;
            }
            continue;
        }
        let name = missing.file_name().unwrap_or_default().to_string_lossy();
        let names = entries(parent);
        let similar = closest(&name, names.iter().map(String::as_str));
        return match similar {
            Some(similar) => format!("did you mean '{}'?", parent.join(similar).display()),
            None if missing == path => start.to_string(),
            None => format!("there is no directory '{}'; {start}", missing.display()),
        };
    }
    start.to_string()
}

fn directory_help(path: &Path) -> String {
    let mut names = entries(path);
    names.retain(|name| name.ends_with(".csv"));
    names.sort();
    match names.first() {
        Some(name) => format!("name one file in it, for example '{}'", path.join(name).display()),
        None => "name one file; reading whole directories comes in a later version".to_string(),
    }
}

fn entries(directory: &Path) -> Vec<String> {
    let Ok(read) = std::fs::read_dir(directory) else { return Vec::new() };
    // A directory may be huge; a help line is not worth reading it whole.
    read.take(10_000).flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}
