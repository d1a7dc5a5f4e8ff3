//! The worker's side of other processes: deltas that come for it as a leader, letters that any
//! worker takes in, and where it sleeps.

use std::sync::Arc;
use std::time::Duration;

use millstream_state::Arena;

use super::{State, Worker};
use crate::budget::{Held, Kind};
use crate::cluster::{self, CREDITED, Ends, IDLE, Inlet, Polled, Sleeper, peer_error};
use crate::error::{Error, Result};
use crate::event_time::BEGINNING;
use crate::exchange::{Format, Receiver};
use crate::meter;

/// So long a worker that has nothing to do looks again and again before it goes to sleep, which
/// takes messages to every process, and whoever wakes it some 10 µs. Meanwhile it yields to
/// whatever else its processor has to do.
pub(crate) const AWAKE: Duration = Duration::from_micros(100);

/// State is counted whenever so large a part of the budget has been merged.
const COUNTED_SHARE: u64 = 128;

/// A sleeper looks again after this time: whatever happens wakes it, and its peers prove that they
/// answer.
const SLEEP_MAX: Duration = Duration::from_millis(250);

/// What a worker has of the job's network.
pub(crate) struct Remote {
    /// Deltas, by process.
    inlets: Vec<Option<DeltaInlet>>,
    sleeper: Box<dyn Sleeper>,
    /// Which inlet has its turn.
    turn: usize,
    /// When it first found nothing to do.
    idle_since_us: Option<i64>,
}

struct DeltaInlet {
    inlet: Box<dyn Inlet>,
    delta: Incoming,
    ended: bool,
}

/// What of a process's delta has come so far, beside the rows that have been merged.
struct Incoming {
    /// What the next rows refer to.
    arena: Arena,
    words: Vec<u64>,
    held: Option<Held>,
    /// Takes in what is passed through; `None` in a job without state.
    receiver: Option<Receiver>,
}

impl Incoming {
    /// Start of the slice of the last rows that were passed through. The next are, most likely, of
    /// the same.
    fn last_slice(&self) -> i64 {
        self.receiver.as_ref().map_or(BEGINNING, Receiver::last_slice)
    }
}

impl Remote {
    /// `format` is that of rows that are passed through.
    pub(super) fn new(ends: Ends, format: Option<Arc<Format>>) -> Remote {
        let inlet = |inlet| {
            let receiver = format.clone().map(Receiver::new);
            let (arena, words, held) = Default::default();
            DeltaInlet { inlet, delta: Incoming { arena, words, held, receiver }, ended: false }
        };
        let inlets = ends.deltas_in.into_iter().map(|i| i.map(inlet)).collect();
        Remote { inlets, sleeper: ends.sleeper, turn: 0, idle_since_us: None }
    }

    /// One step of ending: takes the ends of streams. Returns whether all have ended.
    pub(crate) fn finish(&mut self) -> Result<bool> {
        let mut ended = true;
        for (process, inlet) in self.inlets.iter_mut().enumerate() {
            let Some(inlet) = inlet.as_mut().filter(|inlet| !inlet.ended) else { continue };
            let mut surplus = false;
            let polled = inlet.inlet.try_receive(&mut |_| surplus = true);
            if surplus {
                let message = format!("process {process} sent a delta after its last");
                return Err(Error::Internal(message));
            }
            inlet.ended = polled.map_err(|e| peer_error(process, e))? == Polled::End;
            ended &= inlet.ended;
        }
        Ok(ended)
    }
}

impl Worker {
    /// Resumes the network: sends what waits and takes in what has come for the process.
    pub(super) fn exchange(&mut self, mut state: Option<&mut State>) -> Result<()> {
        let shared = self.shared.clone();
        let Some(net) = &shared.net else { return Ok(()) };
        let mut some = net.pump()?;
        some |= net.receive(|process, head, body| {
            for (_, segment) in shared.take_letter(process, head, &body)? {
                if let Some(state) = &mut state {
                    state.slices.reuse(segment);
                }
            }
            Ok(())
        })?;
        if some {
            self.wait_anew();
        }
        Ok(())
    }

    /// Merges one message of a delta that has come from another process, where it stands; true if
    /// there was any. The channels of processes that are ahead wait as they are: those whose last
    /// rows that were passed through are of a window that begins later than `up_to`.
    pub(super) fn merge_received(&mut self, state: &mut State, up_to: i64) -> Result<bool> {
        let Some(mut remote) = self.remote.take() else { return Ok(false) };
        let processes = remote.inlets.len();
        let mut result = Ok(false);
        for i in 0..processes {
            let process = (remote.turn + i) % processes;
            let Some(inlet) = &mut remote.inlets[process] else { continue };
            if inlet.delta.last_slice() > up_to && self.is_ahead(process, state) {
                continue;
            }
            result = self.merge_from(process, inlet, state);
            if !matches!(result, Ok(false)) {
                // A delta is merged to its end before the next process has its turn.
                remote.turn = process;
                break;
            }
        }
        self.remote = Some(remote);
        result
    }

    /// Whether a process has announced all windows that this one has passed. If it has not, this
    /// leader waits for its watermark, whatever record far ahead it has met.
    fn is_ahead(&self, process: usize, state: &State) -> bool {
        let passed = |watermark| self.shared.intake.passed(watermark);
        passed(state.clock.of(self.shared.settings.workers + process)) >= passed(state.low)
    }

    fn merge_from(
        &mut self,
        process: usize,
        from: &mut DeltaInlet,
        state: &mut State,
    ) -> Result<bool> {
        if from.ended {
            return Ok(false);
        }
        let DeltaInlet { inlet, delta, ended } = from;
        let mut merged = Ok(());
        let polled = inlet.try_receive(&mut |message| {
            merged = self.merge_message(process, message, delta, state);
        });
        let polled = polled.map_err(|e| peer_error(process, e))?;
        merged?;
        *ended |= polled == Polled::End;
        Ok(polled == Polled::Message)
    }

    fn merge_message(
        &mut self,
        process: usize,
        message: &[u8],
        delta: &mut Incoming,
        state: &mut State,
    ) -> Result<()> {
        let Incoming { arena, words, held, receiver } = delta;
        let broken = |what: String| Error::Internal(format!("process {process} sent {what}"));
        let (head, body) = cluster::Head::decode(message)?;
        match head.kind {
            cluster::Kind::Arena => {
                let part = cluster::words(body)?;
                if head.count > u64::from(u32::MAX) {
                    return Err(broken(format!("an arena of {} words", head.count)));
                }
                if head.number == 0 {
                    *words = Vec::with_capacity(head.count as usize);
                    let bytes = words.capacity() * 8;
                    *held = Some(self.shared.budget.hold(Kind::Segments, bytes));
                }
                let end = words.len() as u64 + part.len() as u64;
                if head.number != words.len() as u64 || end > head.count {
                    return Err(broken("an arena that is not in order".into()));
                }
                words.extend_from_slice(part);
                if end == head.count {
                    *arena = Arena::from_words(std::mem::take(words));
                }
            }
            cluster::Kind::Rows => {
                if self.shared.fires_at(head.start) <= state.frontier {
                    return Err(broken(format!("state for the fired window {}", head.start)));
                }
                let rows = cluster::words(body)?;
                let mut span = meter::span(meter::Kind::Merge);
                span.add(head.count as usize);
                let merged = state.slices.merge_words(head.start, rows, arena);
                drop(span);
                merged.map_err(|malformed| broken(malformed.what.into()))?;
                self.note_merge(body.len(), state)?;
            }
            cluster::Kind::Passed => {
                let shared = self.shared.clone();
                let Some((receiver, (grouping, _))) =
                    receiver.as_mut().zip(shared.aggregation.as_ref())
                else {
                    return Err(broken("rows to a job without state".into()));
                };
                let mut span = meter::span(meter::Kind::Update);
                let before = receiver.rows();
                let has_fired = |start| shared.fires_at(start) <= state.frontier;
                let passed = cluster::words(body)?;
                receiver.take_rows(passed, grouping, &mut state.slices, &has_fired)?;
                let rows = (receiver.rows() - before) as usize;
                span.add(rows);
                drop(span);
                self.note_merge(body.len().max(rows * grouping.layout.row_bytes()), state)?;
            }
            cluster::Kind::Delta => {
                let helper = self.shared.settings.workers + process;
                let expected = state.expected[helper];
                if head.number != expected {
                    return Err(broken(format!("epoch {}, not {expected}", head.number)));
                }
                state.expected[helper] += 1;
                state.clock.advance(helper, head.watermark);
                if let Some(net) = &self.shared.net {
                    net.note_peer(process, head.watermark, head.has(IDLE));
                }
                (*arena, *held) = (Arena::default(), None);
                if head.has(CREDITED) {
                    state.owed.push(helper);
                    self.note_usage(state);
                    self.check_received(state)?;
                    // The next delta may open as many windows as this one, not as all since the
                    // last batch.
                    state.slices.begin_batch();
                }
            }
            kind => return Err(broken(format!("a message of kind {kind:?} to a leader"))),
        }
        Ok(())
    }

    /// A message of rows that take so many bytes has been merged. State is counted now and then: a
    /// delta may be long.
    fn note_merge(&mut self, bytes: usize, state: &mut State) -> Result<()> {
        self.stats.merges += 1;
        state.uncounted += 1;
        state.uncounted_bytes += bytes as u64;
        if state.uncounted >= self.shared.tables_max
            || state.uncounted_bytes >= self.shared.settings.memory_bytes / COUNTED_SHARE
        {
            self.note_usage(state);
            // What would come next is judged at the delta's end, which may let a window fire.
            if self.shared.budget.is_exceeded() {
                self.check_received(state)?;
            }
        }
        Ok(())
    }

    /// What others hold of this leader's keys may be more than its process may use, whether or not
    /// that has input of its own: an error where nothing that can be fired or is on its way makes
    /// room.
    fn check_received(&self, state: &State) -> Result<()> {
        let fires_at = |start| self.shared.fires_at(start);
        let fires =
            state.firing.is_some() || state.slices.complete(state.clock.min(), fires_at).is_some();
        if fires || self.shared.budget.held(Kind::Segments) > 0 {
            return Ok(());
        }
        self.shared.budget.check().map(|_| ())
    }

    /// Hands what was sealed for a leader in another process over to be sent.
    pub(super) fn ship(
        &self,
        leader: usize,
        segments: Vec<(i64, millstream_state::Segment)>,
        held: Option<Held>,
        (watermark, idle): (i64, bool),
    ) -> Result<()> {
        let Some(net) = &self.shared.net else {
            return Err(Error::Internal(format!("there is no leader {leader}")));
        };
        net.ship((self.id, leader), segments, held, (watermark, idle))
    }

    /// Whether this process waits for sources that have been without data for their idle time,
    /// which others are told, so that they do not wait for it.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.net.is_some() && self.shared.intake.is_idle()
    }

    /// Returns credit for a delta of `process`.
    pub(super) fn return_credit_to(&self, process: usize) -> Result<()> {
        let Some(net) = &self.shared.net else { return Ok(()) };
        net.post(process, cluster::credit(self.leader), Vec::new())
    }

    /// There was something to do.
    pub(super) fn wait_anew(&mut self) {
        if let Some(remote) = &mut self.remote {
            remote.idle_since_us = None;
        }
    }

    /// Sleeps until something happens, or the clock reaches `until_us`. At first it only looks
    /// again.
    pub(super) fn wait(&mut self, until_us: Option<i64>) -> Result<()> {
        let Some(remote) = &mut self.remote else {
            self.shared.env.wait(self.id, until_us);
            return Ok(());
        };
        let now = self.shared.env.now_us();
        let since = *remote.idle_since_us.get_or_insert(now);
        if now - since < AWAKE.as_micros() as i64 {
            std::thread::yield_now();
            return Ok(());
        }
        let mut may_sleep = true;
        for (process, inlet) in remote.inlets.iter_mut().enumerate() {
            let Some(inlet) = inlet.as_mut().filter(|inlet| !inlet.ended) else { continue };
            may_sleep &= inlet.inlet.park().map_err(|e| peer_error(process, e))?;
        }
        if let Some(roles) = &mut self.repartition {
            may_sleep &= roles.park()?;
        }
        if self.id == 0
            && let Some(net) = &self.shared.net
        {
            may_sleep &= net.park()?;
        }
        if !may_sleep {
            std::thread::yield_now();
            return Ok(());
        }
        let left = until_us.map_or(SLEEP_MAX, |until| {
            Duration::from_micros((until - now).max(0) as u64).min(SLEEP_MAX)
        });
        let own = self.shared.net.as_ref().map_or(0, |net| net.place.process);
        remote.sleeper.wait(left).map_err(|e| peer_error(own, e))
    }

    /// One step of ending the worker's streams, when it is done. Returns whether all have ended.
    pub(crate) fn finish_streams(&mut self) -> Result<bool> {
        let mut ended = true;
        if let Some(remote) = &mut self.remote {
            ended &= remote.finish()?;
        }
        if let Some(roles) = &mut self.repartition {
            ended &= roles.finish()?;
        }
        Ok(ended)
    }
}
