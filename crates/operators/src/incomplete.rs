//! Records of which a column that the table computes, or its watermark, cannot be evaluated: where
//! the table's option `on_error` says so, they are malformed records like any others, and are left
//! out.

use std::ops::Range;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, interleave_record_batch};

use crate::error::{Error, Result};
use crate::plan::malformed_rows;
use crate::table::{Decoded, Failing, LeftOut, Places, Raw};

/// The chunk without the records with which `evaluate` fails; the error itself if no single record
/// fails, or if failing records end the job.
#[cold]
pub(crate) fn without_failing(
    decoded: Decoded,
    error: Error,
    evaluate: &dyn Fn(&RecordBatch) -> Result<()>,
) -> Result<Decoded> {
    if matches!(decoded.failing, Failing::Fails) || !error.is_of_records() {
        return Err(error);
    }
    let rows = decoded.batch.num_rows();
    let mut failing = Vec::new();
    let alone = |rows: Range<usize>| evaluate(&decoded.batch.slice(rows.start, rows.len()));
    find_failing(0..rows, &alone, &mut failing)?;
    if failing.is_empty() {
        return Err(error);
    }
    let place = |row| decoded.places.as_ref().map_or_else(String::new, |p| p.place(row));
    let wrong: Vec<LeftOut> =
        failing.iter().map(|(row, error)| left_out(place(*row), *row, error)).collect();
    let failing: Vec<usize> = failing.into_iter().map(|(row, _)| row).collect();
    let malformed = match &decoded.failing {
        Failing::Kept(raw) => Some(malformed(&**raw, decoded.malformed, &failing, &wrong)?),
        _ => decoded.malformed,
    };
    let mut kept = vec![true; rows];
    failing.iter().for_each(|row| kept[*row] = false);
    let rest: Vec<u32> = (0..rows).filter(|row| kept[*row]).map(|row| row as u32).collect();
    let placed = |inner: Box<dyn Places>| -> Box<dyn Places> {
        let of_rest = |all: &[i64]| rest.iter().map(|row| all[*row as usize]).collect();
        let appended_us = inner.appended_us().map(of_rest);
        Box::new(Rest { inner, rows: rest, appended_us })
    };
    Ok(Decoded {
        batch: filter_record_batch(&decoded.batch, &BooleanArray::from(kept))?,
        left_out: decoded.left_out + failing.len() as u64,
        first_left_out: first_of(decoded.first_left_out, wrong.into_iter().next()),
        malformed,
        places: decoded.places.map(placed),
        failing: Failing::Fails,
        notices: decoded.notices,
        sent_watermark_us: decoded.sent_watermark_us,
    })
}

/// Finds the rows that `evaluate` fails with alone.
fn find_failing(
    rows: Range<usize>,
    evaluate: &dyn Fn(Range<usize>) -> Result<()>,
    found: &mut Vec<(usize, Error)>,
) -> Result<()> {
    match evaluate(rows.clone()) {
        Ok(()) => Ok(()),
        Err(error) if !error.is_of_records() => Err(error),
        Err(error) if rows.len() == 1 => {
            found.push((rows.start, error));
            Ok(())
        }
        Err(_) => {
            let middle = rows.start + rows.len() / 2;
            find_failing(rows.start..middle, evaluate, found)?;
            find_failing(middle..rows.end, evaluate, found)
        }
    }
}

/// The malformed records of a chunk in their order: those that could not be read, and those at the
/// rows `failing`, with what is wrong with each.
fn malformed(
    raw: &dyn Raw,
    unread: Option<RecordBatch>,
    failing: &[usize],
    wrong: &[LeftOut],
) -> Result<RecordBatch> {
    let own = malformed_rows(&raw.bytes_of(failing)?, wrong)?;
    let Some(unread) = unread else { return Ok(own) };
    let before = raw.malformed_before();
    let (mut order, mut next) = (Vec::with_capacity(before.len() + failing.len()), 0);
    for (at, row) in failing.iter().enumerate() {
        while before.get(next).is_some_and(|before| before <= row) {
            order.push((0, next));
            next += 1;
        }
        order.push((1, at));
    }
    order.extend((next..unread.num_rows()).map(|at| (0, at)));
    Ok(interleave_record_batch(&[&unread, &own], &order)?)
}

/// The first of two records left out of a batch: an unreadable record, and a record decoded as a
/// row.
fn first_of(unread: Option<LeftOut>, row: Option<LeftOut>) -> Option<LeftOut> {
    match (&unread, &row) {
        (Some(unread), Some(row)) if row.before < unread.before => {}
        (Some(_), _) => return unread,
        _ => {}
    }
    row
}

fn left_out(place: String, row: usize, error: &Error) -> LeftOut {
    let message = match error {
        Error::Evaluation { expression, message, .. }
        | Error::TooMuchText { expression, message, .. } => {
            format!("cannot evaluate {expression}: {message}")
        }
        other => other.to_string(),
    };
    LeftOut { place, message, before: row }
}

/// Where those records stand that are not left out.
#[derive(Debug)]
struct Rest {
    inner: Box<dyn Places>,
    rows: Vec<u32>,
    appended_us: Option<Vec<i64>>,
}

impl Places for Rest {
    fn place(&self, row: usize) -> String {
        self.inner.place(self.rows[row] as usize)
    }

    fn offset(&self, row: usize) -> Option<u64> {
        self.inner.offset(self.rows[row] as usize)
    }

    fn appended_us(&self) -> Option<&[i64]> {
        self.appended_us.as_deref()
    }

    fn bytes(&self) -> usize {
        let appended_bytes = self.appended_us.as_ref().map_or(0, |all| size_of_val(&all[..]));
        self.inner.bytes() + appended_bytes + self.rows.len() * size_of::<u32>()
    }
}
