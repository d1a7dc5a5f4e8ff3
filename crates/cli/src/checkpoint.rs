//! `millstream checkpoint`: looking at checkpoints, checking and deleting them.

use std::fmt::Write;
use std::path::Path;

use millstream::Error;
use millstream::program::saved::{CheckpointDirectory, Manifest, OpenWindows};
use millstream::program::{bytes, counted, grouped, harmless};

use crate::arguments::{CheckpointCommand, Output};
use crate::console::note;
use crate::failure::{Failure, fail, failed};
use crate::output::{print, text_sink};

/// Remark on the last checkpoint that is deleted.
const NONE_LEFT: &str = "no checkpoint is left: the next start of the job reads everything from \
                         the beginning, and writes its rows again";

/// Runs one of the commands.
pub(crate) fn run(command: &CheckpointCommand) -> Result<(), Failure> {
    match command {
        CheckpointCommand::List { dir } => list(&opened(dir)?),
        CheckpointCommand::Show { dir, number, state, json, output } => {
            output.check()?;
            let kept = opened(dir)?;
            number.map_or(Ok(()), |number| check_there(&kept, dir, number))?;
            let manifest = kept.get(*number).map_err(run_failed)?;
            match state {
                Some(stage) => print_state(&kept, &manifest, stage, *output),
                None if *json => {
                    let text = serde_json::to_string_pretty(&manifest);
                    print(&text.map_err(|error| fail(&error))?)
                }
                None => print(&harmless(&shown(&manifest))),
            }
        }
        CheckpointCommand::Verify { dir, number } => verify(dir, *number),
        CheckpointCommand::Delete { dir, number } => delete(dir, *number),
    }
}

fn run_failed(error: Error) -> Failure {
    failed(millstream::Failure::Run(error))
}

fn opened(dir: &Path) -> Result<CheckpointDirectory, Failure> {
    CheckpointDirectory::new(dir).map_err(run_failed)
}

/// The numbers of all checkpoints. No checkpoint at all is a failure.
fn numbers(kept: &CheckpointDirectory) -> Result<Vec<u64>, Failure> {
    let all = kept.all().map_err(run_failed)?;
    match all.is_empty() {
        // The failure is that of the latest checkpoint.
        true => kept.get(None).map(|manifest| vec![manifest.checkpoint]).map_err(run_failed),
        false => Ok(all.into_iter().map(|(number, _)| number).collect()),
    }
}

/// Fails for a number without a checkpoint, and names the others.
fn check_there(kept: &CheckpointDirectory, dir: &Path, number: u64) -> Result<(), Failure> {
    let numbers = numbers(kept)?;
    if numbers.contains(&number) {
        return Ok(());
    }
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    Err(run_failed(Error::Io {
        place: dir.display().to_string(),
        message: format!("it has no checkpoint {number}"),
        help: format!("its checkpoints are {}", numbers.join(", ")),
    }))
}

/// Prints the rows of a stage's state.
fn print_state(
    kept: &CheckpointDirectory,
    manifest: &Manifest,
    stage: &str,
    output: Output,
) -> Result<(), Failure> {
    let sink = text_sink(output);
    let mut is_open = false;
    let rows = kept.rows(manifest, stage, |rows| {
        if !is_open {
            sink.open(&rows.schema(), millstream::Writers::alone())?;
            is_open = true;
        }
        sink.write(0, rows, true)
    });
    match rows.and_then(|()| if is_open { sink.finish() } else { Ok(()) }) {
        // A reader that has gone away (`| head`) has read enough.
        Ok(()) | Err(Error::OutputClosed) => Ok(()),
        Err(error) => Err(run_failed(error)),
    }
}

fn delete(dir: &Path, number: u64) -> Result<(), Failure> {
    let kept = opened(dir)?;
    check_there(&kept, dir, number)?;
    let removed = kept.delete(number).map_err(run_failed)?;
    let files = counted(removed.files.len() as u64, "file");
    print(&format!("deleted checkpoint {number} ({files}, {})", bytes(removed.bytes)))?;
    if kept.all().map_err(run_failed)?.is_empty() {
        note(&NONE_LEFT);
    }
    Ok(())
}

fn list(kept: &CheckpointDirectory) -> Result<(), Failure> {
    let all = kept.all().map_err(run_failed)?;
    if all.is_empty() {
        note(&"there is no checkpoint");
    }
    for (number, found) in all {
        print(&match found {
            Ok(manifest) => format!(
                "{number:>6}  {}  {} of state, {} of it new, {} read{}",
                time(manifest.time_us),
                bytes(manifest.bytes()),
                bytes(manifest.new_bytes()),
                counted(records(&manifest), "record"),
                if manifest.ended { "; the job has ended" } else { "" }
            ),
            Err(error) => format!("{number:>6}  {}", harmless(&error.to_string())),
        })?;
    }
    Ok(())
}

fn records(manifest: &Manifest) -> u64 {
    let splits = manifest.sources.values().flat_map(|source| source.splits.values());
    splits.map(|split| split.records).sum()
}

fn shown(manifest: &Manifest) -> String {
    let mut text = format!(
        "checkpoint {} of {}, by version {}{}\nstarted {}\n",
        manifest.checkpoint,
        time(manifest.time_us),
        manifest.program,
        if manifest.ended { "; the job has ended" } else { "" },
        time(manifest.started_us)
    );
    let counts = manifest.counters.as_object().into_iter().flatten();
    let counts =
        counts.filter_map(|(name, count)| Some((name, count.as_u64().filter(|n| *n > 0)?)));
    let counts: Vec<String> =
        counts.map(|(name, n)| format!("{} {}", grouped(n), name.replace('_', " "))).collect();
    if !counts.is_empty() {
        let _ = writeln!(text, "counted {}", counts.join(", "));
    }
    for (name, source) in &manifest.sources {
        let _ = writeln!(text, "table {name}: watermark {}", time(source.low_us));
        for (split, mark) in &source.splits {
            let position: Vec<_> = mark.position.0.iter().map(u64::to_string).collect();
            let _ = writeln!(
                text,
                "  {split}: {} records, position ({}), watermark {}{}",
                grouped(mark.records),
                position.join(", "),
                time(mark.watermark_us),
                if mark.ended { ", ended" } else { "" }
            );
        }
    }
    for stage in &manifest.stages {
        let (rows, size) = (stage.files.iter())
            .fold((0, 0), |(rows, size), file| (rows + file.rows, size + file.bytes));
        let _ = writeln!(
            text,
            "stage {}: {} rows, {} in {}, fired up to {}",
            stage.names.join(", "),
            grouped(rows),
            bytes(size),
            counted(stage.files.len() as u64, "file"),
            time(stage.frontier_us)
        );
        text.extend(stage.windows.iter().map(open_windows));
        for file in &stage.files {
            let _ = writeln!(text, "  {}", file.name);
        }
    }
    for output in &manifest.outputs {
        let sealed = output.prepared.iter().map(|prepared| prepared.sealed.len() as u64).sum();
        let _ = writeln!(
            text,
            "output {}: {} with this checkpoint",
            output.name,
            counted(sealed, "file")
        );
    }
    text
}

/// A line on the open windows of a stage.
fn open_windows(open: &OpenWindows) -> String {
    let bounds = |[start, end]: [i64; 2]| format!("{} to {}", time(start), time(end));
    let (first, last) = (open.first_us, open.last_us);
    match open.count {
        None => format!("  open windows from {}\n", bounds([first[0], last[1]])),
        Some(1) => format!("  1 open window: {}\n", bounds(first)),
        Some(count) => {
            let count = counted(count, "open window");
            format!("  {count}: the first {}, the last {}\n", bounds(first), bounds(last))
        }
    }
}

fn verify(dir: &Path, number: Option<u64>) -> Result<(), Failure> {
    let kept = opened(dir)?;
    let numbers = match number {
        Some(number) => check_there(&kept, dir, number).map(|()| vec![number])?,
        None => numbers(&kept)?,
    };
    let mut is_whole = true;
    for number in numbers {
        let defects = match kept.verify(number) {
            Ok(defects) => defects,
            Err(error) => vec![error.to_string()],
        };
        is_whole &= defects.is_empty();
        match defects.is_empty() {
            true => print(&format!("checkpoint {number} is whole"))?,
            false => {
                let lines = defects.iter().map(|defect| format!("\n  {}", harmless(defect)));
                print(&format!("checkpoint {number} is damaged{}", lines.collect::<String>()))?;
            }
        }
    }
    if is_whole { Ok(()) } else { Err(Failure::Run) }
}

/// A time for people.
fn time(us: i64) -> String {
    match us {
        i64::MIN => "before all times".into(),
        i64::MAX => "after all times".into(),
        us => {
            let (day, within) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000));
            let (year, month, day) = millstream::program::civil_from_days(day);
            let second = within / 1_000_000;
            format!(
                "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{:03}",
                second / 3600,
                second / 60 % 60,
                second % 60,
                within / 1000 % 1000
            )
        }
    }
}
