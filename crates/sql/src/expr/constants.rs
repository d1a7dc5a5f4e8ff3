//! Folding of constant arithmetic and of comparisons of constant floating-point numbers, with the
//! same result as if it were evaluated for every record.
//! The simplifier would do it otherwise, but it lets integers wrap around and decimals have too
//! many digits, and makes doubles of them that are not the nearest.

use arrow::array::RecordBatchOptions;
use chrono::Utc;
use datafusion_common::config::ConfigOptions;
use millstream_contract::error::Error;

use crate::expr::scalars::{as_meant, exact_operation};
use crate::expr::{evaluate::compile, one_form::compares};
use crate::syntax::prelude::*;

/// Replaces the arithmetic of constants in `expr`, which is over `schema`, by what it comes to.
/// What does not fit its type is an error; what fails otherwise stays, since it may never be
/// needed.
pub(crate) fn fold_arithmetic(
    expr: Expr,
    schema: &DFSchema,
    config: &Arc<ConfigOptions>,
) -> DfResult<Expr> {
    let folded = expr.changed_down(|e| {
        if !is_constant(&e)? || !(is_exact_arithmetic(&e, schema)? || compares_floats(&e, schema)?)
        {
            return Ok(Transformed::no(e));
        }
        match value(&e, schema, config) {
            Ok(value) => {
                let literal = Expr::Literal(value, None);
                Ok(Transformed::new(literal, true, TreeNodeRecursion::Jump))
            }
            Err(Error::Evaluation { message, help, .. }) if message.contains(" does not fit ") => {
                Err(SqlError::types(message).help(help).into())
            }
            Err(_) => Ok(Transformed::no(e)),
        }
    })?;
    Ok(folded.data)
}

/// Whether `expr` computes with whole numbers or decimals, or makes a double of a decimal.
fn is_exact_arithmetic(expr: &Expr, schema: &DFSchema) -> DfResult<bool> {
    if let Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) = expr {
        let is_decimal = matches!(expr.get_type(schema)?, DataType::Decimal128(..));
        return Ok(is_decimal && field.data_type().is_floating());
    }
    let computes = match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => op.is_numerical_operators(),
        Expr::Negative(_) => true,
        call => exact_operation(call).is_some(),
    };
    let exact = |t: DataType| t.is_integer() || matches!(t, DataType::Decimal128(..));
    Ok(computes && exact(expr.get_type(schema)?))
}

/// Whether `expr` compares floating-point numbers, which have [several
/// forms](crate::expr::one_form).
fn compares_floats(expr: &Expr, schema: &DFSchema) -> DfResult<bool> {
    let operand = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, .. }) if compares(op) => left,
        Expr::Case(Case { expr: Some(operand), .. }) => operand,
        Expr::InList(list) => &list.expr,
        _ => return Ok(false),
    };
    Ok(operand.get_type(schema)?.is_floating())
}

fn is_constant(expr: &Expr) -> DfResult<bool> {
    let varies = expr.any_node(|e| {
        Ok(match e {
            Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
            Expr::BinaryExpr(_) | Expr::Negative(_) | Expr::Literal(..) => false,
            Expr::Cast(_) | Expr::TryCast(_) | Expr::Case(_) | Expr::InList(_) => false,
            _ => true,
        })
    })?;
    Ok(!varies)
}

/// Value of a constant expression.
pub(crate) fn constant(expr: &Expr) -> Result<ScalarValue, SqlError> {
    let (schema, config) = (DFSchema::empty(), Arc::new(ConfigOptions::default()));
    let expr = as_meant(expr.clone(), &schema, &config)?;
    value(&expr, &schema, &config).map_err(|error| match error {
        Error::Evaluation { message, help, .. } if help.is_empty() => SqlError::types(message),
        Error::Evaluation { message, help, .. } => SqlError::types(message).help(help),
        other => SqlError::internal(other),
    })
}

fn value(
    expr: &Expr,
    schema: &DFSchema,
    config: &Arc<ConfigOptions>,
) -> Result<ScalarValue, Error> {
    let failed = |e: &dyn std::fmt::Display| Error::Internal(e.to_string());
    let compiled = compile(expr, schema, Utc::now(), config).map_err(|e| failed(&e))?;
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
    ScalarValue::try_from_array(&compiled.evaluate(&row)?, 0).map_err(|e| failed(&e))
}
