//! Use case 1 (paper, section 6.2): deposits and transfers between accounts and assets.

use std::cell::OnceCell;

use millstream_txn::{Application, Key, Outcome, Program, Store, TableId, TableSpec};

use crate::workload::{Map, Parameters, ROW_WORDS, Workload};
use crate::zipf::{KeyChooser, Random, Skew};

/// First balance of each account and asset.
const FIRST_BALANCE: u64 = 10_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct LedgerEvent {
    is_transfer: bool,
    /// Account and asset of the source, and of the target. A deposit has the first two.
    keys: [u64; 4],
    amount: u64,
}

pub(crate) struct Ledger {
    parameters: Parameters,
    chooser: KeyChooser,
    tables: OnceCell<[TableId; 2]>,
}

pub(crate) struct LedgerApp;

impl Application for LedgerApp {
    type Event = LedgerEvent;
    type Output = u64;

    fn program(&self, event: &LedgerEvent) -> usize {
        usize::from(event.is_transfer)
    }

    fn post_process(&self, _: &LedgerEvent, outcome: &Outcome<'_>) -> u64 {
        u64::from(outcome.verdict().is_ok())
    }
}

fn key(number: usize) -> Key<LedgerEvent> {
    Key::of(move |event: &LedgerEvent, _| [event.keys[number]])
}

impl Workload for Ledger {
    type App = LedgerApp;

    fn new(parameters: Parameters) -> Ledger {
        let Parameters { keys, theta, partitions, multi_partition, spread, .. } = parameters;
        let skew = Skew { keys, theta, partitions, multi: multi_partition, spread };
        Ledger { parameters, chooser: KeyChooser::new(skew), tables: OnceCell::new() }
    }

    fn store(&self) -> Store {
        let mut store = Store::new();
        let tables = ["accounts", "assets"].map(|name| {
            let table = store.add(TableSpec::new(name, 1, ROW_WORDS)).expect("two tables");
            for key in 0..self.parameters.keys {
                let row = [FIRST_BALANCE; ROW_WORDS];
                store.insert(table, &[key], &row).expect("the table's widths");
            }
            table
        });
        let _ = self.tables.set(tables);
        store
    }

    fn programs(&self) -> Vec<Program<LedgerEvent>> {
        let [accounts, assets] = *self.tables.get().expect("the store is made first");
        let (mut deposit, mut transfer) = (Program::new("deposit"), Program::new("transfer"));
        for (table, number) in [(accounts, 0), (assets, 1)] {
            deposit.update(table, key(number), &[], |view, row| row[0] += view.event().amount);
            // A balance below zero does not fit its column: the transfer is aborted.
            transfer.try_update(table, key(number), &[], |view, row| {
                let left = row[0].checked_sub(view.event().amount);
                row[0] = left.ok_or(millstream_txn::Overflow)?;
                Ok(())
            });
        }
        for (table, number) in [(accounts, 2), (assets, 3)] {
            transfer.update(table, key(number), &[], |view, row| row[0] += view.event().amount);
        }
        vec![deposit, transfer]
    }

    fn application(&self) -> LedgerApp {
        LedgerApp
    }

    fn event(&self, random: &mut Random) -> LedgerEvent {
        let mut keys = [0; 4];
        self.chooser.draw(random, &mut keys);
        let is_transfer = random.chance(0.5);
        LedgerEvent { is_transfer, keys, amount: random.below(100) }
    }

    fn by_hand(&self, tables: &mut [Map], event: &LedgerEvent) -> u64 {
        let LedgerEvent { is_transfer, keys, amount } = *event;
        let mut balances = |number: usize, change: u64| {
            let table: &mut Map = &mut tables[number % 2];
            let row = table.get_mut(&keys[number]).expect("every key has a row");
            row[0] = row[0].wrapping_add(change);
            row[0]
        };
        if is_transfer {
            if balances(0, 0) < amount || balances(1, 0) < amount {
                return 0;
            }
            balances(2, amount);
            balances(3, amount);
        }
        let change = if is_transfer { amount.wrapping_neg() } else { amount };
        balances(0, change);
        balances(1, change);
        1
    }

    fn maps(&self) -> Vec<Map> {
        let map = || (0..self.parameters.keys).map(|key| (key, [FIRST_BALANCE; ROW_WORDS]));
        vec![map().collect(), map().collect()]
    }
}
