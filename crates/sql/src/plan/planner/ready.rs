//! Queries that are to run: the sinks of their rows, and notes about the queries.

use millstream_contract::sink::{Manner, Sink};

use super::{PlannedQuery, Planner};
use crate::names::{catalog::Origin, ends::is_endless, varying::why_rows_vary, written::check_new};
use crate::syntax::prelude::*;
use crate::syntax::script::Statement;
use crate::syntax::statement::{StatementKind, inserts};

impl Planner {
    /// Reads the records of a table that is declared from now on from a file, whatever its
    /// connector: a CSV file with a header if its name ends so, else one of NDJSON. The path is as
    /// one in `CREATE TABLE`.
    pub fn read_from_file(&mut self, table: &str, path: &str) {
        self.stand_ins.read_from_file(table, path);
    }

    /// Inserts into the sinks that `sink` makes from the names of tables, whatever the connectors
    /// of these.
    pub fn insert_into(&mut self, sink: impl Fn(&str) -> Arc<dyn Sink> + Send + Sync + 'static) {
        self.stand_ins.insert_into(Arc::new(sink));
    }

    /// A query that is to run, or some INSERTs with the sinks of their rows.
    pub(super) fn runnable(
        &mut self,
        kind: &StatementKind,
        statement: &Statement,
    ) -> Result<(PlannedQuery, Vec<Arc<dyn Sink>>)> {
        let mut planned = self.plan(kind, statement)?;
        self.note(&planned, statement)?;
        if let StatementKind::Query(_) = kind {
            for (number, name) in planned.left_out.iter().enumerate() {
                let manner = self.manner(&planned, number + 1);
                let sink = self.sink_of(&Ident::new(name.clone()), manner)?;
                planned.left_out_sinks.push(sink);
            }
            return Ok((planned, Vec::new()));
        }
        let mut sinks = Vec::new();
        for insert in inserts(kind) {
            let overwrites = insert.overwrites;
            let manner = Manner { overwrites, ..self.manner(&planned, sinks.len()) };
            sinks.push(self.sink_of(&insert.table, manner)?);
        }
        for name in &planned.left_out {
            let manner = self.manner(&planned, sinks.len());
            sinks.push(self.sink_of(&Ident::new(name.clone()), manner)?);
        }
        planned.targets.append(&mut planned.left_out);
        Ok((planned, sinks))
    }

    /// How the rows of an output come.
    fn manner(&self, planned: &PlannedQuery, output: usize) -> Manner {
        let intervals = self.settings.checkpoint.path.is_some();
        Manner {
            overwrites: false,
            endless: is_endless(&planned.plan, output),
            intervals,
            varies: why_rows_vary(&planned.plan, &self.settings, output),
            resumes: intervals && self.resumes,
        }
    }

    /// Whether the rows of an output into a table become visible by commits ([`Sink::commits`]),
    /// and what the sink says of them ([`Sink::promise`]). Neither, of a table that cannot be
    /// inserted into.
    pub fn promise(
        &self,
        planned: &PlannedQuery,
        output: usize,
        table: &str,
    ) -> (bool, Option<String>) {
        let sink = match self.stand_ins.sink(table) {
            Some(sink) => Ok(sink),
            None => self.table_named(&Ident::new(table)).and_then(|t| t.sink(&*self.connectors)),
        };
        let Ok(sink) = sink else { return (false, None) };
        sink.expect(self.manner(planned, output));
        (sink.commits(), sink.promise())
    }

    /// Notes the sources of a statement that will run, and whether the statement ends.
    fn note(&mut self, planned: &PlannedQuery, statement: &Statement) -> Result<()> {
        self.readings.note(&planned.plan, statement)?;
        if self.written.is_some() {
            self.ends.note(&planned.plan, !planned.targets.is_empty(), statement)?;
        }
        Ok(())
    }

    /// The sink of a table that the statement inserts into.
    fn sink_of(&mut self, name: &Ident, manner: Manner) -> Result<Arc<dyn Sink>> {
        let entry = self.table_named(name)?;
        if let Some(sink) = self.stand_ins.sink(&name.value) {
            return Ok(sink);
        }
        let place = Span::new(name.span);
        if manner.overwrites && manner.endless {
            let message = "INSERT OVERWRITE replaces what is there when the query has ended, and this \
                           one never ends";
            return Err(SqlError::unsupported(message)
                .at(place)
                .help("write INSERT INTO, or give the query a LIMIT"));
        }
        let sink = entry.sink(&*self.connectors)?;
        if !sink.expect(manner) && manner.overwrites {
            let message = format!("nothing in table '{}' can be overwritten", entry.name);
            return Err(SqlError::unsupported(message)
                .at(place)
                .help("only files can: write INSERT INTO"));
        }
        if let Some(path) = &self.settings.checkpoint.path {
            sink.keep_in(&self.path(path));
        }
        if let (Some(written), Origin::Connector(declared)) = (&mut self.written, &entry.origin) {
            check_new(&declared.options, written).map_err(|e| e.at(place))?;
            written.push(declared.options.clone());
        }
        Ok(sink)
    }
}
