//! The event stream of NEXMark as a table: `'connector' = 'nexmark'`, with the options of Flink's
//! suite.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use millstream_connect::Options;
use millstream_contract::settings::{parse_bytes, parse_duration_us};
use millstream_contract::table::{
    Chunk, Extent, OpenOptions, Position, Split, SplitPoll, Table, TableOptions,
};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};
use millstream_nexmark::{Config, Deal, Events, Shape, schema};

/// Proportions and ratios may be up to this.
const RATIO_MAX: u64 = 1_000_000;

/// Events per second at most.
const RATE_MAX: u64 = 1_000_000_000;

/// Bytes that a row may have on average.
const ROW_BYTES_MAX: u64 = 16 << 10;

/// The persons, auctions and bids of NEXMark, generated while they are read.
#[derive(Debug)]
pub struct NexmarkTable {
    schema: SchemaRef,
    events: Arc<Events>,
    splits: u64,
    /// Whether events come when they happen.
    paced: bool,
    /// Whether the table goes on, without records, after its last event.
    stays: bool,
}

impl NexmarkTable {
    /// A table of a stream, dealt out to `splits` splits.
    pub fn new(config: Config, splits: usize) -> NexmarkTable {
        NexmarkTable {
            schema: schema(),
            events: Arc::new(Events::new(config)),
            splits: splits.max(1) as u64,
            paced: false,
            stays: false,
        }
    }

    /// From `WITH` options.
    pub(crate) fn from_options(table: &TableOptions) -> Result<NexmarkTable> {
        let options = Options::new(table);
        let splits = options.integer("splits", 1, 4096)?.unwrap_or(1);
        let config = config(&options)?;
        let all_at_once =
            options.text("max-emit-speed").is_none() || options.flag("max-emit-speed")?;
        let paced = options.flag("rate.limited")? || !all_at_once;
        let stays = options.flag("keep-alive")?;
        options.finish("nexmark")?;
        let own = schema();
        if table.schema.fields() != own.fields() {
            let named = |of: &DataType| millstream_sql::sql_type_name(of);
            let columns = own.fields().iter();
            let columns: Vec<String> =
                columns.map(|f| format!("{} {}", f.name(), named(f.data_type()))).collect();
            return Err(options.error(
                "connector",
                format!("the columns of table '{}' are not those of 'nexmark'", table.name),
                format!("declare exactly ({})", columns.join(", ")),
            ));
        }
        let events = Arc::new(Events::new(config));
        Ok(NexmarkTable { schema: own, events, splits, paced, stays })
    }
}

/// Parameters of the stream.
fn config(options: &Options<'_>) -> Result<Config> {
    let own = Config::default();
    let number = |key: &str, least: u64, most: u64, default: u64| -> Result<u64> {
        Ok(options.integer(key, least, most)?.unwrap_or(default))
    };
    let bytes = |key: &str, default: u64| -> Result<u64> {
        let form = format!("a size up to {ROW_BYTES_MAX} bytes, such as '200 b'");
        let read = |text: &str| parse_bytes(text).filter(|bytes| *bytes <= ROW_BYTES_MAX);
        Ok(options.parsed(key, &form, read)?.unwrap_or(default))
    };
    let shape = options.parsed("rate.shape", "'SQUARE' or 'SINE'", |text| match text {
        _ if text.eq_ignore_ascii_case("square") => Some(Shape::Square),
        _ if text.eq_ignore_ascii_case("sine") => Some(Shape::Sine),
        _ => None,
    })?;
    let period_s = options.parsed("rate.period", "a duration of 1 s or more", |text| {
        let seconds = parse_duration_us(text)? / 1_000_000;
        u64::try_from(seconds).ok().filter(|seconds| (1..=86_400 * 366).contains(seconds))
    })?;
    let first_rate = number("first-event.rate", 1, RATE_MAX, own.first_rate)?;
    let config = Config {
        events: options.integer("events.num", 0, i64::MAX as u64)?.filter(|events| *events > 0),
        base_time_ms: options.timestamp_ms("base-time")?.unwrap_or(own.base_time_ms),
        seed: number("seed", 0, u64::MAX, own.seed)?,
        first_rate,
        next_rate: number("next-event.rate", 1, RATE_MAX, first_rate)?,
        shape: shape.unwrap_or(own.shape),
        period_s: period_s.unwrap_or(own.period_s),
        persons: number("person.proportion", 0, RATIO_MAX, own.persons)?,
        auctions: number("auction.proportion", 0, RATIO_MAX, own.auctions)?,
        bids: number("bid.proportion", 0, RATIO_MAX, own.bids)?,
        hot_auctions: number("bid.hot-ratio.auctions", 1, RATIO_MAX, own.hot_auctions)?,
        hot_bidders: number("bid.hot-ratio.bidders", 1, RATIO_MAX, own.hot_bidders)?,
        hot_sellers: number("auction.hot-ratio.sellers", 1, RATIO_MAX, own.hot_sellers)?,
        person_bytes: bytes("person.avg-size", own.person_bytes)?,
        auction_bytes: bytes("auction.avg-size", own.auction_bytes)?,
        bid_bytes: bytes("bid.avg-size", own.bid_bytes)?,
    };
    if config.persons + config.auctions + config.bids == 0 {
        let message = "there are no persons, no auctions and no bids".to_string();
        return Err(options.error("bid.proportion", message, "make one of the proportions 1"));
    }
    Ok(config)
}

impl Table for NexmarkTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        self.events.config().events.is_some() && !self.stays
    }

    /// The times of events are those of the stream, also without an end.
    fn live(&self) -> bool {
        self.paced
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let split = |split: u64| -> Box<dyn Split> {
            let name = format!("nexmark, split {split}");
            Box::new(NexmarkSplit {
                next: options.from(&name).0.first().map_or(0, |next| *next),
                name,
                events: self.events.clone(),
                projection: projection.into(),
                deal: Deal::new(self.events.config(), split, self.splits),
                batch_rows: options.batch_rows.clamp(1, 1 << 16) as u64,
                started_us: self.paced.then_some(options.start_time_us),
                stays: self.stays,
            })
        };
        Ok((0..self.splits).map(split).collect())
    }

    fn describe(&self, projection: &[usize]) -> String {
        let events = self.events.config().events;
        let events = events.map_or("unbounded".to_string(), |events| counted(events, "event"));
        let paced = if self.paced { ", as they happen" } else { "" };
        let (read, all) = (projection.len(), self.schema.fields().len());
        let (splits, all) = (counted(self.splits, "split"), counted(all as u64, "column"));
        format!("nexmark ({events}{paced}, {splits}, {read} of {all})")
    }
}

struct NexmarkSplit {
    name: String,
    events: Arc<Events>,
    projection: Arc<[usize]>,
    deal: Deal,
    /// Events handed out.
    next: u64,
    batch_rows: u64,
    /// Of a paced stream, when it started.
    started_us: Option<i64>,
    stays: bool,
}

impl NexmarkSplit {
    /// How many milliseconds after the start an event of this split happens.
    fn due_ms(&self, at: u64) -> i64 {
        self.events.times().after_ms(self.deal.number(at))
    }

    /// Of the next `rows` events, how many have happened `elapsed_ms` after the start.
    fn due(&self, rows: u64, elapsed_ms: i64) -> u64 {
        let (mut due, mut not_due) = (0, rows + 1);
        while due + 1 < not_due {
            let middle = due + (not_due - due) / 2;
            match self.due_ms(self.next + middle - 1) <= elapsed_ms {
                true => due = middle,
                false => not_due = middle,
            }
        }
        due
    }
}

impl Split for NexmarkSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn position(&self) -> Position {
        Position(vec![self.next])
    }

    fn progress(&self) -> Option<Extent> {
        self.events.config().events?;
        Some(Extent { done: self.next, of: self.deal.events(), bytes: false })
    }

    fn poll_next(&mut self, now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        let left = self.deal.events().saturating_sub(self.next);
        if left == 0 {
            return Ok(match self.stays {
                true => SplitPoll::Pending { retry_at_us: None },
                false => SplitPoll::Ended,
            });
        }
        let mut rows = left.min(self.batch_rows);
        if let Some(started_us) = self.started_us {
            rows = self.due(rows, now_us.saturating_sub(started_us).div_euclid(1000));
            if rows == 0 {
                let due_us = self.due_ms(self.next).saturating_mul(1000);
                let retry_at_us = Some(started_us.saturating_add(due_us));
                return Ok(SplitPoll::Pending { retry_at_us });
            }
        }
        let chunk = NexmarkChunk {
            events: self.events.clone(),
            projection: self.projection.clone(),
            deal: self.deal,
            first: self.next,
            rows,
        };
        self.next += rows;
        Ok(SplitPoll::Chunk(Box::new(chunk)))
    }
}

/// Events to be made.
struct NexmarkChunk {
    events: Arc<Events>,
    projection: Arc<[usize]>,
    deal: Deal,
    first: u64,
    rows: u64,
}

impl Chunk for NexmarkChunk {
    fn bytes(&self) -> usize {
        self.rows as usize * self.events.width_bytes(&self.projection)
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        // A row has at most a few times its average, so 2^16 of them do not fill 32 bits.
        let ranges = self.deal.ranges(self.first..self.first + self.rows);
        let batch = self.events.batch(ranges, &self.projection);
        match batch.num_rows() as u64 == self.rows {
            true => Ok(batch),
            false => Err(Error::Internal("events of nexmark are missing".to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::AsArray;
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn options(given: &[(&str, &str)]) -> TableOptions {
        let given = given.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        TableOptions {
            name: "t".into(),
            schema: schema(),
            metadata: BTreeMap::new(),
            options: given.chain([("connector".into(), "nexmark".into())]).collect(),
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            exact: false,
            base_dir: ".".into(),
        }
    }

    fn table(given: &[(&str, &str)]) -> NexmarkTable {
        NexmarkTable::from_options(&options(given)).unwrap()
    }

    fn open(table: &NexmarkTable, rows: usize, from: &[u64]) -> Vec<Box<dyn Split>> {
        let mut options = OpenOptions::alone(rows, 1_000_000, 1);
        let at =
            |(split, at): (usize, &u64)| (format!("nexmark, split {split}"), Position(vec![*at]));
        options.from = from.iter().enumerate().map(at).collect();
        table.open(&[0, 3], &options).unwrap()
    }

    /// The batches that a split has at `now_us`, and what it says then.
    fn read(split: &mut dyn Split, now_us: i64) -> (Vec<RecordBatch>, SplitPoll) {
        let mut batches = Vec::new();
        loop {
            match split.poll_next(now_us, Waker::noop()).unwrap() {
                SplitPoll::Chunk(chunk) => batches.push(chunk.decode().unwrap()),
                other => return (batches, other),
            }
        }
    }

    #[test]
    fn a_split_goes_on_from_the_end_of_any_chunk() {
        let table = table(&[("events.num", "1030"), ("splits", "3")]);
        assert!(table.bounded() && !table.live());
        let mut rows = 0;
        for (number, mut split) in open(&table, 64, &[]).into_iter().enumerate() {
            let (batches, end) = read(&mut *split, 0);
            assert!(matches!(end, SplitPoll::Ended));
            rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
            for done in 0..=batches.len() {
                let at = batches[..done].iter().map(|b| b.num_rows() as u64).sum();
                let mut from = [0; 3];
                from[number] = at;
                let mut rest = open(&table, 64, &from).remove(number);
                assert_eq!(read(&mut *rest, 0).0, batches[done..]);
                assert_eq!(rest.position(), split.position());
            }
        }
        assert_eq!(rows, 1030);
    }

    #[test]
    fn a_paced_stream_gives_events_when_they_happen() {
        let rate = [("first-event.rate", "100"), ("rate.limited", "true"), ("events.num", "30")];
        let table = table(&rate);
        assert!(table.live());
        let mut split = open(&table, 8, &[]).remove(0);
        // It started at a second. Event 3 comes after 30 ms, event 4 after 40.
        let (batches, waits) = read(&mut *split, 1_039_999);
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 4);
        let SplitPoll::Pending { retry_at_us } = waits else { panic!("it does not wait") };
        assert_eq!(retry_at_us, Some(1_040_000));
        // Another run goes on there, with the start time of the first.
        let (more, _) = read(&mut *open(&table, 8, &[4]).remove(0), 1_059_999);
        assert_eq!(more.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
        let (batches, ends) = read(&mut *split, 9_000_000);
        let sizes: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(sizes, [8, 8, 8, 2]);
        assert!(matches!(ends, SplitPoll::Ended));
    }

    #[test]
    fn a_stream_may_have_no_end() {
        assert!(!table(&[]).bounded() && !table(&[("events.num", "0")]).bounded());
        let stays = table(&[("events.num", "3"), ("keep-alive", "true")]);
        assert!(!stays.bounded());
        let (batches, waits) = read(&mut *open(&stays, 8, &[]).remove(0), 0);
        assert_eq!(batches[0].num_rows(), 3);
        assert!(matches!(waits, SplitPoll::Pending { retry_at_us: None }));
        let mut endless = open(&table(&[]), 8, &[u64::MAX - 20]).remove(0);
        let SplitPoll::Chunk(chunk) = endless.poll_next(0, Waker::noop()).unwrap() else {
            panic!("it ends")
        };
        assert_eq!(chunk.decode().unwrap().num_rows(), 8);
    }

    #[test]
    fn options_are_those_of_the_suite() {
        let table = table(&[
            ("person.proportion", "1"),
            ("auction.proportion", "1"),
            ("bid.proportion", "2"),
            ("base-time", "2024-01-01 00:00:00"),
            ("bid.avg-size", "32 b"),
            ("rate.shape", "sine"),
            ("rate.period", "10 min"),
            ("events.num", "8"),
        ]);
        let (batches, _) = read(&mut *open(&table, 100, &[]).remove(0), 0);
        let types = batches[0].column(0).as_primitive::<arrow::datatypes::Int32Type>();
        assert_eq!(types.values()[..], [0, 1, 2, 2, 0, 1, 2, 2]);
        let bids = batches[0].column(1).as_struct();
        assert_eq!(bids.column_by_name("extra").unwrap().as_string::<i32>().value(2), "");
        let times = bids.column_by_name("dateTime").unwrap();
        let times = times.as_primitive::<arrow::datatypes::TimestampMillisecondType>();
        assert_eq!(times.value(2), 1_704_067_200_000);
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (given, words) in [
            (("bid.proportions", "1"), "did you mean 'bid.proportion'?"),
            (("first-event.rate", "0"), "expected a whole number from 1"),
            (("rate.shape", "round"), "expected 'SQUARE' or 'SINE', found 'round'"),
            (("rate.period", "0 s"), "expected a duration of 1 s or more"),
            (("base-time", "now"), "expected a timestamp such as"),
            (("bid.avg-size", "1 GB"), "expected a size up to 16384 bytes"),
            (("keep-alive", "maybe"), "expected 'true' or 'false'"),
        ] {
            let error = NexmarkTable::from_options(&options(&[given])).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let none = ["person", "auction", "bid"].map(|kind| (format!("{kind}.proportion"), "0"));
        let none: Vec<(&str, &str)> =
            none.iter().map(|(key, zero)| (key.as_str(), *zero)).collect();
        let error = NexmarkTable::from_options(&options(&none)).unwrap_err().to_string();
        assert!(error.contains("no persons, no auctions and no bids"), "{error}");
        let mut other = options(&[]);
        other.schema = Arc::new(Schema::new(vec![Field::new("event_type", DataType::Int32, true)]));
        let error = NexmarkTable::from_options(&other).unwrap_err().to_string();
        assert!(
            error.contains("declare exactly (event_type INT, person ROW<id BIGINT,"),
            "{error}"
        );
    }
}
