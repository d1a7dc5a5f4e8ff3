//! Rows that a query leaves out, told to a source beforehand: it need not read all of them.
//!
//! It is a hint, and changes no result. A row that the query leaves out is there nevertheless, and
//! has its place and its event time, which moves the watermark of its split: who is late and when
//! windows fire must not depend on what a file's statistics allow to leave out. Only the columns
//! at which nobody looks in such a row need not be read.

use arrow::array::ArrayRef;

use crate::compare::Comparison;
use crate::expr::Expr;
use crate::plan::{Node, Plan, Source, Watermark};

/// `column op constant`. Where the column is NULL it does not hold.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Index into the columns that are read.
    pub column: usize,
    /// How to compare.
    pub comparison: Comparison,
    /// One value of the column's type, which is not NULL.
    pub constant: ArrayRef,
}

/// Which rows of a source count.
///
/// In a row on which one of the conditions does not hold, only the columns of `always` are looked
/// at, and those that are declared NOT NULL. The others may be NULL there instead of what they are.
/// The default asks for all of all rows.
#[derive(Debug, Clone, Default)]
pub struct Pruning {
    /// The query leaves a row out unless all of them hold.
    pub conditions: Vec<Condition>,
    /// Columns of those that are read, for event time and watermark.
    pub always: Vec<usize>,
}

impl Pruning {
    /// What a plan needs of one of its sources. A source that several stages take is read whole.
    pub fn of(plan: &Plan, source: usize) -> Pruning {
        Pruning::needed(plan, source).unwrap_or_default()
    }

    fn needed(plan: &Plan, number: usize) -> Option<Pruning> {
        let source = plan.sources.get(number)?;
        let inputs = plan.stages.iter().flat_map(|stage| &stage.inputs);
        let mut takers = inputs.filter(|input| input.from == Node::Source(number));
        let (Some(taker), None) = (takers.next(), takers.next()) else { return None };
        let Some(Expr::Computed(filter)) = &taker.filter else { return None };
        let mut conditions = filter.implies();
        conditions.retain(|condition| condition.column < source.projection.len());
        (!conditions.is_empty()).then_some(())?;
        Some(Pruning { conditions, always: always(source)? })
    }
}

/// The columns that are looked at in every row; `None` if some expression does not say.
fn always(source: &Source) -> Option<Vec<usize>> {
    let mut always = Vec::new();
    for expr in &source.derived {
        always.extend(columns(expr)?);
    }
    if let Some(event_time) = &source.event_time {
        always.push(event_time.column);
        if let Watermark::Expr(expr) = &event_time.watermark {
            always.extend(columns(expr)?);
        }
    }
    // What derived columns are computed of is among them.
    always.retain(|column| *column < source.projection.len());
    always.sort_unstable();
    always.dedup();
    Some(always)
}

fn columns(expr: &Expr) -> Option<Vec<usize>> {
    match expr {
        Expr::Column(column) => Some(vec![*column]),
        Expr::Computed(computed) => computed.columns(),
    }
}
