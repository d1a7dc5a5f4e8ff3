//! Tests of conforming: values by hand in one layout, and the same in another.

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::*;

use super::*;

fn to(array: ArrayRef) -> ArrayRef {
    let wanted = conformed(array.data_type()).unwrap();
    assert_eq!(conformed(&wanted).as_ref(), Some(&wanted), "it is conformed for good");
    let made = conform(&array, &wanted).unwrap();
    assert_eq!(made.data_type(), &wanted);
    made
}

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

fn texts() -> StringArray {
    StringArray::from(vec![Some("a"), None, Some("longer than twelve bytes"), Some("a")])
}

#[test]
fn layouts_of_texts_and_bytes_are_one() {
    let plain: ArrayRef = Arc::new(texts());
    let keys = Int8Array::from(vec![Some(0), None, Some(1), Some(0)]);
    let values = StringViewArray::from(vec!["a", "longer than twelve bytes"]);
    let runs = RunArray::try_new(&Int32Array::from(vec![1, 2, 3, 4]), &texts()).unwrap();
    let layouts: [ArrayRef; 5] = [
        Arc::new(texts()),
        Arc::new(LargeStringArray::from_iter(texts().iter())),
        Arc::new(StringViewArray::from_iter(texts().iter())),
        Arc::new(DictionaryArray::<Int8Type>::try_new(keys, Arc::new(values)).unwrap()),
        Arc::new(runs),
    ];
    for layout in layouts {
        assert_eq!(&to(layout.clone()), &plain, "{}", layout.data_type());
        // Of a slice, the same.
        assert_eq!(&to(layout.slice(2, 2)), &plain.slice(2, 2), "{}", layout.data_type());
    }
    let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"\xff\0", b"ab"]));
    let fixed = FixedSizeBinaryArray::try_from_iter([b"\xff\0", b"ab"].iter()).unwrap();
    assert_eq!(&to(Arc::new(fixed)), &bytes);
    assert_eq!(&to(Arc::new(BinaryViewArray::from_iter_values([&b"\xff\0"[..], b"ab"]))), &bytes);
}

#[test]
fn numbers_and_times_lose_nothing() {
    let decimals = Decimal64Array::from(vec![Some(-12345), None]);
    let decimals = decimals.with_precision_and_scale(9, 2).unwrap();
    let wide = Decimal128Array::from(vec![Some(-12345), None]);
    let wide: ArrayRef = Arc::new(wide.with_precision_and_scale(9, 2).unwrap());
    assert_eq!(&to(Arc::new(decimals)), &wide);
    let large = Decimal256Array::from(vec![Some(i256::from_i128(-12345)), None]);
    let large = large.with_precision_and_scale(9, 2).unwrap();
    assert_eq!(&to(Arc::new(large)), &wide);
    let dates = Date64Array::from(vec![Some(-DAY_MS), None, Some(2 * DAY_MS)]);
    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(-1), None, Some(2)]));
    assert_eq!(&to(Arc::new(dates)), &days);
    let between: ArrayRef = Arc::new(Date64Array::from(vec![DAY_MS + 1]));
    assert!(conform(&between, &DataType::Date32).is_err());
    let local = TimestampNanosecondArray::from(vec![7]).with_timezone("+02:00");
    let utc: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![7]).with_timezone("UTC"));
    assert_eq!(&to(Arc::new(local)), &utc);
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX]));
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    assert!(widens(seconds.data_type(), &micros));
    assert!(conform(&seconds, &micros).is_err(), "no year of that calendar");
    let (unsigned, signed): (ArrayRef, ArrayRef) =
        (Arc::new(UInt32Array::from(vec![u32::MAX])), Arc::new(Int64Array::from(vec![4294967295])));
    assert_eq!(&conform(&unsigned, &DataType::Int64).unwrap(), &signed);
}

#[test]
fn only_what_fits_widens() {
    use DataType::*;
    for (from, wider) in [
        (Int32, Int64),
        (UInt32, Int64),
        (Int16, Float32),
        (UInt32, Float64),
        (Float32, Float64),
        (Decimal128(9, 2), Decimal128(11, 4)),
        (Time32(TimeUnit::Second), Time64(TimeUnit::Nanosecond)),
    ] {
        assert!(widens(&from, &wider), "{from} to {wider}");
        assert!(!widens(&wider, &from), "{wider} to {from}");
    }
    assert!(!widens(&UInt64, &Int64) && !widens(&Int64, &Float64) && !widens(&Int64, &Utf8));
    assert!(!widens(&Decimal128(9, 2), &Decimal128(10, 4)), "digits before the point");
}

#[test]
fn times_may_have_fewer_digits_if_those_are_zeros() {
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    for (micros, expected) in [(-3_000_000, Some(-3)), (5_000_001, None), (-1, None)] {
        let array: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![None, Some(micros)]));
        assert!(may_hold(array.data_type(), &seconds) && !widens(array.data_type(), &seconds));
        let made = conform(&array, &seconds).ok();
        let made = made.map(|made| made.as_primitive::<TimestampSecondType>().value(1));
        assert_eq!(made, expected, "{micros}");
    }
    let times: ArrayRef = Arc::new(Time64NanosecondArray::from(vec![7_000_000]));
    let made = conform(&times, &DataType::Time32(TimeUnit::Millisecond)).unwrap();
    assert_eq!(made.as_primitive::<Time32MillisecondType>().value(0), 7);
    assert!(conform(&times, &DataType::Time32(TimeUnit::Second)).is_err());
    assert_eq!(wider(&seconds, times.data_type()), None);
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    assert_eq!(wider(&millis, &seconds), Some(millis));
}

#[test]
fn lists_of_every_layout_have_an_item() {
    let lists = |offsets: Vec<i32>| {
        let element = Arc::new(field("element", LargeStringArray::DATA_TYPE));
        let values = Arc::new(LargeStringArray::from(vec![Some("x"), None, Some("y"), Some("z")]));
        let nulls = NullBuffer::from(vec![true, false, true]);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        ListArray::try_new(element, offsets, values, Some(nulls)).unwrap()
    };
    let made = to(Arc::new(lists(vec![0, 2, 2, 4])));
    let expected: ArrayRef = {
        let mut builder = ListBuilder::new(StringBuilder::new());
        builder.append_value([Some("x"), None]);
        builder.append_null();
        builder.append_value([Some("y"), Some("z")]);
        Arc::new(builder.finish())
    };
    assert_eq!(&made, &expected);
    // Of a slice, only its values are looked at.
    let sliced = to(Arc::new(lists(vec![0, 2, 2, 4]).slice(2, 1)));
    assert_eq!(&sliced, &expected.slice(2, 1));
    assert_eq!(sliced.as_list::<i32>().values().len(), 2);
    let fixed = FixedSizeListArray::new(
        Arc::new(field("element", DataType::UInt8)),
        2,
        Arc::new(UInt8Array::from(vec![1, 2, 3, 4])),
        None,
    );
    let made = to(Arc::new(fixed));
    assert_eq!(made.data_type(), &DataType::new_list(DataType::UInt8, true));
    assert_eq!(made.as_list::<i32>().value(1).as_primitive::<UInt8Type>().values(), &[3, 4]);
}

#[test]
fn rows_are_matched_by_name_and_maps_by_place() {
    let rows = StructArray::from(vec![
        (Arc::new(field("unread", DataType::Int32)), Arc::new(Int32Array::from(vec![1, 2])) as _),
        (
            Arc::new(field("B", DataType::Utf8View)),
            Arc::new(StringViewArray::from(vec!["x", "y"])) as ArrayRef,
        ),
        (Arc::new(field("a", DataType::Int16)), Arc::new(Int16Array::from(vec![3, 4])) as _),
    ]);
    let (a, b) = (field("a", DataType::Int64), field("b", DataType::Utf8));
    let declared = DataType::Struct(vec![a, b].into());
    let array: ArrayRef = Arc::new(rows);
    assert!(widens(&conformed(array.data_type()).unwrap(), &declared));
    let made = conform(&array, &declared).unwrap();
    assert_eq!(made.as_struct().column(0).as_primitive::<Int64Type>().values(), &[3, 4]);
    assert_eq!(made.as_struct().column(1).as_string::<i32>().value(1), "y");
    let other = DataType::Struct(vec![field("c", DataType::Utf8)].into());
    assert!(!widens(&conformed(array.data_type()).unwrap(), &other));

    let names =
        MapFieldNames { entry: "key_value".into(), key: "keys".into(), value: "values".into() };
    let mut maps = MapBuilder::new(Some(names), StringViewBuilder::new(), Date64Builder::new());
    maps.keys().append_value("k");
    maps.values().append_value(DAY_MS);
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    let made = to(Arc::new(maps.finish()));
    let mut expected = MapBuilder::new(None, StringBuilder::new(), Date32Builder::new());
    expected.keys().append_value("k");
    expected.values().append_value(1);
    expected.append(true).unwrap();
    expected.append(false).unwrap();
    let expected = expected.finish();
    assert_eq!(made.as_map().entries().column(0), expected.entries().column(0));
    assert_eq!(made.as_map().entries().column(1), expected.entries().column(1));
    assert_eq!((made.as_map().value_length(0), made.is_null(1)), (1, true));
    let DataType::Map(entries, false) = made.data_type() else { panic!("no map") };
    let DataType::Struct(fields) = entries.data_type() else { panic!("no entries") };
    let named: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    assert_eq!((entries.name().as_str(), &named[..]), ("entries", &["key", "value"][..]));
}

/// NULL within what may have none is an error, and so is a type of which SQL has none.
#[test]
fn what_does_not_fit_is_refused() {
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let offsets = OffsetBuffer::from_lengths([2]);
    let item = Arc::new(field(ITEM, DataType::Int32));
    let lists: ArrayRef = Arc::new(ListArray::try_new(item, offsets, values, None).unwrap());
    assert!(conform(&lists, &DataType::new_list(DataType::Int32, false)).is_err());
    let days = DataType::Interval(IntervalUnit::DayTime);
    for none in [DataType::Null, days.clone(), DataType::new_list(days, true)] {
        assert_eq!(conformed(&none), None);
    }
    assert_eq!(conformed(&DataType::Struct(Fields::empty())), None);
    assert_eq!(conformed(&DataType::Decimal256(76, 2)), None);
}
