//! Time zones: instants as a clock on a wall there shows them (*local times*).
//!
//! Local times go back when clocks are put back. So a promise about all later instants, as a
//! watermark is, is not the local time of its instant: see [`Clock::least_from`].

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::str::FromStr;

use arrow::array::timezone::Tz;
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Offset, TimeZone};

/// Microseconds of a second, and of a day.
const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;
/// Clocks are not changed twice within so long.
const STEADY_US: i64 = 900 * SECOND_US;
/// No calendar reaches farther (about 260,000 years): there the offset is that of this time.
const REACH_S: i64 = 8_200_000_000_000;

/// The last year of which the database's table has all changes. Its rules go on.
const LAST_YEAR: i32 = 2098;
/// Years in which each calendar, of seven first days and with or without a leap day, comes.
const CYCLE: i32 = 28;

/// A time zone.
#[derive(Debug, Clone)]
pub struct Zone {
    name: String,
    zone: Tz,
}

impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Display for Zone {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Zone {
    type Err = ();

    /// Of a name of the IANA database, such as `Europe/Zurich`, or an offset of 18 hours at most,
    /// such as `+02:00`.
    fn from_str(name: &str) -> Result<Zone, ()> {
        let digits = || name.chars().filter(char::is_ascii_digit).take(4).collect::<String>();
        if name.starts_with(['+', '-']) && format!("{:0<4}", digits()).as_str() > "1800" {
            return Err(());
        }
        let zone = name.parse().map_err(|_| ())?;
        Ok(Zone { name: name.to_string(), zone })
    }
}

impl Zone {
    /// How much a clock there is ahead of UTC at an instant, both in microseconds.
    fn offset_us(&self, us: i64) -> i64 {
        let seconds = us.div_euclid(SECOND_US).clamp(-REACH_S, REACH_S);
        let Some(instant) = DateTime::from_timestamp(seconds, 0) else { return 0 };
        let mut utc = instant.naive_utc();
        if utc.year() > LAST_YEAR {
            utc = self.like(utc);
        }
        self.table_offset_us(utc)
    }

    fn table_offset_us(&self, utc: NaiveDateTime) -> i64 {
        let offset = self.zone.offset_from_utc_datetime(&utc);
        i64::from(offset.fix().local_minus_utc()) * SECOND_US
    }

    /// A time of the table with the offset of a later one: the same day of a year with the same
    /// calendar. Clocks that the last year did not change, as where they go by Ramadan until a year
    /// of the table, stay as they are.
    fn like(&self, utc: NaiveDateTime) -> NaiveDateTime {
        let last = |month0| utc.with_day(1)?.with_year(LAST_YEAR)?.with_month0(month0);
        let mut offsets = (0..12).filter_map(last).map(|utc| self.table_offset_us(utc));
        let first = offsets.next();
        if offsets.all(|offset| Some(offset) == first) {
            return last(0).unwrap_or(utc);
        }
        let calendar =
            |year| NaiveDate::from_ymd_opt(year, 1, 1).map(|day| (day.weekday(), day.leap_year()));
        let own = calendar(utc.year());
        let mut years = LAST_YEAR - CYCLE + 1..=LAST_YEAR;
        let like = years.find(|year| calendar(*year) == own);
        like.and_then(|year| utc.with_year(year)).unwrap_or(utc)
    }

    /// A clock that goes by this zone.
    pub fn clock(&self) -> Clock<'_> {
        Clock { zone: self, known: 0..0, offset_us: 0 }
    }
}

/// Converts between instants and local times. Remembers the last offset, since the next time mostly
/// has the same offset.
#[derive(Debug, Clone)]
pub struct Clock<'z> {
    zone: &'z Zone,
    /// Instants with this offset.
    known: Range<i64>,
    offset_us: i64,
}

impl Clock<'_> {
    fn offset_us(&mut self, us: i64) -> i64 {
        if self.known.contains(&us) {
            return self.offset_us;
        }
        let start = us.div_euclid(STEADY_US).saturating_mul(STEADY_US);
        let end = start.saturating_add(STEADY_US);
        let offset_us = self.zone.offset_us(us);
        let steady = [start, end.saturating_sub(1)];
        if steady.iter().all(|at| self.zone.offset_us(*at) == offset_us) {
            (self.known, self.offset_us) = (start..end, offset_us);
        }
        offset_us
    }

    /// The local time of an instant, as microseconds since 1970 of a clock in UTC that shows it.
    pub fn local(&mut self, us: i64) -> i64 {
        us.saturating_add(self.offset_us(us))
    }

    /// The least local time of this instant and all later ones: while an hour of local time is
    /// about to come again, or is there for the first time, that is where it begins.
    pub fn least_from(&mut self, us: i64) -> i64 {
        let offset_us = self.offset_us(us);
        let local = us.saturating_add(offset_us);
        // Clocks are put back by a day at the most: what happens later does not lead back here.
        let day = us.saturating_add(DAY_US);
        if self.zone.offset_us(day) >= offset_us {
            return local;
        }
        // The first instant of the lesser offset.
        let (mut before, mut after) = (us, day);
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            match self.zone.offset_us(middle) < offset_us {
                true => after = middle,
                false => before = middle,
            }
        }
        local.min(after.saturating_add(self.zone.offset_us(after)))
    }

    /// The first instant at which a clock shows this local time. If none does, since clocks are put
    /// forward over it: as long after that as the time is after the hour that is left out begins.
    pub fn instant(&mut self, local: i64) -> i64 {
        let mut candidates: Vec<i64> = [-DAY_US, DAY_US]
            .iter()
            .map(|apart| local.saturating_sub(self.zone.offset_us(local.saturating_add(*apart))))
            .collect();
        candidates.sort_unstable();
        let shows = |us: &&i64| us.saturating_add(self.zone.offset_us(**us)) == local;
        match candidates.iter().find(shows) {
            Some(us) => *us,
            // With the offset from before the change.
            None => local.saturating_sub(self.zone.offset_us(local.saturating_sub(DAY_US))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes since 1970 of a time of 2024, by the calendar.
    fn at(month: i64, day: i64, hour: i64, minute: i64) -> i64 {
        // 2024-01-01 is day 19,723; it is a leap year.
        let before = [0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335][month as usize - 1];
        ((19_723 + before + day - 1) * 24 + hour) * 60 + minute
    }

    const MINUTE_US: i64 = 60 * SECOND_US;

    /// In Zurich, clocks are put forward on 31 March 2024 at 2:00 (1:00 UTC), and back on 27
    /// October at 3:00 (1:00 UTC).
    #[test]
    fn both_changes_of_a_year() {
        let zone: Zone = "Europe/Zurich".parse().unwrap();
        let mut clock = zone.clock();
        for (utc, local) in [
            (at(3, 31, 0, 59), at(3, 31, 1, 59)),
            (at(3, 31, 1, 0), at(3, 31, 3, 0)),
            (at(7, 1, 12, 0), at(7, 1, 14, 0)),
            (at(10, 27, 0, 59), at(10, 27, 2, 59)),
            (at(10, 27, 1, 0), at(10, 27, 2, 0)),
            (at(12, 31, 23, 30), at(12, 31, 24, 30)),
        ] {
            assert_eq!(clock.local(utc * MINUTE_US), local * MINUTE_US, "{utc}");
        }
        assert_eq!(clock.local(at(10, 27, 1, 0) * MINUTE_US - 1), at(10, 27, 3, 0) * MINUTE_US - 1);
        // What a watermark says: the hour from 2 to 3 comes again.
        for (utc, least) in [
            (at(10, 26, 23, 59), at(10, 27, 1, 59)),
            (at(10, 27, 0, 0), at(10, 27, 2, 0)),
            (at(10, 27, 0, 1), at(10, 27, 2, 0)),
            (at(10, 27, 0, 59), at(10, 27, 2, 0)),
            (at(10, 27, 1, 0), at(10, 27, 2, 0)),
            (at(10, 27, 1, 1), at(10, 27, 2, 1)),
            (at(3, 31, 0, 59), at(3, 31, 1, 59)),
            (at(3, 31, 1, 0), at(3, 31, 3, 0)),
        ] {
            assert_eq!(clock.least_from(utc * MINUTE_US), least * MINUTE_US, "{utc}");
        }
        // The other way: the first of two equal hours, and none for a skipped hour.
        for (local, utc) in [
            (at(3, 31, 1, 59), at(3, 31, 0, 59)),
            (at(3, 31, 2, 30), at(3, 31, 1, 30)),
            (at(3, 31, 3, 0), at(3, 31, 1, 0)),
            (at(10, 27, 2, 30), at(10, 27, 0, 30)),
            (at(10, 27, 3, 0), at(10, 27, 2, 0)),
            (at(7, 1, 14, 0), at(7, 1, 12, 0)),
        ] {
            assert_eq!(clock.instant(local * MINUTE_US), utc * MINUTE_US, "{local}");
        }
    }

    /// A promise holds for all later instants, never falls, and is no less than it need be.
    #[test]
    fn the_least_local_time_is_that_of_some_later_instant() {
        for name in ["Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "-03:30", "UTC"] {
            let zone: Zone = name.parse().unwrap();
            let mut clock = zone.clock();
            // Every ten minutes of 2024, and what follows within two days.
            let times: Vec<i64> = (0..366 * 144 + 288).map(|n| at(1, 1, 0, 10 * n)).collect();
            let locals: Vec<i64> = times.iter().map(|t| clock.local(t * MINUTE_US)).collect();
            let mut least = i64::MAX;
            for (time, local) in times.iter().zip(&locals).rev() {
                least = least.min(*local);
                assert_eq!(clock.least_from(time * MINUTE_US), least, "{name} at {time}");
            }
        }
    }

    /// The last Sundays of March and October 2100 are the 28th and the 31st, and of the leap year
    /// 2104 the 30th and the 26th. In New York it is the second Sunday of March, the 14th, at 7:00.
    #[test]
    fn clocks_are_changed_after_the_table_of_the_database() {
        let at = |text| DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros();
        for (name, utc, hours) in [
            ("Europe/Zurich", "2100-03-28T00:59:59Z", 1),
            ("Europe/Zurich", "2100-03-28T01:00:00Z", 2),
            ("Europe/Zurich", "2100-10-31T00:59:59Z", 2),
            ("Europe/Zurich", "2100-10-31T01:00:00Z", 1),
            ("Europe/Zurich", "2104-02-29T12:00:00Z", 1),
            ("Europe/Zurich", "2104-03-30T01:00:00Z", 2),
            ("Europe/Zurich", "2104-10-26T01:00:00Z", 1),
            ("Europe/Zurich", "9999-07-01T00:00:00Z", 2),
            ("America/New_York", "2100-03-14T06:59:59Z", -5),
            ("America/New_York", "2100-03-14T07:00:00Z", -4),
            ("Australia/Sydney", "2101-01-01T00:00:00Z", 11),
            ("Africa/Casablanca", "2102-07-01T00:00:00Z", 1),
            ("Asia/Tokyo", "2150-07-01T00:00:00Z", 9),
        ] {
            let zone: Zone = name.parse().unwrap();
            let us = at(utc);
            assert_eq!(zone.clock().local(us) - us, hours * 3600 * SECOND_US, "{name} {utc}");
        }
    }

    #[test]
    fn zones_are_known_by_their_names() {
        for name in ["UTC", "Europe/Zurich", "+05:30", "America/Argentina/Buenos_Aires"] {
            assert_eq!(name.parse::<Zone>().unwrap().to_string(), name);
        }
        for name in ["", "Europe/Zürich", "Mars", "25:00"] {
            assert!(name.parse::<Zone>().is_err(), "{name}");
        }
        let far = Zone::from_str("Europe/Zurich").unwrap();
        for us in [i64::MIN, i64::MAX] {
            far.clock().local(us);
            far.clock().least_from(us);
            far.clock().instant(us);
        }
    }
}
