//! A file as a split: the format's split, opened when it is read, and the file's description in
//! positions.
//!
//! A job opens all splits when it begins, and there may be more files than a process may have open.
//! So one of many files is opened for its first chunk, which is small and shows at which time the
//! file begins; then it is closed, and opened again, where it was left, when its turn has come.
//!
//! In a job of several processes, a packed file is opened only by its reader's process.

use std::sync::Arc;
use std::task::Waker;

use millstream_contract::Result;
use millstream_contract::table::{Extent, OpenOptions, Position, Sharing, Split, SplitPoll};

use super::mark::FileMark;
use super::{FileSlot, FileTable, OneFile};
use crate::input::Name;

/// A file that is read.
pub(super) struct FileSplit {
    table: FileTable,
    file: OneFile,
    name: Name,
    place: FileSlot,
    projection: Arc<[usize]>,
    options: Arc<OpenOptions>,
    sharing: Sharing,
    length: Option<u64>,
    /// Where to go on.
    position: Position,
    /// Chunks read.
    chunks: u64,
    open: Option<Box<dyn Split>>,
    /// Description of the open file in positions.
    mark: Option<FileMark>,
    /// How much has been read, as far as is known.
    progress: Option<Extent>,
    remark: Option<String>,
    ended: bool,
}

impl FileSplit {
    pub(super) fn new(
        table: FileTable,
        file: OneFile,
        place: FileSlot,
        projection: &Arc<[usize]>,
        options: &Arc<OpenOptions>,
        sharing: Sharing,
    ) -> FileSplit {
        let name = table.split_name(&file);
        let position = options.from(&name);
        let mark = FileMark::of(&position).map(|(mark, _)| mark);
        let grown = mark.and_then(|mark| Some((mark.length, file.length_now()?)));
        let remark = grown.filter(|(length, now)| length < now).map(|(length, now)| {
            format!(
                "{}: it has grown from {length} to {now} bytes since the job began, and the job \
                 reads only those that were there then",
                file.name
            )
        });
        let told = file.given_spec().and_then(|spec| spec.length);
        FileSplit {
            length: mark.map(|mark| mark.length).or(told),
            ended: options.has_ended(&name),
            table,
            file,
            name,
            place,
            projection: projection.clone(),
            options: options.clone(),
            sharing,
            position,
            chunks: 0,
            open: None,
            mark,
            progress: None,
            remark,
        }
    }

    /// The same, with the file open, unless it has been read to its end.
    pub(super) fn at_once(mut self) -> Result<FileSplit> {
        if !self.ended {
            let open = self.opened()?;
            (self.sharing, self.remark) =
                (open.sharing(), open.remark().map(str::to_string).or(self.remark));
        }
        Ok(self)
    }

    fn opened(&mut self) -> Result<&mut Box<dyn Split>> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let FileSplit { table, file, place, projection, options, position, .. } = self;
                let (open, mark) = table.open_file(file, *place, projection, options, position)?;
                self.mark = mark;
                open
            }
        };
        Ok(self.open.insert(open))
    }
}

impl Split for FileSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn extent(&self) -> Option<u64> {
        match &self.open {
            Some(open) => open.extent(),
            None => self.length.filter(|_| self.sharing == Sharing::ByChunk),
        }
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
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
                self.position = match self.mark {
                    Some(mark) => mark.with(position),
                    None => position,
                };
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
