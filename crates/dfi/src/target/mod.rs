//! The target of a flow: consumes batches of tuples where they arrived (thesis, section 7.5.2).

mod inlet;
mod rings;
mod setup;

use std::time::Duration;

use millstream_fabric::Fabric;

use crate::batch::{Batch, Consumed};
use crate::cast::{CastTarget, CastTargetSetup};
use crate::counters::Counters;
use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::options::Detection;
use crate::registry::{End, Registry};
use crate::schema::Schema;
use crate::target::rings::RingTarget;
use crate::target::setup::RingTargetSetup;
use crate::thread::{Loss, Role, Thread};

/// A target that has joined its flow and waits for the other threads.
pub struct TargetSetup<F: Fabric>(JoinedBy<F>);

enum JoinedBy<F: Fabric> {
    Rings(RingTargetSetup<F>),
    Cast(CastTargetSetup<F>),
}

impl<F: Fabric> TargetSetup<F> {
    /// Joins the flow as the target of this thread: looks the flow up, for at most `patience`,
    /// allocates all memory, and leaves addresses and keys at the registry.
    ///
    /// # Errors
    /// No such flow, no such target, footers on a fabric without ordered placement
    /// ([`Error::Unordered`]), a multicast flow on a fabric without multicast
    /// ([`Error::NoMulticast`]), or the fabric has no more memory or queue pairs.
    pub fn join(
        fabric: &F,
        registry: &impl Registry,
        flow: &str,
        thread: Thread,
        patience: Duration,
    ) -> Result<TargetSetup<F>> {
        let declaration = registry.look_up(flow, patience)?;
        // A datagram arrives whole or not at all.
        let by_footer = declaration.detection == Detection::Footer && !declaration.multicast;
        if by_footer && !fabric.limits().ordered_placement {
            return Err(Error::Unordered);
        }
        TargetSetup::join_unchecked(fabric, registry, flow, thread, patience)
    }

    /// The same, whatever the fabric says of the order in which bytes are placed: to try what
    /// happens.
    pub fn join_unchecked(
        fabric: &F,
        registry: &impl Registry,
        flow: &str,
        thread: Thread,
        patience: Duration,
    ) -> Result<TargetSetup<F>> {
        let declaration = registry.look_up(flow, patience)?;
        let end = End::find(&declaration, Role::Target, thread)?;
        Ok(TargetSetup(match declaration.multicast {
            true => JoinedBy::Cast(CastTargetSetup::join(fabric, registry, (declaration, end))?),
            false => JoinedBy::Rings(RingTargetSetup::join(fabric, registry, (declaration, end))?),
        }))
    }

    /// The declaration.
    pub fn declaration(&self) -> &Declaration {
        match &self.0 {
            JoinedBy::Rings(setup) => setup.declaration(),
            JoinedBy::Cast(setup) => setup.declaration(),
        }
    }

    /// Waits until all threads of the flow have joined, for at most `patience`, and connects.
    ///
    /// # Errors
    /// Some threads have not joined, or a source does not fit.
    pub fn connect(self, registry: &impl Registry, patience: Duration) -> Result<Target<F>> {
        Ok(Target(match self.0 {
            JoinedBy::Rings(setup) => Receiver::Rings(setup.connect(registry, patience)?),
            JoinedBy::Cast(setup) => Receiver::Cast(setup.connect(registry, patience)?),
        }))
    }
}

/// A target of a flow, used by one thread at a time. Dropping it before the end is an error at the
/// sources.
pub struct Target<F: Fabric>(pub(crate) Receiver<F>);

pub(crate) enum Receiver<F: Fabric> {
    Rings(RingTarget<F>),
    Cast(CastTarget<F>),
}

/// The same expression for a target of either transport.
macro_rules! each {
    ($self:expr, $target:ident => $call:expr) => {
        match $self {
            Receiver::Rings($target) => $call,
            Receiver::Cast($target) => $call,
        }
    };
}

impl<F: Fabric> Target<F> {
    /// Schema of the tuples.
    pub fn schema(&self) -> &Schema {
        &self.declaration().schema
    }

    /// The declaration.
    pub fn declaration(&self) -> &Declaration {
        each!(&self.0, target => target.declaration())
    }

    /// Counters.
    pub fn counters(&self) -> Counters {
        each!(&self.0, target => target.counters())
    }

    /// Sources that were lost and dropped since the last call. Each is returned once.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(each!(&mut self.0, target => target.losses()))
    }

    /// The next batch; waits for it, at first awake and then asleep. `None`: all sources have
    /// closed. Frees the batch of the call before.
    ///
    /// # Errors
    /// A lost source, or one that breaks the protocol. With [`Gaps::Notify`](crate::Gaps) also
    /// [`Error::Gap`], once for each number that has not arrived; the next call goes on.
    #[inline]
    pub fn consume(&mut self) -> Result<Option<Batch<'_>>> {
        each!(&mut self.0, target => target.consume())
    }

    /// The next batch, if it is there. Never waits. Frees the batch of the call before.
    ///
    /// # Errors
    /// As [`Target::consume`], but for gaps, which are [`Consumed::Gap`].
    pub fn try_consume(&mut self) -> Result<Consumed<'_>> {
        each!(&mut self.0, target => target.try_consume())
    }
}
