//! A worker's side of the network: deltas that come to it as a leader, other messages, which any
//! worker takes in, and sleeping.

use std::sync::Arc;
use std::time::Duration;

use millstream_state::Arena;

use super::state::Owed;
use super::{State, Worker};
use crate::budget::{Budget, Held, Kind};
use crate::cluster::{
    self, CREDITED, Ends, Inlet, Net, Polled, Sealed, Sleeper, peer_error, sent_by,
};
use crate::error::{Error, Result};
use crate::event_time::{BEGINNING, END};
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
    /// By stage: where its deltas come in.
    stages: Vec<Inlets>,
    sleeper: Box<dyn Sleeper>,
    /// When it first found nothing to do.
    idle_since_us: Option<i64>,
    /// All that could wake it has been asked to, and it looks everywhere once more before it
    /// sleeps: what came before it asked does not ring.
    parked: bool,
}

/// Where deltas of one stage come in.
struct Inlets {
    /// By process.
    inlets: Vec<Option<DeltaInlet>>,
    /// Which of them has its turn.
    turn: usize,
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
    /// Messages since the last delta's end.
    messages: u64,
    /// Takes in what is passed through; `None` in a job without state.
    receiver: Option<Receiver>,
}

/// A process has ended its stream, and has not said that nothing comes any more.
pub(super) fn ended_early(process: usize) -> Error {
    sent_by(process, Error::Internal("no more, without a last watermark".into()))
}

impl Incoming {
    /// Start of the slice of the last rows that were passed through. The next are, most likely, of
    /// the same.
    fn last_slice(&self) -> i64 {
        self.receiver.as_ref().map_or(BEGINNING, Receiver::last_slice)
    }

    /// Takes in a part of what the next rows refer to.
    fn take_arena(
        &mut self,
        head: &cluster::Head,
        part: &[u64],
        budget: &Arc<Budget>,
    ) -> Result<()> {
        let words = &mut self.words;
        let end = words.len() as u64 + part.len() as u64;
        if head.number != words.len() as u64 || end > head.count {
            return Err(Error::Internal("an arena that is not in order".into()));
        }
        if head.number == 0 {
            let count = head.count as usize;
            // It is not known yet whether as much will come.
            if head.count > u64::from(u32::MAX) || words.try_reserve_exact(count).is_err() {
                return Err(Error::Internal(format!("an arena of {} words", head.count)));
            }
            self.held = Some(budget.hold(Kind::Segments, words.capacity() * 8));
        }
        words.extend_from_slice(part);
        if end == head.count {
            self.arena = Arena::from_words(std::mem::take(words));
        }
        Ok(())
    }
}

impl Remote {
    pub(super) fn new(ends: Ends, net: Option<&Net>) -> Remote {
        let inlet = |inlet, format: Option<Arc<Format>>| {
            let receiver = format.map(Receiver::new);
            let (arena, words, held, messages) = Default::default();
            let delta = Incoming { arena, words, held, messages, receiver };
            DeltaInlet { inlet, delta, ended: false }
        };
        let inlets = |(stage, inlets): (usize, Vec<Option<_>>)| {
            let format = || net.and_then(|net| net.delivery(stage).format.clone());
            let inlets = inlets.into_iter().map(|i| i.map(|i| inlet(i, format()))).collect();
            Inlets { inlets, turn: 0 }
        };
        let stages = ends.deltas_in.into_iter().enumerate().map(inlets).collect();
        Remote { stages, sleeper: ends.sleeper, idle_since_us: None, parked: false }
    }

    /// Inlets that have not ended, with the number of the process they come from.
    fn open_inlets(&mut self) -> impl Iterator<Item = (usize, &mut DeltaInlet)> {
        let inlets = self.stages.iter_mut().flat_map(|stage| stage.inlets.iter_mut().enumerate());
        let inlets = inlets.filter_map(|(process, inlet)| Some((process, inlet.as_mut()?)));
        inlets.filter(|(_, inlet)| !inlet.ended)
    }

    /// One step of ending: takes the ends of streams. Returns whether all have ended.
    pub(crate) fn finish(&mut self) -> Result<bool> {
        let mut ended = true;
        for (process, inlet) in self.open_inlets() {
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
    pub(super) fn exchange(&mut self, stages: &mut [State]) -> Result<()> {
        let shared = self.shared.clone();
        let Some(net) = &shared.net else { return Ok(()) };
        let mut some = net.pump()?;
        some |= net.receive(|process, head, body| {
            if let Some(freed) = shared.take_message(process, head, &body)?
                && let Some(state) = stages.get_mut(freed.stage)
            {
                freed.segments.into_iter().for_each(|(_, segment)| state.slices.reuse(segment));
            }
            Ok(())
        })?;
        if some {
            shared.pace.has_done(self.id);
            self.wait_anew();
            if self.id != 0 {
                net.wake_parked();
            }
        }
        Ok(())
    }

    /// Merges one message of a stage's delta that has come from another process, where it stands;
    /// true if there was any. The channels of processes that are ahead wait as they are: those
    /// whose last rows that were passed through are of a window that begins later than `up_to`.
    pub(super) fn merge_received(&mut self, state: &mut State, up_to: i64) -> Result<bool> {
        let Some(mut remote) = self.remote.take() else { return Ok(false) };
        let Inlets { inlets, turn } = &mut remote.stages[state.stage.number];
        let processes = inlets.len();
        let mut result = Ok(false);
        for i in 0..processes {
            let process = (*turn + i) % processes;
            let Some(inlet) = &mut inlets[process] else { continue };
            if inlet.delta.last_slice() > up_to && self.is_ahead(process, state) {
                continue;
            }
            result = self.merge_from(process, inlet, state);
            if !matches!(result, Ok(false)) {
                // A delta is merged to its end before the next process has its turn.
                *turn = process;
                break;
            }
        }
        self.remote = Some(remote);
        result
    }

    /// Whether a process has announced all windows that this one has passed. If it has not, this
    /// leader waits for its watermark, whatever record far ahead it has met.
    fn is_ahead(&self, process: usize, state: &State) -> bool {
        let announced = state.clock.of(self.shared.settings.workers + process);
        state.passed(announced) >= state.passed(state.low)
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
        merged.map_err(|e| sent_by(process, e))?;
        *ended |= polled == Polled::End;
        let announced = state.clock.of(self.shared.settings.workers + process);
        if polled == Polled::End && announced < END && !self.shared.has_enough() {
            return Err(ended_early(process));
        }
        Ok(polled == Polled::Message)
    }

    /// Merges a message; an internal error says what the process has sent.
    fn merge_message(
        &mut self,
        process: usize,
        message: &[u8],
        delta: &mut Incoming,
        state: &mut State,
    ) -> Result<()> {
        let (head, body) = cluster::Head::decode(message)?;
        if head.kind != cluster::Kind::Arena && !delta.words.is_empty() {
            return Err(Error::Internal("an arena without its end".into()));
        }
        delta.messages += 1;
        let announced = state.clock.of(self.shared.settings.workers + process);
        match head.kind {
            cluster::Kind::Arena => {
                delta.take_arena(&head, cluster::words(body)?, &self.shared.budget)?;
            }
            cluster::Kind::Rows => {
                state.stage.check_slice(head.start, announced)?;
                let rows = cluster::words(body)?;
                let row_words = state.stage.grouping.layout.row_words() as u64;
                if head.count.checked_mul(row_words) != Some(rows.len() as u64) {
                    let words = rows.len();
                    return Err(Error::Internal(format!("{} rows in {words} words", head.count)));
                }
                let mut span = meter::span(meter::Kind::Merge);
                span.add(head.count as usize);
                let merged = state.slices.merge_words(head.start, rows, &delta.arena);
                drop(span);
                merged.map_err(|malformed| Error::Internal(malformed.what.into()))?;
                self.note_merge(body.len(), state)?;
            }
            cluster::Kind::Passed => {
                let Some(receiver) = delta.receiver.as_mut() else {
                    return Err(Error::Internal("rows to a job without state".into()));
                };
                let stage = &state.stage;
                let passed = cluster::words(body)?;
                if passed.len() as u64 != head.count {
                    let words = passed.len();
                    return Err(Error::Internal(format!(
                        "{words} words of rows, not {}",
                        head.count
                    )));
                }
                let mut span = meter::span(meter::Kind::Update);
                let before = receiver.rows();
                let may_add = |start| stage.check_slice(start, announced);
                receiver.take_rows(passed, &stage.grouping, &mut state.slices, &may_add)?;
                let rows = (receiver.rows() - before) as usize;
                span.add(rows);
                drop(span);
                let row_bytes = stage.grouping.layout.row_bytes();
                self.note_merge(body.len().max(rows * row_bytes), state)?;
            }
            cluster::Kind::Delta => self.end_delta(process, &head, delta, state)?,
            kind => return Err(Error::Internal(format!("a message of kind {kind:?} to a leader"))),
        }
        Ok(())
    }

    /// Takes in the end of a delta: nothing of it has come twice, is missing, or out of turn.
    fn end_delta(
        &mut self,
        process: usize,
        head: &cluster::Head,
        delta: &mut Incoming,
        state: &mut State,
    ) -> Result<()> {
        let helper = self.shared.settings.workers + process;
        let expected = state.expected[helper];
        if head.id as usize != process {
            return Err(Error::Internal(format!("a delta of process {}", head.id)));
        }
        if head.number != expected {
            return Err(Error::Internal(format!("epoch {}, not {expected}", head.number)));
        }
        // The last one is this end.
        let messages = std::mem::take(&mut delta.messages) - 1;
        let credited = head.has(CREDITED);
        if messages != head.count || messages > 0 && !credited {
            let (credit, count) = (if credited { "" } else { " without credit" }, head.count);
            let what = format!("{messages} messages of epoch {expected}, not {count}{credit}");
            return Err(Error::Internal(what));
        }
        state.expected[helper] += 1;
        state.clock.advance(helper, head.watermark);
        (delta.arena, delta.held) = (Arena::default(), None);
        if credited {
            state.owed.push(Owed { helper, told: false });
            self.note_usage(state);
            self.check_received(state)?;
            // The next delta may open as many windows as this one, not as all since the last batch.
            state.slices.begin_batch();
        }
        Ok(())
    }

    /// A message of rows that take so many bytes has been merged. State is counted now and then: a
    /// delta may be long.
    pub(super) fn note_merge(&mut self, bytes: usize, state: &mut State) -> Result<()> {
        self.stats.merges += 1;
        state.uncounted += 1;
        state.uncounted_bytes += bytes as u64;
        if state.uncounted >= state.stage.limits.tables_max
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

    /// Whether a window of this stage or of a later one fires in this process, or is about to,
    /// which makes room.
    pub(super) fn fires_here(&self, state: &State) -> bool {
        let later = &self.shared.stages[state.stage.number + 1..];
        state.firing.is_some()
            || state.complete().is_some()
            || state.stage.fired() < state.frontier
            || later.iter().any(|stage| stage.is_firing())
    }

    /// What others hold of this leader's keys may be more than its process may use, whether or not
    /// that has input of its own: an error where nothing that can be fired or is on its way makes
    /// room.
    pub(super) fn check_received(&self, state: &State) -> Result<()> {
        match self.shared.budget.check() {
            Err(error)
                if self.shared.budget.held(Kind::Segments) == 0 && !self.fires_here(state) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Hands what was sealed for a leader in another process over to be sent.
    pub(super) fn ship(&self, state: &State, leader: usize, sealed: Sealed) -> Result<()> {
        let Some(net) = &self.shared.net else {
            return Err(Error::Internal(format!("there is no leader {leader}")));
        };
        net.delivery(state.stage.number).ship(leader, sealed)
    }

    /// Tells `process` of a stage's delta that has been merged, or that another one may come.
    pub(super) fn return_credit_to(&self, process: usize, stage: usize, flags: u8) -> Result<()> {
        let Some(net) = &self.shared.net else { return Ok(()) };
        net.post(process, cluster::credit(stage, self.leader, flags), Vec::new())
    }

    /// There was something to do.
    pub(super) fn wait_anew(&mut self) {
        if let Some(remote) = &mut self.remote {
            (remote.idle_since_us, remote.parked) = (None, false);
        }
    }

    /// Sleeps until something happens, or the clock reaches `until_us`. At first it only looks
    /// again, and once more when it has asked to be woken.
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
        if !std::mem::take(&mut remote.parked) {
            return self.park();
        }
        let left = until_us.map_or(SLEEP_MAX, |until| {
            Duration::from_micros((until - now).max(0) as u64).min(SLEEP_MAX)
        });
        let own = self.shared.net.as_ref().map_or(0, |net| net.place.process);
        remote.sleeper.wait(left).map_err(|e| peer_error(own, e))
    }

    /// One step towards sleep: asks all that may come to ring.
    fn park(&mut self) -> Result<()> {
        let Some(remote) = &mut self.remote else { return Ok(()) };
        let mut may_sleep = true;
        for (process, inlet) in remote.open_inlets() {
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
        remote.parked = may_sleep;
        if !may_sleep {
            std::thread::yield_now();
        }
        Ok(())
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
