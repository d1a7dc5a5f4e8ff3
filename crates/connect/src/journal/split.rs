//! A split over the entries of a journal.

use std::sync::Arc;
use std::task::Waker;

use millstream_contract::Result;
use millstream_contract::table::{Position, Sharing, Split, SplitPoll};
use millstream_store::journal::{Entry, Journal, Reader};

use crate::input::Name;
use crate::records::{Arriving, Wanted};

/// Contents of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Whole records, in one format. The first record may be a header for all entries.
    Records,
    /// Files of their own.
    Bodies,
}

/// The input behind a journal.
pub(crate) trait Live: Send {
    /// Whether nothing more will be appended. `waker` is called when that is so.
    fn is_over(&mut self, waker: &Waker) -> Result<bool>;
    /// Lets the input end: nothing more is accepted.
    fn drain(&mut self);
    /// News for the user.
    fn notice(&mut self) -> Option<String> {
        None
    }
}

/// Reads the entries of a journal: entries of earlier runs, then new entries.
pub(crate) struct JournalSplit {
    name: Name,
    remark: Option<String>,
    /// `None`: nothing more comes.
    live: Option<Box<dyn Live>>,
    /// Nothing more will be appended.
    over: bool,
    of: Of,
    wanted: Wanted,
    reader: Reader,
    arriving: Arriving,
    /// Offset in the journal of the first byte of `arriving`.
    base: u64,
    /// How all records are read follows from what comes before this offset; 0: not known yet.
    head: u64,
    /// Offset and line behind the last chunk.
    place: (u64, u64),
    header: Vec<u8>,
    ended: bool,
}

impl JournalSplit {
    /// Begins at a position: the offset in the journal, the line, and the end of the first entries,
    /// which stay.
    pub(crate) fn new(
        journal: &Arc<Journal>,
        name: &Name,
        wanted: Wanted,
        of: Of,
        from: &Position,
    ) -> Result<JournalSplit> {
        let start = journal.start();
        let (offset, line, head) = match from.0[..] {
            [offset, line, head] => (offset, line, head),
            _ => (start, 1, 0),
        };
        let arriving = Arriving::new(name.clone(), wanted.clone());
        let mut split = JournalSplit {
            name: name.clone(),
            remark: None,
            live: None,
            over: false,
            of,
            wanted,
            reader: journal.reader(offset)?,
            arriving,
            base: 0,
            head,
            place: (offset, line),
            header: Vec::new(),
            ended: false,
        };
        if of == Of::Records {
            split.read_head(journal)?;
        }
        Ok(split)
    }

    /// The same over an input.
    pub(crate) fn over(self, live: impl Live + 'static, remark: Option<String>) -> JournalSplit {
        JournalSplit { live: Some(Box::new(live)), remark, ..self }
    }

    /// The bytes before the first record, if they are known: a sender that comes after a restart
    /// may send them again.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header
    }

    /// Finds out how records are read from the first entries, if these are there.
    fn read_head(&mut self, journal: &Arc<Journal>) -> Result<()> {
        let (begin, mut head, mut fed) = (journal.begin(), journal.head(), Vec::new());
        self.arriving.go_on((begin, 1), Vec::new());
        let mut begun = false;
        while !begun && let Some(Entry { bytes, .. }) = head.next(Waker::noop())? {
            fed.extend_from_slice(bytes.as_deref().unwrap_or_default());
            self.arriving.buffer().extend_from_slice(bytes.as_deref().unwrap_or_default());
            begun = self.arriving.begun(bytes.is_none())?;
            if bytes.is_none() {
                break;
            }
        }
        if !begun {
            self.arriving = Arriving::new(self.name.clone(), self.wanted.clone());
            self.arriving.go_on((begin, 1), Vec::new());
            return Ok(());
        }
        self.head = self.arriving.taken();
        let (first, line) = self.arriving.place();
        fed.truncate((first - begin) as usize);
        self.header = fed;
        if self.place.0 < first {
            self.place = (first, line);
        }
        self.arriving.go_on(self.place, Vec::new());
        Ok(())
    }

    /// Puts an entry in.
    fn take(&mut self, entry: Entry) -> Result<()> {
        let Some(bytes) = entry.bytes else {
            self.ended = true;
            return Ok(());
        };
        // Only of the first entry of a job that goes on.
        let skip = (self.place.0.saturating_sub(entry.offset) as usize).min(bytes.len());
        if self.of == Of::Bodies {
            let name = format!("{}, body {}", self.name, entry.number + 1).into();
            (self.base, self.arriving) = (entry.offset, Arriving::new(name, self.wanted.clone()));
            if skip > 0 {
                self.arriving.buffer().extend_from_slice(&bytes);
                self.arriving.begun(true)?;
                self.arriving.go_on((skip as u64, self.place.1), Vec::new());
            }
        }
        self.arriving.buffer().extend_from_slice(&bytes[skip..]);
        Ok(())
    }
}

impl Split for JournalSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn sharing(&self) -> Sharing {
        Sharing::Coordinator
    }

    fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    fn notice(&mut self) -> Option<String> {
        self.live.as_mut()?.notice()
    }

    fn position(&self) -> Position {
        let (offset, line) = self.place;
        Position(vec![offset, line, self.head])
    }

    fn drain(&mut self) -> bool {
        if let Some(live) = &mut self.live {
            live.drain();
        }
        // What is in the journal has been accepted.
        true
    }

    fn poll_next(&mut self, _now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        loop {
            let last = self.of == Of::Bodies || self.ended;
            if self.of == Of::Records && self.head == 0 && self.arriving.begun(last)? {
                self.head = self.arriving.taken();
            }
            if let Some(chunk) = self.arriving.chunk(last)? {
                let (offset, line) = self.arriving.place();
                self.place = (self.base + offset, line);
                return Ok(SplitPoll::Chunk(chunk));
            }
            if self.ended {
                return Ok(SplitPoll::Ended);
            }
            match self.reader.next(waker)? {
                Some(entry) => self.take(entry)?,
                None if self.over => self.ended = true,
                // What was appended before the end is read once more.
                None => match self.live.as_mut().map_or(Ok(true), |live| live.is_over(waker))? {
                    true => self.over = true,
                    false => return Ok(SplitPoll::Pending { retry_at_us: None }),
                },
            }
        }
    }
}
