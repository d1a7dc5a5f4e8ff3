//! Shared receive queues: receives that several queue pairs take from.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use crate::error::{check, non_null};
use crate::raw::*;
use crate::work::{link_receives, place_of};
use crate::{Error, PostError, ProtectionDomain, ReceiveRequest};

/// A receive queue that several queue pairs take from.
pub struct SharedReceiveQueue {
    pub(crate) raw: NonNull<ibv_srq>,
    pub(crate) domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs' objects may be used from any thread, several at a time.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// A queue with room for that many receives of that many pieces. `tag` names it in events.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        receives: u32,
        pieces: u32,
        tag: usize,
    ) -> Result<Arc<SharedReceiveQueue>, Error> {
        let mut attributes = ibv_srq_init_attr {
            srq_context: tag as *mut c_void,
            attr: ibv_srq_attr { max_wr: receives, max_sge: pieces, srq_limit: 0 },
        };
        // SAFETY: the domain is alive; the tag is never followed as a pointer.
        let raw = unsafe {
            (domain.context.library.ibv_create_srq)(domain.raw.as_ptr(), &mut attributes)
        };
        let raw = non_null("ibv_create_srq", raw)?;
        Ok(Arc::new(SharedReceiveQueue { raw, domain: domain.clone() }))
    }

    /// Asks for one event when fewer than that many receives are left.
    pub fn set_limit(&self, receives: u32) -> Result<(), Error> {
        let mut attributes = ibv_srq_attr { srq_limit: receives, ..Default::default() };
        // SAFETY: the queue is alive, the attributes are readable.
        let code = unsafe {
            let modify = self.domain.context.library.ibv_modify_srq;
            modify(self.raw.as_ptr(), &mut attributes, IBV_SRQ_LIMIT)
        };
        check("ibv_modify_srq", code)
    }

    /// The room it has, in receives, and the limit that is set; 0 if none.
    pub fn capacity_and_limit(&self) -> Result<(u32, u32), Error> {
        let mut attributes = ibv_srq_attr::default();
        // SAFETY: the queue is alive, the attributes are writable.
        let code = unsafe {
            (self.domain.context.library.ibv_query_srq)(self.raw.as_ptr(), &mut attributes)
        };
        check("ibv_query_srq", code)?;
        Ok((attributes.max_wr, attributes.srq_limit))
    }

    /// Posts a list of receives.
    #[inline]
    pub fn post_receive(&self, requests: &mut [ReceiveRequest<'_>]) -> Result<(), PostError> {
        let first = link_receives(requests);
        if first.is_null() {
            return Ok(());
        }
        let mut bad = null_mut();
        // SAFETY: as for `QueuePair::post_send`.
        let code = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.post_srq_recv)(self.raw.as_ptr(), first, &mut bad)
        };
        check("ibv_post_srq_recv", code)
            .map_err(|error| PostError { posted: place_of(requests, bad), error })
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold an `Arc` to their shared queue, so none is left.
        unsafe { (self.domain.context.library.ibv_destroy_srq)(self.raw.as_ptr()) };
    }
}
