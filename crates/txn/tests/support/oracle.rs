//! An interpreter that executes scripts one by one, over a sorted map.

use std::collections::BTreeMap;

use millstream_txn::{Abort, Cause, Verdict};

use super::script::{Event, Line, Script, Section, TableShape, Verb, fits, folded, key_words, sum};

/// All rows, by table and key.
pub(crate) type Rows = BTreeMap<(usize, Vec<u64>), Vec<u64>>;
/// A value that a transaction returns: the statement, whether the row exists, the row.
pub(crate) type Returned = (usize, bool, Vec<u64>);

/// What one transaction yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) returned: Vec<Returned>,
}

struct Running<'a> {
    shapes: &'a [TableShape],
    event: &'a Event,
    rows: Rows,
    /// The newest value of each statement: the first word of its row, 0 for none.
    newest: BTreeMap<usize, i64>,
    returned: Vec<Returned>,
}

/// Executes one event; an abort leaves the rows as they are.
pub(crate) fn execute(
    script: &Script,
    shapes: &[TableShape],
    event: &Event,
    rows: &mut Rows,
) -> Answer {
    let (newest, returned) = (BTreeMap::new(), Vec::new());
    let mut running = Running { shapes, event, rows: rows.clone(), newest, returned };
    match running.all(script) {
        Ok(()) => {
            *rows = running.rows;
            let mut returned = running.returned;
            returned.sort_by_key(|(statement, ..)| *statement);
            Answer { verdict: Ok(()), returned }
        }
        Err(abort) => Answer { verdict: Err(abort), returned: Vec::new() },
    }
}

impl Running<'_> {
    fn all(&mut self, script: &Script) -> Verdict {
        let mut first = 0;
        for section in &script.sections {
            let lines = section.lines();
            let rounds = match section {
                Section::Plain(_) => 1,
                Section::Loop(_) => self.event.list.len(),
            };
            for element in 0..rounds {
                for (at, line) in lines.iter().enumerate() {
                    let cause = self.line(first + at, line, element);
                    let (statement, element) = ((first + at) as u16, element as u32);
                    cause.map_err(|cause| Abort { statement, element, cause })?;
                }
            }
            first += lines.len();
        }
        Ok(())
    }

    fn line(&mut self, number: usize, line: &Line, element: usize) -> Result<(), Cause> {
        let used: i64 = line.uses.iter().map(|used| self.newest[used]).sum();
        if line.verb == Verb::Require {
            let holds = sum(line, 0, used, self.event) >= 0;
            return if holds { Ok(()) } else { Err(Cause::Required) };
        }
        let shape = self.shapes[line.table];
        let key = key_words(line.key, self.event, element, shape.key_words);
        let place = (line.table, key);
        let old = self.rows.get(&place).cloned();
        let value = match line.verb {
            Verb::Read => Some(old.ok_or(Cause::MissingRow)?),
            Verb::Find => old,
            Verb::Delete => {
                self.rows.remove(&place);
                Some(old.ok_or(Cause::MissingRow)?)
            }
            Verb::Update | Verb::TryUpdate if old.is_none() => return Err(Cause::MissingRow),
            Verb::Insert if old.is_some() => return Err(Cause::Duplicate),
            _ => {
                let new = self.new_row(line, old, used, shape)?;
                self.rows.insert(place, new.clone());
                Some(new)
            }
        };
        self.newest.insert(number, value.as_ref().map_or(0, |row| row[0] as i64));
        if line.returns {
            let row = value.clone().unwrap_or_else(|| vec![0; shape.row_words]);
            self.returned.push((number, value.is_some(), row));
        }
        Ok(())
    }

    fn new_row(
        &self,
        line: &Line,
        old: Option<Vec<u64>>,
        used: i64,
        shape: TableShape,
    ) -> Result<Vec<u64>, Cause> {
        let existed = i64::from(old.is_some());
        let old = old.unwrap_or_else(|| vec![0; shape.row_words]);
        let mut new = Vec::new();
        for word in old {
            let value = sum(line, word as i64, used, self.event);
            if matches!(line.verb, Verb::TryUpdate | Verb::TryUpsert) && !fits(value) {
                return Err(Cause::Overflow);
            }
            new.push(folded(value + existed));
        }
        if shape.is_checked && (new[0] as i64) < 0 {
            return Err(Cause::Check(0));
        }
        Ok(new)
    }
}
