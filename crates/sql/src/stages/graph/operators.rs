//! Operators of a graph, which have state: groupings and joins, and the views of their results.

use std::hash::DefaultHasher;

use millstream_contract::plan::Window;

use super::{Makes, Part};
use crate::expr::window_node::WINDOW_COLUMNS;
use crate::names::alike::{alike, all_alike, hash_all};
use crate::names::{catalog::add_columns, views::View};
use crate::stages::lower::{Call, Grouped, unique};
use crate::stages::{counted::Counted, joined::Joined};
use crate::syntax::prelude::*;

/// An operator with state: a grouping or a join.
pub(crate) struct Operator {
    /// Whose rows it takes: a grouping has one side, a join two.
    pub(crate) sides: Vec<Side>,
    pub(crate) window: Option<Window>,
    pub(crate) body: Body,
    pub(crate) counted: Counted,
    pub(crate) views: Vec<View>,
    /// The first query that needs this operator.
    pub(crate) query: usize,
    /// As in [`Stage::names`](millstream_contract::plan::Stage::names).
    pub(crate) names: BTreeSet<String>,
    /// The first endless table below this operator.
    pub(super) endless: Option<usize>,
    /// Hash; equal for operators that are alike.
    pub(super) fingerprint: u64,
}

/// Rows of several parts, taken as rows of a single table.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) parts: Vec<Part>,
    /// The columns of all parts; none if the part is a table as it is.
    pub(crate) names: Vec<String>,
    /// Columns that the operator needs, known once the graph is pruned.
    pub(crate) used: BTreeSet<String>,
    /// Over columns of these names.
    pub(crate) filters: Vec<Expr>,
}

/// Computation of an operator.
pub(crate) enum Body {
    /// Without HAVING, which is the views'.
    Grouped(Grouped),
    /// As well.
    Joined(Box<Joined>),
    /// No state: rows go on as they come, and views are what others make of these.
    Expanded(Makes),
}

impl Side {
    pub(super) fn new(parts: Vec<Part>, names: Vec<String>, filters: Vec<Expr>) -> Side {
        Side { parts, names, used: BTreeSet::new(), filters }
    }

    pub(super) fn hash_into(&self, state: &mut DefaultHasher) {
        self.names.hash(state);
        self.parts.iter().for_each(|part| part.hash_into(state));
        hash_all(&self.filters, state);
    }

    fn is_like(&self, other: &Side) -> bool {
        self.names == other.names
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(a, b)| a.is_like(b))
            && all_alike(&self.filters, &other.filters)
    }
}

impl Body {
    pub(super) fn hash_into(&self, state: &mut DefaultHasher) {
        match self {
            Body::Grouped(grouped) => hash_all(&grouped.keys, state),
            Body::Joined(joined) => {
                joined.keys.iter().for_each(|key| hash_all(key, state));
                hash_all(&joined.condition, state);
            }
            Body::Expanded(makes) => makes.names().hash(state),
        }
    }

    fn is_like(&self, other: &Body) -> bool {
        match (self, other) {
            (Body::Grouped(own), Body::Grouped(other)) => {
                own.windowed == other.windowed
                    && all_alike(&own.keys, &other.keys)
                    && own.ranks_like(other)
            }
            (Body::Joined(own), Body::Joined(other)) => own.is_like(other),
            (Body::Expanded(own), Body::Expanded(other)) => own.is_like(other),
            _ => false,
        }
    }

    /// Removes columns and aggregates that no reader of the fired rows needs.
    pub(super) fn keep(&mut self, fired: &BTreeSet<String>) {
        let Body::Grouped(grouped) = self else { return };
        let of_pairs = grouped.pairs.as_mut().map(|pairs| pairs.keep(fired));
        let fired = of_pairs.as_ref().unwrap_or(fired);
        grouped.aggregates.retain(|call| call.is_ranking() || fired.contains(&call.name));
        grouped.aggregates.iter_mut().for_each(|call| call.keep(fired));
    }
}

impl Operator {
    /// Whether another one makes the same of the same rows, but for the aggregates.
    pub(super) fn is_like(&self, other: &Operator) -> bool {
        self.window == other.window
            && self.sides.len() == other.sides.len()
            && self.sides.iter().zip(&other.sides).all(|(a, b)| a.is_like(b))
            && self.body.is_like(&other.body)
    }

    /// The parts of all sides.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.sides.iter().flat_map(|side| &side.parts)
    }

    /// The columns of a side that it needs, if these are needed of what fires.
    pub(super) fn used_of(&self, side: usize, fired: &BTreeSet<String>) -> BTreeSet<String> {
        match &self.body {
            Body::Grouped(grouped) => {
                let Side { parts, names, filters, .. } = &self.sides[side];
                let mut used = used_by(grouped, filters);
                let fired = parts.iter().any(|part| matches!(part, Part::View { .. }));
                if fired && grouped.tells_apart() {
                    // Fired rows are in the order of all their columns.
                    used.extend(names.iter().cloned());
                }
                used
            }
            Body::Joined(joined) => {
                let used = joined.used_of(side, fired);
                used.into_iter().filter(|name| self.sides[side].names.contains(name)).collect()
            }
            Body::Expanded(makes) => {
                let names = &self.sides[side].names;
                let mut used = fired.clone();
                match makes {
                    Makes::Elements(_) => used.extend(names.last().cloned()),
                    Makes::Lookup(lookup) => lookup.add_needs(&mut used),
                }
                used.into_iter().filter(|name| names.contains(name)).collect()
            }
        }
    }

    /// Takes in the aggregates of another operator like this. Returns the new names of its columns.
    pub(super) fn take_in(&mut self, other: Operator) -> HashMap<String, String> {
        self.counted = match (self.counted, other.counted) {
            (Counted::Nowhere, other) => other,
            (_, Counted::All) => Counted::All,
            (own, _) => own,
        };
        match (&mut self.body, other.body) {
            (Body::Grouped(own), Body::Grouped(other)) => take_in(own, other),
            _ => HashMap::new(),
        }
    }

    /// Whether what its stage gives is seen in several ways.
    pub(crate) fn is_shared(&self) -> bool {
        self.views.len() > 1 || matches!(self.body, Body::Expanded(_))
    }

    /// Conditions on what fires that hold for all views, the first of each.
    pub(crate) fn common_having(&self) -> &[Expr] {
        if let Body::Expanded(_) = self.body {
            return &[];
        }
        let Some((first, others)) = self.views.split_first() else { return &[] };
        let common = |at: &usize| {
            let condition = first.having.get(*at);
            let same = |view: &View| alike(view.having.get(*at), condition);
            condition.is_some() && others.iter().all(same)
        };
        let common = (0..).take_while(common).count();
        &first.having[..common]
    }

    /// The columns that fire and that some view is computed of, by name.
    pub(crate) fn fired_used(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for view in &self.views {
            view.having.iter().for_each(|expr| add_columns(expr, &mut used));
            view.needed().for_each(|column| add_columns(&column.expr, &mut used));
        }
        used
    }
}

/// Takes in the aggregates of another grouping like `own`. Returns the new names of its columns.
fn take_in(own: &mut Grouped, other: Grouped) -> HashMap<String, String> {
    let mut renamed: HashMap<_, _> =
        other.key_names.into_iter().zip(own.key_names.iter().cloned()).collect();
    let mut taken = HashSet::from(WINDOW_COLUMNS.map(str::to_string));
    taken.extend(own.key_names.iter().cloned());
    taken.extend(own.aggregates.iter().map(|call| call.name.clone()));
    for mut call in other.aggregates {
        let known = own.aggregates.iter().find(|known| known.is_like(&call));
        let name = match known {
            Some(known) => known.name.clone(),
            None => {
                let name = unique(call.text(), &mut taken);
                let before = std::mem::replace(&mut call.name, name.clone());
                own.aggregates.push(call);
                renamed.insert(before, name);
                continue;
            }
        };
        let of = |call: &Call| call.ranked_names();
        let known = own.aggregates.iter().find(|known| known.name == name);
        renamed.extend(of(&call).into_iter().zip(known.map(of).unwrap_or_default()));
        renamed.insert(call.name, name);
    }
    renamed
}

impl Call {
    pub(crate) fn is_like(&self, other: &Call) -> bool {
        (self.function, &self.result_type) == (other.function, &other.result_type)
            && all_alike(&self.arguments, &other.arguments)
            && alike(self.filter.as_ref(), other.filter.as_ref())
    }
}

/// The columns of its input that a grouping uses, by name.
pub(crate) fn used_by(grouped: &Grouped, filters: &[Expr]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let calls = &grouped.aggregates;
    let calls = calls.iter().flat_map(|call| call.arguments.iter().chain(&call.filter));
    let exprs = filters.iter().chain(&grouped.keys).chain(calls);
    exprs.for_each(|expr| add_columns(expr, &mut used));
    used
}
