//! `JOIN t FOR SYSTEM_TIME AS OF x AS a ON …`: the version of a table that a row is joined with.
//!
//! DataFusion passes over the versions of tables. So in the syntax tree the time becomes one more
//! condition of the join, a call of a *marker* ([`move_times`]). It is taken out again where the
//! join is lowered ([`take_time`]). A version that no join has is refused with the syntax.

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, JoinConstraint, TableVersion, TableWithJoins, Value,
};

use crate::expr::udf::{argument_of, called};
use crate::syntax::prelude::*;
use crate::syntax::{calls::function, tree::constraint};

/// The marker's name, which nobody can write without quotes.
const NAME: &str = "$system_time";

/// A condition that says as of when a table is joined. It is never evaluated.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsOfMarker;

/// The marker, if this is its name.
pub(crate) fn marker(name: &str) -> Option<Arc<ScalarUDF>> {
    (name == NAME).then(|| Arc::new(ScalarUDF::from(AsOfMarker)))
}

impl ScalarUDFImpl for AsOfMarker {
    called!(NAME, ONE, DataType::Boolean);

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        exec_err!("{NAME} outside of a join")
    }
}

/// Makes the versions of joined tables conditions of their joins.
pub(crate) fn move_times(from: &mut [TableWithJoins]) {
    for item in from {
        within(&mut item.relation);
        for join in &mut item.joins {
            within(&mut join.relation);
            let Some(JoinConstraint::On(on)) = constraint(&mut join.join_operator) else {
                continue;
            };
            let TableFactor::Table { version, .. } = &mut join.relation else { continue };
            let Some(TableVersion::ForSystemTimeAsOf(time)) = version else { continue };
            let name = Ident { span: time.span(), ..Ident::new(NAME) };
            let left = Box::new(std::mem::replace(on, SqlExpr::value(Value::Boolean(true))));
            let right = Box::new(function(&name, NAME, vec![time.clone()]));
            *on = SqlExpr::BinaryOp { left, op: BinaryOperator::And, right };
            *version = None;
        }
    }
}

fn within(relation: &mut TableFactor) {
    if let TableFactor::NestedJoin { table_with_joins, .. } = relation {
        move_times(std::slice::from_mut(table_with_joins));
    }
}

/// The time as of which a condition says that a table is joined.
pub(crate) fn time_of(condition: &Expr) -> Option<&Expr> {
    argument_of::<AsOfMarker>(condition)
}

/// Takes the time as of which a table is joined out of the conditions of the join.
pub(crate) fn take_time(on: &mut Vec<Expr>) -> Option<Expr> {
    let at = on.iter().position(|condition| time_of(condition).is_some())?;
    time_of(&on.remove(at)).cloned()
}
