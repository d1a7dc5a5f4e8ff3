//! Programs of transactions: statements whose keys follow from the event alone (paper, sections
//! 2 and 4.5: "the read/write-set of a state transaction must be deducible").

pub(crate) mod run;
pub(crate) mod slots;
pub(crate) mod statement;
pub(crate) mod unrolled;
pub(crate) mod view;

use std::fmt;
use std::ops::Range;

use crate::error::Error;
use crate::outcome::{Abort, Cause};
use crate::store::{Store, TableId};
use statement::{Action, Change, Key, NewRow, Overflow, Statement};
use view::View;

/// Most statements of a program.
const STATEMENTS_MAX: usize = u16::MAX as usize;

type Length<E> = Box<dyn Fn(&E) -> usize + Send + Sync>;

/// Statements in a row, and the list over which they loop.
struct Section<E> {
    statements: Range<usize>,
    length: Option<Length<E>>,
}

/// An access of a program, for statements that use its value and for `post_process`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(pub(crate) u16);

/// The statements that an event runs as one transaction (paper, definition 1).
///
/// Statements run in order and see each other. The first that fails aborts the transaction, which
/// then leaves no trace. Keys and lists are functions of the event alone. Closures are pure: they
/// may be called several times, and on any thread.
///
/// ```
/// use millstream_txn::{Key, Program, Store, TableSpec};
///
/// struct Transfer { source: u64, target: u64, amount: i64 }
///
/// let mut store = Store::new();
/// let accounts = store.add(TableSpec::new("accounts", 1, 1))?;
/// let mut program = Program::new("transfer");
/// let source = || Key::of(|event: &Transfer, _| [event.source]);
/// let target = Key::of(|event: &Transfer, _| [event.target]);
/// let balance = program.read(accounts, source());
/// program.require(&[balance], "insufficient", |view| view.used(0).int(0) >= view.event().amount);
/// program.update(accounts, source(), &[], |view, row| row[0] -= view.event().amount as u64);
/// program.update(accounts, target, &[], |view, row| row[0] += view.event().amount as u64);
/// # Ok::<(), millstream_txn::Error>(())
/// ```
pub struct Program<E> {
    name: String,
    pub(crate) statements: Vec<Statement<E>>,
    sections: Vec<Section<E>>,
    /// First statement of the loop whose body is being added.
    open_loop: Option<usize>,
    /// Whether no statement can fail, but for a missing row, and none uses another.
    pub(crate) is_plain: bool,
    error: Option<Error>,
}

impl<E> Program<E> {
    /// A program without statements.
    pub fn new(name: &str) -> Program<E> {
        Program {
            name: name.to_owned(),
            statements: Vec::new(),
            sections: Vec::new(),
            open_loop: None,
            is_plain: true,
            error: None,
        }
    }

    /// Name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the row of a key (paper, listing 1: `Read`). A missing row aborts.
    pub fn read(&mut self, table: TableId, key: Key<E>) -> Access {
        self.push(Action::Read, Some((table, key)), &[], false)
    }

    /// Reads the row of a key, if it exists.
    pub fn find(&mut self, table: TableId, key: Key<E>) -> Access {
        self.push(Action::Find, Some((table, key)), &[], false)
    }

    /// REQUIRE: aborts with `reason` unless `holds`.
    pub fn require(
        &mut self,
        uses: &[Access],
        reason: &str,
        holds: impl Fn(&View<'_, E>) -> bool + Send + Sync + 'static,
    ) {
        self.push(Action::Require(Box::new(holds), reason.to_owned()), None, uses, true);
    }

    /// UPDATE: `change` changes the row in place. A missing row aborts.
    pub fn update(
        &mut self,
        table: TableId,
        key: Key<E>,
        uses: &[Access],
        change: impl Fn(&View<'_, E>, &mut [u64]) + Send + Sync + 'static,
    ) -> Access {
        self.write(Change::Update, table, key, uses, Some(certain(change)), false)
    }

    /// UPDATE with a computation that may overflow, which aborts.
    pub fn try_update(
        &mut self,
        table: TableId,
        key: Key<E>,
        uses: &[Access],
        change: impl Fn(&View<'_, E>, &mut [u64]) -> Result<(), Overflow> + Send + Sync + 'static,
    ) -> Access {
        self.write(Change::Update, table, key, uses, Some(uncertain(change)), true)
    }

    /// INSERT: `fill` fills a row of zeros. A row of the key that exists aborts.
    pub fn insert(
        &mut self,
        table: TableId,
        key: Key<E>,
        uses: &[Access],
        fill: impl Fn(&View<'_, E>, &mut [u64]) + Send + Sync + 'static,
    ) -> Access {
        self.write(Change::Insert, table, key, uses, Some(certain(fill)), true)
    }

    /// UPSERT: `change` changes the row, which is of zeros unless [`View::existed`]. The paper's
    /// blind `Write` (listing 1) is an UPSERT that sets every word.
    pub fn upsert(
        &mut self,
        table: TableId,
        key: Key<E>,
        uses: &[Access],
        change: impl Fn(&View<'_, E>, &mut [u64]) + Send + Sync + 'static,
    ) -> Access {
        self.write(Change::Upsert, table, key, uses, Some(certain(change)), false)
    }

    /// UPSERT with a computation that may overflow, which aborts.
    pub fn try_upsert(
        &mut self,
        table: TableId,
        key: Key<E>,
        uses: &[Access],
        change: impl Fn(&View<'_, E>, &mut [u64]) -> Result<(), Overflow> + Send + Sync + 'static,
    ) -> Access {
        self.write(Change::Upsert, table, key, uses, Some(uncertain(change)), true)
    }

    /// DELETE. A missing row aborts. The access has the deleted row.
    pub fn delete(&mut self, table: TableId, key: Key<E>) -> Access {
        self.write(Change::Delete, table, key, &[], None, false)
    }

    /// FOR … DO … END: the statements that `body` adds run for each element of a list.
    pub fn each(
        &mut self,
        length: impl Fn(&E) -> usize + Send + Sync + 'static,
        body: impl FnOnce(&mut Program<E>),
    ) {
        if self.open_loop.is_some() {
            self.error = Some(Error::NestedLoop { program: self.name.clone() });
            return;
        }
        let start = self.statements.len();
        self.open_loop = Some(start);
        body(self);
        self.open_loop = None;
        let statements = start..self.statements.len();
        self.sections.push(Section { statements, length: Some(Box::new(length)) });
    }

    /// RETURNING: `post_process` may ask for the access's value.
    pub fn returning(&mut self, access: Access) {
        if let Some(statement) = self.statements.get_mut(usize::from(access.0)) {
            statement.is_kept = true;
        }
    }

    /// The text of an abort of this program, as a result row shows it.
    pub fn reason(&self, abort: Abort, store: &Store) -> String {
        let Some(statement) = self.statements.get(usize::from(abort.statement)) else {
            return abort.to_string();
        };
        let Some((id, _)) = &statement.access else {
            return match &statement.action {
                Action::Require(_, reason) => reason.clone(),
                _ => abort.to_string(),
            };
        };
        let table = store.name(*id);
        match abort.cause {
            Cause::MissingRow => format!("no such row in '{table}'"),
            Cause::Duplicate => format!("the key exists in '{table}'"),
            Cause::Check(number) => {
                format!("CHECK ({}) of '{table}'", store.check_name(*id, number))
            }
            Cause::Required | Cause::Overflow => {
                format!("a value does not fit its column of '{table}'")
            }
        }
    }

    fn write(
        &mut self,
        change: Change,
        table: TableId,
        key: Key<E>,
        uses: &[Access],
        row: Option<NewRow<E>>,
        may_fail: bool,
    ) -> Access {
        let checked = table.has_checks && change != Change::Delete;
        self.push(Action::Write(change, row), Some((table, key)), uses, may_fail || checked)
    }

    fn push(
        &mut self,
        action: Action<E>,
        access: Option<(TableId, Key<E>)>,
        uses: &[Access],
        may_fail: bool,
    ) -> Access {
        let number = self.statements.len();
        for used in uses {
            let at = usize::from(used.0);
            let in_reach = at < number && (self.is_outside_loops(at) || self.is_in_open_loop(at));
            if !in_reach || self.statements[at].access.is_none() {
                let (program, statement) = (self.name.clone(), number);
                self.error = Some(Error::Use { program, statement, used: at });
                continue;
            }
            self.statements[at].is_kept = true;
        }
        if self.open_loop.is_none() {
            match self.sections.last_mut() {
                Some(Section { statements, length: None }) => statements.end = number + 1,
                _ => self.sections.push(Section { statements: number..number + 1, length: None }),
            }
        }
        self.is_plain &= !may_fail && uses.is_empty();
        let is_kept = matches!(action, Action::Read | Action::Find);
        let uses = uses.iter().map(|used| used.0).collect();
        self.statements.push(Statement { action, access, uses, is_kept, may_fail });
        Access(number as u16)
    }

    fn is_outside_loops(&self, statement: usize) -> bool {
        let mut plain = self.sections.iter().filter(|section| section.length.is_none());
        plain.any(|section| section.statements.contains(&statement))
    }

    fn is_in_open_loop(&self, statement: usize) -> bool {
        self.open_loop.is_some_and(|start| statement >= start)
    }

    /// Checks the declaration as a whole.
    pub(crate) fn check(&self, store: &Store) -> Result<(), Error> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if self.statements.len() > STATEMENTS_MAX {
            let (program, given) = (self.name.clone(), self.statements.len());
            return Err(Error::Statements { program, given, max: STATEMENTS_MAX });
        }
        for (table, key) in self.statements.iter().filter_map(|statement| statement.access.as_ref())
        {
            if !store.is_of(*table) {
                let (number, tables) = (table.number(), store.tables().count());
                return Err(Error::NoTable { number, tables });
            }
            let (expected, given) = (usize::from(table.key_words), key.words);
            if expected != given {
                let table = store.name(*table).to_owned();
                return Err(Error::KeyWords { table, expected, given });
            }
        }
        Ok(())
    }
}

impl<E> fmt::Debug for Program<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program {{ {}, {} statements }}", self.name, self.statements.len())
    }
}

fn certain<E>(change: impl Fn(&View<'_, E>, &mut [u64]) + Send + Sync + 'static) -> NewRow<E> {
    Box::new(move |view, row| {
        change(view, row);
        true
    })
}

fn uncertain<E>(
    change: impl Fn(&View<'_, E>, &mut [u64]) -> Result<(), Overflow> + Send + Sync + 'static,
) -> NewRow<E> {
    Box::new(move |view, row| change(view, row).is_ok())
}
