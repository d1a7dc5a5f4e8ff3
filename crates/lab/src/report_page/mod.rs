//! `millstream report DIR`: one page with plots from the lines that `bench --json` wrote.
//!
//! It reads every `*.jsonl` and `*.json` file of the folder, one JSON object per line, and writes
//! `report.html` beside them, a page that needs no other file and no script. A line that cannot be
//! read is an error that names its place. A line whose answer was wrong is left out of all plots,
//! and the page names it.

mod entry;
mod figures;
mod html;
mod line;
mod projection;
mod shuffle;
mod spread;
mod svg;
mod tpch;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use millstream::counted;

use self::entry::Entry;
use self::html::{element, escape};
use self::line::{Line, Machine};
use self::shuffle::Shuffled;
use self::tpch::Pair;
use crate::Failure;
use crate::failure::{fail, note, usage};

/// As many wrong lines are named; a file of another kind has no others.
const NAMED_MAX: usize = 20;

/// Reads the folder's lines and writes the page.
pub fn run(folder: &Path) -> Result<(), Failure> {
    let files = files(folder).map_err(|e| usage(&format!("{}: {e}", folder.display())))?;
    if files.is_empty() {
        return Err(usage(&format!(
            "{}: no *.jsonl or *.json file\n  help: write lines with `millstream bench WORKLOAD --json >> \
             {0}/lines.jsonl`",
            folder.display()
        )));
    }
    let mut lines = Vec::new();
    let mut wrong = Vec::new();
    for file in &files {
        read(file, &mut lines, &mut wrong)
            .map_err(|e| fail(&format!("{}: {e}", file.display())))?;
    }
    if !wrong.is_empty() {
        let more = wrong.len().saturating_sub(NAMED_MAX);
        wrong.truncate(NAMED_MAX);
        let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        return Err(fail(&format!("{}{more}", wrong.join("\n"))));
    }
    if lines.is_empty() {
        return Err(fail(&format!("{}: the files have no lines", folder.display())));
    }
    let page = folder.join("report.html");
    write(&page, &render(&lines)).map_err(|e| fail(&format!("{}: {e}", page.display())))?;
    note(&format!("{}, {}", counted(lines.len() as u64, "line"), page.display()));
    let refused: Vec<String> = lines.iter().filter_map(Placed::refusal).collect();
    match refused.is_empty() {
        true => Ok(()),
        false => Err(fail(&refused.join("\n"))),
    }
}

/// A line and where it stands.
struct Placed {
    place: String,
    line: Entry,
}

impl Placed {
    /// Says that the line counts for nothing, if its answer was wrong.
    fn refusal(&self) -> Option<String> {
        let Placed { place, line } = self;
        (!line.ok()).then(|| format!("{place}: refused, since the answer was wrong: {line}"))
    }
}

/// The files with lines, sorted by name.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let lines = path.extension().is_some_and(|end| end == "jsonl" || end == "json");
        if lines && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Appends the lines of a file, and what is wrong with those that are none.
fn read(file: &Path, lines: &mut Vec<Placed>, wrong: &mut Vec<String>) -> io::Result<()> {
    let bytes = fs::read(file)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    for (number, bytes) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let parsed = match str::from_utf8(bytes) {
            Ok(text) => Entry::parse(text),
            Err(error) => Err(format!("not UTF-8 after {} bytes", error.valid_up_to())),
        };
        match parsed {
            Ok(line) => lines.push(Placed { place: format!("{name}:{number}"), line }),
            Err(error) => wrong.push(format!("{}:{number}: {error}", file.display())),
        }
    }
    Ok(())
}

/// Writes a file as a whole or not at all.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension("html.unfinished");
    let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, path));
    written.inspect_err(|_| drop(fs::remove_file(&unfinished)))
}

/// The page: what was refused, then a section for each machine.
fn render(lines: &[Placed]) -> String {
    let mut body = element("h1", &"Millstream: measurements");
    let version = env!("CARGO_PKG_VERSION");
    body.push_str(&element(
        "p",
        &format!("Written by millstream {version}. Every number comes from runs whose answer was checked."),
    ));
    let refused: Vec<String> = lines.iter().filter_map(Placed::refusal).collect();
    if !refused.is_empty() {
        body.push_str(&element("h2", &"Refused lines"));
        refused.iter().for_each(|text| body.push_str(&figures::warning(text)));
    }
    let mut machines = BTreeMap::<&Machine, (Vec<&Line>, Vec<&Shuffled>, Vec<&Pair>)>::new();
    for Placed { line, .. } in lines.iter().filter(|placed| placed.line.ok()) {
        let (jobs, shuffles, pairs) = machines.entry(line.machine()).or_default();
        match line {
            Entry::Job(line) => jobs.push(line),
            Entry::Shuffle(line) => shuffles.push(line),
            Entry::Tpch(line) => pairs.push(line),
        }
    }
    for (machine, (jobs, shuffles, pairs)) in machines {
        body.push_str(&format!("<h2>{}</h2>\n", escape(&machine.processor)));
        body.push_str(&element(
            "p",
            &format!(
                "{} cores, {:.1} GB of memory, kernel {}",
                machine.cores,
                machine.memory_bytes as f64 / 1e9,
                machine.kernel
            ),
        ));
        if !jobs.is_empty() {
            body.push_str(&figures::all(&jobs));
            body.push_str(&figures::sources(&jobs));
        }
        body.push_str(&shuffle::all(&shuffles));
        body.push_str(&tpch::all(&pairs));
    }
    html::page(&body)
}

#[cfg(test)]
mod tests;
