//! Rows of bags become columns again.

use millstream_state::VarKeys;

use super::pairs::{Built, Partners};
use super::sides::{JoinSide, Kept, SideColumns};
use crate::columns::inputs::Feed;
use crate::columns::keys::ColumnVars;
use crate::columns::stored::Gathered;
use crate::error::{Error, Result};
use crate::passed::{BatchRows, PassedRows, ReadRows, Reader};

/// Rows of a side that are being read.
pub(super) struct Gathering<'b> {
    rows: usize,
    keys: Vec<u64>,
    columns: Vec<Gathered>,
    /// Rows of the other side, if rows without a partner among them are left out.
    among: Option<&'b Built>,
    partners: Partners,
}

impl<'b> Gathering<'b> {
    /// Of the rows of a side that may have a partner.
    pub(super) fn among(side: &JoinSide, built: &'b Built) -> Gathering<'b> {
        Gathering { among: Some(built), ..Gathering::new(side, 0) }
    }

    /// Of so many rows.
    pub(super) fn new(side: &JoinSide, rows: usize) -> Gathering<'b> {
        let column = |column: &super::sides::Column| {
            let mut gathered = Gathered::new(column.data_type.clone());
            gathered.reserve(rows);
            gathered
        };
        let keys = Vec::with_capacity(rows * side.codec.words());
        let columns = side.columns.iter().map(column).collect();
        Gathering { rows: 0, keys, columns, among: None, partners: Partners::default() }
    }

    /// Reads a buffer.
    pub(super) fn read(
        &mut self,
        side: &JoinSide,
        reader: &mut Reader,
        rows: &PassedRows,
    ) -> Result<()> {
        if let Some(rows) = rows.batch_rows() {
            return self.append_kept(side, rows);
        }
        reader.read_rows(rows.words(), &mut |read| self.append(side, read))
    }

    /// Appends rows that are in the columns of their batch.
    fn append_kept(&mut self, side: &JoinSide, kept: &BatchRows) -> Result<()> {
        let (arguments, texts) = (side.inputs(kept.columns())?, side.texts_in(kept.columns()));
        let vars = ColumnVars { columns: &texts, rows: &kept.places };
        self.keys.extend_from_slice(&kept.keys);
        self.rows += kept.places.len();
        append_columns(&mut self.columns, side, (&kept.keys, &vars), &arguments, |column, feed| {
            column.append_picked(feed, &kept.places)
        })
    }

    fn append(&mut self, side: &JoinSide, read: &ReadRows<'_>) -> Result<()> {
        if let Some(built) = self.among {
            let picks = self.partners.of(built, side, read.keys(), read.rows());
            if picks.len() < read.rows() {
                return self.append_picked(side, read);
            }
        }
        let (rows, keys) = (read.rows(), (read.keys(), &read.vars(0)));
        self.keys.extend_from_slice(read.keys());
        self.rows += rows;
        append_columns(&mut self.columns, side, keys, &read.feeds(), |column, feed| {
            column.append(feed, rows)
        })
    }

    /// Appends the rows that may have a partner.
    fn append_picked(&mut self, side: &JoinSide, read: &ReadRows<'_>) -> Result<()> {
        let Gathering { rows, keys, columns, partners, .. } = self;
        let (picks, width) = (&partners.picks[..], side.codec.words());
        if picks.is_empty() {
            return Ok(());
        }
        let first = keys.len();
        for row in picks {
            keys.extend_from_slice(&read.keys()[*row as usize * width..][..width]);
        }
        *rows += picks.len();
        let vars = PickedVars { vars: &read.vars(0), picks };
        append_columns(columns, side, (&keys[first..], &vars), &read.feeds(), |column, feed| {
            column.append_picked(feed, picks)
        })
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        8 * self.keys.capacity() + self.columns.iter().map(Gathered::size).sum::<usize>()
    }

    pub(super) fn finish(self, side: &JoinSide) -> Result<SideColumns> {
        let columns = self.columns.into_iter().map(Gathered::finish);
        let columns = columns.collect::<Result<_>>()?;
        let mut hashes = Vec::new();
        side.codec.hash(&self.keys, self.rows, &mut hashes);
        Ok(SideColumns { rows: self.rows, keys: self.keys, hashes, columns, places: None })
    }
}

/// Appends rows with these keys to all columns; `append` appends the rows' values of a column.
fn append_columns<F: Feed>(
    columns: &mut [Gathered],
    side: &JoinSide,
    (keys, vars): (&[u64], &impl VarKeys),
    feeds: &[F],
    append: impl Fn(&mut Gathered, &F) -> Result<()>,
) -> Result<()> {
    for (column, gathered) in side.columns.iter().zip(columns) {
        match column.kept {
            Kept::Value(value) => {
                let feed = feeds.get(value);
                append(
                    gathered,
                    feed.ok_or_else(|| Error::Internal("a row without a value".into()))?,
                )?;
            }
            Kept::Key(key) => append_key(gathered, side, key, keys, vars),
        }
    }
    Ok(())
}

/// Appends a column of the keys of rows.
fn append_key(
    gathered: &mut Gathered,
    side: &JoinSide,
    key: usize,
    keys: &[u64],
    vars: &impl VarKeys,
) {
    let (width, bit) = (side.codec.words(), side.codec.null_bit(key));
    match side.codec.var_of(key) {
        Some(var) => gathered.append_texts(keys, width, bit, vars, var),
        None => gathered.append_keys(keys, width, side.codec.word_of(key), bit),
    }
}

/// The variable-length keys of picked rows.
struct PickedVars<'a, V> {
    vars: &'a V,
    picks: &'a [u32],
}

impl<V: VarKeys> VarKeys for PickedVars<'_, V> {
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        self.vars.bytes(self.picks[row] as usize, var)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::*;
    use arrow::compute::{concat, take};
    use arrow::datatypes::{Field, Float64Type, Int32Type, Schema};

    use super::*;
    use crate::expr::Expr;
    use crate::operator::join::bags::Bags;
    use crate::operator::join::program::Meeting;
    use crate::operator::{BySlice, Leadership, Room};
    use crate::plan::{Join, JoinKind, Key};
    use crate::windowing::SliceId;

    /// A quiet NaN with other bits set.
    const ODD_NAN: u64 = 0x7ff8_0000_dead_beef;

    fn columns() -> Vec<ArrayRef> {
        let lists = [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(7)])];
        let decimals = Decimal128Array::from(vec![Some(1), None, Some(i128::MIN / 7), Some(-1)]);
        let odd = f64::from_bits(ODD_NAN);
        vec![
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(0), Some(i64::MAX)])),
            Arc::new(StringArray::from(vec![Some("Größe"), None, Some(""), Some("x")])),
            Arc::new(Float64Array::from(vec![Some(-0.0), Some(odd), None, Some(1.5)])),
            Arc::new(Float32Array::from(vec![Some(-0.0), Some(f32::NAN), None, Some(0.1)])),
            Arc::new(Int8Array::from(vec![Some(-128), None, Some(127), Some(0)])),
            Arc::new(UInt32Array::from(vec![Some(u32::MAX), None, Some(0), Some(1)])),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)])),
            Arc::new(decimals.with_precision_and_scale(38, 2).unwrap()),
            Arc::new(BinaryArray::from(vec![Some(&[0xff_u8, 0][..]), None, Some(&[]), None])),
            Arc::new(LargeStringArray::from(vec![Some("a"), None, Some("bb"), None])),
            Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3, 4]).with_timezone("UTC")),
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
            Arc::new(NullArray::new(4)),
        ]
    }

    /// Of rows whose columns these are, on both sides, some of which are keys.
    fn sides(columns: &[ArrayRef], keys: &[usize]) -> [JoinSide; 2] {
        let field =
            |(i, c): (usize, &ArrayRef)| Field::new(format!("c{i}"), c.data_type().clone(), true);
        let pair = columns.iter().chain(columns).enumerate().map(field).collect::<Vec<_>>();
        let pair = Arc::new(Schema::new(pair));
        let key = |column: &usize| Key {
            name: format!("c{column}"),
            expr: Expr::Column(*column),
            data_type: columns[*column].data_type().clone(),
            nullable: true,
        };
        let join = Join {
            kind: JoinKind::Full,
            window: None,
            time: None,
            left_inputs: 1,
            left_columns: columns.len(),
            keys: keys.iter().map(|column| [key(column), key(column)]).collect(),
            as_of: false,
            nulls_are_equal: false,
            broadcast: None,
            condition: None,
            fired: pair.clone(),
            pair,
            having: None,
            project: vec![],
        };
        JoinSide::both(&join).unwrap()
    }

    /// Values of every type, keys or not, come out of a bag bit for bit as they went in.
    #[test]
    fn values_come_out_as_they_went_in() {
        let columns = columns();
        let fields = columns.iter().enumerate().map(|(i, c)| (format!("c{i}"), c.clone(), true));
        let batch = RecordBatch::try_from_iter_with_nullable(fields).unwrap();
        for keys in [&[][..], &[0], &[1], &[2], &[1, 0], &[7, 8, 6], &[3, 9, 10]] {
            let sides = sides(&columns, keys);
            for (number, side) in sides.iter().enumerate() {
                let leadership = Leadership { me: 0, leaders: 1, of_empty_key: true };
                let room = Room { buffer_bytes: 200, pool_bytes: 1 << 16, ..Room::default() };
                let mut bags = Bags::new(&sides, Meeting::Keys, &leadership, &room);
                let places: Vec<u32> = (0..4).collect();
                for rows in [&places[..1], &places[1..], &places[2..3]] {
                    let mut by_slice: BySlice = vec![(SliceId::WHOLE, rows.to_vec())];
                    let of_batch = side.evaluate(&batch, &mut by_slice).unwrap().unwrap();
                    let rows = &by_slice[0].1;
                    bags.add(SliceId::WHOLE, (number, side), &of_batch, rows, None).unwrap();
                }
                let [left, right] = bags.remove(SliceId::WHOLE).unwrap();
                let mut bag = if number == 0 { left } else { right };
                let mut gathering = Gathering::new(side, bag.rows());
                let mut reader = Reader::new(sides[0].format.clone());
                for rows in bag.take() {
                    gathering.read(side, &mut reader, &rows).unwrap();
                }
                let found = gathering.finish(side).unwrap();
                assert_eq!(found.rows, 5);
                // A buffer may be full before the last rows, which are the third once more.
                let nth = |column: &ArrayRef| (column.slice(0, 4), column.slice(4, 1));
                for (column, right) in found.columns.iter().zip(&columns) {
                    let (all, again) = nth(column);
                    assert_eq!((&all, &again), (right, &right.slice(2, 1)), "keys {keys:?}");
                }
                let doubles = found.columns[2].as_primitive::<Float64Type>();
                let bits = [0, 1].map(|row| doubles.value(row).to_bits());
                assert_eq!(bits, [(-0.0f64).to_bits(), ODD_NAN], "keys {keys:?}");
            }
        }
    }

    /// Rows that stay in the columns of their batch come out as they went in.
    #[test]
    fn rows_in_the_columns_of_their_batch_are_the_same() {
        let columns: Vec<ArrayRef> = columns()
            .iter()
            .map(|column| concat(&[&**column; 300]).unwrap())
            .map(|column| column.slice(1, column.len() - 1))
            .collect();
        let fields = columns.iter().enumerate().map(|(i, c)| (format!("c{i}"), c.clone(), true));
        let batch = RecordBatch::try_from_iter_with_nullable(fields).unwrap();
        let places: Vec<u32> = (0..batch.num_rows() as u32).filter(|row| row % 9 != 4).collect();
        let expected =
            |column: &ArrayRef| take(column, &UInt32Array::from(places.clone()), None).unwrap();
        for keys in [&[][..], &[0], &[1], &[7, 8, 6]] {
            let sides = sides(&columns, keys);
            let side = &sides[1];
            let mut by_slice: BySlice = vec![(SliceId::WHOLE, places.clone())];
            let of_batch = side.evaluate(&batch, &mut by_slice).unwrap().unwrap();
            let leadership = Leadership { me: 0, leaders: 1, of_empty_key: true };
            let room = Room { buffer_bytes: 1 << 14, pool_bytes: 1 << 16, ..Room::default() };
            let mut bags = Bags::new(&sides, Meeting::Keys, &leadership, &room);
            bags.add(SliceId::WHOLE, (1, side), &of_batch, &places, None).unwrap();
            let [_, mut bag] = bags.remove(SliceId::WHOLE).unwrap();
            let rows = bag.take().pop().unwrap();
            let kept = rows.batch_rows().expect("rows in columns");
            let mut read = Gathering::new(side, 0);
            let mut reader = Reader::new(sides[0].format.clone());
            read.read(side, &mut reader, &rows).unwrap();
            let in_place = SideColumns::in_place(side, kept, None);
            for (at, column) in columns.iter().enumerate() {
                let all = UInt32Array::from_iter_values(0..in_place.rows as u32);
                let taken = take(&in_place.columns[at], &in_place.places_of(&all), None).unwrap();
                assert_eq!(&taken, &expected(column));
            }
            let found = read.finish(side).unwrap();
            assert_eq!((&found.keys, found.rows), (&in_place.keys, places.len()));
            for (found, column) in found.columns.iter().zip(&columns) {
                assert_eq!(found, &expected(column), "keys {keys:?}");
            }
        }
    }
}
