//! Takes cuts of a job and stops the job, while its tables are read.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use millstream_engine::Stopper;

use crate::kept::Kept;
use crate::reading::Look;
use crate::support::Random;

/// What happens to a job while its tables are read.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) stopper: Mutex<Option<Stopper>>,
    pub(crate) kept: Arc<Kept>,
    pub(crate) random: Mutex<Random>,
    /// One look at a split in so many takes a cut, and stops the job; 0: none does.
    pub(crate) looks_of_cut: u64,
    pub(crate) looks_of_stop: u64,
}

impl Control {
    /// Of a job to which nothing happens.
    pub(crate) fn none(kept: &Arc<Kept>) -> Arc<Control> {
        let (stopper, random) = (Mutex::default(), Mutex::new(Random::new(1)));
        Arc::new(Control { stopper, kept: kept.clone(), random, looks_of_cut: 0, looks_of_stop: 0 })
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
        let (mut random, stopper) = (self.random.lock().unwrap(), self.stopper.lock().unwrap());
        let Some(stopper) = stopper.as_ref() else { return };
        if self.looks_of_cut > 0 && random.below(self.looks_of_cut) == 0 {
            self.cut(stopper);
        }
        if self.looks_of_stop > 0 && random.below(self.looks_of_stop) == 0 {
            stopper.stop();
        }
    }
}
