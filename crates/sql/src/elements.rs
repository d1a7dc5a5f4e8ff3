//! UNNEST in stages. What it takes is a stage of its own, whose last column is the array; what
//! stands above is a stage over the rows that come out.
//!
//! These rows are the record's: they have its time, and a window over a table is one over the
//! elements of its records, too.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion_expr::UserDefinedLogicalNodeCore;
use millstream_contract::plan::{Unnest, Window};

use crate::catalog::input_column;
use crate::error::{Result, SqlError};
use crate::lower::{Places, Rows, Stage, is_window_column, unique};
use crate::nest::{Inner, Unnested};
use crate::unnest::UnnestNode;
use crate::windows::{Assigned, OfRow, Windows};

impl Stage {
    /// The rows that an UNNEST makes of those of this stage, over whose plan it stands.
    pub(crate) fn unnested(mut self, node: &UnnestNode, places: &Places) -> Result<Stage> {
        self.refuse_after_limit("UNNEST", places)?;
        let of_groups = match &self.input {
            Rows::Stages(parts) => parts.iter().any(|part| part.stage.fires.is_some()),
            Rows::Table(_) | Rows::Unnested(_) | Rows::Sides(_) => false,
        };
        if of_groups || self.fires.is_some() {
            let message = "UNNEST of the rows of a GROUP BY or a join does not run yet";
            let help = "put the UNNEST before the GROUP BY or the join, in a query in FROM: it \
                        takes the records of a table";
            return Err(SqlError::unsupported(message).at(node.place).help(help));
        }
        if let Some(Windows { kind: Window::Session(_), of_row: OfRow::Assigned(_) }) = self.window
        {
            let message = "UNNEST of the rows of SESSION does not run";
            return Err(SqlError::unsupported(message).at(node.place).help(
                "put the UNNEST below it: then records without elements make no session longer",
            ));
        }
        let fields = UserDefinedLogicalNodeCore::schema(node).fields();
        let (fields, elements) = fields.split_at(fields.len() - node.elements.len());
        let mut taken = HashSet::new();
        let (mut kept, mut inner, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (field, column) in fields.iter().zip(&self.columns) {
            // The window is that of the rows that come out.
            if is_window_column(column) {
                columns.push(column.clone());
                continue;
            }
            let name = unique(field.name().clone(), &mut taken);
            inner.push(self.without_window(column.clone())?);
            columns.push(input_column(&name));
            kept.push(name);
        }
        let array = self.columns.last().cloned();
        let array = array.ok_or_else(|| SqlError::internal("an UNNEST of no column"))?;
        let array = self.without_window(array)?;
        self.drop_windows()?;
        let window = self.window.take();
        let assigned = window.as_ref().and_then(|own| Some((own.kind, own.assignment()?)));
        let window = assigned.map(|(kind, assigned)| {
            let time = &assigned.time;
            let known = inner.iter().position(|column| column == time);
            let name = match known {
                Some(position) => kept[position].clone(),
                None => {
                    kept.push(unique("$time".into(), &mut taken));
                    inner.push(time.clone());
                    kept[kept.len() - 1].clone()
                }
            };
            let (time, place) = (input_column(&name), assigned.place);
            Windows::assigned(kind, Assigned { time, partition: vec![], below: 0, place })
        });
        let shown: Vec<String> =
            elements.iter().map(|field| unique(field.name().clone(), &mut taken)).collect();
        columns.extend(shown.iter().map(|name| input_column(name)));
        inner.push(array);
        self.columns = inner;
        let input = self.elements(&kept, &shown, &node.body())?;
        Ok(Stage { window, ..Stage::over(input, columns) })
    }

    /// The rows that the elements of this stage's last column become. `kept` are the names of its
    /// other columns, `shown` those of what is shown of the elements.
    pub(crate) fn elements(self, kept: &[String], shown: &[String], body: &Unnest) -> Result<Rows> {
        let of_part = |inner| {
            let (kept, shown) = (kept.to_vec(), shown.to_vec());
            Rows::Unnested(Arc::new(Unnested { inner, kept, shown, body: body.clone() }))
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
