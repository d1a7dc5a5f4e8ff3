//! The settings of a channel, and the queue sizes that follow from them.

use std::time::Duration;

use millstream_fabric::{QueueSizes, Timing};

use crate::channel::error::{Error, Result};
use crate::channel::footer::FOOTER_BYTES;

/// How the consumer learns that a slot is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification {
    /// The receiver polls the slot's footer in its own memory. Needs a fabric that places bytes in
    /// address order ([`Limits::ordered_placement`](millstream_fabric::Limits::ordered_placement)).
    Footer,
    /// Every slot's last write has an immediate value, and the consumer polls completions.
    Immediate,
}

/// Settings of a channel; both sides need the same, but for `spin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Slots of the ring (c): as many messages can be under way.
    pub slots: usize,
    /// Bytes of a slot (m), footer included; a multiple of 64.
    pub slot_bytes: usize,
    /// How the consumer learns of slots.
    pub notification: Notification,
    /// How long a blocking call looks again and again before it sleeps; ten times as long where
    /// that does the network card's work
    /// ([`Limits::progress_by_polling`](millstream_fabric::Limits::progress_by_polling)).
    pub spin: Duration,
    /// Patience of the connection.
    pub timing: Timing,
}

impl Default for Settings {
    /// 8 slots of 64 KiB (paper, section 8.3.2), footers, spinning for 20 µs.
    fn default() -> Self {
        Settings {
            slots: 8,
            slot_bytes: 64 * 1024,
            notification: Notification::Footer,
            spin: Duration::from_micros(20),
            timing: Timing::default(),
        }
    }
}

/// Most slots of a ring.
pub const SLOTS_MAX: usize = 1 << 12;
/// Longest slot.
pub const SLOT_BYTES_MAX: usize = 1 << 28;
const SLOT_BYTES_MIN: usize = 64;
const SIGNAL_BATCH_MIN: u64 = 16;
/// With [`SLOTS_MAX`] slots the send queue then has 15,368 entries; all providers in software have
/// 16,384.
const SIGNAL_BATCH_MAX: u64 = 1024;

/// Writes that a slot may take: bytes of the slot, bytes from elsewhere, and the footer.
pub(crate) const WRITES_PER_SLOT: u64 = 3;

impl Settings {
    /// Bytes of payload that a slot has room for.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        self.slot_bytes - FOOTER_BYTES
    }

    /// Bytes of the ring.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.slots * self.slot_bytes
    }

    /// Slots after which credit returns.
    #[inline]
    pub(crate) fn credit_batch(&self) -> u64 {
        (self.slots as u64 / 2).max(1)
    }

    /// Slots after which a write is signalled, to free the send queue's entries: an acknowledgement
    /// is a message of its own over TCP.
    #[inline]
    pub(crate) fn signal_batch(&self) -> u64 {
        (self.slots as u64 / 2).clamp(SIGNAL_BATCH_MIN, SIGNAL_BATCH_MAX)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            let what = "slots have to be 1 to 4096";
            return Err(Error::Setting { what, value: self.slots as u64 });
        }
        let lengths = SLOT_BYTES_MIN..=SLOT_BYTES_MAX;
        if !lengths.contains(&self.slot_bytes) || !self.slot_bytes.is_multiple_of(64) {
            let what = "slot bytes have to be a multiple of 64, at most 256 MiB";
            return Err(Error::Setting { what, value: self.slot_bytes as u64 });
        }
        Ok(())
    }

    /// Send queue: every slot may take [`WRITES_PER_SLOT`], w, and its entries are free only when a
    /// later signalled one has been polled, of which there is one per signal batch b: w (c + b).
    /// Raising the flag of a sleeper and asking for the peer's count, one of each in flight and one
    /// unpolled: 4, and as many to spare. Receive queue: an immediate value per slot or credit
    /// under way, c, and as many that arrived while we were slow to poll.
    #[inline]
    pub(crate) fn queue_sizes(&self) -> QueueSizes {
        let slots = self.slots as u32;
        let writes = WRITES_PER_SLOT as u32 * (slots + self.signal_batch() as u32);
        QueueSizes { send: writes + 8, receive: 2 * slots + 2 }
    }

    /// Completion queue: everything posted may fail at once.
    pub(crate) fn completions(&self) -> u32 {
        let QueueSizes { send, receive } = self.queue_sizes();
        send + receive
    }
}
