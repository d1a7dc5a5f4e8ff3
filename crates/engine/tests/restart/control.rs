//! What happens to a job while its tables are read.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use millstream_engine::Stopper;

use super::kept::Kept;
use super::reading::Look;
use crate::support::Random;

/// Takes cuts, and stops the job.
#[derive(Debug)]
pub(crate) struct Control {
    /// Of the processes of the job.
    pub(crate) stoppers: Mutex<Vec<Stopper>>,
    pub(crate) kept: Arc<Kept>,
    pub(crate) random: Mutex<Random>,
    /// One look at a split in so many takes a cut, and stops the job; 0: none does.
    pub(crate) looks_of_cut: u64,
    pub(crate) looks_of_stop: u64,
}

impl Control {
    /// Of a job to which nothing happens.
    pub(crate) fn none(kept: &Arc<Kept>) -> Arc<Control> {
        let (stoppers, random) = (Mutex::default(), Mutex::new(Random::new(1)));
        Arc::new(Control {
            stoppers,
            kept: kept.clone(),
            random,
            looks_of_cut: 0,
            looks_of_stop: 0,
        })
    }

    /// Takes a cut, if none is being taken.
    pub(crate) fn cut(&self, stopper: &Stopper) {
        let kept = &self.kept;
        let begun = kept.begun.load(Relaxed);
        if kept.ended() != begun {
            return;
        }
        kept.begun.store(begun + 1, Relaxed);
        if !stopper.cut(begun + 1) {
            kept.begun.store(begun, Relaxed);
        }
    }
}

impl Look for Control {
    fn look(&self) {
        let (mut random, stoppers) = (self.random.lock().unwrap(), self.stoppers.lock().unwrap());
        let Some(first) = stoppers.first() else { return };
        if self.looks_of_cut > 0 && random.below(self.looks_of_cut) == 0 {
            self.cut(first);
        }
        if self.looks_of_stop > 0 && random.below(self.looks_of_stop) == 0 {
            stoppers[random.below(stoppers.len() as u64) as usize].stop();
        }
    }
}
