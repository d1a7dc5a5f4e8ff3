//! The bounds of the window to which a time belongs, as a function of the time.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};
use datafusion_common::{Result as DfResult, exec_err};
use datafusion_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millstream_contract::plan::Tumble;

use crate::tumble::WINDOW_TYPE;

/// Which of a window's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WindowBound {
    Start,
    End,
    /// The last millisecond that belongs to the window.
    Time,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bound {
    name: String,
    bound: WindowBound,
    size_ms: i64,
    offset_ms: i64,
    signature: Signature,
}

/// `window_start(ts)` (or `_end`, `_time`) of a tumbling window.
pub(crate) fn window_bound(bound: WindowBound, window: Tumble, time: Expr) -> Expr {
    let kind = match bound {
        WindowBound::Start => "start",
        WindowBound::End => "end",
        WindowBound::Time => "time",
    };
    let (size_ms, offset_ms) = (window.size_us / 1000, window.offset_us / 1000);
    let udf = ScalarUDF::from(Bound {
        name: format!("window_{kind}_{size_ms}_{offset_ms}"),
        bound,
        size_ms,
        offset_ms,
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(udf).call(vec![time])
}

impl ScalarUDFImpl for Bound {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(WINDOW_TYPE)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [time] = &args.args[..] else { return exec_err!("{} takes a time", self.name) };
        let time = time.to_array(args.number_rows)?;
        let bounds = self.of(&time)?;
        Ok(ColumnarValue::Array(Arc::new(bounds)))
    }
}

impl Bound {
    fn of(&self, time: &ArrayRef) -> DfResult<TimestampMillisecondArray> {
        let DataType::Timestamp(unit, _) = time.data_type() else {
            return exec_err!("{} of {}", self.name, time.data_type());
        };
        let raw = cast(time, &DataType::Int64)?;
        let raw = raw.as_primitive::<arrow::datatypes::Int64Type>();
        // Rounded down, so that a time before the epoch belongs to the window that it lies in.
        let to_ms = |value: i64| match unit {
            TimeUnit::Second => value.checked_mul(1000),
            TimeUnit::Millisecond => Some(value),
            TimeUnit::Microsecond => Some(value.div_euclid(1000)),
            TimeUnit::Nanosecond => Some(value.div_euclid(1_000_000)),
        };
        let bound = |value: i64| {
            let ms = to_ms(value)?;
            let into = ms.checked_sub(self.offset_ms)?.rem_euclid(self.size_ms);
            let start = ms.checked_sub(into)?;
            match self.bound {
                WindowBound::Start => Some(start),
                WindowBound::End => start.checked_add(self.size_ms),
                WindowBound::Time => start.checked_add(self.size_ms - 1),
            }
        };
        Ok(raw.unary_opt::<_, TimestampMillisecondType>(bound))
    }
}
