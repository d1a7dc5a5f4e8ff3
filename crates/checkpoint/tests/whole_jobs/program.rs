//! A program that runs a job with checkpoints, until the job ends or the program dies.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_checkpoint::{JobToSave, Opened, Opening, Options, Saver, Start, open_in};
use millstream_contract::plan::{self, Plan, Session, Window};
use millstream_contract::sink::{Prepared, RowOrder, Sink};
use millstream_contract::{Error, Result, Settings};
use millstream_engine::observe::CheckpointStatus;
use millstream_engine::{Checkpoints as _, CutTaken, Job, PartWritten, Stopper};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::SetAside;
use millstream_store::disk::{CrashDisk, Fault};
use millstream_store::{Checkpoints, LocalStore};

use crate::gate::{Gate, Gated};
use crate::outputs::Files;
use crate::reading::{Look, read};
use crate::support::*;

/// Where the checkpoints are.
pub(crate) const STATE: &str = "/disk/state";
const STARTED_US: i64 = 1_700_000_000_000_000;

/// What outlasts programs.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) disk: CrashDisk,
    pub(crate) plan: Plan,
    /// By output.
    pub(crate) orders: Vec<RowOrder>,
    pub(crate) lateness_ms: i64,
    /// How many checkpoints stay.
    pub(crate) keep: usize,
    pub(crate) start: Start,
    pub(crate) tally: Tally,
}

/// Sums over programs of what has happened.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) written: AtomicU64,
    pub(crate) missed: AtomicU64,
    pub(crate) resumed: AtomicU64,
    /// Programs that said that they went on.
    pub(crate) told: AtomicU64,
    /// Programs that the job's end was told when they began.
    pub(crate) ended: AtomicU64,
    pub(crate) merges: AtomicU64,
}

/// The plan as SQL gives it: each stage has a name, and slices of sessions the usual length. With
/// other lengths, packing changes the order of sessions.
pub(crate) fn prepared(mut plan: Plan) -> Plan {
    for (number, stage) in plan.stages.iter_mut().enumerate() {
        stage.names = vec![format!("stage {number}")];
        if let plan::Operator::Aggregate(aggregate) = &mut stage.operator
            && let Some(Window::Session(session)) = &mut aggregate.window
        {
            session.slices_of_gap = Session::SLICES_OF_GAP;
        }
    }
    plan
}

/// What happens to a program; steps are steps of its disk, counted from its begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    /// It runs to the job's end.
    Lives,
    /// It is stopped at any moment, perhaps behind a last checkpoint.
    Stops,
    /// It dies before a step, or behind the step.
    Crashes { at: u64, after: bool },
    /// Steps of the store fail for a while.
    Fails { from: u64, to: u64, code: i32 },
    /// Another program runs, to any moment, while this one sleeps before a step.
    Sleeps { at: u64, seed: u64 },
}

/// A job's checkpoints, with a mark when the writing thread has got one.
#[derive(Debug)]
struct Handing {
    saver: Arc<Saver>,
    handed: AtomicBool,
    gate: Arc<Gate>,
}

impl Handing {
    /// Lets the writing thread make so many calls, if it has a checkpoint.
    fn let_write(&self, calls: u64) {
        if self.handed.load(Relaxed) {
            let is_idle = || self.saver.status().unwrap().taking_us.is_none();
            self.gate.let_pass(calls, is_idle);
            self.handed.store(!is_idle(), Relaxed);
        }
    }
}

impl millstream_engine::Checkpoints for Handing {
    fn restore(&self, leader: usize, stage: usize, operator: &mut dyn Operator) -> Result<()> {
        self.saver.restore(leader, stage, operator)
    }
    fn restored(&self) -> Option<String> {
        self.saver.restored()
    }
    fn durable(&self) -> u64 {
        self.saver.durable()
    }
    fn save(&self, cut: u64, leader: usize, stage: usize, state: Box<dyn SetAside>) {
        self.saver.save(cut, leader, stage, state);
    }
    fn is_awaited(&self) {
        self.let_write(1);
    }
    fn part(&self, cut: u64, prepared: Vec<Prepared>, written: PartWritten) -> Result<()> {
        self.saver.part(cut, prepared, written)
    }
    fn part_written(&self, cut: u64, process: usize, part: &[u8]) -> Result<()> {
        self.saver.part_written(cut, process, part)
    }
    fn complete(&self, cut: CutTaken) -> Result<bool> {
        self.handed.store(true, Relaxed);
        self.saver.complete(cut)
    }
    fn given_up(&self, cut: u64, others: usize) {
        self.saver.given_up(cut, others);
    }
    fn ended(&self, cut: Option<u64>) {
        self.saver.ended(cut);
    }
    fn status(&self) -> Option<CheckpointStatus> {
        self.saver.status()
    }
}

/// What happens while a job reads.
struct Control {
    stopper: Mutex<Option<Stopper>>,
    handing: Arc<Handing>,
    disk: CrashDisk,
    random: Mutex<Random>,
    /// One look in so many takes a cut, and stops the job; 0: none does.
    looks_of_cut: u64,
    looks_of_stop: u64,
    /// Calls of the writing thread between two looks at the most.
    pace: u64,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("control")
    }
}

impl Look for Control {
    fn look(&self) {
        let (mut random, stopper) = (self.random.lock().unwrap(), self.stopper.lock().unwrap());
        let Some(stopper) = stopper.as_ref() else { return };
        let saver = &self.handing.saver;
        if self.handing.handed.load(Relaxed) {
            self.handing.let_write(random.below(self.pace + 1));
        }
        let mut one_in = |looks: u64| looks > 0 && random.below(looks) == 0;
        if self.disk.has_crashed() {
            stopper.stop();
        } else if one_in(self.looks_of_stop) {
            let behind = stopper.clone();
            if !(one_in(2) && saver.cut_and_stop(stopper, move || behind.stop())) {
                stopper.stop();
            }
        } else if one_in(self.looks_of_cut) {
            saver.cut(stopper);
        }
    }
}

impl World {
    /// Runs the next program. `alone`: no other one sleeps meanwhile.
    ///
    /// # Errors
    /// The job's own, those of the store, and [`Error::Interrupted`] of a program that has stopped
    /// or died.
    pub(crate) fn run(
        self: &Arc<World>,
        program: u64,
        seed: u64,
        fate: Fate,
        alone: bool,
    ) -> Result<()> {
        let mut random = Random::new(seed);
        let ends = Arc::new(AtomicBool::new(false));
        if alone {
            self.let_happen(program, fate, ends.clone());
        }
        let gate = Arc::new(Gate::new());
        let settings = drawn_settings(&mut random, 4, self.lateness_ms);
        let settings = Settings { simulate: Some(random.below(1 << 30)), ..settings };
        let plan = packed(self.plan.clone(), random.below(1 << 30));
        let sinks = self.sinks(program, alone, &gate);
        let opened =
            self.open(&plan, &settings, &sinks, &gate, random.pick(&[0, 10_000, 1 << 30]))?;
        let Some(Opened { resume, saver, remarks, .. }) = opened else {
            self.tally.ended.fetch_add(1, Relaxed);
            return Ok(());
        };
        self.tally.resumed.fetch_add(u64::from(!resume.marks.is_empty()), Relaxed);
        let told = remarks.iter().filter(|remark| !remark.contains("is not the last"));
        assert_eq!(told.count(), 0, "something starts empty: {remarks:?}");
        let (handed, gate_of) = (AtomicBool::new(false), gate.clone());
        let handing = Arc::new(Handing { saver: saver.clone(), handed, gate: gate_of });
        let control = Arc::new(Control {
            stopper: Mutex::default(),
            handing: handing.clone(),
            disk: self.disk.clone(),
            looks_of_cut: random.pick(&[2, 5, 20, 100]),
            looks_of_stop: if fate == Fate::Stops { random.pick(&[5, 50]) } else { 0 },
            pace: random.pick(&[1, 5, 1000]),
            random: Mutex::new(Random::new(random.below(1 << 30))),
        });
        let reversed = !resume.marks.is_empty() && random.below(2) == 0;
        let look: Arc<dyn Look> = control.clone();
        let plan = read(plan, &look, &resume, (reversed, random.below(2) == 0));
        let job = Job::resume(&plan, &settings, sinks, &resume, Some(handing))?;
        let stopper = job.stopper();
        *control.stopper.lock().unwrap() = Some(stopper.clone());
        let (stats, result, remains) = job.run_and_keep();
        drop(remains);
        // The job holds the control.
        *control.stopper.lock().unwrap() = None;
        gate.open();
        saver.wait();
        ends.store(true, Relaxed);
        let told =
            stopper.notices().iter().filter(|line| line.starts_with("resumed from ")).count();
        assert!(told <= usize::from(!resume.marks.is_empty()), "{told} times");
        self.tally.told.fetch_add(told as u64, Relaxed);
        let result = result.and_then(|()| saver.end(stopper.marks()?, Vec::new()));
        let status = millstream_engine::Checkpoints::status(&*saver).unwrap();
        self.tally.written.fetch_add(status.written, Relaxed);
        self.tally.missed.fetch_add(status.failed, Relaxed);
        self.tally.merges.fetch_add(stats.merges, Relaxed);
        if result.is_ok() && !self.disk.has_crashed() {
            // It deletes no more than it may.
            match self.checkpoints(&Arc::new(Gate::new())).list() {
                Ok(there) => assert!(there.len() as u64 >= status.written.min(self.keep as u64)),
                Err(error) => assert!(self.disk.has_crashed(), "{error}"),
            }
        }
        result
    }

    fn sinks(&self, program: u64, alone: bool, gate: &Arc<Gate>) -> Vec<Arc<dyn Sink>> {
        let sink = |(output, order): (usize, &RowOrder)| -> Arc<dyn Sink> {
            let (disk, gate, rows) = (self.disk.clone(), gate.clone(), Mutex::default());
            Arc::new(Files { disk, gate, output, order: *order, program, alone, rows })
        };
        self.orders.iter().enumerate().map(sink).collect()
    }

    /// The checkpoints, behind a gate.
    pub(crate) fn checkpoints(&self, gate: &Arc<Gate>) -> Checkpoints {
        let (disk, gate) = (self.disk.clone(), gate.clone());
        let store = LocalStore::on(Arc::new(disk.clone()), STATE);
        Checkpoints::new(Arc::new(Gated { disk, store, gate }), "").unwrap()
    }

    /// Opens the checkpoints; `None` if the job has ended.
    fn open(
        &self,
        plan: &Plan,
        settings: &Settings,
        sinks: &[Arc<dyn Sink>],
        gate: &Arc<Gate>,
        room_bytes: u64,
    ) -> Result<Option<Opened>> {
        let options = Options {
            path: PathBuf::from(STATE),
            every: Duration::ZERO,
            keep: self.keep,
            tolerance: Duration::from_secs(3600),
            start: self.start,
            allow_new: Vec::new(),
        };
        let settings = Settings { memory_bytes: room_bytes, ..settings.clone() };
        let job = JobToSave {
            plan,
            settings: &settings,
            text: "a job".into(),
            targets: &[],
            sinks,
            type_name: &|of| of.to_string(),
            processes: 1,
            started_us: STARTED_US,
        };
        match open_in(self.checkpoints(gate), &options, &job, |_| {})? {
            Opening::Ended(_) => Ok(None),
            Opening::Runs(opened) => Ok(Some(*opened)),
        }
    }

    /// Lets the disk decide the fate of a program. At its end, `ends`, the store works.
    fn let_happen(self: &Arc<World>, program: u64, fate: Fate, ends: Arc<AtomicBool>) {
        let (first, world) = (self.disk.steps(), self.clone());
        let mut slept = false;
        self.disk.on_step(move |step| {
            let number = step.number - first;
            match fate {
                Fate::Crashes { at, after } if number == at => return Fault::Crash { after },
                Fate::Fails { from, to, code }
                    if (from..to).contains(&number)
                        && step.path.starts_with(STATE)
                        && !ends.load(Relaxed) =>
                {
                    return Fault::Error(code);
                }
                Fate::Sleeps { at, seed } if number >= at && !slept => {
                    slept = true;
                    let fate = if seed.is_multiple_of(3) { Fate::Lives } else { Fate::Stops };
                    // Whatever comes of it.
                    let _ = world.run(program + 1000, seed, fate, false);
                }
                _ => {}
            }
            Fault::None
        });
    }
}

/// Whether an error says that another program has taken the job's place.
pub(crate) fn has_lost(error: &Error) -> bool {
    error.to_string().contains("another")
}
