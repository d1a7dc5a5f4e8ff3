//! The bound on the strings that functions produce: `REPEAT('x', 2000000000)` must fail with a
//! message and not take all memory.
//!
//! A call whose result might exceed the bound is evaluated for a few rows at a time, so that it
//! takes little memory before its result's size is known.

use std::ops::Range;

use arrow::{compute::concat, compute::kernels::concat_elements::concat_elements_dyn};
use datafusion_expr::preimage::PreimageResult;

use datafusion_physical_expr::ScalarFunctionExpr;
use millstream_contract::texts::{self, TEXT_BYTES_MAX};

use super::lengths::{Lengths, has_texts, text_bytes};
use super::nested::row_fields;
use super::number_casts::number_cast;
use crate::expr::composed::{Compose, Parts};
use crate::expr::located::{UNNAMED, within_mark};
use crate::expr::udf::{call_of, called, called_in, first, result_of, rows_of};
use crate::syntax::prelude::*;
use crate::syntax::subscripts::FIELD;

/// Bytes that texts made of one batch may have, all together.
const TEXT_MAX: u64 = TEXT_BYTES_MAX;

/// Constants up to this length need no look: as many as there are rows in the largest batch stay
/// below [`TEXT_MAX`].
const SHORT: usize = 64;

/// More text than [`TEXT_MAX`] would be made of a batch.
#[derive(Debug)]
pub(crate) struct TooMuchText {
    rows: usize,
}

impl TooMuchText {
    pub(crate) fn error(rows: usize) -> DataFusionError {
        DataFusionError::External(Box::new(TooMuchText { rows }))
    }

    /// Advice for shorter texts.
    pub(crate) fn help(&self) -> String {
        match self.rows {
            1 => "make the text shorter".into(),
            rows => format!(
                "make the texts shorter, or take fewer rows at a time: SET 'batch.rows' = '{}'",
                rows.div_ceil(16)
            ),
        }
    }
}

impl fmt::Display for TooMuchText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = TEXT_MAX >> 20;
        match self.rows {
            1 => write!(f, "the texts computed of one row would be longer than {limit} MB"),
            rows => write!(
                f,
                "the texts computed of {rows} rows would be longer than {limit} MB together"
            ),
        }
    }
}

impl std::error::Error for TooMuchText {}

/// The array of `rows` values that `value` stands for, unless their text is too much.
pub(crate) fn bounded_array(value: ColumnarValue, rows: usize) -> DfResult<ArrayRef> {
    if let ColumnarValue::Scalar(constant) = &value
        && Lengths::of_scalar(constant).of(0).saturating_mul(rows as u64) > texts::room()
    {
        return Err(TooMuchText::error(rows));
    }
    value.into_array(rows)
}

/// Bounds the text of every call in `expr`, which is over `schema`.
pub(crate) fn bound_texts(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let bounded = expr.changed_up(|e| match e {
        mark if within_mark(&mark).is_some() => Ok(Transformed::no(mark)),
        // Numbers and their texts are short.
        cast if number_cast(&cast).is_some() => Ok(Transformed::no(cast)),
        // A field is there already.
        Expr::ScalarFunction(call) if call.name() == FIELD => {
            Ok(Transformed::no(Expr::ScalarFunction(call)))
        }
        // So are the columns and fields that a row is made of.
        row if row_fields(&row).is_some_and(|fields| {
            let long = |field: &Expr| field.get_type(schema).is_ok_and(|t| has_texts(&t));
            fields.iter().all(|field| is_given(field) || !long(field))
        }) =>
        {
            Ok(Transformed::no(row))
        }
        Expr::ScalarFunction(mut call) if !call.func.inner().is::<Bounded>() => {
            let mut types = call.args.iter().map(|arg| arg.get_type(schema));
            if !types.any(|t| t.is_ok_and(|t| has_texts(&t))) {
                return Ok(Transformed::no(Expr::ScalarFunction(call)));
            }
            call.func = Arc::new(ScalarUDF::from(Bounded(call.func)));
            Ok(Transformed::yes(Expr::ScalarFunction(call)))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            let concat = Bounded(Arc::new(ScalarUDF::from(Concat)));
            Ok(Transformed::yes(call_of(concat, vec![*left, *right])))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(bounded.data)
}

/// Whether a value is a column, or a field.
fn is_given(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.name() == FIELD,
        other => matches!(other, Expr::Column(_)),
    }
}

/// Bounds what the constants of every CASE in `expr` come to, which has been simplified.
pub(crate) fn bound_constants(expr: Expr) -> DfResult<Expr> {
    let bounded = expr.changed_up(|e| {
        let Expr::Case(Case { expr, when_then_expr, else_expr }) = e else {
            return Ok(Transformed::no(e));
        };
        let result = |e: Box<Expr>| match &*e {
            Expr::Literal(value, _) if Lengths::of_scalar(value).of(0) > SHORT as u64 => {
                Box::new(call_of(Constant, vec![*e]))
            }
            _ => e,
        };
        let when_then = when_then_expr.into_iter().map(|(w, t)| (w, result(t))).collect();
        Ok(Transformed::yes(Expr::Case(Case::new(expr, when_then, else_expr.map(result)))))
    })?;
    Ok(bounded.data)
}

/// The called function, without its bound.
pub(crate) fn unbounded(function: &ScalarUDF) -> &ScalarUDF {
    function.inner().downcast_ref().map_or(function, |bounded: &Bounded| &bounded.0)
}

/// The two sides, if `expr` joins texts with `||`.
pub(crate) fn joined_texts(expr: &Expr) -> Option<(&Expr, &Expr)> {
    let (Bounded(function), [left, right]) = called_in(expr)? else { return None };
    function.inner().is::<Concat>().then_some((left, right))
}

/// A call of a bounded function among compiled expressions: when it has been made, the texts that
/// were made for it are gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BoundedCall;

impl BoundedCall {
    /// The compiled form of such a call; `None` if `expr` is none.
    pub(crate) fn of_call(expr: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
        let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
        call.fun().inner().is::<Bounded>().then(|| BoundedCall.over(vec![expr.clone()]))
    }
}

impl Compose for BoundedCall {
    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let before = texts::made();
        let value = parts[0].evaluate(batch)?;
        texts::set_made(before + bytes_of(&value));
        Ok(value)
    }
}

/// A function that fails instead of giving too much text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded(Arc<ScalarUDF>);

impl ScalarUDFImpl for Bounded {
    called!(like 0);

    fn schema_name(&self, _: &[Expr]) -> DfResult<String> {
        Ok(UNNAMED.into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        self.0.coerce_types(types)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        self.0.simplify(args, info)
    }

    fn preimage(&self, args: &[Expr], to: &Expr, i: &SimplifyContext) -> DfResult<PreimageResult> {
        self.0.preimage(args, to, i)
    }

    fn short_circuits(&self) -> bool {
        self.0.short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.0.conditional_arguments(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = rows_of(&args);
        let growth = Growth::new(self.name(), &args.args);
        let few = growth.bytes_of_all(rows).is_some_and(|bytes| bytes <= TEXT_MAX);
        let slices = if few { vec![] } else { slices(rows, |row| growth.bytes(row))? };
        if slices.len() < 2 {
            let value = self.0.invoke_with_args(args)?;
            note(&value, rows)?;
            return Ok(value);
        }
        let mut made = Vec::new();
        for slice in slices {
            let array = self.0.invoke_with_args(sliced(&args, &slice))?.into_array(slice.len())?;
            note(&ColumnarValue::Array(array.clone()), rows)?;
            made.push(array);
        }
        let made: Vec<&dyn Array> = made.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&made)?))
    }
}

/// Notes the text that a call has given, of so many rows; fails if it is too much. Of a single row,
/// which cannot be taken in parts, there may be as much again: what the call was given.
fn note(value: &ColumnarValue, rows: usize) -> DfResult<()> {
    let bytes = bytes_of(value);
    let given = if rows == 1 { TEXT_MAX } else { 0 };
    if bytes > texts::room() + given {
        return Err(TooMuchText::error(rows));
    }
    texts::set_made(texts::made() + bytes);
    Ok(())
}

fn bytes_of(value: &ColumnarValue) -> u64 {
    match value {
        ColumnarValue::Array(array) => text_bytes(array),
        ColumnarValue::Scalar(value) => Lengths::of_scalar(value).of(0),
    }
}

/// Cuts rows that may have as many bytes as `bytes` says into ranges of [`TEXT_MAX`] at most.
fn slices(rows: usize, bytes: impl Fn(usize) -> u64) -> DfResult<Vec<Range<usize>>> {
    let mut slices = Vec::new();
    let (mut start, mut so_far) = (0, 0);
    for row in 0..rows {
        let more = bytes(row);
        if more > TEXT_MAX {
            return Err(TooMuchText::error(1));
        }
        if so_far + more > TEXT_MAX {
            slices.push(start..row);
            (start, so_far) = (row, 0);
        }
        so_far += more;
    }
    slices.push(start..rows);
    Ok(slices)
}

fn sliced(args: &ScalarFunctionArgs, rows: &Range<usize>) -> ScalarFunctionArgs {
    let slice = |arg: &ColumnarValue| match arg {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(rows.start, rows.len())),
        ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.clone()),
    };
    ScalarFunctionArgs {
        args: args.args.iter().map(slice).collect(),
        arg_fields: args.arg_fields.clone(),
        number_rows: rows.len(),
        return_field: args.return_field.clone(),
        config_options: args.config_options.clone(),
    }
}

/// How long the texts of a call may get.
struct Growth<'a> {
    function: &'a str,
    args: &'a [ColumnarValue],
    lengths: Vec<Lengths<'a>>,
}

impl Growth<'_> {
    fn new<'a>(function: &'a str, args: &'a [ColumnarValue]) -> Growth<'a> {
        let lengths = args.iter().map(|arg| match arg {
            ColumnarValue::Array(array) => Lengths::of_array(array),
            ColumnarValue::Scalar(value) => Lengths::of_scalar(value),
        });
        Growth { function, args, lengths: lengths.collect() }
    }

    /// Bytes that the call takes and gives for a row, at most.
    fn bytes(&self, row: usize) -> u64 {
        let length = |i: usize| self.lengths.get(i).map_or(0, |lengths| lengths.of(row));
        let all: u64 = self.lengths.iter().map(|lengths| lengths.of(row)).sum();
        let more = match self.function {
            "repeat" => length(0).saturating_mul(self.number(1, row)),
            // A character of the filling has four bytes at most.
            "lpad" | "rpad" => {
                let width =
                    if self.text(2, row).is_none_or(|fill| fill.is_ascii()) { 1 } else { 4 };
                self.number(1, row).saturating_mul(width)
            }
            "replace" => self.replaced(length(2), row),
            // Every match may bring in parts of the text, besides the replacement.
            "regexp_replace" => (length(0) + 1).saturating_mul(2 * length(2)),
            "concat_ws" => length(0) * self.lengths.len() as u64,
            // A letter of the pattern stands for the name of a month at most.
            "to_char" => 32 * all,
            // Hexadecimal digits.
            "encode" => all,
            // The others give as much as they take, but for letters that are longer in the other
            // case.
            _ => 0,
        };
        all.saturating_add(more)
    }

    /// Bytes that the call takes and gives for so many rows together, at most; `None`: each row is
    /// to be looked at.
    fn bytes_of_all(&self, rows: usize) -> Option<u64> {
        let sums = self.lengths.iter().map(|lengths| lengths.sum_of_all(rows));
        let sums = sums.collect::<Option<Vec<u64>>>()?;
        let all = sums.iter().fold(0, |all: u64, sum| all.saturating_add(*sum));
        let more = match self.function {
            "replace" => match (self.args, &self.lengths[..]) {
                ([_, ColumnarValue::Scalar(what), _], [_, _, by @ Lengths::All(_)]) => {
                    let what = what.try_as_str()??.len().max(1) as u64;
                    (sums[0] / what + rows as u64).saturating_mul(by.of(0))
                }
                _ => return None,
            },
            "to_char" => all.saturating_mul(32),
            "repeat" | "lpad" | "rpad" | "regexp_replace" | "concat_ws" | "encode" => return None,
            _ => 0,
        };
        Some(all.saturating_add(more))
    }

    /// Bytes that REPLACE puts in.
    fn replaced(&self, by: u64, row: usize) -> u64 {
        let (Some(text), Some(what)) = (self.text(0, row), self.text(1, row)) else { return 0 };
        let most = (text.len() / what.len().max(1) + 1) as u64 * by;
        // Counted only where it matters.
        if most <= TEXT_MAX { most } else { text.matches(what).count() as u64 * by }
    }

    fn text(&self, i: usize, row: usize) -> Option<&str> {
        match self.args.get(i)? {
            ColumnarValue::Scalar(value) => value.try_as_str().flatten(),
            ColumnarValue::Array(array) if array.is_null(row) => None,
            ColumnarValue::Array(array) => match array.data_type() {
                DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
                DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
                DataType::Utf8View => Some(array.as_string_view().value(row)),
                _ => None,
            },
        }
    }

    fn number(&self, i: usize, row: usize) -> u64 {
        let number = match self.args.get(i) {
            Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(number)))) => *number,
            Some(ColumnarValue::Array(array)) if array.is_valid(row) => {
                array.as_primitive_opt::<Int64Type>().map_or(0, |numbers| numbers.value(row))
            }
            _ => 0,
        };
        number.max(0) as u64
    }
}

/// `||`, NULL if a side is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Concat;

impl ScalarUDFImpl for Concat {
    called!("||", TWO);

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        first(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = rows_of(&args);
        let [left, right] = &args.args[..] else { return exec_err!("|| has two sides") };
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let joined = concat_elements_dyn(&left, &right)?;
        result_of(&args, joined)
    }
}

/// A constant that fails where it would be written out too often.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Constant;

impl ScalarUDFImpl for Constant {
    called!("constant", ONE_LATE);

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        first(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let constant = first(&args.args)?;
        bounded_array(constant.clone(), args.number_rows)?;
        Ok(constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_where_their_texts_would_be_too_much() {
        let third = TEXT_MAX / 3;
        let cut = slices(7, |_| third).unwrap();
        assert_eq!(cut, [0..3, 3..6, 6..7]);
        let cut = slices(4, |row| if row == 2 { TEXT_MAX } else { 1 }).unwrap();
        assert_eq!(cut, [0..2, 2..3, 3..4]);
        assert_eq!(slices(0, |_| 1).unwrap().len(), 1);
        assert!(slices(3, |row| TEXT_MAX * row as u64).is_err());
        assert!(slices(2, |_| u64::MAX).is_err());
    }

    #[test]
    fn what_a_call_may_give_is_known_before_it_is_made() {
        let text = |text: &str| ColumnarValue::Scalar(ScalarValue::from(text));
        let number = |n: i64| ColumnarValue::Scalar(ScalarValue::from(n));
        for (function, args, bytes) in [
            ("repeat", vec![text("abc"), number(5)], 3 + 15),
            ("repeat", vec![text("abc"), number(-5)], 3),
            ("repeat", vec![text("abc"), number(i64::MAX)], u64::MAX),
            ("lpad", vec![text("abc"), number(10)], 3 + 10),
            ("rpad", vec![text("abc"), number(10), text("é")], 5 + 40),
            ("replace", vec![text("a-b-c"), text("-"), text("1234")], 10 + 24),
            ("encode", vec![text("abc"), text("hex")], 6 + 6),
        ] {
            assert_eq!(Growth::new(function, &args).bytes(0), bytes, "{function}");
        }
        // Too much if every letter were a match, which not all are.
        let long = "ab".repeat(1000);
        let args = vec![text(&long), text("a"), text(&"x".repeat(40_000))];
        assert_eq!(Growth::new("replace", &args).bytes(0), 2000 + 1 + 40_000 + 1000 * 40_000);
    }
}
