//! Finding the part of a query that an error of DataFusion's planner is about, if the error does
//! not say.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use chrono::Utc;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::utils::find_aggregate_exprs;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_sql::planner::{PlannerContext, SqlToRel};
use datafusion_sql::sqlparser::ast::{
    self, Expr as SqlExpr, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr, Spanned, Visit,
    Visitor,
};

use crate::aggregates::aggregate_named;
use crate::dialect::parser_options;
use crate::error::{ErrorKind, Result, Span, SqlError};
use crate::evaluate::compile;
use crate::functions::Context;
use crate::scalars::{as_meant, dates_as_times};
use crate::syntax::{Syntax, parts};
use crate::text::sql_text;
use crate::texts::Texts;
use crate::types::sql_type_name;
use crate::union_columns::blame_union;

/// Parts of a query that are tried at most.
const PARTS_MAX: usize = 2_000;

/// Refuses conditions that are not BOOLEAN, which DataFusion would cast. (Those of WHERE and HAVING
/// it refuses itself.)
pub(crate) fn check_conditions(plan: &LogicalPlan, texts: &Texts) -> Result<()> {
    let refuse = |e: SqlError| DataFusionError::External(Box::new(e));
    plan.apply(|node| {
        let Some(input) = node.inputs().first().map(|input| input.schema().clone()) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                conditions(e)
                    .try_for_each(|c| check_condition(c, &input, texts))
                    .map_err(refuse)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The conditions directly in an expression.
fn conditions(expr: &Expr) -> Box<dyn Iterator<Item = &Expr> + '_> {
    match expr {
        Expr::AggregateFunction(call) => Box::new(call.params.filter.iter().map(|f| &**f)),
        Expr::Case(case) if case.expr.is_none() => {
            Box::new(case.when_then_expr.iter().map(|(when, _)| &**when))
        }
        Expr::Not(inner) => Box::new(std::iter::once(&**inner)),
        _ => Box::new(std::iter::empty()),
    }
}

fn check_condition(expr: &Expr, schema: &DFSchema, texts: &Texts) -> Result<()> {
    match expr.get_type(schema) {
        Ok(DataType::Boolean | DataType::Null) | Err(_) => Ok(()),
        Ok(other) => {
            let place = texts.place(expr).map(|place| place.span);
            // What an aggregate gives is a column with a name of DataFusion's.
            let text = match expr {
                Expr::Column(column) if column.name.contains('(') => "this one".to_string(),
                expr => sql_text(expr),
            };
            Err(not_boolean(&text, &other).at(place))
        }
    }
}

fn not_boolean(text: &str, data_type: &DataType) -> SqlError {
    let name = sql_type_name(data_type);
    SqlError::types(format!("a condition must be BOOLEAN, and {text} is {name}"))
        .help("compare it with something, for example x <> 0")
}

/// Places an error at the smallest expression that gives the same error when it is planned by
/// itself, and says what may have been meant.
pub(crate) fn blame(
    error: SqlError,
    query: &Query,
    context: &Context<'_>,
    syntax: &Syntax,
) -> SqlError {
    let error = blame_union(error, query, context);
    let error = selects(query).iter().fold(error, |error, select| hint(error, select, syntax));
    if error.source.is_some() || (error.span.is_some() && error.kind != ErrorKind::Type) {
        return error;
    }
    let message = error.message.clone();
    let blame = Blame { error: &message, context, syntax };
    for select in selects(query) {
        let Some(schema) = blame.schema(query, &select) else { continue };
        let mut left = PARTS_MAX;
        for expr in expressions(&select) {
            if let Some(found) = blame.smallest(expr, &schema, &mut left) {
                let span = syntax.span(found).or(error.span);
                return blame.as_written(SqlError { span, ..error });
            }
        }
        if !error.message.starts_with("a condition must be BOOLEAN, and '") {
            continue;
        }
        for condition in select.selection.iter().chain(&select.having) {
            if let Ok(data_type) = blame.type_of(condition, &schema)
                && !matches!(data_type, DataType::Boolean | DataType::Null)
            {
                return not_boolean(&condition.to_string(), &data_type).at(syntax.span(condition));
            }
        }
    }
    error
}

/// What may have been meant, or a better place, for mistakes that many people make.
fn hint(error: SqlError, select: &Select, syntax: &Syntax) -> SqlError {
    let message = error.message.clone();
    let starts = |text: &str| message.starts_with(text);
    let quoted = message.split('\'').nth(1).unwrap_or_default();
    if starts("an aggregate cannot stand in WHERE") {
        let found = select.selection.as_ref().and_then(|s| aggregate_in(s, 1));
        return error.at(found.and_then(|e| syntax.span(e)));
    }
    if starts("HAVING goes with") {
        return error.at(select.having.as_ref().and_then(|h| syntax.span(h)));
    }
    if starts("an aggregate cannot stand within") {
        let found = expressions(select).into_iter().find_map(|e| aggregate_in(e, 2));
        return SqlError { span: found.and_then(|e| syntax.span(e)).or(error.span), ..error };
    }
    if message.contains("neither in GROUP BY") && error.span.is_none() {
        let items = expressions(select);
        if let Some(found) = items.into_iter().find_map(|e| column_in(e, quoted)) {
            return error.at(syntax.span(found));
        }
        let star = select.projection.iter().find(|i| matches!(i, SelectItem::Wildcard(_)));
        if let Some(star) = star {
            let help = "with GROUP BY, name the columns instead of writing *";
            return SqlError { help: Some(help.into()), ..error }.at(Span::new(star.span()));
        }
    }
    if starts("two columns of the result have the same name") {
        let names: Vec<_> = select.projection.iter().filter_map(alias).collect();
        let again =
            (1..names.len()).find(|i| names[..*i].iter().any(|n| n.value == names[*i].value));
        return error.at(again.and_then(|i| Span::new(names[i].span)));
    }
    if starts("GROUP BY ")
        && let GroupByExpr::Expressions(keys, _) = &select.group_by
    {
        let position = message.split([' ', ':']).nth(2).unwrap_or_default();
        let key = keys.iter().find(|key| key.to_string() == position);
        return error.at(key.and_then(|key| Span::new(key.span())));
    }
    if starts("there is no table") && error.span.is_none() {
        let name = select.projection.iter().find_map(|item| match item {
            SelectItem::QualifiedWildcard(name, _) => {
                Some(name).filter(|n| n.to_string().trim_end_matches(".*") == quoted)
            }
            _ => None,
        });
        return error.at(name.and_then(|name| Span::new(name.span())));
    }
    if starts("there is no column")
        && let Some(span) = error.span
    {
        if syntax.text(span).starts_with('"') {
            let help = format!("a string stands in single quotes: '{quoted}'");
            return SqlError { help: Some(help), ..error };
        }
        let alias = select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if alias.value == quoted => Some(expr),
            _ => None,
        });
        let condition = select.selection.as_ref().and_then(|s| syntax.span(s));
        let within = |c: Span| {
            (c.line, c.column) <= (span.line, span.column)
                && (span.end_line, span.end_column) <= (c.end_line, c.end_column)
        };
        if let (Some(expr), true) = (alias, condition.is_some_and(within)) {
            let help = format!("WHERE does not know the aliases of SELECT: write {expr}");
            return SqlError { help: Some(help), ..error };
        }
    }
    error
}

fn alias(item: &SelectItem) -> Option<&Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias),
        SelectItem::UnnamedExpr(SqlExpr::Identifier(name)) => Some(name),
        _ => None,
    }
}

/// The first aggregate call that stands within `depth - 1` others.
fn aggregate_in(expr: &SqlExpr, depth: usize) -> Option<&SqlExpr> {
    let left = match expr {
        SqlExpr::Function(call)
            if aggregate_named(&call.name.to_string().to_lowercase()).is_some() =>
        {
            depth - 1
        }
        _ => depth,
    };
    if left == 0 {
        return Some(expr);
    }
    parts(expr).into_iter().find_map(|part| aggregate_in(part, left))
}

/// A column of that name outside aggregates.
fn column_in<'e>(expr: &'e SqlExpr, name: &str) -> Option<&'e SqlExpr> {
    match expr {
        SqlExpr::Identifier(column) if column.value == name => return Some(expr),
        SqlExpr::CompoundIdentifier(path) if path.last().is_some_and(|p| p.value == name) => {
            return Some(expr);
        }
        SqlExpr::Function(call)
            if aggregate_named(&call.name.to_string().to_lowercase()).is_some() =>
        {
            return None;
        }
        _ => {}
    }
    parts(expr).into_iter().find_map(|part| column_in(part, name))
}

struct Blame<'a> {
    error: &'a str,
    context: &'a Context<'a>,
    syntax: &'a Syntax,
}

impl Blame<'_> {
    /// The columns that a SELECT reads from.
    fn schema(&self, query: &Query, select: &Select) -> Option<DFSchema> {
        if select.from.is_empty() {
            return Some(DFSchema::empty());
        }
        let all = Select {
            distinct: None,
            projection: vec![SelectItem::Wildcard(Default::default())],
            selection: None,
            group_by: GroupByExpr::Expressions(vec![], vec![]),
            having: None,
            ..select.clone()
        };
        let query = Query {
            body: Box::new(SetExpr::Select(Box::new(all))),
            order_by: None,
            limit_clause: None,
            ..query.clone()
        };
        let planner = SqlToRel::new_with_options(self.context, parser_options());
        let plan = planner.sql_statement_to_plan(ast::Statement::Query(Box::new(query)));
        plan.ok().map(|plan| plan.schema().as_ref().clone())
    }

    /// Names the function that an error is about as the text does: some have several names.
    fn as_written(&self, mut error: SqlError) -> SqlError {
        let Some(rest) = error.message.strip_prefix("there is no ") else { return error };
        let name = rest.split(' ').next().unwrap_or_default().to_string();
        if name != name.to_uppercase() {
            return error;
        }
        let text = error.span.map_or(String::new(), |span| self.syntax.text(span));
        let word: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let call = !word.is_empty() && text[word.len()..].trim_start().starts_with('(');
        let (written, lower) = (word.to_uppercase(), word.to_lowercase());
        // FLOOR(x TO unit) stands where x does.
        let floor = name == "DATE_TRUNC" && !lower.starts_with("date");
        if call && !floor {
            error.message = error.message.replacen(&name, &written, 1);
            error.help = error.help.map(|h| h.replace(&format!("{name}("), &format!("{written}(")));
        } else if floor {
            error.message =
                error.message.replacen("DATE_TRUNC of STRING, ", "FLOOR TO a unit of ", 1);
            error.help = Some("it takes FLOOR(time TO unit)".into());
        }
        error
    }

    fn plan(&self, sql: &SqlExpr, schema: &DFSchema) -> Result<Expr> {
        let planner = SqlToRel::new_with_options(self.context, parser_options());
        Ok(planner.sql_to_expr(sql.clone(), schema, &mut PlannerContext::new())?)
    }

    fn type_of(&self, sql: &SqlExpr, schema: &DFSchema) -> Result<DataType> {
        Ok(self.plan(sql, schema)?.get_type(schema)?)
    }

    /// The error's message, if planning or simplifying `sql` gives it; otherwise whether there is
    /// any error.
    fn same_error(&self, sql: &SqlExpr, schema: &DFSchema) -> Option<bool> {
        let expr = match self.plan(sql, schema) {
            Ok(expr) => expr,
            Err(error) => return Some(error.message == self.error),
        };
        let simplifier = ExprSimplifier::new(
            SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build(),
        );
        let config = &self.context.functions.config;
        let typed = expr.get_type(schema).map(drop);
        let simplified = dates_as_times(expr, schema)
            .and_then(|e| simplifier.coerce(e.data, schema))
            .and_then(|e| as_meant(e, schema, config))
            .and_then(|e| simplifier.simplify(e));
        let compiled = simplified.map_err(SqlError::from).and_then(|e| {
            // Aggregates are not evaluated.
            let whole = find_aggregate_exprs([&e]).is_empty();
            if whole { compile(&e, schema, Utc::now(), config).map(drop) } else { Ok(()) }
        });
        let errors = [typed.err().map(SqlError::from), compiled.err()].into_iter().flatten();
        errors.map(|e| e.message == self.error).reduce(|a, b| a || b)
    }

    fn smallest<'e>(
        &self,
        sql: &'e SqlExpr,
        schema: &DFSchema,
        left: &mut usize,
    ) -> Option<&'e SqlExpr> {
        *left = left.checked_sub(1)?;
        let same = self.same_error(sql, schema)?;
        let inner = parts(sql).into_iter().find_map(|part| self.smallest(part, schema, left));
        inner.or_else(|| (same && self.syntax.span(sql).is_some()).then_some(sql))
    }
}

/// Every SELECT of a query.
fn selects(query: &Query) -> Vec<Select> {
    struct Selects(Vec<Select>);
    impl Visitor for Selects {
        type Break = ();
        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            self.0.push(select.clone());
            ControlFlow::Continue(())
        }
    }
    let mut selects = Selects(Vec::new());
    let _ = query.visit(&mut selects);
    selects.0
}

fn expressions(select: &Select) -> Vec<&SqlExpr> {
    let items = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    let keys = match &select.group_by {
        GroupByExpr::Expressions(keys, _) => &keys[..],
        GroupByExpr::All(_) => &[],
    };
    items.chain(&select.selection).chain(keys).chain(&select.having).collect()
}
