//! Sending a delta: rows that were kept, segments, and its end, slot after slot as there is credit.

use std::iter;

use millstream_flow::channel::Result;

use millstream_state::{RowLayout, Segment};

use super::delta::{OutgoingDelta, Sent};
use super::{Outbox, Outlet, Shipped, send_open, send_slot};
use crate::network::wire::{self, CREDITED, Head, Kind};
use millstream_operators::passed::{HEAD_WORDS, part};

/// Segments of at most so many words are packed: copying them costs less than a message for each.
const PACKED_WORDS_MAX: usize = 128;

/// Words of a segment with its head, if it is small enough to be packed into slots of so many.
fn packed_words(segment: &Segment, row_words: usize, slot_words: usize) -> Option<usize> {
    let words = segment.rows() * row_words + segment.arena().all_words().len();
    (words <= PACKED_WORDS_MAX && words + 2 <= slot_words).then_some(words + 2)
}

/// Packs the next segment of a delta, of so many words with its head, into the open slot, or into
/// the next. Returns whether there was room.
fn pack(
    outlet: &mut dyn Outlet,
    counters: &mut Shipped,
    delta: &mut OutgoingDelta,
    (layout, words): (&RowLayout, usize),
) -> Result<bool> {
    let Some((slice, segment)) = delta.segments.get(delta.done) else { return Ok(true) };
    let Some(slot) = outlet.slot()? else { return Ok(false) };
    let Some(place) = slot.get_mut(delta.packed_words..delta.packed_words + words) else {
        let sent = send_slot(outlet, counters, Kind::Packed, delta.packed_words)?;
        if sent {
            delta.packed_words = 0;
        }
        return Ok(sent);
    };
    let arena = segment.arena().all_words();
    let head = wire::packed_head(slice.word(), segment.rows(), arena.len());
    let (place_of_head, mut place) = place.split_at_mut(head.len());
    place_of_head.copy_from_slice(&head);
    for part in iter::once(arena).chain(segment.runs(layout, segment.rows())) {
        let (place_of_part, rest) = place.split_at_mut(part.len());
        place_of_part.copy_from_slice(part);
        place = rest;
    }
    counters.segments += 1;
    counters.rows += segment.rows() as u64;
    counters.copied += 8 * words as u64;
    (delta.packed_words, delta.done) = (delta.packed_words + words, delta.done + 1);
    Ok(true)
}

impl Outbox {
    /// Sends rows of the present delta that have been kept as keys and arguments: as many in a slot
    /// as it has room for. Returns whether all have been sent.
    pub(super) fn send_kept(&mut self) -> Result<bool> {
        loop {
            let Some(rows) = self.sending.as_ref().and_then(|delta| delta.kept.last()) else {
                return self.send_open();
            };
            let words = rows.words();
            let Some(slot) = self.outlet.slot()? else { return Ok(false) };
            let place = &mut slot[self.open.words..];
            if words.len() > place.len() && self.open.words > 0 {
                if !self.send_open()? {
                    return Ok(false);
                }
                continue;
            }
            if let Some(place) = place.get_mut(..words.len()) {
                place.copy_from_slice(words);
                self.open.words += words.len();
            } else if !self.send_parts()? {
                return Ok(false);
            }
            let Some(rows) = self.sending.as_mut().and_then(|delta| delta.kept.pop()) else {
                return Ok(true);
            };
            self.counters.rows += rows.rows() as u64;
            self.counters.passed += rows.rows() as u64;
        }
    }

    /// Sends the next rows of the present delta that have been kept, which are longer than a slot,
    /// in parts. Returns whether all of them have been sent.
    fn send_parts(&mut self) -> Result<bool> {
        let Some(delta) = &mut self.sending else { return Ok(true) };
        let Some(rows) = delta.kept.last() else { return Ok(true) };
        let words = rows.words();
        while delta.part_words < words.len() {
            let Some(slot) = self.outlet.slot()? else { return Ok(false) };
            let rest = &words[delta.part_words..];
            let count = rest.len().min(slot.len() - HEAD_WORDS);
            slot[..HEAD_WORDS].copy_from_slice(&part(words.len(), count as u32));
            slot[HEAD_WORDS..HEAD_WORDS + count].copy_from_slice(&rest[..count]);
            if !send_open(&mut *self.outlet, &mut self.counters, HEAD_WORDS + count)? {
                return Ok(false);
            }
            delta.part_words += count;
        }
        delta.part_words = 0;
        Ok(true)
    }

    /// Sends segments of the present delta. Returns whether all have been sent.
    pub(super) fn send_rows(&mut self) -> Result<bool> {
        let Some(delta) = &mut self.sending else { return Ok(true) };
        let words_max = self.outlet.body_bytes() / 8;
        let rows_max = (words_max / self.layout.row_words()).max(1);
        while let Some((slice, segment)) = delta.segments.get(delta.done) {
            let row_words = self.layout.row_words();
            if let Some(words) = packed_words(segment, row_words, words_max) {
                let (outlet, layout) = (&mut *self.outlet, &*self.layout);
                if !pack(outlet, &mut self.counters, delta, (layout, words))? {
                    return Ok(false);
                }
                continue;
            }
            if delta.packed_words > 0 {
                let (outlet, words) = (&mut *self.outlet, delta.packed_words);
                if !send_slot(outlet, &mut self.counters, Kind::Packed, words)? {
                    return Ok(false);
                }
                delta.packed_words = 0;
            }
            let arena = segment.arena().all_words();
            while delta.arena_words < arena.len() {
                let end = (delta.arena_words + words_max).min(arena.len());
                let head = Head {
                    rows_of: slice.word(),
                    count: arena.len() as u64,
                    number: delta.arena_words as u64,
                    ..Head::new(Kind::Arena)
                };
                let body = wire::bytes(&arena[delta.arena_words..end]);
                if !self.outlet.try_send(&head, body)? {
                    return Ok(false);
                }
                self.counters.messages += 1;
                self.counters.bytes += body.len() as u64;
                delta.arena_words = end;
            }
            for run in segment.runs(&self.layout, rows_max).skip(delta.runs) {
                let rows = (run.len() / self.layout.row_words()) as u64;
                let head = Head { rows_of: slice.word(), count: rows, ..Head::new(Kind::Rows) };
                let body = wire::bytes(run);
                if !self.outlet.try_send(&head, body)? {
                    return Ok(false);
                }
                self.counters.messages += 1;
                self.counters.bytes += body.len() as u64;
                delta.runs += 1;
            }
            self.counters.segments += 1;
            self.counters.rows += segment.rows() as u64;
            (delta.done, delta.arena_words, delta.runs) = (delta.done + 1, 0, 0);
        }
        Ok(true)
    }

    /// Sends the end of the present delta.
    pub(super) fn send_end(&mut self) -> Result<bool> {
        let Some(delta) = &self.sending else { return Ok(false) };
        let credited = delta.has_rows();
        let flags = if credited { CREDITED } else { 0 };
        let head = Head {
            flags,
            id: self.process,
            count: self.counters.messages - self.messages_ended,
            number: self.epoch,
            rows_of: delta.cut,
            watermark: delta.watermark,
            ..Head::new(Kind::Delta)
        };
        let sent = match delta.packed_words {
            0 => self.outlet.try_send(&head, &[])?,
            words => self.outlet.send(&head, words)?,
        };
        if !sent {
            return Ok(false);
        }
        self.counters.bytes += 8 * delta.packed_words as u64;
        self.counters.messages += 1;
        self.messages_ended = self.counters.messages;
        self.counters.deltas += 1;
        self.counters.empty_deltas += u64::from(!credited);
        self.epoch += 1;
        (self.told, self.told_cut) = (delta.watermark, delta.cut);
        if let Some(delta) = self.sending.take().filter(|_| credited) {
            self.in_flight.push_back(Sent { segments: delta.segments, _held: delta.held });
        }
        Ok(true)
    }
}
