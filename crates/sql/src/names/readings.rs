//! Inputs that can be read only once, such as standard input: only one query of a session may read
//! them.

use millstream_contract::{plan::Plan, table::ReadOnce};

use crate::syntax::prelude::*;
use crate::syntax::script::Statement;

/// The readers of inputs that can be read only once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readings {
    by_id: BTreeMap<String, ReadingStatement>,
    /// The input from which the script itself was read.
    script: Option<ReadOnce>,
    elsewhere: bool,
}

/// A statement, which may be planned several times.
#[derive(Debug, Clone)]
struct ReadingStatement {
    source: Arc<Source>,
    span: Option<Span>,
}

impl Readings {
    /// Nothing is read here.
    pub(crate) fn elsewhere() -> Readings {
        Readings { elsewhere: true, ..Readings::default() }
    }

    /// The script itself was read from `what`.
    pub(crate) fn script_from(&mut self, what: ReadOnce) {
        self.script = Some(what);
    }

    /// Notes that `statement` reads the sources of `plan`, unless an earlier statement has read one
    /// of them.
    pub(crate) fn note(&mut self, plan: &Plan, statement: &Statement) -> Result<()> {
        if self.elsewhere {
            return Ok(());
        }
        let mut own = BTreeSet::new();
        for ReadOnce { id, name } in plan.sources.iter().filter_map(|s| s.table.read_once()) {
            if self.script.as_ref().is_some_and(|script| script.id == id) {
                let message = format!("{name} can be read only once, and the SQL was read from it");
                return Err(SqlError::new(ErrorKind::Connector, message).help(
                    "write the SQL in a file or after -e, or save the data in a file and read that",
                ));
            }
            let reader =
                ReadingStatement { source: statement.source.clone(), span: statement.span };
            let first = self.by_id.entry(id.clone()).or_insert(reader);
            let again = !own.insert(id);
            if first.is(statement) && !again {
                continue;
            }
            let whose = match first.span {
                Some(span) if !again => format!("the query on line {} reads it", span.line),
                _ => "this query reads it twice".to_string(),
            };
            let message = format!("{name} can be read only once, and {whose}");
            return Err(SqlError::new(ErrorKind::Connector, message).help(
                "save it in a file and read that, or read one table of it once for several results:\n\
                 EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END",
            ));
        }
        Ok(())
    }
}

impl ReadingStatement {
    fn is(&self, statement: &Statement) -> bool {
        Arc::ptr_eq(&self.source, &statement.source) && self.span == statement.span
    }
}
