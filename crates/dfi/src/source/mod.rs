//! The source of a flow: pushes tuples (thesis, section 7.5.1).

mod lane;
mod outbox;
mod rings;
mod router;
mod setup;

use std::time::Duration;

use millstream_fabric::Fabric;

use crate::cast::{CastSource, CastSourceSetup};
use crate::counters::Counters;
use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::options::Route;
use crate::registry::{End, Registry};
use crate::schema::{AsTuple, Schema};
use crate::source::rings::RingSource;
use crate::source::setup::RingSourceSetup;
use crate::thread::{Loss, Role, Thread, wait};

/// A source that has joined its flow and waits for the other threads.
pub struct SourceSetup<F: Fabric>(JoinedBy<F>);

enum JoinedBy<F: Fabric> {
    Rings(RingSourceSetup<F>),
    Cast(CastSourceSetup<F>),
}

impl<F: Fabric> SourceSetup<F> {
    /// Joins the flow as the source of this thread: looks the flow up, for at most `patience`,
    /// allocates all memory, and leaves addresses and keys at the registry.
    ///
    /// # Errors
    /// No such flow, no such source, a multicast flow on a fabric without multicast
    /// ([`Error::NoMulticast`](crate::Error::NoMulticast)), or the fabric has no more memory or
    /// queue pairs.
    pub fn join(
        fabric: &F,
        registry: &impl Registry,
        flow: &str,
        thread: Thread,
        patience: Duration,
    ) -> Result<SourceSetup<F>> {
        let declaration = registry.look_up(flow, patience)?;
        let end = End::find(&declaration, Role::Source, thread)?;
        Ok(SourceSetup(match declaration.multicast {
            true => JoinedBy::Cast(CastSourceSetup::join(fabric, registry, (declaration, end))?),
            false => JoinedBy::Rings(RingSourceSetup::join(fabric, registry, (declaration, end))?),
        }))
    }

    /// The declaration.
    pub fn declaration(&self) -> &Declaration {
        match &self.0 {
            JoinedBy::Rings(setup) => setup.declaration(),
            JoinedBy::Cast(setup) => setup.declaration(),
        }
    }

    /// Gives the function of a flow declared with [`Route::By`], where the declaration came over a
    /// network.
    pub fn route_by(
        mut self,
        function: impl Fn(&[u8], usize) -> usize + Send + Sync + 'static,
    ) -> SourceSetup<F> {
        if let (JoinedBy::Rings(setup), Route::By(function)) = (&mut self.0, Route::by(function)) {
            setup.route_by(function);
        }
        self
    }

    /// Waits until all threads of the flow have joined, for at most `patience`, and connects.
    ///
    /// # Errors
    /// Some threads have not joined, or a target does not fit; a flow with [`Route::By`] has no
    /// function here.
    pub fn connect(self, registry: &impl Registry, patience: Duration) -> Result<Source<F>> {
        Ok(Source(match self.0 {
            JoinedBy::Rings(setup) => Sender::Rings(setup.connect(registry, patience)?),
            JoinedBy::Cast(setup) => Sender::Cast(setup.connect(registry, patience)?),
        }))
    }
}

/// A source of a flow, used by one thread at a time. Dropping it before [`Source::close`] is an
/// error at the targets.
pub struct Source<F: Fabric>(Sender<F>);

enum Sender<F: Fabric> {
    Rings(RingSource<F>),
    Cast(CastSource<F>),
}

/// The same expression for a source of either transport.
macro_rules! each {
    ($self:expr, $source:ident => $call:expr) => {
        match $self {
            Sender::Rings($source) => $call,
            Sender::Cast($source) => $call,
        }
    };
}

impl<F: Fabric> Source<F> {
    /// The declaration.
    pub fn declaration(&self) -> &Declaration {
        each!(&self.0, source => source.declaration())
    }

    /// Schema of the tuples.
    pub fn schema(&self) -> &Schema {
        &self.declaration().schema
    }

    /// Number of targets.
    pub fn targets(&self) -> usize {
        self.declaration().targets.len()
    }

    /// Counters.
    pub fn counters(&self) -> Counters {
        each!(&self.0, source => source.counters())
    }

    /// Targets that were lost and dropped since the last call. Each is returned once.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(each!(&mut self.0, source => source.losses()))
    }

    /// Pushes a tuple to the target of its route, or to all targets of a replicate flow. Copies it,
    /// and waits only while there is no segment for it.
    ///
    /// # Errors
    /// Another length than the schema's; a flow with explicit routes; a lost target; a closed
    /// source.
    #[inline]
    pub fn push<T: AsTuple + ?Sized>(&mut self, tuple: &T) -> Result<()> {
        each!(&mut self.0, source => source.push(tuple))
    }

    /// As [`Source::push`], but never waits: returns whether the tuple was pushed.
    #[inline]
    pub fn try_push<T: AsTuple + ?Sized>(&mut self, tuple: &T) -> Result<bool> {
        each!(&mut self.0, source => source.try_push(tuple))
    }

    /// Pushes a tuple to a target of a shuffle flow with [`Route::Explicit`](crate::Route).
    ///
    /// # Errors
    /// As [`Source::push`]; no such target; a flow with another route.
    #[inline]
    pub fn push_to<T: AsTuple + ?Sized>(&mut self, target: usize, tuple: &T) -> Result<()> {
        each!(&mut self.0, source => source.push_to(target, tuple))
    }

    /// As [`Source::push_to`], but never waits: returns whether the tuple was pushed.
    #[inline(always)]
    pub fn try_push_to<T: AsTuple + ?Sized>(&mut self, target: usize, tuple: &T) -> Result<bool> {
        each!(&mut self.0, source => source.try_push_to(target, tuple))
    }

    /// Pushes adjacent tuples of memory to a target of a shuffle flow with
    /// [`Route::Explicit`]. The order is that of [`Source::push_to`] for each tuple. There is one
    /// copy for each segment.
    ///
    /// # Errors
    /// As [`Source::push_to`]; a length that is no multiple of a tuple's.
    pub fn push_all_to(&mut self, target: usize, tuples: &[u8]) -> Result<()> {
        match &mut self.0 {
            Sender::Rings(source) => source.push_all_to(target, tuples),
            Sender::Cast(_) => Err(Error::Route { what: "a multicast flow has no target: push" }),
        }
    }

    /// Pushes tuples of so many bytes as a segment of their own. `fill` writes the tuples in place:
    /// there is no copy but that into the targets' rings. Never waits: returns whether there was a
    /// segment. For replicate flows over rings, and for flows with one target.
    ///
    /// # Errors
    /// As [`Source::push`]; no whole tuples, or more than a segment's payload; a flow that chooses
    /// among targets.
    pub fn try_push_with(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<bool> {
        match &mut self.0 {
            Sender::Rings(source) => source.try_push_with(bytes, fill),
            Sender::Cast(_) => Err(Error::Route { what: "multicast copies tuples: push" }),
        }
    }

    /// Sends all partial segments; waits until all are posted, and the first time until each
    /// target has been reached. No further call is needed for them to arrive.
    ///
    /// # Errors
    /// A lost target, or a closed source.
    pub fn flush(&mut self) -> Result<()> {
        wait(self.polls(), || self.try_flush())
    }

    /// As [`Source::flush`], but never waits: returns whether all is on its way. Call it again
    /// if not.
    pub fn try_flush(&mut self) -> Result<bool> {
        each!(&mut self.0, source => source.try_flush())
    }

    /// Ends the flow of this source: sends what is left, and waits until every target has all of it
    /// in its memory. A target may not have consumed it yet. Closing again does nothing.
    ///
    /// # Errors
    /// A lost target.
    pub fn close(&mut self) -> Result<()> {
        wait(self.polls(), || self.try_close())
    }

    /// As [`Source::close`], but never waits: returns whether the source is closed. Call it again
    /// if not.
    pub fn try_close(&mut self) -> Result<bool> {
        each!(&mut self.0, source => source.try_close())
    }

    /// Does what is due without pushing: writes sealed segments whose turn has come, sends lost
    /// segments again, and notices lost targets. For sources with long pauses.
    pub fn progress(&mut self) -> Result<()> {
        each!(&mut self.0, source => source.progress())
    }

    fn polls(&self) -> bool {
        each!(&self.0, source => source.polls())
    }
}
