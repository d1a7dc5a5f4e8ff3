//! Deep expressions in parts. DataFusion works out the type of an expression anew at each of its
//! levels, so that a chain of a thousand `+` takes a million steps. Here a part of few levels
//! becomes a column, whose type is known, for what stands above it.

use crate::syntax::prelude::*;

use datafusion_common::TableReference;
use datafusion_common::tree_node::TreeNode;

/// Levels of a part.
const LEVELS: usize = 30;

/// The qualifier of the columns that stand for parts, which no query can write.
const PART: &str = "$part";

/// Changes an expression over `schema`: as a whole, or part by part. Conditions are not parted if
/// they are to be seen as a `whole`. `change` takes a part and the schema that it is over.
pub(crate) fn by_parts(
    expr: Expr,
    schema: &Arc<DFSchema>,
    whole: bool,
    change: &mut dyn FnMut(Expr, &Arc<DFSchema>) -> DfResult<Expr>,
) -> DfResult<Expr> {
    if !is_deep(&expr) {
        return change(expr, schema);
    }
    let mut parts = PartChanger { schema: schema.clone(), whole, done: vec![], change };
    let (top, _) = parts.cut(expr)?;
    let top = (parts.change)(top, &parts.schema)?;
    put_back(top, &parts.done)
}

/// Whether an expression has more levels than a part.
fn is_deep(expr: &Expr) -> bool {
    fn deeper(expr: &Expr, levels: usize) -> bool {
        let Some(below) = levels.checked_sub(1) else { return true };
        let mut found = false;
        // The result of looking is of no interest: it does not fail.
        let _ = expr.apply_children(|child| {
            found = found || deeper(child, below);
            Ok(TreeNodeRecursion::Continue)
        });
        found
    }
    deeper(expr, LEVELS)
}

struct PartChanger<'a> {
    /// With a column for each part.
    schema: Arc<DFSchema>,
    whole: bool,
    /// The parts, changed, over the columns themselves.
    done: Vec<Expr>,
    change: &'a mut dyn FnMut(Expr, &Arc<DFSchema>) -> DfResult<Expr>,
}

impl PartChanger<'_> {
    /// Rest of an expression above its parts, and the number of levels of the rest.
    fn cut(&mut self, expr: Expr) -> DfResult<(Expr, usize)> {
        let mut levels = 0;
        let left = expr.map_children(|child| {
            let (child, below) = self.cut(child)?;
            levels = levels.max(below + 1);
            Ok(Transformed::yes(child))
        })?;
        match levels < LEVELS || !self.may_part(&left.data) {
            true => Ok((left.data, levels)),
            false => Ok((self.part(left.data)?, 0)),
        }
    }

    fn may_part(&self, expr: &Expr) -> bool {
        match expr {
            Expr::BinaryExpr(binary) => {
                !(self.whole && matches!(binary.op, Operator::And | Operator::Or))
            }
            Expr::ScalarFunction(_) | Expr::Case(_) | Expr::Cast(_) | Expr::TryCast(_) => true,
            _ => false,
        }
    }

    /// Changes a part; the column that stands for it from now on.
    fn part(&mut self, expr: Expr) -> DfResult<Expr> {
        let changed = (self.change)(expr, &self.schema)?;
        if matches!(changed, Expr::Column(_) | Expr::Literal(..)) {
            return Ok(changed);
        }
        // What has no type is wrong, and is left to who says so.
        let Ok((_, field)) = changed.to_field(self.schema.as_ref()) else { return Ok(changed) };
        let name = self.done.len().to_string();
        let field = Arc::new(field.as_ref().clone().with_name(&name));
        let of_parts = TableReference::bare(PART);
        let own = vec![(Some(of_parts.clone()), field)];
        let own = DFSchema::new_with_metadata(own, Default::default())?;
        Arc::make_mut(&mut self.schema).merge(&own);
        self.done.push(put_back(changed, &self.done)?);
        Ok(Expr::Column(Column::new(Some(of_parts), name)))
    }
}

/// An expression with the parts in place of the columns that stand for them.
fn put_back(expr: Expr, parts: &[Expr]) -> DfResult<Expr> {
    expr.replaced(|e| {
        let Expr::Column(Column { relation: Some(of), name, .. }) = e else { return Ok(None) };
        let number = name.parse().ok().filter(|_: &usize| of.table() == PART);
        Ok(number.and_then(|number| parts.get(number)).cloned())
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_common::ScalarValue;
    use datafusion_expr::{Cast, col};

    use super::*;
    use crate::syntax::stack::on_large_stack;

    fn schema() -> Arc<DFSchema> {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int64, true));
        Arc::new(DFSchema::try_from(Schema::new(fields.to_vec())).unwrap())
    }

    fn levels(expr: &Expr) -> usize {
        let mut below = 0;
        expr.apply_children(|child| {
            below = below.max(levels(child) + 1);
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        below
    }

    /// The numbers of levels of all parts.
    fn parted(expr: &Expr, whole: bool) -> Vec<usize> {
        let mut parts = Vec::new();
        let same = by_parts(expr.clone(), &schema(), whole, &mut |part, schema| {
            // All of its columns are known.
            part.get_type(schema.as_ref())?;
            parts.push(levels(&part));
            Ok(part)
        });
        assert_eq!(same.unwrap(), *expr);
        parts
    }

    #[test]
    fn a_chain_is_changed_in_parts_of_few_levels() {
        let tested = on_large_stack(|| {
            chains();
            Ok(())
        });
        tested.unwrap();
    }

    fn chains() {
        let chain = (0..300).fold(col("a"), |chain, _| chain + col("b"));
        // 300 levels of `+`.
        assert_eq!(parted(&chain, false), [vec![LEVELS; 300 / LEVELS], vec![0]].concat());
        let casts = |e| Expr::Cast(Cast::new(Box::new(e), DataType::Int64));
        let casts = (0..100).fold(col("a"), |e, _| casts(e));
        assert!(parted(&casts, false).iter().all(|levels| *levels <= LEVELS));
        assert_eq!(parted(&(col("a") + col("b")), false), [1]);
    }

    #[test]
    fn conditions_can_be_seen_as_a_whole() {
        let tested = on_large_stack(|| {
            conditions();
            Ok(())
        });
        tested.unwrap();
    }

    fn conditions() {
        let equal = |n: i64| col("a").eq(Expr::Literal(ScalarValue::from(n), None));
        let any = (1..100).fold(equal(0), |any, n| any.or(equal(n)));
        assert_eq!(parted(&any, true), [100]);
        assert!(parted(&any, false).len() > 3);
    }

    #[test]
    fn what_becomes_a_constant_is_one_for_what_stands_above() {
        let one = || Expr::Literal(ScalarValue::from(1i64), None);
        let ones = (0..100).fold(one(), |ones, _| ones + one());
        let mut columns = 0;
        let constant = by_parts(ones, &schema(), false, &mut |part, _| {
            columns += usize::from(part.any_column_refs());
            Ok(one())
        });
        assert_eq!((constant.unwrap(), columns), (one(), 0));
    }
}
