//! The innermost part of a query that has a mistake, and the query without it.

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, JoinConstraint, OrderByKind, TableAlias, TableWithJoins,
    Value,
};
use datafusion_sql::sqlparser::tokenizer::Tokenizer;

use crate::faults::limits::limits;
use crate::syntax::prelude::*;
use crate::syntax::tree::{Syntax, constraint};
use crate::syntax::{dialect::MillstreamDialect, words::single_part};

/// A part of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryPart {
    /// Of what SELECT shows. It leaves NULL.
    Value,
    /// Of WHERE, or of a join. It leaves TRUE.
    Condition,
    /// A key of GROUP BY. Without the key, SELECT items with the key are wrong.
    Key,
    /// Of HAVING, ORDER BY or LIMIT: what comes last.
    Last,
    /// Of FROM. It leaves a row, with NULL in the columns that are named.
    Relation,
}

/// A part left out of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemovedPart {
    pub(super) part: QueryPart,
    /// Whether the part was in a subquery.
    pub(super) is_within: bool,
    /// Whether it is no longer known which columns there are.
    pub(super) is_open: bool,
}

/// Leaves out the innermost part that has the mistake at `span`, if there is one.
pub(super) fn leave_out(query: &mut Query, span: Span, syntax: &Syntax) -> Option<RemovedPart> {
    let mut parts = PartRemover { span, syntax, depth: 0, is_blank: false, left_out: None };
    let _: ControlFlow<()> = query.walk_mut(&mut parts);
    parts.left_out
}

struct PartRemover<'a> {
    span: Span,
    syntax: &'a Syntax,
    /// Queries that we are inside of.
    depth: usize,
    /// Whether nothing is left of the SELECT that we come from but the names of its columns.
    is_blank: bool,
    left_out: Option<RemovedPart>,
}

impl PartRemover<'_> {
    fn holds(&self, expr: &Expr) -> bool {
        self.syntax.span(expr).is_some_and(|own| own.holds(self.span))
    }

    fn holds_name(&self, name: &impl Spanned) -> bool {
        Span::new(name.span()).is_some_and(|own| own.holds(self.span))
    }

    fn note(&mut self, part: QueryPart, is_open: bool) {
        self.left_out = Some(RemovedPart { part, is_within: self.depth > 1, is_open });
    }

    /// A constant where an expression stands.
    fn constant(&self, expr: &Expr, value: Value) -> Expr {
        let span = self.syntax.extent(expr).unwrap_or_else(|| expr.span());
        Expr::Value(value.with_span(span))
    }

    /// The smallest operand of AND and OR that has the mistake becomes TRUE.
    fn leave_out_operand(&self, condition: &mut Expr) {
        match condition {
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right }
                if self.holds(left) || self.holds(right) =>
            {
                let operand = if self.holds(left) { left } else { right };
                self.leave_out_operand(operand);
            }
            Expr::Nested(inner) => self.leave_out_operand(inner),
            other => *other = self.constant(other, Value::Boolean(true)),
        }
    }

    /// Leaves out of a condition what has the mistake, if that is there.
    fn leave_out_of(&self, condition: Option<&mut Expr>) -> bool {
        let found = condition.filter(|condition| self.holds(condition));
        found.map(|condition| self.leave_out_operand(condition)).is_some()
    }

    /// The value becomes NULL, under the name that it has. `false`: of `*`, which has many names.
    fn leave_out_value(&self, item: &mut SelectItem) -> bool {
        let (expr, name) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (&*expr, Some(alias.clone())),
            SelectItem::UnnamedExpr(expr) => (&*expr, name_of(expr)),
            _ => return false,
        };
        let expr = self.constant(expr, Value::Null);
        *item = match name {
            Some(alias) => SelectItem::ExprWithAlias { expr, alias },
            None => SelectItem::UnnamedExpr(expr),
        };
        true
    }

    /// Leaves out a column of USING, or a condition of ON.
    fn leave_out_of_join(&self, table: &mut TableWithJoins) -> bool {
        let constraints = table.joins.iter_mut().map(|join| constraint(&mut join.join_operator));
        constraints.flatten().any(|constraint| match constraint {
            JoinConstraint::On(on) => self.leave_out_of(Some(on)),
            JoinConstraint::Using(names) => {
                let before = names.len();
                names.retain(|name| !self.holds_name(name));
                let after = names.len();
                if after == 0 {
                    *constraint = JoinConstraint::On(Expr::Value(Value::Boolean(true).into()));
                }
                after < before
            }
            JoinConstraint::Natural | JoinConstraint::None => false,
        })
    }

    /// Leaves out a part of a SELECT other than of its FROM.
    fn of_select(&self, select: &mut Select) -> Option<(QueryPart, bool)> {
        if self.leave_out_of(select.selection.as_mut())
            || select.from.iter_mut().any(|table| self.leave_out_of_join(table))
        {
            return Some((QueryPart::Condition, false));
        }
        let last = [&mut select.having, &mut select.qualify];
        if last.into_iter().any(|condition| self.leave_out_of(condition.as_mut())) {
            return Some((QueryPart::Last, false));
        }
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr)
                    if self.holds(expr) =>
                {
                    self.leave_out_value(item);
                    return Some((QueryPart::Value, false));
                }
                SelectItem::QualifiedWildcard(..) if self.holds_name(item) => {
                    *item = SelectItem::UnnamedExpr(Expr::Value(Value::Null.into()));
                    return Some((QueryPart::Value, true));
                }
                _ => {}
            }
        }
        let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return None };
        let before = keys.len();
        keys.retain(|key| !self.holds(key));
        (keys.len() < before).then_some((QueryPart::Key, false))
    }

    /// Leaves out a table or what stands for one. If it is not known which columns it has, nothing
    /// is left of the SELECT but the names of its own columns, and the other tables.
    fn of_from(&mut self, select: &mut Select) -> Option<(QueryPart, bool)> {
        let relation = select.from.iter_mut().find_map(|table| self.relation(table))?;
        let alias = match &*relation {
            TableFactor::Table { alias: None, name, .. } => single_part(name).map(|name| {
                let name = Ident { quote_style: name.quote_style.filter(|c| *c != '\''), ..name };
                TableAlias { explicit: true, name, columns: vec![], at: None }
            }),
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. } => alias.clone(),
            _ => None,
        };
        let named = alias.iter().flat_map(|alias| &alias.columns);
        let names: Vec<Ident> = named.map(|column| column.name.clone()).collect();
        let subquery = nulls(&names)?;
        *relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        if !names.is_empty() {
            return Some((QueryPart::Relation, false));
        }
        self.is_blank = true;
        let mut is_open = false;
        for item in &mut select.projection {
            is_open |= !self.leave_out_value(item);
        }
        (select.distinct, select.selection) = (None, None);
        (select.having, select.qualify) = (None, None);
        select.group_by = GroupByExpr::Expressions(vec![], vec![]);
        let joins = select.from.iter_mut().flat_map(|table| &mut table.joins);
        for constraint in joins.filter_map(|join| constraint(&mut join.join_operator)) {
            *constraint = JoinConstraint::On(Expr::Value(Value::Boolean(true).into()));
        }
        Some((QueryPart::Relation, is_open))
    }

    /// The relation that has the mistake.
    fn relation<'t>(&self, table: &'t mut TableWithJoins) -> Option<&'t mut TableFactor> {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        let mut relations = std::iter::once(&mut table.relation).chain(joined);
        match relations.find(|relation| self.holds_relation(relation))? {
            TableFactor::NestedJoin { table_with_joins, .. } => self.relation(table_with_joins),
            relation => Some(relation),
        }
    }

    fn holds_relation(&self, relation: &TableFactor) -> bool {
        let mut extent = relation.span();
        if let TableFactor::Table { args, name, .. } = relation {
            // The parser has no place for the name of a file.
            let file = single_part(name).filter(|name| name.quote_style == Some('\''));
            if file.is_some_and(|file| self.syntax.text(self.span) == file.to_string()) {
                return true;
            }
            let arguments = args.iter().flat_map(|call| &call.args);
            extent = arguments.fold(extent, |extent, argument| extent.union(&argument.span()));
        }
        Span::new(extent).is_some_and(|own| own.holds(self.span))
    }

    /// Leaves out keys of ORDER BY, and LIMIT.
    fn of_end(&self, query: &mut Query) -> Option<(QueryPart, bool)> {
        if limits(query).into_iter().any(|limit| self.holds(limit)) {
            query.limit_clause = None;
            return Some((QueryPart::Last, false));
        }
        let OrderByKind::Expressions(keys) = &mut query.order_by.as_mut()?.kind else {
            return None;
        };
        let before = keys.len();
        keys.retain(|key| !self.holds(&key.expr));
        let (wrong, empty) = (keys.len() < before, keys.is_empty());
        if empty {
            query.order_by = None;
        }
        wrong.then_some((QueryPart::Last, false))
    }
}

/// Name of a column that shows an expression.
fn name_of(expr: &Expr) -> Option<Ident> {
    match expr {
        Expr::Identifier(name) => Some(name.clone()),
        Expr::CompoundIdentifier(names) => names.last().cloned(),
        _ => None,
    }
}

/// A query of one row: NULL in columns named `names`. Its tokens have no places.
fn nulls(names: &[Ident]) -> Option<Box<Query>> {
    let columns: Vec<String> = names.iter().map(|name| format!("NULL AS {name}")).collect();
    let columns = if columns.is_empty() { "NULL".into() } else { columns.join(", ") };
    let dialect = MillstreamDialect::default();
    let tokens = Tokenizer::new(&dialect, &format!("SELECT {columns}")).tokenize().ok()?;
    Parser::new(&dialect).with_tokens(tokens).parse_query().ok()
}

impl VisitorMut for PartRemover<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if self.left_out.is_none()
            && let Some((part, is_open)) = self.of_select(select).or_else(|| self.of_from(select))
        {
            self.note(part, is_open);
        }
        Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if std::mem::take(&mut self.is_blank) {
            // ORDER BY may name columns that are not shown.
            query.order_by = None;
        }
        if self.left_out.is_none()
            && let Some((part, is_open)) = self.of_end(query)
        {
            self.note(part, is_open);
        }
        self.depth -= 1;
        Continue(())
    }
}
