//! What `EXPLAIN` prints: the logical plan, then the steps that each record and each fired window
//! goes through.

use std::fmt::Write;

use arrow::datatypes::Schema;
use datafusion_expr::LogicalPlan;
use millstream_contract::expr::Expr;
use millstream_contract::plan::{Aggregate, Node, Operator, Plan, Sort, Source, Stage, Watermark};

use crate::tumble::duration;
use crate::types::sql_type_name;

/// The logical plan, one operator per line.
pub(crate) fn logical_text(plan: &LogicalPlan) -> String {
    plan.display_indent().to_string()
}

/// The whole text. The engine's part (bytes per key) is added by whoever runs the query. `names`
/// are those of the plan's sources.
pub(crate) fn explain(logical: &str, plan: &Plan, names: &[String]) -> String {
    let mut text = String::from("logical plan\n");
    for line in logical.lines() {
        let _ = writeln!(text, "  {line}");
    }
    let several = plan.stages.len() > 1;
    for (number, stage) in (1..).zip(&plan.stages) {
        if several {
            let _ = writeln!(text, "stage {number}");
        }
        stage_text(&mut text, plan, names, stage);
    }
    text.push_str("result\n");
    for output in &plan.outputs {
        let Some(stage) = plan.stages.get(output.stage) else { continue };
        let visible = output.sort.as_ref().map_or(usize::MAX, |sort| sort.visible);
        if let Some(sort) = &output.sort {
            sort_text(&mut text, &stage.output, sort);
        }
        let columns = stage.output.fields().iter().take(visible);
        let columns = columns.map(|f| format!("{} {}", f.name(), sql_type_name(f.data_type())));
        let _ = writeln!(text, "  {}", list(columns));
    }
    text.truncate(text.trim_end().len());
    text
}

fn sort_text(text: &mut String, schema: &Schema, sort: &Sort) {
    let keys = sort.keys.iter().map(|key| {
        let direction = if key.descending { " DESC" } else { "" };
        let nulls = if key.nulls_first { "NULLS FIRST" } else { "NULLS LAST" };
        format!("{}{direction} {nulls}", schema.field(key.column).name())
    });
    let keys = list(keys);
    let columns = if keys.is_empty() { "its columns" } else { &keys };
    let _ = writeln!(text, "  order by {columns}");
    if let Some(limit) = sort.limit {
        let _ = writeln!(text, "  limit {limit}");
    }
    if sort.offset > 0 {
        let _ = writeln!(text, "  skip {}", sort.offset);
    }
}

fn stage_text(text: &mut String, plan: &Plan, names: &[String], stage: &Stage) {
    let mut schema = &stage.output;
    let _ = writeln!(text, "first pipeline (for each batch of records)");
    for input in &stage.inputs {
        match input.from {
            Node::Source(source) => {
                let (Some(name), Some(source)) = (names.get(source), plan.sources.get(source))
                else {
                    continue;
                };
                source_text(text, name, source);
                schema = &source.schema;
            }
            Node::Stage(before) => {
                let Some(rows) = plan.stages.get(before) else { continue };
                schema = &rows.output;
                let columns = schema.fields().iter().map(|field| field.name().clone());
                let _ = writeln!(text, "  rows of stage {}: {}", before + 1, list(columns));
                if matches!(&rows.operator, Operator::Aggregate(a) if a.window.is_some()) {
                    let _ = writeln!(text, "  event time: the time of their window");
                }
            }
        }
        if let Some(filter) = &input.filter {
            let _ = writeln!(text, "  filter {}", shown(filter, schema));
        }
        if let Some(project) = &input.project {
            let columns = project.columns.iter().map(|e| shown(e, schema));
            let _ = writeln!(text, "  project {}", list(columns));
            schema = &project.schema;
        }
    }
    match &stage.operator {
        Operator::Stateless { limit, offset } => match (limit, offset) {
            (None, 0) => {}
            (Some(limit), 0) => text.push_str(&format!("  limit {limit}\n")),
            (Some(limit), skip) => text.push_str(&format!("  limit {limit} after {skip}\n")),
            (None, skip) => text.push_str(&format!("  skip {skip}\n")),
        },
        Operator::Aggregate(aggregate) => aggregate_text(text, schema, aggregate),
    }
}

fn source_text(text: &mut String, name: &str, source: &Source) {
    let _ = writeln!(text, "  read {name}: {}", source.table.describe(&source.projection));
    let input = |e: &Expr| shown(e, &source.schema);
    for (i, expr) in source.derived.iter().enumerate() {
        let name = source.schema.field(source.projection.len() + i).name();
        let _ = writeln!(text, "  compute {name} = {}", input(expr));
    }
    let Some(event_time) = &source.event_time else { return };
    let name = source.schema.field(event_time.column).name();
    let watermark = match &event_time.watermark {
        Watermark::Delay(0) => name.to_string(),
        Watermark::Delay(us) => format!("{name} - {}", duration(*us)),
        Watermark::Expr(expr) => input(expr),
    };
    let _ = write!(text, "  event time {name}, watermark {watermark}");
    let idle = event_time.idle_timeout_us.map(duration);
    let _ = writeln!(text, "{}", idle.map_or(String::new(), |d| format!(", idle after {d}")));
}

fn aggregate_text(text: &mut String, schema: &Schema, aggregate: &Aggregate) {
    let input = |e: &Expr| shown(e, schema);
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

fn shown(expr: &Expr, schema: &Schema) -> String {
    match expr {
        Expr::Column(i) => schema.field(*i).name().clone(),
        Expr::Computed(computed) => computed.to_string(),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}
