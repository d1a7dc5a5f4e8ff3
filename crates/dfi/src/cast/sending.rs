//! The datagrams of a source: its slots, and the group.

use std::time::Duration;

use millstream_fabric::{Completion, Datagram, Fabric, Outgoing, Region, Source as Bytes};

use crate::datagram::{HEADER_AT, HEADER_BYTES, Header, Kind, Layout, PAYLOAD_AT};
use crate::error::Result;

/// Entries of the send queue beyond one for each slot: for marks and repetitions.
const SPARE: u32 = 32;
/// The id of a datagram without a slot.
const NO_SLOT: u64 = u64::MAX;

/// A slot, as far as the fabric is concerned.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    fill: u16,
    /// Datagrams that are being sent from here.
    under_way: u32,
    sent_at: Duration,
}

/// The way of a source to the group of its targets.
pub(crate) struct Outlet<F: Fabric> {
    pair: F::Datagram,
    group: <F::Datagram as Datagram>::Address,
    ring: Region,
    slots: Box<[Slot]>,
    /// Entries of the send queue that are taken. All datagrams are signalled.
    used: u32,
    layout: Layout,
    source: u16,
    tag: u32,
}

/// Entries of the send queue for this layout.
pub(crate) fn send_entries(layout: &Layout) -> u32 {
    layout.segments as u32 + SPARE
}

impl<F: Fabric> Outlet<F> {
    pub(crate) fn new(
        (pair, group): (F::Datagram, <F::Datagram as Datagram>::Address),
        ring: Region,
        layout: Layout,
        (source, tag): (u32, u32),
    ) -> Outlet<F> {
        let slots = vec![Slot::default(); layout.segments].into();
        // A flow has at most 2^14 sources.
        Outlet { pair, group, ring, slots, used: 0, layout, source: source as u16, tag }
    }

    /// Number of the queue pair.
    pub(crate) fn number(&self) -> u32 {
        self.pair.number()
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring.len()
    }

    fn slot_of(&self, number: u64) -> usize {
        (number % self.layout.segments as u64) as usize
    }

    /// Whether the fabric is done with the slot of this segment.
    pub(crate) fn is_idle(&self, number: u64) -> bool {
        self.slots[self.slot_of(number)].under_way == 0
    }

    /// Whether the send queue has an entry left.
    pub(crate) fn has_room(&self) -> bool {
        self.used < send_entries(&self.layout)
    }

    /// Copies a tuple into an open slot that has `fill` bytes, and room for the tuple.
    #[inline(always)]
    pub(crate) fn copy(&mut self, number: u64, fill: usize, tuple: &[u8]) {
        assert!(fill + tuple.len() <= self.layout.payload, "no room for the tuple");
        let at = self.slot_of(number) * self.layout.stride() + PAYLOAD_AT + fill;
        // SAFETY: inside the slot, which lies inside the ring. This thread alone writes the ring,
        // and no datagram is being sent from an open slot. The tuple is not in the ring: no slice
        // of it is handed out.
        unsafe {
            let to = self.ring.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(tuple.as_ptr(), to, tuple.len());
        }
    }

    /// Seals the slot of a segment.
    pub(crate) fn seal(&mut self, number: u64, fill: usize) {
        let slot = self.slot_of(number);
        // At most a datagram's bytes.
        self.slots[slot].fill = fill as u16;
    }

    fn header(&self, kind: Kind, fill: u16, number: u64, place: u64) -> [u8; HEADER_BYTES] {
        Header { kind, source: self.source, fill, tag: self.tag, number, place }.encode()
    }

    /// Sends a sealed segment for the first time; returns its bytes.
    pub(crate) fn send(&mut self, number: u64, place: u64, now: Duration) -> Result<usize> {
        let slot = self.slot_of(number);
        let fill = self.slots[slot].fill;
        let header = self.header(Kind::Segment, fill, number, place);
        self.ring.write(slot * self.layout.stride() + HEADER_AT, &header)?;
        self.post(slot, now)?;
        Ok(fill.into())
    }

    /// Sends a segment again, unless that was done a moment ago. Returns whether it was sent.
    pub(crate) fn resend(
        &mut self,
        number: u64,
        now: Duration,
        time_out: Duration,
    ) -> Result<bool> {
        let slot = self.slot_of(number);
        let recent = now.saturating_sub(self.slots[slot].sent_at) < time_out / 2;
        if recent || !self.has_room() {
            return Ok(false);
        }
        self.post(slot, now)?;
        Ok(true)
    }

    fn post(&mut self, slot: usize, now: Duration) -> Result<()> {
        let state = &mut self.slots[slot];
        state.under_way += 1;
        state.sent_at = now;
        self.used += 1;
        let offset = slot * self.layout.stride() + HEADER_AT;
        let bytes = HEADER_BYTES + usize::from(state.fill);
        let source = Bytes::Region { region: &self.ring, offset, bytes };
        let (id, to) = (slot as u64, &self.group);
        Ok(self.pair.post(&[Outgoing { id, to, source, immediate: None, signalled: true }])?)
    }

    /// Says how many segments there are, and the number after the last in the flow's order.
    pub(crate) fn mark(&mut self, kind: Kind, number: u64, place: u64) -> Result<()> {
        let header = self.header(kind, 0, number, place);
        let (to, source) = (&self.group, Bytes::Inline(&header));
        self.used += 1;
        let id = NO_SLOT;
        Ok(self.pair.post(&[Outgoing { id, to, source, immediate: None, signalled: true }])?)
    }

    /// A datagram has left.
    pub(crate) fn done(&mut self, completion: &Completion) {
        self.used = self.used.saturating_sub(1);
        if let Some(slot) = self.slots.get_mut(completion.id as usize) {
            slot.under_way = slot.under_way.saturating_sub(1);
        }
    }
}
