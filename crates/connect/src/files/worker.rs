//! Files of one worker: one at a time, or one for each partition.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use millstream_contract::sink::Sealed;
use millstream_contract::{Error, Result};

use super::encode::{Encoder, Encoding};
use super::folder::{Folder, PART, names};
use super::output::Output;
use super::partition::Partitions;
use super::rolling::Rolling;

/// Where a length is looked at, it is after so many rows.
const SLICE_ROWS: u64 = 1_024;

/// Settings common to all workers.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) folder: Arc<dyn Folder>,
    pub(super) encoding: Encoding,
    pub(super) rolling: Option<Rolling>,
    /// Whether files are shown at the end of each interval.
    pub(super) intervals: bool,
    pub(super) partitions: Partitions,
    /// For each worker: files that are open at once, and memory of rows that wait in them.
    pub(super) open_max: usize,
    pub(super) held_max: usize,
}

impl Common {
    /// Whether a worker writes a single file.
    pub(super) fn is_plain(&self) -> bool {
        self.rolling.is_none() && self.partitions.depth() == 0 && !self.intervals
    }

    /// Whether files are shown as they are rolled.
    fn shows_rolled(&self) -> bool {
        self.rolling.is_some() && !self.intervals
    }
}

/// One worker's files.
pub(super) struct Worker {
    common: Arc<Common>,
    /// `part-<process>-<worker>`.
    name: String,
    /// The number of the next file, and of the last interval that has ended, of any job.
    next: u64,
    after: u64,
    /// By partition.
    open: HashMap<String, OpenFile>,
    /// Counts uses, to know the least recent one.
    uses: u64,
    /// Complete, and not committed.
    sealed: Vec<Sealed>,
    /// Files of an interval that has ended, which are to be completed.
    ended: Vec<OpenFile>,
    /// Sealed files, locked until the sink is dropped where nothing else is.
    kept: Vec<Output>,
    /// First error of writing in the background.
    failed: Option<Error>,
}

/// A file that is being written.
pub(super) struct OpenFile {
    names: Sealed,
    output: Output,
    encoder: Box<dyn Encoder>,
    rows: u64,
    held: usize,
    opened: Instant,
    used: u64,
}

impl Worker {
    /// Its first file is opened with its first row, and has the number `next`. The first interval
    /// follows the interval `after`.
    pub(super) fn new(
        common: Arc<Common>,
        (process, worker): (usize, usize),
        (next, after): (u64, u64),
    ) -> Worker {
        Worker {
            common,
            name: format!("{PART}{process}-{worker}"),
            next,
            after,
            open: HashMap::new(),
            uses: 0,
            sealed: Vec::new(),
            ended: Vec::new(),
            kept: Vec::new(),
            failed: None,
        }
    }

    /// Writes rows; `flush`: they were the last of a window.
    pub(super) fn write(&mut self, rows: &RecordBatch, flush: bool) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let common = self.common.clone();
        if rows.num_rows() > 0 {
            for (partition, rows) in common.partitions.split(rows)? {
                self.write_partition(&partition, &rows)?;
            }
        }
        match (flush, common.rolling.is_some_and(|rolling| rolling.window)) {
            (true, true) => self.roll(|_| true),
            (true, false) => self.open.values_mut().try_for_each(|part| part.encoder.flush()),
            (false, _) => Ok(()),
        }
    }

    fn write_partition(&mut self, partition: &str, rows: &RecordBatch) -> Result<()> {
        let rolling = self.common.rolling;
        let all = rows.num_rows() as u64;
        let mut start = 0;
        while start < all {
            let part = self.open(partition)?;
            let room = rolling.map_or(u64::MAX, |rolling| rolling.room(part.rows));
            let slice = rolling.and_then(|rolling| rolling.bytes).map_or(all, |_| SLICE_ROWS);
            let count = (all - start).min(room).min(slice);
            // All three are at most the rows of a batch.
            part.encoder.write(&rows.slice(start as usize, count as usize))?;
            part.rows += count;
            part.held = part.encoder.held();
            start += count;
            if rolling.is_some_and(|rolling| rolling.is_full(part.encoder.bytes(), part.rows)) {
                self.seal(partition)?;
                self.publish()?;
            }
        }
        self.relieve()
    }

    /// The open file of a partition; opens one, if need be, and seals the one that has not been
    /// used for longest if there are too many.
    fn open(&mut self, partition: &str) -> Result<&mut OpenFile> {
        self.uses += 1;
        if !self.open.contains_key(partition) {
            if self.open.len() >= self.common.open_max {
                let oldest = self.open.iter().min_by_key(|(_, part)| part.used);
                if let Some(oldest) = oldest.map(|(partition, _)| partition.clone()) {
                    self.seal(&oldest)?;
                    self.publish()?;
                }
            }
            let part = self.begin(partition)?;
            self.open.insert(partition.to_string(), part);
        }
        let part = self.open.get_mut(partition);
        let part = part.ok_or_else(|| Error::Internal("a file has gone".into()))?;
        part.used = self.uses;
        Ok(part)
    }

    /// Opens the file of a worker that has one, before its first row.
    pub(super) fn open_only(&mut self) -> Result<()> {
        self.open("").map(drop)
    }

    fn begin(&mut self, partition: &str) -> Result<OpenFile> {
        let name = match self.next {
            0 if self.common.is_plain() => self.name.clone(),
            number if self.common.intervals => format!("{}-{}-{number}", self.name, self.after),
            number => format!("{}-{number}", self.name),
        };
        self.next += 1;
        let names = names(partition, &name);
        let output = self.common.folder.create(&names)?;
        let encoder = self.common.encoding.open(&self.common.partitions.schema, output.clone())?;
        let (rows, held, opened, used) = (0, 0, Instant::now(), self.uses);
        Ok(OpenFile { names, output, encoder, rows, held, opened, used })
    }

    /// Writes rows that wait, of the file that has most, until they take no more than they may.
    fn relieve(&mut self) -> Result<()> {
        while self.open.values().map(|part| part.held).sum::<usize>() > self.common.held_max {
            let Some(part) = self.open.values_mut().max_by_key(|part| part.held) else { break };
            part.encoder.relieve()?;
            // Rows that the file still holds cannot be written any more.
            part.held = 0;
        }
        Ok(())
    }

    /// Completes a file: all its rows are on the disk, and no row is added.
    fn seal(&mut self, partition: &str) -> Result<()> {
        let Some(part) = self.open.remove(partition) else { return Ok(()) };
        let output = part.output.clone();
        self.sealed.push(part.seal()?);
        if self.common.is_plain() {
            self.kept.push(output);
        }
        Ok(())
    }

    /// Completes all files.
    pub(super) fn seal_all(&mut self) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.seal_those(|_| true)
    }

    fn seal_those(&mut self, which: impl Fn(&OpenFile) -> bool) -> Result<()> {
        let chosen = self.open.iter().filter(|(_, part)| which(part));
        let mut chosen: Vec<String> = chosen.map(|(partition, _)| partition.clone()).collect();
        chosen.sort();
        chosen.iter().try_for_each(|partition| self.seal(partition))
    }

    /// Completes files, and shows them.
    fn roll(&mut self, which: impl Fn(&OpenFile) -> bool) -> Result<()> {
        self.seal_those(which)?;
        self.publish()
    }

    /// Shows what is sealed, where files are shown as they are rolled.
    fn publish(&mut self) -> Result<()> {
        if !self.common.shows_rolled() {
            return Ok(());
        }
        let sealed = std::mem::take(&mut self.sealed);
        self.common.folder.commit(&sealed, false).map(drop)
    }

    /// Rolls files that have been open for long enough. Nobody is there to be told of an error: the
    /// next who writes is.
    pub(super) fn look_at_the_clock(&mut self) {
        let Some(interval) = self.common.rolling.and_then(|rolling| rolling.interval) else {
            return;
        };
        if self.failed.is_none() {
            self.failed = self.roll(|part| part.opened.elapsed() >= interval).err();
        }
    }

    /// Ends an interval: its files that are not committed, which from now on the caller commits.
    /// Where there are further intervals the open files are still to be completed.
    pub(super) fn end_interval(&mut self, interval: u64) -> Result<Vec<Sealed>> {
        if !self.common.intervals {
            self.seal_all()?;
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut open: Vec<(String, OpenFile)> = self.open.drain().collect();
        open.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut sealed = std::mem::take(&mut self.sealed);
        sealed.extend(open.iter().map(|(_, part)| part.names.clone()));
        self.ended.extend(open.into_iter().map(|(_, part)| part));
        self.after = interval;
        Ok(sealed)
    }

    /// Takes the files that are to be completed.
    pub(super) fn take_ended(&mut self) -> Vec<OpenFile> {
        std::mem::take(&mut self.ended)
    }
}

impl OpenFile {
    /// Completes the file: all its rows outlast a crash. Its names, since an upload has its
    /// unfinished name only now.
    pub(super) fn seal(mut self) -> Result<Sealed> {
        self.encoder.finish()?;
        if let Some(from) = self.output.seal()? {
            self.names.from = from;
        }
        Ok(self.names)
    }
}
