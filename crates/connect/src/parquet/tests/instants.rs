//! Instants of 96 bits.

use arrow::datatypes::{TimestampMicrosecondType, TimestampNanosecondType};
use parquet::data_type::{Int64Type as Int64, Int96, Int96Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::input::Input;

/// By day since 1970 and nanosecond of the day, and in microseconds since 1970: the first of year
/// 1, the last microsecond of year 9999, and one with digits below a microsecond.
const INSTANTS: [(i64, u64, i64); 4] = [
    (-719_162, 0, -62_135_596_800_000_000),
    (2_932_896, 86_399_999_999_000, 253_402_300_799_999_999),
    (0, 1_999, 1),
    (-1, 86_399_999_999_999, -1),
];

/// A file with them as a column and in a row, beside a time in nanoseconds.
fn file() -> Scratch {
    let message = "message m { required int96 at; required group r {
        required int64 c (TIMESTAMP(NANOS, false)); required int96 b; } }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    // 1970-01-01 has the Julian day 2,440,588.
    let instant = |(day, nanos, _): (i64, u64, i64)| {
        let parts = [nanos as u32, (nanos >> 32) as u32, (day + 2_440_588) as u32];
        Int96::from(parts.to_vec())
    };
    let instants = INSTANTS.map(instant);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for leaf in 0..3 {
        let mut column = group.next_column().unwrap().unwrap();
        match leaf {
            1 => column.typed::<Int64>().write_batch(&[1, 2, 3, 4], None, None).unwrap(),
            _ => column.typed::<Int96Type>().write_batch(&instants, None, None).unwrap(),
        };
        column.close().unwrap();
    }
    group.close().unwrap();
    Scratch::new(&writer.into_inner().unwrap())
}

fn at(unit: TimeUnit) -> SchemaRef {
    Arc::new(Schema::new(vec![field("at", DataType::Timestamp(unit, None))]))
}

#[test]
fn instants_of_all_years_are_read_as_microseconds() {
    let file = file();
    let stamp = |unit| DataType::Timestamp(unit, None);
    let row = vec![
        Field::new("c", stamp(TimeUnit::Nanosecond), false),
        Field::new("b", stamp(TimeUnit::Microsecond), false),
    ];
    let bytes = fs::read(&file.0).unwrap();
    let (known, unknown) = crate::parquet::schema_of(Input::memory(&bytes), "x".into()).unwrap();
    let types = known.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
    let expected = vec![stamp(TimeUnit::Microsecond), DataType::Struct(row.into())];
    assert_eq!((&types, unknown.len()), (&expected, 0));
    let table = file.table(&Arc::new(known));
    let found = read(&table, &[0, 1], &OpenOptions::alone(100, 0, 1)).unwrap().remove(0);
    let expected = INSTANTS.map(|(_, _, us)| us);
    let micros =
        |column: &ArrayRef| column.as_primitive::<TimestampMicrosecondType>().values().to_vec();
    assert_eq!(micros(found.column(0)), expected);
    let row = found.column(1).as_struct();
    assert_eq!(micros(row.column(1)), expected);
    let nanos = row.column(0).as_primitive::<TimestampNanosecondType>();
    assert_eq!(nanos.values().to_vec(), [1, 2, 3, 4]);
}

#[test]
fn an_instant_that_nanoseconds_do_not_reach_is_an_error() {
    let file = file();
    let error = read(&file.table(&at(TimeUnit::Nanosecond)), &[0], &OpenOptions::alone(9, 0, 1));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("column 'at'") && error.contains("type that it has"), "{error}");
}
