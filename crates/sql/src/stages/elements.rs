//! UNNEST and lookups in stages. What such a pass takes is a stage of its own, of an UNNEST with
//! the array as its last column; what stands above is a stage over the rows that come out.
//!
//! These rows are the record's: they have its time, and a window over a table is one over the
//! elements, or the matches, of its records, too.

use datafusion_expr::UserDefinedLogicalNodeCore;

use crate::names::catalog::input_column;
use crate::stages::lower::{Places, Rows, Stage, is_window_column, unique};
use crate::stages::nest::{By, Expanded, Inner};
use crate::stages::unnest::UnnestNode;
use crate::stages::windows::assigned::{Assigned, Windows};
use crate::syntax::prelude::*;

/// The columns of a stage that are kept where a pass makes other rows of its own.
pub(crate) struct Kept {
    /// Names and expressions of the columns that go into the pass.
    pub(crate) names: Vec<String>,
    pub(crate) inner: Vec<Expr>,
    /// The stage's columns, over the rows that come out of the pass.
    pub(crate) columns: Vec<Expr>,
    /// The same, over the rows that go into the pass.
    pub(crate) own: Vec<Expr>,
    pub(crate) window: Option<Windows>,
    /// Names that columns have.
    pub(crate) taken: HashSet<String>,
}

impl Stage {
    /// The rows that an UNNEST makes of this stage's rows; the node stands over the stage's plan.
    pub(crate) fn unnested(mut self, node: &UnnestNode, places: &Places) -> Result<Stage> {
        self.refuse_after_limit("UNNEST", places)?;
        self = self.with_session_records()?.over_groups(node.input.schema());
        self.refuse_mixed("UNNEST", node.place)?;
        let fields = UserDefinedLogicalNodeCore::schema(node).fields();
        let (fields, elements) = fields.split_at(fields.len() - node.elements.len());
        let array = self.columns.last().cloned();
        let array = array.ok_or_else(|| SqlError::internal("an UNNEST of no column"))?;
        let array = self.without_window(array)?;
        if self.gives_results() {
            let mut kept = self.kept_of_results(fields)?;
            let shown = elements.iter().map(|field| unique(field.name().clone(), &mut kept.taken));
            let shown = shown.collect();
            let name = unique("$array".into(), &mut kept.taken);
            return self.expanding(kept, Some((name, array)), shown, By::Elements(node.body()));
        }
        let Kept { names, mut inner, mut columns, window, mut taken, .. } =
            self.kept(fields, &|_| false)?;
        let shown: Vec<String> =
            elements.iter().map(|field| unique(field.name().clone(), &mut taken)).collect();
        columns.extend(shown.iter().map(|name| input_column(name)));
        inner.push(array);
        self.columns = inner;
        let input = self.expanded(&names, &shown, &By::Elements(node.body()))?;
        Ok(Stage { window, ..Stage::over(input, columns) })
    }

    /// Refuses a UNION ALL of records and results.
    pub(crate) fn refuse_mixed(&self, what: &str, place: Option<Span>) -> Result<()> {
        let Rows::Stages(parts) = &self.input else { return Ok(()) };
        if !self.input.are_results() || parts.iter().all(|part| part.stage.fires.is_some()) {
            return Ok(());
        }
        let message = format!(
            "{what} for a UNION ALL of records of tables and of results of a GROUP BY or a join does \
             not run"
        );
        let help = "write it into each query of the UNION ALL";
        Err(SqlError::unsupported(message).at(place).help(help))
    }

    /// Takes the columns of this stage that a pass keeps; `fields` are the plan's fields for them.
    /// The windows of the result belong to the rows that come out. A window column goes into the
    /// pass only if `below` is true for its position.
    pub(crate) fn kept(
        &mut self,
        fields: &[FieldRef],
        below: &dyn Fn(usize) -> bool,
    ) -> Result<Kept> {
        let (mut taken, mut names, mut inner) = (HashSet::new(), Vec::new(), Vec::new());
        let (mut columns, mut own) = (Vec::new(), Vec::new());
        for (at, (field, column)) in fields.iter().zip(&self.columns).enumerate() {
            let of_window = is_window_column(column);
            if of_window && !below(at) {
                columns.push(column.clone());
                own.push(column.clone());
                continue;
            }
            let name = unique(field.name().clone(), &mut taken);
            inner.push(self.without_window(column.clone())?);
            own.push(input_column(&name));
            columns.push(if of_window { column.clone() } else { input_column(&name) });
            names.push(name);
        }
        self.drop_windows()?;
        let window = self.window.take();
        let assigned = window.as_ref().and_then(|own| Some((own.kind, own.assignment()?)));
        let window = assigned.map(|(kind, assigned)| {
            let time = &assigned.time;
            let known = inner.iter().position(|column| column == time);
            let name = match known {
                Some(position) => names[position].clone(),
                None => {
                    names.push(unique("$time".into(), &mut taken));
                    inner.push(time.clone());
                    names[names.len() - 1].clone()
                }
            };
            let (time, place) = (input_column(&name), assigned.place);
            let (partition, records) = (vec![], vec![]);
            Windows::assigned(kind, Assigned { time, partition, records, below: 0, place })
        });
        Ok(Kept { names, inner, columns, own, window, taken })
    }

    /// The rows that this stage's rows become. `kept` are the names of the stage's columns, except
    /// for an array, which is the last column; `shown` names the added columns.
    pub(crate) fn expanded(self, kept: &[String], shown: &[String], by: &By) -> Result<Rows> {
        let of_part = |inner| {
            let (kept, shown) = (kept.to_vec(), shown.to_vec());
            Rows::Expanded(Arc::new(Expanded { inner, kept, shown, by: by.clone() }))
        };
        let mut parts: Vec<Rows> = self.folded()?.into_iter().map(of_part).collect();
        Ok(match (parts.pop(), parts.is_empty()) {
            (Some(only), true) => only,
            (last, _) => {
                let names: Vec<String> = kept.iter().chain(shown).cloned().collect();
                let part = |input| {
                    let columns = names.iter().map(|name| input_column(name)).collect();
                    Inner { stage: Stage::over(input, columns), names: names.clone() }
                };
                Rows::Stages(parts.into_iter().chain(last).map(part).collect())
            }
        })
    }
}
