//! The source of a flow over rings (thesis, sections 7.5.1 to 7.5.3).

mod bulk;

use std::time::Duration;

use millstream_fabric::{Completion, Fabric};

use crate::completions::{self, Numbers};
use crate::counters::Counters;
use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::farewell;
use crate::options::OnLoss;
use crate::registry::End;
use crate::ring::Shape;
use crate::schema::AsTuple;
use crate::sequencer::{SEQUENCER, Sequencer};
use crate::source::lane::Lane;
use crate::source::outbox::Outbox;
use crate::source::router::Router;
use crate::stage::{Stage, Standing};
use crate::thread::{Loss, Role, wait};

/// A waiting thread looks for silent targets so often.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(10);

/// A source that writes into the targets' rings.
pub(crate) struct RingSource<F: Fabric> {
    fabric: F,
    declaration: Declaration,
    shape: Shape,
    end: End,
    inline_bytes: usize,
    tuple_bytes: usize,
    queue: F::CompletionQueue,
    lanes: Vec<Lane<F>>,
    numbers: Numbers,
    outboxes: Vec<Outbox>,
    router: Router,
    /// The numbers of an ordered flow, whose only outbox is that for all targets.
    sequencer: Option<Sequencer>,
    counters: Counters,
    standing: Standing,
    losses: Vec<Loss>,
    /// When silent targets were last looked for.
    probed: Duration,
}

impl<F: Fabric> RingSource<F> {
    pub(crate) fn new(
        fabric: F,
        declaration: Declaration,
        (end, queue): (End, F::CompletionQueue),
        lanes: Vec<Lane<F>>,
        (outboxes, router, sequencer): (Vec<Outbox>, Router, Option<Sequencer>),
    ) -> RingSource<F> {
        let numbers = Numbers::new(lanes.iter().map(|lane| lane.link.number()));
        let rings = outboxes.iter().map(|outbox: &Outbox| outbox.ring.len() as u64);
        let counters = Counters { ring_bytes: rings.sum(), ..Counters::default() };
        RingSource {
            inline_bytes: fabric.limits().inline_bytes,
            probed: fabric.now(),
            fabric,
            end,
            shape: declaration.shape(),
            tuple_bytes: declaration.schema.tuple_bytes(),
            declaration,
            queue,
            lanes,
            numbers,
            outboxes,
            router,
            sequencer,
            counters,
            standing: Standing::open(),
            losses: Vec::new(),
        }
    }

    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn losses(&mut self) -> &mut Vec<Loss> {
        &mut self.losses
    }

    #[inline]
    pub(crate) fn push<T: AsTuple + ?Sized>(&mut self, tuple: &T) -> Result<()> {
        let tuple = tuple.tuple();
        let outbox = self.outbox_of(tuple)?;
        if self.put(outbox, tuple)? { Ok(()) } else { self.wait_to_put(outbox, tuple) }
    }

    #[inline]
    pub(crate) fn try_push<T: AsTuple + ?Sized>(&mut self, tuple: &T) -> Result<bool> {
        let tuple = tuple.tuple();
        let outbox = self.outbox_of(tuple)?;
        self.put(outbox, tuple)
    }

    #[inline]
    pub(crate) fn push_to<T: AsTuple + ?Sized>(&mut self, target: usize, tuple: &T) -> Result<()> {
        let tuple = tuple.tuple();
        self.check_explicit(target, tuple)?;
        if self.put(target, tuple)? { Ok(()) } else { self.wait_to_put(target, tuple) }
    }

    #[inline(always)]
    pub(crate) fn try_push_to<T: AsTuple + ?Sized>(
        &mut self,
        target: usize,
        tuple: &T,
    ) -> Result<bool> {
        let tuple = tuple.tuple();
        self.check_explicit(target, tuple)?;
        self.put(target, tuple)
    }

    #[cold]
    fn wait_to_put(&mut self, outbox: usize, tuple: &[u8]) -> Result<()> {
        wait(self.polls(), || self.put(outbox, tuple))
    }

    pub(crate) fn polls(&self) -> bool {
        self.fabric.limits().progress_by_polling
    }

    pub(crate) fn try_flush(&mut self) -> Result<bool> {
        self.standing.check_open()?;
        self.drain()
    }

    pub(crate) fn try_close(&mut self) -> Result<bool> {
        self.standing.check()?;
        if self.standing.stage == Stage::Closed {
            return Ok(true);
        }
        if self.standing.stage == Stage::Open {
            if !self.drain()? {
                return Ok(false);
            }
            for at in 0..self.outboxes.len() {
                if !self.open(at)? {
                    return Ok(false);
                }
            }
            let shape = self.shape;
            self.outboxes.iter_mut().for_each(|outbox| outbox.seal(true, &shape));
            self.standing.stage = Stage::Closing;
        }
        if self.drain()? && self.lanes.iter().all(Lane::is_delivered) {
            self.standing.stage = Stage::Closed;
            return Ok(true);
        }
        self.look()?;
        Ok(false)
    }

    pub(crate) fn progress(&mut self) -> Result<()> {
        self.standing.check()?;
        self.look()
    }

    #[inline(always)]
    fn outbox_of(&self, tuple: &[u8]) -> Result<usize> {
        if tuple.len() != self.tuple_bytes {
            return Err(self.bad_length(tuple.len()));
        }
        match self.router.outbox(tuple, self.outboxes.len()) {
            Some(outbox) if outbox < self.outboxes.len() => Ok(outbox),
            Some(target) => Err(Error::NoTarget { target, targets: self.lanes.len() }),
            None => Err(Error::Route { what: "the flow's pushes name their targets: push_to" }),
        }
    }

    #[cold]
    fn bad_length(&self, found: usize) -> Error {
        Error::TupleLength { expected: self.tuple_bytes, found }
    }

    #[inline(always)]
    fn check_explicit(&self, target: usize, tuple: &[u8]) -> Result<()> {
        if tuple.len() != self.tuple_bytes {
            return Err(self.bad_length(tuple.len()));
        }
        self.check_target(target)
    }

    /// Whether a push may name this target.
    #[inline(always)]
    fn check_target(&self, target: usize) -> Result<()> {
        if !matches!(self.router, Router::Explicit) {
            return Err(Error::Route { what: "the flow's route chooses the targets: push" });
        }
        if target >= self.lanes.len() {
            return Err(Error::NoTarget { target, targets: self.lanes.len() });
        }
        Ok(())
    }

    /// Copies a tuple into the open segment of an outbox. Returns false if there is none.
    #[inline(always)]
    fn put(&mut self, at: usize, tuple: &[u8]) -> Result<bool> {
        if !self.outboxes[at].has_room(tuple.len()) && !self.open_for_push(at)? {
            return Ok(false);
        }
        let outbox = &mut self.outboxes[at];
        outbox.copy(tuple);
        if !outbox.has_room(tuple.len()) {
            self.seal(at)?;
        }
        Ok(true)
    }

    #[cold]
    fn open_for_push(&mut self, at: usize) -> Result<bool> {
        self.standing.check_open()?;
        let opened = self.open(at)?;
        self.counters.stalls += u64::from(!opened);
        Ok(opened)
    }

    /// Opens the next segment of an outbox, if the fabric is done with what it held before.
    fn open(&mut self, at: usize) -> Result<bool> {
        if self.outboxes[at].is_open() {
            return Ok(true);
        }
        if !self.is_slot_free(at) {
            self.look()?;
            if !self.is_slot_free(at) {
                return Ok(false);
            }
        }
        let bytes = if self.shape.latency { self.tuple_bytes } else { self.shape.payload };
        self.outboxes[at].open(bytes, &self.shape);
        Ok(true)
    }

    fn is_slot_free(&self, at: usize) -> bool {
        let outbox = &self.outboxes[at];
        let (slot, Some(before)) = outbox.next_slot(&self.shape) else { return true };
        self.lanes[outbox.lanes.clone()].iter().all(|lane| lane.is_done_with(before, slot))
    }

    /// Seals the open segment of an outbox, and writes it if its turn has come.
    #[inline(never)]
    fn seal(&mut self, at: usize) -> Result<()> {
        self.outboxes[at].seal(false, &self.shape);
        if !self.write(at)? {
            // The answer may have come meanwhile.
            self.poll()?;
            self.write(at)?;
        }
        if self.outboxes[at].sealed.is_multiple_of(self.shape.per_look())
            && self.fabric.now().saturating_sub(self.probed) >= PROBE_EVERY
        {
            // A target that gets nothing is lost unnoticed otherwise.
            self.look()?;
        }
        Ok(())
    }

    /// Writes the sealed segments of an outbox whose turn has come. Returns whether all are on
    /// their way.
    fn write(&mut self, at: usize) -> Result<bool> {
        self.write_lanes(at).map_err(|error| self.fail(error))
    }

    fn write_lanes(&mut self, at: usize) -> Result<bool> {
        let RingSource { outboxes, lanes, shape, counters, fabric, inline_bytes, .. } = self;
        let outbox = &outboxes[at];
        if let Some(sequencer) = &mut self.sequencer
            && outbox.to_number() > sequencer.asked
        {
            sequencer.draw(outbox.to_number(), &mut lanes[SEQUENCER].link, counters)?;
        }
        let mut all = true;
        for lane in &mut lanes[outbox.lanes.clone()] {
            while lane.sent < outbox.ready && lane.may_write(shape, || fabric.now(), counters)? {
                let sealed = outbox.sealed(lane.sent, shape);
                if !sealed.end {
                    counters.segments += 1;
                    counters.bytes += sealed.fill as u64;
                }
                lane.write(&outbox.ring, sealed, (shape, *inline_bytes), counters)?;
            }
            all &= lane.lost || lane.sent == outbox.sealed;
        }
        Ok(all)
    }

    /// Seals partial segments and writes all. Returns whether all are on their way, and need no
    /// further call to get to their targets.
    fn drain(&mut self) -> Result<bool> {
        let mut all = true;
        for at in 0..self.outboxes.len() {
            if self.outboxes[at].has_tuples() {
                self.counters.partial += self.outboxes[at].lanes.len() as u64;
                self.outboxes[at].seal(false, &self.shape);
            }
            all &= self.write(at)?;
        }
        if all && self.are_reached()? {
            return Ok(true);
        }
        self.look()?;
        Ok(self.is_all_posted() && self.are_reached()?)
    }

    fn are_reached(&mut self) -> Result<bool> {
        let RingSource { lanes, shape, counters, .. } = self;
        let mut reached = true;
        for lane in lanes {
            reached &= lane.is_reached(shape, counters)?;
        }
        Ok(reached)
    }

    fn is_all_posted(&self) -> bool {
        self.outboxes.iter().all(|outbox| {
            let mut lanes = self.lanes[outbox.lanes.clone()].iter();
            lanes.all(|lane| lane.lost || lane.sent == outbox.sealed)
        })
    }

    /// Takes completions, writes what can be written, and looks for lost targets.
    fn look(&mut self) -> Result<()> {
        self.poll()?;
        for at in 0..self.outboxes.len() {
            self.write(at)?;
        }
        let now = self.fabric.now();
        if now.saturating_sub(self.probed) >= PROBE_EVERY {
            self.probed = now;
            let mut lanes = self.lanes.iter_mut().filter(|lane| !lane.lost);
            if let Err(error) = lanes.try_for_each(|lane| lane.link.probe(now)) {
                return Err(self.fail(error.into()));
            }
        }
        self.judge()
    }

    fn poll(&mut self) -> Result<()> {
        let taken = completions::take(self, |end| (&end.fabric, &mut end.queue), Self::absorb);
        taken.map_err(|error| self.fail(error))
    }

    fn absorb(&mut self, completion: &Completion, now: Duration) -> Result<()> {
        let Some(at) = self.numbers.find(completion) else { return Ok(()) };
        let absorbed = self.lanes[at].absorb(completion, &self.shape, now);
        if self.standing.failed.is_some() {
            // The last words still have to leave.
            return Ok(());
        }
        if let (true, Some(sequencer)) = (absorbed?, &mut self.sequencer) {
            self.outboxes[0].finish(sequencer.arrived(), &self.shape);
        }
        Ok(())
    }

    /// Looks for targets whose connection has failed before they had everything.
    fn judge(&mut self) -> Result<()> {
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            if lane.lost || (self.standing.stage != Stage::Open && lane.is_confirmed()) {
                // The target may be gone once it has confirmed the end.
                continue;
            }
            let loss = farewell::loss(&lane.link, lane.peer, &self.declaration);
            let Some((peer, status)) = loss else { continue };
            lane.lost = true;
            let dropped = Loss { peer: lane.peer, status };
            let needed = self.sequencer.is_some() && at == SEQUENCER;
            let drop = self.router.is_to_all() && self.declaration.on_loss == OnLoss::Drop;
            if !drop || needed || self.lanes.iter().all(|lane| lane.lost) {
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
        self.outboxes.iter_mut().for_each(Outbox::shut);
        self.lanes.iter_mut().for_each(|lane| farewell::post(&mut lane.link, Role::Target, lost));
        let fabric = self.fabric.clone();
        farewell::wait(&fabric, || {
            self.poll()?;
            Ok(self.lanes.iter().any(|lane| farewell::is_leaving(&lane.link)))
        });
        error
    }
}
