//! Where the clauses of a query stand, for messages.

use datafusion_sql::sqlparser::ast::{Distinct, Expr, Function, GroupByExpr};

use crate::stages::{lower::Places, texts::Texts, unnest::is_unnest};
use crate::syntax::prelude::*;

/// Where a query's clauses stand.
pub(crate) fn places(query: &Query, statement: Option<Span>, texts: Texts) -> Places {
    struct Finder(Places);
    impl Visitor for Finder {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let limit = query.limit_clause.as_ref().and_then(|l| Span::new(l.span()));
            self.0.limit = self.0.limit.or(limit);
            self.0.last_limit = limit.or(self.0.last_limit);
            let order_by = query.order_by.as_ref().and_then(|o| Span::new(o.span()));
            self.0.order_by = self.0.order_by.or(order_by);
            self.0.last_order_by = order_by.or(self.0.last_order_by);
            if let (SetExpr::SetOperation { .. }, None) = (&*query.body, self.0.union) {
                let whole = Span::new(query.body.span());
                self.0.union = whole.and_then(|s| self.0.texts.keyword("UNION", s)).or(whole);
            }
            Continue(())
        }
        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            if let (Some(Distinct::Distinct), None) = (&select.distinct, self.0.distinct) {
                let whole = Span::new(select.span());
                self.0.distinct = whole.and_then(|s| self.0.texts.keyword("DISTINCT", s)).or(whole);
            }
            if let GroupByExpr::Expressions(exprs, _) = &select.group_by {
                self.0.group_by = self.0.group_by.or(union(exprs));
            }
            let others = select.from.iter().skip(1).map(|other| &other.relation);
            let joins = select.from.iter().flat_map(|table| &table.joins);
            let mut relations = joins.map(|join| &join.relation).chain(others);
            let join = relations.find(|relation| !is_unnest(relation));
            self.0.join = self.0.join.or(join.and_then(|relation| Span::new(relation.span())));
            Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let (Expr::Exists { .. } | Expr::InSubquery { .. }, None) = (expr, self.0.subquery) {
                self.0.subquery = Span::new(expr.span());
            }
            if let (Expr::Function(Function { name, over: Some(_), .. }), None) =
                (expr, self.0.over)
            {
                self.0.over = Span::new(name.span());
            }
            Continue(())
        }
    }
    let mut finder = Finder(Places { statement, texts, ..Places::default() });
    let _ = query.walk(&mut finder);
    finder.0
}

fn union(exprs: &[Expr]) -> Option<Span> {
    exprs.iter().map(Spanned::span).reduce(|a, b| a.union(&b)).and_then(Span::new)
}
