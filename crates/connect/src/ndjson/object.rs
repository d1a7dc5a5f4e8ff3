//! Objects whose members are columns: a record, or the value of a ROW.
//!
//! Members mostly come in the order in which they came before. So each member is remembered with
//! the bytes from behind the comma to its value (`"name": `) and with the member that came after
//! it. Where the same bytes come again, the name need not be read. The chain of members grows to
//! hold all that were seen: where some are left out, the next few of the chain are compared.
//!
//! [`Object::read`] takes only what is beyond doubt. What is wrong with an object, and which of two
//! members that differ in case is the column, is for [`Object::read_carefully`], which is slow.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::Fields;
use arrow::error::ArrowError;

use super::column::{Accepted, Column, Text};
use super::fault::{Fault, Read};
use super::members::{DEPTH_MAX, Slot, find};
use super::names::{Meaning, Names};
use super::scan::{self, Quoted, blanks, byte, word};
use crate::records::Unit;

/// Members that are remembered besides columns. Objects that are used as maps have new ones on and
/// on.
const OTHERS_MAX: usize = 4096;

/// How many members of the chain are compared with one that is not the next.
const AHEAD: usize = 4;

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct Object {
    names: Arc<Names>,
    fields: Fields,
    columns: Vec<Column>,
    /// Members seen so far; the first is a placeholder for "before any member".
    members: Vec<Member>,
    known: HashMap<Box<[u8]>, usize>,
    /// Per column, the number of the last object that has it.
    seen: Vec<u64>,
    number: u64,
    /// Members that are no columns, and where they stand, if that is to be noted.
    strange: Vec<(usize, String)>,
}

/// So many of them are noted in a block.
const STRANGE_MAX: usize = 8;

/// A member as it was written.
#[derive(Debug)]
struct Member {
    /// The member's name, escapes as they are.
    name: Box<[u8]>,
    /// From behind the comma to the value; and the first and last eight of these bytes, or all of
    /// them twice if they are fewer.
    bytes: Box<[u8]>,
    ends: (u64, u64),
    target: Target,
    /// The member that followed last time; 0 if none has.
    next: usize,
}

impl Member {
    /// How it is written this time.
    fn written(&mut self, bytes: &[u8]) {
        if *self.bytes == *bytes {
            return;
        }
        self.bytes = bytes.into();
        self.ends = match word(bytes, 0) {
            Some(first) => (first, word(bytes, bytes.len() - 8).unwrap_or(0)),
            None => {
                let all = bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
                (all, all)
            }
        };
    }

    /// Whether it stands at `at`, written as the last time. May miss it at the block's end.
    #[inline]
    fn stands_at(&self, data: &[u8], at: usize) -> bool {
        let length = self.bytes.len();
        let Some(there) = data.get(at..).and_then(<[u8]>::first_chunk::<16>) else { return false };
        let Some(first) = word(there, 0) else { return false };
        match length {
            0..8 => first & ((1 << (8 * length)) - 1) == self.ends.0,
            8..=16 => first == self.ends.0 && word(there, length - 8) == Some(self.ends.1),
            _ => data.get(at..at + length) == Some(&*self.bytes),
        }
    }
}

/// Where a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Column(usize),
    Nowhere,
}

impl Object {
    /// The columns `fields`, called by `names`; `None`: some type cannot be read.
    pub(super) fn new(fields: &Fields, names: Names, taken: Accepted) -> Option<Object> {
        let columns = fields.iter().map(|field| Column::new(field, taken));
        let columns = columns.collect::<Option<Vec<_>>>()?;
        Some(Object::of(Arc::new(names), fields, columns))
    }

    /// The same without values, with room for so many.
    pub(super) fn fresh(&self, rows: usize) -> Object {
        let columns = self.columns.iter().map(|column| column.fresh(rows)).collect();
        Object::of(self.names.clone(), &self.fields, columns)
    }

    fn of(names: Arc<Names>, fields: &Fields, columns: Vec<Column>) -> Object {
        let seen = vec![0; columns.len()];
        let none = Member {
            name: Box::default(),
            // Stands nowhere.
            bytes: Box::default(),
            ends: (1, 1),
            target: Target::Nowhere,
            next: 0,
        };
        let fields = fields.clone();
        Object {
            names,
            fields,
            columns,
            members: vec![none],
            known: HashMap::new(),
            seen,
            number: 0,
            strange: Vec::new(),
        }
    }

    /// Takes the object that begins at `at`, inside of so many objects and arrays.
    pub(super) fn read(&mut self, text: Text<'_>, at: usize, depth: usize) -> Read {
        let data = text.data;
        if byte(data, at) != b'{' || depth >= DEPTH_MAX {
            return Err(Fault::syntax(at));
        }
        self.number += 1;
        let (start, mut at, mut last, mut found) = (at, at + 1, 0, 0);
        let mut next = self.members[0].next;
        loop {
            let mut member = &self.members[next];
            if member.stands_at(data, at) {
                at += member.bytes.len();
                last = next;
            } else {
                if last == 0 && byte(data, blanks(data, at)) == b'}' {
                    at = blanks(data, at) + 1;
                    break;
                }
                (last, at) = self.other(data, at, last).ok_or_else(|| Fault::syntax(at))?;
                member = &self.members[last];
            }
            next = member.next;
            if byte(data, at) <= b' ' {
                at = blanks(data, at);
            }
            at = match member.target {
                Target::Nowhere => {
                    scan::skip(data, at, depth + 1).ok_or_else(|| Fault::syntax(at))?
                }
                Target::Column(slot) => {
                    if self.seen[slot] == self.number {
                        return Err(Fault::syntax(at));
                    }
                    self.seen[slot] = self.number;
                    found += 1;
                    let read = self.columns[slot].value(text, at, depth + 1);
                    read.map_err(|fault| fault.of(&self.fields[slot]))?
                }
            };
            if data.get(at) == Some(&b',') {
                at += 1;
                continue;
            }
            at = blanks(data, at) + 1;
            match byte(data, at - 1) {
                b',' => {}
                b'}' => break,
                _ => return Err(Fault::syntax(at - 1)),
            }
        }
        if found < self.columns.len() {
            self.fill(start)?;
        }
        Ok(at)
    }

    /// NULL for the columns that the object, which begins at `start`, has no members for.
    fn fill(&mut self, start: usize) -> Result<(), Box<Fault>> {
        for (slot, column) in self.columns.iter_mut().enumerate() {
            if self.seen[slot] != self.number {
                column.missing(start).map_err(|fault| fault.of(&self.fields[slot]))?;
            }
        }
        Ok(())
    }

    /// The member behind `at`, which differs from the usual successor of `last`; and the offset of
    /// its value. `None`: no member, or a name in need of the slow reader.
    fn other(&mut self, data: &[u8], at: usize, last: usize) -> Option<(usize, usize)> {
        let (name, value) = scan::name(data, at)?;
        let bytes = data.get(at..value)?;
        let mut ahead = self.members[last].next;
        for _ in 0..AHEAD {
            if ahead != 0 && *self.members[ahead].name == *name.text {
                self.members[ahead].written(bytes);
                return Some((ahead, value));
            }
            ahead = self.members[ahead].next;
        }
        let member = match self.known.get(name.text) {
            Some(member) => *member,
            None => self.add(name, last, at)?,
        };
        self.members[member].written(bytes);
        if member != last {
            self.members[last].next = member;
        }
        Some((member, value))
    }

    /// Remembers the member at `at`, which comes after `last`.
    fn add(&mut self, name: Quoted<'_>, last: usize, at: usize) -> Option<usize> {
        let text = name.unescaped()?;
        let text = std::str::from_utf8(&text).ok()?;
        if self.strange.len() < STRANGE_MAX && self.names.is_strange(text) {
            self.strange.push((at, text.to_string()));
        }
        let target = match self.names.meaning(text) {
            Meaning::Column { slot, .. } => Target::Column(slot),
            Meaning::Unused => Target::Nowhere,
            Meaning::Either => return None,
        };
        let next = self.members[last].next;
        let (name, bytes) = (Box::from(name.text), Box::default());
        let member = Member { name, bytes, ends: (0, 0), target, next };
        let mut at = self.members.len();
        if at > OTHERS_MAX + self.columns.len() {
            // The last slot serves all further members.
            at -= 1;
            self.known.remove(&self.members[at].name);
            self.members.truncate(at);
        }
        self.known.insert(member.name.clone(), at);
        self.members.push(member);
        Some(at)
    }

    /// Takes an object that begins at `start` and is all of `line`, by all the rules. `unit` is the
    /// container of the record.
    pub(super) fn read_carefully(
        &mut self,
        data: &[u8],
        line: &[u8],
        start: usize,
        unit: Unit,
    ) -> Result<(), Box<Fault>> {
        let mut slots = vec![Slot::default(); self.columns.len()];
        find(&self.names, line, start, unit, &mut slots).map_err(Fault::said)?;
        let text = Text { data, careful: true };
        let mut first: Option<Box<Fault>> = None;
        for (slot, (column, found)) in self.columns.iter_mut().zip(&slots).enumerate() {
            let read = match found.value {
                Some(value) => {
                    // It is part of the line.
                    let within = (value.as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
                    column.value(text, start + within, 1).map(drop)
                }
                None => column.missing(start),
            };
            let Err(fault) = read else { continue };
            if first.as_ref().is_none_or(|first| fault.at < first.at) {
                first = Some(fault.of(&self.fields[slot]));
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Stands for an object that there is none of.
    pub(super) fn absent(&mut self) {
        self.columns.iter_mut().for_each(Column::absent);
    }

    /// Adds the members that are no columns, behind `path`.
    pub(super) fn strange(&self, path: &str, found: &mut Vec<(usize, String)>) {
        found.extend(self.strange.iter().map(|(at, name)| (*at, format!("{path}{name}"))));
        for (column, field) in self.columns.iter().zip(&self.fields) {
            column.strange(&format!("{path}{}.", field.name()), found);
        }
    }

    /// Back to so many objects.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }

    pub(super) fn finish(self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns.into_iter().map(Column::finish).collect()
    }
}
