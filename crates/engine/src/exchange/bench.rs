//! The sender's and the receiver's half of an exchange, each alone and without channels, for
//! counting their instructions. The program that does this is `crates/engine/examples/exchange.rs`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Schema};

use millstream_state::{Leaders, hash_word};

use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::{self, Aggregate, AggregateCall, AggregateFunction, Argument, Key};
use millstream_operators::operator::{Batch, Leadership, Operator, Room, RowTimes, Rows};
use millstream_operators::windowing::SliceId;

use super::sender::Sender;
use millstream_operators::passed::{Outlet, Reader};

/// What is exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A third of the records pass a filter; `COUNT(*)` by a `BIGINT` (as `ysb`).
    Count,
    /// `MAX` of a `BIGINT` by a `BIGINT` (as `nb7`).
    Max,
    /// `COUNT(*)` and `AVG` of a `DOUBLE` by a `BIGINT` (as `cm`).
    Mean,
    /// As `Count`, by strings of 17 bytes (as `ysb_str`).
    Text,
}

impl Shape {
    /// The shape of this name.
    pub fn from_name(name: &str) -> Option<Shape> {
        Some(match name {
            "count" => Shape::Count,
            "max" => Shape::Max,
            "mean" => Shape::Mean,
            "text" => Shape::Text,
            _ => return None,
        })
    }

    fn aggregate(self) -> Aggregate {
        let call = |function, data_type: DataType, result_type| AggregateCall {
            name: String::new(),
            function,
            arguments: match data_type {
                DataType::Null => vec![],
                data_type => vec![Argument { expr: Expr::Column(1), data_type, nullable: false }],
            },
            filter: None,
            result_type,
            frame: String::new(),
        };
        let count = || call(AggregateFunction::Count, DataType::Null, DataType::Int64);
        let aggregates = match self {
            Shape::Count | Shape::Text => vec![count()],
            Shape::Max => vec![call(AggregateFunction::Max, DataType::Int64, DataType::Int64)],
            Shape::Mean => {
                let mean = call(AggregateFunction::Avg, DataType::Float64, DataType::Float64);
                vec![count(), mean]
            }
        };
        let data_type = if self == Shape::Text { DataType::Utf8 } else { DataType::Int64 };
        let key = Key { name: "key".into(), expr: Expr::Column(0), data_type, nullable: false };
        Aggregate {
            windows_in_slice: 1,
            pairs: None,
            window: None,
            keys: vec![key],
            aggregates,
            fired: Arc::new(Schema::empty()),
            having: None,
            project: Vec::new(),
        }
    }

    /// Records of so many keys; with the seed they change.
    fn records(self, count: usize, keys: u64, seed: u64) -> Result<RecordBatch> {
        let random = move |i| hash_word((seed << 32) + i as u64);
        let numbers = (0..count).map(move |i| (random(i) % keys) as i64);
        let key: ArrayRef = match self {
            Shape::Text => {
                Arc::new(StringArray::from_iter_values(numbers.map(|n| format!("user-{n:012}"))))
            }
            _ => Arc::new(numbers.collect::<Int64Array>()),
        };
        let argument: ArrayRef = match self {
            Shape::Mean => Arc::new((0..count).map(|i| i as f64 / 64.0).collect::<Float64Array>()),
            _ => Arc::new((0..count as i64).collect::<Int64Array>()),
        };
        Ok(RecordBatch::try_from_iter([("key", key), ("argument", argument)])?)
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// Rows written into slots.
    pub sent: u64,
    /// Rows that receivers took in.
    pub received: u64,
    /// Bytes in slots.
    pub bytes: u64,
}

/// Slots in memory that a receiver takes in when they are sent, if there is one.
struct Loop {
    slot: Vec<u64>,
    bytes: u64,
    receiver: Option<(Reader, Box<dyn Operator>)>,
}

impl Outlet for Loop {
    fn slot(&mut self) -> Result<Option<&mut [u64]>> {
        Ok(Some(&mut self.slot))
    }

    fn send(&mut self, words: usize) -> Result<()> {
        self.bytes += 8 * words as u64;
        if let Some((reader, operator)) = &mut self.receiver {
            reader.read(&self.slot[..words], &mut |rows| operator.take_in(rows))?;
        }
        Ok(())
    }
}

/// Payload of a slot of 64 KiB.
const SLOT_WORDS: usize = (64 * 1024 - 16) / 8;
const BATCH_ROWS: usize = 16 * 1024;

/// Exchanges `batches` batches of 16,384 records, of `keys` keys, with so many receivers;
/// `receive`: whether these take them in.
pub fn run(
    shape: Shape,
    batches: usize,
    keys: u64,
    receivers: usize,
    receive: bool,
) -> Result<Counts> {
    let no_exchange = || Error::Internal("an operator whose records cannot be exchanged".into());
    let body = plan::Operator::Aggregate(shape.aggregate());
    let stage = plan::Stage { inputs: vec![], operator: body, output: Schema::empty().into() };
    let program = crate::registry::program(&stage, 0)?.ok_or_else(no_exchange)?;
    let format = program.format().ok_or_else(no_exchange)?;
    let mut sender = Sender::new(format.clone(), Leaders::even(receivers));
    let outlet = || {
        let room = Room { pool_bytes: 64 << 20, ..Room::default() };
        let leadership = Leadership { me: 0, leaders: 1, of_empty_key: true };
        let operator = || program.clone().start(leadership, room);
        let receiver = receive.then(|| (Reader::new(format.clone()), operator()));
        Loop { slot: vec![0; SLOT_WORDS], bytes: 0, receiver }
    };
    let mut outlets: Vec<_> = (0..receivers).map(|_| outlet()).collect();
    let filtered = matches!(shape, Shape::Count | Shape::Text);
    let passes = |row: &u32| !filtered || hash_word(u64::from(*row)).is_multiple_of(3);
    let rows: Vec<u32> = (0..BATCH_ROWS as u32).filter(passes).collect();
    // A sender alone does the same with any records.
    let different = if receive { batches as u64 } else { 1 };
    let records = (0..different).map(|seed| shape.records(BATCH_ROWS, keys, seed));
    let records = records.collect::<Result<Vec<_>>>()?;
    for records in records.iter().cycle().take(batches) {
        let all =
            Rows::Fired { rows: records, slice: SliceId::WHOLE, times: &RowTimes::Same(None) };
        let batch = Batch { input: 0, rows: all, filter: None, bytes: 0 };
        let mut keyed = program.keyed(&batch)?.1.ok_or_else(no_exchange)?;
        keyed.by_slice = vec![(SliceId::WHOLE, rows.clone())];
        sender.begin(keyed)?;
        if !sender.advance(&mut outlets)? {
            return Err(Error::Internal("slots in memory have no end".into()));
        }
    }
    sender.mark(0, &mut outlets)?;
    let received = outlets.iter().flat_map(|o| &o.receiver).map(|(r, _)| r.rows()).sum();
    let bytes = outlets.iter().map(|o| o.bytes).sum();
    Ok(Counts { sent: sender.rows_sent(), received, bytes })
}
