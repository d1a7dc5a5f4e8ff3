//! The operators SHUFFLE and RECEIVE (paper, section 4.3, algorithms 1 and 2).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_fabric::Fabric;

use crate::shuffle::error::{Error, Result};
use crate::shuffle::groups::Groups;
use crate::shuffle::receive::{Delivery, Receiver};
use crate::shuffle::send::{Buffer, Sender};
use crate::shuffle::wire::State;

/// SHUFFLE: shared by the threads of a sending endpoint. Several endpoints have a shuffle each.
pub struct Shuffle<'a, F: Fabric> {
    sender: &'a Sender<F>,
    groups: Groups,
    threads: usize,
    /// Writers not made yet, and unfinished writers.
    to_come: AtomicUsize,
    active: AtomicUsize,
    patience: Duration,
}

impl<'a, F: Fabric> Shuffle<'a, F> {
    /// Rows of so many threads go to these groups through one endpoint. Nothing waits for longer
    /// than `patience`.
    ///
    /// A thread fills a buffer for each group at the same time, so there have to be as many buffers
    /// as threads times groups, or threads would wait for each other's: [`Error::Setting`].
    pub fn new(
        sender: &'a Sender<F>,
        groups: Groups,
        threads: usize,
        patience: Duration,
    ) -> Result<Shuffle<'a, F>> {
        if threads * groups.len() > sender.buffers() {
            let why = format!(
                "{threads} threads need a buffer for each of {} groups; more depth would help",
                groups.len()
            );
            let value = Some(sender.buffers() as u64);
            return Err(Error::Setting { name: "count of buffers", value, why });
        }
        let (to_come, active) = (AtomicUsize::new(threads), AtomicUsize::new(threads));
        Ok(Shuffle { sender, groups, threads, to_come, active, patience })
    }

    /// The groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// A thread's part; as many can be had as there are threads.
    pub fn writer(&self) -> Result<Writer<'_, F>> {
        let fewer = |left: usize| left.checked_sub(1);
        if self.to_come.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).is_err() {
            let (value, why) = (Some(self.threads as u64 + 1), "each thread has one".into());
            return Err(Error::Setting { name: "count of writers", value, why });
        }
        let out = (0..self.groups.len()).map(|_| None).collect();
        Ok(Writer { shuffle: self, out })
    }
}

/// A buffer with the rows of one group, and how many bytes of it are filled.
struct Filling<'a, F: Fabric> {
    buffer: Buffer<'a, F>,
    bytes: usize,
}

/// A thread's output buffers, one for each group. Rows are copied into them (paper, section 4.3.1:
/// without copying a message would be one row).
///
/// Dropped without [`Writer::finish`], the streams of its endpoint never end, and receivers get an
/// error when the endpoint is dropped.
pub struct Writer<'a, F: Fabric> {
    shuffle: &'a Shuffle<'a, F>,
    out: Vec<Option<Filling<'a, F>>>,
}

impl<F: Fabric> Writer<'_, F> {
    /// Appends a row to a group. A row is never split: a buffer that has no room for it is sent
    /// first.
    ///
    /// # Panics
    /// If there is no such group.
    #[inline]
    pub fn push(&mut self, group: usize, row: &[u8]) -> Result<()> {
        let max = self.shuffle.sender.message_bytes();
        if self.out[group].as_ref().is_some_and(|filling| filling.bytes + row.len() > max) {
            self.send(group)?;
        }
        if self.out[group].is_none() {
            if row.len() > max {
                return Err(Error::TooLong { bytes: row.len(), max });
            }
            let buffer = self.shuffle.sender.acquire(self.shuffle.patience)?;
            self.out[group] = Some(Filling { buffer, bytes: 0 });
        }
        if let Some(filling) = &mut self.out[group] {
            filling.buffer.payload()[filling.bytes..][..row.len()].copy_from_slice(row);
            filling.bytes += row.len();
        }
        Ok(())
    }

    /// Sends what a group's buffer has.
    fn send(&mut self, group: usize) -> Result<()> {
        let Some(Filling { buffer, bytes }) = self.out[group].take() else { return Ok(()) };
        let to = self.shuffle.groups.destinations(group);
        self.shuffle.sender.put(buffer, bytes, to, State::MoreData)
    }

    /// Sends the remaining rows. The last of the endpoint's threads ends its streams (algorithm 1,
    /// lines 16 and 18) and waits until receivers have all messages; earlier threads return when
    /// their messages are on their way.
    pub fn finish(mut self) -> Result<()> {
        for group in 0..self.out.len() {
            self.send(group)?;
        }
        // After it every thread's last message has been put.
        if self.shuffle.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shuffle.sender.finish(self.shuffle.patience)
        } else {
            self.shuffle.sender.flush(self.shuffle.patience)
        }
    }
}

/// RECEIVE: a thread's part of a receiving endpoint. It copies rows into vectors and gives buffers
/// back; who wants to read rows where they are gets messages from the [`Receiver`] itself.
pub struct Reader<'a, F: Fabric> {
    receiver: &'a Receiver<F>,
    /// A message that did not fit into the last vector, and how many bytes of it have been copied.
    left: Option<(Delivery<'a, F>, usize)>,
    patience: Duration,
}

impl<'a, F: Fabric> Reader<'a, F> {
    /// A thread's reader. Nothing waits for longer than `patience`.
    pub fn new(receiver: &'a Receiver<F>, patience: Duration) -> Reader<'a, F> {
        Reader { receiver, left: None, patience }
    }

    /// Fills a vector, which is cleared before, with at most `max` bytes. Returns false when all
    /// has been read; the vector may have the last rows then. Where all rows have the same length
    /// and `max` is a multiple of it, none is split.
    pub fn next(&mut self, out: &mut Vec<u8>, max: usize) -> Result<bool> {
        out.clear();
        while out.len() < max {
            let (message, from) = match self.left.take() {
                Some(left) => left,
                None => match self.receiver.get(self.patience)? {
                    Some(message) => (message, 0),
                    None => return Ok(false),
                },
            };
            let to = message.len().min(from + max - out.len());
            out.extend_from_slice(&message[from..to]);
            if to < message.len() {
                self.left = Some((message, to));
            } else {
                message.release()?;
            }
        }
        Ok(true)
    }
}
