//! The columns that a join takes of its sides, and the columns of their plans after rows have met.
//!
//! The window's columns are columns of the fired rows. Where a row may lack a partner, a column
//! says whether there is a partner, so that the window's columns are NULL without one.

use millstream_contract::plan::JoinKind;

use super::{JoinSide, NamedJoin};
use crate::expr::window_node::WINDOW_COLUMNS;
use crate::names::catalog::input_column;
use crate::stages::lower::{
    FIRED, Over, Stage, fired_column, over, to_fired, unique, window_column,
};
use crate::stages::{joined::Joined, nest::Inner};
use crate::syntax::prelude::*;

/// A side that a join takes.
pub(super) struct JoinInput {
    pub(super) parts: Vec<Inner>,
    /// The columns of its plan, of a pair.
    pub(super) pair: Vec<Expr>,
    /// The same of what is given, where they are NULL for a partner that is not there.
    pub(super) fired: Vec<Expr>,
    /// The same of its rows.
    pub(super) own: Vec<Expr>,
    /// Of sessions, the columns of what is given that hold the window's.
    pub(super) bounds: [Option<Expr>; 3],
    /// Conditions on the windows of its rows, of which these do not tell; over what fires.
    pub(super) of_windows: Vec<Expr>,
}

/// The columns that a side shows.
struct ShownColumns<'a> {
    taken: &'a mut HashSet<String>,
    names: Vec<String>,
    columns: Vec<Expr>,
    /// Where each is.
    known: HashMap<Expr, usize>,
}

impl ShownColumns<'_> {
    fn new(taken: &mut HashSet<String>) -> ShownColumns<'_> {
        ShownColumns { taken, names: vec![], columns: vec![], known: HashMap::new() }
    }

    /// The name of the column that shows `expr`.
    fn name(&mut self, name: &str, expr: Expr) -> String {
        if let Some(at) = self.known.get(&expr) {
            return self.names[*at].clone();
        }
        let name = unique(name.to_string(), self.taken);
        self.known.insert(expr.clone(), self.columns.len());
        self.names.push(name.clone());
        self.columns.push(expr);
        name
    }
}

impl JoinInput {
    /// A side whose rows meet the other side's rows in windows. Bounds of sessions are columns of
    /// the rows. In a `padded` side, a row may be missing.
    pub(super) fn of_windows(
        side: JoinSide,
        sessions: bool,
        padded: bool,
        taken: &mut HashSet<String>,
    ) -> Result<JoinInput> {
        let JoinSide { mut stage, names } = side;
        let of_windows = stage.take_window_filters()?;
        stage.drop_windows()?;
        let mut shown = ShownColumns::new(taken);
        let columns = std::mem::take(&mut stage.columns);
        let of_window = |column: &Expr| {
            !sessions && matches!(over(column), Over { window: true, input: false })
        };
        let there = match padded && columns.iter().any(of_window) {
            true => Some(fired_column(shown.name("$there", lit(true)))),
            false => None,
        };
        let mut bounds = [None, None, None];
        let (mut pair, mut fired, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for (column, name) in columns.into_iter().zip(&names) {
            if of_window(&column) {
                let of_pair = to_fired(column.clone())?;
                fired.push(there.as_ref().map_or(of_pair.clone(), |there| {
                    let only = vec![(Box::new(there.clone()), Box::new(of_pair.clone()))];
                    Expr::Case(Case::new(None, only, None))
                }));
                pair.push(of_pair);
                own.push(column);
                continue;
            }
            if !padded && column.column_refs().is_empty() && !column.is_volatile() {
                for of in [&mut pair, &mut fired, &mut own] {
                    of.push(column.clone());
                }
                continue;
            }
            let bound = WINDOW_COLUMNS.iter().position(|bound| column == window_column(bound));
            let name = shown.name(name, stage.without_window(column).map_err(computed_above)?);
            if let Some(bound) = bound {
                bounds[bound].get_or_insert_with(|| fired_column(&name));
            }
            pair.push(fired_column(&name));
            fired.push(fired_column(&name));
            own.push(input_column(&name));
        }
        let ShownColumns { names, columns, .. } = shown;
        let parts = Stage { columns, window: None, ..stage }.folded()?;
        let parts = parts_of(parts, &names);
        Ok(JoinInput { parts, pair, fired, own, bounds, of_windows })
    }

    /// A side all of whose rows may meet all of the other side's.
    pub(super) fn whole(side: JoinSide, taken: &mut HashSet<String>) -> Result<JoinInput> {
        let JoinSide { mut stage, names } = side;
        let mut shown = ShownColumns::new(taken);
        let columns = std::mem::take(&mut stage.columns).into_iter().zip(&names);
        let names: Vec<String> = columns.map(|(column, name)| shown.name(name, column)).collect();
        let own = names.iter().map(|name| input_column(name)).collect();
        let fired: Vec<Expr> = names.iter().map(fired_column).collect();
        stage.columns = std::mem::take(&mut shown.columns);
        let parts = parts_of(stage.finish()?, &shown.names);
        let (bounds, of_windows) = ([None, None, None], vec![]);
        Ok(JoinInput { parts, pair: fired.clone(), fired, own, bounds, of_windows })
    }
}

fn parts_of(stages: Vec<Stage>, names: &[String]) -> Vec<Inner> {
    stages.into_iter().map(|stage| Inner { stage, names: names.to_vec() }).collect()
}

fn computed_above(error: SqlError) -> SqlError {
    let help = "select the window's columns as they are, and compute with them above the join";
    SqlError { help: Some(help.to_string()), ..error }
}

/// The name of a column of the window that is NULL where a row of a side is not there, and that of
/// the column that tells.
pub(super) fn bound_of_side(expr: &Expr) -> Option<(&str, &str)> {
    fn fired(expr: &Expr) -> Option<&str> {
        match expr {
            Expr::Column(column) => {
                let is_fired = column.relation.as_ref().is_some_and(|r| r.table() == FIRED);
                is_fired.then_some(column.name.as_str())
            }
            _ => None,
        }
    }
    let Expr::Case(Case { expr: None, when_then_expr, else_expr: None }) = expr else {
        return None;
    };
    let [(there, bound)] = &when_then_expr[..] else { return None };
    let bound = fired(bound).filter(|name| WINDOW_COLUMNS.contains(name))?;
    Some((bound, fired(there)?))
}

/// Places conditions on the windows of each side's rows: rows for which one does not hold are not
/// there. Returns whether that can be said of what fires.
pub(super) fn place_windows(joined: &mut Joined, of_sides: [&[Expr]; 2]) -> bool {
    use JoinKind::{Full, Inner, Left, LeftAnti, LeftSemi, Right};
    let always_there = match joined.kind {
        Inner => [true, true],
        Left | LeftSemi | LeftAnti => [true, false],
        Right => [false, true],
        Full => return of_sides.iter().all(|of_side| of_side.is_empty()),
    };
    for (of_side, always_there) in of_sides.into_iter().zip(always_there) {
        let to = if always_there { &mut joined.having } else { &mut joined.condition };
        to.extend_from_slice(of_side);
    }
    true
}

/// Why [`place_windows`] has no place.
pub(super) fn refused_in_full(named: &NamedJoin) -> SqlError {
    named.error(
        format!("{} does not run with a condition on the windows of one side", named.name),
        "ask for the windows above the join: WHERE COALESCE(L.window_start, R.window_start) > …",
    )
}
