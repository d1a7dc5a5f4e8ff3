//! Text of `EXPLAIN`: the logical plan, then the steps that each record and each fired window goes
//! through.

use std::fmt::Write;

use datafusion_common::Result;
use datafusion_expr::Expr as DfExpr;
use datafusion_expr::expr::{Cast, TryCast};
use millstream_contract::expr::Expr;
use millstream_contract::plan::{
    Aggregate, Derived, Input, Interval, Join, JoinKind, Lookup, Node, Operator, PairSide, Plan,
    Sort, Source, Stage, Unnest, Watermark, Window,
};

use crate::expr::text::sql_text;
use crate::syntax::durations::duration;
use crate::syntax::prelude::*;

/// The logical plan, one operator per line, with its types and its literals as SQL writes them.
pub(crate) fn logical_text(plan: &LogicalPlan) -> String {
    // The names of an aggregate's columns follow from its expressions.
    let mut renamed = HashMap::new();
    let shown = plan.clone().changed_up(|node| {
        let names = |node: &LogicalPlan| match node {
            LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => {
                node.expressions().iter().map(|expr| expr.schema_name().to_string()).collect()
            }
            _ => Vec::new(),
        };
        // Where a LIMIT begins and ends is shown if it is a literal.
        if let LogicalPlan::Limit(_) = node {
            return Ok(Transformed::no(node));
        }
        let before = names(&node);
        // Such an alias is the name that it had before its types were known.
        let has_alias = matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_));
        let shown = node.map_expressions(|expr| match has_alias {
            true => as_written(expr.unalias(), &renamed),
            false => as_written(expr, &renamed),
        })?;
        renamed.extend(before.into_iter().zip(names(&shown.data)));
        Ok(shown)
    });
    // A node that cannot be changed is shown as it is, and so are the others.
    shown.as_ref().map_or(plan, |shown| &shown.data).display_indent().to_string()
}

/// An expression whose literals and casts are columns: these are shown by their names.
fn as_written(expr: DfExpr, renamed: &HashMap<String, String>) -> Result<Transformed<DfExpr>> {
    expr.changed_up(|part| {
        let name = match &part {
            DfExpr::Column(column) => match renamed.get(&column.name) {
                Some(name) if column.relation.is_none() => name.clone(),
                _ => return Ok(Transformed::no(part)),
            },
            DfExpr::Literal(..) => sql_text(&part),
            DfExpr::Cast(Cast { expr, field }) => {
                format!("CAST({expr} AS {})", sql_type_name(field.data_type()))
            }
            DfExpr::TryCast(TryCast { expr, field }) => {
                format!("TRY_CAST({expr} AS {})", sql_type_name(field.data_type()))
            }
            _ => return Ok(Transformed::no(part)),
        };
        Ok(Transformed::yes(DfExpr::Column(Column::new_unqualified(name))))
    })
}

/// The whole text. The engine's part (bytes per key) is added by whoever runs the query. `logical`
/// are the logical plans of the outputs, `targets` the names of the tables that its outputs are
/// inserted into.
pub(crate) fn explain(logical: &[String], plan: &Plan, targets: &[String]) -> String {
    let mut text = String::new();
    for (number, lines) in logical.iter().enumerate() {
        let of = targets.get(number).filter(|_| logical.len() > 1);
        let of = of.map_or(String::new(), |name| format!(" of INSERT INTO {name}"));
        let _ = writeln!(text, "logical plan{of}");
        for line in lines.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    let explained = Explained { plan, chain: is_chain(plan) };
    if !explained.chain {
        for source in 0..plan.sources.len() {
            let users = explained.users(Node::Source(source));
            let _ = writeln!(text, "source {} (taken by {users})", source + 1);
            explained.source(&mut text, source);
        }
    }
    for (number, stage) in (0..).zip(&plan.stages) {
        let _ = write!(text, "stage {}: {}", number + 1, names_text(&stage.names));
        if !explained.chain {
            let _ = write!(text, " (taken by {})", explained.users(Node::Stage(number)));
        }
        text.push('\n');
        explained.stage(&mut text, stage);
    }
    for (number, output) in plan.outputs.iter().enumerate() {
        let Some(stage) = plan.stages.get(output.stage) else { continue };
        // Those before are shown, and have no names.
        let shown = plan.outputs.len().saturating_sub(targets.len());
        let target = number.checked_sub(shown).and_then(|at| targets.get(at));
        let _ = match (target, explained.chain) {
            (_, true) => writeln!(text, "result"),
            (Some(name), false) => {
                writeln!(text, "result INSERT INTO {name}: rows of stage {}", output.stage + 1)
            }
            (None, false) => writeln!(text, "result: rows of stage {}", output.stage + 1),
        };
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

/// Whether each stage takes the rows of the one before, and the last one's are the result.
fn is_chain(plan: &Plan) -> bool {
    let follows = |(number, stage): (usize, &Stage)| match &stage.inputs[..] {
        [input] => match number.checked_sub(1) {
            Some(before) => input.from == Node::Stage(before),
            None => input.from == Node::Source(0),
        },
        _ => false,
    };
    let last = matches!(&plan.outputs[..], [output] if output.stage + 1 == plan.stages.len());
    last && plan.sources.len() == 1 && plan.stages.iter().enumerate().all(follows)
}

fn sort_text(text: &mut String, schema: &Schema, sort: &Sort) {
    let keys = sort.keys.iter().map(|key| {
        let direction = if key.descending { " DESC" } else { "" };
        let nulls = if key.nulls_first { "NULLS FIRST" } else { "NULLS LAST" };
        format!("{}{direction} {nulls}", schema.field(key.column).name())
    });
    let keys = list(keys);
    let columns = if keys.is_empty() { "its columns" } else { &keys };
    let each = if sort.each_window { ", window by window" } else { "" };
    let _ = writeln!(text, "  order by {columns}{each}");
    if let Some(limit) = sort.limit {
        let _ = writeln!(text, "  limit {limit}");
    }
    if sort.offset > 0 {
        let _ = writeln!(text, "  skip {}", sort.offset);
    }
}

/// The first of a stage's names, and how many more there are.
fn names_text(names: &[String]) -> String {
    let first = names.first().map_or("", String::as_str);
    match names.len().saturating_sub(1) {
        0 => first.to_string(),
        more => format!("{first} and {more} more"),
    }
}

/// A plan.
struct Explained<'a> {
    plan: &'a Plan,
    /// Whether each stage takes the rows of the one before it.
    chain: bool,
}

impl Explained<'_> {
    /// Names of the readers of a node's rows.
    fn users(&self, node: Node) -> String {
        let stages = self.plan.stages.iter().enumerate();
        let stages = stages.filter(|(_, stage)| stage.inputs.iter().any(|i| i.from == node));
        let mut users: Vec<String> = stages.map(|(n, _)| format!("stage {}", n + 1)).collect();
        let results = self.plan.outputs.iter();
        let results = results.filter(|output| node == Node::Stage(output.stage)).count();
        match results {
            0 => {}
            1 => users.push("a result".to_string()),
            several => users.push(format!("{several} results")),
        }
        list(users.into_iter())
    }

    fn stage(&self, text: &mut String, stage: &Stage) {
        let _ = writeln!(text, "first pipeline (for each batch of records)");
        let mut schemas = Vec::new();
        for (number, side) in stage.sides().into_iter().enumerate() {
            if let Operator::Join(_) = stage.operator {
                let _ = writeln!(text, "  {} side", ["left", "right"][number.min(1)]);
            }
            let mut schema = stage.output.clone();
            for input in side {
                schema = self.input(text, input).unwrap_or(schema);
            }
            schemas.push(schema);
        }
        match (&stage.operator, &schemas[..]) {
            (Operator::Stateless { limit, offset }, _) => match (limit, offset) {
                (None, 0) => {}
                (Some(limit), 0) => text.push_str(&format!("  limit {limit}\n")),
                (Some(limit), skip) => text.push_str(&format!("  limit {limit} after {skip}\n")),
                (None, skip) => text.push_str(&format!("  skip {skip}\n")),
            },
            (Operator::Unnest(unnest), _) => unnest_text(text, stage, unnest),
            (Operator::Lookup(lookup), [schema, ..]) => lookup_text(text, schema, lookup),
            (Operator::Aggregate(aggregate), [schema, ..]) => {
                aggregate_text(text, schema, aggregate);
            }
            (Operator::Join(join), [left, right]) => join_text(text, [left, right], join),
            (Operator::Aggregate(_) | Operator::Join(_) | Operator::Lookup(_), _) => {}
        }
    }

    /// Text of the input from a node; returns the schema of the taken rows.
    fn input(&self, text: &mut String, input: &Input) -> Option<SchemaRef> {
        let rows = self.plan.schema_for(input).ok()?;
        match input.from {
            Node::Source(source) if self.chain => self.source(text, source),
            Node::Source(source) => {
                let name = self.plan.sources.get(source).map_or("", |source| &source.name);
                let _ = writeln!(text, "  records of source {}: {name}", source + 1);
            }
            Node::Malformed(source) => {
                let name = self.plan.sources.get(source).map_or("", |source| &source.name);
                let _ = writeln!(text, "  malformed records of source {}: {name}", source + 1);
            }
            Node::Stage(before) => {
                let columns = rows.fields().iter().map(|field| field.name().clone());
                let _ = writeln!(text, "  rows of stage {}: {}", before + 1, list(columns));
                let before = &self.plan.stages[before].operator;
                match before.window() {
                    Some(Window::Interval(interval)) => {
                        let _ = writeln!(text, "  event time: that of the {} row", interval.side());
                    }
                    Some(_) => {
                        let _ = writeln!(text, "  event time: the time of their window");
                    }
                    None => {}
                }
            }
        }
        if let Some(late) = &input.late {
            let what = window_text(&late.window);
            let _ = writeln!(text, "  only those that are late for their {what}");
        }
        if let Some(filter) = &input.filter {
            let _ = writeln!(text, "  filter {}", shown(filter, &rows));
        }
        let Some(project) = &input.project else { return Some(rows) };
        let columns = project.columns.iter().zip(project.schema.fields());
        let columns = columns.map(|(expr, field)| match shown(expr, &rows) {
            text if self.chain || text == *field.name() => text,
            text => format!("{text} AS {}", field.name()),
        });
        let _ = writeln!(text, "  project {}", list(columns));
        Some(project.schema.clone())
    }

    fn source(&self, text: &mut String, source: usize) {
        if let Some(source) = self.plan.sources.get(source) {
            source_text(text, source);
        }
    }
}

fn unnest_text(text: &mut String, stage: &Stage, unnest: &Unnest) {
    let fields = stage.output.fields();
    let kept = fields.len().saturating_sub(unnest.elements.len());
    let names = list(fields.iter().skip(kept).map(|field| field.name().clone()));
    let outer = if unnest.outer { ", NULL where there is none" } else { "" };
    let _ = writeln!(text, "  a row for each element: {names}{outer}");
}

fn lookup_text(text: &mut String, schema: &Schema, lookup: &Lookup) {
    let matched = if lookup.outer { ", NULL where nothing matches" } else { "" };
    let _ = writeln!(text, "  lookup: a row for each match in {}{matched}", lookup.name);
    let (side, columns) = (&lookup.side, &lookup.columns);
    let _ = writeln!(text, "  read {}: {}", lookup.name, side.table.describe(&side.projection));
    if let Some(filter) = &lookup.filter {
        let _ = writeln!(text, "  of that, filter {}", shown(filter, &side.schema));
    }
    let equal = if lookup.nulls_are_equal { "IS NOT DISTINCT FROM" } else { "=" };
    let keys = lookup.keys.iter().map(|[own, other]| {
        let (own_text, other) = (shown(&own.expr, schema), shown(&other.expr, &columns.schema));
        format!("{own_text} {equal} {other} {}", sql_type_name(&own.data_type))
    });
    let keys = list(keys);
    let _ = writeln!(text, "  keys {}", if keys.is_empty() { "none" } else { &keys });
    if let Some(condition) = &lookup.condition {
        let _ = writeln!(text, "  condition {}", shown(condition, &lookup.pair));
    }
}

fn source_text(text: &mut String, source: &Source) {
    let name = &source.name;
    let _ = writeln!(text, "  read {name}: {}", source.table.describe(&source.projection));
    let input = |e: &Expr| shown(e, &source.schema);
    for (i, derived) in source.derived.iter().enumerate() {
        let name = source.schema.field(source.projection.len() + i).name();
        let what = match derived {
            Derived::Computed(expr) => input(expr),
            Derived::ReadTime => "when the record was read".to_string(),
            Derived::Watermark => "the watermark before the record".to_string(),
        };
        let _ = writeln!(text, "  compute {name} = {what}");
    }
    let Some(event_time) = &source.event_time else { return };
    let name = source.schema.field(event_time.column).name();
    let watermark = match &event_time.watermark {
        Watermark::Delay(0) => name.to_string(),
        Watermark::Delay(us) => format!("{name} - {}", duration(*us)),
        Watermark::Clock => "of the clock".to_string(),
        Watermark::Expr(expr) => input(expr),
    };
    let _ = write!(text, "  event time {name}, watermark {watermark}");
    let idle = event_time.idle_timeout_us.map(duration);
    let _ = writeln!(text, "{}", idle.map_or(String::new(), |d| format!(", idle after {d}")));
}

fn aggregate_text(text: &mut String, schema: &Schema, aggregate: &Aggregate) {
    let input = |e: &Expr| shown(e, schema);
    if let Some(window) = &aggregate.window {
        let _ = write!(text, "  {}", window_text(window));
        if aggregate.windows_in_slice > 1 {
            let parts = match window {
                Window::Tumble(_) | Window::Interval(_) => "",
                Window::Hop(_) | Window::Cumulate(_) => "panes ",
                Window::Session(_) => "gaps ",
            };
            let _ = write!(text, ", {} {parts}computed together", aggregate.windows_in_slice);
        }
        let of_each = match window {
            Window::Session(session) => &aggregate.keys[..session.partition],
            _ => &[],
        };
        let of_each = list(of_each.iter().map(|key| input(&key.expr)));
        if !of_each.is_empty() {
            let _ = write!(text, " for each {of_each}");
        }
        text.push('\n');
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
        Some(Window::Interval(_)) => "when the watermark has passed all that rows may meet",
        Some(_) => "when the watermark passes a window's end",
        None => "once, at the end of the input",
    };
    let _ = writeln!(text, "second pipeline ({when})");
    for (side, of) in aggregate.pairs.iter().flat_map(|of| ["left", "right"].map(|side| (side, of)))
    {
        let PairSide { filter, project } = &of.sides[usize::from(side == "right")];
        let columns = list(project.columns.iter().map(|column| shown(column, &of.records)));
        let filter = filter.as_ref().map(|filter| shown(filter, &of.records));
        let filter = filter.map_or(String::new(), |filter| format!(" where {filter}"));
        let _ = writeln!(text, "  {side} side of its pairs: {columns}{filter}");
    }
    let fired = |e: &Expr| shown(e, &aggregate.fired);
    if let Some(having) = &aggregate.having {
        let _ = writeln!(text, "  filter {}", fired(having));
    }
    let _ = writeln!(text, "  project {}", list(aggregate.project.iter().map(fired)));
}

fn join_text(text: &mut String, [left, right]: [&Schema; 2], join: &Join) {
    match &join.window {
        Some(Window::Interval(interval)) if join.as_of => {
            let _ = writeln!(text, "  slices of {}", duration(interval.slice_us()));
        }
        Some(window) => {
            let _ = writeln!(text, "  {}", window_text(window));
        }
        None => {}
    }
    let where_they_meet = match (join.broadcast, &join.window) {
        (None, Some(Window::Interval(interval)))
            if !join.as_of && interval.has_leaders_of_slices() =>
        {
            "which meet at the slice's leader"
        }
        (None, _) => "which meet at the key's leader",
        (Some(_), _) => "which meet where the larger side's row is",
    };
    let _ = writeln!(text, "soft breaker (keeps rows of both sides, {where_they_meet})");
    let kind = match join.kind {
        JoinKind::Inner => "pairs",
        JoinKind::Left => "pairs, and rows of the left side without a partner",
        JoinKind::Right => "pairs, and rows of the right side without a partner",
        JoinKind::Full => "pairs, and rows of both sides without a partner",
        JoinKind::LeftSemi => "rows of the left side that have a partner",
        JoinKind::LeftAnti => "rows of the left side that have no partner",
    };
    let _ = writeln!(text, "  join: {kind}");
    if let Some(side) = join.broadcast {
        let (small, large) = if side == 0 { ("left", "right") } else { ("right", "left") };
        let _ = writeln!(
            text,
            "  broadcast: the {small} side's row of a window goes to all workers; rows of the \
             {large} side stay where they are"
        );
    }
    if join.as_of {
        let _ = writeln!(text, "  of the right side the last row of a key that is no later");
    }
    let equal = if join.nulls_are_equal { "IS NOT DISTINCT FROM" } else { "=" };
    let keys = join.keys.iter().map(|[l, r]| {
        let not_null = if l.nullable || r.nullable { "" } else { " NOT NULL" };
        let (one, other) = (shown(&l.expr, left), shown(&r.expr, right));
        format!("{one} {equal} {other} {}{not_null}", sql_type_name(&l.data_type))
    });
    let keys = list(keys);
    let _ = writeln!(text, "  keys {}", if keys.is_empty() { "none" } else { &keys });
    if let Some(condition) = &join.condition {
        let _ = writeln!(text, "  condition {}", shown(condition, &join.pair));
    }
    let when = match join.window {
        Some(Window::Interval(_)) => "when the watermark has passed all that rows may meet",
        Some(_) => "when the watermark passes a window's end",
        None => "once, at the end of the input",
    };
    let _ = writeln!(text, "second pipeline ({when})");
    let fired = |e: &Expr| shown(e, &join.fired);
    if let Some(having) = &join.having {
        let _ = writeln!(text, "  filter {}", fired(having));
    }
    let _ = writeln!(text, "  project {}", list(join.project.iter().map(fired)));
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

/// Which rows an interval join brings together.
fn interval_text(interval: &Interval) -> String {
    let anchor = interval.side();
    let other = if anchor == "left" { "right" } else { "left" };
    let (before, after) = (duration(interval.before_us), duration(interval.after_us));
    format!(
        "interval: {other} rows from {before} before a {anchor} row to {after} after it, by slices \
         of {}",
        duration(interval.slice_us())
    )
}

/// Text of a window's length and offset.
fn window_text(window: &Window) -> String {
    let (text, offset_us) = match window {
        Window::Tumble(tumble) => (duration(tumble.size_us), tumble.offset_us),
        Window::Hop(hop) => {
            let text = format!("{} every {}", duration(hop.size_us), duration(hop.slide_us));
            (text, hop.offset_us)
        }
        Window::Cumulate(cumulate) => {
            let (size, step) = (duration(cumulate.size_us), duration(cumulate.step_us));
            (format!("up to {size} by {step}"), cumulate.offset_us)
        }
        Window::Session(session) => {
            return format!("session with gaps of {}", duration(session.gap_us));
        }
        Window::Interval(interval) => return interval_text(interval),
    };
    let offset = (offset_us != 0).then(|| format!(", offset {}", duration(offset_us)));
    format!("window of {text}{}", offset.unwrap_or_default())
}
