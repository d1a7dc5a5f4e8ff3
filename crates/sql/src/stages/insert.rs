//! `INSERT INTO`: maps the query's columns to the sink's, by position or as the statement names
//! them.

use millstream_contract::wording::counted;

use crate::expr::{scalars::conformed, text::sql_text};
use crate::names::catalog::{TableColumn, TableEntry};
use crate::stages::lower::Stage;
use crate::syntax::prelude::*;

/// Where `INSERT INTO` or `INSERT OVERWRITE` writes.
pub(crate) struct Target<'a> {
    pub(crate) entry: Arc<TableEntry>,
    /// The columns named in INSERT, or none.
    pub(crate) columns: &'a [Ident],
    pub(crate) place: Option<Span>,
    pub(crate) overwrites: bool,
}

/// Orders and casts a stage's columns for the sink; returns their names.
pub(crate) fn fit_to_sink(
    stage: &mut Stage,
    plan: &LogicalPlan,
    target: &Target<'_>,
) -> Result<Vec<String>> {
    let entry = &target.entry;
    let order = positions(target)?;
    let given = plan.schema().fields();
    if order.len() != given.len() {
        let names = |names: Vec<&str>| names.join(", ");
        let wanted = order.iter().map(|i| entry.columns[*i].name.as_str()).collect();
        let got = given.iter().map(|f| f.name().as_str()).collect();
        let message = format!(
            "table '{}' takes {} ({}), the query gives {} ({})",
            entry.name,
            counted(order.len() as u64, "column"),
            names(wanted),
            given.len(),
            names(got)
        );
        return Err(SqlError::types(message)
            .at(target.place)
            .help("select as many columns as the table has, in their order"));
    }
    let mut columns = Vec::new();
    for (i, column) in entry.inserted() {
        let Some(position) = order.iter().position(|o| *o == i) else {
            if !column.nullable {
                let message = format!(
                    "column '{}' of table '{}' is NOT NULL, so it needs a value",
                    column.name, entry.name
                );
                return Err(SqlError::types(message)
                    .at(target.place)
                    .help("name it after INSERT INTO and select a value for it"));
            }
            let null = ScalarValue::try_from(&column.data_type)?;
            columns.push(Expr::Literal(null, None));
            continue;
        };
        let (field, expr) = (&given[position], stage.columns[position].clone());
        if !column.nullable && field.is_nullable() {
            let message = format!(
                "column '{}' of table '{}' is NOT NULL, and the query's '{}' can be NULL",
                column.name,
                entry.name,
                field.name()
            );
            return Err(SqlError::types(message)
                .at(target.place)
                .help(format!("select a value for NULL too: COALESCE({}, …)", field.name())));
        }
        columns.push(if *field.data_type() == column.data_type {
            expr
        } else if is_nested(&column.data_type) && fits(field.data_type(), &column.data_type) {
            conformed(expr, column.data_type.clone())
        } else if fits(field.data_type(), &column.data_type)
            || column.data_type.is_integer() && stage.make_whole(position)
        {
            let expr = Box::new(stage.columns[position].clone());
            Expr::Cast(Cast::new(expr, column.data_type.clone()))
        } else {
            return Err(misfit(target, column, plan, position));
        });
    }
    stage.columns = columns;
    Ok(entry.inserted().map(|(_, c)| c.name.clone()).collect())
}

/// Why a query's column does not go into a column of the table.
fn misfit(
    target: &Target<'_>,
    column: &TableColumn,
    plan: &LogicalPlan,
    position: usize,
) -> SqlError {
    let (name, wanted) = (&column.name, sql_type_name(&column.data_type));
    let field = plan.schema().field(position);
    SqlError::types(format!(
        "column '{name}' of table '{}' is {wanted}, the query's '{}' is {}",
        target.entry.name,
        field.name(),
        sql_type_name(field.data_type())
    ))
    .at(target.place)
    .help(match first_value(plan, position) {
        Some(value) => format!("write CAST({} AS {wanted}) in VALUES", sql_text(value)),
        None => format!("select CAST({} AS {wanted})", field.name()),
    })
}

/// The column of a plan in the first row of its VALUES, if it is that.
fn first_value(plan: &LogicalPlan, column: usize) -> Option<&Expr> {
    match plan {
        LogicalPlan::Projection(projection) => match &projection.expr[column] {
            Expr::Column(name) => first_value(
                &projection.input,
                projection.input.schema().index_of_column(name).ok()?,
            ),
            _ => None,
        },
        LogicalPlan::Values(values) => match values.values.first()?.get(column)? {
            // Values of several rows have been brought to one type.
            Expr::Cast(cast) => Some(&cast.expr),
            value => Some(value),
        },
        _ => None,
    }
}

/// Of a query whose rows are shown, TIMESTAMP_LTZ are shown as the local times that they are in the
/// session's zone.
pub(crate) fn show_local_times(stage: &mut Stage, analyzed: &LogicalPlan) {
    for (column, field) in stage.columns.iter_mut().zip(analyzed.schema().fields()) {
        if let DataType::Timestamp(unit, Some(_)) = field.data_type() {
            let instant = Box::new(std::mem::take(column));
            *column = Expr::Cast(Cast::new(instant, DataType::Timestamp(*unit, None)));
        }
    }
}

/// Metadata columns that the connector does not write have to be VIRTUAL.
fn refuse_metadata(target: &Target<'_>) -> Result<()> {
    let entry = &target.entry;
    match entry.kept_metadata() {
        None => Ok(()),
        Some(TableColumn { name, .. }) => Err(SqlError::unsupported(format!(
            "nothing can be written to '{name}' of table '{}': it is a metadata column that is only \
             read",
            entry.name
        ))
        .at(target.place)
        .help(format!("declare it VIRTUAL, and INSERT INTO passes over it: {name} … VIRTUAL"))),
    }
}

/// The table's columns that the query's are for, by position in the table.
fn positions(target: &Target<'_>) -> Result<Vec<usize>> {
    let entry = &target.entry;
    refuse_metadata(target)?;
    if target.columns.is_empty() {
        return Ok(entry.inserted().map(|(i, _)| i).collect());
    }
    let mut positions = Vec::new();
    for name in target.columns {
        let found = entry.columns.iter().position(|c| c.name == name.value);
        let is_inserted = |i: usize| entry.columns[i].is_inserted();
        let is_free = |i: &usize| !positions.contains(i) && is_inserted(*i);
        let found = found.filter(is_free).ok_or_else(|| {
            let message = match found {
                Some(i) if !is_inserted(i) => {
                    let is_metadata = entry.columns[i].metadata.is_some();
                    let kind = if is_metadata { "metadata" } else { "computed" };
                    format!("'{}' is a {kind} column: nothing is written to it", name.value)
                }
                Some(_) => format!("column '{}' is named twice", name.value),
                None => format!("there is no column '{}' in table '{}'", name.value, entry.name),
            };
            let names = entry.columns.iter().map(|c| c.name.as_str());
            let names = names.filter(|_| found.is_none());
            SqlError::name(message).at(Span::new(name.span)).meant(&name.value, names, "")
        })?;
        positions.push(found);
    }
    Ok(positions)
}

/// Whether values of one type may be written as another without saying so.
fn fits(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let exact = |t: &DataType| t.is_integer() || matches!(t, Decimal128(..));
    let time = |t: &DataType| matches!(t, Timestamp(..));
    let member = |from: &Field, to: &Field| {
        let nulls = to.is_nullable() || !from.is_nullable();
        nulls && (from.data_type() == to.data_type() || fits(from.data_type(), to.data_type()))
    };
    match (from, to) {
        (Null, _) => true,
        // Fields go together by position, as columns do.
        (Struct(from), Struct(to)) => {
            from.len() == to.len() && from.iter().zip(to).all(|(from, to)| member(from, to))
        }
        (List(from), List(to)) | (Map(from, _), Map(to, _)) => member(from, to),
        // What is behind the point would be lost.
        (Decimal128(_, scale), to) if to.is_integer() => *scale <= 0,
        (from, to) if exact(from) => exact(to) || to.is_floating(),
        (from, to) if from.is_floating() => to.is_floating(),
        (from, to) if time(from) => time(to),
        (Time32(_) | Time64(_), Time32(_) | Time64(_)) => true,
        (Date32, to) => time(to),
        _ => false,
    }
}
