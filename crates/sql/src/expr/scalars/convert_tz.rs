//! `CONVERT_TZ` as Flink has it.

use std::str::FromStr;

use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use millstream_contract::zone::Zone;

use super::clock_texts::has_offset;
use super::rows::{Arguments, TEXT, function, push};
use crate::expr::wording::HAS_OFFSET;
use crate::syntax::prelude::*;

/// Zones that are kept at a time.
const ZONES_MAX: usize = 64;

/// `CONVERT_TZ(text, from, to)`.
pub(super) fn convert_function() -> ScalarUDF {
    function("convert_tz", &[], &[&[TEXT, TEXT, TEXT]], TEXT, convert)
}

/// The zones of one batch: mostly they are the same in every row.
#[derive(Default)]
struct Zones(Vec<(String, Zone)>);

impl Zones {
    fn get(&mut self, name: &str) -> DfResult<Zone> {
        if let Some((_, zone)) = self.0.iter().find(|(known, _)| known == name) {
            return Ok(zone.clone());
        }
        let Ok(zone) = Zone::from_str(name) else {
            return exec_err!("there is no time zone '{name}'");
        };
        if self.0.len() >= ZONES_MAX {
            self.0.clear();
        }
        self.0.push((name.to_string(), zone.clone()));
        Ok(zone)
    }
}

/// A clock's display in another zone at a local time; NULL for a text that is no time.
fn convert(args: &Arguments) -> DfResult<ArrayRef> {
    let mut zones = Zones::default();
    args.texts(|row, out| {
        let (from, to) = (zones.get(args.text(1, row)?)?, zones.get(args.text(2, row)?)?);
        let text = args.text(0, row)?;
        if has_offset(text) {
            return exec_err!("Error parsing timestamp from '{text}': {HAS_OFFSET}");
        }
        // Java, which reads the text in Flink, passes over the characters after the seconds.
        let read = NaiveDateTime::parse_and_remainder(text, "%Y-%m-%d %H:%M:%S");
        let Ok((time, _)) = read else { return Ok(None) };
        let instant = from.clock().instant(time.and_utc().timestamp_micros());
        let Some(time) = DateTime::from_timestamp_micros(to.clock().local(instant)) else {
            return Ok(None);
        };
        let (date, time) = (time.date_naive(), time.time());
        push(out, &format!("{:04}-{:02}-{:02} ", date.year(), date.month(), date.day()));
        push(out, &format!("{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second()));
        Ok(Some(()))
    })
}
