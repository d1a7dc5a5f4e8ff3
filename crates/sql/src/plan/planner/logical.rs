//! From a query's syntax to DataFusion's plan of it.

use datafusion_common::SchemaError;
use datafusion_sql::planner::SqlToRel;
use datafusion_sql::sqlparser::ast::{self, Query as SqlQuery};

use super::Planner;
use crate::faults::{blame::check_conditions, union_columns::check_unions};
use crate::names::outer_names::with_outer_names;
use crate::plan::pieces::{joined, pieces};
use crate::plan::whole_rows::{with_columns, without_columns};
use crate::stages::{functions::Context, rewrite::name_casts, texts::Texts};
use crate::syntax::prelude::*;
use crate::syntax::{dialect::parser_options, numbers::count_zeros};

/// A query's plan.
pub(super) struct Planned {
    /// As made by DataFusion's planner.
    pub(super) plan: LogicalPlan,
    /// After type coercion.
    pub(super) analyzed: LogicalPlan,
}

impl Planner {
    /// Plans a query, a long one in pieces.
    pub(super) fn planned(&self, query: &SqlQuery, texts: &Texts) -> Result<Planned> {
        if let Some(planned) = self.planned_by_parts(query, texts) {
            return Ok(planned);
        }
        let Some(pieces) = pieces(query) else {
            let planned = self.planned_whole(query, &self.context(), texts);
            return planned.or_else(|error| match with_outer_names(query) {
                Some(query) => {
                    self.planned_whole(&query, &self.context(), texts).map_err(|_| error)
                }
                None => Err(error),
            });
        };
        let mut plans = Vec::new();
        for piece in &pieces {
            let context = Context { columns: Some(&piece.names), ..self.context() };
            let planned = match self.planned_whole(&piece.query, &context, texts) {
                Ok(planned) => planned,
                // A mistake: planned with all columns, so that the message can suggest the right
                // column.
                Err(_) => self.planned_whole(&piece.query, &self.context(), texts)?,
            };
            plans.push((planned.plan, planned.analyzed));
        }
        let (plans, analyzed) = plans.into_iter().unzip();
        let first = pieces.first().map(|first| &first.query).unwrap_or(query);
        let first = self.planned_whole(first, &self.context(), texts)?;
        match (joined(first.plan, plans), joined(first.analyzed, analyzed)) {
            (Some(plan), Some(analyzed)) => Ok(Planned { plan, analyzed }),
            _ => self.planned_whole(query, &self.context(), texts),
        }
    }

    fn planned_whole(
        &self,
        query: &SqlQuery,
        context: &Context<'_>,
        texts: &Texts,
    ) -> Result<Planned> {
        let planner = SqlToRel::new_with_options(context, parser_options());
        let statement = |query| ast::Statement::Query(Box::new(count_zeros(query)));
        let short = without_columns(query).map(|q| planner.sql_statement_to_plan(statement(q)));
        if let Some(Ok(plan)) = short
            && check_conditions(&plan, texts).is_ok()
            && let Ok(analyzed) = self.analyze(plan.clone())
            && let Ok(Some(analyzed)) = with_columns(analyzed)
            && let Ok(Some(plan)) = with_columns(plan)
        {
            return Ok(Planned { plan, analyzed });
        }
        let mut plan = planner.sql_statement_to_plan(statement(query.clone()));
        if plan.as_ref().is_err_and(names_collide) {
            let named = planner.sql_statement_to_plan(statement(name_casts(query.clone())));
            plan = named.or(plan);
        }
        let plan = plan?;
        check_conditions(&plan, texts)?;
        check_unions(&plan, query)?;
        Ok(Planned { analyzed: self.analyze(plan.clone())?, plan })
    }
}

/// Whether two columns of a plan would have the same name.
fn names_collide(error: &DataFusionError) -> bool {
    let root = error.find_root();
    let schema = match root {
        DataFusionError::SchemaError(schema, _) => schema,
        DataFusionError::Plan(text) => return text.contains("unique expression names"),
        _ => return false,
    };
    use SchemaError::{DuplicateQualifiedField, DuplicateUnqualifiedField};
    matches!(**schema, DuplicateQualifiedField { .. } | DuplicateUnqualifiedField { .. })
}
