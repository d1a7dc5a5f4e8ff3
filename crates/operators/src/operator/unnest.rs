//! UNNEST: each element of an array, or entry of a map, becomes a row, with the other columns of
//! its record beside it.
//!
//! One record may have a million elements, and a long text beside them that is repeated for each.
//! So the result of a batch is made piece by piece, and a piece is bounded in rows and in bytes;
//! the caller is done with a piece before the next one is made.

use std::ops::Range;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, RecordBatch, RecordBatchOptions,
    StructArray, UInt32Array,
};
use arrow::compute::{nullif, take, take_arrays};
use arrow::datatypes::{DataType, SchemaRef};

use crate::error::{Error, Result};
use crate::operator::stateless::{Piece, SelectedRows};
use crate::plan::{self, Element};
use crate::prepare::element_offsets;

/// Rows of a piece at most.
pub(super) const PIECE_ROWS: usize = 1 << 14;
/// A piece ends when what it repeats beside its elements takes as many bytes.
pub(super) const PIECE_BYTES: usize = 4 << 20;

/// An UNNEST with its columns.
#[derive(Debug, Clone)]
pub struct Unnest {
    /// The UNNEST of the plan.
    pub body: plan::Unnest,
    /// The schema of its rows.
    pub schema: SchemaRef,
}

/// The last column of some rows: where the elements of each stand.
struct Elements {
    /// Of arrays; of maps: keys and values.
    values: ArrayRef,
    offsets: Vec<i32>,
    /// Whether a row has none, since it is NULL.
    nulls: BooleanArray,
}

/// The pieces of an UNNEST's result, in order.
pub struct UnnestedPieces<'a> {
    unnest: &'a Unnest,
    /// The columns beside the elements.
    beside: &'a [ArrayRef],
    elements: Elements,
    places: Option<&'a [u32]>,
    /// The next row, and how many of its elements have been taken.
    row: usize,
    taken: usize,
    begun: bool,
}

/// How many elements there are in a column of arrays or maps.
pub fn elements_in(column: &ArrayRef) -> usize {
    let offsets = element_offsets(column).unwrap_or_default();
    let ends = offsets.first().zip(offsets.last());
    ends.map_or(0, |(first, last)| (last - first) as usize)
}

impl Elements {
    fn new(column: &ArrayRef) -> Result<Elements> {
        let (values, offsets): (ArrayRef, &[i32]) = match column.data_type() {
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                (list.values().clone(), list.value_offsets())
            }
            DataType::Map(..) => {
                let map = column.as_map();
                (std::sync::Arc::new(map.entries().clone()), map.value_offsets())
            }
            other => return Err(Error::Internal(format!("an UNNEST of {other}"))),
        };
        let nulls = arrow::compute::is_null(column)?;
        Ok(Elements { values, offsets: offsets.to_vec(), nulls })
    }

    /// Where the elements of a row stand.
    fn of(&self, row: usize) -> Range<usize> {
        let (start, end) = (self.offsets[row] as usize, self.offsets[row + 1] as usize);
        match self.nulls.value(row) {
            true => start..start,
            false => start..end,
        }
    }
}

impl Unnest {
    /// Expands rows whose last column is the array, into pieces, at least one; `taken` also has the
    /// rows' places.
    pub(crate) fn pieces<'a>(&'a self, taken: &'a SelectedRows) -> Result<UnnestedPieces<'a>> {
        let Some((array, beside)) = taken.rows.columns().split_last() else {
            return Err(Error::Internal("an UNNEST of no column".into()));
        };
        let (elements, places) = (Elements::new(array)?, taken.places.as_deref());
        Ok(UnnestedPieces {
            unnest: self,
            beside,
            elements,
            places,
            row: 0,
            taken: 0,
            begun: false,
        })
    }
}

/// The rows of a piece: for each, its record's row, its element and the element's position.
#[derive(Default)]
struct Picked {
    rows: Vec<u32>,
    elements: Vec<Option<u32>>,
    positions: Vec<Option<i32>>,
}

impl Picked {
    fn add(&mut self, row: usize, element: Option<(usize, usize)>) {
        self.rows.push(row as u32);
        self.elements.push(element.map(|(element, _)| element as u32));
        self.positions.push(element.map(|(_, position)| position as i32));
    }

    /// The elements, if they stand one after the other.
    fn range(&self) -> Option<Range<usize>> {
        let Some(first) = self.elements.first() else { return Some(0..0) };
        let first = (*first)?;
        let in_order = |(at, element): (usize, &Option<u32>)| {
            element.is_some_and(|element| element as usize == first as usize + at)
        };
        let all = self.elements.iter().enumerate().all(in_order);
        all.then(|| first as usize..first as usize + self.elements.len())
    }
}

impl UnnestedPieces<'_> {
    /// The next piece; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>> {
        let continues = self.taken > 0;
        let picked = self.pick();
        if picked.rows.is_empty() && self.begun {
            return Ok(None);
        }
        self.begun = true;
        let places: Vec<u32> = match self.places {
            Some(places) => picked.rows.iter().map(|row| places[*row as usize]).collect(),
            None => picked.rows.clone(),
        };
        let continued = places.first().copied().filter(|_| continues);
        let taken = SelectedRows { rows: self.rows(picked)?, places: Some(places) };
        Ok(Some(Piece { taken, continued }))
    }

    /// Which rows the next piece has.
    fn pick(&mut self) -> Picked {
        let (mut picked, mut bytes) = (Picked::default(), 0);
        while self.row < self.elements.nulls.len() {
            let elements = self.elements.of(self.row);
            let row_bytes: usize = self.beside.iter().map(|c| value_bytes(c, self.row)).sum();
            if elements.is_empty() && self.unnest.body.outer {
                picked.add(self.row, None);
                bytes += row_bytes;
            }
            while self.taken < elements.len() && !is_full(&picked, bytes) {
                let element = elements.start + self.taken;
                self.taken += 1;
                picked.add(self.row, Some((element, self.taken)));
                bytes += row_bytes;
            }
            if self.taken < elements.len() {
                break;
            }
            (self.row, self.taken) = (self.row + 1, 0);
            if is_full(&picked, bytes) {
                break;
            }
        }
        picked
    }

    fn rows(&self, picked: Picked) -> Result<RecordBatch> {
        let range = picked.range();
        let count = picked.rows.len();
        let mut columns = take_arrays(self.beside, &UInt32Array::from(picked.rows), None)?;
        let values = match range {
            Some(range) => self.elements.values.slice(range.start, range.len()),
            None => take(&self.elements.values, &UInt32Array::from(picked.elements), None)?,
        };
        let positions = Int32Array::from(picked.positions);
        for element in &self.unnest.body.elements {
            columns.push(match element {
                Element::Whole => values.clone(),
                Element::Field(at) => field(&values, *at)?,
                Element::Ordinality => std::sync::Arc::new(positions.clone()),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(self.unnest.schema.clone(), columns, &options)?)
    }
}

/// Whether nothing more goes into a piece.
fn is_full(picked: &Picked, bytes: usize) -> bool {
    picked.rows.len() >= PIECE_ROWS || bytes >= PIECE_BYTES
}

/// A field of each element; NULL for a NULL element, whatever the field's own value.
fn field(values: &ArrayRef, at: usize) -> Result<ArrayRef> {
    let row = values.as_struct_opt();
    let Some((row, column)) = row.and_then(|row| Some((row, row.columns().get(at)?))) else {
        return Err(Error::Internal(format!("field {at} of elements {}", values.data_type())));
    };
    match row.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) if *column.data_type() != DataType::Null => {
            Ok(nullif(column, &BooleanArray::new(!nulls.inner(), None))?)
        }
        _ => Ok(column.clone()),
    }
}

/// About what repeating a value takes.
pub(super) fn value_bytes(column: &ArrayRef, row: usize) -> usize {
    const FIXED: usize = 16;
    let between = |offsets: &[i32]| (offsets[row + 1] - offsets[row]) as usize;
    FIXED
        + match column.data_type() {
            DataType::Utf8 => between(column.as_string::<i32>().value_offsets()),
            DataType::Binary => between(column.as_binary::<i32>().value_offsets()),
            DataType::Struct(_) => {
                let row_of: &StructArray = column.as_struct();
                row_of.columns().iter().map(|column| value_bytes(column, row)).sum()
            }
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                of_elements(list.values(), list.value_offsets(), row)
            }
            DataType::Map(..) => {
                let map = column.as_map();
                let (keys, values) = (map.keys(), map.values());
                of_elements(keys, map.value_offsets(), row)
                    + of_elements(values, map.value_offsets(), row)
            }
            _ => 0,
        }
}

fn of_elements(values: &ArrayRef, offsets: &[i32], row: usize) -> usize {
    (offsets[row] as usize..offsets[row + 1] as usize).map(|at| value_bytes(values, at)).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;
    use arrow::array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn lists(lists: &[Option<Vec<Option<i32>>>]) -> ArrayRef {
        let mut builder = ListBuilder::new(Int32Builder::new());
        lists.iter().for_each(|list| builder.append_option(list.clone()));
        Arc::new(builder.finish())
    }

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let columns = columns.into_iter().map(|(name, column)| (name, column, true));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    fn unnest(outer: bool, beside: &RecordBatch, elements: Vec<(Element, DataType)>) -> Unnest {
        let mut fields = beside.schema().fields().to_vec();
        fields.pop();
        let shown = elements.iter().map(|(_, of)| Arc::new(Field::new("e", of.clone(), true)));
        fields.extend(shown);
        let elements = elements.iter().map(|(element, _)| *element).collect();
        let schema = Arc::new(Schema::new(fields));
        Unnest { body: plan::Unnest { outer, elements }, schema }
    }

    fn all(unnest: &Unnest, taken: &SelectedRows) -> Vec<SelectedRows> {
        let mut pieces = unnest.pieces(taken).unwrap();
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().unwrap() {
            all.push(piece.taken);
        }
        all
    }

    fn ints(array: &ArrayRef) -> Vec<Option<i32>> {
        array.as_primitive::<arrow::datatypes::Int32Type>().iter().collect()
    }

    /// By hand, of a slice, so that offsets do not begin at 0.
    #[test]
    fn elements_become_rows() {
        let array = lists(&[
            Some(vec![Some(9)]),
            Some(vec![Some(1), None, Some(3)]),
            None,
            Some(vec![]),
            Some(vec![Some(4)]),
        ]);
        let ids = Arc::new(Int32Array::from(vec![0, 10, 20, 30, 40]));
        let rows = batch(vec![("id", ids), ("l", array)]).slice(1, 4);
        let int = DataType::Int32;
        let elements = vec![(Element::Whole, int.clone()), (Element::Ordinality, int)];
        let taken = SelectedRows { rows: rows.clone(), places: Some(vec![5, 6, 7, 9]) };
        let inner = all(&unnest(false, &rows, elements.clone()), &taken);
        let [piece] = &inner[..] else { panic!("{} pieces", inner.len()) };
        let some = |values: &[i32]| values.iter().map(|v| Some(*v)).collect::<Vec<_>>();
        assert_eq!(ints(piece.rows.column(0)), some(&[10, 10, 10, 40]));
        assert_eq!(ints(piece.rows.column(1)), [Some(1), None, Some(3), Some(4)]);
        assert_eq!(ints(piece.rows.column(2)), some(&[1, 2, 3, 1]));
        assert_eq!(piece.places, Some(vec![5, 5, 5, 9]));
        let outer = all(&unnest(true, &rows, elements), &SelectedRows { places: None, ..taken });
        let [piece] = &outer[..] else { panic!("{} pieces", outer.len()) };
        assert_eq!(ints(piece.rows.column(0)), some(&[10, 10, 10, 20, 30, 40]));
        let expected = [Some(1), None, Some(3), None, None, Some(4)];
        assert_eq!(ints(piece.rows.column(1)), expected);
        let expected = [Some(1), Some(2), Some(3), None, None, Some(1)];
        assert_eq!(ints(piece.rows.column(2)), expected);
        assert_eq!(piece.places, Some(vec![0, 0, 0, 1, 2, 3]));
    }

    /// Values beneath a NULL are not seen: neither of a list nor of a row.
    #[test]
    fn nulls_hide_what_is_beneath_them() {
        use arrow::array::ListArray;
        use arrow::buffer::{NullBuffer, OffsetBuffer};
        let fields = vec![Field::new("a", DataType::Int32, true)].into();
        let nulls = |valid: &[bool]| Some(NullBuffer::from(valid.to_vec()));
        let values = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
        let rows = StructArray::new(fields, vec![values], nulls(&[true, false, true, true]));
        let item = Arc::new(Field::new("item", rows.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([2, 1, 1]);
        let list = ListArray::new(item, offsets, Arc::new(rows), nulls(&[true, false, true]));
        let rows = batch(vec![("l", Arc::new(list))]);
        let unnest = unnest(false, &rows, vec![(Element::Field(0), DataType::Int32)]);
        let pieces = all(&unnest, &SelectedRows::from(rows));
        assert_eq!(ints(pieces[0].rows.column(0)), [Some(1), None, Some(4)]);
        assert_eq!(pieces[0].places, Some(vec![0, 0, 2]));
    }

    #[test]
    fn entries_of_maps_have_keys_and_values() {
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        for (key, value) in [("a", Some(1)), ("b", None)] {
            maps.keys().append_value(key);
            maps.values().append_option(value);
        }
        maps.append(true).unwrap();
        maps.append(false).unwrap();
        let rows = batch(vec![("m", Arc::new(maps.finish()))]);
        let elements =
            vec![(Element::Field(1), DataType::Int32), (Element::Field(0), DataType::Utf8)];
        let pieces = all(&unnest(true, &rows, elements), &SelectedRows::from(rows));
        assert_eq!(ints(pieces[0].rows.column(0)), [Some(1), None, None]);
        let keys: Vec<_> = pieces[0].rows.column(1).as_string::<i32>().iter().collect();
        assert_eq!(keys, [Some("a"), Some("b"), None]);
    }

    /// A million elements, and a text of a megabyte beside a thousand.
    #[test]
    fn pieces_are_bounded() {
        let many: Vec<_> = (0..1_000_000).map(Some).collect();
        let rows = batch(vec![("l", lists(&[Some(vec![]), Some(many), Some(vec![Some(-1)])]))]);
        let whole = || vec![(Element::Whole, DataType::Int32)];
        let pieces = all(&unnest(false, &rows, whole()), &SelectedRows::from(rows.clone()));
        assert!(pieces.iter().all(|piece| piece.rows.num_rows() <= PIECE_ROWS));
        let values: Vec<_> = pieces.iter().flat_map(|piece| ints(piece.rows.column(0))).collect();
        assert!(values.iter().copied().eq((0..1_000_000).chain([-1]).map(Some)));
        let (made, taken) = (unnest(false, &rows, whole()), SelectedRows::from(rows));
        let mut pieces = made.pieces(&taken).unwrap();
        let mut continued = Vec::new();
        while let Some(piece) = pieces.next().unwrap() {
            continued.push(piece.continued);
        }
        assert_eq!((continued[0], continued[1], continued.len()), (None, Some(1), 62));
        let text = StringArray::from(vec!["x".repeat(1 << 20)]);
        let array = lists(&[Some((0..1000).map(Some).collect())]);
        let rows = batch(vec![("s", Arc::new(text)), ("l", array)]);
        let pieces = all(&unnest(false, &rows, whole()), &SelectedRows::from(rows));
        assert!(pieces.iter().all(|piece| piece.rows.num_rows() <= 4), "{}", pieces.len());
        let values: Vec<_> = pieces.iter().flat_map(|piece| ints(piece.rows.column(1))).collect();
        assert!(values.into_iter().eq((0..1000).map(Some)));
    }

    #[test]
    fn nothing_comes_to_one_empty_piece() {
        let rows = batch(vec![("l", lists(&[Some(vec![]), None]))]);
        let elements = vec![(Element::Whole, DataType::Int32)];
        let pieces = all(&unnest(false, &rows, elements), &SelectedRows::from(rows));
        assert_eq!(pieces.len(), 1);
        assert_eq!((pieces[0].rows.num_rows(), pieces[0].rows.num_columns()), (0, 1));
    }
}
