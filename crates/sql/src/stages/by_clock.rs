//! Windows by processing time over a table that declares another time, or none:
//!
//! ```sql
//! CREATE VIEW v AS SELECT *, PROCTIME() AS p FROM t;
//! … FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(p), INTERVAL '10' SECOND))
//! ```
//!
//! The stage then takes the records of a table like `t` that has the column `p AS PROCTIME()` and
//! no WATERMARK. The query reads this table separately.

use crate::expr::located::without_marks;
use crate::expr::scalars::{is_read_time, read_time_type};
use crate::names::catalog::{EventTimeDecl, TableColumn, TableEntry, WatermarkDecl, input_column};
use crate::stages::lower::{Rows, Stage, unique};
use crate::stages::watermarks::WATERMARK;
use crate::syntax::prelude::*;

impl Stage {
    /// Makes a column the event time, if the column is the time of reading and the table's records
    /// have another time. `name` is the column's name in the query.
    pub(crate) fn by_clock(&mut self, time: usize, name: &str) -> Result<()> {
        let (None, Rows::Table(table)) = (&self.fires, &self.input) else { return Ok(()) };
        let known = without_marks(&self.columns[time]);
        let is_known = |column: &TableColumn| {
            column.computed.as_ref().is_some_and(is_read_time)
                && known == input_column(&column.name)
        };
        let own = table.columns.iter().position(is_known);
        let is_declared = own.is_some() && own == table.event_time.as_ref().map(|own| own.column);
        let watermark = input_column(WATERMARK);
        let asks = |expr: &Expr| expr.any_node(|e| Ok(*e == watermark));
        let mut exprs = self.columns.iter().chain(&self.filters);
        if is_declared
            || own.is_none() && !is_read_time(&known)
            || exprs.any(|e| asks(e).unwrap_or(true))
        {
            return Ok(());
        }
        let mut table = TableEntry::clone(table);
        let column = own.unwrap_or(table.columns.len());
        if own.is_none() {
            let mut taken: HashSet<String> =
                table.columns.iter().map(|column| column.name.clone()).collect();
            table.columns.push(TableColumn {
                name: unique(name.to_string(), &mut taken),
                data_type: read_time_type(),
                nullable: false,
                computed: Some(known),
                metadata: None,
            });
        }
        let watermark = WatermarkDecl::Clock;
        table.event_time = Some(EventTimeDecl { column, watermark, idle_timeout_us: None });
        table.left_out.late = None;
        let now = input_column(&table.columns[column].name);
        let with_column = |expr: Expr| -> Result<Expr> {
            Ok(expr.replaced(|e| Ok(is_read_time(e).then(|| now.clone())))?)
        };
        for expr in self.columns.iter_mut().chain(&mut self.filters) {
            *expr = with_column(std::mem::take(expr))?;
        }
        self.columns[time] = now.clone();
        self.input = Rows::Table(Arc::new(table));
        Ok(())
    }
}

impl TableEntry {
    /// Whether both are one table, also if its windows are by processing time.
    pub(crate) fn is(self: &Arc<TableEntry>, other: &Arc<TableEntry>) -> bool {
        let by_clock = |table: &TableEntry| {
            table.event_time.as_ref().is_some_and(|own| own.watermark.is_clock())
        };
        Arc::ptr_eq(self, other)
            || by_clock(self)
                && by_clock(other)
                && (&self.name, self.time_name()) == (&other.name, other.time_name())
    }
}
