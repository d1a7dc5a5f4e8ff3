//! Files that are followed, as `tail -F` does: `'follow' = 'true'`.
//!
//! The table is unbounded and has one split, however many files `path` names. Lines are read as
//! they are written; a line without its end waits. New files of a directory or a pattern are found
//! within a second, those that are there already in the order in which they were last written, then
//! by name. Where several have something new, the one found first goes first.
//!
//! A file is known by its inode, whatever its name, and by its first bytes and the last
//! that were read ([`cursor`]):
//!
//! - *Rotated*: the path names another file. The old file is read to its end, and on until it has
//!   not grown for a second; then the new file from its first line. A last line without its end is
//!   a record then.
//! - *Renamed* to a name that `path` covers as well: reading goes on, and does not start again.
//! - *Truncated*, or written anew in place: the file is shorter than before, or has other bytes.
//!   Reading starts again at the first line, and the header too. A waiting half line is dropped.
//!   The user is told.
//! - *Deleted*: as if rotated. The path may come back.
//!
//! Files are looked at ten times in a second. Only regular files are followed that have lines and
//! are not packed. In a job of several processes the coordinator reads them.
//!
//! **Positions** ([`saved`]): in another run of the program, reading goes on in each file that has
//! the bytes read before: under its name, or renamed within its directory, or copied with another
//! inode. A file of the same name and inode with other bytes has been written anew, and is read
//! from its beginning. Another file that is gone is an error if it had bytes that have not been
//! read; otherwise the user is told. New files are read from their beginning.

mod cursor;
mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use millstream_contract::table::{
    OpenOptions, Position, Sharing, Split, SplitPoll, Table, TableOptions,
};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use self::cursor::FileCursor;
use self::saved::{Id, Naming, Saved, Seen};
use super::format::lines_from_options;
use super::{Elsewhere, Files};
use crate::beside::{Beside, SidePlan, SideValues};
use crate::files::check_partitions;
use crate::input::{Name, io_error};
use crate::options::Options;
use crate::records::{RecordFormat, Wanted};

/// How often to look at the files, and at many.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_AT_MANY: Duration = Duration::from_secs(1);
const MANY: usize = 100;

/// Maximum number of files kept open while they do not grow.
const OPEN_MAX: usize = 200;

/// Files that are followed.
#[derive(Debug, Clone)]
pub(crate) struct FollowTable {
    files: Files,
    /// The path as it is given: the name of the split.
    given: Name,
    /// Where the names of files start.
    base: PathBuf,
    beside: Beside,
    format: Arc<dyn RecordFormat>,
}

/// Whether the options ask for it.
pub(crate) fn is_followed(table: &TableOptions) -> Result<bool> {
    Options::new(table).flag("follow")
}

impl FollowTable {
    /// A table from `WITH` options.
    pub(crate) fn from_options(table: &TableOptions) -> Result<FollowTable> {
        let format = FollowTable::check(table)?;
        let options = Options::new(table);
        let given = options.text("path").map(str::trim);
        let files = Files::named(&options, given)?;
        let given = given.unwrap_or_default();
        if let Some(file) = files.single()
            && file.live()
        {
            let message =
                format!("'{}' is no regular file, and only those are followed", file.name);
            return Err(options.error(
                "path",
                message,
                "leave out 'follow': a pipe is live anyway",
            ));
        }
        let (base, beside) = (options.base(given).to_path_buf(), Beside::new(table)?);
        Ok(FollowTable { files, given: given.into(), base, beside, format })
    }

    /// Whether the options are those of files that are followed, which need not be there.
    pub(crate) fn check(table: &TableOptions) -> Result<Arc<dyn RecordFormat>> {
        let options = Options::new(table);
        options.text("path");
        options.flag("follow")?;
        let beside = Beside::new(table)?;
        let format = lines_from_options(&options, &beside.data, "a file that is followed")?;
        options.finish("a file that is followed")?;
        check_partitions(&options, &table.schema)?;
        Ok(format)
    }
}

impl Table for FollowTable {
    fn schema(&self) -> SchemaRef {
        self.beside.schema.clone()
    }

    fn bounded(&self) -> bool {
        false
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let name = self.given.clone();
        if options.process != 0 {
            return Ok(vec![Box::new(Elsewhere(name))]);
        }
        let read = self.beside.read(projection)?;
        let wanted = Wanted {
            format: self.format.clone(),
            schema: self.beside.data.clone(),
            projection: read.data.clone(),
            batch_rows: options.batch_rows,
            offsets: read.offsets(),
        };
        let saved = Saved::all_of(&options.from(&name));
        let mut split = FollowSplit {
            name,
            files: self.files.clone(),
            naming: Naming { base: self.base.clone(), shown: options.shown.clone() },
            wanted,
            read,
            cursors: Vec::new(),
            notices: Vec::new(),
            looked: Instant::now(),
        };
        split.resume(saved)?;
        split.look()?;
        Ok(vec![Box::new(split)])
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.beside.schema.fields().len());
        let all = counted(all as u64, "column");
        format!("{}, followed ({}, {read} of {all})", self.files.describe(), self.format.name())
    }
}

/// All files of a table.
struct FollowSplit {
    name: Name,
    files: Files,
    naming: Naming,
    wanted: Wanted,
    read: SidePlan,
    /// Known files, in the order in which they were found.
    cursors: Vec<FileCursor>,
    /// News about files of an earlier job.
    notices: Vec<String>,
    /// When the files were last looked at.
    looked: Instant,
}

/// How a file is found again, the surest way first.
const WAYS: [fn(&Saved, &str, &Seen) -> bool; 3] = [
    |saved, name, seen| saved.inode == seen.id.inode && saved.name == name,
    |saved, _, seen| saved.inode == seen.id.inode,
    |saved, name, _| saved.name == name,
];

impl FollowSplit {
    /// Goes on in the files of an earlier job, in the order in which the job read them.
    fn resume(&mut self, saved: Vec<Saved>) -> Result<()> {
        if saved.is_empty() {
            return Ok(());
        }
        let named = |(path, seen): (PathBuf, Seen)| (self.naming.of(&path), path, seen);
        let mut found: Vec<(String, PathBuf, Seen)> =
            self.found()?.into_iter().map(named).collect();
        let mut places: Vec<Option<(PathBuf, Seen)>> = vec![None; saved.len()];
        for is_same in WAYS {
            for (saved, place) in saved.iter().zip(&mut places).filter(|(_, p)| p.is_none()) {
                let holds = |path: &PathBuf| File::open(path).and_then(|file| saved.is_in(&file));
                let at = found.iter().position(|(name, path, seen)| {
                    is_same(saved, name, seen) && holds(path).unwrap_or(false)
                });
                *place = at.map(|at| found.swap_remove(at)).map(|(_, path, seen)| (path, seen));
            }
        }
        for (saved, place) in saved.into_iter().zip(places) {
            let place = match place {
                None => saved.renamed(&self.naming),
                found => found,
            };
            match place {
                Some((path, seen)) => {
                    let name = self.naming.of(&path);
                    self.cursors.extend(FileCursor::new(
                        path,
                        seen,
                        name,
                        Some(saved),
                        &self.wanted,
                    )?);
                }
                None => {
                    let anew = found.iter().any(|(name, _, seen)| WAYS[0](&saved, name, seen));
                    self.notices.push(lost(&saved, anew)?);
                }
            }
        }
        Ok(())
    }

    /// Looks for new files, and for changes of known files.
    fn look(&mut self) -> Result<()> {
        let mut found = self.found()?;
        let there: BTreeSet<Id> = found.iter().map(|(_, seen)| seen.id).collect();
        for cursor in &mut self.cursors {
            if !there.contains(&cursor.id()) {
                cursor.is_gone()?;
            }
        }
        self.cursors.retain(|cursor| !cursor.is_done());
        let known: BTreeMap<Id, usize> =
            self.cursors.iter().enumerate().map(|(at, cursor)| (cursor.id(), at)).collect();
        found.sort_by_cached_key(|(path, seen)| (seen.modified, path.clone()));
        let mut new = BTreeSet::new();
        for (path, seen) in found {
            match known.get(&seen.id).and_then(|at| self.cursors.get_mut(*at)) {
                Some(cursor) => cursor.is_seen(path, seen, &self.naming)?,
                // A file with two names is read once.
                None if !new.insert(seen.id) => {}
                None => {
                    let name = self.naming.of(&path);
                    self.cursors.extend(FileCursor::new(path, seen, name, None, &self.wanted)?);
                }
            }
        }
        self.close_some();
        self.looked = Instant::now();
        Ok(())
    }

    /// The files that there are.
    fn found(&self) -> Result<Vec<(PathBuf, Seen)>> {
        let mut found = Vec::new();
        for file in self.files.list_for_now()? {
            let Some(path) = file.path() else { continue };
            match path.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    found.push((path.to_path_buf(), Seen::new(&metadata)));
                }
                Ok(_) => {
                    return Err(Error::Io {
                        place: path.display().to_string(),
                        message: "it is no regular file any more, and only those are followed"
                            .into(),
                        help: "let the path name a file".into(),
                    });
                }
                // It has just been renamed or deleted.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(io_error(path, &error)),
            }
        }
        Ok(found)
    }

    /// Of many files, not all are kept open. One that is gone could not be opened again.
    fn close_some(&mut self) {
        let open = self.cursors.iter().filter(|cursor| cursor.is_open()).count();
        let quiet = self.cursors.iter_mut().filter(|cursor| cursor.is_quiet());
        quiet.take(open.saturating_sub(OPEN_MAX)).for_each(FileCursor::close);
    }

    /// The next chunk of what is there.
    fn chunk(&mut self) -> Result<Option<SplitPoll>> {
        let mut gone: BTreeSet<PathBuf> = BTreeSet::new();
        for cursor in &mut self.cursors {
            // The file that had this path before comes first.
            if gone.contains(cursor.path()) {
                continue;
            }
            if let Some(chunk) = cursor.chunk()? {
                let values = self.read.values(|| cursor.facts())?;
                return Ok(Some(SplitPoll::Chunk(SideValues::chunk(values.as_ref(), chunk))));
            }
            if cursor.gone() {
                gone.insert(cursor.path().to_path_buf());
            }
        }
        Ok(None)
    }
}

/// Notice about a file of an earlier job that is gone or changed. `anew`: the file has been written
/// anew.
///
/// # Errors
///
/// If the file is gone, and had bytes that had not been read.
fn lost(saved: &Saved, anew: bool) -> Result<String> {
    let Saved { offset, length, name, .. } = saved;
    if anew {
        return Ok(format!(
            "{name}: written anew since the job stopped, of which {offset} bytes had been read: it \
             is read from its beginning"
        ));
    }
    if offset < length {
        return Err(Error::Io {
            place: name.clone(),
            message: format!(
                "it is gone, and of its {length} bytes the job has read only {offset}"
            ),
            help: "put the file back, under any name in its directory, or begin anew".into(),
        });
    }
    Ok(format!(
        "{name}: gone since the job stopped; its first {offset} bytes have been read, and what was \
         written behind them is lost"
    ))
}

impl Split for FollowSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn sharing(&self) -> Sharing {
        Sharing::Coordinator
    }

    fn notice(&mut self) -> Option<String> {
        self.notices.pop().or_else(|| self.cursors.iter_mut().find_map(FileCursor::notice))
    }

    fn position(&self) -> Position {
        let mut numbers = Vec::new();
        self.cursors.iter().for_each(|cursor| cursor.put_position(&mut numbers));
        Position(numbers)
    }

    fn poll_next(&mut self, now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        let pause = if self.cursors.len() > MANY { LOOK_AT_MANY } else { LOOK };
        if let Some(chunk) = self.chunk()? {
            return Ok(chunk);
        }
        if self.looked.elapsed() >= pause {
            self.look()?;
            if let Some(chunk) = self.chunk()? {
                return Ok(chunk);
            }
        } else if crate::records::is_virtual(now_us) {
            // Whoever writes the files does so in real time.
            thread::sleep(Duration::from_millis(10));
        }
        Ok(SplitPoll::Pending { retry_at_us: Some(now_us.saturating_add(LOOK.as_micros() as i64)) })
    }
}

#[cfg(test)]
mod tests;
