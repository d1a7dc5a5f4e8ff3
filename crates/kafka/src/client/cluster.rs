//! Questions to brokers about topics, partitions and groups.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    BrokerId, DescribeConfigsRequest, FindCoordinatorRequest, GroupId, ListOffsetsRequest,
    MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use millstream_contract::settings::closest;
use uuid::Uuid;

use super::address::Address;
use super::fault::{Fault, Outcome, error_of};
use super::session;
use super::settings::ClientSettings;
use super::wire::Connection;

/// How long to try before a start fails.
pub(crate) const START: Duration = Duration::from_millis(4_500);
/// A topic may have been made so long ago, and not every broker knows it yet.
const NEW_TOPIC: Duration = Duration::from_secs(3);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(150);

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Partition {
    pub(crate) topic: String,
    pub(crate) number: i32,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.number)
    }
}

/// The broker that leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) broker: i32,
    pub(crate) epoch: i32,
}

/// A topic, as brokers know it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topic {
    /// Another one if the topic was deleted and made again; nil of old brokers.
    pub(crate) id: Uuid,
    /// By partition; `None`: there is no leader now.
    pub(crate) leaders: BTreeMap<i32, Option<Leader>>,
}

/// The brokers and topics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metadata {
    pub(crate) brokers: BTreeMap<i32, Address>,
    pub(crate) topics: BTreeMap<String, Topic>,
    /// Topics that were asked for and are not there.
    pub(crate) missing: Vec<String>,
}

/// Which offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Earliest,
    /// The end: of records that count at the level of isolation.
    Latest,
    /// The end, with records of open transactions.
    HighWatermark,
    /// The first of a record at this time or later, in milliseconds.
    At(i64),
    /// The first in the leader's own log; earlier records are in remote storage (KIP-405). Old
    /// brokers do not know the question, and give no offset.
    EarliestLocal,
}

impl Asked {
    fn timestamp(self) -> i64 {
        match self {
            Asked::Latest | Asked::HighWatermark => -1,
            Asked::Earliest => -2,
            Asked::EarliestLocal => -4,
            // Negative numbers mean other things.
            Asked::At(time) => time.max(0),
        }
    }
}

/// The kinds of coordinators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Group = 0,
    Transaction = 1,
}

/// The offset of a partition that a group has committed, and a text beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    pub(crate) metadata: String,
}

/// A client of a cluster.
pub(crate) struct Cluster {
    pub(crate) settings: ClientSettings,
    /// Isolation: whether only records of committed transactions count.
    pub(crate) committed_only: bool,
    brokers: BTreeMap<i32, Address>,
    connections: BTreeMap<Address, Connection>,
    /// The end of a start: connections are not waited for any longer.
    pub(super) start: Option<Instant>,
    /// Since when a wanted topic is not there.
    missing_since: Option<Instant>,
}

impl Cluster {
    pub(crate) fn new(settings: ClientSettings, committed_only: bool) -> Cluster {
        let (brokers, connections, start, missing_since) = Default::default();
        Cluster { settings, committed_only, brokers, connections, start, missing_since }
    }

    /// Tries until the start's time is over.
    pub(crate) fn patiently<T>(
        &mut self,
        mut ask: impl FnMut(&mut Cluster) -> Outcome<T>,
    ) -> Outcome<T> {
        let end = Instant::now() + START;
        self.start = Some(end);
        loop {
            match ask(self) {
                Err(Fault::Retry(_)) if Instant::now() + PAUSE < end => thread::sleep(PAUSE),
                result => {
                    self.start = None;
                    return result;
                }
            }
        }
    }

    /// A new connection. At a start, so many addresses share the time that is left.
    fn open(&self, address: &Address, sharing: usize) -> Outcome<Connection> {
        let Some(end) = self.start else { return session::open(address, &self.settings) };
        let left = end.saturating_duration_since(Instant::now()) / sharing as u32;
        let mut settings = self.settings.clone();
        settings.connect_timeout = settings.connect_timeout.min(left).max(PAUSE);
        session::open(address, &settings)
    }

    /// Talks to the broker at an address; after a fault the connection is not used again.
    pub(super) fn with<T>(
        &mut self,
        address: &Address,
        talk: impl FnOnce(&mut Connection) -> Outcome<T>,
    ) -> Outcome<T> {
        self.with_one_of(address, 1, talk)
    }

    fn with_one_of<T>(
        &mut self,
        address: &Address,
        sharing: usize,
        talk: impl FnOnce(&mut Connection) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut connection = match self.connections.remove(address) {
            Some(connection) => connection,
            None => self.open(address, sharing)?,
        };
        let result = talk(&mut connection);
        if result.is_ok() {
            self.connections.insert(address.clone(), connection);
        }
        result
    }

    /// Talks to the first broker that answers.
    pub(super) fn with_any<T>(
        &mut self,
        mut talk: impl FnMut(&mut Connection) -> Outcome<T>,
    ) -> Outcome<T> {
        let connected = self.connections.keys().cloned();
        let mut addresses: Vec<Address> = connected.collect();
        let others = self.brokers.values().chain(&self.settings.servers);
        for address in others {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        let mut last = Fault::retry("no broker is known".into());
        for (number, address) in addresses.iter().enumerate() {
            match self.with_one_of(address, addresses.len() - number, &mut talk) {
                Err(fault @ Fault::Retry(_)) => last = fault,
                result => return result,
            }
        }
        Err(last)
    }

    pub(super) fn address(&self, broker: i32) -> Outcome<Address> {
        let address = self.brokers.get(&broker).cloned();
        address.ok_or_else(|| Fault::retry(format!("broker {broker} is away")))
    }

    /// These topics, or all.
    pub(crate) fn metadata(&mut self, topics: Option<&[String]>) -> Outcome<Metadata> {
        self.metadata_of(topics, |_| true)
    }

    /// The wanted topics among these, or among all but Kafka's own. Errors of other topics do not
    /// count.
    pub(crate) fn metadata_of(
        &mut self,
        topics: Option<&[String]>,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Outcome<Metadata> {
        let wanted = topics.map(|topics| {
            let topic =
                |name: &String| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
            topics.iter().map(topic).collect()
        });
        let request =
            MetadataRequest::default().with_topics(wanted).with_allow_auto_topic_creation(false);
        let response = self.with_any(|connection| {
            // The first version that creates no topic, and is known everywhere.
            let version = connection.version_of::<MetadataRequest>(12)?;
            connection.call_in(&request, version, Duration::ZERO)
        })?;
        let mut found = Metadata::default();
        for broker in response.brokers {
            let Ok(port) = u16::try_from(broker.port) else { continue };
            let address = Address { host: broker.host.to_string(), port };
            found.brokers.insert(broker.node_id.0, address);
        }
        for topic in response.topics {
            let name = topic.name.map(|name| name.0.to_string()).unwrap_or_default();
            if !is_wanted(&name) || (topics.is_none() && topic.is_internal) {
                continue;
            }
            match error_of(topic.error_code) {
                None | Some(ResponseError::LeaderNotAvailable) => {}
                Some(ResponseError::UnknownTopicOrPartition) => {
                    // Of all topics, one may be about to be deleted.
                    found.missing.extend(topics.is_some().then_some(name));
                    continue;
                }
                Some(error) => {
                    let what = format!("topic '{name}'");
                    return Err(match error.is_retriable() {
                        true => Fault::retry(format!("{what}: {error}")),
                        false => Fault::Fatal {
                            place: what,
                            message: error.to_string(),
                            help: String::new(),
                        },
                    });
                }
            }
            let mut leaders = BTreeMap::new();
            for partition in topic.partitions {
                let (broker, epoch) = (partition.leader_id.0, partition.leader_epoch);
                let leader = (broker >= 0).then_some(Leader { broker, epoch });
                leaders.insert(partition.partition_index, leader);
            }
            found.topics.insert(name, Topic { id: topic.topic_id, leaders });
        }
        if !found.brokers.is_empty() {
            self.brokers.clone_from(&found.brokers);
        }
        Ok(found)
    }

    /// The fault of a topic that is not there. For a moment it may pass.
    pub(crate) fn no_topic(&mut self, name: &str) -> Fault {
        let message = format!("there is no topic '{}'", name.escape_debug());
        if self.missing_since.get_or_insert_with(Instant::now).elapsed() < NEW_TOPIC {
            return Fault::retry(message);
        }
        let all = self.metadata_of(None, |name| !name.starts_with("__"));
        let all = all.map(|all| all.topics).unwrap_or_default();
        let names = all.keys().map(String::as_str);
        let help = match closest(name, names.clone()) {
            Some(similar) => format!("did you mean '{similar}'?"),
            None => {
                let names: Vec<&str> = names.take(20).collect();
                match names.is_empty() {
                    true => "the broker has no topics".to_string(),
                    false => format!("there are {}", names.join(", ")),
                }
            }
        };
        Fault::Fatal { place: format!("kafka {}", self.settings.shown()), message, help }
    }

    /// Offsets of partitions; `None` where there is no record at a time.
    pub(crate) fn offsets(
        &mut self,
        metadata: &Metadata,
        asked: &BTreeMap<Partition, Asked>,
    ) -> Outcome<BTreeMap<Partition, Option<i64>>> {
        let mut by_broker: BTreeMap<i32, Vec<(&Partition, Asked)>> = BTreeMap::new();
        for (partition, asked) in asked {
            let topic = metadata.topics.get(&partition.topic);
            let leader = topic.and_then(|topic| *topic.leaders.get(&partition.number)?);
            let Some(leader) = leader else {
                return Err(Fault::retry(format!("partition {partition} has no leader")));
            };
            by_broker.entry(leader.broker).or_default().push((partition, *asked));
        }
        let mut found = BTreeMap::new();
        for (broker, asked) in by_broker {
            let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
            let asks = |kind: Asked| asked.iter().any(|(_, asked)| *asked == kind);
            let (asks_local, asks_all) = (asks(Asked::EarliestLocal), asks(Asked::HighWatermark));
            for (partition, asked) in asked {
                let one = ListOffsetsPartition::default()
                    .with_partition_index(partition.number)
                    .with_timestamp(asked.timestamp());
                topics.entry(&partition.topic).or_default().push(one);
            }
            let topic = |(name, partitions): (&str, Vec<_>)| {
                ListOffsetsTopic::default().with_name(topic_name(name)).with_partitions(partitions)
            };
            let request = ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(i8::from(self.committed_only && !asks_all))
                .with_topics(topics.into_iter().map(topic).collect());
            let address = self.address(broker)?;
            let response = self.with(&address, |connection| {
                let version = connection.version_of::<ListOffsetsRequest>(8)?;
                let is_known = version >= 8 || !asks_local;
                is_known.then(|| connection.call_in(&request, version, Duration::ZERO)).transpose()
            })?;
            for topic in response.into_iter().flat_map(|response| response.topics) {
                for partition in topic.partitions {
                    let number = partition.partition_index;
                    let of = Partition { topic: topic.name.0.to_string(), number };
                    if let Some(error) = error_of(partition.error_code) {
                        return Err(Fault::broker(&address, &format!("partition {of}"), error));
                    }
                    found.insert(of, (partition.offset >= 0).then_some(partition.offset));
                }
            }
        }
        Ok(found)
    }

    /// The broker that keeps a group's offsets, or a producer's transactions.
    pub(super) fn coordinator(&mut self, kind: Kind, id: &str) -> Outcome<Address> {
        let request = FindCoordinatorRequest::default()
            .with_key(StrBytes::from_string(id.to_string()))
            .with_key_type(kind as i8);
        let response = self.with_any(|connection| {
            let version = connection.version_of::<FindCoordinatorRequest>(3)?;
            connection.call_in(&request, version, Duration::ZERO)
        })?;
        if let Some(error) = error_of(response.error_code) {
            return Err(group_fault(id, error));
        }
        let port = u16::try_from(response.port).ok();
        let port = port.ok_or_else(|| Fault::retry(format!("'{id}' has no coordinator")))?;
        Ok(Address { host: response.host.to_string(), port })
    }

    /// The committed offsets of a group. Partitions without an offset are left out.
    pub(crate) fn committed(
        &mut self,
        group: &str,
        partitions: &[Partition],
    ) -> Outcome<BTreeMap<Partition, Committed>> {
        let address = self.coordinator(Kind::Group, group)?;
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for partition in partitions {
            topics.entry(&partition.topic).or_default().push(partition.number);
        }
        let topic = |(name, numbers): (&str, Vec<i32>)| {
            OffsetFetchRequestTopic::default()
                .with_name(topic_name(name))
                .with_partition_indexes(numbers)
        };
        let request = OffsetFetchRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(group.to_string())))
            .with_topics(Some(topics.into_iter().map(topic).collect()));
        let response = self.with(&address, |connection| {
            let version = connection.version_of::<OffsetFetchRequest>(7)?;
            let request = request.clone().with_require_stable(version >= 7);
            connection.call_in(&request, version, Duration::ZERO)
        })?;
        if let Some(error) = error_of(response.error_code) {
            return Err(group_fault(group, error));
        }
        let mut found = BTreeMap::new();
        for topic in response.topics {
            for partition in topic.partitions {
                if let Some(error) = error_of(partition.error_code) {
                    return Err(group_fault(group, error));
                }
                if partition.committed_offset >= 0 {
                    let number = partition.partition_index;
                    let of = Partition { topic: topic.name.0.to_string(), number };
                    let metadata = partition.metadata.map(|text| text.to_string());
                    let offset = partition.committed_offset;
                    found.insert(of, Committed { offset, metadata: metadata.unwrap_or_default() });
                }
            }
        }
        Ok(found)
    }

    /// A setting of some broker, if it tells.
    pub(super) fn broker_setting(&mut self, name: &str) -> Outcome<Option<String>> {
        const OF_A_BROKER: i8 = 4;
        let Some(broker) = self.brokers.keys().next() else { return Ok(None) };
        let resource = DescribeConfigsResource::default()
            .with_resource_type(OF_A_BROKER)
            .with_resource_name(StrBytes::from_string(broker.to_string()))
            .with_configuration_keys(Some(vec![StrBytes::from_string(name.to_string())]));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let address = self.address(*broker)?;
        let response = self.with(&address, |connection| connection.call(&request))?;
        let mut configs = response.results.into_iter().flat_map(|result| result.configs);
        let found = configs.find(|config| *config.name == *name).and_then(|config| config.value);
        Ok(found.map(|value| value.to_string()))
    }

    /// Commits offsets to a group without members: monitors show the lag of the group.
    pub(crate) fn commit(
        &mut self,
        group: &str,
        offsets: &BTreeMap<Partition, i64>,
    ) -> Outcome<()> {
        match self.commit_once(group, offsets) {
            // Brokers close connections that have been idle. A new one is used the second time.
            Err(Fault::Retry(_)) => self.commit_once(group, offsets),
            result => result,
        }
    }

    fn commit_once(&mut self, group: &str, offsets: &BTreeMap<Partition, i64>) -> Outcome<()> {
        let address = self.coordinator(Kind::Group, group)?;
        let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
        for (partition, offset) in offsets {
            let one = OffsetCommitRequestPartition::default()
                .with_partition_index(partition.number)
                .with_committed_offset(*offset);
            topics.entry(&partition.topic).or_default().push(one);
        }
        let topic = |(name, partitions): (&str, Vec<_>)| {
            OffsetCommitRequestTopic::default()
                .with_name(topic_name(name))
                .with_partitions(partitions)
        };
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(group.to_string())))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(topics.into_iter().map(topic).collect());
        let response = self.with(&address, |connection| {
            let version = connection.version_of::<OffsetCommitRequest>(8)?;
            connection.call_in(&request, version, Duration::ZERO)
        })?;
        for topic in response.topics {
            for partition in topic.partitions {
                if let Some(error) = error_of(partition.error_code) {
                    return Err(group_fault(group, error));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_string()))
}

fn group_fault(group: &str, error: ResponseError) -> Fault {
    let place = format!("group '{}'", group.escape_debug());
    match error {
        ResponseError::UnknownMemberId | ResponseError::IllegalGeneration => Fault::Fatal {
            place,
            message: "the group has members, so its offsets are theirs".into(),
            help: "give the table a group of its own: 'properties.group.id'".into(),
        },
        error if error.is_retriable() => Fault::retry(format!("{place}: {error}")),
        error => Fault::Fatal { place, message: error.to_string(), help: String::new() },
    }
}
