//! The windows of a join: those of both its sides, if a condition says that the windows of two rows
//! must be the same one.

use millstream_contract::plan::Window;

use super::conditions::{Condition, column_of};
use super::{JoinSide, NamedJoin, at};
use crate::expr::window_node::WINDOW_COLUMNS;
use crate::names::window_kinds::WindowKind;
use crate::stages::lower::is_window_column;
use crate::syntax::durations::duration;
use crate::syntax::prelude::*;

/// The column of the window, by its place in [`WINDOW_COLUMNS`], that a condition says is the same
/// of both sides.
pub(super) fn equality(sides: &[JoinSide; 2], expr: &Expr) -> Option<usize> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return None };
    if !matches!(op, Operator::Eq | Operator::IsNotDistinctFrom) {
        return None;
    }
    let (one, other) = (column_of(left)?, column_of(right)?);
    let column = |(side, at): (usize, usize)| &sides[side].stage.columns[at];
    let same = one.0 != other.0 && column(one) == column(other) && is_window_column(column(one));
    let Expr::Column(column) = column(one) else { return None };
    WINDOW_COLUMNS.iter().position(|name| same && *name == column.name)
}

/// The windows in which rows of both sides meet, if they do.
pub(super) fn common(
    sides: &[JoinSide; 2],
    on: &[Condition],
    named: &NamedJoin,
) -> Result<Option<Window>> {
    let equal = on.iter().filter_map(|on| Some((equality(sides, &on.expr)?, on)));
    let equal: Vec<_> = equal.collect();
    let ([Some(left), Some(right)], [(_, first), ..]) =
        ([&sides[0].stage.window, &sides[1].stage.window], &equal[..])
    else {
        return Ok(None);
    };
    let refused = |message: String, help: &str| {
        let error = at(SqlError::unsupported(message), first.place.as_ref());
        Err(at(error, named.place.as_ref()).help(help))
    };
    let name = &named.name;
    if !left.are_those_of(right) {
        let (left, right) = (described(&left.kind), described(&right.kind));
        return refused(
            format!("the windows of {name} differ: {left} on the left, {right} on the right"),
            "rows meet within the same windows: give both sides one window function with the same \
             lengths\n(results of shorter windows, which select window_time AS inner_time, can be \
             grouped into longer ones before: TABLE(TUMBLE(TABLE …, DESCRIPTOR(inner_time), …)) \
             with GROUP BY)",
        );
    }
    let kind = WindowKind::of(&left.kind);
    let several_ends = matches!(kind, WindowKind::Cumulate | WindowKind::Session);
    if several_ends && equal.iter().all(|(bound, _)| *bound == 0) {
        return refused(
            format!("windows of {} that begin together end at several times", kind.name()),
            "add the end: L.window_start = R.window_start AND L.window_end = R.window_end",
        );
    }
    sides.iter().try_for_each(|side| check_rows(side, named))?;
    Ok(Some(left.kind))
}

/// Checks that the windows of the rows of a side are known.
fn check_rows(side: &JoinSide, named: &NamedJoin) -> Result<()> {
    let windows = side.stage.window.as_ref();
    let Some((kind, assigned)) = windows.and_then(|own| Some((own.kind, own.assignment()?))) else {
        return Ok(());
    };
    let fired = side.stage.input.are_results();
    let name = WindowKind::of(&kind).name();
    let (message, help) = match kind {
        Window::Hop(_) | Window::Cumulate(_) if fired => (
            format!("{name} of the rows of a GROUP BY or a join runs only with a GROUP BY"),
            "add GROUP BY window_start, window_end, … to that side, and join the result",
        ),
        // Those of SESSION have become results.
        Window::Hop(_) | Window::Cumulate(_) | Window::Tumble(_) => return Ok(()),
        Window::Session(_) | Window::Interval(_) => return Ok(()),
    };
    let error = SqlError::unsupported(message).at(assigned.place);
    Err(at(error, named.place.as_ref()).help(help))
}

/// Windows as written in SQL.
fn described(window: &Window) -> String {
    let name = WindowKind::of(window).name();
    let (text, offset_us) = match window {
        Window::Tumble(of) => (format!("of {}", duration(of.size_us)), of.offset_us),
        Window::Hop(of) => {
            let (size, slide) = (duration(of.size_us), duration(of.slide_us));
            (format!("of {size} every {slide}"), of.offset_us)
        }
        Window::Cumulate(of) => {
            let (size, step) = (duration(of.size_us), duration(of.step_us));
            (format!("up to {size} by {step}"), of.offset_us)
        }
        Window::Session(of) => (format!("with gaps of {}", duration(of.gap_us)), 0),
        Window::Interval(_) => (String::new(), 0),
    };
    let offset = (offset_us != 0).then(|| format!(", offset {}", duration(offset_us)));
    format!("{name} {text}{}", offset.unwrap_or_default())
}
