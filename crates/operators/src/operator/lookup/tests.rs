//! Against plain loops, with keys of several types, and pieces that end anywhere.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use millstream_contract::expr::Evaluate;

use super::index::Index;
use super::*;
use crate::budget::Kind;
use crate::expr::Expr;
use crate::operator::stateless::SelectedRows;
use crate::operator::unnest::PIECE_ROWS;
use crate::plan::Key;
use crate::plan::{Project, Source};
use crate::support::{Memory, Random};
use crate::table::{OpenOptions, Sharing, Split, SplitSpec, Table};

/// Whether the number of a pair's row is less than that of the match.
#[derive(Debug)]
struct Less;

impl std::fmt::Display for Less {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("less")
    }
}

impl Evaluate for Less {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let of = |column: usize| batch.column(column).as_primitive::<Int64Type>().clone();
        let pairs = of(2).iter().zip(of(5).iter()).map(|(a, b)| Some(a? < b?)).collect::<Vec<_>>();
        Ok(Arc::new(BooleanArray::from(pairs)))
    }

    fn data_type(&self) -> &DataType {
        &DataType::Boolean
    }
}

/// Rows of a key that is a number, one that is a text, and their numbers.
struct Data(Vec<(Option<i64>, Option<&'static str>, i64)>);

impl Data {
    fn draw(random: &mut Random, rows: u64) -> Data {
        const TEXTS: [Option<&str>; 4] = [None, Some(""), Some("a"), Some("Größe")];
        let row = |number| {
            let key = Some(random.below(4) as i64).filter(|key| *key > 0);
            (key, TEXTS[random.below(4) as usize], number as i64)
        };
        Data((0..rows).map(row).collect())
    }

    fn schema() -> Arc<Schema> {
        let field = |name, of| Field::new(name, of, true);
        let (int, text) = (DataType::Int64, DataType::Utf8);
        Arc::new(Schema::new(vec![field("k", int.clone()), field("t", text), field("n", int)]))
    }

    fn batch(&self) -> RecordBatch {
        let keys: Int64Array = self.0.iter().map(|row| row.0).collect();
        let texts: StringArray = self.0.iter().map(|row| row.1).collect();
        let numbers: Int64Array = self.0.iter().map(|row| Some(row.2)).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(texts), Arc::new(numbers)];
        RecordBatch::try_new(Data::schema(), columns).unwrap()
    }
}

/// How rows are looked up.
#[derive(Debug, Clone, Copy)]
struct How {
    /// The columns that are keys.
    keys: &'static [usize],
    nulls_are_equal: bool,
    outer: bool,
    asks: bool,
}

fn lookup(how: How) -> Lookup {
    let (schema, splits, sharing) = (Data::schema(), vec![], Sharing::Whole);
    lookup_in(how, Arc::new(Memory { schema, splits, sharing }))
}

fn lookup_in(how: How, table: Arc<dyn Table>) -> Lookup {
    let schema = Data::schema();
    let key = |column: &usize| {
        let data_type = schema.field(*column).data_type().clone();
        let expr = Expr::Column(*column);
        let key = Key { name: column.to_string(), expr, data_type, nullable: true };
        [key.clone(), key]
    };
    let pair: Vec<_> = schema.fields().iter().chain(schema.fields()).cloned().collect();
    let shown = Schema::new(vec![pair[2].clone(), pair[5].clone()]);
    let columns = (0..3).map(Expr::Column).collect();
    let body = plan::Lookup {
        name: "side".into(),
        side: Source {
            name: "side".into(),
            table,
            projection: vec![0, 1, 2],
            derived: vec![],
            schema: schema.clone(),
            event_time: None,
        },
        filter: None,
        columns: Project { columns, schema: schema.clone() },
        outer: how.outer,
        keys: how.keys.iter().map(key).collect(),
        nulls_are_equal: how.nulls_are_equal,
        condition: how.asks.then(|| Expr::Computed(Arc::new(Less))),
        pair: Arc::new(Schema::new(pair)),
        output: vec![2, 5],
    };
    Lookup::new(&Arc::new(body), &Arc::new(shown)).unwrap()
}

/// The numbers of the rows and of their matches, piece by piece, with whether the first record of a
/// piece is that of the last one before.
type Found = Vec<(Vec<(i64, Option<i64>)>, bool)>;

fn found(how: How, rows: &Data, side: &Data, places: Option<Vec<u32>>) -> Found {
    let lookup = lookup(how);
    let budget = Arc::new(Budget::new(1 << 30, 1, vec![crate::budget::Holder::any()], 100));
    let index = Index::new(&lookup.keys, side.batch(), budget.hold(Kind::Tables, 0)).unwrap();
    let taken = SelectedRows { rows: rows.batch(), places: places.clone() };
    let mut pieces = Matches::new(&lookup, Arc::new(index), &taken).unwrap();
    let mut found = Vec::new();
    while let Some(piece) = pieces.next().unwrap() {
        let own = piece.taken.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        let side = piece.taken.rows.column(1).as_primitive::<Int64Type>().clone();
        assert!(own.len() <= PIECE_ROWS + rows.0.len());
        let place = |number: &i64| places.as_ref().map_or(*number as u32, |p| p[*number as usize]);
        assert_eq!(piece.taken.places, Some(own.iter().map(place).collect()));
        if let Some(record) = piece.continued {
            assert_eq!(Some(record), own.first().map(place));
        }
        let pairs = own.into_iter().zip(side.iter()).collect();
        found.push((pairs, piece.continued.is_some()));
    }

    found
}

fn expected(how: How, rows: &Data, side: &Data) -> Vec<(i64, Option<i64>)> {
    let mut all = Vec::new();
    for row in &rows.0 {
        let equal = |other: &&(Option<i64>, Option<&'static str>, i64)| {
            let key = |column: &usize| match column {
                0 => row.0 == other.0 && (row.0.is_some() || how.nulls_are_equal),
                _ => row.1 == other.1 && (row.1.is_some() || how.nulls_are_equal),
            };
            how.keys.iter().all(key) && (!how.asks || row.2 < other.2)
        };
        let before = all.len();
        all.extend(side.0.iter().filter(equal).map(|other| (row.2, Some(other.2))));
        if how.outer && all.len() == before {
            all.push((row.2, None));
        }
    }
    all
}

#[test]
fn matches_are_those_of_plain_loops_in_the_order_of_both_sides() {
    let mut random = Random::new(7);
    for (rows, side) in [(0, 5), (5, 0), (1, 1), (40, 60), (60, 40)] {
        let (rows, side) = (Data::draw(&mut random, rows), Data::draw(&mut random, side));
        for case in 0..32 {
            let keys = [&[0][..], &[1], &[0, 1], &[]][case % 4];
            let flag = |bit: usize| case >> bit & 1 == 1;
            let how = How { keys, nulls_are_equal: flag(2), outer: flag(3), asks: flag(4) };
            let found = found(how, &rows, &side, None);
            let all: Vec<_> = found.iter().flat_map(|(pairs, _)| pairs.clone()).collect();
            assert_eq!(all, expected(how, &rows, &side), "{how:?}");
        }
    }
}

/// A row with more matches than go into a piece goes on in the next, which says so; where a
/// condition holds for none of them, it is given once, next to NULL.
#[test]
fn pieces_end_within_the_matches_of_a_row() {
    let side = Data((0..2 * PIECE_ROWS as i64 + 10).map(|n| (Some(1), None, n - 50_000)).collect());
    let rows = Data(vec![(Some(2), None, 0), (Some(1), None, 1), (Some(1), None, 2)]);
    for asks in [false, true] {
        for outer in [false, true] {
            let how = How { keys: &[0], nulls_are_equal: false, outer, asks };
            let found = found(how, &rows, &side, None);
            let all: Vec<_> = found.iter().flat_map(|(pairs, _)| pairs.clone()).collect();
            assert_eq!(all, expected(how, &rows, &side), "{how:?}");
            let continued = found.iter().filter(|(_, continued)| *continued).count();
            assert_eq!(continued, if asks { 0 } else { 4 }, "{how:?}");
        }
    }
}

/// Rows may be of one record already: where pieces end between these, the record goes on.
#[test]
fn rows_of_one_record_stay_together() {
    let side = Data((0..PIECE_ROWS as i64).map(|n| (Some(1), None, n)).collect());
    let rows = Data(vec![(Some(1), None, 0), (Some(1), None, 1)]);
    let how = How { keys: &[0], nulls_are_equal: false, outer: false, asks: false };
    let found = found(how, &rows, &side, Some(vec![7, 7]));
    let begins: Vec<_> = found.iter().map(|(pairs, c)| (pairs.first().map(|p| p.0), *c)).collect();
    assert_eq!(begins[0], (Some(0), false));
    assert!(begins[1..].iter().all(|(first, c)| first.is_none() || *c), "{begins:?}");
    assert!(begins.contains(&(Some(1), true)), "{begins:?}");
}

/// A table without rows that counts the looks at its files.
#[derive(Debug, Default)]
struct LookedAt(AtomicUsize);

impl Table for LookedAt {
    fn schema(&self) -> SchemaRef {
        Data::schema()
    }
    fn bounded(&self) -> bool {
        true
    }
    fn open(&self, _: &[usize], _: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        Ok(Vec::new())
    }
    fn describe(&self, _: &[usize]) -> String {
        "nothing".into()
    }
    fn splits(&self) -> Result<Vec<SplitSpec>> {
        self.0.fetch_add(1, Relaxed);
        Ok(Vec::new())
    }
}

/// A run looks for changes an interval after its own begin, also if the clock has been put back
/// since the job was first started.
#[test]
fn a_run_after_a_clock_was_put_back_looks_for_changes() {
    let table = Arc::new(LookedAt::default());
    let how = How { keys: &[0], nulls_are_equal: false, outer: false, asks: false };
    let lookup = lookup_in(how, table.clone());
    let budget = Arc::new(Budget::new(1 << 30, 1, vec![crate::budget::Holder::any()], 100));
    let settings = Settings { lookup_reload_us: 100, ..Settings::default() };
    lookup.load(&settings, (5_000, 1_000), &budget).unwrap();
    let looks = |now_us: i64| {
        let before = table.0.load(Relaxed);
        lookup.refresh(now_us, &|line| panic!("{line}"));
        table.0.load(Relaxed) > before
    };
    assert_eq!([1_099, 1_100, 1_199, 1_200].map(looks), [false, true, false, true]);
}
