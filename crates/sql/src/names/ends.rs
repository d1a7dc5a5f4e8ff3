//! Which statements of a script end. A statement over an unbounded table without a LIMIT never
//! ends, so a query after it would never run and is refused.

use millstream_contract::plan::{Node, Operator, Plan};

use crate::syntax::prelude::*;
use crate::syntax::script::Statement;

/// The first statement of a script that has no end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    endless: Option<Endless>,
}

#[derive(Debug, Clone)]
struct Endless {
    inserts: bool,
    source: Arc<Source>,
    span: Option<Span>,
}

impl Ends {
    /// Notes a statement that is to run after those before. `inserts`: whether its rows go into
    /// tables.
    pub(crate) fn note(&mut self, plan: &Plan, inserts: bool, statement: &Statement) -> Result<()> {
        if let Some(endless) = &self.endless {
            return Err(endless.refuse(inserts, statement));
        }
        if never_ends(plan) {
            let (source, span) = (statement.source.clone(), statement.span);
            self.endless = Some(Endless { inserts, source, span });
        }
        Ok(())
    }
}

impl Endless {
    /// Refuses a statement behind it.
    fn refuse(&self, inserts: bool, statement: &Statement) -> SqlError {
        let what = if self.inserts { "INSERT" } else { "query" };
        let place = match self.span {
            Some(span) if Arc::ptr_eq(&self.source, &statement.source) => {
                format!(" on line {}", span.line)
            }
            _ => " before it".to_string(),
        };
        let message = format!(
            "this statement would never run: the {what}{place} reads a table that never ends"
        );
        SqlError::unsupported(message).at(statement.span).help(match self.inserts && inserts {
            true => {
                "run them together, with one reading of each table:\n\
                 EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END"
            }
            false => "put the one that never ends last, give it a LIMIT, or run two programs",
        })
    }
}

/// Whether an output of a plan goes on for ever.
fn never_ends(plan: &Plan) -> bool {
    (0..plan.outputs.len()).any(|output| !plan.outputs[output].side && is_endless(plan, output))
}

/// Whether this output of a plan goes on for ever. What is left out does as long as anything does.
pub(crate) fn is_endless(plan: &Plan, output: usize) -> bool {
    let Some(found) = plan.outputs.get(output) else { return false };
    if found.side {
        return never_ends(plan);
    }
    let stage = plan.stages.get(found.stage);
    let limited = stage
        .is_some_and(|stage| matches!(stage.operator, Operator::Stateless { limit: Some(_), .. }))
        || found.sort.as_ref().is_some_and(|sort| sort.limit.is_some());
    !limited && reads_endless(plan, Node::Stage(found.stage))
}

/// Whether rows of a node come from a table that never ends.
fn reads_endless(plan: &Plan, node: Node) -> bool {
    match node {
        Node::Source(source) | Node::Malformed(source) => {
            plan.sources.get(source).is_some_and(|source| !source.table.bounded())
        }
        Node::Stage(stage) => plan
            .stages
            .get(stage)
            .is_some_and(|stage| stage.inputs.iter().any(|input| reads_endless(plan, input.from))),
    }
}
