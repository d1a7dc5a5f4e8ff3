//! Aggregates that take each value once: `COUNT(DISTINCT x)`, `SUM(DISTINCT x)` and so on.
//!
//! The engine knows no such thing: the plan is made of groupings. For each `x`, one groups by the
//! keys and `x`, so that each value stands in one row. The other aggregates are computed by one
//! grouping by the keys. A last one takes the rows of all, with NULL for what a row does not have,
//! and groups them by the keys again: it counts or adds up the values, and takes the other
//! aggregates as they are, of which there is one for each group.
//!
//! State is spread over the leaders by key and value, so one key with a million values is no hot
//! key, and one row of the result.

use millstream_contract::plan::AggregateFunction;

use crate::expr::{collecting::is_ordered, text::sql_text};
use crate::names::{alike::alike, catalog::input_column};
use crate::stages::counted::Counted;
use crate::stages::lower::{Call, Places, Stage, unique};
use crate::syntax::prelude::*;

/// Values that are to come once.
struct DistinctValues {
    /// Expressions that group rows besides the keys.
    exprs: Vec<Expr>,
    types: Vec<DataType>,
}

/// Source of an aggregate.
enum CallSource {
    /// Of these values.
    Values(usize),
    /// Of an aggregate that takes all.
    Aggregate(usize),
}

impl Stage {
    /// As [`Stage::group`], with aggregates some of which take each value once.
    pub(crate) fn group_values(
        self,
        keys: Vec<Expr>,
        calls: Vec<Call>,
        places: &Places,
    ) -> Result<Stage> {
        if calls.iter().all(|call| call.distinct.is_none()) {
            return self.group(keys, calls, places);
        }
        let (mut values, mut plain, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for call in &calls {
            sources.push(match DistinctValues::of(call) {
                Some(of_call) => {
                    let known =
                        values.iter().position(|known: &DistinctValues| known.are_like(&of_call));
                    CallSource::Values(known.unwrap_or_else(|| {
                        values.push(of_call);
                        values.len() - 1
                    }))
                }
                None => {
                    plain.push(call.clone());
                    CallSource::Aggregate(plain.len() - 1)
                }
            });
        }
        let mut rows = GroupingRows::new(&keys, &values, &plain);
        if !plain.is_empty() {
            let stage = self.clone().group(rows.keys.clone(), plain, places)?;
            rows.add(stage, rows.aggregates());
        }
        for (number, of_one) in values.iter().enumerate() {
            let keys = [&rows.keys[..], &of_one.exprs].concat();
            let mut stage = self.clone();
            if !rows.parts.is_empty() {
                stage.counted = Counted::Nowhere;
            }
            rows.add(stage.group(keys, vec![], places)?, rows.values(number));
        }
        let over = Stage::over_all(rows.parts.clone(), rows.names.clone())?;
        let above = |(call, source): (Call, CallSource)| match source {
            CallSource::Values(number) => rows.once(call, number),
            CallSource::Aggregate(number) => {
                as_computed(call, &rows.names[rows.aggregates().start + number])
            }
        };
        let calls = calls.into_iter().zip(sources).map(above).collect();
        let keys = over.columns[..keys.len()].to_vec();
        over.group(keys, calls, places)
    }
}

impl DistinctValues {
    /// The distinct values of a call with DISTINCT; NULL for rows outside the call's filter.
    fn of(call: &Call) -> Option<DistinctValues> {
        let types = call.distinct.clone()?;
        let passed = |argument: &Expr| once_passed(argument, &call.filter);
        Some(DistinctValues { exprs: call.arguments.iter().map(passed).collect(), types })
    }

    fn are_like(&self, other: &DistinctValues) -> bool {
        self.exprs.len() == other.exprs.len()
            && self.exprs.iter().zip(&other.exprs).all(|(a, b)| alike(Some(a), Some(b)))
    }
}

/// The rows of all groupings: keys, then the values of each that come once, then aggregates.
struct GroupingRows {
    keys: Vec<Expr>,
    types: Vec<DataType>,
    names: Vec<String>,
    /// Where the columns of each begin that come after the keys.
    starts: Vec<usize>,
    parts: Vec<Stage>,
}

impl GroupingRows {
    fn new(keys: &[Expr], values: &[DistinctValues], plain: &[Call]) -> GroupingRows {
        let keys = keys.to_vec();
        let mut taken = HashSet::new();
        let mut names: Vec<String> =
            keys.iter().map(|key| unique(sql_text(key), &mut taken)).collect();
        let (mut starts, mut types) = (Vec::new(), Vec::new());
        for of_one in values {
            starts.push(names.len());
            names.extend(of_one.exprs.iter().map(|expr| unique(sql_text(expr), &mut taken)));
            types.extend(of_one.types.iter().cloned());
        }
        starts.extend([names.len(), names.len() + plain.len()]);
        names.extend(plain.iter().map(|call| unique(call.name.clone(), &mut taken)));
        types.extend(plain.iter().map(|call| call.result_type.clone()));
        GroupingRows { keys, types, names, starts, parts: vec![] }
    }

    /// The columns of values that come once.
    fn values(&self, number: usize) -> std::ops::Range<usize> {
        self.starts[number]..self.starts[number + 1]
    }

    fn aggregates(&self) -> std::ops::Range<usize> {
        self.values(self.starts.len() - 2)
    }

    /// Adds a grouping whose columns are the keys, then these.
    fn add(&mut self, mut stage: Stage, own: std::ops::Range<usize>) {
        let shown = stage.columns.split_off(self.keys.len());
        let mut shown = shown.into_iter();
        for (at, data_type) in (self.keys.len()..).zip(&self.types) {
            let column = own.contains(&at).then(|| shown.next()).flatten();
            stage.columns.push(column.unwrap_or_else(|| null(data_type)));
        }
        self.parts.push(stage);
    }

    /// A call without DISTINCT over values that come once.
    fn once(&self, call: Call, number: usize) -> Call {
        let columns = self.values(number).map(|at| input_column(&self.names[at]));
        let arguments = columns.collect::<Vec<_>>();
        let arguments = match arguments.len() {
            1 => arguments,
            // A COUNT: of what has no NULL.
            _ => {
                let given = arguments.into_iter().map(Expr::is_not_null).reduce(Expr::and);
                let given = given.unwrap_or_else(|| lit(true));
                vec![case(given, lit(true))]
            }
        };
        let mut call = Call { arguments, distinct: None, filter: None, ..call };
        call.name = call.text();
        call
    }
}

/// A call's argument; NULL for rows outside the call's filter.
pub(crate) fn once_passed(argument: &Expr, filter: &Option<Expr>) -> Expr {
    match filter {
        Some(filter) => case(filter.clone(), argument.clone()),
        None => argument.clone(),
    }
}

/// A value where a condition holds, NULL elsewhere.
fn case(condition: Expr, value: Expr) -> Expr {
    Expr::Case(Case::new(None, vec![(Box::new(condition), Box::new(value))], None))
}

/// NULL of a type.
pub(crate) fn null(data_type: &DataType) -> Expr {
    lit(ScalarValue::try_from(data_type).unwrap_or(ScalarValue::Null))
}

/// A computed aggregate: a single row of each group has the value, and all other rows have NULL.
pub(crate) fn as_computed(call: Call, name: &str) -> Call {
    let function = match is_ordered(&call.result_type) {
        true => AggregateFunction::Max,
        // Arrays and the like have no order, so no greatest value.
        false => AggregateFunction::First { nulls: false },
    };
    let arguments = vec![input_column(name)];
    let mut call = Call { arguments, function, distinct: None, filter: None, ..call };
    call.name = call.text();
    call
}
