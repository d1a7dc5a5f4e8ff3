//! Calls with a syntax of their own, such as `SUBSTRING(x FROM 2)`, become calls of our functions.

use datafusion_common::TableReference;
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawDictionaryExpr};
use datafusion_sql::sqlparser::ast::BinaryOperator;

use super::{doubles, extract, nested, strings};
use crate::syntax::numbers::decimal_of;
use crate::syntax::prelude::*;

/// Plans them.
#[derive(Debug, Default)]
pub(crate) struct SpecialSyntax;

type Function = LazyLock<Arc<ScalarUDF>>;

static SUBSTR: Function = Function::new(|| Arc::new(strings::substr_function()));
static STRPOS: Function = Function::new(|| Arc::new(strings::strpos_function()));
static OVERLAY: Function = Function::new(|| Arc::new(strings::overlay_function()));

static ARRAY: Function = Function::new(|| Arc::new(nested::array_function()));

static EXTRACT: Function =
    Function::new(|| Arc::new(extract::extract(datafusion_functions::datetime::date_part())));

fn planned(function: &Function, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
    Ok(PlannerResult::Planned(function.call(args)))
}

impl ExprPlanner for SpecialSyntax {
    /// DataFusion refuses a product of decimals with more than 38 digits after the point, and a
    /// quotient with more than these on the way.
    fn plan_binary_op(
        &self,
        raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DfResult<PlannerResult<RawBinaryExpr>> {
        let wide = match raw.op {
            BinaryOperator::Multiply => doubles::wide_product(&raw.left, &raw.right, schema),
            BinaryOperator::Divide => doubles::wide_quotient(&raw.left, &raw.right, schema),
            _ => None,
        };
        Ok(wide.map_or(PlannerResult::Original(raw), PlannerResult::Planned))
    }

    fn plan_substring(&self, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&SUBSTR, args)
    }

    fn plan_position(&self, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&STRPOS, args)
    }

    fn plan_extract(&self, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&EXTRACT, args)
    }

    /// `column.field`.
    fn plan_compound_identifier(
        &self,
        field: &Field,
        qualifier: Option<&TableReference>,
        nested_names: &[String],
    ) -> DfResult<PlannerResult<Vec<Expr>>> {
        let column = Expr::Column(Column::from((qualifier, field)));
        let field = |of, name: &String| nested::field_of(of, name);
        Ok(PlannerResult::Planned(nested_names.iter().fold(column, field)))
    }

    fn plan_array_literal(
        &self,
        elements: Vec<Expr>,
        _: &DFSchema,
    ) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&ARRAY, elements)
    }

    /// A decimal that begins with a zero: users write no dictionaries.
    fn plan_dictionary_literal(
        &self,
        raw: RawDictionaryExpr,
        _: &DFSchema,
    ) -> DfResult<PlannerResult<RawDictionaryExpr>> {
        let text = |expr: &Expr| match expr {
            Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_string),
            _ => None,
        };
        let decimal = match (&raw.keys[..], &raw.values[..]) {
            ([key], [number]) => text(key).zip(text(number)),
            _ => None,
        };
        let decimal = decimal.and_then(|(key, number)| decimal_of(&key, &number));
        Ok(match decimal {
            Some(decimal) => PlannerResult::Planned(Expr::Literal(decimal, None)),
            None => PlannerResult::Original(raw),
        })
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&OVERLAY, args)
    }
}
