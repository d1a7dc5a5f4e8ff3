//! Checking the columns of a UNION: its queries must give the same number of columns, with types
//! that have a common type. An error shows the place where the column is selected.

use datafusion_sql::planner::SqlToRel;
use datafusion_sql::sqlparser::ast::{self, SetQuantifier, With};
use millstream_contract::wording::counted;

use crate::stages::{functions::Context, union::queries};
use crate::syntax::prelude::*;
use crate::syntax::{dialect::parser_options, numbers::count_zeros};

/// Refuses queries of a UNION whose columns have no common type. (DataFusion would make texts of
/// numbers and times.)
pub(crate) fn check_unions(plan: &LogicalPlan, query: &Query) -> Result<()> {
    let mut refused = Ok(());
    plan.each_node(|node| {
        let LogicalPlan::Union(union) = node else { return Ok(TreeNodeRecursion::Continue) };
        let parts = queries(union);
        for (column, field) in union.schema.fields().iter().enumerate() {
            let mut first: Option<(usize, &FieldRef)> = None;
            for (number, part) in (1..).zip(&parts) {
                let Some(other) = part.schema().fields().get(column) else { continue };
                match first {
                    _ if other.data_type().is_null() => {}
                    None => first = Some((number, other)),
                    Some(first) if are_alike(first.1.data_type(), other.data_type()) => {}
                    Some(first) => {
                        let error = mismatch(column + 1, field.name(), first, (number, other));
                        refused = Err(error.at(item_place(query, number, column, other.name())));
                        return Ok(TreeNodeRecursion::Stop);
                    }
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    refused
}

fn mismatch(
    position: usize,
    name: &str,
    (first, one): (usize, &FieldRef),
    (second, other): (usize, &FieldRef),
) -> SqlError {
    let (one_type, other_type) = (sql_type_name(one.data_type()), sql_type_name(other.data_type()));
    SqlError::types(format!(
        "column {position} of the UNION, '{name}', is {one_type} in query {first} and {other_type} \
         in query {second} ('{}')",
        other.name()
    ))
    .help(format!("cast one of them, for example CAST({} AS {one_type})", other.name()))
}

/// Whether values of two types can stand in one column, as in Flink: those of one family.
fn are_alike(one: &DataType, other: &DataType) -> bool {
    use DataType::*;
    let is_text = |t: &DataType| matches!(t, Utf8 | LargeUtf8 | Utf8View);
    let is_binary =
        |t: &DataType| matches!(t, Binary | LargeBinary | BinaryView | FixedSizeBinary(_));
    let is_time = |t: &DataType| matches!(t, Time32(_) | Time64(_));
    match (one, other) {
        (Timestamp(_, one), Timestamp(_, other)) => one == other,
        (Dictionary(_, one), other) => are_alike(one, other),
        (one, Dictionary(_, other)) => are_alike(one, other),
        (one, other) => {
            one == other
                || one.is_numeric() && other.is_numeric()
                || is_text(one) && is_text(other)
                || is_binary(one) && is_binary(other)
                || is_time(one) && is_time(other)
        }
    }
}

/// Where a query of a UNION, counted from 1, selects a column.
fn item_place(query: &Query, number: usize, column: usize, name: &str) -> Option<Span> {
    let mut unnamed = None;
    for Union { operands, .. } in unions(query) {
        let Some(SetExpr::Select(select)) = operands.get(number - 1) else { continue };
        let explicit = |item: &SelectItem| {
            matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
        };
        let Some(item) = select.projection.get(column) else { continue };
        if !select.projection[..=column].iter().all(explicit) {
            continue;
        }
        let place = Span::new(item.span());
        let named = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value == name,
            SelectItem::UnnamedExpr(SqlExpr::Identifier(column)) => column.value == name,
            SelectItem::UnnamedExpr(SqlExpr::CompoundIdentifier(path)) => {
                path.last().is_some_and(|column| column.value == name)
            }
            _ => false,
        };
        if named {
            return place;
        }
        unnamed = unnamed.or(place);
    }
    unnamed
}

/// Names and places the queries of a UNION that give different numbers of columns.
pub(crate) fn blame_union(error: SqlError, query: &Query, context: &Context<'_>) -> SqlError {
    if !error.message.contains("different number of columns") {
        return error;
    }
    for Union { with, operands } in unions(query) {
        let mut first: Option<DFSchema> = None;
        for (number, operand) in (1..).zip(&operands) {
            let Some(schema) = schema(&with, operand, context) else { break };
            let Some(first) = &first else {
                first = Some(schema);
                continue;
            };
            if first.fields().len() != schema.fields().len() {
                let columns = |schema: &DFSchema| {
                    let fields = schema.fields();
                    let names = fields.iter().map(|field| field.name().as_str());
                    let names = names.take(8).collect::<Vec<_>>().join(", ");
                    let more = if fields.len() > 8 { ", …" } else { "" };
                    format!("{} ({names}{more})", counted(fields.len() as u64, "column"))
                };
                return SqlError::types(format!(
                    "query {number} of the UNION gives {}, the first gives {}",
                    columns(&schema),
                    columns(first)
                ))
                .at(select_place(operand))
                .help(
                    "select as many columns in each, in the same order; NULL for what is missing",
                );
            }
        }
    }
    error
}

/// Place of the selected items of a SELECT.
fn select_place(operand: &SetExpr) -> Option<Span> {
    let SetExpr::Select(select) = operand else { return Span::new(operand.span()) };
    let items = select.projection.iter().map(Spanned::span);
    items.reduce(|a, b| a.union(&b)).and_then(Span::new)
}

/// The columns of a part of a query.
fn schema(with: &Option<With>, body: &SetExpr, context: &Context<'_>) -> Option<DFSchema> {
    let query = Query {
        with: with.clone(),
        body: Box::new(body.clone()),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    };
    let planner = SqlToRel::new_with_options(context, parser_options());
    let plan = planner.sql_statement_to_plan(ast::Statement::Query(Box::new(count_zeros(query))));
    plan.ok().map(|plan| plan.schema().as_ref().clone())
}

/// A UNION as it is written.
struct Union {
    /// WITH clause before the UNION.
    with: Option<With>,
    /// Queries of the UNION, also of nested UNION ALL.
    operands: Vec<SetExpr>,
}

/// All UNIONs of a query.
fn unions(query: &Query) -> Vec<Union> {
    struct Unions(Vec<Union>);
    impl Visitor for Unions {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let mut open = vec![&*query.body];
            while let Some(body) = open.pop() {
                if !matches!(body, SetExpr::SetOperation { .. }) {
                    continue;
                }
                let mut operands = Vec::new();
                add_operands(body, &mut operands);
                open.extend(&operands);
                let operands = operands.into_iter().cloned().collect();
                self.0.push(Union { with: query.with.clone(), operands });
            }
            Continue(())
        }
    }
    let mut unions = Unions(Vec::new());
    let _ = query.walk(&mut unions);
    unions.0
}

/// The queries of a UNION, as [`queries`] finds them in its plan.
fn add_operands<'e>(body: &'e SetExpr, operands: &mut Vec<&'e SetExpr>) {
    let SetExpr::SetOperation { left, right, .. } = body else { return };
    for side in [left, right] {
        match &**side {
            SetExpr::SetOperation { set_quantifier: SetQuantifier::All, .. } => {
                add_operands(side, operands);
            }
            other => operands.push(other),
        }
    }
}
