//! Receives of unreliable datagrams (SQ/SR; paper, section 5.3).
//!
//! One queue pair and one queue of receives for all sources; each source's credit is a part of the
//! queue. A stream has ended when `Depleted`, with the number of messages, and as many messages
//! have come. `Depleted` waits for overtaken messages. Then the source receives word that its
//! stream is complete.

use std::time::Duration;

use millstream_fabric::{
    Completion, DATAGRAM_HEADER_BYTES, Datagram, Error as FabricError, Fabric,
};
use millstream_fabric::{Destination, Kind as Done, Outgoing, Receive, Source, Status};

use super::core::{Ready, ReceiverCore};
use super::window::{Seen, Window};
use crate::shuffle::attention::Attention;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::wire::{DATAGRAM_AT, HEADER_AT, HEADER_BYTES, Header, Kind, State};

pub(crate) struct DatagramReceiver<F: Fabric> {
    pair: F::Datagram,
    streams: Vec<Stream<F>>,
    /// Entries of the send queue for each source: a source that takes no messages keeps no more.
    /// All requests are signalled.
    share: u32,
    attention: Attention,
    /// Sources have been told that this endpoint has failed.
    parted: bool,
}

/// Stream of a source.
pub(crate) struct Stream<F: Fabric> {
    pub(crate) address: <F::Datagram as Datagram>::Address,
    /// Messages received, with `Depleted` and signs of life.
    received: u64,
    /// `Depleted`, and its number.
    last: Option<(Ready, u32)>,
    window: Option<Window>,
    /// When it was last heard of, or was given credit while it had none and could say nothing.
    heard: Duration,
    /// Time of the last message to the source, and number of messages under way.
    told: Duration,
    under_way: u32,
    /// The source has failed.
    failed: bool,
    /// When it was first told that its stream is complete, and whether the network card has sent
    /// that.
    completed: Option<Duration>,
    confirmed: bool,
}

impl<F: Fabric> Stream<F> {
    pub(crate) fn new(
        address: <F::Datagram as Datagram>::Address,
        window: Option<Window>,
        now: Duration,
    ) -> Stream<F> {
        Stream {
            address,
            received: 0,
            last: None,
            window,
            heard: now,
            told: now,
            under_way: 0,
            failed: false,
            completed: None,
            confirmed: false,
        }
    }
}

/// Completions taken at a time.
const BATCH: usize = 16;
/// Set in the id of a datagram that says that a stream is complete; the rest is the source.
const COMPLETE: u64 = 1 << 32;

/// How many messages a stream has whose last has this number, of which a datagram carries the low
/// 32 bits. What is missing has taken credit that never came back, so it is less than 2^31
/// messages, and the total is the one that is closest to what has come.
fn sent(received: u64, number: u32) -> u64 {
    let missing = number.wrapping_add(1).wrapping_sub(received as u32) as i32;
    received.wrapping_add_signed(missing.into())
}

/// Posts the receive of a buffer.
pub(crate) fn post<F: Fabric>(
    pair: &mut F::Datagram,
    core: &mut ReceiverCore<F>,
    number: u32,
) -> Result<()> {
    let slot = core.buffers.slot(number);
    let bytes = DATAGRAM_HEADER_BYTES + HEADER_BYTES + core.settings.message_bytes;
    let into = Destination { region: &slot.region, offset: slot.offset + DATAGRAM_AT, bytes };
    pair.post_receive(&[Receive { id: number.into(), buffer: Some(into) }])?;
    core.counters.receives += 1;
    Ok(())
}

impl<F: Fabric> DatagramReceiver<F> {
    pub(crate) fn new(
        pair: F::Datagram,
        streams: Vec<Stream<F>>,
        core: &ReceiverCore<F>,
    ) -> DatagramReceiver<F> {
        let share = core.settings.receiver_share();
        let attention = Attention::new(core.now());
        DatagramReceiver { pair, streams, share, attention, parted: false }
    }

    pub(crate) fn poll(&mut self, core: &mut ReceiverCore<F>) -> Result<bool> {
        let now = core.now();
        self.attention.call(now, core.settings.silence);
        let mut some = [Completion::default(); BATCH];
        let count = core.complete(&mut some)?;
        for completion in &some[..count] {
            if completion.status != Status::Success {
                return Err(FabricError::Failed.into());
            }
            match completion.kind {
                Done::Receive => self.take(core, completion, now)?,
                _ => {
                    let stream = &mut self.streams[completion.id as u32 as usize];
                    stream.under_way -= 1;
                    stream.confirmed |= completion.id & COMPLETE != 0;
                }
            }
        }
        Ok(count > 0)
    }

    /// Takes a datagram. A repeated datagram, or a stranger's, leaves its receive free.
    fn take(&mut self, core: &mut ReceiverCore<F>, done: &Completion, now: Duration) -> Result<()> {
        let slot = done.id as u32;
        let mut header = [0; HEADER_BYTES];
        let local = core.buffers.slot(slot);
        local.region.read(local.offset + HEADER_AT, &mut header)?;
        let whole = DATAGRAM_HEADER_BYTES + HEADER_BYTES;
        let known = Header::decode(&header).and_then(|header| {
            let right = whole + header.bytes as usize == done.bytes as usize;
            let source = core.sources.iter().position(|source| source.id == header.id)?;
            Some((source, header, done.immediate.filter(|_| right)?))
        });
        let Some((source, header, number)) = known else {
            return post(&mut self.pair, core, slot);
        };
        let stream = &mut self.streams[source];
        stream.heard = now;
        let state = match header.kind {
            Kind::Data(state) => Some(state),
            Kind::KeepAlive => None,
            Kind::Failed => {
                stream.failed = true;
                return post(&mut self.pair, core, slot);
            }
            Kind::Credit | Kind::Complete => return post(&mut self.pair, core, slot),
        };
        if let Some(window) = &mut stream.window {
            match window.see(number) {
                Seen::New => {}
                Seen::Before => {
                    core.counters.repeated += 1;
                    return post(&mut self.pair, core, slot);
                }
                Seen::Gap(number) => {
                    return Err(Error::Missing { sender: core.sources[source].id, number });
                }
            }
        }
        let again = state == Some(State::Depleted) && stream.last.is_some();
        if again || core.sources[source].ended {
            core.counters.repeated += 1;
            return post(&mut self.pair, core, slot);
        }
        stream.received += 1;
        let ready =
            |state| Ready { source, slot, remote: 0, bytes: header.bytes, state, surplus: false };
        match state {
            Some(State::Depleted) => stream.last = Some((ready(State::Depleted), number)),
            Some(State::MoreData) => core.arrived(ready(State::MoreData)),
            None => {
                post(&mut self.pair, core, slot)?;
                core.sources[source].granted += 1;
            }
        }
        self.end(core, source)
    }

    /// Ends a stream if all of it is there.
    fn end(&mut self, core: &mut ReceiverCore<F>, source: usize) -> Result<()> {
        let stream = &mut self.streams[source];
        let Some((ready, number)) = stream.last else { return Ok(()) };
        let received = stream.received;
        let sent = sent(received, number);
        if received > sent {
            let source = core.sources[source].id;
            return Err(Error::Repeated { sender: source, sent, received });
        }
        if received == sent {
            core.arrived(ready);
        }
        Ok(())
    }

    /// Tells sources what is to be told, and again and again, since it may be lost: credit, when it
    /// has become so much, and that a stream is complete.
    pub(crate) fn tell(&mut self, core: &mut ReceiverCore<F>, now: Duration) -> Result<()> {
        let every = u64::from(core.settings.credit_every);
        let again = core.settings.silence / 8;
        for source in 0..self.streams.len() {
            let (stream, origin) = (&mut self.streams[source], &mut core.sources[source]);
            let late = now.saturating_sub(stream.told) >= again;
            if stream.failed || stream.under_way >= self.share {
                continue;
            }
            if origin.ended {
                if late || stream.completed.is_none() {
                    core.counters.keep_alives += u64::from(stream.completed.is_some());
                    stream.completed.get_or_insert(now);
                    self.say(core, source, Kind::Complete, now)?;
                }
            } else if late || origin.granted >= origin.told + every {
                if stream.received == origin.told {
                    stream.heard = now;
                }
                match origin.granted >= origin.told + every {
                    true => core.counters.credits += 1,
                    false => core.counters.keep_alives += 1,
                }
                origin.told = origin.granted;
                self.say(core, source, Kind::Credit, now)?;
            }
        }
        Ok(())
    }

    fn say(
        &mut self,
        core: &mut ReceiverCore<F>,
        to: usize,
        kind: Kind,
        now: Duration,
    ) -> Result<()> {
        let mut bytes = [0; HEADER_BYTES + 8];
        let header = Header { bytes: 8, kind, id: core.id };
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        bytes[HEADER_BYTES..].copy_from_slice(&core.sources[to].granted.to_le_bytes());
        let complete = if kind == Kind::Complete { COMPLETE } else { 0 };
        let (id, stream) = (to as u64 | complete, &mut self.streams[to]);
        stream.told = now;
        stream.under_way += 1;
        core.counters.datagrams += 1;
        let (to, source) = (&stream.address, Source::Inline(&bytes));
        Ok(self.pair.post(&[Outgoing { id, to, source, immediate: None, signalled: true }])?)
    }

    /// Whether all sources know that their streams are complete. Does not wait for a source that
    /// has failed since, or is silent for so long that it counts as lost.
    pub(crate) fn is_over(&self, core: &ReceiverCore<F>) -> bool {
        let (now, silence) = (core.now(), core.settings.silence);
        let late = |since| now.saturating_sub(since) > silence;
        self.streams
            .iter()
            .all(|stream| stream.confirmed || stream.failed || stream.completed.is_some_and(late))
    }

    /// Tells sources with incomplete streams that this endpoint has gone.
    pub(crate) fn part(&mut self, core: &mut ReceiverCore<F>) {
        if std::mem::replace(&mut self.parted, true) {
            return;
        }
        for source in 0..self.streams.len() {
            if !core.sources[source].ended && self.streams[source].under_way < self.share {
                // If it cannot be said, silence says it later.
                drop(self.say(core, source, Kind::Failed, core.now()));
            }
        }
    }

    /// The source may fill this buffer (again).
    pub(crate) fn grant(
        &mut self,
        core: &mut ReceiverCore<F>,
        source: usize,
        slot: u32,
    ) -> Result<()> {
        post(&mut self.pair, core, slot)?;
        core.sources[source].granted += 1;
        Ok(())
    }

    pub(crate) fn release(&mut self, core: &mut ReceiverCore<F>, ready: &Ready) -> Result<()> {
        if core.reuse(ready) { self.grant(core, ready.source, ready.slot) } else { Ok(()) }
    }

    /// Checks whether missing messages may still come in time. A source without credit left owes
    /// nothing.
    pub(crate) fn judge(&self, core: &ReceiverCore<F>) -> Result<()> {
        let now = core.now();
        for (stream, origin) in self.streams.iter().zip(&core.sources) {
            let time = self.attention.silent(now, stream.heard);
            if origin.ended {
                continue;
            }
            if stream.failed {
                return Err(Error::PeerLost { peer: origin.id, status: Status::Flushed });
            }
            if let Some((_, number)) = stream.last
                && time > core.settings.stragglers
            {
                let (source, received) = (origin.id, stream.received);
                let sent = sent(received, number);
                return Err(Error::Lost { sender: source, sent, received });
            }
            if stream.received < origin.told && time > core.settings.silence {
                return Err(Error::Silent { peer: origin.id, time });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_fabric::sim::{Model, Sim, SimDevice};

    use super::sent;
    use crate::shuffle::receive::In;
    use crate::shuffle::{Received, Receiver, ReceiverSetup, Sender, SenderSetup, Settings, State};

    #[test]
    fn totals_are_those_closest_to_what_has_come() {
        const WRAP: u64 = 1 << 32;
        for (received, number, total) in [
            (0, 4, 5),
            (5, 4, 5),
            (7, 4, 5),
            (WRAP - 2, u32::MAX, WRAP),
            (WRAP - 2, 0, WRAP + 1),
            (WRAP, u32::MAX, WRAP),
            (WRAP + 1, u32::MAX, WRAP),
            (3 * WRAP + 9, 10, 3 * WRAP + 11),
        ] {
            assert_eq!(sent(received, number), total, "{received} received, the last is {number}");
        }
    }

    fn pair(sim: &Sim) -> (Sender<SimDevice>, Receiver<SimDevice>) {
        let device = sim.node(Model::default());
        let settings = Settings { sequences: true, ..Settings::new("SESQ/SR".parse().unwrap()) };
        let sender = SenderSetup::new(&device, 1, 1, settings).unwrap();
        let receiver = ReceiverSetup::new(&device, 2, 1, settings).unwrap();
        let hellos = [sender.hello(0), receiver.hello(0)];
        (sender.connect(&hellos[1..]).unwrap(), receiver.connect(&hellos[..1]).unwrap())
    }

    /// Two endpoints that have had 2^32 - 3 messages between them, and have five more.
    #[test]
    fn a_stream_may_have_more_messages_than_32_bits_count() {
        const BEFORE: u64 = (1 << 32) - 3;
        let sim = Sim::new(1);
        let (sender, receiver) = pair(&sim);
        sender.skip_datagrams(BEFORE);
        receiver.inner.look(|inner| {
            let In::Datagrams(from) = &mut inner.from else { panic!("no datagrams") };
            let stream = &mut from.streams[0];
            stream.received += BEFORE;
            stream.window = stream.window.take().map(|window| window.from(BEFORE));
            inner.core.sources[0].granted += BEFORE;
            inner.core.sources[0].told += BEFORE;
        });
        let (mut put, mut got) = (0, 0);
        for _ in 0..1000 {
            sim.advance(Duration::from_micros(50));
            if put < 5
                && let Some(buffer) = sender.try_acquire().unwrap()
            {
                sender.put(buffer, 8, &[0], State::MoreData).unwrap();
                put += 1;
            } else if put == 5 {
                sender.try_finish().unwrap();
            }
            match receiver.try_get().unwrap() {
                Received::Message(message) => got += usize::from(!message.is_empty()),
                Received::Empty => {}
                Received::End => return assert_eq!(got, 5),
            }
        }
        panic!("{put} put, {got} got: {:?} {:?}", sender.counters(), receiver.counters());
    }
}
