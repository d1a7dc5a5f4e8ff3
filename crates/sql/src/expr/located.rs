//! A mark around a part of an expression that may fail on a value. The mark holds the part's place
//! in the text.
//!
//! In a logical expression the mark is a function that returns its only argument. When the
//! expression is compiled, the mark becomes a [`LocatedExpr`], which turns a failure of its part
//! into an error that shows the place.

use datafusion_physical_expr::ScalarFunctionExpr;

use crate::expr::composed::{Compose, Parts};
use crate::expr::evaluate::evaluation_error;
use crate::expr::scalars::{Constant, Rounded};
use crate::expr::udf::{call_of, called, first, gives_argument};
use crate::syntax::prelude::*;

/// The mark.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Located {
    place: Place,
}

/// `expr`, which stands at `place`.
pub(crate) fn located(expr: Expr, place: Place) -> Expr {
    call_of(Located { place }, vec![expr])
}

/// The marked expression, if `expr` is a mark, a cast with a name or one that rounds, or a bounded
/// constant.
pub(crate) fn within_mark(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let function = call.func.inner();
    let mark = function.is::<Located>()
        || function.is::<NamedCast>()
        || function.is::<Constant>()
        || function.is::<Rounded>();
    mark.then(|| call.args.first()).flatten()
}

/// An expression without marks, to be compared with others.
pub(crate) fn without_marks(expr: &Expr) -> Expr {
    without::<Located>(expr.clone()).unwrap_or_else(|_| expr.clone())
}

impl ScalarUDFImpl for Located {
    called!("located", ONE);

    fn schema_name(&self, _: &[Expr]) -> DfResult<String> {
        Ok(UNNAMED.into())
    }

    gives_argument!();
}

/// The name of a call that names no column: no text of what is within, which DataFusion would write
/// anew at every level of an expression.
pub(crate) const UNNAMED: &str = "…";

/// A part of an expression that knows its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LocatedExpr {
    place: Place,
    data_type: DataType,
}

impl LocatedExpr {
    /// The compiled form of a mark; `None` if `expr` is none.
    pub(crate) fn of_mark(expr: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
        let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
        let mark = call.fun().inner().downcast_ref::<Located>()?;
        let (place, data_type) = (mark.place.clone(), call.return_type().clone());
        Some(LocatedExpr { place, data_type }.over(call.args().to_vec()))
    }
}

impl Compose for LocatedExpr {
    /// Known, so that it is not worked out anew at every level above.
    fn data_type(&self, _: &Parts, _: &Schema) -> DfResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        parts[0].evaluate(batch).map_err(|error| {
            let (text, place) = (self.place.text(), Some(&self.place));
            let failed = evaluation_error(&error, &self.data_type, text, place);
            DataFusionError::External(Box::new(failed))
        })
    }
}

/// The name of [`NamedCast`], which cannot be written in SQL.
pub(crate) const NAMED_CAST: &str = "$cast";

/// A function that returns its first argument, a cast. The second argument, a text, gives the
/// column a name that differs from the name of the cast column.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedCast;

/// The function [`NAMED_CAST`].
pub(crate) fn named_cast() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(NamedCast))
}

/// Takes the names off all casts of `expr`.
pub(crate) fn without_cast_names(expr: Expr) -> DfResult<Expr> {
    without::<NamedCast>(expr)
}

/// An expression with the arguments of such functions in place of their calls.
fn without<F: ScalarUDFImpl + 'static>(expr: Expr) -> DfResult<Expr> {
    let plain = expr.changed_up(|e| match e {
        Expr::ScalarFunction(mut call) if call.func.inner().is::<F>() => {
            Ok(Transformed::yes(call.args.swap_remove(0)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plain.data)
}

impl ScalarUDFImpl for NamedCast {
    called!(NAMED_CAST, TWO);

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        first(types)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        internal_err!("a named cast is evaluated as a cast")
    }
}
