//! A split as intake sees it: what has been read, prepared, stamped and taken.

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;

use crate::table::{Extent, Position, SplitMark};
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::prepare::Prepared;
use millstream_operators::stamped::Stamped;

#[derive(Debug)]
pub(super) struct SplitState {
    /// Chunks read so far.
    pub(super) read: u64,
    /// Chunks from the first one to the last one of which a batch has been taken.
    pub(super) taken: u64,
    /// Chunks stamped so far, and their records.
    pub(super) stamped: u64,
    pub(super) records: u64,
    /// Records read by this process.
    pub(super) own_records: u64,
    /// Input bytes of the chunks prepared here, and how much of the split that is.
    pub(super) bytes: u64,
    pub(super) progress: Option<Extent>,
    /// From the last chunk that is done on: the marks behind chunks. Records and watermark of those
    /// that have not been stamped are not known yet.
    marks: VecDeque<SplitMark>,
    /// The watermark after the last stamped batch.
    pub(super) watermark: i64,
    /// The clock when it was looked at last: time does not go back.
    clock_us: i64,
    /// Chunks that wait for earlier ones to be stamped.
    pub(super) prepared: BTreeMap<u64, Chunk>,
    pub(super) ready: VecDeque<Stamped>,
    pub(super) ended: bool,
    pub(super) draining: Draining,
    /// Read by another process, and how many chunks it had when it ended there.
    pub(super) elsewhere: bool,
    pub(super) ended_elsewhere: Option<u64>,
    /// How far a spare split is that this process is to read. Until the split joins, it counts as
    /// read elsewhere.
    pub(super) joining: Option<Joining>,
    pub(super) is_spare: bool,
    pub(super) retry_at_us: i64,
    pub(super) last_data_us: i64,
    /// Whether a worker reads from it, since when, and whether others wanted to meanwhile.
    pub(super) reading: bool,
    pub(super) reading_since_us: i64,
    pub(super) has_waiting: bool,
    /// Whether the last look found nothing, and until when there is nothing, as far as is known.
    pub(super) pending: bool,
    pub(super) nothing_until_us: i64,
    /// Whether it has been without data for so long that the others no longer wait for it.
    pub(super) idle: bool,
    /// Whether nobody sent to the split when it was looked at last.
    pub(super) absent: bool,
    /// Whether nobody sent to the split at any look since its last chunk: the next sender is new.
    pub(super) vacated: bool,
    /// The split has no readers any more.
    pub(super) closed: bool,
}

/// How far a spare split is that this process is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joining {
    /// The process opens the split.
    Opening,
    Opened,
    /// The cut that is being taken has the split's mark.
    Recorded,
}

/// How far a split is with being drained.
#[derive(Debug, Default)]
pub(super) struct Draining {
    /// The split is to be read no further.
    pub(super) requested: bool,
    /// Its reader has been told.
    pub(super) said: bool,
    /// The other processes have been told how many chunks of it have been read here.
    pub(super) told: bool,
    /// For a split that all processes read: the processes that have stopped reading, this process
    /// included, and the greatest number of chunks read by a process.
    pub(super) stopped: Vec<usize>,
    pub(super) chunks: u64,
}

impl Draining {
    /// Whether this process has stopped after `read` chunks, and may not go on before other
    /// processes report their numbers.
    fn holds(&self, read: u64) -> bool {
        self.requested && self.told && read >= self.chunks
    }

    /// A process has stopped after so many chunks.
    pub(super) fn note(&mut self, process: usize, chunks: u64) {
        self.stopped.push(process);
        self.chunks = self.chunks.max(chunks);
    }
}

/// A chunk that has been prepared.
#[derive(Debug)]
pub(super) enum Chunk {
    Own(Box<Prepared>),
    /// By another process, which reports the greatest watermark and the number of records.
    Other {
        greatest: i64,
        records: u64,
    },
}

impl SplitState {
    /// `elsewhere`: another process reads it. `mark`: where it was opened.
    pub(super) fn new(elsewhere: bool, now_us: i64, mark: SplitMark) -> SplitState {
        SplitState {
            elsewhere,
            ended_elsewhere: mark.ended.then_some(mark.chunks),
            joining: None,
            is_spare: false,
            read: mark.chunks,
            taken: mark.chunks,
            stamped: mark.chunks,
            records: mark.records,
            own_records: 0,
            bytes: 0,
            progress: None,
            watermark: mark.watermark_us,
            clock_us: mark.clock_us,
            prepared: BTreeMap::new(),
            ready: VecDeque::new(),
            ended: mark.ended,
            marks: VecDeque::from([mark]),
            draining: Draining::default(),
            retry_at_us: i64::MIN,
            last_data_us: now_us,
            reading: false,
            reading_since_us: i64::MIN,
            has_waiting: false,
            pending: false,
            nothing_until_us: i64::MIN,
            idle: false,
            absent: false,
            vacated: false,
            closed: false,
        }
    }

    /// A split that has not joined the job, with its number in the order of records.
    pub(super) fn spare(now_us: i64, number: u32) -> SplitState {
        let mark = SplitMark {
            position: Position::default(),
            chunks: 0,
            records: 0,
            watermark_us: BEGINNING,
            clock_us: i64::MIN,
            number,
            ended: false,
        };
        SplitState { is_spare: true, ..SplitState::new(true, now_us, mark) }
    }

    /// A spare split was opened at its first record.
    pub(super) fn open(&mut self, position: Position) {
        self.joining = Some(Joining::Opened);
        self.marks[0].position = position;
    }

    /// A spare split begins with a watermark, and with the latest time of the clock.
    pub(super) fn begin_at(&mut self, watermark_us: i64, clock_us: i64) {
        (self.watermark, self.clock_us) = (watermark_us, clock_us);
        (self.marks[0].watermark_us, self.marks[0].clock_us) = (watermark_us, clock_us);
    }

    /// A spare split is read from now on, if it has a beginning.
    pub(super) fn join(&mut self, now_us: i64) {
        if self.joining == Some(Joining::Recorded) {
            *self = SplitState::new(false, now_us, self.marks[0].clone());
        }
    }

    /// The latest time of the clock that was seen.
    pub(super) fn latest_clock(&self) -> i64 {
        self.clock_us
    }

    /// The clock, which says `now_us`, or, if it has been put back, said more before.
    pub(super) fn clock(&mut self, now_us: i64) -> i64 {
        self.clock_us = self.clock_us.max(now_us);
        self.clock_us
    }

    /// Time has passed without records, of which event time is the clock. None that has been read
    /// waits to be stamped; what is read next is later than this. `watermark` makes one of a time.
    pub(super) fn tick(&mut self, now_us: i64, watermark: impl Fn(i64) -> i64) {
        if self.outstanding() == 0 && !self.exhausted() {
            let now_us = self.clock(now_us);
            self.watermark = self.watermark.max(watermark(now_us));
            // A job that goes on from behind the last chunk has the same time at least, as windows
            // may fire meanwhile.
            if let Some(mark) = self.marks.back_mut() {
                (mark.watermark_us, mark.clock_us) = (self.watermark, self.clock_us);
            }
        }
    }

    /// Ends a split without readers.
    pub(super) fn close(&mut self) {
        (self.ended, self.closed) = (true, true);
        self.prepared.clear();
        self.ready.clear();
    }

    /// A chunk comes: an idle split resumes where the others have got to meanwhile. Also in a job
    /// that goes on from before the chunk. A new sender begins there, however far the sender before
    /// it had got.
    pub(super) fn wake_up(&mut self, low_us: i64) {
        let (idle, vacated) = (take(&mut self.idle), take(&mut self.vacated));
        if !idle {
            return;
        }
        self.watermark = if vacated { low_us } else { self.watermark.max(low_us) };
        // An idle split has nothing outstanding, so this is the mark behind its last chunk.
        if let Some(mark) = self.marks.back_mut() {
            mark.watermark_us = mark.watermark_us.max(low_us);
        }
    }

    /// A chunk has been read, up to a position; so many chunks are done.
    pub(super) fn note_position(&mut self, position: Position, done: u64) {
        while self.marks.get(1).is_some_and(|mark| mark.chunks <= done) {
            self.marks.pop_front();
        }
        let SplitState { read: chunks, records, watermark: watermark_us, clock_us, .. } = *self;
        let number = self.marks[0].number;
        let mark =
            SplitMark { position, chunks, records, watermark_us, clock_us, number, ended: false };
        self.marks.push_back(mark);
    }

    /// The last stamped chunk is whole: the mark behind the chunk gets records and watermark.
    fn note_stamped(&mut self) {
        let first = self.marks[0].chunks;
        if let Some(mark) = self.marks.get_mut((self.stamped - first) as usize) {
            (mark.records, mark.watermark_us) = (self.records, self.watermark);
        }
    }

    /// The mark behind so many chunks, which have been stamped. `low_us` is the low watermark of
    /// the source: an idle split goes on where the others have got meanwhile.
    pub(super) fn mark(&self, done: u64, low_us: i64) -> SplitMark {
        let mut latest_first = self.marks.iter().rev();
        let mark = latest_first.find(|mark| mark.chunks <= done);
        let mut mark = mark.unwrap_or(&self.marks[0]).clone();
        if done == self.read {
            // The clock goes on without records.
            (mark.watermark_us, mark.clock_us) = (self.watermark, self.clock_us);
        }
        if self.idle {
            mark.watermark_us = mark.watermark_us.max(low_us);
        }
        mark.ended = self.ended && done == self.read;
        mark
    }

    /// The split's number in the order of records of its source.
    pub(super) fn number(&self) -> u32 {
        self.marks[0].number
    }

    /// Whether the split waits for the report of its end from other processes.
    pub(super) fn is_held(&self) -> bool {
        !self.ended && self.draining.holds(self.read)
    }

    /// The chunk of which a batch is taken next, or the next to be stamped.
    pub(super) fn next(&self) -> u64 {
        self.ready.front().map_or(self.stamped, |batch| batch.sequence)
    }

    /// Chunks read and batches stamped that have not been taken yet.
    pub(super) fn outstanding(&self) -> u64 {
        self.read - self.stamped + self.ready.len() as u64
    }

    pub(super) fn exhausted(&self) -> bool {
        self.elsewhere || self.closed || self.ended && self.outstanding() == 0
    }

    /// When it will count as idle if a look finds nothing then.
    pub(super) fn idle_at(&self, timeout_us: i64) -> Option<i64> {
        let waiting = self.pending && !self.reading && !self.ended && !self.idle;
        let timeout_us = if self.absent { 0 } else { timeout_us };
        (waiting && self.outstanding() == 0).then(|| self.last_data_us.saturating_add(timeout_us))
    }

    /// Whether no records have come for the idle time. A split that no worker has looked at since,
    /// as all were busy or had to wait, is not idle: it may have many records.
    pub(super) fn has_been_idle(&self, timeout_us: i64, now_us: i64) -> bool {
        let looked_us = self.nothing_until_us.min(now_us);
        self.idle_at(timeout_us).is_some_and(|at| at <= looked_us)
    }

    /// The split's low watermark: the least stamp of any batch not yet taken. Before the first
    /// batch it follows from the first records, so that among many files, files that begin later do
    /// not keep the windows of the others open.
    pub(super) fn low(&self) -> i64 {
        // The batches are in order, and stamps only rise.
        match self.ready.front() {
            Some(batch) => batch.holds,
            None if self.exhausted() => END,
            None => self.watermark,
        }
    }

    pub(super) fn stamp_ready(&mut self, split: usize) {
        if self.closed {
            self.prepared.clear();
            return;
        }
        let number = self.number();
        // Others may be ahead with reading.
        while self.stamped < self.read {
            let Some(chunk) = self.prepared.remove(&self.stamped) else { return };
            let sequence = self.stamped;
            self.stamped += 1;
            let prepared = match chunk {
                Chunk::Own(prepared) => *prepared,
                Chunk::Other { greatest, records } => {
                    self.watermark = self.watermark.max(greatest);
                    self.records += records;
                    self.note_stamped();
                    continue;
                }
            };
            self.bytes += prepared.input_bytes as u64;
            let parts = prepared.cut();
            let last = parts.len() - 1;
            for (part, (first_row, prepared)) in parts.into_iter().enumerate() {
                let stamp = self.watermark;
                let holds = match &prepared.times {
                    Some(times) if stamp == BEGINNING => times.first(),
                    _ => stamp,
                };
                self.watermark = self.watermark.max(prepared.greatest());
                let (after, first_record) = (self.watermark, self.records);
                let records = prepared.batch.num_rows() as u64;
                self.records += records;
                self.own_records += records;
                self.ready.push_back(Stamped {
                    split,
                    number,
                    sequence,
                    part: part as u64,
                    last: part == last,
                    first_row,
                    first_record,
                    stamp,
                    holds,
                    after,
                    prepared,
                });
            }
            self.note_stamped();
        }
    }
}
