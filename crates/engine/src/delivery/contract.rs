//! The contract of a delivery: a worker's calls, once in a step or once for a batch, and never for
//! a record.

use millstream_state::Load;

use crate::error::Result;
use crate::obstacle::Obstacle;
use crate::progress::{Context, StageState};
use millstream_operators::operator::{Batch, Updated};
use millstream_operators::windowing::SliceId;

/// Rows sealed at the end of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal {
    /// All rows.
    Everything,
    /// All rows, which are all before the cut of this number.
    BeforeCut(u64),
    /// Windows that the watermark has passed. What later windows have so far would be shipped in
    /// two parts, and merged twice, for nothing: it stays until its own window is complete, or the
    /// epoch long enough.
    Complete,
    /// The same, and passed rows of later windows: they gain nothing by waiting, and are merged
    /// while they lie in a cache.
    PassedThrough,
}

/// The way between a worker's state and those who lead the keys. No method blocks.
pub(crate) trait Delivery: Send {
    /// Merges a received message, or returns credit for it. True after a step's work.
    fn receive(&mut self, context: &mut Context, stages: &mut [StageState]) -> Result<bool>;

    /// Sends on what waits, and tells the others how far this worker is, where it is time; of
    /// several stages the last first. True if that was a step's work.
    fn announce(&mut self, context: &mut Context, stages: &mut [StageState]) -> Result<bool>;

    /// Why a stage takes no more input for now, if it does not.
    fn hold(&self, context: &Context, state: &StageState) -> Result<Option<Obstacle>>;

    /// Whether there is room for a batch with this load. Without room the batch has to wait, unless
    /// all is `settled`: then waiting cannot make room, and the result is an error.
    fn has_room(
        &self,
        context: &Context,
        state: &mut StageState,
        load: Load,
        tight: bool,
        settled: &dyn Fn() -> bool,
    ) -> Result<bool>;

    /// Takes those rows of a batch in that count.
    fn update(
        &mut self,
        context: &mut Context,
        state: &mut StageState,
        batch: &Batch<'_>,
    ) -> Result<Updated>;

    /// Whether something has come that [`Delivery::receive`] has not seen, or there is more to send
    /// at once: then the worker does not wait.
    fn has_mail(&self, context: &Context) -> bool;

    /// Whether no input is left, and nothing that is still to come can yield rows.
    fn is_over(&self, context: &Context, stages: &[StageState]) -> bool;

    /// One step towards sleep: asks all channels to ring. Returns whether the worker may sleep.
    fn park(&mut self) -> Result<bool>;

    /// One step of ending all streams in order, when the worker is done. Returns whether all have
    /// ended.
    fn finish(&mut self) -> Result<bool>;

    // What follows has a default, which is right where all that is for others is sent at once.

    /// Collects what workers of this process have handed over.
    fn collect(&mut self, _: &Context) {}

    /// Continues deferred work of [`Delivery::receive`], when the worker has nothing better to do.
    fn receive_put_off(&mut self, _: &mut Context, _: &mut [StageState]) -> Result<bool> {
        Ok(false)
    }

    /// Ends an epoch of a stage at once, as far as it keeps anything for others.
    fn end_epoch(&mut self, _: &mut Context, _: &mut StageState, _: Seal) -> Result<()> {
        Ok(())
    }

    /// Memory is scarce: what could wait is sent, of one stage or of all. `anyway`: also if leaders
    /// would let it wait.
    fn hurry(&self, _: &Context, _stage: Option<usize>, _anyway: bool) -> Result<()> {
        Ok(())
    }

    /// Whether nothing is left to be received: the last credit comes after all else.
    fn is_empty(&self, _: &Context) -> bool {
        true
    }

    /// Tells of all that has been handed over to this worker, and is not merged, its stage and its
    /// slice. What is in channels is not known.
    fn on_the_way(&self, _: &Context, _see: &mut dyn FnMut(usize, SliceId)) {}

    /// Adds up what has been sent, as far as nobody else counts it.
    fn count(&self, _: &mut Context) {}
}
