//! One of many files: opened only to be read.
//!
//! A job opens all splits when it begins, and there may be more files than a process may have open.
//! So a file is opened for its first chunk, which is small and shows at which time the file begins;
//! then it is closed, and opened again, where it was left, when its turn has come.
//!
//! In a job of several processes, a packed file is opened only by its reader's process.

use std::sync::Arc;
use std::task::Waker;

use millstream_contract::Result;
use millstream_contract::table::{
    Extent, OpenOptions, Position, Positions, Sharing, Split, SplitPoll,
};

use super::{FileSlot, FileTable, OneFile};

/// A file that is opened when it is read.
pub(super) struct LaterSplit {
    table: FileTable,
    file: OneFile,
    place: FileSlot,
    projection: Arc<[usize]>,
    options: OpenOptions,
    sharing: Sharing,
    length: Option<u64>,
    /// Where to go on.
    position: Position,
    /// Chunks read.
    chunks: u64,
    open: Option<Box<dyn Split>>,
    /// How much has been read, as far as is known.
    progress: Option<Extent>,
    ended: bool,
}

impl LaterSplit {
    pub(super) fn new(
        table: FileTable,
        file: OneFile,
        place: FileSlot,
        projection: &[usize],
        options: &OpenOptions,
        sharing: Sharing,
    ) -> LaterSplit {
        LaterSplit {
            table,
            length: file.given_spec().and_then(|spec| spec.length),
            position: options.from(&file.name),
            file,
            place,
            projection: projection.into(),
            options: OpenOptions { from: Positions::new(), ..options.clone() },
            sharing,
            chunks: 0,
            open: None,
            progress: None,
            ended: false,
        }
    }

    fn opened(&mut self) -> Result<&mut Box<dyn Split>> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let options = self.options.at(&self.file.name, self.position.clone());
                self.table.open_file(&self.file, self.place, &self.projection, &options)?
            }
        };
        Ok(self.open.insert(open))
    }
}

impl Split for LaterSplit {
    fn name(&self) -> &str {
        &self.file.name
    }

    fn extent(&self) -> Option<u64> {
        self.length.filter(|_| self.sharing == Sharing::ByChunk)
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn notice(&mut self) -> Option<String> {
        self.open.as_mut()?.notice()
    }

    fn position(&self) -> Position {
        self.position.clone()
    }

    fn progress(&self) -> Option<Extent> {
        self.progress.or_else(|| Some(Extent { done: 0, of: self.length?, bytes: true }))
    }

    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        if self.ended {
            return Ok(SplitPoll::Ended);
        }
        let open = self.opened()?;
        let poll = open.poll_next(now_us, waker)?;
        let (position, progress) = (open.position(), open.progress());
        self.progress = progress;
        match poll {
            SplitPoll::Chunk(_) => {
                self.position = position;
                self.chunks += 1;
                if self.chunks == 1 && self.place.one_of_many {
                    self.open = None;
                }
            }
            SplitPoll::Ended => (self.ended, self.open) = (true, None),
            SplitPoll::Pending { .. } => {}
        }
        Ok(poll)
    }
}
