//! Posted receives of a connection.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::memory::Region;
use crate::queue::lock;
use crate::work::{Receive, Rejected};

/// A receive that was posted.
pub(super) struct PostedReceive {
    pub(super) id: u64,
    buffer: Option<(Region, usize, usize)>,
}

impl PostedReceive {
    /// Bytes it has room for.
    pub(super) fn room(&self) -> usize {
        self.buffer.as_ref().map_or(0, |(_, _, bytes)| *bytes)
    }

    /// Where they go.
    pub(super) fn place(&self) -> Option<(Region, usize)> {
        self.buffer.as_ref().map(|(region, offset, _)| (region.clone(), *offset))
    }
}

/// Receives in the order of posting.
pub(super) struct ReceiveQueue {
    capacity: usize,
    posted: Mutex<VecDeque<PostedReceive>>,
}

impl ReceiveQueue {
    pub(super) fn new(capacity: u32) -> ReceiveQueue {
        let capacity = capacity as usize;
        let posted = Mutex::new(VecDeque::with_capacity(capacity));
        ReceiveQueue { capacity, posted }
    }

    /// Posts receives whose buffers belong to device `device`.
    pub(super) fn post(
        &self,
        device: u32,
        receives: &[Receive<'_>],
    ) -> std::result::Result<(), Rejected> {
        let mut queue = lock(&self.posted);
        for (posted, receive) in receives.iter().enumerate() {
            self.post_one(&mut queue, device, receive)
                .map_err(|reason| Rejected { posted, reason })?;
        }
        Ok(())
    }

    fn post_one(
        &self,
        queue: &mut VecDeque<PostedReceive>,
        device: u32,
        receive: &Receive<'_>,
    ) -> Result<()> {
        if let Some(buffer) = &receive.buffer {
            buffer.check(device)?;
        }
        if queue.len() >= self.capacity {
            return Err(Error::QueueFull);
        }
        let buffer = receive.buffer.map(|into| (into.region.clone(), into.offset, into.bytes));
        queue.push_back(PostedReceive { id: receive.id, buffer });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.posted).is_empty()
    }

    /// The oldest.
    pub(super) fn take(&self) -> Option<PostedReceive> {
        lock(&self.posted).pop_front()
    }
}
