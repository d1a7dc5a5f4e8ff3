//! Plans of operators.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use millstream_contract::expr::Expr;
use millstream_contract::plan::{self, *};
use millstream_operators::operator::{Program, aggregate, join};

use crate::data::{COLUMNS, RANKED, UNORDERED};

pub(crate) fn key(column: usize) -> Key {
    let (name, data_type) = COLUMNS[column].clone();
    Key { name: name.into(), expr: Expr::Column(column), data_type, nullable: true }
}

pub(crate) fn call(
    function: AggregateFunction,
    columns: &[usize],
    result_type: DataType,
) -> AggregateCall {
    let argument = |column: &usize| Argument {
        expr: Expr::Column(*column),
        data_type: COLUMNS[*column].1.clone(),
        nullable: true,
    };
    AggregateCall {
        name: format!("{function:?}"),
        function,
        arguments: columns.iter().map(argument).collect(),
        filter: None,
        result_type,
        frame: String::new(),
    }
}

/// Sums, extremes, lists, sketches, and values in the order of records.
pub(crate) fn calls() -> Vec<AggregateCall> {
    use AggregateFunction::*;
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    let counted =
        vec![Field::new("value", DataType::Utf8, true), Field::new("count", DataType::Int64, true)];
    let counted = Field::new_list_field(DataType::Struct(counted.into()), true);
    let frequent = DataType::List(Arc::new(counted));
    vec![
        call(Count, &[], DataType::Int64),
        call(Sum, &[2], DataType::Int64),
        call(Sum, &[3], DataType::Float64),
        call(Min, &[4], DataType::Utf8),
        call(ArrayAgg { nulls: false, distinct: true }, &[4], list),
        call(ApproxCountDistinct, &[2], DataType::Int64),
        call(ApproxPercentile(Share::HALF), &[3], DataType::Float64),
        call(ApproxTopK(2), &[4], frequent),
        call(Avg, &[2], DataType::Float64),
        call(Moment(plan::Moment::VarPop), &[3], DataType::Float64),
        call(Last { nulls: false }, &[3], DataType::Float64),
    ]
}

/// Fields of windows, keys and others.
pub(crate) fn schema(
    windows: bool,
    fields: impl IntoIterator<Item = (String, DataType)>,
) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let window = |name: &str| (name.to_string(), time.clone());
    let windows = ["window_start", "window_end", "window_time"].iter().filter(|_| windows);
    let all = windows.map(|name| window(name)).chain(fields);
    Arc::new(Schema::new(all.map(|(name, of)| Field::new(name, of, true)).collect::<Fields>()))
}

pub(crate) fn aggregate(
    window: Option<Window>,
    windows_in_slice: i64,
    keys: &[usize],
    calls: Vec<AggregateCall>,
    lateness_us: i64,
) -> Arc<dyn Program> {
    let names =
        keys.iter().map(|column| (COLUMNS[*column].0.to_string(), COLUMNS[*column].1.clone()));
    let results = calls.iter().flat_map(|call| match &call.result_type {
        DataType::Struct(of) => {
            of.iter().map(|f| (f.name().clone(), f.data_type().clone())).collect()
        }
        other => vec![(call.name.clone(), other.clone())],
    });
    let fired = schema(window.is_some(), names.chain(results));
    let is_shown = |column: &usize| fired.field(*column).name() != UNORDERED;
    let shown: Vec<usize> = (0..fired.fields().len()).filter(is_shown).collect();
    let aggregate = Aggregate {
        windows_in_slice,
        pairs: None,
        window,
        keys: keys.iter().map(|column| key(*column)).collect(),
        aggregates: calls,
        project: shown.iter().map(|column| Expr::Column(*column)).collect(),
        fired: fired.clone(),
        having: None,
    };
    let output = Arc::new(fired.project(&shown).expect("columns of it"));
    Arc::new(
        aggregate::AggregateProgram::new(&aggregate, lateness_us, &output).expect("a good plan"),
    )
}

/// The first rows of each group in an order, or all of them in no order.
pub(crate) fn ranked(ranking: Ranking) -> Vec<AggregateCall> {
    let all = ranking == Ranking::All;
    let (limit, keys) = if all { (u32::MAX, 0) } else { (3, 1) };
    let directions = Directions { descending: u64::from(keys), nulls_last: 0 };
    let best = Best { limit, ranking, keys, directions, keeps_last: false };
    let field = |(name, of): &(&str, DataType)| Field::new(*name, of.clone(), true);
    let row = RANKED.map(|column| field(&COLUMNS[column])).to_vec();
    let rank = field(&(if all { UNORDERED } else { "rank" }, DataType::Int64));
    let result = [&row[usize::from(keys)..], &[rank]].concat();
    let data_type = DataType::Struct(row.into());
    let argument = Argument { expr: Expr::Column(COLUMNS.len()), data_type, nullable: true };
    let call = call(AggregateFunction::Best(best), &[], DataType::Struct(result.into()));
    vec![AggregateCall { arguments: vec![argument], ..call }]
}

pub(crate) fn joined(
    kind: JoinKind,
    window: Option<Window>,
    as_of: bool,
    broadcast: Option<usize>,
    keys: &[usize],
) -> Arc<dyn Program> {
    let windowed = window.is_some_and(|window| window.has_columns());
    let side = |side| move |(name, of): &(&str, DataType)| (format!("{side} {name}"), of.clone());
    let pair =
        schema(windowed, COLUMNS.iter().map(side("left")).chain(COLUMNS.iter().map(side("right"))));
    let join = Join {
        kind,
        window,
        left_inputs: 1,
        left_columns: COLUMNS.len(),
        keys: keys.iter().map(|column| [key(*column), key(*column)]).collect(),
        as_of,
        nulls_are_equal: false,
        broadcast,
        condition: None,
        time: None,
        having: None,
        project: (0..pair.fields().len()).map(Expr::Column).collect(),
        fired: pair.clone(),
        pair: pair.clone(),
    };
    Arc::new(join::JoinProgram::new(&join, 0, &pair).expect("a good plan"))
}
