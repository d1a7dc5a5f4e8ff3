//! The bounds of the window to which a time belongs, as functions of the time; and all windows to
//! which it belongs, as an array.

use arrow::array::{ListArray, TimestampMillisecondArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use millstream_contract::plan::{Tumble, Window};

use crate::expr::udf::{call_of, called, first};
use crate::expr::window_node::WINDOW_TYPE;
use crate::syntax::prelude::*;

use super::overlapping::Overlapping;

/// Which of a window's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WindowBound {
    Start,
    End,
    /// The last millisecond that belongs to the window.
    Time,
}

impl WindowBound {
    /// In the order of the columns.
    pub(crate) const ALL: [WindowBound; 3] =
        [WindowBound::Start, WindowBound::End, WindowBound::Time];
}

/// A time as a function of another time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    /// The windows; the function begins with the start of the other time's window.
    pub(crate) of: Tumble,
    /// Microseconds added to the window's start.
    pub(crate) add_us: i64,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnGrid {
    name: String,
    size_ms: i64,
    offset_ms: i64,
    add_ms: i64,
}

/// `window_start(ts)` (or `_end`, `_time`) of a tumbling window.
pub(crate) fn window_bound(bound: WindowBound, window: Tumble, time: Expr) -> Expr {
    let (kind, add_us) = match bound {
        WindowBound::Start => ("window_start", 0),
        WindowBound::End => ("window_end", window.size_us),
        WindowBound::Time => ("window_time", window.size_us - 1000),
    };
    on_grid(kind, Grid { of: window, add_us }, time)
}

/// The time on `grid` that follows from `time`; `name` names the function.
pub(crate) fn on_grid(name: &str, grid: Grid, time: Expr) -> Expr {
    let Tumble { size_us, offset_us } = grid.of;
    let (size_ms, offset_ms) = (size_us / 1000, offset_us / 1000);
    let (name, add_ms) = (format!("{name}_{size_ms}_{offset_ms}"), grid.add_us / 1000);
    call_of(OnGrid { name, size_ms, offset_ms, add_ms }, vec![time])
}

impl ScalarUDFImpl for OnGrid {
    called!(.name, ONE, WINDOW_TYPE);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let times = Times::of(&first(&args.args)?.into_array(args.number_rows)?)?;
        let on_grid =
            |ms: i64| start_on(ms, self.size_ms, self.offset_ms)?.checked_add(self.add_ms);
        let found: TimestampMillisecondArray = times.iter().map(|ms| on_grid(ms?)).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}

/// The start of the window of this size to which a time belongs, all in milliseconds.
pub(crate) fn start_on(ms: i64, size_ms: i64, offset_ms: i64) -> Option<i64> {
    let into = ms.checked_sub(offset_ms)?.rem_euclid(size_ms);
    ms.checked_sub(into)
}

/// Whether a function gives windows, or their bounds, of the time that it takes.
pub(super) fn is_of_window(function: &ScalarUDF) -> bool {
    let function = function.inner();
    function.is::<OnGrid>() || function.is::<WindowTimes>()
}

/// Times in milliseconds, rounded down, so that a time before the epoch belongs to the window that
/// it lies in.
pub(crate) struct Times {
    raw: ArrayRef,
    unit: TimeUnit,
}

impl Times {
    pub(crate) fn of(array: &ArrayRef) -> DfResult<Times> {
        let DataType::Timestamp(unit, _) = array.data_type() else {
            return exec_err!("the window of {}", array.data_type());
        };
        Ok(Times { raw: cast(array, &DataType::Int64)?, unit: *unit })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Option<i64>> + '_ {
        let to_ms = |value: i64| match self.unit {
            TimeUnit::Second => value.checked_mul(1000),
            TimeUnit::Millisecond => Some(value),
            TimeUnit::Microsecond => Some(value.div_euclid(1000)),
            TimeUnit::Nanosecond => Some(value.div_euclid(1_000_000)),
        };
        self.raw.as_primitive::<Int64Type>().iter().map(move |value| to_ms(value?))
    }
}

/// The `window_time` of each window to which a time belongs, in their order.
#[derive(Debug, PartialEq, Eq, Hash)]
struct WindowTimes {
    name: String,
    windows: Overlapping,
}

/// The `window_time` of each window to which a time belongs, as an array: of HOP and CUMULATE.
pub(crate) fn window_times(window: Window, time: Expr) -> Result<Expr> {
    let Some(windows) = Overlapping::of(window) else {
        return Err(SqlError::internal(format!("an array of {window:?}")));
    };
    let Overlapping { size, part, offset, cumulate } = windows;
    let kind = if cumulate { "cumulate" } else { "hop" };
    let name = format!("{kind}_windows_{part}_{size}_{offset}");
    Ok(call_of(WindowTimes { name, windows }, vec![time]))
}

fn element() -> Arc<Field> {
    Arc::new(Field::new_list_field(WINDOW_TYPE, true))
}

impl ScalarUDFImpl for WindowTimes {
    called!(.name, ONE, DataType::List(element()));

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let times = Times::of(&first(&args.args)?.into_array(args.number_rows)?)?;
        let (mut found, mut offsets) = (Vec::new(), vec![0]);
        for ms in times.iter() {
            if let Some(ends) = ms.and_then(|ms| self.windows.ends(ms)) {
                found.extend(self.windows.each(ends).map(|end| end - 1));
            }
            let end = i32::try_from(found.len());
            offsets.push(end.map_err(|_| exec_datafusion_err!("too many windows in one batch"))?);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let found: ArrayRef = Arc::new(TimestampMillisecondArray::from(found));
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(element(), offsets, found, None)?)))
    }
}
