//! `GROUPING SETS`, `ROLLUP` and `CUBE`: several groupings of the same rows, by one.
//!
//! The rows are taken once for each set, with NULL for the keys that it leaves out, and with its
//! number. They are grouped by all keys and the number. `GROUPING(x)` depends on the set alone, so
//! it is a key, too. The set without keys has a group also where there are no rows: without
//! windows, it is a grouping of its own.

use datafusion_expr::utils::split_conjunction_owned;
use datafusion_expr::{Aggregate, GroupingSet};
use millstream_contract::plan::Window;

use crate::expr::{aggregates::is_grouping, collecting, indexed::Indexed, text::sql_text};
use crate::names::{alike::alike, catalog::input_column};
use crate::stages::counted::Counted;
use crate::stages::lower::{Call, Over, Places, Stage, is_window_column, over, unique};
use crate::stages::repeats::{as_computed, null, once_passed};
use crate::stages::windows::assigned::{Assigned, Windows};
use crate::stages::windows::sessions::{is_over, only_passing, take_passing};
use crate::syntax::prelude::*;
use crate::syntax::types::plain_type;

/// Sets of one grouping at the most.
const SETS_MAX: usize = 256;

/// A grouping by sets of keys.
struct Sets {
    keys: Vec<Expr>,
    /// Their types.
    types: Vec<DataType>,
    /// Keys of each set.
    sets: Vec<Vec<usize>>,
    /// Of each call of GROUPING, the keys that it asks for.
    groupings: Vec<Vec<usize>>,
    calls: Vec<Call>,
}

/// Where a column of the result is.
enum SetColumn {
    /// A call of GROUPING.
    Grouping(usize),
    Call(usize),
}

impl Stage {
    /// As [`Stage::group_values`], for a grouping by sets with this stage as input.
    pub(crate) fn group_sets(
        self,
        set: &GroupingSet,
        aggregate: &Aggregate,
        schema: &Indexed,
        places: &Places,
    ) -> Result<Stage> {
        let exprs: Vec<Expr> = set.distinct_expr().into_iter().cloned().collect();
        let (mut groupings, mut calls, mut shown) = (Vec::new(), Vec::new(), Vec::new());
        for expr in &aggregate.aggr_expr {
            shown.push(match grouping_keys(expr, &exprs)? {
                Some(keys) => {
                    groupings.push(keys);
                    SetColumn::Grouping(groupings.len() - 1)
                }
                None => {
                    calls.push(self.call(expr, schema, places)?);
                    SetColumn::Call(calls.len() - 1)
                }
            });
        }
        let fields = aggregate.schema.fields();
        if fields.len() != exprs.len() + 1 + shown.len() {
            return Err(SqlError::internal("grouping sets with other fields"));
        }
        let types = fields.iter().take(exprs.len()).map(|f| plain_type(f.data_type())).collect();
        let keys = self.substitute_all(&exprs, schema, places)?;
        let sets = Sets { keys, types, sets: sets_of(set, &exprs, places)?, groupings, calls };
        sets.check_windows(places)?;
        let (keys, groupings) = (sets.keys.len(), sets.groupings.len());
        let mut stage = sets.group(self, places)?;
        // The keys, the number of the set, what GROUPING says, the aggregates.
        let columns = std::mem::take(&mut stage.columns);
        let above = shown.iter().map(|shown| match shown {
            SetColumn::Grouping(at) => columns[keys + 1 + at].clone(),
            SetColumn::Call(at) => columns[keys + 1 + groupings + at].clone(),
        });
        stage.columns = columns[..=keys].iter().cloned().chain(above).collect();
        Ok(stage)
    }
}

impl Sets {
    fn check_windows(&self, places: &Places) -> Result<()> {
        let is_everywhere = |(at, key): (usize, &Expr)| {
            !is_window_column(key) || self.sets.iter().all(|set| set.contains(&at))
        };
        if self.keys.iter().enumerate().all(is_everywhere) {
            return Ok(());
        }
        Err(SqlError::unsupported(
            "the window must be in every grouping set: a set without it would never be complete",
        )
        .at(places.group_by)
        .help("write GROUP BY window_start, window_end, ROLLUP (…)"))
    }

    /// The columns of the result are the keys, the number of the set, what GROUPING says, then the
    /// aggregates.
    fn group(self, of: Stage, places: &Places) -> Result<Stage> {
        let windowed = self.keys.iter().any(is_window_column);
        let numbers = || 0..self.sets.len();
        let is_whole = |number: &usize| !windowed && self.sets[*number].is_empty();
        let whole: Vec<usize> = numbers().filter(is_whole).collect();
        let others: Vec<usize> = numbers().filter(|number| !is_whole(number)).collect();
        let mut stages = Vec::new();
        if !others.is_empty() {
            stages.push(self.group_together(&of, &others, places)?);
        }
        for number in whole {
            let mut stage = of.clone().group_values(vec![], self.calls.clone(), places)?;
            stage.columns.splice(0..0, self.set_columns(number));
            stages.push(stage);
        }
        if let (1, Some(_)) = (stages.len(), stages.first()) {
            return Ok(stages.remove(0));
        }
        let mut taken = HashSet::new();
        let mut names = self.names(&mut taken);
        names.extend(self.calls.iter().map(|call| unique(call.name.clone(), &mut taken)));
        let keys = self.keys.len() + 1 + self.groupings.len();
        let over = Stage::over_all(stages, names.clone())?;
        let calls = self.calls.into_iter().zip(&names[keys..]);
        let calls = calls.map(|(call, name)| as_computed(call, name)).collect();
        let keys = over.columns[..keys].to_vec();
        over.group(keys, calls, places)
    }

    /// One grouping for several of the sets.
    fn group_together(&self, of: &Stage, numbers: &[usize], places: &Places) -> Result<Stage> {
        let mut taken = HashSet::new();
        let mut names = self.names(&mut taken);
        let mut fed = Fed { exprs: vec![], names: vec![], taken };
        let windows = of.window.as_ref().filter(|windows| windows.assignment().is_some());
        let partition = windows.map_or(Ok(vec![]), |windows| self.partition(windows, places))?;
        let (of, above) = of.clone().below_windows();
        let calls: Vec<Call> = self.calls.iter().map(|call| fed.call(&above.taken(call))).collect();
        let assigned = of.window.as_ref().and_then(Windows::assignment);
        let time = assigned.map(|assigned| fed.column(&assigned.time));
        let passes = above.passes.as_ref().map(|passes| fed.column(passes));
        names.append(&mut fed.names);
        let mut parts = Vec::new();
        for number in numbers {
            let mut columns = self.set_columns(*number);
            for at in &self.sets[*number] {
                columns[*at] = match partition.contains(at) {
                    true => self.keys[*at].clone(),
                    false => above.shown(&self.keys[*at]),
                };
            }
            if assigned.is_some() {
                // They come from the time above.
                self.window_keys().for_each(|(at, _)| columns[at] = lit(true));
            }
            columns.extend(fed.exprs.iter().cloned());
            parts.push(of.showing(columns)?);
        }
        let each = parts.first().map_or(0, Vec::len);
        let mut over = Stage::over_all(parts.into_iter().flatten().collect(), names)?;
        over.counted = Counted::First(each);
        let mut keys = over.columns[..self.keys.len() + 1 + self.groupings.len()].to_vec();
        if let (Some(windows), Some(time)) = (&of.window, time) {
            let above_them = Assigned {
                time,
                partition: partition.iter().map(|at| keys[*at].clone()).collect(),
                records: vec![],
                below: 0,
                place: assigned.and_then(|assigned| assigned.place),
            };
            over.window = Some(Windows::assigned(windows.kind, above_them));
            over.filters.extend(above.windows.into_iter().chain(passes));
            self.window_keys().for_each(|(at, key)| keys[at] = key.clone());
        }
        over.group_values(keys, calls, places)
    }

    /// The keys that are columns of the window, with their positions.
    fn window_keys(&self) -> impl Iterator<Item = (usize, &Expr)> {
        self.keys.iter().enumerate().filter(|(_, key)| is_window_column(key))
    }

    /// Which keys tell sessions apart: each set has to have them.
    fn partition(&self, windows: &Windows, places: &Places) -> Result<Vec<usize>> {
        let parts = windows.assignment().map_or(&[][..], |assigned| &assigned.partition[..]);
        let position = |part: &Expr| {
            let at = self.keys.iter().position(|key| alike(Some(key), Some(part)));
            at.filter(|at| self.sets.iter().all(|set| set.contains(at))).ok_or_else(|| {
                let name = sql_text(part);
                let message = format!(
                    "sessions are those of one {name}, and not every set of GROUP BY has it"
                );
                SqlError::unsupported(message).at(places.group_by).help(format!(
                    "put {name} before the sets: GROUP BY window_start, window_end, {name}, \
                     ROLLUP (…)\n\
                     (or leave PARTITION BY out: then a session has the records of all)"
                ))
            })
        };
        parts.iter().map(position).collect()
    }

    /// The names of keys, of the number of the set and of what GROUPING says.
    fn names(&self, taken: &mut HashSet<String>) -> Vec<String> {
        let keys = self.keys.iter().map(sql_text);
        let groupings = self.groupings.iter().map(|_| "$grouping".to_string());
        keys.chain(["$set".to_string()]).chain(groupings).map(|name| unique(name, taken)).collect()
    }

    /// Columns that identify a set: NULL for the keys, the set's number, and the values of
    /// GROUPING. A value has a bit for each key, lowest for the last key; the bit is set if the set
    /// lacks the key.
    fn set_columns(&self, number: usize) -> Vec<Expr> {
        let set = &self.sets[number];
        let bits = |keys: &Vec<usize>| {
            keys.iter().fold(0i64, |bits, key| bits << 1 | i64::from(!set.contains(key)))
        };
        let keys = self.types.iter().map(null);
        let groupings = self.groupings.iter().map(|keys| lit(bits(keys)));
        keys.chain([lit(number as i64)]).chain(groupings).collect()
    }
}

/// The conditions above a window function whose windows a row does not tell.
#[derive(Default)]
struct Above {
    /// Conditions on windows alone.
    windows: Vec<Expr>,
    /// Which records of sessions count: the others make sessions longer all the same.
    passes: Option<Expr>,
}

impl Above {
    /// A key as records show it.
    fn shown(&self, key: &Expr) -> Expr {
        match &self.passes {
            Some(passes) => only_passing(passes, key.clone()),
            None => key.clone(),
        }
    }

    /// A call as it takes records.
    fn taken(&self, call: &Call) -> Call {
        let mut call = call.clone();
        self.passes.iter().for_each(|passes| take_passing(passes, &mut call));
        call
    }
}

impl Stage {
    /// The stage without the conditions that only what is above its windows can judge.
    fn below_windows(mut self) -> (Stage, Above) {
        let unknown = self.window.as_ref().filter(|windows| !windows.are_known());
        let Some((kind, own)) = unknown.and_then(|own| Some((own.kind, own.assignment()?))) else {
            return (self, Above::default());
        };
        let (below, partition) = (own.below, own.partition.clone());
        let (mut windows, mut passes) = (Vec::new(), Vec::new());
        for filter in self.filters.split_off(below).into_iter().flat_map(split_conjunction_owned) {
            match over(&filter) {
                Over { window: true, input: false } => windows.push(filter),
                _ if matches!(kind, Window::Session(_)) && !is_over(&filter, &partition) => {
                    passes.push(filter);
                }
                _ => self.filters.push(filter),
            }
        }
        let passes = passes.into_iter().reduce(Expr::and).map(Expr::is_true);
        (self, Above { windows, passes })
    }

    /// These columns of its rows, by stages without a window of their own.
    fn showing(&self, columns: Vec<Expr>) -> Result<Vec<Stage>> {
        let without = |exprs: Vec<Expr>| {
            exprs.into_iter().map(|e| self.without_window(e)).collect::<Result<_>>()
        };
        let (columns, filters) = (without(columns)?, without(self.filters.clone())?);
        Stage { columns, filters, window: None, ..self.clone() }.folded()
    }
}

/// Inputs of calls: columns of all sets.
struct Fed {
    exprs: Vec<Expr>,
    names: Vec<String>,
    taken: HashSet<String>,
}

impl Fed {
    /// The column that shows `expr`.
    fn column(&mut self, expr: &Expr) -> Expr {
        let known = self.exprs.iter().position(|known| alike(Some(known), Some(expr)));
        let at = known.unwrap_or_else(|| {
            self.names.push(unique(sql_text(expr), &mut self.taken));
            self.exprs.push(expr.clone());
            self.exprs.len() - 1
        });
        input_column(&self.names[at])
    }

    /// A call over these columns.
    fn call(&mut self, call: &Call) -> Call {
        // To others than these a record with NULL is none.
        let takes_nulls = collecting::form(call.function).is_some();
        let filters = if takes_nulls { &None } else { &call.filter };
        let shown = call.arguments.iter().map(|argument| once_passed(argument, filters));
        let arguments: Vec<Expr> = shown.map(|argument| self.column(&argument)).collect();
        let filter = call.filter.as_ref().filter(|_| takes_nulls || arguments.is_empty());
        let filter = filter.map(|filter| self.column(filter));
        Call { arguments, filter, ..call.clone() }
    }
}

/// The arguments of a call of GROUPING, as keys; `None` for other calls.
fn grouping_keys(expr: &Expr, keys: &[Expr]) -> Result<Option<Vec<usize>>> {
    let expr = expr.clone().unalias_nested().data;
    let Expr::AggregateFunction(call) = &expr else { return Ok(None) };
    if !is_grouping(call.func.name()) {
        return Ok(None);
    }
    let position = |argument: &Expr| {
        let known = keys.iter().position(|key| key == argument);
        known.ok_or_else(|| not_a_key(argument))
    };
    call.params.args.iter().map(position).collect::<Result<_>>().map(Some)
}

fn not_a_key(argument: &Expr) -> SqlError {
    let text = sql_text(argument);
    SqlError::types(format!("GROUPING takes keys of the GROUP BY, and {text} is none"))
        .help("write what stands in GROUP BY, in the same way")
}

/// Of each set, the positions of its keys.
fn sets_of(set: &GroupingSet, keys: &[Expr], places: &Places) -> Result<Vec<Vec<usize>>> {
    let too_many = |sets: usize| {
        SqlError::unsupported(format!("{sets} grouping sets; at most {SETS_MAX} are possible"))
            .at(places.group_by)
            .help("write several queries")
    };
    let sets: Vec<Vec<usize>> = match set {
        GroupingSet::Rollup(keys) => (0..=keys.len()).rev().map(|n| (0..n).collect()).collect(),
        GroupingSet::Cube(keys) => {
            let number = 1usize.checked_shl(keys.len() as u32).unwrap_or(usize::MAX);
            if number > SETS_MAX {
                return Err(too_many(number));
            }
            let has = |set: usize| (0..keys.len()).filter(|key| set >> key & 1 == 0).collect();
            (0..number).map(has).collect()
        }
        GroupingSet::GroupingSets(sets) => {
            let position = |key: &Expr| keys.iter().position(|known| known == key);
            sets.iter().map(|set| set.iter().filter_map(position).collect()).collect()
        }
    };
    if sets.len() > SETS_MAX { Err(too_many(sets.len())) } else { Ok(sets) }
}
