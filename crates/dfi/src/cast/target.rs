//! The target of a multicast flow (thesis, section 7.5.4 and figure 7.6).

use std::time::Duration;

use millstream_fabric::{
    Completion, CompletionQueue, DATAGRAM_HEADER_BYTES, Datagram, Destination,
    Error as FabricError, Events, Fabric, Kind as Done, Receive, Region, Status,
};
use millstream_flow::link::{Event, HEARTBEAT};

use crate::batch::{Batch, Consumed};
use crate::cast::arrival::{Arrival, ReceiveList};
use crate::cast::stream::{Confirmation, Stream, Taken};
use crate::completions::{self, Numbers};
use crate::counters::Counters;
use crate::datagram::{HEADER_AT, HEADER_BYTES, Header, Kind, Layout, PAYLOAD_AT};
use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::farewell;
use crate::lists::NextList;
use crate::options::{Gaps, OnLoss};
use crate::registry::End;
use crate::thread::{Loss, Role};

/// A target that is called looks for silent sources so often.
const PROBE_EVERY: Duration = Duration::from_millis(10);
/// Segments between two looks at what is due while segments keep coming.
const SEGMENTS_PER_LOOK: u32 = 32;
/// A waiting target looks for so long before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

/// Result of a look.
enum Step {
    Found(Arrival),
    Gap(u64),
    Empty,
    End,
}

/// A target that receives the datagrams of a group.
pub(crate) struct CastTarget<F: Fabric> {
    pub(crate) pair: F::Datagram,
    pub(crate) streams: Vec<Stream<F>>,
    pub(crate) queue: F::CompletionQueue,
    pub(crate) events: F::Events,
    pub(crate) slots: Region,
    pub(crate) fabric: F,
    pub(crate) declaration: Declaration,
    pub(crate) layout: Layout,
    pub(crate) end: End,
    pub(crate) numbers: Numbers,
    pub(crate) receive_list: ReceiveList,
    /// A list for each source, or one for all in an ordered flow.
    pub(crate) next_lists: Vec<NextList<Arrival>>,
    /// The list of the last segment. The following segment may be there.
    pub(crate) resume: Option<usize>,
    /// The segment that the last call returned.
    pub(crate) held: Option<Arrival>,
    /// In a flow that tells of gaps: the number after the last that is known to exist, since when
    /// the next segment has been missing, and what was known then.
    pub(crate) horizon: u64,
    pub(crate) gap: Option<(Duration, u64)>,
    pub(crate) found: u32,
    /// When silent sources were last looked for.
    pub(crate) probed: Duration,
    pub(crate) counters: Counters,
    pub(crate) failed: Option<Error>,
    pub(crate) losses: Vec<Loss>,
}

/// Posts the receive of a slot.
pub(crate) fn post_receive<D: Datagram>(
    pair: &mut D,
    slots: &Region,
    (slot, layout): (u32, &Layout),
) -> Result<()> {
    let offset = slot as usize * layout.stride();
    let bytes = PAYLOAD_AT + layout.payload;
    let buffer = Some(Destination { region: slots, offset, bytes });
    Ok(pair.post_receive(&[Receive { id: slot.into(), buffer }])?)
}

impl<F: Fabric> CastTarget<F> {
    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    pub(crate) fn counters(&self) -> Counters {
        let posted = self.streams.iter().map(|stream| stream.link.counts.writes);
        let ring_bytes = self.slots.len() as u64;
        Counters { writes: posted.sum(), ring_bytes, ..self.counters }
    }

    pub(crate) fn losses(&mut self) -> &mut Vec<Loss> {
        &mut self.losses
    }

    pub(crate) fn consume(&mut self) -> Result<Option<Batch<'_>>> {
        self.release()?;
        match self.wait()? {
            Step::Found(arrival) => Ok(Some(self.batch(arrival))),
            Step::Gap(number) => Err(Error::Gap { number }),
            Step::Empty | Step::End => Ok(None),
        }
    }

    pub(crate) fn try_consume(&mut self) -> Result<Consumed<'_>> {
        self.release()?;
        Ok(match self.step()? {
            Step::Found(arrival) => Consumed::Batch(self.batch(arrival)),
            Step::Gap(number) => Consumed::Gap(number),
            Step::Empty => Consumed::Empty,
            Step::End => Consumed::End,
        })
    }

    fn notifies(&self) -> bool {
        self.declaration.gaps == Gaps::Notify
    }

    /// Posts the receive of the slot that the last call returned, and returns credit.
    fn release(&mut self) -> Result<()> {
        let Some(arrival) = self.held.take() else { return Ok(()) };
        let done = self.release_segment(arrival);
        done.map_err(|error| self.fail(error))
    }

    fn release_segment(&mut self, arrival: Arrival) -> Result<()> {
        self.repost(arrival.slot)?;
        let stream = &mut self.streams[usize::from(arrival.source)];
        stream.release(arrival.number);
        if stream.is_urgent() && stream.link.is_done() {
            let now = self.fabric.now();
            stream.tell(now)?;
        }
        Ok(())
    }

    fn repost(&mut self, slot: u32) -> Result<()> {
        post_receive(&mut self.pair, &self.slots, (slot, &self.layout))
    }

    fn batch(&mut self, arrival: Arrival) -> Batch<'_> {
        self.held = Some(arrival);
        self.counters.segments += 1;
        self.counters.bytes += u64::from(arrival.fill);
        let at = arrival.slot as usize * self.layout.stride() + PAYLOAD_AT;
        // SAFETY: the completion of the slot's receive has been polled, so the datagram is whole.
        // No receive is posted for the slot before the next call, and the batch borrows the target
        // until then. Peers cannot write the region, which is open to nobody.
        let bytes = unsafe { self.slots.slice(at, usize::from(arrival.fill)) };
        let tuple_bytes = self.declaration.schema.tuple_bytes();
        Batch { bytes, tuple_bytes, source: arrival.source.into() }
    }

    /// The next segment in order, if it has arrived (thesis, figure 7.6).
    fn next(&mut self) -> Result<Option<Arrival>> {
        if let Some(at) = self.resume.take()
            && let Some(arrival) = self.next_lists[at].take()
        {
            self.resume = Some(at);
            return Ok(Some(arrival));
        }
        while let Some(arrival) = self.receive_list.pop_front() {
            let at = if self.declaration.ordered { 0 } else { usize::from(arrival.source) };
            let list = &mut self.next_lists[at];
            if arrival.place < list.next {
                // It was reported as a gap, and so were all before it that are missing.
                self.streams[usize::from(arrival.source)].release(arrival.number);
                self.counters.repeated += 1;
                self.repost(arrival.slot)?;
                continue;
            }
            if !list.has_room_for(arrival.place) {
                let peer = self.streams[usize::from(arrival.source)].peer;
                let what = "a number in the flow's order that was drawn twice or is too high";
                return Err(Error::Protocol { peer, what, found: arrival.place });
            }
            list.put(arrival.place, arrival);
            if let Some(arrival) = list.take() {
                self.resume = Some(at);
                return Ok(Some(arrival));
            }
        }
        Ok(None)
    }

    fn found(&mut self) -> Result<Option<Arrival>> {
        let found = self.next().map_err(|error| self.fail(error))?;
        if let Some(arrival) = found
            && self.notifies()
        {
            let next = self.next_lists[0].next;
            self.streams[usize::from(arrival.source)].give_up(next, Some(arrival.number));
        }
        Ok(found)
    }

    /// One look.
    fn step(&mut self) -> Result<Step> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.found += 1;
        if self.found >= SEGMENTS_PER_LOOK {
            self.found = 0;
            self.poll()?;
            let now = self.fabric.now();
            self.tend(now, false)?;
        }
        if let Some(arrival) = self.found()? {
            return Ok(Step::Found(arrival));
        }
        self.poll()?;
        let now = self.fabric.now();
        self.tend(now, false)?;
        if let Some(arrival) = self.found()? {
            return Ok(Step::Found(arrival));
        }
        self.counters.stalls += 1;
        if let Some(number) = self.find_gap(now) {
            return Ok(Step::Gap(number));
        }
        self.judge()?;
        let over = self.streams.iter().all(Stream::is_over) && !self.is_behind();
        Ok(if over { Step::End } else { Step::Empty })
    }

    /// Whether numbers of a flow that tells of gaps are still to come.
    fn is_behind(&self) -> bool {
        self.notifies() && self.next_lists[0].next < self.horizon
    }

    /// The next number, if it has been missing for the time-out.
    fn find_gap(&mut self, now: Duration) -> Option<u64> {
        if !self.is_behind() {
            self.gap = None;
            return None;
        }
        let next = self.next_lists[0].next;
        match self.gap {
            Some((since, known)) if next < known => {
                if now.saturating_sub(since) < self.declaration.time_out {
                    return None;
                }
                // Its successor may be there, or have been missing for as long.
                self.next_lists[0].next += 1;
                self.resume = Some(0);
                self.counters.gaps += 1;
                Some(next)
            }
            _ => {
                self.gap = Some((now, self.horizon));
                None
            }
        }
    }

    /// Does what is due: requests, back-flow, confirmations, probes.
    fn tend(&mut self, now: Duration, all: bool) -> Result<()> {
        self.tend_streams(now, all).map_err(|error| self.fail(error))
    }

    fn tend_streams(&mut self, now: Duration, all: bool) -> Result<()> {
        let (time_out, notifies) = (self.declaration.time_out, self.notifies());
        let next = self.next_lists[0].next;
        let probes = now.saturating_sub(self.probed) >= PROBE_EVERY;
        if probes {
            self.probed = now;
        }
        for stream in self.streams.iter_mut().filter(|stream| !stream.lost) {
            if notifies {
                stream.give_up(next, None);
            } else if stream.ask(now, time_out) {
                self.counters.requests += 1;
            }
            let due = stream.is_urgent() || all || stream.is_late(now, time_out);
            if due && stream.has_news() {
                stream.tell(now)?;
            }
            let whole = stream.is_whole() || (notifies && stream.is_ended());
            if whole && stream.confirmation != Confirmation::Done {
                stream.confirm()?;
            }
            if probes && stream.confirmation == Confirmation::Open {
                stream.link.probe(now)?;
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<()> {
        self.take_completions().map_err(|error| self.fail(error))
    }

    fn take_completions(&mut self) -> Result<()> {
        completions::take(self, |end| (&end.fabric, &mut end.queue), Self::absorb)
    }

    fn absorb(&mut self, completion: &Completion, now: Duration) -> Result<()> {
        if completion.queue_pair == self.pair.number() {
            if completion.status != Status::Success {
                return Err(FabricError::Failed.into());
            }
            return if completion.kind == Done::Receive { self.arrive(completion) } else { Ok(()) };
        }
        let Some(at) = self.numbers.find(completion) else { return Ok(()) };
        let link = &mut self.streams[at].link;
        if let Event::Arrived = link.absorb(completion, now) {
            link.refill()?;
        }
        Ok(())
    }

    /// A datagram has arrived: it goes to the receive list, or is dropped.
    fn arrive(&mut self, completion: &Completion) -> Result<()> {
        let slot = completion.id as u32;
        let mut bytes = [0; HEADER_BYTES];
        let at = slot as usize * self.layout.stride() + HEADER_AT;
        self.slots.read(at, &mut bytes)?;
        // Any process of the job may send to the group.
        let Some(header) = self.known(&bytes, completion.bytes as usize) else {
            return self.repost(slot);
        };
        let stream = &mut self.streams[usize::from(header.source)];
        match stream.take(&header)? {
            Taken::Mark => {
                self.horizon = self.horizon.max(header.place);
                return self.repost(slot);
            }
            Taken::Repeated if !keep_duplicates() => {
                self.counters.repeated += 1;
                return self.repost(slot);
            }
            Taken::New | Taken::Repeated => {}
        }
        let Header { source, fill, number, .. } = header;
        let place = if self.declaration.ordered { header.place } else { number };
        self.horizon = self.horizon.max(header.place.saturating_add(1));
        self.receive_list.push_back(Arrival { slot, source, fill, number, place });
        Ok(())
    }

    /// The header of a datagram that a source of this flow has sent.
    fn known(&self, bytes: &[u8; HEADER_BYTES], received: usize) -> Option<Header> {
        let header = Header::decode(bytes)?;
        let stream = self.streams.get(usize::from(header.source))?;
        let fill = usize::from(header.fill);
        let tuple_bytes = self.declaration.schema.tuple_bytes();
        let right = match header.kind {
            Kind::Segment => {
                fill > 0 && fill.is_multiple_of(tuple_bytes) && fill <= self.layout.payload
            }
            Kind::Mark | Kind::End => fill == 0,
        };
        let whole = received == DATAGRAM_HEADER_BYTES + HEADER_BYTES + fill;
        (right && whole && stream.tag == header.tag && !stream.lost).then_some(header)
    }

    /// Judges sources whose connection has failed before their stream was whole. All that had
    /// arrived has been consumed.
    fn judge(&mut self) -> Result<()> {
        for at in 0..self.streams.len() {
            let stream = &mut self.streams[at];
            if stream.lost || stream.confirmation != Confirmation::Open {
                continue;
            }
            let loss = farewell::loss(&stream.link, stream.peer, &self.declaration);
            let Some((peer, status)) = loss else { continue };
            let dropped = Loss { peer: stream.peer, status };
            // Targets cannot agree on the last segments of a source that is gone.
            let agreed = !self.declaration.ordered || self.declaration.gaps == Gaps::Notify;
            if self.declaration.on_loss == OnLoss::Fail || !agreed {
                return Err(self.fail(Error::PeerLost { peer, status }));
            }
            stream.lost = true;
            stream.confirmation = Confirmation::Done;
            self.losses.push(dropped);
            if !self.declaration.ordered {
                // What came after a gap is dropped. The slots go to the other sources.
                let list = &mut self.next_lists[at];
                let slots: Vec<u32> = list.clear().map(|one| one.slot).collect();
                for slot in slots {
                    self.repost(slot).map_err(|error| self.fail(error))?;
                }
            }
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
        let open = |one: &&mut Stream<F>| one.confirmation == Confirmation::Open;
        let streams = self.streams.iter_mut().filter(open);
        streams.for_each(|one| farewell::post(&mut one.link, Role::Source, lost));
        let fabric = self.fabric.clone();
        farewell::wait(&fabric, || {
            self.take_completions()?;
            Ok(self.streams.iter().any(|one| farewell::is_leaving(&one.link)))
        });
        error
    }

    /// Waits for a segment, a gap or the end: at first awake, and then asleep.
    fn wait(&mut self) -> Result<Step> {
        let mut start = None;
        loop {
            match self.step()? {
                Step::Empty => {}
                step => return Ok(step),
            }
            let by_polling = self.fabric.limits().progress_by_polling;
            if by_polling {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            let now = self.fabric.now();
            let spin = SPIN * if by_polling { 10 } else { 1 };
            if now.saturating_sub(*start.get_or_insert(now)) >= spin {
                match self.sleep(now)? {
                    Step::Empty => {}
                    step => return Ok(step),
                }
            }
        }
    }

    /// Sleeps until something arrives. Datagrams are completions, so each of them wakes the thread.
    fn sleep(&mut self, now: Duration) -> Result<Step> {
        self.tend(now, true)?;
        if let Err(error) = self.queue.arm() {
            return Err(self.fail(error.into()));
        }
        // Whatever came before arming is found now.
        let step = self.step()?;
        if !matches!(step, Step::Empty) {
            return Ok(step);
        }
        let busy = self.gap.is_some()
            || self.streams.iter().any(|stream| stream.has_gap() || stream.has_news());
        let nap = if busy { self.declaration.time_out / 2 } else { HEARTBEAT };
        self.events.wait(nap).map_err(|error| self.fail(error.into()))?;
        Ok(Step::Empty)
    }
}

/// Whether a test has planted that duplicates are kept.
#[inline(always)]
fn keep_duplicates() -> bool {
    #[cfg(test)]
    return crate::cast::PLANTED.get() == crate::cast::Fault::KeepDuplicates;
    #[cfg(not(test))]
    false
}
