//! Faults of a partition that do not pass.

use uuid::Uuid;

use super::lanes::Log;
use crate::client::cluster::Partition;
use crate::client::fault::Fault;

/// Whether two identities are of two topics; old brokers tell none.
pub(in crate::source) fn is_other(now: Uuid, before: Uuid) -> bool {
    !now.is_nil() && !before.is_nil() && now != before
}

/// The fault of a position whose topic was deleted and made again.
pub(in crate::source) fn made_again(partition: &Partition) -> Fault {
    Fault::Fatal {
        place: format!("topic '{}'", partition.topic),
        message: "the topic was deleted and made again: its offsets are of other records".into(),
        help: "begin anew: with --fresh, or another directory of checkpoints".into(),
    }
}

/// An offset is outside of the log.
pub(in crate::source) fn out_of_range(partition: &Partition, offset: i64, log: Log) -> Fault {
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
