//! Implications of a condition: comparisons of columns with constants, which a source can check by
//! its statistics.

use datafusion_physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};
use millstream_contract::compare::Comparison;
use millstream_contract::pruning::{AnyOf, Condition};

use crate::expr::lazy::{cannot_fail, sides};
use crate::syntax::prelude::*;

/// Conditions that a disjunction is written out to, and comparisons of one.
const CONDITIONS_MAX: usize = 16;
const ANY_MAX: usize = 256;

/// The conditions that hold wherever `expr` is TRUE. Empty for a condition that may fail: such a
/// condition must see each row as it is.
pub(crate) fn implied(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Vec<AnyOf> {
    if cannot_fail(expr) { conditions(expr, schema) } else { Vec::new() }
}

fn conditions(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Vec<AnyOf> {
    if let Some(both) = sides(expr, true) {
        return both.into_iter().flat_map(|side| conditions(side, schema)).collect();
    }
    if let Some(either) = sides(expr, false) {
        let [left, right] = either.map(|side| conditions(side, schema));
        // `(a AND b) OR c` implies `a OR c` and `b OR c`.
        let pairs = left.iter().flat_map(|a| right.iter().map(move |b| [&a.0[..], &b.0].concat()));
        return pairs.filter(|any| any.len() <= ANY_MAX).take(CONDITIONS_MAX).map(AnyOf).collect();
    }
    let any = match expr.downcast_ref::<InListExpr>() {
        Some(list) if !list.negated() && list.len() <= ANY_MAX => one_of(list, schema),
        _ => condition(expr, schema).map(|condition| vec![condition]),
    };
    any.map(AnyOf).into_iter().collect()
}

/// `column IN (…)` of constants. NULL does not count.
fn one_of(list: &InListExpr, schema: &Schema) -> Option<Vec<Condition>> {
    let values = list.list().iter().map(|value| Some(value.downcast_ref::<Literal>()?.value()));
    let values = values.collect::<Option<Vec<_>>>()?.into_iter().filter(|value| !value.is_null());
    values.map(|value| compared(list.expr(), Comparison::Equal, value, schema)).collect()
}

fn condition(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Condition> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    let comparison = comparison(binary.op())?;
    let (column, comparison, literal) = match binary.right().downcast_ref::<Literal>() {
        Some(literal) => (binary.left(), comparison, literal),
        None => (binary.right(), turned(comparison), binary.left().downcast_ref::<Literal>()?),
    };
    compared(column, comparison, literal.value(), schema)
}

/// A comparison of a column with a constant.
fn compared(
    column: &Arc<dyn PhysicalExpr>,
    comparison: Comparison,
    value: &ScalarValue,
    schema: &Schema,
) -> Option<Condition> {
    let column = column.downcast_ref::<Column>()?.index();
    let same = *schema.fields().get(column)?.data_type() == value.data_type();
    let constant = (same && !value.is_null()).then(|| value.to_array().ok()).flatten()?;
    Some(Condition { column, comparison, constant })
}

/// The comparison of an operator; `None` for an operator of another kind.
pub(crate) fn comparison(op: &Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// `b op a` for `a op b`.
fn turned(comparison: Comparison) -> Comparison {
    use Comparison::*;
    match comparison {
        Equal | NotEqual => comparison,
        Less => Greater,
        LessOrEqual => GreaterOrEqual,
        Greater => Less,
        GreaterOrEqual => LessOrEqual,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type};
    use datafusion_physical_expr::expressions::{NotExpr, binary, col, in_list, lit};

    use super::*;
    use crate::expr::lazy::LazyBoolean;

    #[test]
    fn comparisons_with_constants_are_implied() {
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]);
        let (n, s) = (col("n", &schema).unwrap(), col("s", &schema).unwrap());
        let both = |left, op, right| match op {
            Operator::And | Operator::Or => {
                LazyBoolean::of(&left, op == Operator::And, &right, true)
            }
            op => binary(left, op, right, &schema).unwrap(),
        };
        let less = both(lit(7i64), Operator::Lt, n.clone());
        let text = both(s.clone(), Operator::Eq, lit("x"));
        let null = both(n.clone(), Operator::Eq, lit(ScalarValue::Int64(None)));
        let either = both(less.clone(), Operator::Or, text.clone());
        let not: Arc<dyn PhysicalExpr> = Arc::new(NotExpr::new(text.clone()));
        let all = [less.clone(), text.clone(), null, either, not.clone()];
        let all = all.into_iter().reduce(|a, b| both(a, Operator::And, b)).unwrap();
        let found = implied(&all, &schema);
        let [AnyOf(first), AnyOf(second), AnyOf(any)] = &found[..] else {
            panic!("expected three, found {found:?}")
        };
        let ([first], [second]) = (&first[..], &second[..]) else { panic!("{found:?}") };
        // `7 < n` is `n > 7`.
        assert_eq!((first.column, first.comparison), (0, Comparison::Greater));
        assert_eq!(first.constant.as_primitive::<Int64Type>(), &Int64Array::from(vec![7]));
        assert_eq!((second.column, second.comparison), (1, Comparison::Equal));
        assert_eq!(second.constant.as_string::<i32>(), &StringArray::from(vec!["x"]));
        // `(7 < n OR s = 'x')`.
        let compared = |any: &[Condition]| -> Vec<_> {
            any.iter().map(|one| (one.column, one.comparison)).collect()
        };
        assert_eq!(compared(any), [(0, Comparison::Greater), (1, Comparison::Equal)]);
        let parts = [both(less.clone(), Operator::And, text.clone()), text.clone()];
        let parts = parts.into_iter().reduce(|a, b| both(a, Operator::Or, b)).unwrap();
        let parts: Vec<_> = implied(&parts, &schema).iter().map(|any| compared(&any.0)).collect();
        let is_text = (1, Comparison::Equal);
        assert_eq!(parts, [vec![(0, Comparison::Greater), is_text], vec![is_text, is_text]]);
        let values = vec![lit(1i64), lit(ScalarValue::Int64(None)), lit(3i64)];
        let list = in_list(n.clone(), values, &false, &schema).unwrap();
        let list = implied(&list, &schema).pop().unwrap();
        assert_eq!(compared(&list.0), vec![(0, Comparison::Equal); 2]);
        let unknown = both(not.clone(), Operator::Or, less.clone());
        assert!(implied(&unknown, &schema).is_empty());
        // A condition that may fail sees every row as it is.
        let ratio = both(lit(1i64), Operator::Divide, n);
        let fails = both(ratio, Operator::Gt, lit(0i64));
        assert!(implied(&both(less, Operator::And, fails), &schema).is_empty());
    }
}
