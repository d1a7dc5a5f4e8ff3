//! A link's reading end: the lanes through which a worker's batches arrive, and the streams that
//! they belong to.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use datafusion::arrow::buffer::{Buffer, MutableBuffer};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use futures::StreamExt;
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_flow::shuffle::ReceiverSetup;
use tokio::sync::{SetOnce, mpsc, oneshot};
use tonic::{Status, Streaming};

use crate::common::{Common, Registered, decode_hellos, encode_hellos};
use crate::control::{Answer, Credit, Hellos, Joined, Open, Said, ToReader, ToWriter};
use crate::error::{Error, Result};
use crate::frame::{Frame, HEADER_BYTES};
use crate::image::decode_schema;
use crate::inbox::Inbox;
use crate::mover::{Member, Turn, lock};
use crate::slot::{Endpoint, Fetched, Message, Permit, take};

/// Messages that a lane's turn takes at most.
const MESSAGES: usize = 32;

/// A lane, and how many of its slots batches hold.
struct Lane<F: Fabric> {
    endpoint: Arc<Endpoint<F>>,
    held: Arc<AtomicUsize>,
}

/// Calls that wait for the writer's answer.
type Answers = HashMap<u32, oneshot::Sender<Result<(SchemaRef, Option<Joined>)>>>;

/// Streams that a worker has opened.
pub(crate) struct OpenStreams {
    pub(crate) schema: SchemaRef,
    /// Number of the first stream.
    pub(crate) first: u32,
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    /// The flow that brings the streams; `None`: the lanes do.
    pub(crate) joined: Option<Joined>,
}

/// The reading end.
pub(crate) struct Inbound<F: Fabric> {
    pub(crate) worker: String,
    pub(crate) common: Arc<Common>,
    /// None are left when the link is broken: whoever still has a stream of it holds no memory.
    lanes: RwLock<Vec<Lane<F>>>,
    inboxes: Mutex<HashMap<u32, Arc<Inbox>>>,
    answers: Mutex<Answers>,
    /// None when the link is broken: the writer sees the control stream end.
    control: Mutex<Option<mpsc::UnboundedSender<ToWriter>>>,
    last_stream: AtomicU32,
    failed: SetOnce<Error>,
}

/// Lanes that are open, and not connected yet.
pub(crate) struct Opening<F: Fabric> {
    lanes: Vec<ReceiverSetup<F>>,
}

impl<F: Fabric> Opening<F> {
    pub(crate) fn new(fabric: &F, common: &Common) -> Result<Opening<F>> {
        let settings = common.config.settings();
        let lane = |_| ReceiverSetup::new(fabric, common.next_id(), 1, settings);
        let lanes: std::result::Result<_, _> = (0..common.config.lanes).map(lane).collect();
        Ok(Opening { lanes: lanes? })
    }

    /// Set-up messages for the writer.
    pub(crate) fn hellos(&self, token: &Token) -> Result<Hellos> {
        encode_hellos(self.lanes.iter().map(|lane| lane.hello(0)), token)
    }

    /// Connects to the writer's lanes.
    pub(crate) fn connect(
        self,
        worker: String,
        common: Arc<Common>,
        hellos: &Hellos,
        control: mpsc::UnboundedSender<ToWriter>,
    ) -> Result<Inbound<F>> {
        let theirs = decode_hellos(hellos, &common, &worker)?;
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for (lane, theirs) in self.lanes.into_iter().zip(theirs) {
            let receiver = lane.connect(&[theirs])?;
            let registered = Registered::new(&common, receiver.counters().registered_bytes);
            let endpoint = Arc::new(Endpoint { receiver, _registered: registered });
            lanes.push(Lane { endpoint, held: Arc::default() });
        }
        common.count(|counters| counters.links += 1);
        Ok(Inbound {
            worker,
            common,
            lanes: RwLock::new(lanes),
            inboxes: Mutex::default(),
            answers: Mutex::default(),
            control: Mutex::new(Some(control)),
            last_stream: AtomicU32::new(0),
            failed: SetOnce::new(),
        })
    }
}

impl<F: Fabric> Inbound<F> {
    /// Opens streams, which are numbered from the first on. What has arrived for them and was not
    /// read yet counts in this pool.
    pub(crate) async fn open(
        &self,
        mut open: Open,
        pool: &Arc<dyn MemoryPool>,
    ) -> Result<OpenStreams> {
        let count = u32::try_from(open.end.saturating_sub(open.start))
            .map_err(|_| Error::Batch("a task has too many partitions".into()))?;
        // A number for the answer, even if there are no streams.
        let first = self.last_stream.fetch_add(count.max(1), Ordering::Relaxed);
        open.first = first;
        let memory = Arc::new(MemoryConsumer::new("Exchange").register(pool));
        let inboxes: Vec<_> = (0..count).map(|_| Arc::new(Inbox::new(&memory))).collect();
        let (answer, answered) = oneshot::channel();
        lock(&self.answers).insert(first, answer);
        lock(&self.inboxes).extend((first..).zip(inboxes.iter().cloned()));
        // From here on the streams are closed if the caller goes away.
        let mut closing = Closing { link: self, first, count };
        self.say(Said::Open(open));
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        let patience = self.common.config.patience;
        let (schema, joined) = match tokio::time::timeout(patience, answered).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_)) => return Err(self.error()),
            Err(_) => {
                let reason = format!("it has not answered for {} s", patience.as_secs());
                return Err(Error::Lost { worker: self.worker.clone(), reason });
            }
        };
        closing.count = 0;
        self.common.count(|counters| counters.streams += u64::from(count));
        self.common.bell.ring();
        Ok(OpenStreams { schema, first, inboxes, joined })
    }

    /// The writer may send so many bytes of a stream since its beginning.
    pub(crate) fn grant(&self, stream: u32, bytes: u64) {
        self.common.count(|counters| counters.credits += 1);
        self.say(Said::Credit(Credit { stream, bytes }));
        self.common.bell.ring();
    }

    /// A stream has ended.
    pub(crate) fn forget(&self, stream: u32) {
        lock(&self.inboxes).remove(&stream);
    }

    /// Closes a stream whose reader has gone before the end.
    pub(crate) fn close(&self, stream: u32) {
        self.forget(stream);
        self.say(Said::Close(stream));
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.failed.get().is_some()
    }

    fn say(&self, said: Said) {
        if let Some(control) = &*lock(&self.control) {
            // A control stream that has ended has broken the link already.
            drop(control.send(said.into()));
        }
    }

    fn error(&self) -> Error {
        let lost = || Error::Lost { worker: self.worker.clone(), reason: "it is gone".into() };
        self.failed.get().cloned().unwrap_or_else(lost)
    }

    /// The link is broken: an error of every stream that is open.
    pub(crate) fn fail(&self, error: Error) {
        let error = match error {
            Error::Shuffle(error) => {
                Error::Lost { worker: self.worker.clone(), reason: error.to_string() }
            }
            other => other,
        };
        // An earlier failure keeps its error.
        drop(self.failed.set(error.clone()));
        lock(&self.control).take();
        lock(&self.answers).clear();
        let inboxes: Vec<_> = lock(&self.inboxes).drain().collect();
        for (_, inbox) in inboxes {
            inbox.fail(&error);
        }
        self.lanes.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Takes the writer's answers until the link is broken, which it is when the control stream
    /// ends.
    pub(crate) async fn listen(&self, mut answers: Streaming<ToReader>) {
        let error = loop {
            let answer = tokio::select! {
                answer = answers.next() => answer,
                // A writer whose host is silent does not end the control stream.
                _ = self.failed.wait() => return,
            };
            let answer = match answer {
                Some(Ok(ToReader { answer })) => answer,
                Some(Err(status)) => break status,
                None => break Status::unavailable("its process has ended the link"),
            };
            match answer {
                Some(Answer::Opened(opened)) => {
                    let schema = decode_schema(&opened.schema).map_err(Error::from);
                    self.answer(opened.first, schema.map(|schema| (schema, opened.joined)));
                }
                Some(Answer::Refused(refused)) => {
                    let (worker, reason) = (self.worker.clone(), refused.reason);
                    self.answer(refused.first, Err(Error::Worker { worker, reason }));
                }
                Some(Answer::Hello(_)) | None => {}
            }
        };
        self.fail(Error::Lost { worker: self.worker.clone(), reason: error.message().into() });
    }

    fn answer(&self, first: u32, answer: Result<(SchemaRef, Option<Joined>)>) {
        if let Some(waiting) = lock(&self.answers).remove(&first) {
            // Whoever has asked may be gone.
            drop(waiting.send(answer));
        }
    }

    /// A message has arrived.
    fn arrived(&self, lane: &Lane<F>, message: Message<F>) -> Result<()> {
        let config = &self.common.config;
        let broken = |what: String| Error::Protocol { worker: self.worker.clone(), what };
        let bytes = message.bytes();
        let frame = Frame::decode(bytes)
            .ok_or_else(|| broken("a message's header is wrong".to_string()))?;
        self.common.count(|counters| {
            counters.messages_received += 1;
            counters.bytes_received += bytes.len() as u64;
        });
        let Some(inbox) = lock(&self.inboxes).get(&frame.stream).cloned() else {
            // Closed meanwhile.
            return Ok(());
        };
        let long = bytes.len() >= config.copy_below_bytes;
        let permit = if long { Permit::take(&lane.held, config.held_max()) } else { None };
        let payload = match permit {
            Some(permit) => {
                self.common.count(|counters| counters.in_place += 1);
                message.into_buffer(HEADER_BYTES, permit)
            }
            None => self.copy(&bytes[HEADER_BYTES..]),
        };
        inbox.put(frame, payload).map_err(broken)
    }

    /// A message has arrived through a broadcast's flow, and is copied out of its ring.
    pub(crate) fn copied(&self, frame: Frame, message: &[u8]) -> Result<()> {
        self.common.count(|counters| {
            counters.messages_received += 1;
            counters.bytes_received += message.len() as u64;
        });
        let Some(inbox) = lock(&self.inboxes).get(&frame.stream).cloned() else {
            // Closed meanwhile.
            return Ok(());
        };
        let payload = self.copy(&message[HEADER_BYTES..]);
        let broken = |what: String| Error::Protocol { worker: self.worker.clone(), what };
        inbox.put(frame, payload).map_err(broken)
    }

    fn copy(&self, payload: &[u8]) -> Buffer {
        let mut copy = MutableBuffer::new(payload.len());
        copy.extend_from_slice(payload);
        self.common.count(|counters| counters.copied_bytes += copy.len() as u64);
        Buffer::from(copy)
    }

    /// Whether one of these streams is open.
    pub(crate) fn has_streams(&self, mut streams: Range<u32>) -> bool {
        let inboxes = lock(&self.inboxes);
        streams.any(|stream| inboxes.contains_key(&stream))
    }

    /// An error of these streams alone, after what has arrived.
    pub(crate) fn fail_streams(&self, streams: Range<u32>, error: &Error) {
        let inboxes: Vec<_> = {
            let mut inboxes = lock(&self.inboxes);
            streams.filter_map(|stream| inboxes.remove(&stream)).collect()
        };
        inboxes.iter().for_each(|inbox| inbox.fail(error));
    }

    /// Takes what has arrived in a lane. Returns whether there was anything.
    fn drain(&self, lane: &Lane<F>) -> Result<bool> {
        for taken in 0..MESSAGES {
            match take(&lane.endpoint)? {
                Fetched::Message(message) => self.arrived(lane, message)?,
                Fetched::Empty => return Ok(taken > 0),
                Fetched::End => {
                    let reason = "its process has ended the link".into();
                    return Err(Error::Lost { worker: self.worker.clone(), reason });
                }
            }
        }
        Ok(true)
    }

    /// Takes what has arrived in all lanes. Returns whether there was anything.
    fn drain_all(&self) -> Result<bool> {
        let mut moved = false;
        for lane in &*self.lanes.read().unwrap_or_else(PoisonError::into_inner) {
            moved |= self.drain(lane)?;
        }
        Ok(moved)
    }
}

impl<F: Fabric> Member for Inbound<F> {
    fn turn(&self) -> Turn {
        if self.is_broken() {
            return Turn::Gone;
        }
        match self.drain_all() {
            Ok(true) => Turn::Moved,
            Ok(false) if lock(&self.inboxes).is_empty() => Turn::Quiet,
            Ok(false) => Turn::Waiting,
            Err(error) => {
                self.fail(error);
                Turn::Gone
            }
        }
    }
}

/// Closes streams, unless they have been handed over, and waits for no answer.
struct Closing<'a, F: Fabric> {
    link: &'a Inbound<F>,
    first: u32,
    count: u32,
}

impl<F: Fabric> Drop for Closing<'_, F> {
    fn drop(&mut self) {
        lock(&self.link.answers).remove(&self.first);
        for stream in self.first..self.first + self.count {
            self.link.close(stream);
        }
    }
}
