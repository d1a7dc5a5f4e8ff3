//! Whether a case passes: all of its runs give the rows that are expected, in the same order.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use millstream::program::counters;
use millstream::{Format, Stats};
use serde_json::Value;

use super::cases::{BYTE_ORDER_MARK, Case, Directives, FORMATS, Kind, check_kind, inputs};
use super::compare::{Block, difference};
use super::layouts::Layout;
use super::records;
use super::run::{Came, TrialScript, run};

/// Rules of all cases.
pub(crate) struct Rules {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) update: bool,
    pub(crate) timeout: Duration,
}

/// How a case went.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) runs: usize,
    /// Files that were written, by `--update`.
    pub(crate) wrote: Vec<String>,
    /// Mistakes; empty if the case passed.
    pub(crate) failures: Vec<String>,
}

/// Runs a case in all rules.
pub(crate) fn judge(case: &Case, rules: &Rules) -> Verdict {
    let mut verdict = Verdict::default();
    if let Err(failure) = judged(case, rules, &mut verdict) {
        verdict.failures.push(failure);
    }
    verdict
}

/// A result of a case: what is shown, or what is inserted into a table.
struct Expected {
    /// `None`: what is shown.
    table: Option<String>,
    path: PathBuf,
    format: records::RowFormat,
    /// `None`: there is no such file.
    text: Option<String>,
}

fn judged(case: &Case, rules: &Rules, verdict: &mut Verdict) -> Result<(), String> {
    check_kind(&case.query, false)?;
    let text = fs::read_to_string(&case.query)
        .map_err(|e| format!("cannot read {}: {e}", case.query.display()))?;
    let directives = Directives::of(&text)?;
    if matches!(case.kind, Kind::Folder { .. }) && !directives.outputs.is_empty() {
        return Err("-- outputs: says nothing of a query.sql, whose rows go to no directory\n  \
                    help: expect those of INSERT INTO name in name.expected.csv"
            .into());
    }
    let expected = expected(case)?;
    let script = TrialScript { now_us: directives.now_us, ..script(case, text, &expected)? };
    let mut settings = directives.settings.clone();
    settings.extend(rules.settings.iter().cloned());
    let once = |layout: &Layout| -> Result<Came, String> {
        let place = Place::of(case, &directives)?;
        let script = match &place {
            Some(place) => TrialScript { base_dir: place.0.clone(), ..script.clone() },
            None => script.clone(),
        };
        let mut came = run(&script, layout, &settings, rules.timeout)?;
        if let Some(place) = &place {
            came.shown.extend(place.lines_of(&directives.outputs)?);
        }
        check_counters(&came.stats, &directives.counters)?;
        Ok(came)
    };
    let Some((plain, others)) = rules.layouts.split_first() else { return Ok(()) };
    let first = once(plain)?;
    verdict.runs = 1;
    check_inputs(case, &script, &first)?;
    if !rules.update {
        check_rows(case, &expected, &first)?;
    }
    let simulated = settings.iter().any(|(key, _)| key == "simulate");
    for layout in others {
        if simulated && (layout.is_simulated() || layout.processes > 1) {
            continue;
        }
        let same = once(layout).and_then(|came| same(&script.text, &expected, &first, &came));
        same.map_err(|failure| format!("with {layout}: {failure}"))?;
        verdict.runs += 1;
    }
    // Rows that differ from run to run are none to be expected.
    if rules.update {
        verdict.wrote = update(case, &expected, &first)?;
    }
    Ok(())
}

/// The script of a case.
fn script(case: &Case, text: String, expected: &[Expected]) -> Result<TrialScript, String> {
    let of = |found: &Expected| match found.format {
        records::RowFormat::Csv => Format::Csv,
        records::RowFormat::Ndjson => Format::Ndjson,
    };
    let name = case.query.display().to_string();
    let shown = expected.iter().find(|found| found.table.is_none());
    let format = shown.map_or(Format::Csv, of);
    let formats: BTreeMap<String, Format> =
        expected.iter().filter_map(|found| Some((found.table.clone()?, of(found)))).collect();
    let (base_dir, inputs, captured) = match &case.kind {
        Kind::Folder { folder } => (folder.clone(), inputs(folder)?, true),
        Kind::File { .. } => (beside(case).to_path_buf(), Vec::new(), false),
    };
    Ok(TrialScript { name, text, base_dir, inputs, now_us: None, captured, format, formats })
}

/// The folder in which a case's query stands.
fn beside(case: &Case) -> &Path {
    let folder = case.query.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Existing files of expected rows; the file of shown rows in any case.
fn expected(case: &Case) -> Result<Vec<Expected>, String> {
    let folder = match &case.kind {
        Kind::File { expected } => {
            let (path, format) = (expected.clone(), records::RowFormat::Csv);
            return Ok(vec![Expected { table: None, text: read(&path)?, path, format }]);
        }
        Kind::Folder { folder } => folder,
    };
    let mut found: Vec<Expected> = Vec::new();
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((stem, format)) = name.rsplit_once('.') else { continue };
        let table = match stem.strip_suffix(".expected") {
            Some(table) => Some(table.to_string()),
            None if stem == "expected" => None,
            None => continue,
        };
        let format = match FORMATS.iter().position(|known| *known == format) {
            Some(0) => records::RowFormat::Csv,
            Some(_) => records::RowFormat::Ndjson,
            None => continue,
        };
        if let Some(other) = found.iter().find(|other| other.table == table) {
            let [one, other] = [&path, &other.path].map(|path| path.display());
            return Err(format!("there are both {one} and {other}: remove one"));
        }
        found.push(Expected { table, text: read(&path)?, path, format });
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Option<String>, String> {
    check_kind(path, false)?;
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.strip_prefix(BYTE_ORDER_MARK).map_or(text.clone(), String::from))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

/// Each input takes the place of a table, or is named in the query.
fn check_inputs(case: &Case, script: &TrialScript, came: &Came) -> Result<(), String> {
    for (table, file) in &script.inputs {
        if came.tables.contains(table) || script.text.contains(file.as_str()) {
            continue;
        }
        let meant = millstream::program::closest(table, came.tables.iter().map(String::as_str));
        let help = match meant {
            Some(meant) => format!("did you mean '{meant}'?"),
            None if came.tables.is_empty() => "the query declares no table".into(),
            None => format!("the tables are {}", came.tables.join(", ")),
        };
        return Err(format!(
            "{}/{file}: {} declares no table '{table}'\n  help: {help}",
            case.name, script.name
        ));
    }
    Ok(())
}

/// Actual rows, by table; first the shown rows.
fn results(came: &Came) -> impl Iterator<Item = (Option<&String>, &[Block])> {
    let shown = Some((None, &came.shown[..])).filter(|(_, blocks)| !blocks.is_empty());
    shown.into_iter().chain(came.inserted.iter().map(|(table, blocks)| (Some(table), &blocks[..])))
}

fn path_of(case: &Case, table: Option<&String>) -> PathBuf {
    match (&case.kind, table) {
        (Kind::File { expected }, _) => expected.clone(),
        (Kind::Folder { folder }, None) => folder.join("expected.csv"),
        (Kind::Folder { folder }, Some(table)) => folder.join(format!("{table}.expected.csv")),
    }
}

fn check_rows(case: &Case, expected: &[Expected], came: &Came) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (table, blocks) in results(came) {
        let found = expected.iter().find(|found| found.table.as_ref() == table);
        let Some((found, text)) = found.and_then(|found| Some((found, found.text.as_ref()?)))
        else {
            wrong.push(format!(
                "there is no {}, and rows came\n  help: write it, or let --update write what \
                 came, and read it",
                path_of(case, table).display()
            ));
            continue;
        };
        let name = found.path.file_name().unwrap_or_default().to_string_lossy();
        wrong.extend(difference(&name, text, blocks, found.format));
    }
    for found in expected {
        let known = results(came).any(|(table, _)| table == found.table.as_ref());
        let nothing = found.text.as_ref().is_none_or(|text| text.trim().is_empty());
        if known || (nothing && found.format == records::RowFormat::Ndjson) {
            continue;
        }
        wrong.push(match (&found.table, &found.text) {
            (_, None) => format!("there is no {}", found.path.display()),
            (None, _) => format!("{}: the query shows no rows", found.path.display()),
            (Some(table), _) => {
                format!("{}: the query inserts nothing into '{table}'", found.path.display())
            }
        });
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Writes actual rows where they differ from the expected rows.
fn update(case: &Case, expected: &[Expected], came: &Came) -> Result<Vec<String>, String> {
    let mut wrote = Vec::new();
    for (table, blocks) in results(came) {
        let found = expected.iter().find(|found| found.table.as_ref() == table);
        let same = found.and_then(|found| Some((found, found.text.as_ref()?)));
        if same.is_some_and(|(f, text)| difference("", text, blocks, f.format).is_none()) {
            continue;
        }
        let path = found.map_or_else(|| path_of(case, table), |found| found.path.clone());
        let text: String = blocks.iter().map(|block| block.text.as_str()).collect();
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        wrote.push(path.display().to_string());
    }
    Ok(wrote)
}

/// Whether a run gave what the first one did, byte for byte.
fn same(query: &str, expected: &[Expected], first: &Came, came: &Came) -> Result<(), String> {
    for (table, blocks) in results(first) {
        let now = results(came).find(|(other, _)| *other == table).map_or(&[][..], |(_, b)| b);
        let text = |blocks: &[Block]| -> String {
            blocks.iter().map(|block| block.text.as_str()).collect()
        };
        if text(blocks) == text(now) {
            continue;
        }
        let found = expected.iter().find(|found| found.table.as_ref() == table);
        let format = found.map_or(records::RowFormat::Csv, |found| found.format);
        let now: Vec<Block> =
            now.iter().map(|block| Block { ordered: true, ..block.clone() }).collect();
        let name = table.map_or("the first run's rows", |table| table.as_str());
        let told = difference(name, &text(blocks), &now, format);
        return Err(format!(
            "other rows than in the first run{}\n{}",
            of_the_clock(query).or_else(|| of_a_limit(query)).unwrap_or(" (please report it)"),
            told.unwrap_or_else(|| "they differ in line ends".into())
        ));
    }
    Ok(())
}

/// Advice for rows that differ because a query uses the time of reading.
fn of_the_clock(query: &str) -> Option<&'static str> {
    query.to_uppercase().contains("PROCTIME").then_some(
        ": PROCTIME() is when a record is read, which no two runs have in common\n  help: leave it \
         out of the test's query, or run it once, with --quick",
    )
}

/// Advice for rows that differ because a query selects an arbitrary part of the rows.
fn of_a_limit(query: &str) -> Option<&'static str> {
    let code: String = query
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .collect::<Vec<_>>()
        .join("\n");
    let code = code.to_uppercase();
    let words: Vec<&str> = code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let limits = words.iter().filter(|word| matches!(**word, "LIMIT" | "FETCH")).count();
    let orders = words.windows(2).filter(|pair| pair == &["ORDER", "BY"]).count();
    (limits > orders).then_some(
        ": LIMIT without ORDER BY shows the rows that come first, and which these are depends on \
         the number of workers, on batches and on files\n  help: give it an ORDER BY over columns \
         in which rows differ, or run it once, with --quick",
    )
}

/// The counters of a run, added up, are those that the query says.
fn check_counters(stats: &[Stats], wanted: &[(String, u64)]) -> Result<(), String> {
    let all: Vec<_> = stats.iter().map(counters).collect();
    for (name, wanted) in wanted {
        let values = all.iter().filter_map(|query| query.get(name).and_then(Value::as_u64));
        let (mut number, mut sum) = (0, 0);
        values.for_each(|value| (number, sum) = (number + 1, sum + value));
        match (number, sum) {
            (0, _) => return Err(format!("-- counters: there is no counter '{name}'")),
            (_, sum) if sum != *wanted => {
                return Err(format!("counter {name} is {sum}, expected {wanted}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A directory for a single run of a case that writes files; the inputs are linked there.
struct Place(PathBuf);

impl Place {
    fn of(case: &Case, directives: &Directives) -> Result<Option<Place>, String> {
        if directives.outputs.is_empty() || matches!(case.kind, Kind::Folder { .. }) {
            return Ok(None);
        }
        let failed = |e: std::io::Error| format!("a directory for the run's files: {e}");
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let number = PLACES.fetch_add(1, Relaxed);
        let name = format!("millstream-test-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).map_err(failed)?;
        let place = Place(folder);
        let beside = beside(case).canonicalize().map_err(failed)?;
        let first = |output: &String| output.split('/').next().map(str::to_string);
        let outputs: Vec<_> = directives.outputs.iter().filter_map(first).collect();
        for entry in fs::read_dir(beside).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if !outputs.iter().any(|output| name == output.as_str()) {
                symlink(entry.path(), place.0.join(name)).map_err(failed)?;
            }
        }
        Ok(Some(place))
    }

    /// The lines of all files in directories, sorted, each behind a line with the directory's name.
    fn lines_of(&self, outputs: &[String]) -> Result<Vec<Block>, String> {
        let mut blocks = Vec::new();
        for output in outputs {
            let mut lines = Vec::new();
            let failed = |e: std::io::Error| format!("{output}: {e}");
            for entry in fs::read_dir(self.0.join(output)).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if entry.file_name().to_string_lossy().starts_with("part-") {
                    let text = fs::read_to_string(entry.path()).map_err(failed)?;
                    lines.extend(text.lines().map(str::to_string));
                }
            }
            lines.sort();
            let mut text = format!("== {output}\n");
            lines.iter().for_each(|line| text += &format!("{line}\n"));
            blocks.push(Block { text, ordered: true });
        }
        Ok(blocks)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_clock_are_no_mistake_of_ours() {
        assert!(of_the_clock("SELECT proctime() AS p FROM t").is_some());
        assert!(of_the_clock("SELECT ts AS p FROM t").is_none());
    }

    #[test]
    fn rows_of_a_limit_are_no_mistake_of_ours() {
        let is = |query| of_a_limit(query).is_some();
        assert!(is("SELECT k FROM t LIMIT 3;") && is("SELECT k FROM t\nfetch first 3 rows only"));
        assert!(is("SELECT k FROM (SELECT k FROM t LIMIT 9) ORDER BY k LIMIT 3"));
        assert!(
            !is("SELECT k FROM t ORDER\nBY k LIMIT 3") && !is("-- LIMIT\nSELECT no_limit FROM t")
        );
    }
}
