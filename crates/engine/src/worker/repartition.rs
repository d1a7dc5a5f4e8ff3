//! A worker's roles in the exchanged baseline ([`crate::exchange`]). It takes in what has come over
//! its lanes, writes its batch into the slots of the receivers as far as there is credit, and fires
//! complete windows.

use std::sync::Arc;

use millstream_state::{Leaders, Load};

use super::remote::ended_early;
use super::{Fired, State, Step, Worker};
use crate::cluster::{self, Inlet, Lane, Lanes, Polled, peer_error, sent_by};
use crate::error::{Error, Result};
use crate::event_time::{BEGINNING, END};
use crate::exchange::{Format, Outlet, Receiver, Roles, Sender};
use crate::gather::Gather;
use crate::intake::{Only, Stamped, Taken};
use crate::meter;
use crate::pipeline::{Grouping, Records};
use crate::skipped::note_row;
use crate::slices::Slices;

/// What a worker of a repartitioned job has besides its state.
pub(crate) struct Repartition {
    sending: Option<Sending>,
    receiving: Option<Receiving>,
}

struct Sending {
    sender: Sender,
    /// To each receiver.
    ways: Vec<Way>,
    /// The last watermark that all receivers have been told, and what they are being told.
    marked: i64,
    marking: i64,
    /// When rows were last written, while some of them may wait in a slot that is not full.
    written_at_us: Option<i64>,
}

/// The way to one receiver.
struct Way {
    /// The process that it leads to.
    process: usize,
    /// `None` to the worker itself.
    lane: Option<Box<dyn Lane>>,
    /// What the worker sends to itself, and how many words of it wait to be taken in.
    own: Vec<u64>,
    waiting: usize,
    ended: bool,
    messages: u64,
    bytes: u64,
}

struct Receiving {
    /// From each sender; `None` is the worker itself.
    inlets: Vec<Option<Box<dyn Inlet>>>,
    receivers: Vec<Receiver>,
    ended: Vec<bool>,
    /// Of each sender: its process.
    processes: Vec<usize>,
    /// Whose turn it is.
    turn: usize,
}

/// Words of a slot that a worker fills for itself.
const OWN_WORDS: usize = 8 << 10;

impl Outlet for Way {
    fn slot(&mut self) -> Result<Option<&mut [u64]>> {
        let Some(lane) = &mut self.lane else {
            return Ok((self.waiting == 0).then_some(&mut self.own[..]));
        };
        let Some(payload) = lane.slot().map_err(|e| peer_error(self.process, e))? else {
            return Ok(None);
        };
        let misaligned = || Error::Internal("a slot that is not aligned".into());
        cluster::words_mut(payload).map(Some).ok_or_else(misaligned)
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

impl Sending {
    /// Goes on with the batch; see [`Sender::advance`].
    fn advance(&mut self, grouping: &Grouping) -> Result<bool> {
        let mut span = meter::span(meter::Kind::Partition);
        let before = self.sender.rows_sent();
        let all = self.sender.advance(&grouping.codec, &mut self.ways)?;
        span.add((self.sender.rows_sent() - before) as usize);
        Ok(all)
    }
}

impl Repartition {
    /// The roles of `worker` (among all).
    pub(super) fn new(
        worker: usize,
        roles: &Roles,
        workers: usize,
        grouping: &Grouping,
        lanes: Lanes,
    ) -> Repartition {
        let format = Arc::new(Format::new(&grouping.codec, &grouping.aggregates));
        let own = |lane: &Option<_>| vec![0; if lane.is_none() { OWN_WORDS } else { 0 }];
        let ways = roles.receivers.iter().zip(lanes.out).map(|(receiver, lane)| Way {
            process: receiver / workers,
            own: own(&lane),
            lane,
            waiting: 0,
            ended: false,
            messages: 0,
            bytes: 0,
        });
        let sending = roles.sender(worker).map(|_| Sending {
            sender: Sender::new(format.clone(), Leaders::even(roles.receivers.len())),
            ways: ways.collect(),
            marked: BEGINNING,
            marking: BEGINNING,
            written_at_us: None,
        });
        let receiving = roles.receiver(worker).map(|_| Receiving {
            ended: lanes.from.iter().map(Option::is_none).collect(),
            inlets: lanes.from,
            receivers: roles.senders.iter().map(|_| Receiver::new(format.clone())).collect(),
            processes: roles.senders.iter().map(|sender| sender / workers).collect(),
            turn: 0,
        });
        Repartition { sending, receiving }
    }

    /// One step towards sleep. Returns whether the worker may sleep.
    pub(super) fn park(&mut self) -> Result<bool> {
        let mut may_sleep = true;
        if let Some(receiving) = &mut self.receiving {
            for (sender, inlet) in receiving.inlets.iter_mut().enumerate() {
                let Some(inlet) = inlet.as_mut().filter(|_| !receiving.ended[sender]) else {
                    continue;
                };
                let parked = inlet.park();
                may_sleep &= parked.map_err(|e| peer_error(receiving.processes[sender], e))?;
            }
        }
        for way in self.sending.iter_mut().flat_map(|sending| &mut sending.ways) {
            if let Some(lane) = way.lane.as_mut().filter(|_| !way.ended) {
                may_sleep &= lane.park().map_err(|e| peer_error(way.process, e))?;
            }
        }
        Ok(may_sleep)
    }

    /// One step of ending all lanes in order. Returns whether all have ended.
    pub(super) fn finish(&mut self) -> Result<bool> {
        let mut all = true;
        for way in self.sending.iter_mut().flat_map(|sending| &mut sending.ways) {
            if let Some(lane) = way.lane.as_mut().filter(|_| !way.ended) {
                way.ended = lane.try_finish().map_err(|e| peer_error(way.process, e))?;
                all &= way.ended;
            }
        }
        let Some(receiving) = &mut self.receiving else { return Ok(all) };
        for (sender, inlet) in receiving.inlets.iter_mut().enumerate() {
            let Some(inlet) = inlet.as_mut().filter(|_| !receiving.ended[sender]) else { continue };
            let mut surplus = false;
            let polled = inlet.try_receive(&mut |_| surplus = true);
            let process = receiving.processes[sender];
            receiving.ended[sender] = polled.map_err(|e| peer_error(process, e))? == Polled::End;
            if surplus {
                let message = format!("process {process} sent rows after its last watermark");
                return Err(Error::Internal(message));
            }
            all &= receiving.ended[sender];
        }
        Ok(all)
    }
}

/// Takes in what a slot holds; see [`Receiver::take`].
fn take(
    receiver: &mut Receiver,
    words: &[u64],
    grouping: &Grouping,
    slices: &mut Slices,
    may_add: &dyn Fn(i64) -> Result<()>,
) -> Result<Option<i64>> {
    let mut span = meter::span(meter::Kind::Update);
    let before = receiver.rows();
    let marked = receiver.take(words, grouping, slices, may_add);
    let rows = (receiver.rows() - before) as usize;
    // The next slot may bring as much.
    slices.expect(Load { rows, text_bytes: size_of_val(words) });
    span.add(rows);
    marked
}

impl Worker {
    /// Resumes one coroutine of a repartitioned job: receive, send, fire, read.
    pub(super) fn step_repartition(
        &mut self,
        stages: &mut [State],
        roles: &mut Repartition,
    ) -> Result<Step> {
        let shared = self.shared.clone();
        self.exchange(stages)?;
        let [state] = stages else {
            return Err(Error::Internal("an exchange of several stages".into()));
        };
        let stage = state.stage.clone();
        let grouping = &stage.grouping;
        let leaves = roles.receiving.is_some() && self.leaves_received(state);
        if !leaves && self.receive(state, roles, grouping)? {
            return Ok(Step::Busy);
        }
        let Repartition { sending, receiving } = roles;
        let (mut blocked, mut sent_some) = (false, false);
        let mut low = END;
        if let Some(sending) = sending {
            let rows_before = sending.sender.rows_sent();
            blocked = !sending.advance(grouping)?;
            sent_some = sending.sender.rows_sent() > rows_before;
            if !blocked {
                shared.intake.finish(self.id, &mut self.lows)?;
                low = self.lows.first().copied().unwrap_or(END);
                blocked = !self.mark(sending, low)?;
            }
            self.stats.credit_stalls += u64::from(blocked);
        }
        let tight = shared.budget.tight();
        if tight {
            self.give_back(state);
        }
        if receiving.is_none() {
            if state.frontier < END {
                // It has nothing to fire.
                state.frontier = END;
                self.fired_up_to(state)?;
                return Ok(Step::Busy);
            }
        } else {
            match self.fire(std::slice::from_mut(state), 0, tight)? {
                Fired::Nothing => {}
                Fired::Some => return Ok(Step::Busy),
                Fired::NoMemory | Fired::NoCredit => return Ok(self.stall(stages)),
            }
        }
        let sent = sending.as_ref().is_none_or(|sending| sending.marked == END);
        let received = receiving.is_none() || state.clock.min() == END;
        if sent && received {
            self.count_sent(sending.as_ref());
            self.give_back(state);
            self.finish_with(stages);
            return Ok(Step::Done);
        }
        if leaves {
            return Ok(self.stall(stages));
        }
        let Some(sending) = sending.as_mut().filter(|sending| !blocked && sending.marked < END)
        else {
            if tight && shared.intake.reads_nothing() {
                // Nobody here can be slowed down.
                shared.budget.check()?;
            }
            let own = sending.as_ref().is_some_and(|s| s.ways.iter().any(|way| way.waiting > 0));
            return Ok(if own || sent_some { Step::Busy } else { self.pause(stages, None) });
        };
        if tight && (!shared.settled(&[low], |_| true) || self.others_can_give(0)) {
            return Ok(self.stall(stages));
        }
        let only = if tight { Only::Lowest } else { Only::Any };
        match shared.intake.take(self.id, &[only])? {
            Taken::Batch(batch) => {
                if tight && let Err(error) = shared.budget.check() {
                    if shared.settled(&[batch.stamp], |_| true) {
                        return Err(error);
                    }
                    shared.intake.put_back(self.id, batch);
                    return Ok(self.stall(stages));
                }
                self.send_batch(sending, grouping, &batch)?;
                Ok(Step::Busy)
            }
            Taken::Again => Ok(Step::Busy),
            Taken::Wait { until_us } => {
                let idle_us = shared.settings.epoch_max_idle_us();
                let flush = sending.written_at_us.map(|at| at.saturating_add(idle_us));
                Ok(self.pause(stages, [until_us, flush].into_iter().flatten().min()))
            }
            Taken::Held => Ok(self.stall(stages)),
            Taken::Ended => Ok(self.pause(stages, None)),
        }
    }

    /// Whether what has come stays in its channels for now: it does not fit, and windows fire, here
    /// or elsewhere, which have all that they need. After that there may be room.
    fn leaves_received(&self, state: &State) -> bool {
        !matches!(self.shared.budget.check(), Ok(true))
            && (self.fires_here(state) || self.others_behind(state))
    }

    /// Whether another leader has not fired what this one has.
    fn others_behind(&self, state: &State) -> bool {
        let behind = |gather: &Gather| gather.others_behind(state.stage.number, state.frontier);
        self.shared.gathers.iter().any(behind)
    }

    /// Takes in a slot, if one has come.
    fn receive(
        &mut self,
        state: &mut State,
        roles: &mut Repartition,
        grouping: &Grouping,
    ) -> Result<bool> {
        let Some(receiving) = &mut roles.receiving else { return Ok(false) };
        let own = roles.sending.iter_mut().flat_map(|sending| &mut sending.ways);
        let mut own = own.filter(|way| way.waiting > 0);
        let (senders, shared) = (receiving.inlets.len(), self.shared.clone());
        let State { slices, clock, stage, .. } = &mut *state;
        for i in 0..senders {
            let sender = (receiving.turn + i) % senders;
            let receiver = &mut receiving.receivers[sender];
            let announced = clock.of(sender);
            let may_add = |start| stage.check_slice(start, announced);
            let mut marked = Ok(None);
            match &mut receiving.inlets[sender] {
                None => {
                    let Some(way) = own.next() else { continue };
                    let words = &way.own[..std::mem::take(&mut way.waiting)];
                    marked = take(receiver, words, grouping, slices, &may_add);
                }
                Some(_) if receiving.ended[sender] => continue,
                Some(inlet) => {
                    let polled = inlet.try_receive(&mut |message| {
                        marked = cluster::words(message)
                            .and_then(|words| take(receiver, words, grouping, slices, &may_add));
                    });
                    match polled.map_err(|e| peer_error(receiving.processes[sender], e))? {
                        Polled::Empty => continue,
                        Polled::End => {
                            receiving.ended[sender] = true;
                            if clock.of(sender) < END && !shared.has_enough() {
                                return Err(ended_early(receiving.processes[sender]));
                            }
                            continue;
                        }
                        Polled::Message => {}
                    }
                }
            }
            let process = receiving.processes[sender];
            if let Some(watermark) = marked.map_err(|e| sent_by(process, e))? {
                clock.advance(sender, watermark);
            }
            receiving.turn = sender + 1;
            self.stats.merges += 1;
            self.note_usage(state);
            if shared.budget.is_exceeded() && !self.others_behind(state) {
                self.check_received(state)?;
            }
            // Windows that it has opened are not to be expected again.
            state.slices.begin_batch();
            return Ok(true);
        }
        Ok(false)
    }

    /// Tells receivers how far this sender is, if it may let a window fire, and sends what has
    /// waited for too long. False if credit is missing.
    fn mark(&mut self, sending: &mut Sending, low: i64) -> Result<bool> {
        let shared = &self.shared;
        if sending.marking == sending.marked {
            let passed = shared.intake.passed(low) > shared.intake.passed(sending.marked);
            if passed || low == END && sending.marked < END {
                sending.marking = low;
                self.stats.epochs += 1;
            }
        }
        if sending.marking > sending.marked {
            if !sending.sender.mark(sending.marking, &mut sending.ways)? {
                return Ok(false);
            }
            (sending.marked, sending.written_at_us) = (sending.marking, None);
        }
        let idle_us = shared.settings.epoch_max_idle_us();
        if sending.written_at_us.is_some_and(|at| shared.env.now_us() >= at + idle_us) {
            sending.sender.flush(&mut sending.ways)?;
            sending.written_at_us = None;
        }
        Ok(true)
    }

    /// Runs a batch through the pipeline up to the exchange.
    fn send_batch(
        &mut self,
        sending: &mut Sending,
        grouping: &Grouping,
        batch: &Stamped,
    ) -> Result<()> {
        let mut span = meter::span(meter::Kind::Batch);
        span.add(batch.prepared.batch.num_rows());
        self.count(batch);
        let shared = self.shared.clone();
        let edges = shared.flow.sources.iter().flat_map(|feeds| &feeds.takers.edges).next();
        let edge = edges.ok_or_else(|| Error::Internal("an exchange of no records".into()))?;
        let all = Records { stamped: batch, rows: &batch.prepared.batch, places: None };
        let taken = self.projected(edge, &all)?;
        let records = taken.as_ref().map_or(all, |taken| Records::taken(taken, batch));
        let mut by_slice = Vec::new();
        let of = (&records, edge.taking.plain_filter());
        let dropped = grouping.assign(of, &mut self.buffers, &mut by_slice);
        let dropped = dropped.map_err(|error| self.of_record(error, grouping, &records, edge))?;
        self.stats.late_records += dropped.late;
        self.stats.null_time_records += dropped.null_time;
        self.stats.unusable_time_records += dropped.unusable_time;
        let name = self.shared.intake.name(batch.split);
        note_row(&mut self.stats.first_null_time, batch, dropped.first_null_time, name);
        note_row(&mut self.stats.first_unusable_time, batch, dropped.first_unusable_time, name);
        let evaluated = grouping.evaluate(records.rows, &mut by_slice);
        if let Some((keys, arguments)) =
            evaluated.map_err(|error| self.of_record(error, grouping, &records, edge))?
        {
            sending.sender.begin(keys, arguments, by_slice)?;
            sending.advance(grouping)?;
            sending.written_at_us = Some(self.shared.env.now_us());
        }
        Ok(())
    }

    fn count_sent(&mut self, sending: Option<&Sending>) {
        let Some(sending) = sending else { return };
        let place = self.shared.net.as_ref().map_or(0, |net| net.place.process);
        self.stats.rows_shipped = sending.sender.rows_sent();
        for (receiver, way) in sending.ways.iter().enumerate() {
            if way.process != place {
                self.stats.rows_sent += sending.sender.rows_sent_to(receiver);
                self.stats.messages_sent += way.messages;
                self.stats.bytes_sent += way.bytes;
            }
        }
    }
}
