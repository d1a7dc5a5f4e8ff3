//! From logical expressions to what the engine runs per batch.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use chrono::{DateTime, Utc};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError, Result as DfResult, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr, Operator};
use datafusion_physical_expr::expressions::{BinaryExpr, Literal, NegativeExpr};
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use millstream_engine::Error;
use millstream_engine::expr::{Evaluate, Expr as EngineExpr};

use crate::error::Result;
use crate::lazy::LazyBoolean;
use crate::text::sql_text;
use crate::types::{sql_type_name, with_sql_types};

/// An expression over a batch, with its SQL text for messages.
#[derive(Debug)]
struct Compiled {
    physical: Arc<dyn PhysicalExpr>,
    text: String,
    data_type: DataType,
}

/// Compiles `expr` over batches of `schema`; plain columns stay columns.
pub(crate) fn compile(
    expr: &Expr,
    schema: &DFSchema,
    start_time: DateTime<Utc>,
    config: &Arc<datafusion_common::config::ConfigOptions>,
) -> Result<EngineExpr> {
    if let Expr::Column(column) = expr {
        return Ok(EngineExpr::Column(schema.index_of_column(column)?));
    }
    let mut props = ExecutionProps::new().with_query_execution_start_time(start_time);
    props.config_options = Some(config.clone());
    let context = PhysicalPlanningContext::default();
    let physical = create_physical_expr(expr, schema, &props, &context)?;
    let physical = harden(physical, schema.as_arrow())?;
    let data_type = physical.data_type(schema.as_arrow())?;
    Ok(EngineExpr::Computed(Arc::new(Compiled { physical, text: sql_text(expr), data_type })))
}

/// Makes arithmetic fail instead of wrapping around, and AND and OR stop as soon as a row is decided.
fn harden(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> DfResult<Arc<dyn PhysicalExpr>> {
    let hardened = expr.transform_up(|e| {
        if let Some(negative) = e.downcast_ref::<NegativeExpr>() {
            let data_type = negative.arg().data_type(schema)?;
            if data_type.is_integer() {
                let zero = Arc::new(Literal::new(ScalarValue::new_zero(&data_type)?));
                let minus = BinaryExpr::new(zero, Operator::Minus, negative.arg().clone());
                return Ok(Transformed::yes(Arc::new(minus.with_fail_on_overflow(true))));
            }
        }
        let Some(binary) = e.downcast_ref::<BinaryExpr>() else { return Ok(Transformed::no(e)) };
        let (left, op, right) = (binary.left(), binary.op(), binary.right());
        match op {
            Operator::Plus | Operator::Minus | Operator::Multiply => {
                let checked = BinaryExpr::new(left.clone(), *op, right.clone());
                Ok(Transformed::yes(Arc::new(checked.with_fail_on_overflow(true))))
            }
            Operator::And | Operator::Or => {
                let lazy = LazyBoolean::when_needed(left, *op == Operator::And, right);
                Ok(lazy.map_or(Transformed::no(e), |lazy| Transformed::yes(Arc::new(lazy))))
            }
            _ => Ok(Transformed::no(e)),
        }
    })?;
    Ok(hardened.data)
}

impl Evaluate for Compiled {
    fn evaluate(&self, batch: &RecordBatch) -> millstream_engine::Result<ArrayRef> {
        let evaluated = self.physical.evaluate(batch);
        let array = evaluated
            .and_then(|value| value.into_array(batch.num_rows()))
            .map_err(|e| self.failed(&e))?;
        if *array.data_type() == self.data_type {
            return Ok(array);
        }
        cast(&array, &self.data_type).map_err(|e| self.failed(&e.into()))
    }

    fn data_type(&self) -> &DataType {
        &self.data_type
    }
}

impl fmt::Display for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Compiled {
    fn failed(&self, error: &DataFusionError) -> Error {
        let (message, help) = describe(error, &self.data_type);
        Error::Evaluation { expression: self.text.clone(), message, help }
    }
}

fn describe(error: &DataFusionError, data_type: &DataType) -> (String, String) {
    let wider = "cast to a wider type first, for example CAST(x AS DECIMAL(38, 0))";
    match error.find_root() {
        DataFusionError::ArrowError(error, _) => match &**error {
            ArrowError::DivideByZero => {
                ("division by zero".into(), "write NULLIF(divisor, 0) to get NULL instead".into())
            }
            ArrowError::ArithmeticOverflow(text) => {
                let text = text.trim_start_matches("Overflow happened on: ");
                let name = sql_type_name(data_type);
                (format!("{text} does not fit {name}"), wider.into())
            }
            ArrowError::CastError(text)
            | ArrowError::ParseError(text)
            | ArrowError::ComputeError(text)
            | ArrowError::InvalidArgumentError(text) => tidy(text),
            other => tidy(&other.to_string()),
        },
        other => tidy(&other.message()),
    }
}

fn tidy(text: &str) -> (String, String) {
    let text = text.split("\n\nbacktrace:").next().unwrap_or(text).trim();
    let help = if text.to_lowercase().contains("cast") || text.contains("parse") {
        "TRY_CAST gives NULL where CAST fails"
    } else {
        ""
    };
    (crate::script::lower_first(&with_sql_types(text)), help.into())
}
