//! `AVG` of integers that `INSERT INTO` writes to a column of integers. Such an `AVG` is an integer
//! in Flink, and a `DOUBLE` here: the column takes the exact mean without its fraction.

use millstream_contract::plan::AggregateFunction;

use crate::expr::{located::within_mark, window_node::WINDOW_COLUMNS};
use crate::names::catalog::{INPUT, input_column};
use crate::stages::lower::{Call, FIRED, Fires, Rows, Stage, fired_column, unique};
use crate::stages::nest::Inner;
use crate::syntax::prelude::*;

/// The type of whole means.
const WHOLE: DataType = DataType::Int64;

impl Stage {
    /// Makes an output column of integers, if it is computed of means of integers, and otherwise of
    /// integers. Returns whether it is.
    pub(crate) fn make_whole(&mut self, column: usize) -> bool {
        let mut stage = self.clone();
        let whole = stage.whole(&self.columns[column]).filter(|whole| whole.has_mean);
        let is_whole = whole.is_some();
        if let Some(whole) = whole {
            stage.columns[column] = whole.expr;
            *self = stage;
        }
        is_whole
    }

    /// The same expression with whole means; `None` if it would not be an integer.
    fn whole(&mut self, expr: &Expr) -> Option<Whole> {
        if let Some(inner) = within_mark(expr) {
            return self.whole(inner);
        }
        let integer = |is: bool| is.then(|| Whole::new(expr.clone(), false));
        match expr {
            Expr::Column(column) => match column.relation.as_ref()?.table() {
                FIRED => self.whole_call(&column.name),
                INPUT => match &mut self.input {
                    Rows::Table(table) => {
                        let declared = table.columns.iter().find(|c| c.name == column.name)?;
                        integer(declared.data_type.is_integer())
                    }
                    Rows::Stages(parts) => whole_of_all(parts, &column.name),
                    _ => None,
                },
                _ => None,
            },
            Expr::Literal(value, _) => integer(value.is_null() || value.data_type().is_integer()),
            // An integer that was made to agree with the mean.
            Expr::Cast(Cast { expr, field }) if field.data_type().is_floating() => {
                self.whole(expr).filter(|whole| !whole.has_mean)
            }
            Expr::Negative(of) => {
                let of = self.whole(of)?;
                Some(Whole::new(Expr::Negative(Box::new(of.expr)), of.has_mean))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) =>
            {
                let (left, right) = (self.whole(left)?, self.whole(right)?);
                let has_mean = left.has_mean || right.has_mean;
                let sides = (Box::new(left.expr), Box::new(right.expr));
                Some(Whole::new(Expr::BinaryExpr(BinaryExpr::new(sides.0, *op, sides.1)), has_mean))
            }
            Expr::ScalarFunction(call) if call.name() == "coalesce" => {
                let args: Option<Vec<Whole>> = call.args.iter().map(|e| self.whole(e)).collect();
                let args = args?;
                let has_mean = args.iter().any(|whole| whole.has_mean);
                let args = args.into_iter().map(|whole| whole.expr).collect();
                Some(Whole::new(call.func.call(args), has_mean))
            }
            _ => None,
        }
    }

    /// A column of what fires: an integer, or a further one for a mean of integers.
    fn whole_call(&mut self, name: &str) -> Option<Whole> {
        let Some(Fires::Grouped(grouped)) = &mut self.fires else { return None };
        let call = grouped.aggregates.iter().find(|call| call.name == name)?;
        if call.result_type.is_integer() {
            return Some(Whole::new(fired_column(name), false));
        }
        if !call.is_mean_of_integers || grouped.pairs.is_some() {
            return None;
        }
        let arguments = match (call.function, &call.arguments[..], &mut self.input) {
            (AggregateFunction::Avg, arguments, _) => arguments.to_vec(),
            // The mean has been computed below.
            (_, [Expr::Column(below)], Rows::Stages(parts)) => {
                vec![whole_of_all(parts, &below.name)?.expr]
            }
            _ => return None,
        };
        let mut taken: HashSet<String> = grouped.key_names.iter().cloned().collect();
        taken.extend(WINDOW_COLUMNS.map(str::to_string));
        taken.extend(grouped.aggregates.iter().map(|call| call.name.clone()));
        let name = unique(name.to_string(), &mut taken);
        let call = Call { name: name.clone(), arguments, result_type: WHOLE, ..call.clone() };
        grouped.aggregates.push(call);
        Some(Whole::new(fired_column(name), true))
    }
}

/// An expression of whole numbers.
struct Whole {
    expr: Expr,
    /// Whether it is made of a mean.
    has_mean: bool,
}

impl Whole {
    fn new(expr: Expr, has_mean: bool) -> Whole {
        let expr = match &expr {
            Expr::Column(_) | Expr::Literal(..) => Expr::Cast(Cast::new(Box::new(expr), WHOLE)),
            _ => expr,
        };
        Whole { expr, has_mean }
    }
}

/// The column of that name of a UNION ALL, or of a query in FROM, with whole means: a further one.
fn whole_of_all(parts: &mut [Inner], name: &str) -> Option<Whole> {
    let names = &parts.first()?.names;
    let at = names.iter().position(|n| n == name)?;
    let further = unique(name.to_string(), &mut names.iter().cloned().collect());
    let mut has_mean = false;
    for part in parts {
        let whole = part.stage.whole(&part.stage.columns[at].clone())?;
        has_mean |= whole.has_mean;
        part.stage.columns.push(whole.expr);
        part.names.push(further.clone());
    }
    Some(Whole::new(input_column(&further), has_mean))
}
