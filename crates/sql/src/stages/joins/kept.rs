//! `EXISTS`, `IN` and their opposites in WHERE and HAVING: joins that give rows of the query around
//! them, each once. Conditions of the subquery on columns of the query around it are the join's.

use datafusion_expr::Filter;
use datafusion_expr::utils::{conjunction, split_conjunction};
use millstream_contract::plan::JoinKind;

use super::conditions::Numbered;
use super::opened::{Opened, Subquery};
use super::{JoinSide, NamedJoin, at, interval};
use crate::expr::{indexed::Indexed, text::sql_text};
use crate::stages::lower::{Places, Stage, indexed};
use crate::stages::texts::Clause;
use crate::syntax::prelude::*;

impl Stage {
    /// Lowers a condition on rows, which may have subqueries.
    pub(crate) fn of_filter(filter: &Filter, places: &Places) -> Result<Stage> {
        let parts = split_conjunction(&filter.predicate);
        match parts.iter().any(|part| Subquery::of(part).is_some()) {
            true => Stage::of_conditions(&filter.input, parts, places),
            false => Stage::of_conditions(&filter.input, vec![&filter.predicate], places),
        }
    }

    /// The rows of a plan for which all of these hold.
    fn of_conditions(input: &LogicalPlan, all: Vec<&Expr>, places: &Places) -> Result<Stage> {
        let (subqueries, plain): (Vec<&Expr>, Vec<&Expr>) =
            all.into_iter().partition(|part| Subquery::of(part).is_some());
        let schema = indexed(input.schema());
        let mut stage = match input {
            LogicalPlan::Join(join) => {
                let parts = plain.iter().flat_map(|part| split_conjunction(part)).cloned();
                Stage::of_join(join, &parts.collect::<Vec<_>>(), places)?
            }
            other => {
                let stage = Stage::new(other, places)?;
                // Right above the grouping stands HAVING.
                let clause = match other {
                    LogicalPlan::Aggregate(_) => Clause::Having,
                    _ => Clause::Any,
                };
                match conjunction(plain.iter().map(|part| (*part).clone())) {
                    Some(condition) => stage.filtered(clause, &condition, &schema, places)?,
                    None => stage,
                }
            }
        };
        for subquery in subqueries.into_iter().filter_map(Subquery::of) {
            if subquery.has_one_row()? {
                if subquery.negated {
                    stage = stage.filtered(Clause::Any, &lit(false), &schema, places)?;
                }
                continue;
            }
            stage = stage.kept_by(&subquery, &plain, &schema, places)?;
        }
        Ok(stage)
    }

    /// The rows of this stage that a subquery keeps; `schema` is the schema of the stage's plan,
    /// and `known` holds for all the rows.
    fn kept_by(
        self,
        subquery: &Subquery<'_>,
        known: &[&Expr],
        schema: &Indexed,
        places: &Places,
    ) -> Result<Stage> {
        let name = subquery.name();
        let named = NamedJoin {
            name: name.to_string(),
            place: places.texts.at(places.subquery),
            within: places.join_within_us.is_some(),
        };
        let opened = Opened::new(subquery)
            .and_then(|opened| opened.check_names(schema).map(|()| opened))
            .map_err(|error| at(error, named.place.as_ref()))?;
        let own: Vec<&Expr> = opened.own.iter().collect();
        let right = Stage::of_conditions(&opened.input, own.clone(), places);
        let right = right.map_err(|error| at(error, named.place.as_ref()))?;
        let schemas = [Indexed::new(DFSchema::clone(schema)), indexed(opened.input.schema())];
        let numbered = Numbered::new(&schemas, places)?;
        let mut on = Vec::new();
        if let (Some(value), Some(wanted)) = (&opened.value, subquery.value) {
            let left = numbered.of_side(0, wanted, &schemas[0], places)?;
            let right = numbered.of_side(1, value, &schemas[1], places)?;
            let nullable = [
                numbered.nullable(&left) && !is_given(wanted, known),
                numbered.nullable(&right) && !is_given(value, &own),
            ];
            if subquery.negated && nullable != [false, false] {
                return Err(not_in_nullable(&named, wanted, value, nullable));
            }
            let equal = BinaryExpr::new(Box::new(left), Operator::Eq, Box::new(right));
            on.push(numbered.of_numbered(Expr::BinaryExpr(equal), named.place.clone()));
        }
        for condition in &opened.outer {
            on.push(numbered.condition(condition, places)?);
        }
        let kind = if subquery.negated { JoinKind::LeftAnti } else { JoinKind::LeftSemi };
        let [left, inner] = &schemas;
        let sides = [JoinSide::new(self, left, places)?, JoinSide::new(right, inner, places)?];
        let plans = (&numbered, &schemas);
        let within = interval::within(kind, &sides, &on, plans, (&named, places))?;
        on.extend(numbered.conditions(&within, places)?);
        Stage::joined(kind, sides, on, vec![], &numbered, named)
    }
}

/// The operand below casts and aliases.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => uncast(&cast.expr),
        Expr::Alias(alias) => uncast(&alias.expr),
        other => other,
    }
}

/// Whether conditions say of an expression that it is not NULL.
fn is_given(expr: &Expr, conditions: &[&Expr]) -> bool {
    let parts = conditions.iter().flat_map(|condition| split_conjunction(condition));
    let mut given = parts.filter_map(|part| match part {
        Expr::IsNotNull(given) => Some(&**given),
        _ => None,
    });
    given.any(|given| uncast(given) == uncast(expr))
}

/// NOT IN where a value of the query, of the subquery or of both may be NULL: one NULL decides for
/// all rows.
fn not_in_nullable(
    named: &NamedJoin,
    wanted: &Expr,
    value: &Expr,
    nullable: [bool; 2],
) -> SqlError {
    let [wanted, value] = [wanted, value].map(|expr| sql_text(uncast(expr)));
    let one = if nullable[0] { &wanted } else { &value };
    let own = format!("{wanted} IS NOT NULL in WHERE");
    let other = format!("{value} IS NOT NULL in the WHERE of the subquery");
    let given = match nullable {
        [true, true] => format!("{own}, and {other}"),
        [true, false] => own,
        [false, _] => other,
    };
    // One name in both queries would be the inner one's.
    let equal = match wanted == value {
        true => format!("i.{value} = o.{wanted} AND …), with FROM … AS o around it"),
        false => format!("{value} = {wanted} AND …)"),
    };
    let alias = if wanted == value { " AS i" } else { "" };
    named.error(
        format!(
            "NOT IN keeps no row at all once there is a NULL, and {one} can be NULL: each row \
             would have to be compared with all others"
        ),
        format!(
            "leave NULLs out: {given}; or, where a NULL is to be like no other value, write\n\
             NOT EXISTS (SELECT 1 FROM …{alias} WHERE {equal}"
        ),
    )
}
