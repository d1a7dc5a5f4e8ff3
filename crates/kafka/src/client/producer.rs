//! Writing records, with transactions or without: each record once in its partition, in order.
//!
//! **Without transactions** a producer has a number from the broker, and counts its batches in each
//! partition: a batch that comes twice counts once (KIP-98).
//!
//! **With transactions** records of all partitions become visible together, and with them a
//! *marker*: the metadata of an offset that the transaction commits to a group. The broker knows
//! the producer by its transactional id. A producer that begins with the id fences earlier
//! producers off, and aborts their open transaction. There are two protocols. Where the broker has
//! version 2 (KIP-890), partitions join a transaction by being written, and the epoch rises with
//! every transaction.
//!
//! After any fault the outcome of a transaction is unknown here. The producer begins anew then, and
//! the marker says which of its records are there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProducerId, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::address::Address;
use super::away::Away;
use super::cluster::{Cluster, Kind, Metadata, Partition, topic_name};
use super::encode::{NewRecord, Writer, batch};
use super::fault::{Fault, Outcome, error_of};
use super::unpack::Packing;
use super::wire::Connection;

/// How long a fault may last that passes by itself, before records count as not written.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The marker of a transaction: an offset, and a text beside the offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) offset: i64,
    pub(crate) text: String,
}

/// How a producer writes.
#[derive(Debug, Clone)]
pub(crate) struct ProducerSettings {
    pub(crate) topic: String,
    /// With transactions: the id, which is the marker's group, too.
    pub(crate) transactional_id: Option<String>,
    pub(crate) transaction_timeout_ms: i32,
    /// `-1`: until all replicas have the records.
    pub(crate) acks: i16,
    pub(crate) packing: Option<Packing>,
    pub(crate) batch_bytes: usize,
}

/// A producer of one topic.
pub(crate) struct Producer {
    pub(super) cluster: Cluster,
    pub(super) settings: ProducerSettings,
    away: Arc<Away>,
    metadata: Metadata,
    pub(super) writer: Option<(i64, i16)>,
    /// By partition, the number of the next record.
    pub(super) sequences: BTreeMap<i32, i32>,
    /// Whether the broker has version 2 of transactions.
    pub(super) second_version: bool,
    /// Whether the broker has records of a transaction that has not ended.
    pub(super) is_open: bool,
}

impl Producer {
    pub(crate) fn new(cluster: Cluster, settings: ProducerSettings, away: Arc<Away>) -> Producer {
        Producer {
            cluster,
            settings,
            away,
            metadata: Metadata::default(),
            writer: None,
            sequences: BTreeMap::new(),
            second_version: false,
            is_open: false,
        }
    }

    /// How many partitions the topic has.
    pub(crate) fn partitions(&self) -> i32 {
        let topic = self.metadata.topics.get(&self.settings.topic);
        topic.map_or(0, |topic| topic.leaders.len() as i32)
    }

    fn look(&mut self) -> Outcome<()> {
        let topic = self.settings.topic.clone();
        self.metadata = self.cluster.metadata(Some(std::slice::from_ref(&topic)))?;
        match self.metadata.topics.get(&topic) {
            Some(of) if !of.leaders.is_empty() => Ok(()),
            None if self.writer.is_none() => Err(self.cluster.no_topic(&topic)),
            _ => Err(Fault::retry(format!("topic '{topic}' has no partitions now"))),
        }
    }

    /// Begins: finds the topic, and fences earlier producers of the same id off. Retries as a start
    /// does.
    pub(crate) fn begin(&mut self) -> Outcome<()> {
        let end = Instant::now() + super::cluster::START;
        self.cluster.start = Some(end);
        let found = self.until(end, Producer::look);
        self.cluster.start = None;
        found?;
        self.until(end.max(Instant::now() + PATIENCE), Producer::fence)
    }

    /// Begins anew after a fault. Another producer that has begun with the same id meanwhile is a
    /// fatal fault.
    pub(crate) fn begin_again(&mut self) -> Outcome<()> {
        let end = Instant::now() + PATIENCE;
        self.until(end, Producer::look)?;
        self.until(end, Producer::fence)
    }

    fn until<T>(
        &mut self,
        end: Instant,
        mut ask: impl FnMut(&mut Producer) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut pause = PAUSE;
        loop {
            self.away.question()?;
            let answer = ask(self);
            self.away.note_answer(&answer);
            match answer {
                Err(Fault::Retry(_)) if self.may_wait(pause, end) => thread::sleep(pause),
                answer => return answer,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Whether there is time for another pause.
    fn may_wait(&self, pause: Duration, end: Instant) -> bool {
        Instant::now() + pause < end && !self.away.has_given_up()
    }

    pub(super) fn coordinator(&mut self) -> Outcome<Option<Address>> {
        let id = self.settings.transactional_id.clone();
        id.map(|id| self.cluster.coordinator(Kind::Transaction, &id)).transpose()
    }

    fn fence(&mut self) -> Outcome<()> {
        let address = self.coordinator()?;
        let transactional = self.settings.transactional_id.is_some();
        let (id, epoch) = self.writer.filter(|_| transactional).unwrap_or((-1, -1));
        let (mut response, mut second_version) = self.init(address.as_ref(), id, epoch)?;
        let is_fenced = |code: i16| error_of(code).is_some_and(is_fenced);
        if let Some(coordinator) = address.as_ref().filter(|_| is_fenced(response.error_code))
            // Where an answer was lost, the broker may have a transaction, and may not.
            && (self.is_open || self.has_expired(coordinator)?)
        {
            // A time-out of the transaction raises the epoch by one, a second producer by two.
            let next = epoch.saturating_add(1);
            (response, second_version) = self.init(address.as_ref(), id, next)?;
            self.is_open = !is_fenced(response.error_code);
        }
        if let Some(error) = error_of(response.error_code) {
            if error == ResponseError::InvalidTransactionTimeout {
                return Err(self.timeout_fault());
            }
            let id = self.settings.transactional_id.as_deref().unwrap_or_default();
            let topic = &self.settings.topic;
            return Err(Fault::of_producer(id, topic, "the producer's start", error));
        }
        self.second_version = second_version;
        self.writer = Some((response.producer_id.0, response.producer_epoch));
        self.sequences.clear();
        self.is_open = false;
        Ok(())
    }

    /// Asks for a producer's number, and whether the broker has version 2 of transactions.
    fn init(
        &mut self,
        address: Option<&Address>,
        producer: i64,
        epoch: i16,
    ) -> Outcome<(InitProducerIdResponse, bool)> {
        let id = self.settings.transactional_id.as_deref();
        let request = InitProducerIdRequest::default()
            .with_transactional_id(id.map(transactional_id))
            .with_transaction_timeout_ms(self.settings.transaction_timeout_ms);
        let ask = |connection: &mut Connection| {
            // From version 3 on a producer says who it was.
            let version = connection.version_of::<InitProducerIdRequest>(4)?;
            let request = match version >= 3 {
                true => {
                    let request = request.clone().with_producer_id(ProducerId(producer));
                    request.with_producer_epoch(epoch)
                }
                false => request.clone(),
            };
            let response = connection.call_in(&request, version, Duration::ZERO)?;
            Ok((response, connection.has_second_transactions()))
        };
        match address {
            Some(address) => self.cluster.with(address, ask),
            None => self.cluster.with_any(ask),
        }
    }

    /// The time-out of transactions is above the broker's maximum.
    fn timeout_fault(&mut self) -> Fault {
        let most = self.cluster.broker_setting("transaction.max.timeout.ms").ok().flatten();
        let most = most.unwrap_or_else(|| "a smaller number".into());
        Fault::Fatal {
            place: "option 'properties.transaction.timeout.ms'".into(),
            message: format!(
                "expected at most {most} (transaction.max.timeout.ms of the broker), found {}",
                self.settings.transaction_timeout_ms
            ),
            help: "write a smaller number, or raise the broker's".into(),
        }
    }

    /// Whether a producer that is fenced off has a rival shows when it begins again.
    pub(super) fn fault(&self, what: &str, error: ResponseError) -> Fault {
        let id = self.settings.transactional_id.as_deref();
        match id.is_some() && is_fenced(error) {
            true => Fault::Aborted(format!("{what}: {error}")),
            false => {
                let id = id.unwrap_or_default();
                Fault::of_producer(id, &self.settings.topic, what, error)
            }
        }
    }

    /// The marker of the last transaction that was committed.
    pub(crate) fn marker(&mut self) -> Outcome<Option<Marker>> {
        let Some(id) = self.settings.transactional_id.clone() else { return Ok(None) };
        let of = self.marker_partition();
        let end = Instant::now() + PATIENCE;
        self.until(end, |producer| {
            let found = producer.cluster.committed(&id, std::slice::from_ref(&of))?;
            Ok(found.get(&of).map(|committed| Marker {
                offset: committed.offset,
                text: committed.metadata.clone(),
            }))
        })
    }

    pub(super) fn marker_partition(&self) -> Partition {
        Partition { topic: self.settings.topic.clone(), number: 0 }
    }

    /// Writes records, each to its partition, in order: with transactions, one transaction with the
    /// marker. After a fault, some of the records may be in the topic.
    pub(crate) fn write(
        &mut self,
        records: &[(i32, NewRecord)],
        marker: Option<&Marker>,
    ) -> Outcome<()> {
        let mut by_partition: BTreeMap<i32, Vec<&NewRecord>> = BTreeMap::new();
        for (partition, record) in records {
            by_partition.entry(*partition).or_default().push(record);
        }
        let transactional = self.settings.transactional_id.is_some();
        if transactional && !self.second_version && !by_partition.is_empty() {
            let partitions: Vec<i32> = by_partition.keys().copied().collect();
            let end = Instant::now() + PATIENCE;
            self.until(end, |producer| producer.add_partitions(&partitions))?;
        }
        let mut batches: BTreeMap<i32, Vec<(i32, Bytes)>> = BTreeMap::new();
        for (partition, records) in by_partition {
            batches.insert(partition, self.batches_of(partition, &records)?);
        }
        self.produce(batches)?;
        if let Some(marker) = marker {
            let end = Instant::now() + PATIENCE;
            self.until(end, |producer| producer.commit_marker(marker))?;
            self.until(end, Producer::commit)?;
        }
        self.away.note_written();
        Ok(())
    }

    /// Batches of a partition's records, each with the number of its records.
    fn batches_of(&mut self, partition: i32, records: &[&NewRecord]) -> Outcome<Vec<(i32, Bytes)>> {
        let (id, epoch) = self.writer.unwrap_or((-1, -1));
        let transactional = self.settings.transactional_id.is_some();
        let writer = Writer { id, epoch, transactional };
        let mut sequence = self.sequences.get(&partition).copied().unwrap_or(0);
        let (mut found, mut rest) = (Vec::new(), records);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|record| {
                bytes += record.bytes();
                bytes <= self.settings.batch_bytes
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let count = now.len() as i32;
            found.push((count, batch(writer, sequence, now, self.settings.packing)?));
            // Numbers begin again at 0 behind the greatest.
            sequence = sequence.wrapping_add(count) & i32::MAX;
            rest = later;
        }
        self.sequences.insert(partition, sequence);
        Ok(found)
    }

    /// Sends the batches of all partitions, in the order of each partition.
    fn produce(&mut self, mut left: BTreeMap<i32, Vec<(i32, Bytes)>>) -> Outcome<()> {
        let end = Instant::now() + PATIENCE;
        let mut pause = PAUSE;
        left.values_mut().for_each(|batches| batches.reverse());
        while left.values().any(|batches| !batches.is_empty()) {
            let mut by_broker: BTreeMap<i32, Vec<(i32, Bytes)>> = BTreeMap::new();
            let mut fault = None;
            self.away.question()?;
            for (partition, batches) in &left {
                let Some((_, bytes)) = batches.last() else { continue };
                match self.leader(*partition) {
                    Some(leader) => {
                        let one = (*partition, bytes.clone());
                        by_broker.entry(leader).or_default().push(one);
                    }
                    None => {
                        fault = Some(Fault::retry(format!("partition {partition} has no leader")))
                    }
                }
            }
            for (broker, batches) in by_broker {
                match self.produce_to(broker, batches) {
                    Ok(written) => {
                        for (partition, result) in written {
                            match result {
                                Ok(()) => drop(left.get_mut(&partition).map(Vec::pop)),
                                Err(found) => fault = Some(found),
                            }
                        }
                    }
                    Err(found) => fault = Some(found),
                }
            }
            let answer = fault.map_or(Ok(()), Err);
            self.away.note_answer(&answer);
            match answer {
                Ok(()) => pause = PAUSE,
                Err(Fault::Retry(_)) if self.may_wait(pause, end) => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                    // Who leads may have changed.
                    let _ = self.look();
                }
                answer => return answer,
            }
        }
        Ok(())
    }

    fn leader(&self, partition: i32) -> Option<i32> {
        let topic = self.metadata.topics.get(&self.settings.topic)?;
        Some(topic.leaders.get(&partition).copied().flatten()?.broker)
    }

    fn produce_to(
        &mut self,
        broker: i32,
        batches: Vec<(i32, Bytes)>,
    ) -> Outcome<Vec<(i32, Outcome<()>)>> {
        let address = self.cluster.address(broker)?;
        let data = batches.iter().map(|(partition, bytes)| {
            PartitionProduceData::default().with_index(*partition).with_records(Some(bytes.clone()))
        });
        let topic = TopicProduceData::default()
            .with_name(topic_name(&self.settings.topic))
            .with_partition_data(data.collect());
        let request = ProduceRequest::default()
            .with_transactional_id(self.settings.transactional_id.as_deref().map(transactional_id))
            .with_acks(self.settings.acks)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        // From version 12 on a write joins the transaction. Version 13 has no names of topics.
        let highest = if self.second_version { 12 } else { 11 };
        let response = self.cluster.with(&address, |connection| {
            let version = connection.version_of::<ProduceRequest>(highest)?;
            connection.call_in(&request, version, Duration::ZERO)
        })?;
        let mut results = Vec::new();
        for topic in response.responses {
            for partition in topic.partition_responses {
                self.is_open |= partition.error_code == 0;
                let result = match error_of(partition.error_code) {
                    // It came before, and the answer was lost.
                    None | Some(ResponseError::DuplicateSequenceNumber) => Ok(()),
                    Some(error) => {
                        let what = format!("partition {}", partition.index);
                        let said = partition.error_message.map(|text| format!(" ({text})"));
                        Err(self.fault(&format!("{what}{}", said.unwrap_or_default()), error))
                    }
                };
                results.push((partition.index, result));
            }
        }
        Ok(results)
    }
}

/// Whether the broker does not know the producer any more by its epoch.
fn is_fenced(error: ResponseError) -> bool {
    matches!(error, ResponseError::ProducerFenced | ResponseError::InvalidProducerEpoch)
}

pub(super) fn transactional_id(id: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::double::{Double, Script};

    /// A producer of epoch 3 begins again, for which the broker has an epoch and a state.
    fn begin_again(epoch: i16, state: &'static str) -> (Outcome<()>, Vec<i16>) {
        let script = Script { partitions: 1, epoch, state, ..Script::default() };
        let broker = Double::start(script);
        let settings = ProducerSettings {
            topic: "t".into(),
            transactional_id: Some("p".into()),
            transaction_timeout_ms: 1_000,
            acks: -1,
            packing: None,
            batch_bytes: 1 << 20,
        };
        let away = Arc::new(Away::new("t", "here:1"));
        let mut producer = Producer::new(Cluster::new(broker.client(), true), settings, away);
        producer.writer = Some((7, 3));
        let fault = producer.fault("partition 0", ResponseError::InvalidProducerEpoch);
        assert!(matches!(fault, Fault::Aborted(_)), "{fault:?}");
        let begun = producer.begin_again();
        if begun.is_ok() {
            assert_eq!(producer.writer, Some((7, epoch + 1)));
        }
        (begun, std::mem::take(&mut broker.script().inits))
    }

    #[test]
    fn a_transaction_that_expired_after_a_lost_answer_has_no_rival() {
        let (begun, inits) = begin_again(4, "CompleteAbort");
        begun.unwrap();
        assert_eq!(inits, [3, 4]);
    }

    #[test]
    fn a_rival_is_named() {
        for (epoch, state, asked) in [(4, "Empty", &[3][..]), (5, "CompleteAbort", &[3, 4][..])] {
            let (begun, inits) = begin_again(epoch, state);
            let said = begun.unwrap_err().text();
            assert!(said.contains("another job writes with the same id"), "{said}");
            assert_eq!(inits, asked);
        }
    }
}
