//! The mode in which a worker treats rows of other leaders, one for all windows of a stage.
//!
//! Where keys repeat often, a worker keeps all rows of a window in one *joint* table, whoever leads
//! their keys. The worker's table holds rows of other leaders beside its own, with one index over
//! both ([`millstream_state::Table::update_joint`]). Where a joint table would not lie in a near
//! cache, each record's leader is found first, and rows are aggregated in a fragment per leader.
//! Where keys rarely repeat, aggregating shrinks nothing, and rows are passed through.
//!
//! Which mode is cheapest depends on the keys and on the processor. So the costs of all modes are
//! measured ([`costs`]): a worker times its batches, and leaders report the time of merging. The
//! mode is decided when an epoch ends. Another mode is tried on at most a fiftieth of the input.
//! Nothing is measured in simulation, and the assumed costs decide.

mod costs;
mod sample;

use std::sync::Arc;

use millstream_state::{Mode, RowLayout, Table};

use crate::env::{Env, SIMULATED_NEAR_CACHE};
use crate::operator::{MergeTimes, ModeReport};
use costs::Costs;
use sample::Sample;

/// Decisions are taken on at least this many rows.
const DECIDE_ROWS: usize = 4096;
/// Batches of fewer rows are not timed.
const TIMED_ROWS: usize = 256;
/// Of so many records, one is treated in another mode for trial.
const TRIAL_SHARE: u64 = 50;
/// A mode that is estimated at so many times the present cost is not tried.
const HOPELESS: f64 = 2.0;
/// Another mode has to be cheaper by so much.
const CHEAPER: f64 = 0.95;
/// In the middle of an epoch: also if the share of distinct rows were so many times greater or
/// less.
const CLEARLY: f64 = 2.0;

/// Joint tables have at most so many keys, and take at most so large a part of the near cache, in
/// quarters. Bytes of an index entry are counted with each row.
const JOINT_KEYS_MAX: usize = 1 << 16;
const JOINT_QUARTERS: usize = 5;
const ENTRY_BYTES: usize = 12;
/// Texts and the like of a joint table take at most so many times the near cache, since sealing
/// copies texts.
const JOINT_ARENA: usize = 2;

/// A worker's mode for a stage.
#[derive(Debug)]
pub(super) struct Modes {
    mode: Mode,
    /// The mode before a trial that lasts for an epoch.
    before: Option<Mode>,
    /// The present batch is passed through for trial.
    trial: bool,
    /// The mode changed within the present batch, whose time tells the cost of neither mode.
    mixed: bool,
    /// Memory is scarce: tables are not joint until an epoch ends with memory to spare.
    scarce: bool,
    may_change: bool,
    clock: Option<Arc<dyn Env>>,
    costs: Costs,
    sample: Sample,
    /// Rows since the last decision, and the number of distinct rows: small epochs alone do not
    /// decide.
    seen: usize,
    distinct: usize,
    /// Distinct rows of the last epoch that decided.
    keys: usize,
    joint_keys_max: usize,
    joint_arena_max: usize,
    /// No decision has been taken yet.
    fresh: bool,
    /// All records so far, the records of the last epoch's end, and records treated for trial.
    records: u64,
    epoch_began: u64,
    tried: u64,
    switches: u64,
    switched_at: u64,
}

impl Modes {
    /// For rows of a layout, which are passed through with so many words. A `fixed` mode never
    /// changes.
    pub(super) fn new(
        layout: &RowLayout,
        passed_words: usize,
        leaders: usize,
        fixed: Option<Mode>,
        clock: Option<Arc<dyn Env>>,
    ) -> Modes {
        let near_cache = clock.as_ref().map_or(SIMULATED_NEAR_CACHE, |env| env.near_cache_bytes());
        let row_bytes = layout.row_bytes() + ENTRY_BYTES;
        let joint_keys_max = near_cache * JOINT_QUARTERS / 4 / row_bytes;
        // With a single leader there is nobody to hold rows for.
        let usual = if leaders > 1 { Mode::Joint } else { Mode::Aggregate };
        Modes {
            mode: fixed.unwrap_or(usual),
            before: None,
            trial: false,
            mixed: false,
            scarce: false,
            may_change: fixed.is_none() && leaders > 1,
            clock,
            costs: Costs::new(layout, passed_words, leaders, near_cache),
            sample: Sample::default(),
            seen: 0,
            distinct: 0,
            keys: 0,
            joint_keys_max: joint_keys_max.min(JOINT_KEYS_MAX),
            joint_arena_max: JOINT_ARENA * near_cache,
            fresh: true,
            records: 0,
            epoch_began: 0,
            tried: 0,
            switches: 0,
            switched_at: 0,
        }
    }

    /// The mode of the present batch.
    pub(super) fn mode(&self) -> Mode {
        match self.mode {
            _ if self.trial => Mode::PassThrough,
            Mode::Joint if self.scarce => Mode::Aggregate,
            mode => mode,
        }
    }

    /// Whether the mode may change.
    pub(super) fn may_change(&self) -> bool {
        self.may_change
    }

    /// Begins a batch of so many rows: the mode may change, or another be tried. Returns the time,
    /// if the batch is timed.
    pub(super) fn begin_batch(&mut self, rows: usize) -> Option<u64> {
        self.records += rows as u64;
        if !self.may_change {
            return None;
        }
        self.bound_trial();
        self.reconsider();
        self.mixed = false;
        let clock = self.clock.as_ref().filter(|_| rows >= TIMED_ROWS)?;
        let now = clock.now_ns();
        self.trial = self.mode != Mode::PassThrough
            && self.costs.is_measured(self.mode)
            && self.may_try(rows as u64)
            && self.is_hopeful(Mode::PassThrough);
        self.tried += if self.trial { rows as u64 } else { 0 };
        Some(now)
    }

    /// Ends a batch that began at a time.
    pub(super) fn end_batch(&mut self, rows: usize, began: Option<u64>) {
        if let (Some(clock), Some(began), false) = (&self.clock, began, self.mixed) {
            let ns = clock.now_ns().saturating_sub(began);
            self.costs.note_batch(self.mode(), rows as u64, ns);
        }
        self.trial = false;
    }

    /// Whether so many records more may be treated for trial.
    fn may_try(&self, rows: u64) -> bool {
        (self.tried + rows) * TRIAL_SHARE <= self.records
    }

    /// Ends a trial in the middle of its epoch if the trial has had its share: the epoch is longer
    /// than the epoch before. Measured costs of the tried mode stay.
    fn bound_trial(&mut self) {
        let tried = self.records - self.epoch_began;
        if !self.may_try(tried)
            && let Some(before) = self.before.take()
        {
            self.tried += tried;
            self.epoch_began = self.records;
            self.set(before);
        }
    }

    /// Whether a mode may be cheaper than the present mode.
    fn is_hopeful(&self, mode: Mode) -> bool {
        let share = self.share();
        self.cost(mode, share) < HOPELESS * self.cost(self.mode, share)
    }

    /// In the middle of an epoch, only a clear difference counts: the share of distinct rows falls
    /// as an epoch goes on, and passed rows will not be found in a table.
    fn reconsider(&mut self) {
        let (seen, distinct) = match self.mode {
            Mode::PassThrough => self.sample.share(),
            Mode::Aggregate if self.fresh => (self.seen, self.distinct),
            _ => return,
        };
        if seen < DECIDE_ROWS || self.before.is_some() {
            return;
        }
        let share = distinct as f64 / seen as f64;
        if self.mode == Mode::PassThrough {
            let cheapest = self.cheapest(share, self.keys <= self.joint_keys_max);
            let cost = self.cost(cheapest, CLEARLY * share);
            if cost < CHEAPER * self.cost(Mode::PassThrough, share) {
                self.switch(cheapest);
            }
        } else if share > 0.75 && self.is_cheap_to_pass(share / CLEARLY) {
            self.switch(Mode::PassThrough);
        }
    }

    fn cost(&self, mode: Mode, share: f64) -> f64 {
        self.costs.of_record(mode, share, self.keys)
    }

    fn is_cheap_to_pass(&self, share: f64) -> bool {
        self.cost(Mode::PassThrough, share) < self.cost(Mode::Aggregate, share)
    }

    /// The cheapest mode for a share of distinct rows.
    fn cheapest(&self, share: f64, may_join: bool) -> Mode {
        let modes = [Mode::Joint, Mode::Aggregate, Mode::PassThrough];
        let modes = modes.into_iter().skip(usize::from(!may_join));
        let cost = |mode: &Mode| self.cost(*mode, share);
        modes.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(Mode::Aggregate)
    }

    /// The share of distinct rows since the last decision.
    fn share(&self) -> f64 {
        match self.seen {
            0 => 0.0,
            seen => self.distinct as f64 / seen as f64,
        }
    }

    /// Takes note of rows of other leaders' keys that were looked up, and of new rows among them.
    pub(super) fn note_looked_up(&mut self, rows: usize, new_rows: usize) {
        (self.seen, self.distinct) = (self.seen + rows, self.distinct + new_rows);
    }

    /// Takes note of passed rows of a slice.
    pub(super) fn note_passed(&mut self, slice: u64, hashes: &[u64]) {
        if self.may_change && self.mode == Mode::PassThrough {
            self.sample.note(slice, hashes);
        }
    }

    /// Whether hashes of passed rows are of use.
    pub(super) fn samples(&self) -> bool {
        self.may_change && self.mode == Mode::PassThrough && self.sample.is_open()
    }

    /// Takes note of sealed rows of joint tables.
    pub(super) fn note_sealed(&mut self, rows: usize, began: Option<u64>) {
        if let (Some(clock), Some(began)) = (&self.clock, began) {
            self.costs.note_sealed(rows as u64, clock.now_ns().saturating_sub(began));
        }
    }

    /// The time, if sealing is timed.
    pub(super) fn now(&self) -> Option<u64> {
        self.clock.as_ref().filter(|_| self.may_change).map(|clock| clock.now_ns())
    }

    /// Leaders report all merging so far.
    pub(super) fn note_merged(&mut self, times: &MergeTimes) {
        if self.may_change {
            self.costs.note_merged(times);
        }
    }

    /// Decides at the end of an epoch, after which the largest table of the worker's own keys has
    /// so many rows. Tables may become joint if `may_join`.
    pub(super) fn end_epoch(&mut self, own_rows: usize, may_join: bool) {
        if !self.may_change {
            return;
        }
        let sampled = self.mode == Mode::PassThrough;
        if sampled {
            self.sample.end_epoch();
            (self.seen, self.distinct) = self.sample.share();
        }
        self.scarce &= !may_join;
        self.costs.settle();
        if self.seen < DECIDE_ROWS {
            return;
        }
        let share = self.share();
        if !sampled {
            self.keys = self.distinct;
        }
        let is_joint = self.mode == Mode::Joint;
        let may_join = is_joint || may_join && own_rows + self.keys <= self.joint_keys_max / 4 * 3;
        let cheapest = self.cheapest(share, may_join);
        let (base, seen) = (self.before.take(), self.seen);
        if let Some(base) = base {
            self.tried += self.records - self.epoch_began;
            if self.cost(self.mode, share) >= CHEAPER * self.cost(base, share) {
                self.set(base);
            }
        } else if self.cost(cheapest, share) < CHEAPER * self.cost(self.mode, share) {
            self.switch(cheapest);
        } else {
            self.try_other(may_join);
        }
        self.fresh = false;
        self.epoch_began = self.records;
        (self.seen, self.distinct) = (0, 0);
        match self.mode {
            Mode::PassThrough => self.sample.rest(seen),
            _ => self.sample.forget(),
        }
    }

    /// Tries another mode for an epoch, if the trial stays small.
    fn try_other(&mut self, may_join: bool) {
        let epoch = self.records - self.epoch_began;
        let other = match self.mode {
            Mode::Joint => return,
            Mode::Aggregate | Mode::PassThrough if may_join => Mode::Joint,
            Mode::PassThrough => Mode::Aggregate,
            Mode::Aggregate => return,
        };
        if self.clock.is_some()
            && self.costs.is_measured(self.mode)
            && self.may_try(epoch)
            && self.is_hopeful(other)
        {
            self.before = Some(self.mode);
            self.set(other);
        }
    }

    /// A joint table may take so many rows more.
    pub(super) fn may_join(&self, table: &Table, rows: usize) -> bool {
        rows <= self.joint_keys_max && self.fits(table)
    }

    /// Whether a joint table fits the near cache.
    fn fits(&self, table: &Table) -> bool {
        let arena_bytes = table.keys_max() * table.arena_bytes_of_row();
        table.keys_max() <= self.joint_keys_max && arena_bytes <= self.joint_arena_max
    }

    /// Takes note that a joint table has taken rows in, `seen` since its epoch began, of which
    /// about so many are `distinct`. False if it has become too large: then its rows of other
    /// leaders are better sealed before it has grown farther.
    pub(super) fn note_joint(&mut self, table: &Table, seen: usize, distinct: usize) -> bool {
        if self.fits(table) {
            return true;
        }
        if self.may_change && self.mode == Mode::Joint {
            self.keys = distinct;
            // The share may fall by as much until the epoch ends.
            let passes = seen >= DECIDE_ROWS
                && self.is_cheap_to_pass(distinct as f64 / seen as f64 / CLEARLY);
            self.before = None;
            self.switch(if passes { Mode::PassThrough } else { Mode::Aggregate });
        }
        false
    }

    fn set(&mut self, mode: Mode) {
        self.mode = mode;
        self.mixed = true;
        (self.seen, self.distinct) = (0, 0);
        self.sample.forget();
    }

    fn switch(&mut self, mode: Mode) {
        if mode != self.mode {
            (self.switches, self.switched_at) = (self.switches + 1, self.records);
        }
        self.set(mode);
    }

    /// Memory is scarce: tables are not joint for a while.
    pub(super) fn give_back(&mut self) {
        self.scarce = self.may_change;
    }

    /// In simulation: goes on in a mode, if it may change.
    pub(super) fn force(&mut self, mode: Mode) {
        if self.may_change {
            self.before = None;
            self.switch(mode);
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.sample.bytes()
    }

    /// Number of changes.
    pub(super) fn switches(&self) -> u64 {
        self.switches
    }

    /// The mode and its costs, for reports; `None` where there is no choice.
    pub(super) fn report(&self) -> Option<ModeReport> {
        self.may_change.then(|| ModeReport {
            mode: self.mode,
            ns: self.costs.measured(),
            switches: self.switches,
            switched_at: self.switched_at,
        })
    }
}

#[cfg(test)]
mod tests;
