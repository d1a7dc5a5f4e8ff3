//! The options of a table that is read, by Flink's names.
//!
//! | option | default | |
//! |---|---|---|
//! | `topic` | | names, with `;` between |
//! | `topic-pattern` | | a regular expression for whole names, in place of `topic` |
//! | `properties.*` | | [`crate::client::settings`] |
//! | `scan.startup.mode` | `group-offsets` | where reading begins: [`Bound`] |
//! | `scan.bounded.mode` | `unbounded` | where reading ends: [`Bound`] |
//! | `scan.topic-partition-discovery.interval` | `5 min` | `0`: new partitions are not looked for |
//!
//! The modes `timestamp` and `specific-offsets` have an option of their own:
//! `scan.startup.timestamp-millis`, and `scan.startup.specific-offsets` in the form
//! `partition:0,offset:42;partition:1,offset:300`.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_connect::Options;
use millstream_contract::settings::{closest, parse_duration_us};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};
use regex::Regex;

use crate::client::cluster::{Cluster, Metadata};
use crate::client::fault::Outcome;
use crate::client::settings::ClientSettings;

/// Options of sinks, without effect on a table that is read.
const OF_SINKS: &[&str] = &[
    "sink.partitioner",
    "sink.semantic",
    "sink.delivery-guarantee",
    "sink.transactional-id-prefix",
    "sink.spool",
    "sink.transaction-naming-strategy",
    "sink.parallelism",
    "scan.parallelism",
];

/// Properties of producers, which tables that are read and written have, too.
const OF_PRODUCERS: &[&str] = &[
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "retries",
    "transaction.timeout.ms",
    "value.serializer",
];

/// Which topics.
#[derive(Debug, Clone)]
pub(crate) enum Topics {
    List(Vec<String>),
    Pattern(Regex),
}

impl Topics {
    /// The partitions of these topics now.
    pub(super) fn metadata(&self, cluster: &mut Cluster) -> Outcome<Metadata> {
        match self {
            Topics::List(topics) => cluster.metadata(Some(topics)),
            Topics::Pattern(pattern) => cluster.metadata_of(None, |name| pattern.is_match(name)),
        }
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        match self {
            Topics::List(topics) => topics.join(";"),
            // Without the anchors.
            Topics::Pattern(pattern) => {
                let text = pattern.as_str();
                let text = text.strip_prefix("^(?:").and_then(|text| text.strip_suffix(")$"));
                format!("/{}/", text.unwrap_or_default())
            }
        }
    }
}

/// The settings of the fetching threads.
#[derive(Debug, Clone)]
pub(super) struct FetchSettings {
    pub(super) client: ClientSettings,
    pub(super) topics: Topics,
    pub(super) group: Option<String>,
    pub(super) committed_only: bool,
    pub(super) discovery: Option<Duration>,
    pub(super) max_wait_ms: i32,
    pub(super) min_bytes: i32,
    pub(super) max_bytes: i32,
    pub(super) partition_bytes: i32,
    /// A queue with as many bytes is not filled further.
    pub(super) queue_bytes: usize,
}

/// A place in each partition, where reading begins or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bound {
    Earliest,
    Latest,
    Group,
    /// Milliseconds since the epoch.
    Timestamp(i64),
    /// By partition.
    Specific(BTreeMap<i32, i64>),
}

/// Where a group has no offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    Fail,
    Earliest,
    Latest,
}

/// The options of a table that is read.
#[derive(Debug, Clone)]
pub(crate) struct ScanOptions {
    pub(super) fetch: FetchSettings,
    pub(super) startup: Bound,
    /// Whether the options say where it begins.
    explicit: bool,
    /// `None`: without end.
    pub(super) bounded: Option<Bound>,
    pub(super) reset: Reset,
}

impl ScanOptions {
    pub(super) fn from_options(table: &TableOptions, options: &Options<'_>) -> Result<ScanOptions> {
        for name in OF_SINKS {
            options.text(name);
        }
        for name in OF_PRODUCERS {
            options.text(&format!("properties.{name}"));
        }
        let topics = topics(options)?;
        let client = ClientSettings::from_options(table, options)?;
        let group = options.text("properties.group.id").filter(|group| !group.is_empty());
        let isolation = "properties.isolation.level";
        let committed_only = options.parsed(
            isolation,
            "'read_committed' or 'read_uncommitted'",
            |text| match text.trim().to_ascii_lowercase().as_str() {
                "read_committed" => Some(true),
                "read_uncommitted" => Some(false),
                _ => None,
            },
        )?;
        let reset = options.parsed(
            "properties.auto.offset.reset",
            "'none', 'earliest' or 'latest'",
            |text| match text.trim().to_ascii_lowercase().as_str() {
                "none" => Some(Reset::Fail),
                "earliest" => Some(Reset::Earliest),
                "latest" => Some(Reset::Latest),
                _ => None,
            },
        )?;
        let number = |name: &str, default: i32| {
            let key = format!("properties.{name}");
            let found = options.integer(&key, 0, 256 << 20)?;
            Ok::<_, Error>(found.map_or(default, |found| i32::try_from(found).unwrap_or(default)))
        };
        let startup = bound(options, "startup")?;
        let bounded = bound(options, "bounded")?;
        let interval = "scan.topic-partition-discovery.interval";
        let discovery =
            options.parsed(interval, "a duration such as '5 min'", |text| match text.trim() {
                "0" => Some(0),
                text => parse_duration_us(text),
            })?;
        let discovery = Duration::from_micros(discovery.unwrap_or(300_000_000).max(0) as u64);
        let fetch = FetchSettings {
            client,
            topics,
            group: group.map(str::to_string),
            committed_only: committed_only.unwrap_or(true),
            // What ends has all its partitions at the beginning.
            discovery: (bounded.is_none() && !discovery.is_zero()).then_some(discovery),
            max_wait_ms: number("fetch.max.wait.ms", 500)?,
            min_bytes: number("fetch.min.bytes", 1)?,
            max_bytes: number("fetch.max.bytes", 50 << 20)?.max(1),
            partition_bytes: number("max.partition.fetch.bytes", 1 << 20)?.max(1),
            queue_bytes: 4 << 20,
        };
        let (explicit, startup) = (startup.is_some(), startup.unwrap_or(Bound::Group));
        let reset = reset.unwrap_or(Reset::Fail);
        Ok(ScanOptions { fetch, startup, explicit, bounded, reset })
    }

    /// Refuses a table that begins or ends where a group is, without a group. Tables that are
    /// written need no group.
    pub(super) fn check_group(&self, options: &Options<'_>) -> Result<()> {
        let ends_at_group = self.bounded == Some(Bound::Group);
        if self.fetch.group.is_some() || !(self.startup == Bound::Group || ends_at_group) {
            return Ok(());
        }
        let (option, help) = match self.explicit || ends_at_group {
            true => ("properties.group.id", "name the group whose offsets are meant"),
            false => (
                "scan.startup.mode",
                "write 'scan.startup.mode' = 'earliest-offset' or 'latest-offset', or name a \
                 group in 'properties.group.id'",
            ),
        };
        let message = "reading begins or ends at the offsets of a group, and there is no group";
        Err(options.error(option, message.into(), help))
    }
}

fn topics(options: &Options<'_>) -> Result<Topics> {
    let (list, pattern) = (options.text("topic"), options.text("topic-pattern"));
    match (list, pattern) {
        (Some(list), None) => {
            let mut names: Vec<String> = list
                .split(';')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(Into::into)
                .collect();
            names.sort();
            names.dedup();
            let is_name = |name: &String| {
                let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
                name.len() <= 249 && name.chars().all(is_legal)
            };
            match names.iter().find(|name| !is_name(name)) {
                None if !names.is_empty() => Ok(Topics::List(names)),
                wrong => {
                    let found = wrong.map_or("", String::as_str).escape_debug().to_string();
                    let message =
                        format!("expected names of topics with ';' between, found '{found}'");
                    let help = "a name has letters, digits, '.', '_' and '-', 249 at most";
                    Err(options.error("topic", message, help))
                }
            }
        }
        (None, Some(pattern)) => {
            let whole = Regex::new(&format!("^(?:{pattern})$"));
            whole.map(Topics::Pattern).map_err(|error| {
                let message = format!("expected a regular expression: {error}");
                options.error(
                    "topic-pattern",
                    message,
                    "look-around and back-references do not run",
                )
            })
        }
        (Some(_), Some(_)) => Err(options.error(
            "topic-pattern",
            "topics are given twice".into(),
            "leave out 'topic' or 'topic-pattern'",
        )),
        (None, None) => Err(options.error(
            "topic",
            "a table of Kafka needs a topic".into(),
            "write 'topic' = 'NAME' among the options",
        )),
    }
}

/// The bound that `scan.startup.*` or `scan.bounded.*` say.
fn bound(options: &Options<'_>, which: &str) -> Result<Option<Bound>> {
    let key = |name: &str| format!("scan.{which}.{name}");
    let offsets = options.text(&key("specific-offsets"));
    let time = options.parsed(&key("timestamp-millis"), "milliseconds since 1970", |text| {
        text.trim().parse::<i64>().ok()
    })?;
    let option = key("mode");
    let modes: &[&str] = match which {
        "startup" => {
            &["earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets"]
        }
        _ => &["unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"],
    };
    let Some(mode) = options.text(&option) else { return Ok(None) };
    let missing = |name: &str| {
        let message = format!("the mode '{mode}' needs '{}'", key(name));
        options.error(&key(name), message, "")
    };
    Ok(match mode.trim() {
        "unbounded" if which == "bounded" => None,
        "earliest-offset" if which == "startup" => Some(Bound::Earliest),
        "latest-offset" => Some(Bound::Latest),
        "group-offsets" => Some(Bound::Group),
        "timestamp" => Some(Bound::Timestamp(time.ok_or_else(|| missing("timestamp-millis"))?)),
        "specific-offsets" => {
            let text = offsets.ok_or_else(|| missing("specific-offsets"))?;
            let found = specific(text).ok_or_else(|| {
                options.error(
                    &key("specific-offsets"),
                    format!("expected offsets of partitions, found '{}'", text.escape_debug()),
                    "write 'partition:0,offset:42;partition:1,offset:300'",
                )
            })?;
            Some(Bound::Specific(found))
        }
        other => {
            let begins = |mode: &&str| !other.is_empty() && mode.starts_with(other);
            let similar = modes.iter().copied().find(begins);
            let help = match similar.or_else(|| closest(other, modes.iter().copied())) {
                Some(mode) => format!("did you mean '{mode}'?"),
                None => format!("there are {}", modes.join(", ")),
            };
            let message = format!("there is no mode '{}'", other.escape_debug());
            return Err(options.error(&option, message, help));
        }
    })
}

/// `partition:0,offset:42;partition:1,offset:300`.
fn specific(text: &str) -> Option<BTreeMap<i32, i64>> {
    let mut found = BTreeMap::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (partition, offset) = part.split_once(',')?;
        let partition = partition.trim().strip_prefix("partition:")?.trim().parse::<i32>().ok()?;
        let offset = offset.trim().strip_prefix("offset:")?.trim().parse::<i64>().ok()?;
        if partition < 0 || offset < 0 || found.insert(partition, offset).is_some() {
            return None;
        }
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specific_offsets() {
        let expected = BTreeMap::from([(0, 42), (1, 300)]);
        assert_eq!(specific("partition:0,offset:42;partition:1,offset:300"), Some(expected));
        for wrong in
            ["", ";", "0:1", "partition:0", "partition:-1,offset:1", "partition:0,offset:x"]
        {
            assert_eq!(specific(wrong), None, "{wrong}");
        }
        assert_eq!(specific("partition:0,offset:1;partition:0,offset:2"), None);
    }
}
