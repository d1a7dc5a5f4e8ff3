//! UNNEST in FROM: `FROM t CROSS JOIN UNNEST(t.items) [WITH ORDINALITY] AS u (x, …)`, `FROM t,
//! UNNEST(…)` and `FROM t LEFT JOIN UNNEST(…) ON TRUE`.
//!
//! sqlparser reads it as a join with a table function. The joins of a table with UNNESTs become one
//! relation ([`fold`]), which is planned here: each UNNEST as a node over what stands before it.

use datafusion_common::{DFSchemaRef, TableReference};
use datafusion_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion_expr::{Extension, Projection, UserDefinedLogicalNodeCore};
use datafusion_sql::sqlparser::ast::{
    FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, TableAlias, TableWithJoins,
    Value,
};
use millstream_contract::plan::{Element, Unnest};
use millstream_contract::wording::counted;

use crate::expr::window_node::over_one_input;
use crate::syntax::prelude::*;
use crate::syntax::{calls::value_of, words::single_part};

const FORM: &str = "write FROM t CROSS JOIN UNNEST(t.items) AS u (item)";

/// Name of the array in UNNEST(…), for the projection below.
const ARRAY: &str = "$array";
/// The column of elements that have no name, as in Flink.
const UNNAMED: &str = "EXPR$0";
/// The column of WITH ORDINALITY without a name.
const ORDINALITY: &str = "ORDINALITY";

/// Each element of the array, or entry of the map, that is the input's last column becomes a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct UnnestNode {
    pub(crate) input: LogicalPlan,
    pub(crate) how: How,
    pub(crate) place: Option<Span>,
    /// Contents of the added columns.
    pub(crate) elements: Vec<Element>,
    schema: DFSchemaRef,
}

over_one_input!(UnnestNode);

impl UnnestNode {
    fn new(input: LogicalPlan, how: How, place: Option<Span>) -> Result<UnnestNode> {
        let mut fields: Vec<(Option<TableReference>, FieldRef)> =
            input.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        let Some((_, array)) = fields.pop() else {
            return Err(SqlError::internal("an UNNEST of nothing"));
        };
        let mut shown = elements_of(array.data_type())?;
        let sole = shown.len() == 1;
        if how.ordinality {
            let position = Field::new(ORDINALITY, DataType::Int32, false);
            shown.push((Element::Ordinality, Arc::new(position)));
        }
        if how.names.len() > shown.len() {
            let message = format!(
                "UNNEST of {} gives {}, not {}",
                sql_type_name(array.data_type()),
                counted(shown.len() as u64, "column"),
                how.names.len()
            );
            return Err(SqlError::name(message).help("name as many, or leave the names out"));
        }
        let qualifier = how.qualifier.as_ref().map(|name| TableReference::bare(name.as_str()));
        let mut elements = Vec::new();
        for (at, (element, field)) in shown.into_iter().enumerate() {
            let whole = sole && element == Element::Whole;
            let name = match (how.names.get(at), &how.qualifier) {
                (Some(name), _) => name.clone(),
                // As in Flink, the name of the table is that of its only column.
                (None, Some(name)) if whole => name.clone(),
                (None, _) => field.name().clone(),
            };
            let nullable = field.is_nullable() || how.outer;
            let field = field.as_ref().clone().with_name(name).with_nullable(nullable);
            elements.push(element);
            fields.push((qualifier.clone(), Arc::new(field)));
        }
        let mut known = HashSet::new();
        if let Some((_, field)) =
            fields.iter().find(|(of, field)| !known.insert((of.clone(), field.name().clone())))
        {
            let message = format!("UNNEST gives a second column '{}'", field.name());
            return Err(SqlError::name(message)
                .help("give its columns other names: UNNEST(…) AS u (name, …)"));
        }
        let schema = DFSchema::new_with_metadata(fields, Default::default()).map_err(|_| {
            SqlError::name("a column that UNNEST gives has the name of another one")
                .help("give its columns names: UNNEST(…) AS u (name, …)")
        })?;
        Ok(UnnestNode { input, how, place, elements, schema: Arc::new(schema) })
    }

    /// The expansion of this node.
    pub(crate) fn body(&self) -> Unnest {
        Unnest { outer: self.how.outer, elements: self.elements.clone() }
    }
}

/// Columns shown of the elements of a column.
fn elements_of(data_type: &DataType) -> Result<Vec<(Element, FieldRef)>> {
    let fields = |of: &[FieldRef], always: bool| {
        let shown = |(at, field): (usize, &FieldRef)| {
            let nullable = field.is_nullable() || !always;
            (Element::Field(at), Arc::new(field.as_ref().clone().with_nullable(nullable)))
        };
        of.iter().enumerate().map(shown).collect()
    };
    match data_type {
        DataType::List(element) => Ok(match element.data_type() {
            DataType::Struct(of) => fields(of, !element.is_nullable()),
            other => {
                let field = Field::new(UNNAMED, other.clone(), element.is_nullable());
                vec![(Element::Whole, Arc::new(field))]
            }
        }),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(of) => Ok(fields(of, true)),
            other => Err(SqlError::internal(format!("a map of {other}"))),
        },
        other => Err(SqlError::types(format!("UNNEST of {}", sql_type_name(other)))
            .help("it takes an ARRAY or a MAP")),
    }
}

impl UserDefinedLogicalNodeCore for UnnestNode {
    fn name(&self) -> &str {
        "Unnest"
    }

    over_one_input!();

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.schema.fields().len() - self.elements.len();
        let names: Vec<&str> =
            self.schema.fields()[kept..].iter().map(|field| field.name().as_str()).collect();
        let outer = if self.how.outer { " or NULL" } else { "" };
        write!(f, "Unnest: {}{outer}", names.join(", "))
    }

    fn with_exprs_and_inputs(
        &self,
        _: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> DfResult<UnnestNode> {
        let input = inputs.pop().unwrap_or_else(|| self.input.clone());
        UnnestNode::new(input, self.how.clone(), self.place).or_else(external)
    }
}

fn external<T>(error: SqlError) -> DfResult<T> {
    Err(error.into())
}

/// How an UNNEST is written, besides what it takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct How {
    pub(crate) outer: bool,
    ordinality: bool,
    /// Of the table of elements, if it has one.
    qualifier: Option<String>,
    /// Of the columns of elements; if there are fewer, the others have names of their own.
    names: Vec<String>,
}

/// Whether a relation is an UNNEST.
pub(crate) fn is_unnest(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, args: Some(_), .. } = factor else { return false };
    single_part(name).is_some_and(|name| name.value.eq_ignore_ascii_case("UNNEST"))
}

/// Makes one relation of each table and the UNNESTs that are joined with it.
pub(crate) fn fold(select: &mut Select) {
    let mut from: Vec<TableWithJoins> = Vec::new();
    for item in std::mem::take(&mut select.from) {
        match from.last_mut() {
            Some(before) if is_unnest(&item.relation) => {
                let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
                before.joins.push(Join { relation: item.relation, global: false, join_operator });
                before.joins.extend(item.joins);
            }
            _ => from.push(item),
        }
    }
    select.from = from.into_iter().map(folded).collect();
}

/// The relations before an UNNEST as a single relation, then the UNNEST and the joins that follow.
fn folded(item: TableWithJoins) -> TableWithJoins {
    let mut folded = TableWithJoins { relation: item.relation, joins: vec![] };
    let within = |joined: TableWithJoins| TableWithJoins {
        relation: TableFactor::NestedJoin { table_with_joins: Box::new(joined), alias: None },
        joins: vec![],
    };
    let mut unnests = false;
    for join in item.joins {
        if is_unnest(&join.relation) != unnests && (unnests || !folded.joins.is_empty()) {
            folded = within(folded);
        }
        unnests = is_unnest(&join.relation);
        folded.joins.push(join);
    }
    if unnests { within(folded) } else { folded }
}

/// Refuses what cannot be done with the joins of a FROM, other than with an UNNEST.
pub(crate) fn check_join(join: &Join) -> Result<()> {
    outer(join).map(|_| ())?;
    let TableFactor::Table { args: Some(call), .. } = &join.relation else { return Ok(()) };
    match &call.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(_))] => Ok(()),
        many => Err(SqlError::unsupported(format!("UNNEST takes one array, not {}", many.len()))
            .at(Span::new(join.relation.span()))
            .help("join with one UNNEST after the other")),
    }
}

/// Whether rows without elements stay.
fn outer(join: &Join) -> Result<bool> {
    let refused = |what: &str, help: &str| {
        let error = SqlError::unsupported(format!("{what} with UNNEST does not run here"));
        Err(error.at(Span::new(join.relation.span())).help(help))
    };
    let is_true = |on: &SqlExpr| matches!(value_of(on), Some(Value::Boolean(true)));
    use JoinOperator::{CrossJoin, Inner, Join as Plain, Left, LeftOuter};
    let (outer, constraint) = match &join.join_operator {
        CrossJoin(constraint) | Inner(constraint) | Plain(constraint) => (false, constraint),
        Left(constraint) | LeftOuter(constraint) => (true, constraint),
        _ => return refused("this kind of join", "CROSS JOIN and LEFT JOIN … ON TRUE do"),
    };
    match constraint {
        JoinConstraint::None if !outer => Ok(false),
        JoinConstraint::On(on) if is_true(on) => Ok(outer),
        JoinConstraint::On(_) => {
            refused("a condition of a join", "write ON TRUE, and the condition in WHERE")
        }
        _ => refused("this kind of join", "write LEFT JOIN UNNEST(…) ON TRUE"),
    }
}

/// Plans tables that are joined with UNNESTs.
#[derive(Debug)]
pub(crate) struct Unnests;

impl RelationPlanner for Unnests {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DfResult<RelationPlanning> {
        let (joined, alias) = match relation {
            TableFactor::NestedJoin { table_with_joins, alias }
                if table_with_joins.joins.iter().any(|join| is_unnest(&join.relation)) =>
            {
                (table_with_joins, alias)
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        let mut plan = context.plan(joined.relation)?;
        for join in joined.joins {
            plan = plan_unnest(plan, join, context)?;
        }
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

fn plan_unnest(
    input: LogicalPlan,
    join: Join,
    context: &mut dyn RelationPlannerContext,
) -> DfResult<LogicalPlan> {
    let place = Span::new(join.relation.span());
    let outer = outer(&join).or_else(external)?;
    let TableFactor::Table { args: Some(call), with_ordinality, alias, .. } = join.relation else {
        return external(SqlError::internal("a join with what is no UNNEST"));
    };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(array))) = call.args.into_iter().next()
    else {
        return external(SqlError::syntax("UNNEST takes an array").at(place).help(FORM));
    };
    let place = Span::new(array.span()).or(place);
    let array = context.sql_to_expr(array, input.schema())?;
    let field = Field::new(ARRAY, array.get_type(input.schema().as_ref())?, true);
    let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut fields: Vec<_> = input.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
    columns.push(array.alias(ARRAY));
    fields.push((None, Arc::new(field)));
    let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
    let input = Projection::try_new_with_schema(columns, Arc::new(input), schema)?;
    let how = how(outer, with_ordinality, alias);
    let node = UnnestNode::new(LogicalPlan::Projection(input), how, place);
    let node = node.or_else(|error| external(error.at(place)))?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

fn how(outer: bool, ordinality: bool, alias: Option<TableAlias>) -> How {
    let name = |name: Ident| name.value;
    let (qualifier, names) = match alias {
        Some(TableAlias { name: table, columns, .. }) => {
            (Some(name(table)), columns.into_iter().map(|column| name(column.name)).collect())
        }
        None => (None, vec![]),
    };
    How { outer, ordinality, qualifier, names }
}
