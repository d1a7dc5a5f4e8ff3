//! Finding the part of a query that an error of DataFusion's planner is about, if the error does
//! not say.

use chrono::Utc;
use datafusion_expr::utils::{find_aggregate_exprs, merge_schema};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_sql::planner::{PlannerContext, SqlToRel};
use datafusion_sql::sqlparser::ast::{self, GroupByExpr};

use crate::expr::scalars::{as_meant, dates_as_times};
use crate::expr::{evaluate::compile, text::sql_text};
use crate::faults::hints::{expressions, hint};
use crate::faults::union_columns::blame_union;
use crate::stages::{functions::Context, texts::Texts};
use crate::syntax::prelude::*;
use crate::syntax::tree::{Syntax, parts};
use crate::syntax::{dialect::parser_options, numbers::count_zeros};

/// Parts of a query that are tried at most.
const PARTS_MAX: usize = 2_000;

/// Refuses conditions that are not BOOLEAN, which DataFusion would cast. (DataFusion itself refuses
/// such conditions of WHERE and HAVING.)
pub(crate) fn check_conditions(plan: &LogicalPlan, texts: &Texts) -> Result<()> {
    plan.each_node(|node| {
        let input = match (node, node.inputs().first()) {
            (_, None) => return Ok(TreeNodeRecursion::Continue),
            (LogicalPlan::Join(join), _) => {
                let both = Arc::new(merge_schema(&node.inputs()));
                let mut on = join.filter.iter();
                on.try_for_each(|on| check_condition(on, &both, texts))?;
                both
            }
            (_, Some(input)) => input.schema().clone(),
        };
        node.apply_expressions(|expr| {
            expr.each_node(|e| {
                conditions(e).try_for_each(|c| check_condition(c, &input, texts))?;
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
    let error = hint(error, query, &selects(query), syntax);
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
        let plan =
            planner.sql_statement_to_plan(ast::Statement::Query(Box::new(count_zeros(query))));
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
        Ok(planner.sql_to_expr(count_zeros(sql.clone()), schema, &mut PlannerContext::new())?)
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
            Continue(())
        }
    }
    let mut selects = Selects(Vec::new());
    let _ = query.walk(&mut selects);
    selects.0
}
