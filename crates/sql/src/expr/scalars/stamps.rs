//! `PROCTIME()` and `CURRENT_WATERMARK(ts)`: what is known of a record only where it is read. Both
//! are columns of a table's batches that the engine fills in ([`Derived`]), so that all who take
//! its records see the same.
//!
//! [`Derived`]: millstream_contract::plan::Derived

use crate::expr::located::within_mark;
use crate::expr::udf::{NONE_LATE, ONE_LATE, called_in};
use crate::syntax::prelude::*;
use crate::syntax::types::UTC;

/// Results of stamp functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum StampResult {
    ReadTime,
    Watermark,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Stamp {
    gives: StampResult,
}

impl ScalarUDFImpl for Stamp {
    fn name(&self) -> &str {
        match self.gives {
            StampResult::ReadTime => "proctime",
            StampResult::Watermark => CURRENT_WATERMARK,
        }
    }

    fn signature(&self) -> &Signature {
        match self.gives {
            StampResult::ReadTime => &NONE_LATE,
            StampResult::Watermark => &ONE_LATE,
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        match (self.gives, arguments) {
            (StampResult::ReadTime, _) => Ok(read_time_type()),
            (StampResult::Watermark, [time]) => watermark_type(time).ok_or_else(|| {
                let found = sql_type_name(time);
                let message = format!("CURRENT_WATERMARK takes the event time, not {found}");
                SqlError::types(message).help(FORM).into()
            }),
            (StampResult::Watermark, _) => exec_err!("CURRENT_WATERMARK takes one column"),
        }
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        exec_err!("{} is a column of a table's records", self.name())
    }
}

/// The type of the time of reading.
pub(crate) fn read_time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into()))
}

/// The name of the function that gives a record's watermark.
pub(crate) const CURRENT_WATERMARK: &str = "current_watermark";

/// Advice with the form of a call of CURRENT_WATERMARK.
const FORM: &str = "write CURRENT_WATERMARK(ts), where ts is the column that WATERMARK FOR names";

/// The type of a watermark of times of a type.
pub(crate) fn watermark_type(time: &DataType) -> Option<DataType> {
    match time {
        DataType::Timestamp(unit, zone) => {
            let unit = (*unit).clamp(TimeUnit::Millisecond, TimeUnit::Microsecond);
            Some(DataType::Timestamp(unit, zone.clone()))
        }
        _ => None,
    }
}

/// The functions.
pub(super) fn functions() -> [ScalarUDF; 2] {
    [StampResult::ReadTime, StampResult::Watermark].map(|gives| ScalarUDF::from(Stamp { gives }))
}

/// Function and arguments of a stamp call; `None` if `expr` is no such call.
fn call(expr: &Expr) -> Option<(StampResult, &[Expr])> {
    called_in(expr).map(|(stamp, args): (&Stamp, _)| (stamp.gives, args))
}

/// Whether a column that is computed so is the time of reading.
pub(crate) fn is_read_time(expr: &Expr) -> bool {
    match within_mark(expr) {
        Some(inner) => is_read_time(inner),
        None => matches!(call(expr), Some((StampResult::ReadTime, _))),
    }
}

/// Refuses an expression that asks for one of the two where it cannot be known.
pub(crate) fn refuse_stamps(expr: &Expr) -> Result<()> {
    let mut found = None;
    let _ = expr.any_node(|e| {
        found = found.or(call(e).map(|(gives, _)| gives));
        Ok(found.is_some())
    });
    let Some(gives) = found else { return Ok(()) };
    Err(match gives {
        StampResult::ReadTime => SqlError::unsupported(
            "PROCTIME() stands in CREATE TABLE, alone, and behind FOR SYSTEM_TIME AS OF",
        )
        .help("declare a column, proc AS PROCTIME(), and name that"),
        StampResult::Watermark => {
            SqlError::unsupported("CURRENT_WATERMARK(ts) is known of a table's records only").help(
                "select it from the table, or from a view of its records, below GROUP BY, UNNEST, \
                 UNION ALL, HOP, CUMULATE and SESSION",
            )
        }
    })
}

/// The column of which an expression asks for the watermark, if it is such a call.
pub(crate) fn watermark_of(expr: &Expr) -> Option<&Expr> {
    match call(expr)? {
        (StampResult::Watermark, [time]) => Some(time),
        _ => None,
    }
}
