//! The target of a flow over rings (thesis, section 7.5.2).

mod ordered;

use std::time::Duration;

use millstream_fabric::{Completion, CompletionQueue, Events, Fabric};
use millstream_flow::link::{Event, HEARTBEAT};

use crate::batch::{Batch, Consumed};
use crate::completions::{self, Numbers};
use crate::counters::Counters;
use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::farewell;
use crate::lists::NextList;
use crate::options::OnLoss;
use crate::registry::End;
use crate::ring::Shape;
use crate::target::inlet::{Inlet, Progress};
use crate::thread::{Loss, Role};

/// Looks at all rings, without finding anything, between two polls of the completion queue.
const LOOKS_PER_POLL: u32 = 16;
/// Calls, without finding anything, of a caller that does not wait, between two looks at the clock.
/// A look at the clock takes as long as a look at several rings.
const LOOKS_PER_CLOCK: u32 = 8;
/// A target that is seldom called polls about so often, if it is called.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(10);
/// A waiting target looks for so long before it sleeps; ten times as long where polling does the
/// network card's work, as channels do.
pub(crate) const SPIN: Duration = Duration::from_micros(20);

/// A segment that was found.
#[derive(Debug, Clone, Copy)]
struct Found {
    inlet: u32,
    offset: usize,
    bytes: usize,
}

enum Step {
    Found(Found),
    Empty,
    End,
}

/// A target over rings.
pub(crate) struct RingTarget<F: Fabric> {
    fabric: F,
    declaration: Declaration,
    shape: Shape,
    end: End,
    tuple_bytes: usize,
    queue: F::CompletionQueue,
    events: F::Events,
    inlets: Vec<Inlet<F>>,
    /// Early segments of an ordered flow.
    next_list: Option<NextList<Found>>,
    numbers: Numbers,
    /// Index of the inlet to look at first.
    next: usize,
    /// The inlet whose segment the last call returned.
    held: Option<usize>,
    /// Inlets that have not ended.
    left: usize,
    looks: u32,
    /// When silent sources were last looked for.
    polled: Duration,
    counters: Counters,
    failed: Option<Error>,
    losses: Vec<Loss>,
}

impl<F: Fabric> RingTarget<F> {
    pub(crate) fn new(
        fabric: F,
        declaration: Declaration,
        (end, queue, events): (End, F::CompletionQueue, F::Events),
        inlets: Vec<Inlet<F>>,
    ) -> RingTarget<F> {
        let numbers = Numbers::new(inlets.iter().map(|inlet| inlet.link.number()));
        let shape = declaration.shape();
        let ring_bytes = (inlets.len() * shape.ring_bytes()) as u64;
        RingTarget {
            polled: fabric.now(),
            fabric,
            end,
            shape,
            tuple_bytes: declaration.schema.tuple_bytes(),
            declaration,
            queue,
            events,
            left: inlets.len(),
            next_list: shape.ordered.then(|| NextList::new(shape.numbers(inlets.len()))),
            inlets,
            numbers,
            next: 0,
            held: None,
            looks: 0,
            counters: Counters { ring_bytes, ..Counters::default() },
            failed: None,
            losses: Vec::new(),
        }
    }

    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    pub(crate) fn counters(&self) -> Counters {
        let posted = self.inlets.iter().map(|inlet| &inlet.link.counts);
        let (writes, reads) =
            posted.fold((0, 0), |(writes, reads), one| (writes + one.writes, reads + one.reads));
        Counters { writes, reads, ..self.counters }
    }

    pub(crate) fn losses(&mut self) -> &mut Vec<Loss> {
        &mut self.losses
    }

    #[inline]
    pub(crate) fn consume(&mut self) -> Result<Option<Batch<'_>>> {
        self.free();
        match self.wait()? {
            Some(found) => Ok(Some(self.batch(found))),
            None => Ok(None),
        }
    }

    pub(crate) fn try_consume(&mut self) -> Result<Consumed<'_>> {
        self.free();
        Ok(match self.step(true)? {
            Step::Found(found) => Consumed::Batch(self.batch(found)),
            Step::Empty => Consumed::Empty,
            Step::End => Consumed::End,
        })
    }

    /// Frees the segment that the last call returned.
    #[inline]
    fn free(&mut self) {
        if let Some(inlet) = self.held.take() {
            self.inlets[inlet].release(&self.shape);
        }
    }

    #[inline]
    fn batch(&mut self, found: Found) -> Batch<'_> {
        self.held = Some(found.inlet as usize);
        self.counters.segments += 1;
        self.counters.bytes += found.bytes as u64;
        let inlet = &self.inlets[found.inlet as usize];
        // SAFETY: the footer of this lap proves that the segment is complete. The source writes it
        // again only when it is free, which the next call says, and the batch borrows the target
        // until then. Peers that hold the job's token keep to that (see the crate on trust).
        let bytes = unsafe { inlet.payload(found.offset, found.bytes) };
        Batch { bytes, tuple_bytes: self.tuple_bytes, source: found.inlet as usize }
    }

    /// The next segment. An ordered flow has one next segment for all targets.
    #[inline]
    fn scan(&mut self) -> Result<Option<Found>> {
        if self.next_list.is_some() { self.scan_in_order() } else { self.scan_rings() }
    }

    /// A round over all rings, beginning with the next in turn.
    #[inline]
    fn scan_rings(&mut self) -> Result<Option<Found>> {
        let count = self.inlets.len();
        for _ in 0..count {
            let at = self.next;
            self.next = if at + 1 == count { 0 } else { at + 1 };
            let inlet = &mut self.inlets[at];
            if !inlet.has_news(&self.shape) {
                continue;
            }
            match inlet.look(&self.shape, self.tuple_bytes) {
                Ok(None) => {}
                Ok(Some(footer)) if footer.end => inlet.end(),
                Ok(Some(footer)) => {
                    let (inlet, offset) = (at as u32, inlet.take());
                    return Ok(Some(Found { inlet, offset, bytes: footer.bytes as usize }));
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        Ok(None)
    }

    /// One look. With `seldom` the caller may not look again soon, so the time counts and not the
    /// number of looks.
    fn step(&mut self, seldom: bool) -> Result<Step> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if let Some(found) = self.scan()? {
            if self.counters.segments.is_multiple_of(self.shape.per_look()) {
                let now = self.fabric.now();
                if now.saturating_sub(self.polled) >= POLL_EVERY {
                    // Silent sources among busy ones.
                    self.look_after(now)?;
                }
            }
            return Ok(Step::Found(found));
        }
        self.counters.stalls += 1;
        self.looks = self.looks.wrapping_add(1);
        let by_polling = self.fabric.limits().progress_by_polling;
        let often = by_polling || self.looks.is_multiple_of(LOOKS_PER_POLL) || self.has_ending();
        if often || (seldom && self.looks.is_multiple_of(LOOKS_PER_CLOCK)) {
            let now = self.fabric.now();
            if often || now.saturating_sub(self.polled) >= POLL_EVERY {
                return self.look_closer(now);
            }
        }
        self.nothing()
    }

    /// Nothing was found: the end, if all sources have ended.
    fn nothing(&mut self) -> Result<Step> {
        if self.left > 0 {
            return Ok(Step::Empty);
        }
        match self.next_list.as_ref().and_then(NextList::any) {
            None => Ok(Step::End),
            Some(waiting) => Err(self.skipped(waiting)),
        }
    }

    fn has_ending(&self) -> bool {
        self.inlets.iter().any(|inlet| matches!(inlet.progress, Progress::Ending(_)))
    }

    /// Nothing was found: takes completions, confirms ends, and looks for lost sources.
    fn look_closer(&mut self, now: Duration) -> Result<Step> {
        self.poll()?;
        if now.saturating_sub(self.polled) >= POLL_EVERY {
            self.probe(now)?;
        }
        // What had arrived before a failure is found by a look that comes after it was known.
        if let Some(found) = self.scan()? {
            return Ok(Step::Found(found));
        }
        for at in 0..self.inlets.len() {
            let inlet = &mut self.inlets[at];
            match inlet.progress {
                Progress::Open => self.judge(at)?,
                Progress::Ending(_) => match inlet.confirm() {
                    Ok(ended) => self.left -= usize::from(ended),
                    Err(error) => return Err(self.fail(error)),
                },
                Progress::Ended => {}
            }
        }
        self.nothing()
    }

    /// Asks silent sources whether they are there.
    fn probe(&mut self, now: Duration) -> Result<()> {
        self.polled = now;
        let mut open = self.inlets.iter_mut().filter(|one| one.progress == Progress::Open);
        let probed = open.try_for_each(|inlet| inlet.link.probe(now));
        probed.map_err(|error| self.fail(error.into()))
    }

    /// A segment was found: takes completions, and judges sources whose rings have nothing more.
    #[cold]
    fn look_after(&mut self, now: Duration) -> Result<()> {
        self.poll()?;
        self.probe(now)?;
        for at in 0..self.inlets.len() {
            let inlet = &self.inlets[at];
            if inlet.progress == Progress::Open
                && matches!(inlet.look(&self.shape, self.tuple_bytes), Ok(None))
            {
                self.judge(at)?;
            }
        }
        Ok(())
    }

    /// Judges a source that has sent all that it can have sent if its connection has failed.
    fn judge(&mut self, at: usize) -> Result<()> {
        let inlet = &mut self.inlets[at];
        let loss = farewell::loss(&inlet.link, inlet.peer, &self.declaration);
        let Some((peer, status)) = loss else { return Ok(()) };
        let dropped = Loss { peer: inlet.peer, status };
        // Targets cannot agree on the last segments of a source that is gone.
        if self.declaration.on_loss == OnLoss::Fail || self.next_list.is_some() {
            return Err(self.fail(Error::PeerLost { peer, status }));
        }
        inlet.progress = Progress::Ended;
        self.left -= 1;
        self.losses.push(dropped);
        Ok(())
    }

    fn poll(&mut self) -> Result<()> {
        self.take_completions().map_err(|error| self.fail(error))
    }

    fn take_completions(&mut self) -> Result<()> {
        completions::take(self, |end| (&end.fabric, &mut end.queue), Self::absorb)
    }

    fn absorb(&mut self, completion: &Completion, now: Duration) -> Result<()> {
        let Some(at) = self.numbers.find(completion) else { return Ok(()) };
        let link = &mut self.inlets[at].link;
        if let Event::Arrived = link.absorb(completion, now) {
            link.refill()?;
        }
        Ok(())
    }

    /// The target has failed: it tells all sources.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        if let Some(first) = &self.failed {
            return first.clone();
        }
        let lost = End::of_error(&error, self.end);
        self.failed = Some(error.clone());
        let open = self.inlets.iter_mut().filter(|one| one.progress == Progress::Open);
        open.for_each(|inlet| farewell::post(&mut inlet.link, Role::Source, lost));
        let fabric = self.fabric.clone();
        farewell::wait(&fabric, || {
            self.poll()?;
            Ok(self.inlets.iter().any(|one| farewell::is_leaving(&one.link)))
        });
        error
    }

    /// Waits for a segment or the end.
    fn wait(&mut self) -> Result<Option<Found>> {
        let mut start = None;
        let mut looks = 0_u32;
        loop {
            match self.step(false)? {
                Step::Found(found) => return Ok(Some(found)),
                Step::End => return Ok(None),
                Step::Empty => {}
            }
            looks += 1;
            let by_polling = self.fabric.limits().progress_by_polling;
            if by_polling {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
                if !looks.is_multiple_of(32) {
                    continue;
                }
            }
            let now = self.fabric.now();
            let spin = SPIN * if by_polling { 10 } else { 1 };
            if now.saturating_sub(*start.get_or_insert(now)) >= spin {
                match self.sleep(now)? {
                    Step::Found(found) => return Ok(Some(found)),
                    Step::End => return Ok(None),
                    Step::Empty => {}
                }
            }
        }
    }

    /// One step towards sleep; sleeps if every source that still sends would wake the thread.
    fn sleep(&mut self, now: Duration) -> Result<Step> {
        let mut open = self.inlets.iter_mut().filter(|one| one.progress == Progress::Open);
        if let Err(error) = open.try_for_each(|inlet| inlet.link.park(now)) {
            return Err(self.fail(error.into()));
        }
        self.poll()?;
        if !self.may_sleep() {
            return Ok(Step::Empty);
        }
        if let Err(error) = self.queue.arm() {
            return Err(self.fail(error.into()));
        }
        // Whatever came before arming is found now.
        let step = self.look_closer(now)?;
        if matches!(step, Step::Empty) && self.may_sleep() {
            self.events.wait(HEARTBEAT).map_err(|error| self.fail(error.into()))?;
        }
        Ok(step)
    }

    fn may_sleep(&self) -> bool {
        self.inlets.iter().all(|inlet| match inlet.progress {
            Progress::Open => inlet.link.failure().is_none() && inlet.link.may_sleep(inlet.found),
            // The acknowledgement wakes the thread.
            Progress::Ending(told) => told,
            Progress::Ended => true,
        })
    }
}
