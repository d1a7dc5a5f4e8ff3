//! The side table of a lookup join: read wholly at the start of a job, and again when it has
//! changed.
//!
//! Changes are found by the table's splits ([`Table::splits`]): names, lengths and times of the
//! files. A new version is read when two looks have found it, or when one look has found files that
//! are older than the time between two looks. A version counts when another look, after reading,
//! has found it too: so a file that is being written is left alone, and records after a pause meet
//! rows written during the pause. If a version cannot be read, the version before stays, and a
//! notice says why.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Waker;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use millstream_contract::decoding;
use millstream_contract::wording::counted;

use super::index::Index;
use super::keys::Keys;
use crate::budget::{Budget, Held, Kind, batch_bytes};
use crate::env::{Env, Threads};
use crate::error::{Error, Result};
use crate::failing::first_failing;
use crate::operator::stateless::Taking;
use crate::plan;
use crate::prepare::{Prepared, Preparer};
use crate::settings::Settings;
use crate::table::{Chunk, OpenOptions, SideFile, SideFiles, Split, SplitPoll, SplitSpec, Table};

/// How long reading sleeps, at most, while a split has nothing to offer.
const PAUSE_US: i64 = 10_000;

/// A side table.
#[derive(Debug)]
pub(super) struct LookupSide {
    name: String,
    table: Arc<dyn Table>,
    projection: Vec<usize>,
    preparer: Preparer,
    taking: Taking,
    current: RwLock<Option<Arc<Index>>>,
    /// When to look next, by the job's clock.
    look_at_us: AtomicI64,
    watch: Mutex<Option<Watch>>,
}

/// State of watching, once the first version has been read.
#[derive(Debug)]
struct Watch {
    options: OpenOptions,
    interval_us: i64,
    budget: Arc<Budget>,
    /// The splits of the version that was read last, or could not be read.
    known: Version,
    /// The splits of the version that counts.
    read: Vec<SplitSpec>,
    /// The version at the last look, if it differs from `known`.
    found: Option<Version>,
}

/// The splits of a version, or why they cannot be told.
type Version = std::result::Result<Vec<SplitSpec>, String>;

impl LookupSide {
    pub(super) fn new(body: &plan::Lookup) -> LookupSide {
        let (filter, project) = (body.filter.clone(), Some(body.columns.clone()));
        LookupSide {
            name: body.name.clone(),
            table: body.side.table.clone(),
            projection: body.side.projection.clone(),
            preparer: Preparer::new(&body.side, None, Vec::new()),
            taking: Taking::new(filter, project),
            current: RwLock::new(None),
            look_at_us: AtomicI64::new(i64::MAX),
            watch: Mutex::new(None),
        }
    }

    /// The version that counts now, once one has been read.
    pub(super) fn current(&self) -> Option<Arc<Index>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the first version, at `now_us`.
    pub(super) fn load(
        &self,
        keys: &Keys,
        settings: &Settings,
        (start_us, now_us): (i64, i64),
        budget: &Arc<Budget>,
    ) -> Result<Vec<String>> {
        let options = OpenOptions {
            memory_bytes: settings.memory_bytes,
            ..OpenOptions::alone(settings.batch_rows, start_us, settings.workers)
        };
        let options = options.for_columns(&self.table.schema(), &self.projection);
        let known = self.version();
        let read = SideReading { side: self, options: &options, budget }.read(keys)?;
        self.set(read.index);
        let interval_us = settings.lookup_reload_us;
        if interval_us > 0 {
            self.look_at_us.store(now_us.saturating_add(interval_us), Relaxed);
        }
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let (budget, splits) = (budget.clone(), known.clone().unwrap_or_default());
        *watch = Some(Watch { options, interval_us, budget, known, read: splits, found: None });
        Ok(read.remark.into_iter().collect())
    }

    fn set(&self, index: Index) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::new(index));
    }

    /// The files of the version that counts.
    pub(super) fn files(&self) -> SideFiles {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let file = |split: &SplitSpec| {
            let file = SideFile { bytes: split.length?, modified: split.file?.modified };
            Some((split.name.clone(), file))
        };
        watch.iter().flat_map(|watch| &watch.read).filter_map(file).collect()
    }

    fn version(&self) -> Version {
        self.table.splits().map_err(|error| error.to_string())
    }

    /// Looks whether there is a new version, if it is time to, and reads it.
    pub(super) fn refresh(&self, keys: &Keys, now_us: i64, tell: &dyn Fn(String)) {
        if now_us < self.look_at_us.load(Relaxed) {
            return;
        }
        // Another worker looks just now.
        let Ok(mut watch) = self.watch.try_lock() else { return };
        let Some(watch) = watch.as_mut() else { return };
        self.look_at_us.store(now_us.saturating_add(watch.interval_us), Relaxed);
        let now = self.version();
        if now == watch.known {
            watch.found = None;
            return;
        }
        if watch.found.as_ref() != Some(&now) && !watch.is_at_rest(&now, now_us) {
            watch.found = Some(now);
            return;
        }
        let read = match &now {
            Ok(_) => SideReading { side: self, options: &watch.options, budget: &watch.budget }
                .read(keys),
            Err(message) => Err(Error::Io {
                place: self.name.clone(),
                message: message.clone(),
                help: String::new(),
            }),
        };
        let after = self.version();
        if after != now {
            watch.found = Some(after);
            return;
        }
        (watch.known, watch.found) = (now, None);
        match read {
            Ok(Read { index, remark }) => {
                watch.read = watch.known.clone().unwrap_or_default();
                let rows = index.rows.num_rows() as u64;
                self.set(index);
                let rows = counted(rows, "row");
                tell(format!("lookup table '{}' has changed: {rows} from now on", self.name));
                remark.into_iter().for_each(tell);
            }
            Err(error) => tell(format!(
                "lookup table '{}' has changed and cannot be read; what was read before stays: \
                 {error}",
                self.name
            )),
        }
    }
}

impl Watch {
    /// Whether a version has all files of the known one, and perhaps others, and nobody has written
    /// to them for as long as two looks are apart.
    fn is_at_rest(&self, version: &Version, now_us: i64) -> bool {
        let (Ok(splits), Ok(known)) = (version, &self.known) else { return false };
        let latest_us = now_us.saturating_sub(self.interval_us);
        let rests = |split: &SplitSpec| {
            split.file.is_some_and(|file| {
                let (seconds, nanos) = file.modified;
                seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000) < latest_us
            })
        };
        let is_there = |known: &SplitSpec| splits.iter().any(|split| split.name == known.name);
        known.iter().all(is_there) && splits.iter().all(rests)
    }
}

/// A version that has been read.
struct Read {
    index: Index,
    /// A notice for the user.
    remark: Option<String>,
}

/// Reading a version.
struct SideReading<'a> {
    side: &'a LookupSide,
    options: &'a OpenOptions,
    budget: &'a Arc<Budget>,
}

impl SideReading<'_> {
    fn read(&self, keys: &Keys) -> Result<Read> {
        let mut held = self.budget.hold(Kind::Tables, 0);
        let (mut batches, mut left_out) = (Vec::new(), (0, None));
        for mut split in self.side.table.open(&self.side.projection, self.options)? {
            let bytes_max = decoding::bytes_max(self.options.memory_bytes);
            let mut next = || -> Result<Option<Prepared>> {
                let Some(chunk) = next_chunk(&mut *split)? else { return Ok(None) };
                self.side.preparer.prepare(chunk, self.options.start_time_us).map(Some)
            };
            while let Some(prepared) = decoding::within(bytes_max, &mut next)? {
                left_out.0 += prepared.malformed_records;
                left_out.1 = left_out.1.or(prepared.first_malformed);
                let rows = self.side.taking.rows(&prepared.batch).map_err(|error| {
                    let failing = first_failing(prepared.batch.num_rows(), |range| {
                        let rows = prepared.batch.slice(range.start, range.len());
                        self.side.taking.rows(&rows).map(|_| ())
                    });
                    match (failing, &prepared.places) {
                        (Some((row, error)), Some(places)) => error.for_record(&places.place(row)),
                        _ => error,
                    }
                })?;
                if rows.num_rows() > 0 {
                    self.grow(&mut held, batch_bytes(&rows))?;
                    batches.push(rows);
                }
            }
        }
        let all = self.all(batches, &mut held)?;
        let index = Index::new(keys, all.clone(), held).map_err(|error| {
            let failing = first_failing(all.num_rows(), |range| {
                keys.evaluate(1, &all.slice(range.start, range.len())).map(|_| ())
            });
            match failing.filter(|_| error.is_of_records()) {
                Some((row, error)) => error.for_record(&format!(
                    "row {} of lookup table '{}'",
                    row + 1,
                    self.side.name
                )),
                None => error,
            }
        })?;
        self.check(&index.held)?;
        let name = &self.side.name;
        let remark = left_out.1.map(|first| {
            let records = counted(left_out.0, "malformed record");
            format!("lookup table '{name}': {records} left out, the first: {first}")
        });
        Ok(Read { index, remark })
    }

    /// All rows as one batch.
    fn all(&self, batches: Vec<RecordBatch>, held: &mut Held) -> Result<RecordBatch> {
        let schema = match &self.side.taking.project {
            Some(project) => &project.schema,
            None => return Err(Error::Internal("a side table without columns".into())),
        };
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows >= u32::MAX as usize {
            return Err(self.too_large("has more than 4,294,967,294 rows".into()));
        }
        // While they are copied, there are two of each.
        held.resize(2 * held.bytes());
        if self.budget.is_exceeded() {
            return Err(self.no_room(held));
        }
        let text = "has more than 2 GB of text in one column";
        concat_batches(schema, &batches).map_err(|error| match error {
            ArrowError::OffsetOverflowError(_) => self.too_large(text.into()),
            other => other.into(),
        })
    }

    fn grow(&self, held: &mut Held, bytes: usize) -> Result<()> {
        held.resize(held.bytes() + bytes);
        self.check(held)
    }

    /// Checks the room in the budget, while the version to be replaced is still there.
    fn check(&self, held: &Held) -> Result<()> {
        let before = self.side.current().map_or(0, |index| index.held.bytes() as u64);
        let (taken, most) = (self.budget.held(Kind::Tables), self.budget.tables_bytes_max());
        if taken.saturating_sub(before) <= most && !self.budget.is_exceeded() {
            return Ok(());
        }
        Err(self.no_room(held))
    }

    fn no_room(&self, held: &Held) -> Error {
        let (bytes, half) = (held.bytes(), self.budget.tables_bytes_max());
        self.too_large(format!(
            "takes {bytes} bytes or more, and all lookup tables together may take half of the budget, \
             {half} bytes, if nothing else needs it"
        ))
    }

    fn too_large(&self, message: String) -> Error {
        Error::Io {
            place: format!("lookup table '{}'", self.side.name),
            message: format!("it {message}"),
            help: "raise the budget with --set memory='...', select fewer of its columns, or leave rows \
                   out of it by conditions in ON"
                .into(),
        }
    }
}

/// The next chunk of a split; `None`: it has ended. Waits for it.
fn next_chunk(split: &mut dyn Split) -> Result<Option<Box<dyn Chunk>>> {
    // A split measures real time, whatever the job's clock says.
    let clock = Threads::new(0, Vec::new());
    loop {
        let now = clock.now_us();
        match split.poll_next(now, Waker::noop())? {
            SplitPoll::Chunk(chunk) => return Ok(Some(chunk)),
            SplitPoll::Ended => return Ok(None),
            SplitPoll::Pending { retry_at_us } => {
                let pause = retry_at_us.map_or(PAUSE_US, |at| (at - now).clamp(0, PAUSE_US));
                std::thread::sleep(Duration::from_micros(pause as u64));
            }
        }
    }
}
