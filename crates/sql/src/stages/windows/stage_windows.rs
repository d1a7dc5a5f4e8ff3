//! The windows of a stage's rows: windows among the keys of a grouping, windows of fired rows, and
//! expressions without window columns.

use datafusion_expr::Aggregate;
use millstream_contract::plan::{self, Tumble};

use crate::expr::window_node::WINDOW_COLUMNS;
use crate::names::catalog::input_column;
use crate::stages::lower::{
    Fires, Places, Rows, Stage, WINDOW, fired_column, indexed, over, window_column,
};
use crate::stages::windows::assigned::{OfRow, Windows, common_slice};
use crate::stages::{lower::column_of, nest::Inner, windows::group_windows::WindowGrouping};
use crate::syntax::prelude::*;

impl Stage {
    /// Prepares rows of this stage for a window function, or an interval join, over them. Sessions
    /// that are grouped again have the time of the slice in which they end, and each slice must be
    /// in one window then.
    pub(crate) fn slice_sessions(&mut self, window: &plan::Window) {
        let slice = match window {
            // What lies between two sessions, or between rows that meet, counts to the millisecond.
            plan::Window::Session(_) | plan::Window::Interval(_) => {
                Tumble { size_us: 1000, offset_us: 0 }
            }
            other => other.slices(),
        };
        self.slice_sessions_by(slice);
    }

    fn slice_sessions_by(&mut self, slice: Tumble) {
        let parts: Vec<&mut Inner> = match &mut self.input {
            Rows::Stages(parts) => parts.iter_mut().collect(),
            Rows::Sides(sides) => sides.iter_mut().flatten().collect(),
            Rows::Table(_) | Rows::Expanded(_) => return,
        };
        for stage in parts.into_iter().map(|part| &mut part.stage) {
            if let (Some(Windows { kind: plan::Window::Session(_), of_row }), Some(_)) =
                (&mut stage.window, &stage.fires)
                && let OfRow::Inherited(inherited) = of_row
            {
                inherited.slice = common_slice(inherited.slice, slice);
                stage.slice_sessions_by(slice);
            }
        }
    }

    /// The windows of what this stage fires, if it fires by windows.
    pub(crate) fn fired_windows(&self) -> Option<&Windows> {
        let windowed = self.fires.as_ref().is_some_and(Fires::is_windowed);
        self.window.as_ref().filter(|_| windowed)
    }

    /// The windows of the stage's operator.
    pub(crate) fn operator_window(&self) -> Option<plan::Window> {
        if let Some(Fires::Joined(joined)) = &self.fires
            && let Some(interval) = joined.interval
        {
            return Some(plan::Window::Interval(interval));
        }
        if let Some(Fires::Expanded(expanding)) = &self.fires {
            return expanding.window;
        }
        let windows = self.fired_windows()?;
        Some(match (&self.fires, windows.kind) {
            // Sessions are told apart by keys.
            (Some(Fires::Grouped(_)), _) | (_, plan::Window::Session(_)) => windows.grouped(),
            (_, kind) => kind,
        })
    }

    /// The columns of what this stage fires that hold [`WINDOW_COLUMNS`], if there are such.
    pub(crate) fn fired_bounds(&self) -> [Option<Expr>; 3] {
        let (windows, grouped) = match (self.fired_windows(), &self.fires) {
            (Some(windows), Some(Fires::Grouped(grouped))) => (windows, grouped),
            (Some(_), Some(Fires::Joined(joined))) => return joined.bounds.clone(),
            (Some(_), Some(Fires::Expanded(expanding))) => return expanding.bounds.clone(),
            _ => return [None, None, None],
        };
        let inherited = match &windows.of_row {
            OfRow::Inherited(inherited) if !windows.fire_themselves() => inherited,
            _ => return WINDOW_COLUMNS.map(|name| Some(fired_column(name))),
        };
        inherited.columns.clone().map(|column| {
            let column = input_column(&column?);
            let position = grouped.keys.iter().position(|key| *key == column)?;
            Some(fired_column(&grouped.key_names[position]))
        })
    }

    /// Assigns the window that is among the keys of a grouping. Returns the keys, too. The others
    /// tell sessions apart.
    pub(crate) fn with_group_window(
        self,
        window: &WindowGrouping,
        keys: &[Expr],
        aggregate: &Aggregate,
        places: &Places,
    ) -> Result<(Stage, Vec<Expr>)> {
        let input = aggregate.input.schema();
        let schema = &indexed(input);
        let mut stage = self.with_windows(&window.assignment, input, places)?;
        let mut lowered = Vec::new();
        let mut partition = Vec::new();
        for (key, bound) in keys.iter().zip(&window.bounds) {
            lowered.push(match bound {
                Some(name) => window_column(name),
                None => {
                    let key = stage.substitute(key, schema, places)?;
                    partition.push(key.clone());
                    key
                }
            });
        }
        if let Some(Windows { of_row: OfRow::Assigned(assigned), .. }) = &mut stage.window {
            assigned.partition = partition;
        }
        Ok((stage, lowered))
    }

    /// Writes the conditions without window columns.
    pub(crate) fn drop_windows(&mut self) -> Result<()> {
        let filters = std::mem::take(&mut self.filters);
        self.filters =
            filters.into_iter().map(|f| self.without_window(f)).collect::<Result<_>>()?;
        Ok(())
    }

    /// Replaces window columns by functions of the event time, or by the columns that hold them.
    pub(crate) fn without_window(&self, expr: Expr) -> Result<Expr> {
        let Some(window) = self.window.as_ref().filter(|_| over(&expr).window) else {
            return Ok(expr);
        };
        if !window.are_known() {
            return Err(window.unknown_column(&expr));
        }
        Ok(expr.replaced(|e| Ok(column_of(WINDOW, e).and_then(|name| window.column(name))))?)
    }
}
