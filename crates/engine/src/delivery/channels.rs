//! Channels: deltas for leaders in other processes go into outboxes ([`crate::network`]); a leader
//! takes them in from its channels, a message at a time, where it stands.

use std::sync::Arc;

use millstream_state::Arena;

use crate::error::{Error, Result};
use crate::network::{self, CREDITED, Inlet, Net, Polled, Sealed, peer_error, sent_by};
use crate::progress::{Context, Owed, StageState};
use crate::shared::Shared;
use crate::stage::Stage;
use millstream_operators::budget::{Budget, Held, Kind};
use millstream_operators::event_time::END;
use millstream_operators::operator::{Delta, MergeTimes};
use millstream_operators::passed::{Format, Reader};
use millstream_operators::windowing::SliceId;

/// A leader's ends of the channels for deltas, by stage.
pub(super) struct Channels(Vec<Inlets>);

/// Where deltas of one stage come in.
struct Inlets {
    /// By process.
    inlets: Vec<Option<DeltaInlet>>,
    /// Number of the next inlet in turn.
    turn: usize,
}

struct DeltaInlet {
    inlet: Box<dyn Inlet>,
    delta: Incoming,
    ended: bool,
}

/// Received parts of a process's delta, besides merged rows.
struct Incoming {
    /// Arena for the next rows.
    arena: Arena,
    words: Vec<u64>,
    held: Option<Held>,
    /// Messages since the last delta's end.
    messages: u64,
    /// Reads what is passed through; `None` where nothing is.
    reader: Option<Reader>,
    /// Merging since the last delta's end.
    times: MergeTimes,
}

/// Error for a process that has ended its stream without its last watermark.
pub(super) fn ended_early(process: usize) -> Error {
    sent_by(process, Error::Internal("no more, without a last watermark".into()))
}

impl Incoming {
    /// Whether the last rows that were passed through are of a slice that begins later. The next
    /// are, most likely, of the same slice.
    fn is_later_than(&self, time: i64, state: &StageState) -> bool {
        let last = self.reader.as_ref().and_then(Reader::last_slice);
        last.is_some_and(|slice| state.stage.windowing().begin_of(slice) > time)
    }

    /// Takes in a part of what the next rows refer to.
    fn take_arena(
        &mut self,
        head: &network::Head,
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

    /// Merges a message; an internal error says what the process has sent.
    fn merge(
        &mut self,
        context: &mut Context,
        process: usize,
        message: &[u8],
        state: &mut StageState,
    ) -> Result<()> {
        let (head, body) = network::Head::decode(message)?;
        if head.kind != network::Kind::Arena && !self.words.is_empty() {
            return Err(Error::Internal("an arena without its end".into()));
        }
        self.messages += 1;
        let announced = announced(context, process, state);
        match head.kind {
            network::Kind::Arena => {
                self.take_arena(&head, network::words(body)?, &context.shared.budget)?;
            }
            network::Kind::Rows => {
                let slice = SliceId::from_word(head.rows_of);
                state.stage.check_slice(slice, announced)?;
                let words = network::words(body)?;
                let row_words = state.stage.program.layout().row_words() as u64;
                if head.count.checked_mul(row_words) != Some(words.len() as u64) {
                    let (rows, words) = (head.count, words.len());
                    return Err(Error::Internal(format!("{rows} rows in {words} words")));
                }
                let delta = Delta::Words { words, arena: &self.arena };
                let began = context.shared.env.now_ns();
                state.operator.merge(slice, delta)?;
                self.times.rows += head.count;
                self.times.ns += context.shared.env.now_ns().saturating_sub(began);
                context.note_merge(body.len(), state)?;
            }
            network::Kind::Passed => {
                let words = network::words(body)?;
                if words.len() as u64 != head.count {
                    let (words, count) = (words.len(), head.count);
                    return Err(Error::Internal(format!("{words} words of rows, not {count}")));
                }
                let began = context.shared.env.now_ns();
                let rows = self.take_in(words, announced, state)?;
                self.times.passed_rows += rows as u64;
                self.times.passed_ns += context.shared.env.now_ns().saturating_sub(began);
                let row_bytes = state.stage.program.layout().row_bytes();
                context.note_merge(body.len().max(rows * row_bytes), state)?;
            }
            network::Kind::Packed => {
                let words = network::words(body)?;
                if words.len() as u64 != head.count {
                    let (words, count) = (words.len(), head.count);
                    return Err(Error::Internal(format!("{words} words packed, not {count}")));
                }
                merge_packed(context, words, announced, state)?;
            }
            network::Kind::Delta => {
                self.check_end(context, process, &head, state)?;
                if !body.is_empty() && !head.has(CREDITED) {
                    return Err(Error::Internal("rows without credit".into()));
                }
                merge_packed(context, network::words(body)?, announced, state)?;
                self.end(context, process, &head, state)?;
            }
            kind => return Err(Error::Internal(format!("a message of kind {kind:?} to a leader"))),
        }
        Ok(())
    }

    /// Takes in rows that have been passed through; returns how many.
    fn take_in(&mut self, words: &[u64], announced: i64, state: &mut StageState) -> Result<usize> {
        let Some(reader) = &mut self.reader else {
            return Err(Error::Internal("rows to a stage that takes none".into()));
        };
        let StageState { operator, stage, .. } = state;
        let before = reader.rows();
        reader.read_rows(words, &mut |rows| {
            stage.check_slice(rows.slice(), announced)?;
            operator.take_in(rows)
        })?;
        Ok((reader.rows() - before) as usize)
    }

    /// Checks the end of a delta: nothing of it has come twice, is missing, or out of turn.
    fn check_end(
        &mut self,
        context: &Context,
        process: usize,
        head: &network::Head,
        state: &StageState,
    ) -> Result<()> {
        let helper = context.shared.settings.workers + process;
        let expected = state.expected[helper];
        if head.id as usize != process {
            return Err(Error::Internal(format!("a delta of process {}", head.id)));
        }
        if head.number != expected {
            return Err(Error::Internal(format!("epoch {}, not {expected}", head.number)));
        }
        if self.reader.as_ref().is_some_and(Reader::is_within_row) {
            return Err(Error::Internal("a delta that ends within a row".into()));
        }
        // The last one is this end.
        let messages = std::mem::take(&mut self.messages) - 1;
        let credited = head.has(CREDITED);
        if messages != head.count || messages > 0 && !credited {
            let (credit, count) = (if credited { "" } else { " without credit" }, head.count);
            let what = format!("{messages} messages of epoch {expected}, not {count}{credit}");
            return Err(Error::Internal(what));
        }
        Ok(())
    }

    /// Takes in the end of a delta.
    fn end(
        &mut self,
        context: &Context,
        process: usize,
        head: &network::Head,
        state: &mut StageState,
    ) -> Result<()> {
        let helper = context.shared.settings.workers + process;
        let credited = head.has(CREDITED);
        state.expected[helper] += 1;
        state.clock.advance(helper, head.watermark);
        state.cuts[process] = head.rows_of;
        (self.arena, self.held) = (Arena::default(), None);
        if credited {
            let times = std::mem::take(&mut self.times);
            state.owed.push(Owed { helper, told: false, times });
            context.note_usage(state);
            context.check_received(state)?;
            // The next delta may open as many windows as this one, not as all since the last batch.
            state.operator.begin_batch();
        }
        Ok(())
    }
}

/// Merges small segments that share a message.
fn merge_packed(
    context: &mut Context,
    mut words: &[u64],
    announced: i64,
    state: &mut StageState,
) -> Result<()> {
    let row_words = state.stage.program.layout().row_words();
    while let Some([slice, arena, rows, rest]) = network::packed(words, row_words)? {
        let slice = SliceId::from_word(slice[0]);
        state.stage.check_slice(slice, announced)?;
        let arena = Arena::from_words(arena.to_vec());
        state.operator.merge(slice, Delta::Words { words: rows, arena: &arena })?;
        context.note_merge(size_of_val(rows), state)?;
        words = rest;
    }
    Ok(())
}

impl DeltaInlet {
    fn receive(
        &mut self,
        context: &mut Context,
        process: usize,
        state: &mut StageState,
    ) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let DeltaInlet { inlet, delta, ended } = self;
        let mut merged = Ok(());
        let polled = inlet.try_receive(&mut |message| {
            merged = delta.merge(context, process, message, state);
        });
        let polled = polled.map_err(|e| peer_error(process, e))?;
        merged.map_err(|e| sent_by(process, e))?;
        *ended |= polled == Polled::End;
        let announced = announced(context, process, state);
        if polled == Polled::End && announced < END && !context.shared.has_enough() {
            return Err(ended_early(process));
        }
        Ok(polled == Polled::Message)
    }
}

impl Channels {
    /// Channels from the processes at the other ends; none in a job of a single process.
    pub(super) fn new(deltas_in: Vec<Vec<Option<Box<dyn Inlet>>>>, net: Option<&Net>) -> Channels {
        let inlet = |inlet, format: Option<Arc<Format>>| {
            let reader = format.map(Reader::new);
            let (arena, words, held, messages, times) = Default::default();
            let delta = Incoming { arena, words, held, messages, reader, times };
            DeltaInlet { inlet, delta, ended: false }
        };
        let inlets = |(stage, inlets): (usize, Vec<Option<_>>)| {
            let format = || net.and_then(|net| net.outboxes(stage).format.clone());
            let inlets = inlets.into_iter().map(|i| i.map(|i| inlet(i, format()))).collect();
            Inlets { inlets, turn: 0 }
        };
        Channels(deltas_in.into_iter().enumerate().map(inlets).collect())
    }

    /// Merges a message of a stage's delta from another process, in place; true if there was a
    /// message. Channels of processes that are ahead stay untouched: processes whose last passed
    /// rows belong to a window that begins later than `up_to`.
    pub(super) fn receive(
        &mut self,
        context: &mut Context,
        state: &mut StageState,
        up_to: i64,
    ) -> Result<bool> {
        let Some(Inlets { inlets, turn }) = self.0.get_mut(state.stage.number) else {
            return Ok(false);
        };
        let processes = inlets.len();
        for i in 0..processes {
            let process = (*turn + i) % processes;
            let Some(inlet) = &mut inlets[process] else { continue };
            if inlet.delta.is_later_than(up_to, state) && is_ahead(context, process, state) {
                continue;
            }
            let received = inlet.receive(context, process, state);
            if !matches!(received, Ok(false)) {
                // A delta is merged to its end before the next process has its turn.
                *turn = process;
                return received;
            }
        }
        Ok(false)
    }

    /// Inlets that have not ended, with the number of the process they come from.
    fn open_inlets(&mut self) -> impl Iterator<Item = (usize, &mut DeltaInlet)> {
        let inlets = self.0.iter_mut().flat_map(|stage| stage.inlets.iter_mut().enumerate());
        let inlets = inlets.filter_map(|(process, inlet)| Some((process, inlet.as_mut()?)));
        inlets.filter(|(_, inlet)| !inlet.ended)
    }

    /// One step of ending: takes the ends of streams. Returns whether all have ended.
    pub(super) fn finish(&mut self) -> Result<bool> {
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

    /// One step towards sleep. Returns whether all channels will ring.
    pub(super) fn park(&mut self) -> Result<bool> {
        let mut may_sleep = true;
        for (process, inlet) in self.open_inlets() {
            may_sleep &= inlet.inlet.park().map_err(|e| peer_error(process, e))?;
        }
        Ok(may_sleep)
    }
}

/// Watermark that a process has announced for a stage.
fn announced(context: &Context, process: usize, state: &StageState) -> i64 {
    state.clock.of(context.shared.settings.workers + process)
}

/// Whether a process has announced all windows that this one has passed. If it has not, this
/// leader waits for its watermark, whatever record far ahead it has met.
fn is_ahead(context: &Context, process: usize, state: &StageState) -> bool {
    state.passed(announced(context, process, state)) >= state.passed(state.low)
}

/// Hands what was sealed for a leader in another process over to be sent.
pub(super) fn ship(
    shared: &Shared,
    state: &StageState,
    leader: usize,
    sealed: Sealed,
) -> Result<()> {
    match state.outboxes(shared) {
        Some(outboxes) => outboxes.ship(leader, sealed),
        None => Err(Error::Internal(format!("there is no leader {leader}"))),
    }
}

/// Tells `process` that a delta of a stage has been merged, or that a further delta may come.
pub(super) fn return_credit(
    context: &Context,
    process: usize,
    stage: &Stage,
    flags: u8,
    times: &MergeTimes,
) -> Result<()> {
    let Some(net) = &context.shared.net else { return Ok(()) };
    net.post(process, network::credit(stage.number, context.leader, flags, times), Vec::new())
}
