//! Joins of the records of sessions with themselves: `FROM s AS a JOIN s AS b ON a.k = b.k AND …`,
//! where `s` are the records of `SESSION … PARTITION BY k`, each side perhaps with conditions of
//! its own, and rows meet in their session.
//!
//! All rows of a session are in one row of state already. So the grouping that keeps them gives the
//! pairs itself when a session is over, and there is one operator instead of two.

use millstream_contract::plan::{JoinKind, Ranking, Window};

use super::{Body, Graph, Operator, Part, Side};
use crate::expr::window_node::WINDOW_COLUMNS;
use crate::names::views::{Pairs, View};
use crate::stages::joined::Joined;
use crate::stages::lower::{Grouped, fired_column};
use crate::syntax::prelude::*;

impl Graph {
    /// Makes one operator of each such join and its grouping.
    pub(crate) fn pair_sessions(&mut self) {
        let mut number = 0;
        while number < self.operators.len() {
            match self.paired(number) {
                None => number += 1,
                Some((grouping, operator)) => {
                    // What comes after the grouping moves up.
                    self.operators[number] = operator;
                    self.operators.remove(grouping);
                    let sides = self.operators.iter_mut().flat_map(|of| &mut of.sides);
                    let parts = sides.flat_map(|side| &mut side.parts);
                    let outputs = self.outputs.iter_mut().flat_map(|output| &mut output.parts);
                    for part in parts.chain(outputs) {
                        if let Part::View { operator, .. } = part {
                            *operator -= usize::from(*operator > grouping);
                        }
                    }
                }
            }
        }
    }

    /// A join and the grouping below it as one operator, and the number of the grouping, if that
    /// gives the same.
    fn paired(&self, number: usize) -> Option<(usize, Operator)> {
        let join = &self.operators[number];
        let Body::Joined(joined) = &join.body else { return None };
        let [(left, one), (right, other)] = [view_of(&join.sides[0])?, view_of(&join.sides[1])?];
        if left != right {
            return None;
        }
        let below = &self.operators[left];
        let Body::Grouped(grouped) = &below.body else { return None };
        let takes = |part: &Part| matches!(part, Part::View { operator, .. } if *operator == left);
        let mut others = self.operators.iter().enumerate().filter(|(of, _)| *of != number);
        let alone = !others.any(|(_, of)| of.parts().any(takes))
            && !self.outputs.iter().any(|output| output.parts.iter().any(takes));
        let whole_sessions = matches!(below.window, Some(Window::Session(session))
            if session.partition == grouped.keys.len());
        let sides = [&below.views[one], &below.views[other]];
        let fits = alone
            && whole_sessions
            && grouped.keeps_all()
            && joined.gives_plain_pairs()
            && meet_in_sessions(joined, sides, grouped);
        if !fits {
            return None;
        }
        let [mut left_side, right_side] = sides.map(View::clone);
        // NULL equals nothing.
        let keys = grouped.key_names.iter();
        left_side.having.splice(0..0, keys.map(|key| fired_column(key).is_not_null()));
        let pairs = Some(Box::new(Pairs { sides: [left_side, right_side] }));
        let condition = &joined.condition;
        let view = |view: &View| {
            let having = condition.iter().chain(&view.having).cloned().collect();
            View::new(having, view.columns.clone())
        };
        let operator = Operator {
            sides: below.sides.iter().map(Side::clone).collect(),
            window: below.window,
            body: Body::Grouped(Grouped { pairs, ..grouped.clone() }),
            counted: below.counted,
            views: join.views.iter().map(view).collect(),
            query: join.query,
            names: join.names.clone(),
            endless: below.endless,
            fingerprint: join.fingerprint,
        };
        Some((left, operator))
    }
}

/// The operator and the view that are a side, if it is one of them without conditions.
fn view_of(side: &Side) -> Option<(usize, usize)> {
    match (&side.parts[..], &side.filters[..]) {
        ([Part::View { operator, view }], []) => Some((*operator, *view)),
        _ => None,
    }
}

impl Joined {
    /// Whether the join gives only pairs of rows of the same window.
    fn gives_plain_pairs(&self) -> bool {
        self.kind == JoinKind::Inner && self.is_windowed() && !self.as_of && !self.nulls_are_equal
    }
}

impl Grouped {
    /// Whether the grouping only keeps all rows of its groups.
    fn keeps_all(&self) -> bool {
        use millstream_contract::plan::AggregateFunction::Best;
        matches!(&self.aggregates[..], [call]
            if matches!(call.function, Best(best) if best.ranking == Ranking::All))
    }
}

/// Whether rows meet if, and only if, they are of one group: all keys and the end of the session
/// are equal, and nothing else needs to be.
fn meet_in_sessions(joined: &Joined, sides: [&View; 2], grouped: &Grouped) -> bool {
    let column_of = |side: usize, key: &Expr| {
        let Expr::Column(column) = key else { return None };
        let mut columns = sides[side].columns.iter();
        columns.find(|known| known.name == column.name).map(|known| known.expr.clone())
    };
    let mut equal = Vec::new();
    for [left, right] in &joined.keys {
        match (column_of(0, left), column_of(1, right)) {
            (Some(left), Some(right)) if left == right => equal.push(left),
            _ => return false,
        }
    }
    let window = WINDOW_COLUMNS.map(fired_column);
    let keys: Vec<Expr> = grouped.key_names.iter().map(fired_column).collect();
    let is_known = |column: &Expr| window.contains(column) || keys.contains(column);
    let has = |column: &Expr| equal.contains(column);
    equal.iter().all(is_known) && keys.iter().all(has) && (has(&window[1]) || has(&window[2]))
}
