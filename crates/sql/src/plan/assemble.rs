//! From a graph of lowered queries to the engine's plan, every expression compiled.

mod expanded;
mod joined;
mod looked_up;
mod names;
mod paired;

use millstream_contract::expr::Expr as EngineExpr;
use millstream_contract::plan::{
    self, Aggregate, AggregateCall, Argument, Input, Key, Node, Operator, Plan, Project, Stage,
};

use crate::expr::text::sql_text;
use crate::names::catalog::{INPUT, input_column};
use crate::stages::compiler::{Compiler, each_input};
use crate::stages::graph::{self, Body, Elements, Graph, Makes, Part, Pass};
use crate::stages::lower::{Call, FIRED, Grouped, Places, unique};
use crate::stages::scan::{Needs, finish_operator, finish_output, finish_pass};
use crate::stages::schemas::{
    elements_schema, fired_schema, is_groupable, nullable, output_schema, qualified,
};
use crate::stages::{left_out::Aside, nest::written};
use crate::syntax::prelude::*;
use names::{name_of_rows, name_stages};

/// Compiler and places for the assembly of a graph.
pub(crate) struct Assembler<'a> {
    pub(crate) compiler: Compiler<'a>,
    /// Of each query.
    pub(crate) places: Vec<&'a Places>,
}

/// The error of a query that is planned together with others.
pub(crate) struct Refused {
    pub(crate) query: usize,
    pub(crate) error: SqlError,
}

/// Says which query an error is about.
fn of<T>(query: usize, result: Result<T>) -> std::result::Result<T, Refused> {
    result.map_err(|error| Refused { query, error })
}

/// How rows of a part are taken, in expressions over what it gives.
struct Taking {
    from: Node,
    schema: DFSchema,
    /// Conditions that must hold, the first first.
    filters: Vec<Expr>,
    /// `None`: as they are.
    columns: Option<Vec<Expr>>,
}

/// Conditions and columns of an operator's result, over the fired rows.
struct FiredResult {
    having: Option<EngineExpr>,
    project: Vec<EngineExpr>,
    output: SchemaRef,
}

impl Assembler<'_> {
    /// Puts the plan together.
    pub(crate) fn assemble(
        &self,
        mut graph: Graph,
        asides: &[Aside],
    ) -> std::result::Result<Plan, Refused> {
        graph.pair_sessions();
        graph.prune();
        let mut needs: Vec<Needs> = graph.scans.iter().map(|_| Needs::default()).collect();
        for number in 0..graph.operators.len() {
            let query = graph.operators[number].query;
            of(query, finish_operator(&self.compiler, &mut graph, number, &mut needs))?;
        }
        for number in 0..graph.outputs.len() {
            let query = graph.outputs[number].query;
            of(query, finish_output(&self.compiler, &mut graph, number, &mut needs))?;
        }
        // A reader notes its needs before the node that it reads is finished.
        for number in (0..graph.passes.len()).rev() {
            let query = graph.passes[number].query;
            of(query, finish_pass(&self.compiler, &mut graph, number, &mut needs))?;
        }
        for (number, needs) in needs.iter_mut().enumerate() {
            let table = &graph.scans[number].entry;
            asides.iter().for_each(|aside| needs.also(aside.columns_of(number, table)));
        }
        let windows = graph.windows_over_scans();
        of(0, graph.share_work())?;
        let mut plan = Plan { sources: vec![], stages: vec![], outputs: vec![] };
        for (scan, needs) in graph.scans.iter().zip(needs) {
            plan.sources.push(of(scan.query, needs.read(&self.compiler, scan))?);
        }
        for pass in &graph.passes {
            let stage = of(pass.query, self.pass(pass, &plan))?;
            plan.stages.push(stage);
        }
        for operator in &graph.operators {
            let stage = match &operator.body {
                Body::Grouped(grouped) => self.grouping(&graph, operator, grouped, &plan),
                Body::Joined(joined) => self.join(&graph, operator, joined, &plan),
                Body::Expanded(makes) => self.expanding(&graph, operator, makes, &plan),
            };
            let names = operator.names.iter().cloned().collect();
            plan.stages.push(Stage { names, ..of(operator.query, stage)? });
        }
        let mut known: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, output) in graph.outputs.iter().enumerate() {
            let like = known.entry(output.fingerprint()).or_default();
            let stage = of(output.query, self.output(&graph, number, like, &mut plan))?;
            like.push(number);
            plan.outputs.push(plan::Output { stage, sort: output.sort.clone(), side: false });
        }
        for aside in asides {
            let schemas: Vec<_> = plan.sources.iter().map(|source| source.schema.clone()).collect();
            let any_of = |scan: usize, lists: &[Vec<Expr>]| self.any_of(&schemas[scan], lists);
            of(0, aside.add_to(&mut plan, &windows, &any_of))?;
            let stage = plan.stages.last_mut();
            stage.into_iter().for_each(|stage| stage.names = vec![name_of_rows(&aside.entry.name)]);
        }
        name_stages(&mut plan, graph.passes.len());
        Ok(plan)
    }

    /// True where all conditions of any list hold; `None` if some list is empty, so that all
    /// records pass.
    fn any_of(&self, schema: &SchemaRef, lists: &[Vec<Expr>]) -> Result<Option<EngineExpr>> {
        let all = |list: &Vec<Expr>| list.iter().cloned().reduce(|a, b| a.and(b));
        let Some(each) = lists.iter().map(all).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let Some(any) = each.into_iter().reduce(|a, b| a.or(b)) else { return Ok(None) };
        let schema = qualified(INPUT, schema.as_ref().clone())?;
        self.compiler.compile_filter(&[any], &schema)
    }

    /// The stage of what several readers of a table have in common.
    fn pass(&self, pass: &Pass, plan: &Plan) -> Result<Stage> {
        let from = taken_from(pass.scan, pass.below);
        let schema = qualified(INPUT, schema_of(plan, from)?)?;
        let (filters, columns) = (pass.filters.clone(), Some(pass.columns.clone()));
        let mut names = pass.names.clone();
        let (operator, unnested) = match pass.expands.as_ref().map(|expands| &expands.makes) {
            Some(Makes::Lookup(lookup)) => {
                let taking = Taking { from, schema, filters, columns };
                let (inputs, own) = self.inputs(vec![taking], &names)?;
                return self.lookup(lookup, inputs, &own);
            }
            None => (Operator::Stateless { limit: None, offset: 0 }, None),
            Some(Makes::Elements(Elements { outer, shown, .. })) => {
                let mut taken = names.iter().cloned().collect();
                names.push(unique("$array".into(), &mut taken));
                let elements = shown.iter().map(|(_, element)| *element).collect();
                let operator = Operator::Unnest(plan::Unnest { outer: *outer, elements });
                let (columns, kept) = (&pass.columns, &pass.names);
                (operator, Some(elements_schema(columns, &schema, kept, shown, *outer)?))
            }
        };
        let (inputs, schema) =
            self.inputs(vec![Taking { from, schema, filters, columns }], &names)?;
        let schema = unnested.unwrap_or(schema);
        let output = Arc::new(schema.as_arrow().clone());
        Ok(Stage { names: vec![], inputs, operator, output })
    }

    /// A grouping's stage.
    fn grouping(
        &self,
        graph: &Graph,
        operator: &graph::Operator,
        grouped: &Grouped,
        plan: &Plan,
    ) -> Result<Stage> {
        let [side] = &operator.sides[..] else {
            return Err(SqlError::internal("a grouping of several sides"));
        };
        let over_names = |names: &[String]| names.iter().map(|name| input_column(name)).collect();
        let several = side.parts.len() > 1;
        let names: Vec<String> =
            side.names.iter().filter(|name| side.used.contains(*name)).cloned().collect();
        let mut takings = Vec::new();
        for part in &side.parts {
            let mut taking = self.taking(graph, part, plan, &side.used, &side.filters)?;
            if several && taking.columns.is_none() {
                taking.columns = Some(over_names(&names));
            }
            takings.push(taking);
        }
        let (mut inputs, schema) = self.inputs(takings, &names)?;
        for (number, input) in inputs.iter_mut().enumerate() {
            input.again = !operator.counted.counts(number);
        }
        let mut grouped = grouped.clone();
        if !matches!(side.parts[..], [Part::Scan { columns: None, .. }]) {
            self.simplify_grouped(&mut grouped, &Arc::new(schema.clone()))?;
        }
        let (body, output) = self.aggregate(operator, &grouped, &schema)?;
        Ok(Stage { names: vec![], inputs, operator: body, output })
    }

    /// Number of an output's stage: the stage of the grouping whose result is the output, the stage
    /// of an equal output of `like` (earlier outputs with the same fingerprint), or a new stage.
    fn output(
        &self,
        graph: &Graph,
        number: usize,
        like: &[usize],
        plan: &mut Plan,
    ) -> Result<usize> {
        let output = &graph.outputs[number];
        if let [Part::View { operator, .. }] = output.parts[..]
            && !graph.operators[operator].is_shared()
        {
            return Ok(graph.passes.len() + operator);
        }
        let same = like.iter().find(|before| output.is_like(&graph.outputs[**before]));
        let name = name_of_rows(&output.name);
        if let Some(same) = same.copied() {
            let stage = plan.outputs[same].stage;
            plan.stages[stage].names.push(name);
            return Ok(stage);
        }
        let all: BTreeSet<String> = output.names.iter().cloned().collect();
        let mut takings = Vec::new();
        for part in &output.parts {
            let mut taking = self.taking(graph, part, plan, &all, &[])?;
            if let (None, Part::View { operator, view }) = (&taking.columns, part) {
                let columns = graph.operators[*operator].views[*view].needed();
                taking.columns = Some(columns.map(|column| input_column(&column.name)).collect());
            }
            takings.push(taking);
        }
        let (inputs, schema) = self.inputs(takings, &output.names)?;
        let operator = Operator::Stateless { limit: output.limit, offset: output.offset };
        let output = Arc::new(schema.as_arrow().clone());
        plan.stages.push(Stage { names: vec![name], inputs, operator, output });
        Ok(plan.stages.len() - 1)
    }

    /// Taking of the rows of a part that pass `filters`, with the columns of `used`.
    fn taking(
        &self,
        graph: &Graph,
        part: &Part,
        plan: &Plan,
        used: &BTreeSet<String>,
        filters: &[Expr],
    ) -> Result<Taking> {
        let (number, view) = match part {
            Part::Scan { scan, pass, filters, columns } => {
                let from = taken_from(*scan, *pass);
                let schema = qualified(INPUT, schema_of(plan, from)?)?;
                let (filters, columns) = (filters.clone(), columns.clone());
                return Ok(Taking { from, schema, filters, columns });
            }
            Part::View { operator, view } => (*operator, *view),
        };
        let from = Node::Stage(graph.passes.len() + number);
        let rows = schema_of(plan, from)?;
        let operator = &graph.operators[number];
        if !operator.is_shared() {
            let schema = Arc::new(qualified(INPUT, rows)?);
            let filters = filters.iter().map(|f| self.compiler.simple_filter(f, &schema));
            let filters = filters.collect::<Result<Vec<_>>>()?;
            return Ok(Taking { from, filters, columns: None, schema: schema.as_ref().clone() });
        }
        let schema = Arc::new(qualified(FIRED, rows)?);
        let view = &operator.views[view];
        let names: Vec<String> = view.columns.iter().map(|column| column.name.clone()).collect();
        let columns: Vec<Expr> = view.columns.iter().map(|column| column.expr.clone()).collect();
        let mut conditions = view.having[operator.common_having().len()..].to_vec();
        for filter in filters {
            conditions.push(written(filter, &names, &columns)?);
        }
        let simple = |e: &Expr| self.compiler.simple(e, &schema);
        let filters = conditions.iter().map(|e| self.compiler.simple_filter(e, &schema));
        let filters = filters.collect::<Result<Vec<_>>>()?;
        let columns = names.iter().zip(&columns).filter(|(name, _)| used.contains(*name));
        let columns = columns.map(|(_, column)| simple(column)).collect::<Result<Vec<_>>>()?;
        Ok(Taking { from, filters, columns: Some(columns), schema: schema.as_ref().clone() })
    }

    /// Compiles the takings into inputs whose columns are `names`. Also returns the schema of the
    /// taken rows.
    fn inputs(&self, takings: Vec<Taking>, names: &[String]) -> Result<(Vec<Input>, DFSchema)> {
        let mut common: Option<Vec<Field>> = None;
        for Taking { columns, schema, .. } in &takings {
            let Some(columns) = columns else { continue };
            let shown = output_schema(columns, schema, names)?;
            let Some(common) = &mut common else {
                common = Some(shown.fields().iter().map(|field| field.as_ref().clone()).collect());
                continue;
            };
            for (field, other) in common.iter_mut().zip(shown.fields()) {
                if field.data_type() != other.data_type() {
                    let (a, b) = (field.data_type(), other.data_type());
                    return Err(SqlError::internal(format!("{a} and {b} in one column")));
                }
                field.set_nullable(field.is_nullable() || other.is_nullable());
            }
        }
        let shown = match (common, &takings[..]) {
            (Some(fields), _) => qualified(INPUT, Schema::new(fields))?,
            (None, [taking]) => taking.schema.clone(),
            (None, _) => return Err(SqlError::internal("a stage without inputs")),
        };
        let arrow: SchemaRef = Arc::new(shown.as_arrow().clone());
        let input = |Taking { from, schema, filters, columns }| {
            let (filter, columns) =
                self.compiler.compile_both(&filters, columns.as_deref(), &schema)?;
            let project = columns.map(|columns| Project { columns, schema: arrow.clone() });
            Ok(Input { filter, project, ..Input::all(from) })
        };
        let inputs = takings.into_iter().map(input).collect::<Result<_>>()?;
        Ok((inputs, shown))
    }

    /// The operator of a grouping, whose expressions are over `input`, and what it gives.
    fn aggregate(
        &self,
        operator: &graph::Operator,
        grouped: &Grouped,
        input: &DFSchema,
    ) -> Result<(Operator, SchemaRef)> {
        let keys = self.keys(grouped, input, self.places[operator.query])?;
        let mut compiled = HashMap::new();
        let calls = grouped.aggregates.iter();
        let aggregates =
            calls.map(|call| self.call(call, input, &mut compiled)).collect::<Result<Vec<_>>>()?;
        let types = keys.iter().map(|k: &Key| (k.data_type.clone(), k.nullable)).collect();
        let rows = fired_schema(grouped, types)?;
        let (pairs, fired) = match &grouped.pairs {
            Some(pairs) => self.pairs(pairs, Arc::new(rows))?,
            None => (None, rows),
        };
        let fired = Arc::new(fired);
        let FiredResult { having, project, output } = self.given(operator, &fired)?;
        let body = Aggregate {
            window: operator.window,
            windows_in_slice: 1,
            having,
            project,
            keys,
            aggregates,
            pairs,
            fired: Arc::new(fired.as_arrow().clone()),
        };
        Ok((Operator::Aggregate(body), output))
    }

    /// Result of an operator over the fired rows, whose schema is `fired`.
    fn given(&self, operator: &graph::Operator, fired: &Arc<DFSchema>) -> Result<FiredResult> {
        let (names, columns): (Vec<String>, Vec<Expr>) = match &operator.views[..] {
            [view] => view.needed().map(|c| (c.name.clone(), c.expr.clone())).unzip(),
            _ => {
                let used = operator.fired_used();
                let fields = fired.iter().filter(|(_, field)| used.contains(field.name()));
                fields
                    .map(|(table, field)| (field.name().clone(), Expr::from((table, field))))
                    .unzip()
            }
        };
        let simple = |e: &Expr| self.compiler.simple(e, fired);
        let columns = columns.iter().map(simple).collect::<Result<Vec<_>>>()?;
        let having = operator.common_having().iter();
        let having = having.map(|e| self.compiler.simple_filter(e, fired));
        let having = having.collect::<Result<Vec<_>>>()?;
        Ok(FiredResult {
            having: self.compiler.compile_filter(&having, fired)?,
            project: self.compiler.compile_all(&columns, fired)?,
            output: output_schema(&columns, fired, &names)?,
        })
    }

    fn keys(&self, grouped: &Grouped, input: &DFSchema, places: &Places) -> Result<Vec<Key>> {
        if grouped.keys.len() > KEYS_MAX {
            let message = format!(
                "the query groups by {} values; at most {KEYS_MAX} are possible",
                grouped.keys.len()
            );
            return Err(SqlError::unsupported(message)
                .at(places.group_by.or(places.distinct).or(places.union))
                .help("join some of them into one, for example CONCAT_WS('|', a, b)"));
        }
        let key = |expr: &Expr| {
            let name = sql_text(expr);
            let data_type = expr.get_type(input)?;
            if !is_groupable(&data_type) {
                let message = format!(
                    "values of type {} cannot be grouped by: {name}",
                    sql_type_name(&data_type)
                );
                return Err(SqlError::types(message)
                    .at(places.group_by.or(places.distinct).or(places.union))
                    .help(match is_nested(&data_type) {
                        true => "group by what it is made of: row.field, array[1], map['key']",
                        false => "cast it to a string or a number",
                    }));
            }
            let nullable = nullable(expr, input);
            Ok(Key { name, expr: self.compiler.compile(expr, input)?, data_type, nullable })
        };
        grouped.keys.iter().map(key).collect()
    }

    /// Calls over the same argument share what computes it.
    fn call(
        &self,
        call: &Call,
        input: &DFSchema,
        compiled: &mut HashMap<Expr, EngineExpr>,
    ) -> Result<AggregateCall> {
        let (arguments, filter) = protected(call);
        let mut compile = |expr: &Expr| match compiled.get(expr) {
            Some(known) => Ok(known.clone()),
            None => {
                let new = self.compiler.compile(expr, input)?;
                compiled.insert(expr.clone(), new.clone());
                Ok::<EngineExpr, SqlError>(new)
            }
        };
        let mut argument = |expr: &Expr| {
            let (data_type, nullable) = (expr.get_type(input)?, nullable(expr, input));
            Ok::<_, SqlError>(Argument { expr: compile(expr)?, data_type, nullable })
        };
        Ok(AggregateCall {
            name: call.shown(),
            function: call.function,
            arguments: arguments.iter().map(&mut argument).collect::<Result<_>>()?,
            filter: filter.as_ref().map(compile).transpose()?,
            result_type: call.result_type.clone(),
            frame: call.place.as_ref().map_or(String::new(), Place::frame),
        })
    }

    /// Simplifies the expressions that a grouping computes of its input.
    fn simplify_grouped(&self, grouped: &mut Grouped, schema: &Arc<DFSchema>) -> Result<()> {
        let value = |expr: Expr| self.compiler.simple(&expr, schema);
        each_input(grouped, &value, &|filter| self.compiler.simple_filter(&filter, schema))
    }
}

fn schema_of(plan: &Plan, node: Node) -> Result<Schema> {
    let schema = plan.schema_of(node).map_err(SqlError::internal)?;
    Ok(schema.as_ref().clone())
}

/// Whose rows are taken that are records of a table, or what a pass makes of them.
fn taken_from(scan: usize, pass: Option<usize>) -> Node {
    pass.map_or(Node::Source(scan), Node::Stage)
}

/// A call's arguments and filter. Where an argument is computed, it is computed only of what passes
/// the filter, which it may fail without: it is NULL elsewhere, and aggregates take no notice of
/// that.
fn protected(call: &Call) -> (Vec<Expr>, Option<Expr>) {
    let is_column = |argument: &Expr| matches!(argument, Expr::Column(_));
    let only = |filter: &Expr| {
        let only = |argument: &Expr| {
            let passed = (Box::new(filter.clone()), Box::new(argument.clone()));
            Expr::Case(Case::new(None, vec![passed], None))
        };
        call.arguments.iter().map(only).collect()
    };
    match &call.filter {
        // NULL is a value to some.
        Some(filter) if call.takes_nulls() => (only(filter), Some(filter.clone())),
        Some(filter) if !call.arguments.iter().all(is_column) => (only(filter), None),
        filter => (call.arguments.clone(), filter.clone()),
    }
}

/// Keys of a grouping; the engine has a bit for each.
const KEYS_MAX: usize = 64;
