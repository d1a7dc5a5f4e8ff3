//! Multicast: each segment is sent once, to the group of all targets (thesis, section 7.5.4).
//!
//! Segments are datagrams, which may be lost, repeated and overtaken. Each pair also has a reliable
//! connection. The target writes its back-flow there: counts and missing numbers. Lost peers are
//! noticed there as in a flow over rings.

mod arrival;
mod backflow;
mod sending;
mod source;
mod source_setup;
mod stream;
mod target;
mod target_setup;

#[cfg(test)]
mod sim_planted;

use millstream_fabric::{Endpoint, Group};
use millstream_state::hash_bytes;

use crate::declaration::Declaration;
use crate::error::{Error, Result};

pub(crate) use source::CastSource;
pub(crate) use source_setup::CastSourceSetup;
pub(crate) use target::CastTarget;
pub(crate) use target_setup::CastTargetSetup;

/// The group of a flow. Flows of one job may share a group by chance: tags tell them apart.
fn group_of(declaration: &Declaration) -> Group {
    Group::new(hash_bytes(declaration.name.as_bytes()) as u16)
}

/// The tag of the source with this datagram queue pair.
fn tag_of(declaration: &Declaration, endpoint: &Endpoint, source: u32) -> u32 {
    let mut bytes = endpoint.encode().to_vec();
    bytes.extend_from_slice(&source.to_le_bytes());
    bytes.extend_from_slice(&declaration.fingerprint().to_le_bytes());
    hash_bytes(&bytes) as u32
}

/// Checks that a device can carry a flow.
fn check_limits(declaration: &Declaration, limits: &millstream_fabric::Limits) -> Result<()> {
    if !limits.multicast {
        return Err(Error::NoMulticast);
    }
    let (needed, most) = (declaration.layout().datagram_bytes(), limits.datagram_bytes);
    if needed > most {
        let flow = declaration.name.clone();
        let why = format!("its datagrams have {needed} bytes, and this device takes {most}");
        return Err(Error::Declaration { flow, why });
    }
    Ok(())
}

/// Planted faults, which the seeded tests have to find.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    SkipTheSlowest,
    NumberAfterSending,
    KeepDuplicates,
    EndOnce,
}

#[cfg(test)]
std::thread_local! {
    pub(crate) static PLANTED: std::cell::Cell<Fault> = const { std::cell::Cell::new(Fault::None) };
}
