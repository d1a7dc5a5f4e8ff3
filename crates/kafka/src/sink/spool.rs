//! The spool: rows wait for their checkpoint, so each comes once, though a job that goes on
//! computes other rows.
//!
//! The rows of an interval go to an object of a store. [`Spool::seal`] makes the object durable,
//! and the checkpoint names it. When the checkpoint is durable, the object's rows are written to
//! the topic, in transactions with markers. A repeated commit asks the marker which rows are there.
//! So the rows of an aborted transaction are written again.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millstream_contract::settings::is_bucket;
use millstream_contract::sink::{Prepared, Sealed};
use millstream_contract::{Error, Result};
use millstream_store::{LocalStore, ObjectWriter, S3Store, Store};

use super::frames::{Frame, HEAD_BYTES, head, rows};
use super::numbered::{Base, MARKER_AGE, Row, mark, random, write_rows};
use super::options::SinkOptions;
use crate::client::producer::Producer;

/// Bytes of a frame, which is a transaction.
const FRAME_BYTES: usize = 4 << 20;
/// Follows the number of rows in a checkpoint whose rows have all come by the spool.
const BY_SPOOL: &str = " spool";

/// Where the rows of a sink wait.
#[derive(Debug, Clone)]
pub(super) struct Place {
    store: Arc<dyn Store>,
    /// The beginning of the names of objects of this sink.
    folder: String,
}

impl Place {
    /// The place of the sink with this transactional id, within a directory or a bucket.
    pub(super) fn new(path: &Path, id: &str) -> Result<Place> {
        let store: Arc<dyn Store> = match path.to_str().filter(|_| is_bucket(path)) {
            Some(url) => Arc::new(S3Store::open(url)?),
            None => Arc::new(LocalStore::new(path)),
        };
        Ok(Place::in_store(store, id))
    }

    fn in_store(store: Arc<dyn Store>, id: &str) -> Place {
        // A name of an object has few characters, and an id any.
        let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
        let name = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}"));
        Place { store, folder: format!("spool/{}/", name.collect::<String>()) }
    }

    /// A new object, whose first row has this number.
    fn create(&self, first: u64) -> Result<Unsealed> {
        let name = format!("{}{first:020}-{:032x}", self.folder, random());
        let writer = self.store.create(&name)?;
        Ok(Unsealed { name, first, frame: Frame::new(first), writer, bytes: 0 })
    }

    /// Makes rows durable, the first of which has this number.
    pub(super) fn keep(&self, first: u64, rows: &[Row]) -> Result<Sealed> {
        let mut object = self.create(first)?;
        for (row, number) in rows.iter().zip(first..) {
            object.push(row, number)?;
        }
        object.seal()
    }

    /// Deletes objects whose first row is in Kafka. Their other rows are there, too, or belong to
    /// an interval whose checkpoint was never written.
    fn sweep(&self, written: u64) -> millstream_store::Result<()> {
        self.store.sweep()?;
        for object in self.store.list(&self.folder)? {
            let first = object.name.strip_prefix(&self.folder).and_then(|name| name.get(..20));
            if first.and_then(|first| first.parse().ok()).is_some_and(|first: u64| first < written)
            {
                self.store.delete(&object.name)?;
            }
        }
        Ok(())
    }

    /// Deletes the object of an interval whose rows are in Kafka.
    pub(super) fn delete_of(&self, interval: &Interval) {
        interval.spooled.iter().for_each(|spooled| self.delete(&spooled.name));
    }

    fn delete(&self, name: &str) {
        if let Err(error) = self.store.delete(name) {
            // The next start tries again.
            tracing::warn!(%error, "rows that were written cannot be deleted from the spool");
        }
    }
}

/// A sealed interval: the series of numbers, the number behind its last row, and its object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) base: Base,
    /// `None`: it has no rows, or these are in Kafka already.
    spooled: Option<Spooled>,
}

/// The rows of an interval in a store: name, number of the first row, bytes.
#[derive(Debug, PartialEq, Eq)]
struct Spooled {
    name: String,
    first: u64,
    bytes: u64,
}

impl Interval {
    /// Of what a checkpoint has; `None`: it has nothing.
    pub(super) fn new(prepared: &Prepared) -> Result<Option<Interval>> {
        let wrong = || Error::Internal(format!("rows of a checkpoint: {prepared:?}"));
        let Some(end) = prepared.sealed.first() else { return Ok(None) };
        let by_spool = end.to.strip_suffix(BY_SPOOL);
        let rows = by_spool.unwrap_or(&end.to).parse().map_err(|_| wrong())?;
        let spooled = |sealed: &Sealed| {
            let (first, bytes) = sealed.to.split_once(' ')?;
            let (first, bytes) = (first.parse().ok()?, bytes.parse().ok()?);
            Some(Spooled { name: sealed.from.clone(), first, bytes })
        };
        let spooled = prepared.sealed.get(1).map(|sealed| spooled(sealed).ok_or_else(wrong));
        let base = Base { series: end.from.clone(), rows, spooled: by_spool.is_some() };
        Ok(Some(Interval { base, spooled: spooled.transpose()? }))
    }

    /// Whether its rows are in a store.
    pub(super) fn is_spooled(&self) -> bool {
        self.spooled.is_some()
    }

    /// Writes the rows that are not in Kafka, from number `known` on.
    fn write(
        &self,
        spooled: &Spooled,
        place: &Place,
        known: u64,
        mut write: impl FnMut(&[Row], u64) -> Result<()>,
    ) -> Result<()> {
        let (mut at, mut next) = (0, spooled.first);
        while at < spooled.bytes && known < self.base.rows {
            let (first, rows) = place.frame(spooled, &mut at)?;
            if first != next {
                return Err(place.damaged(&spooled.name, "rows are missing"));
            }
            next += rows.len() as u64;
            let left_out = known.saturating_sub(first).min(rows.len() as u64);
            write(&rows[left_out as usize..], first + left_out)?;
        }
        match known < self.base.rows && next != self.base.rows {
            true => Err(place.damaged(&spooled.name, "rows are missing")),
            false => Ok(()),
        }
    }

    /// Commits what a checkpoint of an earlier run has prepared, before the sink is opened.
    pub(super) fn commit(&self, place: &Place, options: &SinkOptions) -> Result<()> {
        let Some(spooled) = &self.spooled else { return Ok(()) };
        let failed = |fault| options.failed(fault);
        let mut producer = options.new_producer();
        producer.begin().map_err(failed)?;
        let base = Base { rows: spooled.first, ..self.base.clone() };
        let known = base.known_rows(&mut producer, options).map_err(failed)?;
        self.write(spooled, place, known, |rows, first| {
            write_rows(&mut producer, Some(&base.series), rows, first).map_err(failed)
        })?;
        place.delete(&spooled.name);
        Ok(())
    }
}

impl Place {
    /// The next frame of an object: the number of its first row, and its rows.
    fn frame(&self, spooled: &Spooled, at: &mut u64) -> Result<(u64, Vec<Row>)> {
        let Spooled { name, bytes: all, .. } = spooled;
        let damaged = || self.damaged(name, "its checksum is another");
        let mut read = |bytes: u64| {
            let range = *at..at.saturating_add(bytes);
            *at = range.end;
            if range.end > *all {
                return Err(damaged());
            }
            match self.store.get(name, Some(range)) {
                Err(millstream_store::Error::Damaged { .. }) => Err(damaged()),
                read => Ok(read?),
            }
        };
        let (bytes, checksum) = head(&read(HEAD_BYTES)?).ok_or_else(damaged)?;
        rows(&read(bytes)?, checksum).ok_or_else(damaged)
    }

    fn damaged(&self, name: &str, message: &str) -> Error {
        Error::Io {
            place: self.store.place(name),
            message: format!("rows that a checkpoint has not written yet are damaged: {message}"),
            help: "restore the file from a copy, or go on from the checkpoint before with \
                   --restore ID"
                .into(),
        }
    }
}

/// The rows of an opened sink that wait for their checkpoint.
pub(super) struct Spool {
    place: Place,
    options: SinkOptions,
    series: String,
    pub(super) partitions: i32,
    writer: Mutex<Writer>,
    rows: Mutex<Rows>,
}

/// The way to Kafka.
struct Writer {
    producer: Producer,
    /// Rows below this number are in Kafka.
    written: u64,
    /// When the marker was written last.
    marked: Instant,
}

/// The rows that come.
struct Rows {
    /// The number of the next row that comes.
    next: u64,
    /// Rows below this number came before, and are left out.
    known: u64,
    open: Option<Unsealed>,
    /// Ended intervals that are not sealed yet.
    ended: Vec<Unsealed>,
}

/// The rows of an interval that is not sealed.
struct Unsealed {
    name: String,
    first: u64,
    frame: Frame,
    writer: Box<dyn ObjectWriter>,
    /// Written so far.
    bytes: u64,
}

impl Unsealed {
    /// Adds the row of this number.
    fn push(&mut self, row: &Row, number: u64) -> Result<()> {
        self.frame.push(row);
        match self.frame.bytes() >= FRAME_BYTES {
            true => Ok(self.write(number + 1)?),
            false => Ok(()),
        }
    }

    /// Makes the object durable.
    fn seal(mut self) -> Result<Sealed> {
        // No frame comes behind.
        self.write(0)?;
        self.writer.finish()?;
        Ok(Sealed { from: self.name, to: format!("{} {}", self.first, self.bytes) })
    }

    /// Writes the frame; the next one begins with the row of this number.
    fn write(&mut self, next: u64) -> millstream_store::Result<()> {
        if self.frame.bytes() == 0 {
            return Ok(());
        }
        let whole = std::mem::replace(&mut self.frame, Frame::new(next)).whole();
        self.bytes += whole.len() as u64;
        self.writer.write(&whole)
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("place", &self.place).finish_non_exhaustive()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spool {
    /// Begins: finds the topic, and, of a job that goes on, the rows that are there. `varies`: the
    /// job computes other rows than before.
    pub(super) fn start(
        place: Place,
        options: &SinkOptions,
        base: &Base,
        (resumes, varies): (bool, bool),
    ) -> Result<Spool> {
        let failed = |fault| options.failed(fault);
        let mut producer = options.new_producer();
        producer.begin().map_err(failed)?;
        let known = match resumes {
            true => base.known_rows(&mut producer, options).map_err(failed)?,
            false => base.begin(&mut producer).map_err(failed)?,
        };
        if let Err(error) = place.sweep(base.rows) {
            tracing::warn!(%error, "what killed runs have left in the spool cannot be deleted");
        }
        let rows = (base.next(known, varies), known);
        Ok(Spool::new(place, options, &base.series, producer, rows))
    }

    /// `next` is the number of the next row; rows below `known` are in Kafka.
    fn new(
        place: Place,
        options: &SinkOptions,
        series: &str,
        producer: Producer,
        (next, known): (u64, u64),
    ) -> Spool {
        Spool {
            place,
            options: options.clone(),
            series: series.to_string(),
            partitions: producer.partitions(),
            writer: Mutex::new(Writer { producer, written: known, marked: Instant::now() }),
            rows: Mutex::new(Rows { next, known, open: None, ended: Vec::new() }),
        }
    }

    /// Takes the next rows. `records` makes records of the rows from a number on, without so many
    /// of the first.
    pub(super) fn take(
        &self,
        count: usize,
        records: impl FnOnce(u64, usize) -> Result<Vec<Row>>,
    ) -> Result<()> {
        let mut rows = lock(&self.rows);
        let left_out = rows.known.saturating_sub(rows.next).min(count as u64) as usize;
        let number = rows.next + left_out as u64;
        rows.next += count as u64;
        if left_out == count {
            return Ok(());
        }
        let records = records(number, left_out)?;
        let mut open = match rows.open.take() {
            Some(open) => open,
            None => self.place.create(number)?,
        };
        for (record, number) in records.iter().zip(number..) {
            open.push(record, number)?;
        }
        rows.open = Some(open);
        Ok(())
    }

    /// Whether the next row is one that is there.
    pub(super) fn replays(&self) -> bool {
        let rows = lock(&self.rows);
        rows.next < rows.known
    }

    /// Ends an interval.
    pub(super) fn prepare(&self) -> Vec<Sealed> {
        let mut rows = lock(&self.rows);
        let by = if rows.next < rows.known { "" } else { BY_SPOOL };
        let to = format!("{}{by}", rows.next);
        let mut sealed = vec![Sealed { from: self.series.clone(), to }];
        if let Some(ended) = rows.open.take() {
            sealed.push(Sealed { from: ended.name.clone(), to: String::new() });
            rows.ended.push(ended);
        }
        sealed
    }

    /// Makes the rows of an ended interval durable.
    pub(super) fn seal(&self, prepared: &mut Prepared) -> Result<()> {
        let Some(sealed) = prepared.sealed.get_mut(1) else { return Ok(()) };
        let ended = {
            let mut rows = lock(&self.rows);
            let Some(at) = rows.ended.iter().position(|ended| ended.name == sealed.from) else {
                return Ok(());
            };
            rows.ended.swap_remove(at)
        };
        *sealed = ended.seal()?;
        Ok(())
    }

    /// Writes the rows of a sealed interval whose checkpoint is durable.
    pub(super) fn commit(&self, prepared: &Prepared) -> Result<()> {
        let Some(interval) = Interval::new(prepared)? else { return Ok(()) };
        let failed = |fault| self.options.failed(fault);
        let mut writer = lock(&self.writer);
        let Writer { producer, written, marked } = &mut *writer;
        let Some(spooled) = &interval.spooled else {
            if marked.elapsed() > MARKER_AGE {
                mark(producer, &self.series, *written).map_err(failed)?;
                *marked = Instant::now();
            }
            return Ok(());
        };
        *marked = Instant::now();
        interval.write(spooled, &self.place, *written, |rows, first| {
            write_rows(producer, Some(&self.series), rows, first).map_err(failed)
        })?;
        *written = (*written).max(interval.base.rows);
        self.place.delete(&spooled.name);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
