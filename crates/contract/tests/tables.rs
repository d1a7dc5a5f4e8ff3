//! Tables that grow while a job reads them, and positions by the names of splits: what a table
//! hears of them behind other words ([`Wrapped`]) is what it would hear alone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::table::{
    AddedSplits, OpenOptions, Position, Positions, Split, SplitPoll, SplitSpec, Table,
};
use millstream_contract::wrapped::{Words, Wrapped};

fn batch(number: i64) -> RecordBatch {
    let column = Arc::new(Int64Array::from(vec![number])) as ArrayRef;
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

/// Positions of a durable checkpoint, and the splits that had ended.
type Committed = (Positions, BTreeSet<String>);

/// Splits of ten records each, `secret/0` and so on: those that there are now.
#[derive(Debug, Clone, Default)]
struct Growing {
    all: Arc<Mutex<Vec<String>>>,
    /// Splits that are read; `None`: all.
    only: Option<Vec<String>>,
    committed: Arc<Mutex<Vec<Committed>>>,
}

struct Ten {
    name: String,
    next: u64,
}

impl Growing {
    fn grow(&self) {
        let mut all = self.all.lock().unwrap();
        let name = format!("secret/{}", all.len());
        all.push(name);
    }
}

fn spec(name: &str) -> SplitSpec {
    SplitSpec { name: name.into(), length: None, file: None, packed: false }
}

impl Table for Growing {
    fn schema(&self) -> SchemaRef {
        batch(0).schema()
    }
    fn bounded(&self) -> bool {
        false
    }
    fn varies(&self) -> Option<&'static str> {
        Some("it grows")
    }
    fn open(&self, _: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let names = self.only.clone().unwrap_or_else(|| self.all.lock().unwrap().clone());
        let open = |name: String| -> Box<dyn Split> {
            let next = options.from(&name).0.first().copied().unwrap_or(0);
            Box::new(Ten { name, next })
        };
        Ok(names.into_iter().map(open).collect())
    }
    fn describe(&self, _: &[usize]) -> String {
        "growing".into()
    }
    fn with_splits(&self, splits: &[SplitSpec]) -> Option<Arc<dyn Table>> {
        let only = Some(splits.iter().map(|split| split.name.clone()).collect());
        Some(Arc::new(Growing { only, ..self.clone() }))
    }
    fn added_splits(&self, is_known: &dyn Fn(&str) -> bool) -> Result<AddedSplits> {
        let all = self.all.lock().unwrap();
        Ok(AddedSplits::New(
            all.iter().filter(|name| !is_known(name)).map(|name| spec(name)).collect(),
        ))
    }
    fn committed(&self, positions: &Positions, ended: &BTreeSet<String>) -> Result<()> {
        self.committed.lock().unwrap().push((positions.clone(), ended.clone()));
        Ok(())
    }
}

impl Split for Ten {
    fn name(&self) -> &str {
        &self.name
    }
    fn position(&self) -> Position {
        Position(vec![self.next])
    }
    fn poll_next(&mut self, _: i64, _: &Waker) -> Result<SplitPoll> {
        if self.next == 10 {
            return Ok(SplitPoll::Ended);
        }
        self.next += 1;
        Ok(SplitPoll::Chunk(Box::new(batch(self.next as i64))))
    }
}

/// Hides a word, wherever it stands.
#[derive(Debug)]
struct Hiding(&'static str, &'static str);

impl Words for Hiding {
    fn place(&self, inner: String) -> String {
        inner.replace(self.0, self.1)
    }
}

fn hidden(table: Arc<dyn Table>) -> Arc<dyn Table> {
    let inner = Arc::new(Wrapped::new(table, Arc::new(Hiding("secret", "***"))));
    Arc::new(Wrapped::new(inner, Arc::new(Hiding("***", "<hidden>"))))
}

fn position(at: u64) -> Position {
    Position(vec![at])
}

/// A job that reads a table: the opened splits.
struct Reading {
    table: Arc<dyn Table>,
    splits: Vec<Box<dyn Split>>,
}

impl Reading {
    fn from(table: Arc<dyn Table>, from: Positions) -> Reading {
        let options = OpenOptions { from, ..OpenOptions::alone(1, 0, 1) };
        Reading { splits: table.open(&[0], &options).unwrap(), table }
    }

    /// Opens what has come; how many splits.
    fn grow(&mut self) -> usize {
        let is_known = |name: &str| self.splits.iter().any(|split| split.name() == name);
        let AddedSplits::New(added) = self.table.added_splits(&is_known).unwrap() else {
            panic!("it grows");
        };
        let new = self.table.with_splits(&added).unwrap();
        self.splits.extend(new.open(&[0], &OpenOptions::alone(1, 0, 1)).unwrap());
        added.len()
    }

    fn read(&mut self, split: usize, chunks: usize) {
        for _ in 0..chunks {
            let poll = self.splits[split].poll_next(0, Waker::noop()).unwrap();
            assert!(matches!(poll, SplitPoll::Chunk(_)));
        }
    }

    fn positions(&self) -> Positions {
        self.splits.iter().map(|split| (split.name().to_string(), split.position())).collect()
    }
}

#[test]
fn a_table_adds_splits_while_it_is_read() {
    for wrap in [|table| table, hidden as fn(Arc<dyn Table>) -> Arc<dyn Table>] {
        let growing = Growing::default();
        growing.grow();
        let mut reading = Reading::from(wrap(Arc::new(growing.clone())), Positions::new());
        assert_eq!(reading.table.varies(), Some("it grows"));
        assert_eq!(reading.grow(), 0, "nothing has come");
        reading.read(0, 3);
        growing.grow();
        growing.grow();
        assert_eq!(reading.grow(), 2);
        assert_eq!(reading.grow(), 0, "each comes once");
        reading.read(2, 4);
        let read: Vec<Position> = reading.positions().into_values().collect();
        assert_eq!(read, [position(3), position(0), position(4)]);
        // A restart: all splits are there from the beginning.
        let again = Reading::from(wrap(Arc::new(growing)), reading.positions());
        assert_eq!(again.positions(), reading.positions());
    }
}

#[test]
fn a_table_hears_of_committed_positions_by_the_names_of_its_splits() {
    for wrap in [|table| table, hidden as fn(Arc<dyn Table>) -> Arc<dyn Table>] {
        let growing = Growing::default();
        growing.grow();
        let mut reading = Reading::from(wrap(Arc::new(growing.clone())), Positions::new());
        growing.grow();
        assert_eq!(reading.grow(), 1);
        reading.read(1, 2);
        for _ in 0..2 {
            let positions = reading.positions();
            let ended = positions.keys().next().cloned().into_iter().collect();
            reading.table.committed(&positions, &ended).unwrap();
        }
        let positions: Positions =
            [("secret/0".into(), position(0)), ("secret/1".into(), position(2))].into();
        let expected = (positions, BTreeSet::from(["secret/0".to_string()]));
        assert_eq!(*growing.committed.lock().unwrap(), [expected.clone(), expected]);
    }
}

/// A secret is not in the names under which positions are kept.
#[test]
fn positions_are_kept_by_shown_names() {
    let growing = Growing::default();
    growing.grow();
    let table = hidden(Arc::new(growing));
    let from = Positions::from([("<hidden>/0".to_string(), position(7))]);
    assert_eq!(Reading::from(table, from.clone()).positions(), from);
}

/// Tables that say nothing of it keep their splits, and need not care what is durable.
#[test]
fn by_default_splits_are_all_there() {
    #[derive(Debug)]
    struct Plain(Growing);
    impl Table for Plain {
        fn schema(&self) -> SchemaRef {
            self.0.schema()
        }
        fn bounded(&self) -> bool {
            true
        }
        fn open(&self, columns: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
            self.0.open(columns, options)
        }
        fn describe(&self, columns: &[usize]) -> String {
            self.0.describe(columns)
        }
    }
    let table = hidden(Arc::new(Plain(Growing::default())));
    table.check_resumable().unwrap();
    assert_eq!(table.added_splits(&|_| false).unwrap(), AddedSplits::Never);
    let positions = Positions::from([("any".to_string(), position(1))]);
    table.committed(&positions, &BTreeSet::new()).unwrap();
}
