//! What `EXPLAIN` prints: the logical plan, then what each record and each fired window go through.

use std::fmt::Write;

use datafusion_expr::LogicalPlan;
use millstream_engine::expr::Expr;
use millstream_engine::plan::{Aggregate, Body, Query, Watermark};

use crate::catalog::TableEntry;
use crate::tumble::duration;
use crate::types::sql_type_name;

/// The logical plan, one operator per line.
pub(crate) fn logical_text(plan: &LogicalPlan) -> String {
    plan.display_indent().to_string()
}

/// The whole text. The engine's part (bytes per key) is added by whoever runs the query.
pub(crate) fn explain(logical: &str, query: &Query, table: &TableEntry) -> String {
    let mut text = String::from("logical plan\n");
    for line in logical.lines() {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "first pipeline (for each batch of records)");
    let _ = writeln!(text, "  read {}: {}", table.name, query.source.describe(&query.projection));
    let input = |e: &Expr| shown(e, &query.input);
    for (i, expr) in query.derived.iter().enumerate() {
        let name = query.input.field(query.projection.len() + i).name();
        let _ = writeln!(text, "  compute {name} = {}", input(expr));
    }
    if let Some(event_time) = &query.event_time {
        let name = query.input.field(event_time.column).name();
        let watermark = match &event_time.watermark {
            Watermark::Delay(0) => name.to_string(),
            Watermark::Delay(us) => format!("{name} - {}", duration(*us)),
            Watermark::Expr(expr) => input(expr),
        };
        let _ = write!(text, "  event time {name}, watermark {watermark}");
        let idle = event_time.idle_timeout_us.map(duration);
        let _ = writeln!(text, "{}", idle.map_or(String::new(), |d| format!(", idle after {d}")));
    }
    if let Some(filter) = &query.filter {
        let _ = writeln!(text, "  filter {}", input(filter));
    }
    match &query.body {
        Body::Stateless { project, limit, offset } => {
            let _ = writeln!(text, "  project {}", list(project.iter().map(input)));
            match (limit, offset) {
                (None, 0) => {}
                (Some(limit), 0) => text.push_str(&format!("  limit {limit}\n")),
                (Some(limit), skip) => text.push_str(&format!("  limit {limit} after {skip}\n")),
                (None, skip) => text.push_str(&format!("  skip {skip}\n")),
            }
        }
        Body::Aggregate(aggregate) => aggregate_text(&mut text, query, aggregate),
    }
    let columns = query.output.fields().iter();
    let columns = columns.map(|f| format!("{} {}", f.name(), sql_type_name(f.data_type())));
    let _ = write!(text, "result\n  {}", list(columns));
    text
}

fn aggregate_text(text: &mut String, query: &Query, aggregate: &Aggregate) {
    let input = |e: &Expr| shown(e, &query.input);
    if let Some(window) = &aggregate.window {
        let _ = write!(text, "  window of {}", duration(window.size_us));
        let offset = (window.offset_us != 0).then(|| duration(window.offset_us));
        let _ = writeln!(text, "{}", offset.map_or(String::new(), |o| format!(", offset {o}")));
    }
    let _ =
        writeln!(text, "soft breaker (updates the worker's own state, merged by the key's leader)");
    let keys = aggregate.keys.iter().map(|k| {
        let not_null = if k.nullable { "" } else { " NOT NULL" };
        format!("{} {}{not_null}", input(&k.expr), sql_type_name(&k.data_type))
    });
    let keys = list(keys);
    let _ = writeln!(text, "  keys {}", if keys.is_empty() { "none" } else { &keys });
    for call in &aggregate.aggregates {
        let _ = writeln!(text, "  {} {}", call.name, sql_type_name(&call.result_type));
    }
    let when = match aggregate.window {
        Some(_) => "when the watermark passes a window's end",
        None => "once, at the end of the input",
    };
    let _ = writeln!(text, "second pipeline ({when})");
    let fired = |e: &Expr| shown(e, &aggregate.fired);
    if let Some(having) = &aggregate.having {
        let _ = writeln!(text, "  filter {}", fired(having));
    }
    let _ = writeln!(text, "  project {}", list(aggregate.project.iter().map(fired)));
}

fn shown(expr: &Expr, schema: &arrow::datatypes::Schema) -> String {
    match expr {
        Expr::Column(i) => schema.field(*i).name().clone(),
        Expr::Computed(computed) => computed.to_string(),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}
