//! Completion queues and sleeping threads, for providers that play the network card in software.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::{Duration, Instant};

use crate::error::{Error, NO_EVENTS, Result, last_os_error};
use crate::words::Bell;
use crate::work::Completion;

/// A queue pair, as its completion queues see it.
pub trait Member: Send + Sync + Sized + 'static {
    /// Its number.
    fn number(&self) -> u32;
    /// Called when a queue is polled: does what the owner has to do.
    fn poll(&self);
    /// Takes completions of receives that the pair keeps for this queue.
    fn poll_receives(&self, queue: &Queue<Self>, out: &mut [Completion]) -> usize;
    /// Frees entries of the send queue, when a completion has been polled.
    fn free(&self, entries: u32);
    /// Ends the connection.
    fn end(&self);
}

/// A datagram queue pair, as its completion queues see it.
pub(crate) trait Datagrams<P>: Send + Sync {
    /// Its number.
    fn number(&self) -> u32;
    /// Whether completions of receives go to this queue.
    fn receives_at(&self, queue: &Queue<P>) -> bool;
    /// Sends what has waited for room.
    fn send_on(&self);
    /// Takes what has arrived.
    fn poll(&self, out: &mut [Completion]) -> Result<usize>;
    /// Frees entries of the send queue, when a completion has been polled.
    fn free(&self, entries: u32);
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread is that thread's affair; all changes leave the data usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn check_limit(what: &'static str, asked: u32, max: u32) -> Result<()> {
    if asked <= max {
        return Ok(());
    }
    Err(Error::Limit { what, asked: asked.into(), max: max.into() })
}

/// A random number, different for each device.
pub(crate) fn random_id() -> Result<u64> {
    let mut id = 0_u64;
    // SAFETY: 8 bytes are written to a local.
    let got = unsafe { libc::getrandom((&raw mut id).cast(), size_of::<u64>(), 0) };
    if got == size_of::<u64>() as isize { Ok(id) } else { Err(last_os_error("getrandom")) }
}

/// Work that waits for a peer is tried so often while its owner sleeps.
const RETRY: Duration = Duration::from_millis(1);

/// Where a thread sleeps.
pub(crate) struct Sleep {
    pub(crate) bell: Bell,
    /// The bell's file, rung by peers.
    pub(crate) file: Arc<OwnedFd>,
    /// Number of sources without a bell: pending work, and datagram sockets.
    unheard: AtomicUsize,
}

impl Sleep {
    pub(crate) fn new() -> Result<Sleep> {
        let (file, bell) = Bell::new()?;
        Ok(Sleep { bell, file: Arc::new(file), unheard: AtomicUsize::new(0) })
    }

    /// Sleeps until the bell has rung more often than `seen`, and says how often it has.
    pub(crate) fn wait(&self, seen: u32, timeout: Duration) -> (u32, bool) {
        let start = Instant::now();
        loop {
            let rung = self.bell.rung();
            if rung != seen {
                return (rung, true);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return (rung, false);
            }
            let unheard = self.unheard.load(Ordering::Acquire) > 0;
            self.bell.sleep(seen, if unheard { left.min(RETRY) } else { left });
            if unheard && self.bell.rung() == seen {
                return (seen, true);
            }
        }
    }

    pub(crate) fn count_unheard(&self, more: bool) {
        if more {
            self.unheard.fetch_add(1, Ordering::AcqRel);
        } else {
            self.unheard.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Wake for Sleep {
    fn wake(self: Arc<Self>) {
        self.bell.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.bell.ring();
    }
}

/// A completion queue; a pair may keep completions of receives to itself until they are polled.
pub struct Queue<P> {
    entries: Mutex<Entries>,
    attached: Mutex<Attached<P>>,
    pub(crate) sleep: Option<Arc<Sleep>>,
}

struct Entries {
    ready: VecDeque<(Completion, u32)>,
    capacity: usize,
    overflow: bool,
}

/// Pairs and datagrams that complete here.
struct Attached<P> {
    pairs: Vec<Arc<P>>,
    datagrams: Vec<Arc<dyn Datagrams<P>>>,
}

impl<P: Member> Queue<P> {
    pub(crate) fn new(capacity: usize, sleep: Option<Arc<Sleep>>) -> Queue<P> {
        let ready = VecDeque::with_capacity(capacity);
        Queue {
            entries: Mutex::new(Entries { ready, capacity, overflow: false }),
            attached: Mutex::new(Attached { pairs: Vec::new(), datagrams: Vec::new() }),
            sleep,
        }
    }

    /// Attaches a pair to the queues of its completions.
    pub(crate) fn attach_pair(queues: (&Arc<Self>, &Arc<Self>), pair: &Arc<P>) {
        lock(&queues.0.attached).pairs.push(pair.clone());
        if !Arc::ptr_eq(queues.0, queues.1) {
            lock(&queues.1.attached).pairs.push(pair.clone());
        }
    }

    /// Attaches datagrams; no bell rings for their arrival.
    pub(crate) fn attach_datagrams(
        queues: (&Arc<Self>, &Arc<Self>),
        datagrams: &Arc<dyn Datagrams<P>>,
    ) {
        lock(&queues.0.attached).datagrams.push(datagrams.clone());
        if !Arc::ptr_eq(queues.0, queues.1) {
            lock(&queues.1.attached).datagrams.push(datagrams.clone());
        }
        queues.1.count_waiting(true);
    }

    /// The next completion rings.
    pub(crate) fn arm(&self) -> Result<()> {
        self.sleep.as_ref().ok_or(NO_EVENTS)?.bell.arm();
        Ok(())
    }

    /// Adds a completion that frees so many entries of its pair's send queue.
    pub(crate) fn push(&self, completion: Completion, frees: u32) {
        let mut entries = lock(&self.entries);
        if entries.ready.len() == entries.capacity {
            entries.overflow = true;
        } else {
            entries.ready.push_back((completion, frees));
        }
        drop(entries);
        if let Some(sleep) = &self.sleep {
            sleep.bell.event();
        }
    }

    /// Wakes the owner, armed or not.
    pub(crate) fn wake(&self) {
        if let Some(sleep) = &self.sleep {
            sleep.bell.ring();
        }
    }

    pub(crate) fn count_waiting(&self, more: bool) {
        if let Some(sleep) = &self.sleep {
            sleep.count_unheard(more);
        }
    }

    pub(crate) fn poll(&self, out: &mut [Completion]) -> Result<usize> {
        let attached = lock(&self.attached);
        for pair in &attached.pairs {
            pair.poll();
        }
        for datagrams in &attached.datagrams {
            datagrams.send_on();
        }
        let mut count = self.take_ready(&attached, out);
        for pair in &attached.pairs {
            if count < out.len() {
                count += pair.poll_receives(self, &mut out[count..]);
            }
        }
        for datagrams in &attached.datagrams {
            if count < out.len() && datagrams.receives_at(self) {
                count += datagrams.poll(&mut out[count..])?;
            }
        }
        if count == 0 && lock(&self.entries).overflow {
            for pair in &attached.pairs {
                pair.end();
            }
            return Err(Error::CompletionOverflow);
        }
        Ok(count)
    }

    fn take_ready(&self, attached: &Attached<P>, out: &mut [Completion]) -> usize {
        let mut entries = lock(&self.entries);
        let count = out.len().min(entries.ready.len());
        for (to, (completion, frees)) in out.iter_mut().zip(entries.ready.drain(..count)) {
            let number = completion.queue_pair;
            if let Some(pair) = attached.pairs.iter().find(|pair| pair.number() == number) {
                pair.free(frees);
            } else if let Some(ud) = attached.datagrams.iter().find(|ud| ud.number() == number) {
                ud.free(frees);
            }
            *to = completion;
        }
        count
    }

    /// Forgets what queue pair `number` left here.
    pub(crate) fn detach(&self, number: u32) {
        let mut attached = lock(&self.attached);
        attached.pairs.retain(|pair| pair.number() != number);
        attached.datagrams.retain(|datagrams| datagrams.number() != number);
        drop(attached);
        lock(&self.entries).ready.retain(|(completion, _)| completion.queue_pair != number);
    }
}
