//! What the workers of one process share to talk to the other processes.
//!
//! Whoever has time moves it on: a worker pumps what is to be sent and takes in what has come
//! whenever it resumes a coroutine, if no other worker is at it already. Nothing here waits.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;

use millstream_flow::Error as FlowError;
use millstream_state::{Heap, RowLayout, Segment};

use super::letters::{Failed, Letter, PostInlet};
use super::mesh::{Ends, Mesh, Place};
use super::outbox::{Outbox, Shipped, Stall};
use super::postbox::Postbox;
use super::wire::Head;
use crate::budget::Held;
use crate::error::{Error, Result};
use crate::event_time::{BEGINNING, END};
use crate::exchange::{Format, Outgoing};
use crate::pipeline::Grouping;

/// Letters taken from one peer before others have their turn.
const LETTERS_AT_ONCE: usize = 8;

/// A process's part of the job's network.
pub(crate) struct Net {
    pub(crate) place: Place,
    /// Where state stands.
    pub(crate) heap: Arc<Heap>,
    /// How rows are passed through; `None` in a job without state.
    pub(crate) format: Option<Arc<Format>>,
    workers: usize,
    /// Bytes that a message of a delta has room for.
    pub(crate) message_bytes: usize,
    /// By leader, of all processes; `None` for those of this one.
    outboxes: Vec<Option<Mutex<Outbox>>>,
    /// By process; `None` for this one.
    postboxes: Vec<Option<Mutex<Postbox>>>,
    inlets: Vec<Option<Mutex<PostInlet>>>,
    /// How many postboxes and outboxes have something to send.
    letters: AtomicUsize,
    deltas: AtomicBool,
    stalled: AtomicBool,
    /// By process: how far it has got, as its deltas tell.
    peers: Vec<Progress>,
    /// Up to where all leaders have fired, as the asking process tells.
    fired: AtomicI64,
    /// Result rows that have been sent ahead of their turn.
    ahead_bytes: AtomicU64,
    /// The first worker may sleep, and what comes for all of them wakes it.
    parked: AtomicBool,
    /// Who sleeps.
    wakers: Vec<Waker>,
}

struct Progress {
    watermark: AtomicI64,
    idle: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A channel's error, with the process at its other end.
pub(crate) fn peer_error(process: usize, error: FlowError) -> Error {
    match error {
        FlowError::PeerLost { .. } => Error::PeerLost { process, message: error.to_string() },
        error => Error::Peer { process, message: error.to_string() },
    }
}

/// What is wrong with a message, with the process that sent it.
pub(crate) fn sent_by(process: usize, error: Error) -> Error {
    match error {
        Error::Internal(what) => Error::Internal(format!("process {process} sent {what}")),
        error => error,
    }
}

impl Net {
    /// The network of a job with this state, if any, and what its workers poll themselves. An epoch
    /// ends when a fragment has `fragment_bytes`.
    pub(crate) fn new(
        mesh: Mesh,
        grouping: Option<&Grouping>,
        fragment_bytes: usize,
    ) -> Result<(Net, Vec<Ends>)> {
        let none = || Arc::new(RowLayout::new(0, Vec::new(), &[]));
        let layout = grouping.map_or_else(none, |grouping| grouping.layout.clone());
        let format = grouping.map(|g| Arc::new(Format::new(&g.codec, &g.aggregates)));
        let wakers = mesh.wakers();
        let Mesh { place, heap, deltas_out, posts_out, posts_in, workers: ends, exchange: _ } =
            mesh;
        let workers = ends.len();
        let outbox = |outlet| {
            let place = (place, workers);
            Mutex::new(Outbox::new(outlet, layout.clone(), place, &heap, fragment_bytes))
        };
        let mut outboxes = Vec::new();
        for outlets in deltas_out {
            let empty = outlets.is_empty();
            outboxes.extend(outlets.into_iter().map(|outlet| Some(outbox(outlet))));
            if empty {
                outboxes.extend((0..workers).map(|_| None));
            }
        }
        let inlet = |inlet| Mutex::new(PostInlet::new(inlet));
        let rows_fit = |outbox: &Mutex<Outbox>| layout.row_bytes() <= lock(outbox).body_bytes();
        if !outboxes.iter().flatten().all(rows_fit) {
            return Err(Error::Io {
                place: "a row of state".into(),
                message: format!("it has {} bytes, more than a message", layout.row_bytes()),
                help: "group by fewer columns, or run it in one process".into(),
            });
        }
        let bodies = outboxes.iter().flatten().map(|outbox| lock(outbox).body_bytes());
        let message_bytes = bodies.max().unwrap_or(0);
        let net = Net {
            place,
            message_bytes,
            heap,
            format,
            workers,
            outboxes,
            postboxes: posts_out
                .into_iter()
                .map(|outlet| outlet.map(|outlet| Mutex::new(Postbox::new(outlet))))
                .collect(),
            inlets: posts_in.into_iter().map(|i| i.map(inlet)).collect(),
            letters: AtomicUsize::new(0),
            deltas: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            peers: (0..place.processes)
                .map(|_| Progress {
                    watermark: AtomicI64::new(BEGINNING),
                    idle: AtomicBool::new(false),
                })
                .collect(),
            fired: AtomicI64::new(BEGINNING),
            ahead_bytes: AtomicU64::new(0),
            wakers,
        };
        Ok((net, ends))
    }

    /// Leaders of all processes.
    pub(crate) fn leaders(&self) -> usize {
        self.place.processes * self.workers
    }

    /// The first worker's number among all.
    pub(crate) fn first(&self) -> usize {
        self.place.process * self.workers
    }

    pub(crate) fn is_asker(&self) -> bool {
        self.place.process == 0
    }

    /// `worker` of this process ships segments to a leader elsewhere, with the watermark that this
    /// brings it up to.
    pub(crate) fn ship(
        &self,
        (worker, leader): (usize, usize),
        segments: Vec<(i64, Segment)>,
        held: Option<Held>,
        (watermark, idle): (i64, bool),
    ) -> Result<()> {
        let Some(outbox) = &self.outboxes[leader] else {
            return Err(Error::Internal(format!("leader {leader} is in this process")));
        };
        let mut outbox = lock(outbox);
        outbox.put(worker, segments, held, watermark, idle);
        self.pump_outbox(leader, &mut outbox)?;
        if worker != 0 && outbox.has_more() {
            // The first worker is woken by credit.
            self.wake(0);
        }
        Ok(())
    }

    /// Passes rows for `leader` straight into its channel, from the first on, as far as there is
    /// room and nothing waits there; returns how many.
    pub(crate) fn pass(
        &self,
        leader: usize,
        format: &Format,
        rows: &Outgoing<'_>,
        scratch: &mut Vec<u32>,
    ) -> Result<usize> {
        let Some(mut outbox) = self.outboxes[leader].as_ref().and_then(try_lock) else {
            return Ok(0);
        };
        if outbox.has_more() {
            self.pump_outbox(leader, &mut outbox)?;
        }
        let was_stalled = outbox.stall().is_some();
        let passed = outbox.pass(format, rows, leader / self.workers, scratch)?;
        if outbox.has_more() && (passed > 0 || !was_stalled) {
            self.pump_outbox(leader, &mut outbox)?;
            if outbox.has_more() {
                // The first worker is woken by credit.
                self.wake(0);
            }
        }
        if was_stalled && outbox.stall().is_none() {
            self.wake_all();
        }
        Ok(passed)
    }

    /// Memory is scarce: what waits to be merged with what other workers hold is sent as it is.
    /// `anyway`: also if leaders let it wait.
    pub(crate) fn hurry(&self, anyway: bool) -> Result<()> {
        for (leader, outbox) in self.outboxes.iter().enumerate() {
            let Some(outbox) = outbox else { continue };
            let mut outbox = lock(outbox);
            outbox.hurry(anyway);
            self.pump_outbox(leader, &mut outbox)?;
        }
        Ok(())
    }

    fn pump_outbox(&self, leader: usize, outbox: &mut Outbox) -> Result<bool> {
        let was_stalled = outbox.stall().is_some();
        let some = outbox.pump().map_err(|e| peer_error(leader / self.workers, e))?;
        if some {
            self.wake_parked();
        }
        if outbox.has_more() {
            self.deltas.store(true, Release);
        }
        if outbox.stall().is_some() {
            self.stalled.store(true, Release);
        } else if was_stalled {
            self.wake_all();
        }
        Ok(some)
    }

    /// What workers have to wait for before they take more input, if for anything.
    pub(crate) fn stall(&self) -> Option<Stall> {
        if !self.stalled.load(Acquire) {
            return None;
        }
        self.stalled.store(false, Release);
        let stall = self.outboxes.iter().flatten().filter_map(|outbox| lock(outbox).stall()).max();
        if stall.is_some() {
            self.stalled.store(true, Release);
        }
        stall
    }

    /// Puts a letter into the box of `process`.
    pub(crate) fn post(&self, process: usize, head: Head, body: Vec<u8>) -> Result<()> {
        let Some(postbox) = &self.postboxes[process] else {
            return Err(Error::Internal("a letter to ourselves".into()));
        };
        let mut postbox = lock(postbox);
        let was_empty = postbox.is_empty();
        postbox.put(head, body);
        if postbox.pump().map_err(|e| peer_error(process, e))? {
            self.wake_parked();
        }
        self.note_letters(was_empty, postbox.is_empty());
        Ok(())
    }

    fn note_letters(&self, was_empty: bool, is_empty: bool) {
        match (was_empty, is_empty) {
            (true, false) => {
                self.letters.fetch_add(1, Release);
                // The first worker is woken by credit.
                self.wake(0);
            }
            (false, true) => {
                self.letters.fetch_sub(1, Release);
            }
            _ => {}
        }
    }

    /// Tells all other processes.
    pub(crate) fn broadcast(&self, head: Head) -> Result<()> {
        let others = (0..self.place.processes).filter(|p| *p != self.place.process);
        others.into_iter().try_for_each(|process| self.post(process, head, Vec::new()))
    }

    /// Whether result rows for the asking process have to wait, since the channel does not keep up.
    pub(crate) fn is_congested(&self) -> bool {
        self.letters.load(Acquire) > 0
            && self.postboxes[0].as_ref().is_some_and(|postbox| lock(postbox).is_full())
    }

    /// Sends what waits, as far as there is credit. Returns whether anything was sent.
    pub(crate) fn pump(&self) -> Result<bool> {
        let mut some = false;
        if self.letters.load(Acquire) > 0 {
            for (process, postbox) in self.postboxes.iter().enumerate() {
                let Some(mut postbox) = postbox.as_ref().and_then(try_lock) else { continue };
                if !postbox.is_empty() {
                    some |= postbox.pump().map_err(|e| peer_error(process, e))?;
                    self.note_letters(false, postbox.is_empty());
                }
            }
        }
        if self.deltas.swap(false, Acquire) {
            for (leader, outbox) in self.outboxes.iter().enumerate() {
                let Some(outbox) = outbox else { continue };
                match try_lock(outbox) {
                    Some(mut outbox) => some |= self.pump_outbox(leader, &mut outbox)?,
                    None => self.deltas.store(true, Release),
                }
            }
        }
        Ok(some)
    }

    /// Takes letters in; whatever worker has time. Returns whether there were any.
    pub(crate) fn receive(
        &self,
        mut take: impl FnMut(usize, Head, Vec<u8>) -> Result<()>,
    ) -> Result<bool> {
        let mut some = false;
        for (process, inlet) in self.inlets.iter().enumerate() {
            let Some(mut inlet) = inlet.as_ref().and_then(try_lock) else { continue };
            for _ in 0..LETTERS_AT_ONCE {
                let Some(letter) = inlet.next().map_err(|e| match e {
                    Failed::Channel(error) => peer_error(process, error),
                    Failed::Message(error) => sent_by(process, error),
                })?
                else {
                    break;
                };
                some = true;
                if let Letter::Whole(head, body) = letter {
                    take(process, head, body).map_err(|e| sent_by(process, e))?;
                }
            }
        }
        Ok(some)
    }

    /// A leader has merged a delta of ours, or lets another one come; segments that are free again.
    pub(crate) fn credit(&self, leader: u32, flags: u8) -> Result<Vec<(i64, Segment)>> {
        let outbox = self.outboxes.get(leader as usize).and_then(Option::as_ref);
        let broken = || Error::Internal(format!("credit of leader {leader} for no delta"));
        let outbox = outbox.ok_or_else(broken)?;
        let mut outbox = lock(outbox);
        let was_stalled = outbox.stall().is_some();
        let segments = outbox.credit(flags).ok_or_else(broken)?;
        self.pump_outbox(leader as usize, &mut outbox)?;
        let (has_more, is_stalled) = (outbox.has_more(), outbox.stall().is_some());
        drop(outbox);
        match was_stalled && !is_stalled {
            true => self.wake_all(),
            false if has_more => self.wake(0),
            false => {}
        }
        Ok(segments)
    }

    /// What a delta from another process tells of how far that has got.
    pub(crate) fn note_peer(&self, process: usize, watermark: i64, idle: bool) {
        self.peers[process].watermark.fetch_max(watermark, Relaxed);
        self.peers[process].idle.store(idle, Relaxed);
    }

    /// How far the other processes have got, but for those that are idle; if all are, the farthest
    /// of them, as among splits of one process.
    pub(crate) fn others_low(&self) -> Option<i64> {
        let others = self.peers.iter().enumerate().filter(|(p, _)| *p != self.place.process);
        let active = others.clone().filter(|(_, peer)| !peer.idle.load(Relaxed));
        let got = |(_, peer): (usize, &Progress)| peer.watermark.load(Relaxed);
        active
            .map(got)
            .filter(|low| *low < END)
            .min()
            .or_else(|| others.map(got).filter(|low| *low < END).max())
    }

    pub(crate) fn fired(&self) -> i64 {
        self.fired.load(Relaxed)
    }

    pub(crate) fn note_fired(&self, watermark: i64) {
        self.fired.fetch_max(watermark, Relaxed);
    }

    pub(crate) fn ahead_bytes(&self) -> &AtomicU64 {
        &self.ahead_bytes
    }

    fn wake(&self, worker: usize) {
        if let Some(waker) = self.wakers.get(worker) {
            waker.wake_by_ref();
        }
    }

    fn wake_all(&self) {
        self.wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Something has been taken in or sent over a channel that the first worker may have asked to
    /// ring: it does not any more, until the first asks again.
    pub(crate) fn wake_parked(&self) {
        if self.parked.swap(false, AcqRel) {
            self.wake(0);
        }
    }

    /// One step towards sleep for what all workers share. Returns whether the first worker may
    /// sleep; whatever comes wakes it.
    pub(crate) fn park(&self) -> Result<bool> {
        self.parked.store(true, Release);
        let mut may_sleep = true;
        for (process, inlet) in self.inlets.iter().enumerate() {
            let Some(inlet) = inlet else { continue };
            match try_lock(inlet) {
                Some(inlet) if inlet.ended => {}
                Some(mut inlet) => {
                    may_sleep &= inlet.inlet.park().map_err(|e| peer_error(process, e))?;
                }
                None => may_sleep = false,
            }
        }
        for (process, postbox) in self.postboxes.iter().enumerate() {
            let Some(postbox) = postbox else { continue };
            match try_lock(postbox) {
                Some(postbox) if postbox.is_empty() => {}
                Some(mut postbox) => {
                    may_sleep &= postbox.outlet().park().map_err(|e| peer_error(process, e))?;
                }
                None => may_sleep = false,
            }
        }
        for (leader, outbox) in self.outboxes.iter().enumerate() {
            let Some(outbox) = outbox else { continue };
            match try_lock(outbox) {
                Some(outbox) if !outbox.has_more() => {}
                Some(mut outbox) => {
                    let parked = outbox.outlet().park();
                    // Once more after that, as it asks for.
                    let before = outbox.stall();
                    let sent = self.pump_outbox(leader, &mut outbox)?;
                    may_sleep &= parked.map_err(|e| peer_error(leader / self.workers, e))?
                        && !sent
                        && outbox.stall() == before;
                }
                None => may_sleep = false,
            }
        }
        Ok(may_sleep)
    }

    /// Whether nothing is left to be sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.outboxes.iter().flatten().all(|outbox| lock(outbox).is_empty())
            && self.postboxes.iter().flatten().all(|postbox| lock(postbox).is_empty())
    }

    /// Whether nothing is left to be sent to `process`, credit included.
    pub(crate) fn is_told(&self, process: usize) -> bool {
        self.postboxes[process].as_ref().is_none_or(|postbox| lock(postbox).is_empty())
    }

    /// One step of ending all streams in order, when all workers are done. Returns whether all have
    /// ended, on both sides.
    pub(crate) fn finish(&self) -> Result<bool> {
        if !self.is_drained() {
            return Ok(false);
        }
        let mut ended = true;
        for (leader, outbox) in self.outboxes.iter().enumerate() {
            let Some(outbox) = outbox else { continue };
            let finished = lock(outbox).outlet().try_finish();
            ended &= finished.map_err(|e| peer_error(leader / self.workers, e))?;
        }
        let others_ended = self.inlets.iter().flatten().all(|inlet| lock(inlet).ended);
        if self.is_asker() && !others_ended {
            // What they still have to say may have to be told to others.
            return Ok(false);
        }
        for (process, postbox) in self.postboxes.iter().enumerate() {
            let Some(postbox) = postbox else { continue };
            ended &= lock(postbox).outlet().try_finish().map_err(|e| peer_error(process, e))?;
        }
        Ok(ended && others_ended)
    }

    /// What has been shipped to leaders elsewhere.
    pub(crate) fn counters(&self) -> Shipped {
        let mut all = Shipped::default();
        for outbox in self.outboxes.iter().flatten() {
            let some = lock(outbox).counters();
            all.deltas += some.deltas;
            all.empty_deltas += some.empty_deltas;
            all.segments += some.segments;
            all.rows += some.rows;
            all.bytes += some.bytes;
            all.copied += some.copied;
            all.messages += some.messages;
            all.combined += some.combined;
            all.passed += some.passed;
        }
        all
    }
}
