//! Whether a condition on windows holds for one of the windows to which a time belongs: of HOP and
//! CUMULATE, whose rows do not tell their window.

use std::ops::Range;

use arrow::array::TimestampMillisecondArray;
use chrono::Utc;
use millstream_contract::{expr::Expr as EngineExpr, plan::Window};

use crate::expr::scalars::{IN_SOME_WINDOW, Overlapping, Times, start_on};
use crate::expr::udf::{call_of, called};
use crate::expr::window_node::{WINDOW_COLUMNS, WINDOW_TYPE};
use crate::stages::{compiler::Compiler, lower::WINDOW, schemas::qualified};
use crate::syntax::prelude::*;

#[derive(Debug)]
struct InSomeWindow {
    windows: Overlapping,
    /// Over [`WINDOW_COLUMNS`].
    condition: Expr,
    /// The condition, once it is simplified.
    compiled: Option<EngineExpr>,
}

/// Whether `condition`, which is over the columns of windows alone, holds for one of the windows of
/// `time`; `None` for windows that do not overlap, and for too many windows of a row.
pub(crate) fn in_some_window(window: Window, time: &Expr, condition: Expr) -> Option<Expr> {
    const WINDOWS_MAX: i64 = 1000;
    let windows = Overlapping::of(window)?;
    if windows.size / windows.part > WINDOWS_MAX {
        return None;
    }
    let function = InSomeWindow { windows, condition, compiled: None };
    Some(call_of(function, vec![time.clone()]))
}

impl PartialEq for InSomeWindow {
    fn eq(&self, other: &Self) -> bool {
        self.windows == other.windows && self.condition == other.condition
    }
}

impl Eq for InSomeWindow {}

impl Hash for InSomeWindow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.windows, &self.condition).hash(state);
    }
}

impl ScalarUDFImpl for InSomeWindow {
    called!(IN_SOME_WINDOW, ONE, DataType::Boolean);

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        if self.compiled.is_some() {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let start_time = info.query_execution_start_time().unwrap_or_else(Utc::now);
        let compiler = Compiler { start_time, config: info.config_options(), zone: None };
        let compiled = compiled(&compiler, &self.condition);
        let compiled = Some(compiled?);
        let (windows, condition) = (self.windows, self.condition.clone());
        let function = InSomeWindow { windows, condition, compiled };
        Ok(ExprSimplifyResult::Simplified(call_of(function, args)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let ([time], Some(condition)) = (&args.args[..], &self.compiled) else {
            return exec_err!("a condition on windows that is not compiled");
        };
        let times = Times::of(&time.to_array(args.number_rows)?)?;
        let ends: Vec<Option<Range<i64>>> =
            times.iter().map(|ms| ms.and_then(|ms| self.windows.ends(ms))).collect();
        let mut found = Vec::with_capacity(ends.len());
        self.evaluate_windows(condition, &ends, &mut found)?;
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(found))))
    }
}

impl InSomeWindow {
    /// Evaluates the condition for times whose windows end at `ends`: once for each window, and for
    /// a limited number of windows at a time, since distant times share no windows.
    fn evaluate_windows(
        &self,
        condition: &EngineExpr,
        ends: &[Option<Range<i64>>],
        found: &mut Vec<bool>,
    ) -> DfResult<()> {
        const AT_ONCE: usize = 1 << 16;
        let Some(windows) = self.windows.all(ends.iter().flatten(), AT_ONCE) else {
            let (left, right) = ends.split_at(ends.len() / 2);
            self.evaluate_windows(condition, left, found)?;
            return self.evaluate_windows(condition, right, found);
        };
        let holds = condition.evaluate(&self.windows.columns(&windows)?);
        let holds = holds.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let Some(holds) = holds.as_boolean_opt() else {
            return exec_err!("a condition of {}", holds.data_type());
        };
        let held = Held::of(&windows, holds);
        found.extend(ends.iter().map(|own| own.as_ref().is_some_and(|own| held.any(own))));
        Ok(())
    }
}

fn compiled(compiler: &Compiler<'_>, condition: &Expr) -> Result<EngineExpr> {
    let columns = WINDOW_COLUMNS.map(|name| Field::new(name, WINDOW_TYPE, true));
    let schema = Arc::new(qualified(WINDOW, Schema::new(columns.to_vec()))?);
    compiler.compile(&compiler.simple_filter(condition, &schema)?, &schema)
}

impl Overlapping {
    /// The ends of all windows of some times, each once; `None` if there may be more than `most`,
    /// and of several times.
    fn all<'a>(
        &self,
        of_times: impl Iterator<Item = &'a Range<i64>>,
        most: usize,
    ) -> Option<Vec<i64>> {
        let mut ranges: BTreeMap<i64, i64> = BTreeMap::new();
        for own in of_times {
            let until = ranges.entry(own.start).or_insert(own.end);
            *until = own.end.max(*until);
        }
        let mut ends: Vec<i64> = Vec::new();
        let several = ranges.len() > 1;
        for (first, until) in ranges {
            let first = ends.last().map_or(first, |last| first.max(last.saturating_add(self.part)));
            ends.extend(self.each(first..until));
            if several && ends.len() > most {
                return None;
            }
        }
        Some(ends)
    }

    /// [`WINDOW_COLUMNS`] of the windows with these ends.
    fn columns(&self, ends: &[i64]) -> DfResult<RecordBatch> {
        let start = |end: &i64| match self.cumulate {
            true => start_on(end - 1, self.size, self.offset),
            false => end.checked_sub(self.size),
        };
        let starts: TimestampMillisecondArray = ends.iter().map(start).collect();
        let times = TimestampMillisecondArray::from_iter_values(ends.iter().map(|end| end - 1));
        let ends = TimestampMillisecondArray::from(ends.to_vec());
        let columns = [Arc::new(starts) as ArrayRef, Arc::new(ends), Arc::new(times)];
        let named = WINDOW_COLUMNS.into_iter().zip(columns).map(|(name, of)| (name, of, true));
        Ok(RecordBatch::try_from_iter_with_nullable(named)?)
    }
}

/// Of which windows, by their ends, a condition holds.
struct Held(Vec<i64>);

impl Held {
    fn of(ends: &[i64], holds: &BooleanArray) -> Held {
        let holds = |at: usize| holds.is_valid(at) && holds.value(at);
        Held(ends.iter().enumerate().filter(|(at, _)| holds(*at)).map(|(_, end)| *end).collect())
    }

    /// Whether it does for one with an end among these.
    fn any(&self, ends: &Range<i64>) -> bool {
        let first = self.0.partition_point(|end| *end < ends.start);
        self.0.get(first).is_some_and(|end| *end < ends.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: Overlapping = Overlapping { size: 30, part: 10, offset: 3, cumulate: false };

    #[test]
    fn windows_that_times_share_are_asked_once() {
        let of = |times: &[i64], most| {
            let each: Vec<Range<i64>> = times.iter().filter_map(|ms| HOP.ends(*ms)).collect();
            HOP.all(each.iter(), most)
        };
        assert_eq!(of(&[14, 3, 4], 4), Some(vec![13, 23, 33, 43]));
        assert_eq!(of(&[3, 103], 6), Some(vec![13, 23, 33, 113, 123, 133]));
        assert_eq!(of(&[3, 103], 5), None);
        assert_eq!(of(&[103], 2), Some(vec![113, 123, 133]));
    }

    #[test]
    fn a_condition_holds_for_one_of_the_windows() {
        let holds = BooleanArray::from(vec![Some(false), Some(true), None, Some(true)]);
        let held = Held::of(&[13, 23, 33, 43], &holds);
        assert!(held.any(&(13..33)) && held.any(&(43..73)));
        assert!(!held.any(&(13..23)) && !held.any(&(33..43)) && !held.any(&(53..83)));
    }
}
