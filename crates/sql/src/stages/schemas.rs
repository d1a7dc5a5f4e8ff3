//! The schemas of rows: the types of their columns, and whether these can be NULL.

use datafusion_common::ExprSchema;
use millstream_contract::plan::{AggregateFunction, Element};

use crate::expr::scalars::{exact_operation, within_decided};
use crate::expr::window_node::{WINDOW_COLUMNS, WINDOW_TYPE};
use crate::expr::{aggregates::counts, indexed::Indexed, located::within_mark};
use crate::names::catalog::{INPUT, TableEntry};
use crate::stages::lower::{FIRED, Grouped};
use crate::syntax::prelude::*;
use crate::syntax::types::plain_type;

pub(crate) fn qualified(qualifier: &str, schema: Schema) -> Result<DFSchema> {
    Ok(DFSchema::try_from_qualified_schema(qualifier, &schema)?)
}

/// All columns of a table, as lowered expressions name them.
pub(crate) fn table_schema(table: &TableEntry) -> Result<DFSchema> {
    qualified(INPUT, table.schema().as_ref().clone())
}

pub(crate) fn is_groupable(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(data_type, Null | Boolean | Float32 | Float64 | Decimal128(..) | Utf8 | Binary)
        || matches!(data_type, Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..))
        || matches!(data_type, Duration(_))
}

/// Whether NULL can come out. Says yes where it is not plain: DataFusion's functions are not all
/// exact about it.
pub(crate) fn nullable(expr: &Expr, schema: &dyn ExprSchema) -> bool {
    if let Some(inner) = within_mark(expr) {
        return nullable(inner, schema);
    }
    match expr {
        Expr::Column(column) => {
            schema.field_from_column(column).map_or(true, |field| field.is_nullable())
        }
        Expr::Literal(value, _) => value.is_null(),
        Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::IsUnknown(_) | Expr::IsNotUnknown(_) => false,
        Expr::IsTrue(_) | Expr::IsNotTrue(_) | Expr::IsFalse(_) | Expr::IsNotFalse(_) => false,
        Expr::Cast(cast) => nullable(&cast.expr, schema),
        Expr::Not(e) | Expr::Negative(e) => nullable(e, schema),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            use Operator::*;
            let known = matches!(op, And | Or | StringConcat | Eq | NotEq | Lt | LtEq | Gt | GtEq)
                || op.is_numerical_operators();
            !known || nullable(left, schema) || nullable(right, schema)
        }
        exact if let Some((left, _, right)) = exact_operation(exact) => {
            nullable(left, schema) || nullable(right, schema)
        }
        decided => within_decided(decided).is_none(),
    }
}

/// Schema of fired rows; `keys` are the keys' types and whether a key can be NULL.
pub(crate) fn fired_schema(grouped: &Grouped, keys: Vec<(DataType, bool)>) -> Result<DFSchema> {
    let mut fields = Vec::new();
    if grouped.windowed {
        fields.extend(WINDOW_COLUMNS.map(|name| Field::new(name, WINDOW_TYPE, false)));
    }
    for (name, (data_type, nullable)) in grouped.key_names.iter().zip(keys) {
        fields.push(Field::new(name, data_type, nullable));
    }
    for call in &grouped.aggregates {
        match (call.function, &call.result_type) {
            (AggregateFunction::Best(_), DataType::Struct(of)) => {
                fields.extend(of.iter().map(|field| field.as_ref().clone()));
            }
            (function, data_type) => {
                fields.push(Field::new(&call.name, data_type.clone(), !counts(function)));
            }
        }
    }
    qualified(FIRED, Schema::new(fields))
}

pub(crate) fn output_schema(
    columns: &[Expr],
    schema: &DFSchema,
    names: &[String],
) -> Result<SchemaRef> {
    let schema = &Indexed::new(schema.clone());
    let fields = columns
        .iter()
        .zip(names)
        .map(|(expr, name)| Ok(Field::new(name, expr.get_type(schema)?, nullable(expr, schema))));
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
}

/// The columns of the rows that come out, where `columns` are those that go in, over `schema`: the
/// last is the array.
pub(crate) fn elements_schema(
    columns: &[Expr],
    schema: &DFSchema,
    kept: &[String],
    shown: &[(String, Element)],
    outer: bool,
) -> Result<DFSchema> {
    let mut names = kept.to_vec();
    names.push(String::new());
    let taken = output_schema(columns, schema, &names)?;
    let mut fields: Vec<Field> = taken
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_data_type(plain_type(field.data_type())))
        .collect();
    let array = fields.pop().ok_or_else(|| SqlError::internal("an UNNEST of no column"))?;
    for (name, element) in shown {
        let of = element_type(array.data_type(), *element)
            .ok_or_else(|| SqlError::internal(format!("{element:?} of {}", array.data_type())))?;
        // Not exact where an element of a ROW is never NULL: nobody depends on that.
        fields.push(Field::new(name, of, outer || *element != Element::Ordinality));
    }
    qualified(INPUT, Schema::new(fields))
}

/// Columns, the schema of the input, and the columns' names.
type NamedColumns<'a> = (&'a [Expr], &'a DFSchema, &'a [String]);

/// The columns of the rows of a lookup: the kept columns, then the columns of the side table, which
/// may be NULL if rows without a match are kept.
pub(crate) fn pair_schema(
    own: NamedColumns<'_>,
    side: NamedColumns<'_>,
    outer: bool,
) -> Result<DFSchema> {
    let fields = |(columns, schema, names): NamedColumns<'_>, outer: bool| {
        let shown = output_schema(columns, schema, names)?;
        let field = |field: &Arc<Field>| {
            let (of, nullable) = (plain_type(field.data_type()), field.is_nullable() || outer);
            field.as_ref().clone().with_data_type(of).with_nullable(nullable)
        };
        Ok::<_, SqlError>(shown.fields().iter().map(field).collect::<Vec<_>>())
    };
    qualified(INPUT, Schema::new([fields(own, false)?, fields(side, outer)?].concat()))
}

/// The type of what is shown of each element of a column.
fn element_type(array: &DataType, element: Element) -> Option<DataType> {
    let of = match array {
        DataType::List(of) | DataType::Map(of, _) => of.data_type(),
        _ => return None,
    };
    match (element, of) {
        (Element::Ordinality, _) => Some(DataType::Int32),
        (Element::Whole, of) => Some(of.clone()),
        (Element::Field(at), DataType::Struct(fields)) => Some(fields.get(at)?.data_type().clone()),
        (Element::Field(_), _) => None,
    }
}
