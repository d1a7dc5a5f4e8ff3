//! Joins. A join is a stage of two sides, each of which is a table with windows, the result of
//! another stage, or a UNION ALL of such. Expressions above the join are over the joined rows, as
//! above a grouping.
//!
//! Rows meet within windows if a condition compares their windows for equality. The condition then
//! needs no evaluation. Among the other conditions, an equality of the two sides becomes a key; a
//! condition on rows of a single side, if the join need not keep all its rows, filters these before
//! the join ([`conditions`]). Conditions on the distance of the times of two rows make an interval
//! join ([`interval`]). A join with `FOR SYSTEM_TIME AS OF` is a lookup or a temporal join
//! ([`version`]). EXISTS and IN are joins that select rows of their left side ([`kept`],
//! [`opened`]).

mod conditions;
mod interval;
mod kept;
mod lookup;
mod opened;
mod ranked;
mod sides;
mod temporal;
mod version;
mod windows;
mod written;

use datafusion_common::{JoinType, NullEquality};
use datafusion_expr::Join;
use datafusion_expr::utils::split_conjunction_owned;
use millstream_contract::plan::{Interval, JoinKind, Window};

use crate::expr::{
    indexed::Indexed, located::within_mark, scalars::coalesce, window_node::WINDOW_COLUMNS,
};
use crate::names::alike::all_alike;
use crate::stages::joined::{Joined, Unwindowed};
use crate::stages::lower::{Fires, Places, Rows, Stage, fired_column, indexed, unique};
use crate::stages::{
    as_of::take_time, counted::Counted, texts::Clause, windows::assigned::Windows,
};
use crate::syntax::prelude::*;
use conditions::{Bounds, Condition, Numbered, SortedConditions};
pub(crate) use interval::NO_PAIR;
use interval::TimeBounds;
use ranked::LastRowView;
use sides::JoinInput;
pub(crate) use written::{
    LATERAL, check_kind, check_star, misplaced, of_several, subqueries, using,
};

/// A side, before the join's needs are known.
#[derive(Clone)]
struct JoinSide {
    /// The stage; its input is the rows of other stages or tables.
    stage: Stage,
    /// Of its columns.
    names: Vec<String>,
}

/// How rows of two sides meet: in windows, within an interval, or all with all.
struct Meets {
    window: Option<Window>,
    /// With the column of the anchor side's plan that is its event time, if there is one.
    interval: Option<(Interval, Option<usize>)>,
    unwindowed: Option<Unwindowed>,
    as_of: bool,
}

/// A join's name in messages, and its place.
#[derive(Clone)]
struct NamedJoin {
    name: String,
    place: Option<Place>,
    /// Whether the setting `join.within` is there.
    within: bool,
}

impl JoinSide {
    /// A stage of a plan of `schema`.
    fn new(stage: Stage, schema: &Indexed, places: &Places) -> Result<JoinSide> {
        stage.refuse_after_limit("a join", places)?;
        let stage = stage.with_session_records()?;
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        Ok(JoinSide { stage: stage.over_groups(schema), names })
    }
}

impl NamedJoin {
    /// An error about the join.
    fn error(&self, message: impl Into<String>, help: impl Into<String>) -> SqlError {
        at(SqlError::unsupported(message), self.place.as_ref()).help(help)
    }
}

/// An error at a place, unless it has one.
fn at(error: SqlError, place: Option<&Place>) -> SqlError {
    match place {
        Some(place) if error.span.is_none() => error.at(Some(place.span)).in_source(&place.source),
        _ => error,
    }
}

/// Whether a plan is the last row of each key, which is something else at each time: so it runs as
/// the right side of a temporal join alone.
pub(crate) fn are_versions(plan: &LogicalPlan, places: &Places) -> Result<bool> {
    Ok(LastRowView::of(plan, places)?.is_some())
}

/// Kind and SQL name of a join of this type.
fn kind_of(join_type: JoinType) -> Result<(JoinKind, &'static str)> {
    Ok(match join_type {
        JoinType::Inner => (JoinKind::Inner, "JOIN"),
        JoinType::Left => (JoinKind::Left, "LEFT JOIN"),
        JoinType::Right => (JoinKind::Right, "RIGHT JOIN"),
        JoinType::Full => (JoinKind::Full, "FULL JOIN"),
        JoinType::LeftSemi => (JoinKind::LeftSemi, "LEFT SEMI JOIN"),
        JoinType::LeftAnti => (JoinKind::LeftAnti, "LEFT ANTI JOIN"),
        other => return Err(SqlError::internal(format!("a join of the type {other}"))),
    })
}

/// The conditions of a join.
fn conditions_of(join: &Join) -> Vec<Expr> {
    let op = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let equal = |(left, right): &(Expr, Expr)| {
        let (left, right) = (Box::new(left.clone()), Box::new(right.clone()));
        Expr::BinaryExpr(BinaryExpr { left, op, right })
    };
    let equal = join.on.iter().map(equal);
    equal.chain(join.filter.clone().into_iter().flat_map(split_conjunction_owned)).collect()
}

impl Stage {
    /// Lowers a join, and conditions on its rows.
    pub(crate) fn of_join(join: &Join, above: &[Expr], places: &Places) -> Result<Stage> {
        let (kind, name) = kind_of(join.join_type)?;
        let mut on = conditions_of(join);
        let mut above = above.to_vec();
        if kind == JoinKind::Inner {
            on.append(&mut above);
        }
        if let Some(time) = take_time(&mut on) {
            return Stage::of_version(join, &time, (on, above), places);
        }
        let place = on.iter().find_map(|e| places.texts.place(e));
        // Conditions of this join, or on its rows, that are asked of the rows of a join below.
        let lower = |plan: &LogicalPlan, conditions: &mut Vec<Expr>| {
            Stage::below_join(plan, conditions, places)
        };
        let none = &mut vec![];
        let [left, right] = match kind {
            JoinKind::Inner => [lower(&join.left, &mut on)?, lower(&join.right, &mut on)?],
            JoinKind::Right => [lower(&join.left, none)?, lower(&join.right, &mut above)?],
            JoinKind::Full => [lower(&join.left, none)?, lower(&join.right, none)?],
            JoinKind::Left | JoinKind::LeftSemi | JoinKind::LeftAnti => {
                [lower(&join.left, &mut above)?, lower(&join.right, none)?]
            }
        };
        let schemas = [indexed(join.left.schema()), indexed(join.right.schema())];
        let named = NamedJoin::of_join(name, &schemas, place, places);
        let numbered = Numbered::new(&schemas, places)?;
        let sides =
            [JoinSide::new(left, &schemas[0], places)?, JoinSide::new(right, &schemas[1], places)?];
        let mut on_pairs = numbered.conditions(&on, places)?;
        let plans = (&numbered, &schemas);
        let within = interval::within(kind, &sides, &on_pairs, plans, (&named, places))?;
        on_pairs.extend(numbered.conditions(&within, places)?);
        on.extend(within);
        if kind == JoinKind::Full
            && windows::common(&sides, &on_pairs, &named)?.is_none()
            && let TimeBounds::Interval(..) =
                interval::time_bounds(kind, &sides, &on_pairs, &numbered)
        {
            let stage =
                Stage::full_by_interval(sides, on_pairs, &on, &numbered, (join, places), named)?;
            let schema = indexed(&join.schema);
            return above
                .iter()
                .try_fold(stage, |stage, e| stage.filtered(Clause::Any, e, &schema, places));
        }
        let above = numbered.conditions(&above, places)?;
        Stage::joined(kind, sides, on_pairs, above, &numbered, named)
    }

    /// A side of a join, which has those of the conditions on the join's rows that are its own.
    fn below_join(
        plan: &LogicalPlan,
        conditions: &mut Vec<Expr>,
        places: &Places,
    ) -> Result<Stage> {
        let LogicalPlan::Join(below) = plan else { return Stage::new(plan, places) };
        let schema = indexed(&below.schema);
        let own = |e: &mut Expr| conditions::belongs_below(e, &schema);
        let own: Vec<Expr> = conditions.extract_if(.., own).collect();
        Stage::of_join(below, &own, places)
    }

    /// A FULL JOIN by an interval of time: what a LEFT JOIN gives, and the rows of the right side
    /// that have no partner. `on` are the conditions as they stand in the plan.
    fn full_by_interval(
        [left, right]: [JoinSide; 2],
        on_pairs: Vec<Condition>,
        on: &[Expr],
        numbered: &Numbered,
        (join, places): (&Join, &Places),
        named: NamedJoin,
    ) -> Result<Stage> {
        let schemas = [indexed(join.right.schema()), indexed(join.left.schema())];
        let swapped = Numbered::new(&schemas, places)?;
        let on_swapped = swapped.conditions(on, places)?;
        let both = [left.clone(), right.clone()];
        let mut pairs =
            Stage::joined(JoinKind::Left, both, on_pairs, vec![], numbered, named.clone())?;
        let other = [right, left];
        let mut alone =
            Stage::joined(JoinKind::LeftAnti, other, on_swapped, vec![], &swapped, named)?;
        // Each counts the records of its own side, all of which it gives.
        for stage in [&mut pairs, &mut alone] {
            if let Rows::Sides(sides) = &stage.input {
                stage.counted = Counted::First(sides[0].len());
            }
        }
        let null = |field: &FieldRef| Ok(lit(ScalarValue::try_from(field.data_type())?));
        let nulls = join.left.schema().fields().iter().map(null).collect::<Result<Vec<_>>>()?;
        alone.columns.splice(0..0, nulls);
        let (mut taken, fields) = (HashSet::new(), join.schema.fields().iter());
        let names = fields.map(|f| unique(f.name().clone(), &mut taken)).collect();
        let parts = [pairs.finish()?, alone.finish()?].concat();
        Stage::over_all(parts, names)
    }

    /// A join of two sides, whose conditions are `on`, and conditions on what it gives.
    fn joined(
        kind: JoinKind,
        sides: [JoinSide; 2],
        mut on: Vec<Condition>,
        above: Vec<Condition>,
        numbered: &Numbered,
        named: NamedJoin,
    ) -> Result<Stage> {
        let window = windows::common(&sides, &on, &named)?;
        let (interval, unwindowed) = match window {
            Some(_) => (None, None),
            None => interval::or_why_not(kind, &sides, &on, numbered, &named),
        };
        // Those of the windows go without saying, where keys do not tell windows apart.
        let sessions = matches!(window, Some(Window::Session(_)));
        if window.is_some() && !sessions {
            on.retain(|condition| windows::equality(&sides, &condition.expr).is_none());
        }
        let bounds_of = sides.each_ref().map(|side| match &side.stage.window {
            Some(own) if window.is_some() && !own.are_known() => Bounds::OfPairs,
            Some(_) if window.is_some() && !sessions => Bounds::Both,
            _ => Bounds::Plain,
        });
        let parts = SortedConditions::new(kind, on, above, &sides, numbered, bounds_of);
        let meets = Meets { window, interval, unwindowed, as_of: false };
        Stage::meeting(kind, sides, parts, meets, &named)
    }

    /// A join of two sides whose conditions have been sorted.
    fn meeting(
        kind: JoinKind,
        mut sides: [JoinSide; 2],
        mut parts: SortedConditions,
        meets: Meets,
        named: &NamedJoin,
    ) -> Result<Stage> {
        let Meets { window, interval, unwindowed, as_of } = meets;
        if let Some((interval, _)) = interval {
            sides.iter_mut().for_each(|side| {
                side.stage.slice_sessions(&Window::Interval(interval));
            });
        }
        let sessions = matches!(window, Some(Window::Session(_)));
        parts.push_filters(&mut sides)?;
        let padded = [kind.keeps_right(), matches!(kind, JoinKind::Left | JoinKind::Full)];
        let mut taken = HashSet::from(WINDOW_COLUMNS.map(str::to_string));
        let mut take = |side: JoinSide, padded: bool| match window {
            Some(_) => JoinInput::of_windows(side, sessions, padded, &mut taken),
            None => JoinInput::whole(side, &mut taken),
        };
        let time_name = interval.and_then(|(of, at)| sides[of.anchor].names.get(at?).cloned());
        let [left, right] = sides;
        let (left, right) = (take(left, padded[0])?, take(right, padded[1])?);
        let bounds = match (window, sessions) {
            (None, _) => [None, None, None],
            (_, false) => WINDOW_COLUMNS.map(|name| Some(fired_column(name))),
            (_, true) if !padded[0] => left.bounds.clone(),
            (_, true) if !padded[1] => right.bounds.clone(),
            // Of a FULL JOIN, those of the row that is there.
            _ => [0, 1, 2].map(|bound| {
                let sides = [left.bounds[bound].clone()?, right.bounds[bound].clone()?];
                Some(coalesce(sides.to_vec()))
            }),
        };
        let time = interval.and_then(|(of, at)| [&left, &right][of.anchor].fired.get(at?).cloned());
        let columns = match kind.gives_pairs() {
            true => [&left.fired[..], &right.fired].concat(),
            false => left.fired.clone(),
        };
        let joined = Joined {
            bounds,
            interval: interval.map(|(of, _)| of),
            time,
            time_name,
            unwindowed,
            as_of,
            ..over_sides(kind, parts, [&left, &right], named)?
        };
        let rows = Rows::Sides(Box::new([left.parts, right.parts]));
        Ok(Stage {
            window: window.map(|kind| Windows::inherited(kind, [None, None, None])),
            fires: Some(Fires::Joined(Box::new(joined))),
            ..Stage::over(rows, columns)
        })
    }

    /// The window of a FULL JOIN's row is that of one side or the other: `COALESCE(L.window_end,
    /// R.window_end)` is a column of the window.
    pub(crate) fn with_bounds(&self, expr: Expr) -> Result<Expr> {
        let bounds = match &self.fires {
            Some(Fires::Joined(joined)) if joined.kind == JoinKind::Full => &joined.bounds,
            _ => return Ok(expr),
        };
        if bounds.iter().all(Option::is_none) {
            return Ok(expr);
        }
        let is_bound = |expr: &Expr| bounds.iter().flatten().any(|bound| bound == expr);
        let either = |args: &[Expr]| {
            if let [one, other] = args {
                let either = [[one, other], [other, one]]
                    .map(|[one, other]| coalesce(vec![one.clone(), other.clone()]));
                if let Some(bound) = either.into_iter().find(is_bound) {
                    return Some(bound);
                }
            }
            let guarded = args.iter().map(sides::bound_of_side).collect::<Option<Vec<_>>>()?;
            match &guarded[..] {
                [(name, one), (same, other)] if name == same && one != other => {
                    Some(fired_column(*name))
                }
                _ => None,
            }
        };
        let with_bounds = expr.replaced(|e| {
            Ok(match e {
                Expr::ScalarFunction(call) if call.name() == "coalesce" => either(&call.args),
                marked => within_mark(marked)
                    .filter(|inner| matches!(inner, Expr::Column(_)) || is_bound(inner))
                    .cloned(),
            })
        });
        Ok(with_bounds?)
    }
}

/// Keys and conditions of a join, over the columns of the taken sides.
fn over_sides(
    kind: JoinKind,
    parts: SortedConditions,
    [left, right]: [&JoinInput; 2],
    named: &NamedJoin,
) -> Result<Joined> {
    let over = |exprs: &[Expr], columns| {
        exprs.iter().map(|e| conditions::over(e, columns)).collect::<Result<Vec<_>>>()
    };
    let own = [&left.own[..], &right.own[..]];
    let keys = parts.keys.iter().map(|key| {
        let [left, right] = key.each_ref().map(|e| conditions::over(e, own));
        Ok([left?, right?])
    });
    let mut joined = Joined {
        kind,
        keys: keys.collect::<Result<_>>()?,
        nulls_are_equal: parts.nulls_are_equal,
        condition: over(&parts.condition, [&left.pair, &right.pair])?,
        having: over(&parts.having, [&left.fired, &right.fired])?,
        bounds: [None, None, None],
        interval: None,
        time: None,
        time_name: None,
        unwindowed: None,
        as_of: false,
    };
    let mut known: Vec<[Expr; 2]> = Vec::new();
    joined.keys.retain(|key| {
        let is_new = known.iter().all(|known| !all_alike(known, key));
        known.extend(is_new.then(|| key.clone()));
        is_new
    });
    match sides::place_windows(&mut joined, [&left.of_windows, &right.of_windows]) {
        true => Ok(joined),
        false => Err(sides::refused_in_full(named)),
    }
}

impl NamedJoin {
    fn of_join(
        name: &str,
        schemas: &[Indexed; 2],
        place: Option<Place>,
        places: &Places,
    ) -> NamedJoin {
        let sides = schemas.each_ref().map(|schema| {
            let mut tables = schema.iter().map(|(table, _)| table.map(|t| t.table().to_string()));
            let first = tables.next().flatten();
            first.filter(|first| tables.all(|table| table.as_ref().is_none_or(|t| t == first)))
        });
        let name = match sides {
            [Some(left), Some(right)] => format!("the {name} of {left} and {right}"),
            [None, Some(right)] => format!("the {name} with {right}"),
            _ => format!("the {name}"),
        };
        let place = place.or_else(|| places.texts.at(places.join));
        NamedJoin { name, place, within: places.join_within_us.is_some() }
    }
}
