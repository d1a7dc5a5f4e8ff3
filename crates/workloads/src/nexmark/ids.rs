//! Persons and auctions at the time of an event, and the event's choice among them.
//!
//! Ids count from 1000. A hot person or auction is one of every hundred: the first auction, the
//! first person as a seller, the second as a bidder. Other ids are drawn from the active persons
//! (the last 1000) or the open auctions (the last 100), and from ten that are yet to come, as if
//! events had changed places on their way.

use super::Config;
use super::text::Random;

/// The first id of persons and of auctions.
pub const FIRST_ID: i64 = 1000;

/// The first id of categories.
pub const FIRST_CATEGORY: i64 = 10;

/// How many categories there are.
pub const CATEGORIES: u64 = 5;

/// One person or auction in so many is hot.
const HOT_EVERY: u64 = 100;

/// Persons that sell and bid: the last so many.
const ACTIVE_PERSONS: u64 = 1000;

/// Auctions that are open: the last so many, on average.
pub const OPEN_AUCTIONS: u64 = 100;

/// So many that are yet to come may be named.
const LEAD: u64 = 10;

/// The last person when the event of a number happens (itself, if it is one), counted from 0.
#[inline]
pub fn last_person(config: &Config, number: u64) -> u64 {
    let (group, place) = (number / config.group(), number % config.group());
    group * config.persons + place.min(config.persons.saturating_sub(1))
}

/// The last auction when the event of a number happens (itself, if it is one), counted from 0.
#[inline]
pub fn last_auction(config: &Config, number: u64) -> u64 {
    let (group, place) = (number / config.group(), number % config.group());
    // Of this group so many are there, with the event itself.
    let here = (place + 1).saturating_sub(config.persons).min(config.auctions);
    (group * config.auctions + here).saturating_sub(1)
}

/// Whom an auction is of.
#[inline]
pub(super) fn seller(config: &Config, number: u64, random: &mut Random) -> i64 {
    let last = last_person(config, number);
    let person = match random.below(config.hot_sellers.max(1)) {
        0 => any_person(last, random),
        _ => last / HOT_EVERY * HOT_EVERY,
    };
    FIRST_ID + person as i64
}

/// Whom a bid is by.
#[inline]
pub(super) fn bidder(config: &Config, number: u64, random: &mut Random) -> i64 {
    let last = last_person(config, number);
    let person = match random.below(config.hot_bidders.max(1)) {
        0 => any_person(last, random),
        _ => last / HOT_EVERY * HOT_EVERY + 1,
    };
    FIRST_ID + person as i64
}

/// The auction of a bid.
#[inline]
pub(super) fn auction(config: &Config, number: u64, random: &mut Random) -> i64 {
    let last = last_auction(config, number);
    let auction = match random.below(config.hot_auctions.max(1)) {
        0 => {
            let first = last.saturating_sub(OPEN_AUCTIONS);
            first + random.below(last - first + 1 + LEAD)
        }
        _ => last / HOT_EVERY * HOT_EVERY,
    };
    FIRST_ID + auction as i64
}

fn any_person(last: u64, random: &mut Random) -> u64 {
    let persons = last + 1;
    let active = persons.min(ACTIVE_PERSONS);
    persons - active + random.below(active + LEAD)
}
