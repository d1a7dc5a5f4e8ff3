//! From logical expressions to the expressions that the engine evaluates per batch.

use arrow::{compute::concat, datatypes::DECIMAL128_MAX_PRECISION, error::ArrowError};
use chrono::{DateTime, Utc};
use datafusion_expr::{
    execution_props::ExecutionProps, physical_planning_context::PhysicalPlanningContext,
};
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, Literal, NegativeExpr,
};
use datafusion_physical_expr::utils::collect_columns;
use datafusion_physical_expr::{ScalarFunctionExpr, create_physical_expr};
use millstream_contract::Error;
use millstream_contract::calendar::{DAY_NS, tick_ns};
use millstream_contract::expr::{Evaluate, Expr as EngineExpr};
use millstream_contract::reads::Reads;
use millstream_contract::texts::{self, TEXT_BYTES_MAX};
use millstream_contract::{compare::CompareColumn, pruning::AnyOf};

use crate::expr::implied::{comparison, implied};
use crate::expr::scalars::{
    BoundedCall, ChoiceExpr, PickExpr, TooMuchText, bounded_array, compare_far, is_field,
    makes_row, picks, text_bytes,
};
use crate::expr::widest::{Widest, check_digits};
use crate::expr::{
    composed::Composed,
    decimals::PlainDecimals,
    lazy::{LazyBoolean, cannot_fail, is_simple, sides},
    located::LocatedExpr,
    nearest::Nearest,
    one_form,
    reads::{Selecting, reads_of},
    remembered::Shared,
    text::sql_text,
};
use crate::syntax::prelude::*;
use crate::syntax::{subscripts::FIELD, types::with_sql_types};

/// An expression over a batch, with its SQL text for messages.
#[derive(Debug)]
struct Compiled {
    physical: Arc<dyn PhysicalExpr>,
    text: String,
    data_type: DataType,
    /// For a condition: comparisons that hold wherever the condition holds.
    implied: Vec<AnyOf>,
    /// Whether the expression only reads a column or a field, and computes no values.
    is_field: bool,
    /// Whether the expression returns existing values.
    is_there: bool,
    /// The place of row numbers, if values are remembered by them.
    row_numbers: Option<usize>,
}

/// Compiles `expr` over batches of `schema`; plain columns stay columns.
pub(crate) fn compile(
    expr: &Expr,
    schema: &DFSchema,
    start_time: DateTime<Utc>,
    config: &Arc<datafusion_common::config::ConfigOptions>,
) -> Result<EngineExpr> {
    compile_with(expr, schema, start_time, config, None)
}

/// Compiles `expr` with calls that another expression may have, too.
pub(crate) fn compile_with(
    expr: &Expr,
    schema: &DFSchema,
    start_time: DateTime<Utc>,
    config: &Arc<datafusion_common::config::ConfigOptions>,
    shared: Option<&Shared>,
) -> Result<EngineExpr> {
    if let Expr::Column(column) = expr {
        return Ok(EngineExpr::Column(schema.index_of_column(column)?));
    }
    let mut props = ExecutionProps::new().with_query_execution_start_time(start_time);
    props.config_options = Some(config.clone());
    let context = PhysicalPlanningContext::default();
    let compared = compare_far(spell_out_lists(expr, schema)?, schema)?;
    let physical = create_physical_expr(&compared, schema, &props, &context)?;
    let physical = harden(physical, schema.as_arrow())?;
    if let Some(comparison) = compare_column(&physical, schema.as_arrow(), expr) {
        return Ok(EngineExpr::Computed(Arc::new(comparison)));
    }
    let data_type = physical.data_type(schema.as_arrow())?;
    let implied = implied(&physical, schema.as_arrow());
    let text = sql_text(expr);
    let is_field = is_field(&physical) || shares_values(&physical, schema.as_arrow());
    let is_there = is_field || picks(&physical, schema.as_arrow());
    let (physical, row_numbers) = match shared {
        Some(shared) => shared.remembering(physical)?,
        None => (physical, None),
    };
    let compiled = Compiled { physical, text, data_type, implied, is_field, is_there, row_numbers };
    Ok(EngineExpr::Computed(Arc::new(compiled)))
}

/// Whether an expression makes a row of columns and fields, whose values the row shares, or of
/// picked values of a fixed length.
fn shares_values(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() else { return false };
    let is_there = |part: &Arc<dyn PhysicalExpr>| {
        part.downcast_ref::<Column>().is_some() || is_field(part) || picks(part, schema)
    };
    makes_row(call.fun()) && !call.args().is_empty() && call.args().iter().all(is_there)
}

/// `column op constant` on integers, which the engine does faster than a general expression.
fn compare_column(
    physical: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    expr: &Expr,
) -> Option<CompareColumn> {
    let binary = physical.downcast_ref::<BinaryExpr>()?;
    let column = binary.left().downcast_ref::<Column>()?.index();
    let constant = match binary.right().downcast_ref::<Literal>()?.value() {
        ScalarValue::Int32(Some(value)) => i64::from(*value),
        ScalarValue::Int64(Some(value)) => *value,
        _ => return None,
    };
    let comparison = comparison(binary.op())?;
    let data_type = schema.field(column).data_type();
    CompareColumn::new(column, data_type, comparison, constant, sql_text(expr))
}

/// Writes the lists within an expression out, where that is needed.
fn spell_out_lists(expr: &Expr, schema: &DFSchema) -> DfResult<Expr> {
    let is_list = |e: &Expr| matches!(e, Expr::InList(_));
    expr.clone().replaced(|e| is_list(e).then(|| spelled_out(e.clone(), schema)).transpose())
}

/// Writes `x IN (…)` as comparisons where DataFusion's own evaluation is not to be relied on: its
/// set of values takes -0.0 for another value than 0.0, and a list of expressions may give NULL for
/// what is plainly not in it.
pub(crate) fn spelled_out(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let Expr::InList(InList { expr, list, negated }) = expr else { return Ok(expr) };
    let constant = list.iter().all(|e| matches!(e, Expr::Literal(..)));
    let reliable = constant && !expr.get_type(schema)?.is_floating();
    if list.is_empty() || reliable {
        return Ok(Expr::InList(InList { expr, list, negated }));
    }
    let equal: Vec<Expr> = list.into_iter().map(|v| expr.as_ref().clone().eq(v)).collect();
    let any = balanced_or(&equal);
    Ok(if negated { Expr::Not(Box::new(any)) } else { any })
}

/// `a OR b OR …` as a tree of little depth.
fn balanced_or(conditions: &[Expr]) -> Expr {
    match conditions {
        [one] => one.clone(),
        many => {
            let (left, right) = many.split_at(many.len() / 2);
            balanced_or(left).or(balanced_or(right))
        }
    }
}

/// Makes arithmetic fail instead of wrapping around, decimals the nearest doubles, comparisons see
/// one NaN and one zero, and AND and OR stop as soon as a row is decided.
fn harden(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> DfResult<Arc<dyn PhysicalExpr>> {
    let hardened = expr.changed_up(|e| {
        let mut own = LocatedExpr::of_mark(&e)
            .or_else(|| BoundedCall::of_call(&e))
            .or_else(|| ChoiceExpr::of_call(&e, schema));
        for of in [PickExpr::of_case, one_form::of_comparison, Nearest::of_cast] {
            own = if own.is_none() { of(&e, schema)? } else { own };
        }
        if let Some(own) = own {
            return Ok(Transformed::yes(own));
        }
        if e.is::<CaseExpr>() {
            let selecting = Selecting::of_fields(&e);
            return Ok(selecting.map_or(Transformed::no(e), Transformed::yes));
        }
        if e.downcast_ref::<ScalarFunctionExpr>().is_some() {
            let widest = Widest::of(&e, &e.data_type(schema)?);
            return Ok(widest.map_or(Transformed::no(e), Transformed::yes));
        }
        if let Some(literal) = e.downcast_ref::<Literal>()
            && let ScalarValue::Decimal128(Some(value), precision, scale) = literal.value()
        {
            check_digits(*value, *precision, *scale)?;
        }
        if let Some(negative) = e.downcast_ref::<NegativeExpr>() {
            let data_type = negative.arg().data_type(schema)?;
            if data_type.is_integer() {
                let zero = Arc::new(Literal::new(ScalarValue::new_zero(&data_type)?));
                let minus = BinaryExpr::new(zero, Operator::Minus, negative.arg().clone());
                return Ok(Transformed::yes(Arc::new(minus.with_fail_on_overflow(true))));
            }
        }
        let Some(binary) = e.downcast_ref::<BinaryExpr>() else {
            let plain = PlainDecimals::when_possible(&e, schema)?;
            return Ok(plain.map_or(Transformed::no(e), Transformed::yes));
        };
        let (left, op, right) = (binary.left(), binary.op(), binary.right());
        match op {
            Operator::Plus | Operator::Minus | Operator::Multiply => {
                let ticks = |of: &Arc<dyn PhysicalExpr>, other| in_ticks(of, other, schema);
                let right = ticks(right, left)?.unwrap_or_else(|| right.clone());
                let left = match op {
                    Operator::Plus => ticks(left, &right)?.unwrap_or_else(|| left.clone()),
                    _ => left.clone(),
                };
                let checked = BinaryExpr::new(left, *op, right);
                let checked: Arc<dyn PhysicalExpr> = Arc::new(checked.with_fail_on_overflow(true));
                let widest = Widest::when_needed(&checked, &checked.data_type(schema)?);
                let plain = PlainDecimals::when_possible(&checked, schema)?;
                Ok(Transformed::yes(widest.or(plain).unwrap_or(checked)))
            }
            Operator::Divide => {
                let widest = Widest::when_needed(&e, &e.data_type(schema)?);
                Ok(widest.map_or(Transformed::no(e), Transformed::yes))
            }
            Operator::And | Operator::Or => {
                let cheap = is_cheap(right, schema);
                Ok(Transformed::yes(LazyBoolean::of(left, *op == Operator::And, right, cheap)))
            }
            _ => Ok(Transformed::no(e)),
        }
    })?;
    Ok(hardened.data)
}

/// Whether evaluation takes a few instructions for a row, and hardly ever fails.
fn is_cheap(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let own = if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        use Operator::{Divide, Minus, Modulo, Multiply, Plus};
        one_form::compares(binary.op())
            || matches!(binary.op(), Plus | Minus | Multiply)
            || matches!(binary.op(), Divide | Modulo) && binary.right().is::<Literal>()
    } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        cast.expr().data_type(schema).is_ok_and(|from| from.is_numeric())
            && cast.cast_type().is_numeric()
    } else if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        [FIELD, "date_part", "isnan", "octet_length"].contains(&call.name())
    } else {
        is_simple(expr)
            || expr.is::<NegativeExpr>()
            || expr.is::<Composed<LocatedExpr>>()
            || expr.is::<Composed<BoundedCall>>()
            || expr.is::<Composed<PickExpr>>()
            || expr.is::<Composed<PlainDecimals>>()
            || expr.is::<Composed<Widest>>()
    };
    own && expr.children().into_iter().all(|part| is_cheap(part, schema))
}

/// A constant interval that is added to times, counted in their ticks: arrow adds intervals through
/// the calendar, which takes hundreds of instructions for each row, and ticks as the integers that
/// they are. Not one of months, which have no number of ticks, nor of days in a time zone, which
/// may have 23 hours.
fn in_ticks(
    interval: &Arc<dyn PhysicalExpr>,
    time: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> DfResult<Option<Arc<dyn PhysicalExpr>>> {
    /// A century, which takes no time out of the calendar.
    const MOST_NS: i128 = 100 * 366 * DAY_NS;
    let Some(literal) = interval.downcast_ref::<Literal>() else { return Ok(None) };
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = literal.value() else {
        return Ok(None);
    };
    let DataType::Timestamp(unit, zone) = time.data_type(schema)? else { return Ok(None) };
    let ns = i128::from(interval.days) * DAY_NS + i128::from(interval.nanoseconds);
    let tick = tick_ns(unit);
    let has_ticks = interval.months == 0 && (interval.days == 0 || zone.is_none());
    if !has_ticks || ns % tick != 0 || ns.abs() > MOST_NS {
        return Ok(None);
    }
    let ticks = i64::try_from(ns / tick).ok();
    let duration = match unit {
        TimeUnit::Second => ScalarValue::DurationSecond(ticks),
        TimeUnit::Millisecond => ScalarValue::DurationMillisecond(ticks),
        TimeUnit::Microsecond => ScalarValue::DurationMicrosecond(ticks),
        TimeUnit::Nanosecond => ScalarValue::DurationNanosecond(ticks),
    };
    Ok(ticks.is_some().then(|| Arc::new(Literal::new(duration)) as Arc<dyn PhysicalExpr>))
}

impl Evaluate for Compiled {
    fn evaluate(&self, batch: &RecordBatch) -> millstream_contract::Result<ArrayRef> {
        if self.is_field {
            // It shares the texts of its row, as a column does.
            let value = self.physical.evaluate(batch);
            let value = value.and_then(|value| value.into_array(batch.num_rows()));
            return value.map_err(|e| self.failed(&e));
        }
        let before = texts::made();
        let array = match self.evaluate_rows(batch, before) {
            Err(error @ Error::TooMuchText { .. }) if batch.num_rows() > 1 => {
                self.evaluate_in_parts(batch, before).map_err(|own| own.unwrap_or(error))?
            }
            evaluated => evaluated?,
        };
        // What was made on the way is gone.
        texts::set_made(before + text_bytes(&array));
        Ok(array)
    }

    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn is_there(&self) -> bool {
        self.is_there
    }

    fn row_numbers(&self) -> Option<usize> {
        self.row_numbers
    }

    fn implies(&self) -> Vec<AnyOf> {
        self.implied.clone()
    }

    fn conjuncts(&self) -> Vec<Arc<dyn Evaluate>> {
        let (mut all, mut rest) = (Vec::new(), vec![&self.physical]);
        while let Some(next) = rest.pop() {
            match sides(next, true) {
                // Alone, a condition meets rows that the conditions before it have decided.
                Some([left, right]) if cannot_fail(right) => rest.extend([right, left]),
                _ => all.push(next),
            }
        }
        let one = |physical: &Arc<dyn PhysicalExpr>| -> Arc<dyn Evaluate> {
            Arc::new(Compiled {
                physical: physical.clone(),
                text: self.text.clone(),
                data_type: DataType::Boolean,
                implied: Vec::new(),
                is_field: false,
                is_there: false,
                row_numbers: None,
            })
        };
        all.into_iter().map(one).collect()
    }

    fn reads(&self) -> Option<Reads> {
        Some(reads_of(&self.physical))
    }

    fn columns(&self) -> Option<Vec<usize>> {
        Some(collect_columns(&self.physical).iter().map(Column::index).collect())
    }
}

impl fmt::Display for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Compiled {
    /// Evaluates all rows at once, beside texts of so many bytes.
    fn evaluate_rows(
        &self,
        batch: &RecordBatch,
        before: u64,
    ) -> millstream_contract::Result<ArrayRef> {
        texts::set_made(before);
        let evaluated = self.physical.evaluate(batch);
        let array = evaluated
            .and_then(|value| bounded_array(value, batch.num_rows()))
            .map_err(|e| self.failed(&e))?;
        if *array.data_type() == self.data_type {
            return Ok(array);
        }
        cast(&array, &self.data_type).map_err(|e| self.failed(&e.into()))
    }

    /// Evaluates half of the rows at a time: what is too much may be what is made on the way, which
    /// goes when they are done. `None` as the error: what is kept of all rows is too much.
    #[cold]
    fn evaluate_in_parts(
        &self,
        batch: &RecordBatch,
        before: u64,
    ) -> std::result::Result<ArrayRef, Option<Error>> {
        let half = batch.num_rows() / 2;
        let halves = [batch.slice(0, half), batch.slice(half, batch.num_rows() - half)];
        let (mut arrays, mut held) = (Vec::new(), before);
        for half in &halves {
            let array = match self.evaluate_rows(half, held) {
                Err(Error::TooMuchText { .. }) if half.num_rows() > 1 => {
                    self.evaluate_in_parts(half, held)?
                }
                // The row's own fault if the row also fails alone.
                Err(Error::TooMuchText { .. }) => {
                    return Err(self.evaluate_rows(half, 0).err());
                }
                evaluated => evaluated.map_err(Some)?,
            };
            held += text_bytes(&array);
            arrays.push(array);
        }
        if held > TEXT_BYTES_MAX {
            return Err(None);
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        concat(&arrays).map_err(|error| Some(error.into()))
    }

    fn failed(&self, error: &DataFusionError) -> Error {
        evaluation_error(error, &self.data_type, shortened(&self.text), None)
    }
}

/// An expression's text as far as a message needs it: constants may be long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// Error of a failed `expression`; a message of a failed part stays unchanged.
pub(crate) fn evaluation_error(
    error: &DataFusionError,
    data_type: &DataType,
    expression: String,
    place: Option<&Place>,
) -> Error {
    if let DataFusionError::External(inner) = error.find_root()
        && let Some(said) = inner.downcast_ref::<Error>()
    {
        return said.clone();
    }
    let (message, help) = describe(error, data_type);
    let frame = place.map_or(String::new(), Place::frame);
    match error.find_root() {
        DataFusionError::External(inner) if inner.is::<TooMuchText>() => {
            Error::TooMuchText { expression, message, frame, help }
        }
        _ => Error::Evaluation { expression, message, frame, help },
    }
}

fn describe(error: &DataFusionError, data_type: &DataType) -> (String, String) {
    let wider = match data_type {
        DataType::Decimal128(DECIMAL128_MAX_PRECISION, _) => {
            "if about 15 digits are enough, cast to DOUBLE first: CAST(x AS DOUBLE)"
        }
        _ => "cast to a wider type first, for example CAST(x AS DECIMAL(38, 0))",
    };
    match error.find_root() {
        DataFusionError::External(inner)
            if let Some(text) = inner.downcast_ref::<TooMuchText>() =>
        {
            (text.to_string(), text.help())
        }
        DataFusionError::ArrowError(error, _) => match &**error {
            ArrowError::DivideByZero => {
                ("division by zero".into(), "write NULLIF(divisor, 0) to get NULL instead".into())
            }
            ArrowError::ArithmeticOverflow(_) if matches!(data_type, DataType::Timestamp(..)) => {
                tidy("Timestamp out of range")
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
    let text = crate::expr::wording::plain(text);
    if let Some(known) = crate::expr::wording::value(text) {
        let help = known.help.unwrap_or_else(|| "TRY_CAST gives NULL where CAST fails".into());
        return (known.message, help);
    }
    let help = if text.to_lowercase().contains("cast") || text.contains("parse") {
        "TRY_CAST gives NULL where CAST fails"
    } else {
        ""
    };
    (crate::syntax::words::lower_first(&with_sql_types(text)), help.into())
}
