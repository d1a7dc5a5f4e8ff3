//! HOP and CUMULATE without GROUP BY: each row once for each of its windows. The windows of a row
//! are an array, whose elements become rows as those of UNNEST do.

use datafusion_expr::utils::split_conjunction_owned;
use millstream_contract::plan::{Cumulate, Element, Hop, Tumble, Unnest, Window};

use crate::expr::scalars::{Grid, on_grid, window_times};
use crate::expr::window_node::WINDOW_COLUMNS;
use crate::names::catalog::{INPUT, input_column};
use crate::names::window_kinds::WindowKind;
use crate::stages::lower::{Rows, Stage, WINDOW, over, unique};
use crate::stages::{lower::column_of, nest::By, windows::assigned::OfRow};
use crate::syntax::prelude::*;

/// Windows of a row. All of a batch of rows are in memory at once.
const WINDOWS_MAX: i64 = 1000;

impl Stage {
    /// A row in each window of each of its rows, which then tell their window.
    pub(crate) fn in_each_window(mut self) -> Result<Stage> {
        let (kind, assigned) = match self.window.take() {
            Some(windows) => match windows.of_row {
                OfRow::Assigned(assigned) => (windows.kind, assigned),
                OfRow::Inherited(_) => return Ok(self),
            },
            None => return Ok(self),
        };
        let name = WindowKind::of(&kind).name();
        let refused = |message: String, help: &str| {
            Err(SqlError::unsupported(message).at(assigned.place).help(help))
        };
        if self.input.are_results() {
            return refused(
                format!("{name} of the rows of a GROUP BY runs only with a GROUP BY of its own"),
                "add GROUP BY window_start, window_end, …",
            );
        }
        let count = windows_of_row(&kind);
        if count > WINDOWS_MAX {
            return refused(
                format!("each row is in {count} windows: at most {WINDOWS_MAX} can be shown"),
                "add GROUP BY window_start, window_end, …, or take fewer windows",
            );
        }
        // What is over windows stays above, and takes the columns of the input that it needs.
        let (above, mut below): (Vec<_>, Vec<_>) = std::mem::take(&mut self.filters)
            .into_iter()
            .flat_map(split_conjunction_owned)
            .partition(|filter| over(filter).window);
        below.insert(0, assigned.time.clone().is_not_null());
        let mut kept = BTreeSet::new();
        above.iter().chain(&self.columns).for_each(|expr| add_input_columns(expr, &mut kept));
        let kept: Vec<String> = kept.into_iter().collect();
        let mut taken: HashSet<String> = kept.iter().cloned().collect();
        let element = unique("$window_time".into(), &mut taken);
        let bounds = bounds_of(&kind, &input_column(&element))?;
        let rewritten = |expr: Expr| with_bounds(expr, &bounds);
        let columns = std::mem::take(&mut self.columns).into_iter().map(rewritten);
        let columns = columns.collect::<Result<_>>()?;
        let filters = above.into_iter().map(rewritten).collect::<Result<_>>()?;
        let mut inner: Vec<Expr> = kept.iter().map(|name| input_column(name)).collect();
        inner.push(window_times(kind, assigned.time)?);
        let input = std::mem::replace(&mut self.input, Rows::Stages(vec![]));
        let inner = Stage { filters: below, ..Stage::over(input, inner) };
        let body = Unnest { outer: false, elements: vec![Element::Whole] };
        Ok(Stage {
            input: inner.expanded(&kept, &[element], &By::Elements(body))?,
            columns,
            filters,
            ..self
        })
    }
}

/// Of how many windows a row is.
fn windows_of_row(window: &Window) -> i64 {
    match window {
        Window::Hop(Hop { slide_us, size_us, .. }) => size_us / slide_us,
        Window::Cumulate(Cumulate { step_us, size_us, .. }) => size_us / step_us,
        Window::Tumble(_) | Window::Session(_) | Window::Interval(_) => 1,
    }
}

/// [`WINDOW_COLUMNS`] over a window's last millisecond.
fn bounds_of(window: &Window, time: &Expr) -> Result<[Expr; 3]> {
    let slice =
        |size_us: i64, offset_us: i64| Tumble { size_us, offset_us: offset_us.rem_euclid(size_us) };
    let (start, slice) = match *window {
        Window::Hop(Hop { slide_us, size_us, offset_us }) => {
            let slide = slice(slide_us, offset_us);
            (Grid { of: slide, add_us: slide_us - size_us }, slide)
        }
        Window::Cumulate(Cumulate { step_us, size_us, offset_us }) => {
            (Grid { of: slice(size_us, offset_us), add_us: 0 }, slice(step_us, offset_us))
        }
        Window::Tumble(_) | Window::Session(_) | Window::Interval(_) => {
            return Err(SqlError::internal(format!("an array of {window:?}")));
        }
    };
    let start = on_grid(WINDOW_COLUMNS[0], start, time.clone());
    let end = Grid { of: slice, add_us: slice.size_us };
    Ok([start, on_grid(WINDOW_COLUMNS[1], end, time.clone()), time.clone()])
}

/// An expression with its window columns written out.
fn with_bounds(expr: Expr, bounds: &[Expr; 3]) -> Result<Expr> {
    Ok(expr.replaced(|e| {
        let column = column_of(WINDOW, e);
        let at = column.and_then(|column| WINDOW_COLUMNS.iter().position(|name| *name == column));
        Ok(at.map(|at| bounds[at].clone()))
    })?)
}

/// The columns of the input that an expression has.
fn add_input_columns(expr: &Expr, names: &mut BTreeSet<String>) {
    let columns = expr.column_refs().into_iter();
    let own = |column: &&datafusion_common::Column| {
        column.relation.as_ref().is_some_and(|relation| relation.table() == INPUT)
    };
    names.extend(columns.filter(own).map(|column| column.name.clone()));
}
