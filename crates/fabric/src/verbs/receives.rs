//! Shared receive queues of an RDMA device.

use std::sync::Arc;

use millstream_verbs as ibv;

use super::pair::post_good;
use super::request::{check_receive, post_receives};
use super::{Device, os};
use crate::contract::SharedReceives;
use crate::error::{Error, Result};
use crate::work::{Receive, Rejected};

/// Receives that several connections take from.
pub struct VerbsReceives {
    device: Arc<Device>,
    pub(super) queue: Arc<ibv::SharedReceiveQueue>,
}

impl VerbsReceives {
    pub(super) fn new(device: &Arc<Device>, entries: u32) -> Result<VerbsReceives> {
        let max = device.context.limits().map_err(os)?.requests_per_shared_queue;
        if entries > max {
            let (asked, max) = (entries.into(), max.into());
            return Err(Error::Limit { what: "queue entries", asked, max });
        }
        // Its events are of no use here.
        let queue = ibv::SharedReceiveQueue::new(&device.domain, entries.max(1), 1, 0);
        Ok(VerbsReceives { device: device.clone(), queue: queue.map_err(os)? })
    }

    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }
}

impl SharedReceives for VerbsReceives {
    fn post(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        post_good(receives, check_receive(self.device.number), |good| {
            post_receives(|list| self.queue.post_receive(list), good).map_err(|error| {
                let full = error.error.is_queue_full();
                let reason = if full { Error::QueueFull } else { os(error.error) };
                Rejected { posted: error.posted, reason }
            })
        })
    }
}
