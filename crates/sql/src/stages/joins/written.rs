//! Joins and subqueries as written in SQL: refuses forms that never run, regardless of their
//! inputs.

use crate::syntax::prelude::*;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Join, JoinConstraint, JoinOperator, TableWithJoins, UnaryOperator,
};

/// Advice for a lateral join.
pub(crate) const LATERAL: &str = "what stands in FROM cannot refer to what stands before it, but for UNNEST; a \
                       subquery of WHERE can, in EXISTS (…) and IN (…)";
/// Advice for a join by time.
const WITHIN_WINDOWS: &str = "rows of one window can be joined: ON L.window_start = R.window_start AND \
                       L.window_end = R.window_end AND …";
/// The columns of a join's USING.
pub(crate) fn using(join: &Join) -> &[ObjectName] {
    use JoinConstraint::Using;
    use JoinOperator::{Inner, Join as Plain, Left, LeftOuter};
    match &join.join_operator {
        Plain(Using(names))
        | Inner(Using(names))
        | Left(Using(names))
        | LeftOuter(Using(names)) => names,
        _ => &[],
    }
}

/// Refuses a kind of join that does not run, and a join without a condition.
pub(crate) fn check_kind(join: &Join) -> Result<()> {
    let place = join.relation.span();
    let refused = |what: &str, help: &str| {
        let error = SqlError::unsupported(format!("{what} does not run here"));
        Err(error.at(Span::new(place)).help(help))
    };
    use JoinOperator::{
        Anti, ArrayJoin, AsOf, CrossApply, CrossJoin, FullOuter, Inner, InnerArrayJoin,
        Join as Plain, Left, LeftAnti, LeftArrayJoin, LeftOuter, LeftSemi, OuterApply, Right,
        RightAnti, RightOuter, RightSemi, Semi, StraightJoin,
    };
    let constraint = match &join.join_operator {
        Plain(constraint) | Inner(constraint) | Left(constraint) | LeftOuter(constraint) => {
            constraint
        }
        Right(constraint) | RightOuter(constraint) | FullOuter(constraint) => constraint,
        LeftSemi(constraint) | LeftAnti(constraint) => constraint,
        CrossJoin(JoinConstraint::None) => return Ok(()),
        CrossJoin(_) => return refused("CROSS JOIN with a condition", "write JOIN … ON …"),
        Semi(_) | RightSemi(_) => {
            return refused("this kind of SEMI JOIN", "write LEFT SEMI JOIN, or WHERE EXISTS (…)");
        }
        Anti(_) | RightAnti(_) => {
            return refused(
                "this kind of ANTI JOIN",
                "write LEFT ANTI JOIN, or WHERE NOT EXISTS (…)",
            );
        }
        CrossApply | OuterApply => return refused("APPLY", LATERAL),
        AsOf { .. } => return refused("ASOF JOIN", WITHIN_WINDOWS),
        StraightJoin(_) => return refused("STRAIGHT_JOIN", "write JOIN"),
        ArrayJoin | LeftArrayJoin | InnerArrayJoin => {
            return refused("ARRAY JOIN", "write CROSS JOIN UNNEST(t.items) AS u (item)");
        }
    };
    match constraint {
        JoinConstraint::None => {
            let error = SqlError::syntax("a join needs a condition").at(Span::new(place));
            Err(error.help("write JOIN … ON …; or CROSS JOIN for all pairs"))
        }
        _ if join.global => refused("GLOBAL", "leave it out"),
        JoinConstraint::Using(_) | JoinConstraint::Natural
            if matches!(join.join_operator, Right(_) | RightOuter(_) | FullOuter(_)) =>
        {
            refused(
                "USING or NATURAL with RIGHT JOIN and FULL JOIN",
                "write ON L.id = R.id, and COALESCE(L.id, R.id) for the column of both",
            )
        }
        _ => Ok(()),
    }
}

/// Refuses `*` over columns that two sides have in common.
pub(crate) fn check_star(select: &Select) -> Result<()> {
    let star = select.projection.iter().find(|item| matches!(item, SelectItem::Wildcard(_)));
    let (Some(star), true) = (star, select.from.iter().any(has_common)) else { return Ok(()) };
    Err(SqlError::unsupported("* over a join with USING or NATURAL does not run here")
        .at(Span::new(star.span()))
        .help("name the columns that you want, or write ON L.id = R.id"))
}

/// Whether there is a join by columns that both sides have.
fn has_common(from: &TableWithJoins) -> bool {
    let by_columns = |join: &Join| {
        use JoinOperator::{Inner, Join as Plain, Left, LeftOuter};
        let (Plain(constraint) | Inner(constraint) | Left(constraint) | LeftOuter(constraint)) =
            &join.join_operator
        else {
            return false;
        };
        matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
    };
    let nested = |relation: &TableFactor| match relation {
        TableFactor::NestedJoin { table_with_joins, .. } => has_common(table_with_joins),
        _ => false,
    };
    nested(&from.relation)
        || from.joins.iter().any(|join| by_columns(join) || nested(&join.relation))
}

/// EXISTS or IN elsewhere than as a condition.
pub(crate) fn misplaced(expr: &Expr) -> SqlError {
    let what = if let Expr::Exists { .. } = expr { "EXISTS" } else { "IN with a subquery" };
    let help = "it stands in WHERE or HAVING, alone or beside other conditions with AND";
    SqlError::unsupported(format!("{what} within an expression does not run here"))
        .at(Span::new(expr.span()))
        .help(help)
}

/// Why IN does not take several values at once.
pub(crate) fn of_several(expr: &Expr) -> Option<SqlError> {
    let Expr::InSubquery { expr: values, .. } = expr else { return None };
    matches!(**values, Expr::Tuple(_)).then(|| {
        SqlError::unsupported("IN of several values at once does not run here")
            .at(Span::new(expr.span()))
            .help(
                "compare each of them: EXISTS (SELECT 1 FROM … AS i WHERE i.a = o.a AND i.b = o.b),\n\
                 with FROM … AS o around it",
            )
    })
}

/// The EXISTS and IN among the conditions of a WHERE that must all hold.
pub(crate) fn subqueries(condition: &Expr) -> Vec<*const Expr> {
    let (mut found, mut open) = (Vec::new(), vec![condition]);
    while let Some(expr) = open.pop() {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                open.extend([&**left, &**right]);
            }
            Expr::Nested(inner) => open.push(inner),
            Expr::UnaryOp { op: UnaryOperator::Not, expr: inner } => {
                let mut inner = &**inner;
                while let Expr::Nested(nested) = inner {
                    inner = nested;
                }
                if let Expr::Exists { .. } | Expr::InSubquery { .. } = inner {
                    open.push(inner);
                }
            }
            Expr::Exists { .. } | Expr::InSubquery { .. } => found.push(std::ptr::from_ref(expr)),
            _ => {}
        }
    }
    found
}
