//! The stream of a source, as a target of a multicast flow knows it.

use std::time::Duration;

use millstream_fabric::{Fabric, Operation, RemoteRegion, Source as Bytes, WorkRequest};
use millstream_flow::link::{CONTROL, LINE, Link, PEER_COUNT};
use millstream_flow::shuffle::{Seen, Window};

use crate::cast::backflow::Line;
use crate::datagram::{Header, Kind};
use crate::error::{Error, Result};
use crate::farewell::CONFIRMED;
use crate::thread::Peer;

/// Whether the source knows that this target has the whole stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The stream is not whole.
    Open,
    /// The word is on its way.
    Told,
    /// The source knows, or is gone.
    Done,
}

/// Meaning of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A segment that has not come before.
    New,
    /// A segment that has.
    Repeated,
    /// A mark.
    Mark,
}

/// The stream of a source.
pub(crate) struct Stream<F: Fabric> {
    pub(crate) link: Link<F>,
    pub(crate) peer: Peer,
    pub(crate) tag: u32,
    pub(crate) confirmation: Confirmation,
    /// Whether the source was lost and dropped.
    pub(crate) lost: bool,
    /// Segments consumed since the beginning, or given up.
    pub(crate) consumed: u64,
    /// Segments in memory.
    window: Window,
    segments: u64,
    /// Segments that exist, as far as is known.
    known: u64,
    /// Contents of the last mark: count of segments, and the number after the last segment in the
    /// flow's order.
    marked: (u64, u64),
    /// Segments of the whole stream, once its end is known.
    total: Option<u64>,
    /// The first missing segment, and since when it has been missing.
    gap: Option<(u64, Duration)>,
    request: u64,
    /// Whether a request waits for the next write.
    asks: bool,
    /// The counts of the last write to the source, and its time.
    told: (u64, u64),
    told_at: Duration,
    /// The line that is written, and where it goes.
    line: Line,
    to: RemoteRegion,
}

impl<F: Fabric> Stream<F> {
    pub(crate) fn new(
        link: Link<F>,
        (peer, tag): (Peer, u32),
        (line, to): (Line, RemoteRegion),
        segments: usize,
    ) -> Stream<F> {
        Stream {
            link,
            peer,
            tag,
            confirmation: Confirmation::Open,
            lost: false,
            consumed: 0,
            window: Window::new(segments as u32),
            segments: segments as u64,
            known: 0,
            marked: (0, 0),
            total: None,
            gap: None,
            request: 0,
            asks: false,
            told: (0, 0),
            told_at: Duration::ZERO,
            line,
            to,
        }
    }

    /// Takes note of a datagram.
    pub(crate) fn take(&mut self, header: &Header) -> Result<Taken> {
        let (first, number) = (self.window.first(), header.number);
        let beyond = Error::Protocol {
            peer: self.peer,
            what: "a segment for which there is no credit",
            found: number,
        };
        if header.kind == Kind::Segment {
            if number < first {
                return Ok(Taken::Repeated);
            }
            if number - first >= self.segments {
                return Err(beyond);
            }
            self.known = self.known.max(number + 1);
            return match self.window.see(number as u32) {
                Seen::New => Ok(Taken::New),
                Seen::Before => Ok(Taken::Repeated),
                Seen::Gap(_) => Err(beyond),
            };
        }
        if number > first.saturating_add(self.segments) {
            return Err(beyond);
        }
        self.known = self.known.max(number);
        if number >= self.marked.0 {
            self.marked = (number, header.place.max(self.marked.1));
        }
        if header.kind == Kind::End {
            self.total = Some(number.max(self.total.unwrap_or(0)));
        }
        Ok(Taken::Mark)
    }

    /// A segment was released.
    pub(crate) fn release(&mut self, number: u64) {
        self.consumed = self.consumed.max(number + 1);
    }

    /// In a flow that tells of gaps: everything before number `next` of the flow's order is over.
    /// `number`: a segment of this source that comes right before `next`.
    pub(crate) fn give_up(&mut self, next: u64, number: Option<u64>) {
        let (sent, place) = self.marked;
        let by_mark = if place <= next { sent } else { 0 };
        self.window.give_up(by_mark.max(number.map_or(0, |number| number + 1)));
        if by_mark > 0 {
            self.consumed = self.consumed.max(by_mark);
        }
    }

    /// Whether the end is known, and everything before it is in memory.
    pub(crate) fn is_whole(&self) -> bool {
        self.total.is_some_and(|total| self.window.first() >= total)
    }

    /// Whether the end is known.
    pub(crate) fn is_ended(&self) -> bool {
        self.total.is_some()
    }

    /// Whether the whole stream was consumed, and the source knows that it has arrived.
    pub(crate) fn is_over(&self) -> bool {
        let consumed = self.total.is_some_and(|total| self.consumed >= total);
        self.confirmation == Confirmation::Done && (consumed || self.lost)
    }

    /// Asks for missing segments once the first of them has been missing for the time-out, and
    /// again after each further time-out. Returns whether a request is made.
    pub(crate) fn ask(&mut self, now: Duration, time_out: Duration) -> bool {
        let first = self.window.first();
        if first >= self.known || self.lost {
            self.gap = None;
            return false;
        }
        match self.gap {
            Some((missing, since)) if missing == first => {
                if now.saturating_sub(since) < time_out {
                    return false;
                }
                self.asks = true;
            }
            _ => {}
        }
        self.gap = Some((first, now));
        self.asks
    }

    /// Whether segments are known to be missing.
    pub(crate) fn has_gap(&self) -> bool {
        self.gap.is_some()
    }

    /// Whether the source has not been told all.
    pub(crate) fn has_news(&self) -> bool {
        self.told != (self.consumed, self.window.first()) || self.asks
    }

    /// Whether so much has changed that the source is to be told at once.
    pub(crate) fn is_urgent(&self) -> bool {
        let quarter = (self.segments / 4).max(1);
        let (consumed, received) = self.told;
        self.asks
            || self.consumed - consumed >= quarter
            || self.window.first().saturating_sub(received) >= quarter
    }

    /// Whether the source was last told a while ago.
    pub(crate) fn is_late(&self, now: Duration, time_out: Duration) -> bool {
        now.saturating_sub(self.told_at) >= time_out / 4
    }

    /// Writes the back-flow, if the last write has been acknowledged: until then its bytes must not
    /// change.
    pub(crate) fn tell(&mut self, now: Duration) -> Result<()> {
        if !self.link.is_done() || self.link.failure().is_some() || self.lost {
            return Ok(());
        }
        self.told = (self.consumed, self.window.first());
        self.told_at = now;
        self.line.set_counts(self.told.0, self.told.1);
        if std::mem::take(&mut self.asks) {
            self.request += 1;
            self.line.set_request(self.request, self.window.missing(self.known));
        }
        let source = Bytes::Region { region: &self.line.region, offset: self.line.at, bytes: LINE };
        let to = self.to.at(0, LINE as u64)?;
        let operation = Operation::Write { source, to, immediate: None };
        Ok(self.link.post(&mut [WorkRequest::new(operation)], Some(CONTROL))?)
    }

    /// Confirms the end to the source.
    pub(crate) fn confirm(&mut self) -> Result<()> {
        if self.confirmation == Confirmation::Open && self.link.failure().is_none() {
            if !self.link.room(1) {
                return Ok(());
            }
            let value = CONFIRMED.to_ne_bytes();
            let word = self.link.word(PEER_COUNT, &value, None)?;
            self.link.post(&mut [word], Some(CONTROL))?;
            self.confirmation = Confirmation::Told;
        }
        let told = self.confirmation == Confirmation::Told && self.link.is_done();
        if told || self.link.failure().is_some() {
            self.confirmation = Confirmation::Done;
        }
        Ok(())
    }
}
