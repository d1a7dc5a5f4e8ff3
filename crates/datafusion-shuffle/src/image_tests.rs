//! Batches of all kinds come out as they went in, from slots of any length.

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{Field, Int32Type, Schema, UnionFields};

use super::*;

/// What arrives of an image in slots with so much room.
fn arrived(image: &Image, room: usize) -> Vec<Buffer> {
    let table = image.table();
    let parts = image.parts(&table, room);
    let copy = |part: &Part<'_>| {
        let mut slot = MutableBuffer::from_len_zeroed(part.bytes);
        for (at, bytes) in &part.pieces {
            slot[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        assert!(part.bytes <= room, "{} bytes in a slot of {room}", part.bytes);
        slot.into()
    };
    parts.iter().map(copy).collect()
}

fn parts<'a>(image: &Image, parts: &'a [Buffer], room: usize) -> Parts<'a> {
    let rows = image.rows as u64;
    Parts { parts, room, kind: image.kind, rows, table_bytes: image.table_bytes() }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

/// Every layout, with rows that are null.
fn everything(rows: i32) -> RecordBatch {
    let some = |at: i32| (at % 5 != 3).then_some(at);
    let texts = || (0..rows).map(move |at| some(at).map(|at| format!("text {at} {}", at * 7)));
    let long = |at: i32| format!("a text that is no part of its view, number {at}");
    let lists = (0..rows)
        .map(|at| some(at).map(|at| (0..at % 4).map(|one| Some(at + one)).collect::<Vec<_>>()));
    let values = Arc::new(Int32Array::from_iter((0..rows).map(some)));
    let names: StringArray = texts().collect();
    let inner = Field::new("value", DataType::Int32, true);
    let pairs = StructArray::from(vec![(Arc::new(inner), values.clone() as ArrayRef)]);
    batch(vec![
        ("null", Arc::new(NullArray::new(rows as usize))),
        (
            "boolean",
            Arc::new(BooleanArray::from_iter((0..rows).map(|at| some(at).map(|at| at % 2 == 0)))),
        ),
        ("int", values),
        (
            "decimal",
            Arc::new(Decimal128Array::from_iter((0..rows).map(|at| some(at).map(i128::from)))),
        ),
        ("utf8", Arc::new(names)),
        ("large", Arc::new(LargeStringArray::from_iter(texts()))),
        ("binary", Arc::new(BinaryArray::from_iter(texts()))),
        ("view", Arc::new(StringViewArray::from_iter((0..rows).map(|at| some(at).map(long))))),
        ("short view", Arc::new(StringViewArray::from_iter(texts()))),
        (
            "fixed",
            Arc::new(
                FixedSizeBinaryArray::try_from_iter((0..rows).map(|at| at.to_le_bytes())).unwrap(),
            ),
        ),
        (
            "dictionary",
            Arc::new(
                (0..rows)
                    .map(|at| some(at % 3).map(|at| ["a", "b", "c"][at as usize]))
                    .collect::<DictionaryArray<Int32Type>>(),
            ),
        ),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ("struct", Arc::new(pairs)),
    ])
}

fn comes_out(batch: &RecordBatch, room: usize) -> u64 {
    let image = Image::of(batch).unwrap();
    assert_eq!(image.kind, Kind::Batch);
    let slots = arrived(&image, room);
    let (out, joined) = parts(&image, &slots, room).batch(&batch.schema()).unwrap();
    assert_eq!(&out, batch, "in slots of {room}");
    joined
}

#[test]
fn every_layout_comes_out_as_it_went_in() {
    for rows in [1, 8, 100, 1000] {
        let batch = everything(rows);
        for room in [64, 200, 4016, 65536 - 64, 1 << 20] {
            let joined = comes_out(&batch, room);
            assert!(room < 65536 - 64 || joined == 0, "nothing is longer than a slot");
        }
    }
}

#[test]
fn slices_come_out_from_any_offset() {
    let batch = everything(300);
    for offset in [1, 7, 8, 131] {
        for rows in [0, 1, 9, 160] {
            comes_out(&batch.slice(offset, rows), 1000);
        }
    }
    // Of a slice only its own values are sent: 10 of 300 texts.
    let texts = Arc::new(StringArray::from_iter_values((0..300).map(|at| format!("{at:050}"))));
    let slice = self::batch(vec![("texts", texts as ArrayRef)]).slice(200, 10);
    let image = Image::of(&slice).unwrap();
    let bytes: usize = image.buffers.iter().map(Buffer::len).sum();
    assert_eq!(bytes, 11 * 4 + 10 * 50);
    assert_eq!(image.rewritten_bytes, 11 * 4, "offsets begin at 0");
}

#[test]
fn values_that_no_view_points_to_stay_behind() {
    let texts = StringViewArray::from_iter_values((0..100).map(|at| format!("{at:040}")));
    let batch = batch(vec![("texts", Arc::new(texts.slice(5, 2)) as ArrayRef)]);
    let image = Image::of(&batch).unwrap();
    let bytes: usize = image.buffers.iter().map(Buffer::len).sum();
    assert_eq!(bytes, 2 * 16 + 2 * 40);
    comes_out(&batch, 4096);
}

#[test]
fn a_batch_without_columns_has_rows() {
    let options = RecordBatchOptions::new().with_row_count(Some(7));
    let schema = Arc::new(Schema::empty());
    let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    comes_out(&batch, 128);
}

#[test]
fn a_type_without_layout_is_serialised() {
    let fields: UnionFields =
        [(0, Arc::new(Field::new("int", DataType::Int32, false)))].into_iter().collect();
    let values: ArrayRef = Arc::new(Int32Array::from(vec![4, 5]));
    let union = UnionArray::try_new(fields, vec![0, 0].into(), None, vec![values]).unwrap();
    let batch = batch(vec![("union", Arc::new(union) as ArrayRef)]);
    let image = Image::of(&batch).unwrap();
    assert_eq!(image.kind, Kind::Serialised);
    let slots = arrived(&image, 100);
    assert_eq!(parts(&image, &slots, 100).batch(&batch.schema()).unwrap().0, batch);
}

#[test]
fn schemas_come_out_as_they_went_in() {
    let schema = everything(1).schema();
    assert_eq!(decode_schema(&encode_schema(&schema).unwrap()).unwrap(), schema);
}

/// A peer that writes nonsense gets an error, never a panic or a batch of wrong texts.
#[test]
fn damaged_messages_are_refused_or_harmless() {
    let batch = everything(20);
    let image = Image::of(&batch).unwrap();
    let slots = arrived(&image, 1 << 16);
    let mut refused = 0;
    for at in (0..slots[0].len()).step_by(7) {
        for value in [0x01, 0xff] {
            let mut bytes = MutableBuffer::from_len_zeroed(slots[0].len());
            bytes.copy_from_slice(&slots[0]);
            bytes[at] = value;
            let damaged = [Buffer::from(bytes)];
            match parts(&image, &damaged, 1 << 16).batch(&batch.schema()) {
                Ok((out, _)) => {
                    drop(datafusion::arrow::util::pretty::pretty_format_batches(&[out]).unwrap())
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100, "{refused}");
    let short = [slots[0].slice_with_length(0, slots[0].len() - 100)];
    assert!(parts(&image, &short, 1 << 16).batch(&batch.schema()).is_err());
    let mut long = parts(&image, &slots, 1 << 16);
    long.table_bytes = u64::MAX - 7;
    assert!(long.batch(&batch.schema()).is_err());
}
