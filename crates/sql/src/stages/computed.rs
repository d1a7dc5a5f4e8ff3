//! Computed columns of a table are replaced by their expressions where a query uses them. So
//! whatever protects an expression from rows on which it fails (WHERE, FILTER, CASE, AND, LIMIT)
//! protects them, too. Where the table leaves out malformed records, a column that may fail is
//! worked out once for each record instead: whether a record is malformed is no query's affair.

use crate::expr::{safe::cannot_fail, scalars::is_read_time};
use crate::names::catalog::{INPUT, TableEntry};
use crate::stages::{lower::column_of, lower::count_nodes, schemas::table_schema};
use crate::syntax::prelude::*;

/// Nodes that a column's expression may have once the columns within are written out. A larger
/// expression stays a column, computed once for each record: columns that each use the column
/// before twice would grow without end.
const COLUMN_NODES_MAX: usize = 500;
/// As many an expression may have with its columns written out.
const NODES_MAX: usize = 20_000;

/// Definitions of a table's computed columns.
pub(crate) struct Definitions(HashMap<String, Expr>);

impl Definitions {
    /// Of all but the event time, if windows need that of every record.
    pub(crate) fn new(table: &TableEntry, windowed: bool) -> Result<Definitions> {
        definitions(table, windowed).map(Definitions)
    }

    /// An expression over the table with its computed columns written out.
    pub(crate) fn write_out(&self, expr: Expr) -> Result<Expr> {
        if self.0.is_empty() {
            return Ok(expr);
        }
        Ok(written(expr, &self.0, NODES_MAX)?)
    }
}

/// Definitions of computed columns over the columns of the source.
fn definitions(table: &TableEntry, windowed: bool) -> Result<HashMap<String, Expr>> {
    let schema = table_schema(table)?;
    // The time of reading is the same for all readers: it stays a column.
    let time = table.time_name().filter(|_| windowed);
    let mut definitions = HashMap::new();
    for column in table.columns.iter().filter(|column| time != Some(&column.name)) {
        let Some(expr) = column.computed.clone().filter(|expr| !is_read_time(expr)) else {
            continue;
        };
        let data_type = expr.get_type(&schema)?;
        let expr = written(expr, &definitions, COLUMN_NODES_MAX)?;
        if count_nodes(&expr) > COLUMN_NODES_MAX {
            continue;
        }
        let expr = match data_type == column.data_type {
            true => expr,
            false => Expr::Cast(Cast::new(Box::new(expr), column.data_type.clone())),
        };
        if table.leaves_out_malformed() && !cannot_fail(&expr, &schema) {
            continue;
        }
        definitions.insert(column.name.clone(), expr);
    }
    Ok(definitions)
}

/// `expr` with columns written out, unless it would come to have more nodes than that.
fn written(expr: Expr, of: &HashMap<String, Expr>, nodes_max: usize) -> DfResult<Expr> {
    let find = |e: &Expr| column_of(INPUT, e).and_then(|name| of.get(name));
    let mut nodes = count_nodes(&expr);
    expr.each(|e| {
        nodes += find(e).map_or(0, count_nodes);
        Ok(())
    })?;
    if nodes > nodes_max {
        return Ok(expr);
    }
    expr.replaced(|e| Ok(find(e).cloned()))
}
