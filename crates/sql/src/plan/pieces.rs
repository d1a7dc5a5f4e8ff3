//! A query of thousands of columns planned in pieces: DataFusion compares the items of a list with
//! each other, and looks each up among all columns of its table. A piece has some of the items, and
//! of the table the columns that it names. What has been planned is joined again.

use crate::syntax::calls::path_of;
use crate::syntax::prelude::*;

use datafusion_expr::{Aggregate, Filter, Limit, Projection};
use datafusion_sql::sqlparser::ast::{Expr, GroupByExpr, Visit};

/// Items of a piece.
const PIECE: usize = 64;
/// Items of a list that is planned whole.
pub(crate) const WHOLE_MAX: usize = 2 * PIECE;

/// A part of a query: some of its items.
pub(crate) struct Piece {
    pub(crate) query: Query,
    /// All names in it.
    pub(crate) names: HashSet<String>,
}

/// The pieces of a query with a long list; `None` if it is to be planned whole.
pub(crate) fn pieces(query: &Query) -> Option<Vec<Piece>> {
    let SetExpr::Select(select) = &*query.body else { return None };
    if select.projection.len() <= WHOLE_MAX || !can_be_parted(query, select) {
        return None;
    }
    let items = Select { projection: vec![], ..Select::clone(select) };
    let rest = Query { body: Box::new(SetExpr::Select(Box::new(items))), ..query.clone() };
    let named = names(&rest)?;
    let mut pieces = Vec::new();
    for items in select.projection.chunks(PIECE) {
        let mut query = rest.clone();
        let SetExpr::Select(select) = &mut *query.body else { return None };
        select.projection = items.to_vec();
        let own = items.iter().map(names).collect::<Option<Vec<_>>>()?;
        let names = own.into_iter().flatten().chain(named.iter().cloned()).collect();
        pieces.push(Piece { query, names });
    }
    Some(pieces)
}

/// Whether each item means the same without the others.
fn can_be_parted(query: &Query, select: &Select) -> bool {
    let whole = select.distinct.is_some() || query.with.is_some() || query.order_by.is_some();
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return false };
    // A number stands for an item.
    if whole || keys.iter().any(|key| matches!(key, Expr::Value(_))) {
        return false;
    }
    let (Some(mut used), Some(having)) = (names(keys), names(&select.having)) else { return false };
    used.extend(having);
    select.projection.iter().all(|item| match item {
        SelectItem::UnnamedExpr(_) => true,
        SelectItem::ExprWithAlias { alias, .. } => !used.contains(&alias.value),
        _ => false,
    })
}

/// All names in a part of a query; `None` if there is a query in it.
fn names(of: &impl Visit) -> Option<HashSet<String>> {
    struct Names {
        found: HashSet<String>,
        queries: usize,
    }
    impl Visitor for Names {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.queries += 1;
            if self.queries > 1 { Break(()) } else { Continue(()) }
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.found.extend(path_of(expr).iter().map(|name| name.value.clone()));
            Continue(())
        }
    }
    let mut names = Names { found: HashSet::new(), queries: 0 };
    of.walk(&mut names).is_continue().then_some(names.found)
}

/// The plan of all pieces. `first` is the first one's over all columns of the table. `None` if they
/// are not of the same form, or two of their columns have the same name.
pub(crate) fn joined(first: LogicalPlan, pieces: Vec<LogicalPlan>) -> Option<LogicalPlan> {
    match first {
        LogicalPlan::Limit(limit) => {
            let pieces = inputs(pieces, |piece| match piece {
                LogicalPlan::Limit(limit) => Some(limit.input),
                _ => None,
            })?;
            let input = Arc::new(joined(Arc::unwrap_or_clone(limit.input), pieces)?);
            Some(LogicalPlan::Limit(Limit { input, ..limit }))
        }
        LogicalPlan::Projection(first) => {
            let mut exprs = Vec::new();
            let mut fields = Vec::new();
            let pieces = inputs(pieces, |piece| match piece {
                LogicalPlan::Projection(piece) => {
                    exprs.extend(piece.expr);
                    fields.extend(piece.schema.iter().map(|(q, f)| (q.cloned(), f.clone())));
                    Some(piece.input)
                }
                _ => None,
            })?;
            let schema = DFSchema::new_with_metadata(fields, Default::default()).ok()?;
            let input = Arc::new(grouped(Arc::unwrap_or_clone(first.input), pieces)?);
            let joined = Projection::try_new_with_schema(exprs, input, Arc::new(schema));
            joined.ok().map(LogicalPlan::Projection)
        }
        _ => None,
    }
}

/// Joins what is below the projections: the groupings, perhaps below a HAVING.
fn grouped(first: LogicalPlan, pieces: Vec<LogicalPlan>) -> Option<LogicalPlan> {
    match first {
        LogicalPlan::Filter(filter) => {
            let pieces = inputs(pieces, |piece| match piece {
                LogicalPlan::Filter(filter) => Some(filter.input),
                _ => None,
            })?;
            let input = Arc::new(grouped(Arc::unwrap_or_clone(filter.input), pieces)?);
            Filter::try_new(filter.predicate, input).ok().map(LogicalPlan::Filter)
        }
        LogicalPlan::Aggregate(first) => {
            let keys = first.schema.fields().len().checked_sub(first.aggr_expr.len())?;
            let mut fields: Vec<_> =
                first.schema.iter().take(keys).map(|(q, f)| (q.cloned(), f.clone())).collect();
            let mut known = HashSet::new();
            let mut calls = Vec::new();
            for piece in pieces {
                let LogicalPlan::Aggregate(piece) = piece else { return None };
                let columns = piece.schema.iter().skip(keys);
                for (call, (qualifier, field)) in piece.aggr_expr.into_iter().zip(columns) {
                    if known.insert(field.name().clone()) {
                        calls.push(call);
                        fields.push((qualifier.cloned(), field.clone()));
                    }
                }
            }
            let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default()).ok()?);
            let Aggregate { input, group_expr, .. } = first;
            let joined = Aggregate::try_new_with_schema(input, group_expr, calls, schema);
            joined.ok().map(LogicalPlan::Aggregate)
        }
        other => {
            let grouped = |piece: &LogicalPlan| matches!(piece, LogicalPlan::Aggregate(_));
            (!pieces.iter().any(grouped)).then_some(other)
        }
    }
}

/// Input of each piece; `None` if a piece has another form.
fn inputs(
    pieces: Vec<LogicalPlan>,
    mut below: impl FnMut(LogicalPlan) -> Option<Arc<LogicalPlan>>,
) -> Option<Vec<LogicalPlan>> {
    pieces.into_iter().map(|piece| below(piece).map(Arc::unwrap_or_clone)).collect()
}
