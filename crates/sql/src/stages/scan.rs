//! The scan of each table: the columns that any query needs, and the expressions that are computed
//! for every record.

use millstream_contract::plan::{Derived, EventTime, Source, Watermark};
use millstream_contract::zone::Zone;

use crate::expr::scalars::is_read_time;
use crate::names::catalog::{INPUT, TableEntry, WatermarkDecl, add_columns, input_column};
use crate::stages::compiler::{Compiler, each_input};
use crate::stages::graph::{
    Body, Elements, Graph, LookedUp, Makes, Operator as GraphOperator, Part, Pass, Scan, Side,
    used_by,
};
use crate::stages::schemas::{qualified, table_schema};
use crate::stages::watermarks::{WATERMARK, record_schema, watermark_field, with_watermarks};
use crate::stages::{computed::Definitions, lower::Grouped, nest::written};
use crate::syntax::prelude::*;

/// Needs of the readers of a table.
#[derive(Default)]
pub(crate) struct Needs {
    columns: BTreeSet<String>,
    event_time: bool,
}

/// The columns of the table that a query needs, and where they are in its batches.
struct ReadColumns {
    projection: Vec<usize>,
    derived: Vec<Derived>,
    schema: DFSchema,
}

impl Needs {
    /// These columns are needed, too.
    pub(crate) fn also(&mut self, columns: impl Iterator<Item = String>) {
        self.columns.extend(columns);
    }

    /// How the side table of a lookup is read: without regard to event time.
    pub(crate) fn read_side(self, compiler: &Compiler<'_>, lookup: &LookedUp) -> Result<Source> {
        let (table, name) = (lookup.table.clone(), lookup.body.entry.name.clone());
        if self.columns.contains(WATERMARK) {
            let message = format!("CURRENT_WATERMARK is not known of '{name}', a lookup table");
            return Err(SqlError::unsupported(message).help("leave it out"));
        }
        let read = self.columns(compiler, &lookup.body.entry)?;
        let schema = Arc::new(read.schema.as_arrow().clone());
        let (projection, derived) = (read.projection, read.derived);
        Ok(Source { name, table, projection, derived, schema, event_time: None })
    }

    /// How a table is read.
    pub(crate) fn read(self, compiler: &Compiler<'_>, scan: &Scan) -> Result<Source> {
        let table = &*scan.entry;
        let event_time = table.event_time.as_ref().filter(|_| self.has_event_time());
        let zone = event_time
            .and_then(|declared| zone_of(&table.columns[declared.column].data_type, compiler));
        if zone.is_some() && self.columns.contains(WATERMARK) {
            let message = "CURRENT_WATERMARK of a TIMESTAMP_LTZ does not go with a time zone";
            return Err(SqlError::unsupported(message).help("SET 'time_zone' = 'UTC'"));
        }
        let read = self.columns(compiler, table)?;
        let event_time = match event_time {
            Some(declared) => Some(EventTime {
                column: index(&read.schema, &table.columns[declared.column].name)?,
                watermark: match &declared.watermark {
                    WatermarkDecl::Delay(us) => Watermark::Delay(*us),
                    WatermarkDecl::Clock => Watermark::Clock,
                    WatermarkDecl::Expr(expr) => Watermark::Expr(
                        compiler.compile(&over(compiler, expr, table)?, &read.schema)?,
                    ),
                },
                zone,
                idle_timeout_us: declared.idle_timeout_us,
            }),
            None => None,
        };
        Ok(Source {
            name: table.name.clone(),
            table: scan.table.clone(),
            projection: read.projection,
            derived: read.derived,
            schema: Arc::new(read.schema.as_arrow().clone()),
            event_time,
        })
    }

    fn has_event_time(&self) -> bool {
        self.event_time || self.columns.contains(WATERMARK)
    }

    /// Which columns of a table are read and computed.
    fn columns(self, compiler: &Compiler<'_>, table: &TableEntry) -> Result<ReadColumns> {
        let has_event_time = self.has_event_time();
        let mut needed = self.columns;
        if let (true, Some(event_time)) = (has_event_time, &table.event_time) {
            needed.insert(table.columns[event_time.column].name.clone());
            if let WatermarkDecl::Expr(expr) = &event_time.watermark {
                add_columns(expr, &mut needed);
            }
        }
        // A computed column uses only earlier columns, so a single pass backwards finds all uses.
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
            derived.push(match is_read_time(expr) {
                true => Derived::ReadTime,
                false => {
                    let expr = over(compiler, expr, table)?;
                    Derived::Computed(compiler.compile(&expr, &so_far)?)
                }
            });
            fields.push(Field::new(&column.name, column.data_type.clone(), column.nullable));
        }
        if let Some(field) = watermark_field(table).filter(|_| is_needed(WATERMARK)) {
            derived.push(Derived::Watermark);
            fields.push(field);
        }
        Ok(ReadColumns { projection, derived, schema: qualified(INPUT, Schema::new(fields))? })
    }
}

/// Simplifies an expression over a table's columns.
fn over(compiler: &Compiler<'_>, expr: &Expr, table: &TableEntry) -> Result<Expr> {
    compiler.simple(expr, &Arc::new(table_schema(table)?))
}

/// Brings the inputs from tables of an operator to their final form, and notes the needed columns.
pub(crate) fn finish_operator(
    compiler: &Compiler<'_>,
    graph: &mut Graph,
    number: usize,
    needs: &mut [Needs],
) -> Result<()> {
    let used = graph.operators[number].fired_used();
    match &mut graph.operators[number].body {
        Body::Expanded(Makes::Elements(Elements { shown, .. })) => {
            shown.retain(|(name, _)| used.contains(name));
        }
        Body::Expanded(Makes::Lookup(lookup)) => {
            finish_lookup(compiler, lookup, &mut used.clone())?
        }
        Body::Grouped(_) | Body::Joined(_) => {}
    }
    let Graph { scans, passes, operators, .. } = graph;
    let GraphOperator { sides, body, window, .. } = &mut operators[number];
    let windowed = window.is_some();
    let ordered = matches!(body, Body::Grouped(grouped) if grouped.is_ordered());
    for Side { parts, names, used, filters } in sides {
        for part in parts {
            let Part::Scan { scan, pass, filters: own, columns } = part else { continue };
            let entry = &scans[*scan].entry;
            let over = OverRecords::new(compiler, entry, *pass, passes, windowed)?;
            needs[*scan].event_time |= windowed || ordered;
            let needs = needed_of(needs, *scan, *pass, passes);
            match (columns, &mut *body) {
                (None, Body::Joined(_) | Body::Expanded(_)) => {
                    return Err(SqlError::internal("a join of a table as it is"));
                }
                (None, Body::Grouped(grouped)) => {
                    *own = over.finish_filters(std::mem::take(own))?;
                    over.finish_grouped(grouped)?;
                    needs.extend(used_by(grouped, own));
                }
                (Some(columns), _) => {
                    for filter in &*filters {
                        own.push(written(filter, names, columns)?);
                    }
                    let taken = names.iter().zip(std::mem::take(columns));
                    let taken = taken.filter(|(name, _)| used.contains(*name));
                    *columns = over.finish_all(taken.map(|(_, column)| column).collect())?;
                    *own = over.finish_filters(std::mem::take(own))?;
                    own.iter().chain(&*columns).for_each(|expr| add_columns(expr, needs));
                }
            }
        }
    }
    Ok(())
}

/// As [`finish_operator`], of an output.
pub(crate) fn finish_output(
    compiler: &Compiler<'_>,
    graph: &mut Graph,
    number: usize,
    needs: &mut [Needs],
) -> Result<()> {
    for part in &mut graph.outputs[number].parts {
        let Part::Scan { scan, pass, filters, columns: Some(columns) } = part else { continue };
        let (entry, passes) = (&graph.scans[*scan].entry, &mut graph.passes);
        let over = OverRecords::new(compiler, entry, *pass, passes, false)?;
        *filters = over.finish_filters(std::mem::take(filters))?;
        *columns = over.finish_all(std::mem::take(columns))?;
        let needs = needed_of(needs, *scan, *pass, passes);
        filters.iter().chain(&*columns).for_each(|expr| add_columns(expr, needs));
    }
    Ok(())
}

/// As [`finish_operator`], for an UNNEST or a lookup whose readers are all finished: removes
/// columns without a reader.
pub(crate) fn finish_pass(
    compiler: &Compiler<'_>,
    graph: &mut Graph,
    number: usize,
    needs: &mut [Needs],
) -> Result<()> {
    let (below, rest) = graph.passes.split_at_mut(number);
    let Some(Pass { scan, below: under, filters, names, columns, expands, .. }) = rest.first_mut()
    else {
        return Ok(());
    };
    let Some(expands) = expands else { return Ok(()) };
    let mut used = std::mem::take(&mut expands.used);
    let array = match &mut expands.makes {
        Makes::Elements(Elements { shown, .. }) => {
            shown.retain(|(name, _)| used.contains(name));
            columns.pop()
        }
        Makes::Lookup(lookup) => {
            finish_lookup(compiler, lookup, &mut used)?;
            None
        }
    };
    let kept = std::mem::take(names).into_iter().zip(std::mem::take(columns));
    (*names, *columns) = kept.filter(|(name, _)| used.contains(name)).unzip();
    columns.extend(array);
    let (entry, windowed) = (&graph.scans[*scan].entry, needs[*scan].event_time);
    let over = OverRecords::new(compiler, entry, *under, below, windowed)?;
    *filters = over.finish_filters(std::mem::take(filters))?;
    *columns = over.finish_all(std::mem::take(columns))?;
    let needs = needed_of(needs, *scan, *under, below);
    filters.iter().chain(&*columns).for_each(|expr| add_columns(expr, needs));
    Ok(())
}

/// Brings the lookup's filters and columns over its table to their final form. `used` are the
/// result columns with a reader; the lookup's own needs are added.
fn finish_lookup(
    compiler: &Compiler<'_>,
    lookup: &mut LookedUp,
    used: &mut BTreeSet<String>,
) -> Result<()> {
    lookup.output.retain(|name| used.contains(name));
    lookup.add_needs(used);
    let LookedUp { body, shown, .. } = lookup;
    let columns = std::mem::take(shown).into_iter().zip(std::mem::take(&mut body.columns));
    (*shown, body.columns) = columns.filter(|(name, _)| used.contains(name)).unzip();
    let over = OverRecords::new(compiler, &body.entry, None, &[], false)?;
    body.filters = over.finish_filters(std::mem::take(&mut body.filters))?;
    body.columns = over.finish_all(std::mem::take(&mut body.columns))?;
    Ok(())
}

/// Where is noted what is needed of records of a table, or of what a pass makes of them.
fn needed_of<'n>(
    needs: &'n mut [Needs],
    scan: usize,
    pass: Option<usize>,
    passes: &'n mut [Pass],
) -> &'n mut BTreeSet<String> {
    match pass.and_then(|pass| passes[pass].expands.as_mut()) {
        Some(expands) => &mut expands.used,
        None => &mut needs[scan].columns,
    }
}

/// Brings expressions over a table, or over what a pass makes of its records, to their final form.
struct OverRecords<'a> {
    compiler: &'a Compiler<'a>,
    /// The table, and what its computed columns stand for.
    records: Option<(&'a TableEntry, Definitions)>,
    schema: Arc<DFSchema>,
}

impl<'a> OverRecords<'a> {
    fn new(
        compiler: &'a Compiler<'_>,
        table: &'a TableEntry,
        pass: Option<usize>,
        passes: &[Pass],
        windowed: bool,
    ) -> Result<OverRecords<'a>> {
        if let Some(expands) = pass.and_then(|pass| passes[pass].expands.as_ref()) {
            let schema = Arc::new(expands.schema.clone());
            return Ok(OverRecords { compiler, records: None, schema });
        }
        let records = Some((table, Definitions::new(table, windowed)?));
        Ok(OverRecords { compiler, records, schema: Arc::new(record_schema(table)?) })
    }

    fn write_out(&self, expr: Expr) -> Result<Expr> {
        match &self.records {
            Some((table, definitions)) => definitions.write_out(with_watermarks(expr, table)?),
            None => Ok(expr),
        }
    }

    fn finish(&self, expr: Expr) -> Result<Expr> {
        self.compiler.simple(&self.write_out(expr)?, &self.schema)
    }

    /// As [`OverRecords::finish_all`], of conditions that must hold.
    fn finish_filters(&self, filters: Vec<Expr>) -> Result<Vec<Expr>> {
        filters.into_iter().map(|filter| self.finish_filter(filter)).collect()
    }

    fn finish_filter(&self, filter: Expr) -> Result<Expr> {
        self.compiler.simple_filter(&self.write_out(filter)?, &self.schema)
    }

    fn finish_all(&self, exprs: Vec<Expr>) -> Result<Vec<Expr>> {
        exprs.into_iter().map(|expr| self.finish(expr)).collect()
    }

    fn finish_grouped(&self, grouped: &mut Grouped) -> Result<()> {
        each_input(grouped, &|expr| self.finish(expr), &|filter| self.finish_filter(filter))
    }
}

/// The zone whose local times windows divide, of event times of a type.
fn zone_of(data_type: &DataType, compiler: &Compiler<'_>) -> Option<Zone> {
    let is_instant = matches!(data_type, DataType::Timestamp(_, Some(_)));
    compiler.zone.filter(|_| is_instant).cloned()
}

fn index(schema: &DFSchema, name: &str) -> Result<usize> {
    schema
        .index_of_column_by_name(Some(&INPUT.into()), name)
        .ok_or_else(|| SqlError::internal(format!("column '{name}' is not read")))
}

/// The watermark expression's delay, if it is `column` or `column - INTERVAL …`.
pub(crate) fn watermark_delay(expr: &Expr, column: &str) -> Option<i64> {
    match expr {
        e if *e == input_column(column) => Some(0),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right })
            if **left == input_column(column) =>
        {
            let Expr::Literal(value, _) = &**right else { return None };
            crate::syntax::durations::interval_us(value).flatten().filter(|us| *us >= 0)
        }
        _ => None,
    }
}
