//! Receives over reliable connections (MQ/SR; paper, section 5.2, algorithm 3).

use millstream_fabric::{Destination, Fabric, Kind, Receive};

use super::core::{Ready, ReceiverCore};
use super::links::Sources;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::pool::PoolSlot;
use crate::shuffle::wire::{HEADER_AT, HEADER_BYTES};

pub(crate) struct MessageReceiver<F: Fabric> {
    pub(crate) sources: Sources<F>,
}

/// A receive into this buffer.
pub(crate) fn receive<'a>(slot: &'a PoolSlot, number: u32, message_bytes: usize) -> Receive<'a> {
    let bytes = HEADER_BYTES + message_bytes;
    let buffer = Destination { region: &slot.region, offset: slot.offset + HEADER_AT, bytes };
    Receive { id: number.into(), buffer: Some(buffer) }
}

impl<F: Fabric> MessageReceiver<F> {
    pub(crate) fn poll(&mut self, core: &mut ReceiverCore<F>) -> Result<bool> {
        let count = self.sources.complete(core, |core, source, completion, slot| {
            if !matches!(completion.kind, Kind::Receive | Kind::ReceiveWrite) {
                return Ok(());
            }
            if completion.kind == Kind::ReceiveWrite {
                return Err(Error::Protocol {
                    peer: core.sources[source].id,
                    what: "it wrote with an immediate value where it had to send",
                    found: completion.immediate.unwrap_or(0).into(),
                });
            }
            let (bytes, state) = core.header(source, slot, completion.bytes as usize)?;
            core.arrived(Ready { source, slot, remote: 0, bytes, state, surplus: false });
            Ok(())
        })?;
        Ok(count > 0)
    }

    /// The source may fill this buffer (again).
    pub(crate) fn grant(
        &mut self,
        core: &mut ReceiverCore<F>,
        source: usize,
        slot: u32,
    ) -> Result<()> {
        if core.sources[source].ended {
            return Ok(());
        }
        let message_bytes = core.settings.message_bytes;
        let receives = [receive(core.buffers.slot(slot), slot, message_bytes)];
        self.sources.links.all[source].post_receives(&receives, &mut core.counters)?;
        core.sources[source].granted += 1;
        Ok(())
    }

    pub(crate) fn release(&mut self, core: &mut ReceiverCore<F>, ready: &Ready) -> Result<()> {
        if core.reuse(ready) { self.grant(core, ready.source, ready.slot) } else { Ok(()) }
    }
}
