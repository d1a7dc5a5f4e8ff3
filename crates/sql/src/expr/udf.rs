//! Parts that the implementations of scalar functions share.

use crate::syntax::prelude::*;

/// Methods of a function: the name, or the field with the name; the signature, which is a static
/// below; the only type of results. A function `like` the function in a field has its name, aliases
/// and types, and its signature unless the call has another.
macro_rules! called {
    (.$name:tt, $signature:ident $(, $returns:expr)?) => {
        fn name(&self) -> &str {
            &self.$name
        }

        called!(@ $signature $(, $returns)?);
    };
    (like $inner:tt) => {
        called!(@like $inner);

        fn signature(&self) -> &datafusion_expr::Signature {
            self.$inner.signature()
        }
    };
    (like $inner:tt, $signature:ident) => {
        called!(@like $inner);
        called!(@ $signature);
    };
    (@like $inner:tt) => {
        fn name(&self) -> &str {
            self.$inner.name()
        }

        fn aliases(&self) -> &[String] {
            self.$inner.aliases()
        }

        fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
            self.$inner.return_type(types)
        }
    };
    (@ $signature:ident $(, $returns:expr)?) => {
        fn signature(&self) -> &datafusion_expr::Signature {
            &crate::expr::udf::$signature
        }

        $(
            fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
                Ok($returns)
            }
        )?
    };
    ($name:expr, $signature:ident $(, $returns:expr)?) => {
        fn name(&self) -> &str {
            $name
        }

        called!(@ $signature $(, $returns)?);
    };
}
pub(crate) use called;

/// Methods of a function that gives back its argument.
macro_rules! gives_argument {
    () => {
        fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
            crate::expr::udf::first(types)
        }

        fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
            crate::expr::udf::first(args.arg_fields)
        }

        fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
            crate::expr::udf::first(&args.args)
        }
    };
}
pub(crate) use gives_argument;

/// Any argument.
pub(crate) static ONE: LazyLock<Signature> =
    LazyLock::new(|| Signature::any(1, Volatility::Immutable));
/// Any two arguments.
pub(crate) static TWO: LazyLock<Signature> =
    LazyLock::new(|| Signature::any(2, Volatility::Immutable));
/// Any number of arguments.
pub(crate) static ANY: LazyLock<Signature> =
    LazyLock::new(|| Signature::variadic_any(Volatility::Immutable));
/// Arguments of a function with checks of its own.
pub(crate) static CHECKED: LazyLock<Signature> =
    LazyLock::new(|| Signature::user_defined(Volatility::Immutable));
/// No arguments.
pub(crate) static NONE: LazyLock<Signature> =
    LazyLock::new(|| Signature::nullary(Volatility::Stable));
/// Any argument, and nothing is computed before there are rows.
pub(crate) static ONE_LATE: LazyLock<Signature> =
    LazyLock::new(|| Signature::any(1, Volatility::Volatile));
/// No arguments, and nothing is computed before there are rows.
pub(crate) static NONE_LATE: LazyLock<Signature> =
    LazyLock::new(|| Signature::nullary(Volatility::Volatile));

/// The call of a function of our own.
pub(crate) fn call_of(function: impl ScalarUDFImpl + 'static, args: Vec<Expr>) -> Expr {
    Arc::new(ScalarUDF::from(function)).call(args)
}

/// The function and the arguments, if `expr` is a call of such a function.
pub(crate) fn called_in<F: ScalarUDFImpl + 'static>(expr: &Expr) -> Option<(&F, &[Expr])> {
    let Expr::ScalarFunction(call) = expr else { return None };
    Some((call.func.inner().downcast_ref()?, &call.args))
}

/// The first argument, if `expr` is a call of such a function.
pub(crate) fn argument_of<F: ScalarUDFImpl + 'static>(expr: &Expr) -> Option<&Expr> {
    called_in::<F>(expr)?.1.first()
}

/// The first of some arguments, or of their types.
pub(crate) fn first<T: Clone>(of: &[T]) -> DfResult<T> {
    of.first().cloned().map_or_else(|| internal_err!("a call without arguments"), Ok)
}

/// The values of the first argument.
pub(crate) fn first_array(args: &ScalarFunctionArgs) -> DfResult<ArrayRef> {
    first(&args.args)?.into_array(rows_of(args))
}

/// The error of a function for the types of its arguments; `takes` is the form of its calls.
pub(crate) fn no_such<T>(name: &str, types: &[DataType], takes: &str) -> DfResult<T> {
    match types {
        [] => plan_err!("{name} has no arguments; it takes {takes}"),
        _ => plan_err!("there is no {name} of {}; it takes {takes}", listed(types)),
    }
}

/// Types as a list in a message.
pub(crate) fn listed(types: &[DataType]) -> String {
    types.iter().map(sql_type_name).collect::<Vec<_>>().join(", ")
}

/// Rows to compute: one if all arguments are constants.
pub(crate) fn rows_of(args: &ScalarFunctionArgs) -> usize {
    if is_constant(args) { 1 } else { args.number_rows }
}

/// The result of a call: a constant if all arguments are constants.
pub(crate) fn result_of(args: &ScalarFunctionArgs, array: ArrayRef) -> DfResult<ColumnarValue> {
    Ok(match is_constant(args) {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
        false => ColumnarValue::Array(array),
    })
}

fn is_constant(args: &ScalarFunctionArgs) -> bool {
    args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)))
}
