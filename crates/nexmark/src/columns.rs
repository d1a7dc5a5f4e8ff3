//! Events as columns: all rows of a batch have a value in `event_type`, and in one of the others.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray, StructArray,
    TimestampMillisecondArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{Fields, Schema};

use crate::config::{Config, Kind};
use crate::ids::{
    CATEGORIES, FIRST_CATEGORY, FIRST_ID, OPEN_AUCTIONS, auction, bidder, last_auction,
    last_person, seller,
};
use crate::schema::{auction as auction_fields, bid, person, schema};
use crate::text::{CHANNELS, HOT_CHANNELS, Random, Urls, urls};
use crate::times::Times;

const FIRST_NAMES: [&str; 11] = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
];
const LAST_NAMES: [&str; 9] =
    ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];
const CITIES: [&str; 10] = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
];
const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];

/// Events of a batch for whose texts memory is reserved.
const EVENTS_MAX: usize = 1 << 16;
/// Bytes of a bid's numbers, of a channel and of a URL on average.
const BID_NUMBERS_BYTES: u64 = 4 * 8;
const CHANNEL_BYTES: usize = 10;
const URL_BYTES: usize = 65;

/// Texts under construction.
#[derive(Debug)]
struct Texts {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Texts {
    /// For so many rows and bytes.
    fn new(rows: usize, bytes: usize) -> Texts {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Texts { offsets, bytes: Vec::with_capacity(bytes) }
    }

    /// Ends the text of a row, which may be empty.
    #[inline]
    fn end(&mut self) {
        let end = i32::try_from(self.bytes.len()).expect("the texts of a batch take below 2 GB");
        self.offsets.push(end);
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.end();
    }

    /// Bytes of the row that is not ended yet.
    fn open(&self) -> u64 {
        (self.bytes.len() - self.offsets[self.offsets.len() - 1] as usize) as u64
    }

    fn finish(self) -> ArrayRef {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Arc::new(StringArray::new(offsets, Buffer::from_vec(self.bytes), None))
    }
}

/// A column of rows of one kind under construction: `numbers` and `times` by their order among the
/// row's fields.
#[derive(Debug)]
struct Rows {
    fields: Fields,
    there: BooleanBufferBuilder,
    numbers: Vec<Vec<i64>>,
    texts: Vec<Texts>,
}

impl Rows {
    /// For so many rows of a batch.
    fn new(fields: Fields, rows: usize) -> Rows {
        use arrow_schema::DataType::Utf8;
        let texts = fields.iter().filter(|field| *field.data_type() == Utf8).count();
        let numbers = fields.len() - texts;
        Rows {
            there: BooleanBufferBuilder::new(rows),
            numbers: (0..numbers).map(|_| Vec::with_capacity(rows)).collect(),
            texts: (0..texts).map(|_| Texts::new(rows, 0)).collect(),
            fields,
        }
    }

    /// Adds events of other kinds until there are so many rows.
    fn fill(&mut self, rows: usize) {
        let missing = rows - self.there.len();
        if missing == 0 {
            return;
        }
        self.there.append_n(missing, false);
        for numbers in &mut self.numbers {
            numbers.resize(rows, 0);
        }
        for texts in &mut self.texts {
            let end = texts.offsets[texts.offsets.len() - 1];
            texts.offsets.resize(rows + 1, end);
        }
    }

    /// Numbers and times of an event, in the order of the fields.
    fn numbers<const N: usize>(&mut self, values: [i64; N]) {
        self.there.append(true);
        for (numbers, value) in self.numbers.iter_mut().zip(values) {
            numbers.push(value);
        }
    }

    fn finish(mut self, rows: usize) -> ArrayRef {
        use arrow_schema::DataType::{Int64, Utf8};
        self.fill(rows);
        let (mut numbers, mut texts) = (self.numbers.into_iter(), self.texts.into_iter());
        let mut number = || numbers.next().unwrap_or_default();
        let columns = self.fields.iter().map(|field| -> ArrayRef {
            match field.data_type() {
                Utf8 => texts.next().unwrap_or_else(|| Texts::new(rows, 0)).finish(),
                Int64 => Arc::new(Int64Array::from(number())),
                _ => Arc::new(TimestampMillisecondArray::from(number())),
            }
        });
        let columns = columns.collect();
        let there = NullBuffer::new(self.there.finish());
        Arc::new(StructArray::new(self.fields.clone(), columns, Some(there)))
    }
}

/// The stream of events.
#[derive(Clone, Copy)]
struct Stream<'a> {
    config: &'a Config,
    times: &'a Times,
}

/// The columns of a batch under construction; columns that are not requested are absent.
pub(super) struct Columns<'a> {
    events: Stream<'a>,
    urls: &'static Urls,
    rows: usize,
    types: Option<Vec<i32>>,
    persons: Option<Rows>,
    auctions: Option<Rows>,
    bids: Option<Rows>,
}

impl<'a> Columns<'a> {
    /// For so many events.
    pub(super) fn new(
        config: &'a Config,
        times: &'a Times,
        projection: &[usize],
        events: usize,
    ) -> Columns<'a> {
        let rows = |place, fields: fn() -> Fields| {
            projection.contains(&place).then(|| Rows::new(fields(), events))
        };
        let mut bids = rows(3, bid);
        if let Some([channel, url, extra]) = bids.as_mut().map(|rows| &mut rows.texts[..]) {
            let events = events.min(EVENTS_MAX) / config.group() as usize * config.bids as usize;
            *channel = Texts::new(channel.offsets.capacity(), CHANNEL_BYTES * events);
            *url = Texts::new(url.offsets.capacity(), URL_BYTES * events);
            let extra_bytes = config.bid_bytes.saturating_sub(BID_NUMBERS_BYTES).min(1 << 10);
            let extra_bytes = extra_bytes as usize;
            *extra = Texts::new(extra.offsets.capacity(), extra_bytes * events);
        }
        Columns {
            events: Stream { config, times },
            urls: urls(),
            rows: 0,
            types: projection.contains(&0).then(|| Vec::with_capacity(events)),
            persons: rows(1, person),
            auctions: rows(2, auction_fields),
            bids,
        }
    }

    /// Appends the event of a number.
    pub(super) fn push(&mut self, number: u64) {
        let config = self.events.config;
        let kind = config.kind(number);
        let mut random = Random::new(config.seed, number);
        if let Some(types) = &mut self.types {
            types.push(kind as i32);
        }
        let rows = match kind {
            Kind::Person => &mut self.persons,
            Kind::Auction => &mut self.auctions,
            Kind::Bid => &mut self.bids,
        };
        if let Some(rows) = rows {
            rows.fill(self.rows);
            match kind {
                Kind::Person => push_person(rows, self.events, number, &mut random),
                Kind::Auction => push_auction(rows, self.events, number, &mut random),
                Kind::Bid => push_bid(rows, self.events, self.urls, number, &mut random),
            }
        }
        self.rows += 1;
    }

    /// The batch.
    pub(super) fn finish(self, projection: &[usize]) -> RecordBatch {
        let Columns { rows, types, persons, auctions, bids, .. } = self;
        let types = types.map(|types| Arc::new(Int32Array::from(types)) as ArrayRef);
        let finished = |of: Option<Rows>| of.map(|of| of.finish(rows));
        let mut made = [types, finished(persons), finished(auctions), finished(bids)];
        let columns = projection.iter().map(|place| made[*place].take().expect("each once"));
        let columns: Vec<ArrayRef> = columns.collect();
        let all = schema();
        let schema =
            Schema::new(projection.iter().map(|p| all.fields()[*p].clone()).collect::<Fields>());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
            .expect("the columns follow the schema, with the same number of rows each")
    }
}

fn push_person(rows: &mut Rows, events: Stream<'_>, number: u64, random: &mut Random) {
    let id = FIRST_ID + last_person(events.config, number) as i64;
    rows.numbers([id, events.times.at_ms(number)]);
    let [name, email, card, city, state, extra] = &mut rows.texts[..] else { return };
    for part in [random.one_of(&FIRST_NAMES), " ", random.one_of(&LAST_NAMES)] {
        name.bytes.extend_from_slice(part.as_bytes());
    }
    random.words(7, b' ', &mut email.bytes);
    email.bytes.push(b'@');
    random.words(5, b' ', &mut email.bytes);
    email.bytes.extend_from_slice(b".com");
    for part in 0..4 {
        if part > 0 {
            card.bytes.push(b' ');
        }
        let digits = random.below(10_000);
        card.bytes.extend([1000, 100, 10, 1].map(|place| b'0' + (digits / place % 10) as u8));
    }
    city.bytes.extend_from_slice(random.one_of(&CITIES).as_bytes());
    state.bytes.extend_from_slice(random.one_of(&STATES).as_bytes());
    let mut taken = 8;
    for text in [name, email, card, city, state] {
        taken += text.open();
        text.end();
    }
    random.extra(taken, events.config.person_bytes, &mut extra.bytes);
    extra.end();
}

fn push_auction(rows: &mut Rows, events: Stream<'_>, number: u64, random: &mut Random) {
    let (config, times) = (events.config, events.times);
    let id = FIRST_ID + last_auction(config, number) as i64;
    let seller = seller(config, number, random);
    let category = FIRST_CATEGORY + random.below(CATEGORIES) as i64;
    let initial = random.price();
    let reserve = initial + random.price();
    let at_ms = times.at_ms(number);
    let expires_ms = at_ms.saturating_add(length_ms(config, events, number, random));
    rows.numbers([id, initial, reserve, at_ms, expires_ms, seller, category]);
    let [name, description, extra] = &mut rows.texts[..] else { return };
    random.words(20, b' ', &mut name.bytes);
    random.words(100, b' ', &mut description.bytes);
    let taken = 8 + name.open() + description.open() + 5 * 8;
    name.end();
    description.end();
    random.extra(taken, config.auction_bytes, &mut extra.bytes);
    extra.end();
}

/// How long an auction is open: on average, until so many others have been opened as are open at a
/// time.
fn length_ms(config: &Config, events: Stream<'_>, number: u64, random: &mut Random) -> i64 {
    let until = OPEN_AUCTIONS * config.group() / config.auctions.max(1);
    let then = events.times.at_ms(number.saturating_add(until));
    let horizon = then.saturating_sub(events.times.at_ms(number)).unsigned_abs();
    1 + random.below(horizon.saturating_mul(2).max(1)) as i64
}

fn push_bid(rows: &mut Rows, events: Stream<'_>, urls: &Urls, number: u64, random: &mut Random) {
    let config = events.config;
    let auction = auction(config, number, random);
    let bidder = bidder(config, number, random);
    let price = random.price();
    rows.numbers([auction, bidder, price, events.times.at_ms(number)]);
    let [channel, url, extra] = &mut rows.texts[..] else { return };
    if random.below(2) > 0 {
        let hot = random.below(HOT_CHANNELS.len() as u64) as usize;
        channel.push(HOT_CHANNELS[hot].as_bytes());
        url.push(&urls.hot[hot]);
    } else {
        let other = random.below(CHANNELS);
        channel.bytes.extend_from_slice(b"channel-");
        push_number(other, &mut channel.bytes);
        channel.end();
        url.push(&urls.others[other as usize]);
    }
    random.extra(BID_NUMBERS_BYTES, config.bid_bytes, &mut extra.bytes);
    extra.end();
}

/// Appends a number below 100,000.
fn push_number(number: u64, out: &mut Vec<u8>) {
    let mut place = 10_000;
    while place > 1 && number < place {
        place /= 10;
    }
    while place > 0 {
        out.push(b'0' + (number / place % 10) as u8);
        place /= 10;
    }
}
