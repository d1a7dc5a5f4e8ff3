//! Records that are late, for an output of their own: which they are, and why.
//!
//! A record is late for a window if the watermark of its split, just before the record, has closed
//! that. Window assignment ([`super::aggregate`]) leaves such records out by the same rule.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::Schema;
use arrow::util::display::array_value_to_string;

use crate::columns::rows_in;
use crate::error::{Error, Result};
use crate::operator::Records;
use crate::operator::stateless::{Taken, Taking};
use crate::plan::late_fields;
use crate::prepare::BatchTimes;
use crate::skipped::place_of;
use crate::windowing::{Bounds, Fate, Windowing};

/// Takes the records that are late for windows.
#[derive(Debug)]
pub(crate) struct LateRecords {
    windowing: Windowing,
}

/// A record that is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Late {
    /// Its position in the batch.
    row: usize,
    /// Where the last of its windows ends.
    end: i64,
    /// Its split's watermark just before it.
    watermark: i64,
}

impl LateRecords {
    pub(crate) fn new(windowing: Windowing) -> LateRecords {
        LateRecords { windowing }
    }

    /// What is taken of the records of a batch of the split `name`: of those that are late, as a
    /// taking makes it of their columns and of what is said of them.
    pub(crate) fn take(&self, taking: &Taking, records: &Records<'_>, name: &str) -> Result<Taken> {
        let stamped = records.stamped;
        let Some(times) = &stamped.prepared.times else {
            return Err(Error::Internal("late records of a source without event time".into()));
        };
        let late = match records.places {
            None => late(&self.windowing, times, stamped.stamp),
            Some(_) => return Err(Error::Internal("late records behind a pass".into())),
        };
        let places = late.iter().map(|late| place_of(stamped, late.row, name));
        let reasons = late.iter().map(|late| self.reason(late)).collect::<Result<Vec<_>>>()?;
        let said: [ArrayRef; 2] =
            [Arc::new(StringArray::from_iter_values(places)), Arc::new(StringArray::from(reasons))];
        // A batch has far fewer than 2^32 rows.
        let rows: Vec<u32> = late.iter().map(|late| late.row as u32).collect();
        let taken = rows_in(records.rows, rows.clone())?;
        let fields = taken.schema_ref().fields().iter().cloned();
        let fields: Vec<_> = fields.chain(late_fields().map(Arc::new)).collect();
        let columns = taken.columns().iter().cloned().chain(said).collect();
        let described = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let taken = taking.take(&described)?;
        let places = match taken.places {
            None => rows,
            Some(places) => places.iter().map(|place| rows[*place as usize]).collect(),
        };
        Ok(Taken { rows: taken.rows, places: Some(places) })
    }

    fn reason(&self, late: &Late) -> Result<String> {
        let end = time_text(late.end)?;
        let watermark = time_text(late.watermark)?;
        let waited = match self.windowing.lateness_us() {
            0 => String::new(),
            us => format!(", later records were waited for until {}", time_text(late.end + us)?),
        };
        Ok(format!("late: its window ended at {end}{waited}; the watermark was at {watermark}"))
    }
}

/// A time as people read it, in UTC.
fn time_text(us: i64) -> Result<String> {
    Ok(array_value_to_string(&TimestampMicrosecondArray::from(vec![us]), 0)?.replace('T', " "))
}

/// The records of a batch that are late, where the watermark is at `stamp` before the first.
fn late(windowing: &Windowing, times: &BatchTimes, stamp: i64) -> Vec<Late> {
    let mut running = times.running(stamp);
    if let Some((min, _)) = times.bounds
        && windowing.all_in_time(&windowing.slice_of(min), min, stamp.max(times.greatest))
    {
        return Vec::new();
    }
    let (mut found, mut slice) = (Vec::new(), Bounds::NOTHING);
    for row in 0..times.times.len() {
        let watermark = running.watermark;
        if let Some(carried) = times.watermark(row) {
            running.advance(carried);
        }
        let Some(time) = times.times.us(row) else { continue };
        if !slice.contains(time) {
            slice = windowing.slice_of(time);
        }
        if windowing.fate(&slice, time, watermark) == Fate::Late {
            found.push(Late { row, end: windowing.last_end_of(&slice), watermark });
        }
    }
    found
}
