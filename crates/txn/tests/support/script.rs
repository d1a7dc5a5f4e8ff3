//! Random programs as data: translated for the crate, and interpreted by the oracle.

use millstream_txn::{Access, Key, Overflow, Program, Store, TableId, TableSpec, View};

use super::random::Random;

/// Values of `Try…` statements beyond this do not fit their type.
const FITS_MAX: i64 = 60;

/// An input.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) program: usize,
    pub(crate) fields: [u64; 3],
    pub(crate) list: Vec<u64>,
}

/// A table: words of key and row, and whether the first word must not be negative.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableShape {
    pub(crate) key_words: usize,
    pub(crate) row_words: usize,
    pub(crate) is_checked: bool,
}

/// Where a key comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyFrom {
    Field(usize),
    Item(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Find,
    Require,
    Update,
    TryUpdate,
    Insert,
    Upsert,
    TryUpsert,
    Delete,
}

/// A statement. New values and conditions are sums, with small factors.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) verb: Verb,
    pub(crate) table: usize,
    pub(crate) key: KeyFrom,
    pub(crate) uses: Vec<usize>,
    pub(crate) own: i64,
    pub(crate) used: i64,
    pub(crate) field: i64,
    pub(crate) constant: i64,
    pub(crate) returns: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Section {
    Plain(Vec<Line>),
    Loop(Vec<Line>),
}

impl Section {
    pub(crate) fn lines(&self) -> &[Line] {
        match self {
            Section::Plain(lines) | Section::Loop(lines) => lines,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) sections: Vec<Section>,
}

/// The words of a key.
pub(crate) fn key_words(from: KeyFrom, event: &Event, element: usize, words: usize) -> Vec<u64> {
    let first = match from {
        KeyFrom::Field(field) => event.fields[field],
        KeyFrom::Item(add) => event.list[element] + add,
    };
    (0..words as u64).map(|word| first * (word + 1) + word).collect()
}

/// The sum of a line: over an own value, the sum of used values, and the event.
pub(crate) fn sum(line: &Line, own: i64, used: i64, event: &Event) -> i64 {
    let field = event.fields[2] as i64;
    line.own * own + line.used * used + line.field * field + line.constant
}

pub(crate) fn fits(value: i64) -> bool {
    value.abs() <= FITS_MAX
}

/// New values stay small, so that sums of products do not wrap around.
pub(crate) fn folded(value: i64) -> u64 {
    (value % 1000) as u64
}

impl Line {
    fn is_access(&self) -> bool {
        self.verb != Verb::Require
    }
}

fn random_line(random: &mut Random, tables: usize, before: &[usize], in_loop: bool) -> Line {
    const VERBS: [Verb; 16] = [
        Verb::Read,
        Verb::Find,
        Verb::Find,
        Verb::Require,
        Verb::Require,
        Verb::Update,
        Verb::Update,
        Verb::Update,
        Verb::TryUpdate,
        Verb::Insert,
        Verb::Insert,
        Verb::Upsert,
        Verb::Upsert,
        Verb::Upsert,
        Verb::TryUpsert,
        Verb::Delete,
    ];
    let verb = VERBS[random.index(VERBS.len())];
    let may_use = !before.is_empty() && !matches!(verb, Verb::Read | Verb::Find | Verb::Delete);
    let mut uses = Vec::new();
    while may_use && uses.len() < 3 && random.one_in(2) {
        uses.push(before[random.index(before.len())]);
    }
    let key = match in_loop && !random.one_in(4) {
        true => KeyFrom::Item(random.below(2)),
        false => KeyFrom::Field(random.index(2)),
    };
    Line {
        verb,
        table: random.index(tables),
        key,
        uses,
        own: [1, 1, 1, 0, 2][random.index(5)],
        used: [1, -1, 2][random.index(3)],
        field: [1, -1, 0][random.index(3)],
        constant: random.below(30) as i64 - if verb == Verb::Require { 2 } else { 10 },
        returns: random.one_in(2),
    }
}

impl Script {
    pub(crate) fn random(random: &mut Random, tables: usize) -> Script {
        let (mut sections, mut number, mut plain) = (Vec::new(), 0, Vec::new());
        for _ in 0..1 + random.index(3) {
            let is_loop = random.one_in(3);
            let (mut lines, mut inner) = (Vec::new(), Vec::new());
            for _ in 0..1 + random.index(3) {
                let before: Vec<usize> = plain.iter().chain(&inner).copied().collect();
                let line = random_line(random, tables, &before, is_loop);
                if line.is_access() {
                    if is_loop { &mut inner } else { &mut plain }.push(number);
                }
                lines.push(line);
                number += 1;
            }
            sections.push(if is_loop { Section::Loop(lines) } else { Section::Plain(lines) });
        }
        Script { sections }
    }

    /// The program for the crate, and its accesses that return values, by statement.
    pub(crate) fn program(&self, tables: &[TableId]) -> (Program<Event>, Vec<(usize, Access)>) {
        let mut program = Program::new("script");
        let (mut accesses, mut returned) = (Vec::new(), Vec::new());
        for section in &self.sections {
            let add = |program: &mut Program<Event>| {
                for line in section.lines() {
                    let access = add_line(program, line, tables, &accesses);
                    if let Some(access) = access.filter(|_| line.returns) {
                        program.returning(access);
                        returned.push((accesses.len(), access));
                    }
                    accesses.push(access);
                }
            };
            match section {
                Section::Plain(_) => {
                    let mut add = add;
                    add(&mut program);
                }
                Section::Loop(_) => program.each(|event| event.list.len(), add),
            }
        }
        (program, returned)
    }
}

fn used_sum(view: &View<'_, Event>, uses: usize) -> i64 {
    (0..uses).map(|number| view.used(number).int(0)).sum()
}

fn set(line: &Line, view: &View<'_, Event>, row: &mut [u64]) -> bool {
    let used = used_sum(view, line.uses.len());
    for word in row.iter_mut() {
        let new = sum(line, *word as i64, used, view.event());
        let is_tried = matches!(line.verb, Verb::TryUpdate | Verb::TryUpsert);
        if is_tried && !fits(new) {
            return false;
        }
        *word = folded(new + i64::from(view.existed()));
    }
    true
}

fn add_line(
    program: &mut Program<Event>,
    line: &Line,
    tables: &[TableId],
    accesses: &[Option<Access>],
) -> Option<Access> {
    let uses: Vec<Access> = line.uses.iter().filter_map(|used| accesses[*used]).collect();
    let (table, from) = (tables[line.table], line.key);
    let words = if line.table == 0 { 2 } else { 1 };
    let key = match words {
        1 => Key::of(move |event: &Event, element| [key_words(from, event, element, 1)[0]]),
        _ => Key::filled(words, move |event: &Event, element, key| {
            key.copy_from_slice(&key_words(from, event, element, words));
        }),
    };
    let new = line.clone();
    let fill = move |view: &View<'_, Event>, row: &mut [u64]| {
        set(&new, view, row);
    };
    let new = line.clone();
    let try_fill = move |view: &View<'_, Event>, row: &mut [u64]| {
        if set(&new, view, row) { Ok(()) } else { Err(Overflow) }
    };
    Some(match line.verb {
        Verb::Read => program.read(table, key),
        Verb::Find => program.find(table, key),
        Verb::Update => program.update(table, key, &uses, fill),
        Verb::TryUpdate => program.try_update(table, key, &uses, try_fill),
        Verb::Insert => program.insert(table, key, &uses, fill),
        Verb::Upsert => program.upsert(table, key, &uses, fill),
        Verb::TryUpsert => program.try_upsert(table, key, &uses, try_fill),
        Verb::Delete => program.delete(table, key),
        Verb::Require => {
            let new = line.clone();
            program.require(&uses, "required", move |view| {
                sum(&new, 0, used_sum(view, new.uses.len()), view.event()) >= 0
            });
            return None;
        }
    })
}

/// A store with tables of these shapes and rows.
pub(crate) fn store_of(shapes: &[TableShape], rows: &super::oracle::Rows) -> (Store, Vec<TableId>) {
    let mut store = Store::new();
    let ids: Vec<TableId> = shapes
        .iter()
        .enumerate()
        .map(|(number, shape)| {
            let spec = TableSpec::new(&format!("t{number}"), shape.key_words, shape.row_words);
            let spec = match shape.is_checked {
                true => spec.check("first >= 0", |row| row[0] as i64 >= 0),
                false => spec,
            };
            store.add(spec).unwrap()
        })
        .collect();
    for ((table, key), row) in rows {
        store.insert(ids[*table], key, row).unwrap();
    }
    (store, ids)
}
