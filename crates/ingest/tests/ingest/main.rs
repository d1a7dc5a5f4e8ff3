//! Producers, and the slots that they fill: over Arrow Flight, and over rings.

mod ends;
mod flight;
mod processes;
mod rings;

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use millstream_contract::Result;
use millstream_contract::table::{Split, SplitPoll, TableOptions};
use millstream_ingest::ChannelSource;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("t", DataType::Utf8, true),
    ]))
}

fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
    let texts: StringArray = numbers.clone().map(|n| Some(format!("text {n}"))).collect();
    let numbers = Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef;
    RecordBatch::try_new(schema(), vec![numbers, Arc::new(texts)]).unwrap()
}

fn table(options: &[(&str, &str)]) -> Result<ChannelSource> {
    let options = [("listen", "127.0.0.1:0")].into_iter().chain(options.iter().copied());
    ChannelSource::from_options(&TableOptions::new("bids", schema(), options))
}

/// What a split gave.
#[derive(Debug, PartialEq)]
enum Got {
    Rows(Vec<i64>, Option<i64>),
    Nothing,
    Ended,
}

const JOINED: Got = Got::Rows(Vec::new(), None);

fn poll(split: &mut dyn Split) -> Got {
    match split.poll_next(0, Waker::noop()).unwrap() {
        SplitPoll::Chunk(chunk) => {
            let decoded = chunk.decode_reporting().unwrap();
            let numbers = decoded.batch.column(0).as_primitive::<Int64Type>();
            Got::Rows(numbers.values().to_vec(), decoded.sent_watermark_us)
        }
        SplitPoll::Pending { .. } => Got::Nothing,
        SplitPoll::Ended => Got::Ended,
    }
}

/// The next chunk, or the end, of a slot.
fn next(split: &mut dyn Split) -> Got {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match poll(split) {
            Got::Nothing if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            got => return got,
        }
    }
}

/// So many rows: short batches may come together, or apart.
fn rows(split: &mut dyn Split, count: usize) -> Got {
    let mut all = Vec::new();
    loop {
        match next(split) {
            Got::Rows(rows, watermark) => {
                all.extend(rows);
                if all.len() >= count {
                    return Got::Rows(all, watermark);
                }
            }
            got => return got,
        }
    }
}

fn notices(split: &mut dyn Split) -> Vec<String> {
    std::iter::from_fn(|| split.notice()).collect()
}

/// The notice that a producer has gone; `look` is called now and then.
fn farewell(splits: &mut [Box<dyn Split>], mut look: impl FnMut(&mut dyn Split)) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        splits.iter_mut().for_each(|split| look(&mut **split));
        let mut notices = notices(&mut *splits[0]);
        notices.retain(|notice| !notice.ends_with("has joined"));
        if let Some(last) = notices.pop() {
            return last;
        }
        assert!(Instant::now() < until, "no notice");
        std::thread::sleep(Duration::from_millis(1));
    }
}
