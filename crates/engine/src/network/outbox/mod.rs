//! An outbox: what a process has for one leader in another process (paper, section 7.2.2, steps 2
//! and 3).
//!
//! The workers of a process seal their fragments one after the other. Rows for the same leader meet
//! here and leave as a single delta, with the watermark that all workers have reached. The rows are
//! sent from where they are, slot after slot as there is credit, and the segments stay unchanged
//! until the leader has merged them. At most two deltas with rows for each worker are in flight to
//! a leader, more only for lack of memory.
//!
//! Passed rows need not be kept. As long as the outbox is empty, they are written straight into the
//! open slot, as keys and arguments, like exchanged rows. Such rows belong to the next delta.
//! Without a free slot, workers wait for a slot, since keeping rows that can be passed through a
//! little later costs more.

mod delta;
mod sending;

use std::collections::VecDeque;
use std::sync::Arc;

use millstream_flow::channel::Result;
use millstream_state::{Heap, RowLayout, Segment};

use super::combine::Combiner;
use super::port::{Outlet, peer_error};
use super::wire::{GO_ON, Head, Kind, MERGED};
use crate::error;
use crate::obstacle::Obstacle;
use crate::roles::Place;
use delta::{OutgoingDelta, Pending, Sent};
use millstream_operators::budget::Held;
use millstream_operators::event_time::BEGINNING;
use millstream_operators::passed::{self, Format, Outgoing, Parcel, PassedRows, Pool, fill};
use millstream_operators::windowing::SliceId;

/// Number of a worker's deltas with rows that may wait for a leader; then the sender takes no
/// further batch.
pub(crate) const DELTAS_IN_FLIGHT_MAX: usize = 2;

pub(crate) struct Outbox {
    outlet: Box<dyn Outlet>,
    layout: Arc<RowLayout>,
    /// The sending process, for the leader.
    process: u32,
    /// Per worker of this process: the watermark up to which it has handed over everything.
    announced: Vec<i64>,
    /// Last watermark announced to the leader.
    told: i64,
    /// Per worker of this process: the last cut before which it has handed over everything.
    cuts: Vec<u64>,
    /// The last cut of which the leader has been told.
    told_cut: u64,
    epoch: u64,
    /// Messages up to the end of the last delta.
    messages_ended: u64,
    pending: Pending,
    /// Where several workers may hold rows of the same key.
    combiner: Option<Combiner>,
    open: Open,
    sending: Option<OutgoingDelta>,
    in_flight: VecDeque<Sent>,
    /// Merged deltas for which the leader lets no further delta come yet.
    merged: usize,
    limits: OutboxLimits,
    counters: Shipped,
}

/// Rows that are passed through before the next delta.
#[derive(Default)]
struct Open {
    /// Words of the open slot that they have taken.
    words: usize,
    /// Size of these passed rows since the last delta as rows of state.
    passed_bytes: usize,
    /// A worker's epoch has ended since some of these were passed through.
    ended: bool,
    /// There was no slot for rows that were to be passed through when one was last asked for.
    lacks_slot: bool,
}

/// How much there may be at the most.
struct OutboxLimits {
    /// Rows that wait to be merged with rows of other workers.
    pending_bytes: usize,
    /// Rows passed through since the last delta.
    passed_bytes: usize,
    /// An epoch ends when a fragment has so many.
    fragment_bytes: usize,
    /// Deltas with rows that may be on their way.
    deltas: usize,
}

/// Layout and limits of a stage's shipments.
pub(crate) struct Shipping {
    /// Of its rows; of no words in a job without state.
    pub(crate) layout: Arc<RowLayout>,
    /// How they are passed through; `None` where they are not.
    pub(crate) format: Option<Arc<Format>>,
    /// An epoch ends when a fragment has so many.
    pub(crate) fragment_bytes: usize,
    /// So many that have been passed through are shipped as a delta.
    pub(crate) passed_bytes: usize,
}

/// A parcel sealed by a worker for a leader.
pub(crate) struct Sealed {
    /// The worker.
    pub(crate) worker: usize,
    pub(crate) parcel: Parcel,
    pub(crate) held: Option<Held>,
    /// The watermark that the parcel covers.
    pub(crate) watermark: i64,
    /// The worker has handed over all rows before this cut; 0 before the first.
    pub(crate) cut: u64,
}

/// Rows that wait to be merged with those of other workers take so many bytes at the most.
const COMBINED_BYTES_MAX: usize = 2 << 20;

/// Counters of shipments.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Shipped {
    pub(crate) deltas: u64,
    pub(crate) empty_deltas: u64,
    pub(crate) segments: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Of `bytes`, those that were copied to be sent.
    pub(crate) copied: u64,
    pub(crate) messages: u64,
    /// Rows merged with rows of other workers before.
    pub(crate) combined: u64,
    /// Of `rows`, those that were passed straight into slots.
    pub(crate) passed: u64,
    /// Times that a slot was wanted and there was no credit.
    pub(crate) credit_stalls: u64,
}

impl Shipped {
    /// Adds what has been shipped elsewhere.
    pub(super) fn add(&mut self, other: &Shipped) {
        self.deltas += other.deltas;
        self.empty_deltas += other.empty_deltas;
        self.segments += other.segments;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.copied += other.copied;
        self.messages += other.messages;
        self.combined += other.combined;
        self.passed += other.passed;
        self.credit_stalls += other.credit_stalls;
    }
}

/// The slot that rows passed through are written into.
struct OpenSlot<'a> {
    outlet: &'a mut dyn Outlet,
    counters: &'a mut Shipped,
    process: usize,
}

/// Sends the open slot; false if there is no room for that now.
fn send_open(outlet: &mut dyn Outlet, counters: &mut Shipped, words: usize) -> Result<bool> {
    send_slot(outlet, counters, Kind::Passed, words)
}

/// Sends the open slot as a message of a kind; false if there is no room for that now.
fn send_slot(
    outlet: &mut dyn Outlet,
    counters: &mut Shipped,
    kind: Kind,
    words: usize,
) -> Result<bool> {
    let head = Head { count: words as u64, ..Head::new(kind) };
    if !outlet.send(&head, words)? {
        return Ok(false);
    }
    counters.messages += 1;
    counters.bytes += 8 * words as u64;
    Ok(true)
}

impl passed::Outlet for OpenSlot<'_> {
    fn slot(&mut self) -> error::Result<Option<&mut [u64]>> {
        self.outlet.slot().map_err(|e| peer_error(self.process, e))
    }

    fn send(&mut self, words: usize) -> error::Result<()> {
        let sent = send_open(self.outlet, self.counters, words);
        match sent.map_err(|e| peer_error(self.process, e))? {
            true => Ok(()),
            false => Err(error::Error::Internal("credit that is gone".into())),
        }
    }
}

impl Outbox {
    pub(crate) fn new(
        outlet: Box<dyn Outlet>,
        place: Place,
        workers: usize,
        heap: &Arc<Heap>,
        shipping: &Shipping,
    ) -> Outbox {
        let Shipping { layout, fragment_bytes, passed_bytes, .. } = shipping;
        let leaders = place.processes * workers;
        let combiner = (workers > 1).then(|| Combiner::new(layout.clone(), heap.clone(), leaders));
        Outbox {
            outlet,
            layout: layout.clone(),
            process: place.process as u32,
            announced: vec![BEGINNING; workers],
            told: BEGINNING,
            cuts: vec![0; workers],
            told_cut: 0,
            epoch: 0,
            messages_ended: 0,
            pending: Pending::default(),
            combiner,
            open: Open::default(),
            sending: None,
            in_flight: VecDeque::new(),
            merged: 0,
            limits: OutboxLimits {
                pending_bytes: COMBINED_BYTES_MAX.min(heap.bytes() / 32 / leaders),
                passed_bytes: (*passed_bytes).max(1),
                fragment_bytes: *fragment_bytes,
                deltas: DELTAS_IN_FLIGHT_MAX * workers,
            },
            counters: Shipped::default(),
        }
    }

    /// A worker of this process has ended an epoch: no rows of the worker are left below the
    /// watermark. Rows passed through before are part of the epoch.
    pub(crate) fn put(&mut self, sealed: Sealed) {
        let Sealed { worker, parcel, held, watermark, cut } = sealed;
        self.pending.bytes += parcel.bytes();
        self.pending.parcel.segments.extend(parcel.segments);
        self.pending.parcel.passed.extend(parcel.passed);
        self.pending.held.extend(held);
        self.announced[worker] = self.announced[worker].max(watermark);
        self.cuts[worker] = self.cuts[worker].max(cut);
        self.open.ended = self.open.passed_bytes > 0;
    }

    fn may_pass(&self) -> bool {
        self.sending.is_none()
            && self.pending.parcel.is_empty()
            && self.deltas_on_their_way() < self.limits.deltas
            && self.open.passed_bytes < self.limits.passed_bytes
    }

    /// Passes rows for this leader, in `process`, that found no slot when they came and have been
    /// kept, as far as there is room now; their buffers go to `pool`.
    pub(crate) fn pass_kept(
        &mut self,
        kept: &mut Vec<PassedRows>,
        process: usize,
        pool: &mut Pool,
    ) -> error::Result<()> {
        while let Some(rows) = kept.last().filter(|_| self.may_pass()) {
            let (outlet, counters) = (&mut *self.outlet, &mut self.counters);
            let mut open = OpenSlot { outlet, counters, process };
            let Some(slot) = passed::Outlet::slot(&mut open)? else {
                self.open.lacks_slot = true;
                return Ok(());
            };
            let words = rows.words();
            if words.len() > slot.len() {
                // Longer than a slot: it goes with a delta, in parts.
                return Ok(());
            }
            let Some(place) = slot[self.open.words..].get_mut(..words.len()) else {
                passed::Outlet::send(&mut open, std::mem::take(&mut self.open.words))?;
                continue;
            };
            place.copy_from_slice(words);
            self.open.words += words.len();
            self.open.passed_bytes += (rows.rows() * self.layout.row_bytes()).max(8 * words.len());
            self.counters.rows += rows.rows() as u64;
            self.counters.passed += rows.rows() as u64;
            kept.pop().into_iter().for_each(|rows| pool.give(rows));
        }
        Ok(())
    }

    /// Passes rows for this leader, in `process`, straight into its channel, from the first on;
    /// returns how many. The others have to be kept and sealed: there is no credit, what was sealed
    /// before waits, or a row is longer than a slot.
    pub(crate) fn pass(
        &mut self,
        format: &Format,
        rows: &Outgoing<'_>,
        process: usize,
        scratch: &mut Vec<u32>,
    ) -> error::Result<usize> {
        if !self.may_pass() {
            return Ok(0);
        }
        let (outlet, counters) = (&mut *self.outlet, &mut self.counters);
        let bytes_before = counters.bytes + 8 * self.open.words as u64;
        let mut slot = OpenSlot { outlet, counters, process };
        let (count, _) = fill(format, rows, &mut self.open.words, &mut slot, scratch)?;
        // Otherwise a row is longer than a slot.
        self.open.lacks_slot =
            count < rows.rows.len() && passed::Outlet::slot(&mut slot)?.is_none();
        let bytes = self.counters.bytes + 8 * self.open.words as u64 - bytes_before;
        self.open.passed_bytes += (count * self.layout.row_bytes()).max(bytes as usize);
        self.counters.rows += count as u64;
        self.counters.passed += count as u64;
        Ok(count)
    }

    /// Lets what is pending be sent as soon as it can; `anyway`, also if the leader lets it wait:
    /// the memory is needed.
    pub(crate) fn hurry(&mut self, anyway: bool) {
        self.pending.hurries = !self.pending.parcel.is_empty();
        self.pending.anyway |= anyway && self.pending.hurries;
    }

    /// Whether there is something to send that can be sent, but for credit of slots, or was.
    pub(crate) fn has_more(&self) -> bool {
        self.sending.is_some() || self.next_is_due() || self.open.lacks_slot
    }

    /// Why workers take no more input, if they do not.
    pub(crate) fn stall(&self) -> Option<Obstacle> {
        let stalled = !self.pending.parcel.is_empty()
            && !self.waits_for_others()
            && (self.deltas_on_their_way() >= self.limits.deltas
                || self.sending.is_some() && self.pending.bytes >= self.limits.fragment_bytes);
        match stalled {
            true => Some(Obstacle::Credit),
            false => {
                // What is passed through waits for slots.
                let waits = self.sending.is_some() && !self.pending.parcel.passed.is_empty();
                (self.open.lacks_slot || waits).then_some(Obstacle::Slot)
            }
        }
    }

    /// Whether nothing is left to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.parcel.is_empty() && !self.has_more()
    }

    fn deltas_on_their_way(&self) -> usize {
        let sending = self.sending.as_ref().is_some_and(OutgoingDelta::has_rows);
        self.in_flight.len() + self.merged + usize::from(sending)
    }

    fn watermark(&self) -> i64 {
        self.announced.iter().copied().min().unwrap_or(BEGINNING)
    }

    /// The last cut before which all workers have handed over everything.
    fn cut(&self) -> u64 {
        self.cuts.iter().copied().min().unwrap_or(0)
    }

    fn next_is_due(&self) -> bool {
        if self.cut() > self.told_cut {
            // Who lets it wait may wait for the cut.
            return true;
        }
        if self.pending.parcel.is_empty() {
            return self.watermark() > self.told
                || self.open.ended && self.deltas_on_their_way() == 0
                || self.open.passed_bytes >= self.limits.passed_bytes;
        }
        !self.waits_for_others()
            && (self.deltas_on_their_way() < self.limits.deltas || self.pending.anyway)
    }

    /// Whether it may be worth waiting for what the other workers have for the same windows: as
    /// long as there is nothing to tell that others may wait for.
    fn waits_for_others(&self) -> bool {
        self.combiner.as_ref().is_some_and(Combiner::pays)
            && self.pending.parcel.passed.is_empty()
            && !self.pending.hurries
            && self.watermark() <= self.told
            && self.pending.bytes < self.limits.pending_bytes
    }

    /// Sends what there is, as far as there is credit for slots. Returns whether anything was sent.
    pub(crate) fn pump(&mut self) -> Result<bool> {
        let before = self.counters.messages;
        self.pump_all()?;
        Ok(self.counters.messages > before)
    }

    fn pump_all(&mut self) -> Result<()> {
        if self.open.lacks_slot && self.outlet.slot()?.is_some() {
            self.open.lacks_slot = false;
        }
        loop {
            if self.sending.is_none() {
                if !self.next_is_due() || !self.send_open()? {
                    return Ok(());
                }
                let Pending { parcel, held, .. } = std::mem::take(&mut self.pending);
                let Parcel { segments, passed: mut kept } = parcel;
                let passed = std::mem::take(&mut self.open.passed_bytes) > 0 || !kept.is_empty();
                kept.reverse();
                self.open.ended = false;
                self.sending = Some(OutgoingDelta {
                    watermark: self.watermark().max(self.told),
                    cut: self.cut(),
                    passed,
                    kept,
                    segments: match &mut self.combiner {
                        Some(combiner) => combiner.combine(segments),
                        None => segments,
                    },
                    held,
                    done: 0,
                    arena_words: 0,
                    runs: 0,
                    packed_words: 0,
                    part_words: 0,
                });
            }
            if !self.send_kept()? || !self.send_rows()? || !self.send_end()? {
                return Ok(());
            }
        }
    }

    /// Sends the open slot, unless empty. Returns whether the slot is empty afterwards.
    fn send_open(&mut self) -> Result<bool> {
        if self.open.words > 0 && send_open(&mut *self.outlet, &mut self.counters, self.open.words)?
        {
            self.open.words = 0;
        }
        Ok(self.open.words == 0)
    }

    /// The leader has merged the oldest delta with rows (`MERGED`), or lets a further delta come
    /// for a merged delta (`GO_ON`). Returns free segments; `None` if there is no such delta: the
    /// peer has broken the protocol.
    pub(crate) fn credit(&mut self, flags: u8) -> Option<Vec<(SliceId, Segment)>> {
        if flags == 0 || flags & !(MERGED | GO_ON) != 0 {
            return None;
        }
        let mut segments = Vec::new();
        if flags & MERGED != 0 {
            segments = self.in_flight.pop_front()?.segments;
            self.merged += 1;
        }
        if flags & GO_ON != 0 {
            self.merged = self.merged.checked_sub(1)?;
        }
        Some(segments)
    }

    pub(crate) fn counters(&self) -> Shipped {
        let combined = self.combiner.as_ref().map_or(0, |combiner| combiner.saved_rows);
        let copied = self.counters.copied + self.outlet.copied_bytes();
        let credit_stalls = self.outlet.credit_stalls();
        Shipped { combined, copied, credit_stalls, ..self.counters }
    }

    /// Bytes of a message's body.
    pub(crate) fn body_bytes(&self) -> usize {
        self.outlet.body_bytes()
    }

    pub(crate) fn outlet(&mut self) -> &mut dyn Outlet {
        &mut *self.outlet
    }
}

#[cfg(test)]
mod tests;
