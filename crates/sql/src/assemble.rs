//! From lowered stages to the engine's plan: it chooses the columns to read and compiles every
//! expression.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use chrono::{DateTime, Utc};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DFSchema, ExprSchema};
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{BinaryExpr, Case, Cast, Expr, ExprSchemable, Operator};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use millstream_contract::expr::Expr as EngineExpr;
use millstream_contract::plan::{
    self, Aggregate, AggregateCall, EventTime, Input, Key, Node, Operator as PlanOperator, Output,
    Plan, Project, Source,
};
use millstream_contract::table::Table;

use crate::catalog::{INPUT, TableEntry, WatermarkDecl, input_column};
use crate::computed::write_out;
use crate::error::{Place, Result, SqlError};
use crate::evaluate::compile;
use crate::located::within_mark;
use crate::lower::{Call, FIRED, Grouped, Places, Rows, Stage};
use crate::nest::Inner;
use crate::scalars::{as_meant, bound_constants, bound_texts};
use crate::size::check_growth;
use crate::text::sql_text;
use crate::tumble::{WINDOW_COLUMNS, WINDOW_TYPE};
use crate::types::sql_type_name;

/// What compiling needs to know besides the stage.
pub(crate) struct Assembler<'a> {
    pub(crate) source: Arc<dyn Table>,
    pub(crate) start_time: DateTime<Utc>,
    pub(crate) config: &'a Arc<ConfigOptions>,
    pub(crate) places: Places,
}

/// The columns of the table that a query needs, and where they are in its batches.
struct Columns {
    projection: Vec<usize>,
    derived: Vec<EngineExpr>,
    schema: DFSchema,
}

impl Assembler<'_> {
    /// Puts the plan together; `names` are those of the output columns.
    pub(crate) fn assemble(&self, stage: Stage, names: &[String]) -> Result<Plan> {
        let mut plan = Plan { sources: vec![], stages: vec![], outputs: vec![] };
        let (mut stage, mut names) = (stage, names.to_vec());
        let sort = stage.take_sort(&mut names);
        if stage.grouped.is_none() && sort.is_some() && !self.source.bounded() {
            return Err(self.endless_order(&stage));
        }
        let stage = self.add(stage.finish()?, &names, &mut plan)?;
        plan.outputs.push(Output { stage, sort });
        Ok(plan)
    }

    /// Adds a stage, behind those whose rows it takes; returns its number.
    fn add(&self, stage: Stage, names: &[String], plan: &mut Plan) -> Result<usize> {
        let (stage, from, schema) = match &stage.input {
            Rows::Table(table) => {
                let table = table.clone();
                let whole = Arc::new(table_schema(&table)?);
                let stage = self.simplify(write_out(stage, &table)?, &whole)?;
                let source = self.read(&stage, &table)?;
                let schema = qualified(INPUT, source.schema.as_ref().clone())?;
                plan.sources.push(source);
                (stage, Node::Source(plan.sources.len() - 1), schema)
            }
            Rows::Stage(inner) => {
                let Inner { stage: before, names } = inner.pruned(&used_columns(&stage));
                let before = self.add(before, &names, plan)?;
                let schema = qualified(INPUT, plan.stages[before].output.as_ref().clone())?;
                let stage = self.simplify(stage, &Arc::new(schema.clone()))?;
                (stage, Node::Stage(before), schema)
            }
        };
        let filter = conjunction(&stage.filters);
        let filter = filter.map(|f| self.compile(&f, &schema)).transpose()?;
        let (operator, project, output) = match &stage.grouped {
            None => {
                let project = self.project(&stage, &schema, names)?;
                let output = project.schema.clone();
                let (limit, offset) = (stage.limit, stage.offset);
                (PlanOperator::Stateless { limit, offset }, Some(project), output)
            }
            Some(grouped) => {
                let (operator, output) = self.aggregate(&stage, grouped, &schema, names)?;
                (operator, None, output)
            }
        };
        let inputs = vec![Input { from, filter, project }];
        plan.stages.push(plan::Stage { inputs, operator, output });
        Ok(plan.stages.len() - 1)
    }

    /// How the table is read for a stage.
    fn read(&self, stage: &Stage, table: &TableEntry) -> Result<Source> {
        let event_time = match &stage.grouped {
            Some(grouped) if grouped.windowed => table.event_time.as_ref(),
            _ => None,
        };
        let read = self.columns(stage, table, event_time.is_some())?;
        let event_time = match event_time {
            Some(declared) => Some(EventTime {
                column: index(&read.schema, &table.columns[declared.column].name)?,
                watermark: match &declared.watermark {
                    WatermarkDecl::Delay(us) => plan::Watermark::Delay(*us),
                    WatermarkDecl::Expr(expr) => plan::Watermark::Expr(
                        self.compile(&self.simple(expr, table)?, &read.schema)?,
                    ),
                },
                idle_timeout_us: declared.idle_timeout_us,
            }),
            None => None,
        };
        Ok(Source {
            table: self.source.clone(),
            projection: read.projection,
            derived: read.derived,
            schema: Arc::new(read.schema.as_arrow().clone()),
            event_time,
        })
    }

    fn compile(&self, expr: &Expr, schema: &DFSchema) -> Result<EngineExpr> {
        compile(expr, schema, self.start_time, self.config)
    }

    fn project(&self, stage: &Stage, input: &DFSchema, names: &[String]) -> Result<Project> {
        let columns = self.compile_all(&stage.columns, input)?;
        let schema = output_schema(&stage.columns, input, names)?;
        Ok(Project { columns, schema })
    }

    fn compile_all(&self, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<EngineExpr>> {
        exprs.iter().map(|e| self.compile(e, schema)).collect()
    }

    fn aggregate(
        &self,
        stage: &Stage,
        grouped: &Grouped,
        input: &DFSchema,
        names: &[String],
    ) -> Result<(PlanOperator, SchemaRef)> {
        if !grouped.windowed && !self.source.bounded() {
            return Err(self.unbounded(stage));
        }
        if grouped.keys.len() > KEYS_MAX {
            return Err(SqlError::unsupported(format!(
                "the query groups by {} values; at most {KEYS_MAX} are possible",
                grouped.keys.len()
            ))
            .at(self.places.group_by.or(self.places.distinct))
            .help("join some of them into one, for example CONCAT_WS('|', a, b)"));
        }
        let mut keys = Vec::new();
        for expr in &grouped.keys {
            let name = sql_text(expr);
            let data_type = expr.get_type(input)?;
            if !is_groupable(&data_type) {
                return Err(SqlError::types(format!(
                    "values of type {} cannot be grouped by: {name}",
                    sql_type_name(&data_type)
                ))
                .at(self.places.group_by)
                .help("cast it to a string or a number"));
            }
            let nullable = nullable(expr, input);
            keys.push(Key { name, expr: self.compile(expr, input)?, data_type, nullable });
        }
        let mut compiled = HashMap::new();
        let calls = grouped.aggregates.iter();
        let aggregates =
            calls.map(|call| self.call(call, input, &mut compiled)).collect::<Result<Vec<_>>>()?;
        let types = keys.iter().map(|k: &Key| (k.data_type.clone(), k.nullable)).collect();
        let fired = fired_schema(grouped, types)?;
        let having = conjunction(&grouped.having);
        let body = Aggregate {
            window: stage.window.as_ref().filter(|_| grouped.windowed).map(|w| w.tumble),
            having: having.map(|h| self.compile(&h, &fired)).transpose()?,
            project: self.compile_all(&stage.columns, &fired)?,
            keys,
            aggregates,
            fired: Arc::new(fired.as_arrow().clone()),
        };
        Ok((PlanOperator::Aggregate(body), output_schema(&stage.columns, &fired, names)?))
    }

    /// Calls over the same argument share what computes it.
    fn call(
        &self,
        call: &Call,
        input: &DFSchema,
        compiled: &mut HashMap<Expr, EngineExpr>,
    ) -> Result<AggregateCall> {
        let (argument, filter) = protected(call);
        let mut compile = |expr: &Expr| match compiled.get(expr) {
            Some(known) => Ok(known.clone()),
            None => {
                let new = self.compile(expr, input)?;
                compiled.insert(expr.clone(), new.clone());
                Ok::<EngineExpr, SqlError>(new)
            }
        };
        Ok(AggregateCall {
            name: call.text(),
            function: call.function,
            argument: argument.as_ref().map(&mut compile).transpose()?,
            argument_type: argument.as_ref().map_or(Ok(DataType::Null), |e| e.get_type(input))?,
            argument_nullable: argument.is_some_and(|e| nullable(&e, input)),
            filter: filter.as_ref().map(compile).transpose()?,
            result_type: call.result_type.clone(),
            frame: call.place.as_ref().map_or(String::new(), Place::frame),
        })
    }

    fn endless_order(&self, stage: &Stage) -> SqlError {
        SqlError::unsupported(format!(
            "table '{}' never ends, so an ORDER BY would never give a result",
            stage.table().name
        ))
        .at(self.places.order_by.or(self.places.statement))
        .help("leave it out: rows come as they are read")
    }

    fn unbounded(&self, stage: &Stage) -> SqlError {
        let table = stage.table();
        if let Rows::Stage(inner) = &stage.input
            && inner.stage.grouped.as_ref().is_some_and(|grouped| grouped.windowed)
        {
            return SqlError::unsupported(format!(
                "table '{}' never ends, so a GROUP BY over all of its windows would never give a \
                 result",
                table.name
            ))
            .at(self.places.group_by.or(self.places.distinct).or(self.places.statement))
            .help(
                "GROUP BY the columns that hold window_start and window_end, too, or assign longer \
                 windows to the result: TABLE(TUMBLE(TABLE …, DESCRIPTOR(window_time), …))",
            );
        }
        let time = table.time_name();
        let ts = time.unwrap_or("ts");
        let mut help = format!(
            "group by a window, so that results come as time passes:\n\
             SELECT window_start, … FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR({ts}), INTERVAL '10' \
             SECOND))\nGROUP BY window_start, window_end, …",
            table.name
        );
        if time.is_none() {
            help.push_str(&format!(
                "\nand add to CREATE TABLE {}: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
                table.name
            ));
        }
        SqlError::unsupported(format!(
            "table '{}' never ends, so a GROUP BY without a window would never give a result",
            table.name
        ))
        .at(self.places.group_by.or(self.places.statement))
        .help(help)
    }

    /// Simplifies every expression of a stage whose input has these columns.
    fn simplify(&self, mut stage: Stage, schema: &Arc<DFSchema>) -> Result<Stage> {
        let simple = |e: &Expr| self.simple_over(e, schema);
        stage.filters = stage.filters.iter().map(simple).collect::<Result<_>>()?;
        match &mut stage.grouped {
            None => stage.columns = stage.columns.iter().map(simple).collect::<Result<_>>()?,
            Some(grouped) => {
                grouped.keys = grouped.keys.iter().map(simple).collect::<Result<_>>()?;
                for call in &mut grouped.aggregates {
                    call.argument = call.argument.as_ref().map(simple).transpose()?;
                    call.filter = call.filter.as_ref().map(simple).transpose()?;
                }
                let keys = grouped.keys.iter();
                let keys = keys.map(|k| Ok((k.get_type(schema.as_ref())?, nullable(k, schema))));
                let keys = keys.collect::<Result<Vec<_>>>()?;
                let fired = Arc::new(fired_schema(grouped, keys)?);
                let simple = |e: &Expr| self.simple_over(e, &fired);
                grouped.having = grouped.having.iter().map(simple).collect::<Result<_>>()?;
                stage.columns = stage.columns.iter().map(simple).collect::<Result<_>>()?;
            }
        }
        Ok(stage)
    }

    /// Simplifies an expression over the table's columns.
    fn simple(&self, expr: &Expr, table: &TableEntry) -> Result<Expr> {
        self.simple_over(expr, &Arc::new(table_schema(table)?))
    }

    fn simple_over(&self, expr: &Expr, schema: &Arc<DFSchema>) -> Result<Expr> {
        check_growth(expr)?;
        let before = expr.get_type(schema.as_ref())?;
        let expr = as_meant(expr.clone(), schema, self.config)?;
        let context = SimplifyContext::builder()
            .with_schema(schema.clone())
            .with_query_execution_start_time(Some(self.start_time))
            .with_config_options(self.config.clone())
            .build();
        let simplified = ExprSimplifier::new(context).simplify(expr)?;
        // What simplifying put in is bounded, too.
        let simplified = bound_constants(bound_texts(simplified, schema)?)?;
        let after = simplified.get_type(schema.as_ref())?;
        let wanted = plain_type(&before);
        if after == wanted {
            return Ok(simplified);
        }
        Ok(Expr::Cast(Cast::new(Box::new(simplified), wanted)))
    }

    /// Which columns of the table are read and computed for `stage`.
    fn columns(&self, stage: &Stage, table: &TableEntry, with_time: bool) -> Result<Columns> {
        let mut needed = used_columns(stage);
        if let (true, Some(event_time)) = (with_time, &table.event_time) {
            needed.insert(table.columns[event_time.column].name.clone());
            if let WatermarkDecl::Expr(expr) = &event_time.watermark {
                add_columns(expr, &mut needed);
            }
        }
        // A computed column uses those before it, so one pass backwards finds them all.
        for column in table.columns.iter().rev() {
            if let (true, Some(expr)) = (needed.contains(&column.name), &column.computed) {
                add_columns(expr, &mut needed);
            }
        }
        let is_needed = |name: &str| needed.contains(name);
        let physical = table.columns.iter().filter(|c| c.computed.is_none()).enumerate();
        let physical: Vec<_> = physical.filter(|(_, c)| is_needed(&c.name)).collect();
        let projection = physical.iter().map(|(i, _)| *i).collect();
        let mut fields: Vec<Field> = physical
            .iter()
            .map(|(_, c)| Field::new(&c.name, c.data_type.clone(), c.nullable))
            .collect();
        let mut derived = Vec::new();
        for column in &table.columns {
            let Some(expr) = column.computed.as_ref().filter(|_| is_needed(&column.name)) else {
                continue;
            };
            let so_far = qualified(INPUT, Schema::new(fields.clone()))?;
            derived.push(self.compile(&self.simple(expr, table)?, &so_far)?);
            fields.push(Field::new(&column.name, column.data_type.clone(), column.nullable));
        }
        Ok(Columns { projection, derived, schema: qualified(INPUT, Schema::new(fields))? })
    }
}

/// The columns of its input that a stage uses, by name.
fn used_columns(stage: &Stage) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut exprs: Vec<&Expr> = stage.filters.iter().collect();
    match &stage.grouped {
        None => exprs.extend(&stage.columns),
        Some(grouped) => {
            exprs.extend(&grouped.keys);
            let calls = &grouped.aggregates;
            exprs.extend(calls.iter().flat_map(|c| c.argument.iter().chain(&c.filter)));
        }
    }
    exprs.iter().for_each(|e| add_columns(e, &mut used));
    used
}

/// A call's argument and filter. Where the argument is computed, it is computed only of what passes
/// the filter, which it may fail without: it is NULL elsewhere, and aggregates take no notice of
/// that.
fn protected(call: &Call) -> (Option<Expr>, Option<Expr>) {
    match (&call.argument, &call.filter) {
        (Some(argument), Some(filter)) if !matches!(argument, Expr::Column(_)) => {
            let only = vec![(Box::new(filter.clone()), Box::new(argument.clone()))];
            (Some(Expr::Case(Case::new(None, only, None))), None)
        }
        (argument, filter) => (argument.clone(), filter.clone()),
    }
}

pub(crate) fn add_columns(expr: &Expr, names: &mut BTreeSet<String>) {
    names.extend(expr.column_refs().into_iter().map(|c| c.name.clone()));
}

fn index(schema: &DFSchema, name: &str) -> Result<usize> {
    schema
        .index_of_column_by_name(Some(&INPUT.into()), name)
        .ok_or_else(|| SqlError::internal(format!("column '{name}' is not read")))
}

fn qualified(qualifier: &str, schema: Schema) -> Result<DFSchema> {
    Ok(DFSchema::try_from_qualified_schema(qualifier, &schema)?)
}

/// All columns of a table, as lowered expressions name them.
pub(crate) fn table_schema(table: &TableEntry) -> Result<DFSchema> {
    qualified(INPUT, table.schema().as_ref().clone())
}

/// One condition that holds where all hold.
fn conjunction(filters: &[Expr]) -> Option<Expr> {
    let is_true = |e: &&Expr| {
        matches!(e, Expr::Literal(datafusion_common::ScalarValue::Boolean(Some(true)), _))
    };
    filters.iter().filter(|e| !is_true(e)).cloned().reduce(|a, b| a.and(b))
}

/// Keys of a grouping; the engine has a bit for each.
const KEYS_MAX: usize = 64;

/// Types that only DataFusion's functions give, as the engine takes them.
pub(crate) fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Float16 => DataType::Float32,
        DataType::Dictionary(_, value) => plain_type(value),
        other => other.clone(),
    }
}

fn is_groupable(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(data_type, Null | Boolean | Float32 | Float64 | Decimal128(..) | Utf8 | Binary)
        || matches!(data_type, Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..))
        || matches!(data_type, Duration(_))
}

/// Whether NULL can come out. Says yes where it is not plain: DataFusion's functions are not all
/// exact about it.
pub(crate) fn nullable(expr: &Expr, schema: &DFSchema) -> bool {
    if let Some(inner) = within_mark(expr) {
        return nullable(inner, schema);
    }
    match expr {
        Expr::Column(column) => {
            schema.field_from_column(column).map_or(true, |field| field.is_nullable())
        }
        Expr::Literal(value, _) => value.is_null(),
        Expr::IsNull(_) | Expr::IsNotNull(_) => false,
        Expr::Cast(cast) => nullable(&cast.expr, schema),
        Expr::Not(e) | Expr::Negative(e) => nullable(e, schema),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            use Operator::*;
            let known = matches!(op, And | Or | StringConcat | Eq | NotEq | Lt | LtEq | Gt | GtEq)
                || op.is_numerical_operators();
            !known || nullable(left, schema) || nullable(right, schema)
        }
        _ => true,
    }
}

/// What a window yields when it fires; `keys` are the keys' types and whether they can be NULL.
fn fired_schema(grouped: &Grouped, keys: Vec<(DataType, bool)>) -> Result<DFSchema> {
    let mut fields = Vec::new();
    if grouped.windowed {
        fields.extend(WINDOW_COLUMNS.map(|name| Field::new(name, WINDOW_TYPE, false)));
    }
    for (name, (data_type, nullable)) in grouped.key_names.iter().zip(keys) {
        fields.push(Field::new(name, data_type, nullable));
    }
    for call in &grouped.aggregates {
        let nullable = call.function != plan::AggregateFunction::Count;
        fields.push(Field::new(&call.name, call.result_type.clone(), nullable));
    }
    qualified(FIRED, Schema::new(fields))
}

fn output_schema(columns: &[Expr], schema: &DFSchema, names: &[String]) -> Result<SchemaRef> {
    let fields = columns
        .iter()
        .zip(names)
        .map(|(expr, name)| Ok(Field::new(name, expr.get_type(schema)?, nullable(expr, schema))));
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
}

/// The watermark expression's delay, if it is `column` or `column - INTERVAL …`.
pub(crate) fn watermark_delay(expr: &Expr, column: &str) -> Option<i64> {
    match expr {
        e if *e == input_column(column) => Some(0),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right })
            if **left == input_column(column) =>
        {
            let Expr::Literal(value, _) = &**right else { return None };
            crate::tumble::interval_us(value).flatten().filter(|us| *us >= 0)
        }
        _ => None,
    }
}
