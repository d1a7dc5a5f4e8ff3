//! Each statement and each reason of an abort, with answers worked out by hand; and refusals.

use millstream_txn::*;

type Event = (u64, u64, u64);

#[derive(Clone, Copy)]
struct App(Option<Access>);

impl Application for App {
    type Event = Event;
    type Output = (Verdict, Option<u64>);

    fn post_process(&self, _: &Event, outcome: &Outcome<'_>) -> (Verdict, Option<u64>) {
        let value = self.0.and_then(|access| outcome.value(access));
        (outcome.verdict(), value.map(|value| value.word(0)))
    }
}

const ALL: [Scheme; 5] =
    [Scheme::TStream, Scheme::Lal, Scheme::Lwm, Scheme::Pat { partitions: 3 }, Scheme::Nocc];

fn first() -> Key<Event> {
    Key::of(|event: &Event, _| [event.0])
}

fn second() -> Key<Event> {
    Key::of(|event: &Event, _| [event.1])
}

type Declared = Program<Event>;
type Rows = Vec<(u64, u64)>;
type Yield = (Verdict, Option<u64>);

/// Runs events on accounts 1 and 2, which have 10 each and may not be negative.
fn run(
    scheme: Scheme,
    declare: impl FnOnce(&mut Declared, TableId) -> Option<Access>,
    events: &[Event],
) -> (Vec<Yield>, Rows, Vec<String>) {
    let mut store = Store::new();
    let spec = TableSpec::new("accounts", 1, 1).check("balance >= 0", |row| row[0] as i64 >= 0);
    let table = store.add(spec).unwrap();
    (1..=2).for_each(|key| store.insert(table, &[key], &[10]).unwrap());
    let mut program = Program::new("p");
    let app = App(declare(&mut program, table));
    let running = Manager::new(scheme, store).start(app, vec![program], 1).unwrap();
    let Running { mut numbering, mut workers, tables } = running;
    for event in events {
        workers[0].take(numbering.ticket(event), *event).unwrap();
    }
    let mut results = Vec::new();
    workers[0].punctuate();
    workers[0].finish(&mut |result| results.push(result));
    let rows = tables.store().rows(table).into_iter().map(|(key, row)| (key[0], row[0])).collect();
    let program = tables.program(0).unwrap();
    let aborts = results.iter().filter_map(|(verdict, _)| verdict.err());
    let reasons = aborts.map(|abort| program.reason(abort, tables.store())).collect();
    (results, rows, reasons)
}

fn abort(statement: u16, element: u32, cause: Cause) -> Verdict {
    Err(Abort { statement, element, cause })
}

#[test]
fn transfers_keep_the_sum_and_name_the_first_failing_statement() {
    for scheme in ALL {
        let (results, rows, reasons) = run(
            scheme,
            |program, accounts| {
                let balance = program.read(accounts, first());
                program.require(&[balance], "insufficient", |view| {
                    view.used(0).word(0) >= view.event().2
                });
                let left =
                    program.update(accounts, first(), &[], |view, row| row[0] -= view.event().2);
                program.update(accounts, second(), &[], |view, row| row[0] += view.event().2);
                program.returning(left);
                Some(left)
            },
            // The third has its money from the first. A transfer to oneself changes nothing.
            &[(1, 2, 4), (1, 2, 7), (2, 1, 14), (1, 1, 20), (9, 1, 0), (1, 9, 1)],
        );
        let expected = [
            (Ok(()), Some(6)),
            (abort(1, 0, Cause::Required), None),
            (Ok(()), Some(0)),
            (Ok(()), Some(0)),
            (abort(0, 0, Cause::MissingRow), None),
            (abort(3, 0, Cause::MissingRow), None),
        ];
        assert_eq!(results, expected, "{scheme:?}");
        assert_eq!(rows, [(1, 20), (2, 0)], "{scheme:?}");
        let no_row = "no such row in 'accounts'";
        assert_eq!(reasons, ["insufficient", no_row, no_row]);
    }
}

#[test]
fn a_check_aborts_and_leaves_no_trace() {
    for scheme in ALL {
        let (results, rows, reasons) = run(
            scheme,
            |program, accounts| {
                program.update(accounts, second(), &[], |view, row| row[0] += view.event().2);
                program.update(accounts, first(), &[], |view, row| {
                    row[0] = row[0].wrapping_sub(view.event().2);
                });
                None
            },
            &[(1, 2, 11), (1, 2, 10)],
        );
        assert_eq!(results[0].0, abort(1, 0, Cause::Check(0)), "{scheme:?}");
        assert_eq!((results[1].0, rows), (Ok(()), vec![(1, 0), (2, 20)]), "{scheme:?}");
        assert_eq!(reasons, ["CHECK (balance >= 0) of 'accounts'"]);
    }
}

#[test]
fn inserts_upserts_and_deletes() {
    for scheme in ALL {
        let (results, rows, reasons) = run(
            scheme,
            |program, accounts| {
                program.insert(accounts, first(), &[], |view, row| row[0] = view.event().2);
                program.upsert(accounts, second(), &[], |view, row| {
                    row[0] = if view.existed() { row[0] + 100 } else { 1 };
                });
                let deleted = program.delete(accounts, first());
                program.returning(deleted);
                Some(deleted)
            },
            // 3 is new and goes again; 2 exists; 4 and 5 are new.
            &[(3, 2, 7), (2, 4, 7), (3, 5, 8), (3, 5, 9)],
        );
        let duplicate = (abort(0, 0, Cause::Duplicate), None);
        let expected = [(Ok(()), Some(7)), duplicate, (Ok(()), Some(8)), (Ok(()), Some(9))];
        assert_eq!(results, expected, "{scheme:?}");
        assert_eq!(rows, [(1, 10), (2, 110), (5, 101)], "{scheme:?}");
        assert_eq!(reasons, ["the key exists in 'accounts'"]);
    }
}

#[test]
fn loops_run_for_each_element_and_abort_as_a_whole() {
    for scheme in ALL {
        let (results, rows, reasons) = run(
            scheme,
            |program, accounts| {
                program.each(
                    |event| event.2 as usize,
                    |body| {
                        let key = Key::of(|event: &Event, element| [event.0 + element as u64]);
                        let old = body.find(accounts, key);
                        let key = Key::of(|event: &Event, element| [event.0 + element as u64]);
                        body.try_update(accounts, key, &[old], |view, row| {
                            row[0] = view.used(0).word(0) * 10 + view.element() as u64;
                            if row[0] > 9999 { Err(Overflow) } else { Ok(()) }
                        });
                    },
                );
                None
            },
            &[(1, 0, 2), (1, 0, 0), (1, 0, 3), (2, 0, 1), (2, 0, 1), (1, 0, 2)],
        );
        let ok = Ok(());
        let too_large = abort(1, 0, Cause::Overflow);
        // In turn: 100 and 101; nothing; no account 3; 1010; 10100 does not fit; 1000, then 10101
        // does not fit either.
        let expected = [ok, ok, abort(1, 2, Cause::MissingRow), ok, too_large];
        let verdicts: Vec<Verdict> = results.iter().map(|(verdict, _)| *verdict).collect();
        assert_eq!(verdicts[..5], expected, "{scheme:?}");
        assert_eq!(verdicts[5], abort(1, 1, Cause::Overflow), "{scheme:?}");
        assert_eq!(rows, [(1, 100), (2, 1010)], "{scheme:?}");
        assert_eq!(reasons[1], "a value does not fit its column of 'accounts'");
    }
}

#[test]
fn a_value_of_another_key_is_of_the_time_of_its_statement() {
    for scheme in ALL {
        let (_, rows, _) = run(
            scheme,
            |program, accounts| {
                // The first key takes the old value of the second, which takes the new one of the
                // first.
                let old = program.read(accounts, second());
                let new = program.update(accounts, first(), &[old], |view, row| {
                    row[0] += view.used(0).word(0);
                });
                program.update(accounts, second(), &[new, old], |view, row| {
                    row[0] = view.used(0).word(0) * 100 + view.used(1).word(0);
                });
                None
            },
            // Account 1: 10 + 10 = 20. Account 2: 20 * 100 + 10 = 2010. Then 2010 + 20 = 2030,
            // and 2030 * 100 + 20 = 203020.
            &[(1, 2, 0), (2, 1, 0)],
        );
        assert_eq!(rows, [(1, 203_020), (2, 2030)], "{scheme:?}");
    }
}

fn refused(declare: impl FnOnce(&mut Declared, TableId)) -> Error {
    let mut store = Store::new();
    let table = store.add(TableSpec::new("accounts", 1, 1)).unwrap();
    let mut program = Program::new("p");
    declare(&mut program, table);
    match Manager::new(Scheme::TStream, store).start(App(None), vec![program], 1) {
        Err(error) => error,
        Ok(_) => panic!("this program is wrong"),
    }
}

#[test]
fn wrong_declarations_are_refused() {
    let wide = refused(|program, accounts| {
        program.read(accounts, Key::of(|event: &Event, _| [event.0, event.1]));
    });
    assert_eq!(wide.to_string(), "table 'accounts' has keys of 1 words, not of 2");
    let nested = refused(|program, _| {
        program.each(|_| 1, |body| body.each(|_| 1, |_| {}));
    });
    assert!(matches!(nested, Error::NestedLoop { .. }), "{nested}");
    let foreign = refused(|program, accounts| {
        let mut inner = None;
        program.each(|_| 1, |body| inner = Some(body.read(accounts, first())));
        program.require(&[inner.unwrap()], "out of reach", |_| true);
    });
    assert!(matches!(foreign, Error::Use { statement: 1, used: 0, .. }), "{foreign}");
    let other_store = refused(|program, _| {
        let mut other = Store::new();
        other.add(TableSpec::new("a", 1, 1)).unwrap();
        let second = other.add(TableSpec::new("b", 1, 1)).unwrap();
        program.read(second, first());
    });
    assert!(matches!(other_store, Error::NoTable { number: 1, tables: 1 }), "{other_store}");
    for workers in [0, 65] {
        let manager = Manager::new(Scheme::TStream, Store::new());
        let error = manager.start(App(None), vec![Program::new("p")], workers).err();
        assert!(matches!(error, Some(Error::Count { what: "workers", .. })), "{error:?}");
    }
    let mut store = Store::new();
    assert!(store.add(TableSpec::new("a", 0, 1)).is_err());
    let table = store.add(TableSpec::new("a", 1, 2)).unwrap();
    assert!(store.insert(table, &[1], &[1]).is_err() && store.insert(table, &[], &[1, 2]).is_err());
}

#[test]
fn an_event_for_no_program_is_an_error() {
    struct Many;
    impl Application for Many {
        type Event = Event;
        type Output = ();
        fn program(&self, event: &Event) -> usize {
            event.0 as usize
        }
        fn post_process(&self, _: &Event, _: &Outcome<'_>) {}
    }
    for scheme in ALL {
        let running = Manager::new(scheme, Store::new());
        let Running { mut numbering, mut workers, .. } =
            running.start(Many, vec![Program::new("p")], 1).unwrap();
        let event = (1, 0, 0);
        let ticket = numbering.ticket(&event);
        let error = workers[0].take(ticket, event).unwrap_err();
        assert_eq!(error, Error::NoProgram { number: 1, programs: 1 });
    }
}
