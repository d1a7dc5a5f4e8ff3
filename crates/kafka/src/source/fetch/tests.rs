//! Fetching from a broker that misbehaves.

use super::lanes::PAUSE;
use super::*;
use crate::client::cluster::Cluster;
use crate::source::options::Topics;
use crate::tests::double::{Double, Script, records, until};

/// A fetcher of all partitions, from offset 0 and epoch 2 on, and the broker.
fn fetcher(script: Script, end: i64) -> (Fetcher, Double) {
    let partitions = script.partitions;
    let double = Double::start(script);
    let settings = FetchSettings {
        client: double.client(),
        topics: Topics::List(vec!["t".into()]),
        group: Some("g".into()),
        committed_only: true,
        discovery: None,
        max_wait_ms: 5,
        min_bytes: 1,
        max_bytes: 1 << 20,
        partition_bytes: 1 << 20,
        queue_bytes: 1,
    };
    let fetcher = Fetcher::start(settings, BTreeSet::new());
    let start = |number| Start {
        partition: Partition { topic: "t".into(), number },
        topic_id: Uuid::nil(),
        offset: 0,
        epoch: 2,
        until: end,
    };
    fetcher.add((0..partitions).map(start).collect());
    (fetcher, double)
}

fn script(partitions: i32, end: i64) -> Script {
    let (last_stable, high_watermark) = (end, end);
    Script { partitions, last_stable, high_watermark, replica: -1, ..Script::default() }
}

fn take(fetcher: &Fetcher, lane: usize) -> Result<Ready, Fault> {
    fetcher.take(lane, (1 << 20, 1 << 20), false, Waker::noop())
}

/// What comes next of a lane.
fn next(fetcher: &Fetcher, lane: usize) -> Result<Ready, Fault> {
    let mut found = Ok(Ready::Later);
    until(|| {
        found = take(fetcher, lane);
        !matches!(found, Ok(Ready::Later))
    });
    found
}

#[test]
fn an_empty_answer_about_remote_records_is_no_gap() {
    let (fetcher, broker) = fetcher(Script { first_local: 10, ..script(1, 10) }, 10);
    until(|| {
        assert!(matches!(take(&fetcher, 0), Ok(Ready::Later)));
        broker.script().fetches.len() > 3
    });
    assert!(!fetcher.caught_up(0));
    broker.script().batches.insert(0, records(10, 1));
    let Ok(Ready::Batches(batches)) = next(&fetcher, 0) else { panic!("expected batches") };
    assert_eq!((batches[0].head.base_offset, batches[0].head.end()), (0, 10));
}

#[test]
fn a_bounded_read_passes_over_a_gap_at_the_end() {
    let (fetcher, _broker) = fetcher(script(1, 10), 10);
    assert!(matches!(next(&fetcher, 0), Ok(Ready::Nothing(10))));
    // Epochs within the gap are not known.
    assert_eq!(fetcher.0.lock().lanes[0].epoch, -1);
}

#[test]
fn without_an_end_a_gap_is_left_to_the_next_record() {
    let (fetcher, broker) = fetcher(script(1, 10), i64::MAX);
    until(|| matches!(take(&fetcher, 0), Ok(Ready::Later)) && fetcher.caught_up(0));
    let asked = broker.script().fetches.len();
    until(|| broker.script().fetches.len() > asked + 1);
    assert_eq!(broker.script().fetches.last(), Some(&vec![(0, 0)]));
}

#[test]
fn a_follower_that_readers_are_sent_to_is_no_gap() {
    let (fetcher, _broker) = fetcher(Script { replica: 2, ..script(1, 10) }, 10);
    let fault = next(&fetcher, 0).unwrap_err().text();
    assert!(fault.contains("to broker 2"), "{fault}");
}

#[test]
fn a_silent_broker_and_open_transactions_are_not_caught_up() {
    let (fetcher, broker) = fetcher(script(1, 0), i64::MAX);
    until(|| matches!(take(&fetcher, 0), Ok(Ready::Later)) && fetcher.caught_up(0));
    broker.script().high_watermark = 2;
    until(|| !fetcher.caught_up(0));
    broker.script().high_watermark = 0;
    until(|| fetcher.caught_up(0));
    broker.script().hangs = true;
    until(|| broker.script().hung);
    let long_ago = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
    fetcher.0.lock().lanes[0].answered = Some(long_ago);
    assert!(!fetcher.caught_up(0));
    broker.script().hangs = false;
    until(|| fetcher.caught_up(0));
}

#[test]
fn partitions_are_asked_for_in_turns() {
    let batches = (0..3).map(|partition| (partition, records(1, 10))).collect();
    let (fetcher, _broker) =
        fetcher(Script { batches, only_first: true, ..script(3, 1_000_000) }, i64::MAX);
    let mut given = BTreeSet::new();
    until(|| {
        // The first is always emptied, so that the broker is asked for it each time.
        for lane in 0..3 {
            if let Ok(Ready::Batches(_)) = take(&fetcher, lane) {
                given.insert(lane);
            }
        }
        given.len() == 3
    });
}

/// Chunks of a bounded partition are the same whatever the memory.
#[test]
fn a_queue_with_little_room_holds_a_chunk() {
    let batches = BTreeMap::from([(0, records(1, CHUNK_BYTES / 4))]);
    let (fetcher, _broker) = fetcher(Script { batches, ..script(1, 10) }, 10);
    let mut taken = Vec::new();
    until(|| {
        let most = (CHUNK_BYTES, 1 << 20);
        if let Ok(Ready::Batches(batches)) = fetcher.take(0, most, true, Waker::noop()) {
            taken.push(batches.len());
        }
        taken.iter().sum::<usize>() == 10
    });
    assert_eq!(taken, [3, 3, 3, 1]);
}

#[test]
fn a_small_part_of_a_response_does_not_keep_the_whole() {
    let batches = BTreeMap::from([(0, records(1, 10)), (1, records(1, 100_000))]);
    let (fetcher, broker) = fetcher(Script { batches, ..script(2, 1) }, i64::MAX);
    {
        // One request is for both.
        let mut state = fetcher.0.lock();
        state.lanes.iter_mut().for_each(|lane| lane.wanted = true);
        fetcher.0.changed.notify_all();
    }
    let Ok(Ready::Batches(small)) = next(&fetcher, 0) else { panic!("expected batches") };
    let Ok(Ready::Batches(large)) = next(&fetcher, 1) else { panic!("expected batches") };
    assert_eq!(broker.script().fetches[0].len(), 2);
    until(|| small[0].bytes.is_unique() && large[0].bytes.is_unique());
}

#[test]
fn a_broker_that_refuses_is_asked_again_after_a_pause() {
    const NOT_LEADER: i16 = 6;
    let begun = Instant::now();
    let (fetcher, broker) = fetcher(Script { fetch_error: NOT_LEADER, ..script(1, 10) }, i64::MAX);
    until(|| matches!(take(&fetcher, 0), Ok(Ready::Later)) && broker.script().fetches.len() > 4);
    assert!(begun.elapsed() >= 4 * PAUSE);
}

#[test]
fn a_panic_in_a_thread_is_told() {
    let (fetcher, _broker) = fetcher(script(1, 10), i64::MAX);
    guarded(&fetcher.0, |_| panic!("for the test"));
    let fault = take(&fetcher, 0).unwrap_err().text();
    assert!(fault.contains("have stopped"), "{fault}");
}

#[test]
fn topics_that_do_not_match_may_have_errors() {
    let broker = Double::start(script(2, 10));
    let mut cluster = Cluster::new(broker.client(), true);
    let pattern = |text| Topics::Pattern(regex::Regex::new(text).unwrap());
    // Kafka's own topics match no pattern.
    let found = pattern("^(?:t|_.*)$").metadata(&mut cluster).unwrap();
    assert_eq!(found.topics.keys().collect::<Vec<_>>(), ["t"]);
    assert!(pattern("^(?:s.*)$").metadata(&mut cluster).is_err());
}

#[test]
fn offsets_that_are_not_committed_are_told_once() {
    const UNKNOWN_MEMBER_ID: i16 = 25;
    let script = Script { commit_error: UNKNOWN_MEMBER_ID, ..script(1, 10) };
    let (fetcher, broker) = fetcher(script, i64::MAX);
    let mut told = Vec::new();
    for turn in 1..=3 {
        fetcher.commit(BTreeMap::from([(Partition { topic: "t".into(), number: 0 }, turn)]));
        until(|| broker.script().commits == turn as usize);
        told.extend(fetcher.news());
    }
    until(|| {
        told.extend(fetcher.news());
        !told.is_empty()
    });
    assert!(told.len() == 1 && told[0].contains("the group has members"), "{told:?}");
}

#[test]
fn offsets_are_committed_on_a_new_connection() {
    let broker = Double::start(Script { closes: 1, ..script(1, 10) });
    let mut cluster = Cluster::new(broker.client(), true);
    let offsets = BTreeMap::from([(Partition { topic: "t".into(), number: 0 }, 7)]);
    cluster.commit("g", &offsets).unwrap();
    assert_eq!(broker.script().commits, 2);
    broker.script().closes = 2;
    assert!(cluster.commit("g", &offsets).is_err());
}
