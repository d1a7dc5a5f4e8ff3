//! Lookup joins: each row is joined with the table's rows at the time of the row's arrival. The
//! table is read wholly beforehand, so the join keeps no rows of its left side and is a pass.

use millstream_contract::plan::JoinKind;

use super::conditions::{self, Bounds, SortedConditions, column_of};
use super::version::Versioned;
use super::{JoinSide, NamedJoin, at};
use crate::names::catalog::input_column;
use crate::stages::elements::Kept;
use crate::stages::lower::{Places, Rows, Stage, fired_column, unique};
use crate::stages::nest::{By, Looked};
use crate::syntax::prelude::*;

impl Stage {
    /// The stage of a lookup join.
    pub(super) fn looked_up(join: Versioned, places: &Places) -> Result<Stage> {
        let numbered = join.numbered(places)?;
        let Versioned { kind, named, schemas, mut sides, on, above, .. } = join;
        sides[0].stage.refuse_mixed(&named.name, None).map_err(|e| at(e, named.place.as_ref()))?;
        check_right(&sides[1].stage, &named)?;
        let on = numbered.conditions(&on, places)?;
        let above = numbered.conditions(&above, places)?;
        let mut parts =
            SortedConditions::new(kind, on, above, &sides, &numbered, [Bounds::Plain; 2]);
        parts.push_filters(&mut sides)?;
        let used = parts.keys.iter().flatten().chain(&parts.condition);
        let used: HashSet<usize> = used
            .flat_map(|expr| expr.column_refs())
            .filter_map(|column| column_of(&Expr::Column(column.clone())))
            .filter_map(|(side, at)| (side == 0).then_some(at))
            .collect();
        let [JoinSide { stage: mut left, .. }, JoinSide { stage: right, names }] = sides;
        let Rows::Table(entry) = right.input else { return Err(no_table(&named)) };
        let fires = left.gives_results();
        let mut kept = match fires {
            true => left.kept_of_results(schemas[0].fields())?,
            false => left.kept(schemas[0].fields(), &|at| used.contains(&at))?,
        };
        let shown: Vec<String> =
            names.into_iter().map(|name| unique(name, &mut kept.taken)).collect();
        let side: Vec<Expr> = shown.iter().map(|name| input_column(name)).collect();
        let over = |expr: &Expr| conditions::over(expr, [&kept.own, &side]);
        let keys = parts.keys.iter().map(|[one, other]| Ok([over(one)?, over(other)?]));
        let looked = Looked {
            entry,
            filters: right.filters,
            columns: right.columns,
            outer: kind == JoinKind::Left,
            keys: keys.collect::<Result<_>>()?,
            nulls_are_equal: parts.nulls_are_equal,
            condition: parts.condition.iter().map(over).collect::<Result<_>>()?,
            place: named.place.clone(),
        };
        let given: Vec<Expr> = match fires {
            true => shown.iter().map(fired_column).collect(),
            false => side.clone(),
        };
        let having = parts.having.iter().map(|e| conditions::over(e, [&kept.columns, &given]));
        let having = having.collect::<Result<Vec<_>>>()?;
        if fires {
            let mut stage = left.expanding(kept, None, shown, By::Lookup(Box::new(looked)))?;
            if let Some(fires) = &mut stage.fires {
                *fires.having_mut() = having;
            }
            return Ok(stage);
        }
        let (filters, Kept { names: kept, inner, columns, window, .. }) = (having, kept);
        left.columns = inner;
        let input = left.expanded(&kept, &shown, &By::Lookup(Box::new(looked)))?;
        let columns = [columns, side].concat();
        Ok(Stage { window, filters, ..Stage::over(input, columns) })
    }
}

/// Checks that the right side supports lookups.
fn check_right(right: &Stage, named: &NamedJoin) -> Result<()> {
    let plain = matches!(right.input, Rows::Table(_)) && right.fires.is_none();
    if plain && right.window.is_none() { Ok(()) } else { Err(no_table(named)) }
}

fn no_table(named: &NamedJoin) -> crate::syntax::error::SqlError {
    named.error(
        format!("{}: what is looked up in is a table that ends, or a view of its rows", named.name),
        "write the result of a query to a file first, and look up in that; or join within windows, \
         or by event time",
    )
}
