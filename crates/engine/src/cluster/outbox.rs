//! What a process has for one leader in another process (paper, section 7.2.2, steps 2 and 3).
//!
//! The workers of a process seal their fragments one after the other; what they hold for the same leader
//! meets here and leaves as one delta, with the watermark that all of them have reached. Its rows are sent from
//! where they stand, slot after slot as there is credit, and the segments stay as they are until the leader
//! has merged them. At most two deltas with rows are on their way to a leader.

use std::collections::VecDeque;
use std::sync::Arc;

use millstream_flow::Result;
use millstream_state::{Heap, RowLayout, Segment};

use super::combine::Combiner;
use super::mesh::Place;
use super::port::Outlet;
use super::wire::{self, CREDITED, Head, IDLE, Kind};
use crate::budget::Held;
use crate::event_time::BEGINNING;

/// Deltas with rows that may wait for the leader.
const DELTAS_IN_FLIGHT_MAX: usize = 2;

pub(crate) struct Outbox {
    outlet: Box<dyn Outlet>,
    layout: Arc<RowLayout>,
    /// The sending process, for the leader.
    process: u32,
    /// Per worker of this process: the watermark up to which it has handed over everything.
    announced: Vec<i64>,
    /// What the leader has been told last.
    told: (i64, bool),
    idle: bool,
    epoch: u64,
    pending: Vec<(i64, Segment)>,
    pending_bytes: usize,
    pending_bytes_max: usize,
    /// Memory is scarce: what is pending does not wait for that of other workers.
    hurries: bool,
    pending_held: Vec<Held>,
    /// Where several workers may hold rows of the same key.
    combiner: Option<Combiner>,
    sending: Option<Sending>,
    in_flight: VecDeque<Sent>,
    counters: Shipped,
}

/// Rows that wait to be merged with those of other workers take so many bytes at the most.
const COMBINED_BYTES_MAX: usize = 2 << 20;

/// What has been shipped.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Shipped {
    pub(crate) deltas: u64,
    pub(crate) empty_deltas: u64,
    pub(crate) segments: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    /// Rows that were merged with those of other workers first.
    pub(crate) combined: u64,
}

/// A delta that is being written into slots.
struct Sending {
    watermark: i64,
    idle: bool,
    segments: Vec<(i64, Segment)>,
    held: Vec<Held>,
    /// Segments sent, words of the next one's arena, and runs of its rows.
    done: usize,
    arena_words: usize,
    runs: usize,
}

/// A delta that its leader has not merged yet.
struct Sent {
    segments: Vec<(i64, Segment)>,
    _held: Vec<Held>,
}

impl Outbox {
    pub(crate) fn new(
        outlet: Box<dyn Outlet>,
        layout: Arc<RowLayout>,
        (place, workers): (Place, usize),
        heap: &Arc<Heap>,
    ) -> Outbox {
        let leaders = place.processes * workers;
        let combiner = (workers > 1).then(|| Combiner::new(layout.clone(), heap.clone(), leaders));
        Outbox {
            outlet,
            layout,
            process: place.process as u32,
            announced: vec![BEGINNING; workers],
            told: (BEGINNING, false),
            idle: false,
            epoch: 0,
            pending: Vec::new(),
            pending_bytes: 0,
            pending_bytes_max: COMBINED_BYTES_MAX.min(heap.bytes() / 32 / leaders),
            hurries: false,
            combiner,
            pending_held: Vec::new(),
            sending: None,
            in_flight: VecDeque::new(),
            counters: Shipped::default(),
        }
    }

    /// `worker` (of this process) has sealed these segments, and nothing of it is left below `watermark`.
    pub(crate) fn put(
        &mut self,
        worker: usize,
        segments: Vec<(i64, Segment)>,
        held: Option<Held>,
        watermark: i64,
        idle: bool,
    ) {
        self.pending_bytes += segments.iter().map(|(_, segment)| segment.bytes()).sum::<usize>();
        self.pending.extend(segments);
        self.pending_held.extend(held);
        self.announced[worker] = self.announced[worker].max(watermark);
        self.idle = idle;
    }

    /// Lets what is pending be sent as soon as it can.
    pub(crate) fn hurry(&mut self) {
        self.hurries = !self.pending.is_empty();
    }

    /// Whether there is something to send that can be sent, but for credit of slots.
    pub(crate) fn has_more(&self) -> bool {
        self.sending.is_some() || self.next_is_due()
    }

    /// Whether so much is on its way that workers have to wait.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.pending.is_empty()
            && !self.waits_for_others()
            && self.deltas_on_their_way() >= DELTAS_IN_FLIGHT_MAX
    }

    /// Whether nothing is left to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && !self.has_more()
    }

    fn deltas_on_their_way(&self) -> usize {
        let sending = self.sending.as_ref().is_some_and(|delta| !delta.segments.is_empty());
        self.in_flight.len() + usize::from(sending)
    }

    fn watermark(&self) -> i64 {
        self.announced.iter().copied().min().unwrap_or(BEGINNING)
    }

    fn next_is_due(&self) -> bool {
        if self.pending.is_empty() {
            return self.watermark() > self.told.0 || self.idle != self.told.1;
        }
        !self.waits_for_others() && self.deltas_on_their_way() < DELTAS_IN_FLIGHT_MAX
    }

    /// Whether it may be worth waiting for what the other workers have for the same windows.
    fn waits_for_others(&self) -> bool {
        self.combiner.as_ref().is_some_and(Combiner::pays)
            && !self.hurries
            && self.watermark() <= self.told.0
            && self.pending_bytes < self.pending_bytes_max
    }

    /// Sends what there is, as far as there is credit for slots. Returns whether anything was sent.
    pub(crate) fn pump(&mut self) -> Result<bool> {
        let mut sent_some = false;
        loop {
            if self.sending.is_none() {
                if !self.next_is_due() {
                    return Ok(sent_some);
                }
                let pending = std::mem::take(&mut self.pending);
                (self.pending_bytes, self.hurries) = (0, false);
                self.sending = Some(Sending {
                    watermark: self.watermark().max(self.told.0),
                    idle: self.idle,
                    segments: match &mut self.combiner {
                        Some(combiner) => combiner.combine(pending),
                        None => pending,
                    },
                    held: std::mem::take(&mut self.pending_held),
                    done: 0,
                    arena_words: 0,
                    runs: 0,
                });
            }
            let (some, complete) = self.send_rows()?;
            sent_some |= some;
            if !complete || !self.send_end()? {
                return Ok(sent_some);
            }
            sent_some = true;
        }
    }

    /// Sends segments of the present delta. Returns whether anything was sent, and whether all has been.
    fn send_rows(&mut self) -> Result<(bool, bool)> {
        let Some(delta) = &mut self.sending else { return Ok((false, true)) };
        let words_max = self.outlet.body_bytes() / 8;
        let rows_max = (words_max / self.layout.row_words()).max(1);
        let mut some = false;
        while let Some((start, segment)) = delta.segments.get(delta.done) {
            let arena = segment.arena().all_words();
            while delta.arena_words < arena.len() {
                let end = (delta.arena_words + words_max).min(arena.len());
                let head = Head {
                    start: *start,
                    count: arena.len() as u64,
                    number: delta.arena_words as u64,
                    ..Head::new(Kind::Arena)
                };
                let body = wire::bytes(&arena[delta.arena_words..end]);
                if !self.outlet.try_send(&head, body)? {
                    return Ok((some, false));
                }
                self.counters.messages += 1;
                self.counters.bytes += body.len() as u64;
                (some, delta.arena_words) = (true, end);
            }
            for run in segment.runs(&self.layout, rows_max).skip(delta.runs) {
                let rows = (run.len() / self.layout.row_words()) as u64;
                let head = Head { start: *start, count: rows, ..Head::new(Kind::Rows) };
                let body = wire::bytes(run);
                if !self.outlet.try_send(&head, body)? {
                    return Ok((some, false));
                }
                self.counters.messages += 1;
                self.counters.bytes += body.len() as u64;
                some = true;
                delta.runs += 1;
            }
            self.counters.segments += 1;
            self.counters.rows += segment.rows() as u64;
            (delta.done, delta.arena_words, delta.runs) = (delta.done + 1, 0, 0);
        }
        Ok((some, true))
    }

    /// Sends the end of the present delta.
    fn send_end(&mut self) -> Result<bool> {
        let Some(delta) = &self.sending else { return Ok(false) };
        let credited = !delta.segments.is_empty();
        let flags = if credited { CREDITED } else { 0 } | if delta.idle { IDLE } else { 0 };
        let head = Head {
            flags,
            id: self.process,
            number: self.epoch,
            watermark: delta.watermark,
            ..Head::new(Kind::Delta)
        };
        if !self.outlet.try_send(&head, &[])? {
            return Ok(false);
        }
        self.counters.messages += 1;
        self.counters.deltas += 1;
        self.counters.empty_deltas += u64::from(!credited);
        self.epoch += 1;
        self.told = (delta.watermark, delta.idle);
        if let Some(delta) = self.sending.take().filter(|_| credited) {
            self.in_flight.push_back(Sent { segments: delta.segments, _held: delta.held });
        }
        Ok(true)
    }

    /// The leader has merged the oldest delta that had rows: its segments, to be used again. `None` if there is
    /// none: the peer has broken the protocol.
    pub(crate) fn credit(&mut self) -> Option<Vec<(i64, Segment)>> {
        self.in_flight.pop_front().map(|sent| sent.segments)
    }

    pub(crate) fn counters(&self) -> Shipped {
        let combined = self.combiner.as_ref().map_or(0, |combiner| combiner.saved_rows);
        Shipped { combined, ..self.counters }
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
mod tests {
    use std::sync::{Mutex, PoisonError};

    use millstream_state::{Idle, ValueKind};

    use super::super::combine::tests::segment;
    use super::*;

    /// Takes all messages and keeps their heads.
    struct Heads(Arc<Mutex<Vec<Head>>>);

    impl Outlet for Heads {
        fn try_send(&mut self, head: &Head, _: &[u8]) -> Result<bool> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(*head);
            Ok(true)
        }
        fn body_bytes(&self) -> usize {
            4096
        }
        fn park(&mut self) -> Result<bool> {
            Ok(true)
        }
        fn try_finish(&mut self) -> Result<bool> {
            Ok(true)
        }
    }

    #[test]
    fn two_deltas_with_rows_wait_for_the_leader_at_most() {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
        let place = Place { process: 1, processes: 2 };
        let heap = Heap::map(4 << 20, Idle::GivenBack);
        let outlet = Box::new(Heads(heads.clone()));
        let mut outbox = Outbox::new(outlet, layout.clone(), (place, 1), &heap);
        // Whether each delta that has been sent has rows.
        let deltas = || -> Vec<bool> {
            let heads = heads.lock().unwrap();
            heads.iter().filter(|h| h.kind == Kind::Delta).map(|h| h.has(CREDITED)).collect()
        };
        for watermark in 1..=3 {
            assert!(!outbox.is_stalled());
            outbox.put(0, vec![(10, segment(&layout, 0..5))], None, watermark, false);
            outbox.pump().unwrap();
        }
        assert_eq!(deltas(), [true; 2]);
        assert!(outbox.is_stalled() && !outbox.has_more() && !outbox.is_empty());
        assert_eq!(outbox.credit().map(|segments| segments.len()), Some(1));
        assert!(outbox.has_more() && !outbox.is_stalled());
        outbox.pump().unwrap();
        assert_eq!(deltas(), [true; 3]);
        // One without rows does not wait.
        outbox.put(0, Vec::new(), None, 4, false);
        outbox.pump().unwrap();
        assert_eq!(deltas(), [true, true, true, false]);
        assert!(outbox.is_empty() && !outbox.is_stalled());
        assert!(outbox.credit().is_some() && outbox.credit().is_some());
        assert!(outbox.credit().is_none(), "credit for what was never sent");
    }
}
