//! The thread of one broker: it asks for the next batches of all partitions that have room.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::aborted::Aborted;
use super::lanes::{Fetched, Log, PAUSE, PAUSE_MAX, Shared, State, note_trouble};
use crate::client::address::Address;
use crate::client::batch::Head;
use crate::client::cluster::{Leader, Partition};
use crate::client::fault::{Fault, Outcome, error_of};
use crate::client::session;
use crate::client::wire::Connection;
use crate::source::options::FetchSettings;

/// The loop of the thread of one broker.
pub(super) fn fetch(shared: &Shared, broker: i32) {
    let mut connection: Option<Connection> = None;
    let mut pause = PAUSE;
    let mut turn = 0;
    loop {
        let mut state = shared.lock();
        let lanes = loop {
            if state.stop {
                return;
            }
            let lanes = lanes_to_fetch(&mut state, broker, shared.settings.queue_bytes, turn);
            if !lanes.is_empty() {
                break lanes;
            }
            state = shared.wait(state, Duration::from_secs(60));
        };
        turn = lanes.first().map_or(0, |asked| asked.lane + 1);
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
                shared.rest(pause);
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

/// The lanes that have room, from lane `turn` on: a broker fills a response in the order of the
/// request, and only the first partition gets a batch that is larger than it may be.
fn lanes_to_fetch(
    state: &mut State,
    broker: i32,
    queue_bytes: usize,
    turn: usize,
) -> Vec<AskedLane> {
    let mut found = Vec::new();
    for (number, lane) in state.lanes.iter_mut().enumerate() {
        let Some(leader) = lane.leader.filter(|leader| leader.broker == broker) else { continue };
        let has_room = !lane.is_full(queue_bytes) && !lane.gap && !lane.doubt;
        if lane.wanted && has_room && !lane.busy && lane.failed.is_none() && lane.next < lane.until
        {
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
    let first = found.iter().position(|asked| asked.lane >= turn).unwrap_or(0);
    found.rotate_left(first);
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
        *connection = Some(session::open(address, &settings.client)?);
    }
    let Some(open) = connection.as_mut() else { return Ok(()) };
    // From version 13 on topics have identities in place of names.
    let mut version = open.version_of::<FetchRequest>(16)?;
    if lanes.iter().any(|lane| lane.topic_id.is_nil()) {
        version = version.min(12);
    }
    let request = request_for(settings, lanes, version);
    let longer = Duration::from_millis(settings.max_wait_ms.max(0) as u64);
    let response = open.call_in(&request, version, longer)?;
    if let Some(error) = error_of(response.error_code) {
        return Err(Fault::broker(address, "records", error));
    }
    let answered = take_in_all(shared, lanes, response);
    let mut state = shared.lock();
    for asked in lanes {
        let lane = &mut state.lanes[asked.lane];
        lane.busy = false;
        if !answered.contains(&asked.lane) {
            (lane.leader, lane.refused) = (None, true);
        }
    }
    drop(state);
    shared.changed.notify_all();
    note_trouble(shared, None);
    Ok(())
}

/// The request for the next batches of partitions, in this order as far as topics allow.
fn request_for(settings: &FetchSettings, lanes: &[AskedLane], version: i16) -> FetchRequest {
    let by_id = version >= 13;
    let (mut topics, mut numbers) = (Vec::new(), BTreeMap::new());
    for asked in lanes {
        let number = *numbers.entry(&asked.partition.topic).or_insert_with(|| {
            topics.push(match by_id {
                true => FetchTopic::default().with_topic_id(asked.topic_id),
                false => FetchTopic::default()
                    .with_topic(TopicName(StrBytes::from_string(asked.partition.topic.clone()))),
            });
            topics.len() - 1
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
        topics[number].partitions.push(one);
    }
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(settings.max_wait_ms)
        .with_min_bytes(settings.min_bytes)
        .with_max_bytes(settings.max_bytes)
        .with_isolation_level(i8::from(settings.committed_only))
        .with_session_epoch(-1)
        .with_topics(topics)
}

/// Takes in a response. Returns the lanes in the response.
fn take_in_all(shared: &Shared, lanes: &[AskedLane], response: FetchResponse) -> BTreeSet<usize> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let all_bytes: usize =
        partitions.map(|partition| partition.records.as_ref().map_or(0, Bytes::len)).sum();
    // A throttled broker sends nothing although there is something.
    let nothing = all_bytes == 0 && response.throttle_time_ms == 0;
    let mut answered = BTreeSet::new();
    for topic in response.responses {
        for mut data in topic.partitions {
            // What waits in a queue should not keep the whole response in memory.
            let is_small = |records: &Bytes| 2 * records.len() < all_bytes;
            if let Some(small) = data.records.take_if(|records| is_small(records)) {
                data.records = Some(Bytes::copy_from_slice(&small));
            }
            let asked = lanes.iter().find(|asked| {
                // Of the two, a response has one.
                let same = match topic.topic_id.is_nil() {
                    false => asked.topic_id == topic.topic_id,
                    true => *asked.partition.topic == *topic.topic.0,
                };
                same && asked.partition.number == data.partition_index
            });
            if let Some(asked) = asked {
                answered.insert(asked.lane);
                take_in(shared, asked, data, nothing);
            }
        }
    }
    answered
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
            lane.told = Instant::now();
            lane.answered = Some(lane.told);
            lane.open = end < data.high_watermark;
            if let Some(last) = batches.last() {
                lane.next = last.head.end();
                lane.epoch = last.head.leader_epoch;
                lane.bytes = shared.settings.partition_bytes;
                lane.empty_since = None;
                lane.queued_bytes += batches.iter().map(|batch| batch.head.bytes).sum::<usize>();
                lane.queue.extend(batches);
            } else if nothing && lane.next.max(lane.empty_to) < end {
                // The same empty answer comes again at once, perhaps.
                (lane.doubt, lane.refused) = (true, lane.empty_since.is_some());
                lane.empty_since.get_or_insert_with(Instant::now);
            }
        }
        Ok(Batches::TooLarge) => {
            lane.bytes = lane.bytes.saturating_mul(2).min(256 << 20);
        }
        Ok(Batches::OtherLeader) => (lane.leader, lane.refused) = (None, true),
        Ok(Batches::Outside) => {
            (lane.leader, lane.refused, lane.outside) = (None, true, true);
        }
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
    let replica = data.preferred_read_replica.0;
    if replica >= 0 {
        return Err(Fault::Fatal {
            place: place(),
            message: format!("its leader sends readers to broker {replica}, which is a follower"),
            help: "records are read from leaders here: see 'replica.selector.class' of the brokers"
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
