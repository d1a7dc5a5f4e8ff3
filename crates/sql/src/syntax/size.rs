//! Limits on the size of expressions. Planning duplicates some parts of an expression, so an
//! expression with such parts nested in each other would grow exponentially although its text is
//! short. Too large an expression, also after expansion, is refused before anything is done with
//! it.

use datafusion_common::tree_node::TreeNode;
use datafusion_expr::expr::Between;

use crate::syntax::prelude::*;
use crate::syntax::{statement::StatementKind, tree::parts};

/// Levels of an expression's tree; a chain of operators, `a + b + c`, is as deep as it is long.
/// Whoever drops or evaluates it recurses on an ordinary stack.
const MAX_DEPTH: usize = 1000;
/// Nodes that an expression may have, also once views are written out.
pub(crate) const MAX_NODES: usize = 20_000;
/// Items of a list within brackets.
const LIST_MAX: usize = 100_000;
/// Nodes that planning may make of an expression.
const MAX_GROWN: u64 = 200_000;
/// How often planning looks at the condition of a CASE, to find out whether its result can be NULL.
const CONDITION_LOOKS: u64 = 3;
/// `x BETWEEN a AND b` is `x >= a AND x <= b`.
const BETWEEN_COPIES: u64 = 2;

/// Refuses expressions that are too deep or too large.
pub(crate) fn check_size(kind: &StatementKind) -> Result<()> {
    sizes(kind, &mut Sizes::default()).break_value().map_or(Ok(()), Err)
}

/// Refuses expressions of a query that are too deep or too large.
pub(crate) fn check_query_size(query: &Query) -> Result<()> {
    query.walk(&mut Sizes::default()).break_value().map_or(Ok(()), Err)
}

/// Refuses a list within brackets that is far longer than anything may be, before it takes the
/// memory of its tokens.
pub(crate) fn check_lists(text: &str) -> Result<()> {
    /// Where we are: in a text or a name within quotes, in a comment, or in none.
    enum In {
        Nothing,
        Quotes(u8),
        Line,
        Block,
    }
    let mut within = In::Nothing;
    let mut lists: Vec<usize> = Vec::new();
    let mut before = 0;
    for (at, byte) in text.bytes().enumerate() {
        match (&within, byte) {
            (In::Quotes(quote), byte) if *quote == byte => within = In::Nothing,
            (In::Line, b'\n') | (In::Block, b'/') if byte == b'\n' || before == b'*' => {
                within = In::Nothing;
            }
            (In::Nothing, b'\'' | b'"' | b'`') => within = In::Quotes(byte),
            (In::Nothing, b'-') if before == b'-' => within = In::Line,
            (In::Nothing, b'*') if before == b'/' => within = In::Block,
            (In::Nothing, b'(') => lists.push(0),
            (In::Nothing, b')') => _ = lists.pop(),
            (In::Nothing, b',') => {
                let Some(list) = lists.last_mut() else { continue };
                *list += 1;
                if *list > LIST_MAX {
                    return Err(too_long().at(place(text, at)));
                }
            }
            _ => {}
        }
        before = byte;
    }
    Ok(())
}

fn place(text: &str, at: usize) -> Option<Span> {
    let before = &text[..at];
    let line = before.matches('\n').count() as u64 + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
    Span::between((line, column), (line, column + 1))
}

fn too_long() -> SqlError {
    SqlError::unsupported(format!("a list has more than {LIST_MAX} items"))
        .help("list fewer values, or put them into a file and read it as a table")
}

fn sizes(kind: &StatementKind, sizes: &mut Sizes) -> ControlFlow<SqlError> {
    match kind {
        StatementKind::CreateTable(table) => {
            table.expressions().try_for_each(|expr| expr.walk(sizes))
        }
        StatementKind::CreateView { query, .. } | StatementKind::Query(query) => query.walk(sizes),
        StatementKind::Insert(insert) => insert.query.walk(sizes),
        StatementKind::Inserts(inserts) => {
            inserts.iter().try_for_each(|insert| insert.query.walk(sizes))
        }
        StatementKind::Explain(explained) | StatementKind::Analyze(explained) => {
            self::sizes(explained, sizes)
        }
        StatementKind::CreateFunction(create) => create.body.walk(sizes),
        StatementKind::Drop { .. }
        | StatementKind::DropFunction { .. }
        | StatementKind::Describe(_)
        | StatementKind::Show(_)
        | StatementKind::Reset(_)
        | StatementKind::Set { .. } => Continue(()),
    }
}

/// Of the expression that we are in.
#[derive(Default)]
struct Sizes {
    depth: usize,
    nodes: usize,
}

impl Visitor for Sizes {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<SqlError> {
        self.depth += 1;
        self.nodes += 1;
        if self.depth > MAX_DEPTH {
            return Break(too_deep());
        }
        if self.nodes > MAX_NODES {
            let error = too_large("too many parts", MAX_NODES);
            return Break(error.at(Span::new(expr.span())));
        }
        Continue(())
    }

    fn post_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<SqlError> {
        self.depth -= 1;
        if self.depth > 0 {
            return Continue(());
        }
        self.nodes = 0;
        match written(expr) > MAX_GROWN {
            true => Break(grows().at(Span::new(expr.span()))),
            false => Continue(()),
        }
    }
}

fn too_deep() -> SqlError {
    SqlError::unsupported(format!(
        "an expression is nested too deeply: at most {MAX_DEPTH} operators within each other"
    ))
    .help("write x IN (1, 2, …) instead of x = 1 OR x = 2 OR …, or split the statement with views")
}

/// An expression has `parts` parts.
pub(crate) fn too_large(parts: &str, max: usize) -> SqlError {
    SqlError::unsupported(format!("an expression has {parts}; at most {max} are possible"))
        .help("list fewer values, or compute less in the views")
}

fn grows() -> SqlError {
    SqlError::unsupported(format!(
        "BETWEEN, IN, CASE and IF stand within each other so often that planning them would take \
         more than {MAX_GROWN} steps"
    ))
    .help("nest them less deeply: an inner one counts twice and more in an outer one's condition")
}

/// Steps that planning an expression takes, roughly, as far as its text shows. Looks at each part
/// once.
fn written(sql: &SqlExpr) -> u64 {
    let times = |of: &SqlExpr, copies: u64| written(of).saturating_mul(copies);
    let all = |of: &mut dyn Iterator<Item = &SqlExpr>| of.map(written).fold(1, u64::saturating_add);
    match sql {
        SqlExpr::Between { expr, low, high, .. } => {
            all(&mut [&**low, high].into_iter()).saturating_add(times(expr, BETWEEN_COPIES))
        }
        SqlExpr::InList { expr, list, .. } => {
            let copies = in_copies(list.len(), list.iter().all(|e| matches!(e, SqlExpr::Value(_))));
            all(&mut list.iter()).saturating_add(times(expr, copies))
        }
        SqlExpr::Case { operand: None, conditions, else_result, .. } => {
            let results = conditions.iter().map(|arm| &arm.result);
            let looks = conditions.iter().map(|arm| times(&arm.condition, CONDITION_LOOKS));
            let looks = looks.fold(0, u64::saturating_add);
            all(&mut results.chain(else_result.as_deref())).saturating_add(looks)
        }
        // It becomes a CASE.
        SqlExpr::Function(call) if call.name.to_string().eq_ignore_ascii_case("if") => {
            let parts = parts(sql);
            let (condition, results) = parts.split_at(parts.len().min(1));
            let looks = condition.iter().map(|of| times(of, CONDITION_LOOKS));
            let looks = looks.fold(0, u64::saturating_add);
            all(&mut results.iter().copied()).saturating_add(looks)
        }
        _ => all(&mut parts(sql).into_iter()),
    }
}

/// How often what stands before IN is written. Most lists of constants are looked up as a whole; to
/// see them within each other, a few copies are as good as many.
fn in_copies(values: usize, constant: bool) -> u64 {
    (values as u64).clamp(1, if constant { 4 } else { u64::MAX })
}

/// Refuses what planning would make too much of once views and columns are written out.
pub(crate) fn check_growth(expr: &Expr) -> Result<()> {
    if planned(expr) > MAX_GROWN { Err(grows()) } else { Ok(()) }
}

/// As [`written`], of a planned expression.
fn planned(expr: &Expr) -> u64 {
    let times = |of: &Expr, copies: u64| planned(of).saturating_mul(copies);
    let all = |of: &mut dyn Iterator<Item = &Expr>| of.map(planned).fold(1, u64::saturating_add);
    match expr {
        Expr::Between(Between { expr, low, high, .. }) => {
            all(&mut [&**low, high].into_iter()).saturating_add(times(expr, BETWEEN_COPIES))
        }
        Expr::InList(InList { expr, list, .. }) => {
            let constant = list.iter().all(|e| matches!(e, Expr::Literal(..)));
            all(&mut list.iter()).saturating_add(times(expr, in_copies(list.len(), constant)))
        }
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let results = when_then_expr.iter().map(|(_, then)| &**then);
            let looks = when_then_expr.iter().map(|(when, _)| times(when, CONDITION_LOOKS));
            let looks = looks.fold(0, u64::saturating_add);
            all(&mut results.chain(else_expr.as_deref())).saturating_add(looks)
        }
        _ => {
            let mut steps = 1u64;
            let counted = expr.apply_children(|child| {
                steps = steps.saturating_add(planned(child));
                Ok(TreeNodeRecursion::Continue)
            });
            debug_assert!(counted.is_ok(), "counting does not fail");
            steps
        }
    }
}
