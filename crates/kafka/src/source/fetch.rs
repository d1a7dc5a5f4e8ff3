//! Fetching: threads that keep a few batches of each partition ready.
//!
//! One thread for each broker that leads partitions: it asks for the next batches of all partitions
//! that have room, and puts them into their queues. One more thread, the *keeper*, asks which
//! broker leads what, looks for new partitions, and commits offsets. Splits only take from queues,
//! and never wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{AbortedTransaction, PartitionData};
use kafka_protocol::messages::{BrokerId, FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::options::FetchSettings;
use crate::client::batch::{Head, is_abort};
use crate::client::cluster::{Asked, Cluster, Leader, Metadata, Partition};
use crate::client::fault::{Fault, Outcome};
use crate::client::wire::{Address, Connection, error_of};

/// Pauses between tries: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a topic may be unknown before that counts: brokers learn of topics one after the other.
const UNKNOWN_MAX: Duration = Duration::from_secs(5);
/// A fault that lasts as long is told.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// A batch that was fetched.
#[derive(Debug, Clone)]
pub(super) struct Fetched {
    pub(super) head: Head,
    pub(super) bytes: Bytes,
    /// Whether its records count: those of aborted transactions and the ends of transactions do
    /// not.
    pub(super) counts: bool,
}

/// What is ready in a queue.
#[derive(Debug)]
pub(super) enum Ready {
    /// Batches, in order.
    Batches(Vec<Fetched>),
    /// There are no records before this offset.
    Nothing(i64),
    /// Nothing yet.
    Later,
}

/// The offsets of a partition's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) start: i64,
    /// Behind the last record that may be read.
    pub(super) end: i64,
}

struct Lane {
    partition: Partition,
    topic_id: Uuid,
    leader: Option<Leader>,
    /// Whether its split has asked.
    wanted: bool,
    /// The offset to fetch next, and the last to be fetched but one; the epoch of the last batch.
    next: i64,
    until: i64,
    epoch: i32,
    queue: VecDeque<Fetched>,
    queued_bytes: usize,
    /// There is nothing from the end of the queue up to `next`.
    gap: bool,
    /// Bytes to ask for.
    bytes: i32,
    busy: bool,
    log: Option<Log>,
    waker: Option<Waker>,
    failed: Option<Fault>,
    /// The topic has been unknown since then.
    unknown_since: Option<Instant>,
    /// The broker says that `next` is outside of the log.
    outside: bool,
}

struct State {
    lanes: Vec<Lane>,
    brokers: BTreeMap<i32, Address>,
    /// Brokers that have threads.
    threads: BTreeSet<i32>,
    /// The partitions that there are, as far as the keeper has seen.
    seen: BTreeSet<Partition>,
    commit: Option<BTreeMap<Partition, i64>>,
    /// A fault since, and whether it has been told.
    trouble: Option<(Instant, String, bool)>,
    news: VecDeque<String>,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    settings: FetchSettings,
    servers: String,
}

/// The partitions of a table that one process reads.
pub(super) struct Fetcher(Arc<Shared>);

/// A partition to be fetched.
pub(super) struct Start {
    pub(super) partition: Partition,
    pub(super) topic_id: Uuid,
    pub(super) offset: i64,
    pub(super) epoch: i32,
    pub(super) until: i64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        longest: Duration,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, longest);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Fetcher {
    /// Begins to fetch nothing: each partition from when its split first asks.
    pub(super) fn start(settings: FetchSettings, seen: BTreeSet<Partition>) -> Fetcher {
        let servers = settings.client.shown();
        let state = State {
            lanes: Vec::new(),
            brokers: BTreeMap::new(),
            threads: BTreeSet::new(),
            seen,
            commit: None,
            trouble: None,
            news: VecDeque::new(),
            stop: false,
        };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), settings, servers });
        let keeper = shared.clone();
        let name = "kafka keeper".to_string();
        if thread::Builder::new().name(name).spawn(move || keep(&keeper)).is_err() {
            shared.lock().stop = true;
        }
        Fetcher(shared)
    }

    /// Adds partitions; returns the number of the first.
    pub(super) fn add(&self, starts: Vec<Start>) -> usize {
        let mut state = self.0.lock();
        let first = state.lanes.len();
        for start in starts {
            state.seen.insert(start.partition.clone());
            state.lanes.push(Lane {
                partition: start.partition,
                topic_id: start.topic_id,
                leader: None,
                wanted: false,
                next: start.offset,
                until: start.until,
                epoch: start.epoch,
                queue: VecDeque::new(),
                queued_bytes: 0,
                gap: false,
                bytes: self.0.settings.partition_bytes,
                busy: false,
                log: None,
                waker: None,
                failed: None,
                unknown_since: None,
                outside: false,
            });
        }
        first
    }

    /// Takes batches of a lane: about so many bytes or records, at least one batch.
    pub(super) fn take(
        &self,
        lane: usize,
        bytes: usize,
        records: usize,
        waker: &Waker,
    ) -> Result<Ready, Fault> {
        let mut state = self.0.lock();
        let stopped = state.stop;
        let lane = &mut state.lanes[lane];
        if !lane.wanted {
            lane.wanted = true;
            self.0.changed.notify_all();
        }
        let (mut taken, mut taken_bytes, mut taken_records) = (Vec::new(), 0, 0);
        while let Some(front) = lane.queue.front() {
            let (of, count) = (front.head.bytes, front.head.records.max(0) as usize);
            let full = taken_bytes + of > bytes || taken_records + count > records;
            if full && !taken.is_empty() {
                break;
            }
            taken_bytes += of;
            taken_records += count;
            taken.extend(lane.queue.pop_front());
        }
        if !taken.is_empty() {
            lane.queued_bytes -= taken_bytes;
            self.0.changed.notify_all();
            return Ok(Ready::Batches(taken));
        }
        if std::mem::take(&mut lane.gap) {
            return Ok(Ready::Nothing(lane.next));
        }
        if let Some(fault) = &lane.failed {
            return Err(fault.clone());
        }
        if stopped {
            return Err(Fault::internal("the threads that fetch have stopped".into()));
        }
        lane.waker = Some(waker.clone());
        Ok(Ready::Later)
    }

    /// The log of a lane's partition, if a broker has told it.
    pub(super) fn log(&self, lane: usize) -> Option<Log> {
        self.0.lock().lanes[lane].log
    }

    /// Whether all of the partition has been taken, as far as brokers have told.
    pub(super) fn caught_up(&self, lane: usize) -> bool {
        let state = self.0.lock();
        let lane = &state.lanes[lane];
        let is_asked = lane.leader.is_some();
        is_asked && lane.queue.is_empty() && lane.log.is_some_and(|log| lane.next >= log.end)
    }

    pub(super) fn news(&self) -> Option<String> {
        self.0.lock().news.pop_front()
    }

    /// Has offsets committed to the group, if there is a group.
    pub(super) fn commit(&self, offsets: BTreeMap<Partition, i64>) {
        let mut state = self.0.lock();
        state.commit.get_or_insert_default().extend(offsets);
        self.0.changed.notify_all();
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.0.lock().stop = true;
        self.0.changed.notify_all();
    }
}

/// The keeper's loop.
fn keep(shared: &Arc<Shared>) {
    let settings = &shared.settings;
    let mut cluster = Cluster::new(settings.client.clone(), settings.committed_only);
    let mut pause = PAUSE;
    let mut looked: Option<Instant> = None;
    loop {
        let mut state = shared.lock();
        let (asks, commit) = loop {
            let headless = state.lanes.iter().any(|lane| {
                lane.wanted && lane.leader.is_none() && lane.failed.is_none()
            });
            let every = settings.discovery;
            let due = |looked: Option<Instant>| {
                every.map(|every| looked.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed())))
            };
            let discovers = due(looked).is_some_and(|left| left.is_zero());
            if state.stop {
                // What is durable may be committed before the end.
                let commit = state.commit.take();
                drop(state);
                commit_offsets(shared, &mut cluster, commit);
                return;
            }
            if headless || discovers || state.commit.is_some() {
                break (headless || discovers, state.commit.take());
            }
            let longest = due(looked).unwrap_or(Duration::from_secs(3_600));
            state = shared.wait(state, longest.max(Duration::from_millis(1)));
        };
        drop(state);
        commit_offsets(shared, &mut cluster, commit);
        if !asks {
            continue;
        }
        match settings.topics.metadata(&mut cluster) {
            Ok(metadata) => {
                looked = Some(Instant::now());
                note_outside(shared, &mut cluster, &metadata);
                if note_metadata(shared, &metadata) {
                    pause = PAUSE;
                    continue;
                }
            }
            Err(fault) => note_trouble(shared, Some(&fault)),
        }
        let state = shared.lock();
        if !state.stop {
            drop(shared.wait(state, pause));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn commit_offsets(
    shared: &Shared,
    cluster: &mut Cluster,
    commit: Option<BTreeMap<Partition, i64>>,
) {
    let (Some(offsets), Some(group)) = (commit, &shared.settings.group) else { return };
    if let Err(fault) = cluster.commit(group, &offsets) {
        let text = format!("offsets were not committed: {}", fault.text());
        tracing::warn!(group, "{text}");
        let mut state = shared.lock();
        if !state.news.contains(&text) {
            state.news.push_back(text);
        }
        // A waker brings the notice to the user.
        wake_all(&mut state);
    }
}

fn wake_all(state: &mut State) {
    state.lanes.iter_mut().filter_map(|lane| lane.waker.take()).for_each(Waker::wake);
}

/// Tells a fault once it has lasted, and its end.
fn note_trouble(shared: &Shared, fault: Option<&Fault>) {
    let mut state = shared.lock();
    match fault {
        None => {
            if let Some((since, _, true)) = state.trouble.take() {
                let seconds = since.elapsed().as_secs();
                let text = format!("kafka {}: reads again, after {seconds} s", shared.servers);
                state.news.push_back(text);
                wake_all(&mut state);
            }
        }
        Some(fault) => {
            let text = fault.text();
            let (since, last, told) = state
                .trouble
                .take()
                .unwrap_or_else(|| (Instant::now(), text.clone(), false));
            let tells = !told && since.elapsed() >= TOLD_AFTER;
            state.trouble = Some((since, last, told || tells));
            if tells {
                state.news.push_back(format!("kafka: {text}; tries again until it is there"));
                wake_all(&mut state);
            }
        }
    }
}

/// Takes over who leads what. False if a wanted partition still has no leader.
fn note_metadata(shared: &Arc<Shared>, metadata: &Metadata) -> bool {
    let mut state = shared.lock();
    state.brokers.clone_from(&metadata.brokers);
    note_new(&mut state, metadata);
    let mut all = true;
    for lane in &mut state.lanes {
        if lane.leader.is_some() || lane.failed.is_some() {
            continue;
        }
        let topic = metadata.topics.get(&lane.partition.topic);
        match topic {
            Some(topic) if is_other(topic.id, lane.topic_id) => {
                lane.failed = Some(made_again(&lane.partition));
            }
            Some(topic) => {
                lane.unknown_since = None;
                lane.leader = topic.leaders.get(&lane.partition.number).copied().flatten();
            }
            None => {
                let since = *lane.unknown_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= UNKNOWN_MAX {
                    lane.failed = Some(Fault::Fatal {
                        place: format!("topic '{}'", lane.partition.topic),
                        message: "the topic was deleted while the job read it".into(),
                        help: String::new(),
                    });
                }
            }
        }
        if lane.failed.is_some() {
            lane.waker.take().into_iter().for_each(Waker::wake);
        } else {
            all &= lane.leader.is_some() || !lane.wanted;
        }
    }
    let leaders: BTreeSet<i32> =
        state.lanes.iter().filter_map(|lane| lane.leader.map(|leader| leader.broker)).collect();
    for broker in leaders {
        if state.threads.insert(broker) {
            let shared = shared.clone();
            let name = format!("kafka broker {broker}");
            if thread::Builder::new().name(name).spawn(move || fetch(&shared, broker)).is_err() {
                state.threads.remove(&broker);
                all = false;
            }
        }
    }
    drop(state);
    shared.changed.notify_all();
    if all {
        note_trouble(shared, None);
    } else {
        note_trouble(shared, Some(&Fault::retry("a partition has no leader".into())));
    }
    all
}

/// Tells of partitions that came after the start: this run does not read them.
fn note_new(state: &mut State, metadata: &Metadata) {
    let mut new = Vec::new();
    for (topic, of) in &metadata.topics {
        for number in of.leaders.keys() {
            let partition = Partition { topic: topic.clone(), number: *number };
            if state.seen.insert(partition.clone()) {
                new.push(partition.to_string());
            }
        }
    }
    if !new.is_empty() {
        let listed = new.join(", ");
        state.news.push_back(format!(
            "kafka: there are new partitions ({listed}), which this run does not read: stop the job \
             and start it again, and it goes on with them"
        ));
        wake_all(state);
    }
}

/// Says of partitions whose next offset is outside of the log where the log begins and ends.
fn note_outside(shared: &Shared, cluster: &mut Cluster, metadata: &Metadata) {
    let outside: Vec<(usize, Partition, i64)> = {
        let state = shared.lock();
        let lanes = state.lanes.iter().enumerate().filter(|(_, lane)| lane.outside);
        lanes.map(|(number, lane)| (number, lane.partition.clone(), lane.next)).collect()
    };
    for (number, partition, next) in outside {
        let mut offset = |asked| {
            let asked = BTreeMap::from([(partition.clone(), asked)]);
            let found = cluster.offsets(metadata, &asked).ok()?;
            found.get(&partition).copied().flatten()
        };
        let (Some(start), Some(end)) = (offset(Asked::Earliest), offset(Asked::Latest)) else {
            continue;
        };
        let mut state = shared.lock();
        let lane = &mut state.lanes[number];
        lane.outside = false;
        if next < start || next > end {
            lane.failed = Some(out_of_range(&partition, next, Log { start, end }));
            lane.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// Whether two identities are of two topics; old brokers tell none.
pub(super) fn is_other(now: Uuid, before: Uuid) -> bool {
    !now.is_nil() && !before.is_nil() && now != before
}

/// The topic is another one than that of the position.
pub(super) fn made_again(partition: &Partition) -> Fault {
    Fault::Fatal {
        place: format!("topic '{}'", partition.topic),
        message: "the topic was deleted and made again: its offsets are of other records".into(),
        help: "begin anew: with --fresh, or another directory of checkpoints".into(),
    }
}

/// The loop of the thread of one broker.
fn fetch(shared: &Shared, broker: i32) {
    let mut connection: Option<Connection> = None;
    let mut pause = PAUSE;
    loop {
        let mut state = shared.lock();
        let lanes = loop {
            if state.stop {
                return;
            }
            let lanes = lanes_to_fetch(&mut state, broker, shared.settings.queue_bytes);
            if !lanes.is_empty() {
                break lanes;
            }
            state = shared.wait(state, Duration::from_secs(60));
        };
        let address = state.brokers.get(&broker).cloned();
        drop(state);
        let fetched = match address {
            None => Err(Fault::retry(format!("broker {broker} is away"))),
            Some(address) => fetch_once(shared, &mut connection, &address, &lanes),
        };
        match fetched {
            Ok(()) => pause = PAUSE,
            Err(fault) => {
                connection = None;
                let mut state = shared.lock();
                for asked in &lanes {
                    let lane = &mut state.lanes[asked.lane];
                    lane.busy = false;
                    lane.leader = None;
                    if let Fault::Fatal { .. } = &fault {
                        lane.failed = Some(fault.clone());
                        lane.waker.take().into_iter().for_each(Waker::wake);
                    }
                }
                drop(state);
                note_trouble(shared, Some(&fault));
                shared.changed.notify_all();
                let state = shared.lock();
                if !state.stop {
                    drop(shared.wait(state, pause));
                }
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// A partition to be asked for.
struct AskedLane {
    lane: usize,
    partition: Partition,
    topic_id: Uuid,
    leader: Leader,
    next: i64,
    epoch: i32,
    bytes: i32,
}

fn lanes_to_fetch(state: &mut State, broker: i32, queue_bytes: usize) -> Vec<AskedLane> {
    let mut found = Vec::new();
    for (number, lane) in state.lanes.iter_mut().enumerate() {
        let Some(leader) = lane.leader.filter(|leader| leader.broker == broker) else { continue };
        let has_room = lane.queued_bytes < queue_bytes && !lane.gap;
        if lane.wanted && has_room && !lane.busy && lane.failed.is_none() && lane.next < lane.until {
            lane.busy = true;
            found.push(AskedLane {
                lane: number,
                partition: lane.partition.clone(),
                topic_id: lane.topic_id,
                leader,
                next: lane.next,
                epoch: lane.epoch,
                bytes: lane.bytes,
            });
        }
    }
    found
}

fn fetch_once(
    shared: &Shared,
    connection: &mut Option<Connection>,
    address: &Address,
    lanes: &[AskedLane],
) -> Outcome<()> {
    let settings = &shared.settings;
    if connection.as_ref().is_none_or(|open| open.address() != address) {
        *connection = Some(Connection::open(address, &settings.client)?);
    }
    let Some(open) = connection.as_mut() else { return Ok(()) };
    // From version 13 on topics have identities in place of names.
    let mut version = open.version_of::<FetchRequest>(16)?;
    if lanes.iter().any(|lane| lane.topic_id.is_nil()) {
        version = version.min(12);
    }
    let by_id = version >= 13;
    let mut topics: BTreeMap<&str, FetchTopic> = BTreeMap::new();
    for asked in lanes {
        let topic = topics.entry(&asked.partition.topic).or_insert_with(|| match by_id {
            true => FetchTopic::default().with_topic_id(asked.topic_id),
            false => FetchTopic::default()
                .with_topic(TopicName(StrBytes::from_string(asked.partition.topic.clone()))),
        });
        let mut one = FetchPartition::default()
            .with_partition(asked.partition.number)
            .with_fetch_offset(asked.next)
            .with_partition_max_bytes(asked.bytes)
            .with_log_start_offset(-1)
            .with_current_leader_epoch(asked.leader.epoch)
            .with_last_fetched_epoch(-1);
        if version >= 12 {
            one = one.with_last_fetched_epoch(asked.epoch);
        }
        topic.partitions.push(one);
    }
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(settings.max_wait_ms)
        .with_min_bytes(settings.min_bytes)
        .with_max_bytes(settings.max_bytes)
        .with_isolation_level(i8::from(settings.committed_only))
        .with_session_epoch(-1)
        .with_topics(topics.into_values().collect());
    let longer = Duration::from_millis(settings.max_wait_ms.max(0) as u64);
    let response = open.call_in(&request, version, longer)?;
    if let Some(error) = error_of(response.error_code) {
        return Err(Fault::broker(address, "records", error));
    }
    let whole_is_empty = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .all(|partition| partition.records.as_ref().is_none_or(Bytes::is_empty));
    // A throttled broker sends nothing although there is something.
    let nothing = whole_is_empty && response.throttle_time_ms == 0;
    let mut answered = BTreeSet::new();
    for topic in response.responses {
        for data in topic.partitions {
            let asked = lanes.iter().find(|asked| {
                let same = match by_id {
                    true => asked.topic_id == topic.topic_id,
                    false => *asked.partition.topic == *topic.topic.0,
                };
                same && asked.partition.number == data.partition_index
            });
            if let Some(asked) = asked {
                answered.insert(asked.lane);
                take_in(shared, asked, data, nothing);
            }
        }
    }
    let mut state = shared.lock();
    for asked in lanes {
        let lane = &mut state.lanes[asked.lane];
        lane.busy = false;
        if !answered.contains(&asked.lane) {
            lane.leader = None;
        }
    }
    drop(state);
    shared.changed.notify_all();
    note_trouble(shared, None);
    Ok(())
}

/// Takes in what a broker answers for a partition.
fn take_in(shared: &Shared, asked: &AskedLane, data: PartitionData, nothing: bool) {
    let committed_only = shared.settings.committed_only;
    let result = batches_of(asked, &data, committed_only);
    let mut state = shared.lock();
    let lane = &mut state.lanes[asked.lane];
    let end = if committed_only { data.last_stable_offset } else { data.high_watermark };
    match result {
        Ok(Batches::Some(batches)) => {
            lane.log = Some(Log { start: data.log_start_offset, end });
            if let Some(last) = batches.last() {
                lane.next = last.head.end();
                lane.epoch = last.head.leader_epoch;
                lane.bytes = shared.settings.partition_bytes;
                lane.queued_bytes += batches.iter().map(|batch| batch.head.bytes).sum::<usize>();
                lane.queue.extend(batches);
            } else if nothing && lane.next < end {
                // The log ends in a gap, which compaction leaves.
                lane.next = end;
                lane.gap = true;
            }
        }
        Ok(Batches::TooLarge) => {
            lane.bytes = lane.bytes.saturating_mul(2).min(256 << 20);
        }
        Ok(Batches::OtherLeader) => lane.leader = None,
        Ok(Batches::Outside) => (lane.leader, lane.outside) = (None, true),
        Err(fault) => lane.failed = Some(fault),
    }
    lane.waker.take().into_iter().for_each(Waker::wake);
}

enum Batches {
    Some(Vec<Fetched>),
    /// The first does not fit into the bytes that were asked for.
    TooLarge,
    OtherLeader,
    /// The offset is outside of the log.
    Outside,
}

fn batches_of(
    asked: &AskedLane,
    data: &PartitionData,
    committed_only: bool,
) -> Result<Batches, Fault> {
    let partition = &asked.partition;
    let place = || format!("topic '{}', partition {}", partition.topic, partition.number);
    if let Some(error) = error_of(data.error_code) {
        return match error {
            ResponseError::OffsetOutOfRange => Ok(Batches::Outside),
            ResponseError::UnknownTopicOrPartition
            | ResponseError::UnknownTopicId
            | ResponseError::InconsistentTopicId => Ok(Batches::OtherLeader),
            error if error.is_retriable() => Ok(Batches::OtherLeader),
            error => Err(Fault::Fatal {
                place: place(),
                message: error.to_string(),
                help: String::new(),
            }),
        };
    }
    if data.diverging_epoch.epoch >= 0 {
        return Err(Fault::Fatal {
            place: place(),
            message: format!(
                "the log was cut back to offset {}: records up to offset {} were read that are no \
                 longer there",
                data.diverging_epoch.end_offset, asked.next
            ),
            help: "a broker without all records became leader \
                   (unclean.leader.election.enable); begin anew"
                .into(),
        });
    }
    let Some(records) = &data.records else { return Ok(Batches::Some(Vec::new())) };
    let flaw = |message: String| Fault::Fatal { place: place(), message, help: String::new() };
    let (mut at, mut batches) = (0, Vec::new());
    let mut aborted = Aborted::new(data.aborted_transactions.as_deref(), committed_only);
    while at < records.len() {
        let Some(head) = Head::read(&records[at..]).map_err(flaw)? else { break };
        let bytes = records.slice(at..at + head.bytes);
        at += head.bytes;
        let counts = aborted.counts(&head, &bytes).map_err(flaw)?;
        // The first batch may begin before the offset that was asked for.
        if head.end() > asked.next {
            batches.push(Fetched { head, bytes, counts });
        }
    }
    match batches.is_empty() && !records.is_empty() && at == 0 {
        true => Ok(Batches::TooLarge),
        false => Ok(Batches::Some(batches)),
    }
}

/// An offset is outside of the log.
pub(super) fn out_of_range(partition: &Partition, offset: i64, log: Log) -> Fault {
    let place = format!("topic '{}', partition {}", partition.topic, partition.number);
    let (message, help) = match offset < log.start {
        true => (
            format!(
                "the next record to read has offset {offset}, and the log begins at offset {}: \
                 records between were deleted before they were read",
                log.start
            ),
            "keep records longer (retention.ms, retention.bytes of the topic); to go on without \
             them, begin anew with 'scan.startup.mode' = 'earliest-offset'",
        ),
        false => (
            format!(
                "the next record to read has offset {offset}, and the log ends at offset {}",
                log.end
            ),
            "the topic was made again, or its log was cut back; begin anew",
        ),
    };
    Fault::Fatal { place, message, help: help.into() }
}

/// Aborted transactions, while batches go by.
struct Aborted {
    /// By first offset; those still to come from the end.
    coming: Vec<(i64, i64)>,
    producers: BTreeSet<i64>,
    committed_only: bool,
}

impl Aborted {
    fn new(listed: Option<&[AbortedTransaction]>, committed_only: bool) -> Aborted {
        let listed = listed.unwrap_or_default().iter();
        let mut coming: Vec<(i64, i64)> =
            listed.map(|aborted| (aborted.first_offset, aborted.producer_id.0)).collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        Aborted { coming, producers: BTreeSet::new(), committed_only }
    }

    /// Whether the records of the next batch count.
    fn counts(&mut self, head: &Head, batch: &Bytes) -> Result<bool, String> {
        if self.committed_only {
            while self.coming.last().is_some_and(|(first, _)| *first < head.end()) {
                self.producers.extend(self.coming.pop().map(|(_, producer)| producer));
            }
        }
        if head.is_control() {
            if is_abort(head, batch)? {
                self.producers.remove(&head.producer_id);
            }
            return Ok(false);
        }
        Ok(!head.is_transactional() || !self.producers.contains(&head.producer_id))
    }
}
