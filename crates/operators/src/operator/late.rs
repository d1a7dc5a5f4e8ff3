//! Late records, for an output of their own: the records, and the reasons.
//!
//! A record is late for a window if the watermark of its split, just before the record, has closed
//! the window. Window assignment ([`assign`](super::assign)) finds late records.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::Schema;
use arrow::util::display::array_value_to_string;

use crate::columns::rows_in;
use crate::error::{Error, Result};
use crate::operator::Records;
use crate::operator::assign::{Late, dropped};
use crate::operator::stateless::{SelectedRows, Taking};
use crate::plan::late_fields;
use crate::skipped::place_of;
use crate::windowing::Windowing;

/// Takes the records that are late for windows.
#[derive(Debug)]
pub struct LateRecords {
    windowing: Windowing,
}

impl LateRecords {
    /// Late records of this windowing.
    pub fn new(windowing: Windowing) -> LateRecords {
        LateRecords { windowing }
    }

    /// Late records of a batch of the split `name`: `taking` applied to their columns and to the
    /// columns about their lateness.
    pub fn take(&self, taking: &Taking, records: &Records<'_>, name: &str) -> Result<SelectedRows> {
        let stamped = records.stamped;
        if records.places.is_some() {
            return Err(Error::Internal("late records behind a pass".into()));
        }
        let mut late = Vec::new();
        dropped(&self.windowing, stamped, None, &mut |record| late.push(record))?;
        let places = late.iter().map(|late| place_of(stamped, late.row as usize, name));
        let reasons = late.iter().map(|late| self.reason(late)).collect::<Result<Vec<_>>>()?;
        let said: [ArrayRef; 2] =
            [Arc::new(StringArray::from_iter_values(places)), Arc::new(StringArray::from(reasons))];
        let rows: Vec<u32> = late.iter().map(|late| late.row).collect();
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
        Ok(SelectedRows { rows: taken.rows, places: Some(places) })
    }

    fn reason(&self, late: &Late) -> Result<String> {
        let watermark = time_text(late.watermark)?;
        let waited = match self.windowing.lateness_us() {
            0 => String::new(),
            us => {
                let until = late.end.unwrap_or(late.time) + us;
                format!(", later records were waited for until {}", time_text(until)?)
            }
        };
        let what = match late.end {
            Some(end) => format!("its window ended at {}", time_text(end)?),
            // In time, the record would have begun or prolonged a session.
            None => format!("its time is {}", time_text(late.time)?),
        };
        Ok(format!("late: {what}{waited}; the watermark was at {watermark}"))
    }
}

/// A time as people read it, in UTC.
fn time_text(us: i64) -> Result<String> {
    Ok(array_value_to_string(&TimestampMicrosecondArray::from(vec![us]), 0)?.replace('T', " "))
}
