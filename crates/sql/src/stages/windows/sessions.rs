//! Grouping by windows that a row does not tell by itself: it is in several (HOP, CUMULATE), or
//! what comes after it decides (SESSION).
//!
//! Conditions on the window alone become HAVING. With sessions, a condition above SESSION leaves
//! rows out that make sessions longer all the same. So whether a row passes is one more key, after
//! those that tell sessions apart, and what fires for rows that do not pass is dropped.

use datafusion_expr::utils::split_conjunction_owned;
use millstream_contract::plan::Window;

use crate::expr::scalars::{row_fields, row_of};
use crate::expr::{located::without_marks, text::sql_text, window_node::WINDOW_COLUMNS};
use crate::names::{alike::alike, window_kinds::WindowKind};
use crate::stages::lower::{
    Call, Grouped, Over, Places, Stage, fired_column, is_window_column, over, to_fired, unique,
    window_column,
};
use crate::stages::windows::assigned::{Assigned, OfRow, Windows};
use crate::stages::windows::in_some_window::in_some_window;
use crate::syntax::prelude::*;

impl Windows {
    /// Whether a row determines its window.
    pub(crate) fn are_known(&self) -> bool {
        self.assignment().is_none() || matches!(self.kind, Window::Tumble(_))
    }

    /// Error for window columns in `expr` that a row does not determine.
    pub(crate) fn unknown_column(&self, expr: &Expr) -> SqlError {
        let name = WindowKind::of(&self.kind).name();
        let text = sql_text(expr);
        let why = match self.kind {
            Window::Session(_) => "how long a session is, is known when it ends",
            _ => "a row is in several windows",
        };
        let message = format!("{text} cannot be computed of each row that {name} takes: {why}");
        SqlError::unsupported(message).at(self.assignment().and_then(|own| own.place)).help(
            "columns of the window may stand alone in GROUP BY and WHERE; above the GROUP BY, in \
             SELECT and HAVING, they may be computed with",
        )
    }
}

impl Stage {
    /// Checks that a query that groups rows of windows names the window.
    pub(crate) fn check_window_keys(
        &self,
        keys: &[Expr],
        calls: &[Call],
        places: &Places,
    ) -> Result<()> {
        let Some(windows) = &self.window else { return Ok(()) };
        let kind = WindowKind::of(&windows.kind);
        let place = places.group_by.or(places.distinct);
        if !keys.iter().any(is_window_column) {
            if windows.assignment().is_none() {
                return Ok(());
            }
            let aggregated = calls.iter().find_map(|call| Some(call.place.as_ref()?.span));
            return Err(SqlError::unsupported("the query has a window, but does not group by it")
                .at(place.or(aggregated).or(places.statement))
                .help(format!(
                    "add the window: GROUP BY window_start, window_end{}\n\
                     (or group the table without {}, if its input ends)",
                    if keys.is_empty() { "" } else { ", …" },
                    kind.name(),
                )));
        }
        let ends = [WINDOW_COLUMNS[1], WINDOW_COLUMNS[2]].map(window_column);
        let has_end = keys.iter().any(|key| ends.contains(key));
        let one_start = match windows.kind {
            Window::Tumble(_) | Window::Hop(_) | Window::Interval(_) => true,
            Window::Cumulate(_) => false,
            Window::Session(_) => windows.assignment().is_some(),
        };
        if has_end || one_start {
            return Ok(());
        }
        let message =
            format!("windows of {} that begin together end at several times", kind.name());
        Err(SqlError::unsupported(message)
            .at(place.or(places.statement))
            .help("add the end: GROUP BY window_start, window_end, …"))
    }

    /// Takes the conditions that are on windows alone, over what fires, if rows do not tell their
    /// window.
    pub(crate) fn take_window_filters(&mut self) -> Result<Vec<Expr>> {
        let windows = self.window.as_ref().filter(|windows| !windows.are_known());
        let Some(Windows { kind, of_row: OfRow::Assigned(assigned) }) = windows else {
            return Ok(vec![]);
        };
        let above = self.filters.split_off(assigned.below);
        let (on_windows, others): (Vec<_>, Vec<_>) = above
            .into_iter()
            .flat_map(split_conjunction_owned)
            .partition(|filter| over(filter) == Over { window: true, input: false });
        self.filters.extend(others);
        // A record with no window that passes is left out as it comes: it is not late.
        let possible = on_windows.iter().filter(|e| !e.is_volatile()).cloned().reduce(Expr::and);
        let possible = possible.and_then(|all| in_some_window(*kind, &assigned.time, all));
        self.filters.extend(possible);
        on_windows.into_iter().map(to_fired).collect()
    }

    /// Brings the keys that tell sessions apart to the front, and makes a key of the conditions
    /// above SESSION.
    pub(crate) fn group_sessions(&mut self, grouped: &mut Grouped, places: &Places) -> Result<()> {
        let Some(Windows { kind: Window::Session(session), of_row: OfRow::Assigned(assigned) }) =
            &mut self.window
        else {
            return Ok(());
        };
        let first = partition_keys(assigned, grouped, places)?;
        session.partition = first.len();
        bring_forward(&first, &mut grouped.keys);
        bring_forward(&first, &mut grouped.key_names);
        let (below, above): (Vec<_>, Vec<_>) = self
            .filters
            .split_off(assigned.below)
            .into_iter()
            .flat_map(split_conjunction_owned)
            .partition(|filter| is_over(filter, &assigned.partition));
        // All rows of a partition pass these, or none does.
        self.filters.extend(below);
        if let Some(condition) = above.into_iter().reduce(Expr::and) {
            drop_when_fired(condition.is_true(), first.len(), grouped);
        }
        Ok(())
    }
}

/// Which keys tell sessions apart.
fn partition_keys(assigned: &Assigned, grouped: &Grouped, places: &Places) -> Result<Vec<usize>> {
    let mut first = Vec::new();
    for column in &assigned.partition {
        let key = grouped.keys.iter().position(|key| alike(Some(key), Some(column)));
        let Some(key) = key else {
            let name = sql_text(column);
            let given = places.group_by.or(places.distinct);
            let clause = if given.is_some() { "GROUP BY" } else { "the ranking's PARTITION BY" };
            let message = format!("sessions are those of one {name}, and {clause} is without it");
            return Err(SqlError::unsupported(message).at(given.or(places.statement)).help(
                format!(
                    "add {name} to {clause}, and GROUP BY window_start, window_end in a query \
                     above to have sessions with the same bounds together\n\
                     (or leave PARTITION BY out: then a session has the records of all)"
                ),
            ));
        };
        if !first.contains(&key) {
            first.push(key);
        }
    }
    Ok(first)
}

/// Puts some items before the others.
fn bring_forward<T>(first: &[usize], items: &mut Vec<T>) {
    let mut numbered: Vec<(usize, T)> = std::mem::take(items).into_iter().enumerate().collect();
    // The sort is stable: the remaining items stay in order.
    numbered.sort_by_key(|(at, _)| first.iter().position(|f| f == at).unwrap_or(first.len()));
    items.extend(numbered.into_iter().map(|(_, item)| item));
}

/// Whether an expression is computed of these alone.
pub(crate) fn is_over(expr: &Expr, parts: &[Expr]) -> bool {
    let parts: Vec<Expr> = parts.iter().map(without_marks).collect();
    let rest = without_marks(expr).changed_down(|e| match parts.contains(&e) {
        true => Ok(Transformed::yes(lit(true))),
        false => Ok(Transformed::no(e)),
    });
    rest.is_ok_and(|rest| rest.data.column_refs().is_empty())
}

/// A value of the rows that pass a condition, NULL of others.
pub(crate) fn only_passing(passes: &Expr, value: Expr) -> Expr {
    let passing = vec![(Box::new(passes.clone()), Box::new(value))];
    Expr::Case(Case::new(None, passing, None))
}

/// Computes nothing of rows that do not pass a condition for the sake of a call.
pub(crate) fn take_passing(passes: &Expr, call: &mut Call) {
    if let Some(filter) = &mut call.filter {
        *filter = passes.clone().and(std::mem::take(filter));
        return;
    }
    let guarded = |argument: Expr| match argument {
        column @ Expr::Column(_) => column,
        computed => only_passing(passes, computed),
    };
    for argument in &mut call.arguments {
        *argument = match row_fields(argument).map(<[Expr]>::to_vec) {
            Some(fields) => row_of(fields.into_iter().map(guarded).collect()),
            None => guarded(std::mem::take(argument)),
        };
    }
}

/// Makes a group of rows that do not pass a condition, to be dropped when the group fires. Computes
/// nothing else for such rows. The `first` keys apply to all rows.
fn drop_when_fired(passes: Expr, first: usize, grouped: &mut Grouped) {
    for key in grouped.keys.iter_mut().skip(first) {
        *key = only_passing(&passes, std::mem::take(key));
    }
    grouped.aggregates.iter_mut().for_each(|call| take_passing(&passes, call));
    let mut taken: HashSet<String> = grouped.key_names.iter().cloned().collect();
    taken.extend(grouped.aggregates.iter().map(|call| call.name.clone()));
    let name = unique("$passes".into(), &mut taken);
    grouped.keys.insert(first, passes);
    grouped.key_names.insert(first, name.clone());
    grouped.having.insert(0, fired_column(name));
}
