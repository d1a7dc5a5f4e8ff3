//! Paths: how packets reach a peer's port, and address handles for datagrams.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::non_null;
use crate::raw::*;
use crate::{Error, Gid, ProtectionDomain};

/// How packets get to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// This side's port.
    pub port: u8,
    /// The place of this side's GID in its port's table.
    pub gid_index: u8,
    /// The peer's GID; needed on Ethernet, and across InfiniBand subnets.
    pub gid: Option<Gid>,
    /// The peer's local identifier (InfiniBand); 0 on Ethernet.
    pub lid: u16,
    /// The service level: a class of traffic.
    pub service_level: u8,
}

impl Path {
    pub(crate) fn to_raw(self) -> ibv_ah_attr {
        let grh = self.gid.map(|raw| ibv_global_route {
            dgid: ibv_gid { raw },
            sgid_index: self.gid_index,
            hop_limit: 64,
            ..Default::default()
        });
        ibv_ah_attr {
            is_global: u8::from(grh.is_some()),
            grh: grh.unwrap_or_default(),
            dlid: self.lid,
            sl: self.service_level,
            port_num: self.port,
            ..Default::default()
        }
    }
}

/// The address of a peer's port, for UD sends.
pub struct AddressHandle {
    pub(crate) raw: NonNull<ibv_ah>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs' objects may be used from any thread, several at a time.
unsafe impl Send for AddressHandle {}
// SAFETY: as above.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    /// A handle for that path.
    pub fn new(domain: &Arc<ProtectionDomain>, path: &Path) -> Result<AddressHandle, Error> {
        let mut attributes = path.to_raw();
        // SAFETY: the domain is alive, the attributes are readable.
        let raw =
            unsafe { (domain.context.library.ibv_create_ah)(domain.raw.as_ptr(), &mut attributes) };
        Ok(AddressHandle { raw: non_null("ibv_create_ah", raw)?, domain: domain.clone() })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once. The user answers for sends under way, which may then
        // be lost.
        unsafe { (self.domain.context.library.ibv_destroy_ah)(self.raw.as_ptr()) };
    }
}
