//! The keeper: who leads which partition, new partitions, offsets for the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use super::broker::fetch;
use super::faults::{is_other, made_again, out_of_range};
use super::lanes::{
    Lane, Log, PAUSE, PAUSE_MAX, STALE, Shared, State, guarded, note_trouble, wake_all,
};
use crate::client::cluster::{Asked, Cluster, Metadata, Partition};
use crate::client::fault::Fault;

/// How long a topic may be unknown: a new topic is not known to all brokers at once.
const UNKNOWN_MAX: Duration = Duration::from_secs(5);
/// Answers that are empty for as long are of a log that ends in a gap: where the broker says that
/// its own log has these records, if any, and where it does not know remote storage.
const EMPTY_MIN: Duration = Duration::from_secs(1);
const EMPTY_UNTOLD_MIN: Duration = Duration::from_secs(10);

/// The keeper's loop.
pub(super) fn keep(shared: &Arc<Shared>) {
    let settings = &shared.settings;
    let mut cluster = Cluster::new(settings.client.clone(), settings.committed_only);
    let mut pause = PAUSE;
    let mut looked: Option<Instant> = None;
    loop {
        let mut state = shared.lock();
        let (asks, is_refused, commit) = loop {
            let headless = state
                .lanes
                .iter()
                .any(|lane| lane.wanted && lane.leader.is_none() && lane.failed.is_none());
            let every = settings.discovery;
            let due = |looked: Option<Instant>| {
                let left = |every: Duration| {
                    looked.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()))
                };
                every.map(left)
            };
            let discovers = due(looked).is_some_and(|left| left.is_zero());
            if state.stop {
                // What is durable may be committed before the end.
                let commit = state.commit.take();
                drop(state);
                commit_offsets(shared, &mut cluster, commit);
                return;
            }
            let full = |lane: &Lane| lane.is_full(settings.queue_bytes);
            let stale = state.lanes.iter().any(|lane| lane.is_stale(settings.queue_bytes));
            let doubt = state.lanes.iter().any(|lane| lane.doubt);
            let asks = headless || discovers || stale || doubt;
            if asks || state.commit.is_some() {
                let mut is_refused = false;
                for lane in &mut state.lanes {
                    is_refused |= asks && std::mem::take(&mut lane.refused);
                }
                break (asks, is_refused, state.commit.take());
            }
            let mut longest = due(looked).unwrap_or(Duration::from_secs(3_600));
            if state.lanes.iter().any(full) {
                longest = longest.min(STALE);
            }
            state = shared.wait(state, longest.max(Duration::from_millis(1)));
        };
        drop(state);
        commit_offsets(shared, &mut cluster, commit);
        if !asks {
            continue;
        }
        // The leader may be the same, and refuse again.
        if is_refused {
            shared.rest(PAUSE);
        }
        match settings.topics.metadata(&mut cluster) {
            Ok(metadata) => {
                looked = Some(Instant::now());
                note_outside(shared, &mut cluster, &metadata);
                note_ends(shared, &mut cluster, &metadata);
                note_gaps(shared, &mut cluster, &metadata);
                if note_metadata(shared, &metadata) {
                    pause = PAUSE;
                    continue;
                }
            }
            Err(fault) => note_trouble(shared, Some(&fault)),
        }
        shared.rest(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn commit_offsets(
    shared: &Shared,
    cluster: &mut Cluster,
    commit: Option<BTreeMap<Partition, i64>>,
) {
    let (Some(offsets), Some(group)) = (commit, &shared.settings.group) else { return };
    let committed = cluster.commit(group, &offsets);
    let text = committed.err().map(|fault| format!("offsets were not committed: {}", fault.text()));
    let mut state = shared.lock();
    if let Some(text) = &text {
        tracing::warn!(group, "{text}");
        // Once, not with each checkpoint.
        if state.uncommitted.as_ref() != Some(text) {
            state.news.push_back(text.clone());
            // A waker brings the notice to the user.
            wake_all(&mut state);
        }
    }
    state.uncommitted = text;
}

/// Notes the leaders of partitions. False if a wanted partition still has no leader.
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
            let work = move || guarded(&shared, |shared| fetch(shared, broker));
            if thread::Builder::new().name(name).spawn(work).is_err() {
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

/// Notes partitions that came after the start: the job asks for them.
fn note_new(state: &mut State, metadata: &Metadata) {
    for (topic, of) in &metadata.topics {
        let numbers = of.leaders.keys();
        state.seen.extend(numbers.map(|of| Partition { topic: topic.clone(), number: *of }));
    }
}

/// Asks for the ends of logs of which nothing is fetched now.
fn note_ends(shared: &Shared, cluster: &mut Cluster, metadata: &Metadata) {
    let mut asked = BTreeMap::new();
    for lane in &mut shared.lock().lanes {
        if lane.is_stale(shared.settings.queue_bytes) {
            lane.told = Instant::now();
            asked.insert(lane.partition.clone(), Asked::Latest);
        }
    }
    // A fault shows itself when records are fetched again.
    let Ok(ends) = cluster.offsets(metadata, &asked) else { return };
    for lane in &mut shared.lock().lanes {
        if let (Some(Some(end)), Some(log)) = (ends.get(&lane.partition), &mut lane.log) {
            log.end = log.end.max(*end);
        }
    }
}

/// Finds out whether answers are empty because the log ends in a gap, as compaction leaves it. A
/// broker that has waited too long for remote storage (KIP-405) gives the same answer.
fn note_gaps(shared: &Shared, cluster: &mut Cluster, metadata: &Metadata) {
    let doubtful: Vec<(usize, Partition)> = {
        let state = shared.lock();
        let lanes = state.lanes.iter().enumerate().filter(|(_, lane)| lane.doubt);
        lanes.map(|(number, lane)| (number, lane.partition.clone())).collect()
    };
    for (number, partition) in doubtful {
        let asked = BTreeMap::from([(partition.clone(), Asked::EarliestLocal)]);
        let found = cluster.offsets(metadata, &asked);
        let topic = metadata.topics.get(&partition.topic);
        let leader = topic.and_then(|topic| *topic.leaders.get(&partition.number)?);
        let mut state = shared.lock();
        let lane = &mut state.lanes[number];
        lane.doubt = false;
        let (Ok(found), Some(log)) = (found, lane.log) else { continue };
        let long = match found.get(&partition).copied().flatten() {
            Some(first) if lane.leader == leader && lane.next >= first => EMPTY_MIN,
            Some(_) => continue,
            None => EMPTY_UNTOLD_MIN,
        };
        let is_gap = lane.empty_since.is_some_and(|since| since.elapsed() >= long);
        if is_gap {
            lane.empty_to = log.end;
        }
        // What has no end goes on with the next record.
        if is_gap && lane.until < i64::MAX {
            // Which epochs are within the gap is not known.
            (lane.next, lane.epoch, lane.gap) = (log.end, -1, true);
            lane.waker.take().into_iter().for_each(Waker::wake);
        }
    }
    shared.changed.notify_all();
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
        let (Some(start), Some(end)) = (offset(Asked::Earliest), offset(Asked::HighWatermark))
        else {
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
