//! A worker's share in the network of its process: messages that any worker takes in, and sleeping.

use std::time::Duration;

use super::{State, Worker};
use crate::error::Result;
use crate::network::{Sleeper, peer_error};

/// So long a worker that has nothing to do looks again and again before it goes to sleep, which
/// takes messages to every process, and whoever wakes it some 10 µs. Meanwhile it yields to
/// whatever else its processor has to do.
const AWAKE: Duration = Duration::from_micros(100);

/// A sleeper looks again after this time: whatever happens wakes it, and its peers prove that they
/// answer.
const SLEEP_MAX: Duration = Duration::from_millis(250);

/// Where a worker sleeps if its job has channels.
pub(super) struct Bed {
    sleeper: Box<dyn Sleeper>,
    /// When it first found nothing to do.
    idle_since_us: Option<i64>,
    /// All that could wake it has been asked to, and it looks everywhere once more before it
    /// sleeps: what came before it asked does not ring.
    parked: bool,
}

impl Bed {
    pub(super) fn new(sleeper: Box<dyn Sleeper>) -> Bed {
        Bed { sleeper, idle_since_us: None, parked: false }
    }
}

impl Worker {
    /// Resumes the network: sends what waits and takes in what has come for the process.
    pub(super) fn serve_network(&mut self, stages: &mut [State]) -> Result<()> {
        let shared = self.context.shared.clone();
        let Some(net) = &shared.net else { return Ok(()) };
        let mut some = net.pump()?;
        some |= net.receive(|process, head, body| {
            if let Some(freed) = shared.take_message(process, head, &body)?
                && let Some(state) = stages.get_mut(freed.stage)
            {
                freed.segments.into_iter().for_each(|(_, segment)| state.operator.reuse(segment));
            }
            Ok(())
        })?;
        if some {
            shared.pace.has_done(self.context.id);
            self.wait_anew();
            if self.context.id != 0 {
                net.wake_parked();
            }
        }
        Ok(())
    }

    /// There was something to do.
    pub(super) fn wait_anew(&mut self) {
        if let Some(bed) = &mut self.bed {
            (bed.idle_since_us, bed.parked) = (None, false);
        }
    }

    /// Sleeps until something happens, or the clock reaches `until_us`. At first it only looks
    /// again, and once more when it has asked to be woken.
    pub(super) fn wait(&mut self, until_us: Option<i64>) -> Result<()> {
        let Worker { context, bed, .. } = self;
        let Some(bed) = bed else {
            context.shared.env.wait(context.id, until_us);
            return Ok(());
        };
        let now = context.shared.env.now_us();
        let since = *bed.idle_since_us.get_or_insert(now);
        if now - since < AWAKE.as_micros() as i64 {
            std::thread::yield_now();
            return Ok(());
        }
        if !std::mem::take(&mut bed.parked) {
            return self.park();
        }
        let left = until_us.map_or(SLEEP_MAX, |until| {
            Duration::from_micros((until - now).max(0) as u64).min(SLEEP_MAX)
        });
        let own = context.shared.net.as_ref().map_or(0, |net| net.place.process);
        bed.sleeper.wait(left).map_err(|e| peer_error(own, e))
    }

    /// One step towards sleep: asks all that may come to ring.
    fn park(&mut self) -> Result<()> {
        let Worker { context, bed, delivery, .. } = self;
        let mut may_sleep = delivery.park()?;
        if context.id == 0
            && let Some(net) = &context.shared.net
        {
            may_sleep &= net.park()?;
        }
        if let Some(bed) = bed {
            bed.parked = may_sleep;
        }
        if !may_sleep {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// One step of ending the worker's streams, when it is done. Returns whether all have ended.
    pub(crate) fn finish_streams(&mut self) -> Result<bool> {
        self.delivery.finish()
    }
}
