//! Calls with a syntax of their own, such as `SUBSTRING(x FROM 2)`, become calls of our functions.

use std::sync::{Arc, LazyLock};

use datafusion_common::Result as DfResult;
use datafusion_expr::planner::{ExprPlanner, PlannerResult};
use datafusion_expr::{Expr, ScalarUDF};

use super::{extract, strings};

/// Plans them.
#[derive(Debug, Default)]
pub(crate) struct SpecialSyntax;

type Function = LazyLock<Arc<ScalarUDF>>;

static SUBSTR: Function = Function::new(|| Arc::new(strings::substr_function()));
static STRPOS: Function = Function::new(|| Arc::new(strings::strpos_function()));
static OVERLAY: Function = Function::new(|| Arc::new(strings::overlay_function()));

static EXTRACT: Function =
    Function::new(|| Arc::new(extract::extract(datafusion_functions::datetime::date_part())));

fn planned(function: &Function, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
    Ok(PlannerResult::Planned(function.call(args)))
}

impl ExprPlanner for SpecialSyntax {
    fn plan_substring(&self, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&SUBSTR, args)
    }

    fn plan_position(&self, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&STRPOS, args)
    }

    fn plan_extract(&self, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&EXTRACT, args)
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> DfResult<PlannerResult<Vec<Expr>>> {
        planned(&OVERLAY, args)
    }
}
