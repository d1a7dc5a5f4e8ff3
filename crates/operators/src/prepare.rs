//! Preparing a chunk: decoding it, computing the table's derived columns, finding its event times.
//!
//! Preparing is a pure function of the chunk and of the time of reading. Any worker prepares,
//! several workers at a time. Work that depends on the order of chunks is left to stamping
//! (`engine::intake`); so is a column of watermarks, which is empty until its batch is taken.
//!
//! A batch whose records are spread over very many windows is cut into several batches. State is
//! counted after each batch, so the windows opened by a batch must be small compared with the
//! budget. Also cut are a batch whose arrays have very many elements, if each element becomes a
//! row, and a batch with more records than the setting `batch.rows`.

mod times;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray, new_null_array,
};
use arrow::datatypes::SchemaRef;

use crate::budget::{Held, batch_bytes};
use crate::dictionary;
use crate::error::Result;
use crate::event_time::{BEGINNING, END};
use crate::failing::first_failing;
use crate::incomplete::without_failing;
use crate::plan::{Derived, EventTime, Source, Watermark};
use crate::table::{Chunk, Decoded, Failing, LeftOut, Places};
use crate::texts;
use crate::windowing::{SliceId, Windowing};
use crate::zone::Zone;
use times::local_watermark;
pub use times::{BatchTimes, Limits, as_column, batch_times};

/// Maximum number of array elements of a batch that become rows: a batch of several records with
/// more elements is cut.
const ELEMENTS_MAX: usize = 1 << 17;

/// A decoded batch that has no place in its split yet.
#[derive(Debug)]
pub struct Prepared {
    /// The records.
    pub batch: RecordBatch,
    /// Their event times, where the source has some.
    pub times: Option<BatchTimes>,
    /// Input bytes it stands for.
    pub input_bytes: usize,
    /// Its part of the job's budget, shared with those that were cut from the same.
    pub held: Option<Arc<Held>>,
    /// Malformed records that were left out.
    pub malformed_records: u64,
    /// The first of them.
    pub(crate) first_malformed: Option<LeftOut>,
    /// All malformed records, if they are kept.
    pub malformed: Option<RecordBatch>,
    /// Notices for the user about the chunk, one line each.
    pub notices: Vec<String>,
    /// Places of the records, if the source can say.
    pub(crate) places: Option<Arc<dyn Places>>,
    /// The watermark that the sender has sent behind the records.
    sent_watermark_us: Option<i64>,
    /// Rows before which it is to be cut, ascending; see [`Prepared::cut`].
    cuts: Vec<usize>,
}

/// Approximate bytes of a slice of a column, without shared memory.
const PART_COLUMN_BYTES: usize = 160;

/// Workers that share windows wait for each other, window by window. So where a batch has more
/// than so many of these, it is cut into parts of so many records.
const WINDOWS_AT_ONCE: i64 = 2;
const PART_RECORDS: usize = 4096;

/// Limit of the tables of windows that a batch may open: a batch with more is cut.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// The windowing of the stage that takes the records.
    pub windowing: Windowing,
    /// The number of leaders.
    pub leaders: usize,
    /// Tables that a batch may open.
    pub tables_max: usize,
}

impl Prepared {
    /// Bytes it takes in memory.
    pub fn bytes(&self) -> usize {
        // Each part of a cut batch has arrays of its own.
        let part_bytes = size_of::<Prepared>() + self.batch.num_columns() * PART_COLUMN_BYTES;
        let places_bytes = self.places.as_ref().map_or(0, |places| places.bytes());
        let malformed_bytes = self.malformed.as_ref().map_or(0, batch_bytes);
        batch_bytes(&self.batch) + places_bytes + malformed_bytes + self.cuts.len() * part_bytes
    }

    /// Summary for stamping later batches of the split: the greatest watermark, and the number of
    /// records.
    pub fn summary(&self) -> (i64, u64) {
        (self.greatest(), self.batch.num_rows() as u64)
    }

    /// The greatest watermark of its records, or of their sender.
    pub fn greatest(&self) -> i64 {
        let greatest = self.times.as_ref().map_or(BEGINNING, |times| times.greatest);
        // A source without event time has no watermark.
        let sent = self.sent_watermark_us.filter(|_| self.times.is_some());
        greatest.max(sent.unwrap_or(BEGINNING))
    }

    /// The batches that it is to be cut into, in order, each with the number of its first row in
    /// this one. They share its memory.
    pub fn cut(mut self) -> Vec<(usize, Prepared)> {
        let ends = std::mem::take(&mut self.cuts);
        if ends.is_empty() {
            return vec![(0, self)];
        }
        let rows = self.batch.num_rows();
        let bytes_before =
            |row: usize| (self.input_bytes as u128 * row as u128 / rows as u128) as usize;
        let mut first = 0;
        let mut parts = Vec::with_capacity(ends.len() + 1);
        for end in ends.into_iter().chain([rows]) {
            let part = Prepared {
                batch: self.batch.slice(first, end - first),
                times: self.times.as_ref().map(|times| times.slice(first..end)),
                input_bytes: bytes_before(end) - bytes_before(first),
                held: self.held.clone(),
                malformed_records: std::mem::take(&mut self.malformed_records),
                first_malformed: self.first_malformed.take(),
                malformed: self.malformed.take(),
                notices: Vec::new(),
                places: self.places.clone(),
                sent_watermark_us: self.sent_watermark_us.filter(|_| end == rows),
                cuts: Vec::new(),
            };
            parts.push((first, part));
            first = end;
        }
        parts
    }
}

impl Spread {
    /// Before which rows to cut a batch.
    fn cuts(&self, times: &BatchTimes) -> Vec<usize> {
        let slices = times.bounds.map(|(min, max)| self.windowing.slices_between(min, max));
        let mut cuts = self.cuts_by_tables(times, slices);
        if self.leaders > 1 && slices.is_some_and(|slices| slices > WINDOWS_AT_ONCE) {
            cuts.extend((PART_RECORDS..times.times.len()).step_by(PART_RECORDS));
        }
        cuts
    }

    /// Before which rows to cut a batch that spans so many slices, so that each part opens
    /// `tables_max` tables at the most. A window needs one for each of its records, but no more
    /// than there are leaders.
    fn cuts_by_tables(&self, times: &BatchTimes, slices: Option<i64>) -> Vec<usize> {
        let rows = times.times.len();
        let few =
            |slices: i64| slices.saturating_mul(self.leaders as i64) <= self.tables_max as i64;
        if rows <= self.tables_max || slices.is_some_and(few) {
            return Vec::new();
        }
        let (mut cuts, mut tables) = (Vec::new(), 0);
        let mut records: HashMap<SliceId, usize> = HashMap::new();
        for row in 0..rows {
            let Some(time) = times.times.us(row) else { continue };
            let slice = self.windowing.slice_of(time).slice;
            if records.get(&slice).is_some_and(|records| *records == self.leaders) {
                continue;
            }
            if tables == self.tables_max {
                cuts.push(row);
                records.clear();
                tables = 0;
            }
            *records.entry(slice).or_default() += 1;
            tables += 1;
        }
        cuts
    }
}

/// Plan of preparing a source's chunks.
#[derive(Debug)]
pub struct Preparer {
    derived: Vec<Derived>,
    schema: SchemaRef,
    /// Columns that come from the source.
    physical: usize,
    event_time: Option<EventTime>,
    max_ahead_us: Option<i64>,
    /// Only the clock of a log decides what is too far ahead.
    log_alone: bool,
    /// How late records may be.
    lateness_us: i64,
    /// By stage that takes the records.
    spreads: Vec<Spread>,
    /// Columns whose elements become rows.
    arrays: Vec<usize>,
    /// Records of a batch at most.
    rows_max: usize,
}

impl Preparer {
    /// The preparation of a source's chunks.
    pub fn new(source: &Source, max_ahead_us: Option<i64>, spreads: Vec<Spread>) -> Preparer {
        Preparer {
            derived: source.derived.clone(),
            schema: source.schema.clone(),
            physical: source.projection.len(),
            event_time: source.event_time.clone(),
            max_ahead_us,
            log_alone: false,
            lateness_us: 0,
            spreads,
            arrays: Vec::new(),
            rows_max: usize::MAX,
        }
    }

    /// No batch has more records: a source may decode more at once, where that is cheaper.
    pub fn with_rows_max(self, rows_max: usize) -> Preparer {
        Preparer { rows_max: rows_max.max(1), ..self }
    }

    /// The clock of this machine does not decide what is too far ahead: when records are read
    /// again, the watermarks have to be the same.
    pub fn with_log_alone(self, log_alone: bool) -> Preparer {
        Preparer { log_alone, ..self }
    }

    /// Records may be so late.
    pub fn with_lateness(self, lateness_us: i64) -> Preparer {
        Preparer { lateness_us, ..self }
    }

    /// The elements of these columns become rows.
    pub fn with_arrays(self, arrays: Vec<usize>) -> Preparer {
        Preparer { arrays, ..self }
    }

    /// The column of watermarks, if there is one.
    pub fn watermark_column(&self) -> Option<usize> {
        let place = self.derived.iter().position(|d| matches!(d, Derived::Watermark))?;
        Some(self.physical + place)
    }

    /// Whether the clock moves the watermark on.
    pub fn has_clock(&self) -> bool {
        self.event_time.as_ref().is_some_and(|time| matches!(time.watermark, Watermark::Clock))
    }

    /// The watermark at a time of the clock, if it is the clock that moves it on. Records have
    /// whole milliseconds.
    pub fn watermark_of_clock(&self, now_us: i64) -> i64 {
        let now_us = now_us.div_euclid(1_000) * 1_000;
        let local = |zone: &Zone| local_watermark(&mut zone.clock(), now_us, self.lateness_us);
        self.zone().map_or(now_us, local)
    }

    /// When the clock gets to a watermark, at the earliest.
    pub fn clock_at(&self, watermark: i64) -> i64 {
        let instant = |zone: &Zone| {
            let late = watermark.saturating_sub(self.lateness_us);
            zone.clock().instant(late).saturating_add(self.lateness_us)
        };
        let us = self.zone().map_or(watermark, instant);
        us.saturating_sub(1).div_euclid(1_000).saturating_add(1).saturating_mul(1_000)
    }

    fn zone(&self) -> Option<&Zone> {
        self.event_time.as_ref()?.zone.as_ref()
    }

    /// Decodes and completes a chunk that was read at this time.
    pub fn prepare(&self, chunk: Box<dyn Chunk>, now_us: i64) -> Result<Prepared> {
        let input_bytes = chunk.bytes();
        let mut decoded = chunk.decode_reporting()?;
        let ahead_us = self.max_ahead_us.filter(|_| !self.log_alone);
        let watermark_us = ahead_us.map_or(END - 1, |ahead| now_us.saturating_add(ahead));
        let limits = Limits { now_us, watermark_us, log: None };
        let mut completed = self.complete(&decoded.batch, self.limits_of(&decoded, limits));
        if let (Err(error), false) = (&completed, matches!(decoded.failing, Failing::Fails)) {
            let evaluate = |batch: &RecordBatch| self.complete(batch, limits).map(|_| ());
            decoded = without_failing(decoded, error.clone(), &evaluate)?;
            completed = self.complete(&decoded.batch, self.limits_of(&decoded, limits));
        }
        let Decoded { batch, left_out, first_left_out, malformed, places, notices, .. } = decoded;
        let sent_watermark_us = decoded.sent_watermark_us.filter(|sent| *sent <= watermark_us);
        let (batch, times) = completed.map_err(|error| {
            let alone = |rows: Range<usize>| {
                self.complete(&batch.slice(rows.start, rows.len()), limits).map(|_| ())
            };
            match (first_failing(batch.num_rows(), alone), &places) {
                (Some((row, error)), Some(places)) => error.for_record(&places.place(row)),
                (Some((_, error)), None) => error,
                (None, _) => error,
            }
        })?;
        let cuts = self.cuts(&batch, times.as_ref());
        Ok(Prepared {
            batch,
            times,
            input_bytes,
            held: None,
            malformed_records: left_out,
            first_malformed: first_left_out,
            malformed,
            notices,
            places: places.map(Arc::from),
            sent_watermark_us,
            cuts,
        })
    }

    /// Limits of a batch of a log that has noted when it took in the records.
    fn limits_of<'d>(&self, decoded: &'d Decoded, limits: Limits<'d>) -> Limits<'d> {
        let appended_us = decoded.places.as_ref().and_then(|places| places.appended_us());
        Limits { log: appended_us.zip(self.max_ahead_us), ..limits }
    }

    /// Before which rows a batch is to be cut, so that no stage opens too much with a part of it.
    fn cuts(&self, batch: &RecordBatch, times: Option<&BatchTimes>) -> Vec<usize> {
        let spreads = self.spreads.iter().zip(times.into_iter().cycle());
        let mut cuts: Vec<usize> = spreads.flat_map(|(spread, times)| spread.cuts(times)).collect();
        for array in &self.arrays {
            cuts.extend(element_cuts(batch.column(*array), ELEMENTS_MAX));
        }
        cuts.extend((self.rows_max..batch.num_rows()).step_by(self.rows_max));
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// Derived columns and event times.
    fn complete(
        &self,
        batch: &RecordBatch,
        limits: Limits<'_>,
    ) -> Result<(RecordBatch, Option<BatchTimes>)> {
        texts::begin();
        let batch = self.derive(batch, limits.now_us)?;
        let times = match &self.event_time {
            Some(event_time) => {
                let times = batch_times(event_time, &batch, &limits, self.lateness_us)?;
                Some(times)
            }
            None => None,
        };
        Ok((batch, times))
    }

    fn derive(&self, batch: &RecordBatch, now_us: i64) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = batch.columns().to_vec();
        debug_assert_eq!(columns.len(), self.physical);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        for (i, derived) in self.derived.iter().enumerate() {
            let data_type = self.schema.field(self.physical + i).data_type();
            columns.push(match derived {
                Derived::Computed(expr) => {
                    let schema = dictionary::schema_of(&self.schema, &columns);
                    let columns = columns.clone();
                    expr.evaluate(&RecordBatch::try_new_with_options(schema, columns, &options)?)?
                }
                Derived::ReadTime => {
                    as_column(TimestampMicrosecondArray::from_value(now_us, rows), data_type)
                }
                Derived::Watermark => new_null_array(data_type, rows),
            });
        }
        let schema = dictionary::schema_of(&self.schema, &columns);
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}

/// Where the elements of each row begin and end, in a column of arrays or maps.
pub(crate) fn element_offsets(column: &ArrayRef) -> Option<&[i32]> {
    let list = column.as_list_opt::<i32>().map(|list| list.value_offsets());
    list.or_else(|| Some(column.as_map_opt()?.value_offsets()))
}

/// Before which rows to cut a batch, so that each part has so many elements at most, or one row.
fn element_cuts(column: &ArrayRef, elements_max: usize) -> Vec<usize> {
    let (mut cuts, mut elements) = (Vec::new(), 0);
    let offsets = element_offsets(column).unwrap_or_default();
    for (row, ends) in offsets.windows(2).enumerate() {
        let own = (ends[1] - ends[0]) as usize;
        if elements > 0 && elements + own > elements_max {
            cuts.push(row);
            elements = 0;
        }
        elements += own;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::array::{Array, TimestampMicrosecondArray};
    use arrow::datatypes::TimestampMicrosecondType;

    use super::*;
    use crate::expr::Expr;
    use crate::plan::Tumble;

    const LIMIT: i64 = 5_000;

    fn prepared(times: &[Option<i64>], spread: Spread, delays: bool) -> Prepared {
        let column = Arc::new(times.iter().copied().collect::<TimestampMicrosecondArray>());
        let batch = RecordBatch::try_from_iter_with_nullable([("ts", column as ArrayRef, true)]);
        let batch = batch.expect("one column");
        let watermark = match delays {
            true => Watermark::Delay(7),
            false => Watermark::Expr(Expr::Column(0)),
        };
        let event_time = EventTime { column: 0, watermark, zone: None, idle_timeout_us: None };
        let limits = Limits::up_to(LIMIT);
        let times = batch_times(&event_time, &batch, &limits, 0).expect("a timestamp column");
        let cuts = spread.cuts(&times);
        Prepared {
            batch,
            times: Some(times),
            input_bytes: 1_001,
            held: None,
            malformed_records: 3,
            first_malformed: Some(LeftOut {
                place: "here".into(),
                message: "odd".into(),
                before: 0,
            }),
            malformed: None,
            notices: Vec::new(),
            places: None,
            sent_watermark_us: None,
            cuts,
        }
    }

    /// Each record is compared with the time at which the log took it in, whenever it is read.
    #[test]
    fn the_clock_of_a_log_decides_what_is_too_far_ahead() {
        use crate::table::NOT_APPENDED;
        let column = Arc::new(TimestampMicrosecondArray::from(vec![
            Some(10),
            Some(95),
            None,
            Some(200),
            Some(120),
            Some(90),
        ]));
        let batch = RecordBatch::try_from_iter_with_nullable([("ts", column as ArrayRef, true)]);
        let batch = batch.expect("one column");
        let appended = [10, 100, 100, 100, 100, NOT_APPENDED];
        for watermark in [Watermark::Delay(0), Watermark::Expr(Expr::Column(0))] {
            let event_time = EventTime { column: 0, watermark, zone: None, idle_timeout_us: None };
            let times = |ahead: i64, clock: i64| {
                let log = Some((&appended[..], ahead));
                let limits = Limits { now_us: clock, watermark_us: clock, log };
                batch_times(&event_time, &batch, &limits, 0).expect("a timestamp column")
            };
            // Up to 5 ahead of 100; the clock, which says 1000, decides on the last record alone.
            let found = times(5, 1_000);
            assert_eq!((found.greatest, found.ahead_records, found.first_ahead), (95, 2, Some(3)));
            let before = found.watermarks_before(BEGINNING);
            let expected = [None, Some(10), Some(95), Some(95), Some(95), Some(95)];
            assert_eq!(before.iter().collect::<Vec<_>>(), expected);
            assert_eq!(found.first(), 10);
            let (greatest, ahead) = (found.greatest, found.ahead_records);
            let later = times(5, 1_000_000);
            assert_eq!((later.greatest, later.ahead_records), (greatest, ahead));
            let early = times(5, 50);
            assert_eq!((early.greatest, early.ahead_records), (95, 3), "the clock says 50");
            let all = times(100, 1_000);
            assert_eq!((all.greatest, all.ahead_records, all.first_ahead), (200, 0, None));
            // Parts of the batch have the same.
            let part = found.slice(3..6);
            assert_eq!((part.greatest, part.ahead_records, part.first_ahead), (90, 2, Some(0)));
        }
    }

    #[test]
    fn many_elements_are_cut_between_rows() {
        use arrow::array::builder::{Int32Builder, ListBuilder};
        let mut lists = ListBuilder::new(Int32Builder::new());
        for length in [3, 0, 4, 9, 1, 1, 0, 5] {
            lists.append_value((0..length).map(Some));
        }
        let column = Arc::new(lists.finish()) as ArrayRef;
        assert_eq!(element_cuts(&column, 7), [3, 4]);
        assert_eq!(element_cuts(&column.slice(3, 5), 6), [1, 4]);
        assert_eq!(element_cuts(&column, 1), [1, 3, 4, 5, 7]);
        assert!(element_cuts(&column, 100).is_empty());
    }

    #[test]
    fn a_batch_of_several_windows_is_cut_where_workers_share_them() {
        // 10,000 records over 3 ms.
        let times: Vec<_> = (0..10_000).map(|i| Some(i * 3 / 10)).collect();
        let cuts = |size_us: i64, leaders: usize| {
            let windowing = Windowing::new(Some(Tumble { size_us, offset_us: 0 }.into()), 0);
            prepared(&times, Spread { windowing, leaders, tables_max: 1 << 20 }, true).cuts
        };
        assert_eq!(cuts(1_000, 2), [4_096, 8_192]);
        assert!(cuts(1_500, 2).is_empty());
        assert!(cuts(1_000, 1).is_empty());
    }

    #[test]
    fn a_sent_watermark_counts_behind_the_last_part() {
        let times: Vec<_> = (0..10_000).map(|i| Some(i * 3 / 10)).collect();
        let windowing = Windowing::new(Some(Tumble { size_us: 1_000, offset_us: 0 }.into()), 0);
        let spread = Spread { windowing, leaders: 2, tables_max: 1 << 20 };
        let sent = |sent| Prepared { sent_watermark_us: sent, ..prepared(&times, spread, true) };
        let greatest = |whole: Prepared| -> Vec<i64> {
            whole.cut().into_iter().map(|(_, part)| part.greatest()).collect()
        };
        let of_records = greatest(sent(None));
        assert_eq!(of_records.len(), 3);
        assert_eq!(greatest(sent(Some(4_000))), [of_records[0], of_records[1], 4_000]);
        assert_eq!(greatest(sent(Some(4))), of_records, "the records say more");
        assert_eq!(sent(Some(4_000)).summary(), (4_000, 10_000));
        let no_times = Prepared { times: None, ..sent(Some(4_000)) };
        assert_eq!(no_times.greatest(), BEGINNING);
    }

    /// Parts have the records of the whole, with the same watermarks, and none opens more tables
    /// than it may.
    #[test]
    fn what_is_cut_amounts_to_the_whole() {
        let mut random = 1u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 16) % bound
        };
        let mut cut = 0;
        for round in 0..300 {
            let tables_max = 1 + below(12) as usize;
            let tumble = Tumble { size_us: 1 + below(200) as i64, offset_us: 0 };
            let start_of = |time: i64| time.div_euclid(tumble.size_us) * tumble.size_us;
            let windowing = Windowing::new(Some(tumble.into()), 0);
            let spread = Spread { windowing, leaders: 1 + below(3) as usize, tables_max };
            let (rows, nulls) = (below(200), below(2) == 0);
            // Some watermarks lie beyond what is believed.
            let time = |i: u64, far: u64| (!nulls || i % 9 != 4).then_some((i * 40 + far) as i64);
            let times: Vec<_> = (0..rows).map(|i| time(i, below(300))).collect();
            let delays = below(2) == 0;
            let whole = prepared(&times, spread, delays).times.expect("it has times");
            let parts = prepared(&times, spread, delays).cut();
            cut += usize::from(parts.len() > 1);
            let (mut next, mut bytes, mut malformed, mut ahead) = (0, 0, 0, 0);
            let mut running = whole.running(BEGINNING);
            for (first, part) in &parts {
                let part_times = part.times.as_ref().expect("it has times");
                assert_eq!(*first, next, "round {round}");
                let mut tables = BTreeSet::new();
                let column = part.batch.column(0).as_primitive::<TimestampMicrosecondType>();
                for row in 0..part.batch.num_rows() {
                    let time = column.is_valid(row).then(|| column.value(row));
                    assert_eq!((time, part_times.times.us(row)), (times[next], times[next]));
                    assert_eq!(part_times.watermark(row), whole.watermark(next));
                    if let Some(time) = time {
                        let known = |n: &usize| tables.contains(&(start_of(time), *n));
                        let n = (0..spread.leaders).find(|n| !known(n));
                        tables.extend(n.map(|n| (start_of(time), n)));
                    }
                    next += 1;
                }
                assert!(tables.len() <= tables_max, "round {round}: {} tables", tables.len());
                assert!(parts.len() == 1 || part.batch.num_rows() > 0, "round {round}");
                running.watermark = running.watermark.max(part_times.greatest);
                bytes += part.input_bytes;
                malformed += part.malformed_records;
                ahead += part_times.ahead_records;
            }
            assert_eq!((next, bytes, malformed), (times.len(), 1_001, 3), "round {round}");
            assert_eq!((running.watermark, ahead), (whole.greatest, whole.ahead_records));
            assert!(parts[0].1.first_malformed.is_some());
            assert!(parts[1..].iter().all(|(_, part)| part.first_malformed.is_none()));
        }
        assert!((100..290).contains(&cut), "{cut} of 300 were cut");
    }
}
