//! UNNEST and lookups of results: of the rows of a GROUP BY, a join, or SESSION.
//!
//! Such a stage has no state: rows go on as they fire, with their times. Expressions above the
//! stage are over the rows that come out ([`FIRED`](crate::stages::lower::FIRED)).

use crate::names::catalog::input_column;
use crate::stages::elements::Kept;
use crate::stages::lower::{Fires, Rows, Stage, fired_column, unique};
use crate::stages::nest::{By, Expanding, Inner};
use crate::stages::windows::assigned::{OfRow, Windows};
use crate::syntax::prelude::*;

impl Stage {
    /// Whether its rows are results, which have been fired.
    pub(crate) fn gives_results(&self) -> bool {
        self.fires.is_some() || self.input.are_results()
    }

    /// Takes all columns of this stage, which is over results; they are of `fields` in the plan.
    pub(crate) fn kept_of_results(&mut self, fields: &[FieldRef]) -> Result<Kept> {
        let mut taken = HashSet::new();
        let names: Vec<String> =
            fields.iter().map(|field| unique(field.name().clone(), &mut taken)).collect();
        let inner = self.columns.iter().take(fields.len());
        let inner: Vec<Expr> =
            inner.map(|column| self.without_window(column.clone())).collect::<Result<_>>()?;
        self.drop_windows()?;
        let columns = names.iter().map(fired_column).collect();
        let own = names.iter().map(|name| input_column(name)).collect();
        Ok(Kept { names, inner, columns, own, window: None, taken })
    }

    /// The stage of an UNNEST or a lookup over the rows of this stage, which is over results.
    pub(crate) fn expanding(
        mut self,
        Kept { names, inner, columns, .. }: Kept,
        array: Option<(String, Expr)>,
        shown: Vec<String>,
        by: By,
    ) -> Result<Stage> {
        let window = self.window.take();
        let held = match &window {
            Some(Windows { of_row: OfRow::Inherited(inherited), .. }) => inherited.columns.clone(),
            _ => [None, None, None],
        };
        let bound = |held: Option<String>| {
            let column = input_column(&held?);
            let at = inner.iter().position(|own| *own == column)?;
            Some(fired_column(&names[at]))
        };
        let bounds = held.map(bound);
        let time = self.time_of_interval(&inner).map(|at| fired_column(&names[at]));
        let (mut all, mut takes) = (names.clone(), inner);
        if let Some((name, array)) = array {
            all.push(name);
            takes.push(array);
        }
        self.columns = takes;
        let part = |stage| Inner { stage, names: all.clone() };
        let parts: Vec<Inner> = self.folded()?.into_iter().map(part).collect();
        let of_operator = parts.first().and_then(|part| part.stage.operator_window());
        let columns = [columns, shown.iter().map(fired_column).collect()].concat();
        let expanding = Expanding {
            kept: names,
            shown,
            by,
            bounds,
            windowed: window.is_some(),
            window: of_operator,
            time,
            having: vec![],
        };
        let fires = Some(Fires::Expanded(Box::new(expanding)));
        Ok(Stage { window, fires, ..Stage::over(Rows::Stages(parts), columns) })
    }

    /// Which of some columns over its input is the event time of rows of an interval join.
    fn time_of_interval(&self, columns: &[Expr]) -> Option<usize> {
        let Rows::Stages(parts) = &self.input else { return None };
        let [part] = &parts[..] else { return None };
        columns.iter().position(|column| {
            let own = part.names.iter().position(|name| *column == input_column(name));
            own.is_some_and(|own| part.stage.is_time_of_interval(&part.stage.columns[own]))
        })
    }
}
