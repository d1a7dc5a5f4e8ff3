//! What a job leaves behind, for the job that goes on from there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use arrow::record_batch::RecordBatch;
use millstream_contract::Result;
use millstream_contract::sink::{ONLY_INTERVAL, Prepared, Sealed};
use millstream_engine::{Checkpoints, CutTaken, OutputMark, PartWritten, Resume, Stopper};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::{SavePoint, SetAside};

use super::conserved::{Counted, Counting};
use super::cuts::{CutBatch, Cuts};
use super::queries::Query;
use crate::support::Random;

/// The last interval of a job.
const LAST: u64 = u64::MAX;

/// The name of prepared rows.
fn name(output: usize, process: usize, interval: u64) -> String {
    format!("output {output}, process {process}, interval {interval}")
}

/// The state of stages.
type State = Vec<CutBatch>;

/// State that has been set aside, by stage and leader.
type Aside = ((usize, usize), Box<dyn SetAside>);

/// A cut that is to be written: what the first process has set aside.
struct Writing {
    cut: u64,
    state: Vec<Aside>,
    others: usize,
    resume: Resume,
    /// By output.
    prepared: Vec<(usize, Prepared)>,
    /// Splits have joined: the job stands until the cut is written.
    joins: bool,
}

/// Another process's part of a cut that is to be written.
struct WritingPart {
    cut: u64,
    state: Vec<Aside>,
    prepared: Vec<Prepared>,
    written: PartWritten,
}

/// Of parts by cut and process, and whether the first process knows the part.
type Parts<T> = Mutex<BTreeMap<(u64, usize), (T, bool)>>;

/// State and places of the last cut that has been written, and rows that are visible.
#[derive(Default)]
pub(crate) struct Kept {
    /// By process: state of the cut that is being taken.
    saving: Mutex<BTreeMap<usize, Vec<Aside>>>,
    /// By process but the first: its parts that are not saved yet.
    writing_parts: Mutex<BTreeMap<usize, Vec<WritingPart>>>,
    /// State of parts that is saved.
    parts: Parts<State>,
    /// Cuts that have been taken, and not been written.
    writing: Mutex<Vec<Writing>>,
    state: Mutex<State>,
    /// The cuts of this job that have been written.
    cuts: Mutex<Cuts>,
    /// The durable one, for the cut that is being taken.
    pub(super) durable: AtomicU64,
    pub(crate) resume: Mutex<Resume>,
    /// By output.
    visible: Mutex<Vec<Vec<String>>>,
    /// By output and process: rows since the last cut.
    pub(super) pending: Mutex<BTreeMap<(usize, usize), Vec<String>>>,
    /// Rows that have been prepared, by a name.
    sealed: Mutex<BTreeMap<String, Vec<String>>>,
    /// Rows prepared for parts, by output.
    prepared: Parts<Vec<Prepared>>,
    /// All leaders of this job have restored their state.
    pub(crate) all_restored: AtomicBool,
    /// Decides when cuts are written; `None`: at once.
    random: Mutex<Option<Random>>,
    /// The last cut that was asked for and begun.
    pub(crate) begun: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) given_up: AtomicU64,
    /// Cuts that were taken before the one before was written, and those that a worker waited for.
    pub(crate) overtaken: AtomicU64,
    pub(crate) awaited: AtomicU64,
    /// Slices that were left out at cuts, and cuts whose durable one was not the last.
    pub(crate) left_out: AtomicU64,
    pub(crate) behind: AtomicU64,
    /// Rows that waited at cuts, of records, of windows and for the end.
    pub(crate) waited: [AtomicU64; 3],
    /// The first process of the job.
    pub(crate) stopper: Mutex<Option<Stopper>>,
    /// Rows that were written are there at once: computed again, they have to be the same. By
    /// output, all that were written by any job, and where the present job is.
    pub(crate) replays: AtomicBool,
    pub(super) log: Mutex<Vec<(Vec<String>, usize)>>,
    pub(crate) replayed: AtomicU64,
    /// What all cuts must conserve, the counts in visible rows, and sums of counts at cuts.
    pub(crate) counting: Option<Counting>,
    fired: AtomicU64,
    pub(crate) counted: Mutex<Counted>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("resume", &self.resume).finish_non_exhaustive()
    }
}

impl Kept {
    pub(crate) fn new(outputs: usize) -> Kept {
        Kept { visible: Mutex::new(vec![Vec::new(); outputs]), ..Kept::default() }
    }

    /// Of a query, whose cuts conserve rows if they can be counted.
    pub(crate) fn of(query: &Query, what: &str) -> Kept {
        let counting = Counting::of(query, what);
        Kept { counting, ..Kept::new(query.plan.outputs.len()) }
    }

    /// The next job begins: what the last one has not written is gone.
    pub(crate) fn begin(&self, random: Random) {
        self.saving.lock().unwrap().clear();
        self.writing_parts.lock().unwrap().clear();
        self.parts.lock().unwrap().clear();
        self.writing.lock().unwrap().clear();
        self.pending.lock().unwrap().clear();
        self.sealed.lock().unwrap().clear();
        self.prepared.lock().unwrap().clear();
        self.all_restored.store(false, Relaxed);
        let visible = self.visible.lock().unwrap();
        let mut log = self.log.lock().unwrap();
        log.resize_with(visible.len(), Default::default);
        log.iter_mut().zip(&*visible).for_each(|((_, at), rows)| *at = rows.len());
        if self.resume.lock().unwrap().started_us.is_none() {
            // Sinks of such rows wait for the first checkpoint.
            log.iter_mut().for_each(|(all, _)| all.clear());
        }
        *self.cuts.lock().unwrap() = Cuts::default();
        *self.random.lock().unwrap() = Some(random);
    }

    /// Whether something happens that does so once in `times`.
    fn one_in(&self, times: u64) -> bool {
        self.random.lock().unwrap().as_mut().is_none_or(|random| random.below(times) == 0)
    }

    /// Saves state.
    fn saved(&self, state: Vec<Aside>) -> State {
        let (cuts, mut all) = (self.cuts.lock().unwrap(), State::new());
        for (owner, mut aside) in state {
            if self.one_in(2) {
                aside.copy_shared();
            }
            let at = SavePoint::new(100, 10_000);
            let (batches, left_out) = cuts.save(owner, &mut *aside, at).unwrap();
            self.left_out.fetch_add(left_out.len() as u64, Relaxed);
            all.extend(batches);
        }
        all
    }

    /// Writes the cuts that have been taken, up to one whose parts have not all come.
    fn write(&self) {
        let mut writing = self.writing.lock().unwrap();
        let complete = writing.iter().take_while(|cut| self.has_parts(cut)).count();
        let complete: Vec<_> = writing.drain(..complete).collect();
        drop(writing);
        for cut in complete {
            let mut state = self.saved(cut.state);
            let mut parts = self.parts.lock().unwrap();
            let of_cut: Vec<_> = parts.keys().copied().filter(|of| of.0 == cut.cut).collect();
            of_cut.iter().for_each(|of| state.extend(parts.remove(of).unwrap().0));
            drop(parts);
            self.cuts.lock().unwrap().0.insert(cut.cut, state.clone());
            *self.state.lock().unwrap() = state;
            *self.resume.lock().unwrap() = cut.resume;
            self.publish(cut.prepared);
            self.publish(self.take_prepared(|at, is_known| at <= cut.cut && is_known));
            self.check_counts();
            let stopper = self.stopper.lock().unwrap().clone().filter(|_| cut.joins);
            stopper.into_iter().for_each(|stopper| stopper.go_on(cut.cut, true));
        }
    }

    /// Notes rows that are written, which an earlier job may have written before.
    pub(super) fn note_written(&self, output: usize, rows: &[String]) {
        if let Some((all, at)) = self.log.lock().unwrap().get_mut(output) {
            for row in rows {
                match all.get(*at) {
                    Some(known) => {
                        assert_eq!(row, known, "row {at} of output {output}, computed again");
                        self.replayed.fetch_add(1, Relaxed);
                    }
                    None => all.push(row.clone()),
                }
                *at += 1;
            }
        }
    }

    /// Whether the first process has all parts of a cut.
    fn has_parts(&self, cut: &Writing) -> bool {
        let parts = self.parts.lock().unwrap();
        let known = parts.iter().filter(|((of, _), (_, is_known))| *of == cut.cut && *is_known);
        known.count() == cut.others
    }

    /// Takes prepared rows of other processes, by cut and whether the first process knows of them.
    fn take_prepared(&self, takes: impl Fn(u64, bool) -> bool) -> Vec<(usize, Prepared)> {
        let mut all = self.prepared.lock().unwrap();
        let taken = all.extract_if(.., |(cut, _), (_, is_known)| takes(*cut, *is_known));
        taken.flat_map(|(_, (prepared, _))| prepared.into_iter().enumerate()).collect()
    }

    /// Writes the parts of another process.
    fn write_parts(&self, process: usize) {
        let parts = self.writing_parts.lock().unwrap().remove(&process);
        for WritingPart { cut, state, prepared, written } in parts.into_iter().flatten() {
            let saved = self.saved(state);
            self.parts.lock().unwrap().insert((cut, process), (saved, false));
            self.prepared.lock().unwrap().insert((cut, process), (prepared, false));
            written(Ok(named(cut, process).into_bytes()));
        }
    }

    /// Rows are conserved at a cut that has just been written.
    fn check_counts(&self) {
        let Some(counting) = &self.counting else { return };
        let (state, resume) = (self.state.lock().unwrap(), self.resume.lock().unwrap());
        let counted = counting.check(&state, &resume, self.fired.load(Relaxed));
        self.counted.lock().unwrap().add(counted);
    }

    /// Makes prepared rows of outputs visible.
    fn publish(&self, prepared: Vec<(usize, Prepared)>) {
        let mut visible = self.visible.lock().unwrap();
        let mut all = self.sealed.lock().unwrap();
        for (output, prepared) in prepared {
            for Sealed { from, to } in prepared.sealed {
                assert!(to.starts_with(&format!("output {output},")), "{to}");
                let mut rows = all.remove(&from).expect("prepared rows");
                let counts = self.counting.iter().map(|counting| counting.in_lines(&rows));
                self.fired.fetch_add(counts.sum(), Relaxed);
                visible[output].append(&mut rows);
            }
        }
    }

    /// How many parts have rows of which the first process does not know.
    pub(crate) fn untaken(&self) -> usize {
        let prepared = self.prepared.lock().unwrap();
        let unknown = prepared.values().filter(|(_, is_known)| !is_known);
        unknown.filter(|(of, _)| of.iter().any(|of| !of.sealed.is_empty())).count()
    }

    /// The present cut will not be completed.
    fn give_up(&self) {
        self.given_up.fetch_add(1, Relaxed);
        self.saving.lock().unwrap().clear();
    }

    /// How many other processes have a part of a cut, saved or not.
    fn parts_of(&self, cut: u64) -> usize {
        let to_write = self.writing_parts.lock().unwrap();
        let to_write = to_write.values().flatten().filter(|part| part.cut == cut).count();
        to_write + self.parts.lock().unwrap().keys().filter(|(of, _)| *of == cut).count()
    }

    /// How many parts the first process does not know of.
    pub(crate) fn unknown(&self) -> usize {
        let to_write: usize = self.writing_parts.lock().unwrap().values().map(Vec::len).sum();
        let parts = self.parts.lock().unwrap();
        to_write + parts.values().filter(|(_, is_known)| !is_known).count()
    }

    /// Cuts that have been completed or given up.
    pub(crate) fn ended(&self) -> u64 {
        self.completed.load(Relaxed) + self.given_up.load(Relaxed)
    }

    /// All rows, when the job has ended well.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        self.write();
        let pending: Vec<_> = self.pending.lock().unwrap().keys().copied().collect();
        let last =
            pending.into_iter().map(|(output, process)| (output, self.seal(output, process, LAST)));
        // Those of a job of one process have been prepared at its end.
        let outputs = self.visible.lock().unwrap().len();
        let of_one = (0..outputs).filter_map(|output| {
            let name = name(output, 0, ONLY_INTERVAL);
            let sealed = vec![Sealed { from: name.clone(), to: name.clone() }];
            let is_there = self.sealed.lock().unwrap().contains_key(&name);
            is_there.then_some((output, Prepared { interval: ONLY_INTERVAL, sealed }))
        });
        let of_cuts = std::mem::take(&mut *self.writing.lock().unwrap());
        let of_cuts = of_cuts.into_iter().flat_map(|cut| cut.prepared);
        let parts = self.take_prepared(|_, _| true);
        self.publish(of_cuts.chain(parts).chain(of_one).chain(last).collect());
        let untold = self.sealed.lock().unwrap();
        assert!(untold.is_empty(), "nobody has told of {untold:?}");
        self.visible.lock().unwrap().clone()
    }

    /// Prepares the rows of an output in a process.
    pub(super) fn seal(&self, output: usize, process: usize, interval: u64) -> Prepared {
        let name = name(output, process, interval);
        let rows = self.pending.lock().unwrap().remove(&(output, process));
        let sealed = rows.map(|rows| {
            self.sealed.lock().unwrap().insert(name.clone(), rows);
            Sealed { from: name.clone(), to: name }
        });
        Prepared { interval, sealed: sealed.into_iter().collect() }
    }

    fn note_waiting(&self, OutputMark { waiting, .. }: &OutputMark) {
        for rows in waiting {
            // Of the last six columns the first is the source, and the fourth the input.
            let first = rows.num_columns() - 6;
            let has = |column: usize| rows.column(first + column).null_count() == 0;
            let kind = if has(0) { 0 } else { 2 - usize::from(has(3)) };
            self.waited[kind].fetch_add(rows.num_rows() as u64, Relaxed);
        }
    }
}

/// Rows of one place in their order, joined and divided elsewhere.
fn divided_anew(waiting: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let Some(schema) = waiting.first().map(RecordBatch::schema) else { return waiting };
    let all = arrow::compute::concat_batches(&schema, &waiting).unwrap();
    let starts = (0..all.num_rows()).step_by(100);
    starts.map(|at| all.slice(at, 100.min(all.num_rows() - at))).collect()
}

/// What of all that belongs to a process of the job.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) kept: Arc<Kept>,
    pub(crate) process: usize,
}

/// As the first process hears of a part.
fn named(cut: u64, process: usize) -> String {
    format!("process {process} at cut {cut}")
}

impl Checkpoints for Part {
    fn restore(&self, _: usize, stage: usize, operator: &mut dyn Operator) -> Result<()> {
        assert!(!self.kept.all_restored.load(Relaxed), "a leader restores later");
        let state = self.kept.state.lock().unwrap();
        let mut of_stage = state.iter().filter(|of| of.owner.0 == stage);
        of_stage.try_for_each(|CutBatch { batch, counting, .. }| {
            operator.restore(batch.part, &batch.rows, counting.as_deref())
        })
    }

    fn restored(&self) -> Option<String> {
        assert_eq!(self.process, 0);
        assert!(!self.kept.all_restored.swap(true, Relaxed), "told twice");
        None
    }

    fn durable(&self) -> u64 {
        assert_eq!(self.process, 0);
        let written: Vec<u64> = self.kept.cuts.lock().unwrap().0.keys().copied().collect();
        let is_behind = written.len() > 1 && self.kept.one_in(4);
        self.kept.behind.fetch_add(is_behind.into(), Relaxed);
        let durable = written.iter().rev().nth(is_behind.into()).copied().unwrap_or(0);
        self.kept.durable.store(durable, Relaxed);
        durable
    }

    fn save(&self, cut: u64, leader: usize, stage: usize, state: Box<dyn SetAside>) {
        assert_eq!(cut, self.kept.begun.load(Relaxed));
        assert_eq!(state.unchanged().durable, self.kept.durable.load(Relaxed));
        let mut saving = self.kept.saving.lock().unwrap();
        saving.entry(self.process).or_default().push(((stage, leader), state));
    }

    fn is_awaited(&self) {
        if self.process > 0 {
            if self.kept.one_in(10) {
                self.kept.write_parts(self.process);
            }
        } else if !self.kept.writing.lock().unwrap().is_empty() && self.kept.one_in(10) {
            self.kept.awaited.fetch_add(1, Relaxed);
            self.kept.write();
        }
    }

    fn part(&self, cut: u64, prepared: Vec<Prepared>, written: PartWritten) -> Result<()> {
        assert_ne!(self.process, 0);
        let state = self.kept.saving.lock().unwrap().remove(&self.process).unwrap_or_default();
        let mut writing = self.kept.writing_parts.lock().unwrap();
        let part = WritingPart { cut, state, prepared, written };
        writing.entry(self.process).or_default().push(part);
        drop(writing);
        // All slices that later cuts leave out are saved then.
        if self.kept.resume.lock().unwrap().started_us.is_none() || self.kept.one_in(3) {
            self.kept.write_parts(self.process);
        }
        Ok(())
    }

    fn part_written(&self, cut: u64, process: usize, part: &[u8]) -> Result<()> {
        assert_eq!(part, named(cut, process).as_bytes());
        self.kept.parts.lock().unwrap().get_mut(&(cut, process)).unwrap().1 = true;
        self.kept.prepared.lock().unwrap().get_mut(&(cut, process)).unwrap().1 = true;
        if self.kept.one_in(3) {
            self.kept.write();
        }
        Ok(())
    }

    fn complete(&self, cut: CutTaken) -> Result<bool> {
        let kept = &*self.kept;
        assert_eq!((cut.number, self.process), (kept.begun.load(Relaxed), 0));
        let started_us = kept.resume.lock().unwrap().started_us;
        assert_eq!(cut.started_us, started_us.unwrap_or(cut.started_us));
        kept.completed.fetch_add(1, Relaxed);
        cut.outputs.iter().for_each(|mark| kept.note_waiting(mark));
        let state = kept.saving.lock().unwrap().remove(&0).unwrap_or_default();
        let prepared = cut.prepared.into_iter().enumerate().collect();
        let marks = cut.outputs.into_iter();
        let outputs = marks.map(|mark| OutputMark { waiting: divided_anew(mark.waiting), ..mark });
        let resume = Resume {
            started_us: Some(cut.started_us),
            marks: cut.marks,
            frontiers: cut.frontiers,
            layouts: cut.layouts,
            outputs: outputs.collect(),
            lookups: cut.lookups,
            totals: cut.totals,
        };
        let mut writing = kept.writing.lock().unwrap();
        kept.overtaken.fetch_add((!writing.is_empty()).into(), Relaxed);
        let (joins, others) = (cut.joins, cut.others);
        writing.push(Writing { cut: cut.number, state, others, resume, prepared, joins });
        drop(writing);
        // The first at once: a job that began anew would pack windows as it likes, and sessions of
        // another packing come in another order.
        let is_first = kept.resume.lock().unwrap().started_us.is_none();
        if is_first || kept.one_in(3) {
            kept.write();
        }
        Ok(!joins)
    }

    fn given_up(&self, cut: u64, others: usize) {
        assert_eq!((cut, self.process), (self.kept.begun.load(Relaxed), 0));
        assert_eq!(others, self.kept.parts_of(cut), "processes with a part");
        self.kept.give_up();
    }

    fn ended(&self, cut: Option<u64>) {
        // Another process may not know yet that a cut was completed, and the next one begun.
        let begun = self.kept.begun.load(Relaxed);
        assert!(cut.is_none_or(|cut| cut == begun || self.process > 0 && cut < begun), "{begun}");
        match self.process {
            0 if cut.is_some() => self.kept.give_up(),
            0 => {}
            // The thread that writes ends before the process does.
            process => self.kept.write_parts(process),
        }
    }
}
