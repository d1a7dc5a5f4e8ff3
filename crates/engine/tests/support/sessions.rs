//! Random jobs with sessions, and a model that decides record by record whether it is late.

use std::collections::BTreeMap;
use std::fmt;

use millstream_contract::plan::{Plan, Session, Window};

use super::{Random, Record, aggregate, group_line, records, table, time_text, windowed};

/// Records, and the sessions that are wanted of them.
pub(crate) struct SessionCase {
    pub(crate) data: Vec<Vec<Record>>,
    gap_ms: i64,
    pub(crate) partition: usize,
    delay_us: i64,
    pub(crate) lateness_ms: i64,
}

impl fmt::Display for SessionCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionCase { gap_ms, partition, delay_us, lateness_ms, .. } = self;
        write!(
            f,
            "gap {gap_ms} ms of {partition} keys, {delay_us} us behind, late {lateness_ms} ms"
        )
    }
}

impl SessionCase {
    /// Everything about it is drawn at random.
    pub(crate) fn any(random: &mut Random) -> SessionCase {
        let splits = 1 + random.below(3) as usize;
        let per_split = random.pick(&[0, 1, 40, 300, 900]);
        let keys = random.pick(&[1, 5, 60, 100_000]);
        let mut data = records(random, splits, per_split, keys);
        for split in &mut data {
            for record in split.iter_mut() {
                // Some keys come often, others seldom; times stand on a grid of a third of the gap.
                record.ts_ms = record.ts_ms.map(|ts| ts / 10 * 10);
            }
            let (from, hole) = (random.below(300), random.pick(&[0, 0, 2_000, 70_000]));
            for record in split.iter_mut().skip(from as usize) {
                record.ts_ms = record.ts_ms.map(|ts| ts + hole);
            }
        }
        SessionCase {
            data,
            gap_ms: random.pick(&[1, 10, 30, 300, 5_000]),
            // Sessions of both keys, of the first, which may be NULL, or of all records.
            partition: random.pick(&[2, 2, 1, 1, 0]) as usize,
            delay_us: random.pick(&[0, 1, 100_000, 2_999_999]),
            lateness_ms: random.pick(&[0, 0, 700]),
        }
    }

    /// Its query, over batches of random sizes.
    pub(crate) fn plan(&self, random: &mut Random) -> Plan {
        let &SessionCase { gap_ms, partition, delay_us, .. } = self;
        // Slices a gap wide, half of it or a quarter: the order of sessions is the same.
        let slices_of_gap = random.pick(&[1, 2, 4, 4]);
        let session = Session { slices_of_gap, ..Session::new(gap_ms * 1000, partition) };
        let window = Window::Session(session);
        let batch_rows = random.pick(&[1, 20, 300]);
        let mut plan = windowed(table(&self.data, random, batch_rows), window, delay_us);
        // Slices may pack several of those where no groups share sessions.
        if partition == 2 {
            aggregate(&mut plan).windows_in_slice = random.pick(&[1, 1, 2, 5, 40]);
        }
        plan
    }

    /// What the query must return, sorted, and how many records are late.
    pub(crate) fn expected(&self) -> (Vec<String>, u64) {
        let &SessionCase { gap_ms, partition, delay_us, lateness_ms, .. } = self;
        sessions_of(&self.data, gap_ms, partition, delay_us, lateness_ms)
    }
}

/// Sessions by the definition: records that are not late, in order of time, are of one session as
/// long as they are a gap apart at the most. Each session is that of the first `partition` keys, of
/// which there are two, and its records are grouped by both.
fn sessions_of(
    splits: &[Vec<Record>],
    gap_ms: i64,
    partition: usize,
    delay_us: i64,
    lateness_ms: i64,
) -> (Vec<String>, u64) {
    type Key<'a> = (Option<i64>, &'a str);
    type PartKey<'a> = (Option<Option<i64>>, Option<&'a str>);
    let (mut of_key, mut late) = (BTreeMap::<PartKey<'_>, Vec<&Record>>::new(), 0);
    for split in splits {
        let mut watermark = i64::MIN;
        for record in split {
            let Some(ts) = record.ts_ms else { continue };
            let before = watermark;
            watermark = watermark.max(ts * 1000 - delay_us);
            match (ts + lateness_ms) * 1000 < before {
                true => late += 1,
                false => {
                    let (key, name) = (record.key, record.name.as_str());
                    let key = ((partition > 0).then_some(key), (partition > 1).then_some(name));
                    of_key.entry(key).or_default().push(record);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for mut records in of_key.into_values() {
        records.sort_by_key(|record| record.ts_ms);
        let apart = |a: &&Record, b: &&Record| b.ts_ms.unwrap() - a.ts_ms.unwrap() <= gap_ms;
        for session in records.chunk_by(apart) {
            let start = session[0].ts_ms.unwrap();
            let end = session.last().unwrap().ts_ms.unwrap() + gap_ms;
            let mut groups = BTreeMap::<Key<'_>, Vec<&Record>>::new();
            for record in session {
                groups.entry((record.key, record.name.as_str())).or_default().push(record);
            }
            rows.extend(groups.into_iter().map(|((key, name), group)| {
                let line = group_line(key, name, &group);
                format!("{}|{}|{line}", time_text(start), time_text(end))
            }));
        }
    }
    rows.sort();
    (rows, late)
}
