//! A worker's share in the network of its process: messages for any worker, and sleeping.

use std::time::Duration;

use super::sleep::{AWAKE, SLEEP_MAX};
use super::{StageState, Worker};
use crate::error::Result;
use crate::network::{Net, peer_error};

impl Worker {
    /// Resumes the network: sends what waits and takes in what has come for the process.
    pub(super) fn serve_network(&mut self, stages: &mut [StageState]) -> Result<()> {
        let shared = self.context.shared.clone();
        let Some(net) = &shared.net else { return Ok(()) };
        let some = net.pump()?;
        self.take_messages(net, stages, false, some)?;
        Ok(())
    }

    /// Before waiting: takes in what has come from peers that were not looked at in this step.
    /// Returns whether there was anything.
    pub(super) fn serve_all_peers(&mut self, stages: &mut [StageState]) -> Result<bool> {
        let shared = self.context.shared.clone();
        match &shared.net {
            Some(net) if net.has_many_peers() => self.take_messages(net, stages, true, false),
            _ => Ok(false),
        }
    }

    /// Takes messages of `all` peers in, or of some; `some` has been done before. Returns whether
    /// anything has been done.
    fn take_messages(
        &mut self,
        net: &Net,
        stages: &mut [StageState],
        all: bool,
        mut some: bool,
    ) -> Result<bool> {
        let shared = self.context.shared.clone();
        some |= net.receive(all, |process, head, body| {
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
        Ok(some)
    }

    /// There was something to do.
    pub(super) fn wait_anew(&mut self) {
        if let Some(sleep) = &mut self.sleep {
            (sleep.idle_since_us, sleep.parked) = (None, false);
        }
    }

    /// Sleeps until something happens, or the clock reaches `until_us`. At first it only looks
    /// again, and once more when it has asked to be woken.
    pub(super) fn wait(&mut self, until_us: Option<i64>) -> Result<()> {
        let Worker { context, sleep, .. } = self;
        let Some(sleep) = sleep else {
            context.shared.env.wait(context.id, until_us);
            return Ok(());
        };
        let now = context.shared.env.now_us();
        let since = *sleep.idle_since_us.get_or_insert(now);
        if now - since < AWAKE.as_micros() as i64 {
            std::thread::yield_now();
            return Ok(());
        }
        if !std::mem::take(&mut sleep.parked) {
            return self.park();
        }
        let left = until_us.map_or(SLEEP_MAX, |until| {
            Duration::from_micros((until - now).max(0) as u64).min(SLEEP_MAX)
        });
        let own = context.shared.net.as_ref().map_or(0, |net| net.place.process);
        sleep.sleeper.wait(left).map_err(|e| peer_error(own, e))
    }

    /// One step towards sleep: asks all that may come to ring.
    fn park(&mut self) -> Result<()> {
        let Worker { context, sleep, delivery, .. } = self;
        let mut may_sleep = delivery.park()?;
        if context.id == 0
            && let Some(net) = &context.shared.net
        {
            may_sleep &= net.park()?;
        }
        if let Some(sleep) = sleep {
            sleep.parked = may_sleep;
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
