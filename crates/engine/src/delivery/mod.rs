//! Delivery: how what belongs to a key gets to the worker that leads the key.
//!
//! A [`Delivery`] stands between the state of a worker and the others. The worker asks it, once in
//! a step or once for a batch, and never for a record. There are two strategies:
//!
//! - [`LateMerge`]: batches update the worker's own state, and rows of state are shipped at the end
//!   of an epoch (`epoch`). Within the process they are handed over (`handover`), to other
//!   processes they go over channels (`channels`).
//! - [`Exchanged`], the baseline: the records of a batch are partitioned and sent at once
//!   ([`crate::exchange`]). There a worker may have both roles, or be only a sender or only a
//!   receiver.
//!
//! Both guarantee: deltas of a worker are merged in the order of sending, each once; a watermark
//! comes after all rows that it covers.

mod channels;
mod contract;
mod epoch;
mod exchanged;
mod handover;
mod late_merge;

use std::sync::Arc;

use crate::network::{Inlet, Lanes};
use crate::progress::Context;
use channels::Channels;
use exchanged::Exchanged;
use handover::HandOver;
use late_merge::LateMerge;

pub(crate) use contract::{Delivery, Seal};
pub(crate) use handover::Mailboxes;

/// A worker's ends of the channels between processes.
#[derive(Default)]
pub(crate) struct Endpoints {
    /// By stage and process: where deltas come in.
    pub(crate) deltas_in: Vec<Vec<Option<Box<dyn Inlet>>>>,
    pub(crate) lanes: Lanes,
}

/// The strategy of a worker's job.
pub(crate) fn new(
    context: &Context,
    mailboxes: Arc<Mailboxes>,
    Endpoints { deltas_in, lanes }: Endpoints,
) -> Box<dyn Delivery> {
    let shared = &context.shared;
    let channels = Channels::new(deltas_in, shared.net.as_deref());
    let exchanged = shared.stages.first().filter(|_| shared.roles.exchange());
    match exchanged.and_then(|stage| stage.program.format()) {
        Some(format) => Box::new(Exchanged::new(context, format, lanes, channels)),
        None => Box::new(LateMerge::new(HandOver::new(mailboxes, &shared.stages), channels)),
    }
}
