//! Implications of a condition: comparisons of columns with constants, which a source can check by
//! its statistics.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion_physical_expr::utils::split_conjunction;
use millstream_contract::compare::Comparison;
use millstream_contract::pruning::Condition;

use crate::expr::lazy::cannot_fail;

/// The comparisons that hold wherever `expr` is TRUE. Empty for a condition that may fail: such a
/// condition must see each row as it is.
pub(crate) fn implied(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Vec<Condition> {
    match cannot_fail(expr) {
        true => split_conjunction(expr).into_iter().filter_map(|e| condition(e, schema)).collect(),
        false => Vec::new(),
    }
}

fn condition(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Condition> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    let comparison = comparison(binary.op())?;
    let (column, comparison, literal) = match binary.left().downcast_ref::<Column>() {
        Some(column) => (column, comparison, binary.right().downcast_ref::<Literal>()?),
        None => {
            let column = binary.right().downcast_ref::<Column>()?;
            (column, turned(comparison), binary.left().downcast_ref::<Literal>()?)
        }
    };
    let (column, value) = (column.index(), literal.value());
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
    use datafusion_common::ScalarValue;
    use datafusion_physical_expr::expressions::{NotExpr, binary, col, lit};

    use super::*;

    #[test]
    fn of_a_conjunction_each_comparison_with_a_constant_is_implied() {
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]);
        let (n, s) = (col("n", &schema).unwrap(), col("s", &schema).unwrap());
        let both = |left, op, right| binary(left, op, right, &schema).unwrap();
        let less = both(lit(7i64), Operator::Lt, n.clone());
        let text = both(s.clone(), Operator::Eq, lit("x"));
        let null = both(n.clone(), Operator::Eq, lit(ScalarValue::Int64(None)));
        let either = both(less.clone(), Operator::Or, text.clone());
        let not: Arc<dyn PhysicalExpr> = Arc::new(NotExpr::new(text.clone()));
        let all = [less.clone(), text.clone(), null, either.clone(), not];
        let all = all.into_iter().reduce(|a, b| both(a, Operator::And, b)).unwrap();
        let found = implied(&all, &schema);
        let [first, second] = &found[..] else { panic!("expected two, found {found:?}") };
        // `7 < n` is `n > 7`.
        assert_eq!((first.column, first.comparison), (0, Comparison::Greater));
        assert_eq!(first.constant.as_primitive::<Int64Type>(), &Int64Array::from(vec![7]));
        assert_eq!((second.column, second.comparison), (1, Comparison::Equal));
        assert_eq!(second.constant.as_string::<i32>(), &StringArray::from(vec!["x"]));
        assert!(implied(&either, &schema).is_empty());
        // A condition that may fail sees every row as it is.
        let ratio = both(lit(1i64), Operator::Divide, n);
        let fails = both(ratio, Operator::Gt, lit(0i64));
        assert!(implied(&both(less, Operator::And, fails), &schema).is_empty());
    }
}
