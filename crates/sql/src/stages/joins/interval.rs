//! Interval joins: conditions that say how far apart the event times of two rows may be, both ways.
//!
//! They stay conditions on pairs, which decide to the tick. What is found here is how long rows
//! must be kept.

use datafusion_expr::cast;
use millstream_contract::plan::{Interval, JoinKind, Window};

use super::conditions::{self, Condition, Numbered, column_of};
use super::{JoinSide, NamedJoin, windows};
use crate::expr::{indexed::Indexed, located::within_mark, window_node::WINDOW_COLUMNS};
use crate::stages::joined::Unwindowed;
use crate::stages::lower::{Places, Rows, window_column};
use crate::syntax::durations::interval_us;
use crate::syntax::prelude::*;

/// How long before its window's end the event time of a result is.
const WINDOW_TIME_BEFORE_END_US: i64 = 1000;

/// Reason for a join that keeps no rows and gives no pairs.
pub(crate) const NO_PAIR: &str =
    "never has a pair, as the least distance of two times is greater than the greatest";

/// The time of the left row minus that of the right row, at least and at most, as far as conditions
/// say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Distance {
    least_us: Option<i64>,
    most_us: Option<i64>,
    /// The columns of the event times.
    columns: [Option<usize>; 2],
}

/// A time of a row, and what is added to it.
struct RowTime {
    side: usize,
    /// Number of the column, if the time is the event time itself.
    at: Option<usize>,
    added_us: i64,
}

/// Bounds on the times of two rows that follow from conditions.
pub(super) enum TimeBounds {
    /// They meet within an interval; and which column of the anchor side's plan is its event time,
    /// if there is one.
    Interval(Interval, Option<usize>),
    /// They do not, though times are compared; why, and what helps.
    Otherwise(&'static str, &'static str),
    Nothing,
}

/// The interval of a join without windows, and which column of the anchor side's plan is its event
/// time; or what is to be said if its input never ends.
pub(super) fn or_why_not(
    kind: JoinKind,
    sides: &[JoinSide; 2],
    on: &[Condition],
    numbered: &Numbered,
    named: &NamedJoin,
) -> (Option<(Interval, Option<usize>)>, Option<Unwindowed>) {
    let by_time = match time_bounds(kind, sides, on, numbered) {
        // An interval FULL JOIN has been split into two joins where possible.
        TimeBounds::Interval(..) if kind == JoinKind::Full => None,
        TimeBounds::Interval(interval, at) => return (Some((interval, at)), None),
        TimeBounds::Otherwise(why, help) => Some((why, help)),
        TimeBounds::Nothing => None,
    };
    let windows = [0, 1].map(|side| sides[side].stage.window.is_some());
    let name = named.name.clone();
    let mut of_times = on.iter().filter(|condition| numbered.compares_times(&condition.expr));
    let of_times = by_time.and_then(|_| of_times.next()).and_then(|found| found.place.clone());
    let place = of_times.or_else(|| named.place.clone());
    let timeless = [0, 1].map(|side| !has_time(side, &sides[side], numbered));
    let tables = sides.each_ref().map(|side| match &side.stage.input {
        Rows::Table(table) => Some((table.name.clone(), table.time_name()?.to_string())),
        _ => None,
    });
    let (within, keeps) = (named.within, !kind.gives_pairs());
    (None, Some(Unwindowed { name, windows, within, timeless, tables, keeps, by_time, place }))
}

/// Bounds on the event times of a join's sides that follow from its conditions.
pub(super) fn time_bounds(
    kind: JoinKind,
    sides: &[JoinSide; 2],
    on: &[Condition],
    numbered: &Numbered,
) -> TimeBounds {
    let compare = |condition: &&Condition| numbered.compares_times(&condition.expr);
    let mut distance = Distance::default();
    let finding = Finding { sides, numbered };
    on.iter().for_each(|condition| finding.add(&condition.expr, &mut distance));
    let range = match (distance.least_us, distance.most_us) {
        (Some(least_us), Some(most_us)) => Ok((least_us, most_us)),
        (None, None) if on.iter().find(compare).is_none() => return TimeBounds::Nothing,
        (None, None) => Err((
            "compares times that are not the event times of its sides, or not by a constant \
             interval",
            "compare the columns that the watermarks are for: a.ts BETWEEN b.ts - INTERVAL '1' \
             MINUTE AND b.ts + INTERVAL '1' MINUTE",
        )),
        _ if on.iter().any(|condition| has_months(&condition.expr)) => Err((
            "says by months how far apart the times of two rows may be, which are not of one length",
            "say it by days or shorter units: INTERVAL '30' DAY",
        )),
        _ => Err((
            "says only one way how far apart the times of two rows may be",
            "say both ways: a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts + INTERVAL '1' MINUTE",
        )),
    };
    let (least_us, most_us) = match range {
        Ok(range) => range,
        Err((why, help)) => return TimeBounds::Otherwise(why, help),
    };
    if least_us > most_us {
        return TimeBounds::Otherwise(
            NO_PAIR,
            "the lesser bound comes first: a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts + \
             INTERVAL '1' MINUTE",
        );
    }
    if most_us.max(-least_us) > Interval::MAX_US {
        return TimeBounds::Otherwise("keeps rows for more than ten years", "shorten the interval");
    }
    // Of the row that is anchored: how much earlier and later the other one may be.
    let of_anchor = |anchor: usize| match anchor {
        0 => Interval { anchor, before_us: most_us, after_us: -least_us },
        _ => Interval { anchor, before_us: -least_us, after_us: most_us },
    };
    let interval = match kind {
        // Results come the sooner, the less the anchored row waits.
        JoinKind::Inner if of_anchor(1).delay_us() < of_anchor(0).delay_us() => of_anchor(1),
        JoinKind::Right => of_anchor(1),
        // A FULL JOIN is made of a LEFT JOIN and the rows of the right side that have no partner.
        JoinKind::Inner
        | JoinKind::Left
        | JoinKind::LeftSemi
        | JoinKind::LeftAnti
        | JoinKind::Full => of_anchor(0),
    };
    TimeBounds::Interval(interval, distance.columns[interval.anchor])
}

/// Conditions that the setting `join.within` adds to a join without windows, over the columns of
/// the plans of its sides. Empty if rows meet within windows, if the join's conditions bound the
/// distance of times, or if a side has no event time.
pub(super) fn within(
    kind: JoinKind,
    sides: &[JoinSide; 2],
    on: &[Condition],
    (numbered, schemas): (&Numbered, &[Indexed; 2]),
    (named, places): (&NamedJoin, &Places),
) -> Result<Vec<Expr>> {
    let Some(us) = places.join_within_us else { return Ok(vec![]) };
    if windows::common(sides, on, named)?.is_some()
        || matches!(time_bounds(kind, sides, on, numbered), TimeBounds::Interval(..))
    {
        return Ok(vec![]);
    }
    Ok(apart(us, sides, schemas).map(Vec::from).unwrap_or_default())
}

/// Conditions that the event times of two rows are at most so far apart.
fn apart(us: i64, sides: &[JoinSide; 2], schemas: &[Indexed; 2]) -> Option<[Expr; 2]> {
    let mut times = [time_of(&sides[0], &schemas[0])?, time_of(&sides[1], &schemas[1])?];
    if times[0].1 != times[1].1 {
        let zones = [&times[0].1, &times[1].1].map(|data_type| match data_type {
            DataType::Timestamp(_, zone) => Some(zone.clone()),
            _ => None,
        });
        let [Some(zone), Some(other)] = zones else { return None };
        if zone != other {
            return None;
        }
        let common = DataType::Timestamp(TimeUnit::Microsecond, zone);
        times = times.map(|(time, _)| (cast(time, common.clone()), common.clone()));
    }
    let [(left, _), (right, _)] = times;
    let us = lit(ScalarValue::new_interval_mdn(0, 0, us.checked_mul(1000)?));
    Some([left.clone().gt_eq(right.clone() - us.clone()), left.lt_eq(right + us)])
}

/// Whether a side's plan has a column that is the event time of its rows.
fn has_time(number: usize, side: &JoinSide, numbered: &Numbered) -> bool {
    (0..side.stage.columns.len()).any(|at| {
        let data_type = conditions::numbered(number, at).get_type(numbered.schema());
        data_type.is_ok_and(|data_type| time_column(side, at, &Field::new("", data_type, true)))
    })
}

/// Whether a column of a side's plan is the event time of its rows.
fn time_column(side: &JoinSide, at: usize, field: &Field) -> bool {
    let stage = &side.stage;
    matches!(field.data_type(), DataType::Timestamp(..))
        && stage.columns.get(at).is_some_and(|column| stage.check_time(column, field).is_ok())
}

/// The first column of a side's plan that is the event time of its rows, and its type.
fn time_of(side: &JoinSide, schema: &Indexed) -> Option<(Expr, DataType)> {
    let mut columns = schema.iter().enumerate();
    let (_, (table, field)) = columns.find(|(at, (_, field))| time_column(side, *at, field))?;
    let column = Column::new(table.cloned(), field.name());
    Some((Expr::Column(column), field.data_type().clone()))
}

struct Finding<'a> {
    sides: &'a [JoinSide; 2],
    numbered: &'a Numbered,
}

impl Finding<'_> {
    /// Adds what a condition says.
    fn add(&self, expr: &Expr, distance: &mut Distance) {
        match unmarked(expr) {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                self.add(left, distance);
                self.add(right, distance);
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                self.compare(left, *op, right, distance);
            }
            Expr::Between(Between { expr, negated: false, low, high }) => {
                self.compare(expr, Operator::GtEq, low, distance);
                self.compare(expr, Operator::LtEq, high, distance);
            }
            _ => {}
        }
    }

    fn compare(&self, left: &Expr, op: Operator, right: &Expr, distance: &mut Distance) {
        let (Some(left), Some(right)) = (self.time(left), self.time(right)) else { return };
        let (left, op, right) = match (left.side, right.side) {
            (0, 1) => (left, op, right),
            (1, 0) => match op.swap() {
                Some(op) => (right, op, left),
                None => return,
            },
            _ => return,
        };
        let Some(us) = right.added_us.checked_sub(left.added_us) else { return };
        distance.columns = [left.at, right.at];
        let cut_us = self.cut_us();
        let (least, most) = (us.saturating_sub(cut_us), us.saturating_add(cut_us));
        if matches!(op, Operator::Gt | Operator::GtEq | Operator::Eq) {
            distance.least_us = distance.least_us.max(Some(least));
        }
        if matches!(op, Operator::Lt | Operator::LtEq | Operator::Eq) {
            let known = distance.most_us.unwrap_or(i64::MAX);
            distance.most_us = Some(known.min(most));
        }
    }

    /// How much more an event time may be than its column says, or that in microseconds.
    fn cut_us(&self) -> i64 {
        let is_session = |side: &JoinSide| {
            side.stage.window.as_ref().is_some_and(|own| matches!(own.kind, Window::Session(_)))
        };
        // The columns of windows have whole milliseconds, and sessions end as records come.
        if self.sides.iter().any(is_session) { 1000 } else { 0 }
    }

    /// An event time, and a constant interval added to it.
    fn time(&self, expr: &Expr) -> Option<RowTime> {
        let expr = unmarked(expr);
        match expr {
            Expr::Column(_) => {
                let (side, at) = column_of(expr)?;
                let data_type = expr.get_type(self.numbered.schema()).ok()?;
                self.event_time(side, at, &data_type)
            }
            Expr::Cast(cast) => {
                let parts = |data_type: &DataType| match data_type {
                    DataType::Timestamp(unit, zone) => Some((*unit, zone.is_some())),
                    _ => None,
                };
                let (from, of_instant) = parts(&cast.expr.get_type(self.numbered.schema()).ok()?)?;
                let (to, to_instant) = parts(cast.field.data_type())?;
                let same = !self.numbered.zoned || of_instant == to_instant;
                (same && to >= from).then(|| self.time(&cast.expr))?
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let constant = |e: &Expr| match unmarked(e) {
                    Expr::Literal(value, _) => interval_us(value).flatten(),
                    _ => None,
                };
                let (time, us) = match op {
                    Operator::Plus => match (constant(left), constant(right)) {
                        (None, Some(us)) => (left, us),
                        (Some(us), None) => (right, us),
                        _ => return None,
                    },
                    Operator::Minus => (left, constant(right)?.checked_neg()?),
                    _ => return None,
                };
                let time = self.time(time)?;
                Some(RowTime { added_us: time.added_us.checked_add(us)?, ..time })
            }
            _ => None,
        }
    }

    /// A column that is the event time of its rows, or so much more: the end of their window.
    fn event_time(&self, side: usize, at: usize, data_type: &DataType) -> Option<RowTime> {
        let stage = &self.sides[side].stage;
        let (end, time) = (window_column(WINDOW_COLUMNS[1]), window_column(WINDOW_COLUMNS[2]));
        let column = stage.columns.get(at)?;
        let (column, at, added_us) = match *column == end {
            true => (&time, None, WINDOW_TIME_BEFORE_END_US),
            false => (column, Some(at), 0),
        };
        let field = Field::new(side.to_string(), data_type.clone(), true);
        stage.check_time(column, &field).is_ok().then_some(RowTime { side, at, added_us })
    }
}

/// Whether an interval that is added in an expression has months.
fn has_months(expr: &Expr) -> bool {
    let months = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => value.months != 0,
        Expr::Literal(ScalarValue::IntervalYearMonth(Some(months)), _) => *months != 0,
        _ => false,
    };
    expr.any_node(|e| Ok(months(e))).unwrap_or(false)
}

fn unmarked(expr: &Expr) -> &Expr {
    within_mark(expr).unwrap_or(expr)
}
