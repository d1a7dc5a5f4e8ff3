//! Tests that keys do not depend on the bytes that an Arrow array keeps below a NULL.

use arrow::array::{
    DictionaryArray, Float64Array, GenericByteArray, Int32Array, StringArray,
    TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow::buffer::{BooleanBuffer, OffsetBuffer};
use arrow::compute::take;

use millstream_state::{ChunkPool, Keys, RowLayout, Scratch, Table};

use super::*;
use crate::expr::Expr;

/// A third of the rows are NULL.
const NULLS: [bool; 6] = [true, false, true, true, false, true];
/// Key values, of which those below a NULL are leftovers: one as another row's, one as no other's.
const VALUES: [i64; 6] = [7, 7, 0, 8, 9, 7];

/// A column of texts with leftovers below its NULLs.
fn texts<T: ByteArrayType>(nulls: &NullBuffer) -> GenericByteArray<T> {
    let text: String = VALUES.iter().map(i64::to_string).collect();
    let offsets = OffsetBuffer::from_lengths([1; VALUES.len()]);
    GenericByteArray::new(offsets, text.as_bytes().into(), Some(nulls.clone()))
}

/// A column for each kind of key.
fn columns() -> Vec<ArrayRef> {
    let nulls = NullBuffer::from(NULLS.to_vec());
    let some = Some(nulls.clone());
    let odd: BooleanBuffer = VALUES.iter().map(|v| v % 2 == 1).collect();
    let decimals = VALUES.map(|v| i128::from(v) << 70 | i128::from(v)).to_vec();
    vec![
        Arc::new(BooleanArray::new(odd, some.clone())),
        Arc::new(Int32Array::new(VALUES.map(|v| v as i32).to_vec().into(), some.clone())),
        Arc::new(Int64Array::new(VALUES.to_vec().into(), some.clone())),
        Arc::new(UInt64Array::new(VALUES.map(|v| v as u64).to_vec().into(), some.clone())),
        Arc::new(Float64Array::new(VALUES.map(|v| v as f64).to_vec().into(), some.clone())),
        Arc::new(TimestampMicrosecondArray::new(VALUES.to_vec().into(), some.clone())),
        Arc::new(Decimal128Array::new(decimals.into(), some)),
        Arc::new(texts::<Utf8Type>(&nulls)),
        Arc::new(texts::<LargeUtf8Type>(&nulls)),
        Arc::new(texts::<BinaryType>(&nulls)),
    ]
}

fn codec(columns: &[ArrayRef]) -> KeyCodec {
    let key = |(i, column): (usize, &ArrayRef)| Key {
        name: format!("k{i}"),
        expr: Expr::Column(i),
        data_type: column.data_type().clone(),
        nullable: true,
    };
    let keys: Vec<Key> = columns.iter().enumerate().map(key).collect();
    KeyCodec::new(&keys).expect("all of them can be keys")
}

/// Every NULL has the same words, whatever is below it, and no word of another row.
#[test]
fn leftovers_below_a_null_are_no_part_of_a_key() {
    let rows: Vec<u32> = (0..NULLS.len() as u32).collect();
    for column in columns() {
        let (data_type, columns) = (column.data_type().clone(), [column]);
        let codec = codec(&columns);
        let mut block = KeyBlock::default();
        let keys = codec.encode(&columns, &rows, true, &mut block);
        let words: Vec<&[u64]> = keys.words.chunks(codec.words()).collect();
        for (row, valid) in NULLS.iter().enumerate() {
            let null = [&[1], &vec![0; codec.words() - 1][..]].concat();
            assert_eq!(words[row] == null, !valid, "{data_type}, row {row}: {:?}", words[row]);
        }
        assert_eq!(keys.hashes[1], keys.hashes[4], "{data_type}");
    }
}

/// The rows of state are as many as there are keys, and give NULL back. Beside each other, each key
/// clears its own words only.
#[test]
fn nulls_with_leftovers_are_one_group() {
    let rows: Vec<u32> = (0..NULLS.len() as u32).collect();
    let columns = columns();
    let codec = codec(&columns);
    let layout = Arc::new(RowLayout::new(codec.words(), codec.var_words(), &[]));
    let mut table = Table::new(layout.clone());
    let (mut pool, mut scratch) = (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
    let mut block = KeyBlock::default();
    let EncodedKeys { words, hashes } = codec.encode(&columns, &rows, true, &mut block);
    let vars = VarColumn::of(&columns);
    let vars = ColumnVars { columns: &vars, rows: &rows };
    table.update(&Keys { hashes, ahead: &[], words, vars }, &mut pool, &mut scratch);
    // 7 twice, 0 and 8; and NULL.
    assert_eq!(table.rows(), 4);
    let decoded = codec.decode(&table.scan(0), 0..columns.len()).expect("keys");
    for (column, original) in decoded.iter().zip(&columns) {
        assert_eq!(column.null_count(), 1, "{}", original.data_type());
        // In the order in which they came.
        let first = |row: usize| column.slice(row, 1).to_data() == original.slice(row, 1).to_data();
        assert!((0..4).all(first), "{}", original.data_type());
    }
}

/// A dictionary's keys are those of its texts: of each value once, or of each row, where there are
/// more values than rows.
#[test]
fn keys_of_a_dictionary_are_those_of_its_texts() {
    let some = [Some("b"), None, Some("a"), Some("a long text that no word holds"), Some("b")];
    let plain: ArrayRef = Arc::new(some.iter().copied().collect::<StringArray>());
    let values = ["unused", "a long text that no word holds", "b", "a", "", "unused, too"];
    // What stands where NULL does is no value's place.
    let places = Int32Array::new(
        vec![2, -7, 3, 1, 2].into(),
        Some(NullBuffer::from(some.map(|text| text.is_some()).to_vec())),
    );
    let texts = DictionaryArray::new(places, Arc::new(StringArray::from(values.to_vec())));
    let texts: ArrayRef = Arc::new(texts);
    let codec = codec(std::slice::from_ref(&plain));
    let many: Vec<u32> = (0..some.len() as u32).collect();
    assert_eq!(text_bytes(&texts), text_bytes(&plain));
    for rows in [&many[..], &[1, 3], &[0, 2, 4]] {
        let (mut block, mut other) = (KeyBlock::default(), KeyBlock::default());
        let expected = codec.encode(std::slice::from_ref(&plain), rows, true, &mut block);
        let found = codec.encode(std::slice::from_ref(&texts), rows, true, &mut other);
        assert_eq!((found.words, found.hashes), (expected.words, expected.hashes), "{rows:?}");
    }
    // Of more rows than values.
    let repeated = take(&texts, &UInt32Array::from_iter_values((0..20).map(|i| i % 5)), None);
    let repeated = repeated.expect("rows that there are");
    let rows: Vec<u32> = (0..20).collect();
    let (mut block, mut other) = (KeyBlock::default(), KeyBlock::default());
    let expected = codec.encode(std::slice::from_ref(&plain), &many, true, &mut block);
    let found = codec.encode(std::slice::from_ref(&repeated), &rows, true, &mut other);
    for (row, words) in found.words.chunks(codec.words()).enumerate() {
        let same = row % 5 * codec.words();
        assert_eq!(words, &expected.words[same..same + codec.words()], "row {row}");
    }
    let column = VarColumn::new(&repeated).expect("texts");
    let bytes: Vec<&[u8]> = (0..5).map(|row| column.bytes(row)).collect();
    assert_eq!(bytes, some.map(|text| text.unwrap_or_default().as_bytes()));
    // Rows that follow each other are copied together, without leftovers below NULLs.
    let columns = columns();
    for column in columns.iter().filter_map(VarColumn::new).chain([column]) {
        for rows in [&[0, 1, 2, 3, 4, 5][..], &[0, 2, 3, 5], &[3, 2, 2, 0], &[1], &[]] {
            let mut out = [0; 256];
            let length = column.copy(rows.iter().copied(), &mut out);
            let expected: Vec<&[u8]> = rows.iter().map(|row| column.bytes(*row)).collect();
            assert_eq!(out[..length], expected.concat(), "{rows:?}");
        }
    }
}
