//! A look at all times of a table that nobody has declared: how far they are out of order.
//!
//! A sample may be in order where the files are not, and who has declared no watermark has agreed
//! to no late records. So a query that goes by event time reads the column of the times first, and
//! nothing else, unless the sample was all there is.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use millstream_contract::declaration::{Declaration, DeclaredTime};
use millstream_contract::table::{Chunk, OpenOptions, Split, SplitPoll, Table};
use millstream_contract::{Error, Result};

use super::order::Order;
use super::value::ValueStats;
use super::{RECORDS_MAX, columnar, forms, times};

/// Pause before looking again whether the last line of a file is complete.
const PAUSE: Duration = Duration::from_millis(10);

/// The event time that `found` declares for the files of `table`, after a look at all times; `None`
/// if there is no event time, or if the sample contained all times.
pub(crate) fn time_of_all(table: &dyn Table, found: &Declaration) -> Result<Option<DeclaredTime>> {
    let Some(time) = found.event_time.as_ref().filter(|time| time.sampled) else {
        return Ok(None);
    };
    let computed = found.computed.iter().find(|computed| computed.name == time.column);
    let unit = computed.and_then(|computed| times::unit_of(&computed.form));
    let read = computed.and_then(|computed| forms::reader(&computed.form));
    let name = computed.map_or(&time.column, |computed| &computed.column);
    let column = table.schema().index_of(name).map_err(|e| Error::Internal(e.to_string()))?;
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut all = Order::default();
    for mut split in table.open(&[column], &OpenOptions::alone(RECORDS_MAX, 0, workers))? {
        // Each split has a watermark of its own.
        all.gap();
        parts(&mut *split, workers, read)?.iter().for_each(|part| all.append(part));
    }
    let (disorder_us, span_us) =
        times::in_microseconds(&all, unit.unwrap_or(TimeUnit::Microsecond));
    Ok(Some(times::declared(time.column.clone(), disorder_us, span_us, true)))
}

/// The order within each chunk of a split. `read` reads times that are texts.
fn parts(split: &mut dyn Split, workers: usize, read: Option<forms::Parse>) -> Result<Vec<Order>> {
    let reader = Mutex::new((split, 0));
    let next = || -> Result<Option<(usize, Box<dyn Chunk>)>> {
        loop {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            match reader.0.poll_next(0, Waker::noop())? {
                SplitPoll::Chunk(chunk) => {
                    reader.1 += 1;
                    return Ok(Some((reader.1, chunk)));
                }
                SplitPoll::Ended => return Ok(None),
                SplitPoll::Pending { .. } => thread::sleep(PAUSE),
            }
        }
    };
    let work = || -> Result<Vec<(usize, Order)>> {
        let mut found = Vec::new();
        while let Some((number, chunk)) = next()? {
            let mut values = [ValueStats::default()];
            let batch = chunk.decode()?;
            match read {
                None => columnar::add(&batch, &[0], &mut values)?,
                Some(read) => add_texts(&batch, read, &mut values[0])?,
            }
            let [values] = values;
            found.push((number, values.order));
        }
        Ok(found)
    };
    let found = thread::scope(|scope| {
        let all: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ended = |_| Error::Internal("a thread that looks at times has ended".into());
        all.into_iter().map(|one| one.join().map_err(ended)?).collect::<Result<Vec<_>>>()
    })?;
    let mut found: Vec<(usize, Order)> = found.into_iter().flatten().collect();
    found.sort_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, order)| order).collect())
}

/// Adds the times of a column of texts.
fn add_texts(batch: &RecordBatch, read: forms::Parse, values: &mut ValueStats) -> Result<()> {
    let texts = cast(batch.column(0), &DataType::Utf8);
    let texts = texts.map_err(|error| Error::Internal(error.to_string()))?;
    for text in texts.as_string::<i32>().iter().flatten() {
        let at = read(text.trim_ascii().as_bytes());
        if let Some(us) = at.and_then(|at| at.in_unit(TimeUnit::Microsecond)) {
            values.add_time(us);
        }
    }
    Ok(())
}
