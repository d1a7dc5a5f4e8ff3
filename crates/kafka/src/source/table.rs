//! Topics as a table: a partition is a split.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::datatypes::SchemaRef;
use millstream_connect::Options;
use millstream_connect::messages::{MessageFormat, OnError};
use millstream_contract::table::{
    AddedSplits, OpenOptions, Positions, Split, SplitSpec, Table, TableOptions,
};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use super::bounds;
use super::chunk::{Plan, Tombstones};
use super::fetch::{Fetcher, Log, Start, is_other, made_again, out_of_range};
use super::options::{ScanOptions, Topics};
use super::split::{KafkaSplit, Mark};
use crate::client::cluster::{Cluster, Metadata, Partition};
use crate::client::fault::{Fault, Outcome};
use crate::columns::{Beside, Columns, Origin};
use crate::formats;

/// Topics that are read.
#[derive(Debug, Clone)]
pub struct KafkaTable {
    of: Arc<Declared>,
    /// The partitions to be read; `None`: those that there are.
    only: Option<Vec<Partition>>,
}

struct Declared {
    scan: ScanOptions,
    columns: Columns,
    value: MessageFormat,
    key: Option<MessageFormat>,
    tombstones: Tombstones,
    /// The threads of this process, while a split of the table is there.
    fetcher: Mutex<Weak<Fetcher>>,
    /// The partitions with which this process began when it opened the table first, without those
    /// that had come since an earlier run.
    opened: Mutex<Option<BTreeSet<Partition>>>,
    /// The brokers were away a moment ago, so a start does not wait for them a second time.
    away: Mutex<Option<Fault>>,
}

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Declared").field("topics", &self.scan.fetch.topics).finish_non_exhaustive()
    }
}

impl KafkaTable {
    /// A table from `WITH` options. Connects only when it is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<KafkaTable> {
        let found = KafkaTable::declared(table)?;
        found.of.scan.check_group(&Options::new(table))?;
        Ok(found)
    }

    /// The same of a table that may be only written.
    pub(crate) fn declared(table: &TableOptions) -> Result<KafkaTable> {
        let options = Options::new(table);
        let scan = ScanOptions::from_options(table, &options)?;
        let key = formats::key(&options);
        let columns = Columns::new(table, &options, key.is_some())?;
        let format =
            |prefix: &str, schema: &SchemaRef| formats::reader(table, &options, prefix, schema);
        let value = format(formats::value(&options)?, &columns.value)?;
        let key = key.map(|prefix| format(prefix, &columns.key)).transpose()?;
        let form = "'skip' or 'null'";
        let tombstones = options.parsed("value.tombstones", form, |text| match text.trim() {
            "skip" => Some(Tombstones::Skip),
            "null" => Some(Tombstones::Null),
            _ => None,
        })?;
        let tombstones = tombstones.unwrap_or(Tombstones::Skip);
        if tombstones == Tombstones::Null {
            let fields = columns.value.fields();
            if let Some(field) = fields.iter().find(|field| !field.is_nullable()) {
                let message = format!("column '{}' is NOT NULL", field.name());
                let help = "declare the columns of the value without NOT NULL";
                return Err(options.error("value.tombstones", message, help));
            }
        }
        if value.on_error() == OnError::Keep && (key.is_some() || tombstones == Tombstones::Null) {
            let message = "malformed messages cannot be kept of a table with 'key.format' or \
                           'value.tombstones' = 'null'"
                .to_string();
            return Err(options.error("on_error", message, "leave them out: 'on_error' = 'skip'"));
        }
        options.finish("a table of Kafka")?;
        let (fetcher, opened, away) = Default::default();
        let of = Declared { scan, columns, value, key, tombstones, fetcher, opened, away };
        Ok(KafkaTable { of: Arc::new(of), only: None })
    }

    /// Asks the brokers for a start. If they were away a moment ago, they are not waited for again.
    fn ask<T>(&self, question: impl FnMut(&mut Cluster) -> Outcome<T>) -> Outcome<T> {
        let away = || self.of.away.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fault) = away().take() {
            return Err(fault);
        }
        let answer = self.cluster().patiently(question);
        answer.inspect_err(|fault| *away() = Some(fault.clone()))
    }

    fn cluster(&self) -> Cluster {
        let fetch = &self.of.scan.fetch;
        Cluster::new(fetch.client.clone(), fetch.committed_only)
    }

    fn failed(&self, fault: Fault) -> Error {
        fault.error(&self.of.scan.fetch.client.shown())
    }

    /// The topics and their partitions now.
    fn look(&self, cluster: &mut Cluster) -> Outcome<(Metadata, Vec<Partition>)> {
        let topics = &self.of.scan.fetch.topics;
        let metadata = topics.metadata(cluster)?;
        if let Some(missing) = metadata.missing.first() {
            return Err(cluster.no_topic(missing));
        }
        let partitions = match &self.only {
            Some(only) => only.clone(),
            None => all_partitions(&metadata),
        };
        if partitions.is_empty() && matches!(topics, Topics::Pattern(_)) {
            return Err(Fault::Fatal {
                place: format!("kafka {}", self.of.scan.fetch.client.shown()),
                message: format!("no topic matches {}", topics.shown()),
                help: "the pattern has to match a topic's whole name".into(),
            });
        }
        Ok((metadata, partitions))
    }

    /// The partitions, each with where it begins and ends, and all partitions that there are.
    fn starts(
        &self,
        cluster: &mut Cluster,
        options: &OpenOptions,
    ) -> Outcome<(Vec<Start>, BTreeSet<Partition>)> {
        let (metadata, partitions) = self.look(cluster)?;
        let reads = |partition: &&Partition| !options.has_ended(&partition.to_string());
        let reads: Vec<Partition> = partitions.iter().filter(reads).cloned().collect();
        let logs = bounds::logs(cluster, &metadata, &reads)?;
        let marks: BTreeMap<&Partition, Mark> = reads
            .iter()
            .filter_map(|of| Some((of, Mark::of(&options.from(&of.to_string()))?)))
            .collect();
        let unmarked = logs.iter().filter(|(partition, _)| !marks.contains_key(partition));
        let unmarked = unmarked.map(|(partition, log)| (partition.clone(), *log));
        let (later, others): (BTreeMap<Partition, Log>, BTreeMap<Partition, Log>) =
            unmarked.partition(|(partition, _)| self.came_later(partition, options));
        let scan = &self.of.scan;
        let mut starts = bounds::starts(cluster, &metadata, scan, &others)?;
        // Partitions that came later are read from their first records.
        starts.extend(later.iter().map(|(partition, log)| (partition.clone(), log.start)));
        let unmarked = later.into_iter().chain(others).collect();
        let ends = bounds::ends(cluster, &metadata, scan, &unmarked)?;
        let mut found = Vec::new();
        for partition in partitions {
            let id = metadata.topics.get(&partition.topic).map(|topic| topic.id);
            let topic_id = id.unwrap_or_default();
            let start = match (marks.get(&partition), starts.get(&partition)) {
                (Some(mark), _) => {
                    if is_other(topic_id, mark.topic_id) {
                        return Err(made_again(&partition));
                    }
                    let log = logs.get(&partition).copied().unwrap_or_default();
                    if mark.offset < log.start {
                        return Err(out_of_range(&partition, mark.offset, log));
                    }
                    let Mark { offset, epoch, until, .. } = *mark;
                    Start { partition, topic_id, offset, epoch, until }
                }
                (None, Some(offset)) => {
                    let until = ends.get(&partition).copied().unwrap_or(i64::MAX);
                    Start { partition, topic_id, offset: *offset, epoch: -1, until }
                }
                // It has ended.
                (None, None) => Start { partition, topic_id, offset: 0, epoch: -1, until: 0 },
            };
            found.push(start);
        }
        Ok((found, all_partitions(&metadata).into_iter().collect()))
    }

    /// Whether a partition was not there when the job began.
    fn came_later(&self, partition: &Partition, options: &OpenOptions) -> bool {
        let opened = self.of.opened.lock().unwrap_or_else(PoisonError::into_inner);
        !options.from.is_empty() || opened.as_ref().is_some_and(|all| !all.contains(partition))
    }

    fn running(&self) -> Option<Arc<Fetcher>> {
        self.of.fetcher.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    pub(super) fn plan(&self, partition: &Partition, projection: &[usize]) -> Result<Plan> {
        let Declared { columns, value, key, tombstones, .. } = &*self.of;
        let source: Arc<str> =
            format!("topic '{}', partition {}", partition.topic, partition.number).into();
        let (mut of_value, mut of_key, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for column in projection {
            let origin = columns.origins.get(*column).copied();
            let origin =
                origin.ok_or_else(|| Error::Internal("a column that is not there".into()))?;
            origins.push(match origin {
                Origin::Value(column) => {
                    of_value.push(column);
                    Origin::Value(of_value.len() - 1)
                }
                Origin::Key(column) => {
                    of_key.push(column);
                    Origin::Key(of_key.len() - 1)
                }
                beside => beside,
            });
        }
        let with_headers = origins
            .iter()
            .any(|origin| matches!(origin, Origin::Beside(Beside::Headers | Beside::HeaderList)));
        // A key all of whose columns are read from the value is not looked at.
        let is_read = columns.origins.iter().any(|origin| matches!(origin, Origin::Key(_)));
        let key = key.as_ref().filter(|_| is_read);
        let key = key.map(|key| key.decoder(&source, &columns.key, &of_key)).transpose()?;
        Ok(Plan {
            partition: partition.clone(),
            value: value.decoder(&source, &columns.value, &of_value)?,
            source,
            schema: Arc::new(columns.all.project(projection)?),
            origins,
            key,
            tombstones: *tombstones,
            with_headers,
        })
    }
}

/// All partitions, in order.
fn all_partitions(metadata: &Metadata) -> Vec<Partition> {
    let topics = metadata.topics.iter();
    let partitions = topics.flat_map(|(topic, of)| {
        of.leaders.keys().map(|number| Partition { topic: topic.clone(), number: *number })
    });
    partitions.collect()
}

fn spec(partition: &Partition) -> SplitSpec {
    SplitSpec { name: partition.to_string(), length: None, file: None, packed: false }
}

fn partition_of(spec: &str) -> Option<Partition> {
    let (topic, number) = spec.rsplit_once('-')?;
    Some(Partition { topic: topic.to_string(), number: number.parse().ok()? })
}

impl Table for KafkaTable {
    fn schema(&self) -> SchemaRef {
        self.of.columns.all.clone()
    }

    fn bounded(&self) -> bool {
        self.of.scan.bounded.is_some()
    }

    fn splits_are_apart(&self) -> bool {
        !self.bounded()
    }

    fn varies(&self) -> Option<&'static str> {
        let formats = [Some(&self.of.value), self.of.key.as_ref()];
        let has_registry = |format: &MessageFormat| format.name().ends_with("avro-confluent");
        let leaves_out = self.of.value.on_error() != OnError::Fail;
        (leaves_out && formats.into_iter().flatten().any(has_registry)).then_some(
            "it leaves out messages whose schema the registry does not know, and may know later",
        )
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        for format in [Some(&self.of.value), self.of.key.as_ref()].into_iter().flatten() {
            format.open()?;
        }
        // Leaders may change between two tries.
        let starts = self.ask(|cluster| self.starts(cluster, options));
        let (starts, seen) = starts.map_err(|fault| self.failed(fault))?;
        let fetcher = self.running().unwrap_or_else(|| {
            let mut settings = self.of.scan.fetch.clone();
            // What waits here is not counted against the job's memory.
            let part = (options.memory_bytes / 32).clamp(1 << 20, 1 << 30);
            settings.max_bytes = settings.max_bytes.min(part as i32);
            settings.queue_bytes =
                settings.queue_bytes.min(part as usize / starts.len().max(1)).max(1);
            let fetcher = Arc::new(Fetcher::start(settings, seen));
            *self.of.fetcher.lock().unwrap_or_else(PoisonError::into_inner) =
                Arc::downgrade(&fetcher);
            fetcher
        });
        let marks: Vec<(Partition, Mark)> = starts
            .iter()
            .map(|start| {
                let Start { offset, epoch, topic_id, until, .. } = *start;
                (start.partition.clone(), Mark { offset, epoch, topic_id, until })
            })
            .collect();
        let first = fetcher.add(starts);
        let there = marks.iter().map(|(partition, _)| partition);
        let there = there.filter(|of| !self.came_later(of, options)).cloned().collect();
        let mut opened = self.of.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.get_or_insert(there);
        drop(opened);
        let servers: Arc<str> = self.of.scan.fetch.client.shown().into();
        let split = |(number, (partition, mark)): (usize, (Partition, Mark))| {
            Ok(Box::new(KafkaSplit {
                name: partition.to_string(),
                plan: Arc::new(self.plan(&partition, projection)?),
                fetcher: fetcher.clone(),
                lane: first + number,
                first: mark.offset,
                mark,
                batch_rows: options.batch_rows.max(1),
                servers: servers.clone(),
            }) as Box<dyn Split>)
        };
        marks.into_iter().enumerate().map(split).collect()
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.of.columns.all.fields().len());
        let all = counted(all as u64, "column");
        let topics = self.of.scan.fetch.topics.shown();
        format!("kafka topic {topics} ({}, {read} of {all})", self.of.value.name())
    }

    fn splits(&self) -> Result<Vec<SplitSpec>> {
        let looked = self.ask(|cluster| self.look(cluster));
        let (_, partitions) = looked.map_err(|fault| self.failed(fault))?;
        Ok(partitions.iter().map(spec).collect())
    }

    fn with_splits(&self, splits: &[SplitSpec]) -> Option<Arc<dyn Table>> {
        let only = splits.iter().filter_map(|split| partition_of(&split.name)).collect();
        Some(Arc::new(KafkaTable { of: self.of.clone(), only: Some(only) }))
    }

    fn added_splits(&self, is_known: &dyn Fn(&str) -> bool) -> Result<AddedSplits> {
        if self.of.scan.fetch.discovery.is_none() {
            return Ok(AddedSplits::Never);
        }
        let seen = self.running().map(|fetcher| fetcher.seen()).unwrap_or_default();
        let added = seen.iter().filter(|partition| !is_known(&partition.to_string()));
        Ok(AddedSplits::New(added.map(spec).collect()))
    }

    fn committed(&self, positions: &Positions, ended: &BTreeSet<String>) -> Result<()> {
        let Some(group) = &self.of.scan.fetch.group else { return Ok(()) };
        let offset = |(name, position): (&String, &millstream_contract::table::Position)| {
            let mark = Mark::of(position)?;
            // Where an earlier run has read to is not known here of what it has read to the end.
            let is_known = !ended.contains(name) || mark.until > 0;
            is_known.then(|| Some((partition_of(name)?, mark.offset))).flatten()
        };
        let offsets: BTreeMap<Partition, i64> = positions.iter().filter_map(offset).collect();
        let goes_on = positions.keys().any(|name| !ended.contains(name));
        match self.running().filter(|_| goes_on) {
            _ if offsets.is_empty() => {}
            Some(fetcher) => fetcher.commit(offsets),
            // The last checkpoint of a job that has stopped fetching.
            None => {
                if let Err(fault) = self.cluster().commit(group, &offsets) {
                    tracing::warn!(group, "offsets were not committed: {}", fault.text());
                }
            }
        }
        Ok(())
    }
}
