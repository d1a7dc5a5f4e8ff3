//! The compiler of expressions: simplifying and compiling, with what all expressions of a job
//! share.

use chrono::{DateTime, Utc};
use datafusion_common::config::ConfigOptions;
use millstream_contract::{expr::Expr as EngineExpr, zone::Zone};

use crate::expr::scalars::{as_meant, bound_constants, bound_texts, refuse_stamps};
use crate::expr::{
    by_parts::by_parts, evaluate::compile_with, indexed::Indexed, remembered::Shared,
    simplified::simplified,
};
use crate::stages::{condition, lower::Grouped};
use crate::syntax::prelude::*;
use crate::syntax::{size::check_growth, types::plain_type};

/// Compiles expressions.
pub(crate) struct Compiler<'a> {
    /// Value of `NOW()`.
    pub(crate) start_time: DateTime<Utc>,
    pub(crate) config: &'a Arc<ConfigOptions>,
    /// The session's time zone, if it is not UTC; `config` has it, too.
    pub(crate) zone: Option<&'a Zone>,
}

impl Compiler<'_> {
    /// For batches of `schema`.
    pub(crate) fn compile(&self, expr: &Expr, schema: &DFSchema) -> Result<EngineExpr> {
        self.compile_sharing(expr, schema, None)
    }

    /// Compiles an expression with calls that another expression may have, too.
    fn compile_sharing(
        &self,
        expr: &Expr,
        schema: &DFSchema,
        shared: Option<&Shared>,
    ) -> Result<EngineExpr> {
        refuse_stamps(expr)?;
        compile_with(expr, schema, self.start_time, self.config, shared)
    }

    /// A filter of some conditions and columns of the rows that pass, which share values.
    pub(crate) fn compile_both(
        &self,
        conditions: &[Expr],
        columns: Option<&[Expr]>,
        schema: &DFSchema,
    ) -> Result<(Option<EngineExpr>, Option<Vec<EngineExpr>>)> {
        let shared = Shared::among(conditions, columns.unwrap_or_default(), schema)?;
        let filter = self.compile_conditions(conditions, schema, shared.as_ref())?;
        let columns = columns.map(|columns| self.compile_columns(columns, schema, shared.as_ref()));
        Ok((filter, columns.transpose()?))
    }

    /// The conjunction of the conditions; `None` if all rows pass.
    pub(crate) fn compile_filter(
        &self,
        conditions: &[Expr],
        schema: &DFSchema,
    ) -> Result<Option<EngineExpr>> {
        self.compile_conditions(conditions, schema, None)
    }

    fn compile_conditions(
        &self,
        conditions: &[Expr],
        schema: &DFSchema,
        shared: Option<&Shared>,
    ) -> Result<Option<EngineExpr>> {
        let is_true = |e: &&Expr| matches!(e, Expr::Literal(ScalarValue::Boolean(Some(true)), _));
        let conditions = conditions.iter().filter(|e| !is_true(e)).cloned();
        let Some(all) = conditions.reduce(|a, b| a.and(b)) else { return Ok(None) };
        Ok(Some(self.compile_sharing(&condition::filter(all, schema)?, schema, shared)?))
    }

    pub(crate) fn compile_all(&self, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<EngineExpr>> {
        self.compile_columns(exprs, schema, None)
    }

    fn compile_columns(
        &self,
        exprs: &[Expr],
        schema: &DFSchema,
        shared: Option<&Shared>,
    ) -> Result<Vec<EngineExpr>> {
        let indexed = Indexed::new(schema.clone());
        let compile = |expr: &Expr| match expr {
            Expr::Column(column) => Ok(EngineExpr::Column(indexed.index_of(column)?)),
            other => self.compile_sharing(other, schema, shared),
        };
        exprs.iter().map(compile).collect()
    }

    /// Simplifies a condition of which only TRUE counts, over columns of `schema`.
    pub(crate) fn simple_filter(&self, expr: &Expr, schema: &Arc<DFSchema>) -> Result<Expr> {
        condition::filter(self.simple(expr, schema)?, schema)
    }

    /// Simplifies an expression over columns of `schema`.
    pub(crate) fn simple(&self, expr: &Expr, schema: &Arc<DFSchema>) -> Result<Expr> {
        check_growth(expr)?;
        let few = only(expr, schema)?;
        let schema = few.as_ref().unwrap_or(schema);
        let before = expr.get_type(schema.as_ref())?;
        if matches!(expr, Expr::Column(_)) && plain_type(&before) == before {
            return Ok(expr.clone());
        }
        let mut simplify = |part: Expr, schema: &Arc<DFSchema>| {
            let part = as_meant(part, schema, self.config)?;
            let context = SimplifyContext::builder()
                .with_schema(schema.clone())
                .with_query_execution_start_time(Some(self.start_time))
                .with_config_options(self.config.clone())
                .build();
            let part = simplified(part, context)?;
            // What simplifying put in is bounded, too.
            bound_constants(bound_texts(part, schema)?)
        };
        let simplified = by_parts(expr.clone(), schema, true, &mut simplify)?;
        let simplified = condition::value(simplified, schema)?;
        let after = simplified.get_type(schema.as_ref())?;
        let wanted = plain_type(&before);
        if after == wanted {
            return Ok(simplified);
        }
        Ok(Expr::Cast(Cast::new(Box::new(simplified), wanted)))
    }
}

/// Of many columns those that an expression uses, as a schema of its own: DataFusion looks each up
/// among all, many times.
fn only(expr: &Expr, schema: &DFSchema) -> Result<Option<Arc<DFSchema>>> {
    const FEW: usize = 64;
    if schema.fields().len() <= FEW {
        return Ok(None);
    }
    let used = expr.column_refs().into_iter().map(|column| schema.index_of_column(column));
    let used = used.collect::<datafusion_common::Result<BTreeSet<usize>>>()?;
    let fields = used.into_iter().map(|i| {
        let (qualifier, field) = schema.qualified_field(i);
        (qualifier.cloned(), field.clone())
    });
    let own = DFSchema::new_with_metadata(fields.collect(), Default::default())?;
    Ok(Some(Arc::new(own)))
}

/// Changes each expression of a grouping that is over its input: values and conditions.
pub(crate) fn each_input(
    grouped: &mut Grouped,
    change: &dyn Fn(Expr) -> Result<Expr>,
    change_filter: &dyn Fn(Expr) -> Result<Expr>,
) -> Result<()> {
    for key in &mut grouped.keys {
        *key = change(std::mem::take(key))?;
    }
    for call in &mut grouped.aggregates {
        for argument in &mut call.arguments {
            *argument = change(std::mem::take(argument))?;
        }
        call.filter = call.filter.take().map(change_filter).transpose()?;
    }
    Ok(())
}
