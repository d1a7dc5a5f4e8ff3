//! Where the cases of `millstream test` are, and what belongs to each.

use std::fs;
use std::path::{Path, PathBuf};

use millstream::arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;

/// A query to be tested.
pub(crate) struct Case {
    /// For people: its path.
    pub(crate) name: String,
    /// Its SQL.
    pub(crate) query: PathBuf,
    pub(crate) kind: Kind,
}

/// How its inputs and its expected rows are given.
pub(crate) enum Kind {
    /// In a directory of its own: see [`inputs`].
    Folder { folder: PathBuf },
    /// A file of SQL, with files as tables; and the file of the expected rows.
    File { expected: PathBuf },
}

/// The SQL of a case that has a directory of its own.
const QUERY: &str = "query.sql";
/// The formats that rows may be given in, by the ends of their files' names.
pub(crate) const FORMATS: [&str; 2] = ["csv", "ndjson"];

/// The cases at a path, in the order of their names.
pub(crate) fn find_cases(path: &Path) -> Result<Vec<Case>, String> {
    find_below(path, &mut Vec::new())
}

/// The same; a link to one of the directories `above` leads to nothing new.
fn find_below(path: &Path, above: &mut Vec<PathBuf>) -> Result<Vec<Case>, String> {
    let not_read = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let is_folder = fs::metadata(path).map_err(not_read)?.is_dir();
    if !is_folder {
        let folder = path.parent().unwrap_or(Path::new("."));
        let is_query = path.file_name().is_some_and(|name| name == QUERY);
        return Ok(vec![if is_query { folder_case(folder) } else { file_case(path) }]);
    }
    if path.join(QUERY).exists() {
        return Ok(vec![folder_case(path)]);
    }
    let real = path.canonicalize().map_err(not_read)?;
    if above.contains(&real) {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(not_read)? {
        entries.push(entry.map_err(not_read)?.path());
    }
    entries.sort();
    let has_expected = entries.iter().any(|entry| ends_with(entry, "expected"));
    let mut cases = Vec::new();
    above.push(real);
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        if entry.is_dir() {
            // One that cannot be looked into fails as a case, and the others run all the same.
            let found = find_below(&entry, above);
            cases.extend(found.unwrap_or_else(|_| vec![folder_case(&entry)]));
        } else if has_expected && ends_with(&entry, "sql") {
            cases.push(file_case(&entry));
        }
    }
    above.pop();
    Ok(cases)
}

fn ends_with(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn file_case(path: &Path) -> Case {
    let expected = path.with_extension("expected");
    let name = path.with_extension("").display().to_string();
    Case { name, query: path.to_path_buf(), kind: Kind::File { expected } }
}

fn folder_case(folder: &Path) -> Case {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let kind = Kind::Folder { folder: folder.to_path_buf() };
    Case { name: folder.display().to_string(), query: folder.join(QUERY), kind }
}

/// The files of a directory that take the place of tables, by table.
pub(crate) fn inputs(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let not_read = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder).map_err(not_read)? {
        let entry = entry.map_err(not_read)?;
        let name = entry.file_name();
        let Some((table, format)) = name.to_str().and_then(|name| name.rsplit_once('.')) else {
            continue;
        };
        let is_expected = table == "expected" || table.ends_with(".expected");
        if FORMATS.contains(&format) && !is_expected && !table.is_empty() {
            check_kind(&entry.path(), true)?;
            inputs.push((table.to_string(), format!("{table}.{format}")));
        }
    }
    inputs.sort();
    if let Some([(table, one), (_, other)]) = inputs.array_windows().find(|[a, b]| a.0 == b.0) {
        let folder = folder.display();
        return Err(format!("{folder}: table '{table}' is both {one} and {other}: remove one"));
    }
    Ok(inputs)
}

/// Refuses what is no file, but a pipe, for example, whose rows come once, or never.
pub(crate) fn check_kind(path: &Path, may_be_folder: bool) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(found) if !(found.is_file() || may_be_folder && found.is_dir()) => {
            Err(format!("{} is no file: it is read anew for each run of a test", path.display()))
        }
        // What cannot be looked at is told where it is opened.
        _ => Ok(()),
    }
}

/// Directives for tests in a query's comments.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Directives {
    /// `-- settings: key=value, key=value`: of all runs.
    pub(crate) settings: Vec<(String, String)>,
    /// `-- counters: records=9 late_records=2`: what each run must count.
    pub(crate) counters: Vec<(String, u64)>,
    /// `-- outputs: kept, counts`: directories written by the query; their lines follow the printed
    /// lines.
    pub(crate) outputs: Vec<String>,
    /// `-- now: 2024-05-01 12:00:00`: value of `NOW()`, in UTC; microseconds since the epoch.
    pub(crate) now_us: Option<i64>,
}

const DIRECTIVES: [&str; 4] = ["settings", "counters", "outputs", "now"];

impl Directives {
    pub(crate) fn of(text: &str) -> Result<Directives, String> {
        let mut found = Directives::default();
        for line in text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).lines() {
            let Some((name, value)) = line.strip_prefix("-- ").and_then(|l| l.split_once(':'))
            else {
                check_spelling(line)?;
                continue;
            };
            let wrong = |what: &str| format!("-- {name}: '{what}' is no NAME=VALUE");
            match name {
                "settings" => {
                    for part in value.split(',').map(str::trim) {
                        let (key, value) = part.split_once('=').ok_or_else(|| wrong(part))?;
                        found.settings.push((key.trim().into(), value.trim().into()));
                    }
                }
                "counters" => {
                    for part in value.split_whitespace() {
                        let pair = part.split_once('=');
                        let pair = pair.and_then(|(key, value)| Some((key, value.parse().ok()?)));
                        let (key, value) = pair.ok_or_else(|| wrong(part))?;
                        found.counters.push((key.into(), value));
                    }
                }
                "now" => {
                    let nanos = string_to_timestamp_nanos(value.trim());
                    let nanos = nanos.map_err(|_| {
                        format!(
                            "-- now: '{}' is no time\n  help: write for example \
                             2024-05-01 12:00:00",
                            value.trim()
                        )
                    })?;
                    found.now_us = Some(nanos.div_euclid(1000));
                }
                "outputs" => {
                    found.outputs.extend(value.split(',').map(|name| name.trim().into()));
                }
                _ => check_spelling(line)?,
            }
        }
        Ok(found)
    }
}

/// Mark that some editors write in front of a text.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Refuses a comment that looks like a misspelt directive: it would have no effect, unnoticed.
fn check_spelling(line: &str) -> Result<(), String> {
    let comment = line.trim_start().strip_prefix("--");
    let Some((word, value)) = comment.and_then(|comment| comment.split_once(':')) else {
        return Ok(());
    };
    let word = word.trim_matches(|c: char| c == '-' || c.is_whitespace());
    // Short words are like many others.
    let long =
        || millstream::program::closest(word, DIRECTIVES.into_iter()).filter(|name| name.len() > 3);
    let is_time = value.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let timed = || millstream::program::closest(word, DIRECTIVES.into_iter()).filter(|_| is_time);
    let same = DIRECTIVES.into_iter().find(|name| word.eq_ignore_ascii_case(name));
    match same.or_else(long).or_else(timed) {
        None => Ok(()),
        Some(name) => Err(format!(
            "'{}' says nothing of the test\n  help: did you mean '-- {name}:{value}', from the \
             line's beginning on? If it is a plain comment, begin it with another word",
            line.trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_stand_in_comments() {
        let text =
            "-- settings: workers=2, watermark.max_ahead=1 day\n-- counters: records=9 rows=2
-- outputs: a, b/c\n-- note: x=y\nSELECT 1; -- counters: rows=3";
        let found = Directives::of(text).unwrap();
        let settings = [("workers", "2"), ("watermark.max_ahead", "1 day")];
        assert_eq!(found.settings, settings.map(|(key, value)| (key.into(), value.into())));
        assert_eq!(found.counters, [("records".to_string(), 9), ("rows".to_string(), 2)]);
        assert_eq!(found.outputs, ["a", "b/c"]);
        let at = |text: &str| Directives::of(text).map(|found| found.now_us);
        assert_eq!(at("-- now: 1970-01-01 00:00:01.5\n"), Ok(Some(1_500_000)));
        assert!(at("-- now: tomorrow").unwrap_err().contains("'tomorrow' is no time"));
        assert!(Directives::of("-- counters: rows=many").unwrap_err().contains("rows=many"));
        assert_eq!(Directives::of("\u{feff}-- counters: rows=3").unwrap().counters.len(), 1);
    }

    #[test]
    fn misspelt_directives_are_told() {
        for (line, meant) in [
            ("-- counter: records=1", "-- counters: records=1"),
            ("-- Counters: records=1", "-- counters: records=1"),
            ("--counters: records=1", "-- counters: records=1"),
            ("-- counters : records=1", "-- counters: records=1"),
            ("  -- counters: records=1", "-- counters: records=1"),
            ("--- setting: workers=1", "-- settings: workers=1"),
            ("-- output: kept", "-- outputs: kept"),
            ("-- nwo: 2024-05-01 12:00:00", "-- now: 2024-05-01 12:00:00"),
        ] {
            let told = Directives::of(&format!("{line}\nSELECT 1;")).unwrap_err();
            assert!(told.contains(&format!("did you mean '{meant}'")), "{told}");
        }
        for line in
            ["-- Not: so", "-- note: x=1", "-- answer: by hand", "-- the counters: all", "--"]
        {
            assert_eq!(Directives::of(line), Ok(Directives::default()), "{line}");
        }
    }
}
