//! Sending a delta: rows that were kept, segments, and its end, slot after slot as there is credit.

use millstream_flow::channel::Result;

use super::delta::Sent;
use super::{Outbox, send_open};
use crate::network::wire::{self, CREDITED, Head, Kind};
use millstream_operators::passed::{HEAD_WORDS, part};

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
            watermark: delta.watermark,
            ..Head::new(Kind::Delta)
        };
        if !self.outlet.try_send(&head, &[])? {
            return Ok(false);
        }
        self.counters.messages += 1;
        self.messages_ended = self.counters.messages;
        self.counters.deltas += 1;
        self.counters.empty_deltas += u64::from(!credited);
        self.epoch += 1;
        self.told = delta.watermark;
        if let Some(delta) = self.sending.take().filter(|_| credited) {
            self.in_flight.push_back(Sent { segments: delta.segments, _held: delta.held });
        }
        Ok(true)
    }
}
