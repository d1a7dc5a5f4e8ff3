//! Journals of inputs that cannot be read again: pipes, standard input, sockets, HTTP.
//!
//! | option | default | |
//! |---|---|---|
//! | `journal` | | a directory of this table alone, relative to the SQL file |
//! | `journal_bytes` | `1 GB` | bytes in it at most |
//!
//! Received bytes go to the journal and are synced ([`millstream_store::journal`]), and a split
//! reads them there ([`split`]). So a job that goes on from a checkpoint finds all received
//! records, and a body is durable before the answer 202. An entry is a body, or has whole records
//! ([`feed`]). Chunks follow from the entries, not from the moments of reading.
//!
//! The journal is trimmed when no checkpoint that stays asks for its beginning. A full journal, and
//! a disk that fails, hold the input up.

mod feed;
mod split;

use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use millstream_contract::settings::parse_bytes;
use millstream_contract::table::{OpenOptions, Positions, Split};
use millstream_contract::{Error, Result};
use millstream_store::disk::RealDisk;
use millstream_store::journal::Journal;

use self::feed::{Feed, Way};
pub(crate) use self::split::{JournalSplit, Live, Of};
use crate::input::{Name, Pipe};
use crate::options::Options;
use crate::records::Wanted;

const BYTES: u64 = 1 << 30;
/// The journal has room for so many of the largest entries, at least.
const ENTRIES_MIN: u64 = 4;
const BYTES_MIN: u64 = 16 << 20;

/// The journal of a table.
#[derive(Debug, Clone)]
pub(crate) struct Journaled(Arc<Place>);

#[derive(Debug)]
struct Place {
    /// The table's name.
    table: String,
    /// The directory as it is given, and where it is.
    given: String,
    path: PathBuf,
    bytes_max: u64,
    /// Open while a split reads it.
    open: Mutex<Weak<Journal>>,
}

impl Journaled {
    /// From the options of a table, whose entries may have so many bytes.
    pub(crate) fn from_options(
        options: &Options<'_>,
        entry_bytes_max: u64,
    ) -> Result<Option<Journaled>> {
        let min = BYTES_MIN.max(entry_bytes_max.saturating_mul(ENTRIES_MIN));
        let form = format!("a number of bytes, {} MiB or more, such as '1 GB'", min >> 20);
        let bytes_max = options.parsed("journal_bytes", &form, |text| {
            parse_bytes(text).filter(|bytes| *bytes >= min)
        })?;
        let given = options.parsed("journal", "the path of a directory", |text| {
            Some(text.trim().to_string()).filter(|text| !text.is_empty())
        })?;
        let Some(given) = given else {
            return match bytes_max {
                None => Ok(None),
                Some(_) => Err(options.error(
                    "journal_bytes",
                    "there is no journal".into(),
                    "name its directory: 'journal' = 'DIR'",
                )),
            };
        };
        let (table, path) = (options.table_name().to_string(), options.path(&given));
        let bytes_max = bytes_max.unwrap_or_else(|| BYTES.max(min));
        let open = Mutex::default();
        Ok(Some(Journaled(Arc::new(Place { table, given, path, bytes_max, open }))))
    }

    /// The journal in a line of `explain`.
    pub(crate) fn describe(of: Option<&Journaled>) -> String {
        of.map_or_else(String::new, |journal| format!(", journal {}", journal.0.given))
    }

    /// Opens the journal of this input for a job.
    ///
    /// # Errors
    /// The job has no checkpoints, or the journal cannot be opened.
    pub(crate) fn open(&self, input: &str, options: &OpenOptions) -> Result<Arc<Journal>> {
        if !options.checkpoints {
            return Err(Error::Io {
                place: input.to_string(),
                message: "it has a journal, which is trimmed by checkpoints, and the job has none"
                    .into(),
                help: "give the job --checkpoint DIR, or leave out 'journal'".into(),
            });
        }
        self.journal(input)
    }

    /// A split of the records in the journal, with those of a pipe behind. `ends`: where the pipe
    /// has ended, no other is opened after a restart. `open` gives the pipe, what is dropped with
    /// the split, and a remark.
    pub(crate) fn split(
        &self,
        name: &Name,
        wanted: Wanted,
        options: &OpenOptions,
        ends: bool,
        open: impl FnOnce() -> Result<(Pipe, Box<dyn Any + Send>, Option<String>)>,
    ) -> Result<Box<dyn Split>> {
        let journal = self.open(name, options)?;
        let format = wanted.format.clone();
        let split = JournalSplit::new(&journal, name, wanted, Of::Records, &options.from(name))?;
        if journal.has_ended() {
            return Ok(Box::new(split));
        }
        let (pipe, input, remark) = open()?;
        let (name, header) = (name.clone(), split.header().to_vec());
        let way = Way { name, pipe, journal, format, header, ends };
        Ok(Box::new(split.over(Feed::start(way, input)?, remark)))
    }

    /// Whether the journal of this input says that the input has ended.
    pub(crate) fn has_ended(&self, input: &str) -> bool {
        // An error is told when the table is opened.
        self.journal(input).is_ok_and(|journal| journal.has_ended())
    }

    fn journal(&self, input: &str) -> Result<Arc<Journal>> {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(journal) = open.upgrade() {
            return Ok(journal);
        }
        let Place { table, path, bytes_max, .. } = &*self.0;
        let name = format!("table {table}, {input}");
        let journal = Journal::open(Arc::new(RealDisk), path, &name, *bytes_max)?;
        *open = Arc::downgrade(&journal);
        Ok(journal)
    }

    /// Trims the journal of this input: no restarted job will ask for what comes before these
    /// positions. An input that has `ended` is not asked for at all.
    pub(crate) fn committed(
        of: Option<&Journaled>,
        input: &str,
        positions: &Positions,
        ended: bool,
    ) -> Result<()> {
        let (Some(journaled), Some(position)) = (of, positions.get(input)) else { return Ok(()) };
        let trimmed = match (ended, &position.0[..]) {
            (true, _) => journaled.journal(input)?.restart(),
            (false, [offset, _, head]) => journaled.journal(input)?.trim(*offset, *head),
            (false, _) => Ok(()),
        };
        Ok(trimmed?)
    }
}
