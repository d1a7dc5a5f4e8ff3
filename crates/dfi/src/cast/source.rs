//! The source of a multicast flow (thesis, section 7.5.4).

use std::time::Duration;

use millstream_fabric::{Completion, Error as FabricError, Fabric, Status};
use millstream_flow::link::{Event, Link};

use crate::cast::backflow::Line;
use crate::cast::sending::Outlet;
use crate::completions::{self, Numbers};
use crate::counters::Counters;
use crate::datagram::{Kind, Layout};
use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::farewell::{self, CONFIRMED};
use crate::options::OnLoss;
use crate::registry::End;
use crate::schema::AsTuple;
use crate::sequencer::{NUMBER, SEQUENCER, Sequencer};
use crate::stage::{Stage, Standing};
use crate::thread::{Loss, Peer, Role, wait};

/// A waiting source looks for silent targets so often.
const PROBE_EVERY: Duration = Duration::from_millis(10);
/// Marks become rarer while no target answers, up to so many time-outs.
const MARK_TIME_OUTS_MAX: u32 = 32;

/// The source's view of a target.
pub(crate) struct Back<F: Fabric> {
    pub(crate) link: Link<F>,
    pub(crate) peer: Peer,
    /// The back-flow.
    pub(crate) line: Line,
    /// The last request that was answered.
    pub(crate) answered: u64,
    pub(crate) lost: bool,
}

impl<F: Fabric> Back<F> {
    /// Whether the target has the whole stream, or is lost.
    fn is_done(&self) -> bool {
        self.lost || self.link.block.peer_count() == CONFIRMED
    }
}

/// A source that sends each segment once, to the group of all targets.
pub(crate) struct CastSource<F: Fabric> {
    pub(crate) outlet: Outlet<F>,
    pub(crate) backs: Vec<Back<F>>,
    pub(crate) sequencer: Option<Sequencer>,
    pub(crate) queue: F::CompletionQueue,
    pub(crate) fabric: F,
    pub(crate) declaration: Declaration,
    pub(crate) layout: Layout,
    pub(crate) end: End,
    pub(crate) numbers: Numbers,
    pub(crate) course: Course,
    pub(crate) counters: Counters,
    pub(crate) standing: Standing,
    pub(crate) losses: Vec<Loss>,
    /// When silent targets were last looked for.
    pub(crate) probed: Duration,
}

/// How far a source has come: counts of segments since the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Course {
    sealed: u64,
    sent: u64,
    /// Segments that all targets have, and how many may be sent.
    received: u64,
    limit: u64,
    /// Bytes in the open segment, if one is open.
    open: Option<usize>,
    /// The number after the last that was sent, in the flow's order.
    place: u64,
    /// When the last mark or segment was sent, and how long until the next mark.
    marked: Duration,
    mark_after: Duration,
    /// Marks of the end.
    ends: u64,
}

impl Course {
    /// Nothing is done, and so many segments may be sent.
    pub(crate) fn new(limit: u64) -> Course {
        Course { limit, ..Course::default() }
    }
}

impl<F: Fabric> CastSource<F> {
    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters { ring_bytes: self.outlet.ring_bytes() as u64, ..self.counters }
    }

    pub(crate) fn losses(&mut self) -> &mut Vec<Loss> {
        &mut self.losses
    }

    pub(crate) fn polls(&self) -> bool {
        self.fabric.limits().progress_by_polling
    }

    #[inline]
    pub(crate) fn push<T: AsTuple + ?Sized>(&mut self, tuple: &T) -> Result<()> {
        let tuple = tuple.tuple();
        if self.put(tuple)? { Ok(()) } else { wait(self.polls(), || self.put(tuple)) }
    }

    #[inline]
    pub(crate) fn try_push<T: AsTuple + ?Sized>(&mut self, tuple: &T) -> Result<bool> {
        self.put(tuple.tuple())
    }

    pub(crate) fn push_to<T: AsTuple + ?Sized>(&mut self, target: usize, _: &T) -> Result<()> {
        Err(self.no_choice(target))
    }

    pub(crate) fn try_push_to<T: AsTuple + ?Sized>(
        &mut self,
        target: usize,
        _: &T,
    ) -> Result<bool> {
        Err(self.no_choice(target))
    }

    fn no_choice(&self, _target: usize) -> Error {
        Error::Route { what: "the flow's route chooses the targets: push" }
    }

    /// Copies a tuple into the open segment. Returns false if there is none.
    #[inline]
    fn put(&mut self, tuple: &[u8]) -> Result<bool> {
        let expected = self.declaration.schema.tuple_bytes();
        if tuple.len() != expected {
            return Err(Error::TupleLength { expected, found: tuple.len() });
        }
        let fill = match self.course.open {
            Some(fill) => fill,
            None => {
                self.standing.check_open()?;
                if !self.open()? {
                    self.counters.stalls += 1;
                    return Ok(false);
                }
                0
            }
        };
        self.outlet.copy(self.course.sealed, fill, tuple);
        let fill = fill + tuple.len();
        self.course.open = Some(fill);
        if self.layout.latency || fill + tuple.len() > self.layout.payload {
            self.seal()?;
        }
        Ok(true)
    }

    /// Opens the next slot, if all targets have what it held before.
    fn open(&mut self) -> Result<bool> {
        if !self.is_slot_free() {
            self.look()?;
            if !self.is_slot_free() {
                return Ok(false);
            }
        }
        self.course.open = Some(0);
        Ok(true)
    }

    fn is_slot_free(&self) -> bool {
        let Course { sealed, received, .. } = self.course;
        sealed - received < self.layout.segments as u64 && self.outlet.is_idle(sealed)
    }

    /// Seals the open segment, and sends it if its turn has come.
    fn seal(&mut self) -> Result<()> {
        let fill = self.course.open.take().unwrap_or(0);
        self.outlet.seal(self.course.sealed, fill);
        self.course.sealed += 1;
        if !self.advance()? {
            // A count or a number may have come meanwhile.
            self.poll()?;
            self.advance()?;
        }
        let per_look = if self.layout.latency { 16 } else { 1 };
        if self.course.sealed.is_multiple_of(per_look)
            && self.fabric.now().saturating_sub(self.probed) >= PROBE_EVERY
        {
            self.look()?;
        }
        Ok(())
    }

    /// Sends the sealed segments whose turn has come, and again what targets have asked for.
    /// Returns whether all have been sent.
    fn advance(&mut self) -> Result<bool> {
        self.send_and_resend().map_err(|error| self.fail(error))
    }

    fn send_and_resend(&mut self) -> Result<bool> {
        if self.course.sent < self.course.sealed {
            if self.course.sealed > self.course.limit {
                self.read_counts()?;
            }
            let end = self.course.sealed.min(self.course.limit);
            self.send_until(end)?;
        }
        self.answer()?;
        Ok(self.course.sent == self.course.sealed)
    }

    fn send_until(&mut self, end: u64) -> Result<()> {
        let mut ready = end;
        if let Some(sequencer) = &mut self.sequencer {
            let link = &mut self.backs[SEQUENCER].link;
            sequencer.draw(end, link, &mut self.counters)?;
            ready = sequencer.drawn.min(end);
            if number_after_sending() {
                ready = end;
            }
        }
        if self.course.sent >= ready {
            return Ok(());
        }
        let (now, copies) = (self.fabric.now(), self.live().count() as u64);
        while self.course.sent < ready && self.outlet.has_room() {
            let number = self.course.sent;
            let mut place = self.sequencer.as_ref().map_or(0, |one| one.number(number));
            if number_after_sending() {
                place = self.course.place;
            }
            let bytes = self.outlet.send(number, place, now)?;
            self.course.sent += 1;
            self.course.place = place.saturating_add(1);
            self.counters.datagrams += 1;
            self.counters.segments += copies;
            self.counters.bytes += bytes as u64 * copies;
        }
        (self.course.marked, self.course.mark_after) = (now, self.declaration.time_out);
        Ok(())
    }

    fn live(&self) -> impl Iterator<Item = &Back<F>> {
        self.backs.iter().filter(|back| !back.lost)
    }

    /// Reads the counts of the back-flow: the slowest target decides.
    fn read_counts(&mut self) -> Result<()> {
        let sent = self.course.sent;
        let (mut consumed, mut received) = (sent, sent);
        let mut fastest = 0;
        for back in self.live() {
            let counts = [back.line.consumed(), back.line.received()];
            if let Some(found) = counts.into_iter().find(|count| *count > sent) {
                let what = "an impossible count in the back-flow";
                return Err(Error::Protocol { peer: back.peer, what, found });
            }
            consumed = consumed.min(counts[0]);
            received = received.min(counts[1]);
            fastest = fastest.max(counts[0]);
        }
        if skip_the_slowest() {
            (consumed, received) = (fastest, fastest);
        }
        let course = &mut self.course;
        if received > course.received {
            // Targets answer: marks may be frequent again.
            course.mark_after = self.declaration.time_out;
        }
        course.received = course.received.max(received);
        course.limit = course.limit.max(consumed + self.layout.segments as u64);
        Ok(())
    }

    /// Sends again what targets have asked for.
    fn answer(&mut self) -> Result<()> {
        let (time_out, course) = (self.declaration.time_out, self.course);
        for back in self.backs.iter_mut().filter(|back| !back.lost) {
            let request = back.line.request();
            if request == back.answered {
                continue;
            }
            back.answered = request;
            let now = self.fabric.now();
            for number in back.line.missing().into_iter().flatten() {
                let kept = (course.received..course.sent).contains(&number);
                if kept && self.outlet.resend(number, now, time_out)? {
                    self.counters.resent += 1;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn try_flush(&mut self) -> Result<bool> {
        self.standing.check_open()?;
        self.drain()
    }

    /// Seals a partial segment and sends all. Returns whether all have been sent.
    fn drain(&mut self) -> Result<bool> {
        if self.course.open.is_some_and(|fill| fill > 0) {
            self.counters.partial += self.live().count() as u64;
            self.seal()?;
        }
        if !self.advance()? {
            self.look()?;
        }
        Ok(self.course.sent == self.course.sealed)
    }

    pub(crate) fn try_close(&mut self) -> Result<bool> {
        self.standing.check()?;
        if self.standing.stage == Stage::Open {
            if !self.drain()? {
                return Ok(false);
            }
            self.standing.stage = Stage::Closing;
            self.course.mark_after = Duration::ZERO;
        }
        if self.standing.stage == Stage::Closing {
            self.look()?;
            if self.backs.iter().all(Back::is_done) {
                self.standing.stage = Stage::Closed;
            }
        }
        Ok(self.standing.stage == Stage::Closed)
    }

    pub(crate) fn progress(&mut self) -> Result<()> {
        self.standing.check()?;
        self.look()
    }

    /// Takes completions, sends what can be sent, and looks for lost targets.
    fn look(&mut self) -> Result<()> {
        self.poll()?;
        if let Err(error) = self.read_counts() {
            return Err(self.fail(error));
        }
        self.advance()?;
        let now = self.fabric.now();
        if let Err(error) = self.mark(now) {
            return Err(self.fail(error));
        }
        if now.saturating_sub(self.probed) >= PROBE_EVERY {
            self.probed = now;
            let mut backs = self.backs.iter_mut().filter(|back| !back.lost);
            if let Err(error) = backs.try_for_each(|back| back.link.probe(now)) {
                return Err(self.fail(error.into()));
            }
        }
        self.judge()
    }

    /// Sends a mark if some target lacks segments: such a target may not know of the last ones.
    /// Repeats the end until all targets have confirmed it.
    fn mark(&mut self, now: Duration) -> Result<()> {
        let Course { sent, received, place, marked, mark_after, .. } = self.course;
        let (kind, due) = match self.standing.stage {
            Stage::Open => (Kind::Mark, received < sent),
            Stage::Closing => (Kind::End, !self.backs.iter().all(Back::is_done)),
            Stage::Closed => return Ok(()),
        };
        let due = due && now.saturating_sub(marked) >= mark_after && self.outlet.has_room();
        if !due || (kind == Kind::End && self.course.ends > 0 && end_once()) {
            return Ok(());
        }
        self.outlet.mark(kind, sent, place)?;
        self.counters.marks += 1;
        self.course.ends += u64::from(kind == Kind::End);
        let time_out = self.declaration.time_out;
        let longer = (2 * mark_after).clamp(time_out, MARK_TIME_OUTS_MAX * time_out);
        (self.course.marked, self.course.mark_after) = (now, longer);
        Ok(())
    }

    fn poll(&mut self) -> Result<()> {
        self.take_completions().map_err(|error| self.fail(error))
    }

    fn take_completions(&mut self) -> Result<()> {
        completions::take(self, |end| (&end.fabric, &mut end.queue), Self::absorb)
    }

    fn absorb(&mut self, completion: &Completion, now: Duration) -> Result<()> {
        if completion.queue_pair == self.outlet.number() {
            if completion.status != Status::Success {
                return Err(FabricError::Failed.into());
            }
            self.outlet.done(completion);
            return Ok(());
        }
        let Some(at) = self.numbers.find(completion) else { return Ok(()) };
        let event = self.backs[at].link.absorb(completion, now);
        if let (Event::Done(NUMBER), Some(sequencer)) = (event, &mut self.sequencer) {
            sequencer.arrived();
        }
        Ok(())
    }

    /// Looks for targets whose connection has failed before they had everything.
    fn judge(&mut self) -> Result<()> {
        for at in 0..self.backs.len() {
            let back = &mut self.backs[at];
            if back.lost || (self.standing.stage != Stage::Open && back.is_done()) {
                continue;
            }
            let loss = farewell::loss(&back.link, back.peer, &self.declaration);
            let Some((peer, status)) = loss else { continue };
            back.lost = true;
            let dropped = Loss { peer: back.peer, status };
            let needed = self.sequencer.is_some() && at == SEQUENCER;
            let drop = self.declaration.on_loss == OnLoss::Drop && !needed;
            if !drop || self.backs.iter().all(|back| back.lost) {
                return Err(self.fail(Error::PeerLost { peer, status }));
            }
            self.losses.push(dropped);
        }
        Ok(())
    }

    /// The source has failed: it tells all targets.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        if let Some(first) = &self.standing.failed {
            return first.clone();
        }
        let lost = End::of_error(&error, self.end);
        self.standing.failed = Some(error.clone());
        self.course.open = None;
        self.backs.iter_mut().for_each(|back| farewell::post(&mut back.link, Role::Target, lost));
        let fabric = self.fabric.clone();
        farewell::wait(&fabric, || {
            self.take_completions()?;
            Ok(self.backs.iter().any(|back| farewell::is_leaving(&back.link)))
        });
        error
    }
}

/// Whether a test has planted this fault.
macro_rules! planted {
    ($($name:ident, $fault:ident;)*) => {$(
        #[inline(always)]
        fn $name() -> bool {
            #[cfg(test)]
            return crate::cast::PLANTED.get() == crate::cast::Fault::$fault;
            #[cfg(not(test))]
            false
        }
    )*};
}

planted! {
    skip_the_slowest, SkipTheSlowest;
    number_after_sending, NumberAfterSending;
    end_once, EndOnce;
}
