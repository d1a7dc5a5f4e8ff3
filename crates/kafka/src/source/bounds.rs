//! Where reading begins and ends in each partition, as offsets.

use std::collections::BTreeMap;

use super::fetch::{Log, out_of_range};
use super::options::{Bound, Reset, ScanOptions};
use crate::client::cluster::{Asked, Cluster, Metadata, Partition};
use crate::client::fault::{Fault, Outcome};

/// The logs of partitions.
pub(super) fn logs(
    cluster: &mut Cluster,
    metadata: &Metadata,
    partitions: &[Partition],
) -> Outcome<BTreeMap<Partition, Log>> {
    let mut all = |asked: Asked| {
        let asked = partitions.iter().map(|partition| (partition.clone(), asked)).collect();
        cluster.offsets(metadata, &asked)
    };
    let (starts, ends) = (all(Asked::Earliest)?, all(Asked::Latest)?);
    let log = |partition: &Partition| {
        let offset = |of: &BTreeMap<Partition, Option<i64>>| of.get(partition).copied().flatten();
        let log = Log { start: offset(&starts)?, end: offset(&ends)? };
        Some((partition.clone(), log))
    };
    let found: Option<BTreeMap<_, _>> = partitions.iter().map(log).collect();
    found.ok_or_else(|| Fault::retry("a broker does not tell where its log begins".into()))
}

/// The offset of each partition at which reading begins.
pub(super) fn starts(
    cluster: &mut Cluster,
    metadata: &Metadata,
    options: &ScanOptions,
    logs: &BTreeMap<Partition, Log>,
) -> Outcome<BTreeMap<Partition, i64>> {
    let mut found = resolved(cluster, metadata, options, &options.startup, logs)?;
    if let Bound::Specific(_) = &options.startup {
        // As in Flink, partitions that are not named begin where the group is.
        let unnamed =
            logs.iter().filter(|(partition, _)| matches!(found.get(partition), Some(None)));
        let unnamed: BTreeMap<_, _> = unnamed.map(|(of, log)| (of.clone(), *log)).collect();
        if options.fetch.group.is_some() && !unnamed.is_empty() {
            found.extend(resolved(cluster, metadata, options, &Bound::Group, &unnamed)?);
        }
    }
    let mut starts = BTreeMap::new();
    for (partition, log) in logs {
        let offset = match (found.remove(partition).flatten(), &options.startup) {
            (Some(offset), _) => offset,
            (None, Bound::Group) => match options.reset {
                Reset::Earliest => log.start,
                Reset::Latest => log.end,
                Reset::Fail => return Err(no_offset(partition, options)),
            },
            (None, Bound::Specific(_)) => match options.reset {
                Reset::Latest => log.end,
                _ => log.start,
            },
            // Nothing is as late.
            (None, _) => log.end,
        };
        let mut log = *log;
        if offset > log.end {
            // Another reader of the group may have read records of open transactions.
            let asked = BTreeMap::from([(partition.clone(), Asked::HighWatermark)]);
            let found = cluster.offsets(metadata, &asked)?;
            log.end = found.get(partition).copied().flatten().unwrap_or(log.end);
        }
        if offset < log.start || offset > log.end {
            return Err(out_of_range(partition, offset, log));
        }
        starts.insert(partition.clone(), offset);
    }
    Ok(starts)
}

/// The offset of each partition at which reading ends.
pub(super) fn ends(
    cluster: &mut Cluster,
    metadata: &Metadata,
    options: &ScanOptions,
    logs: &BTreeMap<Partition, Log>,
) -> Outcome<BTreeMap<Partition, i64>> {
    let Some(bound) = &options.bounded else {
        return Ok(logs.keys().map(|partition| (partition.clone(), i64::MAX)).collect());
    };
    let mut found = resolved(cluster, metadata, options, bound, logs)?;
    let mut ends = BTreeMap::new();
    for (partition, log) in logs {
        let offset = match (found.remove(partition).flatten(), bound) {
            (Some(offset), _) => offset,
            (None, Bound::Group) => return Err(no_offset(partition, options)),
            // As in Flink, nothing is read of partitions that are not named.
            (None, Bound::Specific(_)) => log.start,
            (None, _) => log.end,
        };
        ends.insert(partition.clone(), offset);
    }
    Ok(ends)
}

fn no_offset(partition: &Partition, options: &ScanOptions) -> Fault {
    let group = options.fetch.group.as_deref().unwrap_or_default();
    Fault::Fatal {
        place: format!("topic '{}', partition {}", partition.topic, partition.number),
        message: format!("the group '{}' has no offset", group.escape_debug()),
        help: "say where to begin: 'properties.auto.offset.reset' = 'earliest' or 'latest', or \
               'scan.startup.mode' = 'earliest-offset'"
            .into(),
    }
}

/// Offsets of a bound; `None`: the partition has no such offset.
fn resolved(
    cluster: &mut Cluster,
    metadata: &Metadata,
    options: &ScanOptions,
    bound: &Bound,
    logs: &BTreeMap<Partition, Log>,
) -> Outcome<BTreeMap<Partition, Option<i64>>> {
    let each = |offset: &dyn Fn(&Partition, &Log) -> Option<i64>| {
        let offsets =
            logs.iter().map(|(partition, log)| (partition.clone(), offset(partition, log)));
        Ok(offsets.collect())
    };
    match bound {
        Bound::Earliest => each(&|_, log| Some(log.start)),
        Bound::Latest => each(&|_, log| Some(log.end)),
        Bound::Specific(offsets) => each(&|partition, _| offsets.get(&partition.number).copied()),
        Bound::Timestamp(time) => {
            let asked = logs.keys().map(|partition| (partition.clone(), Asked::At(*time)));
            cluster.offsets(metadata, &asked.collect())
        }
        Bound::Group => {
            let group = options.fetch.group.as_deref().unwrap_or_default();
            let partitions: Vec<Partition> = logs.keys().cloned().collect();
            let committed = cluster.committed(group, &partitions)?;
            each(&|partition, _| committed.get(partition).map(|of| of.offset))
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use millstream_connect::Options;

    use super::*;
    use crate::tests::table;

    #[test]
    fn of_partitions_without_a_specific_end_nothing_is_read() {
        let table = table(
            &[("v", DataType::Binary)],
            &[
                ("scan.bounded.mode", "specific-offsets"),
                ("scan.bounded.specific-offsets", "partition:1,offset:7"),
            ],
        );
        let scan = ScanOptions::from_options(&table, &Options::new(&table)).unwrap();
        let of = |number| Partition { topic: "t".into(), number };
        let logs = BTreeMap::from([0, 1].map(|number| (of(number), Log { start: 3, end: 9 })));
        let mut cluster = Cluster::new(scan.fetch.client.clone(), true);
        let found = ends(&mut cluster, &Metadata::default(), &scan, &logs).unwrap();
        assert_eq!(found, BTreeMap::from([(of(0), 3), (of(1), 7)]));
    }
}
