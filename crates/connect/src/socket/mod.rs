//! Lines over TCP: `'connector' = 'socket'`.
//!
//! | option | default | |
//! |---|---|---|
//! | `hostname`, `port` | | where to connect to, as in Flink |
//! | `listen` | | in place of these: where to wait: an address, or a port of this machine alone |
//! | `format` | | `csv`, `ndjson` or `raw`, with the options of these |
//! | `byte-delimiter` | `10` | as in Flink; lines end with no other byte |
//! | `journal`, `journal_bytes` | | lines are durable before they count ([`crate::journal`]) |
//!
//! The table has one connection, and one split, and is unbounded. A listening table takes the first
//! peer that sends a byte; a peer that closes its connection before is ignored. The table ends when
//! the sender closes the connection; bytes behind the last line end are the last record then, as in
//! a file. A connection that breaks, or is reset, is an error, because records may be lost. Nothing
//! comes twice, so reading cannot go on from a position.
//!
//! A thread connects, or waits for the sender, and reads ([`Pipe`]). It stops reading while 1 MiB
//! waits to be taken in, and so the sender has to wait. It ends soon after the split is dropped,
//! whatever the sender does ([`connection`]).
//!
//! **Draining**: the connection is closed, and the lines received so far count. An incomplete line
//! is dropped, with a notice. A sender cannot know how much has been received.
//!
//! In a job of several processes the coordinator connects.

mod connection;

use std::collections::BTreeSet;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use millstream_contract::table::{
    OpenOptions, Position, Positions, ReadOnce, Sharing, Split, SplitPoll, Table, TableOptions,
};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use self::connection::{Peer, SocketConnection, Stop};
use crate::beside::{Beside, FileFacts, SideValues};
use crate::input::{Name, Pipe, io_error};
use crate::journal::Journaled;
use crate::options::Options;
use crate::records::{Arriving, RecordFormat, Wanted};
use crate::source::{Elsewhere, lines_from_options};

/// Bytes taken in at once.
const READ_BYTES: usize = 64 << 10;

/// Lines that come over a connection.
#[derive(Debug, Clone)]
pub struct SocketTable {
    peer: Peer,
    beside: Beside,
    format: Arc<dyn RecordFormat>,
    journal: Option<Journaled>,
}

impl SocketTable {
    /// A table from `WITH` options. Connects only when it is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<SocketTable> {
        let options = Options::new(table);
        let peer = peer(&options)?;
        let beside = Beside::new(table)?;
        let ten = |text: &str| (text.trim() == "10").then_some(());
        options.parsed("byte-delimiter", "'10', the line end", ten)?;
        let journal = Journaled::from_options(&options, 0)?;
        let format = lines_from_options(&options, &beside.data, "a socket")?;
        options.finish("a socket")?;
        Ok(SocketTable { peer, beside, format, journal })
    }

    /// A split that takes the journal's lines, those of the connection behind.
    fn over_journal(
        &self,
        journal: &Journaled,
        name: &Name,
        wanted: Wanted,
        options: &OpenOptions,
    ) -> Result<Box<dyn Split>> {
        let input = || {
            let (pipe, stop, remark) = self.connection(name)?;
            Ok((pipe, Box::new(stop) as _, remark))
        };
        journal.split(name, wanted, options, true, input)
    }

    /// Bytes of the connection, its end, and where it waits for a sender.
    fn connection(&self, name: &Name) -> Result<(Pipe, Stop, Option<String>)> {
        let failed = |error| io_error(Path::new(&**name), &error);
        let (connection, stop, address) = SocketConnection::new(&self.peer).map_err(failed)?;
        let remark = |address| format!("waits for a sender on {address}{}", everybody(address));
        Ok((Pipe::new(Box::new(connection)), stop, address.map(remark)))
    }
}

/// Whom to connect to, or where to wait.
fn peer(options: &Options<'_>) -> Result<Peer> {
    let (host, port) = (options.text("hostname"), options.integer("port", 1, 65535)?);
    let form = "a port, or an address such as '127.0.0.1:9999'";
    let listen = options.address("listen", form)?;
    match (host.map(str::trim), port, listen) {
        (None, None, Some(address)) => Ok(Peer::Listen(address)),
        (Some(host), Some(port), None) if !host.is_empty() => {
            // Checked: it fits.
            Ok(Peer::Connect(host.to_string(), port as u16))
        }
        (_, _, Some(_)) => Err(options.error(
            "listen",
            "a socket either listens or connects".into(),
            "leave out 'listen', or 'hostname' and 'port'",
        )),
        (host, _, None) => Err(options.error(
            if host.is_none_or(str::is_empty) { "hostname" } else { "port" },
            "a socket needs a host and a port".into(),
            "write 'hostname' = 'localhost', 'port' = '9999', or 'listen' = '127.0.0.1:9999'",
        )),
    }
}

/// A warning of an address that is that of all interfaces.
pub fn everybody(address: SocketAddr) -> &'static str {
    match address.ip().is_unspecified() {
        true => ": all who can reach this machine can send records",
        false => "",
    }
}

/// Refuses a position: lines that come only once cannot be read from there.
pub(crate) fn refuse_position(options: &OpenOptions, place: &str) -> Result<()> {
    if options.from.values().all(Position::is_beginning) {
        return Ok(());
    }
    Err(Error::Io {
        place: place.to_string(),
        message: "its records come once, and nothing goes on in the middle of them".into(),
        help: "write them to a file, and read that; or begin anew".into(),
    })
}

impl Table for SocketTable {
    fn schema(&self) -> SchemaRef {
        self.beside.schema.clone()
    }

    fn bounded(&self) -> bool {
        false
    }

    fn read_once(&self) -> Option<ReadOnce> {
        let name = self.peer.to_string();
        Some(ReadOnce { id: name.clone(), name })
    }

    fn check_resumable(&self) -> Result<()> {
        match self.journal {
            Some(_) => Ok(()),
            None => Err(Error::not_resumable(&self.peer.to_string())),
        }
    }

    fn committed(&self, positions: &Positions, ended: &BTreeSet<String>) -> Result<()> {
        let name = self.peer.to_string();
        Journaled::committed(self.journal.as_ref(), &name, positions, ended.contains(&name))
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let name = self.peer.to_string();
        if options.process != 0 || options.has_ended(&name) {
            return Ok(vec![Box::new(Elsewhere(name.into()))]);
        }
        let read = self.beside.read(projection)?;
        let wanted = Wanted {
            format: self.format.clone(),
            schema: self.beside.data.clone(),
            projection: read.data.clone(),
            batch_rows: options.batch_rows,
            offsets: read.offsets(),
        };
        let name: Name = name.into();
        let values = read.values(|| FileFacts { path: name.clone(), modified: None })?;
        if let Some(journal) = &self.journal {
            let split = self.over_journal(journal, &name, wanted, options)?;
            return Ok(vec![SideValues::split(values, split)]);
        }
        refuse_position(options, &name)?;
        let (pipe, stop, remark) = self.connection(&name)?;
        let arriving = Arriving::new(name.clone(), wanted);
        let (ended, notice) = (false, None);
        let split = SocketSplit { name, remark, pipe, arriving, ended, stop, notice };
        Ok(vec![SideValues::split(values, Box::new(split))])
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.beside.schema.fields().len());
        let all = counted(all as u64, "column");
        let journal = Journaled::describe(self.journal.as_ref());
        format!("{} ({}, {read} of {all}{journal})", self.peer, self.format.name())
    }
}

struct SocketSplit {
    name: Name,
    remark: Option<String>,
    pipe: Pipe,
    arriving: Arriving,
    /// Nothing more comes: the connection is closed.
    ended: bool,
    /// Ends the connection when it goes.
    stop: Stop,
    notice: Option<String>,
}

impl Split for SocketSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn sharing(&self) -> Sharing {
        Sharing::Coordinator
    }

    fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    fn position(&self) -> Position {
        let (offset, line) = self.arriving.place();
        Position(vec![offset, line])
    }

    fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    fn drain(&mut self) -> bool {
        self.stop.stop();
        self.stop.is_open()
    }

    fn poll_next(&mut self, _now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        loop {
            // The last line may lack its line end, unless it was cut off.
            let is_cut = self.ended && self.stop.has_cut();
            if let Some(chunk) = self.arriving.chunk(self.ended && !is_cut)? {
                return Ok(SplitPoll::Chunk(chunk));
            }
            if self.ended {
                if is_cut && !self.arriving.is_empty() {
                    let (_, line) = self.arriving.place();
                    self.notice = Some(format!(
                        "{}: it was drained in the middle of line {line}, which is left out",
                        self.name
                    ));
                }
                return Ok(SplitPoll::Ended);
            }
            if !self.pipe.ready(waker) {
                return Ok(SplitPoll::Pending { retry_at_us: None });
            }
            let buffer = self.arriving.buffer();
            let before = buffer.len();
            buffer.resize(before + READ_BYTES, 0);
            let got = self.pipe.read(&mut buffer[before..]);
            buffer.truncate(before + got.as_ref().map_or(0, |got| *got));
            let failed = |error| io_error(Path::new(&*self.name), &error);
            self.ended = got.map_err(failed)? == 0;
        }
    }
}

#[cfg(test)]
mod tests;
