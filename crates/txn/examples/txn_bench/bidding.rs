//! Use case 2 (paper, sections 2 and 6.2): bids for items, and lists of new prices and quantities.

use std::cell::OnceCell;

use millstream_txn::{Application, Key, Outcome, Program, Store, TableId, TableSpec};

use crate::workload::{Map, Parameters, ROW_WORDS, Row, Workload};
use crate::zipf::{KeyChooser, Random, Skew};

/// Items of a list (ours; the paper gives no length).
const LIST: usize = 10;
const FIRST_PRICE: u64 = 100;
const FIRST_QUANTITY: u64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Bid = 0,
    Alter = 1,
    Top = 2,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BiddingEvent {
    request: Request,
    /// A bid has the first.
    items: [u64; LIST],
    price: u64,
    quantity: u64,
}

pub(crate) struct Bidding {
    parameters: Parameters,
    one: KeyChooser,
    several: KeyChooser,
    items: OnceCell<TableId>,
}

pub(crate) struct BiddingApp;

impl Application for BiddingApp {
    type Event = BiddingEvent;
    type Output = u64;

    fn program(&self, event: &BiddingEvent) -> usize {
        event.request as usize
    }

    fn post_process(&self, _: &BiddingEvent, outcome: &Outcome<'_>) -> u64 {
        u64::from(outcome.verdict().is_ok())
    }
}

fn item() -> Key<BiddingEvent> {
    Key::of(|event: &BiddingEvent, element| [event.items[element]])
}

fn row(items: &mut Map, item: u64) -> &mut Row {
    items.get_mut(&item).expect("every item has a row")
}

impl Workload for Bidding {
    type App = BiddingApp;

    fn new(parameters: Parameters) -> Bidding {
        let Parameters { keys, theta, partitions, multi_partition, spread, .. } = parameters;
        let skew = Skew { keys, theta, partitions, multi: multi_partition, spread };
        let several = KeyChooser::new(skew);
        Bidding { parameters, one: several.clone(), several, items: OnceCell::new() }
    }

    fn store(&self) -> Store {
        let mut store = Store::new();
        let items = store.add(TableSpec::new("items", 1, ROW_WORDS)).expect("one table");
        for key in 0..self.parameters.keys {
            let row = [FIRST_PRICE, FIRST_QUANTITY, 0, 0, 0, 0, 0, 0];
            store.insert(items, &[key], &row).expect("the table's widths");
        }
        let _ = self.items.set(items);
        store
    }

    fn programs(&self) -> Vec<Program<BiddingEvent>> {
        let items = *self.items.get().expect("the store is made first");
        let mut bid = Program::new("bid");
        let asked = bid.read(items, item());
        bid.require(&[asked], "rejected", |view| {
            let (event, asked) = (view.event(), view.used(0));
            event.price >= asked.word(0) && event.quantity <= asked.word(1)
        });
        bid.update(items, item(), &[], |view, row| row[1] -= view.event().quantity);
        let (mut alter, mut top) = (Program::new("alter"), Program::new("top"));
        alter.each(
            |_| LIST,
            |body| {
                body.update(items, item(), &[], |view, row| row[0] = view.event().price);
            },
        );
        top.each(
            |_| LIST,
            |body| {
                body.update(items, item(), &[], |view, row| row[1] += view.event().quantity);
            },
        );
        vec![bid, alter, top]
    }

    fn application(&self) -> BiddingApp {
        BiddingApp
    }

    fn event(&self, random: &mut Random) -> BiddingEvent {
        let request = match random.below(8) {
            0 => Request::Alter,
            1 => Request::Top,
            _ => Request::Bid,
        };
        let mut items = [0; LIST];
        match request {
            Request::Bid => self.one.draw(random, &mut items[..1]),
            _ => self.several.draw(random, &mut items),
        }
        let quantity = 1 + random.below(if request == Request::Top { 60 } else { 10 });
        BiddingEvent { request, items, price: 90 + random.below(40), quantity }
    }

    fn by_hand(&self, tables: &mut [Map], event: &BiddingEvent) -> u64 {
        let items = &mut tables[0];
        match event.request {
            Request::Bid => {
                let row = row(items, event.items[0]);
                if event.price < row[0] || event.quantity > row[1] {
                    return 0;
                }
                row[1] -= event.quantity;
            }
            Request::Alter => {
                event.items.iter().for_each(|item| row(items, *item)[0] = event.price)
            }
            Request::Top => {
                event.items.iter().for_each(|item| row(items, *item)[1] += event.quantity)
            }
        }
        1
    }

    fn maps(&self) -> Vec<Map> {
        let row = [FIRST_PRICE, FIRST_QUANTITY, 0, 0, 0, 0, 0, 0];
        vec![(0..self.parameters.keys).map(|key| (key, row)).collect()]
    }
}
