//! Records that are sent over HTTP: `'connector' = 'http'`.
//!
//! | option | default | |
//! |---|---|---|
//! | `listen` | `127.0.0.1:8080` | an address, or a port of this machine alone |
//! | `path` | `/` | the path that records are sent to; tables of one `listen` have each their own |
//! | `max-body` | `16 MB` | bytes of a body at most |
//! | `format` | | `csv`, `ndjson` or `raw`, with the options of these |
//! | `journal`, `journal_bytes` | | bodies are durable before the answer ([`crate::journal`]) |
//!
//! `POST /` with a body of lines, or, in NDJSON, of an array of objects ([`body`]: in chunks or
//! not, packed or not). Each body is a file of its
//! own, with a CSV header or without one. It is decoded before it is accepted, as a whole: if one
//! record is malformed, the answer is 400 with its line and column, and no record counts, unless
//! `on_error` leaves such records out. 202 says that the records have been handed to the job; they
//! are in memory, or, with a journal, durable. The table is unbounded, and has one split: the
//! records of one body after those of the other, in the order in which they were accepted.
//!
//! **Back-pressure**: bodies that are received and not yet decoded and handed on take an eighth of
//! the setting `memory` at most, 64 MiB at most, or one body. Beyond that the answer is 429,
//! `Retry-After: 1`. This comes on top of the job's budget.
//!
//! **Senders** are trusted with nothing: [`request`] refuses ambiguous heads, and [`port`] bounds
//! the time of each part. There are at most 64 connections. What a web page sends is refused (403),
//! because any page that somebody looks at could send to this machine. There is no encryption, and
//! no password: another address than one of this machine has to be written.
//!
//! **Draining**: from then on a body is refused (503). Those that were accepted before are handed
//! on, and the split ends when their senders have been answered.
//!
//! In a job of several processes the coordinator listens.

mod body;
mod fuzz;
pub mod message;
mod port;
mod receive;
mod request;
mod route;
pub mod server;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use millstream_contract::settings::parse_bytes;
use millstream_contract::table::{
    OpenOptions, Position, Positions, ReadOnce, Sharing, Split, SplitPoll, Table, TableOptions,
};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result, decoding};
use millstream_store::journal::Journal;

pub use self::fuzz::fuzz_http;
use self::port::{BODY, LIMITS, Server};
use self::route::{Next, Served};

use crate::input::{Name, io_error};
use crate::journal::{JournalSplit, Journaled, Live, Of};
use crate::options::Options;
use crate::records::{RecordFormat, Wanted};
use crate::socket::{everybody, refuse_position};
use crate::source::{Elsewhere, lines_from_options};

const PORT: u16 = 8080;
const BODY_BYTES: u64 = 16 << 20;
/// Bytes of bodies that are being received, or wait: at most this, and at most this part of the
/// job's memory; more where one body may be larger.
const WAITING_BYTES_MAX: u64 = 64 << 20;
const WAITING_PART: u64 = 8;
/// A larger body would be a file.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// Records that are sent over HTTP.
#[derive(Debug, Clone)]
pub struct HttpTable {
    address: SocketAddr,
    path: Arc<str>,
    body_bytes_max: u64,
    schema: SchemaRef,
    format: Arc<dyn RecordFormat>,
    journal: Option<Journaled>,
}

impl HttpTable {
    /// A table from `WITH` options. Listens when it is opened.
    ///
    /// # Errors
    ///
    /// [`millstream_contract::Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<HttpTable> {
        let options = Options::new(table);
        let address =
            options.address("listen", "a port, or an address such as '127.0.0.1:8080'")?;
        let path = options.parsed("path", "a path such as '/clicks'", |text| {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#".contains(&byte);
            (text.starts_with('/') && text.bytes().all(is_plain)).then(|| Arc::from(text))
        })?;
        let form = "a number of bytes from 1 to 1 GB, such as '16 MB'";
        let body_bytes_max = options.parsed("max-body", form, |text| {
            parse_bytes(text).filter(|bytes| (1..=BODY_BYTES_MAX).contains(bytes))
        })?;
        let body_bytes_max = body_bytes_max.unwrap_or(BODY_BYTES);
        let journal = Journaled::from_options(&options, body_bytes_max)?;
        let format = lines_from_options(&options, &table.schema, "what is sent over HTTP")?;
        options.finish("an http table")?;
        Ok(HttpTable {
            address: address.unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT)),
            path: path.unwrap_or_else(|| "/".into()),
            body_bytes_max,
            schema: table.schema.clone(),
            format,
            journal,
        })
    }

    fn name(&self) -> String {
        match &*self.path {
            "/" => format!("http {}", self.address),
            path => format!("http {}{path}", self.address),
        }
    }
}

impl Table for HttpTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        false
    }

    fn read_once(&self) -> Option<ReadOnce> {
        Some(ReadOnce { id: self.name(), name: self.name() })
    }

    fn check_resumable(&self) -> Result<()> {
        match self.journal {
            Some(_) => Ok(()),
            None => Err(Error::not_resumable(&self.name())),
        }
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let name: Name = self.name().into();
        if options.process != 0 || options.has_ended(&name) {
            return Ok(vec![Box::new(Elsewhere(name))]);
        }
        let journal = match &self.journal {
            Some(journal) => Some(journal.open(&name, options)?),
            None => refuse_position(options, &name).map(|()| None)?,
        };
        let wanted = Wanted {
            format: self.format.clone(),
            schema: self.schema.clone(),
            projection: projection.into(),
            batch_rows: options.batch_rows,
            offsets: false,
        };
        let body_bytes_max = self.body_bytes_max;
        let waiting_bytes_max =
            (options.memory_bytes / WAITING_PART).min(WAITING_BYTES_MAX).max(body_bytes_max);
        let split = |journal: &Arc<Journal>| {
            let from = options.from(&name);
            JournalSplit::new(journal, &name, wanted.clone(), Of::Bodies, &from)
        };
        let split = journal.as_ref().map(split).transpose()?;
        let served = Served {
            name: name.clone(),
            path: self.path.clone(),
            wanted,
            journal,
            body_bytes_max,
            waiting_bytes_max,
            decoding_bytes_max: decoding::bytes_max(options.memory_bytes),
        };
        let (server, address) = Server::start(self.address, served, LIMITS, BODY)
            .map_err(|error| io_error(Path::new(&*name), &error))?;
        let remark = format!(
            "waits for POST requests on http://{address}{}{}",
            self.path,
            everybody(address)
        );
        Ok(vec![match split {
            Some(split) => Box::new(split.over(server, Some(remark))),
            None => Box::new(HttpSplit { name, remark, server, chunks: 0 }),
        }])
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.schema.fields().len());
        let all = counted(all as u64, "column");
        let journal = Journaled::describe(self.journal.as_ref());
        format!("{} ({}, {read} of {all}{journal})", self.name(), self.format.name())
    }

    fn committed(&self, positions: &Positions, ended: &BTreeSet<String>) -> Result<()> {
        let name = self.name();
        Journaled::committed(self.journal.as_ref(), &name, positions, ended.contains(&name))
    }
}

impl Live for Server {
    fn is_over(&mut self, waker: &Waker) -> Result<bool> {
        Ok(matches!(self.route.next(waker), Next::Ended))
    }

    fn drain(&mut self) {
        self.route.drain();
    }
}

struct HttpSplit {
    name: Name,
    remark: String,
    server: Server,
    /// Handed out.
    chunks: u64,
}

impl Split for HttpSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn sharing(&self) -> Sharing {
        Sharing::Coordinator
    }

    fn remark(&self) -> Option<&str> {
        Some(&self.remark)
    }

    fn position(&self) -> Position {
        Position(vec![self.chunks])
    }

    fn drain(&mut self) -> bool {
        self.server.route.drain();
        true
    }

    fn poll_next(&mut self, _now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        Ok(match self.server.route.next(waker) {
            Next::Accepted(accepted) => {
                self.chunks += 1;
                SplitPoll::Chunk(accepted)
            }
            Next::Nothing => SplitPoll::Pending { retry_at_us: None },
            Next::Ended => SplitPoll::Ended,
        })
    }
}

#[cfg(test)]
mod tests;
