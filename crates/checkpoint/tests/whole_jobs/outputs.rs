//! Outputs: directories of files on the disk of the store, as the connector of files has them.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::sink::{Prepared, RowOrder, Sealed, Sink, Writers};
use millstream_contract::{Error, Result};
use millstream_store::disk::{CrashDisk, Disk};

use crate::gate::Gate;
use crate::support::lines;

/// The directory of an output.
pub(crate) fn directory(output: usize) -> PathBuf {
    PathBuf::from(format!("/disk/out{output}"))
}

/// Makes the directories of so many outputs.
pub(crate) fn make_directories(disk: &CrashDisk, outputs: usize) {
    disk.make_dir("/disk".as_ref()).unwrap();
    disk.sync_dir("/".as_ref()).unwrap();
    (0..outputs).for_each(|output| disk.make_dir(&directory(output)).unwrap());
    disk.sync_dir("/disk".as_ref()).unwrap();
}

/// The rows that a reader of an output sees.
pub(crate) fn visible(disk: &CrashDisk, output: usize) -> Vec<String> {
    let directory = directory(output);
    let entries = disk.read_dir(&directory).unwrap().into_iter().map(|entry| entry.name);
    let mut names: Vec<String> = entries.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    let text = |name| String::from_utf8(disk.read(&directory.join(name), None).unwrap()).unwrap();
    names
        .into_iter()
        .map(text)
        .flat_map(|text| text.lines().map(str::to_string).collect::<Vec<_>>())
        .collect()
}

/// The sink of an output in a program.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) disk: CrashDisk,
    pub(crate) gate: Arc<Gate>,
    pub(crate) output: usize,
    pub(crate) order: RowOrder,
    /// The number of the program, and whether no other program lives.
    pub(crate) program: u64,
    pub(crate) alone: bool,
    /// Rows since the last interval.
    pub(crate) rows: Mutex<Vec<String>>,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        directory(self.output).join(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync_dir(&directory(self.output))
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        for entry in self.disk.read_dir(&directory(self.output))? {
            if entry.name.starts_with('.') {
                self.disk.unlink_abandoned(&self.path(&entry.name))?;
            }
        }
        self.sync()
    }

    fn seal(&self, name: &str, rows: &[String]) -> io::Result<()> {
        let mut file = self.disk.create(&self.path(name))?;
        file.write(rows.iter().map(|row| format!("{row}\n")).collect::<String>().as_bytes())?;
        file.sync()?;
        self.sync()
    }

    fn show(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.disk.rename(from, to) {
            // Shown before.
            Err(error) if error.kind() == ErrorKind::NotFound => drop(self.disk.read(to, None)?),
            renamed => renamed?,
        }
        self.sync()
    }
}

fn failed(error: io::Error) -> Error {
    Error::Io { place: "an output".into(), message: error.to_string(), help: String::new() }
}

impl Sink for Files {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        if self.alone { self.remove_unfinished().map_err(failed) } else { Ok(()) }
    }
    fn order(&self) -> RowOrder {
        self.order
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        self.rows.lock().unwrap().extend(lines(rows));
        Ok(())
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
    fn prepare(&self, interval: u64) -> Result<Prepared> {
        let rows = std::mem::take(&mut *self.rows.lock().unwrap());
        if rows.is_empty() {
            return Ok(Prepared { interval, sealed: Vec::new() });
        }
        let to = format!("{interval:010}-{}", self.program);
        let from = format!(".{to}");
        self.seal(&from, &rows).map_err(failed)?;
        Ok(Prepared { interval, sealed: vec![Sealed { from, to }] })
    }
    fn commit(&self, prepared: &Prepared) -> Result<()> {
        self.gate.pass();
        let mut sealed = prepared.sealed.iter();
        let show = |sealed: &Sealed| self.show(&self.path(&sealed.from), &self.path(&sealed.to));
        sealed.try_for_each(show).map_err(failed)
    }
}
