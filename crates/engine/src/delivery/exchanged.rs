//! The exchanged baseline: records are partitioned by key and sent to the workers that own the keys
//! ([`crate::exchange`]).
//!
//! A sender writes its batch into the slots of the receivers as far as there is credit. It takes no
//! further batch until then. A receiver updates its tables from a slot at a time. The sender's
//! watermark comes behind its rows, in the same slots.

use std::sync::Arc;

use millstream_state::{Leaders, Load};

use super::channels::{Channels, ended_early};
use super::contract::Delivery;
use super::epoch::{is_idle, lets_fire};
use crate::error::{Error, Result};
use crate::exchange::Sender;
use crate::gather::Gather;
use crate::network::{self, Inlet, Lane, Lanes, Polled, peer_error, sent_by};
use crate::obstacle::Obstacle;
use crate::progress::{Context, StageState};
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::operator::{Batch, Updated};
use millstream_operators::passed::{Format, Outlet, Reader};

/// A worker's roles.
pub(super) struct Exchanged {
    sending: Option<ExchangeSender>,
    receiving: Option<Receiving>,
    /// The last batch, or a watermark, has not been written for lack of credit.
    blocked: bool,
    /// Some of it has been written all the same, and there may be credit for more already.
    goes_on: bool,
    /// Channels between processes; unused here.
    channels: Channels,
}

struct ExchangeSender {
    sender: Sender,
    /// To each receiver.
    ways: Vec<ExchangeLane>,
    /// The watermark that receivers are being told.
    marking: i64,
}

/// The way to one receiver.
struct ExchangeLane {
    /// The receiver's process.
    process: usize,
    /// `None` to the worker itself.
    lane: Option<Box<dyn Lane>>,
    /// Words that the worker sends to itself, and the number of words to be taken in.
    own: Vec<u64>,
    waiting: usize,
    ended: bool,
    messages: u64,
    bytes: u64,
}

struct Receiving {
    from: Vec<FromSender>,
    /// Whose turn it is.
    turn: usize,
    /// Received rows stay in their channels for now.
    leaves: bool,
}

/// The way from one sender.
struct FromSender {
    /// Its process.
    process: usize,
    /// `None` is the worker itself.
    inlet: Option<Box<dyn Inlet>>,
    reader: Reader,
    ended: bool,
}

/// Words of a slot that a worker fills for itself.
const OWN_WORDS: usize = 8 << 10;

impl Outlet for ExchangeLane {
    fn slot(&mut self) -> Result<Option<&mut [u64]>> {
        let Some(lane) = &mut self.lane else {
            return Ok((self.waiting == 0).then_some(&mut self.own[..]));
        };
        let Some(payload) = lane.slot().map_err(|e| peer_error(self.process, e))? else {
            return Ok(None);
        };
        let misaligned = || Error::Internal("a slot that is not aligned".into());
        network::words_mut(payload).map(Some).ok_or_else(misaligned)
    }

    fn send(&mut self, words: usize) -> Result<()> {
        let Some(lane) = &mut self.lane else {
            self.waiting = words;
            return Ok(());
        };
        self.messages += 1;
        self.bytes += 8 * words as u64;
        lane.send(8 * words).map_err(|e| peer_error(self.process, e))
    }
}

impl ExchangeSender {
    /// Goes on with the batch; see [`Sender::advance`].
    fn advance(&mut self) -> Result<bool> {
        self.sender.advance(&mut self.ways)
    }

    /// Tells receivers how far this sender is, if it may let a window fire, and sends what has
    /// waited for too long. False if credit is missing.
    fn mark(&mut self, context: &mut Context, state: &mut StageState) -> Result<bool> {
        if self.marking == state.announced && lets_fire(state) {
            self.marking = state.low;
            context.stats.epochs += 1;
        }
        if self.marking > state.announced {
            if !self.sender.mark(self.marking, &mut self.ways)? {
                return Ok(false);
            }
            (state.announced, state.changed_at_us) = (self.marking, None);
        }
        if is_idle(context, state) {
            self.sender.flush(&mut self.ways)?;
            state.changed_at_us = None;
        }
        Ok(true)
    }

    /// Words that the worker has sent to itself, and has not taken in yet.
    fn take_own(&mut self) -> Option<&[u64]> {
        let way = self.ways.iter_mut().find(|way| way.waiting > 0)?;
        let words = std::mem::take(&mut way.waiting);
        Some(&way.own[..words])
    }
}

impl FromSender {
    /// Takes in a slot, if one has come; `own` is what the worker has sent to itself. Returns the
    /// last watermark in it. `may_end`: also before the last watermark.
    fn receive(
        &mut self,
        own: Option<&mut ExchangeSender>,
        state: &mut StageState,
        announced: i64,
        may_end: bool,
    ) -> Result<Option<Option<i64>>> {
        let reader = &mut self.reader;
        let mut marked = Ok(None);
        match &mut self.inlet {
            None => {
                let Some(words) = own.and_then(ExchangeSender::take_own) else { return Ok(None) };
                marked = take_in(reader, words, state, announced);
            }
            Some(_) if self.ended => return Ok(None),
            Some(inlet) => {
                let polled = inlet.try_receive(&mut |message| {
                    let words = network::words(message);
                    marked = words.and_then(|words| take_in(reader, words, state, announced));
                });
                match polled.map_err(|e| peer_error(self.process, e))? {
                    Polled::Empty => return Ok(None),
                    Polled::End => {
                        self.ended = true;
                        return match announced < END && !may_end {
                            true => Err(ended_early(self.process)),
                            false => Ok(None),
                        };
                    }
                    Polled::Message => {}
                }
            }
        }
        marked.map(Some).map_err(|e| sent_by(self.process, e))
    }

    /// One step of ending. Returns whether the stream has ended.
    fn finish(&mut self) -> Result<bool> {
        let Some(inlet) = self.inlet.as_mut().filter(|_| !self.ended) else { return Ok(true) };
        let mut surplus = false;
        let polled = inlet.try_receive(&mut |_| surplus = true);
        self.ended = polled.map_err(|e| peer_error(self.process, e))? == Polled::End;
        if surplus {
            let message = format!("process {} sent rows after its last watermark", self.process);
            return Err(Error::Internal(message));
        }
        Ok(self.ended)
    }
}

/// Takes in what a slot holds, of a sender that has announced a watermark; returns the last
/// watermark in it.
fn take_in(
    reader: &mut Reader,
    words: &[u64],
    state: &mut StageState,
    announced: i64,
) -> Result<Option<i64>> {
    let before = reader.rows();
    let StageState { operator, stage, .. } = state;
    let marked = reader.read(words, &mut |rows| {
        stage.check_slice(rows.slice(), announced)?;
        operator.take_in(rows)
    });
    let rows = (reader.rows() - before) as usize;
    // The next slot may bring as much.
    state.expect(Load { rows, text_bytes: size_of_val(words) });
    marked
}

/// The only stage of the job.
fn only(stages: &mut [StageState]) -> Result<&mut StageState> {
    match stages {
        [state] => Ok(state),
        _ => Err(Error::Internal("an exchange of several stages".into())),
    }
}

/// Whether some other leader has not fired a window that this leader has fired.
fn others_behind(context: &Context, state: &StageState) -> bool {
    let behind = |gather: &Gather| gather.others_behind(state.stage.number, state.frontier);
    context.shared.gathers.iter().any(behind)
}

impl Exchanged {
    /// The roles of a worker.
    pub(super) fn new(
        context: &Context,
        format: &Arc<Format>,
        lanes: Lanes,
        channels: Channels,
    ) -> Exchanged {
        let (roles, workers) = (&context.shared.roles, context.shared.settings.workers);
        let own = |lane: &Option<_>| vec![0; if lane.is_none() { OWN_WORDS } else { 0 }];
        let ways = roles.receivers.iter().zip(lanes.out).map(|(receiver, lane)| ExchangeLane {
            process: receiver / workers,
            own: own(&lane),
            lane,
            waiting: 0,
            ended: false,
            messages: 0,
            bytes: 0,
        });
        let sending = roles.sender(context.leader).map(|_| ExchangeSender {
            sender: Sender::new(format.clone(), Leaders::even(roles.receivers.len())),
            ways: ways.collect(),
            marking: BEGINNING,
        });
        let from = roles.senders.iter().zip(lanes.from).map(|(sender, inlet)| FromSender {
            process: sender / workers,
            ended: inlet.is_none(),
            inlet,
            reader: Reader::new(format.clone()),
        });
        let receiving = roles.receiver(context.leader).map(|_| Receiving {
            from: from.collect(),
            turn: 0,
            leaves: false,
        });
        Exchanged { sending, receiving, blocked: false, goes_on: false, channels }
    }

    /// Whether rows of the worker for itself may be taken in.
    fn has_own(&self) -> bool {
        let leaves = self.receiving.as_ref().is_none_or(|receiving| receiving.leaves);
        let ways = self.sending.iter().flat_map(|sending| &sending.ways);
        !leaves && ways.into_iter().any(|way| way.waiting > 0)
    }
}

impl Delivery for Exchanged {
    /// Takes in a received slot. The slot stays in its channel if it does not fit while complete
    /// windows fire, here or elsewhere: afterwards there may be room.
    fn receive(&mut self, context: &mut Context, stages: &mut [StageState]) -> Result<bool> {
        let state = only(stages)?;
        let Some(receiving) = &mut self.receiving else { return Ok(false) };
        receiving.leaves = !matches!(context.shared.budget.check(), Ok(true))
            && (context.fires_here(state) || others_behind(context, state));
        if receiving.leaves {
            return Ok(false);
        }
        let senders = receiving.from.len();
        for i in 0..senders {
            let sender = (receiving.turn + i) % senders;
            let (announced, may_end) = (state.clock.of(sender), context.shared.has_enough());
            let (from, own) = (&mut receiving.from[sender], self.sending.as_mut());
            let received = from.receive(own, state, announced, may_end)?;
            let Some(marked) = received else { continue };
            if let Some(watermark) = marked {
                state.clock.advance(sender, watermark);
            }
            receiving.turn = sender + 1;
            context.stats.merges += 1;
            context.note_usage(state);
            if context.shared.budget.is_exceeded() && !others_behind(context, state) {
                context.check_received(state)?;
            }
            // Windows that it has opened are not to be expected again.
            state.operator.begin_batch();
            return Ok(true);
        }
        Ok(false)
    }

    fn announce(&mut self, context: &mut Context, stages: &mut [StageState]) -> Result<bool> {
        let Some(sending) = &mut self.sending else { return Ok(false) };
        let before = sending.sender.rows_sent();
        self.blocked = !sending.advance()?;
        self.goes_on = self.blocked && sending.sender.rows_sent() > before;
        if self.blocked {
            return Ok(false);
        }
        context.note_lows(stages)?;
        self.blocked = !sending.mark(context, only(stages)?)?;
        Ok(false)
    }

    fn hold(&self, context: &Context, state: &StageState) -> Result<Option<Obstacle>> {
        let shared = &context.shared;
        if self.receiving.as_ref().is_some_and(|receiving| receiving.leaves) {
            return Ok(Some(Obstacle::Memory));
        }
        if self.blocked {
            return Ok(Some(Obstacle::Credit));
        }
        if self.sending.is_some() && state.announced < END {
            return Ok(None);
        }
        if shared.budget.tight() && shared.intake.reads_nothing() && shared.queued_bytes() == 0 {
            // Nobody here can be slowed down.
            shared.budget.check()?;
        }
        Ok(Some(Obstacle::NoInput))
    }

    /// Rows of a batch go to slots, for the most part of other workers. Growth is foreseen as slots
    /// are taken in.
    fn has_room(
        &self,
        context: &Context,
        _: &mut StageState,
        _: Load,
        tight: bool,
        settled: &dyn Fn() -> bool,
    ) -> Result<bool> {
        match tight.then(|| context.shared.budget.check()) {
            Some(Err(error)) if settled() => Err(error),
            Some(Err(_)) => Ok(false),
            _ => Ok(true),
        }
    }

    /// Runs a batch through the pipeline up to the exchange.
    fn update(
        &mut self,
        context: &mut Context,
        state: &mut StageState,
        batch: &Batch<'_>,
    ) -> Result<Updated> {
        let Some(sending) = &mut self.sending else {
            return Err(Error::Internal("records for a worker that sends none".into()));
        };
        let (passing, rows) = state.stage.program.keyed(batch)?;
        if let Some(rows) = rows {
            sending.sender.begin(rows)?;
            sending.advance()?;
            state.changed_at_us = Some(context.shared.env.now_us());
        }
        Ok(Updated { passing, ..Updated::default() })
    }

    fn has_mail(&self, _: &Context) -> bool {
        self.has_own() || self.goes_on
    }

    /// True if all senders have announced their ends. A worker that only receives has no unread
    /// input.
    fn is_over(&self, _: &Context, stages: &[StageState]) -> bool {
        stages.iter().all(StageState::is_over)
    }

    fn count(&self, context: &mut Context) {
        let Some(ExchangeSender { sender, ways, .. }) = &self.sending else { return };
        let place = context.shared.net.as_ref().map_or(0, |net| net.place.process);
        let stats = &mut context.stats;
        stats.rows_shipped = sender.rows_sent();
        let others = ways.iter().enumerate().filter(|(_, way)| way.process != place);
        (stats.rows_sent, stats.messages_sent, stats.bytes_sent) = (0, 0, 0);
        for (receiver, way) in others {
            stats.rows_sent += sender.rows_sent_to(receiver);
            stats.messages_sent += way.messages;
            stats.bytes_sent += way.bytes;
        }
    }

    fn park(&mut self) -> Result<bool> {
        let mut may_sleep = self.channels.park()?;
        for from in self.receiving.iter_mut().flat_map(|receiving| &mut receiving.from) {
            if let Some(inlet) = from.inlet.as_mut().filter(|_| !from.ended) {
                may_sleep &= inlet.park().map_err(|e| peer_error(from.process, e))?;
            }
        }
        for way in self.sending.iter_mut().flat_map(|sending| &mut sending.ways) {
            if let Some(lane) = way.lane.as_mut().filter(|_| !way.ended) {
                may_sleep &= lane.park().map_err(|e| peer_error(way.process, e))?;
            }
        }
        Ok(may_sleep)
    }

    fn finish(&mut self) -> Result<bool> {
        let mut all = self.channels.finish()?;
        for way in self.sending.iter_mut().flat_map(|sending| &mut sending.ways) {
            if let Some(lane) = way.lane.as_mut().filter(|_| !way.ended) {
                way.ended = lane.try_finish().map_err(|e| peer_error(way.process, e))?;
                all &= way.ended;
            }
        }
        for from in self.receiving.iter_mut().flat_map(|receiving| &mut receiving.from) {
            all &= from.finish()?;
        }
        Ok(all)
    }
}
