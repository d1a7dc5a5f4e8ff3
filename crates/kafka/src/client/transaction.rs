//! Transactions of a producer: partitions that join, the marker, the end.

use std::time::Duration;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest,
    GroupId, ProducerId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::address::Address;
use super::cluster::{Kind, topic_name};
use super::fault::{Fault, Outcome, error_of};
use super::producer::{Marker, Producer, transactional_id};

impl Producer {
    /// Version 1: partitions join the transaction before they are written.
    pub(super) fn add_partitions(&mut self, partitions: &[i32]) -> Outcome<()> {
        let Some(address) = self.coordinator()? else { return Ok(()) };
        let (producer, epoch) = self.writer.unwrap_or((-1, -1));
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(&self.settings.topic))
            .with_partitions(partitions.to_vec());
        let id = self.settings.transactional_id.as_deref().unwrap_or_default();
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(transactional_id(id))
            .with_v3_and_below_producer_id(ProducerId(producer))
            .with_v3_and_below_producer_epoch(epoch)
            .with_v3_and_below_topics(vec![topic]);
        let response = self.cluster.with(&address, |connection| {
            let version = connection.version_of::<AddPartitionsToTxnRequest>(3)?;
            connection.call_in(&request, version, Duration::ZERO)
        })?;
        for topic in response.results_by_topic_v3_and_below {
            for partition in topic.results_by_partition {
                match error_of(partition.partition_error_code) {
                    None | Some(ResponseError::OperationNotAttempted) => {}
                    Some(error) => return Err(self.fault("a partition of a transaction", error)),
                }
            }
        }
        self.is_open = true;
        Ok(())
    }

    pub(super) fn commit_marker(&mut self, marker: &Marker) -> Outcome<()> {
        let Some(id) = self.settings.transactional_id.clone() else { return Ok(()) };
        let (producer, epoch) = self.writer.unwrap_or((-1, -1));
        let group = GroupId(StrBytes::from_string(id.clone()));
        if !self.second_version
            && let Some(address) = self.coordinator()?
        {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(transactional_id(&id))
                .with_producer_id(ProducerId(producer))
                .with_producer_epoch(epoch)
                .with_group_id(group.clone());
            let response = self.cluster.with(&address, |connection| {
                let version = connection.version_of::<AddOffsetsToTxnRequest>(3)?;
                connection.call_in(&request, version, Duration::ZERO)
            })?;
            if let Some(error) = error_of(response.error_code) {
                return Err(self.fault("the marker's group", error));
            }
            self.is_open = true;
        }
        let address = self.cluster.coordinator(Kind::Group, &id)?;
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(self.marker_partition().number)
            .with_committed_offset(marker.offset)
            .with_committed_metadata(Some(StrBytes::from_string(marker.text.clone())));
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(topic_name(&self.settings.topic))
            .with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(transactional_id(&id))
            .with_group_id(group)
            .with_producer_id(ProducerId(producer))
            .with_producer_epoch(epoch)
            .with_topics(vec![topic]);
        let highest = if self.second_version { 5 } else { 4 };
        let response = self.cluster.with(&address, |connection| {
            let version = connection.version_of::<TxnOffsetCommitRequest>(highest)?;
            connection.call_in(&request, version, Duration::ZERO)
        })?;
        for topic in response.topics {
            for partition in topic.partitions {
                if let Some(error) = error_of(partition.error_code) {
                    return Err(self.fault("the marker", error));
                }
            }
        }
        self.is_open = true;
        Ok(())
    }

    /// Whether the broker has ended the last transaction of the id by itself: its time was over. A
    /// producer that has begun with the id since is in another state.
    pub(super) fn has_expired(&mut self, address: &Address) -> Outcome<bool> {
        let id = self.settings.transactional_id.as_deref().unwrap_or_default();
        let request = DescribeTransactionsRequest::default()
            .with_transactional_ids(vec![transactional_id(id)]);
        let response = self.cluster.with(address, |connection| {
            // Brokers before 3.0 do not tell.
            let tells = connection.version_of::<DescribeTransactionsRequest>(0).is_ok();
            tells.then(|| connection.call(&request)).transpose()
        })?;
        let states = response.map(|response| response.transaction_states).unwrap_or_default();
        let Some(found) = states.first() else { return Ok(false) };
        match error_of(found.error_code) {
            Some(error) if error.is_retriable() => {
                Err(Fault::retry(format!("the state of a transaction: {error}")))
            }
            _ => Ok(matches!(&*found.transaction_state, "PrepareAbort" | "CompleteAbort")),
        }
    }

    pub(super) fn commit(&mut self) -> Outcome<()> {
        let Some(address) = self.coordinator()? else { return Ok(()) };
        let id = self.settings.transactional_id.as_deref().unwrap_or_default();
        let (producer, epoch) = self.writer.unwrap_or((-1, -1));
        let request = EndTxnRequest::default()
            .with_transactional_id(transactional_id(id))
            .with_producer_id(ProducerId(producer))
            .with_producer_epoch(epoch)
            .with_committed(true);
        let highest = if self.second_version { 5 } else { 4 };
        let response = self.cluster.with(&address, |connection| {
            let version = connection.version_of::<EndTxnRequest>(highest)?;
            connection.call_in(&request, version, Duration::ZERO)
        })?;
        if let Some(error) = error_of(response.error_code) {
            return Err(self.fault("the end of a transaction", error));
        }
        self.is_open = false;
        if self.second_version && response.producer_id.0 >= 0 {
            self.writer = Some((response.producer_id.0, response.producer_epoch));
            self.sequences.clear();
        }
        Ok(())
    }
}
