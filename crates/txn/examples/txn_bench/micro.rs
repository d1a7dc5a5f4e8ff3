//! The microbenchmark (paper, section 6.2): each event reads, or writes, a list of records.

use std::cell::OnceCell;

use millstream_txn::{Access, Application, Key, Outcome, Program, Store, TableId, TableSpec};

use crate::workload::{Map, Parameters, ROW_WORDS, Workload};
use crate::zipf::{KeyChooser, Random, Skew};

/// Most keys of an event.
pub(crate) const LENGTH_MAX: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(crate) struct MicroEvent {
    is_read: bool,
    length: u8,
    keys: [u64; LENGTH_MAX],
    value: u64,
}

impl MicroEvent {
    fn keys(&self) -> &[u64] {
        &self.keys[..usize::from(self.length)]
    }
}

pub(crate) struct Micro {
    parameters: Parameters,
    chooser: KeyChooser,
    table: OnceCell<TableId>,
    reads: OnceCell<Access>,
}

pub(crate) struct MicroApp {
    reads: Access,
}

impl Application for MicroApp {
    type Event = MicroEvent;
    type Output = u64;

    fn program(&self, event: &MicroEvent) -> usize {
        usize::from(!event.is_read)
    }

    /// Compute: the sum of values read.
    fn post_process(&self, event: &MicroEvent, outcome: &Outcome<'_>) -> u64 {
        match event.is_read {
            true => outcome.values(self.reads).fold(0, |sum, row| sum.wrapping_add(row.word(0))),
            false => 1,
        }
    }
}

fn set(row: &mut [u64], value: u64) {
    row.iter_mut().zip(value..).for_each(|(word, value)| *word = value);
}

impl Workload for Micro {
    type App = MicroApp;

    fn new(parameters: Parameters) -> Micro {
        let Parameters { keys, theta, partitions, multi_partition, spread, .. } = parameters;
        let skew = Skew { keys, theta, partitions, multi: multi_partition, spread };
        let chooser = KeyChooser::new(skew);
        Micro { parameters, chooser, table: OnceCell::new(), reads: OnceCell::new() }
    }

    fn store(&self) -> Store {
        let mut store = Store::new();
        let table = store.add(TableSpec::new("records", 1, ROW_WORDS)).expect("one table");
        for key in 0..self.parameters.keys {
            store.insert(table, &[key], &[key; ROW_WORDS]).expect("the table's widths");
        }
        let _ = self.table.set(table);
        store
    }

    fn programs(&self) -> Vec<Program<MicroEvent>> {
        let table = *self.table.get().expect("the store is made first");
        let key = || Key::of(|event: &MicroEvent, element| [event.keys[element]]);
        let (mut read, mut write) = (Program::new("read"), Program::new("write"));
        read.each(
            |event: &MicroEvent| event.keys().len(),
            |body| {
                let _ = self.reads.set(body.read(table, key()));
            },
        );
        write.each(
            |event: &MicroEvent| event.keys().len(),
            |body| {
                body.upsert(table, key(), &[], |view, row| set(row, view.event().value));
            },
        );
        vec![read, write]
    }

    fn application(&self) -> MicroApp {
        MicroApp { reads: *self.reads.get().expect("the programs are made first") }
    }

    fn event(&self, random: &mut Random) -> MicroEvent {
        let length = self.parameters.length.clamp(1, LENGTH_MAX);
        let mut keys = [0; LENGTH_MAX];
        self.chooser.draw(random, &mut keys[..length]);
        let is_read = random.chance(self.parameters.read_ratio);
        MicroEvent { is_read, length: length as u8, keys, value: random.below(1 << 30) }
    }

    fn by_hand(&self, tables: &mut [Map], event: &MicroEvent) -> u64 {
        let table = &mut tables[0];
        if event.is_read {
            return event.keys().iter().fold(0, |sum, key| sum.wrapping_add(table[key][0]));
        }
        for key in event.keys() {
            set(table.entry(*key).or_default(), event.value);
        }
        1
    }

    fn maps(&self) -> Vec<Map> {
        vec![(0..self.parameters.keys).map(|key| (key, [key; ROW_WORDS])).collect()]
    }
}
