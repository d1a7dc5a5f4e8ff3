//! Work common to several readers of a table: the first conditions of all readers, and common
//! expressions over the table's columns. The work becomes a stage without state, so a view that
//! three INSERTs read is computed once.
//!
//! An expression that may fail goes there only if some reader would compute it of each of these
//! rows anyway: otherwise a job would fail that does not need its value.

use std::hash::DefaultHasher;

use datafusion_common::{cse::HashNode, tree_node::TreeNode};

use crate::expr::safe::{arguments, cannot_fail};
use crate::expr::{located::within_mark, text::nested};
use crate::names::alike::alike;
use crate::names::catalog::{INPUT, add_columns, input_column};
use crate::stages::compiler::each_input;
use crate::stages::graph::{Body, Graph, Part, Pass};
use crate::stages::lower::{count_nodes, unique};
use crate::stages::schemas::{output_schema, qualified, table_schema};
use crate::syntax::prelude::*;

/// A reader: a part of an operator's side or of an output.
#[derive(Debug, Clone, Copy)]
struct PassReader {
    of: Of,
    part: usize,
    /// The same for outputs that are the same rows.
    id: usize,
}

#[derive(Debug, Clone, Copy)]
enum Of {
    /// With the side.
    Operator(usize, usize),
    Output(usize),
}

/// Rows that readers take.
struct PassRows {
    scan: usize,
    pass: Option<usize>,
    schema: DFSchema,
}

/// Nodes to be looked at for what is in common, each once for every node above it. Larger queries
/// share their conditions alone.
const LOOKS_MAX: usize = 2_000_000;

impl Graph {
    /// Finds work in common, and has it done once.
    pub(crate) fn share_work(&mut self) -> Result<()> {
        for scan in 0..self.scans.len() {
            let readers = self.readers(scan);
            if are_several(&readers) {
                let schema = table_schema(&self.scans[scan].entry)?;
                self.share(&PassRows { scan, pass: None, schema }, readers)?;
            }
        }
        Ok(())
    }

    /// Readers of a table's records.
    fn readers(&self, scan: usize) -> Vec<PassReader> {
        let of_table = |parts: &[Part]| -> Vec<usize> {
            let own =
                |part: &Part| matches!(part, Part::Scan { scan: s, pass: None, .. } if *s == scan);
            (0..parts.len()).filter(|part| own(&parts[*part])).collect()
        };
        let mut readers = Vec::new();
        for (number, operator) in self.operators.iter().enumerate() {
            for (side, of) in operator.sides.iter().enumerate() {
                for part in of_table(&of.parts) {
                    let of = Of::Operator(number, side);
                    readers.push(PassReader { of, part, id: readers.len() });
                }
            }
        }
        let mut known: HashMap<u64, Vec<(usize, usize)>> = HashMap::new();
        for (number, output) in self.outputs.iter().enumerate() {
            let first = readers.len();
            let known = known.entry(output.fingerprint()).or_default();
            let same = known.iter().find(|(before, _)| output.is_like(&self.outputs[*before]));
            let same = same.map(|(_, first)| *first);
            known.push((number, same.unwrap_or(first)));
            for (at, part) in of_table(&output.parts).into_iter().enumerate() {
                let id = same.unwrap_or(first) + at;
                readers.push(PassReader { of: Of::Output(number), part, id });
            }
        }
        readers
    }

    /// Looks for what readers of the same rows have in common.
    fn share(&mut self, rows: &PassRows, readers: Vec<PassReader>) -> Result<()> {
        let mut alone = Vec::new();
        for readers in self.by_first_filter(readers) {
            let filters = if are_several(&readers) { self.first_filters(&readers) } else { vec![] };
            if filters.is_empty() {
                alone.extend(readers);
                continue;
            }
            let query = self.first_query(&readers);
            for reader in &readers {
                self.filters_mut(*reader)?.drain(..filters.len());
            }
            let common = self.common(&readers, &rows.schema)?;
            let pass = self.add_pass(rows, filters, common, &readers, query)?;
            self.share(&pass, readers)?;
        }
        if rows.pass.is_some() || !are_several(&alone) {
            return Ok(());
        }
        let common = self.common(&alone, &rows.schema)?;
        let users: BTreeSet<usize> = common.iter().flat_map(|c| c.readers.clone()).collect();
        alone.retain(|reader| users.contains(&reader.id));
        if !common.is_empty() {
            let query = self.first_query(&alone);
            self.add_pass(rows, vec![], common, &alone, query)?;
        }
        Ok(())
    }

    /// Readers grouped by their first condition; readers without conditions are the last group.
    fn by_first_filter(&self, readers: Vec<PassReader>) -> Vec<Vec<PassReader>> {
        let mut groups: Vec<Vec<PassReader>> = Vec::new();
        let mut known: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut without = Vec::new();
        for reader in readers {
            let Some(first) = self.filters(reader).first() else {
                without.push(reader);
                continue;
            };
            let known = known.entry(hash_of(first)).or_default();
            let same = |group: &&usize| {
                let other = groups[**group].first().and_then(|r| self.filters(*r).first());
                alike(Some(first), other)
            };
            match known.iter().find(same).copied() {
                Some(group) => groups[group].push(reader),
                None => {
                    known.push(groups.len());
                    groups.push(vec![reader]);
                }
            }
        }
        groups.push(without);
        groups
    }

    /// The conditions that all begin with.
    fn first_filters(&self, readers: &[PassReader]) -> Vec<Expr> {
        let Some((first, others)) = readers.split_first() else { return vec![] };
        let first = self.filters(*first);
        let same = |at: usize| {
            let condition = first.get(at);
            let has = |other: &PassReader| alike(self.filters(*other).get(at), condition);
            condition.is_some() && others.iter().all(has)
        };
        let count = (0..).take_while(|at| same(*at)).count();
        first[..count].to_vec()
    }

    fn taken(&self, reader: PassReader) -> &Part {
        match reader.of {
            Of::Operator(number, side) => &self.operators[number].sides[side].parts[reader.part],
            Of::Output(number) => &self.outputs[number].parts[reader.part],
        }
    }

    fn taken_mut(&mut self, reader: PassReader) -> &mut Part {
        match reader.of {
            Of::Operator(number, side) => {
                &mut self.operators[number].sides[side].parts[reader.part]
            }
            Of::Output(number) => &mut self.outputs[number].parts[reader.part],
        }
    }

    fn filters(&self, reader: PassReader) -> &[Expr] {
        match self.taken(reader) {
            Part::Scan { filters, .. } => filters,
            Part::View { .. } => &[],
        }
    }

    fn filters_mut(&mut self, reader: PassReader) -> Result<&mut Vec<Expr>> {
        match self.taken_mut(reader) {
            Part::Scan { filters, .. } => Ok(filters),
            Part::View { .. } => Err(SqlError::internal("a reader of a table that reads none")),
        }
    }

    fn first_query(&self, readers: &[PassReader]) -> usize {
        let query = |reader: &PassReader| match reader.of {
            Of::Operator(number, _) => self.operators[number].query,
            Of::Output(number) => self.outputs[number].query,
        };
        readers.iter().map(query).min().unwrap_or_default()
    }

    /// All that a reader computes, and whether it does so of every row that passes the conditions
    /// that are in common.
    fn computed(&self, reader: PassReader) -> Vec<(&Expr, bool)> {
        let Part::Scan { filters, columns, .. } = self.taken(reader) else { return vec![] };
        let ends_late = match reader.of {
            Of::Operator(..) => true,
            Of::Output(number) => self.outputs[number].limit.is_none(),
        };
        let first = |(at, filter)| (filter, ends_late && at == 0);
        let mut all: Vec<(&Expr, bool)> = filters.iter().enumerate().map(first).collect();
        let of_all = ends_late && filters.is_empty();
        match (columns, reader.of) {
            (Some(columns), _) => all.extend(columns.iter().map(|column| (column, of_all))),
            (None, Of::Operator(number, _)) => {
                let operator = &self.operators[number];
                let Body::Grouped(grouped) = &operator.body else { return all };
                // Of late records nothing is computed.
                let of_all = of_all && operator.window.is_none();
                all.extend(grouped.keys.iter().map(|key| (key, of_all)));
                for call in &grouped.aggregates {
                    all.extend(call.filter.iter().map(|filter| (filter, of_all)));
                    let of_all = of_all && call.filter.is_none();
                    all.extend(call.arguments.iter().map(|argument| (argument, of_all)));
                }
            }
            (None, Of::Output(_)) => {}
        }
        all
    }

    /// Changes all that a reader computes.
    fn change(&mut self, reader: PassReader, change: &dyn Fn(Expr) -> Result<Expr>) -> Result<()> {
        let Part::Scan { filters, columns, .. } = self.taken_mut(reader) else { return Ok(()) };
        let whole = columns.is_none();
        for expr in filters.iter_mut().chain(columns.iter_mut().flatten()) {
            *expr = change(std::mem::take(expr))?;
        }
        match reader.of {
            Of::Operator(number, _) if whole => match &mut self.operators[number].body {
                Body::Grouped(grouped) => each_input(grouped, change, change),
                Body::Joined(_) | Body::Expanded(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Expressions that several readers compute, and that can be computed of all rows: the largest.
    fn common(&self, readers: &[PassReader], schema: &DFSchema) -> Result<Vec<Common>> {
        let mut all = Vec::new();
        for reader in readers {
            all.extend(self.computed(*reader).into_iter().map(|computed| (reader.id, computed)));
        }
        let looks: usize = all.iter().map(|(_, (expr, _))| looks(expr, 1)).sum();
        if looks > LOOKS_MAX {
            return Ok(vec![]);
        }
        let mut found: HashMap<u64, Candidate> = HashMap::new();
        for (reader, (expr, always)) in &all {
            find(expr, *always, *reader, &mut found);
        }
        // What is left of conditions that several begin with is a pass of its own.
        for readers in self.by_first_filter(readers.to_vec()) {
            if are_several(&readers) {
                let first = self.filters(readers[0]).first();
                first.map(|first| found.remove(&hash_of(first)));
            }
        }
        found.retain(|_, found| {
            found.readers.len() > 1 && (found.always || cannot_fail(found.expr, schema))
        });
        // A part of a larger common expression is computed by itself only if other readers need the
        // part.
        loop {
            let mut outermost: HashMap<u64, BTreeSet<usize>> = HashMap::new();
            for (reader, (expr, _)) in &all {
                expr.each_node(|e| {
                    if is_plain(e) {
                        return Ok(TreeNodeRecursion::Continue);
                    }
                    let hash = hash_of(e);
                    if !found.contains_key(&hash) {
                        return Ok(TreeNodeRecursion::Continue);
                    }
                    outermost.entry(hash).or_default().insert(*reader);
                    Ok(TreeNodeRecursion::Jump)
                })?;
            }
            let before = found.len();
            found.retain(|hash, _| outermost.get(hash).is_some_and(|readers| readers.len() > 1));
            if found.len() == before {
                break;
            }
        }
        let mut common: Vec<_> = found.into_iter().collect();
        common.sort_by_key(|(_, found)| found.number);
        let common = common.into_iter().map(|(hash, found)| Common {
            hash,
            expr: found.expr.clone(),
            readers: found.readers,
        });
        Ok(common.collect())
    }

    /// Adds a pass; from now on its readers take the pass's rows.
    fn add_pass(
        &mut self,
        rows: &PassRows,
        filters: Vec<Expr>,
        common: Vec<Common>,
        readers: &[PassReader],
        query: usize,
    ) -> Result<PassRows> {
        let fields = rows.schema.fields();
        let mut taken: HashSet<String> = fields.iter().map(|field| field.name().clone()).collect();
        let name = |common: &Common| (common.hash, unique(shortened(&common.expr), &mut taken));
        let named: HashMap<u64, String> = common.iter().map(name).collect();
        let replaced = |expr: Expr| {
            let replaced = expr.changed_down(|e| {
                let name = if is_plain(&e) { None } else { named.get(&hash_of(&e)) };
                Ok(match name {
                    Some(name) => {
                        Transformed::new(input_column(name), true, TreeNodeRecursion::Jump)
                    }
                    None => Transformed::no(e),
                })
            })?;
            Ok(replaced.data)
        };
        let number = self.passes.len();
        let mut used = BTreeSet::new();
        for reader in readers {
            self.change(*reader, &replaced)?;
            let computed = self.computed(*reader);
            computed.iter().for_each(|(expr, _)| add_columns(expr, &mut used));
            if let Part::Scan { pass, .. } = self.taken_mut(*reader) {
                *pass = Some(number);
            }
        }
        let own = fields.iter().map(|field| field.name()).filter(|name| used.contains(*name));
        let mut names: Vec<String> = own.cloned().collect();
        let mut columns: Vec<Expr> = names.iter().map(|name| input_column(name)).collect();
        for Common { hash, expr, .. } in common {
            names.extend(named.get(&hash).cloned());
            columns.push(expr);
        }
        let schema = output_schema(&columns, &rows.schema, &names)?;
        let schema = qualified(INPUT, Schema::clone(&schema))?;
        let (scan, below) = (rows.scan, rows.pass);
        let expands = None;
        self.passes.push(Pass { scan, below, filters, names, columns, query, expands });
        Ok(PassRows { scan, pass: Some(number), schema })
    }
}

/// An expression that several readers compute.
struct Common {
    hash: u64,
    expr: Expr,
    readers: BTreeSet<usize>,
}

/// An expression that readers compute.
struct Candidate<'e> {
    /// Rank in the order of discovery.
    number: usize,
    expr: &'e Expr,
    readers: BTreeSet<usize>,
    /// Whether some reader computes the expression of every row.
    always: bool,
}

/// Finds all parts of an expression that are computed of columns.
fn find<'e>(expr: &'e Expr, always: bool, reader: usize, found: &mut HashMap<u64, Candidate<'e>>) {
    if !is_plain(expr) && expr.any_column_refs() {
        let number = found.len();
        let new = || Candidate { number, expr, readers: BTreeSet::new(), always: false };
        let found = found.entry(hash_of(expr)).or_insert_with(new);
        found.readers.insert(reader);
        found.always |= always;
    }
    // The mark around an expression is part of it.
    let expr = within_mark(expr).unwrap_or(expr);
    for (argument, same) in arguments(expr) {
        find(argument, always && same, reader, found);
    }
}

/// True for expressions without computation.
fn is_plain(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(_) | Expr::Literal(..) | Expr::Alias(_))
}

/// The same for expressions that differ at most in where they stand in the text.
fn hash_of(expr: &Expr) -> u64 {
    fn add(expr: &Expr, state: &mut DefaultHasher) {
        if let Some(inner) = within_mark(expr) {
            return add(inner, state);
        }
        expr.hash_node(state);
        let added = expr.apply_children(|child| {
            add(child, state);
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(added.is_ok(), "hashing does not fail");
    }
    let mut state = DefaultHasher::new();
    add(expr, &mut state);
    state.finish()
}

/// How many nodes are looked at to hash each part of an expression.
fn looks(expr: &Expr, depth: usize) -> usize {
    let mut sum = depth;
    let added = expr.apply_children(|child| {
        sum += looks(child, depth + 1);
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(added.is_ok(), "counting does not fail");
    sum
}

fn are_several(readers: &[PassReader]) -> bool {
    readers.iter().any(|reader| reader.id != readers[0].id)
}

/// A column's name: the expression's text, if not too long; in brackets, so that texts of further
/// expressions over the column stay unambiguous.
fn shortened(expr: &Expr) -> String {
    const CHARS_MAX: usize = 60;
    if count_nodes(expr) > CHARS_MAX {
        return "computed".into();
    }
    let text = nested(expr);
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
