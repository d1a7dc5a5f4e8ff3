//! The configuration of a stream: events, proportions and rates.

/// Midnight before the first event, unless a [`Config`] says otherwise: 2015-07-15 in UTC.
pub const BASE_TIME_MS: i64 = 1_436_918_400_000;

/// Kind of the event of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new person: `event_type` 0.
    Person,
    /// A new auction: `event_type` 1.
    Auction,
    /// A bid: `event_type` 2.
    Bid,
}

/// How the rate changes between the first one and the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Half of a period at the one, half at the other.
    Square,
    /// In ten steps of a sine.
    Sine,
}

/// Number, time and content of events. The default is the configuration of Flink's suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How many events; `None`: without an end.
    pub events: Option<u64>,
    /// When the first one happens, in milliseconds since 1970.
    pub base_time_ms: i64,
    /// Seed of all values.
    pub seed: u64,
    /// Events per second of event time, at first; at least 1.
    pub first_rate: u64,
    /// Events per second to which the rate changes and from which it comes back; at least 1.
    pub next_rate: u64,
    /// How the rate changes between the two.
    pub shape: Shape,
    /// After how many seconds the rate is the first one again; at least 1.
    pub period_s: u64,
    /// Of so many events (the three together, at least 1) …
    pub persons: u64,
    /// … so many are auctions, …
    pub auctions: u64,
    /// … and so many bids.
    pub bids: u64,
    /// One bid in so many is for any open auction, the rest for a hot auction; at least 1.
    pub hot_auctions: u64,
    /// One bid in so many is by any active person, the rest by a hot person; at least 1.
    pub hot_bidders: u64,
    /// One auction in so many is of any active person, the rest of a hot person; at least 1.
    pub hot_sellers: u64,
    /// Bytes of a person on average, which the column `extra` fills up.
    pub person_bytes: u64,
    /// Bytes of an auction on average.
    pub auction_bytes: u64,
    /// Bytes of a bid on average.
    pub bid_bytes: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            events: None,
            base_time_ms: BASE_TIME_MS,
            seed: 0,
            first_rate: 10_000,
            next_rate: 10_000,
            shape: Shape::Square,
            period_s: 600,
            persons: 1,
            auctions: 3,
            bids: 46,
            hot_auctions: 2,
            hot_bidders: 4,
            hot_sellers: 4,
            person_bytes: 200,
            auction_bytes: 500,
            bid_bytes: 100,
        }
    }
}

impl Config {
    /// Persons, auctions and bids take turns in groups of so many events.
    pub fn group(&self) -> u64 {
        (self.persons + self.auctions + self.bids).max(1)
    }

    /// Kind of the event of this number.
    pub fn kind(&self, number: u64) -> Kind {
        let place = number % self.group();
        if place < self.persons {
            Kind::Person
        } else if place < self.persons + self.auctions {
            Kind::Auction
        } else {
            Kind::Bid
        }
    }
}
