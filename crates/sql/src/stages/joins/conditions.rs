//! The conditions of a join, sorted into keys, conditions on the rows of a single side, and
//! conditions on pairs.
//!
//! A condition that may fail is evaluated for pairs only, in the written order, so that a row
//! without a partner cannot end a job. A key is computed of every row; a key protected by an
//! earlier condition is computed only of rows for which this condition holds.

use datafusion_common::TableReference;
use millstream_contract::plan::JoinKind;

use super::{JoinSide, at};
use crate::expr::located::{within_mark, without_cast_names};
use crate::expr::{indexed::Indexed, safe::cannot_fail};
use crate::stages::lower::{Over, Places, count_nodes, over as over_what};
use crate::stages::refusals::refuse_expr;
use crate::stages::schemas::{is_groupable, nullable};
use crate::syntax::prelude::*;
use crate::syntax::size::{MAX_NODES, too_large};
use crate::syntax::types::plain_type;

/// The qualifiers of the columns of both sides, whose names are their numbers.
const SIDES: [&str; 2] = ["$left", "$right"];

/// A condition on rows of two sides.
pub(super) struct Condition {
    /// Over numbered columns.
    pub(super) expr: Expr,
    /// Whether the condition always has a value, equal for equal rows.
    safe: bool,
    pub(super) place: Option<Place>,
}

/// The columns of both sides, by numbers.
pub(super) struct Numbered {
    /// Whether an instant and the local time that it is cast to differ.
    pub(super) zoned: bool,
    by_name: HashMap<(Option<TableReference>, String), (usize, usize)>,
    /// As they are called in the plan.
    named: Indexed,
    numbered: Indexed,
}

impl Numbered {
    /// Where both sides have a column of one name, it is the right side's.
    pub(super) fn new(schemas: &[Indexed; 2], places: &Places) -> Result<Numbered> {
        let mut by_name = HashMap::new();
        let mut fields = Vec::new();
        let mut named = DFSchema::clone(&schemas[1]);
        named.merge(&schemas[0]);
        for (side, schema) in schemas.iter().enumerate() {
            for (at, (table, field)) in schema.iter().enumerate() {
                by_name.insert((table.cloned(), field.name().clone()), (side, at));
                let field = field.as_ref().clone().with_name(at.to_string());
                fields.push((Some(TableReference::bare(SIDES[side])), Arc::new(field)));
            }
        }
        let numbered = DFSchema::new_with_metadata(fields, Default::default())?;
        let (named, numbered) = (Indexed::new(named), Indexed::new(numbered));
        Ok(Numbered { zoned: places.zoned, by_name, named, numbered })
    }

    /// A condition over the plan's columns.
    pub(super) fn condition(&self, expr: &Expr, places: &Places) -> Result<Condition> {
        let place = places.texts.place(expr);
        if expr.any_node(|e| Ok(matches!(e, Expr::AggregateFunction(_))))? {
            let message =
                "an aggregate cannot stand in a condition of a join, which sees single rows";
            return Err(at(SqlError::unsupported(message), place.as_ref()).help(
                "aggregate one side in a subquery first, and compare what it gives: JOIN \
                       (SELECT k, COUNT(*) AS n FROM … GROUP BY k, …) AS g ON g.n > 1",
            ));
        }
        let expr = self.number(expr, places, &|column| {
            let exact = (column.relation.clone(), column.name.clone());
            self.by_name.get(&exact).copied().or_else(|| {
                let mut same = self.by_name.iter().filter(|((_, name), _)| *name == column.name);
                same.next().map(|(_, at)| *at).filter(|_| same.next().is_none())
            })
        })?;
        Ok(self.of_numbered(expr, place))
    }

    /// Conditions over the plan's columns.
    pub(super) fn conditions(&self, exprs: &[Expr], places: &Places) -> Result<Vec<Condition>> {
        exprs.iter().map(|e| self.condition(e, places)).collect()
    }

    /// A condition over numbered columns.
    pub(super) fn of_numbered(&self, expr: Expr, place: Option<Place>) -> Condition {
        let safe = !expr.is_volatile() && cannot_fail(&expr, &self.numbered);
        Condition { expr, safe, place }
    }

    /// An expression over the columns of one side's plan.
    pub(super) fn of_side(
        &self,
        side: usize,
        expr: &Expr,
        schema: &Indexed,
        places: &Places,
    ) -> Result<Expr> {
        self.number(expr, places, &|column| Some((side, schema.index_of(column).ok()?)))
    }

    /// An expression over numbered columns, its parts that may fail marked with their place.
    fn number(
        &self,
        expr: &Expr,
        places: &Places,
        find: &dyn Fn(&Column) -> Option<(usize, usize)>,
    ) -> Result<Expr> {
        expr.each(|e| Ok(refuse_expr(e)?))?;
        let marked = places.texts.mark(without_cast_names(expr.clone())?, &self.named)?;
        let numbered = marked.replaced(|e| match e {
            Expr::Column(column) => match find(column) {
                Some((side, at)) => Ok(Some(numbered(side, at))),
                None => internal_err!("a join without {column}"),
            },
            Expr::Alias(alias) => Ok(Some(alias.expr.as_ref().clone())),
            _ => Ok(None),
        });
        Ok(numbered?)
    }

    /// The numbered columns.
    pub(super) fn schema(&self) -> &DFSchema {
        &self.numbered
    }

    /// Whether NULL can come out of an expression over numbered columns.
    pub(super) fn nullable(&self, expr: &Expr) -> bool {
        nullable(expr, &self.numbered)
    }

    /// Whether the condition compares times of the two sides by order rather than equality.
    pub(super) fn compares_times(&self, expr: &Expr) -> bool {
        let is_time = |e: &Expr| {
            matches!(e.get_type(&self.numbered), Ok(DataType::Timestamp(..) | DataType::Date32))
        };
        let compares = match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, .. }) => {
                use Operator::{Gt, GtEq, Lt, LtEq};
                matches!(op, Lt | LtEq | Gt | GtEq) && is_time(left)
            }
            Expr::Between(Between { expr, .. }) => is_time(expr),
            _ => false,
        };
        compares && sides_of(expr) == [true, true]
    }

    /// Whether an expression over the right side is one of these columns, perhaps of a wider type.
    fn tells_apart(&self, expr: &Expr, columns: &[usize]) -> bool {
        key_column(expr, &self.numbered).is_some_and(|at| columns.contains(&at))
    }

    /// The column of the right side that an expression is, perhaps of a wider type.
    pub(super) fn key_column(&self, expr: &Expr) -> Option<usize> {
        key_column(expr, &self.numbered)
    }

    /// The first column of `columns`, of the right side, that an equality compares after a cast
    /// which merges some of its values; with the types of the column and of the other operand.
    pub(super) fn key_cast(
        &self,
        expr: &Expr,
        columns: &[usize],
    ) -> Option<(usize, DataType, DataType)> {
        let (_, [other, key]) = self.key(expr)?;
        let Expr::Cast(cast) = unmarked(&key) else { return None };
        let (_, at) = column_of(unmarked(&cast.expr)).filter(|(_, at)| columns.contains(at))?;
        let of = |e: &Expr| e.get_type(&self.numbered).ok().map(|of| plain_type(&of));
        match self.tells_apart(&key, columns) {
            true => None,
            false => Some((at, of(&cast.expr)?, of(&other)?)),
        }
    }

    /// The two sides of an equality, if they can be compared as keys are.
    fn key(&self, expr: &Expr) -> Option<(Operator, [Expr; 2])> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = unmarked(expr) else { return None };
        if !matches!(op, Operator::Eq | Operator::IsNotDistinctFrom) || expr.is_volatile() {
            return None;
        }
        let of_type = |e: &Expr| e.get_type(&self.numbered).ok().map(|of| plain_type(&of));
        let key_type = of_type(left)?;
        if !is_groupable(&key_type) || of_type(right)? != key_type {
            return None;
        }
        match (sides_of(left), sides_of(right)) {
            ([true, false], [false, true]) => Some((*op, [*left.clone(), *right.clone()])),
            ([false, true], [true, false]) => Some((*op, [*right.clone(), *left.clone()])),
            _ => None,
        }
    }
}

fn unmarked(expr: &Expr) -> &Expr {
    within_mark(expr).unwrap_or(expr)
}

pub(super) fn numbered(side: usize, at: usize) -> Expr {
    Expr::Column(Column::new(Some(SIDES[side]), at.to_string()))
}

/// The side and the number of a numbered column.
fn number_of(column: &Column) -> Option<(usize, usize)> {
    let table = column.relation.as_ref()?.table();
    let side = SIDES.iter().position(|side| *side == table)?;
    Some((side, column.name.parse().ok()?))
}

/// As [`number_of`], of an expression that is a column.
pub(super) fn column_of(expr: &Expr) -> Option<(usize, usize)> {
    match expr {
        Expr::Column(column) => number_of(column),
        _ => None,
    }
}

/// Which sides an expression has columns of.
pub(super) fn sides_of(expr: &Expr) -> [bool; 2] {
    let mut sides = [false; 2];
    for (side, _) in expr.column_refs().into_iter().filter_map(number_of) {
        sides[side] = true;
    }
    sides
}

/// An expression over numbered columns with what these are in their place.
pub(super) fn over(expr: &Expr, columns: [&[Expr]; 2]) -> Result<Expr> {
    let find = |e: &Expr| column_of(e).and_then(|(side, at)| columns[side].get(at));
    let mut nodes = 0;
    expr.each(|e| {
        nodes += find(e).map_or(1, count_nodes);
        Ok(())
    })?;
    if nodes > MAX_NODES {
        let parts = format!("{nodes} parts once its views are written out");
        return Err(too_large(&parts, MAX_NODES));
    }
    Ok(expr.clone().replaced(|e| Ok(find(e).cloned()))?)
}

/// Whether a condition is one of a join below, whose columns are `schema`: it has no others, and it
/// may be asked of more rows, or is an equality, as which it saves pairs.
pub(super) fn belongs_below(expr: &Expr, schema: &Indexed) -> bool {
    let own = |column: &&Column| {
        schema
            .iter()
            .any(|(table, field)| table == column.relation.as_ref() && *field.name() == column.name)
    };
    let mut columns = expr.column_refs().into_iter().peekable();
    let equality = matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }));
    columns.peek().is_some()
        && columns.all(|column| own(&column))
        && !expr.is_volatile()
        && (equality || cannot_fail(expr, schema))
}

/// Conditions of a join, sorted. All are over numbered columns.
#[derive(Default)]
pub(super) struct SortedConditions {
    /// On rows of each side, before they are joined.
    pub(super) pushed: [Vec<Expr>; 2],
    pub(super) keys: Vec<[Expr; 2]>,
    pub(super) nulls_are_equal: bool,
    /// On pairs.
    pub(super) condition: Vec<Expr>,
    /// On what is given.
    pub(super) having: Vec<Expr>,
}

/// How the columns of a side's window are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bounds {
    /// Columns like all others.
    Plain,
    /// From the window, once rows have met.
    OfPairs,
    /// From the window, too.
    Both,
}

/// Context for sorting conditions.
struct Sorting<'a> {
    kind: JoinKind,
    /// Key columns, if rows of the right side are versions: a condition is evaluated only for the
    /// version that counts, not before the version is known.
    versions: Option<&'a [usize]>,
    sides: &'a [JoinSide; 2],
    numbered: &'a Numbered,
    bounds: [Bounds; 2],
    parts: SortedConditions,
    /// Of each side, conditions that are asked of pairs.
    guards: [Vec<Expr>; 2],
    /// Keys that treat NULLs as equal, with their original conditions.
    alike: Vec<([Expr; 2], Expr)>,
}

impl SortedConditions {
    /// Sorts the conditions of a join, and the conditions above the join.
    pub(super) fn new(
        kind: JoinKind,
        on: Vec<Condition>,
        above: Vec<Condition>,
        sides: &[JoinSide; 2],
        numbered: &Numbered,
        bounds: [Bounds; 2],
    ) -> SortedConditions {
        SortedConditions::sorted((kind, None), (on, above), sides, numbered, bounds)
    }

    /// Moves the conditions on rows of one side alone into that side.
    pub(super) fn push_filters(&mut self, sides: &mut [JoinSide; 2]) -> Result<()> {
        for (side, filters) in sides.iter_mut().zip(std::mem::take(&mut self.pushed)) {
            for filter in filters {
                let own = &side.stage.columns;
                let filter = over(&filter, [own, own])?;
                side.stage.filters.push(filter);
            }
        }
        Ok(())
    }

    /// As [`SortedConditions::new`], for a join with versions; `key` are the key columns of the
    /// right side.
    pub(super) fn of_versions(
        (kind, key): (JoinKind, &[usize]),
        on: Vec<Condition>,
        above: Vec<Condition>,
        sides: &[JoinSide; 2],
        numbered: &Numbered,
    ) -> SortedConditions {
        SortedConditions::sorted(
            (kind, Some(key)),
            (on, above),
            sides,
            numbered,
            [Bounds::Plain; 2],
        )
    }

    fn sorted(
        (kind, versions): (JoinKind, Option<&[usize]>),
        (on, above): (Vec<Condition>, Vec<Condition>),
        sides: &[JoinSide; 2],
        numbered: &Numbered,
        bounds: [Bounds; 2],
    ) -> SortedConditions {
        let (parts, guards, alike) = (SortedConditions::default(), [vec![], vec![]], vec![]);
        let mut sorting = Sorting { kind, versions, sides, numbered, bounds, parts, guards, alike };
        on.into_iter().for_each(|condition| sorting.add(condition));
        above.into_iter().for_each(|condition| sorting.add_above(condition));
        let Sorting { mut parts, alike, .. } = sorting;
        let never_null = |key: &[Expr; 2]| key.iter().any(|expr| !numbered.nullable(expr));
        if !alike.is_empty() && parts.keys.iter().all(never_null) {
            parts.nulls_are_equal = true;
            parts.keys.extend(alike.into_iter().map(|(key, _)| key));
        } else {
            parts.condition.extend(alike.into_iter().map(|(_, expr)| expr));
        }
        parts
    }
}

impl Sorting<'_> {
    fn add(&mut self, condition: Condition) {
        let side = match sides_of(&condition.expr) {
            [true, false] => 0,
            [false, true] => 1,
            _ => return self.add_of_pairs(condition.expr),
        };
        let is_dropped = [!self.kind.keeps_left(), !self.kind.keeps_right()][side];
        let is_dropped = is_dropped && (side == 0 || self.versions.is_none());
        if is_dropped && self.may_push(&condition, side) {
            return self.parts.pushed[side].push(condition.expr);
        }
        if self.is_early(&condition.expr, side) {
            self.guards[side].push(condition.expr.clone());
        }
        self.parts.condition.push(condition.expr);
    }

    fn add_of_pairs(&mut self, expr: Expr) {
        let key = self.numbered.key(&expr);
        let key = key.filter(|(_, key)| self.is_early(&key[0], 0) && self.is_early(&key[1], 1));
        let key = key.filter(|(op, key)| match self.versions {
            Some(columns) => *op == Operator::Eq && self.numbered.tells_apart(&key[1], columns),
            None => true,
        });
        match key {
            Some((Operator::Eq, key)) => {
                self.parts.keys.push(guarded(key, &self.guards, self.numbered));
            }
            Some((_, key)) => self.alike.push((key, expr)),
            None => self.parts.condition.push(expr),
        }
    }

    fn add_above(&mut self, condition: Condition) {
        let given_alone = match self.kind {
            JoinKind::Left | JoinKind::LeftSemi | JoinKind::LeftAnti => Some(0),
            JoinKind::Right => Some(1),
            JoinKind::Inner | JoinKind::Full => None,
        };
        let side = match sides_of(&condition.expr) {
            [true, false] => Some(0),
            [false, true] => Some(1),
            _ => None,
        };
        match side.filter(|side| Some(*side) == given_alone && self.may_push(&condition, *side)) {
            Some(side) => self.parts.pushed[side].push(condition.expr),
            None => self.parts.having.push(condition.expr),
        }
    }

    /// Whether some column of a side is such.
    fn any_column(&self, expr: &Expr, side: usize, is: impl Fn(Over) -> bool) -> bool {
        let columns = expr.column_refs().into_iter().filter_map(number_of);
        let mut own = columns.filter(|(of, _)| *of == side);
        own.any(|(_, at)| is(over_what(&self.sides[side].stage.columns[at])))
    }

    /// Whether it can be computed of the rows that the join takes.
    fn is_early(&self, expr: &Expr, side: usize) -> bool {
        self.bounds[side] == Bounds::Plain
            || !self.any_column(expr, side, |of| of.window && !of.input)
    }

    /// Whether it can be asked of the rows of a side.
    fn may_push(&self, condition: &Condition, side: usize) -> bool {
        let unknown = self.bounds[side] == Bounds::OfPairs;
        condition.safe && !(unknown && self.any_column(&condition.expr, side, |of| of.window))
    }
}

/// The number of the column that an expression is, if it has another value for each of the
/// column's.
fn key_column(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match unmarked(expr) {
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema).ok()?;
            is_exact(&from, cast.field.data_type()).then(|| key_column(&cast.expr, schema))?
        }
        column => column_of(column).map(|(_, at)| at),
    }
}

/// Whether each value of a type is another one of a type that values are brought to, to be
/// compared.
fn is_exact(from: &DataType, to: &DataType) -> bool {
    use DataType::{Decimal128, Float32, Float64, Int64, Timestamp, UInt64};
    match (from, to) {
        (Decimal128(_, from), Decimal128(_, to)) => from <= to,
        (from, Decimal128(_, scale)) => from.is_integer() && *scale >= 0,
        (Float32, Float64) => true,
        (Int64 | UInt64, Float64) => false,
        (from, Float64) => from.is_integer(),
        (Timestamp(from, _), Timestamp(to, _)) => from <= to,
        (from, to) => from == to || (from.is_integer() && to.is_integer()),
    }
}

/// A key that may fail, computed of those rows alone for which the conditions before it hold.
fn guarded(key: [Expr; 2], guards: &[Vec<Expr>; 2], numbered: &Numbered) -> [Expr; 2] {
    let mut sides = [0, 1].into_iter();
    key.map(|expr| {
        let guards = sides.next().map_or(&[][..], |side| &guards[side]);
        let guard = guards.iter().cloned().reduce(Expr::and);
        match guard.filter(|_| !cannot_fail(&expr, &numbered.numbered)) {
            None => expr,
            Some(guard) => {
                let passed = vec![(Box::new(guard), Box::new(expr))];
                Expr::Case(Case::new(None, passed, None))
            }
        }
    })
}
