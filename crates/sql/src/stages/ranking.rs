//! `ROW_NUMBER`, `RANK` and `DENSE_RANK` over the rows of a window, or of all input, if it ends:
//! Top-N and deduplication.
//!
//! `ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY x)` is a grouping by what
//! stands behind PARTITION BY, with an aggregate that keeps the first rows of each group
//! ([`Best`]). How many, a condition around the query must say (`WHERE rn <= 10`): it becomes the
//! aggregate's limit, and stays a condition on what fires. The columns of the query become columns
//! that fire.

use arrow::datatypes::Fields;
use datafusion_common::not_impl_err;
use datafusion_expr::expr::{Sort, WindowFunction};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{
    PartitionEvaluator, Window, WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
};
use datafusion_sql::sqlparser::ast;
use millstream_contract::plan::{self, AggregateFunction, Best, Directions, Ranking};

use crate::expr::collected::{UNBOUNDED, name_of};
use crate::expr::scalars::{row_fields, row_of};
use crate::expr::{located::without_marks, udf::called, window_node::WINDOW_COLUMNS};
use crate::stages::lower::{
    Call, Fires, Grouped, Over, Places, Stage, fired_column, indexed, is_window_column, over,
    to_fired, unique, window_column,
};
use crate::stages::windows::assigned::{OfRow, Windows};
use crate::syntax::prelude::*;

/// How a ranking is written.
pub(crate) const FORM: &str = "write SELECT … FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY \
                               window_start, window_end ORDER BY x DESC) AS rn FROM …)\n\
                               WHERE rn <= 10";

/// Ranks up to this may be asked for.
const LIMIT_MAX: i64 = 1_000_000;
/// Sort keys: there is a bit for each.
const KEYS_MAX: usize = 64;

fn ranking_named(name: &str) -> Option<Ranking> {
    match name {
        "row_number" => Some(Ranking::RowNumber),
        "rank" => Some(Ranking::Rank),
        "dense_rank" => Some(Ranking::DenseRank),
        _ => None,
    }
}

/// Whether it is ROW_NUMBER.
pub(crate) fn is_row_number(function: &WindowFunctionDefinition) -> bool {
    match function {
        WindowFunctionDefinition::WindowUDF(function) => {
            ranking_named(function.name()) == Some(Ranking::RowNumber)
        }
        WindowFunctionDefinition::AggregateUDF(_) => false,
    }
}

/// The function of that name, for DataFusion's planner.
pub(crate) fn function(name: &str) -> Option<Arc<WindowUDF>> {
    let ranking = ranking_named(&name.to_lowercase())?;
    let name = ["row_number", "rank", "dense_rank"][ranking as usize];
    Some(Arc::new(WindowUDF::from(RankFunction { name })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RankFunction {
    name: &'static str,
}

impl WindowUDFImpl for RankFunction {
    called!(.name, NONE);

    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs,
    ) -> DfResult<Box<dyn PartitionEvaluator>> {
        not_impl_err!("rankings run in the engine")
    }

    fn field(&self, args: WindowUDFFieldArgs) -> DfResult<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, false)))
    }
}

/// Why a call with OVER does not run, if it does not.
pub(crate) fn refused(call: &ast::Function) -> Option<SqlError> {
    let name = call.name.to_string().to_uppercase();
    let error = |what: &str| SqlError::unsupported(format!("{name} {what}")).help(FORM);
    if ranking_named(&name.to_lowercase()).is_none() {
        if let Some(meant) = closest(&name, ["ROW_NUMBER", "RANK", "DENSE_RANK"].into_iter()) {
            let error = SqlError::name(format!("there is no function '{name}'"));
            return Some(error.help(format!("did you mean {meant}?")));
        }
        let help = "ROW_NUMBER, RANK and DENSE_RANK run over the rows of a window; to aggregate, \
                    write FROM TABLE(TUMBLE(…)) with GROUP BY";
        return Some(
            SqlError::unsupported(format!("{name} with OVER does not run here")).help(help),
        );
    }
    let none = match &call.args {
        ast::FunctionArguments::None => true,
        ast::FunctionArguments::List(list) => list.args.is_empty() && list.clauses.is_empty(),
        ast::FunctionArguments::Subquery(_) => false,
    };
    match &call.over {
        _ if !none || call.filter.is_some() || call.null_treatment.is_some() => {
            Some(error("takes no arguments"))
        }
        Some(ast::WindowType::WindowSpec(spec)) if spec.window_frame.is_some() => {
            Some(error("takes no ROWS or RANGE"))
        }
        Some(ast::WindowType::NamedWindow(_)) => Some(error("takes no named WINDOW")),
        Some(ast::WindowType::WindowSpec(spec)) if spec.order_by.is_empty() => {
            Some(error("needs ORDER BY, which says which rows come first"))
        }
        _ => None,
    }
}

impl Stage {
    /// Lowers a ranking. How many rows are kept is not known yet ([`Grouped::bound_ranking`]).
    pub(crate) fn of_ranking(window: &Window, places: &Places) -> Result<Stage> {
        let stage = Stage::new(&window.input, places)?;
        stage.refuse_after_limit("OVER", places)?;
        let stage = stage.over_groups(window.input.schema());
        let schema = &indexed(window.input.schema());
        let expr = match (&window.window_expr[..], &*window.input) {
            (_, LogicalPlan::Window(_)) | ([] | [_, _, ..], _) => {
                return Err(SqlError::unsupported(
                    "a SELECT with several rankings does not run here",
                )
                .help("rank in one query, and rank its result in another around it"));
            }
            ([expr], _) => expr.clone().unalias_nested().data,
        };
        let Expr::WindowFunction(function) = expr else {
            return Err(SqlError::internal(format!("{expr} where a ranking belongs")));
        };
        let (ranking, keys) = stage.ranked_by(&function, schema, places)?;
        let order = sort_keys(&stage, &function, &keys, schema, places)?;
        let best = stage.best(ranking, &function, schema, places)?;
        let shown: Vec<RankedColumn> =
            stage.columns.iter().map(|column| stage.shown(column, &keys)).collect::<Result<_>>()?;
        let payload = shown.iter().filter_map(|shown| match shown {
            RankedColumn::Payload(value) => Some(value.clone()),
            RankedColumn::Key(_) | RankedColumn::Window(_) => None,
        });
        let argument = row_of(order.into_iter().chain(payload).collect());
        let none = DataType::Struct(Fields::empty());
        let call = Call::new(AggregateFunction::Best(best), none);
        let mut call = Call { arguments: vec![argument], ..call };
        call.name = call.text();
        let mut stage = stage.group(keys, vec![call], places)?;
        let Some(Fires::Grouped(grouped)) = &mut stage.fires else {
            return Err(SqlError::internal("a ranking without a grouping"));
        };
        let mut taken: HashSet<String> = HashSet::from(WINDOW_COLUMNS.map(str::to_string));
        taken.extend(grouped.key_names.iter().cloned());
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (shown, field) in shown.into_iter().zip(window.input.schema().fields()) {
            columns.push(match shown {
                RankedColumn::Key(key) => stage.columns[key].clone(),
                RankedColumn::Window(column) => column,
                RankedColumn::Payload(_) => {
                    let name = unique(field.name().clone(), &mut taken);
                    let nullable = field.is_nullable();
                    fields.push(Field::new(&name, field.data_type().clone(), nullable));
                    fired_column(name)
                }
            });
        }
        let rank = unique("$rank".into(), &mut taken);
        fields.push(Field::new(&rank, DataType::Int64, false));
        columns.push(fired_column(rank));
        let Some(call) = grouped.aggregates.first_mut() else {
            return Err(SqlError::internal("a ranking without its aggregate"));
        };
        call.result_type = DataType::Struct(fields.into());
        stage.columns = columns;
        Ok(stage)
    }

    /// Source of a column of the ranked rows; `keys` are the expressions of PARTITION BY.
    fn shown(&self, column: &Expr, keys: &[Expr]) -> Result<RankedColumn> {
        let key = keys.iter().position(|key| without_marks(key) == without_marks(column));
        let fired = keys.iter().any(is_window_column)
            && self.window.as_ref().is_some_and(Windows::fire_themselves);
        Ok(match (key, over(column)) {
            (Some(key), _) => RankedColumn::Key(key),
            (None, of) if fired && of.window && !of.input => {
                RankedColumn::Window(to_fired(column.clone())?)
            }
            _ => RankedColumn::Payload(self.without_window(column.clone())?),
        })
    }

    /// How many rows are the first, as far as is known, and of what order.
    fn best(
        &self,
        ranking: Ranking,
        function: &WindowFunction,
        schema: &crate::expr::indexed::Indexed,
        places: &Places,
    ) -> Result<Best> {
        let order = &function.params.order_by;
        // By time alone, the latest first: the first row is the last that came, as in Flink.
        let keeps_last = match &order[..] {
            [Sort { expr, asc: false, .. }] if ranking == Ranking::RowNumber => {
                let time = without_marks(&self.substitute(expr, schema, places)?);
                let field = Field::new("", expr.get_type(schema)?, true);
                time == window_column(WINDOW_COLUMNS[2]) || self.check_time(&time, &field).is_ok()
            }
            _ => false,
        };
        let (keys, directions) = (order.len() as u8, directions(function));
        Ok(Best { limit: UNBOUNDED, ranking, keys, directions, keeps_last })
    }

    /// The ranking function, and the keys of PARTITION BY.
    fn ranked_by(
        &self,
        function: &WindowFunction,
        schema: &crate::expr::indexed::Indexed,
        places: &Places,
    ) -> Result<(Ranking, Vec<Expr>)> {
        let ranking = match &function.fun {
            WindowFunctionDefinition::WindowUDF(function) => ranking_named(function.name()),
            WindowFunctionDefinition::AggregateUDF(_) => None,
        };
        let Some(ranking) = ranking else {
            return Err(SqlError::internal("OVER with another function"));
        };
        let mut keys: Vec<Expr> = Vec::new();
        for key in self.substitute_all(&function.params.partition_by, schema, places)? {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        // What else a row tells of the window is the same of all rows that are ranked together.
        if let Some(windows) = self.window.as_ref().filter(|own| !own.fire_themselves()) {
            let determined = windows.determined_by(&keys);
            keys.extend(determined.into_iter().filter(|column| self.columns.contains(column)));
        }
        let assigned = self.window.as_ref().is_some_and(|windows| windows.assignment().is_some());
        if assigned && !keys.iter().any(is_window_column) {
            let message = format!("{} ranks the rows of one window", name_of(ranking));
            return Err(SqlError::unsupported(message).at(places.over).help(format!(
                "name the window's columns: PARTITION BY window_start, window_end{}\n\
                 (or rank the table without its windows, if its input ends)",
                if keys.is_empty() { "" } else { ", …" }
            )));
        }
        Ok((ranking, keys))
    }
}

impl Windows {
    /// The columns of the window that rows with equal `keys` have in common, but for the keys.
    fn determined_by(&self, keys: &[Expr]) -> Vec<Expr> {
        let columns = WINDOW_COLUMNS.map(window_column);
        let has_end = columns[1..].iter().any(|end| keys.contains(end));
        let determined = match (&self.of_row, self.kind) {
            _ if !keys.iter().any(is_window_column) => &[],
            // Some that begin together end at different times, and the other way round.
            (_, plan::Window::Cumulate(_)) if !has_end => &[],
            (OfRow::Inherited(_), plan::Window::Session(_)) if !has_end => &[],
            (OfRow::Inherited(_), plan::Window::Session(_)) => &columns[1..],
            _ => &columns[..],
        };
        determined.iter().filter(|column| !keys.contains(column)).cloned().collect()
    }
}

/// Source of a column of the ranked rows.
enum RankedColumn {
    /// The key with this number.
    Key(usize),
    /// The window, over what fires.
    Window(Expr),
    /// The row: kept beside its sort keys.
    Payload(Expr),
}

/// Sort keys of a ranking. Leaves out columns that `keys` determine, since rows that are ranked
/// together have equal values there.
fn sort_keys(
    stage: &Stage,
    function: &WindowFunction,
    keys: &[Expr],
    schema: &crate::expr::indexed::Indexed,
    places: &Places,
) -> Result<Vec<Expr>> {
    let determined = stage.window.as_ref().map_or(vec![], |windows| windows.determined_by(keys));
    let is_determined =
        |name: &str| keys.iter().chain(&determined).any(|of| *of == window_column(name));
    let mut order = Vec::new();
    for sort in &function.params.order_by {
        let data_type = sort.expr.get_type(schema)?;
        if is_nested(&data_type) {
            let of = sql_type_name(&data_type);
            let message = format!("rows cannot be ordered by values of type {of}");
            return Err(SqlError::types(message)
                .at(places.statement)
                .help("order by what it is made of: row.field, array[1], map['key']"));
        }
        let expr = stage.substitute(&sort.expr, schema, places)?;
        order.push(match over(&expr) {
            Over { window: true, input: false }
                if expr.column_refs().iter().all(|column| is_determined(&column.name)) =>
            {
                lit(true)
            }
            _ => stage.without_window(expr)?,
        });
    }
    if order.is_empty() || order.len() > KEYS_MAX {
        let message = format!("a ranking has 1 to {KEYS_MAX} sort keys, not {}", order.len());
        return Err(SqlError::unsupported(message).at(places.statement).help(FORM));
    }
    Ok(order)
}

/// The directions of the sort keys. As in Flink, NULLs are least.
fn directions(function: &WindowFunction) -> Directions {
    let mut directions = Directions::default();
    for (at, sort) in function.params.order_by.iter().enumerate().take(KEYS_MAX) {
        directions.descending |= u64::from(!sort.asc) << at;
        directions.nulls_last |= u64::from(!sort.nulls_first) << at;
    }
    directions
}

impl Grouped {
    /// Name of the function that ranks the rows of each group, if rows are ranked.
    pub(crate) fn ranking_name(&self) -> Option<&'static str> {
        match self.ranking()?.function {
            AggregateFunction::Best(best) => Some(name_of(best.ranking)),
            _ => None,
        }
    }

    fn ranking(&self) -> Option<&Call> {
        self.aggregates.iter().find(|call| call.is_ranking())
    }

    /// Takes note of how many rows a condition on what fires lets through. Whether the condition
    /// has changed the ranking.
    pub(crate) fn bound_ranking(&mut self, condition: &Expr) -> bool {
        let ranking = self.aggregates.iter_mut().find(|call| call.is_ranking());
        let Some(call) = ranking else { return false };
        let rank = call.ranked_names().pop().map(fired_column);
        let AggregateFunction::Best(best) = &mut call.function else { return false };
        let Some(limit) = rank.and_then(|rank| bound(&without_marks(condition), &rank)) else {
            return false;
        };
        let limit = best.limit.min(limit.clamp(1, LIMIT_MAX + 1) as u32);
        std::mem::replace(&mut best.limit, limit) != limit
    }

    /// Checks that a ranking, if any, has a bound.
    pub(crate) fn check_ranking(&self) -> Result<()> {
        let Some(AggregateFunction::Best(best)) = self.ranking().map(|call| call.function) else {
            return Ok(());
        };
        let name = name_of(best.ranking);
        if best.ranking == Ranking::All {
            return Ok(());
        }
        if best.limit == UNBOUNDED {
            let message = format!("{name} needs a condition that bounds it, around its query");
            return Err(SqlError::unsupported(message).help(FORM));
        }
        if i64::from(best.limit) > LIMIT_MAX {
            let message = format!("{name} keeps up to {LIMIT_MAX} rows of a group");
            return Err(SqlError::unsupported(message).help("bound it by less, or leave it out"));
        }
        Ok(())
    }

    /// Whether both rank in the same way, or neither does.
    pub(crate) fn ranks_like(&self, other: &Grouped) -> bool {
        match (self.ranking(), other.ranking()) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_like(other),
            _ => false,
        }
    }

    /// Whether an aggregate depends on the order of records.
    pub(crate) fn is_ordered(&self) -> bool {
        use AggregateFunction::*;
        let unordered = |call: &Call| {
            matches!(call.function, Count | Sum | Min | Max | Avg | Bits(_) | Moment(_))
                || matches!(call.function, ApproxCountDistinct | ApproxPercentile(_))
        };
        !self.aggregates.iter().all(unordered)
    }

    /// Whether an aggregate's result depends on the order of rows that are equal in the argument.
    pub(crate) fn tells_apart(&self) -> bool {
        use AggregateFunction::Best;
        let takes_equal_ones =
            |call: &Call| matches!(call.function, Best(best) if best.ranking != Ranking::RowNumber);
        self.is_ordered() && !self.aggregates.iter().all(takes_equal_ones)
    }
}

/// The greatest rank that passes a condition; `None` without an upper bound.
pub(crate) fn bound(condition: &Expr, rank: &Expr) -> Option<i64> {
    let number = |expr: &Expr| match expr {
        Expr::Literal(value, _) => match value.cast_to(&DataType::Int64).ok()? {
            ScalarValue::Int64(number) if value.data_type().is_integer() => number,
            _ => None,
        },
        _ => None,
    };
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            match (bound(left, rank), bound(right, rank)) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (op, value) = match (**left == *rank, **right == *rank) {
                (true, _) => (*op, number(right)?),
                (_, true) => (op.swap()?, number(left)?),
                _ => return None,
            };
            match op {
                Operator::LtEq | Operator::Eq => Some(value),
                Operator::Lt => Some(value.saturating_sub(1)),
                _ => None,
            }
        }
        Expr::Between(Between { expr, negated: false, high, .. }) if **expr == *rank => {
            number(high)
        }
        _ => None,
    }
}

impl Call {
    /// Whether it gives the first rows of each group.
    pub(crate) fn is_ranking(&self) -> bool {
        matches!(self.function, AggregateFunction::Best(_))
    }

    /// The columns of a ranking, the rank last; empty for other aggregates.
    pub(crate) fn ranked_names(&self) -> Vec<String> {
        match (self.function, &self.result_type) {
            (AggregateFunction::Best(_), DataType::Struct(fields)) => {
                fields.iter().map(|field| field.name().clone()).collect()
            }
            _ => vec![],
        }
    }

    /// Leaves out the columns of a ranking that nobody needs.
    pub(crate) fn keep(&mut self, used: &BTreeSet<String>) {
        let (AggregateFunction::Best(best), DataType::Struct(fields)) =
            (self.function, &self.result_type)
        else {
            return;
        };
        let Some((rank, columns)) = fields.split_last() else { return };
        let arguments = self.arguments.first().and_then(row_fields).unwrap_or_default();
        let (keys, values) = arguments.split_at(usize::from(best.keys).min(arguments.len()));
        let kept = columns.iter().zip(values).filter(|(field, _)| used.contains(field.name()));
        let (mut fields, values): (Vec<FieldRef>, Vec<Expr>) =
            kept.map(|(field, value)| (field.clone(), value.clone())).unzip();
        fields.push(rank.clone());
        let mut arguments: Vec<Expr> = keys.iter().cloned().chain(values).collect();
        if arguments.is_empty() {
            // A row has a field, though nobody asks for one.
            arguments.push(lit(true));
        }
        self.arguments = vec![row_of(arguments)];
        self.result_type = DataType::Struct(fields.into());
    }

    /// Whether NULL is a value to it, like others.
    pub(crate) fn takes_nulls(&self) -> bool {
        use AggregateFunction::*;
        match self.function {
            First { nulls } | Last { nulls } | ArrayAgg { nulls, .. } => nulls,
            _ => false,
        }
    }
}
