//! Shared receive queues over shared memory.
//!
//! The queue is a ring of receives in memory that the peers of all its queue pairs have mapped. A
//! peer claims the next receive for itself, and writes its number with the result into the ring of
//! its own queue pair. A peer that is killed between the two takes the receive with it: that entry
//! of the ring is lost.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::ShmDevice;
use super::layout::SharedReceive;
use crate::contract::SharedReceives;
use crate::error::{Error, Result};
use crate::queue::lock;
use crate::words::{LINE_BYTES, Words, map_words, new_words};
use crate::work::{Receive, Rejected};

/// The ring, as both sides see it: receives in the order of posting, as places among the entries.
/// Places are free again in any order, since connections finish in any order.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    words: Words,
    capacity: u64,
}

impl ReceiveRing {
    const POSTED: usize = 0;
    const CLAIMED: usize = LINE_BYTES;
    const ORDER: usize = 2 * LINE_BYTES;
    const ENTRY_BYTES: usize = 24;

    /// Length of a ring of so many receives, which is a power of two.
    pub(super) fn bytes(capacity: u64) -> usize {
        Self::ORDER + capacity as usize * (8 + Self::ENTRY_BYTES)
    }

    fn new(capacity: u64) -> Result<(OwnedFd, ReceiveRing)> {
        let (file, words) = new_words(Self::bytes(capacity))?;
        Ok((file, ReceiveRing { words, capacity }))
    }

    pub(super) fn map(file: &OwnedFd, capacity: u64) -> Result<ReceiveRing> {
        Ok(ReceiveRing { words: map_words(file, Self::bytes(capacity))?, capacity })
    }

    /// The word that holds the place of receive `number`.
    fn order(&self, number: u64) -> &AtomicU64 {
        self.words.at(Self::ORDER + (number & (self.capacity - 1)) as usize * 8)
    }

    /// Offset of the entry at `place`; any value is safe, since peers may write any.
    fn entry(&self, place: u64) -> usize {
        let entries = Self::ORDER + self.capacity as usize * 8;
        entries + (place & (self.capacity - 1)) as usize * Self::ENTRY_BYTES
    }

    /// The owner posts receive `number` at a place that nobody uses. Returns false if the order has
    /// no room for it.
    fn post(&self, number: u64, place: u64, receive: SharedReceive) -> bool {
        // With a claim comes that its claimer has read the order.
        let claimed = self.words.at(Self::CLAIMED).load(Ordering::Acquire);
        if number.wrapping_sub(claimed) >= self.capacity {
            return false;
        }
        let entry = self.entry(place);
        self.words.at(entry).store(receive.key.into(), Ordering::Relaxed);
        self.words.at(entry + 8).store(receive.offset, Ordering::Relaxed);
        self.words.at(entry + 16).store(receive.bytes, Ordering::Relaxed);
        self.order(number).store(place, Ordering::Relaxed);
        self.words.at(Self::POSTED).store(number.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest receive, with its place; exclusively, since several peers take.
    pub(super) fn claim(&self) -> Option<(u64, SharedReceive)> {
        let claimed = self.words.at(Self::CLAIMED);
        let mut number = claimed.load(Ordering::Relaxed);
        let place = loop {
            if self.words.at(Self::POSTED).load(Ordering::Acquire) <= number {
                return None;
            }
            // Read before claiming: afterwards the owner may write there.
            let place = self.order(number).load(Ordering::Relaxed);
            let next = number.wrapping_add(1);
            let (done, not) = (Ordering::Release, Ordering::Relaxed);
            match claimed.compare_exchange_weak(number, next, done, not) {
                Ok(_) => break place,
                Err(other) => number = other,
            }
        };
        // The owner uses the entry again only when it has been told that this receive is done.
        let entry = self.entry(place);
        let receive = SharedReceive {
            key: self.words.at(entry).load(Ordering::Relaxed) as u32,
            offset: self.words.at(entry + 8).load(Ordering::Relaxed),
            bytes: self.words.at(entry + 16).load(Ordering::Relaxed),
        };
        Some((place, receive))
    }
}

/// The owner's view: the ring, and the receives that are posted and not done.
#[derive(Debug)]
pub(super) struct Owner {
    device: u32,
    pub(super) file: OwnedFd,
    ring: ReceiveRing,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// Id and room of the receive at each place.
    entries: Box<[Option<(u64, u64)>]>,
    free: Vec<u64>,
    /// Receives posted since the beginning.
    posted: u64,
}

impl Owner {
    /// Entries of the ring.
    pub(super) fn capacity(&self) -> u64 {
        self.ring.capacity
    }

    fn post_one(&self, held: &mut Held, receive: &Receive<'_>) -> Result<()> {
        let shared = SharedReceive::new(receive, self.device)?;
        let place = *held.free.last().ok_or(Error::QueueFull)?;
        if !self.ring.post(held.posted, place, shared) {
            return Err(Error::QueueFull);
        }
        held.free.pop();
        held.entries[place as usize] = Some((receive.id, shared.bytes));
        held.posted = held.posted.wrapping_add(1);
        Ok(())
    }

    /// Id and room of the receive that a peer says it has taken; `None` if no such receive is
    /// posted.
    pub(super) fn done(&self, place: u64) -> Option<(u64, u64)> {
        let mut held = lock(&self.held);
        let found = held.entries.get_mut(usize::try_from(place).ok()?)?.take()?;
        held.free.push(place);
        Some(found)
    }
}

/// Receives that several connections take from.
pub struct ShmReceives(pub(super) Arc<Owner>);

impl ShmReceives {
    pub(super) fn new(device: &ShmDevice, entries: u32) -> Result<ShmReceives> {
        let capacity = u64::from(entries.max(1)).next_power_of_two();
        let (file, ring) = ReceiveRing::new(capacity)?;
        let entries = vec![None; capacity as usize].into();
        let held = Held { entries, free: (0..capacity).rev().collect(), posted: 0 };
        let device = device.0.number;
        Ok(ShmReceives(Arc::new(Owner { device, file, ring, held: Mutex::new(held) })))
    }

    pub(super) fn device(&self) -> u32 {
        self.0.device
    }
}

impl SharedReceives for ShmReceives {
    fn post(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        let mut held = lock(&self.0.held);
        for (posted, receive) in receives.iter().enumerate() {
            self.0.post_one(&mut held, receive).map_err(|reason| Rejected { posted, reason })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_receive_is_claimed_once() {
        let (file, owner) = ReceiveRing::new(8).unwrap();
        let one_more = SharedReceive { key: 1, offset: 0, bytes: 5 };
        let peers = [ReceiveRing::map(&file, 8).unwrap(), ReceiveRing::map(&file, 8).unwrap()];
        for number in 0..8 {
            let place = 7 - number;
            assert!(owner.post(number, place, SharedReceive { key: 1, offset: place, bytes: 5 }));
        }
        assert!(!owner.post(8, 0, one_more), "nothing is claimed yet");
        let claimed: Vec<_> = std::thread::scope(|scope| {
            let threads = peers.each_ref().map(|peer| {
                scope.spawn(move || {
                    std::iter::from_fn(|| peer.claim())
                        .inspect(|(place, receive)| assert_eq!(receive.offset, *place))
                        .map(|(place, _)| place)
                        .collect::<Vec<_>>()
                })
            });
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        let mut sorted = claimed.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..8).collect::<Vec<_>>(), "{claimed:?}");
        assert!(peers[0].claim().is_none());
    }
}
