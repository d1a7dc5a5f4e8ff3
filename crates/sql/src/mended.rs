//! A statement without what a mistake points at, so that planning it again finds the next one.
//!
//! A part that is left out leaves NULL, or nothing. What is then found may follow from that rather
//! than stand in the text; [`Mended::is_independent`] tells.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, OrderByKind, Query, Select,
    SelectItem, Spanned, Value, VisitMut, VisitorMut,
};

use crate::create_table::{ColumnDef, CreateTable, WatermarkDef};
use crate::error::{ErrorKind, Span, SqlError};
use crate::script::Statement;
use crate::stack::on_large_stack;
use crate::statement::StatementKind;

/// A statement whose known mistakes are left out.
#[derive(Debug, Clone)]
pub struct Mended {
    /// What is left.
    pub statement: Statement,
    /// Whether types may have changed where no mistake was.
    types_changed: bool,
    /// Columns of a table's declaration that are left out.
    gone: Vec<String>,
}

impl Mended {
    /// A statement with all its mistakes.
    pub fn new(statement: &Statement) -> Mended {
        Mended { statement: statement.clone(), types_changed: false, gone: Vec::new() }
    }

    /// The same without what `error` points at; `None` if that leaves nothing to check.
    pub fn without(mut self, error: &SqlError) -> Option<Mended> {
        let span = error.span?;
        let is_own = |source| Arc::ptr_eq(source, &self.statement.source);
        if !error.source.as_ref().is_none_or(is_own) {
            return None;
        }
        on_large_stack(|| Ok(self.leave_out(span))).ok()?.then_some(self)
    }

    /// Whether there was something to leave out.
    fn leave_out(&mut self, span: Span) -> bool {
        match &mut self.statement.kind {
            StatementKind::CreateTable(create) => without_clause(create, span, &mut self.gone),
            kind => {
                let mut parts = Parts { span, depth: 0, left_out: None };
                queries(kind).into_iter().for_each(|query| parts.leave_out(query));
                self.types_changed |= parts.left_out == Some(LeftOut::OfSubquery);
                parts.left_out.is_some()
            }
        }
    }

    /// Whether a mistake found in what is left stands in the text, too.
    pub fn is_independent(&self, error: &SqlError) -> bool {
        if let StatementKind::CreateTable(_) = self.statement.kind {
            let of_gone = |name: &String| error.message.contains(&format!("'{name}'"));
            return !self.gone.iter().any(of_gone) && self.clone().without(error).is_some();
        }
        match error.kind {
            ErrorKind::Name => true,
            ErrorKind::Type => !self.types_changed,
            _ => false,
        }
    }
}

/// The queries of a statement.
fn queries(kind: &mut StatementKind) -> Vec<&mut Query> {
    match kind {
        StatementKind::Query(query) | StatementKind::CreateView { query, .. } => vec![query],
        StatementKind::Insert(insert) => vec![&mut insert.query],
        StatementKind::Inserts(inserts) => inserts.iter_mut().map(|i| &mut *i.query).collect(),
        StatementKind::Explain(inner) | StatementKind::Analyze(inner) => queries(inner),
        _ => vec![],
    }
}

/// Leaves out the column, the watermark or the option that has the mistake.
fn without_clause(create: &mut CreateTable, span: Span, gone: &mut Vec<String>) -> bool {
    let holds = |own: Option<Span>| own.is_some_and(|own| own.holds(span));
    let before = gone.len();
    let wrong = |column: &ColumnDef| holds(Span::new(column.name.span)) || holds(column.span);
    gone.extend(create.columns.iter().filter(|c| wrong(c)).map(|column| column.name.value.clone()));
    create.columns.retain(|column| !wrong(column));
    let options = create.options.len();
    create.options.retain(|option| !holds(option.key_span) && !holds(option.value_span));
    let of_watermark = |w: &WatermarkDef| holds(Span::new(w.column.span)) || holds(w.span);
    let watermark = create.watermark.take_if(|watermark| of_watermark(watermark));
    gone.len() > before || create.options.len() < options || watermark.is_some()
}

/// What was left out of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeftOut {
    /// A part that no other query reads.
    OfWhole,
    OfSubquery,
}

/// Leaves out the innermost part that has the mistake.
struct Parts {
    span: Span,
    /// Queries that we are inside of.
    depth: usize,
    left_out: Option<LeftOut>,
}

impl Parts {
    fn leave_out(&mut self, query: &mut Query) {
        let _: ControlFlow<()> = query.visit(self);
    }

    fn holds(&self, part: &impl Spanned) -> bool {
        Span::new(part.span()).is_some_and(|own| own.holds(self.span))
    }

    /// The smallest operand of AND and OR that has the mistake becomes TRUE.
    fn leave_out_operand(&self, condition: &mut Expr) {
        match condition {
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right }
                if self.holds(&**left) || self.holds(&**right) =>
            {
                let operand = if self.holds(&**left) { left } else { right };
                self.leave_out_operand(operand);
            }
            Expr::Nested(inner) => self.leave_out_operand(inner),
            other => *other = Expr::Value(Value::Boolean(true).into()),
        }
    }

    /// Leaves out a condition or a value of SELECT.
    fn leave_out_of(&self, select: &mut Select) -> bool {
        for condition in [&mut select.selection, &mut select.having, &mut select.qualify] {
            if let Some(condition) = condition.as_mut().filter(|condition| self.holds(*condition)) {
                self.leave_out_operand(condition);
                return true;
            }
        }
        for join in select.from.iter_mut().flat_map(|table| &mut table.joins) {
            if let Some(JoinConstraint::On(on)) = constraint(&mut join.join_operator)
                && self.holds(on)
            {
                self.leave_out_operand(on);
                return true;
            }
        }
        for item in &mut select.projection {
            if self.holds(item) {
                return leave_out_value(item);
            }
        }
        // Without a key of GROUP BY, what SELECT says of it would be wrong.
        false
    }

    fn note(&mut self) {
        let whole = self.depth <= 1;
        self.left_out = Some(if whole { LeftOut::OfWhole } else { LeftOut::OfSubquery });
    }
}

fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator::{Anti, FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter, Semi};
    match operator {
        Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on)
        | FullOuter(on) | Semi(on) | Anti(on) => Some(on),
        _ => None,
    }
}

/// The value becomes NULL, under the name that it has.
fn leave_out_value(item: &mut SelectItem) -> bool {
    let null = || Expr::Value(Value::Null.into());
    let name: Option<Ident> = match item {
        SelectItem::ExprWithAlias { expr, .. } => {
            *expr = null();
            return true;
        }
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last().cloned(),
        SelectItem::UnnamedExpr(_) => None,
        _ => return false,
    };
    *item = match name {
        Some(alias) => SelectItem::ExprWithAlias { expr: null(), alias },
        None => SelectItem::UnnamedExpr(null()),
    };
    true
}

impl VisitorMut for Parts {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if self.left_out.is_none() && self.leave_out_of(select) {
            self.note();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.left_out.is_none()
            && let Some(order_by) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order_by.kind
        {
            let before = keys.len();
            keys.retain(|key| !self.holds(&key.expr));
            let (wrong, empty) = (keys.len() < before, keys.is_empty());
            if empty {
                query.order_by = None;
            }
            if wrong {
                self.note();
            }
        }
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}
